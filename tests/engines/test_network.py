"""Connections to the hosts of an engine: silent name servers, moved hosts, TLS."""

import os
import signal
import socket
import subprocess

import pytest
from conftest import PATIENCE, finish, until
from servers import Etcd, PostgreSQL, Redis, ZooKeeper, ask, find_port, serve
from stub import Stub
from test_engines import Fleet

from solo.engines.engine import EntryRecord
from solo.engines.lease import Terms
from solo.engines.queue import Wait
from solo.engines.targets import ENGINES, import_engine, open_engine, parse_url
from solo.errors import SoloError, Unreachable, UsageError
from solo.modes import EXCLUSIVE, Claim

redis, zookeeper = serve(Redis), serve(ZooKeeper)
NAME = "engine.example"
URLS = [
    f"etcd://{NAME}:1",
    f"redis://{NAME}:1",
    f"zookeeper://{NAME}:1",
    f"postgresql://{NAME}:1/x?table=t",
]


@pytest.mark.parametrize(
    "url", "etcd://h?x=y redis://h?x=y zookeeper://h?x=y s3://b?region=r&x=y".split()
)
def test_unknown_setting_is_a_usage_error(url):
    with pytest.raises(UsageError, match="x: no such setting"):
        open_engine(url, Terms(15.0))


@pytest.mark.parametrize("url", "etcd://{} zookeeper://{} postgresql://{}/x?table=t".split())
def test_host_that_fails_is_named_among_several(lab, url):
    hosts = [f"127.0.0.1:{find_port()}" for _ in "ab"]

    one, two = (
        lab.run("--via", url.format(names), "-n", "job", "true")
        for names in (hosts[0], ",".join(hosts))
    )

    assert (one.returncode, two.returncode) == (69, 69)
    assert one.stderr.decode().endswith(f"{url.format(hosts[0])}: Connection refused\n")
    assert two.stderr.decode().endswith(f"{hosts[1]}: Connection refused\n")
    assert url[:4] == "post" or f": {hosts[0]}: Connection refused; " in two.stderr.decode()


def test_web_server_is_no_redis(lab):
    web = Stub(lambda *_: (200, b"<!DOCTYPE HTML>"))

    result = lab.run("--via", f"redis://127.0.0.1:{web.port}", "-n", "job", "true")

    assert result.returncode == 69 and result.stderr.endswith(b": the answer is not one of Redis\n")
    web.close()


def test_service_of_postgresql_that_is_not_defined_is_refused_at_once(lab):
    result = lab.run(
        "--via",
        "postgresql://?service=typo&table=t",
        "-n",
        "job",
        "-w",
        "1h",
        "true",
        timeout=PATIENCE,
    )

    assert result.returncode == 125 and b'definition of service "typo" not found' in result.stderr


class Names:
    """Name resolution of a command behind `prefix`: the file `hosts`, then a name server that never
    answers.
    """

    def __init__(self, path):
        self.hosts, resolver, switch = path / "hosts", path / "resolv.conf", path / "nsswitch.conf"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((f"127.53.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", 53))
        self.socket.settimeout(PATIENCE)
        resolver.write_text(f"nameserver {self.socket.getsockname()[0]}\noptions timeout:30\n")
        switch.write_text("hosts: files dns\n")
        self.hosts.write_text("")
        binds = "".join(
            f"mount --bind {file} /etc/{file.name} && " for file in (self.hosts, resolver, switch)
        )
        self.prefix = ("unshare", "--mount", "sh", "-c", f'{binds}exec "$@"', "sh")

    def move_host(self, address: str):
        """Change the address of the host NAME, which stays as long. A look-up never finds the file
        without it.
        """
        with open(self.hosts, "r+") as hosts:
            hosts.write(f"{address} {NAME}\n")

    def wait_question(self):
        """Wait until the name server gets a question."""
        self.socket.recv(1000)

    def list_questions(self) -> list:
        """Return the ids of the questions that wait. A look-up has two, one per address family,
        until it repeats them.
        """
        self.socket.setblocking(False)
        asked = []
        try:
            while True:
                asked.append(self.socket.recv(1000)[:2])
        except BlockingIOError:
            return asked


@pytest.fixture
def names(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    names = Names(tmp_path)
    yield names
    names.socket.close()


@pytest.mark.tool("unshare")
@pytest.mark.parametrize("url", URLS)
def test_silent_name_server_is_unreachable_in_time(lab, names, url):
    words = ["-n", "job", "--via", url, "--ttl", "5s", "--", "sh", "-c", "echo ran >>$LAB/log"]
    result = lab.run(*words, prefix=names.prefix)

    assert f"{NAME}: no name server answers".encode() in result.stderr
    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (69, 1, [])
    names.wait_question()
    assert len(names.list_questions()) < 2


@pytest.mark.tool("unshare")
@pytest.mark.parametrize("url", URLS)
def test_sigterm_ends_a_contender_that_looks_up_a_name(lab, names, url):
    waiting = lab.start(
        "-n", "job", "--via", url, "--wait", "1h", "--ttl", "1d", "true", prefix=names.prefix
    )
    names.wait_question()

    waiting.send_signal(signal.SIGTERM)

    assert finish(waiting)[0] == -signal.SIGTERM
    assert len(names.list_questions()) < 2


@pytest.mark.full  # needs a server
@pytest.mark.tool("unshare")
def test_lease_is_renewed_without_a_name_server(lab, names, zookeeper):
    """Each renewal at ZooKeeper is a new connection."""
    names.hosts.write_text(f"127.0.0.1 {NAME}\n")
    lease = (
        "-n",
        "job",
        "--via",
        f"zookeeper://{NAME}:{zookeeper.port}",
        "--ttl",
        "3s",
        "-k",
        "300ms",
    )
    holder = lab.start(*lease, "--", "sh", "-c", "read line; exit 3", prefix=names.prefix)
    until(
        lambda: (
            b"Zxid: 0x" in zookeeper.ask(b"srvr")
            and Fleet(lab, zookeeper).count("job", "held") == 1
        )
    )

    names.hosts.write_text("")
    before = zookeeper.read_zxid()
    until(lambda: zookeeper.read_zxid() > before + 8 or holder.poll() is not None)

    assert finish(holder)[0] == 3


@pytest.mark.full  # needs a server
@pytest.mark.tool("unshare")
def test_host_that_moved_is_found_at_its_new_address(lab, names, redis):
    names.hosts.write_text(f"127.0.0.9 {NAME}\n")
    words = ("-v", "-n", "job", "--via", f"redis://{NAME}:{redis.port}", "-w", "1h", "echo", "ran")
    waiting = lab.start(*words, prefix=names.prefix)
    assert (
        b"a new directory of names" in waiting.stderr.readline()
        and b"waiting" in waiting.stderr.readline()
    )

    names.move_host("127.0.0.1")

    assert finish(waiting)[:2] == (0, "ran\n")


MAKE = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -addext keyUsage=keyCertSign,digitalSignature"
SIGN = "-CA {0}.crt -CAkey {0}.key -addext authorityKeyIdentifier=keyid"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A directory with certificates: `server`, `client` and one without a common name, `nameless`,
    signed by `ca`, and `stranger` signed by `other`.
    """
    path = tmp_path_factory.mktemp("certificates")
    signers = {
        "ca": None,
        "other": None,
        "server": "ca",
        "client": "ca",
        "nameless": "ca",
        "stranger": "other",
    }
    for name, signer in signers.items():
        own = f"-subj /{'O' if name == 'nameless' else 'CN'}={name} -addext subjectAltName=IP:127.0.0.1 -keyout {name}.key -out {name}.crt"
        words = f"{MAKE} {own} {SIGN.format(signer) if signer else ''}".split()
        subprocess.run(words, check=True, capture_output=True, cwd=path)
        (path / f"{name}.key").chmod(0o600)
    (path / "server.pem").write_text(
        (path / "server.key").read_text() + (path / "server.crt").read_text()
    )
    return path


class SecureEtcd(Etcd):
    scheme = "etcds"

    def make_words(self):
        port, words = f"127.0.0.1:{self.port}", map(str, super().make_words())
        secure = "--cert-file {0}/server.crt --key-file {0}/server.key --trusted-ca-file {0}/ca.crt --client-cert-auth"
        return [
            word.replace(f"http://{port}", f"https://{port}") for word in words
        ] + secure.format(self.files).split()

    def is_ready(self):
        return "ready to serve client requests" in (self.path / "log").read_text()


class SecureRedis(Redis):
    scheme = "rediss"

    def make_words(self):
        words = list(map(str, super().make_words()))
        words[words.index("--port")] = "--tls-port"
        files = "--tls-cert-file {0}/server.crt --tls-key-file {0}/server.key --tls-ca-cert-file {0}/ca.crt"
        return [*words, "--port", "0", *files.format(self.files).split()]

    def is_ready(self):
        return "eady to accept connections" in (self.path / "log").read_text()


class SecureZooKeeper(ZooKeeper):
    scheme = "zookeepers"
    jars = ZooKeeper.jars + ":/usr/share/java/netty-codec.jar"  # missing in Debian's manifest

    def launch(self):
        self.secure_port = find_port()
        self.settings = (
            f"secureClientPort={self.secure_port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={self.files}/server.pem\nssl.trustStore.location={self.files}/ca.crt\nssl.trustStore.type=PEM\n"
        )
        super().launch()

    def start(self):
        super().start()
        until(
            lambda: socket.socket().connect_ex(("127.0.0.1", self.secure_port)) == 0
        )  # it opens this port last
        return self

    @property
    def url(self):
        return self.make_url(self.secure_port)


class SecurePostgreSQL(PostgreSQL):
    def start(self):
        for name in ("server.crt", "server.key", "ca.crt"):
            file = self.home / "data" / name
            file.write_bytes((self.files / name).read_bytes())
            file.chmod(0o600)
            os.chown(
                file,
                *[getattr(os.stat(self.home / "data"), field) for field in ("st_uid", "st_gid")],
            )
        (self.home / "data" / "postgresql.auto.conf").write_text(
            "ssl = on\nssl_ca_file = 'ca.crt'\n"
        )
        (self.home / "data" / "pg_hba.conf").write_text(
            "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n"
        )
        return super().start()


@pytest.fixture(scope="module", params=[SecureEtcd, SecureRedis, SecureZooKeeper, SecurePostgreSQL])
def secure(request, certificates, tmp_path_factory):
    server = request.param(tmp_path_factory.mktemp(request.param.scheme))
    server.files = certificates
    server.start()
    yield server
    server.stop()


def connect(server, authority, client, host="127.0.0.1", **login):
    """Return an engine that is connected with the certificates of these names. No authority: trust
    those of the system.
    """
    files = {"cafile": f"{authority}.crt"} if authority else {}
    if client is not None:
        files.update(certfile=f"{client}.crt", keyfile=f"{client}.key")
    target = parse_url(server.url.replace("127.0.0.1", host))
    target = target._replace(
        **{key: str(server.files / file) for key, file in files.items()}, **login
    )
    kind = ENGINES[target.scheme]
    pytest.importorskip(kind.library or "json")
    engine = import_engine(kind)(target, 15.0, PATIENCE)
    engine.connect()
    return engine


@pytest.mark.full  # needs servers
@pytest.mark.tool("openssl")
def test_trusted_certificates_of_both_sides_protect_a_lock(secure):
    engine = connect(secure, "ca", "client")
    engine.acquire("job", EntryRecord(Claim(EXCLUSIVE), launcher=1, since=1.0), Wait(None, None))

    assert engine.renew() is None
    [entry] = connect(secure, "ca", "client").list_entries()
    assert entry.name == "job" and engine.examine()
    engine.release()


@pytest.mark.full  # needs servers
@pytest.mark.tool("openssl")
@pytest.mark.parametrize(
    "authority, client, host, message",
    [
        ("other", "client", "127.0.0.1", "the server's certificate is not signed by .*/other.crt"),
        (None, "client", "127.0.0.1", "the server's certificate is not signed by"),
        ("ca", "client", "localhost", "the server's certificate is not"),
        ("ca", None, "127.0.0.1", "the server requires a client certificate"),
        (
            "ca",
            "stranger",
            "127.0.0.1",
            "the server does not accept the certificate .*/stranger.crt",
        ),
    ],
)
def test_untrusted_certificate_is_an_error_and_no_outage(secure, authority, client, host, message):
    if secure.scheme == "postgresql" and authority is None:
        pytest.skip("libpq verifies a server only if cafile is set")
    connect(secure, "ca", "client").release()

    expected = "certificate|unknown ca" if secure.scheme == "postgresql" else message
    with pytest.raises(SoloError, match=expected) as error:
        connect(secure, authority, client, host).list_entries()

    assert not isinstance(error.value, Unreachable) and "\n" not in str(error.value)


@pytest.mark.full  # needs a server
@pytest.mark.tool("openssl")
def test_etcd_with_client_certificates_and_users_needs_a_nameless_certificate(
    certificates, tmp_path
):
    server = SecureEtcd(tmp_path / "etcd")
    server.files = certificates
    server.start()
    try:
        files = {"cacert": "ca.crt", "cert": "client.crt", "key": "client.key"}
        options = [f"--{option}={certificates}/{file}" for option, file in files.items()]
        etcdctl = [
            "env",
            "ETCDCTL_API=3",
            "etcdctl",
            f"--endpoints=https://127.0.0.1:{server.port}",
            *options,
        ]
        for line in (
            "user add root:rootpw",
            "role add root",
            "user grant-role root root",
            "auth enable",
        ):
            ask(*etcdctl, *line.split())
        root = {"user": "root", "password": "rootpw"}
        for login in ({}, root):
            with pytest.raises(
                SoloError, match="HTTP 400: CommonName .* without a common name, and a user"
            ):
                connect(server, "ca", "client", **login).list_entries()

        engine = connect(server, "ca", "nameless", **root)
        engine.acquire(
            "job", EntryRecord(Claim(EXCLUSIVE), launcher=1, since=1.0), Wait(None, None)
        )
        assert [entry.name for entry in engine.list_entries()] == ["job"]
        engine.release()
    finally:
        server.stop()
