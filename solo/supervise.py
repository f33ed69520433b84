"""Wait for the command, forward signals to it, and end as it ends.

The launcher has blocked every signal and takes each one by sigwaitinfo(2), which shows its sender.
So there is no race (but see send_stop), and no system call while nothing happens.
"""

import _signal
import fcntl
import posix
import sys
from _signal import (
    SIG_BLOCK,
    SIG_DFL,
    SIG_SETMASK,
    SIG_UNBLOCK,
    SIGCHLD,
    SIGCONT,
    SIGSTOP,
    struct_siginfo,
)
from time import sleep

from solo import kernel
from solo.errors import NotExecutable, NotFound, SoloError
from solo.identity import descends_from, is_stopped
from solo.kernel import close, close_all_but, read_file
from solo.start import ALL_SIGNALS, STOPPING, Child

# of a child that failed before exec
UNSTARTED = (SoloError.status, NotExecutable.status, NotFound.status)
FORKNOEXEC = 0x40  # of the flags in /proc/PID/stat
REAP_PAUSE = 0.1  # seconds
# Seconds between the command's stop and the launcher's own. A SIGCONT that follows the stop within
# this time is seen first; one that arrives during kill(2) would be lost.
STOP_DELAY = 0.02
HANG_UP = (_signal.SIGHUP, SIGCONT)
# struct flock: a lock of the whole file for writing; and the type that says that nothing conflicts
# with it.
ANY_LOCK = fcntl.F_WRLCK.to_bytes(2, sys.byteorder) + bytes(30)
NO_LOCK = fcntl.F_UNLCK.to_bytes(2, sys.byteorder)
KERNEL_TIMERS = (_signal.SIGALRM, _signal.SIGVTALRM, _signal.SIGPROF)


def go_on_in_child() -> None:
    """As process 1 of a pid namespace, return in a child; in process 1 forward signals, reap
    orphans, and exit as the child.

    Process 1 can be no launcher: for it, the kernel discards all signals without a handler, also
    SIGKILL from its namespace or from the timer of a lease. Raises SoloError.
    """
    mask = _signal.pthread_sigmask(SIG_SETMASK, ALL_SIGNALS)
    # after the fork it would discard the SIGCHLD of a short run
    disposition = _signal.signal(SIGCHLD, SIG_DFL)
    try:
        pid = posix.fork()
    except OSError as error:
        raise SoloError(f"cannot fork: {error.strerror}") from None
    if pid:
        close_descriptors([])
        leave_directory()
        mirror(wait(Child(pid, 0, -1)))
    _signal.signal(SIGCHLD, disposition)
    _signal.pthread_sigmask(SIG_SETMASK, mask)


def close_descriptors(kept: "list[int]", candidates: "set[int] | None" = None) -> None:
    """Close all descriptors, or only `candidates`, but `kept`: a copy of a pipe would keep its
    reader waiting.
    """
    kept = [*kept, *find_locked(kept)]
    if candidates is None:
        return close_all_but(kept)
    for fd in candidates.difference(kept, (kernel.program,)):
        close(fd)


def leave_directory() -> None:
    """Change to /, to keep no file system busy, unless Python finds its library by a relative
    path.
    """
    if all([path[:1] == "/" for path in sys.path]):
        try:
            posix.chdir("/")
        except OSError:
            pass


def find_locked(kept: "list[int]") -> "list[int]":
    """Return descriptors besides `kept` of files with an fcntl(2) lock held here: closing one would
    release it.
    """
    try:
        return [
            int(entry)
            for entry in posix.listdir("/proc/self/fd")
            if int(entry) not in kept and has_lock(entry)
        ]
    except OSError:
        return []


def has_lock(entry: str) -> bool:
    """Return whether this process holds an fcntl(2) lock of the file open as descriptor `entry`."""
    try:
        # The lock of an open file conflicts with those of all processes, with ours too.
        if fcntl.fcntl(int(entry), fcntl.F_OFD_GETLK, ANY_LOCK)[:2] == NO_LOCK:
            return False
    except (
        OSError
    ):  # an old kernel; or the descriptor of the listing itself, which the next call shows
        pass
    try:
        return b" POSIX " in read_file(f"/proc/self/fdinfo/{entry}")
    except OSError:
        return False


def wait(child: Child) -> int:
    """Forward signals until the command, and with --tree its descendants, have ended. Return the
    status of waitpid(2).
    """
    while True:
        try:
            if child.status is not None and not (
                child.termination and child.termination.has_descendants()
            ):
                return child.status
            left = child.termination.find_left() if child.termination is not None else None
            info = (
                _signal.sigwaitinfo(ALL_SIGNALS)
                if left is None
                else _signal.sigtimedwait(ALL_SIGNALS, left)
            )
        except OSError:
            # The command or its tree still runs: keep the name whatever failed.
            sleep(REAP_PAUSE)
            reap(child)
            continue
        try:
            react(info, child)
        except Exception:
            continue  # lose one signal, not all later ones


def react(info: "struct_siginfo | None", child: Child) -> None:
    """Act on one signal; None means that a time limit passed."""
    if info is None:
        if child.termination is not None:
            child.termination.advance(child)
        return
    if info.si_signo == SIGCHLD:
        if info.si_pid == child.pid and info.si_status in UNSTARTED:
            child.is_refused = not has_executed(child.pid)
        reap(child)
        if child.status is not None and child.termination is None:
            return  # return at once: a waiter may be next
    if child.pair is not None:
        child.pair.react(info, child)
        return
    act(info, must_forward(info, child), child)


def act(info: "struct_siginfo", is_forwarded: bool, child: Child) -> None:
    """Stop, forward or end the tree as the signal demands."""
    note_stop(info, child)
    if is_forwarded:
        forward(info.si_signo, child)
    if child.termination is not None:
        child.termination.hear(info, is_forwarded, child)
    if child.stopped_by:
        stop_too(child)


def has_executed(pid: int) -> bool:
    """Return whether our child, not yet reaped, has executed a program since its fork."""
    try:
        return not int(read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6]) & FORKNOEXEC
    except (OSError, ValueError, IndexError):
        return True


def reap(child: Child) -> None:
    """Collect every child that changed state, and note the state of the command."""
    while True:
        # Reap any child: pid 1 of a namespace inherits strangers.
        try:
            pid, status = posix.waitpid(-1, posix.WNOHANG | posix.WUNTRACED | posix.WCONTINUED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if child.pair is not None and child.pair.collect(pid, status, child):
            continue
        if pid == child.pid and child.status is None:
            if posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status):
                child.stopped_by = posix.WSTOPSIG(status) if posix.WIFSTOPPED(status) else 0
            else:
                child.status, child.stopped_by = status, 0
        elif child.capture is not None:
            child.capture.mend()


def note_stop(info: "struct_siginfo", child: Child) -> None:
    """Note that a signal stops or continues the launcher."""
    signal = info.si_signo
    if signal in STOPPING:
        child.got_stop = True
        if child.status is not None and info.si_code > 0:
            child.stopped_by = signal  # Ctrl-Z while only descendants are left
    elif signal == SIGCONT:
        child.got_stop, child.stopped_by = False, 0


def stop_too(child: Child) -> None:
    """Stop the launcher as the command was stopped, so that the shell notices. Do nothing if only
    the command got the signal and there is no terminal: a SIGCONT for the command alone would leave
    the launcher stopped, with the name held.
    """
    info = _signal.sigtimedwait({SIGCHLD, SIGCONT, kernel.WAKE_SIGNAL}, STOP_DELAY)
    if info is not None:
        return react(info, child)
    if not (child.got_stop or _signal.sigpending() & STOPPING or has_terminal()):
        return
    signal, child.stopped_by, child.got_stop, child.was_stopped = child.stopped_by, 0, False, True
    is_continued = send_stop(signal)
    if is_continued or (signal != SIGSTOP and child.status is None and not is_stopped(child.pid)):
        # A SIGCONT came meanwhile, and the stop signal above may have discarded it: take the stop
        # back.
        child.was_stopped = False
        info = _signal.sigtimedwait({signal}, 0)
        if is_continued and child.status is None and is_stopped(child.pid):
            forward(SIGCONT, child)
        if info is not None and info.si_pid != posix.getpid():
            react(info, child)  # a stop that was sent after the SIGCONT
    else:
        _signal.pthread_sigmask(SIG_UNBLOCK, {signal})
        _signal.pthread_sigmask(SIG_BLOCK, {signal})


def send_stop(signal: int) -> bool:
    """Send the blocked stop signal to the launcher itself. Return whether a SIGCONT came before it
    or meanwhile.

    A stop signal discards a pending SIGCONT, so a handler takes it here. It stays: to reset it
    would discard one too.
    """
    arrived = []
    _signal.signal(SIGCONT, lambda *_: arrived.append(SIGCONT))
    _signal.pthread_sigmask(SIG_UNBLOCK, {SIGCONT})
    if not arrived:
        posix.kill(posix.getpid(), signal)
    _signal.pthread_sigmask(SIG_BLOCK, {SIGCONT})
    return bool(arrived)


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        posix.close(
            posix.open(
                "/dev/tty", posix.O_RDONLY | posix.O_NOCTTY | posix.O_NONBLOCK | posix.O_CLOEXEC
            )
        )
        return True
    except OSError:
        return False


def must_forward(info: "struct_siginfo", child: Child) -> bool:
    """Return whether the launcher must forward this signal: not one of the terminal, or the shell's
    SIGCONT after a stop, which the command has got too; nor one from the command or its
    descendants.
    """
    signal, sender = info.si_signo, info.si_pid
    if info.si_code > 0:
        # A hang-up reaches only the session leader; a timer is an alarm(2) set before solo was
        # executed.
        return signal in KERNEL_TIMERS or (signal in HANG_UP and posix.getsid(0) == posix.getpid())
    if signal == SIGCONT and child.was_stopped:
        child.was_stopped = False
        return is_stopped(child.pid)
    if sender == posix.getpid():
        return False
    try:
        # With --tree an orphaned descendant becomes a child of the launcher.
        ancestor = (
            posix.getpid()
            if child.termination is not None and child.termination.is_tree
            else child.pid
        )
        return not descends_from(sender, ancestor) and not has_systemd_signalled_all(
            signal, sender, child
        )
    except Exception:
        return True  # twice is better than never


def forward(signal: int, child: Child) -> None:
    """Send the signal to the command, if it was not reaped."""
    if child.status is not None:
        return  # reaped: the pid may be in use again
    try:
        child.send(child.pid, signal)
    except OSError:
        pass  # now of another user (sudo): the sender could not have signalled it either


def has_systemd_signalled_all(signal: int, sender: int, child: Child) -> bool:
    """Return whether a service manager sent the signal to every process of the unit, so also to the
    command.
    """
    try:
        if read_file(f"/proc/{sender}/comm") != b"systemd\n":
            return False
    except OSError:
        if sender > 1:
            return False  # else hidden (ProtectProc=) or in another pid namespace (PrivatePIDs=)
    from solo.process.systemd import signals_whole_unit

    return signals_whole_unit(signal, sender, child.pid)


def mirror(status: int) -> None:
    """End as the command ended: with its exit status, or by the same signal. Does not return."""
    if posix.WIFEXITED(status):
        posix._exit(posix.WEXITSTATUS(status))
    signal = posix.WTERMSIG(status)
    try:
        forbid_core()
        _signal.signal(signal, SIG_DFL)
    except (OSError, ValueError, ImportError):
        pass  # SIGKILL has no disposition to set
    posix.kill(posix.getpid(), signal)
    _signal.pthread_sigmask(SIG_UNBLOCK, {signal})
    posix._exit(128 + signal)  # reached only by pid 1 of a namespace


def forbid_core() -> None:
    """Dump no core: it would overwrite that of the command."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # 1 byte, not 0: for a core_pattern that is a pipe, only 1 means none (core(5)).
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
