"""Redis alone: lost locks, passwords, unsupported servers."""

import os
import pwd
import re
import signal
import time

import pytest
from conftest import PATIENCE, ROOT, configured, finish, read_line, until, wait_dead
from fleet import Clock
from proxy import HOLE, Proxy
from servers import Redis, find_port, serve_alone
from test_engines import Fleet

from solo.engines.password import Password
from solo.engines.resp import is_passing
from solo.engines.targets import parse_url
from solo.errors import Unreachable

pytestmark = pytest.mark.full


SECRET = "correct-horse"
start_server = serve_alone()


@pytest.fixture
def start_redis(start_server):
    """Return a function that starts a server with more settings and this environment."""

    def start(*settings, **environment):
        return start_server(Redis, settings=(*Redis.settings, *settings), environment=environment)

    return start


@pytest.fixture
def fleet(lab, start_redis):
    return Fleet(lab, start_redis())


def start_stubborn(fleet, host, *words):
    """Start a holder whose command prints its token and ignores SIGTERM."""
    script = "trap '' TERM; echo $SOLO_TOKEN; while :; do sleep 1; done"
    holder = fleet.start(host, "-n", fleet.job, *words, "--", "sh", "-c", script)
    holder.token = int(read_line(holder))
    return holder


def take_next(fleet, token):
    """Verify that another host acquires without waiting and gets a higher token."""
    result = fleet.run("b", "-n", fleet.job, "--", "sh", "-c", "echo $SOLO_TOKEN")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > token


def test_restart_without_persistence_frees_the_name_and_ends_the_command(fleet):
    holder = start_stubborn(fleet, "a", "--ttl", "3s")

    fleet.server.stop()
    fleet.server.start()

    take_next(fleet, holder.token)
    status, _, message = finish(holder)
    assert status == 123 and "lease" in message


def test_restart_with_synced_appends_keeps_the_lock(lab, start_redis):
    fleet = Fleet(lab, start_redis("--appendonly", "yes", "--appendfsync", "always"))
    holder = fleet.hold("a", fleet.job)

    fleet.server.stop()
    fleet.server.start()

    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    assert finish(holder)[::2] == (0, "")


@pytest.mark.tool("gcc")
def test_step_of_the_servers_clock_ends_leases_early_or_late(lab, start_redis):
    clock = Clock(lab.path, 0)
    fleet = Fleet(lab, start_redis(**clock.environment))
    holder = start_stubborn(fleet, "a", "--ttl", "4s")
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75

    clock.set(60)
    take_next(
        fleet, holder.token
    )  # two may run; but the later token is higher and the first command ends
    assert finish(holder)[0] == 123

    late = start_stubborn(fleet, "a", "--ttl", "4s")
    clock.set(0)
    late.kill()
    [key] = fleet.server.ask("--raw", "keys", f"solo:{{{fleet.job}}}:????????????????").split()
    assert int(fleet.server.ask("--raw", "pttl", key)) > 50_000  # of a ttl of 4 s
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75


def test_lease_is_renewed_without_free_memory(fleet):
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")
    fleet.server.ask("config", "set", "maxmemory", "1")

    assert fleet.run("b", "-n", "other", "true").returncode == 69  # no write succeeds
    before = count_renewals(fleet.server)
    until(lambda: count_renewals(fleet.server) >= before + 3)  # a renewal has at most two

    assert finish(holder)[::2] == (0, "")


def count_renewals(server):
    [line] = [
        line
        for line in server.ask("info", "commandstats").splitlines()
        if line.startswith("cmdstat_pexpire:")
    ]
    return int(line.partition("calls=")[2].partition(",")[0])


def test_renewal_on_a_dead_link_is_tried_once(fleet):
    """Some clients would try ten more times, for longer than a lease lives."""
    from solo.engines.lease import Terms
    from solo.engines.targets import open_engine

    proxy = Proxy(fleet.server.port)
    engine = open_engine(fleet.server.make_url(proxy.port), Terms(3.0))
    engine.connect()
    proxy.set(HOLE)

    for connections in (1, 2):
        with pytest.raises(Unreachable):
            engine.renew()
        assert len(proxy.clients) == connections
    proxy.close()


def test_commands_of_the_manual_suffice_for_a_user(fleet):
    page = (
        (ROOT / "man/solo-engines.7")
        .read_text()
        .partition("and the commands")[2]
        .partition("\n.Pp")[0]
    )
    rights = re.findall(r"\+\w+", page)
    assert (
        fleet.server.ask("acl", "setuser", "plain", "on", "nopass", "~solo:*", "-@all", *rights)
        == "OK\n"
    )
    fleet.url = fleet.url.replace("//", "//plain@")
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")
    waiter = fleet.start_waiter("b", fleet.job, "--slots", "2")

    assert fleet.run("c", "-n", fleet.job, "true").returncode == 75
    assert fleet.run("c", "release", "--via", fleet.url, fleet.job).returncode == 125
    assert (
        fleet.run(
            "c", "-n", fleet.job, "--replace", "-w", "1h", "--once-per", "1d", "true"
        ).returncode
        == 0
    )
    assert fleet.run("c", "stop", fleet.job).returncode == fleet.run("c", "doctor").returncode == 0
    assert [
        row["outcome"] for row in fleet.read_json("history", "--via", fleet.url, fleet.job)
    ] == ["signaled", "ok"]
    finish(holder)
    finish(waiter)


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_password_is_in_no_message_process_list_or_environment(fleet):
    rights = ["~solo:*", "+@all", "-@dangerous", "+info"]
    fleet.server.ask("acl", "setuser", "alice", "on", f">{SECRET}", *rights)
    fleet.server.ask("acl", "setuser", "default", "resetpass")
    home = fleet.lab.path / "home"
    targets = "".join(
        f'[via.{name}]\nurl = "{fleet.server.url}"\nuser = "alice"\npassword = "{password}"\n'
        for name, password in (("good", SECRET), ("bad", f"{SECRET}!"))
    )
    (home / ".config").mkdir(parents=True)
    (home / ".config/solo.toml").touch(0o600)
    (home / ".config/solo.toml").write_text(targets)
    users = fleet.lab.path / "passwd"
    users.write_text(
        open("/etc/passwd").read().replace(f":{pwd.getpwuid(0).pw_dir}:", f":{home}:", 1)
    )
    prefix = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" /etc/passwd && exec "$@"',
        str(users),
    )
    script = "tr '\\0' '\\n' </proc/$PPID/cmdline; cat /proc/$PPID/environ; env"

    output = b""
    for via, words, status in (
        ("good", ["-v", "-n", "job", "--", "sh", "-c", script], 0),
        ("good", ["list"], 0),
        ("good", ["doctor"], 0),
        ("bad", ["-v", "-n", "job", "true"], 125),
        (fleet.url, ["-v", "-n", "job", "true"], 125),
    ):
        fleet.url = via
        result = fleet.run("a", *words, prefix=prefix)
        assert result.returncode == status, result
        assert status == 0 or result.stderr.count(b"\n") == 1
        output += result.stdout + result.stderr

    assert (
        b"SOLO_TOKEN" in output
        and b"requires a password" in output
        and SECRET.encode() not in output
    )


@pytest.mark.parametrize(
    "settings, kind, status",
    [
        (("--replicaof", "127.0.0.1", "1"), b"replica", 69),  # it may be promoted
        (("--sentinel",), b"sentinel", 125),
        (("--cluster-enabled", "yes", "--cluster-port", str(find_port())), b"cluster", 125),
    ],
)
def test_replica_sentinel_and_cluster_are_refused(lab, start_redis, settings, kind, status):
    fleet = Fleet(lab, start_redis(*settings))

    result = fleet.run("a", "-n", fleet.job, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (status, 1) and kind in result.stderr


# --- a server that refuses for a while------------------------------------------------------------


def set_all(settings):
    """Return the words of redis-cli that change these settings."""
    return [("config", "set", *setting.split()) for setting in settings.split(",")]


REPLICA = [("acl", "setuser", "default", "-info"), ("replicaof", "127.0.0.1", "1")]
PRIMARY = [("replicaof", "no", "one")]
STALE = "replica-serve-stale-data"
REFUSALS = {  # by code: how a server comes to refuse so, and how it ends that
    "OOM": (set_all("maxmemory 1"), set_all("maxmemory 0")),
    "NOREPLICAS": (set_all("min-replicas-to-write 1"), set_all("min-replicas-to-write 0")),
    "READONLY": (REPLICA, PRIMARY),
    "MASTERDOWN": ([*set_all(f"{STALE} no"), *REPLICA], PRIMARY),
    "MISCONF": ([("bgsave",)], set_all("stop-writes-on-bgsave-error no")),
    "BUSY": ([], [("script", "kill")]),
    "LOADING": ([], set_all("key-load-delay 0")),
}


@pytest.fixture
def start_refusing(start_redis, tmp_path):
    """Return a function: start a server that refuses with this code; return it and a function that
    ends that.
    """
    loops = []

    def start(code):
        folder = tmp_path / "saved"
        folder.mkdir()
        rarely = ("--save", "3600 1000000", "--rdbcompression", "no")
        server = start_redis(*rarely, "--lua-time-limit", "1", "--dir", folder)
        if code == "MISCONF":
            folder.rmdir()
        if code == "BUSY":
            loops.append(
                server.run_beside(
                    ["redis-cli", "-p", str(server.port), "eval", "while true do end", "0"]
                )
            )
        if code == "LOADING":
            fill = "for key = 1, 10000 do redis.call('set', key, string.rep('x', 2000)) end"
            server.ask("eval", fill, "0")
            server.ask("save")
            server.stop()
            server.settings += (
                "--key-load-delay",
                "20000",
                "--loading-process-events-interval-bytes",
                "1024",
            )
            server.launch()  # for three minutes it loads a key, and answers, each 20 ms
        begin, end = REFUSALS[code]
        for words in begin:
            server.ask(*words)
        until(lambda: server.ask("eval", "redis.call('set', 'x', 'y')", "0").startswith(code))
        return server, lambda: [server.ask(*words) for words in end]

    yield start
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.parametrize("code", REFUSALS)
def test_refusal_that_passes_is_waited_for_on_new_connections(lab, start_refusing, code):
    server, end = start_refusing(code)
    fleet, proxy = Fleet(lab, server), Proxy(server.port)
    fleet.url = server.make_url(proxy.port)

    at_once = fleet.run("a", "-n", fleet.job, "true")
    before = proxy.accepted
    waiter = fleet.start("a", "-n", fleet.job, "-w", "1h", "--", "sh", "-c", "echo ran >>$LAB/log")
    until(lambda: proxy.accepted >= before + 4)
    assert waiter.poll() is None
    end()

    assert (at_once.returncode, at_once.stderr.count(b"\n")) == (
        69,
        1,
    ) and code.encode() in at_once.stderr
    assert finish(waiter)[::2] == (0, "") and lab.read_log() == ["ran"]
    proxy.close()


def test_refusal_in_a_script_of_an_older_server_passes_too():
    """Redis before 7 begins such an error with ERR and the place in the script."""
    place = "ERR Error running script (call to f_a1): @user_script:9: @user_script: 9: "

    assert is_passing(f"{place}-READONLY You can't write against a read only replica.")
    assert not is_passing(f"{place}Unknown Redis command called from Lua script")


class Pair:
    """A primary and its replica."""

    def __init__(self, start_redis):
        self.old, self.new = start_redis(), start_redis()
        self.new.ask("replicaof", "127.0.0.1", str(self.old.port))
        until(lambda: "master_link_status:up" in self.new.ask("info", "replication"))

    def swap(self):
        """The replica, which has all, is promoted; the old primary, whose connections stay open,
        becomes its replica.
        """
        written = read_offset(self.old, "master")
        until(lambda: read_offset(self.new, "slave") >= written)
        self.new.ask("replicaof", "no", "one")
        self.old.ask("replicaof", "127.0.0.1", str(self.new.port))


def read_offset(server, role):
    """Return how far the stream of writes is. WAIT would tell only of writes of its connection."""
    return int(re.search(rf"^{role}_repl_offset:(\d+)", server.ask("info", "replication"), re.M)[1])


@pytest.fixture
def pair(start_redis):
    return Pair(start_redis)


@pytest.fixture
def moved(lab, pair):
    """A fleet at one address that leads to the primary of a pair, and a function that swaps the
    two.
    """
    fleet, proxy = Fleet(lab, pair.old), Proxy(pair.old.port)
    fleet.url = pair.old.make_url(proxy.port)

    def swap():
        pair.swap()
        proxy.target = pair.new.port
        fleet.server = pair.new

    yield fleet, swap
    proxy.close()


def wait_renewed(server, times=20):
    """Return once leases were renewed at a server; 20 is more than leases of 3 s live: each renewal
    has at most two.
    """
    server.ask("config", "resetstat")
    until(
        lambda: (
            "cmdstat_pexpire:" in server.ask("info", "commandstats")
            and count_renewals(server) >= times
        )
    )


def test_holder_and_waiter_follow_a_failover(moved):
    fleet, swap = moved
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")
    waiter = fleet.start_waiter("b", fleet.job, "--ttl", "3s")

    swap()
    wait_renewed(fleet.server)

    assert fleet.run("c", "-n", fleet.job, "true").returncode == 75
    assert finish(holder)[::2] == (0, "") and finish(waiter)[::2] == (0, "")
    assert fleet.lab.read_log() == ["x"]


def test_release_follows_a_failover(moved):
    """Its request is the first one at the new primary."""
    fleet, swap = moved
    holder = fleet.hold("a", fleet.job, "--ttl", "1h")

    swap()

    assert finish(holder)[::2] == (0, "")
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 0


def test_failover_that_forgot_the_lock_ends_the_command(moved):
    """As one does to a replica that had not got it yet. The command ignores SIGTERM."""
    fleet, swap = moved
    holder = start_stubborn(fleet, "a", "--ttl", "3s")

    swap()
    fleet.server.ask("flushall")

    take_next(fleet, holder.token)
    status, _, message = finish(holder)
    assert status == 123 and "lease" in message


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_name_of_a_server_is_looked_up_again_after_a_failover(lab, pair):
    """Its former address can still be reached, and leads to the replica."""
    old = Proxy(pair.old.port, 0, "127.0.0.2")
    new = Proxy(pair.new.port, old.port, "127.0.0.3")
    hosts = lab.path / "hosts"
    hosts.write_text("127.0.0.2 primary.test\n")
    prefix = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" /etc/hosts && exec "$@"',
        str(hosts),
    )
    lab.environment["SOLO_VIA"] = f"redis://primary.test:{old.port}"
    holder = lab.start(
        "-n", "job", "--ttl", "3s", "--", "sh", "-c", "echo; read line; exit 3", prefix=prefix
    )
    read_line(holder)

    pair.swap()
    hosts.write_text("127.0.0.3 primary.test\n")
    wait_renewed(pair.new, 10)

    assert finish(holder)[::2] == (3, "")
    old.close()
    new.close()


@pytest.mark.parametrize(
    "url, message",
    [
        ("redis://h1,h2", "is one host"),
        ("redis://h1/x", "by number"),
        ("redis://h1/0?timeout=1", "no such setting"),
    ],
)
def test_url_must_name_one_database(lab, url, message):
    result = lab.run("--via", url, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and message in result.stderr.decode()


def test_verbose_warns_of_best_effort(fleet):
    assert b"best effort" in fleet.run("a", "-v", "-n", fleet.job, "true").stderr
    assert fleet.run("a", "-n", fleet.job, "true").stderr == b""


def test_doctor_reports_settings_that_lose_locks(lab, start_redis):
    careless = Fleet(lab, start_redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
    lax = Fleet(lab, start_redis("--appendonly", "yes"))
    careful = Fleet(lab, start_redis("--appendonly", "yes", "--appendfsync", "always"))

    reports = [fleet.run("a", "doctor").stdout.decode() for fleet in (careless, lax, careful)]

    assert [
        [word in text for word in ("appendonly", "appendfsync", "allkeys-lru", "best effort")]
        for text in reports
    ] == [[True, False, True, True], [False, True, False, True], [False, False, False, True]]


def test_only_the_fence_and_the_outcomes_remain_after_a_kill(fleet):
    finish(fleet.hold("a", fleet.job))
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")
    holder.kill()
    wait_dead(holder.child)

    kept = [f"solo:{{{fleet.job}}}:{kind}" for kind in ("fence", "log")]
    until(lambda: sorted(fleet.server.ask("--raw", "keys", "*").split()) == kept)


def test_stop_with_waiting_ends_holder_and_waiter_on_their_hosts(fleet):
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")
    waiter = fleet.start_waiter("b", fleet.job, "--ttl", "3s")

    result = fleet.run("c", "stop", "--waiting", fleet.job)

    assert result.returncode == 0 and result.stdout.count(f"{fleet.job}: ended pid".encode()) == 2
    assert (holder.wait(PATIENCE), waiter.wait(PATIENCE)) == (-signal.SIGTERM, 75)
    assert fleet.lab.read_log() == []


def test_server_is_reached_by_its_socket(lab, start_redis, tmp_path):
    fleet = Fleet(lab, start_redis("--unixsocket", str(tmp_path / "redis.sock")))
    holder = fleet.hold("a", fleet.job)

    fleet.url = f"redis+unix://{tmp_path}/redis.sock"
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    fleet.url += "?db=1"
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 0
    finish(holder)


def test_user_without_info_and_with_a_password_file_can_lock(lab, start_redis, tmp_path):
    server = start_redis()
    server.ask("acl", "setuser", "cron", "on", f">{SECRET}", "~solo:*", "+@all", "-info", "-role")
    (tmp_path / "secret").write_text(SECRET + "\n")
    fleet = Fleet(lab, server)
    fleet.url = server.url.replace("//", "//cron@") + f"/0?password_file={tmp_path}/secret"

    result = fleet.run(
        "a",
        "-v",
        "-n",
        fleet.job,
        "--",
        "sh",
        "-c",
        "env; cat /proc/$PPID/environ /proc/$PPID/cmdline",
    )

    assert result.returncode == 0 and SECRET.encode() not in result.stdout + result.stderr
    assert SECRET.encode() not in fleet.run("a", "doctor").stdout
    (tmp_path / "secret").unlink()
    result = fleet.run("a", "-n", fleet.job, "true")
    assert (
        result.returncode == 125
        and b"secret: No such file" in result.stderr
        and result.stderr.count(b"\n") == 1
    )


@pytest.fixture
def secret(lab, start_redis, tmp_path):
    """A fleet whose user `cron` has a password in a file, and that file."""
    server = start_redis()
    server.ask("acl", "setuser", "cron", "on", f">{SECRET}", "~solo:*", "+@all")
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    fleet = Fleet(lab, server)
    fleet.url = server.url.replace("//", "//cron@") + f"/0?password_file={file}"
    return fleet, file


def change_password(server):
    """The connections end too, as at a restart of the server."""
    server.ask("acl", "setuser", "cron", "resetpass", ">changed")
    assert int(server.ask("client", "kill", "type", "normal", "skipme", "yes")) > 0


def test_changed_password_is_read_at_the_next_log_in(secret):
    fleet, file = secret
    holder = fleet.hold("a", fleet.job, "--ttl", "3s")

    file.write_text("changed\n")
    change_password(fleet.server)
    wait_renewed(fleet.server, 10)

    assert finish(holder)[::2] == (0, "")


def test_password_that_did_not_change_in_the_file_ends_the_command(secret):
    fleet, _ = secret
    holder = start_stubborn(fleet, "a", "--ttl", "3s")

    change_password(fleet.server)

    status, _, message = finish(holder)
    assert status == 123 and "WRONGPASS" in message


@pytest.mark.root
@pytest.mark.parametrize(
    "mode, owner, message",
    [
        (0o444, 0, ""),
        (0o646, 0, "others can write to it"),
        (0o660, 0, "others can write to it"),
        (0o600, 65533, "others can write to it"),
        (None, 0, "not a regular file"),
    ],
)
def test_password_file_that_others_can_write_is_refused(secret, mode, owner, message):
    fleet, file = secret
    if mode is None:
        file.unlink()
        os.mkfifo(file, 0o600)
    else:
        file.chmod(mode)
    os.chown(file, owner, owner)

    result = fleet.run("a", "-n", fleet.job, "true", timeout=PATIENCE)

    assert (result.returncode, message.encode() in result.stderr) == (125 if message else 0, True)
    assert result.stderr.count(b"\n") == bool(message)


@pytest.mark.root
def test_password_command_is_asked_at_each_log_in(secret, tmp_path):
    fleet, file = secret
    count, etc = tmp_path / "count", tmp_path / "solo.toml"
    words = f"echo asked >>{count}; cat {file}"
    etc.touch(0o600)
    etc.write_text(
        f'[via.cache]\nurl = "{fleet.server.url}"\nuser = "cron"\npassword_command = "{words}"\n'
    )
    fleet.url = "cache"
    words = ("-n", fleet.job, "--", "sh", "-c", "echo; read line; exit 3")
    holder = fleet.start("a", *words, prefix=configured(etc))
    read_line(holder)
    before = count.read_text().count("asked")

    file.write_text("changed\n")
    change_password(fleet.server)
    wait_renewed(fleet.server, 3)

    assert finish(holder)[::2] == (3, "") and before == 1 < count.read_text().count("asked")
    file.write_text("")
    result = fleet.run("b", "-n", fleet.job, "true", prefix=configured(etc))
    assert result.returncode == 125 and b"password_command printed no password" in result.stderr


def test_password_command_has_a_time_limit(tmp_path):
    target = parse_url("redis://h")._replace(
        password_command=f"echo $$ >{tmp_path}/pid; exec tail -f /dev/null"
    )
    password = Password(target)
    password.patience = 0.0

    with pytest.raises(Unreachable, match="password_command: no answer"):
        password.find(time.monotonic() + 1)

    until(lambda: not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}/exe"))


def test_first_answer_of_a_password_command_takes_no_time_of_the_call():
    password = Password(parse_url("redis://h")._replace(password_command="sleep 0.2; echo word"))
    deadline = time.monotonic() + 0.1

    word, moved = password.find(deadline)

    assert word == "word" and moved >= deadline + 0.2
    with pytest.raises(Unreachable):
        password.find(time.monotonic() + 0.1)
