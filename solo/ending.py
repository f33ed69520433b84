"""How our own command is made to end: after --timeout, and with --tree together with everything that descends from it. Cold.

With --tree the launcher is the subreaper of the command, so what outlives its parent becomes our child, whatever it did to
its session and group.
"""

import posix
from _signal import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM
from time import monotonic

from solo.errors import UsageError
from solo.identity import read_stat
from solo.kernel import FOREVER, say
from solo.prctl import become_subreaper
from solo.processes import end_all, find_descendants
from solo.words import format_duration

TERMINATING = (SIGTERM, SIGINT, SIGHUP, SIGQUIT)
LONGEST_WAIT = 1e6  # seconds
RECHECK = 0.1  # seconds: what is being killed may still fork


class Ending:
    """`is_timed_out`: did we end it because its time was over? `deadline` is when the next step is due, or FOREVER."""

    def __init__(self, name: str, timeout: float, kill_after: float, is_tree: bool, world):
        if not timeout > 0:
            raise UsageError("--timeout 0: that is no time at all")
        self.name = name
        self.timeout = timeout
        self.kill_after = kill_after
        self.is_tree = is_tree
        self.world = world
        self.deadline = monotonic() + timeout  # begun anew when the command starts
        self.is_timed_out = self.is_told = self.is_asked = False
        self.strangers = ()
        if is_tree:
            become_subreaper()
            self.strangers = [pid for pid, _ in find_descendants(posix.getpid())]  # from before we were executed

    def begin(self):
        """The command starts now."""
        self.deadline = monotonic() + self.timeout

    def find_left(self):
        """Seconds until the next step, or None."""
        return None if self.deadline == FOREVER else min(LONGEST_WAIT, max(0.0, self.deadline - monotonic()))

    def advance(self, child):
        """A deadline has passed: ask it to end, then make it end."""
        if monotonic() < self.deadline:
            return
        if not self.is_asked:
            self.is_timed_out = True
            span = format_duration(self.timeout) if self.timeout >= 1 else f"{self.timeout * 1000:.0f}ms"
            say(f"{self.name}: timed out after {span}: ending pid {child.pid}")
            self.ask(child)
        else:
            self.send(SIGKILL, child)
            self.deadline = monotonic() + RECHECK if self.is_tree else FOREVER

    def ask(self, child):
        self.is_asked = True
        self.deadline = monotonic() + self.kill_after
        self.send(SIGTERM, child)

    def hear(self, info, was_forwarded: bool, child):
        """A signal came. One that tells to end is for the whole tree, and then what of it outlives the command must end."""
        if not self.is_tree:
            return
        signal, from_kernel = info.si_signo, info.si_code > 0
        if signal in TERMINATING and (was_forwarded or from_kernel):
            # What came from the terminal, all of its foreground group have got.
            reached = posix.getpgrp() if from_kernel else None
            end_all([it for it in self.find_tree() if it[0] != child.pid and get_group(it[0]) != reached], self.world, signal)
        if signal in TERMINATING and (not from_kernel or signal == SIGHUP or child.status is not None):
            self.is_told = True  # a Ctrl-C may mean something else to the command
        if self.is_told and child.status is not None and not self.is_asked:
            self.ask(child)

    def send(self, signal: int, child):
        if self.is_tree:
            end_all(self.find_tree(), self.world, signal)
        elif child.status is None:
            end_all([(child.pid, read_stat(child.pid).start)], self.world, signal)

    def find_tree(self) -> list:
        return find_descendants(posix.getpid(), self.strangers)

    def has_descendants(self) -> bool:
        """Is anything left of the tree?"""
        if not self.is_tree:
            return False
        try:
            posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
        except ChildProcessError:
            return False
        return bool(self.find_tree()) if self.strangers else True


def get_group(pid: int):
    try:
        return posix.getpgid(pid)
    except OSError:
        return None
