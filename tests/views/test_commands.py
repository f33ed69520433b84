"""The subcommands show, wait, stop, clean and doctor."""

import fcntl
import json
import os
import pwd
import re
import signal
import subprocess
from time import monotonic

import pytest
from conftest import (
    LIVE,
    NOBODY,
    PATIENCE,
    TESTS,
    count_injected,
    count_switches,
    finish,
    inject,
    is_blocked,
    kill,
    kill_both,
    read_line,
    read_state,
    until,
    wait_dead,
)
from observed import HEARING, find_chain

from solo.commands import doctor
from solo.commands.doctor import checks
from solo.commands.lookup import Asked
from solo.contention.evict import Eviction
from solo.directories import open_base, open_parts
from solo.identity import read_origin
from solo.kernel import HOME_PLACE, USERS_PLACE
from solo.text.users import find_user
from solo.tickets import MOST_OPEN, FileQueue

# --- names----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", "show|wait|stop|wait -t soon job|stop -k x job|wait ../x|clean .x".split("|")
)
def test_missing_name_or_invalid_usage_is_refused_in_one_line(lab, words):
    result = lab.run(*words.split())

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words, verb",
    [
        (("wait",), "wait for"),
        (("history",), "show"),
        *(((verb,), verb) for verb in ("stop", "show", "list", "clean")),
    ],
)
def test_unknown_name_fails_and_suggests_known_one(lab, words, verb):
    """A script that waits for a mistyped name before it reboots must not reboot at once."""
    lab.run("-n", "backup", "true")

    mistyped, far = lab.run(*words, "bakcup"), lab.run(*words, "zzz")

    place = f"not among the names in {lab.directory}"
    assert (mistyped.returncode, far.returncode) == (125, 125)
    assert (
        mistyped.stderr.decode()
        == f"solo: bakcup: cannot {verb} it: {place} (did you mean backup?)\n"
    )
    lab.run("-n", "demo", "true")
    assert b"did you mean" not in lab.run(*words, "debjob").stderr
    remedy = " (--allow-unknown treats it as free)" if words[0] in ("wait", "stop") else ""
    assert far.stderr.decode() == f"solo: zzz: cannot {verb} it: {place}{remedy}\n"
    assert lab.run(*words, "backup").returncode == 0


def test_a_known_name_may_be_a_unit_of_time(lab):
    holder = lab.hold("m")

    assert lab.run("stop", "-k", "1", "m").returncode == 0
    assert holder.wait(PATIENCE) == -signal.SIGTERM
    assert lab.run("stop", "-k", "1", "h").returncode == 125


def test_name_is_known_as_long_as_it_has_a_journal(lab):
    lab.run("-n", "job", "true")
    lab.run("clean")
    assert not (lab.directory / "job").exists() and lab.run("wait", "job").returncode == 0

    lab.run("clean", "--history", "0s")

    assert lab.run("wait", "job").returncode == 125


def test_unknown_name_error_says_whose_names_were_searched(common):
    """Run as a user without names, neither at home nor where `make install` makes a place."""
    user = pwd.getpwuid(1)
    made = f"{USERS_PLACE}/1"
    names = made if os.path.isdir(made) else f"{user.pw_dir}{HOME_PLACE}"
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(common.script)!r}); from solo.commands import lookup;"
        " lookup.check_known('job', lookup.Asked(), 'wait for')"
    )
    error = subprocess.run(
        ["/usr/bin/python3", "-IS", "-c", code], user=1, capture_output=True, text=True
    ).stderr

    place = f"not among the names of {user.pw_name}, in {names} (another user has other names)"
    assert error.endswith(f"SoloError: job: cannot wait for it: {place}\n")


# --- show-----------------------------------------------------------------------------------------


def test_show_prints_holder_processes_waiters_and_skips(lab, via):
    holder = lab.start(
        "-n", "job", "--", "sh", "-c", "sleep 99 & echo $!; read line; kill $!; exit 0"
    )
    inner = int(read_line(holder))
    waiter = lab.start_waiter("job", "-s")
    lab.run("-n", "job", "true")

    [shown] = json.loads(lab.run("show", "--json", "job").stdout)
    text = lab.run("show", "job").stdout.decode()

    [hold], [waiting] = shown["holds"], shown["waiting"]
    assert (hold["launcher"], hold["state"]) == (holder.pid, "held")
    assert (waiting["launcher"], waiting["mode"]) == (waiter.pid, "shared")
    assert [(process["pid"], process["depth"]) for process in hold["processes"]] == [
        (hold["child"], 0),
        (inner, 1),
    ]
    assert (
        hold["processes"][1]["command"] == ["sleep", "99"]
        and hold["processes"][1]["resident_bytes"] > 100000
    )
    assert shown["skips"] == ({"X": 1} if via == "file" else {})
    # A pid may have fewer digits than the others: they start again at 300.
    assert f"by pid {holder.pid} (" in text and re.search(rf"1 +{waiter.pid} ", text)
    assert re.search(rf"{inner} +sleeping", text)


def test_show_of_parent_names_nested_holder(lab):
    lab.hold("a/b")

    assert b"exclusive, file, for a/b\n" in lab.run("show", "a").stdout


def test_show_prints_orphan_idle_and_unknown_name(lab):
    orphan = lab.orphan("job")
    lab.run("-n", "idle", "true")

    shown = json.loads(lab.run("show", "--json", "job", "idle", "never").stdout)

    assert [[hold["state"] for hold in one["holds"]] for one in shown] == [["orphaned"], [], []]
    assert b"by orphan pid %d (" % orphan.child in lab.run("show", "job").stdout
    never = lab.run("show", "never")
    assert (never.returncode, never.stdout) == (125, b"")
    assert not (lab.directory / "never").exists()


def test_top_reports_what_cannot_be_read(lab):
    lab.run("-n", "job", "true")
    (lab.directory / f"job/.hold.{1:020}").write_bytes(b"garbage")

    shown, listed = lab.run("top"), lab.run("list")

    assert shown.stderr == listed.stderr != b"" and shown.returncode == listed.returncode == 125


def test_show_survives_damaged_ticket_and_gate(lab):
    lab.hold("job")
    lab.find_hold("job").write_bytes(b"garbage")
    (lab.directory / "job/.gate").write_bytes(b"garbage")

    result = lab.run("show", "job")

    assert (
        result.returncode == 0
        and b"Traceback" not in result.stderr
        and b"job: 1 held" in result.stdout
    )
    assert b"held, file: holder unknown" in result.stdout and b"None" not in result.stdout
    (lab.directory / "job/.gate").unlink()
    os.mkfifo(lab.directory / "job/.gate")
    assert lab.run("show", "job").returncode == 0


@pytest.mark.parametrize(
    "words", ["wait --timeout", "stop --kill-after", "clean --history", "history --since"]
)
def test_empty_duration_is_refused(lab, words):
    """It is that of an unset variable."""
    lab.run("-n", "job", "true")
    verb, flag = words.split()

    refused = lab.run(verb, flag, "", "job")

    error = f"solo: {flag} needs a value, not an empty word (is a variable unset?)\n"
    assert (refused.returncode, refused.stdout, refused.stderr.decode()) == (125, b"", error)


# --- wait-----------------------------------------------------------------------------------------


def test_wait_returns_at_once_for_free_name(lab, via):
    assert lab.run("wait", "--allow-unknown", "job", "a/b").returncode == 0
    assert not lab.directory.exists()
    lab.run("-n", "job", "true")
    assert lab.run("wait", "job").returncode == 0


def test_stop_ends_known_names_beside_unknown_one_and_wait_fails(lab):
    holder = lab.hold("job")

    waited, stopped = lab.run("wait", "job", "never"), lab.run("stop", "never", "job")

    assert (
        waited.returncode == stopped.returncode == 125 and holder.wait(PATIENCE) == -signal.SIGTERM
    )


@pytest.mark.parametrize("held, wanted", [("job", "job"), ("a", "a/b"), ("a/b", "a")])
def test_wait_ends_with_holder(lab, via, held, wanted):
    lab.run("-n", wanted, "true")
    holder = lab.hold(held)
    waiting = lab.start("wait", wanted)
    until(lambda: read_state(waiting.pid) == "S" and os.readlink(f"/proc/{waiting.pid}/exe"))

    late = lab.run("wait", wanted, "--timeout", "100ms")
    finish(holder)

    text = rf"solo: (job|a): busy: held for \d+s by pid {holder.pid} \(.*\)(, for a/b)?; waited 100ms\n"
    assert late.returncode == 75 and re.fullmatch(text, late.stderr.decode())
    assert finish(waiting) == (0, "", "")


def test_wait_for_what_cannot_end_meanwhile_is_refused(lab):
    """By the judge of a run: in the job itself; in a job that the holder waits for. A shared holder
    keeps it waiting.
    """
    nested = lab.run("-n", "job", "--", lab.script, "wait", "job")
    assert (
        nested.returncode == 125
        and b"an ancestor of this process: it would wait for itself" in nested.stderr
    )

    outer = lab.start("-n", "y", "--", "sh", "-c", "echo; read line; exec $SOLO wait x")
    read_line(outer)
    lab.start("-n", "x", "--", lab.script, "-w", "forever", "-n", "y", "true")
    until(lambda: lab.count_waiting("y"))
    status, _, err = finish(outer, b"\n")
    assert status == 125 and "a deadlock: held by pid" in err

    lab.hold("shared", "-s")
    assert lab.run("wait", "shared", "-t", "0").returncode == 75


def test_wait_goes_on_while_an_earlier_name_is_held_again(lab, via):
    lab.run("-n", "a", "true")
    second = lab.hold("b")
    waiting = lab.start("wait", "a", "b")
    until(lambda: is_blocked(waiting.pid))
    first = lab.hold("a")

    finish(second)

    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.5)
    finish(first)
    assert finish(waiting)[0] == 0


def test_wait_includes_waiters_and_orphans(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", script="read line; exit 0")
    waiting = lab.start("wait", "job")
    kill(holder)
    holder.stdin.close()
    until(lambda: [row["launcher"] for row in lab.list()] == [waiter.pid])
    assert waiting.poll() is None

    waiter.stdin.close()

    assert waiting.wait(PATIENCE) == 0


def test_wait_makes_no_system_call_while_blocked(lab):
    lab.hold("job")
    waiting = lab.start("wait", "job")
    until(lambda: is_blocked(waiting.pid))
    before = count_switches(waiting.pid)
    subprocess.run(["sleep", "1"])  # the claim is about a span of time

    assert count_switches(waiting.pid) == before


# --- stop-----------------------------------------------------------------------------------------


def test_stop_ends_holder_and_prints_it(lab, via):
    holder = lab.hold("job")

    result = lab.run("stop", "job")

    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.decode().startswith(
        f"job: ended pid {holder.pid} (sh -c echo $$; read line; exit 0) after "
    )
    assert holder.wait(PATIENCE) == -signal.SIGTERM


def test_stop_of_a_name_that_only_a_nested_one_blocks_names_that(lab, via):
    holder = lab.hold("a/b")

    result = lab.run("stop", "a")

    assert (result.returncode, result.stdout) == (125, b"")
    inner = "a/b" if via == "file" else "a name nested in it"  # an address has no names
    text = f"not held itself, but {inner} is, by pid {holder.pid} (sh -c echo $$; read line; exit 0) (stop that)"
    assert result.stderr.decode() == f"solo: a: {text}\n" and holder.poll() is None
    finish(holder)
    assert lab.run("stop", "a").returncode == 0


@pytest.mark.tool("strace")
def test_stop_leaves_a_holder_alone_that_arrives_after_its_look(lab):
    """Stop ends its first look, which finds no holder, with the second getdents64(2)."""
    lab.run("-n", "job", "true")
    pause = inject(lab, "getdents64:signal=STOP:when=2", paths=[lab.directory / "job"])
    stop = lab.start("stop", "job", prefix=pause)
    until((lab.path / "injected").exists)
    until(lambda: "stopped by SIGSTOP" in (lab.path / "injected").read_text())
    holder = lab.hold("job")

    os.kill(find_chain(stop)[0], signal.SIGCONT)

    assert (
        finish(stop) == (0, f"job: not held (names in {lab.directory})\n", "")
        and finish(holder)[0] == 0
    )


@pytest.mark.parametrize("subcommand", ["stop", "show"])
def test_refused_name_does_not_hide_the_next(lab, subcommand):
    lab.hold("b")
    (lab.directory / "a").mkdir()
    (lab.directory / "a").chmod(0o777)

    result = lab.run(subcommand, "a", "b")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and result.stderr.startswith(
        b"solo: a: "
    )
    assert b"b" in result.stdout


def test_stop_ends_orphans_and_all_shared_holders(lab):
    sharing = [lab.orphan("job", "-s"), lab.hold("job", "-s"), lab.hold("job", "-s")]

    printed = lab.run("stop", "job").stdout

    assert (
        printed.count(b"job: ended pid ") == 2
        and b"job: ended orphan pid %d (" % sharing[0].child in printed
    )
    for holder in sharing:
        wait_dead(holder.child)
    assert lab.list() == []


def test_stop_ends_waiters_only_with_waiting(lab, via):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", script="echo ran; read line; exit 0")

    assert lab.run("stop", "job").returncode == 0
    assert read_line(waiter) == "ran" and holder.wait(PATIENCE) == -signal.SIGTERM
    second = lab.start_waiter("job")
    assert lab.run("stop", "--waiting", "job").returncode == 0

    assert waiter.wait(PATIENCE) == second.wait(PATIENCE) == -signal.SIGTERM


def test_stop_follows_waiter_that_acquires(lab):
    """The waiter ignores SIGTERM, so it acquires and must then be killed."""
    holder = lab.hold("job")
    ignoring = ("sh", "-c", "trap '' TERM; exec \"$@\"", "sh")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "sleep", "99", prefix=ignoring)
    until(lambda: lab.count_waiting("job"))

    result = lab.run("stop", "--waiting", "-k", "500ms", "job")

    assert (result.returncode, result.stdout.count(b"ended"), lab.list()) == (0, 2, [])
    assert (holder.wait(PATIENCE), waiter.wait(PATIENCE)) == (-signal.SIGTERM, -signal.SIGKILL)


HOLD_AGAIN_AND_AGAIN = """
lock, received = solo.Lock("job", wait=99), []
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
signal.signal(signal.SIGINT, lambda *_: (print(len(received), flush=True), sys.exit()))
def work():
    while True:
        with lock:
            time.sleep(0.2)
with lock:
    threading.Thread(target=work, daemon=True).start()
    while not received:
        time.sleep(0.01)
time.sleep(99)
"""


@pytest.mark.parametrize("words, signals", [([], 1), (["--waiting"], 2)])
def test_stop_signals_program_once_per_ticket_found(lab, words, signals):
    """The threads of a program hold and wait again and again; stop signals only the tickets of its
    first look.
    """
    program = lab.start_code(HOLD_AGAIN_AND_AGAIN)
    until(lambda: len(lab.list("job")) == 2)

    result = lab.run("stop", "-k", "1h", *words, "job")

    assert (result.returncode, result.stdout.count(b"ended")) == (0, signals), result.stdout
    program.send_signal(signal.SIGINT)
    assert int(read_line(program)) <= signals
    program.wait(PATIENCE)


def test_stop_ends_more_tickets_than_it_keeps_open(lab):
    """No waiter acquires meanwhile."""
    lock = f"solo.Lock('job', slots={MOST_OPEN})"
    program = lab.start_code(
        f"holds = [{lock}.acquire() for _ in range({MOST_OPEN})]; print(flush=True); input()"
    )
    read_line(program)
    waiters = [lab.start_waiter("job", "--slots", str(MOST_OPEN), tag="ran") for _ in range(2)]

    result = lab.run("stop", "--waiting", "job")

    assert (result.returncode, lab.list(), lab.read_log()) == (0, [], [])
    assert {process.wait(PATIENCE) for process in (program, *waiters)} == {-signal.SIGTERM}


def test_eviction_signals_all_waiters_before_any_holder(lab):
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag="ran") for _ in range(2)]
    queue = FileQueue(
        open_parts(open_base(str(lab.directory), str(lab.directory)), ["job"]), read_origin()
    )
    [hold, waiting, closed] = [queue.open_ticket(file) for file in sorted(queue.list_files())]
    closed.read_record()
    closed.close()
    eviction = Eviction(10.0)

    due = eviction.act([hold, waiting, closed])

    assert waiters[0].wait(PATIENCE) == -signal.SIGTERM and due < monotonic() + 1
    assert (holder.poll(), waiters[1].poll()) == (None, None)
    queue.leave()
    lab.run("stop", "--waiting", "job")


LIST_LATE = """
from solo.commands import stop
from solo.tickets import FileQueue
list_files, calls = FileQueue.list_files, []
def has_acquired(queue):
    files = os.listdir(queue.place.path)
    return not any(file.startswith(".seat.") for file in files) and sys.argv[1] not in files
def list_early(queue, *words):
    files = list(list_files(queue, *words))
    calls.append(files)
    if len(calls) == 2:
        os.kill(int(sys.argv[2]), 9)
        while not has_acquired(queue):
            time.sleep(0.01)
    return files
FileQueue.list_files = list_early
sys.exit(stop.run(stop.Asked(dir=os.environ["SOLO_DIR"], kill_after=3600.0, waiting=True), ["job"]))
"""


def test_stop_finds_waiter_that_acquires_between_two_looks(lab):
    """The list of files has it as a waiter; when stop opens the file, it is a holder."""
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", script="exec sleep 99")

    status, out, _ = lab.run_code(LIST_LATE, lab.find_hold("job").name, holder.child, flags=())

    assert (status, out.count("job: ended pid"), lab.list()) == (0, 2, [])
    assert waiter.wait(PATIENCE) == -signal.SIGTERM


KILL_FIRST = """
from solo.commands import stop
from solo.contention.evict import Eviction
act = Eviction.act
def kill_first(eviction, tickets):
    if not eviction.steps:
        os.kill(int(sys.argv[1]), 9)
        while open(f"/proc/{sys.argv[1]}/stat").read().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
    return act(eviction, tickets)
Eviction.act = kill_first
sys.exit(stop.run(stop.Asked(dir=os.environ["SOLO_DIR"], kill_after=3600.0), ["job"]))
"""


def test_stop_ends_command_if_launcher_is_killed_meanwhile(lab):
    holder = lab.hold("job")

    status, out, _ = lab.run_code(KILL_FIRST, holder.pid, flags=())

    assert (status, out.count("job: ended pid")) == (0, 1)
    wait_dead(holder.child)


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_stop_ends_stopped_command_in_nested_pid_namespace(lab):
    inner = ("unshare", "--pid", "--fork", "--mount-proc", *HEARING)
    # Without a terminal, on which the launcher would stop too.
    holder = lab.start("-n", "job", "--", "sleep", "99", prefix=inner, start_new_session=True)
    until(lambda: lab.list() and lab.list()[0]["child"])
    sleep = find_chain(holder)[-1]
    os.kill(sleep, signal.SIGSTOP)
    until(lambda: read_state(sleep) == "T")

    assert lab.run("stop", "-k", "1h", "job").returncode == 0
    assert holder.wait(PATIENCE) == 128 + signal.SIGTERM


def test_stop_of_free_name_says_whose_names_were_searched(lab, via):
    """Every name is known with sockets."""
    lab.directory.mkdir()
    searched = (
        f"names in {lab.directory}"
        if via == "file"
        else f"names of {find_user(os.geteuid())}, by sockets"
    )
    allow = ("--allow-unknown",) if via == "file" else ()
    assert lab.run("stop", *allow, "job").stdout == f"job: not held ({searched})\n".encode()
    assert (
        via == "file" or lab.run("wait", "job").returncode == lab.run("show", "job").returncode == 0
    )
    lab.run("-n", "job", "true")
    assert lab.run("stop", "job").stdout == f"job: not held ({searched})\n".encode()


@pytest.mark.tool("strace")
def test_stop_sees_end_of_holder_with_record_damaged_meanwhile(lab):
    """After SIGTERM was sent, the record no longer names the process to watch."""
    holder = lab.hold("job", script=f"trap 'read line; exit 3' TERM; echo $$; {LIVE}")
    stop = lab.start(
        "stop",
        "job",
        prefix=inject(lab, "pread64:retval=0:when=3..4", paths=[lab.find_hold("job")]),
    )
    until(lambda: (lab.path / "injected").exists() and count_injected(lab) == 2)

    assert finish(holder)[0] == 3

    status, out, _ = finish(stop)
    assert status == 0 and out.startswith("job: ended ")


def test_stop_ends_others_if_one_cannot_be_ended(lab):
    odd, other = lab.hold("job", "-s"), lab.hold("job", "-s")
    first = min((lab.directory / "job").glob(".hold.*"))
    record = first.read_bytes()
    first.write_bytes(b"garbage")

    stopped = lab.run("stop", "job")

    assert (stopped.returncode, stopped.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"cannot be read" in stopped.stderr
    assert f"pid {other.pid} ".encode() in stopped.stdout
    assert other.wait(PATIENCE) == -signal.SIGTERM and odd.poll() is None
    first.write_bytes(record)


@pytest.mark.parametrize(
    "script, remedy",
    [
        ("$SOLO -n job -- sh -c '$SOLO stop job; echo $?'", "exit ends the job"),
        ("$SOLO -n a/job -- sh -c '$SOLO stop a/job; echo $?'", "exit ends the job"),
        (
            "$SOLO hold --pid $$ job; $SOLO stop job; echo $?; $SOLO release job",
            "solo release ends only the hold",
        ),
    ],
)
def test_stop_from_inside_of_the_job_is_refused(lab, script, remedy):
    """It would end the script that asks for it."""
    status, out, text = finish(lab.start_shell(script))

    assert (status, out) == (0, "125\n") and text.count("\n") == 1
    assert (
        "cannot stop it from inside: pid " in text
        and f" is an ancestor of this process ({remedy})\n" in text
    )


# --- clean----------------------------------------------------------------------------------------


def test_clean_removes_idle_names_and_keeps_used_ones(lab):
    for name in ("idle", "a/b/c", "a/d"):
        lab.run("-n", name, "true")
    lab.hold("used/x")

    result = lab.run("clean")

    removed = ("idle", "a/d", "a/b/c", "a/b", "a")
    assert result.stdout.decode().splitlines() == [f"{name}: removed" for name in removed]
    assert (
        set(os.listdir(lab.directory)) == {".journals", "used"}
        and lab.run("-n", "used/x", "true").returncode == 75
    )


def test_clean_generated_keeps_chosen_names_and_their_history(lab):
    for words in (["-n", "chosen-0123abcd"], ["-n", "a/made-0123abcd"], []):
        lab.run(*words, "true")
    made = sorted(name for name in os.listdir(lab.directory) if name.startswith("true-"))
    [known] = {name for name in os.listdir(lab.directory / ".journals") if name.startswith("true-")}

    result = lab.run("clean", "--generated", "--history", "0s")

    removed = [*(f"{name}: removed" for name in reversed(made)), f"{known}: history removed"]
    assert result.stdout.decode().splitlines() == removed
    assert set(os.listdir(lab.directory)) == {".journals", "a", "chosen-0123abcd"}
    assert set(os.listdir(lab.directory / ".journals")) == {"a", "chosen-0123abcd"}


def test_clean_of_a_name_forgets_its_history_unless_it_is_held(lab):
    for name in ("a", "a/b", "c"):
        lab.run("-n", name, "true")
    lab.run("-n", "a", "--once-per", "1d", "true")
    holder = lab.hold("held")

    cleaned = lab.run("clean", "a", "held")

    assert (cleaned.returncode, cleaned.stdout) == (
        0,
        b"a/b: removed\na: removed\nheld: kept, as it is in use\na: history removed\n",
    )
    assert {row["name"] for row in lab.history()} == {"a/b", "c", "held"}
    assert lab.run("-n", "a", "--once-per", "1d", "false").returncode == 0  # it knows that it ran
    finish(holder)


def test_clean_removes_dead_and_half_written_tickets(lab):
    holder = lab.hold("job")
    (lab.directory / "job/.new.00000000000000000001").touch()
    (lab.directory / "job/.seat.00000000000000000001").touch()
    assert lab.run("clean").stdout == b"job: removed 2 dead tickets\n"
    kill_both(holder)

    assert lab.run("clean").stdout == b"job: removed\n"
    assert os.listdir(lab.directory) == [".journals"]


def test_clean_keeps_orphans_and_foreign_files(lab):
    lab.orphan("job")
    lab.run("-n", "mine", "true")
    (lab.directory / "mine/notes").write_text("precious")

    lab.run("clean")

    assert lab.run("-n", "job", "true").returncode == 75
    assert (lab.directory / "mine/notes").read_text() == "precious"


def test_clean_follows_no_link_to_another_place(lab):
    """A member of a group's directory can lock the gate, and put a link in place of the name above
    it.
    """
    lab.run("-n", "up/job", "true")
    outside = lab.path / "outside"
    (outside / "job").mkdir(parents=True)
    with open(lab.directory / "up/job/.gate") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        cleaner = lab.start("clean", "up/job")
        until(lambda: is_blocked(cleaner.pid))
        (lab.directory / "up").rename(lab.path / "moved")
        (lab.directory / "up").symlink_to(outside)
    cleaner.wait(PATIENCE)

    assert (outside / "job").exists()


def test_clean_beside_contenders_keeps_exclusion(lab):
    """Each contender creates the name again. No two of them run at once."""
    witness = str(TESTS / "witness.sh")
    cleaner = lab.start_shell(
        "while [ ! -e $LAB/done ]; do $SOLO clean >/dev/null || echo failed; done"
    )
    running, ends = [], []
    for number in range(30):
        running.append(lab.start("-w", "forever", "-n", "job", witness, str(number), "0"))
        if len(running) > 4:
            ends.append(finish(running.pop(0)))
    ends += [finish(process) for process in running]
    (lab.path / "done").touch()

    assert [end for end in ends if end[0] or end[2]] == []
    assert finish(cleaner)[1] == ""
    assert not [line for line in lab.read_log() if line.startswith(("overlap", "unrecorded"))]


# --- doctor---------------------------------------------------------------------------------------


def test_doctor_is_ready_on_good_machine(lab):
    result = lab.run("doctor", "--json")
    findings = json.loads(result.stdout)

    assert (result.returncode, result.stderr) == (0, b"")
    assert {finding["check"] for finding in findings if finding["state"] == "ok"} >= set(
        "directory journal locks processes sockets".split()
    )
    assert "file_system" in {
        finding["check"] for finding in findings
    }  # a note in a container, and below /tmp
    assert not any(finding["state"] == "fails" for finding in findings)
    assert not lab.directory.exists()
    missing = f"{lab.directory} does not exist: the first run makes it"
    assert any(finding["text"].startswith(missing) for finding in findings)
    lab.run("-n", "job", "true")
    assert lab.run("doctor").stdout.endswith(b"\nready\n")
    assert sorted(os.listdir(lab.directory)) == [".journals", "job"]


def test_doctor_fails_on_bad_directory(lab):
    lab.directory.write_text("a file")

    result = lab.run("doctor")

    assert (
        result.returncode == 1
        and b"Not a directory" in result.stdout
        and b"fails  " in result.stdout
    )
    assert result.stdout.splitlines()[-1].startswith(b"not ready; first: ")
    assert b"Traceback" not in result.stderr


@pytest.mark.tool("crontab")
def test_doctor_names_the_path_of_solo_if_cron_does_not_find_it(lab):
    [note] = [
        text for text in lab.run("doctor").stdout.decode().splitlines() if "cron does" in text
    ]

    assert (
        note
        == f"note   cron does not find solo in /usr/bin:/bin: write {lab.script} in crontabs, or set PATH there"
    )


SOCKET = "without a file: --via socket, in every run of the name"
GIVE = "as root: install -d -m 700 -o {0} /var/lib/solo-users/{0}"


@pytest.mark.root
@pytest.mark.parametrize(
    "uid, first",
    [(12345, f"{GIVE}; or {SOCKET}; or use --dir or SOLO_DIR"), (NOBODY, GIVE), (4242, None)],
    ids=["no-user", "no-home", "empty-home"],
)
@pytest.mark.tool("unshare", "mount", "setpriv")
def test_doctor_ends_with_the_first_thing_to_do_for_a_new_user(lab, uid, first):
    """As cron and containers start it: without HOME, with a short PATH; for a user that nothing was
    set up for.

    The capability lets the user read the source tree.
    """
    home = lab.path / "home"
    home.mkdir()
    os.chown(home, 4242, 4242)
    script = f"""
        cp /etc/passwd {lab.path}/passwd && echo 'new:x:4242:4242::{home}:/bin/sh' >>{lab.path}/passwd &&
        mount --bind {lab.path}/passwd /etc/passwd && cd / &&
        exec setpriv --reuid={uid} --regid={uid} --clear-groups --inh-caps=+dac_read_search \
            --ambient-caps=+dac_read_search env -i PATH=/usr/bin:/bin LANG=C.UTF-8 $SOLO doctor
    """
    status, out, err = finish(lab.start_words("unshare", "-m", "sh", "-c", script))

    *lines, last = out.splitlines()
    assert (status, last) == (
        (1, f"not ready; first: {first.format(uid)}") if first else (0, "ready")
    )
    assert err == "" and sum(line.startswith("fails") for line in lines) == bool(first)


@pytest.mark.tool("strace")
def test_doctor_fails_on_broken_locks(lab):
    result = lab.run(
        "doctor", prefix=("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:retval=0")
    )

    assert result.returncode == 1
    assert (
        f"fails  flock(2) does not work in {lab.directory} (choose another place"
        in result.stdout.decode()
    )
    assert result.stdout.endswith(b"\nnot ready; first: choose another place with --dir\n")


def test_doctor_works_where_sigchld_is_ignored(lab):
    result = lab.run("doctor", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    assert (result.returncode, result.stdout.count(b"flock(2) works")) == (0, 1)


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_doctor_sees_read_only_file_system_and_container(lab):
    lab.directory.mkdir()
    script = (
        "mount --bind $SOLO_DIR $SOLO_DIR && mount -o remount,ro,bind $SOLO_DIR && $SOLO doctor; echo status $?; "
        "$SOLO --via socket -n readonly echo all the same"
    )
    status, out, _ = finish(
        lab.start_words("unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", script)
    )

    assert f"cannot write in {lab.directory}: Read-only file system (choose another" in out
    assert "in a pid namespace" in out and out.endswith("status 1\nall the same\n")


def test_doctor_finds_cleaners_relative_dir_and_missing_home(lab, monkeypatch, capsys):
    """A user without a home directory is a failure, the others are notes."""
    printed = lab.run("doctor", "--dir", "names", cwd=lab.path).stdout.decode()
    assert (
        "note   --dir names is relative: contenders in another working directory have other names"
        in printed
    )
    assert f"note   cleaners of {lab.path}/names remove old files" in printed or not str(
        lab.path
    ).startswith("/tmp/")

    monkeypatch.setattr(checks.posix, "geteuid", lambda: 54321)
    assert doctor.run(Asked(), []) == 1
    assert capsys.readouterr().out.startswith(
        "fails  cannot find a place for names: uid 54321 has no home directory"
    )
