"""The command of who stands at the head of a line is forked before its turn: it waits for a word, has nothing of its launcher's,
and is never in anyone's way."""

import datetime
import json
import os
import signal
import sys
import time

import pytest
from conftest import ROOT, TESTS, count_injected, finish, inject, is_blocked, kill_both, read_state, until

from solo.process.tree import find_children
from solo.start import send_go

PROBE = (sys.executable, "-IS", str(TESTS / "probe.py"), "report")


def find_forked(waiter):
    """The pid of the process that waits beside one who stands at the head of a line."""
    found = []

    def look():
        # Asleep in read(2): it has closed what is not its own.
        found[:] = [child for child, _ in find_children(waiter.pid) if is_reading(child)]
        return found

    until(look)
    return found[0]


def is_reading(pid):
    try:
        return open(f"/proc/{pid}/syscall").read().startswith("0 ") and read_state(pid) == "S"
    except OSError:
        return False


def read_files(pid):
    return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}


def test_only_the_head_of_the_line_has_its_command_forked(lab, via):
    lab.hold("job")
    head, second = (lab.start_waiter("job", tag=tag) for tag in ("head", "second"))

    find_forked(head)

    assert find_children(second.pid) == []


def test_what_is_forked_has_nothing_of_its_launcher_but_the_pipe(lab, via):
    lab.hold("job")
    head = lab.start_waiter("job", tag="head")

    forked = find_forked(head)

    ours = {file for file in read_files(head.pid) if str(lab.directory) in file or "socket:" in file}
    assert ours and not ours & read_files(forked)


def test_it_becomes_the_command_with_its_token_and_all_that_was_given(lab, via):
    holder = lab.hold("job")
    held = lab.list("job")[0]["ticket"]
    waiter = lab.start("-w", "forever", "-n", "job", "--", *PROBE)
    forked = find_forked(waiter)
    alone = json.loads(lab.run("-n", "other", "--", *PROBE, stdin=waiter.stdin).stdout)

    holder.communicate()
    told = json.loads(finish(waiter)[1])

    environment = {
        bytes.fromhex(name).decode(): bytes.fromhex(value).decode() for name, value in told["environment"].items()
    }
    assert environment["SOLO_NAME"] == "job" and int(environment["SOLO_TOKEN"]) > held
    assert told["parent"] == waiter.pid and read_state(forked) == "gone"
    for told_of in ("descriptors", "blocked", "ignored", "umask", "cwd", "session"):
        assert told[told_of] == alone[told_of]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_launcher(lab, via, end):
    lab.hold("job")
    head = lab.start_waiter("job", tag="head")
    forked = find_forked(head)

    head.send_signal(end)
    head.wait()

    until(lambda: read_state(forked) in ("gone", "Z"))


@pytest.mark.parametrize("prepare", [(), ("env", "--ignore-signal=CHLD")], ids=["", "SIGCHLD ignored"])
def test_it_ends_with_a_wait_that_was_too_short_also_if_it_is_stopped(lab, prepare):
    lab.hold("job")
    waiter = lab.start("-w", "1", "-n", "job", "--", "true", prefix=prepare)
    forked = find_forked(waiter)
    os.kill(forked, signal.SIGSTOP)

    status, _, stderr = finish(waiter)

    assert (status, stderr.count("busy")) == (75, 1) and read_state(forked) == "gone"


@pytest.mark.parametrize("prepare", [(), ("env", "--ignore-signal=CHLD")], ids=["", "SIGCHLD ignored"])
def test_if_it_is_killed_the_command_runs_all_the_same(lab, via, prepare):
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=prepare)
    forked = find_forked(waiter)
    os.kill(forked, signal.SIGKILL)
    until(lambda: read_state(forked) in ("gone", "Z"))

    holder.communicate()

    assert finish(waiter) == (0, "ran\n", "")


def test_a_stopped_one_keeps_the_name_until_it_may_go_on(lab):
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran")
    forked = find_forked(waiter)
    os.kill(forked, signal.SIGSTOP)

    holder.communicate()
    until(lambda: [row["launcher"] for row in lab.list("job") if row["state"] == "held"] == [waiter.pid])
    assert lab.run("-n", "job", "true").returncode == 75
    os.kill(forked, signal.SIGCONT)

    assert finish(waiter) == (0, "ran\n", "")


def test_a_stop_while_in_line_is_over_once_the_launcher_goes_on(lab, via):
    """Ctrl-Z stops the launcher; what it has forked has the signal pending, and only the launcher may be told to go on."""
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", preexec_fn=os.setpgrp)
    find_forked(waiter)
    os.killpg(waiter.pid, signal.SIGTSTP)
    until(lambda: read_state(waiter.pid) == "T")
    waiter.send_signal(signal.SIGCONT)

    holder.communicate()

    assert finish(waiter) == (0, "ran\n", "")


def test_who_is_behind_it_sees_a_killed_launcher_as_gone_though_what_it_forked_is_stopped(lab, via):
    holder = lab.hold("job")
    head = lab.start_waiter("job", tag="head")
    forked = find_forked(head)
    second = lab.start_waiter("job", tag="second")
    os.kill(forked, signal.SIGSTOP)
    head.kill()
    head.wait()

    holder.communicate()

    assert finish(second)[0] == 0 and lab.read_log() == ["second"]
    if via == "file":
        os.kill(forked, signal.SIGKILL)


def test_a_holder_killed_with_its_command_is_no_release_and_looked_at_again(lab, via):
    """The turn of who waits takes a short cut after a release only: an orphan is waited for."""
    holder = lab.hold("job")
    head = lab.start_waiter("job", tag="head")
    find_forked(head)
    if via == "file":
        holder.kill()
        holder.wait()
        until(lambda: [row["state"] for row in lab.list("job")] == ["orphaned", "waiting"])
        assert lab.read_log() == []

    kill_both(holder) if via == "socket" else os.kill(holder.child, signal.SIGKILL)

    assert finish(head)[0] == 0 and lab.read_log() == ["head"]


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "what, paths",
    [
        ("clone:error=EAGAIN:when=1", ()),  # it can not be forked early
        ("openat:error=EMFILE", ["/proc/self/fd"]),  # it can not tell what to close
        ("linkat:error=EOPNOTSUPP", ()),  # what has no name can not be given one
        ("pwrite64:error=ENOSPC:when=3", ()),  # the hold can not be written ahead
    ],
    ids=["clone", "openat", "linkat", "pwrite64"],
)
def test_what_can_not_be_done_ahead_is_done_at_its_turn(lab, what, paths):
    holder = lab.hold("job")
    waiter = lab.start(
        "-w", "forever", "-n", "job", "--", "echo", "ran", prefix=inject(lab, what, paths=paths, follow=True)
    )
    until_blocked(waiter)

    holder.communicate()

    assert finish(waiter)[:2] == (0, "ran\n") and count_injected(lab)


@pytest.mark.tool("strace")
@pytest.mark.parametrize("word", ["O_TMPFILE", "/stat"])
def test_so_is_what_has_no_name_where_there_is_no_such_file_and_what_can_not_be_identified_yet(lab, word):
    """Which call it is, is counted in a run that ends for want of time."""
    holder = lab.hold("job")
    assert lab.run("-w", "1", "-n", "job", "--", "true", prefix=inject(lab, "openat:delay_exit=1")).returncode == 75
    lines = [line for line in (lab.path / "injected").read_text().splitlines() if line.startswith("openat(")]
    nth = 1 + max(at for at, line in enumerate(lines) if word in line)
    failing = inject(lab, f"openat:error=EOPNOTSUPP:when={nth}")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=failing)
    until_blocked(waiter)

    holder.communicate()

    assert finish(waiter) == (0, "ran\n", "") and count_injected(lab) == 1


@pytest.mark.tool("strace")
def test_a_wait_whose_time_is_over_before_it_begins_ends_at_once(lab):
    """The gate is let go of for the second time at the end of the second look."""
    lab.hold("job")
    slow = inject(lab, "flock:delay_exit=900000:when=4", paths=[lab.directory / "job/.gate"])

    assert lab.run("-w", "0.5", "-n", "job", "true", prefix=slow).returncode == 75


def until_blocked(tracer):
    """It stands in line, and has done what it can before its turn."""

    def look():
        return any(is_blocked(child) for child, _ in find_children(tracer.pid))

    until(look)


@pytest.mark.tool("strace")
def test_turn_loads_no_module(lab):
    holder = lab.hold("job")
    waiter = lab.start("-w", "1h", "-n", "job", "true", prefix=inject(lab, "openat:delay_exit=1"))
    until_blocked(waiter)
    trace = lab.path / "injected"
    before = len(trace.read_text().splitlines())

    holder.communicate()

    assert finish(waiter)[0] == 0
    calls = trace.read_text().splitlines()
    assert len(calls) > before and not [call for call in calls[before:] if str(ROOT) in call]
    assert [call for call in calls[:before] if "contention" in call and "handoff" in call]


def test_readers_beside_each_other_still_get_in_one_behind_the_other(lab, via):
    """Whoever is behind a reader is told that it got in, not only that it ended."""
    holder = lab.hold("job")
    readers = [lab.start("-s", "-w", "forever", "-n", "job", "--", "sh", "-c", "echo $$; read line") for _ in range(3)]
    until(lambda: lab.count_waiting("job") == 3)

    holder.communicate()

    until(lambda: [row["state"] for row in lab.list("job")] == ["held"] * 3)
    assert [finish(reader)[0] for reader in readers] == [1, 1, 1]


@pytest.mark.tool("strace")
@pytest.mark.parametrize("options, first", [(("-s",), ()), (("--slots", "2"), ("--slots", "2", "--take", "2"))])
def test_who_got_in_beside_others_is_in_line_no_more_though_its_command_has_not_started(lab, options, first):
    holder = lab.hold("job", *first)
    slow = ("strace", "-qq", "-o", lab.path / "trace", "-e", "inject=write:delay_enter=60s:when=1")
    waiter = lab.start(*options, "-w", "forever", "-n", "job", "true", prefix=slow)
    until_blocked(waiter)

    holder.communicate()
    until(lambda: [row["mode"] for row in lab.list("job") if row["launcher"] != holder.pid and row["state"] == "held"])

    assert lab.run(*options, "-n", "job", "true").returncode == 0


def test_a_name_that_waits_for_the_next_one_is_held_since_its_turn(lab):
    one, two = lab.hold("one"), lab.hold("two")
    both = lab.start("-w", "forever", "-n", "one", "-n", "two", "true")
    find_forked(both)
    until(lambda: open(f"/proc/{both.pid}/syscall").read().startswith("73 "))  # flock(2): all is prepared
    turn = time.time()
    until(lambda: time.time() > turn + 0.002)  # list tells milliseconds, cut off

    one.communicate()
    until(lambda: [row["launcher"] for row in lab.list("one") if row["state"] == "held"] == [both.pid])

    assert datetime.datetime.fromisoformat(lab.list("one")[0]["since"]).timestamp() > turn
    two.communicate()
    assert finish(both)[0] == 0


def test_a_long_word_arrives_whole_though_the_launcher_is_stopped_in_the_middle_of_it():
    """That of some thousand names is longer than a pipe."""
    ready, go = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        os.close(ready)
        send_go(go, b"x" * 200_000)
        os._exit(0)
    os.close(go)
    until(lambda: is_writing(launcher))
    os.kill(launcher, signal.SIGSTOP)
    until(lambda: read_state(launcher) == "T")
    os.kill(launcher, signal.SIGCONT)

    with open(ready, "rb") as pipe:
        assert len(pipe.read()) == 200_000
    os.waitpid(launcher, 0)


def is_writing(pid):
    return read_state(pid) == "S" and open(f"/proc/{pid}/syscall").read().startswith("1 ")


@pytest.mark.parametrize("name", ["SIGALRM", "SIGPIPE", "SIGXFSZ"])
def test_what_a_launcher_survived_in_line_does_not_end_the_command_at_its_turn(lab, name):
    """As in line, so at its turn: for one at the head, whose command is forked, as for those behind."""
    holder = lab.hold("job")
    waiter = lab.start("-w", "1h", "-n", "job", "--", "echo", "ran", start_new_session=True)
    find_forked(waiter)
    until(lambda: is_blocked(waiter.pid))  # not looking again

    os.killpg(waiter.pid, getattr(signal, name))
    holder.communicate()

    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_it_has_nothing_of_its_launcher_also_where_descriptors_can_not_be_listed(lab):
    lab.hold("job")
    blind = inject(lab, "openat:error=ENFILE", paths=("/proc/self/fd",), follow=True)
    lab.start("-w", "forever", "-n", "job", "--", "true", prefix=blind)
    until(lambda: lab.count_waiting("job") == 1)
    [(launcher, _)] = find_children(lab.started[-1].pid)
    until(lambda: any(is_reading(child) for child, _ in find_children(launcher)))

    [(forked, _)] = find_children(launcher)

    ours = {file for file in read_files(launcher) if str(lab.directory) in file}
    assert ours and not ours & read_files(forked) and count_injected(lab)


@pytest.mark.tool("strace")
def test_that_the_go_comes_before_it_could_list_its_descriptors_does_no_harm(lab):
    holder = lab.hold("job")
    slow = inject(lab, "openat:error=ENFILE:delay_exit=1s:when=1", paths=("/proc/self/fd",), follow=True)
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=slow)
    until(lambda: lab.count_waiting("job") == 1 and count_injected(lab))

    holder.communicate()

    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_giving_up_in_line_is_no_error_where_sigchld_is_ignored(lab):
    """Nobody reaps what was forked but its launcher, who kills it before it may end by itself."""
    lab.hold("job")
    slow = inject(lab, "exit_group:delay_enter=30ms:when=1", "wait4:delay_exit=80ms", follow=True)

    result = lab.run("-w", "0.5", "-n", "job", "--", "true", prefix=("env", "--ignore-signal=CHLD", *slow))

    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)


@pytest.mark.tool("strace")
def test_if_it_is_killed_and_no_other_can_be_forked_nothing_ran(lab):
    holder = lab.hold("job")
    waiter = lab.start(
        "-w",
        "forever",
        "-n",
        "job",
        "--",
        "echo",
        "ran",
        prefix=inject(lab, "clone,clone3,fork,vfork:error=EAGAIN:when=2+"),
    )
    until(lambda: lab.count_waiting("job") == 1)
    [(launcher, _)] = find_children(waiter.pid)
    until(lambda: any(is_reading(child) for child, _ in find_children(launcher)))
    [(forked, _)] = find_children(launcher)
    os.kill(forked, signal.SIGKILL)
    until(lambda: read_state(forked) in ("gone", "Z"))

    holder.communicate()

    status, stdout, stderr = finish(waiter)
    assert (status, stdout, stderr.count("\n"), "cannot start echo" in stderr) == (125, "", 1, True)
    assert lab.run("-n", "job", "true").returncode == 0
