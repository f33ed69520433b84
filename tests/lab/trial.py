"""One wrapper with one lock and one log of what its jobs did: how to start, see, signal and await them.

A trial has a pid namespace and mounts of its own, with all its processes: none is left behind, and pids can be chosen.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60  # seconds after which something is stuck; never a measurement
MARK = signal.SIGRTMIN  # sent last: signals that wait are taken in the order of their numbers
JOB = Path(__file__).resolve().parent / "job.py"


class Stuck(Exception):
    """What a wrapper should have done by now."""


class Trial:
    def __init__(self, peer, place):
        self.peer = peer
        self.place = place
        self.locks = place / "locks"
        self.locks.mkdir()
        self.log = place / "log"
        for file in (self.log, place / "alone", place / "file"):
            file.touch()

    def start(self, what, form="skip", tag="-", prefix=(), locks=None, job=(sys.executable, "-IS", JOB)):
        """The peer in one of its forms before a job that stays, ends, fails, or what else job.py can."""
        locks = locks or self.locks
        words = [word.replace("{lock}", f"{locks}/job").replace("{name}", "job") for word in getattr(self.peer, form)]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SOLO_", "XDG_"))},
            "HOME": str(locks), "SOLO_DIR": str(locks), "LAB_WHAT": what, "LAB_TAG": str(tag),
        }
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen([*prefix, *words, *job, self.place], env=environment, **streams)

    def hold(self, what="stay"):
        """(wrapper, pid of its job), which runs."""
        before = len(self.read("started"))
        wrapper = self.start(what)
        if not self.comes_true(lambda: len(self.read("started")) > before or wrapper.poll() is not None):
            raise TimeoutError("no job was started")
        if len(self.read("started")) == before:
            raise RuntimeError(f"no job was started: {wrapper.stdout.read().decode(errors='replace')}")
        return wrapper, self.read("started")[-1]

    def stand_in_line(self, tag="-", prefix=()):
        """One who waits, and does by now: all its processes sleep, and go on doing so."""
        wrapper = self.start("end", "wait", tag, prefix)
        before = None
        while (look := look_asleep(wrapper.pid)) is None or look != before:
            if wrapper.poll() is not None:
                raise Stuck("does not wait")
            before = look
            time.sleep(0.05)
        return wrapper

    def lets_in(self):
        """Whether one who comes now runs."""
        before = len(self.read("started"))
        self.finish(self.start("end"))
        return len(self.read("started")) > before

    def finish(self, wrapper):
        """(its status, all it said), at its end."""
        said = b""
        while select.select([wrapper.stdout], [], [], PATIENCE)[0]:
            part = os.read(wrapper.stdout.fileno(), 65536)
            if not part:
                break
            said += part
        self.until(lambda: wrapper.poll() is not None, "does not end")
        return wrapper.returncode, said.decode(errors="replace").strip()

    def end_job(self, wrapper, job):
        send(job, signal.SIGUSR1)
        self.until(lambda: not is_alive(job) and wrapper.poll() is not None, "does not end")

    def read(self, word):
        """The numbers that the jobs wrote after `word`, oldest first."""
        return [int(line.split()[1]) for line in self.log.read_text().splitlines() if line.startswith(word + " ")]

    def read_tags(self):
        """Whose jobs ran, oldest first."""
        return [line.split()[2] for line in self.log.read_text().splitlines() if line.startswith("started ")]

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
    """Unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def read_stat(pid):
    """(state, parent) of a process; ("gone", 0) if there is none."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:2]
    except OSError:
        return "gone", 0
    return state, int(parent)


def is_alive(pid):
    return read_stat(pid)[0] not in ("Z", "X", "gone")


def find_tree(pid):
    """It and all below it that live, oldest first."""
    parents = {int(name): read_stat(name)[1] for name in os.listdir("/proc") if name.isdigit() and is_alive(name)}
    tree = [pid]
    for member in tree:
        tree += sorted(child for child, parent in parents.items() if parent == member)
    return tree


def look_asleep(pid):
    """How often each process of a tree has gone to sleep; None while one does not sleep."""
    looks = []
    for member in find_tree(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            return None
        if "State:\tS" not in status:
            return None
        looks.append((member, status.partition("\nvoluntary_ctxt_switches:")[2]))
    return looks
