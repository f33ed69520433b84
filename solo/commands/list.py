"""`solo list`: a row for each holder and waiter, as a table for people or JSON for programs."""

import posix
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import time
from typing import Any, TypeVar

from solo.commands.lookup import (
    Asked,
    describe_no_locks,
    describe_place,
    open_existing,
    report_unknown,
)
from solo.contention.addresses import list_addresses
from solo.directories import split_name
from solo.errors import SoloError
from solo.history.names import ForeignName, find_files, is_within
from solo.history.usual import find_usual
from solo.identity import Origin, read_origin
from solo.kernel import encode, say
from solo.modes import INTENTIONS
from solo.options import FILE, LOCAL_BACKENDS, SOCKET
from solo.text.describe import describe_owner, describe_release, format_usual
from solo.text.rows import Row, RunRow, make_row
from solo.text.tables import NOTE, format_json, print_rows
from solo.tickets import LIVE, ORPHANED, FileQueue, Queue, Ticket, is_published, is_ticket

AnyRow = TypeVar("AnyRow", Row, RunRow)
Cells = dict[str, Callable[[AnyRow], object]]
COLUMNS = "NAME STATE MODE LAUNCHER CHILD FOR USER USUAL VIA HOST DIRECTORY NOTE COMMAND".split()
STYLES = {"held": "green", "orphaned": "bold red", "waiting": "yellow"}


def run(options: Asked, names: "list[str]") -> int:
    """Print the tickets of `names` and the names nested in them, or all. Return 125 if one is
    unreadable or unknown.
    """
    via = options.via
    lost: list[str] = []

    def visit(row: Row, ticket: Ticket) -> None:
        lost.append(find_lost(row.name, ticket))

    rows, complete = collect(options.dir, via, names, visit=visit)
    unknown = report_absent(names, [row.name for row in rows], options, "list")
    if options.null:
        # Each name once, in the bytes of the file system. No name can contain a NUL byte.
        sys.stdout.buffer.write(
            b"".join(encode(name) + b"\0" for name in dict.fromkeys(row.name for row in rows))
        )
    else:
        rows = add_usual(rows, options.dir)
        if options.json:
            print(format_json(rows))
        else:
            empty = describe_empty(options, complete)
            print_rows(*make_table(COLUMNS, rows, CELLS, via), "STATE", STYLES, empty)
            for row in rows:
                if row.silent:
                    holder = f"pid {row.pid} on {row.host}" if row.pid else "another program"
                    lost.append(f"{row.name}: {holder}: {row.silent}")
            for text in filter(None, lost):
                say(text)
    return 0 if complete and not unknown else SoloError.status


def describe_empty(options: Asked, complete: bool) -> str:
    """Return what is said if nothing is held."""
    where = describe_place(options) + (", and by sockets" if options.via is None else "")
    more = "" if options.dir else "each user has separate names; "
    return f"{describe_no_locks(complete)}: {where}\n({more}solo list --all shows idle ones)"


def report_absent(names: "list[str]", found: "list[str]", options: Asked, verb: str) -> "list[str]":
    """Print on stderr which of `names` are unknown, if nothing was `found`. Return these."""
    absent = [name for name in names if not any(is_within(one, [name]) for one in found)]
    return report_unknown(absent, options, verb)


def find_lost(name: str, ticket: Ticket) -> str:
    """Return what to do about a ticket if it is of a process that nobody here can see, else ""."""
    remedy = describe_release(ticket)
    return remedy and f"{name}: {describe_owner(ticket)} cannot be seen from here{remedy}"


def add_usual(rows: "list[Row]", directory: "str | None") -> "list[Row]":
    """Return the rows with how long such a run usually takes, if that is known, and whether it runs
    long.
    """
    return [
        row if row.is_waiting or row.via != FILE else show_usual(row, directory) for row in rows
    ]


def show_usual(row: Row, directory: "str | None") -> Row:
    usual = find_usual(directory, row.name, list(map(encode, row.command)))
    if usual is None or row.since is None:
        return row
    return row._replace(
        usual=round(usual.median, 3),
        usual_range=usual.range,
        overdue=time() - row.since > usual.long_after,
    )


def collect(
    directory: "str | None",
    via: "str | None",
    names: "list[str]",
    report: "Callable[[str], None]" = say,
    visit: "Callable[[Row, Ticket], object]" = lambda row, ticket: None,
) -> "tuple[list[Row], bool]":
    """Return ([a row per living ticket, by name and order of arrival], whether all could be read).

    `via` None looks for files and sockets. `report` gets a line for each error, `visit` each row
    with its open ticket. Without `names`, a name that only another user can use is left out, and
    counts as read.
    """
    for name in names:
        split_name(name)  # a bad one is an error, not an empty list
    if via not in (None, *LOCAL_BACKENDS):
        from solo.commands import remote

        return remote.collect(via, names), True
    rows, complete = [], True
    for name, where, queue, files in find_queues(directory, via, read_origin(), names):
        for ticket in look_at(queue, files):
            if isinstance(ticket, SoloError):
                report(f"{name}: {ticket}")
                complete = complete and not names and isinstance(ticket, ForeignName)
                continue
            record = ticket.read_record()
            # The nested name of a parent's hold is listed, and the first name of a pair made from a
            # command.
            is_for_nested = (
                ticket.is_hold and record is not None and record.claim.mode in INTENTIONS
            )
            is_second = record and record.is_pair and ticket.queue.shorten(name) != record.names[0]
            if not is_for_nested and (name in names or not is_second):
                row = show_slot(make_row(name, where, ticket), ticket, directory, where)
                rows.append(row)
                visit(row, ticket)
            ticket.close()
    return rows, complete


def show_slot(row: Row, ticket: Ticket, directory: "str | None", where: str) -> Row:
    """Return the row of a hold with the command's slot: if it has a pair of names, that of the
    second.
    """
    first = ticket.record
    if first is None or row.slot is None or row.is_waiting or not first.is_pair:
        return row
    names = [first.names[1]] if where == FILE else []  # sockets do not say it
    for name, _, queue, files in find_queues(directory, where, ticket.queue.origin, names):
        for other in look_at(queue, files):
            if isinstance(other, SoloError):
                continue
            second = other.read_record()
            is_ours = other.owner_uid == ticket.owner_uid
            if second and is_ours and second.names[1:] == [other.queue.shorten(name)]:
                run = second.is_pair and (second.launcher, second.child)
                if second.slot and run == (first.launcher, first.child):
                    row = row._replace(slot=second.slot[0][0])
            other.close()
    return row


def look_at(queue: "Queue | SoloError", files: "list[str]") -> "Iterator[Ticket | SoloError]":
    """Yield each living ticket of `files`, holds first, or why it cannot be read. The caller closes
    it.
    """
    if isinstance(queue, SoloError):
        yield queue
        return
    for file in sorted(filter(is_published, files)):
        try:
            ticket = queue.look(file)
        except SoloError as error:
            yield error
            continue
        if ticket is not None and ticket.state in (LIVE, ORPHANED):
            yield ticket
        elif ticket is not None:
            ticket.close()


def find_queues(
    directory: "str | None", via: "str | None", origin: Origin, names: "list[str]"
) -> "Iterator[tuple[str, str, Queue | SoloError, list[str]]]":
    """Yield (name, "file" or "socket", queue or SoloError that refuses it, files of tickets), as
    `collect` wants.
    """
    if via in (None, FILE) and (base := open_existing(directory)):
        with base:
            for name, place, files in find_files(base, names):
                if isinstance(place, SoloError):
                    yield name, FILE, place, []
                elif tickets := list(filter(is_ticket, files)):
                    yield name, FILE, FileQueue(place, origin), tickets
    if via in (None, SOCKET):
        for name in sorted({name for name, _ in list_addresses() if is_within(name, names)}):
            from solo.contention.sockets import SocketQueue

            sockets = SocketQueue(name, origin)
            yield name, SOCKET, sockets, sockets.list_files()
            sockets.leave()


def name_backend(row: Row) -> str:
    return row.via.partition("://")[0]


def differs(found: "Iterable[str | None]", ours: str) -> bool:
    return not {*found} <= {None, ours}


# The other columns show the field of their name.
CELLS: "Cells[Row]" = {
    "MODE": lambda row: row.shown_mode,
    "LAUNCHER": lambda row: row.format_pid("launcher") or "-",
    "CHILD": lambda row: row.format_pid("child") or "-",
    "FOR": lambda row: row.age,
    "USER": lambda row: row.shown_user,
    "USUAL": lambda row: format_usual(row.usual, row.usual_range) + "!" * row.overdue,
    "VIA": name_backend,
    "COMMAND": lambda row: " ".join(row.command),
}
# Columns for what only some rows have. A container may be another host. Of one name by two
# backends, each has a holder.
NEEDED: "dict[str, Callable[[Sequence[Any], str | None], bool]]" = {
    "USUAL": lambda rows, via: any(row.usual is not None for row in rows),
    "VIA": lambda rows, via: len(set(map(name_backend, rows))) > 1,
    "HOST": lambda rows, via: (
        via not in (None, *LOCAL_BACKENDS)
        or differs([row.host for row in rows], posix.uname().nodename)
    ),
    "DIRECTORY": lambda rows, via: differs(
        [row.directory for row in rows], posix.readlink("/proc/self/cwd")
    ),
    NOTE: lambda rows, via: any(row.note for row in rows),
}


def make_table(
    columns: "list[str]", rows: "list[AnyRow]", cells: "Cells[AnyRow]", via: "str | None" = None
) -> "tuple[list[str], list[list[object]]]":
    """Return (those of `columns` that are needed, lines of `cells`)."""
    shown = [column for column in columns if column not in NEEDED or NEEDED[column](rows, via)]
    looks = [cells.get(column) for column in shown]
    return shown, [
        [
            look(row) if look else getattr(row, column.lower()) or "-"
            for column, look in zip(shown, looks)
        ]
        for row in rows
    ]
