"""Open file description locks of fcntl(2) on whole files, called as flock(2) is.

They conflict with the classic locks of fcntl(2) and lockf(3). Closing another descriptor of the file does not release
them, as it releases the classic ones.
"""

import posix
import struct
from fcntl import (
    F_OFD_GETLK,
    F_OFD_SETLK,
    F_OFD_SETLKW,
    F_RDLCK,
    F_UNLCK,
    F_WRLCK,
    LOCK_EX,
    LOCK_NB,
    LOCK_SH,
    LOCK_UN,
    fcntl,
)

from solo.identity import walk_parents
from solo.kernel import read_file

FORMAT = "hhqqi"  # struct flock: type, whence (0: SEEK_SET), start, length (0: to the end), pid
TYPES = {LOCK_EX: F_WRLCK, LOCK_SH: F_RDLCK, LOCK_UN: F_UNLCK}
UNNAMED = -1  # the pid of a lock that belongs to an open file description
OFD_LOCK = b" OFDLCK "  # in /proc/PID/fdinfo


def lock(fd: int, mode: int, start: int = 0, length: int = 0) -> None:
    """Do as flock(2) does, by fcntl(2), by default on the whole file. An exclusive lock needs a descriptor open for writing.

    Raises OSError.
    """
    call = F_OFD_SETLK if mode & LOCK_NB else F_OFD_SETLKW
    fcntl(fd, call, make_request(mode, start, length))


def make_request(mode: int, start: int = 0, length: int = 0) -> bytes:
    """Return the struct flock that asks for the lock."""
    return struct.pack(FORMAT, TYPES[mode & ~LOCK_NB], 0, start, length, 0)


def find_owner(fd: int, mode: int = LOCK_EX) -> int:
    """Return the pid of a process whose fcntl(2) lock is in the way of `mode`; 0 if there is none or it is not known.

    Take no lock. Raises OSError.
    """
    kind, _, _, _, pid = struct.unpack(FORMAT, fcntl(fd, F_OFD_GETLK, make_request(mode)))
    if kind == F_UNLCK:
        return 0
    return find_unnamed_owner(fd) if pid == UNNAMED else max(0, pid)


def is_byte_locked(fd: int, offset: int) -> bool:
    """Whether another open file description has a lock on this byte. Take none. Raises OSError."""
    request = struct.pack(FORMAT, F_WRLCK, 0, offset, 1, 0)
    return bool(struct.unpack(FORMAT, fcntl(fd, F_OFD_GETLK, request))[0] != F_UNLCK)


def find_unnamed_owner(fd: int) -> int:
    """Return the pid of a process that has a lock of this kind on the file, an ancestor of this one first.

    0 if none can be seen. Only the processes themselves show such locks: /proc/locks has no pid.
    """
    path = posix.readlink(f"/proc/self/fd/{fd}")
    parents = [pid for pid, _ in walk_parents(posix.getppid())]
    others = [int(entry) for entry in posix.listdir("/proc") if entry.isdigit()]
    return next((pid for pid in (*parents, *others) if has_locked(pid, path)), 0)


def has_locked(pid: int, path: str) -> bool:
    """Whether a descriptor of the process has such a lock on the file of that path. False if it cannot be seen."""
    try:
        entries = posix.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for entry in entries:
        try:
            if posix.readlink(f"/proc/{pid}/fd/{entry}") == path:
                if OFD_LOCK in read_file(f"/proc/{pid}/fdinfo/{entry}"):
                    return True
        except OSError:
            continue  # closed meanwhile
    return False
