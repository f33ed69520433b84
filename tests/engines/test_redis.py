"""Redis alone: lost locks, passwords, unsupported servers."""

import pwd
import signal

import pytest
from conftest import PATIENCE, finish, read_line, until, wait_dead
from fleet import Clock
from proxy import HOLE, Proxy
from servers import Redis, find_port, serve_alone
from test_engines import Fleet

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
    take_next(fleet, holder.token)  # two may run; but the later token is higher and the first command ends
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

    assert fleet.run("b", "-n", "other", "true").returncode == 125  # no write succeeds
    before = count_renewals(fleet.server)
    until(lambda: count_renewals(fleet.server) >= before + 3)  # a renewal has at most two

    assert finish(holder)[::2] == (0, "")


def count_renewals(server):
    [line] = [line for line in server.ask("info", "commandstats").splitlines() if line.startswith("cmdstat_pexpire:")]
    return int(line.partition("calls=")[2].partition(",")[0])


def test_renewal_on_a_dead_link_is_tried_once(fleet):
    """Some clients would try ten more times, for longer than a lease lives."""
    from solo.engines.lease import Terms
    from solo.engines.targets import open_engine
    from solo.errors import Unreachable

    proxy = Proxy(fleet.server.port)
    engine = open_engine(fleet.server.make_url(proxy.port), Terms(3.0))
    engine.connect()
    proxy.set(HOLE)

    for connections in (1, 2):
        with pytest.raises(Unreachable):
            engine.renew()
        assert len(proxy.clients) == connections
    proxy.close()


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
    users.write_text(open("/etc/passwd").read().replace(f":{pwd.getpwuid(0).pw_dir}:", f":{home}:", 1))
    prefix = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(users))
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

    assert b"SOLO_TOKEN" in output and b"requires a password" in output and SECRET.encode() not in output


@pytest.mark.parametrize(
    "settings, kind",
    [
        (("--replicaof", "127.0.0.1", "1"), b"replica"),
        (("--sentinel",), b"sentinel"),
        (("--cluster-enabled", "yes", "--cluster-port", str(find_port())), b"cluster"),
    ],
)
def test_replica_sentinel_and_cluster_are_refused(lab, start_redis, settings, kind):
    fleet = Fleet(lab, start_redis(*settings))

    result = fleet.run("a", "-n", fleet.job, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and kind in result.stderr


@pytest.mark.parametrize(
    "url, message",
    [("redis://h1,h2", "is one host"), ("redis://h1/x", "by number"), ("redis://h1/0?timeout=1", "no such setting")],
)
def test_url_must_name_one_database(lab, url, message):
    result = lab.run("--via", url, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and message in result.stderr.decode()


def test_verbose_warns_of_best_effort(fleet):
    assert b"best effort" in fleet.run("a", "-v", "-n", fleet.job, "true").stderr
    assert fleet.run("a", "-n", fleet.job, "true").stderr == b""


def test_doctor_reports_settings_that_lose_locks(lab, start_redis):
    careless = Fleet(lab, start_redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
    lax = Fleet(lab, start_redis("--appendonly", "yes"))
    careful = Fleet(lab, start_redis("--appendonly", "yes", "--appendfsync", "always"))

    reports = [fleet.run("a", "doctor").stdout.decode() for fleet in (careless, lax, careful)]

    assert [
        [word in text for word in ("appendonly", "appendfsync", "allkeys-lru", "best effort")] for text in reports
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

    result = fleet.run("a", "-v", "-n", fleet.job, "--", "sh", "-c", "env; cat /proc/$PPID/environ /proc/$PPID/cmdline")

    assert result.returncode == 0 and SECRET.encode() not in result.stdout + result.stderr
    assert SECRET.encode() not in fleet.run("a", "doctor").stdout
    (tmp_path / "secret").unlink()
    result = fleet.run("a", "-n", fleet.job, "true")
    assert result.returncode == 125 and b"secret: No such file" in result.stderr and result.stderr.count(b"\n") == 1
