"""How solo words things for people: who holds what, for how long, running what. Cold."""

import _signal
import posix
from time import time

from solo.kernel import decode, escape
from solo.process.owners import is_trusted, vouches
from solo.modes import COUNTED
from solo.tickets import ORPHANED

COMMAND_WIDTH = 60  # characters
SIGNAL_ALIASES = ("SIGCLD", "SIGIOT", "SIGPOLL")

users = {}  # names that were looked up


def describe_holders(tickets: list, wanted) -> str:
    """What the busy line says of those in the way, oldest first: `held for 3h12m by pid 4711 (backup.sh --full)`, and its kin.

    `wanted` is our own claim.
    """
    more = f" and {len(tickets) - 1} more" if len(tickets) > 1 else ""
    slots = ""
    if tickets[0].is_hold and tickets[0].record and wanted.mode == tickets[0].record.claim.mode == COUNTED:
        taken = sum(ticket.record.claim.take for ticket in tickets)
        slots = f"{taken} of {min(wanted.slots, *(ticket.record.claim.slots for ticket in tickets))} slots taken, the first "
    return slots + describe_holder(tickets[0]) + more


def describe_skips(skips) -> str:
    return f", {skips} skip{'s' * (skips != 1)} since" if skips else ""


def describe_holder(ticket) -> str:
    """`held for 3h12m by pid 4711 (backup.sh --full)`, and its kin for orphans, waiters and the unreadable."""
    record = ticket.read_record()
    if record is None:
        return "held (its record can not be read)" if ticket.is_hold else "others stand in line"
    span = format_duration(time() - record.since)
    if ticket.state is ORPHANED:
        return f"held for {span} by {describe_owner(ticket)}, whose launcher was killed"
    if not ticket.is_hold:
        return f"{describe_owner(ticket)} has stood in line for {span}"
    return f"held for {span} by {describe_owner(ticket)}"


def describe_owner(ticket) -> str:
    """`pid 4711 (backup.sh --full)`, or of an orphan its command. Another user is named, and so is what only the record says."""
    record, is_orphan = ticket.record, ticket.state is ORPHANED
    process = record.child if is_orphan else record.launcher
    if not process[0]:
        return "a process that can not be seen from here"
    pid, command = f"{'orphan ' * is_orphan}pid {process[0]}", f"({format_command(record.command)})"
    if ticket.owner_uid == posix.geteuid():
        return f"{pid} {command}"
    user, claimed = find_user(ticket.owner_uid), find_user(record.uid)
    if is_trusted(ticket) or claimed == user and vouches(ticket, process):
        return f"{pid} of {user} {command}"
    return f"{user}, whose record claims {pid}{f' of {claimed}' if claimed != user else ''} {command}"


def format_command(command: list) -> str:
    return cut_command(map(decode, command))


def cut_command(words) -> str:
    text = escape(" ".join(words)[:COMMAND_WIDTH + 1])
    return text if len(text) <= COMMAND_WIDTH else text[:COMMAND_WIDTH - 1] + "…"


def describe_self() -> str:
    """Us, for people on other hosts."""
    return f"pid {posix.getpid()} on {posix.uname().nodename}"


def find_user(uid: int) -> str:
    import pwd

    if uid not in users:
        try:
            users[uid] = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError):
            users[uid] = str(uid)
    return users[uid]


def name_signal(number: int) -> str:
    """`SIGKILL`; Python's module signal knows it too, and takes 3 ms to load."""
    names = [name for name in dir(_signal) if name[:3] == "SIG" and name[3:4] != "_" and name not in SIGNAL_ALIASES]
    return next((name for name in names if getattr(_signal, name) == number), f"signal {number}")


def format_duration(seconds: float) -> str:
    """The two largest units: 5s, 3h12m, 2d4h."""
    left = max(0, int(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}" if count or not parts else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def describe_waited(seconds) -> str:
    """What a wait that ran out adds to its busy line."""
    return f"; waited {format_span(seconds)}" if seconds else ""


def format_span(seconds) -> str:
    """As format_duration, but short ones more exactly: 340ms, 1.7s."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else format_duration(seconds)
