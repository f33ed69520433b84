"""Handoff in advance: the waiter at the head of the queue forks its command before its turn.

The forked child waits for a write to its pipe, keeps no descriptor of its launcher, and never
delays another contender.
"""

import datetime
import json
import os
import signal
import sys
import time
from importlib.util import cache_from_source

import pytest
from conftest import (
    ROOT,
    TESTS,
    count_injected,
    finish,
    inject,
    is_blocked,
    list_open,
    read_state,
    until,
)
from observed import until_blocked

from solo.process.tree import find_children
from solo.start import send_go

PROBE = (sys.executable, "-IS", str(TESTS / "probe.py"), "report")


def find_forked(waiter):
    """Wait until the waiter has forked a child and the child has closed its descriptors; return the
    child's pid.
    """
    found = []

    def look():
        found[:] = [child for child, _ in find_children(waiter.pid) if is_reading(child)]
        return found

    until(look)
    return found[0]


def is_reading(pid):
    """Return whether a process sleeps in read(2), as the forked child does once it has closed its
    descriptors.
    """
    try:
        return open(f"/proc/{pid}/syscall").read().startswith("0 ") and read_state(pid) == "S"
    except OSError:
        return False


def test_only_head_of_queue_forks_its_command(lab, via):
    lab.hold("job")
    head, second = (lab.start_waiter("job", tag=tag) for tag in ("head", "second"))

    find_forked(head)

    assert find_children(second.pid) == []


def test_forked_child_keeps_no_descriptor_of_launcher(lab, via):
    lab.hold("job")
    head = lab.start_waiter("job", tag="head")

    forked = find_forked(head)

    own = {file for file in list_open(head.pid) if str(lab.directory) in file or "socket:" in file}
    assert own and own.isdisjoint(list_open(forked))


def test_forked_child_becomes_command_with_token_and_inherited_state(lab, via):
    holder = lab.hold("job")
    held = lab.list("job")[0]["ticket"]
    waiter = lab.start("-w", "forever", "-n", "job", "--", *PROBE)
    forked = find_forked(waiter)
    alone = json.loads(lab.run("-n", "other", "--", *PROBE, stdin=waiter.stdin).stdout)

    holder.communicate()
    report = json.loads(finish(waiter)[1])

    environment = report["environment"]
    assert environment["SOLO_NAME"] == "job" and int(environment["SOLO_TOKEN"]) > held
    assert report["parent"] == waiter.pid and read_state(forked) == "gone"
    for state in ("descriptors", "blocked", "ignored", "umask", "cwd", "session"):
        assert report[state] == alone[state]


@pytest.mark.parametrize(
    "prepare", [(), ("env", "--ignore-signal=CHLD")], ids=["", "SIGCHLD ignored"]
)
def test_stopped_forked_child_ends_with_its_waiter(lab, prepare):
    lab.hold("job")
    words = ("-w", "forever", "--latest", "-n", "job", "--", "true")
    waiter = lab.start(*words, prefix=prepare)
    forked = find_forked(waiter)
    os.kill(forked, signal.SIGSTOP)

    lab.start(*words)

    status, _, stderr = finish(waiter)
    assert (status, stderr.count("superseded")) == (75, 1) and read_state(forked) == "gone"


@pytest.mark.parametrize(
    "prepare", [(), ("env", "--ignore-signal=CHLD")], ids=["", "SIGCHLD ignored"]
)
def test_command_runs_after_forked_child_was_killed(lab, via, prepare):
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=prepare)
    forked = find_forked(waiter)
    os.kill(forked, signal.SIGKILL)
    until(lambda: read_state(forked) in ("gone", "Z"))

    holder.communicate()

    assert finish(waiter) == (0, "ran\n", "")


def test_continuing_launcher_continues_forked_child(lab, via):
    """Ctrl-Z stops the launcher and stays pending in its child. Only the launcher gets SIGCONT."""
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", preexec_fn=os.setpgrp)
    find_forked(waiter)
    os.killpg(waiter.pid, signal.SIGTSTP)
    until(lambda: read_state(waiter.pid) == "T")
    waiter.send_signal(signal.SIGCONT)

    holder.communicate()

    assert finish(waiter) == (0, "ran\n", "")


# To stop at each of 65536 calls that close what was not listed would take a minute at load 30.
ONLY = ("--seccomp-bpf", "-e", "trace=openat,clone")


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "what, paths",
    [
        ("clone:error=EAGAIN:when=1", ()),  # the child cannot be forked in advance
        ("openat:error=EMFILE", ["/proc/self/fd"]),  # its descriptors cannot be listed
    ],
    ids=["clone", "openat"],
)
def test_failed_preparation_is_repeated_at_turn(lab, what, paths):
    holder = lab.hold("job")
    prefix = *inject(lab, what, paths=paths, follow=True), *ONLY
    waiter = lab.start("-w", "forever", "-n", "job", "--", "echo", "ran", prefix=prefix)
    until_blocked(waiter)

    holder.communicate()

    assert finish(waiter)[:2] == (0, "ran\n") and count_injected(lab)


@pytest.mark.tool("strace")
def test_turn_loads_no_module(lab):
    lab.use_modules()  # test_bundle.py has this for the bundle
    holder = lab.hold("job")
    waiter = lab.start("-w", "1h", "-n", "job", "true", prefix=inject(lab, "openat:delay_exit=1"))
    until_blocked(waiter)
    trace = lab.path / "injected"
    before = len(trace.read_text().splitlines())

    holder.communicate()

    assert finish(waiter)[0] == 0
    calls = trace.read_text().splitlines()
    assert len(calls) > before and not [call for call in calls[before:] if f"{ROOT}/solo/" in call]
    assert [call for call in calls[:before] if "contention" in call and "handoff" in call]


@pytest.mark.tool("strace")
def test_waiter_that_cannot_prepare_its_turn_runs(lab):
    lab.use_modules()
    paths = [
        ROOT / "solo/contention/handoff.py",
        cache_from_source(ROOT / "solo/contention/handoff.py"),
    ]
    holder = lab.hold("job")
    prefix = inject(lab, "openat:error=EMFILE", paths=paths)
    waiter = lab.start("-w", "1h", "-n", "job", "--", "echo", "ran", prefix=prefix)
    until_blocked(waiter)

    finish(holder)

    assert finish(waiter) == (0, "ran\n", "") and count_injected(lab)


def test_shared_waiters_acquire_together(lab, via):
    """A waiter behind a shared one wakes when that acquires, not only when it ends."""
    holder = lab.hold("job")
    sharing = [
        lab.start("-s", "-w", "forever", "-n", "job", "--", "sh", "-c", "echo $$; read line")
        for _ in range(3)
    ]
    until(lambda: lab.count_waiting("job") == 3)

    holder.communicate()

    until(lambda: [row["state"] for row in lab.list("job")] == ["held"] * 3)
    assert [finish(holder)[0] for holder in sharing] == [1, 1, 1]


@pytest.mark.tool("strace")
@pytest.mark.parametrize("options, first", [(("-s",), ()), (("--slots", "2"), ("--slots", "2,2"))])
def test_compatible_holder_leaves_queue_before_command_starts(lab, options, first):
    holder = lab.hold("job", *first)
    slow = ("strace", "-qq", "-o", lab.path / "trace", "-e", "inject=write:delay_enter=60s:when=1")
    waiter = lab.start(*options, "-w", "forever", "-n", "job", "true", prefix=slow)
    until_blocked(waiter)

    holder.communicate()
    until(
        lambda: [
            row["mode"]
            for row in lab.list("job")
            if row["launcher"] != holder.pid and row["state"] == "held"
        ]
    )

    assert lab.run(*options, "-n", "job", "true").returncode == 0


def test_first_of_two_names_is_held_since_its_turn(lab):
    one, two = lab.hold("one"), lab.hold("two")
    both = lab.start("-w", "forever", "-n", "one", "-n", "two", "true")
    find_forked(both)
    until(lambda: is_blocked(both.pid))  # it has prepared its turn
    turn = time.time()
    until(lambda: time.time() > turn + 0.002)  # `since` is cut to milliseconds

    one.communicate()
    until(
        lambda: [row["launcher"] for row in lab.list("one") if row["state"] == "held"] == [both.pid]
    )

    assert datetime.datetime.fromisoformat(lab.list("one")[0]["since"]).timestamp() > turn
    two.communicate()
    assert finish(both)[0] == 0


def test_long_go_arrives_whole_from_stopped_launcher():
    """The message with thousands of names is longer than a pipe; the launcher is stopped in the
    middle of its write.
    """
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
def test_signal_survived_in_queue_does_not_end_command(lab, name):
    """The signal goes to the launcher at the head and to its forked child. Both survive it, as
    waiters behind them do.
    """
    holder = lab.hold("job")
    waiter = lab.start("-w", "1h", "-n", "job", "--", "echo", "ran", start_new_session=True)
    find_forked(waiter)
    until(lambda: is_blocked(waiter.pid))  # it has prepared its turn

    os.killpg(waiter.pid, getattr(signal, name))
    holder.communicate()

    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_forked_child_closes_descriptors_without_listing_them(lab):
    lab.hold("job")
    blind = inject(lab, "openat:error=ENFILE", paths=("/proc/self/fd",), follow=True)
    lab.start("-w", "forever", "-n", "job", "--", "true", prefix=(*blind, *ONLY))
    until(lambda: lab.count_waiting("job") == 1)
    [(launcher, _)] = find_children(lab.started[-1].pid)
    until(lambda: any(is_reading(child) for child, _ in find_children(launcher)))

    [(forked, _)] = find_children(launcher)

    own = {file for file in list_open(launcher) if str(lab.directory) in file}
    assert own and own.isdisjoint(list_open(forked)) and count_injected(lab)


@pytest.mark.tool("strace")
def test_timeout_in_queue_is_busy_with_sigchld_ignored(lab):
    """Only the launcher reaps its child, which it kills before the child may end by itself."""
    lab.hold("job")
    slow = inject(lab, "exit_group:delay_enter=30ms:when=1", "wait4:delay_exit=80ms", follow=True)

    result = lab.run(
        "-w", "0.5", "-n", "job", "--", "true", prefix=("env", "--ignore-signal=CHLD", *slow)
    )

    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)
