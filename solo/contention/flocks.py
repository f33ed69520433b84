"""Files of the user's own that are held by flock(2) beside the name (--flock), so that flock(1) and solo exclude each other. Cold.

They are never written, truncated, renamed or removed. Nothing there could remember an orphan, so the command is made to die
with its launcher.
"""

import posix
from errno import EBADF
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from time import monotonic

from solo.errors import Busy, SoloError
from solo.identity import read_stat, walk_parents
from solo.kernel import IS_DIRECTORY, IS_REGULAR, TYPE_MASK, close, decode, read_file, try_lock, wait_lock
from solo.process.watch import find_lock_owner
from solo.modes import EXCLUSIVE
from solo.tickets import read_boot_time

FLAGS = posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
EVERYBODY = 0o666


class Flock:
    """A file held for a claim of `mode`. Like a ticket, and its queue, as far as a holder needs them."""

    __slots__ = ("fd", "mode")

    def __init__(self, fd, mode):
        self.fd = fd
        self.mode = mode

    @property
    def line(self):
        return self

    def leave(self):
        """There is no queue of ours."""

    @property
    def descriptors(self) -> tuple:
        return (self.fd,)

    def complete(self, child: tuple):
        """There is nothing to write into."""

    def release(self):
        try:
            flock(self.fd, LOCK_UN)
        except (OSError, ValueError):
            pass
        self.close()

    def close(self):
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)


def take_flocks(paths: list, mode: str, umask: int, deadline, watch, holds: list, is_program: bool = False):
    """Hold flock(2) on all `paths`, appended to `holds` one by one: exclusive for an exclusive `mode`, else shared.

    In the order of device and inode: it is the same for all, and a file has one place in it however it is called. `deadline`
    is on the monotonic clock; `watch` is as for take_hold; a program may have its
    own locks in other threads, which are no reason to refuse. Raises Busy, SoloError.
    """
    lock = LOCK_EX if mode == EXCLUSIVE else LOCK_SH
    files = {}
    for path in paths:
        files.setdefault(find_identity(path, umask), path)
    for _, path in sorted(files.items()):
        while True:
            fd = open_file(path, umask)
            try:
                fd = lock_file(fd, path, lock, deadline, watch, is_program)
                if is_still(path, fd):
                    holds.append(Flock(fd, mode))
                    break
            except OSError as error:
                close(fd)
                raise SoloError(f"{path}: can not be locked: {error.strerror}") from None
            except BaseException:
                close(fd)
                raise
            close(fd)  # it was replaced meanwhile: others lock the new one


def lock_file(fd: int, path: str, lock: int, deadline, watch, is_program: bool) -> int:
    """The descriptor that is locked at last: `fd`, or one open for writing, as NFS wants it. Raises OSError, Busy, SoloError."""
    try:
        if try_lock(fd, lock):
            return fd
    except OSError as error:
        if error.errno != EBADF:
            raise
        posix.dup2(posix.open(path, posix.O_RDWR | FLAGS), fd, False)
        if try_lock(fd, lock):
            return fd
    owner = find_lock_owner(fd)
    if not is_program:
        refuse_own_lock(fd, path, owner)
    if monotonic() >= deadline:
        raise turn_away(path, owner)
    # Whatever `watch` shows meanwhile: who stops waiting loses the place that the kernel has kept.
    if not watch(lambda _: wait_lock(fd, lock, deadline), deadline, lambda: describe_lock(path, fd), True):
        raise turn_away(path, find_lock_owner(fd))
    return fd


def describe_lock(path: str, fd: int) -> tuple:
    return None, f"{path} is locked by {describe_locker(find_lock_owner(fd))}"


def refuse_own_lock(fd: int, path: str, owner: int):
    """What an ancestor has locked, or a descriptor that was given to us, is not unlocked before our command has ended."""
    if owner and any(pid == owner for pid, _ in walk_parents(posix.getppid())):
        raise SoloError(f"{path}: locked by pid {owner}, an ancestor of this process: it would wait for itself")
    for entry in posix.listdir("/proc/self/fd"):
        try:
            given = int(entry) != fd and identify(posix.fstat(int(entry))) == identify(posix.fstat(fd))
            if given and b" FLOCK " in read_file(f"/proc/self/fdinfo/{entry}"):
                raise SoloError(f"{path}: locked through descriptor {entry}, which solo was given: it would wait for itself")
        except OSError:
            continue


def turn_away(path: str, owner: int) -> Busy:
    busy = Busy(f"{path}: busy: locked by {describe_locker(owner)}")
    try:
        busy.since = read_boot_time() + read_stat(owner).start / posix.sysconf("SC_CLK_TCK")
    except OSError:
        pass
    return busy


def open_file(path: str, umask: int) -> int:
    """Open for reading, as flock(1) does: a script may be executed meanwhile. Created, empty, if missing. Raises SoloError."""
    try:
        for _ in range(2):
            try:
                if posix.stat(path).st_mode & TYPE_MASK not in (IS_REGULAR, IS_DIRECTORY):
                    raise SoloError(f"{path}: is neither a file nor a directory")
                return posix.open(path, posix.O_RDONLY | FLAGS)
            except FileNotFoundError:
                pass
            ours = posix.umask(umask)
            try:
                return posix.open(path, posix.O_RDONLY | posix.O_CREAT | posix.O_EXCL | FLAGS, EVERYBODY)
            except FileExistsError:
                pass  # someone was faster
            finally:
                posix.umask(ours)
    except OSError as error:
        raise SoloError(f"{path}: can not be opened: {error.strerror}") from None
    raise SoloError(f"{path}: can not be opened: it points to nothing")


def find_identity(path: str, umask: int) -> tuple:
    """Which file it is, made if it is missing. To open and close it would give up an fcntl(2) lock from before we were executed."""
    try:
        return identify(posix.stat(path))
    except OSError:
        fd = open_file(path, umask)
    try:
        return identify(posix.fstat(fd))
    finally:
        close(fd)


def is_still(path: str, fd: int) -> bool:
    try:
        return identify(posix.stat(path)) == identify(posix.fstat(fd))
    except FileNotFoundError:
        return False


def identify(stat) -> tuple:
    return stat.st_dev, stat.st_ino


def describe_locker(pid: int) -> str:
    try:
        return f"pid {pid} ({decode(read_file(f'/proc/{pid}/comm')).rstrip()})" if pid else "someone else"
    except OSError:
        return f"pid {pid}, which is gone, and what it passed the lock on to"
