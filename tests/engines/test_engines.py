"""The promises of a lock at any engine, tested with real servers. Each host is a separate
SOLO_DIR.
"""

import itertools
import json
import os
import pwd
import re
import signal
import socket
import time
from datetime import datetime

import pytest
from conftest import PATIENCE, do_when, finish, kill, read_line, read_state, until, wait_dead
from fleet import Clock, describe
from observed import list_loaded
from proxy import HOLE, REQUEST, Proxy
from servers import SERVERS, find_port, serve

from solo.commands.list import collect
from solo.contention.period import LastRun, format_ran, parse_ran
from solo.engines.lease import Terms
from solo.engines.targets import open_engine

pytestmark = [pytest.mark.long, pytest.mark.full]

server = serve(SERVERS)


NUMBERS = itertools.count()
DAY = 86400


class Fleet:
    """Hosts that share one engine."""

    def __init__(self, lab, server):
        self.lab = lab
        self.server = server
        self.url = server.url
        self.job = f"job{next(NUMBERS)}"  # unique per test

    def describe(self, host, options):
        return {"env": describe(self.lab, host, self.url), **options}

    def run(self, host, *words, **options):
        return self.lab.run(*words, **self.describe(host, options))

    def start(self, host, *words, **options):
        return self.lab.start(*words, **self.describe(host, options))

    def hold(self, host, name, *words):
        """Start a holder whose command lives until its stdin is closed; return once the command
        runs.
        """
        holder = self.start(
            host, *words, "-n", name, "--", "sh", "-c", "echo $$; read line; exit 0"
        )
        holder.child = int(read_line(holder))
        return holder

    def start_waiter(self, host, name, *words, tag="x"):
        """Start a contender that writes `tag` to the log when it runs; return once the engine has
        it in its queue.

        Only the first contender of a host joins the engine's queue: the others wait in the local
        one.
        """
        before = self.count(name, "waiting")
        waiting = self.start(
            host, "-w", "forever", "-n", name, *words, "--", "sh", "-c", f"echo {tag} >>$LAB/log"
        )
        until(lambda: self.count(name, "waiting") > before)
        return waiting

    def read_json(self, *words):
        result = self.run("nowhere", *words, "--json")
        assert (result.returncode, result.stderr) == (0, b"")
        return json.loads(result.stdout)

    def list(self, *names):
        return self.read_json("list", *names)

    def count(self, name, state):
        """Count the rows of `solo list` in this process, for polling: a start of the view takes 100
        ms of CPU.
        """
        rows, is_complete = collect(str(self.lab.path / "nowhere"), self.url, [name])
        assert is_complete
        return sum(row.state == state for row in rows)


@pytest.fixture
def fleet(lab, server):
    return Fleet(lab, server)


def need(server, feature):
    """Skip the test if the engine lacks a feature, such as has_history."""
    if not getattr(server, feature):
        pytest.skip(f"{server.scheme} {feature.replace('_', ' ')}: no")


# --- one run--------------------------------------------------------------------------------------


def test_command_gets_name_token_and_ttl_its_end_is_mirrored_and_leaves_nothing(fleet):
    script = 'echo "$SOLO_NAME $SOLO_TOKEN $SOLO_TTL [$SOLO_VIA_KEY]"; exit 7'
    result = fleet.run("a", "-n", fleet.job, "--ttl", "10s", "--", "sh", "-c", script)

    name, token, ttl, key = result.stdout.decode().split(maxsplit=3)
    assert (result.returncode, result.stderr) == (7, b"")
    assert (name, ttl) == (fleet.job, "10") and int(token) > 0 and fleet.job in key
    assert (
        fleet.run("a", "-n", fleet.job, "--", "sh", "-c", "kill -USR1 $$").returncode
        == -signal.SIGUSR1
    )
    assert fleet.list(fleet.job) == []


def test_command_inherits_no_descriptor_of_the_launcher(fleet):
    result = fleet.run("a", "-n", fleet.job, "--", "ls", "/proc/self/fd")

    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is that of ls


def test_launcher_closes_the_callers_pipes(fleet):
    read, write = os.pipe()
    code = f"import os; os.close({write}); print('ready', flush=True); input()"
    holder = fleet.start("a", "-n", fleet.job, "--", "python3", "-c", code, pass_fds=[write])
    os.close(write)
    assert read_line(holder) == "ready"

    until(lambda: os.read(read, 1) == b"")
    os.close(read)
    assert finish(holder, b"\n")[0] == 0


# Each takes milliseconds to load, most of them for what solo does not use.
HEAVY = """asyncio collections concurrent contextlib ctypes dataclasses email enum functools http importlib.metadata
    inspect json logging os pathlib random re shutil socket ssl struct subprocess threading typing urllib uuid""".split()


def test_run_loads_no_heavy_module(fleet):
    if fleet.server.scheme == "zookeeper":
        pytest.skip("kazoo loads many")
    loaded = list_loaded(fleet.lab, "--via", fleet.url, "-n", fleet.job, "--", "true")

    assert f"solo.engines.{fleet.server.scheme}" in loaded and loaded.isdisjoint(HEAVY)


def list_paths(data):
    return re.findall(rb"POST /v3/(\S+) HTTP", data)


def list_frames(data):
    """Return the packets of ZooKeeper."""
    frames = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[4:size])
        data = data[size:]
    return frames


# How to read what a client sent, and the requests of a run and of a skip.
REQUESTS = {
    "etcd": (
        list_paths,
        b"lease/grant kv/txn lease/keepalive kv/txn kv/range kv/txn lease/revoke kv/txn".split(),
        b"lease/grant kv/txn kv/deleterange lease/revoke".split(),
    ),
    "redis": (re.compile(rb"^\*\d+\r\n\$4\r\n", re.M).findall, 8, 4),
    "postgresql": (
        re.compile(rb"P\0\0..\0(?:select|with|insert|update|delete)", re.S).findall,
        10,
        6,
    ),
    "zookeeper": (list_frames, 15, 8),
}


def test_run_and_skip_make_few_requests(fleet):
    if fleet.server.scheme not in REQUESTS:
        pytest.skip("test_s3.py counts them")
    read, *wanted = REQUESTS[fleet.server.scheme]
    words = ("-n", fleet.job, "--ttl", "1m", "true")  # no renewal is due
    fleet.run("a", *words)  # makes what is missing
    direct, proxy = fleet.url, Proxy(fleet.server.port)

    def count(status):
        proxy.requests.clear()
        fleet.url = fleet.server.make_url(proxy.port)
        assert fleet.run("a", *words).returncode == status
        fleet.url = direct
        return read(b"".join(proxy.requests))

    run = count(0)
    holder = fleet.hold("b", fleet.job)
    skip = count(75)

    assert (
        [run, skip] == wanted if fleet.server.scheme == "etcd" else [len(run), len(skip)] == wanted
    )
    finish(holder)
    proxy.close()


# --- several contenders---------------------------------------------------------------------------


def test_busy_message_names_the_holder_on_its_host(fleet):
    holder = fleet.hold("a", fleet.job)

    result = fleet.run("b", "-n", fleet.job, "--", "sh", "-c", "echo ran >>$LAB/log")

    assert result.returncode == 75 and fleet.lab.read_log() == []
    message = result.stderr.decode()
    assert message.startswith(f"solo: {fleet.job}: busy: held for ")
    assert f"by pid {holder.pid} on {socket.gethostname()} (sh -c" in message
    assert message.count("\n") == 1
    assert finish(holder)[0] == 0
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 0


def test_busy_message_and_views_tell_waiting_from_holding(fleet):
    holder = fleet.hold("a", fleet.job, "--shared")
    waiter = fleet.start(
        "b", "-w", "forever", "-n", fleet.job, "--", "sh", "-c", "echo up; read line"
    )
    until(lambda: "waiting" in [row["state"] for row in fleet.list(fleet.job)])

    message = fleet.run("c", "--shared", "-n", fleet.job, "true").stderr.decode()
    assert (
        f"busy: pid {waiter.pid} on {socket.gethostname()} (sh -c" in message
        and ") has waited for " in message
    )

    time.sleep(1)
    begin = time.time()
    finish(holder)
    read_line(waiter)

    def is_later():
        [since] = [row["since"] for row in fleet.list(fleet.job)]
        return datetime.fromisoformat(since).timestamp() > begin - 0.5

    until(is_later)  # some engines write it with the next renewal
    finish(waiter)


def test_note_of_the_holder_shows_on_every_host(fleet):
    note = "été: until noon, 50% */"
    fleet.hold("a", fleet.job, "--note", note)

    lines = [fleet.run("b", "-n", fleet.job, "true").stderr.decode() for _ in range(2)]
    waiter = fleet.start_waiter("c", fleet.job, "--note", "me too")
    table = fleet.run("b", "list").stdout.decode().splitlines()

    assert lines[0].endswith(f"): {note}\n") and lines[1].endswith(f"), 1 skip since: {note}\n"), (
        lines
    )
    assert [row["note"] for row in fleet.list(fleet.job)] == [note, "me too"]
    assert " NOTE " in table[0] and any(f"  {note}  " in row for row in table)
    waiter.terminate()


def test_waiters_acquire_in_order_of_arrival(fleet):
    holder = fleet.hold("z", fleet.job)
    waiters = [fleet.start_waiter(f"h{number}", fleet.job, tag=number) for number in range(5)]

    finish(holder)

    assert [finish(waiter)[0] for waiter in waiters] == [0] * 5
    assert fleet.lab.read_log() == list("01234")


def test_wait_timeout_is_busy(fleet):
    holder = fleet.hold("a", fleet.job)

    result = fleet.run(
        "b", "-n", fleet.job, "-w", "5s", "--ttl", "40s", "true"
    )  # for which a call has 5 seconds

    assert result.returncode == 75 and b"busy: held for" in result.stderr
    finish(holder)


def test_signal_ends_a_waiter_and_leaves_nothing(fleet):
    holder = fleet.hold("a", fleet.job)
    first = fleet.start_waiter("b", fleet.job, tag="first")
    second = fleet.start_waiter("c", fleet.job, tag="second")

    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == -signal.SIGTERM
    assert fleet.count(fleet.job, "waiting") == 1
    finish(holder)

    assert finish(second)[0] == 0 and fleet.lab.read_log() == ["second"]


def test_tokens_grow_over_all_hosts(fleet):
    tokens = [
        int(fleet.run(host, "-n", "fence", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout)
        for host in "abacb"
    ]

    assert tokens == sorted(set(tokens))


def test_several_names_are_held_together(fleet):
    holder = fleet.hold("a", "one", "-n", "two")

    assert {row["name"] for row in fleet.list("one", "two") if row["state"] == "held"} == {
        "one",
        "two",
    }
    assert [fleet.run("b", "-n", name, "true").returncode for name in ("one", "two", "three")] == [
        75,
        75,
        0,
    ]
    finish(holder)
    assert (
        fleet.run("b", "-n", "two", "-n", "one", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout.count(
            b" "
        )
        == 1
    )


def test_name_may_have_any_character(fleet):
    names = [
        b"a}:b",
        b"a",
        b"a}",
        b"{",
        b"*",
        b"two words",
        "ü".encode(),
        b"\xff",
        b"a}:fence",
        b"%2F",
        b"100%",
    ]
    if not fleet.server.has_bytes:  # only UTF-8
        names.remove(b"\xff")
        result = fleet.run("a", "-n", b"\xff", "true")
        assert (result.returncode, result.stderr.count(b"\n")) == (
            125,
            1,
        ) and b"bug" not in result.stderr
    holders = [fleet.hold(f"a{number}", name) for number, name in enumerate(names)]

    shown = {name.decode(errors="backslashreplace") for name in names}
    assert shown <= {row["name"] for row in fleet.list()}
    assert [fleet.run("b", "-n", name, "true").returncode for name in names] == [75] * len(names)
    assert [finish(holder)[0] for holder in holders] == [0] * len(names)
    assert not shown & {row["name"] for row in fleet.list()}


def test_shared_holds_coexist_and_exclude_exclusive(fleet):
    readers = [fleet.hold(host, "data", "--shared") for host in "ab"]

    assert fleet.run("c", "-n", "data", "true").returncode == 75
    writer = fleet.start_waiter("c", "data", tag="writer")
    assert (
        fleet.run("d", "-n", "data", "--shared", "true").returncode == 75
    )  # no contender overtakes the writer
    for reader in readers:
        finish(reader)
    assert (
        finish(writer)[0] == 0 and fleet.run("d", "-n", "data", "--shared", "true").returncode == 0
    )


def test_slots_are_limited_and_numbered_over_all_hosts(fleet):
    words = ("-n", "db", "--slots", "3", "--", "sh", "-c", "echo $SOLO_SLOT; read line; exit 0")
    holders = [fleet.start(host, *words) for host in "abc"]
    slots = [read_line(holder) for holder in holders]
    assert sorted(slots) == ["0", "1", "2"]

    assert fleet.run("d", "-n", "db", "--slots", "3", "true").returncode == 75
    waiting = fleet.start("d", "-w", "forever", *words)
    until(lambda: fleet.count("db", "waiting") == 1)
    finish(holders[1])

    assert finish(waiting)[:2] == (0, f"{slots[1]}\n")
    for holder in (holders[0], holders[2]):
        finish(holder)


def test_simultaneous_contenders_fill_all_slots(fleet):
    """A contender is not busy while others have joined and not yet taken their slots."""
    words = (
        "--slots",
        "5",
        "--ttl",
        "60s",
        "--",
        "sh",
        "-c",
        "echo $SOLO_SLOT; read line; exit 0",
    )  # a long timeout
    crowd = [fleet.start(f"h{number}", "-n", fleet.job, *words) for number in range(5)]

    assert sorted(map(read_line, crowd)) == list("01234")
    assert [finish(one)[0] for one in crowd] == [0] * 5


def test_crowd_goes_on_in_order_after_its_tenth_was_killed(fleet):
    holder = fleet.hold("a", fleet.job, "--ttl", "4s")
    words = (fleet.job, "--ttl", "4s")
    crowd = [
        fleet.start_waiter(f"h{number}", *words, tag=f"{number}:$(date +%s.%N)")
        for number in range(20)
    ]
    kill(crowd.pop(9))
    finish(holder)

    assert [one.wait(4 * PATIENCE) for one in crowd] == [0] * 19
    numbers, moments = zip(*(line.split(":") for line in fleet.lab.read_log()))
    spans = [float(after) - float(before) for before, after in zip(moments, moments[1:])]
    print(f"{fleet.server.scheme}: ninth to eleventh {spans.pop(8):.2f} s, others {max(spans):.2f}")
    assert list(map(int, numbers)) == [number for number in range(20) if number != 9]


def test_parent_excludes_nested_names(fleet):
    holder = fleet.hold("a", "deploy/prod")

    names = ("deploy", "deploy/test", "deploy/prod")
    assert [fleet.run("b", "-n", name, "true").returncode for name in names] == [75, 0, 75]
    finish(holder)
    assert fleet.run("b", "-n", "deploy", "true").returncode == 0


@pytest.mark.parametrize(
    "words, message",
    [
        ("--ttl forever", b"--ttl"),
        ("--ttl 10000000d", b"--ttl"),
        ("--replace-after 1h", b"--replace-after cannot be used with an engine (use --replace)"),
    ],
)
def test_option_that_no_engine_has_is_refused(fleet, words, message):
    result = fleet.run("a", "-n", fleet.job, *words.split(), "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and message in result.stderr


def test_max_waiting_counts_waiters_at_the_engine(fleet):
    holder = fleet.hold("a", fleet.job)
    waiting = fleet.start_waiter("b", fleet.job)

    assert fleet.run("c", "-n", fleet.job, "-w", "1h,1", "true").returncode == 75
    finish(holder)
    assert finish(waiting)[0] == 0


def test_explain_reads_the_queue_and_joins_none(fleet):
    """It says of the name, and of the period, what a run says and does."""

    def explain(*words):
        result = fleet.run("c", "--explain", "--json", "-n", fleet.job, *words, "true")
        assert result.stderr == b"", result.stderr
        facts = json.loads(result.stdout)
        return result.returncode, facts["outcome"], facts["place"], facts["reason"]

    assert explain("--once-per", "1h") == (0, "runs", None, None)
    table = fleet.run("c", "--explain", "-n", fleet.job, "--once-per", "1h", "true").stdout
    assert re.search(rb"^period +lasts until .*\nnow +it runs at once\nstatus +0$", table, re.M)
    holder = fleet.hold("a", fleet.job, "--once-per", "1h")
    fleet.start_waiter("b", fleet.job)
    status, outcome, place, reason = explain()
    busy = fleet.run("c", "-n", fleet.job, "true")
    assert (status, outcome, place) == (busy.returncode, "busy", None) == (75, "busy", None)
    without_times = [
        re.sub(r"for \d+s", "", text) for text in (f"solo: {reason}\n", busy.stderr.decode())
    ]
    assert without_times[0] == without_times[1]
    assert explain("-w", "1h")[:3] == (0, "waits", 2) and explain("-w", "1h,1")[:2] == (75, "busy")
    assert explain("--replace")[:2] == (0, "replaces") and fleet.count(fleet.job, "waiting") == 1
    finish(holder)
    assert explain("--once-per", "1h")[:2] == (0, "ran")


def test_replace_asks_the_launcher_on_the_other_host_to_end_its_command(fleet):
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    holder = fleet.start("a", "-n", fleet.job, "--ttl", "8s", "--", "sh", "-c", script)
    assert read_line(holder) == "ready"

    result = fleet.run("b", "-n", fleet.job, "--ttl", "8s", "--replace", "echo", "mine")

    assert (result.returncode, result.stdout) == (0, b"mine\n"), result.stderr
    status, _, message = finish(holder)
    assert status == 9 and "asks" in message


@pytest.mark.tool("gcc")
def test_views_ignore_a_wrong_clock_of_the_holders_host(fleet):
    environment = {**fleet.describe("a", {})["env"], **Clock(fleet.lab.path, -100_000).environment}
    holder = fleet.start(
        "a", "-n", fleet.job, "--", "sh", "-c", "echo $$; read line; exit 0", env=environment
    )
    read_line(holder)

    moments = [row["since"] for row in fleet.list(fleet.job)]
    busy = fleet.run("b", "-n", fleet.job, "true").stderr.decode()
    finish(holder)
    rows = (
        fleet.read_json("history", "--via", fleet.url, fleet.job)
        if fleet.server.has_history
        else []
    )
    moments += [moment for row in rows for moment in (row["time"], row["end"])]

    assert "busy: held for " in busy and "d" not in busy.partition("held for ")[2].partition(" ")[0]
    assert all(
        abs(datetime.fromisoformat(moment).timestamp() - time.time()) < 10_000 for moment in moments
    )
    assert len(moments) == (3 if fleet.server.has_history else 1)


# --- the history over all hosts-------------------------------------------------------------------


def test_history_has_the_runs_of_all_hosts(fleet):
    need(fleet.server, "has_history")
    script = "echo $SOLO_TOKEN; exit 3"
    first = fleet.run("a", "-n", fleet.job, "--note", "été", "--", "sh", "-c", script)
    fleet.run(
        "b",
        "-n",
        fleet.job,
        "-n",
        f"{fleet.job}/0",
        "--slots",
        "2",
        "--timeout",
        "300ms",
        "sleep",
        "100",
    )
    fleet.run("b", "-n", f"{fleet.job}0", "true")

    rows = fleet.read_json("history", "--via", fleet.url, fleet.job)

    outcomes = [(fleet.job, "failed"), (fleet.job, "timed out"), (f"{fleet.job}/0", "timed out")]
    assert [(row["name"], row["outcome"]) for row in rows] == outcomes
    assert (rows[0]["code"], rows[0]["token"], rows[0]["note"]) == (3, int(first.stdout), "été")
    assert rows[0]["command"] == ["sh", "-c", script] and rows[0]["host"] == socket.gethostname()
    assert (rows[1]["slot"], rows[1]["names"]) == (0, [fleet.job, f"{fleet.job}/0"]) and rows[1][
        "ran"
    ] > 0
    ago = time.time() - datetime.fromisoformat(rows[0]["end"]).timestamp()
    assert rows[0]["user"] == pwd.getpwuid(os.geteuid()).pw_name and -5 < ago < PATIENCE
    assert {row["name"] for row in fleet.read_json("history", "--via", fleet.url)} >= {
        fleet.job,
        f"{fleet.job}0",
    }
    assert fleet.read_json("history", "--via", fleet.url, "--since", "0") == []
    head, *lines = (
        fleet.run("nowhere", "history", "--via", fleet.url, fleet.job).stdout.decode().splitlines()
    )
    assert lines[0][head.index("HOST") :].split()[0] == socket.gethostname()
    assert fleet.list(fleet.job) == []


def test_history_is_that_of_the_host_without_the_option(fleet):
    holder = fleet.hold("a", fleet.job)

    def read(host):
        rows = json.loads(fleet.run(host, "history", "--json", env=plain(fleet, host)).stdout)
        return [(row["name"], row["outcome"], row["ran"] is not None) for row in rows]

    assert (read("a"), read("b")) == ([(fleet.job, "running", True)], [])
    assert finish(holder)[0] == 0
    assert (read("a"), read("b")) == ([(fleet.job, "ok", True)], [])


def plain(fleet, host):
    environment = fleet.describe(host, {})["env"]
    del environment["SOLO_VIA"]
    return environment


def test_history_keeps_the_last_outcomes_of_each_name(fleet):
    need(fleet.server, "has_history")
    fleet.lab.hasten("solo.engines.engine.OUTCOMES_KEPT", 2)
    nested = f"{fleet.job}/0"

    for name, status in ((nested, 1), *((fleet.job, status) for status in range(5))):
        fleet.run("a", "-n", name, "--", "sh", "-c", f"exit {status}")

    assert [
        (row["name"], row["code"])
        for row in fleet.read_json("history", "--via", fleet.url, fleet.job, nested)
    ] == [(nested, 1), (fleet.job, 3), (fleet.job, 4)]


def test_engine_without_a_history_refuses_in_words(fleet):
    if fleet.server.has_history:
        pytest.skip(f"{fleet.server.scheme} has one")
    result = fleet.run("a", "history", "--via", fleet.url)

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"cannot keep a history" in result.stderr


def test_next_contender_does_not_wait_for_the_outcome(fleet):
    """The outcome is the last message, and gets no answer."""
    if fleet.server.scheme not in ("etcd", "redis"):
        pytest.skip("its connections end with messages of their own")
    direct = fleet.url
    counted = through_proxy(fleet, 1000)
    fleet.run("a", "-n", fleet.job, "true")
    proxy = through_proxy(fleet, 1000 - counted.left)
    try:
        result = fleet.run("a", "-v", "-n", fleet.job, "--ttl", "1h", "--", "sh", "-c", "exit 3")
        fleet.url = direct

        assert proxy.has_struck and b"the history at the engine is not written: " in result.stderr
        assert result.returncode == 3 and fleet.run("b", "-n", fleet.job, "true").returncode == 0
    finally:
        for one in counted, proxy:
            one.close()


def through_proxy(fleet, number: int) -> Proxy:
    """Have the fleet reach its server through a proxy that becomes silent at a request."""
    proxy = Proxy(fleet.server.port)
    proxy.strike(HOLE, REQUEST, number, HOLE)
    fleet.url = fleet.server.make_url(proxy.port)
    return proxy


# --- unreachable----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--replace",)], ids=" ".join)
@pytest.mark.parametrize("port", ["closed", "silent"])
def test_unreachable_engine_is_69_and_nothing_runs(fleet, port, options):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fleet.url = fleet.server.make_url(
            find_port() if port == "closed" else silent.getsockname()[1]
        )

        result = fleet.run(
            "a", "-n", fleet.job, "--ttl", "5s", *options, "--", "sh", "-c", "echo ran >>$LAB/log"
        )

        assert (result.returncode, result.stderr.count(b"\n"), fleet.lab.read_log()) == (69, 1, [])


def test_wait_retries_until_the_engine_answers(fleet):
    port = find_port()
    fleet.url = fleet.server.make_url(port)
    waiting = fleet.start("a", "-n", fleet.job, "-w", "1h", "-v", "echo", "ran")
    assert (
        b"a new directory of names" in waiting.stderr.readline()
        and b"waiting" in waiting.stderr.readline()
    )
    proxy = Proxy(fleet.server.port, port)
    try:
        assert finish(waiting)[:2] == (0, "ran\n")
    finally:
        proxy.close()


# --- lost leases----------------------------------------------------------------------------------


def test_removed_lock_ends_the_command_and_its_descendants_as_lost(fleet):
    notes, script = fleet.lab.path / "notes", "trap '' TERM; sleep 1000 & echo $! $$; wait"
    words = (
        "-n",
        fleet.job,
        "--notify",
        'echo "$SOLO_OUTCOME $SOLO_STATUS $SOLO_HOLDER_PID" >>$LAB/notes',
    )
    holder = fleet.start("a", "--ttl", "3s", *words, "--", "sh", "-c", script)
    pids = list(map(int, read_line(holder).split()))

    assert fleet.run("b", *words, "true").returncode == 75
    until(notes.exists)
    fleet.server.remove_lock(fleet.job)

    status, _, message = finish(holder)
    assert status == 123 and "lease" in message
    for pid in pids:
        wait_dead(pid)
    until(lambda: notes.read_text() == "skipped 75 \nlost 123 \n")
    [run] = json.loads(fleet.run("a", "history", "--json", env=plain(fleet, "a")).stdout)
    assert run["outcome"] == "lost"
    if fleet.server.has_history:
        assert [
            row["outcome"] for row in fleet.read_json("history", "--via", fleet.url, fleet.job)
        ] == ["lost"]


# --- views----------------------------------------------------------------------------------------


def test_views_show_each_entry_with_its_host(fleet):
    holder = fleet.hold("a", fleet.job)
    waiting = [fleet.start_waiter("b", fleet.job)]
    waiting.append(
        fleet.start("b", "-w", "forever", "-n", fleet.job, "true")
    )  # in the queue of its host

    row = fleet.list(fleet.job)[0]
    assert (
        row["state"] == "held"
        and row["launcher"] == holder.pid
        and row["host"] == socket.gethostname()
    )
    assert (
        row["command"][:2] == ["sh", "-c"]
        and row["via"] == fleet.url
        and row["mode"] == "exclusive"
    )
    until(lambda: fleet.list(fleet.job)[0]["child"] == holder.child)
    for view, title in (("list", "NAME"), ("show", "PLACE")):
        lines = fleet.run("c", view, fleet.job).stdout.decode().splitlines()
        [at] = [number for number, line in enumerate(lines) if line.startswith(title)]
        assert lines[at + 1][lines[at].index("HOST") :].split()[0] == socket.gethostname()
    assert b"HOST" not in fleet.run("c", "list", env=plain(fleet, "c")).stdout

    def list_shown(host):
        [shown] = json.loads(fleet.run(host, "show", "--json", fleet.job).stdout)
        return [[row["launcher"] for row in shown[kind]] for kind in ("holds", "waiting")]

    pids = [process.pid for process in waiting]
    until(lambda: list_shown("b") == [[holder.pid], pids])
    assert list_shown("a") == [[holder.pid], pids[:1]]
    assert f'name="{fleet.job}"' in fleet.run("b", "metrics").stdout.decode()
    assert [finish(process)[0] for process in (holder, *waiting)] == [0] * 3


def test_wait_returns_once_the_name_is_free(fleet):
    holder = fleet.hold("a", fleet.job)
    assert fleet.run("b", "wait", "--timeout", "300ms", fleet.job).returncode == 75
    waiting = fleet.start("b", "wait", fleet.job)

    assert read_state(waiting.pid) != "gone"
    finish(holder)

    assert finish(waiting)[0] == 0


def test_stop_ends_the_command_on_its_host(fleet):
    holder = fleet.start("a", "-n", fleet.job, "--ttl", "4s", "--", "sleep", "1000")
    until(lambda: fleet.count(fleet.job, "held") == 1)

    result = fleet.run("b", "stop", fleet.job)

    assert result.returncode == 0 and result.stdout.startswith(f"{fleet.job}: ended pid".encode())
    assert holder.wait(PATIENCE) == -signal.SIGTERM


def test_stop_and_wait_within_the_job_are_refused(fleet):
    """It would end the script that asks for it, or wait without end."""
    script = "$SOLO stop $SOLO_NAME; echo $?; $SOLO wait $SOLO_NAME; echo $?"
    environment = {"SOLO": fleet.lab.script}
    holder = fleet.start(
        "a",
        "-n",
        fleet.job,
        "--",
        "env",
        *(f"{k}={v}" for k, v in environment.items()),
        "sh",
        "-c",
        script,
    )

    status, out, err = finish(holder)

    assert (status, out.split()) == (0, ["125", "125"])
    by = rf"{fleet.job}: [^\n]*pid {holder.pid} on [^\n]*, an ancestor of this process"
    assert "cannot stop it from inside" in err and re.search(f"{by}: it would wait for itself", err)


def test_busy_names_what_keeps_the_last_slot(fleet):
    """Not the holder of the other one, but the waiter for both."""
    holder = fleet.hold("a", fleet.job, "--slots", "2")
    waiting = fleet.start_waiter("b", fleet.job, "--slots", "2,2")

    message = fleet.run("c", "--slots", "2", "-n", fleet.job, "true").stderr.decode()

    assert f"busy: pid {waiting.pid} on " in message and ") has waited for " in message
    assert finish(holder)[0] == finish(waiting)[0] == 0


def test_doctor_reports_the_engine_and_fails_without_it(fleet):
    result = fleet.run("a", "doctor")

    assert result.returncode == 0, result.stdout
    assert b"ttl" in result.stdout or b"lease" in result.stdout
    fleet.url = fleet.server.make_url(find_port())
    assert fleet.run("a", "doctor").returncode == 1


def test_silent_holder_is_shown_and_its_lock_can_be_removed(fleet):
    holder = fleet.hold("a", fleet.job, "--ttl", "20s")
    refused = fleet.run("b", "release", "--via", fleet.url, fleet.job)
    assert (
        refused.returncode == 125
        and b": it was renewed " in refused.stderr
        and fleet.list(fleet.job)[0]["silent"] is None
    )

    kill(holder)
    until(lambda: collect(str(fleet.lab.path / "nowhere"), fleet.url, [fleet.job])[0][0].silent)

    [row] = fleet.list(fleet.job)
    assert row["state"] == "held" and 8 < row["renewed_ago"] and 0 < row["free_in"] < 15
    shown = (
        fleet.run("b", "list", fleet.job).stderr.decode()
        + fleet.run("b", "show", fleet.job).stdout.decode()
    )
    assert shown.count(" ago, free in ") == 2 and f"{fleet.job}: pid {holder.pid} on " in shown
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    removed = fleet.run("b", "release", "--via", fleet.url, fleet.job)
    assert (removed.returncode, removed.stderr.count(b"\n")) == (0, 1)
    assert b"removed the lock of pid" in removed.stderr and b"its command may run" in removed.stderr
    assert fleet.run("b", "-n", fleet.job, "true").returncode == 0
    gone = fleet.run("b", "release", "--via", fleet.url, fleet.job)
    assert gone.returncode == 125 and b"not held (names at " in gone.stderr


def test_lock_is_removed_by_hand_as_the_manual_page_says(fleet):
    for name in (fleet.job, f"{fleet.job}/part"):
        kill(fleet.hold("a", name, "--ttl", "1h"))
        assert fleet.run("b", "-n", name, "true").returncode == 75

        fleet.server.type_removal(name)

        assert fleet.run("b", "-n", name, "true").returncode == 0


def test_metrics_say_whether_the_engine_answers_and_keep_those_of_the_host(fleet):
    fleet.run("a", "-n", fleet.job, "true")
    up = fleet.run("a", "metrics")
    fleet.url = fleet.server.make_url(find_port())
    down = fleet.run("a", "metrics")

    assert [(one.returncode, one.stderr.count(b"\n")) for one in (up, down)] == [(0, 0), (0, 1)]
    for text, is_up in (up.stdout.decode(), 1), (down.stdout.decode(), 0):
        assert [
            line.split()[-1] for line in text.splitlines() if line.startswith("solo_engine_up{")
        ] == [str(is_up)]
        assert f'solo_runs_total{{name="{fleet.job}",via="file"' in text


# --- once per period------------------------------------------------------------------------------


def test_once_per_runs_once_in_a_period_over_all_hosts(fleet):
    words = ["-n", "nightly", "--once-per", "1d", "--", "sh", "-c", "echo ran >>$LAB/log"]

    results = [fleet.run(host, *words) for host in "abab"]

    assert [result.returncode for result in results] == [0] * 4 and fleet.lab.read_log() == ["ran"]
    assert [result.stderr for result in results] == [b""] * 4
    assert fleet.run("c", "-E", "9", "-v", *words).returncode == 9


def test_once_per_skips_while_the_first_still_runs(fleet):
    holder = fleet.start("a", "-n", "slow", "--once-per", "1d", "--", "sh", "-c", "echo; read line")
    read_line(holder)

    assert fleet.run("b", "-n", "slow", "--once-per", "1d", "true").returncode == 0
    assert fleet.run("b", "-n", "slow", "true").returncode == 75
    finish(holder)


def test_once_retry_runs_again_after_a_failure(fleet):
    words = [
        "-n",
        "retried",
        "--once-per",
        "1d,retry",
        "--",
        "sh",
        "-c",
        "echo ran >>$LAB/log; exit $0",
    ]

    runs = [fleet.run(host, *words, status) for host, status in ("a1", "b0", "a0")]
    assert [run.returncode for run in runs] == [1, 0, 0]
    assert fleet.lab.read_log() == ["ran", "ran"]


def test_early_run_of_once_per_is_due_a_period_after_the_last_one(fleet):
    """One that fails, with retry, restores what was stored: here by 0.3.0, when its run started."""
    engine = open_engine(fleet.url, Terms(15.0))
    engine.connect()
    old = LastRun("old", time.time() - 0.6 * DAY)
    engine.write_once(fleet.job, engine.read_once(fleet.job)[1], format_ran(old))

    assert fleet.run("a", "-n", fleet.job, "--once-per", "1d,retry", "false").returncode == 1
    assert parse_ran(engine.read_once(fleet.job)[0]) == old
    for host in "abab":
        words = ("sh", "-c", "echo ran >>$LAB/log")
        fleet.run(host, "-n", fleet.job, "--once-per", "1d", "--", *words)

    assert fleet.lab.read_log() == ["ran"]
    assert abs(parse_ran(engine.read_once(fleet.job)[0]).due - old.due - DAY) < 0.002
    engine.close()


# --- from Python----------------------------------------------------------------------------------


def test_python_run_raises_busy_unreachable_and_lease_lost(fleet):
    import solo

    def run(host, *words, **options):
        return solo.run(
            words, name=fleet.job, via=fleet.url, directory=fleet.lab.path / host, **options
        )

    assert run("a", "sh", "-c", "exit 3").returncode == 3
    holder = fleet.hold("a", fleet.job)
    with pytest.raises(solo.Busy) as busy:
        run("b", "true")
    assert [one.launcher for one in busy.value.holders] == [holder.pid]
    finish(holder)
    with pytest.raises(solo.Unreachable):
        solo.run(
            ["true"],
            name=fleet.job,
            via=fleet.server.make_url(find_port()),
            directory=fleet.lab.path / "a",
        )
    with pytest.raises(solo.UsageError):
        solo.Lock(fleet.job, via=fleet.url)
    up = fleet.lab.path / "up"
    do_when(up.exists, lambda: fleet.server.remove_lock(fleet.job))
    with pytest.raises(solo.LeaseLost):
        run("a", "sh", "-c", f"touch {up}; exec sleep 1000", ttl=3)
