"""The pid that a process of a record has here, and whether the owner of the ticket may be believed
about it.

Any user who can write in a shared directory can publish a ticket that names any process. A record
is believed only if the owner of its file could have signalled that process, by the rules of
kill(2). Root and our own user are always believed.
"""

import posix

from solo.identity import (
    FIRST_PID_NAMESPACE,
    Origin,
    Process,
    find_pid,
    is_alive,
    read_stat,
    read_status,
)
from solo.kernel import escape
from solo.tickets import LIVE, ORPHANED, Ticket

HOST_LENGTH = 64  # characters: the kernel's limit


def is_trusted(ticket: "Ticket") -> bool:
    """Return whether the owner of the ticket is root or this user."""
    return ticket.owner_uid in (0, posix.geteuid())


def vouches(ticket: "Ticket", process: Process) -> bool:
    """Return whether the owner of the ticket may be believed about the process (pid, start) of its
    record, if we see it.
    """
    if is_trusted(ticket):
        return True
    theirs, mine = find_origins(ticket)
    pid = find_pid(process, theirs, mine)
    try:
        return (
            pid > 0
            and read_stat(pid).is_same(process[1], theirs, mine)
            and may_signal(ticket.owner_uid, pid)
        )
    except OSError:
        return False


def find_origins(ticket: "Ticket") -> "tuple[Origin, Origin]":
    """Return the origin of the record of `ticket`, which was read, and our own."""
    assert ticket.record is not None
    return ticket.record.origin, ticket.queue.origin


def is_orphaned(ticket: "Ticket") -> bool:
    """Return whether the ticket is of a command whose launcher was killed, unless a holder keeps it
    where we cannot look.
    """
    record = ticket.read_record()
    if record is None or record.child is None or record.is_kept:
        return False
    theirs, mine = find_origins(ticket)
    is_outside = theirs.pid_namespace != FIRST_PID_NAMESPACE
    return ticket.state is ORPHANED or (
        is_outside and is_alive(*record.launcher, theirs, mine) is False
    )


def has_launcher(ticket: "Ticket") -> bool:
    """Return whether signals for the ticket go to its launcher: it was not killed, and no process
    without one keeps the ticket.
    """
    record = ticket.read_record()
    return ticket.state is LIVE and not (record and record.is_kept) and not is_orphaned(ticket)


def needs_release(ticket: "Ticket") -> bool:
    """Return whether a kept hold counts as held only because nobody here can see if its process has
    ended. A holder frees what it guards.
    """
    record = ticket.read_record()
    if record is None or not record.is_kept or record.is_guarded or record.child is None:
        return False
    return ticket.state is ORPHANED and not find_pid(record.child, *find_origins(ticket))


def describe_pid(process: Process, theirs: Origin, mine: Origin) -> str:
    """Return our pid of (pid, start) in the origin `theirs`; of one that cannot be seen from here,
    as in `1 on web3`.
    """
    place = (
        f"on {escape(theirs.host[:HOST_LENGTH])}"
        if theirs.host != mine.host
        else "in another pid namespace"
    )
    return str(find_pid(process, theirs, mine) or f"{process[0]} {place}")


def has_trusted_users(pid: int) -> bool:
    """Return whether each user of the process is root or this user. Raises OSError."""
    return {b"0", b"%d" % posix.geteuid()}.issuperset(read_status(pid, b"Uid:"))


def may_signal(uid: "int | None", pid: int) -> bool:
    """Return whether the real or the saved user of the process is `uid`. Raises OSError."""
    return str(uid).encode() in read_status(pid, b"Uid:")[::2]
