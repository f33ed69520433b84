"""Waiting for processes that no lock of ours tells of, or for one of several, and asking the kernel whose a lock is. Cold."""

import posix
import select
from time import monotonic

from solo.identity import read_stat
from solo.kernel import close, wait

SLOW_CHECK = 0.2  # seconds, for what has no descriptor to wait on


def wait_any(tickets: list, deadline: float) -> bool:
    """Block until one of `tickets` may no longer be in the way; False if the deadline passed first.

    Who gets True looks again: where something can not be watched it is only a pause.
    """
    watches = []
    try:
        for ticket in tickets:
            watches.append(ticket.open_watch())
        return poll(watches, deadline)
    except ProcessLookupError:
        return True
    finally:
        for watch in watches:
            if watch is not None:
                close(watch)


def open_pidfd(process: tuple, theirs, mine):
    """A pidfd of (pid, start) in the world `theirs`: readable once it is dead.

    None if there is none to be had. Raises ProcessLookupError if it is gone.
    """
    pid, start = process
    if theirs.pid_namespace != mine.pid_namespace:
        from solo.namespaces import find_process

        pid = find_process(pid, start, theirs, mine)
        if not pid:
            return None
    try:
        pidfd = posix.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None  # an old kernel
    try:
        # The pid may have been given to another process before the pidfd was open.
        if not read_stat(pid).is_started(start, theirs, mine):
            close(pidfd)
            raise ProcessLookupError
    except ProcessLookupError:
        raise
    except OSError:
        pass  # hidden: better waited for than passed over
    return pidfd


def poll(watches: list, deadline: float) -> bool:
    """Block until one of the descriptors is readable; where one is None, for a moment only."""
    blind = None in watches
    poller = select.poll()
    for watch in watches:
        if watch is not None:
            poller.register(watch, select.POLLIN)
    if deadline <= monotonic():
        return bool(poller.poll(0))
    pause = min(deadline, monotonic() + SLOW_CHECK) if blind else deadline
    return wait(poller.poll, pause) or monotonic() < deadline


def find_lock_owner(fd: int) -> int:
    """The pid that holds flock(2) on this file, from /proc/locks; 0 if it can not be told."""
    stat = posix.fstat(fd)
    file = f"{stat.st_dev >> 8 & 0xfff:02x}:{stat.st_dev & 0xff | stat.st_dev >> 12 & 0xfff00:02x}:{stat.st_ino}"
    try:
        with open("/proc/locks") as locks:
            for line in locks:
                # 1: FLOCK  ADVISORY  WRITE 4711 00:2d:1234 0 EOF   (one who waits has -> after the number)
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5] == file:
                    return max(0, int(fields[4]))
    except (OSError, ValueError, IndexError):
        pass
    return 0
