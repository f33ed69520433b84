"""Waiting for processes that no lock of ours tells of, and asking the kernel whose a lock is. Cold."""

import posix
from time import monotonic, sleep

from solo.identity import is_alive
from solo.kernel import FOREVER

SLOW_CHECK = 0.2  # seconds, where the kernel has no pidfd
LONGEST_POLL = 1e6  # seconds; poll(2) takes milliseconds in an int


def wait_exit(record, mine, deadline: float) -> bool:
    """Block until an orphan may have ended; False if the deadline passed first. `mine` is our own world.

    Who gets True looks again: without a pidfd it is only a pause.
    """
    pid, start = record.child
    if record.world.pid_namespace != mine.pid_namespace:
        from solo.namespaces import find_process

        pid = find_process(pid, start, record.world, mine)
        if not pid:
            return True
    try:
        pidfd = posix.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):
        sleep(max(0.0, min(SLOW_CHECK, deadline - monotonic())))
        return monotonic() < deadline
    try:
        # The pid may have been given to another process before the pidfd was open.
        return not is_alive(*record.child, record.world, mine) or poll_pidfd(pidfd, deadline)
    finally:
        posix.close(pidfd)


def poll_pidfd(pidfd: int, deadline: float) -> bool:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if deadline == FOREVER:
        return bool(poll.poll())
    left = max(0.0, deadline - monotonic())
    return bool(poll.poll(1000 * min(left, LONGEST_POLL))) or left > LONGEST_POLL


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
