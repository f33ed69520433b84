"""Locks the user's files with flock(2) beside the name (--flock), so that flock(1) and solo exclude each other.

The files are never written, truncated, renamed or removed. They cannot record an orphan, so the command dies with its
launcher.
"""

import posix
from errno import EBADF
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from time import monotonic

from solo.errors import Busy, SoloError
from solo.identity import read_stat, walk_parents
from solo.kernel import IS_DIRECTORY, IS_REGULAR, TYPE_MASK, close, decode, read_file, try_lock, wait_lock
from solo.modes import EXCLUSIVE
from solo.process.watch import find_lock_owner
from solo.tickets import read_boot_time

FLAGS = posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
EVERYBODY = 0o666


class Flock:
    """A locked file, held for a claim of `mode`. It has what a holder needs of a ticket and of its queue."""

    __slots__ = ("fd", "mode")

    def __init__(self, fd, mode):
        self.fd = fd
        self.mode = mode

    @property
    def queue(self):
        return self

    def leave(self):
        """Do nothing: there is no queue."""

    @property
    def descriptors(self) -> tuple:
        return (self.fd,)

    def complete(self, child: tuple):
        """Do nothing: there is no record."""

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
    """Lock all `paths` with flock(2), exclusively if `mode` is exclusive, else shared. Append a Flock each to `holds`.

    Lock them in the order of device and inode: it is the same for all contenders, whatever path they use. `deadline` is
    on the monotonic clock; `watch` is as for take_hold. `is_program`: do not refuse locks of this process, which may
    be those of other threads. Raises Busy, SoloError.
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
                raise SoloError(f"{path}: cannot be locked: {error.strerror}") from None
            except BaseException:
                close(fd)
                raise
            close(fd)  # the file was replaced meanwhile: others lock the new one


def lock_file(fd: int, path: str, lock: int, deadline, watch, is_program: bool) -> int:
    """Lock `fd` and return it.

    Reopen it for writing on NFS, as an exclusive lock there needs. Raises OSError, Busy, SoloError.
    """
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
        raise make_busy(path, owner)
    # Wait in one go: a waiter that leaves flock(2) loses its place in the kernel's queue.
    if not watch(lambda _: wait_lock(fd, lock, deadline), deadline, lambda: describe_lock(path, fd), True):
        raise make_busy(path, find_lock_owner(fd))
    return fd


def describe_lock(path: str, fd: int) -> tuple:
    """Return (None, a description of the holder), as describe_wait does."""
    return None, f"{path} is locked by {describe_locker(find_lock_owner(fd))}"


def refuse_own_lock(fd: int, path: str, owner: int):
    """Raise SoloError if an ancestor or an inherited descriptor holds the lock: it would outlive our command."""
    if owner and any(pid == owner for pid, _ in walk_parents(posix.getppid())):
        raise SoloError(f"{path}: locked by pid {owner}, an ancestor of this process: it would wait for itself")
    for entry in posix.listdir("/proc/self/fd"):
        try:
            is_inherited = int(entry) != fd and identify(posix.fstat(int(entry))) == identify(posix.fstat(fd))
            if is_inherited and b" FLOCK " in read_file(f"/proc/self/fdinfo/{entry}"):
                raise SoloError(f"{path}: locked through the inherited descriptor {entry}: it would wait for itself")
        except OSError:
            continue


def make_busy(path: str, owner: int) -> Busy:
    """Return the Busy error for a file that the process `owner` has locked."""
    busy = Busy(f"{path}: busy: locked by {describe_locker(owner)}")
    try:
        busy.since = read_boot_time() + read_stat(owner).start / posix.sysconf("SC_CLK_TCK")
    except OSError:
        pass
    return busy


def open_file(path: str, umask: int) -> int:
    """Open the file for reading, as flock(1) does, so that a script can be executed.

    Create it if missing. Raises SoloError.
    """
    try:
        for _ in range(2):
            try:
                if posix.stat(path).st_mode & TYPE_MASK not in (IS_REGULAR, IS_DIRECTORY):
                    raise SoloError(f"{path}: is neither a file nor a directory")
                return posix.open(path, posix.O_RDONLY | FLAGS)
            except FileNotFoundError:
                pass
            own_umask = posix.umask(umask)
            try:
                return posix.open(path, posix.O_RDONLY | posix.O_CREAT | posix.O_EXCL | FLAGS, EVERYBODY)
            except FileExistsError:
                pass  # another process created it
            finally:
                posix.umask(own_umask)
    except OSError as error:
        raise SoloError(f"{path}: cannot be opened: {error.strerror}") from None
    raise SoloError(f"{path}: cannot be opened: it points to nothing")


def find_identity(path: str, umask: int) -> tuple:
    """Return (device, inode) of the file, created if it is missing.

    Use stat(2) if it exists: closing the file would release an fcntl(2) lock that this process has had since before
    exec.
    """
    try:
        return identify(posix.stat(path))
    except OSError:
        fd = open_file(path, umask)
    try:
        return identify(posix.fstat(fd))
    finally:
        close(fd)


def is_still(path: str, fd: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return identify(posix.stat(path)) == identify(posix.fstat(fd))
    except FileNotFoundError:
        return False


def identify(stat) -> tuple:
    """Return (device, inode)."""
    return stat.st_dev, stat.st_ino


def describe_locker(pid: int) -> str:
    """Return `pid 4711 (make)`, or what is known of the owner of a lock."""
    try:
        return f"pid {pid} ({decode(read_file(f'/proc/{pid}/comm')).rstrip()})" if pid else "someone else"
    except OSError:
        return f"pid {pid}, which is gone, and what it passed the lock on to"
