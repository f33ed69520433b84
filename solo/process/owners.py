"""The pid that a process of a record has here, and whether the owner of the ticket may be believed about it.

Any user who can write in a shared directory can publish a ticket that names any process. A record is believed about a
process only if the owner of its file could have signalled that process, by the rules of kill(2). Root and our own user
are always believed.
"""

import posix

from solo.identity import FIRST_PID_NAMESPACE, find_pid, is_alive, read_stat
from solo.kernel import STATUS_SIZE, escape, read_file
from solo.tickets import LIVE, ORPHANED

HOST_LENGTH = 64  # characters: the kernel's limit


def is_trusted(ticket) -> bool:
    """Whether the owner of the ticket is root or this user."""
    return ticket.owner_uid in (0, posix.geteuid())


def vouches(ticket, process: tuple) -> bool:
    """Whether the owner of the ticket may be believed about (pid, start), which its record names.

    False if we cannot see it.
    """
    if is_trusted(ticket):
        return True
    theirs, mine = ticket.record.origin, ticket.queue.origin
    pid = find_pid(process, theirs, mine)
    try:
        return pid > 0 and read_stat(pid).is_same(process[1], theirs, mine) and may_signal(ticket.owner_uid, pid)
    except OSError:
        return False


def is_orphaned(ticket) -> bool:
    """Whether the ticket is of a command whose launcher was killed, unless a holder keeps it where we cannot look."""
    record = ticket.read_record()
    if record is None or record.child is None or record.is_kept:
        return False
    theirs = record.origin
    return ticket.state is ORPHANED or (
        theirs.pid_namespace != FIRST_PID_NAMESPACE and is_alive(*record.launcher, theirs, ticket.queue.origin) is False
    )


def has_launcher(ticket) -> bool:
    """Whether signals for the ticket go to its launcher: it was not killed, and no process without one keeps the ticket."""
    record = ticket.read_record()
    return ticket.state is LIVE and not (record and record.is_kept) and not is_orphaned(ticket)


def describe_pid(process: tuple, theirs, mine) -> str:
    """Return our pid of (pid, start) in the origin `theirs`; if it cannot be seen from here, its own pid and its place,
    as in `1 on web3`.
    """
    place = f"on {escape(theirs.host[:HOST_LENGTH])}" if theirs.host != mine.host else "in another pid namespace"
    return str(find_pid(process, theirs, mine) or f"{process[0]} {place}")


def may_signal(uid: int, pid: int) -> bool:
    """Whether the real or the saved user of the process is `uid`. Raises OSError."""
    for line in read_file(f"/proc/{pid}/status", STATUS_SIZE).split(b"\n"):
        if line.startswith(b"Uid:"):
            real, _, saved, _ = map(int, line.split()[1:])
            return uid in (real, saved)
    return False
