"""End the command after --timeout or when its lease is lost, with --tree and all descendants; wake
for --notify.

With --tree the launcher is the subreaper of the command: an orphaned descendant becomes its child,
whatever its session and group. The command's pid is safe to signal until it is reaped; every other
process is verified by its start time.
"""

import posix
from _signal import SIG_IGN, SIGCHLD, SIGCONT, SIGHUP, SIGKILL, SIGTERM, getsignal
from time import monotonic, sleep

from solo.errors import UsageError
from solo.identity import Process, descends_from, is_stopped, read_stat
from solo.kernel import ENDING, FOREVER, say_promptly
from solo.process.prctl import become_subreaper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _signal import struct_siginfo
    from collections.abc import Callable

    from solo.engines.lease import Lease
    from solo.plan import Plan
    from solo.process.pair import Lower
    from solo.start import Child

LONGEST_WAIT = 1e6  # seconds
WALL = 0x40000000  # of wait4(2): children of clone(2) that send no signal at their end, too
LOOKS = 6  # after SIGKILL, each after twice the pause; then only deaths wake the launcher
FIRST_LOOK = 0.1  # seconds
CLOCK_TICK = 0.01  # seconds; the unit of start times


def check_limits(plan: "Plan") -> None:
    """Raise UsageError for a time limit that no command could meet."""
    if plan.timeout is not None and not plan.timeout > 0:
        raise UsageError("--timeout must be more than 0")


class Termination:
    """The end of one command, step by step. `deadline`: when the next step is due, or FOREVER;
    `stage`: the last step.

    `is_timed_out`: --timeout has passed. `is_ordered`: the launcher got a signal to end.
    `is_refused`: the kernel refused a signal to the command. `loss`: why the `lease` of an engine
    is lost, None until then. `may_end`: an option or a lease can end the command. `call` is called
    at `call_at`, and returns when to call it again, or FOREVER.
    """

    def __init__(self, plan: "Plan") -> None:
        check_limits(plan)
        self.name = plan.names[0]
        self.timeout = FOREVER if plan.timeout is None else plan.timeout
        self.kill_after = plan.kill_after
        self.signal = plan.signal or SIGTERM
        self.is_tree = plan.tree
        self.may_end = plan.timeout is not None or plan.tree or plan.is_remote
        self.call: Callable[[], float] | None = None
        self.call_at = FOREVER
        self.lease: Lease | None = None
        self.loss: str | None = None
        self.deadline = FOREVER
        self.is_timed_out = self.is_ordered = self.is_refused = False
        self.stage: int | None = None  # then SIGTERM, then SIGKILL
        self.looks = 0
        self.terminated: set[Process] = set()  # descendants that got SIGTERM
        self.strangers: set[Process] = set()  # children from before solo was executed, and a holder
        if plan.tree or plan.is_remote:
            become_subreaper()
            try:
                posix.waitpid(-1, posix.WNOHANG | WALL)  # reading all of /proc takes longer
                from solo.process.tree import find_children

                self.strangers = set(find_children(posix.getpid()))
                # the command starts in a later tick: other processes know strangers by that
                sleep(CLOCK_TICK)
            except ChildProcessError:
                pass

    def spare(self, pid: int, pair: "Lower | None") -> None:
        """Take our child `pid` for no descendant of the command, in both processes of a `pair`.
        Raises OSError.
        """
        stranger = pid, read_stat(pid).start
        self.strangers.add(stranger)
        if pair is not None:
            pair.say("spare", *stranger)

    def begin(self, pid: int) -> None:
        """Start the time limit and the lease of the command `pid`."""
        self.deadline = monotonic() + self.timeout
        if self.lease is not None:
            self.lease.begin(pid)

    def find_left(self) -> "float | None":
        """Return the seconds until the next step is due, or None."""
        left = min(self.deadline, self.call_at) - monotonic()
        if self.is_lost() or self.is_asked():
            left = 0.0
        elif self.lease is not None and self.loss is None:
            left = min(left, self.lease.find_left())
        return None if left == FOREVER else min(LONGEST_WAIT, max(0.0, left))

    def advance(self, child: "Child") -> None:
        """Take the next step if it is due: SIGTERM, then SIGKILL."""
        if self.call is not None and monotonic() >= self.call_at:
            self.call_at = FOREVER  # if it fails
            self.call_at = self.call()
        if self.lease is not None and (self.loss is None or self.is_lost()):
            loss = self.lease.find_loss()
            if loss is not None:
                return self.give_up(self.lease, loss, child)
            if self.is_asked():
                self.ask(child)
                return say_promptly(
                    f"{self.name}: ending pid {child.pid}, as {self.lease.asked} asks"
                )
        if monotonic() < self.deadline:
            return
        if self.stage is not None:
            return self.kill(child)
        from solo.text.describe import format_duration

        self.is_timed_out = True
        self.ask(child, self.signal)
        span = (
            format_duration(self.timeout)
            if self.timeout.is_integer()
            else f"{self.timeout * 1000:.0f}ms"
        )
        left = f"pid {child.pid}" if child.status is None else "what it left behind"
        say_promptly(f"{self.name}: timed out after {span}: ending {left}")

    def is_lost(self) -> bool:
        """Return whether the lease is certainly gone and the command not yet killed. That ends a
        grace that has begun.
        """
        return self.lease is not None and self.lease.lost is not None and self.stage != SIGKILL

    def give_up(self, lease: "Lease", loss: str, child: "Child") -> None:
        """End the command and all descendants before another contender can get the lease; at once
        if it is lost.
        """
        self.loss = loss
        self.is_tree = True
        due = monotonic() + lease.find_life()
        if lease.lost:
            self.kill(child)
        elif self.stage is None:
            self.ask(child)
            self.deadline = due
        else:
            self.send(SIGTERM, child)
            self.deadline = min(self.deadline, due)
        say_promptly(f"{self.name}: {self.loss}: ending pid {child.pid}")

    def is_asked(self) -> bool:
        """Return whether a contender at the engine asked the command to end, and no step was taken
        yet.
        """
        return self.stage is None and self.lease is not None and self.lease.asked is not None

    def ask(self, child: "Child", signal: int = SIGTERM) -> None:
        """Send the signal, and SIGCONT to a stopped command; SIGKILL is due after the grace."""
        self.stage = SIGTERM
        self.deadline = monotonic() + self.kill_after
        self.send_to_command(signal, child)
        self.send(signal, child)

    def kill(self, child: "Child") -> None:
        self.stage = SIGKILL
        self.send_to_command(SIGKILL, child)
        self.send(SIGKILL, child)
        # A process that forks while it is killed leaves children to the launcher: look again, also
        # at each death.
        self.deadline = (
            monotonic() + FIRST_LOOK * 2**self.looks
            if self.is_tree and self.looks < LOOKS
            else FOREVER
        )
        self.looks += 1

    def hear(self, info: "struct_siginfo", was_forwarded: bool, child: "Child") -> None:
        """Pass a signal that orders the end on to the whole tree, also after the command has
        ended.
        """
        if self.lease is not None and info.si_signo in ENDING:
            self.lease.ordered = info.si_signo
        if not self.is_tree:
            return
        if info.si_signo == SIGCHLD:
            if self.stage == SIGKILL:
                self.send(SIGKILL, child)
        elif self.is_order(info, child):
            self.is_ordered = True
            if was_forwarded:
                self.send(info.si_signo, child)
                if child.status is None and is_stopped(child.pid):
                    posix.kill(child.pid, SIGCONT)  # by Ctrl-Z, on which the launcher does not stop
        if self.is_ordered and child.status is not None and self.stage is None:
            self.ask(child)

    def is_order(self, info: "struct_siginfo", child: "Child") -> bool:
        """Return whether the signal orders the end. SIGHUP from a process often means "reload";
        Ctrl-C is for the command.
        """
        signal = info.si_signo
        if signal not in ENDING or getsignal(signal) == SIG_IGN:
            return False
        if info.si_code > 0:
            return signal == SIGHUP or child.status is not None
        return signal != SIGHUP and not descends_from(info.si_pid, posix.getpid())

    def send_to_command(self, signal: int, child: "Child") -> None:
        """Signal the command. Report once that it cannot be ended, as one that runs as another
        user.
        """
        if child.status is not None:
            return
        try:
            posix.kill(child.pid, signal)
            if signal != SIGKILL and is_stopped(child.pid):
                posix.kill(child.pid, SIGCONT)
        except OSError as error:
            if not self.is_refused:
                self.is_refused = True
                say_promptly(f"{self.name}: cannot end pid {child.pid}: {error.strerror}")

    def send(self, signal: int, child: "Child") -> None:
        """Signal all of the tree but the command, by SIGTERM only once: to some programs a second
        one means "at once".
        """
        if not self.is_tree:
            return
        from solo.process.tree import find_descendants, send

        for process in find_descendants(posix.getpid(), self.strangers):
            if (process[0] == child.pid and child.status is None) or (
                signal == SIGTERM and process in self.terminated
            ):
                continue
            if signal == SIGTERM:
                self.terminated.add(process)
            send(process, signal)

    def has_descendants(self) -> bool:
        """Return whether a descendant lives: it has a child of the launcher, the subreaper, as
        ancestor. Raises OSError.
        """
        if not self.is_tree:
            return False
        # Count a child that has just ended: it may have left children, and SIGCHLD will come.
        try:
            if look_for_end() is not None:
                return True
            from solo.process.tree import find_children, is_holder

            children = find_children(posix.getpid())
            spared = self.strangers.union([child for child in children if is_holder(child[0])])
            return not spared.issuperset(children) or look_for_end() is not None or not spared
        except ChildProcessError:
            return False


def look_for_end(pid: "int | None" = None) -> "posix.waitid_result | None":
    """Return the ending of a child, or of that one, not yet reaped, or None. Raises
    ChildProcessError if there is no such child.
    """
    kind = posix.P_ALL if pid is None else posix.P_PID
    return posix.waitid(kind, pid or 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
