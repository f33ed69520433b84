"""PostgreSQL alone: its table and notifications, restarts, poolers, standbys, passwords."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import finish, kill, read_state, until
from servers import PostgreSQL, find_port, serve, serve_alone
from test_engines import Fleet

pytest.importorskip("solo.engines.postgresql.libpq")

from solo.engines.engine import EntryRecord
from solo.engines.postgresql.engine import PostgreSQL as Engine
from solo.engines.queue import Wait
from solo.engines.targets import parse_url
from solo.errors import Busy
from solo.modes import EXCLUSIVE, SLOTS, Claim
from solo.queue import wait_silently

pytestmark = pytest.mark.full

server, start_server = serve(PostgreSQL), serve_alone()


@pytest.fixture
def fleet(lab, server):
    return Fleet(lab, server)


def restart(server):
    server.stop(signal.SIGINT)
    server.start()


@pytest.mark.parametrize("ttl", ["5m", "1000000000s"])
def test_lease_may_be_longer_than_tcp_timeouts(fleet, ttl):
    assert fleet.run("a", "-n", fleet.job, "--ttl", ttl, "--", "sh", "-c", "exit 3").returncode == 3


def test_lock_survives_session_end_and_restart(fleet, server):
    holder = fleet.hold("a", fleet.job, "--ttl", "10s")
    waiting = fleet.start_waiter("b", fleet.job, tag="in")
    started = server.ask(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'solo %'"
    )
    assert started.split().count("t") >= 2  # and what a test before has left

    restart(server)

    until(lambda: fleet.count(fleet.job, "waiting") == 1 and fleet.count(fleet.job, "held") == 1)
    expires = f"select min(expires) from solo_lock where name = '{fleet.job}'"
    before = server.ask(expires)
    until(lambda: server.ask(expires) > before)
    assert fleet.lab.read_log() == [] and read_state(holder.child) != "gone"
    assert finish(holder)[0] == 0 and finish(waiting)[0] == 0


@pytest.mark.parametrize(
    "words", ["list", "show job", "history", "wait job", "stop job", "metrics"]
)
def test_view_of_a_missing_table_is_empty_and_creates_none(fleet, server, words):
    fleet.url = fleet.url.replace("solo_lock", "fresh")
    server.ask("drop table if exists fresh, fresh_log")

    result = fleet.run("a", *words.split()[:1], "--via", fleet.url, *words.split()[1:])

    assert (result.returncode, result.stderr) == (0, b"")
    assert (
        server.ask("select to_regclass('fresh') is null and to_regclass('fresh_log') is null")
        == "t"
    )
    assert fleet.run("a", "-n", "job", "true").returncode == 0
    assert server.ask("select to_regclass('fresh') is null") == "f"


@pytest.mark.parametrize("table", ["guests", "rooms.guests"])
def test_error_without_create_privilege_has_the_create_statement(fleet, server, table):
    role = f"of_{table[:5]}"
    server.ask(f"create role {role} login")
    fleet.url = server.url.replace("postgres@", f"{role}@").replace("solo_lock", table)

    result = fleet.run("a", "-n", fleet.job, "true")

    message = result.stderr.decode()
    assert result.returncode == 125 and message.count("\n") == 1
    server.ask(message.partition("must run: ")[2].rstrip(")\n"))
    run = fleet.run("a", "-v", "-n", fleet.job, "true")
    assert run.returncode == 0 and b"not written" not in run.stderr


def test_outcome_that_cannot_be_written_changes_no_status(fleet, server):
    fleet.run("a", "-n", "first", "true")
    server.ask(
        "create role locker login; grant select, insert, update, delete on solo_lock to locker"
    )
    server.ask("drop table solo_lock_log")
    fleet.url = fleet.url.replace("postgres@", "locker@")

    result = fleet.run("a", "-v", "-n", fleet.job, "--", "sh", "-c", "exit 3")

    assert result.returncode == 3 and b"an administrator must run: create table" in result.stderr
    assert b"not written" not in fleet.run("a", "-n", fleet.job, "true").stderr


def test_each_holder_and_each_waiter_has_one_connection(fleet, server):
    holder = fleet.hold("a", fleet.job, "-n", "other")
    waiters = [fleet.start_waiter(host, fleet.job) for host in "bc"]

    count = "select count(*) from pg_stat_activity where application_name like 'solo %'"
    until(lambda: server.ask(count) == "3")

    finish(holder)
    assert [finish(waiter)[0] for waiter in waiters] == [0, 0]


def test_limit_of_a_role_is_named(lab, server):
    server.ask("create role limited login connection limit 0")
    lab.environment["SOLO_VIA"] = server.url.replace("postgres@", "limited@")

    result = lab.run("-n", "job", "true")

    assert result.returncode == 69 and result.stderr.endswith(
        b"raise the CONNECTION LIMIT of the role)\n"
    )


def test_full_server_is_asked_again_until_the_wait_is_over(lab, start_server):
    server = start_server(PostgreSQL)
    server.ask("alter system set max_connections = 4")
    restart(server)
    words = ["psql", *server.place, "-U", "postgres", "-XAt"]
    crowd = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        for _ in range(4)
    ]
    for one in crowd:
        one.stdin.write(b"select 1;\n")
        assert one.stdout.readline() == b"1\n"
    lab.environment["SOLO_VIA"] = server.url

    result = lab.run("-n", "job", "true")
    waiting = lab.start("-v", "-n", "job", "--wait", "1h", "--", "echo", "ran")

    assert (result.returncode, result.stderr.count(b"\n")) == (69, 1)
    assert result.stderr.endswith(
        b"(each holder and each waiter needs a connection: raise max_connections)\n"
    )
    assert b"raise max_connections" in waiting.stderr.readline()
    for one in crowd:
        one.communicate()
    assert finish(waiting)[:2] == (0, "ran\n")


def test_url_without_a_table_is_refused_with_the_url_to_type(fleet):
    right = fleet.url
    fleet.url = fleet.url.partition("?")[0]

    result = fleet.run("a", "-n", fleet.job, "true")

    message = f"solo: --via {fleet.url}: names no table for its locks (use {right})\n"
    assert (result.returncode, result.stderr.decode()) == (125, message)


@pytest.mark.parametrize("form", ["postgres://", "socket", "service"])
def test_other_forms_of_the_url_reach_the_same_table(fleet, server, tmp_path, form):
    holder = fleet.hold("a", fleet.job)
    services = tmp_path / "services"
    services.write_text(
        f"[here]\nhost=127.0.0.1\nport={server.port}\nuser=postgres\ndbname=postgres\n"
    )
    variables = {
        "PGHOST": server.home,
        "PGPORT": server.port,
        "PGUSER": "postgres",
        "PGSERVICEFILE": services,
    }
    fleet.lab.environment.update({name: str(value) for name, value in variables.items()})
    fleet.url = {
        "postgres://": fleet.url.replace("postgresql:", "postgres:"),
        "socket": "postgresql:///postgres?table=solo_lock",
        "service": "postgresql://?service=here&table=solo_lock",
    }[form]

    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    finish(holder)


def test_unreachable_server_is_one_short_line(fleet):
    port = find_port()
    fleet.url = f"postgresql://127.0.0.1:{port}/x?table=t"

    result = fleet.run("a", "-n", fleet.job, "true")

    assert (result.returncode, result.stderr.decode()) == (
        69,
        f"solo: cannot reach {fleet.url}: Connection refused\n",
    )


def test_notices_of_the_server_do_not_reach_the_user(fleet, server):
    """As after an upgrade of the C library: then the server warns at each connection."""
    server.ask("update pg_database set datcollversion = '0.1' where datname = 'postgres'")

    result = fleet.run("a", "-n", fleet.job, "true")

    server.ask("update pg_database set datcollversion = null")
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize(
    "query", "table= table=a;b tables=x table=t&sslmode=loud table=t&password=secret".split()
)
def test_invalid_settings_are_refused_in_one_line(fleet, query):
    fleet.url = f"{fleet.url.partition('?')[0]}?{query}"

    result = fleet.run("a", "-n", fleet.job, "true")

    assert (
        result.returncode == 125
        and result.stderr.count(b"\n") == 1
        and b"secret" not in result.stderr
    )


class PgBouncer(PostgreSQL):
    """A pooler in front of `target`, with this pool_mode."""

    tools = ("pgbouncer",)

    def prepare(self):
        pass

    def make_words(self):
        home, file = self.target.home, self.target.home / f"{self.mode}.ini"
        (home / "users").write_text('"postgres" ""\n')
        file.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.target.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {home}/users\n"
            f"pool_mode = {self.mode}\n"
        )
        self.options = self.target.options
        return ["pgbouncer", file]


@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_pooler_may_share_sessions(fleet, server, start_server, mode):
    pooler = start_server(PgBouncer, target=server, mode=mode)
    fleet.url = server.make_url(pooler.port)
    holder = fleet.hold("a", fleet.job)
    waiting = fleet.start_waiter("b", fleet.job, tag="in")

    fleet.url = server.url
    assert fleet.run("c", "-n", fleet.job, "true").returncode == 75
    assert finish(holder)[0] == 0 and finish(waiting)[0] == 0 and fleet.lab.read_log() == ["in"]


def test_pooler_passes_slots_and_periods(fleet, server, start_server):
    fleet.url = server.make_url(start_server(PgBouncer, target=server, mode="transaction").port)
    words = (
        "--slots",
        "2",
        "--once-per",
        "1h,retry",
        "--",
        "sh",
        "-c",
        "echo $SOLO_SLOT >>$LAB/log; exit $STATUS",
    )

    for status in (3, 0, 0):  # a failed run does not count
        fleet.lab.environment["STATUS"] = str(status)
        assert fleet.run("a", "-n", fleet.job, *words).returncode == status

    assert fleet.lab.read_log() == ["0", "0"]


@pytest.mark.parametrize("mode", ["transaction", None], ids=["pooled", "direct"])
def test_crash_of_a_server_that_commits_late_forgets_no_lock(lab, start_server, mode):
    """Its last commits are lost, unless a statement asks for the disk."""
    server = start_server(PostgreSQL)
    for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'"):
        server.ask(f"alter system set {setting}")
    server.ask("select pg_reload_conf()")
    fleet = Fleet(lab, server)
    assert fleet.run("a", "-n", "other", "true").returncode == 0  # makes the table
    server.ask("checkpoint")
    if mode:
        fleet.url = server.make_url(start_server(PgBouncer, target=server, mode=mode).port)
    holder = fleet.hold("a", fleet.job, "--ttl", "1h")

    server.stop()
    server.start()

    fleet.url = server.url
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    kill(holder)


def test_standby_is_refused_or_passed_over(fleet, server, tmp_path):
    standby = PostgreSQL(tmp_path / "standby")
    shutil.rmtree(standby.home / "data")
    words = "pg_basebackup -U postgres -D data -R -c fast --no-sync"
    subprocess.run([*words.split(), *server.place], check=True, **standby.options)
    standby.start()
    try:
        fleet.url = standby.url
        result = fleet.run("a", "-n", fleet.job, "true")
        assert (
            result.returncode == 69
            and b"is a standby" in result.stderr
            and result.stderr.count(b"\n") == 1
        )

        fleet.url = server.make_url(find_port(), standby.port, server.port)
        holder = fleet.hold("a", fleet.job)
        fleet.url = server.url
        assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
        finish(holder)
    finally:
        standby.stop()


def test_password_from_libpqs_file_is_never_shown(fleet, server, tmp_path):
    server.ask("create role clerk login password 'se%cr3t'")
    server.ask("grant create on schema public to clerk")
    rules = server.home / "data" / "pg_hba.conf"
    old = rules.read_text()
    rules.write_text("host all clerk 127.0.0.1/32 scram-sha-256\n" + old)
    server.ask("select pg_reload_conf()")
    passwords = tmp_path / "passwords"
    passwords.write_text("*:*:*:clerk:wrong\n")
    passwords.chmod(0o600)
    fleet.lab.environment["PGPASSFILE"] = str(passwords)
    fleet.url = server.url.replace("postgres@", "clerk@").replace("solo_lock", "clerks")

    refused = fleet.run("a", "-n", fleet.job, "true")
    passwords.write_text("*:*:*:clerk:se%cr3t\n")
    result = fleet.run("a", "-v", "-n", fleet.job, "--", "env")

    rules.write_text(old)
    server.ask("select pg_reload_conf()")
    assert (
        refused.returncode == 125
        and b"wrong" not in refused.stderr
        and refused.stderr.count(b"\n") == 1
    )
    assert result.returncode == 0 and b"se%cr3t" not in result.stdout + result.stderr


def test_changed_password_is_read_at_the_next_log_in(fleet, server, tmp_path):
    server.ask("create role caretaker login password 'first'")
    server.ask("grant create on schema public to caretaker")
    rules, file = server.home / "data" / "pg_hba.conf", tmp_path / "secret"
    old = rules.read_text()
    rules.write_text("host all caretaker 127.0.0.1/32 scram-sha-256\n" + old)
    server.ask("select pg_reload_conf()")
    file.write_text("first\n")
    fleet.url = (
        server.url.replace("postgres@", "caretaker@").replace("solo_lock", "kept")
        + f"&password_file={file}"
    )
    holder = fleet.hold("a", fleet.job)

    file.write_text("second\n")
    server.ask("alter role caretaker password 'second'")
    ended = server.ask(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = 'caretaker'"
    )
    before = server.ask("select expires from kept")
    until(
        lambda: (
            server.ask(f"select expires > timestamptz '{before}' + interval '6 s' from kept") == "t"
        )
    )

    assert ended == "1" and finish(holder)[::2] == (0, "")
    rules.write_text(old)
    server.ask("select pg_reload_conf()")


def test_table_created_by_another_contender_meanwhile_is_used(server):
    """Two first contenders race: the other creates the table between the probe and the check of
    this one.
    """

    class Late(Engine):
        def ask(self, query, *values):
            if "to_regclass" in query:
                other.connect()
            return super().ask(query, *values)

    target = parse_url(server.url.replace("solo_lock", "raced"))
    other, late = Engine(target, 15.0, 5.0), Late(target, 15.0, 5.0)
    late.connect()

    assert late.list_entries() == []
    late.release()
    other.release()


class Peers:
    """Sessions at one table, each with an entry in a queue, as of contenders on several hosts."""

    def __init__(self, server, table):
        self.target = parse_url(server.url.replace("solo_lock", table))
        self.engines = []

    def join(self, name, claim):
        engine = Engine(self.target, 3600.0, 5.0)
        engine.connect()
        key = engine.join(name, EntryRecord(claim, launcher=1, since=1.0))
        entry = engine.read_queue(name)[-1]
        self.engines.append(engine)
        assert entry.key == key
        return engine, entry

    def wait(self, engine, name, key=None):
        """Wait for no time, so that the session listens to its channel."""
        engine.read_queue(name)
        assert not engine.wait_change(name, key, 0.0)

    def count_woken(self, engines):
        """Return how many notifications each of these sessions has received."""
        for engine in engines:
            engine.link.ask("select 1")
        return [len(engine.link.heard) for engine in engines]

    def close(self):
        for engine in self.engines:
            engine.release()


@pytest.fixture
def peers(server, request):
    peers = Peers(server, f"peers{os.urandom(4).hex()}")
    yield peers
    peers.close()


def test_release_wakes_the_next_waiter_alone(peers):
    queue = [peers.join("a", Claim(EXCLUSIVE)) for _ in range(4)]
    others = [peers.join("b", Claim(EXCLUSIVE)) for _ in range(2)]
    for entries, name in ((queue, "a"), (others, "b")):
        for (_, before), (engine, _) in zip(entries, entries[1:]):
            peers.wait(engine, name, before.key)

    queue[0][0].release()

    assert peers.count_woken([engine for engine, _ in queue[1:]]) == [1, 0, 0]
    assert peers.count_woken([others[1][0]]) == [0]


def test_released_slot_wakes_the_first_waiter_and_its_slot_the_second(peers):
    holders = [peers.join("a", Claim(SLOTS, 2)) for _ in range(2)]
    for number, (engine, entry) in enumerate(holders):
        engine.rewrite(entry._replace(record=entry.record._replace(slot=[(number, number)])))
    entries = [peers.join("a", Claim(SLOTS, 2)) for _ in range(3)]
    waiters = [engine for engine, _ in entries]
    for engine in waiters:
        peers.wait(engine, "a")

    holders[1][0].release()
    assert [bool(count) for count in peers.count_woken(waiters)] == [True, False, False]

    engine, entry = entries[0]
    engine.rewrite(entry._replace(record=entry.record._replace(slot=[(1, 1)])))
    assert [bool(count) for count in peers.count_woken(waiters[1:])] == [True, False]


def test_release_by_an_earlier_version_wakes_a_waiter(peers, server):
    """Earlier versions notify only the channel of the table."""
    (holder, held), (waiter, _) = (peers.join("a", Claim(EXCLUSIVE)) for _ in range(2))
    peers.wait(waiter, "a", held.key)

    server.ask(
        f"with gone as (delete from {holder.name} where number = {held.number} returning 1)"
        f" select pg_notify('solo {holder.name}', '') from gone"
    )

    assert peers.count_woken([waiter]) == [1]


class Recorded(Engine):
    """A table that records its queries."""

    def __init__(self, *words):
        super().__init__(*words)
        self.queries = []

    def ask(self, query, *values):
        self.queries.append(query)
        return super().ask(query, *values)

    def count(self, words):
        return sum(words in query for query in self.queries)


def test_waiter_renews_without_reading_the_queue_again(peers):
    for _ in range(3):
        peers.join("a", Claim(EXCLUSIVE))
    waiter = Recorded(peers.target, 1.0, 5.0)
    waiter.connect()

    with pytest.raises(Busy):
        waiter.acquire(
            "a", EntryRecord(Claim(EXCLUSIVE)), Wait(time.monotonic() + 1.5, wait_silently)
        )

    waiter.release()
    assert waiter.count("set expires") >= 5
    assert waiter.count("select max(number)") == 2  # when it joined, and when it gave up
    assert waiter.count("between") <= 2


def test_waiter_reads_no_entry_after_its_own(peers):
    engines = [peers.join("a", Claim(EXCLUSIVE))[0] for _ in range(4)]

    assert [len(engine.read_queue("a")) for engine in engines] == [1, 2, 3, 4]
    assert len(engines[0].list_entries("a")) == 4


def test_waiter_whose_row_was_removed_joins_again(fleet, server):
    holder = fleet.hold("a", fleet.job)
    waiting = fleet.start_waiter("b", fleet.job, "--ttl", "3s", tag="in")
    last = f"select max(number) from solo_lock where name = '{fleet.job}'"
    before = server.ask(last)

    server.ask(f"delete from solo_lock where number = {before}")

    until(lambda: fleet.count(fleet.job, "waiting") == 1 and server.ask(last) > before)
    finish(holder)
    assert finish(waiting)[0] == 0 and fleet.lab.read_log() == ["in"]
