"""--notify: run a shell command in the background once a contender was skipped, the command is
overdue, or has ended badly.

A watcher, forked when all is released and logged, runs it with a time limit and writes to the
journal if it fails. Each begins once the one before has ended. The launcher only waits for the
watcher if it would die with the launcher.
"""

import _signal
import posix
from _signal import SIG_SETMASK, SIGCHLD, pthread_sigmask
from time import monotonic

from solo.errors import Busy, RanAlready, SoloError
from solo.history import usual
from solo.identity import read_stat
from solo.kernel import CLOSED, ENDING, FOREVER, close, close_all_but, encode
from solo.kinds import ENDED, FAILED, OVERDUE, SKIPPED, STARTED, USUAL_EVENTS
from solo.process.holder import detach, wait_readable
from solo.text.describe import format_usual
from solo.text.events import (
    CAPTURED,
    OK,
    VALUES,
    Event,
    Reporter,
    describe_end,
    encode_any,
    make_end,
    make_overdue,
    make_refusal,
    make_start,
    name_run,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.argv import Typed
    from solo.launcher import Run
    from solo.process.limits import Termination

NOTIFY_LIMIT = 30.0  # seconds


class Notifier(Reporter):
    """The observer of --notify."""

    def __init__(self, typed: "Typed") -> None:
        super().__init__(typed)
        self.events = typed.get("notify_on", USUAL_EVENTS)
        try:
            self.directory = posix.getcwdb()  # the launcher leaves it while the command runs
        except OSError:
            self.directory = b"/"

    def refused(self, error: SoloError) -> None:
        is_silent = isinstance(error, Busy) and (
            "quiet" in self.typed or "loud_after" in self.typed
        )
        is_wanted = (SKIPPED if isinstance(error, Busy) else FAILED) in self.events
        if is_wanted and not isinstance(error, RanAlready) and (error.is_loud or not is_silent):
            self.start(lambda: make_refusal(error, self.names))

    def started(self, run: "Run") -> None:
        begin, termination = monotonic(), run.termination
        if termination is None:
            return
        if STARTED in self.events:
            self.start(lambda: make_start(run), termination)

        def report_overdue() -> float:
            """Report the run, once, if it is overdue by now. Return when to look again."""
            found = usual.find_usual(run.plan.dir, run.names[0], run.record.command)
            if found is None or monotonic() < begin + found.long_after:
                return FOREVER if found is None else begin + found.long_after
            seconds = monotonic() - begin
            self.start(
                lambda: make_overdue(run, seconds, format_usual(found.median, found.range)),
                termination,
            )
            return FOREVER

        if OVERDUE in self.events:
            termination.call = report_overdue
            termination.call_at = begin + usual.LEAST_LONG

    def ended(self, run: "Run") -> None:
        if ENDED in self.events or (FAILED in self.events and name_run(run) != OK):
            self.start(lambda: make_end(run))

    def start(self, make: "Callable[[], Event]", termination: "Termination | None" = None) -> None:
        """Start the watcher, which the `termination` of a command spares. Wait for it only if it
        would end with this process.
        """
        # The watcher is to outlive a SIGTERM to the whole unit.
        mask = pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        try:
            waits = termination is None and is_first_of_unit(self.run)
            if waits:
                _signal.signal(SIGCHLD, _signal.SIG_DFL)
                while _signal.sigtimedwait(ENDING, 0):
                    pass  # they have ended the command
            end, life = (CLOSED, CLOSED) if termination is None else posix.pipe2(posix.O_CLOEXEC)
            watcher = posix.fork()
            if watcher == 0:
                self.watch(make, life)
            if termination is not None:
                for fd in (life, *self.descriptors):
                    close(fd)
                self.descriptors = (end,)
                termination.spare(watcher, None if self.run is None else self.run.pair)
            if waits:
                wait_end(watcher, NOTIFY_LIMIT + 1, ENDING)
        except OSError as error:
            self.report(f"cannot start: {error.strerror}")
        finally:
            pthread_sigmask(SIG_SETMASK, mask)

    def watch(self, make: "Callable[[], Event]", life: int) -> None:
        """Be the watcher: run the command to its end, and report its failure. Does not return, and
        keeps `life` open until then.
        """
        try:
            detach()
            close_all_but([*range(3), life, *self.descriptors])
            for fd in self.descriptors:
                wait_readable([fd], NOTIFY_LIMIT)
                close(fd)
            event, begin = make(), monotonic()
            if self.run is not None and self.run.capture is not None and self.run.pid:
                try:
                    event.values[CAPTURED] = self.run.capture.copy()
                except (OSError, MemoryError):
                    pass  # the event matters more than its output
            pid = posix.fork()
            if pid == 0:
                self.execute(event)
            status = wait_end(pid, NOTIFY_LIMIT)
            if status is None:
                posix.killpg(pid, _signal.SIGKILL)
                self.report(f"was killed: it ran for more than {NOTIFY_LIMIT:.0f}s")
            elif status:
                code = posix.waitstatus_to_exitcode(status)
                self.report(f"ended {describe_end(code, monotonic() - begin)}")
        except Exception as error:
            self.report(f"cannot start: {error}")
        finally:
            posix._exit(0)

    def execute(self, event: Event) -> None:
        """Become the shell, in a process group of its own. Raises OSError."""
        posix.setpgid(0, 0)
        pthread_sigmask(SIG_SETMASK, ())
        environment = dict(posix.environ)
        if self.run is not None:
            environment = self.run.environment
            posix.umask(self.run.inherited.umask)
        environment[b"SOLO_NAME"] = encode(" ".join(event.names))
        environment[b"SOLO_MESSAGE"] = encode_any(event.text)
        for name in VALUES:
            environment[name.encode()] = encode_any(event.values.get(name, ""))
        try:
            posix.chdir(self.directory)
        except OSError:
            pass  # it was removed, or may no longer be entered: stay in /
        posix.execve("/bin/sh", ["sh", "-c", self.typed["notify"]], environment)

    def report(self, reason: str) -> None:
        for observer in self.run.own_observers if self.run is not None else ():
            observer.unnotified(f"--notify {reason}")


def is_first_of_unit(run: "Run | None") -> bool:
    """Return whether all other processes are killed when this one ends: process 1, its child, or
    the first of a unit.
    """
    pid, parent = posix.getpid(), posix.getppid()
    if pid == 1 or (run is not None and run.is_below_init):
        return True
    if run is not None and run.pair is not None:
        pid, parent = parent, read_stat(parent).parent
    main = posix.environ.get(b"SYSTEMD_EXEC_PID")
    if main is None:  # systemd before 248
        return parent == 1 and b"INVOCATION_ID" in posix.environ
    return main == b"%d" % pid


def wait_end(pid: int, seconds: float, orders: "tuple[int, ...]" = ()) -> "int | None":
    """Wait for a child, with SIGCHLD and `orders` blocked. Return its status; None after `seconds`
    or at an order.
    """
    deadline = monotonic() + seconds
    while True:
        ended, status = posix.waitpid(pid, posix.WNOHANG)
        if ended:
            return status
        info = _signal.sigtimedwait((SIGCHLD, *orders), max(0.0, deadline - monotonic()))
        if info is None or info.si_signo in orders:
            return None
