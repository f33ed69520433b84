"""Waiting for processes that no lock of ours tells of, or for one of several, and asking the kernel whose a lock is. Cold."""

import posix
import select
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, lockf
from time import monotonic

from solo.identity import find_pid, read_stat
from solo.kernel import close, read_file, wait_lock, wait_poll

SLOW_CHECK = 0.2  # seconds, for what has no descriptor that tells all
LONGEST_PATIENCE = 60.0  # seconds between two looks at a gate that moves
TIME_SLICE = 0.01  # seconds, for which a runnable process may keep the owner of the gate from running


def wait_any(tickets: list, deadline: float) -> bool:
    """Block until one of `tickets` may no longer be in the way; False if the deadline passed first.

    Who gets True looks again: where something can not be watched it is only a pause.
    """
    watches = []
    try:
        known, tickets = len(tickets), [ticket for ticket in tickets if ticket.is_open]
        for ticket in tickets:
            watches.append(ticket.open_watch())
        blind = None in watches or known > len(tickets)
        exact = not blind and all(ticket.is_watch_exact for ticket in tickets)
        while True:
            if poll(watches, deadline if exact else min(deadline, monotonic() + SLOW_CHECK)) or blind:
                return True
            if any(not ticket.is_watch_exact and ticket.has_left() for ticket in tickets):
                return True
            if monotonic() >= deadline:
                return False
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
    pid, start = find_pid(process, theirs, mine), process[1]
    if pid <= 0:
        return None
    try:
        pidfd = posix.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None  # an old kernel, or no descriptor left
    try:
        # The pid may have been given to another process before the pidfd was open.
        if read_stat(pid).is_started(start, theirs, mine):
            return pidfd
        gone = True
    except OSError:
        gone = poll([pidfd], 0)  # else hidden: who can not be told apart is not told
    close(pidfd)
    if gone:
        raise ProcessLookupError
    return None


def poll(watches: list, deadline: float) -> bool:
    """Block until one of the descriptors is readable, those that are None left out; False if the deadline passed first."""
    poller = select.poll()
    for watch in watches:
        if watch is not None:
            poller.register(watch, select.POLLIN)
    return wait_poll(poller, deadline)


def wait_crowded_gate(gate: int, seen: int, patience: float) -> tuple:
    """Block until flock(2) on the `gate` is ours: (0, 0). If it stands still: (its owner's pid or 0, for how many seconds).

    It moves if its mtime is not as last `seen`, `patience` seconds ago. Only one waiter at a time asks whose the gate is:
    opening /proc/locks stops every flock(2) of the machine.
    """
    still = pause = patience
    asks = is_first(gate)
    try:
        while True:
            if wait_lock(gate, LOCK_EX, monotonic() + pause):
                return 0, 0
            before, seen = seen, posix.fstat(gate).st_mtime_ns
            still = still + pause if seen == before else 0
            if still >= 2 * patience + TIME_SLICE * count_runnable():
                return find_lock_owner(gate) if asks else 0, still
            pause = min(2 * pause, LONGEST_PATIENCE)
    finally:
        if asks:
            lockf(gate, LOCK_UN)


def is_first(gate: int) -> bool:
    """Take an fcntl(2) lock on the gate, which keeps out nobody from behind it; False if another waiter has it."""
    try:
        lockf(gate, LOCK_EX | LOCK_NB)
        return True
    except OSError:
        return False


def count_runnable() -> int:
    """The threads of this machine that run or want to."""
    try:
        return int(read_file("/proc/loadavg").split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0


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
