"""Real servers of the engines, for tests: each on free loopback ports and in its own directory, to
be stopped and restarted.
"""

import atexit
import glob
import http.client
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
from conftest import ROOT, need_tools, until
from proxy import HOLE, Proxy

from solo.engines.s3 import sign


def find_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(*words, **options) -> str:
    """Run a program that must succeed; return its stdout."""
    return subprocess.run(
        words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options
    ).stdout


def is_answered(url: str) -> bool:
    """Whether a server has an answer for this URL, other than an error."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def serve(kinds, scope="module"):
    """Return a fixture: a running server of this class, or of each of {parameter: class}."""
    named = kinds if isinstance(kinds, dict) else None

    @pytest.fixture(scope=scope, params=named)
    def server(request, tmp_path_factory):
        kind = named[request.param] if named else kinds
        server = kind(tmp_path_factory.mktemp(kind.__name__.lower())).start()
        yield server
        server.stop()

    return server


def serve_alone():
    """Return a fixture: a function that starts a server of a class for one test, with these
    attributes.
    """

    @pytest.fixture
    def start_server(tmp_path):
        servers = []

        def start(kind, **attributes):
            server = kind(tmp_path / f"server{len(servers)}")
            vars(server).update(attributes)
            servers.append(server)
            return server.start()

        yield start
        for server in servers:
            server.stop()

    return start_server


class Server:
    """A server of one process. `url` is its value of --via. `has_history` and so on say what its
    engine supports.
    """

    scheme = ""
    tools = ()
    removers = ()  # the programs of a removal by hand, but `tools`
    has_history = has_bytes = outlives_restart = True

    def __init__(self, path: Path):
        need_tools(*self.tools)
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.port = find_port()
        self.process, self.options = None, {}  # of Popen
        self.prepare()

    @property
    def url(self) -> str:
        return self.make_url(self.port)

    def make_url(self, *ports) -> str:
        """Return the URL with other ports, such as those of proxies."""
        return f"{self.scheme}://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    def prepare(self):
        """Prepare the first start. Called once."""

    def start(self):
        self.launch()
        until(self.is_ready)
        return self

    def launch(self):
        self.process = self.run_beside(self.make_words(), **{"cwd": self.path, **self.options})

    def run_beside(self, words, **options):
        """Start a program that writes to the log."""
        with open(self.path / "log", "ab") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options
            )

    def send(self, number: int):
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGKILL):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(60)

    def make_words(self) -> list:
        """Return the words of the server's command."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def remove_lock(self, name: str):
        """Remove the lock of `name`, as an administrator would."""
        raise NotImplementedError

    def type_removal(self, name: str):
        """Type the line of solo-engines(7) that removes the lock of `name` by hand."""
        need_tools(*self.removers)
        page = (ROOT / "man/solo-engines.7").read_text().partition("By hand, without any check")[2]
        [line] = re.findall(rf"(?mi)^\.It {self.scheme}\n\.Ql (.+?)(?: ;)?$", page)
        parts = {"BUCKET": "solo-bucket", "PREFIX": "solo", "PATH": "/solo"}
        parts["NAME"] = name.replace("/", "%2F") if self.scheme == "zookeeper" else name
        typed = re.sub("|".join(parts), lambda part: parts[part[0]], line) + "\n"
        words = [word.format(server=self) for word in self.console]
        subprocess.run(words, input=typed.encode(), check=True, capture_output=True, timeout=60)


class Etcd(Server):
    scheme = "etcd"
    tools = ("etcd", "etcdctl")
    console = "env ETCDCTL_API=3 ETCDCTL_ENDPOINTS=127.0.0.1:{server.port} sh".split()
    settings = ()

    def prepare(self):
        self.peer_port = find_port()
        self.cluster = f"default=http://127.0.0.1:{self.peer_port}"
        self.name = "default"

    def make_words(self):
        here, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        urls = (
            f"--listen-client-urls {here} --advertise-client-urls {here} --listen-peer-urls {peer}"
        )
        member = [
            "--name",
            self.name,
            "--initial-cluster",
            self.cluster,
            "--initial-advertise-peer-urls",
            peer,
        ]
        return ["etcd", "--data-dir", self.path / "data", *urls.split(), *member, *self.settings]

    def is_ready(self):
        return is_answered(f"http://127.0.0.1:{self.port}/health")  # 503 without a leader

    def ask(self, *words) -> str:
        """Return the output of etcdctl."""
        return ask(
            "env", "ETCDCTL_API=3", "etcdctl", "--endpoints", f"127.0.0.1:{self.port}", *words
        )

    def remove_lock(self, name):
        assert "1" in self.ask("del", "--prefix", f"solo/{name}/")


class Cluster:
    """Three `members`, which can be stopped and started one by one."""

    @property
    def url(self) -> str:
        return self.members[0].make_url(*(member.port for member in self.members))

    def stop(self):
        for member in self.members:
            member.stop()


class EtcdCluster(Cluster):
    def __init__(self, path: Path):
        self.members = [Etcd(path / str(number)) for number in range(3)]
        cluster = ",".join(
            f"{number}=http://127.0.0.1:{one.peer_port}" for number, one in enumerate(self.members)
        )
        for number, member in enumerate(self.members):
            member.name, member.cluster = str(number), cluster

    def start(self):
        for member in self.members:
            member.launch()
        for member in self.members:
            until(member.is_ready)
        return self

    def find_leader(self) -> Etcd:
        for member in self.members:
            # endpoint, id, version, size, leader?, ...
            if (
                member.process.poll() is None
                and member.ask("endpoint", "status").split(", ")[4] == "true"
            ):
                return member
        raise AssertionError("no leader")


class Redis(Server):
    scheme = "redis"
    tools = ("redis-server", "redis-cli")
    console = "redis-cli -p {server.port}".split()
    outlives_restart = False
    settings = ("--save", "")
    environment = {}

    def make_words(self):
        (self.path / "conf").touch()
        environment = [f"{name}={value}" for name, value in self.environment.items()]
        here = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.path]
        return ["env", *environment, "redis-server", self.path / "conf", *here, *self.settings]

    def is_ready(self):
        return self.ask("ping") == "PONG\n"

    def ask(self, *words) -> str:
        """Return the output of redis-cli, errors included."""
        words = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout

    def remove_lock(self, name):
        assert self.ask("del", f"solo:{{{name}}}") == "1\n"


class PostgreSQL(Server):
    """PostgreSQL. `settings` end its URLs."""

    scheme = "postgresql"
    tools = ("postgres", "psql")
    console = "psql -h 127.0.0.1 -p {server.port} -U postgres -X".split()
    settings = "?table=solo_lock"
    has_bytes = False

    def prepare(self):
        # postgres refuses to run as root, and other users cannot enter the directories of pytest.
        self.home = Path(tempfile.mkdtemp(prefix="solo-postgresql-"))
        atexit.register(shutil.rmtree, self.home, ignore_errors=True)
        self.user = (
            {"user": "postgres", "group": "postgres", "extra_groups": []}
            if os.geteuid() == 0
            else {}
        )
        self.options = {"cwd": self.home, **self.user}
        if self.user:
            shutil.chown(self.home, "postgres", "postgres")
        words = ["initdb", "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"]
        subprocess.run(words, cwd=self.home, check=True, capture_output=True, **self.user)

    def make_url(self, *ports):
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://postgres@{hosts}/postgres{self.settings}"

    def make_words(self):
        return ["postgres", "-D", "data", *self.place, "-k", self.home, "-c", "fsync=off"]

    @property
    def place(self) -> list:
        """The options of its host and port, for all programs of PostgreSQL."""
        return ["-h", "127.0.0.1", "-p", str(self.port)]

    def is_ready(self):
        return subprocess.run(["pg_isready", "-q", *self.place]).returncode == 0

    def send(self, number):
        """Signal all its processes, as each session is one."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        for pid in [self.process.pid, *map(int, children)]:
            os.kill(pid, number)

    def stop(self, number=signal.SIGQUIT):  # SIGKILL would leave its shared memory
        super().stop(number)

    def ask(self, query: str) -> str:
        """Return the output of psql."""
        return ask(
            "psql", *self.place, *"-U postgres -XAt -v ON_ERROR_STOP=1 -c".split(), query
        ).strip()

    def remove_lock(self, name):
        assert self.ask(f"delete from solo_lock where name = '{name}'") == "DELETE 1"


class ZooKeeper(Server):
    scheme = "zookeeper"
    tools = ("java", "/usr/share/zookeeper/bin/zkServer.sh")
    # and the jars in the first one's manifest
    console = ("/usr/share/zookeeper/bin/zkCli.sh", "-server", "127.0.0.1:{server.port}")
    jars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
    settings = ""

    def prepare(self):
        (self.path / "data").mkdir()

    def make_words(self):
        (self.path / "zoo.cfg").write_text(
            f"tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\ndataDir={self.path}/data\nadmin.enableServer=false\n"
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\n4lw.commands.whitelist=ruok,srvr\n{self.settings}"
        )
        words = f"java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp {self.jars} org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*words.split(), self.path / "zoo.cfg"]

    def ask(self, word: bytes) -> bytes:
        """Return the answer to a four-letter word, b"" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
                one.sendall(word)
                return one.makefile("rb").read()
        except OSError:
            return b""

    def is_ready(self):
        return self.ask(b"srvr").startswith(b"Zookeeper version")  # only once it serves

    def leads(self) -> bool:
        return b"Mode: leader" in self.ask(b"srvr")

    def read_zxid(self) -> int:
        """Return the number of the last change; each renewal of a lock is one."""
        return int(self.ask(b"srvr").partition(b"Zxid: ")[2].split()[0], 16)

    def open(self):
        """Return a kazoo client, to be stopped."""
        kazoo = pytest.importorskip("kazoo.client")
        client = kazoo.KazooClient(f"127.0.0.1:{self.port}")
        client.start()
        return client

    def remove_lock(self, name):
        client = self.open()
        [entry] = client.get_children(f"/solo/{name}")
        client.delete(f"/solo/{name}/{entry}")
        client.stop()


class ZooKeeperCluster(Cluster):
    """It is led by the last. One that is cut off detects it after two seconds, the one at `late`
    after thirty.
    """

    def __init__(self, path: Path, late=None):
        # Two links per pair: quorum and elections. Open them before find_port(), which must not
        # return their ports.
        self.links = {pair: (Proxy(0), Proxy(0)) for pair in itertools.permutations(range(3), 2)}
        self.members = [ZooKeeper(path / str(number)) for number in range(3)]
        ports = [(find_port(), find_port()) for _ in self.members]
        for (_, other), links in self.links.items():
            for link, port in zip(links, ports[other]):
                link.target = port
        for one, member in enumerate(self.members):
            ways = [
                ports[one] if one == other else [link.port for link in self.links[one, other]]
                for other in range(3)
            ]
            member.settings = f"initLimit=4\nsyncLimit={60 if one == late else 4}\n" + "".join(
                f"server.{other}=127.0.0.1:{quorum}:{election}\n"
                for other, (quorum, election) in enumerate(ways)
            )
            (member.path / "data" / "myid").write_text(str(one))

    def start(self):
        """Start the last two first: they are a majority and elect the last."""
        for member in self.members[:0:-1]:
            member.launch()
        until(lambda: self.members[2].leads() and self.members[1].is_ready())
        self.members[0].start()
        return self

    def cut(self, alone: int):
        """Cut a member off: no message passes between it and the others, and no connection ends."""
        for pair, links in self.links.items():
            for link in links if alone in pair else ():
                link.set(HOLE)
        for member in (
            self.members[:2] if alone == 2 else ()
        ):  # else each keeps following it as long as the other does
            member.stop()
            member.launch()

    def stop(self):
        super().stop()
        for link in itertools.chain(*self.links.values()):
            link.close()


class S3(Server):
    """An object store: Ceph's radosgw, over one monitor and one OSD that keeps all in memory.
    `process` is radosgw.
    """

    scheme = "s3"
    tools = (
        "radosgw",
        "radosgw-admin",
        "ceph",
        "ceph-mon",
        "ceph-osd",
        "ceph-authtool",
        "monmaptool",
    )
    removers = ("aws",)
    has_history = False
    bucket = "solo-bucket"
    keys = ("AKIDEXAMPLE", "secret/of+tests")
    console = [
        "env",
        "AWS_ENDPOINT_URL=http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID={server.keys[0]}",
        "AWS_SECRET_ACCESS_KEY={server.keys[1]}",
        "AWS_DEFAULT_REGION=us-east-1",
        "sh",
    ]

    @property
    def frontend(self):
        return f"endpoint=127.0.0.1:{self.port}"

    def make_url(self, *ports):
        return f"s3://{self.bucket}/solo?endpoint=http://127.0.0.1:{ports[0]}"

    def prepare(self):
        self.mon_port, self.fsid, osd = find_port(), str(uuid.uuid4()), str(uuid.uuid4())
        for folder in ("mon", "osd", "rgw", "run"):
            (self.path / folder).mkdir()
        (self.path / "ceph.conf").write_text(CEPH.format(server=self))
        keyring = self.path / "keyring"
        caps = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"]
        keys = map("--{}-key={}".format, ("access", "secret"), self.keys)
        for name in ("mon.", "client.admin", "osd.0"):
            create = () if keyring.exists() else ("--create-keyring",)
            self.ask("ceph-authtool", keyring, *create, "--gen-key", "-n", name, *caps)
        place = ["--fsid", self.fsid, "--addv", "a", f"[v2:127.0.0.1:{self.mon_port}]"]
        self.ask("monmaptool", "--create", *place, self.path / "monmap")
        self.ask(
            "ceph-mon", "--mkfs", "-i", "a", "--monmap", self.path / "monmap", "--keyring", keyring
        )
        self.run_daemon("ceph-mon", "a")
        self.ask("ceph", "osd", "new", osd)
        self.ask("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.run_daemon("ceph-osd", "0")
        self.ask("radosgw-admin", "user", "create", "--uid=solo", "--display-name=solo", *keys)

    def ask(self, *words):
        """Run a program of Ceph until it ends."""
        ask(*words, env={**os.environ, "CEPH_CONF": str(self.path / "ceph.conf")}, timeout=60)

    def run_daemon(self, program, name):
        """Start a daemon that lives until Python ends, also while radosgw is restarted."""
        # In Ceph 20 of Debian, the path of an OSD's classes is relative to the current directory.
        daemon = self.run_beside(
            [program, "-c", self.path / "ceph.conf", "-f", "-i", name], cwd="/usr"
        )
        atexit.register(daemon.kill)

    def make_words(self):
        return ["radosgw", "-c", self.path / "ceph.conf", "-f", "-n", "client.admin"]

    def start(self):
        super().start()
        if self.request("GET", "").status == 404:
            assert self.request("PUT", "").status == 200
        return self

    def is_ready(self):
        try:
            return self.request("GET", "").status in (200, 404)
        except OSError:
            return False

    def open(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)

    def request(self, method, key, body=b"", **headers):
        """Return the answer to a signed request for an object, "" for the bucket."""
        path = f"/{self.bucket}/{key}" if key else f"/{self.bucket}"
        keys = sign.Keys(*self.keys)
        host = f"127.0.0.1:{self.port}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        signed = sign.sign(keys, "us-east-1", time.time(), (method, host, path, ""), headers, body)
        one = self.open()
        one.request(method, path, body, signed)
        answer = one.getresponse()
        answer.text = answer.read()
        one.close()
        return answer

    def remove_lock(self, name):
        assert self.request("DELETE", f"solo/{name}.json").status == 204


CEPH = """
[global]
fsid = {server.fsid}
mon host = [v2:127.0.0.1:{server.mon_port}/0]
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
keyring = {server.path}/keyring
mon data = {server.path}/mon
osd data = {server.path}/osd
rgw data = {server.path}/rgw
run dir = {server.path}/run
admin socket = {server.path}/run/$name.$pid
log file = {server.path}/$name.log
mon cluster log file = {server.path}/cluster.log
pid file =
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
paxos propose interval = 0.05
paxos min wait = 0.01
rgw frontends = beast {server.frontend} tcp_nodelay=1
rgw enable usage log = false
rgw enable quota threads = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw run sync thread = false
"""
# Every launcher needs them.
os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = S3.keys
# Debian installs its programs outside of PATH.
os.environ["PATH"] += "".join(
    f":{path}" for path in sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
)
SERVERS = {"etcd": Etcd, "zookeeper": ZooKeeper, "redis": Redis, "postgresql": PostgreSQL, "s3": S3}
