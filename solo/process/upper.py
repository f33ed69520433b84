"""The upper process of --tree (pair.py), and its takeover of the lower one's work."""

import posix
from _signal import SIGKILL, struct_siginfo

from solo import supervise
from solo.errors import SoloError
from solo.journal import Journal
from solo.journal_files import ENDED
from solo.kernel import ENDING, WAKE_SIGNAL, close, say_promptly
from solo.process.limits import look_for_end
from solo.start import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from solo.identity import Process
    from solo.launcher import Run
    from solo.process.limits import Termination
    from solo.process.pair import End


UNFINISHED = SIGKILL, SoloError.status << 8  # with which the lower process ends amid its work


class Kept:
    """A hold that the lower process shared: `descriptors`, of which the first is locked, and the
    name of a `file` or "".
    """

    def __init__(self, descriptors: "list[int]", file: str) -> None:
        self.descriptors = descriptors
        self.file = file

    def complete(self, child: "Process") -> None:
        """Do nothing: the lower process has."""

    def release(self) -> None:
        """Release it as a Ticket does: where nobody can look for the command's process, a ticket
        without a lock is not dead.
        """
        try:
            if self.file:
                posix.unlink(self.file, dir_fd=self.descriptors[1])
        except OSError:
            pass
        for fd in self.descriptors:
            close(fd)


class Upper:
    """The upper process, with its `end` of the socket. `lower` is the pid of the other process.

    It is the `termination` of its Child until the lower process has ended: then `termination` is.
    """

    is_tree = True

    def __init__(self, run: "Run", end: "End", lower: int, termination: "Termination") -> None:
        self.run: Any = run  # an Observer has it, or None
        self.say = end.say
        self.hear = end.hear
        self.descriptors = end.descriptors
        self.lower = lower
        self.termination = termination
        self.has_lower_ended = False
        self.heard: set[bytes] = (
            set()
        )  # whether all have `started`, the tree is `over`, or the start is `void`
        self.end: int | None = None  # the status of waitpid(2) with which all ended
        self.began = 0.0  # on the monotonic clock
        self.unheard: list[
            tuple[struct_siginfo, bool]
        ] = []  # passed on and not answered yet; whether it was forwarded

    def stand_by(self) -> None:
        """Forward signals until the lower process has ended; if it was killed, go on. Does not
        return.
        """
        observers = [*self.run.own_observers, *self.run.observers]
        kept = [fd for observer in observers for fd in observer.descriptors]
        supervise.close_descriptors([2, *self.descriptors, *kept])
        supervise.leave_directory()
        child = Child(self.lower, 0, -1)
        child.pair = child.termination = self
        status = supervise.wait(child)
        if child.termination is self.termination:
            if b"started" not in self.heard and not child.is_refused:
                for observer in self.run.observers:
                    observer.started(self.run)
            self.run.note_end(status, self.began)
            if b"over" in self.heard:
                self.skip_journal()
            self.run.finish()
        if self.end is not None and self.run.capture is not None:
            self.run.capture.show(self.run)
        supervise.mirror(status)

    def skip_journal(self) -> None:
        """Let no journal have the end twice: the lower process may have been killed after that."""
        name = self.run.names[-1]  # whose journal is written last
        for observer in self.run.own_observers[:]:
            if isinstance(observer, Journal):
                from solo.history.reader import find_history

                try:
                    events = find_history(self.run.plan.dir, name).events
                except SoloError:
                    return
                ends = [b"token=%d" % (one.token or 0) for one in events if one.event == ENDED]
                if observer.tokens[name].split()[0] in ends:
                    self.run.own_observers.remove(observer)

    # --- as the termination of its Child----------------------------------------------------------

    def has_descendants(self) -> bool:
        return not self.has_lower_ended

    def find_left(self) -> None:
        return None

    # --- as its pair------------------------------------------------------------------------------

    def react(self, info: struct_siginfo, child: Child) -> None:
        """Act on a signal: pass it on; stop with the command."""
        if child.termination is not self:
            return supervise.act(info, supervise.must_forward(info, child), child)
        self.listen(child)
        if info.si_pid != self.lower or info.si_code > 0:
            supervise.note_stop(info, child)
            self.pass_on(info, supervise.must_forward(info, child), child)
        if child.stopped_by:
            supervise.stop_too(child)

    def pass_on(self, info: struct_siginfo, is_forwarded: bool, child: Child) -> None:
        if not is_forwarded and (child.pid == self.lower or info.si_signo not in ENDING):
            return
        if child.pid == self.lower or b"over" in self.heard:
            self.send(self.lower, info.si_signo)
        else:
            self.termination.is_ordered |= self.termination.is_order(info, child)
            self.unheard.append((info, is_forwarded))
            self.say(info.si_signo, info.si_pid, info.si_code, info.si_uid, int(is_forwarded))
            self.send(self.lower, WAKE_SIGNAL)

    def send(self, pid: int, signal: int) -> None:
        """Signal the lower process, which is our child until it is reaped."""
        if not self.has_lower_ended:
            posix.kill(self.lower, signal)

    def collect(self, pid: int, status: int, child: Child) -> bool:
        """Note the end of the lower process. Return whether that was all."""
        if pid != self.lower or posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status):
            return False
        self.has_lower_ended = True
        self.listen(child)
        if child.pid == pid:
            return False  # no command has run
        is_void = b"void" in self.heard
        if not is_void and self.end is None and status not in UNFINISHED:
            if not is_child(child.pid):
                self.end = status  # its last words were lost, as we were stopped for long
        if self.end is not None or is_void:
            child.status = status if self.end is None else self.end
        else:
            self.take_over(child, status)
        return True

    def listen(self, child: Child) -> None:
        """Take what the lower process has said since."""
        words, fds = self.hear()
        while words:
            word, *more = words
            if word == b"hold":
                self.run.holds.append(Kept(fds, more[0].decode() if more else ""))
            elif word == b"begin":
                self.begin(child, *more)
            elif word == b"stop":
                child.stopped_by = int(more[0])
            elif word == b"status":
                child.status = int(more[0])
                child.stopped_by = 0
            elif word == b"done":
                self.forget(int(more[0]))
            elif word == b"spare":
                self.termination.strangers.add((int(more[0]), int(more[1])))
            elif word == b"end":
                self.end = int(more[0])
            else:
                self.heard.add(word)
            words, fds = self.hear()

    def forget(self, signal: int) -> None:
        """Note that the lower process has acted on the oldest such signal."""
        for at, (info, _) in enumerate(self.unheard):
            if info.si_signo == signal:
                del self.unheard[at]
                return

    def begin(self, child: Child, pid: bytes, since: bytes, *tokens: bytes) -> None:
        """Note that the command starts: from now on it is the `child`."""
        child.pid = int(pid)
        child.stopped_by = 0
        child.was_stopped = False
        child.send = self.send
        self.began = float(since)
        for observer in self.run.own_observers:
            if isinstance(observer, Journal):
                names = observer.record.shown_names
                observer.begin(
                    child.pid,
                    self.began,
                    dict(zip(names, [token.replace(b",", b" ") for token in tokens])),
                )

    def take_over(self, child: Child, status: int) -> None:
        """Go on as the launcher, as the other one was killed: now the command is our child, unless
        that has reaped it.
        """
        plan, termination = self.run.plan, self.termination
        self.run.process = child
        self.run.pid = child.pid
        self.run.termination = termination
        child.termination = termination
        child.send = posix.kill
        child.capture = self.run.capture
        if child.capture is not None:
            child.capture.mend()
        try:
            ended = look_for_end(child.pid)
            if ended is not None and ended.si_status in supervise.UNSTARTED:
                child.is_refused = not supervise.has_executed(child.pid)
        except ChildProcessError:
            child.status = status if child.status is None else child.status
        termination.begin(child.pid)
        termination.deadline = self.began + termination.timeout
        what = "waiting for"
        if plan.no_orphan or plan.is_socket or plan.is_remote:
            termination.kill(child)
            what = "ending"
        for info, is_forwarded in self.unheard:
            supervise.act(info, is_forwarded, child)
        if child.status is None or termination.has_descendants():
            left = f"pid {child.pid}" if child.status is None else "what it left behind"
            say_promptly(
                f"{termination.name}: its launcher, pid {self.lower}, was killed: {what} {left}"
            )


def is_child(pid: int) -> bool:
    """Return whether a process is our child, perhaps one that has ended."""
    try:
        look_for_end(pid)
        return True
    except ChildProcessError:
        return False
