"""How our own command is made to end: after --timeout, and with --tree together with everything that descends from it. Cold.

With --tree the launcher is the subreaper of the command, so what outlives its parent becomes our child, whatever it did to
its session and group. The command itself is ours to signal until it is reaped; all others are verified by start time.
"""

import posix
from _signal import SIG_IGN, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, getsignal
from time import monotonic

from solo.errors import UsageError
from solo.identity import is_stopped, walk_parents
from solo.kernel import FOREVER, say_promptly
from solo.process.prctl import become_subreaper
from solo.process.tree import find_children, find_descendants, send
from solo.text.describe import format_duration

ORDERS = (SIGTERM, SIGINT, SIGHUP, SIGQUIT)  # signals that tell a program to end
LONGEST_WAIT = 1e6  # seconds
LOOKS = 6  # after SIGKILL, each twice as long after the one before; then only deaths wake us
FIRST_LOOK = 0.1  # seconds


class Ending:
    """`deadline` is when the next step is due, or FOREVER; `stage` is the step that was taken last.

    `is_timed_out`: did we end it because its time was over? `is_ordered`: were we told to end? With an engine `lease` is
    what it gave us, and `loss` why that is ours no longer, None until then.
    """

    def __init__(self, name: str, timeout: float, kill_after: float, is_tree: bool, is_leased: bool = False):
        if not timeout > 0:
            raise UsageError("--timeout 0: that is no time at all")
        self.name = name
        self.timeout = timeout
        self.kill_after = kill_after
        self.is_tree = is_tree
        self.lease = self.loss = None
        self.deadline = FOREVER
        self.is_timed_out = self.is_ordered = False
        self.stage = None  # then SIGTERM, then SIGKILL
        self.looks = 0
        self.asked = set()  # who of the tree has got SIGTERM
        self.strangers = set()  # our children from before we were executed
        if is_tree or is_leased:
            become_subreaper()
            self.strangers = set(find_children(posix.getpid()))

    def begin(self, pid: int):
        """The command starts now, as `pid`."""
        self.deadline = monotonic() + self.timeout
        if self.lease is not None:
            self.lease.begin(pid)

    def find_left(self):
        """Seconds until the next step, or None."""
        left = self.deadline - monotonic()
        if self.is_lost():
            left = 0.0
        elif self.lease is not None and self.loss is None:
            left = 0.0 if self.is_asked() else min(left, self.lease.find_left())
        return None if left == FOREVER else min(LONGEST_WAIT, max(0.0, left))

    def advance(self, child):
        """The deadline may have passed: ask for the end, then enforce it."""
        if self.lease is not None and (self.loss is None or self.is_lost()):
            loss = self.lease.find_loss()
            if loss is not None:
                return self.give_up(loss, child)
            if self.is_asked():
                self.ask(child)
                return say_promptly(f"{self.name}: ending pid {child.pid}, as {self.lease.asked} asks")
        if monotonic() < self.deadline:
            return
        if self.stage is None:
            self.is_timed_out = True
            self.ask(child)
            span = format_duration(self.timeout) if self.timeout.is_integer() else f"{self.timeout * 1000:.0f}ms"
            who = f"pid {child.pid}" if child.status is None else "what it left behind"
            say_promptly(f"{self.name}: timed out after {span}: ending {who}")
        else:
            self.kill(child)

    def is_lost(self) -> bool:
        """Is the lease gone for certain, and the command not yet killed for it? A grace that has begun does not go on."""
        return self.lease is not None and self.lease.lost is not None and self.stage != SIGKILL

    def give_up(self, loss: str, child):
        """The lease is or soon will be another's: with all that descends from it the command ends before that, or at once if it
        is.
        """
        self.loss, self.is_tree = loss, True
        due = monotonic() + self.lease.find_life()
        if self.lease.lost:
            self.kill(child)
        elif self.stage is None:
            self.ask(child)
            self.deadline = due
        else:
            self.send(SIGTERM, child)
            self.deadline = min(self.deadline, due)
        say_promptly(f"{self.name}: {self.loss}: ending pid {child.pid}")

    def is_asked(self) -> bool:
        """Has somebody at the engine asked for our end, and we have not begun with it?"""
        return self.stage is None and self.lease is not None and self.lease.asked is not None

    def ask(self, child):
        self.stage = SIGTERM
        self.deadline = monotonic() + self.kill_after
        if child.status is None:
            posix.kill(child.pid, SIGTERM)
            if is_stopped(child.pid):
                posix.kill(child.pid, SIGCONT)
        self.send(SIGTERM, child)

    def kill(self, child):
        self.stage = SIGKILL
        if child.status is None:
            try:
                posix.kill(child.pid, SIGKILL)
            except OSError as error:
                say_promptly(f"{self.name}: can not end pid {child.pid}: {error.strerror}")
        self.send(SIGKILL, child)
        # What forks while it is being killed leaves children that become ours when it dies: each death is a look, too.
        self.deadline = monotonic() + FIRST_LOOK * 2 ** self.looks if self.is_tree and self.looks < LOOKS else FOREVER
        self.looks += 1

    def hear(self, info, was_forwarded: bool, child):
        """A signal came: if it tells us to end, that is for the whole tree, and for what of it outlives the command."""
        if not self.is_tree:
            return
        if info.si_signo == SIGCHLD:
            if self.stage == SIGKILL:
                self.send(SIGKILL, child)
        elif self.is_order(info, child):
            self.is_ordered = True
            if was_forwarded:
                self.send(info.si_signo, child)
        if self.is_ordered and child.status is not None and self.stage is None:
            self.ask(child)

    def is_order(self, info, child) -> bool:
        """SIGHUP from a process mostly means something else, and a Ctrl-C is the command's to understand."""
        signal = info.si_signo
        if signal not in ORDERS or getsignal(signal) == SIG_IGN:
            return False
        if info.si_code > 0:
            return signal == SIGHUP or child.status is not None
        return signal != SIGHUP and not self.is_ours(info.si_pid)

    def is_ours(self, pid: int) -> bool:
        """Does it descend from us?"""
        return any(process[0] == posix.getpid() for process in walk_parents(pid))

    def send(self, signal: int, child):
        """To all of the tree but the command. Nobody gets SIGTERM twice: for some the second means at once."""
        if not self.is_tree:
            return
        for process in find_descendants(posix.getpid(), self.strangers):
            if process[0] == child.pid and child.status is None or signal == SIGTERM and process in self.asked:
                continue
            if signal == SIGTERM:
                self.asked.add(process)
            send(process, signal)

    def has_descendants(self) -> bool:
        """Is anything left of the tree? As subreaper, whatever lives of it has one of our children above it. Raises OSError."""
        if not self.is_tree:
            return False
        if self.strangers and not self.strangers.issuperset(find_children(posix.getpid())):
            return True
        try:
            # Also what has ended while we looked, and may have left children: SIGCHLD will come.
            ended = posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
        except ChildProcessError:
            return False
        return not self.strangers or ended is not None
