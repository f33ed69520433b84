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

The upper process loads upper.py, while the lower one goes on.
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
    socket,
    socketpair,
)
from sys import byteorder
from time import monotonic, sleep

from solo import supervise
from solo.errors import SoloError
from solo.identity import Process, read_self
from solo.journal import Observer, format_token
from solo.kernel import WAKE_SIGNAL, decode
from solo.process.limits import Termination
from solo.process.prctl import SET_PDEATHSIG, load_prctl
from solo.start import ALL_SIGNALS, Child
from solo.tickets import FileTicket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from solo.contention.protocols import Hold
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


def go_on_below(run: "Run") -> Lower:
    """Return in the lower process of a Run whose record is that of the upper one. There, stand by,
    and end as the lower one. Raises OSError.
    """
    mask = _signal.pthread_sigmask(SIG_SETMASK, ALL_SIGNALS)
    disposition = _signal.signal(SIGCHLD, SIG_DFL)
    termination = Termination(
        run.plan
    )  # of the upper process, which may have children from before its exec
    timers = [_signal.setitimer(which, 0) for which in TIMERS]  # no child inherits them
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
    pid = posix.fork()
    if pid:
        theirs.close()
        try:
            from solo.process.upper import Upper

            Upper(run, End(run, ours), pid, termination).stand_by()
        except BaseException:
            supervise.mirror(
                posix.waitpid(pid, 0)[1]
            )  # as memory ran out, perhaps: the lower one goes on
        finally:
            posix._exit(SoloError.status)
    ours.close()
    record = run.record
    record.outer = record.launcher
    record.launcher = read_self()
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
