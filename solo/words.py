"""How solo words things for people: who holds what, for how long, running what. Cold."""

from time import time

from solo.kernel import decode
from solo.rule import COUNTED
from solo.tickets import ORPHANED

COMMAND_WIDTH = 60  # characters

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
        return f"held for {span} by {describe_orphan(record)}, whose launcher was killed"
    if not ticket.is_hold:
        return f"{describe_owner(record)} has stood in line for {span}"
    return f"held for {span} by {describe_owner(record)}"


def describe_owner(record) -> str:
    if not record.launcher[0]:
        return "a process that can not be seen from here"
    return f"pid {record.launcher[0]} ({format_command(record.command)})"


def describe_orphan(record) -> str:
    return f"orphan pid {record.child[0]} ({format_command(record.command)})"


def format_command(command: list) -> str:
    return cut_command(map(decode, command))


def cut_command(words) -> str:
    text = " ".join(words)
    return text if len(text) <= COMMAND_WIDTH else text[:COMMAND_WIDTH - 1] + "…"


def describe_self() -> str:
    """Us, for people on other hosts."""
    import posix

    return f"pid {posix.getpid()} on {posix.uname().nodename}"


def find_user(uid: int) -> str:
    import pwd

    if uid not in users:
        try:
            users[uid] = pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError):
            users[uid] = str(uid)
    return users[uid]


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
