"""Open file description locks of fcntl(2) on whole files, called as flock(2) is.

They conflict with the classic locks of fcntl(2) and lockf(3), but closing another descriptor does
not release them.
"""

import fcntl
import os
import struct

from solo.identity import walk_parents
from solo.kernel import read_file

FORMAT = "hhqqi"  # struct flock: type, whence (0: SEEK_SET), start, length (0: to the end), pid
TYPES = {fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}
UNNAMED = -1  # the pid of a lock that belongs to an open file description
OFD_LOCK = " OFDLCK "  # in /proc/PID/fdinfo


def lock(fd: int, mode: int, start: int = 0, length: int = 0) -> None:
    """Do as flock(2) does, by default on the whole file. An exclusive lock needs a writable
    descriptor. Raises OSError.
    """
    call = fcntl.F_OFD_SETLK if mode & fcntl.LOCK_NB else fcntl.F_OFD_SETLKW
    fcntl.fcntl(fd, call, make_request(mode, start, length))


def make_request(mode: int, start: int = 0, length: int = 0) -> bytes:
    return struct.pack(FORMAT, TYPES[mode & ~fcntl.LOCK_NB], 0, start, length, 0)


def find_owner(fd: int, mode: int = fcntl.LOCK_EX) -> int:
    """Return the pid of a process whose fcntl(2) lock is in the way of `mode`; 0: none, or not
    known. Raises OSError.
    """
    pid = find_conflict(fd, mode)
    return find_sharer(fd, OFD_LOCK) if pid == UNNAMED else max(0, pid or 0)


def find_conflict(fd: int, mode: int, start: int = 0, length: int = 0) -> "int | None":
    """Return the pid, or UNNAMED, of a lock that is in the way of `mode`, None if there is none.
    Take none. Raises OSError.
    """
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, make_request(mode, start, length))
    kind, _, _, _, pid = struct.unpack(FORMAT, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def find_sharer(fd: int, *marks: str) -> int:
    """Return the pid of a process that has locked the file of `fd`, an ancestor first; 0: none can
    be seen.

    All `marks` are in /proc/PID/fdinfo of its descriptor. /proc/locks has no pid for an OFD lock,
    and for one of flock(2) that of the process that called it, which may have passed the descriptor
    on and ended.
    """
    path = os.readlink(f"/proc/self/fd/{fd}")
    parents = [pid for pid, _ in walk_parents(os.getppid())]
    others = map(int, filter(str.isdigit, os.listdir("/proc")))
    return next((pid for pid in (*parents, *others) if has_locked(pid, path, marks)), 0)


def has_locked(pid: int, path: str, marks: "tuple[str, ...]") -> bool:
    """Return whether a descriptor of the process has such a lock on the file. False if it cannot be
    seen.
    """
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for entry in entries:
        try:
            if os.readlink(f"/proc/{pid}/fd/{entry}") == path:
                text = read_file(f"/proc/{pid}/fdinfo/{entry}")
                if all(mark.encode() in text for mark in marks):
                    return True
        except OSError:
            continue  # closed meanwhile
    return False
