"""Waits for processes that hold no lock of solo, or for one of several tickets; finds the owner of
a lock.
"""

import posix
import select
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, lockf
from time import monotonic

from solo.errors import Busy, SoloError
from solo.identity import Origin, Process, find_pid, is_stopped, read_stat
from solo.kernel import close, decode, read_file, wait_lock, wait_poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from solo.tickets import FileTicket, Ticket  # a Ticket waits by watch

COMMAND_SIZE = 60  # bytes
GATE_BUSY = "busy: another process has its gate locked"
SLOW_CHECK = 0.2  # seconds between two checks of a process that no descriptor watches exactly
LONGEST_GATE_PAUSE = 60.0  # seconds between two looks at a gate whose queue makes progress
TIME_SLICES = 0.02  # seconds for which each runnable process may delay the owner of the gate
IN_ATTRIB = 4  # of inotify(7): the number of links changed, among other attributes


def wait_any(tickets: "Sequence[Ticket]", deadline: float) -> bool:
    """Block until one of `tickets` may no longer be in the way. Return False if the deadline passed
    first.

    True means "look again", not "free": if a ticket cannot be watched, this is only a pause.
    """
    watches: list[int] = []
    inexact: list[Ticket] = []
    blind = False
    try:
        for ticket in tickets:
            found, is_exact = ticket.open_watches() if ticket.is_open else ([], True)
            watches += found
            blind = blind or not found
            inexact += [] if is_exact or not found else [ticket]
        while True:
            until = min(deadline, monotonic() + SLOW_CHECK) if blind or inexact else deadline
            if poll(watches, until) or any(ticket.has_left() for ticket in inexact):
                return True
            if monotonic() >= deadline:
                return False
            if blind:
                return True
    except ProcessLookupError:
        return True
    finally:
        for watch in watches:
            close(watch)


def watch_ticket(ticket: "FileTicket", is_orphan: bool) -> "tuple[list[int], bool]":
    """Return new descriptors, one of which is readable once a ticket kept as a file may have ended,
    and whether they report every end. `is_orphan`: its launcher has ended. Raises
    ProcessLookupError if it is no longer in the way.
    """
    record = ticket.read_record()
    if record is None:
        return [], False
    process = (
        record.child if is_orphan or (record.is_guarded and record.descriptor is None) else None
    )
    try:
        pidfd = open_pidfd(process or record.launcher, record.origin, ticket.queue.origin)
    except ProcessLookupError:
        if process and record.descriptor is None:
            raise
        # a child of the launcher has the lock, just before its exec, or a descriptor has it
        pidfd = None
    if pidfd is None:
        return [], False
    if process is None or record.keep is None:
        # a launcher releases just before it exits, a program long before
        return [pidfd], process is not None
    removal = watch_links([ticket.fd])  # `solo release` removes the ticket while the process lives
    watches = [pidfd] if removal is None else [pidfd, removal]
    if ticket.has_left():
        for watch in watches:
            close(watch)
        raise ProcessLookupError
    return watches, removal is not None


def open_pidfd(process: Process, theirs: Origin, mine: Origin) -> "int | None":
    """Return a pidfd of (pid, start) in `theirs`; None if not to be had or identified. Raises
    ProcessLookupError: it is gone.
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
        # Another process may have got the pid before the pidfd was open.
        if read_stat(pid).is_same(start, theirs, mine):
            return pidfd
        gone = True
    except OSError:
        # else hidden: never watch or signal a process that cannot be identified
        gone = poll([pidfd], 0)
    close(pidfd)
    if gone:
        raise ProcessLookupError
    return None


def watch_links(fds: "Iterable[int]") -> "int | None":
    """Return a new descriptor, readable once the links of one of these open files change in number;
    None without inotify(7).
    """
    try:
        from solo.process.library import find_function, load_library

        library = load_library()
        watch: int = find_function(library, "inotify_init1")(posix.O_CLOEXEC | posix.O_NONBLOCK)
        add = find_function(library, "inotify_add_watch")
    except (ImportError, OSError):
        return None  # no ctypes
    if watch >= 0 and all(add(watch, b"/proc/self/fd/%d" % fd, IN_ATTRIB) >= 0 for fd in fds):
        return watch
    close(watch)  # -1 if this user has too many instances
    return None


def poll(watches: "list[int]", deadline: float) -> bool:
    """Block until one of the descriptors is readable. Return False if the deadline passed first."""
    poller = select.poll()
    for watch in watches:
        poller.register(watch, select.POLLIN)
    return wait_poll(poller, deadline)


def wait_crowded_gate(gate: int, path: str, seen: int, patience: float, deadline: float) -> None:
    """Block until flock(2) on the `gate` at `path` is ours. Raises Busy at the `deadline`,
    SoloError if it is stuck.

    The gate is stuck if its mtime does not change for `patience` seconds: it was as `seen` a
    quarter of them ago. Only one waiter at a time looks for the owner, because opening /proc/locks
    stops every flock(2) of the machine.
    """
    still = pause = patience / 4
    is_leader = try_lead(gate)
    try:
        while True:
            if wait_lock(gate, LOCK_EX, min(deadline, monotonic() + pause)):
                return
            if monotonic() >= deadline:
                raise Busy(GATE_BUSY)
            before, seen = seen, posix.fstat(gate).st_mtime_ns
            still = still + pause if seen == before else 0
            left = patience + TIME_SLICES * count_runnable() - still
            if left <= 0:
                raise make_stuck_error(path, find_lock_owner(gate) if is_leader else 0, still)
            pause = min(2 * pause, LONGEST_GATE_PAUSE, left if still else LONGEST_GATE_PAUSE)
    finally:
        if is_leader:
            lockf(gate, LOCK_UN)


def make_stuck_error(path: str, owner: int, seconds: float) -> SoloError:
    return SoloError(f"cannot lock {path}: {describe_stuck(owner, seconds)}")


def describe_stuck(owner: int, seconds: float) -> str:
    """Return `pid 4711 (backup.sh) has kept it locked for 10 seconds (end it: kill 4711)`; `owner`
    0: not known.
    """
    if not owner:
        return (
            f"another process has kept it locked for {seconds:.0f} seconds (continue or end "
            "that process)"
        )
    remedy = f"continue it: kill -CONT {owner}" if is_stopped(owner) else f"end it: kill {owner}"
    return f"{describe_process(owner)} has kept it locked for {seconds:.0f} seconds ({remedy})"


def describe_process(pid: int) -> str:
    """Return `pid 4711 (backup.sh --full)`, cut to COMMAND_SIZE."""
    try:
        words = read_file(f"/proc/{pid}/cmdline", COMMAND_SIZE).rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        words = b""
    return f"pid {pid} ({decode(words)})" if words else f"pid {pid}"


def try_lead(fd: int) -> bool:
    """Lock `fd` by fcntl(2), beside flock(2). Return False if another waiter looks for the
    owner.
    """
    try:
        lockf(fd, LOCK_EX | LOCK_NB)
        return True
    except OSError:
        return False


def count_runnable() -> int:
    """Return the number of runnable threads of this machine; 0 if /proc does not say."""
    try:
        return int(read_file("/proc/loadavg").split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0


def find_lock_owner(fd: int, mark: str = " FLOCK ") -> int:
    """Return the pid that holds flock(2) on this file, from /proc/locks with `mark`; 0 if it is not
    known.
    """
    stat = posix.fstat(fd)
    major, minor = stat.st_dev >> 8 & 0xFFF, stat.st_dev & 0xFF | stat.st_dev >> 12 & 0xFFF00
    file = f"{major:02x}:{minor:02x}:{stat.st_ino}"
    try:
        with open("/proc/locks") as locks:
            for lock in locks:
                # 1: FLOCK  ADVISORY  WRITE 4711 00:2d:1234 0 EOF   (a waiter has -> after the
                # number)
                fields = lock.split()
                if mark in lock and fields[5] == file:
                    return max(0, int(fields[4]))
    except (OSError, ValueError, IndexError):
        pass
    return 0
