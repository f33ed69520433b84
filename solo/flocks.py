"""Files of the user's own that are held by flock(2) beside the name (--flock), so that flock(1) and solo exclude each other. Cold.

They are never written, truncated, renamed or removed. Nothing there could remember an orphan, which is why the command dies
with its launcher.
"""

import posix
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from time import monotonic

from solo.errors import Busy, SoloError
from solo.identity import walk_parents
from solo.kernel import IS_DIRECTORY, IS_REGULAR, TYPE_MASK, close, decode, read_file, try_lock, wait_lock
from solo.orphans import find_lock_owner
from solo.rule import EXCLUSIVE

FLAGS = posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
EVERYBODY = 0o666


class Flock:
    """A file held. Like a ticket, as far as a holder needs it."""

    __slots__ = ("fd",)

    def __init__(self, fd):
        self.fd = fd

    @property
    def descriptors(self) -> tuple:
        return (self.fd,)

    def complete(self, child: tuple):
        """There is nothing to write into."""

    def release(self):
        try:
            flock(self.fd, LOCK_UN)
        except OSError:
            pass
        close(self.fd)


def take_flocks(paths: list, mode: str, umask: int, deadline, tell, holds: list):
    """Hold flock(2) on all `paths`, appended to `holds` one by one: exclusive for an exclusive `mode`, else shared.

    In the order of device and inode: it is the same for all, and a file has one place in it however it is called. `deadline`
    is on the monotonic clock, or None not to wait. Raises Busy, SoloError.
    """
    lock = LOCK_EX if mode == EXCLUSIVE else LOCK_SH
    files = {}
    for path in paths:
        fd = open_file(path, umask)
        stat = posix.fstat(fd)
        close(fd)
        files.setdefault((stat.st_dev, stat.st_ino), path)
    for _, path in sorted(files.items()):
        holds.append(Flock(take_flock(path, lock, umask, deadline, tell)))


def take_flock(path: str, lock: int, umask: int, deadline, tell) -> int:
    while True:
        fd = open_file(path, umask)
        try:
            if not try_lock(fd, lock):
                owner = find_lock_owner(fd)
                if owner and any(pid == owner for pid, _ in walk_parents(posix.getppid())):
                    raise SoloError(f"{path}: locked by pid {owner}, an ancestor of this process: it would wait for itself")
                if deadline is None or monotonic() >= deadline:
                    raise Busy(f"{path}: busy: locked by {describe_owner(owner)}")
                tell(f"{path}: waiting: locked by {describe_owner(owner)}")
                if not wait_lock(fd, lock, deadline):
                    raise Busy(f"{path}: busy: locked by {describe_owner(find_lock_owner(fd))}")
            if is_still(path, fd):
                return fd
        except OSError as error:
            close(fd)
            raise SoloError(f"{path}: can not be locked: {error.strerror}") from None
        except BaseException:
            close(fd)
            raise
        close(fd)  # it was replaced meanwhile: others lock the new one


def open_file(path: str, umask: int) -> int:
    """Writable if we may, as NFS wants it for an exclusive lock. Created, empty, if it is missing. Raises SoloError."""
    try:
        while True:
            try:
                if posix.stat(path).st_mode & TYPE_MASK not in (IS_REGULAR, IS_DIRECTORY):
                    raise SoloError(f"{path}: is neither a file nor a directory")
                try:
                    return posix.open(path, posix.O_RDWR | FLAGS)
                except FileNotFoundError:
                    continue
                except OSError:
                    return posix.open(path, posix.O_RDONLY | FLAGS)
            except FileNotFoundError:
                pass
            ours = posix.umask(umask)
            try:
                return posix.open(path, posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | FLAGS, EVERYBODY)
            except FileExistsError:
                if is_dangling(path):
                    raise
            finally:
                posix.umask(ours)
    except OSError as error:
        raise SoloError(f"{path}: can not be opened: {error.strerror}") from None


def is_dangling(path: str) -> bool:
    """A symbolic link to nothing: it is for its maker to make what it points to."""
    try:
        posix.stat(path)
        return False
    except FileNotFoundError:
        try:
            posix.readlink(path)
            return True
        except OSError:
            return False


def is_still(path: str, fd: int) -> bool:
    try:
        there, here = posix.stat(path), posix.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def describe_owner(pid: int) -> str:
    try:
        return f"pid {pid} ({decode(read_file(f'/proc/{pid}/comm')).rstrip()})" if pid else "someone else"
    except OSError:
        return f"pid {pid}, which is gone, and what it passed the lock on to"
