"""SIGKILL at every system call of a launcher, and a failure of every system call: the promises hold
after each.

strace counts the calls of one run, from its first access to the directory to its exit. Then each
call is hit in its own run: `make test-full` takes a sample, `make torture` all calls in all scenes.
tests/simulation does the same in every order of what several contenders do; here are the scenes
whose calls it does not have: those of --tree, of rotation and of sockets.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter

import pytest
import tally
from conftest import PATIENCE, ROOT, TESTS, until, write_program

from solo import journal_files
from solo.commands.list import collect
from solo.history.reader import find_histories, parse
from solo.journal_files import ENDED, STARTED

SAMPLE = 8
WITNESS = str(TESTS / "witness.sh")

FAILURES = {  # the calls that each error is injected into; no other call is made to fail
    "ENOSPC": "openat pwrite64 rename renameat mkdirat mkdir",
    "EACCES": "openat newfstatat rename renameat mkdirat mkdir unlinkat unlink readlink",
    "EMFILE": "openat pipe2 fcntl close_range pidfd_open socket",
    "ENOMEM": "openat newfstatat flock clone clone3 vfork getdents64 readlink socket bind listen connect sendmsg",
    "EINTR": "openat read pread64 pwrite64 write flock close wait4 rt_sigtimedwait poll",
    "EIO": "openat newfstatat read pread64 pwrite64 write rename renameat mkdirat mkdir unlinkat unlink getdents64 readlink close close_range",
    "ENOLCK": "flock",
    "EAGAIN": "clone clone3 vfork connect",
    "EINVAL": "lseek setitimer",
    "ENOSYS": "pidfd_open",
    "ESRCH": "pidfd_send_signal",
}

pytestmark = [pytest.mark.long, pytest.mark.full, pytest.mark.tool("strace", "flock")]


def launch(lab, tag, *words, delay="0.05", prefix=()):
    return lab.start(
        "-n", "job", *words, WITNESS, tag, delay, prefix=prefix, stdin=subprocess.DEVNULL
    )


def launch_traced(lab, scene, *strace):
    """Start the traced launcher within the scene; return it once the scene is over for it."""
    with scene as words:
        return scene.launch(words, ("strace", "-qq", "-o", str(lab.path / "trace"), *strace))


def list_all(lab):
    rows, complete = collect(str(lab.directory), lab.environment.get("SOLO_VIA", "file"), [])
    assert complete
    return rows


def comes_true(condition, patience=PATIENCE):
    """Return whether the condition becomes true in time."""
    try:
        until(condition, patience)
    except AssertionError:
        return False
    return True


def list_waiting(lab):
    return [row.launcher for row in list_all(lab) if row.is_waiting]


def count_calls(lab, scene):
    """Return [(call, number)] of a launcher from its first access to the directory on; the numbers
    count each call from 1.
    """
    assert launch(lab, "warm").wait(PATIENCE) == 0  # creates the name
    for _ in "warm", "counted":  # the first one writes the .pyc files of what only the scene loads
        clear(lab)
        stage = scene(lab)
        assert launch_traced(lab, stage, "-s", "200").wait(PATIENCE) == 0
    counts, points = Counter(), []
    for call, row in re.findall(r"(?m)^(\w+)\((.*)", (lab.path / "trace").read_text()):
        counts[call] += 1
        if points or stage.get_first_access(lab) in row:
            points.append((call, counts[call]))
    return points


class First:
    """The first run: all directories are missing. Not a scene by itself: the simulation has it, as
    `first`.
    """

    words = ("--timeout", "60", "--kill-after", "5s")  # options of the launcher
    never_failed = ()  # calls that are not made to fail

    def __init__(self, lab):
        self.lab = lab
        shutil.rmtree(lab.directory)

    @staticmethod
    def get_first_access(lab):
        """Return the text of the first system call to count, as strace writes it."""
        return str(lab.directory)

    def __enter__(self):
        return self.words

    def __exit__(self, *_):
        pass

    def launch(self, words, strace):
        return launch(self.lab, "traced", *words, prefix=strace)

    def is_ahead(self):
        """Return whether the successor may start: it would create the directories otherwise."""
        return "SOLO_VIA" in self.lab.environment or (self.lab.directory / "job/.gate").exists()

    def is_over(self):
        """Return whether the command has ended: an orphan ends by itself; with sockets there is
        none.
        """
        log = self.lab.read_log()
        return (
            log.count("start:traced") == log.count("end:traced")
            or "SOLO_VIA" in self.lab.environment
        )

    def check(self, history):
        """Check the promises of this scene about the journal."""


# A solo whose lower process of --tree starts the strace of $STRACE, which attaches to it.
ATTACH = """
import contextlib, os, shlex, solo.process.pair as pair
from solo.process.prctl import load_prctl

def go_on_below(run, call=pair.go_on_below):
    lower = call(run)
    words = shlex.split(os.environ["STRACE"])
    with contextlib.suppress(OSError):  # a kernel without Yama
        load_prctl()({set_ptracer}, -1)
    traced = os.getpid()
    if not os.fork():
        if os.fork():
            os._exit(0)  # no child of the traced process may wait for its end
        os.execvp(words[0], [*words, "-p", str(traced)])
    os.wait()
    while "TracerPid:\\t0\\n" in open("/proc/self/status").read():
        os.sched_yield()
    return lower

pair.go_on_below = go_on_below
"""
SET_PTRACER = 0x59616D61  # PR_SET_PTRACER


class Tree(First):
    """A first run whose command leaves nothing. The launcher is the lower one of two processes."""

    words = ("--tree", *First.words)

    def launch(self, words, strace):
        text = self.lab.put_in(ATTACH.format(set_ptracer=SET_PTRACER))
        script = write_program(self.lab.path / "attached", text)
        environment = {**self.lab.environment, "STRACE": shlex.join(strace)}
        job = ("-n", "job", *words, WITNESS, "traced", "0.05")
        return self.lab.start_words(script, *job, env=environment, stdin=subprocess.DEVNULL)


class FullJournal(First):
    """The journal is full, so the first event renames it."""

    words = ()

    def __init__(self, lab):
        super().__init__(lab)
        launch(lab, "filler", delay="0").wait(PATIENCE)
        file = lab.find_journal("job")
        run = file.read_bytes()
        assert run.count(b"\n") == 2  # its start and its end
        self.count = journal_files.SIZE_LIMIT // len(run) + 1
        file.write_bytes(run * self.count)
        file.with_name(".journal.past").write_bytes(run * self.count)
        clear(lab)

    def is_ahead(self):
        """The successor would rename the journal."""
        return bool(list_all(self.lab))

    def check(self, history):
        """There are one or two more runs, as the hit may prevent a line. No other run is lost or
        counted twice.
        """
        assert history.totals.runs - 2 * self.count in (1, 2)


class Waiting(First):
    """A holder lives until the traced launcher waits in the queue or has ended. With files the
    simulation has it.
    """

    words = ("--wait", "forever")

    def __init__(self, lab):
        self.lab = lab

    def __enter__(self):
        self.holder = self.lab.start("-n", "job", WITNESS, "holder", "line")
        until(lambda: "start:holder" in self.lab.read_log())
        return self.words

    @property
    def traced(self):
        return self.lab.started[1]

    def __exit__(self, *_):
        until(lambda: list_waiting(self.lab) or self.traced.poll() is not None)
        self.holder.stdin.close()


class SocketsWaiting(Waiting):
    """With --via socket."""

    # strace skips a call that it fails: the socket, which is the lock, would stay open, as no
    # kernel leaves it.
    never_failed = ("close",)

    def __enter__(self):
        self.lab.use_sockets()
        return super().__enter__()

    @staticmethod
    def get_first_access(lab):
        return "/job/gate"


SCENES = [Tree, FullJournal, SocketsWaiting]


def wait_status(process):
    """Wait for a process and return its status, None if it is stuck."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return None


def check_promises(lab, scene, process, hit):
    """Assert that after `hit` no commands overlapped, nothing is stuck or left, and no status or
    record is wrong.
    """
    until(lambda: process.poll() is not None or scene.is_ahead())
    successor = launch(lab, "successor", "--wait", "forever", delay="0")
    message = f"{hit} (SOLO_SEED={tally.SEED})"
    status, succeeded = wait_status(process), wait_status(successor)
    tally.add(stuck=(status, succeeded).count(None))
    reason = "" if succeeded is None else successor.stderr.read().decode()
    assert succeeded == 0 and status is not None, message + reason
    stderr = process.stderr.read().decode()
    until(scene.is_over)
    log = lab.read_log()
    check_log(lab, log, message)
    assert log.count("start:successor") == log.count("end:successor") == 1, message
    assert log.count("start:traced") <= 1, message
    if status in (75, 125, 126, 127):
        assert "start:traced" not in log, f"{message}: {status} though it ran: {stderr}"
    if status == 0:
        assert "end:traced" in log, f"{message}: 0 though nothing ran"
    assert stderr.count("\n") <= 1 and "Traceback" not in stderr, message + stderr
    left = [
        other.args for other in lab.started if wait_status(other) is None
    ]  # all that end have written the journal
    tally.add(stuck=len(left))
    assert not left, f"{message}: {left}"
    if "SOLO_VIA" not in lab.environment:
        scene.check(check_journal(lab, message, status))
    is_stuck = not comes_true(lambda: list_all(lab) == [])
    tally.add(stuck=int(is_stuck))
    assert not is_stuck, f"{message}: {list_all(lab)}"
    return status, stderr


def check_log(lab, log, message):
    """Assert by the log of the commands that each ran alone, was recorded, and had a greater token
    than the one before.
    """
    wrong = {
        "overlaps": [line for line in log if line.startswith("overlap")],
        "unrecorded": [line for line in log if line.startswith("unrecorded")],
        "disordered": tally.find_disordered(lab.read_tokens()),
    }
    started = sum(line.startswith("start:") for line in log)
    tally.add(
        launchers=len(lab.started),
        commands=started,
        **{what: len(lines) for what, lines in wrong.items()},
    )
    assert not any(wrong.values()), f"{message}: {wrong}"


def check_journal(lab, message, status):
    """Assert that every line is whole and has the successor's run, and that the traced run, if it
    has one, is right.
    """
    # A launcher that is killed after it has renamed a full journal leaves `.journal.past` alone.
    text = b"".join(
        file.read_bytes() for file in lab.directory.rglob(".journal*") if file.is_file()
    )
    lines = dict.fromkeys(
        line
        for line in text.splitlines(True)
        if line.strip() and not line.startswith((b"totals ", b"day "))
    )
    assert len(lines) == len(parse("job", b"".join(lines))[1]), message
    history = dict(find_histories(str(lab.directory), ["job"]))["job"]
    runs = {run.command[1]: run for run in history.list_runs()}
    assert runs[b"successor"].is_success, message
    if status == 0 and b"traced" in runs:
        assert runs[b"traced"].event in (STARTED, ENDED) and runs[b"traced"].code in (None, 0), (
            message
        )
    return history


def clear(lab):
    for process in lab.started:
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
    lab.started.clear()
    lab.log.write_text("")
    (lab.path / "tokens").unlink(missing_ok=True)


def make_injection(hit):
    """Return the words of strace for a point like `EIO at openat 12`."""
    fault, _, place = hit.partition(" at ")
    call, nth = place.split()
    return f"{call}:{'signal=KILL' if fault == 'SIGKILL' else f'error={fault}'}:when={nth}"


def hit_each(lab, scene, injections):
    """Run the scene for each of `injections` {description: words of strace}, and check the
    promises.

    Yields (description, status, stderr).
    """
    for hit in tally.choose(list(injections), SAMPLE):
        clear(lab)
        stage = scene(lab)
        words = injections.get(hit) or make_injection(hit)  # a replay may make fewer calls
        process = launch_traced(
            lab, stage, "-e", f"trace={words.partition(':')[0]}", "-e", f"inject={words}"
        )
        yield hit, *check_promises(lab, stage, process, hit)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_sigkill_at_every_system_call_breaks_no_promise(lab, scene):
    points = count_calls(lab, scene)
    assert len(points) > 40
    injections = {
        hit: make_injection(hit) for hit in (f"SIGKILL at {call} {nth}" for call, nth in points)
    }
    runs = killed = 0
    for _, status, stderr in hit_each(lab, scene, injections):
        runs += 1
        is_hit = status == -9 or "was killed" in stderr  # with --tree the other process goes on
        killed += is_hit
        tally.add(**{"kills" if is_hit else "missed": 1})
    # The test proves nothing unless the kills came.
    assert tally.POINT or killed >= runs * (
        0.5 if tally.WHOLE else 0.1
    )  # some calls do not come in every run
    print(f"\n{scene.__name__}: {killed} kills in {runs} runs, no promise broken")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_failure_of_any_system_call_breaks_no_promise(lab, scene):
    injections = {
        f"{error} at {call} {nth}": f"{call}:error={error}:when={nth}"
        for call, nth in count_calls(lab, scene)
        if call not in scene.never_failed
        for error, calls in FAILURES.items()
        if call in calls.split()
    }
    runs = refused = injected = 0
    for hit, status, stderr in hit_each(lab, scene, injections):
        runs += 1
        is_silent = " at write " in hit and not stderr  # the write of the message may have failed
        is_late = status == 75 and (
            "successor" in stderr or is_silent
        )  # the successor started at the same time
        assert status in (0, 125) or is_late, f"{hit}: {status} {stderr}"
        assert is_silent or (status in (75, 125)) == stderr.startswith("solo: "), (
            f"{hit}: {status} {stderr!r}"
        )
        refused += status == 125
        if "(INJECTED)" in (lab.path / "trace").read_text():
            injected += 1
            tally.add(faults={hit.split()[0]: 1})
        else:
            tally.add(missed=1)
    assert injected >= runs * 0.5 - 1, "too few failures were seen: the injection does not work"
    print(
        f"\n{scene.__name__}: {injected} failures in {runs} runs, {refused} refused with 125, no promise broken"
    )


def test_witness_finds_overlap_and_missing_record(lab):
    """The meter: run two witnesses at once without solo."""
    environment = {**lab.environment, "SOLO_DIR": "/nonexistent"}
    holder = "exec 9>>$LAB/alone; flock 9; echo $$ >$LAB/alone; echo; read line"
    first = subprocess.Popen(
        ["sh", "-c", holder], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    first.stdout.readline()

    subprocess.run(
        [WITNESS, "second", "0"], env=environment, stderr=subprocess.DEVNULL, timeout=PATIENCE
    )

    first.communicate()
    assert {"overlap:second", "unrecorded:second"} <= set(lab.read_log())
    assert tally.find_disordered([1, 3, 3, 2]) == [3, 2]


@pytest.mark.timeout(600)
def test_torture_fails_on_broken_solo_and_replays(tmp_path):
    """The meter of `make torture`: break the rule, so that no hold conflicts. The line that it
    prints replays the failure.

    A failed call, unlike a kill, lets the command run beside the holder: the same overlap in every
    replay.
    """
    for folder in ("solo", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / "solo/modes.py", "a") as rule:
        rule.write("\n\ndef find_conflicts(*_):\n    return []\n")
    words = (
        "tests/tools/torture.py --minutes 1 --seed 1 --only failure --only [SocketsWaiting]".split()
    )

    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 1 and done.stdout.startswith("make torture MINUTES=1 SEED=1\n"), (
        done.stderr
    )
    replay = next(line for line in done.stdout.splitlines() if line.startswith("replay: "))
    *variables, make, test, arguments = shlex.split(replay.removeprefix("replay: "))
    [node] = shlex.split(arguments.removeprefix("ARGS="))
    assert (make, test) == ("make", "test") and re.match("SOLO_POINT=E[A-Z]+ at ", variables[2])
    options = {
        "env": {**os.environ, **dict(variable.split("=", 1) for variable in variables)},
        "cwd": tmp_path,
    }
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", node], capture_output=True, text=True, **options
    )
    assert again.returncode == 1 and f"{variables[2].partition('=')[2]} (" in again.stdout, (
        again.stdout
    )


def test_torture_runs_existing_tests():
    from torture import EXHAUSTIVE, RANDOM

    for node in (*EXHAUSTIVE, *RANDOM):
        file, _, test = node.partition("[")[0].partition("::")
        assert f"\ndef {test}(" in (ROOT / file).read_text(), node
