"""The gate, the short mutex of a name: waiting for it, removing it, failures of its lock."""

import fcntl
import os
import re
import subprocess
import sys
import time

import pytest
from conftest import count_injected, finish, inject, is_blocked, read_line, read_state, until
from fleet import find_children

GATE_PATIENCE = 1.6  # seconds, instead of 10
OWNERS = (
    24  # each owner keeps the gate for 0.1 s: together longer than the patience with an idle gate
)


KEEP_GATE = """
import fcntl, os, select, sys, time
gate = os.open(sys.argv[1], os.O_RDWR)
print(flush=True)
fcntl.flock(gate, fcntl.LOCK_EX)
while sys.argv[2] == "0" and not select.select([0], [], [], 0.05)[0]:
    os.utime(gate)
os.utime(gate)
time.sleep(0.1)
"""


def start_counted(lab, count=8):
    """Start contenders of `job` under strace, which logs when they open /proc/locks; return once
    all wait for the gate.
    """
    trace = ("strace", "-f", "-qq", "-e", "trace=openat", "-P", "/proc/locks", "-o")
    crowd = [
        lab.start(
            "-w",
            "forever",
            "-n",
            "job",
            "--",
            "true",
            prefix=(*trace, lab.path / f"{number}.locks"),
        )
        for number in range(count)
    ]
    for process in crowd:
        until(lambda: (tracee := find_tracee(process.pid)) is not None and is_blocked(tracee))
    return crowd


def find_tracee(pid):
    return next(iter(find_children(pid)), None)


def count_opens(lab):
    return sum(path.read_text().count("openat(") for path in lab.path.glob("*.locks"))


@pytest.mark.tool("strace")
def test_crowd_at_moving_gate_never_opens_proc_locks(lab):
    """Its first owner touches it until eight launchers wait, then owners change for seconds: none
    looks for an owner.
    """
    lab.run("-n", "job", "true")
    lab.hasten("solo.gate.GATE_PATIENCE", GATE_PATIENCE)
    owners = []
    for number in range(OWNERS):
        words = [sys.executable, "-IS", "-c", KEEP_GATE, lab.directory / "job/.gate", str(number)]
        owners.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert owners[-1].stdout.readline()
        until(
            lambda: owners[-1].poll() is not None or is_blocked(owners[-1].pid) or len(owners) < 3
        )

    crowd = start_counted(lab)
    owners.pop(0).communicate()

    for process in crowd:
        assert finish(process) == (0, "", "")
    assert count_opens(lab) == 0
    for process in owners:
        process.communicate()


@pytest.mark.tool("strace", "flock")
def test_crowd_at_stuck_gate_fails_and_one_names_owner(lab):
    """After its patience each exits with 125 and one line. Only the one that opened /proc/locks
    names the owner.
    """
    lab.run("-n", "job", "true")
    owner = lab.start(
        "-n", "other", "--", "flock", lab.directory / "job/.gate", "sh", "-c", "echo; read line"
    )
    read_line(owner)
    lab.hasten("solo.gate.GATE_PATIENCE", GATE_PATIENCE)
    begin = time.monotonic()
    crowd = start_counted(lab)
    spread = time.monotonic() - begin

    results = [finish(process) for process in crowd]

    assert [status for status, _, _ in results] == [125] * 8
    assert all(
        error.count("\n") == 1 and " has kept it locked for " in error for _, _, error in results
    )
    named = sum("pid " in error for _, _, error in results)
    assert 1 <= named == count_opens(lab) <= 1 + spread // (0.75 * GATE_PATIENCE)
    finish(owner)
    assert lab.run("-n", "job", "true").returncode == 0


STOP_WITH_FILE = """
import fcntl, os, signal, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def stop_with_file(lab, path):
    """Start a process that locks the file and stops itself."""
    owner = lab.start_words(sys.executable, "-IS", "-c", STOP_WITH_FILE, str(path))
    read_line(owner)
    until(lambda: read_state(owner.pid) == "T")
    return owner


@pytest.mark.parametrize(
    "file, words", [("job/.gate", ()), (".journals/job/.once", ("--once-per", "1d"))]
)
def test_remedy_for_stopped_owner_works_when_typed(lab, file, words):
    lab.run("-n", "job", "--once-per", "1h", "true")
    owner = stop_with_file(lab, lab.directory / file)
    lab.hasten("solo.gate.GATE_PATIENCE", GATE_PATIENCE)

    stuck = lab.run("-n", "job", *words, "true")
    remedy = re.search(r"\(continue it: (kill -CONT \d+)\)$", stuck.stderr.decode())
    subprocess.run(["sh", "-c", remedy[1]], check=True)

    start = f"solo: job: cannot lock {lab.directory}/{file}: pid {owner.pid} ({sys.executable} "
    assert stuck.returncode == 125 and stuck.stderr.startswith(start.encode())
    assert finish(owner)[0] == 0 and lab.run("-n", "job", *words, "true").returncode == 0


def test_wait_shorter_than_patience_ends_busy_at_locked_gate(lab):
    """Both for a newcomer and for a waiter, which leaves the queue."""
    holder = lab.hold("job")
    lab.use_clock()
    waiter = lab.start("--wait", "1h", "-n", "job", "true")
    until(lambda: lab.count_waiting("job") and is_blocked(waiter.pid))
    with open(lab.directory / "job/.gate") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)

        lab.leap(waiter)
        results = [finish(lab.start("--wait", "100ms", "-n", "job", "true")), finish(waiter)]

        assert [status for status, _, _ in results] == [75, 75] and lab.count_waiting("job") == 0
        reason = "solo: job: busy: another process has its gate locked; waited "
        assert all(err.startswith(reason) for *_, err in results)
    assert finish(holder)[0] == 0 and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.tool("strace")
def test_gate_that_cannot_be_unlocked_leaves_name_free(lab):
    lab.run("-n", "job", "true")
    fail = inject(lab, "flock:error=EIO:when=2", paths=[lab.directory / "job/.gate"])

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=fail)

    assert (result.returncode, result.stdout) == (125, b"")
    assert result.stderr == b"solo: job: cannot be held: Input/output error\n"
    assert (
        os.listdir(lab.directory / "job") == [".gate"]
        and lab.run("-n", "job", "true").returncode == 0
    )


@pytest.mark.tool("strace")
def test_status_is_busy_if_skips_cannot_be_restored(lab):
    """Skips are written back to a name that was released because another name is busy."""
    lab.run("-n", "a", "true")
    lab.hold("b")
    fail = inject(lab, "flock:error=EIO:when=3", paths=[lab.directory / "a/.gate"])

    result = lab.run("-n", "a", "-n", "b", "true", prefix=fail)

    assert (
        result.returncode == 75
        and result.stderr.startswith(b"solo: b: busy: ")
        and count_injected(lab) == 1
    )
    assert lab.run("-n", "a", "true").returncode == 0


@pytest.mark.tool("strace")
def test_gate_whose_time_cannot_be_set_is_locked(lab):
    """A waiter at the gate sets that time, for the other waiters."""
    lab.run("-n", "job", "true")
    with open(lab.directory / "job/.gate") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        contender = lab.start(
            "-n", "job", "--", "echo", "ran", prefix=inject(lab, "utimensat:error=EROFS")
        )
        until(lambda: (tracee := find_tracee(contender.pid)) is not None and is_blocked(tracee))

    assert finish(contender) == (0, "ran\n", "") and count_injected(lab) == 1


def test_waiter_at_renamed_gate_makes_another(lab):
    """In a shared directory another user can link the gate: it keeps a link once it is removed."""
    lab.directory.mkdir()
    lab.directory.chmod(0o1777)
    lab.run("-n", "job", "true")
    path = lab.directory / "job/.gate"
    with open(path) as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        contender = lab.start("-n", "job", "--", "echo", "ran")
        until(lambda: is_blocked(contender.pid))
        path.rename(lab.path / "kept")

    assert finish(contender) == (0, "ran\n", "") and path.exists()
