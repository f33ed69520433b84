"""One wrapper with one lock and one log of its jobs: start, observe, signal and await them.

A trial runs in its own pid and mount namespaces: no process outlives it, and it can choose pids.
"""

import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

PATIENCE = 60  # seconds until a process counts as stuck; never a measurement
MARK = signal.SIGRTMIN  # sent last: pending signals are delivered in the order of their numbers
JOB = Path(__file__).resolve().parent / "job.py"
GOOD, NOTE, BAD, TWO, NONE, UNKNOWN = "good", "note", "bad", "two", "none", "unknown"
VERDICTS = {  # on a scene, from best to worst: their sign and meaning
    GOOD: ("✓", "good"),
    NOTE: ("~", "worth knowing"),
    BAD: ("✗", "fails"),
    TWO: ("2", "two jobs ran at once"),
    NONE: ("–", "has no such mode"),
    UNKNOWN: ("?", "could not be measured here"),
}


class Outcome(NamedTuple):
    verdict: str
    words: str


good, note, bad = (partial(Outcome, verdict) for verdict in (GOOD, NOTE, BAD))


class Stuck(Exception):
    """The wrapper did not react in time. The message names the missing reaction."""


class Trial:
    def __init__(self, peer, place):
        self.peer = peer
        self.place = place
        self.locks = place / "locks"
        self.locks.mkdir()
        self.log = place / "log"
        for file in (self.log, place / "alone", place / "file"):
            file.touch()

    def start(
        self, action, form="skip", tag="-", prefix=(), locks=None, job=(sys.executable, "-IS", JOB)
    ):
        """Start the peer before a job. `form` is skip, wait, quiet or tree; `action` is an action
        of job.py.
        """
        locks = locks or self.locks
        words = [
            word.replace("{lock}", f"{locks}/job").replace("{name}", "job")
            for word in getattr(self.peer, form)
        ]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SOLO_", "XDG_"))
        }
        places = dict.fromkeys(("HOME", "SOLO_DIR"), str(locks))
        environment = {**kept, **places, "LAB_ACTION": action, "LAB_TAG": str(tag)}
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        return subprocess.Popen([*prefix, *words, *job, self.place], env=environment, **streams)

    def hold(self, action="stay"):
        """Start a wrapper; return (wrapper, pid of its job) once the job runs. Raises if it does
        not start.
        """
        before = len(self.read("started"))
        wrapper = self.start(action)
        if not self.comes_true(
            lambda: len(self.read("started")) > before or wrapper.poll() is not None
        ):
            raise TimeoutError("no job was started")
        if len(self.read("started")) == before:
            raise RuntimeError(
                f"no job was started: {wrapper.stdout.read().decode(errors='replace')}"
            )
        return wrapper, self.read("started")[-1]

    def start_waiter(self, tag="-", prefix=()):
        """Start a wrapper that waits; return it once all its processes stay asleep."""
        wrapper = self.start("end", "wait", tag, prefix)
        before = None
        while (sleeps := count_sleeps(wrapper.pid)) is None or sleeps != before:
            if wrapper.poll() is not None:
                raise Stuck("does not wait")
            before = sleeps
            time.sleep(0.05)
        return wrapper

    def admits_next(self, form="skip"):
        """Whether a wrapper that starts now runs its job."""
        before = len(self.read("started"))
        self.finish(self.start("end", form))
        return len(self.read("started")) > before

    def finish(self, wrapper):
        """Wait for its end; return (status, output)."""
        output = b""
        while select.select([wrapper.stdout], [], [], PATIENCE)[0]:
            part = os.read(wrapper.stdout.fileno(), 65536)
            if not part:
                break
            output += part
        self.until(lambda: wrapper.poll() is not None, "does not end")
        return wrapper.returncode, output.decode(errors="replace").strip()

    def end_job(self, wrapper, job):
        send(job, signal.SIGUSR1)
        self.until(lambda: not is_alive(job) and wrapper.poll() is not None, "does not end")

    def read(self, word):
        """Return the numbers that jobs logged after `word`, oldest first."""
        return [
            int(line.split()[1])
            for line in self.log.read_text().splitlines()
            if line.startswith(word + " ")
        ]

    def read_tags(self):
        """Return the tags of the jobs that ran, oldest first."""
        return [
            line.split()[2]
            for line in self.log.read_text().splitlines()
            if line.startswith("started ")
        ]

    def until(self, condition, otherwise):
        if not self.comes_true(condition):
            raise Stuck(otherwise)

    def comes_true(self, condition, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


def send(pid, number):
    """Send a signal. Ignore a process that has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def read_stat(pid):
    """Return (state, parent) of a process, or ("gone", 0) if there is none."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:2]
    except OSError:
        return "gone", 0
    return state, int(parent)


def is_alive(pid):
    return read_stat(pid)[0] not in ("Z", "X", "gone")


def find_tree(pid):
    """Return a process and its living descendants, oldest first."""
    parents = {
        int(name): read_stat(name)[1]
        for name in os.listdir("/proc")
        if name.isdigit() and is_alive(name)
    }
    tree = [pid]
    for member in tree:
        tree += sorted(child for child, parent in parents.items() if parent == member)
    return tree


def count_sleeps(pid):
    """Return how often each process of a tree went to sleep, or None while any is awake."""
    sleeps = []
    for member in find_tree(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            return None
        if "State:\tS" not in status:
            return None
        sleeps.append((member, status.partition("\nvoluntary_ctxt_switches:")[2]))
    return sleeps
