"""`solo list`: a row for each holder and waiter, as a table for people or JSON for programs."""

from __future__ import annotations

import posix
import sys
from collections.abc import Callable, Iterator, Sequence
from time import time
from typing import Any

from solo.commands.lookup import check_via, describe_place, open_existing, report_unknown
from solo.contention.addresses import list_addresses
from solo.directories import split_name
from solo.errors import SoloError, UsageError
from solo.history.names import ForeignName, find_files, is_within
from solo.history.usual import find_usual
from solo.identity import read_origin
from solo.kernel import close, encode, say
from solo.modes import INTENTIONS
from solo.options import FILE, LOCAL_BACKENDS, SOCKET
from solo.text.describe import describe_owner, describe_release, format_duration, format_usual
from solo.text.tables import NOTE, format_json, format_times, make_row, print_rows
from solo.tickets import LIVE, ORPHANED, FileQueue, is_published, is_ticket

Row = dict[str, Any]
COLUMNS = "NAME STATE MODE LAUNCHER CHILD FOR USER USUAL VIA HOST DIRECTORY NOTE COMMAND".split()
STYLES = {"held": "green", "orphaned": "bold red", "waiting": "yellow"}


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print the tickets of `names` and the names nested in them, or all. Return 125 if one is
    unreadable or unknown.
    """
    if "json" in options and "null" in options:
        raise UsageError("--null and --json exclude each other")
    via = options.get("via")
    check_via(via or FILE)
    lost: list[str] = []

    def visit(row: Row, ticket: Any) -> None:
        lost.extend(find_lost(row, ticket))

    rows, complete = collect(options.get("dir"), via, names, visit=visit)
    absent = [name for name in names if not any(is_within(row["name"], [name]) for row in rows)]
    unknown = [name for name in absent if report_unknown(name, options, "list")]
    if options.get("null"):
        # Each name once, in the bytes of the file system. No name can contain a NUL byte.
        sys.stdout.buffer.write(
            b"".join(encode(name) + b"\0" for name in dict.fromkeys(row["name"] for row in rows))
        )
    else:
        add_usual(rows, options.get("dir"))
        if options.get("json"):
            print(format_json(format_times(rows)))
        else:
            where = describe_place(options) + (", and by sockets" if via is None else "")
            more = "" if options.get("dir") else "each user has separate names; "
            empty = (
                f"no locks {'held' if complete else 'readable'}: {where}\n({more}solo list "
                "--all shows idle ones)"
            )
            print_rows(*make_table(COLUMNS, rows, via), "STATE", STYLES, empty)
            lost += [
                f"{row['name']}: {format_holder(row)}: {row['silent']}"
                for row in rows
                if row["silent"]
            ]
            for text in lost:
                say(text)
    return 0 if complete and not unknown else SoloError.status


def find_lost(row: Row, ticket: Any) -> list[str]:
    """Return [what to do about the ticket of `row`], if it is of a process that nobody here can
    see.
    """
    remedy = describe_release(ticket)
    return (
        [f"{row['name']}: {describe_owner(ticket)} cannot be seen from here{remedy}"]
        if remedy
        else []
    )


def format_holder(row: Row) -> str:
    return f"pid {row['launcher']} on {row['host']}" if row["launcher"] else "another program"


def add_usual(rows: list[Row], directory: str | None) -> None:
    """Add to the rows how long such a run usually takes, None if that is unknown, and whether it
    runs long.
    """
    for row in rows:
        row.update(usual=None, usual_range=None, overdue=False)
        if row["state"] != "waiting" and row["via"] == FILE and row["since"] is not None:
            usual = find_usual(directory, row["name"], list(map(encode, row["command"])))
            if usual is not None:
                row["usual"] = round(usual.median, 3)
                row["usual_range"] = usual.range and [round(span, 3) for span in usual.range]
                row["overdue"] = time() - row["since"] > usual.long_after


def collect(
    directory: str | None,
    via: str | None,
    names: list[str],
    report: Callable[[str], None] = say,
    visit: Callable[[Row, Any], object] = lambda row, ticket: None,
) -> tuple[list[Row], bool]:
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
            is_second = (
                record is not None and record.is_pair and queue.shorten(name) != record.names[0]
            )
            if not is_for_nested and (name in names or not is_second):
                rows.append(make_row(name, where, ticket, record))
                show_slot(rows[-1], ticket, directory, where)
                visit(rows[-1], ticket)
            ticket.close()
    return rows, complete


def show_slot(row: Row, ticket: Any, directory: str | None, where: str) -> None:
    """Put the command's slot into the row of a hold: if it has a pair of names, that of the
    second.
    """
    first = ticket.record
    if row["slot"] is None or row["state"] == "waiting" or not first.is_pair:
        return
    names = [first.names[1]] if where == FILE else []  # sockets do not say it
    for name, _, queue, files in find_queues(directory, where, ticket.queue.origin, names):
        for other in look_at(queue, files):
            if isinstance(other, SoloError):
                continue
            second = other.read_record()
            is_ours = second is not None and other.owner_uid == ticket.owner_uid
            if is_ours and second.is_pair and second.names[1] == queue.shorten(name):
                if second.slot and (second.launcher, second.child) == (first.launcher, first.child):
                    row["slot"] = second.slot[0][0]
            other.close()


def look_at(queue: Any, files: list[str]) -> Iterator[Any]:
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
    directory: str | None, via: str | None, origin: Any, names: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield (name, "file" or "socket", queue or SoloError that refuses it, files of tickets), as
    `collect` wants.
    """
    if via in (None, FILE) and (base := open_existing(directory)):
        for name, place, files in find_files(base, names):
            queue: Any = place if isinstance(place, SoloError) else FileQueue(place, origin)
            yield name, FILE, queue, list(filter(is_ticket, files))
        close(base.fd)
    if via in (None, SOCKET):
        for name in sorted({name for name, _ in list_addresses() if is_within(name, names)}):
            from solo.contention.sockets import SocketQueue

            queue = SocketQueue(name, origin)
            yield name, SOCKET, queue, queue.list_files()
            queue.leave()


def format_pid(row: Row, key: str) -> Any:
    """Return our pid of the `launcher` or `child`; the record's with a ? if we cannot see the
    process; or None.
    """
    return f"{row['claims'][key]}?" if key in row["claims"] else row[key]


def format_user(row: Row) -> Any:
    """Return the owner of the ticket, and the other user that its record claims, if any."""
    return (
        f"{row['user']} (claims {row['claims']['user']})"
        if "user" in row["claims"]
        else row["user"]
    )


def format_mode(row: Row) -> Any:
    """Return the mode; of slots, `slot 2 of 4`, or how many are wanted or taken: `3 of 4 slots`."""
    if row["mode"] != "slots":
        return row["mode"]
    if row["slot"] is None or row["take"] != 1:
        return f"{row['take']} of {row['slots']} slots"
    return f"slot {row['slot']} of {row['slots']}"


def format_age(row: Row) -> str:
    return format_duration(time() - row["since"]) if row["since"] is not None else "?"


def show_usual(row: Row) -> str:
    return "-" if row["usual"] is None else format_usual(row["usual"], row["usual_range"])


def name_backend(row: Row) -> str:
    return str(row["via"]).partition("://")[0]


def differs(rows: list[Row], key: str, ours: str) -> bool:
    return not {row[key] for row in rows} <= {None, ours}


# The other columns show the field of their name.
CELLS: dict[str, Callable[[Row], object]] = {
    "MODE": format_mode,
    "LAUNCHER": lambda row: format_pid(row, "launcher") or "-",
    "CHILD": lambda row: format_pid(row, "child") or "-",
    "FOR": format_age,
    "USER": format_user,
    "USUAL": lambda row: show_usual(row) + "!" * row["overdue"],
    "VIA": name_backend,
    "COMMAND": lambda row: " ".join(row["command"]),
}
# Columns for what only some rows have. A container may be another host. Of one name by two
# backends, each has a holder.
NEEDED: dict[str, Callable[[list[Row], str | None], bool]] = {
    "USUAL": lambda rows, via: any(row["usual"] is not None for row in rows),
    "VIA": lambda rows, via: len(set(map(name_backend, rows))) > 1,
    "HOST": lambda rows, via: (
        via not in (None, *LOCAL_BACKENDS) or differs(rows, "host", posix.uname().nodename)
    ),
    "DIRECTORY": lambda rows, via: differs(rows, "directory", posix.readlink("/proc/self/cwd")),
    NOTE: lambda rows, via: any(row["note"] for row in rows),
}


def make_table(
    columns: Sequence[str],
    rows: list[Row],
    via: str | None = None,
    **others: Callable[[Row], object],
) -> tuple[Any, Any]:
    """Return (those of `columns` that are needed, lines of cells), by CELLS and the functions
    `others`.
    """
    cells = {**CELLS, **others}
    shown = [column for column in columns if column not in NEEDED or NEEDED[column](rows, via)]
    looks = [
        cells.get(column, lambda row, column=column: row[column.lower()] or "-") for column in shown
    ]
    return shown, [[look(row) for look in looks] for row in rows]
