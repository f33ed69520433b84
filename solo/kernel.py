"""System calls that need more than one line of Python, one small function each. They raise OSError
without a message.
"""

import _signal
import fcntl
import posix
import sys
from _signal import SIG_BLOCK, SIG_DFL, SIG_SETMASK, SIG_UNBLOCK, SIGALRM, SIGKILL
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

from solo.errors import Superseded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from select import poll
    from types import ModuleType
    from typing import TypeVar

    Made = TypeVar("Made")

ENCODING = sys.getfilesystemencoding()
# deadlines on the monotonic clock; the second has passed
FOREVER, NO_WAIT = (float("inf"), float("-inf"))
CLOSED = -1  # the descriptor of what is not open

ROOT_PLACE = "/run/solo"  # where the names of root live
HOME_PLACE = "/.local/state/solo"  # where those of others live, in their home directories
# only root can make a user's place in it; /run would lose it at each boot
USERS_PLACE = "/var/lib/solo-users"
OVERFLOW = 65534  # the owner of root's files in a user namespace that lacks root

# O_NONBLOCK: a FIFO in place of a file must not block us.
SAFELY = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
DIRECTORY = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC
IS_DIRECTORY, IS_REGULAR, TYPE_MASK = 0o040000, 0o100000, 0o170000

# The same on every Linux; importing errno takes 40 µs.
EPERM, ENOENT, ENOEXEC, EACCES, ENOTDIR, EISDIR, EINVAL = 1, 2, 8, 13, 20, 21, 22
EFBIG, ENOSPC, EROFS, ENOTEMPTY = 27, 28, 30, 39

# A newer contender sends it to the waiter that it supersedes. It is ignored by default, so it harms
# no process.
WAKE_SIGNAL = _signal.SIGURG
# signals that ask a program to end
ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
USUAL_SIZE = 4096  # bytes of one read
# bytes of a /proc/PID/status: up to 65536 groups come before the lines we want
STATUS_SIZE = 1 << 20
LONGEST_TIMER = 1e8  # seconds; setitimer(2) overflows somewhere above
HIGHEST_FD = 1 << 16  # without close_range(2) the kernel needs a call per descriptor
RING_AGAIN = 0.05  # seconds between two alarms after the deadline

OWNER_BITS = 0o700
is_umask_dropped = False  # only in the launcher: a program's umask is not ours to change
# the descriptor of the file that modules are imported from (generate/loader.py)
program: "int | None" = None
# api/blocking.py: alarms as of `wait` do not suit the threads of a user's program
blocker: "ModuleType | None" = None


def is_regular(mode: int) -> bool:
    return mode & TYPE_MASK == IS_REGULAR


def occupy_standard_descriptors() -> None:
    """Open those of descriptors 0 to 2 that are closed, but not for the command: a ticket must not
    become stderr.
    """
    while posix.open("/", DIRECTORY) <= 2:
        pass


def encode(text: str) -> bytes:
    """Return the bytes of a text from the system: a name, an argument, a path."""
    return text.encode(ENCODING, "surrogateescape")


def decode(data: bytes) -> str:
    """Return bytes from the system as text. `encode` restores them."""
    return data.decode(ENCODING, "surrogateescape")


def try_lock(fd: int, mode: int, lock: "Callable[[int, int], object]" = fcntl.flock) -> bool:
    """Call flock(2), or a `lock` that is called as it is, without waiting. Return False if another
    lock is in the way.
    """
    try:
        lock(fd, mode | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def wait_lock(
    fd: int, mode: int, deadline: float, lock: "Callable[[int, int], object]" = fcntl.flock
) -> bool:
    """Block in `lock`. Return False once `deadline`, in seconds of the monotonic clock, has
    passed.
    """
    if deadline <= monotonic():
        return try_lock(fd, mode, lock)
    return (
        wait(lambda: lock(fd, mode), deadline)
        if blocker is None
        else blocker.wait_lock(fd, mode, deadline, lock)
    )


def wait_poll(poller: "poll", deadline: float) -> bool:
    """Block in poll(2). Return False once `deadline` has passed and nothing is ready."""
    if deadline <= monotonic():
        return bool(poller.poll(0))
    return wait(poller.poll, deadline) if blocker is None else blocker.wait_poll(poller, deadline)


# How `wait` interrupts a system call. At the deadline an interval timer sends SIGALRM; at any time
# a newer contender may send the wake signal. Their handler raises, because Python restarts a system
# call whose handler returns. SIGALRM repeats, because the first one may arrive just before the
# system call begins; `over` makes every later one harmless. Both signals are blocked while their
# handlers are set, and handled only around `block`. At the end the mask and the handlers are
# restored, and so is an alarm that was set before solo was executed, less the time that has passed.


def wait(block: "Callable[[], object]", deadline: float) -> bool:
    """Call `block`, which may sleep without limit. False after `deadline`. Raises Superseded at a
    wake signal.
    """
    left = deadline - monotonic()
    timed = deadline != FOREVER
    if timed and 0 < _signal.getitimer(_signal.ITIMER_REAL)[0] <= left:
        # An alarm set before solo was executed ends us first, unless it is blocked or ignored.
        timed = _signal.getsignal(SIGALRM) != SIG_DFL or SIGALRM in _signal.pthread_sigmask(
            SIG_BLOCK, ()
        )
    over = False

    def ring(number: int, _: object) -> None:
        nonlocal over
        if not over and (number == WAKE_SIGNAL or monotonic() >= deadline):
            over = True
            raise Superseded("superseded by a newer one") if number == WAKE_SIGNAL else TimeoutError

    begin = monotonic()
    signals = (WAKE_SIGNAL, SIGALRM) if timed else (WAKE_SIGNAL,)
    mask = _signal.pthread_sigmask(SIG_BLOCK, signals)
    dispositions = [_signal.signal(number, ring) for number in signals]
    if timed:
        alarm, interval = _signal.setitimer(
            _signal.ITIMER_REAL, max(0.001, min(left, LONGEST_TIMER)), RING_AGAIN
        )
    try:
        _signal.pthread_sigmask(SIG_UNBLOCK, signals)
        block()
        over = True
        return True
    except TimeoutError:
        return False
    finally:
        over = True
        if timed:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.pthread_sigmask(SIG_SETMASK, mask)
        for number, disposition in zip(signals, dispositions):
            _signal.signal(number, disposition)
        if timed and alarm:  # it was set before solo was executed, for the command
            _signal.setitimer(
                _signal.ITIMER_REAL, max(0.001, alarm - (monotonic() - begin)), interval
            )


def block_wake_signal() -> "set[int] | None":
    """Block the wake signal. Return the mask for `restore_mask`; None in a user's program, whose
    signals are not ours.
    """
    return _signal.pthread_sigmask(SIG_BLOCK, {WAKE_SIGNAL}) if blocker is None else None


def is_woken() -> bool:
    """Return whether a wake signal has arrived since `block_wake_signal`."""
    return WAKE_SIGNAL in _signal.sigpending()


def restore_mask(mask: "Iterable[int]") -> None:
    """Discard a pending wake signal and restore `mask`."""
    while _signal.sigtimedwait({WAKE_SIGNAL}, 0):
        pass
    _signal.pthread_sigmask(SIG_SETMASK, mask)


def read_file(path: str, size: int = USUAL_SIZE) -> bytes:
    """Return the first `size` bytes of a file, in one read: enough for most files of /proc."""
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(fd, size)
    finally:
        posix.close(fd)


def list_directory(fd: int) -> "list[str]":
    """List a directory, through a descriptor of its own: `fd` may have been read to its end, and
    would list nothing.
    """
    return posix.listdir(f"/proc/self/fd/{fd}")


def write_whole(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`. Raises OSError: a full disk first writes a part, and fails
    only at the rest.
    """
    while data:
        written = posix.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def drop_umask() -> int:
    """Set the umask of this process to 0 and return the old one, which would narrow the modes of
    shared files.
    """
    global is_umask_dropped
    is_umask_dropped = True
    return posix.umask(0)


def create(call: "Callable[..., Made]", *words: object, **within: object) -> "Made":
    """Call mkdir(2) or open(2), so that the owner can open the new file.

    A program's umask is changed only if it forbids that, only for the call, and never for group and
    others.
    """
    umask = 0 if is_umask_dropped else read_umask()
    if not umask & OWNER_BITS:
        return call(*words, **within)
    posix.umask(umask & ~OWNER_BITS)
    try:
        return call(*words, **within)
    finally:
        posix.umask(umask)


def read_umask() -> int:
    """Return the umask of this process. umask(2) could read it only by setting it for all
    threads.
    """
    for line in read_file("/proc/self/status").split(b"\n"):
        if line.startswith(b"Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def find_home(uid: int) -> str:
    """Return the home directory of a user as the password database has it, "/" and an unknown one
    as "".
    """
    import pwd

    try:
        return pwd.getpwuid(uid).pw_dir.rstrip("/")
    except (KeyError, OverflowError):
        return ""


def read_boot_clock() -> float:
    """Return the seconds since boot, including suspended ones. No step of the wall clock changes
    it.
    """
    return clock_gettime(CLOCK_BOOTTIME)


def close(fd: int) -> None:
    """Close unless `fd` is CLOSED, and ignore errors of close(2): on Linux the descriptor is closed
    all the same.
    """
    try:
        if fd != CLOSED:
            posix.close(fd)
    except OSError:
        pass


class Opened:
    """An object with a descriptor `fd` of its own, CLOSED once it is closed."""

    fd: int

    @property
    def descriptors(self) -> "tuple[int, ...]":
        """The descriptors that must stay open while the object is in use."""
        return (self.fd,)

    def close(self) -> None:
        fd, self.fd = self.fd, CLOSED  # first: a closed number may soon be another file's
        close(fd)


def close_all_but(kept: "Iterable[int]") -> None:
    """Close all descriptors but those in `kept` and the file that modules are imported from."""
    low = 0
    for fd in sorted(kept if program is None else {*kept, program}):
        if low < fd:  # closerange(0, 0) closes everything
            posix.closerange(low, fd)
        low = fd + 1
    posix.closerange(low, HIGHEST_FD)


def is_gone(pid: int) -> bool:
    """Return whether the child has ended, and reap it then."""
    try:
        return posix.waitpid(pid, posix.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # reaped before


def end_child(pid: int) -> None:
    """Kill and reap a child, unless it has ended."""
    if not is_gone(pid):
        posix.kill(pid, SIGKILL)  # it may be stopped
        posix.waitpid(pid, 0)


def list_descriptors() -> "set[int]":
    """Return the open descriptors of this process."""
    found = set()
    for entry in posix.listdir("/proc/self/fd"):
        try:
            posix.fstat(int(entry))
            found.add(int(entry))
        except OSError:
            pass  # the descriptor of the listing itself
    return found


def escape(text: str) -> str:
    """Return the text with Python escapes, like \\x1b, for unprintable characters and bytes that
    are not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else repr(letter)[1:-1].replace("\\udc", "\\x")
        for letter in text
    )


def say(text: str) -> None:
    """Write one line to stderr, without loading sys.stderr. Ignore errors: there may be no
    reader.
    """
    try:
        posix.write(2, f"solo: {escape(text)}\n".encode(ENCODING, "backslashreplace"))
    except OSError:
        pass


def say_promptly(text: str) -> None:
    """Write one line to stderr unless that would block: signals must be forwarded even if nobody
    reads.
    """
    try:
        if has_room(2):
            say(text)
    except (OSError, ImportError):
        pass  # no descriptor is left to load the module select


def has_room(fd: int, milliseconds: "int | None" = 0) -> bool:
    """Return whether a line can be written without blocking: not to a full pipe, or to a terminal
    stopped by Ctrl-S.

    Wait for that up to so many `milliseconds`; None: without end.
    """
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poller.poll(milliseconds))
