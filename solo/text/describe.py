"""Words for people: holders, owners, commands, durations."""

import posix
from time import time

from solo.identity import find_pid, is_stopped
from solo.kernel import decode, escape
from solo.kinds import list_signals
from solo.modes import SLOTS
from solo.process.owners import describe_pid, is_orphaned, is_trusted, vouches
from solo.text.users import find_user

COMMAND_WIDTH = 60  # characters
SIGNAL_ALIASES = ("SIGCLD", "SIGIOT", "SIGPOLL")


def describe_holders(tickets: list, wanted, skips=None, is_expected: bool = True) -> str:
    """Describe the tickets in the way, oldest first, for the busy line: `held for 3h12m by pid 4711 (backup.sh --full),
    usually 4m, 12 skips since: migration until noon`.

    `wanted` is our own claim. The note at the end is that of the first ticket, and so is what is usual, unless not
    `is_expected`.
    """
    usual = describe_usual(find_usual_run(tickets[0])) if tickets[0].is_hold and is_expected else ""
    more = f" and {len(tickets) - 1} more" if len(tickets) > 1 else ""
    slots = ""
    if tickets[0].is_hold and tickets[0].record and wanted.mode == tickets[0].record.claim.mode == SLOTS:
        taken = sum(ticket.record.claim.take for ticket in tickets)
        slots = f"{taken} of {min(wanted.slots, *(ticket.record.claim.slots for ticket in tickets))} slots taken, the first "
    return f"{slots}{describe_state(tickets[0])}{more}{usual}{describe_skips(skips)}{describe_note(tickets[0].record)}"


def find_usual_run(ticket):
    """Return the Usual of the command that holds by `ticket`, or will; None if it is not known. Never raises."""
    record = ticket.record
    if record is None or record.is_kept or not ticket.queue.base:
        return None
    from solo.history.usual import find_usual

    return find_usual(ticket.queue.base, record.shown_names[0], record.command)


def describe_usual(usual) -> str:
    """Return `, usually 4m`, or "" for None."""
    return f", usually {format_rough(usual.median)}" if usual else ""


def describe_skips(skips) -> str:
    """Return `, 12 skips since`, or "" for none."""
    return f", {skips} skip{'s' * (skips != 1)} since" if skips else ""


def describe_note(record) -> str:
    """Return `: migration until noon`, or "" without a note or a record."""
    return f": {record.note}" if record is not None and record.note else ""


def describe_holder(ticket) -> str:
    """Return `held for 3h12m by pid 4711 (backup.sh --full): migration until noon`."""
    return describe_state(ticket) + describe_note(ticket.record)


def describe_state(ticket) -> str:
    """Return `held for 3h12m by pid 4711 (backup.sh --full)`, or the like for other tickets."""
    record = ticket.read_record()
    if record is None:
        return "held (its record cannot be read)" if ticket.is_hold else "others are waiting"
    span = format_duration(time() - record.since)
    if is_orphaned(ticket):
        return f"held for {span} by {describe_owner(ticket)}, whose launcher was killed"
    if not ticket.is_hold:
        return f"{describe_owner(ticket)} has waited for {span}"
    path = f", by a descriptor of {escape(decode(record.descriptor[-1]))}" if record.descriptor else ""
    directory = find_directory(ticket)
    place = f" in {escape(directory)}" if directory and directory != posix.readlink("/proc/self/cwd") else ""
    return f"held for {span} by {describe_owner(ticket)}{path}{place}"


def find_directory(ticket):
    """Return the working directory of a run without -n, whose name does not say in which project it is; None if unknown."""
    record = ticket.record
    if record is None or not record.is_generated:
        return None
    process = record.child or record.launcher
    try:
        pid = find_pid(process, record.origin, ticket.queue.origin)
        return posix.readlink(f"/proc/{pid}/cwd") if vouches(ticket, process) else None
    except OSError:
        return None


def describe_owner(ticket) -> str:
    """Return `pid 4711 (backup.sh --full)`; of an orphan or a kept hold its process.

    Name another user, and mark a claim of its record as such.
    """
    record = ticket.record
    is_orphan = is_orphaned(ticket)
    process = record.child if is_orphan else record.holder
    if not process[0]:
        return "a process that cannot be seen from here"
    kind = "orphan " * is_orphan + "stopped " * has_stopped(ticket, record.child or process)
    pid = f"{kind}pid {describe_pid(process, record.origin, ticket.queue.origin)}"
    command = f"({format_command(record.command)})"
    if ticket.owner_uid == posix.geteuid():
        return f"{pid} {command}"
    user, claimed = find_user(ticket.owner_uid), find_user(record.uid)
    if is_trusted(ticket) or claimed == user and vouches(ticket, process):
        return f"{pid} of {user} {command}"
    return f"{user}, whose record claims {pid}{f' of {claimed}' if claimed != user else ''} {command}"


def has_stopped(ticket, process: tuple) -> bool:
    """Whether a signal has stopped the process that the record of `ticket` names."""
    return vouches(ticket, process) and is_stopped(find_pid(process, ticket.record.origin, ticket.queue.origin))


def format_command(command: list) -> str:
    """Return the words of a record's command, cut to COMMAND_WIDTH."""
    return cut_command(map(decode, command))


def cut_command(words) -> str:
    """Return the words on one line, cut to COMMAND_WIDTH, with an ellipsis."""
    text = escape(" ".join(words)[: COMMAND_WIDTH + 1])
    return text if len(text) <= COMMAND_WIDTH else text[: COMMAND_WIDTH - 1] + "…"


def describe_self() -> str:
    """Describe this process for people on other hosts."""
    return f"pid {posix.getpid()} on {posix.uname().nodename}"


def name_signal(number: int) -> str:
    """Return `SIGKILL` for 9."""
    names = [name for name, value in list_signals().items() if value == number and name not in SIGNAL_ALIASES]
    return names[0] if names else f"signal {number}"


def format_duration(seconds: float) -> str:
    """Return the two largest units: 5s, 3h12m, 2d4h."""
    left = max(0, int(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}" if count or not parts else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def format_rough(seconds: float) -> str:
    """Return a duration for what is usual or expected: 340ms, 1m50s, 4m, 3h50m."""
    for least, step in ((2 * 86400, 3600), (2 * 3600, 600), (120, 60)):
        if seconds >= least:
            return format_duration(round(seconds / step) * step)
    return format_span(seconds)


def describe_waited(seconds) -> str:
    """Return what the busy line adds after a wait: `; waited 30s`."""
    return f"; waited {format_span(seconds)}" if seconds else ""


def format_span(seconds) -> str:
    """Return a duration as format_duration does, but a short one more exactly: 340ms, 1.7s."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else format_duration(seconds)
