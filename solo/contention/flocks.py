"""Locks the user's files beside the name, as other programs do: with flock(2) for --flock, with
fcntl(2) for --fcntl.

The files are never written, truncated, renamed or removed. They cannot record an orphan: the
command dies with its launcher.
"""

import os
from errno import EBADF
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from time import monotonic, time

from solo.errors import Busy, SoloError, make_own_wait
from solo.identity import Process, descends_from, read_stat
from solo.kernel import (
    IS_DIRECTORY,
    IS_REGULAR,
    TYPE_MASK,
    Opened,
    close,
    decode,
    read_boot_clock,
    read_file,
    try_lock,
    wait_lock,
)
from solo.modes import EXCLUSIVE
from solo.process import ofd
from solo.process.watch import find_lock_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from solo.contention.protocols import Hold, Watch
    from solo.plan import Plan

FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
EVERYBODY = 0o666


class Flock(Opened):
    """A file locked with flock(2), held for a claim of `mode`. It has what a holder needs of a
    ticket and of its queue.

    The class is the kind of lock: `call` locks as flock(2) does, `find_owner` returns the pid of a
    holder or 0, `mark` is in /proc/PID/fdinfo of a locked descriptor, `types` are the types of
    files that can be locked.
    """

    option = "flock"
    call: "Callable[[int, int], object]" = staticmethod(flock)
    mark = " FLOCK "
    types: "tuple[int, ...]" = (IS_REGULAR, IS_DIRECTORY)
    type_words = "neither a file nor a directory"
    # that open(2) needs; as flock(1) reads only, a script can be executed while locked
    access: "dict[int, int]" = {}

    def __init__(self, fd: int, mode: str) -> None:
        self.fd = fd
        self.mode = mode

    @property
    def queue(self) -> "Flock":
        return self

    @staticmethod
    def find_owner(fd: int, mode: int) -> int:
        return find_lock_owner(fd)

    def leave(self) -> None:
        pass  # there is no queue

    def complete(self, child: "Process") -> None:
        pass  # there is no record

    def release(self) -> None:
        try:
            self.call(self.fd, LOCK_UN)
        except (OSError, ValueError):
            pass
        self.close()


class FcntlLock(Flock):
    """A file locked with fcntl(2), by a lock of the open file description."""

    option = "fcntl"
    call = staticmethod(ofd.lock)
    mark = ofd.OFD_LOCK
    types = (IS_REGULAR,)
    type_words = "not a file, so fcntl(2) cannot lock it"
    find_owner = staticmethod(ofd.find_owner)
    access = {LOCK_EX: os.O_RDWR}


Kind = type[Flock]
FILE_LOCKS: "tuple[Kind, ...]" = Flock, FcntlLock


def lock_files(
    plan: "Plan", umask: int, watch: "Watch", holds: "list[Hold]", is_program: bool = False
) -> None:
    """Lock the files of the plan, exclusively if its claim is exclusive, else shared. Append a
    Flock each to `holds`.

    Lock them in the order of device and inode: it is the same for all contenders, whatever path
    they use. `watch` is as for Attempt. `is_program`: do not refuse locks of this process, which
    may be of other threads. Raises Busy, SoloError.
    """
    mode = plan.claim.mode
    wait = FileWait(mode, umask, plan.file_deadline, watch, is_program)
    found: dict[tuple[int, int], dict[Kind, str]] = {}
    for kind, paths in zip(FILE_LOCKS, (plan.flock, plan.fcntl)):
        for path in paths:
            found.setdefault(wait.find_identity(path, kind), {}).setdefault(kind, path)
    for identity, kinds in sorted(found.items(), key=lambda item: item[0]):
        if is_program:
            refuse_to_lose_lock(identity, next(iter(kinds.values())))
        for kind, path in kinds.items():
            holds.append(kind(wait.lock_path(kind, path), mode))


def choose_lock(mode: str) -> int:
    return LOCK_EX if mode == EXCLUSIVE else LOCK_SH


class FileWait:
    """How one contender locks its files, whatever their kind: by `lock`, which is LOCK_EX or
    LOCK_SH, until `deadline`. What is missing is created under `umask`.
    """

    def __init__(
        self, mode: str, umask: int, deadline: float, watch: "Watch", is_program: bool
    ) -> None:
        self.lock = choose_lock(mode)
        self.umask = umask
        self.deadline = deadline
        self.watch = watch
        self.is_program = is_program

    def lock_path(self, kind: Kind, path: str) -> int:
        """Return a locked descriptor of the file that the path leads to. Raises Busy, SoloError."""
        while True:
            fd = self.open(path, kind)
            try:
                self.lock_file(kind, fd, path)
                if is_still(path, fd):
                    return fd
            except OSError as error:
                close(fd)
                raise SoloError(f"{path}: cannot be locked: {error.strerror}") from None
            except BaseException:
                close(fd)
                raise
            close(fd)  # the file was replaced meanwhile: others lock the new one

    def lock_file(self, kind: Kind, fd: int, path: str) -> None:
        """Lock `fd`, which is opened anew for writing on NFS, as an exclusive lock needs. Raises
        OSError, Busy, SoloError.
        """
        try:
            if try_lock(fd, self.lock, kind.call):
                return
        except OSError as error:
            if error.errno != EBADF:
                raise
            writable = os.open(path, os.O_RDWR | FLAGS)
            os.dup2(writable, fd, False)
            close(writable)
            if try_lock(fd, self.lock, kind.call):
                return
        owner = kind.find_owner(fd, self.lock)
        if not self.is_program:
            refuse_own_lock(kind, fd, path, owner)
        if monotonic() >= self.deadline:
            raise make_busy(kind, fd, path, owner)

        def describe() -> "tuple[int | None, str, str]":
            locker = describe_locker(kind, fd, kind.find_owner(fd, self.lock))
            return None, f"{path} is locked by {locker}", ""

        def block(_: float) -> bool:
            return wait_lock(fd, self.lock, self.deadline, kind.call)

        # Wait in one go: a waiter that leaves the system call loses its place in the kernel's
        # queue.
        if not self.watch(block, self.deadline, describe, True):
            raise make_busy(kind, fd, path, kind.find_owner(fd, self.lock))

    def open(self, path: str, kind: Kind) -> int:
        """Open the file with the access that the lock needs. Create it if missing. Raises
        SoloError.
        """
        flags = kind.access.get(self.lock, os.O_RDONLY) | FLAGS
        try:
            for _ in range(2):
                try:
                    if os.stat(path).st_mode & TYPE_MASK not in kind.types:
                        raise SoloError(f"{path}: is {kind.type_words}")
                    return os.open(path, flags)
                except FileNotFoundError:
                    pass
                own_umask = os.umask(self.umask)
                try:
                    return os.open(path, os.O_CREAT | os.O_EXCL | flags, EVERYBODY)
                except FileExistsError:
                    pass  # another process created it
                finally:
                    os.umask(own_umask)
        except OSError as error:
            raise fail(path, kind, self.lock, error) from None
        raise SoloError(f"{path}: cannot be opened: it points to nothing")

    def find_identity(self, path: str, kind: Kind) -> "tuple[int, int]":
        """Return (device, inode) of the file, created if it is missing."""
        try:
            # Not by opening it: to close it would release an fcntl(2) lock that this process has
            # had since before exec.
            return identify(os.stat(path))
        except OSError:
            fd = self.open(path, kind)
        try:
            return identify(os.fstat(fd))
        finally:
            close(fd)


def refuse_to_lose_lock(identity: "tuple[int, int]", path: str) -> None:
    """Raise SoloError if this program has locked the file with classic fcntl(2): closing our
    descriptor releases it.
    """
    for _ in find_locking(identity, " POSIX "):
        why = "this program would lose its own fcntl(2) lock on it (release that first)"
        raise SoloError(f"{path}: cannot be locked: {why}")


def refuse_own_lock(kind: Kind, fd: int, path: str, owner: int) -> None:
    """Raise SoloError if an ancestor, an inherited descriptor or this process, since before its
    exec, holds the lock.
    """
    if owner and descends_from(os.getppid(), owner):
        raise make_own_wait(f"{path}: locked by pid {owner}, an ancestor of this process")
    for entry in find_locking(identify(os.fstat(fd)), kind.mark):
        if entry != fd:
            raise make_own_wait(f"{path}: locked through the inherited descriptor {entry}")
    if owner == os.getpid():
        raise make_own_wait(f"{path}: locked by the program that executed solo")


def find_locking(identity: "tuple[int, int]", mark: str) -> "Iterator[int]":
    """Yield the descriptors of this process that hold a lock with this `mark` on the file."""
    for entry in map(int, os.listdir("/proc/self/fd")):
        try:
            if identify(os.fstat(entry)) == identity and mark.encode() in read_file(
                f"/proc/self/fdinfo/{entry}"
            ):
                yield entry
        except OSError:
            continue


def make_busy(kind: Kind, fd: int, path: str, owner: int) -> Busy:
    """Return the Busy error for a file that the process `owner` has locked."""
    busy = Busy(f"{path}: busy: locked by {describe_locker(kind, fd, owner)}")
    try:
        busy.since = time() - read_boot_clock() + read_stat(owner).start / os.sysconf("SC_CLK_TCK")
    except OSError:
        pass
    return busy


def fail(path: str, kind: Kind, lock: int, error: OSError) -> SoloError:
    why = " for writing, as an exclusive lock needs" if lock in kind.access else ""
    return SoloError(f"{path}: cannot be opened{why}: {error.strerror}")


def is_still(path: str, fd: int) -> bool:
    """Return whether the path still leads to the open file."""
    try:
        return identify(os.stat(path)) == identify(os.fstat(fd))
    except FileNotFoundError:
        return False


def identify(stat: os.stat_result) -> "tuple[int, int]":
    return stat.st_dev, stat.st_ino


def describe_locker(kind: Kind, fd: int, pid: int) -> str:
    """Return `pid 4711 (make)`, or what is known of the owner of a lock on the file of `fd`. Take
    no lock for that.
    """
    known = describe_program(pid)
    if known:
        return known
    marks = (kind.mark, f" {pid} ") if pid else (kind.mark,)
    heir = describe_program(ofd.find_sharer(fd, *marks))
    if heir:
        return f"{heir}, which inherited the lock of pid {pid}" if pid else heir
    return (
        f"pid {pid}, which is gone, and what it passed the lock on to" if pid else "another process"
    )


def describe_program(pid: int) -> str:
    """Return `pid 4711 (make)`, "" for 0 and for a process that is gone."""
    try:
        return f"pid {pid} ({decode(read_file(f'/proc/{pid}/comm')).rstrip()})" if pid else ""
    except OSError:
        return ""
