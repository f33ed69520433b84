"""etcd alone: one lock with etcdctl, leases revoked in the queue, roles, configuration files."""

import json
import os
import signal
import subprocess
import urllib.request

import pytest
from conftest import configured, finish, read_line, until
from servers import Etcd, serve, serve_alone

pytestmark = [pytest.mark.full, pytest.mark.tool("etcd", "etcdctl")]


server, start_server = serve(Etcd), serve_alone()


@pytest.fixture
def lab(lab, server):
    lab.environment.update(
        SOLO_VIA=server.url, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=f"127.0.0.1:{server.port}"
    )
    return lab


def test_etcdctl_lock_excludes_solo(lab):
    other = lab.start_words(
        "etcdctl", "lock", "solo/one"
    )  # prints its key, and holds until a signal
    key = read_line(other)

    result = lab.run("-n", "one", "true")
    assert result.returncode == 75 and f"held by another program ({key})" in result.stderr.decode()
    assert lab.run("stop", "one").returncode == 125
    [row] = lab.list("--via", lab.environment["SOLO_VIA"])
    assert (row["state"], row["launcher"], row["mode"]) == ("held", None, "exclusive")
    other.send_signal(signal.SIGINT)
    other.wait(60)
    assert lab.run("-n", "one", "true").returncode == 0


def test_etcdctl_lock_waits_for_solo(lab, server):
    holder = lab.hold("two")
    other = lab.start_words(
        "etcdctl", "lock", "solo/two", "--", "sh", "-c", "echo other >>$LAB/log"
    )
    until(lambda: server.ask("get", "--prefix", "solo/two/", "--keys-only").count("solo/two/") == 2)

    assert lab.read_log() == []
    finish(holder)

    assert other.wait(60) == 0 and lab.read_log() == ["other"]


def test_etcdctl_lock_and_solo_wait_in_one_queue(lab, server):
    holder = lab.start_words("etcdctl", "lock", "solo/queue")
    read_line(holder)
    waiters = []
    for tag in ("solo1", "etcdctl2", "solo3", "etcdctl4"):
        script = ("sh", "-c", f"echo {tag} >>$LAB/log")
        if tag.startswith("solo"):
            directory = ("--dir", lab.path / tag)
            waiters.append(lab.start("-n", "queue", "--wait", "1h", *directory, "--", *script))
        else:
            waiters.append(lab.start_words("etcdctl", "lock", "solo/queue", "--", *script))
        until(lambda: count_keys(server, "queue") == 1 + len(waiters))

    assert lab.read_log() == []
    holder.send_signal(signal.SIGINT)

    assert [waiter.wait(60) for waiter in waiters] == [0] * 4
    assert lab.read_log() == ["solo1", "etcdctl2", "solo3", "etcdctl4"]


def test_waiter_with_a_revoked_lease_joins_the_queue_again(lab, server):
    """The lock service of etcd 3.4 would grant the lock without a key (etcd issue 11456)."""
    holder = lab.hold("three")
    lab.environment["SOLO_DIR"] = str(lab.path / "elsewhere")
    waiting = lab.start(
        "-n", "three", "--wait", "1h", "--ttl", "3s", "--", "sh", "-c", "echo ran $SOLO_VIA_KEY"
    )
    until(lambda: count_keys(server, "three") == 2)
    leases = [key.rpartition("/")[2] for key in list_keys(server, "three")]

    server.ask("lease", "revoke", leases[1])
    until(lambda: len(set(list_keys(server, "three")) - {f"solo/three/{leases[1]}"}) == 2)
    finish(holder)

    status, output, _ = finish(waiting)
    assert status == 0 and output.startswith("ran solo/three/") and leases[1] not in output


def list_keys(server, name):
    return server.ask("get", "--prefix", f"solo/{name}/", "--keys-only", "--sort-by=CREATE").split()


def count_keys(server, name):
    return len(list_keys(server, name))


def test_each_prefix_has_its_own_names(lab):
    holder = lab.hold("four")
    other = lab.environment["SOLO_VIA"] + "/team/locks"

    assert lab.run("-n", "four", "--via", other, "--dir", lab.path / "b", "true").returncode == 0
    finish(holder)


def enable_passwords(server, *roles):
    words = (
        "user add root:rootpw",
        "role add root",
        "user grant-role root root",
        *roles,
        "auth enable",
    )
    for line in words:
        server.ask(*line.split())


@pytest.mark.root
def test_configured_password_is_used_and_never_shown(lab, tmp_path, start_server):
    """The role of the user allows only keys below the prefix."""
    server = start_server(Etcd)
    role = "role add cron", "role grant-permission cron readwrite --prefix=true solo/"
    enable_passwords(server, *role, "user add ci:s3cret", "user grant-role ci cron")
    etc = write_configuration(
        tmp_path, f'[via.prod]\nurl = "{server.url}"\nuser = "ci"\npassword = "s3cret"\n'
    )
    shown = "env; cat /proc/$PPID/cmdline; cat $SOLO_DIR/job/.hold.*"

    result = lab.run(
        "-v", "-n", "job", "--via", "prod", "--", "sh", "-c", shown, prefix=configured(etc)
    )
    wrong = lab.run("-n", "job", "--via", server.url, "true")

    assert result.returncode == 0, result.stderr
    assert b"SOLO_TOKEN" in result.stdout and b"s3cret" not in result.stdout + result.stderr
    assert (wrong.returncode, wrong.stderr.count(b"\n")) == (125, 1)


def test_changed_password_is_read_at_the_next_log_in(lab, tmp_path, start_server):
    """etcd forgets the tokens of a user whose password changes."""
    server = start_server(Etcd)
    enable_passwords(server)
    (tmp_path / "secret").write_text("rootpw\n")
    via = server.url.replace("//", "//root@") + f"?password_file={tmp_path}/secret"
    holder = lab.start("-n", "job", "--via", via, "--", "sh", "-c", "echo; read line; exit 3")
    read_line(holder)

    (tmp_path / "secret").write_text("changed\n")
    words = f"etcdctl --endpoints 127.0.0.1:{server.port} --user root:rootpw user passwd root --interactive=false"
    change = {"input": "changed", "text": True, "env": {**os.environ, "ETCDCTL_API": "3"}}
    subprocess.run(words.split(), check=True, stdout=subprocess.DEVNULL, **change)
    before = count_renewals(server)
    until(lambda: count_renewals(server) > before + 1 or holder.poll() is not None)

    assert finish(holder)[::2] == (3, "")


def count_renewals(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        [line] = [
            line
            for line in answer.read().splitlines()
            if line.startswith(b"etcd_debugging_lease_renewed_total ")
        ]
    return float(line.split()[1])


@pytest.mark.root
def test_token_older_than_a_role_change_is_replaced(lab, tmp_path, start_server):
    """JWTs become invalid with any change of users or roles."""
    (tmp_path / "key").write_bytes(os.urandom(32))
    settings = ["--auth-token", f"jwt,priv-key={tmp_path}/key,sign-method=HS256,ttl=10m"]
    server = start_server(Etcd, settings=settings)
    enable_passwords(server)
    etc = write_configuration(
        tmp_path, f'[via.prod]\nurl = "{server.url}"\nuser = "root"\npassword = "rootpw"\n'
    )
    words = ("-n", "job", "--via", "prod", "--ttl", "8s", "--", "sh", "-c", "echo; sleep 6; exit 3")
    run = lab.start(*words, prefix=configured(etc))
    read_line(run)

    server.ask("--user", "root:rootpw", "role", "add", "other")

    assert finish(run)[0] == 3


def write_configuration(tmp_path, text, mode=0o600):
    """Return a file that `configured` puts in place of /etc/solo.toml."""
    path = tmp_path / "solo.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.root
@pytest.mark.parametrize(
    "text, mode, message",
    [
        ("[via.prod]\n", 0o600, "not a table of strings with a url"),
        ("[via.prod]\nurl = 'ftp://h'\n", 0o600, "no such engine"),
        ("[via.prod]\nurl = 'etcd://h'\nsecret = 'x'\n", 0o600, "secret: no such key"),
        ("[via.prod\n", 0o600, "/etc/solo.toml: "),
        (
            "[via.prod]\nurl = 'etcd://h'\npassword = 'x'\n",
            0o644,
            "everybody can read the password in it",
        ),
        ("[via.prod]\nurl = 'etcd://h'\n", 0o666, "others can write to it"),
        ("[via.test]\nurl = 'etcd://h'\n", 0o644, "--via prod: neither file nor socket"),
        ("[via]\nprod = 3\n", 0o644, "not a table"),
        ("[via.file]\nurl = 'etcd://h'\n", 0o644, "[via.file]: the name of a backend"),
    ],
)
def test_invalid_configuration_is_refused_in_one_line(lab, tmp_path, text, mode, message):
    etc = write_configuration(tmp_path, text, mode)
    result = lab.run("-n", "job", "--via", "prod", "true", prefix=configured(etc))

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and message in result.stderr.decode()


def test_prefix_below_another_one_adds_no_names_to_its_views(lab, server):
    """The outcomes and periods of a prefix looked like locks there."""
    lab.environment["SOLO_VIA"] = f"{server.url}/outer/inner"
    assert lab.run("-n", "job", "--once-per", "1h", "true").returncode == 0
    until(lambda: "job" in lab.run("history").stdout.decode())

    lab.environment["SOLO_VIA"] = f"{server.url}/outer"

    assert lab.run("list").stdout == b"" and json.loads(lab.run("list", "--json").stdout) == []


def test_lease_that_expires_between_two_names_releases_both(lab, server):
    """It holds the first and waits for the second, so it must acquire the first again too."""
    blocker = lab.hold("b-second")
    lab.environment["SOLO_DIR"] = str(lab.path / "elsewhere")
    script = "for key in $SOLO_VIA_KEY; do etcdctl get --print-value-only $key >>$LAB/held || exit; echo >>$LAB/held; done; wc -l <$LAB/held"
    waiting = lab.start(
        "-n", "a-first", "-n", "b-second", "--wait", "1h", "--ttl", "5s", "--", "sh", "-c", script
    )
    until(lambda: count_keys(server, "b-second") == 2)
    [before] = list_keys(server, "a-first")

    server.ask("lease", "revoke", before.rpartition("/")[2])
    until(lambda: set(list_keys(server, "a-first")) - {before})
    finish(blocker)

    status, output, _ = finish(waiting)
    assert status == 0 and (lab.path / "held").read_text().count('"solo"') == 2, output


def test_words_of_etcd_for_a_refusal_are_printed(lab, start_server):
    picky = start_server(Etcd, settings=["--host-whitelist", "127.0.0.1"])

    result = lab.run(
        "-n", "job", "-w", "1h", "--via", f"etcd://localhost:{picky.port}", "true", timeout=30
    )

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"HTTP 421: etcd received" in result.stderr
    assert b"gateway" not in result.stderr


def test_member_without_a_json_gateway_is_refused_at_once(lab, start_server):
    closed = start_server(Etcd, settings=["--enable-grpc-gateway=false"])

    result = lab.run("-n", "job", "-w", "1h", "--via", closed.url, "true", timeout=30)

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"no JSON gateway" in result.stderr
