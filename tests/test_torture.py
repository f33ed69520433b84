"""SIGKILL at every system call of a launcher, and every system call made to fail once: the promises hold after each.

strace counts the calls of one run, from the first touch of the directory to the exit; then each of them is hit in a run
of its own. CI takes a sample; `make torture` (SOLO_TORTURE=whole) takes all, in all scenes: the first run ever, alone,
with a full journal, waiting in line, shared, for slots, for several names, replacing the holder, and the same by sockets.
"""

import os
import random
import re
import shutil
import subprocess

import pytest
from conftest import PATIENCE, TESTS, until

from solo import journal
from solo.history import find_histories, parse
from solo.journal import ENDED, STARTED

WHOLE = os.environ.get("SOLO_TORTURE") == "whole"
SEED = int(os.environ.get("SOLO_SEED", random.SystemRandom().randrange(1 << 32)))
SAMPLE = 8
WITNESS = str(TESTS / "witness.sh")

# What each call can really say, beside EIO. A call that is not here takes no part in the failing.
FAILURES = {
    "openat": ("ENOSPC", "EACCES", "EMFILE", "ENOMEM", "EINTR"), "newfstatat": ("EACCES", "ENOMEM"), "read": ("EINTR",),
    "pread64": ("EINTR",), "pwrite64": ("ENOSPC", "EINTR"), "write": ("EINTR",), "flock": ("EINTR", "ENOMEM", "ENOLCK"),
    "rename": ("ENOSPC", "EACCES"), "renameat": ("ENOSPC", "EACCES"), "mkdirat": ("ENOSPC", "EACCES"),
    "mkdir": ("ENOSPC", "EACCES"), "unlinkat": ("EACCES",), "unlink": ("EACCES",), "pipe2": ("EMFILE",),
    "clone": ("EAGAIN", "ENOMEM"), "getdents64": ("ENOMEM",), "fcntl": ("EMFILE",), "readlink": ("EACCES", "ENOMEM"),
    "close": ("EINTR",), "close_range": ("EMFILE",), "wait4": ("EINTR",), "rt_sigtimedwait": ("EINTR",), "lseek": ("EINVAL",),
    "setitimer": ("EINVAL",), "pidfd_open": ("EMFILE", "ENOSYS"), "pidfd_send_signal": ("ESRCH",), "poll": ("EINTR",),
    "socket": ("EMFILE", "ENOMEM"), "bind": ("ENOMEM",), "listen": ("ENOMEM",), "connect": ("EAGAIN", "ENOMEM"),
}
NO_EIO = {
    "clone", "pipe2", "flock", "wait4", "rt_sigtimedwait", "fcntl", "lseek", "setitimer", "pidfd_open", "pidfd_send_signal", "poll",
    "socket", "bind", "listen", "connect",
}

pytestmark = pytest.mark.tool("strace", "flock")


def launch(lab, tag, *words, delay="0.05", strace=()):
    prefix = ("strace", "-qq", "-o", str(lab.path / "trace"), *strace) if strace else ()
    return lab.start("-n", "job", *words, WITNESS, tag, delay, prefix=prefix, stdin=subprocess.DEVNULL)


def count_calls(lab, scene):
    """[(call, its how-manieth)] of a launcher, from its first touch of the directory on."""
    assert launch(lab, "warm").wait(PATIENCE) == 0  # so that Python has its .pyc files, and the name its directory
    clear(lab)
    stage = scene(lab)
    with stage as words:
        process = launch(lab, "traced", *words, strace=("-s", "200"))
    assert process.wait(PATIENCE) == 0
    stage.end()
    counts, points, touched = {}, [], False
    for line in (lab.path / "trace").read_text().splitlines():
        match = re.match(r"(\w+)\(", line)
        if match is None:
            continue
        call = match[1]
        counts[call] = counts.get(call, 0) + 1
        touched = touched or stage.touch(lab) in line
        if touched:
            points.append((call, counts[call]))
    return points


class Alone:
    """Nobody else wants the name."""

    def __init__(self, lab):
        pass

    @staticmethod
    def touch(lab):
        """What the first system call that matters has in it."""
        return str(lab.directory)

    def __enter__(self):
        return ()

    def __exit__(self, *_):
        pass

    def end(self):
        """End what is still there after the promises were checked."""


class First(Alone):
    """Nobody ever guarded anything here: all directories are missing."""

    def __init__(self, lab):
        shutil.rmtree(lab.directory)


class FullJournal(Alone):
    """The journal is full: the first event renames it."""

    def __init__(self, lab):
        self.lab = lab
        launch(lab, "filler", delay="0").wait(PATIENCE)
        file = lab.find_journal("job")
        run = b"".join(file.read_bytes().splitlines(keepends=True)[-2:])
        self.count = journal.SIZE_LIMIT // len(run) + 1
        file.write_bytes(run * self.count)
        file.with_name(".journal.past").write_bytes(run * self.count)
        clear(lab)

    def end(self):
        """Two more runs, but for what the hit kept from being told: nothing else is lost or counted twice."""
        runs = dict(find_histories(str(self.lab.directory), ["job"]))["job"].totals.runs
        assert runs - 2 * self.count in (1, 2)


class InLine(Alone):
    """A holder is there until the tortured one stands in line, or is gone."""

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        self.holder = self.lab.start("-n", "job", WITNESS, "holder", "line")
        until(lambda: "start:holder" in self.lab.read_log())
        return ("--wait", "forever")

    def __exit__(self, *_):
        until(lambda: self.lab.count_waiting("job") or any(p.poll() is not None for p in self.lab.started[1:]))
        self.holder.stdin.close()


class SharedInLine(InLine):
    """A shared one behind an exclusive holder; the successor is exclusive again."""

    def __enter__(self):
        return (*super().__enter__(), "--shared")


class SlotsInLine(Alone):
    """Two of two slots are taken; one is given back, and the tortured one and its successor want it."""

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        self.lab.common = ("--slots", "2")
        self.others = [self.lab.start("-n", "job", "--slots", "2", "--", "sh", "-c", "echo; read -r _") for _ in range(2)]
        for other in self.others:
            other.stdout.readline()
        return ("--wait", "forever", "--slots", "2")

    def __exit__(self, *_):
        until(lambda: self.lab.count_waiting("job") or any(p.poll() is not None for p in self.lab.started[2:]))
        self.others[0].stdin.close()

    def end(self):
        self.others[1].stdin.close()


class SeveralInLine(InLine):
    """Several names, nested ones among them, of which one is held."""

    def __enter__(self):
        return (*super().__enter__(), "-n", "a/b", "-n", "zoo")


class Replacing(InLine):
    """The holder never ends by itself; the tortured one ends it, if it lives long enough."""

    def __enter__(self):
        super().__enter__()
        return ("--replace", "--kill-after", "5s")

    def __exit__(self, *_):
        traced = self.lab.started[1]
        until(lambda: traced.poll() is not None or self.holder.poll() is not None or "start:traced" in self.lab.read_log())
        self.holder.stdin.close()


class BySockets:
    """Without any file."""

    def __enter__(self):
        self.lab.use_sockets()
        return super().__enter__()

    @staticmethod
    def touch(lab):
        return "/job/gate"


class SocketsInLine(BySockets, InLine):
    pass


class SocketSlotsInLine(BySockets, SlotsInLine):
    pass


class SocketsReplacing(BySockets, Replacing):
    pass


SCENES = [
    First, Alone, FullJournal, InLine, SharedInLine, SlotsInLine, SeveralInLine, Replacing, SocketsInLine, SocketSlotsInLine,
    SocketsReplacing,
]


def choose(points):
    if WHOLE:
        return points
    return random.Random(SEED).sample(points, min(SAMPLE, len(points)))


def check_promises(lab, scene, process, hit):
    """After the hit, whatever it did: nothing overlapped, nothing is stuck, nothing is left, and nothing was claimed wrongly."""
    # Else the successor would make what `First` is about.
    until(lambda: process.poll() is not None or "SOLO_VIA" in lab.environment or (lab.directory / "job/.gate").exists())
    successor = launch(lab, "successor", "--wait", "forever", *lab.common, delay="0")
    message = f"{hit} (SOLO_SEED={SEED})"
    status = process.wait(PATIENCE)
    stderr = process.stderr.read().decode()
    assert successor.wait(PATIENCE) == 0, message + successor.stderr.read().decode()
    # An orphan ends by itself; by sockets there is none.
    until(lambda: lab.read_log().count("start:traced") == lab.read_log().count("end:traced") or "SOLO_VIA" in lab.environment)
    log = lab.read_log()
    assert not [line for line in log if line.startswith(("overlap", "unrecorded"))], message
    assert log.count("start:successor") == log.count("end:successor") == 1, message
    assert log.count("start:traced") <= 1, message
    if status in (75, 125, 126, 127):
        assert "start:traced" not in log, f"{message}: {status} though it ran: {stderr}"
    if status == 0:
        assert "end:traced" in log, f"{message}: 0 though nothing ran"
    assert stderr.count("\n") <= 1 and "Traceback" not in stderr, message + stderr
    scene.end()
    if "SOLO_VIA" not in lab.environment:
        check_journal(lab, message, status)
    until(lambda: lab.list() == [])
    return status, stderr


def check_journal(lab, message, status):
    """Every line is whole, the successor's run is there, and the tortured one's end if nothing kept it from being told."""
    text = lab.find_journal("job").read_bytes() + b"".join(file.read_bytes() for file in lab.directory.rglob(".journal.past"))
    runs = {run.command[1]: run for run in dict(find_histories(str(lab.directory), ["job"]))["job"].list_runs()}
    lines = [line for line in text.split(b"\n") if line and not line.startswith(b"totals ")]
    assert len(lines) == len(parse("job", text)[1]), message
    assert runs[b"successor"].is_success, message
    if status == 0 and b"traced" in runs:
        assert runs[b"traced"].event in (STARTED, ENDED) and runs[b"traced"].code in (None, 0), message


def clear(lab):
    for process in lab.started:
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
    lab.started.clear()
    lab.log.write_text("")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_sigkill_at_every_system_call_breaks_no_promise(lab, scene):
    points = count_calls(lab, scene)
    assert len(points) > 40
    chosen, killed = choose(points), 0
    for call, nth in chosen:
        clear(lab)
        stage = scene(lab)
        with stage as words:
            process = launch(lab, "traced", *words, strace=("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}"))
        status, _ = check_promises(lab, stage, process, f"SIGKILL at {call} {nth}")
        killed += status == -9
    # Nobody can say that it was killed if the kill never came: the meter itself must have hit.
    assert killed >= len(chosen) * (0.8 if WHOLE else 0.5)  # some calls do not come in every run
    print(f"\n{scene.__name__}: {killed} kills in {len(chosen)} runs, no promise broken")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_a_failure_of_any_system_call_breaks_no_promise(lab, scene):
    points = [
        (call, nth, error) for call, nth in count_calls(lab, scene)
        for error in FAILURES.get(call, ()) + (() if call in NO_EIO or call not in FAILURES else ("EIO",))
    ]
    chosen, refused, injected = choose(points), 0, 0
    for call, nth, error in chosen:
        clear(lab)
        stage = scene(lab)
        with stage as words:
            process = launch(lab, "traced", *words, strace=("-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={nth}"))
        status, stderr = check_promises(lab, stage, process, f"{error} at {call} {nth}")
        untold = call == "write" and not stderr  # what failed may have been the line that says why
        beaten = status == 75 and ("successor" in stderr or untold)  # it started at the same time, and was faster
        assert status in (0, 125) or beaten, f"{error} at {call} {nth}: {status} {stderr}"
        assert untold or (status in (75, 125)) == stderr.startswith("solo: "), f"{error} at {call} {nth}: {status} {stderr!r}"
        refused += status == 125
        injected += "(INJECTED)" in (lab.path / "trace").read_text()
    assert injected >= len(chosen) * 0.5, "too few failures were seen: the injection does not work"
    print(f"\n{scene.__name__}: {len(chosen)} failures, {refused} refused with 125, no promise broken")


def test_the_torture_would_see_an_overlap(lab):
    """The meter: two witnesses that nothing keeps apart."""
    environment = {**lab.environment, "SOLO_DIR": "/nonexistent"}
    first = subprocess.Popen(["sh", "-c", "exec 9>>$LAB/alone; flock 9; echo; read line"], env=environment, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    first.stdout.readline()

    subprocess.run([WITNESS, "second", "0"], env=environment, stderr=subprocess.DEVNULL, timeout=PATIENCE)

    first.communicate()
    assert {"overlap:second", "unrecorded:second"} <= set(lab.read_log())
