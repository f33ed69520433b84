"""SIGKILL at every system call of a launcher, and every system call made to fail once: the promises hold after each.

strace counts the calls of one run, from the first touch of the directory to the exit; then each of them is hit in a run
of its own. `make test` takes a sample; `make torture` all, in all scenes. What one call can not tell, the moments of a hand-over
in a line, is hit at random: who comes next, the child it may have forked already, and the holder, killed and stopped.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
import tally
from conftest import PATIENCE, ROOT, TESTS, read_line, read_state, until
from fleet import find_children, send

from solo import journal
from solo.commands.list import collect
from solo.history.reader import find_histories, parse
from solo.journal_files import ENDED, STARTED

SAMPLE = 8
WITNESS = str(TESTS / "witness.sh")

# What each call can really say, beside EIO. A call that is not here takes no part in the failing.
FAILURES = {
    "openat": ("ENOSPC", "EACCES", "EMFILE", "ENOMEM", "EINTR"),
    "newfstatat": ("EACCES", "ENOMEM"),
    "read": ("EINTR",),
    "pread64": ("EINTR",),
    "pwrite64": ("ENOSPC", "EINTR"),
    "write": ("EINTR",),
    "flock": ("EINTR", "ENOMEM", "ENOLCK"),
    "rename": ("ENOSPC", "EACCES"),
    "renameat": ("ENOSPC", "EACCES"),
    "linkat": ("EACCES", "EOPNOTSUPP"),
    "mkdirat": ("ENOSPC", "EACCES"),
    "mkdir": ("ENOSPC", "EACCES"),
    "unlinkat": ("EACCES",),
    "unlink": ("EACCES",),
    "pipe2": ("EMFILE",),
    "clone": ("EAGAIN", "ENOMEM"),
    "clone3": ("EAGAIN", "ENOMEM"),
    "vfork": ("EAGAIN", "ENOMEM"),
    "getdents64": ("ENOMEM",),
    "fcntl": ("EMFILE",),
    "readlink": ("EACCES", "ENOMEM"),
    "close": ("EINTR",),
    "close_range": ("EMFILE",),
    "wait4": ("EINTR",),
    "rt_sigtimedwait": ("EINTR",),
    "lseek": ("EINVAL",),
    "setitimer": ("EINVAL",),
    "pidfd_open": ("EMFILE", "ENOSYS"),
    "pidfd_send_signal": ("ESRCH",),
    "poll": ("EINTR",),
    "socket": ("EMFILE", "ENOMEM"),
    "bind": ("ENOMEM",),
    "listen": ("ENOMEM",),
    "connect": ("EAGAIN", "ENOMEM"),
}
NO_EIO = {
    "clone",
    "clone3",
    "vfork",
    "pipe2",
    "flock",
    "wait4",
    "rt_sigtimedwait",
    "fcntl",
    "lseek",
    "setitimer",
    "pidfd_open",
    "pidfd_send_signal",
    "poll",
    "socket",
    "bind",
    "listen",
    "connect",
}

pytestmark = pytest.mark.tool("strace", "flock")


def launch(lab, tag, *words, delay="0.05", prefix=()):
    return lab.start("-n", "job", *words, WITNESS, tag, delay, prefix=prefix, stdin=subprocess.DEVNULL)


def launch_traced(lab, scene, *strace):
    """The one that is tortured, in the scene; returns once the scene is over for it."""
    with scene as words:
        return launch(
            lab, "traced", *words, prefix=(*scene.inside, "strace", "-qq", "-o", str(lab.path / "trace"), *strace)
        )


def list_all(lab):
    rows, complete = collect(str(lab.directory), lab.environment.get("SOLO_VIA", "file"), [])
    assert complete
    return rows


def comes(condition, patience=PATIENCE):
    """Whether it comes true in time."""
    try:
        until(condition, patience)
    except AssertionError:
        return False
    return True


def list_waiting(lab):
    return [row["launcher"] for row in list_all(lab) if row["state"] == "waiting"]


def count_calls(lab, scene):
    """[(call, its how-manieth)] of a launcher, from its first touch of the directory on."""
    assert launch(lab, "warm").wait(PATIENCE) == 0  # so that Python has its .pyc files, and the name its directory
    clear(lab)
    stage = scene(lab)
    assert launch_traced(lab, stage, "-s", "200").wait(PATIENCE) == 0
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

    words = inside = ()  # of the launcher; what it is started by
    spared = ()  # calls that are not failed

    def __init__(self, lab):
        self.lab = lab

    @staticmethod
    def touch(lab):
        """What the first system call that matters has in it."""
        return str(lab.directory)

    def __enter__(self):
        return self.words

    def __exit__(self, *_):
        pass

    def is_over(self):
        """An orphan ends by itself; by sockets there is none."""
        log = self.lab.read_log()
        return log.count("start:traced") == log.count("end:traced") or "SOLO_VIA" in self.lab.environment

    def end(self):
        """End what is still there after the promises were checked, and check what is promised here alone."""

    def check(self, history):
        """What is promised here alone of the journal."""


class Tree(Alone):
    """It must end all that its command may leave behind, in time."""

    words = ("--tree", "--timeout", "60", "--kill-after", "5s")


class FullDisk(Alone):
    """Nothing more can be told in the journal; the rest goes on."""

    inside = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        """
        mount -t tmpfs -o size=4k tmpfs "$SOLO_DIR/.journals" && cat /dev/zero >"$SOLO_DIR/.journals/full" 2>/dev/null; exec "$@"
    """,
        "sh",
    )

    def __init__(self, lab):
        super().__init__(lab)
        if os.geteuid() != 0:
            pytest.skip("needs root")


class First(Alone):
    """Nobody ever guarded anything here: all directories are missing."""

    def __init__(self, lab):
        super().__init__(lab)
        shutil.rmtree(lab.directory)


class FullJournal(Alone):
    """The journal is full: the first event renames it."""

    def __init__(self, lab):
        super().__init__(lab)
        shutil.rmtree(lab.directory / ".journals", ignore_errors=True)
        launch(lab, "filler", delay="0").wait(PATIENCE)
        file = lab.find_journal("job")
        run = file.read_bytes()
        assert run.count(b"\n") == 2  # its start and its end
        self.count = journal.SIZE_LIMIT // len(run) + 1
        file.write_bytes(run * self.count)
        file.with_name(".journal.past").write_bytes(run * self.count)
        clear(lab)

    def check(self, history):
        """Two more runs, but for what the hit kept from being told: nothing else is lost or counted twice."""
        assert history.totals.runs - 2 * self.count in (1, 2)


class InLine(Alone):
    """A holder is there until the tortured one stands in line, or is gone."""

    words = ("--wait", "forever")

    def __enter__(self):
        self.holder = self.lab.start("-n", "job", WITNESS, "holder", "line")
        until(lambda: "start:holder" in self.lab.read_log())
        return self.words

    @property
    def traced(self):
        return self.lab.started[1]

    def is_in_line(self):
        return list_waiting(self.lab) or self.traced.poll() is not None

    def __exit__(self, *_):
        until(self.is_in_line)
        self.holder.stdin.close()


class SharedInLine(InLine):
    """A shared one behind an exclusive holder; the successor is exclusive again."""

    words = (*InLine.words, "--shared")


class AheadOfOthers(InLine):
    """Two others stand in line behind the tortured one, or where it stood, before the holder ends."""

    def __exit__(self, *_):
        until(self.is_in_line)
        self.behind = []
        for tag in ("second", "third"):
            self.behind.append(launch(self.lab, tag, "--wait", "forever", delay="0"))
            until(lambda: self.behind[-1].pid in list_waiting(self.lab))
        self.holder.stdin.close()

    def end(self):
        """In the order in which they came."""
        assert [process.wait(PATIENCE) for process in self.behind] == [0, 0]
        started = [line.partition(":")[2] for line in self.lab.read_log() if line.startswith("start:")]
        traced = ["traced"] if "traced" in started else []
        assert started[: 3 + len(traced)] == ["holder", *traced, "second", "third"], started


class HolderKilled(InLine):
    """The holder does not end, it is killed, and its command with it."""

    def __exit__(self, *_):
        until(self.is_in_line)
        for pid in (self.holder.pid, *find_children(self.holder.pid)):
            send(pid, signal.SIGKILL)


class BehindAnOrphan(InLine):
    """The holder is killed and its command goes on, until the tortured one waits for that, or is gone."""

    def __exit__(self, *_):
        until(self.is_in_line)
        self.before = self.read_sleep()
        self.holder.kill()
        self.holder.wait()
        comes(lambda: self.traced.poll() is not None or self.read_sleep() not in (None, self.before), 1)
        self.holder.stdin.close()

    def read_sleep(self):
        """The system call in which it sleeps; None if it does not."""
        try:
            [pid] = find_children(self.traced.pid)  # of strace
            return open(f"/proc/{pid}/syscall").read().split()[0] if read_state(pid) == "S" else None
        except (OSError, ValueError):
            return None  # it has just ended


class SlotsInLine(Alone):
    """Two of two slots are taken; one is given back, and the tortured one and its successor want it."""

    def __enter__(self):
        self.lab.common = ("--slots", "2")
        self.others = [
            self.lab.start("-n", "job", "--slots", "2", "--", "sh", "-c", "echo; read -r _") for _ in range(2)
        ]
        for other in self.others:
            other.stdout.readline()
        return ("--wait", "forever", "--slots", "2")

    def __exit__(self, *_):
        until(lambda: list_waiting(self.lab) or any(p.poll() is not None for p in self.lab.started[2:]))
        self.others[0].stdin.close()

    def end(self):
        self.others[1].stdin.close()


class SeveralInLine(InLine):
    """Several names, nested ones among them, of which one is held."""

    words = (*InLine.words, "-n", "a/b", "-n", "zoo")


class Replacing(InLine):
    """The holder never ends by itself; the tortured one ends it, if it lives long enough."""

    words = ("--replace", "--kill-after", "5s")

    def __exit__(self, *_):
        until(
            lambda: (
                any(p.poll() is not None for p in (self.traced, self.holder)) or "start:traced" in self.lab.read_log()
            )
        )
        self.holder.stdin.close()


class BySockets:
    """Without any file."""

    # strace passes over a call that it fails, and so the socket, which is the lock, would stay open. No kernel leaves it so.
    spared = ("close",)

    def __enter__(self):
        self.lab.use_sockets()
        return super().__enter__()

    @staticmethod
    def touch(lab):
        return "/job/gate"


class SocketsInLine(BySockets, InLine):
    pass


class SocketsAheadOfOthers(BySockets, AheadOfOthers):
    pass


class SocketSlotsInLine(BySockets, SlotsInLine):
    pass


class SocketsReplacing(BySockets, Replacing):
    pass


SCENES = [
    First,
    Alone,
    FullJournal,
    FullDisk,
    Tree,
    InLine,
    AheadOfOthers,
    HolderKilled,
    BehindAnOrphan,
    SharedInLine,
    SlotsInLine,
    SeveralInLine,
    Replacing,
    SocketsInLine,
    SocketsAheadOfOthers,
    SocketSlotsInLine,
    SocketsReplacing,
]


def ends(process):
    """Its status; None if it is stuck."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return None


def check_promises(lab, scene, process, hit):
    """After the hit, whatever it did: nothing overlapped, nothing is stuck, nothing is left, and nothing was claimed wrongly."""
    # Else the successor would make what `First` is about.
    until(lambda: process.poll() is not None or "SOLO_VIA" in lab.environment or (lab.directory / "job/.gate").exists())
    successor = launch(lab, "successor", "--wait", "forever", *lab.common, delay="0")
    message = f"{hit} (SOLO_SEED={tally.SEED})"
    status, succeeded = ends(process), ends(successor)
    tally.add(stuck=(status, succeeded).count(None))
    assert succeeded == 0 and status is not None, message + (
        "" if succeeded is None else successor.stderr.read().decode()
    )
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
    scene.end()
    left = [
        other.args for other in lab.started if ends(other) is None
    ]  # who ended has told the journal all of its line
    tally.add(stuck=len(left))
    assert not left, f"{message}: {left}"
    if "SOLO_VIA" not in lab.environment:
        scene.check(check_journal(lab, message, status))
    is_stuck = not comes(lambda: list_all(lab) == [])
    tally.add(stuck=int(is_stuck))
    assert not is_stuck, f"{message}: {list_all(lab)}"
    return status, stderr


def check_log(lab, log, message):
    """What the commands found from within: that each ran alone, was recorded, and had a greater token than the one before."""
    wrong = {
        "overlaps": [line for line in log if line.startswith("overlap")],
        "unrecorded": [line for line in log if line.startswith("unrecorded")],
        "disordered": tally.find_disordered(lab.read_tokens()),
    }
    started = sum(line.startswith("start:") for line in log)
    tally.add(launchers=len(lab.started), commands=started, **{what: len(lines) for what, lines in wrong.items()})
    assert not any(wrong.values()), f"{message}: {wrong}"


def check_journal(lab, message, status):
    """Every line is whole, the successor's run is there, and the tortured one's end if nothing kept it from being told."""
    # One that is killed between the renaming of a full one and the next leaves PAST alone.
    text = b"".join(file.read_bytes() for file in lab.directory.rglob(".journal*") if file.is_file())
    lines = list(
        dict.fromkeys(line for line in text.splitlines(True) if line.strip() and not line.startswith(b"totals "))
    )
    assert len(lines) == len(parse("job", b"".join(lines))[1]), message
    history = dict(find_histories(str(lab.directory), ["job"]))["job"]
    runs = {run.command[1]: run for run in history.list_runs()}
    assert runs[b"successor"].is_success, message
    if status == 0 and b"traced" in runs:
        assert runs[b"traced"].event in (STARTED, ENDED) and runs[b"traced"].code in (None, 0), message
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


def hit_each(lab, scene, injections):
    """Each of `injections` (what it does: how strace is told) in a run of its own: (what, status, stderr), once all is checked."""
    for hit in tally.choose(list(injections), SAMPLE):
        clear(lab)
        stage = scene(lab)
        call = injections[hit].partition(":")[0]
        process = launch_traced(lab, stage, "-e", f"trace={call}", "-e", f"inject={injections[hit]}")
        yield hit, *check_promises(lab, stage, process, hit)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_sigkill_at_every_system_call_breaks_no_promise(lab, scene):
    points = count_calls(lab, scene)
    assert len(points) > 40
    injections = {f"SIGKILL at {call} {nth}": f"{call}:signal=KILL:when={nth}" for call, nth in points}
    runs = killed = 0
    for _, status, _ in hit_each(lab, scene, injections):
        runs += 1
        killed += status == -9
        tally.add(**{"kills" if status == -9 else "missed": 1})
    # Nobody can say that it was killed if the kill never came: the meter itself must have hit.
    assert killed >= runs * 0.5 - 1  # some calls do not come in every run
    print(f"\n{scene.__name__}: {killed} kills in {runs} runs, no promise broken")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES)
def test_a_failure_of_any_system_call_breaks_no_promise(lab, scene):
    injections = {
        f"{error} at {call} {nth}": f"{call}:error={error}:when={nth}"
        for call, nth in count_calls(lab, scene)
        if call not in scene.spared
        for error in FAILURES.get(call, ()) + (() if call in NO_EIO or call not in FAILURES else ("EIO",))
    }
    runs = refused = injected = 0
    for hit, status, stderr in hit_each(lab, scene, injections):
        runs += 1
        untold = " at write " in hit and not stderr  # what failed may have been the line that says why
        beaten = status == 75 and ("successor" in stderr or untold)  # it started at the same time, and was faster
        assert status in (0, 125) or beaten, f"{hit}: {status} {stderr}"
        assert untold or (status in (75, 125)) == stderr.startswith("solo: "), f"{hit}: {status} {stderr!r}"
        refused += status == 125
        if "(INJECTED)" in (lab.path / "trace").read_text():
            injected += 1
            tally.add(faults={hit.split()[0]: 1})
        else:
            tally.add(missed=1)
    assert injected >= runs * 0.5 - 1, "too few failures were seen: the injection does not work"
    print(f"\n{scene.__name__}: {injected} failures in {runs} runs, {refused} refused with 125, no promise broken")


class ChildInLine(InLine):
    """Next in line stands someone who forked its command's process already: strace is attached to that before the holder ends."""

    def __init__(self, lab, strace=()):
        super().__init__(lab)
        self.strace = strace

    def run(self):
        """The launcher that was next in line."""
        with self:
            process = launch(self.lab, "traced", *self.words)
        return process

    def __exit__(self, *_):
        until(lambda: self.traced.pid in list_waiting(self.lab))
        if not comes(lambda: find_children(self.traced.pid), 2):
            self.holder.stdin.close()
            pytest.skip("its command's process is forked when its turn has come")
        [child] = find_children(self.traced.pid)
        tracer = subprocess.Popen(
            ["strace", "-qq", "-o", str(self.lab.path / "trace"), "-p", str(child), *self.strace],
            stderr=subprocess.DEVNULL,
        )
        until(
            lambda: read_state(child) in ("gone", "Z") or "TracerPid:\t0\n" not in open(f"/proc/{child}/status").read()
        )
        self.holder.stdin.close()
        tracer.wait(PATIENCE)


@pytest.mark.timeout(3600)
def test_sigkill_at_every_system_call_of_a_child_forked_before_its_turn_breaks_no_promise(lab, via):
    assert launch(lab, "warm").wait(PATIENCE) == 0
    clear(lab)
    assert ChildInLine(lab).run().wait(PATIENCE) == 0
    calls = re.findall(r"^(\w+)\(", (lab.path / "trace").read_text().partition("execve(")[0] + "execve(", flags=re.M)
    injections = {
        f"SIGKILL at {call} {nth}": f"{call}:signal=KILL:when={nth}"
        for at, call in enumerate(calls)
        if (nth := calls[: at + 1].count(call))
    }
    for hit in tally.choose(list(injections), SAMPLE):
        clear(lab)
        scene = ChildInLine(lab, ("-e", f"inject={injections[hit]}"))
        status, stderr = check_promises(lab, scene, scene.run(), hit)
        tally.add(kills=1, handovers={"SIGKILL at a system call of the child": 1})
        assert status in (0, 125, -signal.SIGKILL), f"{hit}: {status} {stderr}"


class HandOver(InLine):
    """The tortured one is next in line, someone stands behind it, and the holder ends; around that something is done to it, or
    to the command's process where that was forked before its turn. All by `chance`."""

    def __init__(self, lab, chance):
        super().__init__(lab)
        self.who, self.what = chance.choice(("launcher", "child")), chance.choice((signal.SIGKILL, signal.SIGSTOP))
        self.is_early, self.how = (
            chance.random() < 0.5,
            chance.choice(("ends", "is killed", "is killed with its command")),
        )
        self.after, self.stopped = chance.uniform(0, 0.008), chance.uniform(0, 0.03)
        self.killed_too = self.what == signal.SIGSTOP and chance.random() < 0.3
        self.hit, self.children = [], []

    def __str__(self):
        return f"{self.what.name} to the {self.who} {'before' if self.is_early else 'after'} the holder {self.how}"

    def join(self, tag):
        process = launch(self.lab, tag, *self.words)
        until(lambda: process.pid in list_waiting(self.lab))
        return process

    def run(self):
        """The launcher that was next in line."""
        with self:
            process, behind = self.join("traced"), self.join("behind")
            if self.is_early:
                self.strike()
            self.end_holder()
        if not self.is_early:
            time.sleep(self.after)
            self.strike()
        if self.what == signal.SIGSTOP:
            time.sleep(self.stopped)
            if self.killed_too:
                process.kill()
            for pid in self.hit:
                send(pid, signal.SIGCONT)
        assert ends(behind) == 0, self
        return process

    def end_holder(self):
        """It ends as its stdin does, once the scene is left."""
        if self.how.endswith("command"):
            send(find_children(self.holder.pid)[0], signal.SIGKILL)
        if self.how != "ends":
            self.holder.kill()

    def strike(self):
        self.children = find_children(self.traced.pid)
        self.hit = [self.traced.pid] if self.who == "launcher" else self.children
        where = "in line" if self.is_early else "at its turn"
        for pid in self.hit:
            send(pid, self.what)
            tally.add(
                kills=int(self.what == signal.SIGKILL), handovers={f"{self.what.name} to the {self.who} {where}": 1}
            )

    def is_over(self):
        return self.who == "child" or super().is_over()  # its end may not have come

    def end(self):
        until(lambda: all(read_state(pid) in ("gone", "Z") for pid in self.children))
        log = self.lab.read_log()
        assert log.count("start:traced") <= 1 == log.count("start:behind") == log.count("end:behind"), self


@pytest.mark.timeout(3600)
def test_whatever_is_done_at_a_hand_over_breaks_no_promise(lab, via):
    assert launch(lab, "warm").wait(PATIENCE) == 0
    for number in tally.rounds(16, 400):
        tally.note(number)
        clear(lab)
        scene = HandOver(lab, tally.make_random("hand-over", number))
        status, stderr = check_promises(lab, scene, scene.run(), f"{number}: {scene}")
        may_die = scene.what == signal.SIGKILL or scene.killed_too
        assert status in ({0, 125, -signal.SIGKILL} if may_die else {0}), f"{number}: {scene}: {status} {stderr}"


CROWD, AT_ONCE = (4000, 400) if tally.WHOLE else (400, 400)  # launchers, and how many of them arrive in a second
JOINED = 90  # seconds from the first arrival


@pytest.mark.timeout(900)
def test_a_crowd_that_arrives_at_once_joins_in_time_and_runs_once_each(lab):
    """All wait for one held name. Each has its seat within JOINED seconds, none is refused, and each runs once."""
    holder, errors = lab.hold("job"), lab.path / "errors"
    begin = time.monotonic()
    words = [lab.script, "-w", "forever", "-n", "job", "--", "sh", "-c", "echo {} >>$LAB/log"]
    crowd = lab.start_python("arrivals.py", CROWD, AT_ONCE, errors, *words)
    try:
        arrived = float(read_line(crowd, 600))
        late = arrived - CROWD / AT_ONCE  # a machine that does other things cannot start them as fast
        until(lambda: lab.count_waiting("job") == CROWD, max(0, begin + late + JOINED - time.monotonic()))
        joined = time.monotonic() - begin
        holder.communicate()
        statuses = Counter(crowd.stdout.readline().split())
    finally:
        crowd.terminate()
    took = time.monotonic() - begin

    assert (statuses, errors.read_bytes()) == ({b"0": CROWD}, b"")
    assert sorted(map(int, lab.read_log())) == list(range(CROWD))
    tally.add(launchers=CROWD, commands=CROWD)
    print(f"\n{CROWD} arrived in {arrived:.1f} s, had joined after {joined:.1f} s, and all had run after {took:.1f} s")


def test_the_torture_would_see_an_overlap(lab):
    """The meter: two witnesses that nothing keeps apart."""
    environment = {**lab.environment, "SOLO_DIR": "/nonexistent"}
    holder = "exec 9>>$LAB/alone; flock 9; echo $$ >$LAB/alone; echo; read line"
    first = subprocess.Popen(["sh", "-c", holder], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    first.stdout.readline()

    subprocess.run([WITNESS, "second", "0"], env=environment, stderr=subprocess.DEVNULL, timeout=PATIENCE)

    first.communicate()
    assert {"overlap:second", "unrecorded:second"} <= set(lab.read_log())
    assert tally.find_disordered([1, 3, 3, 2]) == [3, 2]


@pytest.mark.timeout(600)
def test_the_torture_fails_where_solo_is_broken_and_says_how_to_see_it_again(tmp_path):
    """The meter of the whole: a solo whose holds are in nobody's way."""
    for folder in ("solo", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / "solo/modes.py", "a") as rule:
        rule.write("\n\ndef find_conflicts(*_):\n    return []\n")
    words = [
        sys.executable,
        "tests/torture.py",
        "--minutes",
        "1",
        "--seed",
        "1",
        "--only",
        "sigkill",
        "--only",
        "[InLine]",
    ]

    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 1 and done.stdout.startswith("make torture MINUTES=1 SEED=1\n"), done.stderr
    replay = next(line for line in done.stdout.splitlines() if line.startswith("replay: "))
    *variables, make, test, arguments = shlex.split(replay.removeprefix("replay: "))
    [node] = shlex.split(arguments.removeprefix("ARGS="))
    assert (make, test) == ("make", "test") and variables[2].startswith("SOLO_POINT=SIGKILL at ")
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", node],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **dict(variable.split("=", 1) for variable in variables)},
    )
    assert again.returncode == 1 and f"{variables[2].partition('=')[2]} (" in again.stdout, again.stdout


def test_evidence_shows_what_the_torture_found():
    from torture import RECORD, render

    [told] = re.findall(r"<!-- torture -->\n(.*?)\n<!-- end -->", (ROOT / "docs/evidence.md").read_text(), flags=re.S)

    assert told == render(json.loads(RECORD.read_text()))
