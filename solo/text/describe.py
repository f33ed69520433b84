"""Words for people: holders, owners, commands, durations."""

import posix
from itertools import accumulate
from time import time

from solo.identity import find_pid, is_stopped
from solo.kernel import decode, escape
from solo.modes import SLOTS, Claim
from solo.process.owners import (
    describe_pid,
    find_origins,
    is_orphaned,
    is_trusted,
    needs_release,
    vouches,
)
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from solo.errors import Busy
    from solo.history.usual import Usual  # policies describe a holder, whose tickets history reads
    from solo.tickets import Ticket

COMMAND_WIDTH = 60  # characters


def explain_busy(busy: "Busy", wanted: Claim) -> None:
    """Add to the error what its `tickets` say."""
    first = busy.tickets[0]
    busy.reason = f"busy: {describe_holders([*busy.tickets], wanted)}"
    busy.note = first.record.note if first.record else ""
    busy.remedy = describe_release(first)


def describe_holders(tickets: "list[Ticket]", wanted: Claim, is_expected: bool = True) -> str:
    """Return `held for 3h12m by pid 4711 (backup.sh --full), usually 4m`.

    `wanted` is our own claim. What is usual, unless not `is_expected`, is that of the first ticket.
    """
    known = find_usual_run(tickets[0]) if tickets[0].is_hold and is_expected else None
    usual = f", usually {format_usual(known.median, known.range)}" if known else ""
    first = tickets[0].record
    if known and first and time() - first.since > known.long_after:
        usual += ", running long"
    more = f" and {len(tickets) - 1} more" if len(tickets) > 1 else ""
    slots = ""
    claims = [ticket.record.claim for ticket in tickets if ticket.record]
    if tickets[0].is_hold and claims and wanted.mode == claims[0].mode == SLOTS:
        most = min(wanted.slots, *[claim.slots for claim in claims])
        slots = f"{sum(claim.take for claim in claims)} of {most} slots taken, the first "
    return f"{slots}{describe_state(tickets[0])}{more}{usual}"


def find_usual_run(ticket: "Ticket") -> "Usual | None":
    """Return the Usual of the command that holds by `ticket`, or will; None if it is not known.
    Never raises.
    """
    record = ticket.record
    if record is None or record.is_kept or not ticket.queue.base:
        return None
    from solo.history.usual import find_usual

    return find_usual(ticket.queue.base, record.shown_names[0], record.command)


def describe_release(ticket: "Ticket") -> str:
    """Return ` (if it has ended: solo release nightly)` where somebody has to look, "" for any
    other ticket.
    """
    if not needs_release(ticket):
        return ""
    from solo.text.remedies import quote_path
    from solo.tickets import FileQueue

    record = ticket.record
    assert (
        record is not None and ticket.owner_uid is not None and isinstance(ticket.queue, FileQueue)
    )
    path = ticket.queue.place.path
    # The hold of a parent is released with that of the nested name.
    parts = {
        part: name for name in record.names for part in accumulate(name.split("/"), "{}/{}".format)
    }
    name = parts[
        max([part for part in parts if path.endswith(f"/{part}")], default=record.names[0], key=len)
    ]
    who = "" if posix.geteuid() in (0, ticket.owner_uid) else f"as {find_user(ticket.owner_uid)}: "
    return f" (if it has ended: {who}solo release {quote_path(name)})"


def describe_note(ticket: "Ticket") -> str:
    """Return `: migration until noon (if it has ended: solo release nightly)`, or a part, or ""."""
    note = ticket.record.note if ticket.record else ""
    return f"{note and f': {note}'}{describe_release(ticket)}"


def describe_state(ticket: "Ticket") -> str:
    """Return `held for 3h12m by pid 4711 (backup.sh --full)`, or the like for other tickets."""
    record = ticket.read_record()
    if record is None:
        return "held (its record cannot be read)" if ticket.is_hold else "others are waiting"
    span = format_duration(time() - record.since)
    if is_orphaned(ticket):
        return f"held for {span} by {describe_owner(ticket)}, whose launcher was killed"
    if not ticket.is_hold:
        return f"{describe_owner(ticket)} has waited for {span}"
    path = (
        f", by a descriptor of {escape(decode(record.descriptor[-1]))}" if record.descriptor else ""
    )
    directory = find_directory(ticket)
    where = (
        f" in {escape(directory)}"
        if directory and directory != posix.readlink("/proc/self/cwd")
        else ""
    )
    return f"held for {span} by {describe_owner(ticket)}{path}{where}"


def find_directory(ticket: "Ticket") -> "str | None":
    """Return the working directory of a run without -n, whose name does not say in which project it
    is; None if unknown.
    """
    record = ticket.record
    if record is None or not record.is_generated:
        return None
    process = record.child or record.launcher
    try:
        pid = find_pid(process, *find_origins(ticket))
        directory = posix.readlink(f"/proc/{pid}/cwd") if vouches(ticket, process) else None
    except OSError:
        return None
    # a launcher leaves for / when its command runs
    return None if directory == "/" and not record.child else directory


def describe_owner(ticket: "Ticket") -> str:
    """Return `pid 4711 (backup.sh --full)`; of an orphan or a kept hold its process. Mark claims of
    another user.
    """
    record = ticket.record
    assert record is not None and ticket.owner_uid is not None
    is_orphan = is_orphaned(ticket)
    process = record.child if is_orphan else record.holder
    if not process or not process[0]:
        return "a process that cannot be seen from here"
    main = record.child or process
    is_halted = vouches(ticket, main) and is_stopped(find_pid(main, *find_origins(ticket)))
    kind = f"{'orphan ' if is_orphan else ''}{'stopped ' if is_halted else ''}"
    pid = f"{kind}pid {describe_pid(process, *find_origins(ticket))}"
    command = f"({cut_command(map(decode, record.command))})"
    if ticket.owner_uid == posix.geteuid():
        return f"{pid} {command}"
    user, claimed = find_user(ticket.owner_uid), find_user(record.uid)
    if is_trusted(ticket) or (claimed == user and vouches(ticket, process)):
        return f"{pid} of {user} {command}"
    return (
        f"{user}, whose record claims {pid}{f' of {claimed}' if claimed != user else ''} {command}"
    )


def cut_command(words: "Iterable[str]") -> str:
    """Return the words on one line, cut to COMMAND_WIDTH, with an ellipsis."""
    text = escape(" ".join(words)[: COMMAND_WIDTH + 1])
    return text if len(text) <= COMMAND_WIDTH else text[: COMMAND_WIDTH - 1] + "…"


def describe_self() -> str:
    """Describe this process for people on other hosts."""
    return f"pid {posix.getpid()} on {posix.uname().nodename}"


def format_duration(seconds: float) -> str:
    """Return the two largest units: 5s, 3h12m, 2d4h."""
    left, parts = max(0, int(seconds)), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}" if count or not parts else "")
    return "".join(parts[:2])


def format_rough(seconds: float) -> str:
    """Return a duration for what is usual or expected: 340ms, 1m50s, 4m, 3h50m."""
    for least, step in ((2 * 86400, 3600), (2 * 3600, 600), (120, 60)):
        if seconds >= least:
            return format_duration(round(seconds / step) * step)
    return format_span(seconds)


def format_count(count: int, noun: str) -> str:
    """Return `1 run`, or `2 runs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def format_usual(median: "float | None", span: "Iterable[float] | None") -> str:
    """Return what is usual: `4m`, or where runs spread `3m to 40m`; - if nothing is."""
    if median is None:
        return "-"
    return " to ".join(dict.fromkeys(map(format_rough, span or [median])))


def format_span(seconds: "float | None") -> str:
    """Return a duration as format_duration does, but a short one more exactly: 340ms, 1.7s."""
    if seconds is None or seconds < 0.9995:
        return "-" if seconds is None else f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 9.95 else format_duration(seconds)
