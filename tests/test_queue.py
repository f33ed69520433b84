"""Exclusion and order: who gets in, who is turned away, who waits."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import (
    TESTS,
    count_injected,
    count_switches,
    finish,
    inject,
    kill_both,
    read_line,
    read_state,
    set_alarm,
    until,
)

from solo import kernel
from solo.directories import open_base, open_name
from solo.identity import read_origin
from solo.process import watch
from solo.record import RESERVED, format_closing
from solo.tickets import Queue


def test_a_contender_is_turned_away_while_the_holder_lives(lab):
    holder = lab.hold("job")

    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, lab.read_log()) == (75, [])
    line = rf"solo: job: busy: held for \d+s by pid {holder.pid} \(sh -c echo \$\$; read line; exit 0\)\n"
    assert re.fullmatch(line, result.stderr.decode())


def test_the_name_is_free_once_the_command_has_ended(lab):
    finish(lab.hold("job"))

    assert lab.run("-n", "job", "true").returncode == 0


def test_other_names_do_not_exclude_each_other(lab):
    lab.hold("job")

    assert lab.run("-n", "other", "true").returncode == 0


@pytest.mark.parametrize(
    "held, wanted, status",
    [
        ("a", "a/b", 75),
        ("a/b", "a", 75),
        ("a/b", "a/b", 75),
        ("a/b", "a/c", 0),
        ("a/b/c", "a", 75),
        ("a/b/c", "a/d", 0),
    ],
)
def test_a_nested_name_and_its_parents_exclude_each_other_but_not_its_siblings(lab, held, wanted, status):
    lab.hold(held)

    assert lab.run("-n", wanted, "true").returncode == status


def test_several_names_are_all_held(lab):
    lab.hold("a", "-n", "b")

    assert [lab.run("-n", name, "true").returncode for name in ("a", "b", "c")] == [75, 75, 0]


def test_nothing_is_held_after_a_contender_got_only_some_of_its_names(lab):
    holder = lab.hold("b")

    assert lab.run("-n", "a", "-n", "b", "true").returncode == 75
    assert [ticket["name"] for ticket in lab.list()] == ["b"]
    finish(holder)


def test_busy_exit_and_quiet_are_the_callers_choice(lab):
    lab.hold("job")

    result = lab.run("-q", "-E", "0", "-n", "job", "false")

    assert (result.returncode, result.stderr) == (0, b"")


def test_one_who_waits_gets_in_when_the_holder_ends(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    assert lab.read_log() == []

    finish(holder)

    assert finish(waiter)[0] == 0
    assert lab.read_log() == ["waiter"]


def test_waiting_ends_with_75_when_the_time_is_over(lab):
    lab.hold("job")

    result = lab.run("-w", "100ms", "-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, lab.read_log()) == (75, [])
    assert result.stderr.count(b"\n") == 1
    assert len(lab.list()) == 1


@pytest.mark.parametrize(
    "prepare",
    [
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}),
        lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN),
    ],
)
def test_waiting_ends_in_time_however_the_caller_left_the_alarm_signal(lab, prepare):
    lab.hold("job")

    assert lab.run("-w", "100ms", "-n", "job", "true", preexec_fn=prepare).returncode == 75


def test_forty_get_in_in_order_of_arrival_though_some_die_and_some_give_up(lab):
    holder = lab.hold("job")
    line = [lab.start_waiter("job", tag=number) for number in range(40)]
    killed, given_up = {3, 4, 17, 39}, {8, 20, 21}
    for number in killed:
        line[number].kill()
    for number in given_up:
        line[number].terminate()
    for number in killed | given_up:
        line[number].wait()

    finish(holder)
    statuses = [finish(process)[0] for process in line]

    expected = [number for number in range(40) if number not in killed | given_up]
    assert lab.read_log() == list(map(str, expected))
    assert [number for number in range(40) if statuses[number] == 0] == expected
    assert lab.list() == []


def test_a_newcomer_who_does_not_wait_never_overtakes_the_line(lab):
    holder = lab.hold("job")
    line = [lab.start_waiter("job", tag="waiter") for _ in range(20)]
    holder.stdin.close()
    statuses = []
    while 0 not in statuses:
        newcomer = lab.run("-n", "job", "--", "sh", "-c", "wc -l <$LAB/log")
        statuses.append(newcomer.returncode)

    assert 75 in statuses  # it was early enough to be turned away
    assert int(newcomer.stdout) == len(line)  # and got in once all who stood in line had run


def test_a_stopped_waiter_keeps_its_place(lab):
    holder = lab.hold("job")
    first = lab.start_waiter("job", tag="first")
    second = lab.start_waiter("job", tag="second")
    first.send_signal(signal.SIGSTOP)
    until(lambda: read_state(first.pid) == "T")
    finish(holder)
    assert (lab.read_log(), second.poll()) == ([], None)

    first.send_signal(signal.SIGCONT)

    assert finish(second)[0] == finish(first)[0] == 0
    assert lab.read_log() == ["first", "second"]


def test_a_name_within_itself_is_refused_rather_than_waited_for(lab):
    result = lab.run("-n", "job", "--", lab.script, "-w", "forever", "-n", "job", "true")

    assert result.returncode == 125
    assert b"ancestor" in result.stderr and result.stderr.count(b"\n") == 1


def test_a_name_within_itself_is_refused_also_behind_others_in_line(lab):
    script = f"echo ready; read line; {lab.script} $0 -n job true; echo $?; read line; exit 0"
    holder = lab.start("-n", "job", "--", "sh", "-c", script, "-wforever")
    read_line(holder)
    waiter = lab.start_waiter("job", tag="waiter")

    holder.stdin.write(b"\n")
    holder.stdin.flush()

    assert read_line(holder) == "125"
    assert finish(holder)[2].count("ancestor") == 1
    assert finish(waiter)[0] == 0


def test_bad_names_are_told_before_any_is_waited_for(lab):
    lab.hold("job")

    assert lab.run("-w", "forever", "-n", "job", "-n", "z/.bad", "true").returncode == 125


def test_a_sibling_name_can_be_used_within_another(lab):
    assert lab.run("-n", "job", "--", lab.script, "-n", "other", "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.tool("strace")
def test_joiner_behind_waiter_lists_nothing_under_gate(lab):
    """With thousands of tickets the listing would keep the gate from all others; without it the joiner still finds its ancestors."""
    holder = lab.hold("job")
    lab.start_waiter("job", tag="first")
    trace = lab.path / "trace"
    watch = ("strace", "-f", "-y", "-qq", "-o", trace, "-e", "trace=flock,getdents64")
    joiner = lab.start("-w", "forever", "-n", "job", "--", "true", prefix=watch)
    until(lambda: lab.count_waiting("job") == 2 and "LOCK_SH" in trace.read_text().rpartition("LOCK_UN")[2])

    calls = re.findall(
        r"(LOCK_EX|LOCK_UN|getdents64)", "".join(re.findall(r".*(?:/\.gate|getdents64).*\n", trace.read_text()))
    )

    calls = calls[calls.index("LOCK_EX") :]  # before it, Python lists the places of its library
    assert calls[:2] == ["LOCK_EX", "LOCK_UN"] and "getdents64" in calls
    finish(holder)
    assert finish(joiner)[0] == 0


def test_a_process_that_sits_on_the_gate_is_named(lab):
    lab.run("-n", "job", "true")
    sitter = lab.start("-n", "sit", "--", "flock", lab.directory / "job/.gate", "sh", "-c", "echo sits; read line")
    read_line(sitter)

    result = lab.run("-n", "job", "true")

    assert result.returncode == 125
    assert b"sitting on it" in result.stderr and result.stderr.count(b"\n") == 1
    finish(sitter)
    assert lab.run("-n", "job", "true").returncode == 0


PASS = """
import fcntl, os, sys, time
gate = os.open(sys.argv[1], os.O_RDWR)
print(flush=True)
fcntl.flock(gate, fcntl.LOCK_EX)
os.pwrite(gate, os.pread(gate, 4096, 0), 0)
print(flush=True)
sys.stdin.read() if sys.argv[2] == "0" else time.sleep(0.1)
"""


def test_a_gate_that_changes_hands_is_waited_for_though_its_owner_can_not_be_told(lab, monkeypatch):
    """As where a thousand start at once."""
    lab.run("-n", "job", "true")
    monkeypatch.setattr(kernel, "blocker", None)  # this process is no launcher, and other tests took locks in it
    monkeypatch.setattr(watch, "find_lock_owner", lambda fd: 0)
    monkeypatch.setattr("solo.gate.GATE_PATIENCE", 0.4)
    gate, crowd = lab.directory / "job/.gate", []
    for number in range(10):
        words = [sys.executable, "-c", PASS, gate, str(number)]
        crowd.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        read_line(crowd[-1])
        if number == 0:
            read_line(crowd[0])
    crowd[0].stdin.close()

    with Queue(open_name(open_base(str(lab.directory), str(lab.directory)), "job"), read_origin()).gate as locked:
        assert locked.fd is not None

    for process in crowd:
        process.wait()
        process.stdout.close()
        process.stdin.close()


def test_a_gate_removed_under_those_who_wait_does_not_let_two_in(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    os.unlink(lab.directory / "job/.gate")

    assert lab.run("-n", "job", "true").returncode == 75
    finish(holder)
    assert finish(waiter)[0] == 0


def test_tokens_grow_with_each_hold_also_over_a_new_gate(lab):
    tokens = []
    for _ in range(3):
        tokens.append(int(lab.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout))
    os.unlink(lab.directory / "job/.gate")
    tokens.append(int(lab.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout))

    assert tokens == sorted(set(tokens))


def test_a_killed_launcher_leaves_an_orphan_that_is_named_and_waited_for(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    holder.kill()
    holder.wait()

    busy = lab.run("-n", "job", "true")

    assert busy.returncode == 75
    assert f"orphan pid {holder.child}" in busy.stderr.decode()
    assert [ticket["state"] for ticket in lab.list()] == ["orphaned", "waiting"]
    holder.stdin.close()  # the orphan's read ends
    assert finish(waiter)[0] == 0
    assert lab.list() == []


def test_nobody_waits_once_launcher_and_command_are_both_killed(lab):
    holder = lab.hold("job")
    kill_both(holder)

    assert lab.run("-n", "job", "true").returncode == 0


def test_an_orphan_that_is_a_zombie_holds_nothing(lab):
    # Its parent, the test's own reaper, never waits for it: a zombie keeps its pid and start time.
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; read line", prefix=("python3", "-c", REAPER))
    child = int(read_line(holder))
    launcher = lab.list()[0]["launcher"]
    os.kill(launcher, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    until(lambda: (read_state(launcher), read_state(child)) == ("Z", "Z"))

    assert lab.run("-n", "job", "true").returncode == 0


REAPER = """
import ctypes, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
subprocess.Popen(sys.argv[1:])
signal.pause()
"""


def test_a_daemon_left_behind_does_not_keep_the_name(lab):
    result = lab.run("-n", "job", "--", "sh", "-c", "setsid sleep 30 >/dev/null 2>&1 & echo $!")

    assert lab.run("-n", "job", "true").returncode == 0
    os.kill(int(result.stdout), signal.SIGKILL)


def test_an_orphan_whose_main_thread_has_ended_still_counts(lab):
    code = "import ctypes, threading, sys; threading.Thread(target=sys.stdin.read).start(); print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    holder = lab.start("-n", "job", "--", sys.executable, "-c", code)
    read_line(holder)
    child = lab.list()[0]["child"]
    until(lambda: read_state(child) == "Z")
    holder.kill()
    holder.wait()

    assert lab.run("-n", "job", "true").returncode == 75
    holder.stdin.close()
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_a_proc_of_another_pid_namespace_is_refused(lab):
    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log", prefix=("unshare", "--fork", "--pid"))

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])


@pytest.mark.tool("strace")
@pytest.mark.parametrize("call", ["pwrite64", "openat", "rename,renameat"])
def test_a_gate_removed_while_someone_is_behind_it_does_not_let_two_in(lab, call):
    """The first is held up for long behind its gate, just before a step of publishing its hold."""
    lab.run("-n", "job", "true")
    nth = count_before(lab, call)
    witness = [str(TESTS / "witness.sh"), "tag", "0.3"]
    slow = ("strace", "-qq", "-o", "/dev/null", "-e", f"inject={call}:delay_enter=700000:when={nth}")
    first = lab.start("-w", "forever", "-n", "job", *witness, prefix=slow)
    until(lambda: is_locked(lab.directory / "job/.gate"))
    os.unlink(lab.directory / "job/.gate")

    second = lab.start("-w", "forever", "-n", "job", *witness)

    assert (finish(first)[0], finish(second)[0]) == (0, 0)
    assert sorted(lab.read_log()) == ["end:tag", "end:tag", "start:tag", "start:tag"]


@pytest.mark.tool("strace")
def test_a_gate_removed_while_someone_takes_a_seat_behind_it_costs_no_place(lab):
    holder = lab.hold("job")
    slow = inject(lab, "rename,renameat:delay_enter=700000:when=1")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=slow)
    until(lambda: lab.count_waiting("job") == 0 and list((lab.directory / "job").glob(".new.*")))

    os.unlink(lab.directory / "job/.gate")

    until(lambda: lab.count_waiting("job") == 1 and (lab.directory / "job/.gate").exists())
    assert lab.run("-n", "job", "true").returncode == 75
    finish(holder)
    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_a_gate_that_can_not_be_unlocked_keeps_nothing_and_nobody(lab):
    lab.run("-n", "job", "true")
    fail = inject(lab, "flock:error=EIO:when=2", paths=[lab.directory / "job/.gate"])

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=fail)

    assert (result.returncode, result.stdout, result.stderr) == (
        125,
        b"",
        b"solo: job: cannot be held: Input/output error\n",
    )
    assert os.listdir(lab.directory / "job") == [".gate"] and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.tool("strace")
def test_skips_that_can_not_be_restored_change_no_status(lab):
    """Those of a name that was given back, as another one is busy."""
    lab.run("-n", "a", "true")
    lab.hold("b")
    fail = inject(lab, "flock:error=EIO:when=3", paths=[lab.directory / "a/.gate"])

    result = lab.run("-n", "a", "-n", "b", "true", prefix=fail)

    assert result.returncode == 75 and result.stderr.startswith(b"solo: b: busy: ") and count_injected(lab) == 1
    assert lab.run("-n", "a", "true").returncode == 0


HOLDS = """
import sys; sys.path.insert(0, {root!r})
import solo
held = [solo.Lock(f"job/{{number}}", shared=True) for number in range(64)]
for lock in held: lock.acquire()
print(flush=True); sys.stdin.read()
"""


@pytest.mark.tool("strace")
def test_a_holder_beyond_those_that_are_watched_may_end_just_then(lab):
    """It is the one in the way; looked at once more, it is gone, and looked at again it is there."""
    others = subprocess.Popen(
        [sys.executable, "-IS", "-c", HOLDS.format(root=str(TESTS.parent))],
        env=lab.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    others.stdout.readline()
    lab.hold("job", "--shared")
    newest = max((lab.directory / "job").glob(".hold.*")).name

    result = lab.run("-n", "job/other", "true", prefix=inject(lab, "openat:error=ENOENT:when=2", paths=[newest]))

    assert result.returncode == 75 and count_injected(lab) == 1
    others.communicate()


def count_before(lab, call):
    """The how-manieth of its calls is the one by which a launcher publishes its hold."""
    trace = lab.path / "trace"
    lab.run("-n", "job", "true", prefix=("strace", "-qq", "-o", str(trace), "-e", f"trace={call}"))
    lines = trace.read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if ".new." in line or line.startswith("pwrite64"))


def is_locked(path):
    import fcntl

    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True


@pytest.mark.tool("strace")
def test_what_a_killed_launcher_was_writing_is_in_nobodys_way(lab):
    """Nor is it where it can not be removed: another user's file in a sticky directory."""
    lab.run("-n", "job", "true")
    kill = ("strace", "-qq", "-o", "/dev/null", "-e", "inject=rename,renameat:signal=KILL")
    lab.run("-n", "job", "true", prefix=kill)
    assert [file for file in os.listdir(lab.directory / "job") if file.startswith(".new.")]

    assert lab.run("-n", "job", "true").returncode == 0
    assert os.listdir(lab.directory / "job") == [".gate"]


@pytest.mark.parametrize("milliseconds", ["0.001ms", "0.01ms", "0.1ms", "1ms", "2ms"])
def test_the_shortest_waits_end_as_waits_do(lab, milliseconds):
    lab.hold("job")

    assert {lab.run("-w", milliseconds, "-n", "job", "true").returncode for _ in range(20)} == {75}


@pytest.mark.tool("strace")
def test_a_wait_that_is_over_before_it_begins_ends_as_waits_do(lab):
    lab.hold("job")
    slow = inject(lab, "rename,renameat:delay_enter=300000")  # publishing the seat

    result = lab.run("-w", "200ms", "-n", "job", "true", prefix=slow)

    assert (result.returncode, lab.count_waiting("job")) == (75, 0)


def test_a_strangers_alarm_neither_ends_nor_shortens_the_wait(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", "-w", "1h", tag="waiter")
    waits = count_switches(waiter.pid)

    os.kill(waiter.pid, signal.SIGALRM)

    until(lambda: count_switches(waiter.pid) > waits and read_state(waiter.pid) == "S")
    assert lab.count_waiting("job") == 1
    finish(holder)
    assert finish(waiter)[0] == 0


def test_an_alarm_of_the_callers_ends_the_wait_that_it_is_to_end(lab):
    lab.hold("job")

    assert lab.run("-w", "60s", "-n", "job", "true", prefix=set_alarm()).returncode == -signal.SIGALRM


def test_a_blocked_alarm_of_the_callers_does_not_make_the_wait_longer(lab):
    lab.hold("job")
    alarm = set_alarm("_signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGALRM})")

    assert lab.run("-w", "1200ms", "-n", "job", "true", prefix=alarm).returncode == 75


def test_a_removed_name_is_called_that(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    shutil.rmtree(lab.directory / "job")
    finish(holder)

    status, _, stderr = finish(waiter)

    assert (status, lab.read_log()) == (125, [])
    assert stderr == f"solo: job: {lab.directory}/job: someone removed it\n"


def test_a_recycled_pid_is_not_taken_for_the_orphan(lab):
    holder = lab.hold("job")
    kill_both(holder)
    ticket = lab.find_hold("job")
    ticket.write_bytes(ticket.read_bytes()[:-RESERVED] + format_closing((os.getpid(), 1)))  # our pid, another start

    assert lab.run("-n", "job", "true").returncode == 0


def test_an_orphan_is_waited_for_at_most_as_long_as_wanted(lab):
    holder = lab.hold("job")
    holder.kill()
    holder.wait()

    assert lab.run("-w", "200ms", "-n", "job", "true").returncode == 75
