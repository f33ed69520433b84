"""System calls that need more than one line of Python, one small function each. They raise OSError and explain nothing.

`posix` instead of `os`: importing os costs a millisecond, and posix.environ and its kin speak bytes.
"""

import fcntl
import posix
import sys
from _signal import (
    ITIMER_REAL,
    SIG_BLOCK,
    SIG_DFL,
    SIG_SETMASK,
    SIG_UNBLOCK,
    SIGALRM,
    SIGURG,
    getitimer,
    getsignal,
    pthread_sigmask,
    setitimer,
    signal,
    sigpending,
    sigtimedwait,
)
from time import monotonic

from solo.errors import Superseded

ENCODING = sys.getfilesystemencoding()
FOREVER = float("inf")

# O_NONBLOCK so that a FIFO put in a file's place can not hang us.
SAFELY = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
DIRECTORY = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC
IS_DIRECTORY, IS_REGULAR, TYPE_MASK = 0o040000, 0o100000, 0o170000

EPERM, ENOENT, ENOEXEC, EACCES, EINVAL, EFBIG, ENOSPC, EROFS = 1, 2, 8, 13, 22, 27, 28, 30  # everywhere on Linux; importing errno takes 40 µs

BELL = SIGURG  # ignored by default: whoever does not listen takes no harm
USUAL_SIZE = 4096  # bytes of what is read at once
STATUS_SIZE = 1 << 20  # bytes of a /proc/PID/status: it lists up to 65536 groups before what we want
LONGEST_TIMER = 1e8  # seconds; setitimer(2) overflows somewhere above
RING_AGAIN = 0.05  # seconds

OWNER_BITS = 0o700
is_umask_dropped = False  # only in a process of our own: the umask of a program is its own
blocker = None  # what blocks instead of `wait`, in a program that is not ours: api/blocking.py


def occupy_standard_descriptors():
    """Where the caller closed some of 0 to 2, take them: a ticket must not be where stderr was. The command sees none."""
    while posix.open("/", DIRECTORY) <= 2:
        pass


def encode(text: str) -> bytes:
    """The bytes that the system gave us as `text`."""
    return text.encode(ENCODING, "surrogateescape")


def decode(data: bytes) -> str:
    return data.decode(ENCODING, "surrogateescape")


def try_lock(fd: int, mode: int) -> bool:
    """flock(2) without waiting; False if someone else's lock is in the way."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def wait_lock(fd: int, mode: int, deadline: float) -> bool:
    """Block in flock(2); False once `deadline` (on the monotonic clock, in seconds) has passed without it."""
    if deadline <= monotonic():
        return try_lock(fd, mode)
    return wait(lambda: fcntl.flock(fd, mode), deadline) if blocker is None else blocker.wait_lock(fd, mode, deadline)


def wait_unlocked(fd: int, deadline: float) -> bool:
    """Block until nobody holds flock(2) on the file of `fd`, which may then be locked, shared; False once `deadline` has passed."""
    if deadline <= monotonic():
        return try_lock(fd, fcntl.LOCK_SH)
    return wait(lambda: fcntl.flock(fd, fcntl.LOCK_SH), deadline) if blocker is None else blocker.wait_unlocked(fd, deadline)


def wait_poll(poller, deadline: float) -> bool:
    """Block in poll(2); False once `deadline` has passed and nothing is ready."""
    if deadline <= monotonic():
        return bool(poller.poll(0))
    return wait(poller.poll, deadline) if blocker is None else blocker.wait_poll(poller, deadline)


def block_by(other):
    """From now on `other` blocks: alarms are for a process of our own, not for the threads of somebody's program."""
    global blocker
    blocker = other


def wait(block, deadline: float) -> bool:
    """Call `block`, which may sleep for ever; False once `deadline` has passed. Raises Superseded if a newer one rang the bell."""
    left = deadline - monotonic()
    timed = deadline != FOREVER
    if timed and 0 < getitimer(ITIMER_REAL)[0] <= left:
        # An alarm from before solo was executed ends us first, if it is not blocked or ignored.
        timed = getsignal(SIGALRM) != SIG_DFL or SIGALRM in pthread_sigmask(SIG_BLOCK, ())
    over = False

    def ring(number, _):
        # Raising is the only way out: PEP 475 restarts what a handler interrupts and returns from.
        nonlocal over
        if not over and (number == BELL or monotonic() >= deadline):
            over = True
            raise Superseded("superseded by a newer one") if number == BELL else TimeoutError

    begin = monotonic()
    signals = (BELL, SIGALRM) if timed else (BELL,)
    mask = pthread_sigmask(SIG_BLOCK, signals)
    dispositions = [signal(number, ring) for number in signals]
    if timed:
        # It rings again and again: an alarm in the moment before `block` blocks would be lost.
        alarm, interval = setitimer(ITIMER_REAL, max(0.001, min(left, LONGEST_TIMER)), RING_AGAIN)
    try:
        pthread_sigmask(SIG_UNBLOCK, signals)
        block()
        over = True
        return True
    except TimeoutError:
        return False
    finally:
        over = True
        if timed:
            setitimer(ITIMER_REAL, 0)
        pthread_sigmask(SIG_SETMASK, mask)
        for number, disposition in zip(signals, dispositions):
            signal(number, disposition)
        if timed and alarm:  # set before solo was executed, and the command's to hear
            setitimer(ITIMER_REAL, max(0.001, alarm - (monotonic() - begin)), interval)


def listen_for_bell():
    """From now on no ring is lost, however long we do something else; what `stop_listening` gives back to the caller."""
    return pthread_sigmask(SIG_BLOCK, {BELL})


def has_rung() -> bool:
    return BELL in sigpending()


def stop_listening(mask):
    while sigtimedwait({BELL}, 0):
        pass
    pthread_sigmask(SIG_SETMASK, mask)


def read_file(path: str, size: int = USUAL_SIZE) -> bytes:
    """The first `size` bytes of a file, in one read: enough for what /proc tells of one process."""
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(fd, size)
    finally:
        posix.close(fd)


def list_directory(fd: int) -> list:
    """What is in a directory. By a descriptor of its own: one that was read to its end begins there, unless it can be rewound."""
    return posix.listdir(f"/proc/self/fd/{fd}")


def write_whole(fd: int, data: bytes, offset: int):
    """Write all of `data` at `offset`: a full disk first writes a part, and says why at the rest."""
    while data:
        written = posix.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def drop_umask() -> int:
    """Make the umask of this process 0 and return what it was. It would narrow the modes of shared files."""
    global is_umask_dropped
    is_umask_dropped = True
    return posix.umask(0)


def create(call, *words, **within):
    """Call mkdir(2) or open(2) for something new. The umask does not take the owner's bits: the owner could not open it again.

    A program's umask is changed only if it takes such bits, and only for the call. It still holds for group and others.
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
    """Return the umask of this process. umask(2) could only set it, for all threads."""
    for line in read_file("/proc/self/status").split(b"\n"):
        if line.startswith(b"Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def close(fd: int):
    """Close, whatever close(2) says: on Linux the descriptor is gone either way."""
    try:
        posix.close(fd)
    except OSError:
        pass


def list_descriptors() -> set:
    """The descriptors that are open now."""
    found = set()
    for entry in posix.listdir("/proc/self/fd"):
        try:
            posix.fstat(int(entry))
            found.add(int(entry))
        except OSError:
            pass  # it was the listing itself
    return found


def escape(text: str) -> str:
    """The text on one line, without anything that a terminal obeys: what is not printable as Python writes it, like \\x1b. The rule
    for all that solo prints, logs or puts into an error.
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def say(text: str):
    """One line on stderr, without the weight of sys.stderr; lost if nobody can read it."""
    try:
        posix.write(2, f"solo: {escape(text)}\n".encode(ENCODING, "backslashreplace"))
    except OSError:
        pass


def say_promptly(text: str):
    """The same, unless it would block: nobody may be reading, and signals must be forwarded. Never a reason to end."""
    try:
        if has_room(2):
            say(text)
    except (OSError, ImportError):
        pass  # no descriptor is left to load select by


def has_room(fd: int) -> bool:
    """Would a line be taken at once? Not where a pipe is full, or a terminal was stopped by Ctrl-S."""
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poller.poll(0))
