"""--tree: two processes of solo, so that SIGKILL of either frees no name while a descendant of the
command lives.

The upper one is the process that the caller started: it forwards signals, stops with the command,
and ends as that ends. The lower one is the launcher: it acquires, starts the command as its child,
and releases. Both are subreapers. Before the command's exec the lower one enters a session of its
own, since SIGKILL to the caller's process group must leave one, and shares the descriptors of its
holds: they stay open, and locked, whatever ends it. If it is killed, the command becomes a child of
the upper one, which goes on.

Until then the upper one forwards signals as they are. From then on it passes each as a message and
wakes the lower one, which so learns of the sender, and answers: a signal that it has not acted on
is not lost with it.
"""

import _signal
import posix
from _signal import SIG_DFL, SIG_SETMASK, SIGCHLD, SIGCONT, SIGKILL, struct_siginfo
from _socket import (
    AF_UNIX,
    MSG_CMSG_CLOEXEC,
    MSG_DONTWAIT,
    SCM_RIGHTS,
    SOCK_CLOEXEC,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socketpair,
)
from sys import byteorder
from time import monotonic, sleep

from solo import supervise
from solo.errors import SoloError
from solo.identity import read_self
from solo.journal import Journal, Observer, format_token
from solo.journal_files import ENDED
from solo.kernel import ENDING, WAKE_SIGNAL, close, decode, say_promptly
from solo.process.limits import Termination
from solo.process.prctl import SET_PDEATHSIG, load_prctl
from solo.start import ALL_SIGNALS, Child
from solo.tickets import FileTicket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable

    from solo.contention.protocols import Hold
    from solo.identity import Process
    from solo.launcher import Run

LONGEST_MESSAGE = 1 << 16  # bytes of a message
ANCILLARY = 256  # bytes: the descriptors of one hold
INT = 4  # bytes of a descriptor in a message
SHARE_PATIENCE, SHARE_PAUSE = 5.0, 0.001  # seconds, while too many descriptors are on their way
TOGETHER = 1.0  # seconds between two copies of a signal, which a program sent to each solo
TIMERS = (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF)


class End:
    """One end of the socket between both. A message that the other one, killed or stopped, cannot
    get is dropped.
    """

    def __init__(self, run: "Run", socket: "socket") -> None:
        self.run: Run = run
        self.socket = socket
        self.descriptors: tuple[int, ...] = (socket.fileno(),)

    def say(self, *words: object) -> None:
        try:
            self.socket.send(" ".join(map(str, words)).encode(), MSG_DONTWAIT)
        except OSError:
            pass

    def hear(self) -> "tuple[list[bytes], list[int]]":
        """Return the words and the descriptors of the next message; no words if there is none."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                LONGEST_MESSAGE, ANCILLARY, MSG_DONTWAIT | MSG_CMSG_CLOEXEC
            )
        except OSError:
            return [], []
        numbers = b"".join([part for _, _, part in ancillary])
        fds = [
            int.from_bytes(numbers[at : at + INT], byteorder) for at in range(0, len(numbers), INT)
        ]
        return data.split(), fds


class Lower(End, Observer):
    """The lower process's end, and an observer of the run. `upper` is the (pid, start) of the other
    process.
    """

    run: "Run"

    def __init__(self, run: "Run", socket: "socket", upper: "Process") -> None:
        super().__init__(run, socket)
        self.upper = upper
        self.has_stopped = False  # the command, once; the upper process may still be stopped
        self.recent: dict[
            tuple[int, int], tuple[bool, float]
        ] = {}  # by signal and sender: whether passed on, and when

    def has_upper(self) -> bool:
        return posix.getppid() == self.upper[0]

    def wake(self, signal: int = WAKE_SIGNAL) -> None:
        try:
            if self.has_upper():
                posix.kill(self.upper[0], signal)
        except OSError:
            pass  # it sees messages at the next signal, too

    def begin(self, child: int, holds: "Iterable[Hold]") -> None:
        """Share the `holds` of the command, just before its exec. Raises OSError, SoloError."""
        posix.setsid()
        for hold in holds:
            self.share(hold)
        tokens = [
            decode(format_token(self.run.named[name])) for name in self.run.record.shown_names
        ]
        self.say("begin", child, monotonic(), *[token.replace(" ", ",") for token in tokens])
        self.wake()  # it takes the descriptors: those on their way count against RLIMIT_NOFILE
        load_prctl()(SET_PDEATHSIG, WAKE_SIGNAL)
        if not self.has_upper():
            raise SoloError(
                f"{self.run.names[0]}: pid {self.upper[0]}, which started this launcher, was killed"
            )

    def share(self, hold: "Hold") -> None:
        """Send the descriptors of a hold, and the name of its file. Raises OSError."""
        fds = b"".join([fd.to_bytes(INT, byteorder) for fd in hold.descriptors])
        word = b"hold " + hold.file.encode() if isinstance(hold, FileTicket) else b"hold"
        deadline = monotonic() + SHARE_PATIENCE
        while fds:
            try:
                self.socket.sendmsg([word], [(SOL_SOCKET, SCM_RIGHTS, fds)], MSG_DONTWAIT)
                return
            except ConnectionError:
                raise
            except OSError:
                if monotonic() >= deadline:
                    raise
            self.wake()
            sleep(SHARE_PAUSE)

    def spare(self, process: "Process") -> None:
        """Tell the upper one of a child that is no descendant of the command."""
        self.say("spare", *process)

    def collect(self, pid: int, status: int, child: Child) -> bool:
        """Report a state of the command. Return whether that is all: the upper one stops, as it has
        the terminal.
        """
        if pid != child.pid or child.status is not None:
            return False
        if posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status):
            is_stopped = posix.WIFSTOPPED(status)
            self.has_stopped |= is_stopped
            self.say("stop", posix.WSTOPSIG(status) if is_stopped else 0)
            self.wake()
            return True
        self.say("status", status)
        return False

    def react(self, info: struct_siginfo, child: Child) -> None:
        """Act on a signal, or on those that the upper one passes on; on one that came both ways
        only once.
        """
        is_process = info.si_code <= 0
        if is_process and info.si_pid == self.upper[0]:
            self.obey(child)
            if info.si_signo == WAKE_SIGNAL:
                return
        elif is_process and self.is_copy(info, False):
            return
        supervise.act(info, supervise.must_forward(info, child), child)

    def obey(self, child: Child) -> None:
        words, _ = self.hear()
        while words:
            signal, sender, code, uid, is_forwarded = map(int, words)
            info = struct_siginfo((signal, code, 0, sender, uid, 0, 0))
            if code > 0 or not self.is_copy(info, True):
                supervise.act(info, bool(is_forwarded), child)
            self.say("done", signal)
            words, _ = self.hear()
        if self.run.plan.no_orphan and not self.has_upper():
            child.termination.kill(child)

    def is_copy(self, info: struct_siginfo, is_passed_on: bool) -> bool:
        """Return whether the same sender's signal has come the other way just before, as one to all
        processes does.
        """
        key, now = (info.si_signo, info.si_pid), monotonic()
        before = self.recent.pop(key, None)
        if before is not None and before[0] != is_passed_on and now - before[1] < TOGETHER:
            return True
        self.recent[key] = is_passed_on, now
        return False

    def ended(self, run: "Run") -> None:
        """Say how the run ended. The upper one then waits only for us, not for what we leave, as a
        watcher of --notify.
        """
        self.say("end", run.status if run.outcome is None else run.outcome << 8)
        if run.plan.is_socket or self.has_stopped:
            self.wake(
                SIGCONT
            )  # a stopped one would keep the caller waiting, and the address of a socket bound


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


class Upper(End):
    """The upper process's end. `lower` is the pid of the other process.

    It is the `termination` of its Child until the lower process has ended: then `termination` is.
    """

    is_tree = True

    def __init__(self, run: "Run", socket: "socket", lower: int, termination: Termination) -> None:
        super().__init__(run, socket)
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
        if self.end is not None or b"void" in self.heard:
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
                child.status, child.stopped_by = int(more[0]), 0
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
        child.pid, child.stopped_by, child.was_stopped = int(pid), 0, False
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
        self.run.process, self.run.pid, self.run.termination = child, child.pid, termination
        child.termination, child.send = termination, posix.kill
        child.capture = self.run.capture
        if child.capture is not None:
            child.capture.mend()
        try:
            ended = posix.waitid(
                posix.P_PID, child.pid, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT
            )
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


def go_on_below(run: "Run") -> Lower:
    """Return in the lower process of a Run whose record is that of the upper one. There, stand by,
    and end as the lower one. Raises SoloError, OSError.
    """
    mask = _signal.pthread_sigmask(SIG_SETMASK, ALL_SIGNALS)
    disposition = _signal.signal(SIGCHLD, SIG_DFL)
    termination = Termination(
        run.plan
    )  # of the upper process, which may have children from before its exec
    timers = [_signal.setitimer(which, 0) for which in TIMERS]  # no child inherits them
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
    try:
        pid = posix.fork()
    except OSError as error:
        raise SoloError(f"cannot fork: {error.strerror}") from None
    if pid:
        theirs.close()
        try:
            Upper(run, ours, pid, termination).stand_by()
        except BaseException:
            supervise.mirror(
                posix.waitpid(pid, 0)[1]
            )  # as memory ran out, perhaps: the lower one goes on
        finally:
            posix._exit(SoloError.status)
    ours.close()
    record = run.record
    record.outer, record.launcher = record.launcher, read_self()
    load_prctl()(
        SET_PDEATHSIG, SIGKILL
    )  # until the command starts: to kill the upper one ends the wait
    lower = Lower(run, theirs, record.outer)
    if not lower.has_upper():
        posix._exit(SoloError.status)
    for which, (left, interval) in zip(TIMERS, timers):
        if left:
            _signal.setitimer(which, left, interval)
    _signal.signal(SIGCHLD, disposition)
    _signal.pthread_sigmask(SIG_SETMASK, mask)
    return lower
