"""`solo list`: a row for each holder and waiter, as a table for people or JSON for programs."""

import posix
import sys
from time import time

from solo.commands.lookup import check_via, describe_place, report_unknown
from solo.contention.addresses import list_addresses
from solo.directories import find_base, open_base, split_name
from solo.errors import SoloError
from solo.history.names import ForeignName, find_files, is_within
from solo.history.usual import find_usual
from solo.identity import read_origin
from solo.kernel import close, encode, say
from solo.modes import INTENTIONS
from solo.options import FILE, LOCAL_BACKENDS, SOCKET
from solo.text.describe import format_duration, format_rough
from solo.text.rows import make_row
from solo.text.tables import NAME, add_column, add_notes, format_json, format_times, print_rows
from solo.tickets import LIVE, ORPHANED, Queue, is_published, is_ticket

COLUMNS = (NAME, "STATE", "MODE", "LAUNCHER", "CHILD", "FOR", "USER", "COMMAND")
STYLES = {"held": "green", "orphaned": "bold red", "waiting": "yellow"}


def run(options: dict, names: list) -> int:
    """Print the tickets of `names` and of the names nested in them, or all tickets.

    Return 125 if one cannot be read or was never used.
    """
    via = options.get("via")
    if via is not None:
        check_via(via)
    rows, complete = collect(options.get("dir"), via, names)
    absent = [name for name in names if not any(is_within(row["name"], [name]) for row in rows)]
    unknown = [name for name in absent if report_unknown(name, options, "list")]
    if options.get("null"):
        print_names(rows)
    else:
        add_usual(rows, options.get("dir"))
        if options.get("json"):
            print(format_json(format_times(rows)))
        else:
            empty = f"no locks {'held' if complete else 'readable'}: {describe_places(options)}"
            print_rows(*make_table(rows, via), "STATE", STYLES, empty)
    return 0 if complete and not unknown else SoloError.status


def make_table(rows: list, via) -> tuple:
    """Return (columns, lines of cells), with a column for what only some rows have."""
    columns, cells = add_usual_column(COLUMNS, list(map(make_cells, rows)), rows)
    columns, cells = add_hosts(*add_backends(columns, cells, rows), rows, via)
    here = posix.readlink("/proc/self/cwd")
    if any(row["directory"] not in (None, here) for row in rows):
        columns, cells = add_column(columns, cells, "DIRECTORY", [row["directory"] or "-" for row in rows])
    return add_notes(columns, cells, rows)


def describe_places(options: dict) -> str:
    """Describe where `solo list` looks. Without --via it looks for files and for sockets."""
    return describe_place(options) + (", and by sockets" if "via" not in options else "")


def add_usual(rows: list, directory):
    """Add to the rows how long such a run usually takes, None if that is unknown, and whether it is overdue."""
    for row in rows:
        row.update(usual=None, overdue=False)
        if row["state"] != "waiting" and row["via"] == FILE and row["since"] is not None:
            usual = find_usual(directory, row["name"], list(map(encode, row["command"])))
            if usual is not None:
                row["usual"] = round(usual.median, 3)
                row["overdue"] = time() - row["since"] > usual.overdue_after


def add_usual_column(columns: tuple, lines: list, rows: list) -> tuple:
    """Return (columns, lines of cells), with how long a run usually takes if that is known of a row."""
    if not any(row["usual"] is not None for row in rows):
        return columns, lines
    return add_column(columns, lines, "USUAL", [format_usual(row) for row in rows])


def format_usual(row: dict) -> str:
    """Return how long such a run usually takes, with a mark if this one is overdue."""
    return "-" if row["usual"] is None else format_rough(row["usual"]) + "!" * row["overdue"]


def add_backends(columns: tuple, lines: list, rows: list) -> tuple:
    """Return (columns, lines of cells), with the backend if the rows differ in it: of one name by two, each has a holder."""
    backends = [row["via"].partition("://")[0] for row in rows]
    return add_column(columns, lines, "VIA", backends) if len(set(backends)) > 1 else (columns, lines)


def add_hosts(columns: tuple, lines: list, rows: list, via) -> tuple:
    """Return (columns, lines of cells), with the host if an engine keeps the locks or a row is of another host, as a
    container may be.
    """
    if via in (None, *LOCAL_BACKENDS) and {row["host"] for row in rows} <= {None, posix.uname().nodename}:
        return columns, lines
    return add_column(columns, lines, "HOST", [row["host"] or "-" for row in rows])


def print_names(rows: list):
    """Print each name once, in the bytes of the file system, and a NUL byte, which no name can contain."""
    for name in dict.fromkeys(row["name"] for row in rows):
        sys.stdout.buffer.write(encode(name) + b"\0")
    sys.stdout.buffer.flush()


def collect(directory, via, names: list, report=say, visit=None) -> tuple:
    """Return ([a row per living ticket, by name and order of arrival], whether all could be read).

    `via` None looks for files and sockets. `report` gets a line for each error, `visit` each row with its open ticket.
    A name that only another user can use is missing from all names without being one that could not be read.
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
            if is_listed(ticket, record) and (name in names or not is_second(queue, name, record)):
                rows.append(make_row(name, where, ticket, record))
                if visit is not None:
                    visit(rows[-1], ticket)
            ticket.close()
    return rows, complete


def look_at(queue, files: list):
    """Yield each published ticket among the `files` of a queue, holds first, or the SoloError why it cannot be read.

    The caller closes it.
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
        if ticket is not None:
            yield ticket


def is_listed(ticket, record) -> bool:
    """Does the ticket live, and is it more than the hold of a parent for a nested name, which is listed there?

    A waiter at the parent has no other ticket, so it is listed here.
    """
    is_for_nested = ticket.is_hold and record is not None and record.claim.mode in INTENTIONS
    return ticket.state in (LIVE, ORPHANED) and not is_for_nested


def is_second(queue, name: str, record) -> bool:
    """Is this name the second of a pair that solo made from a command? The ticket of the first one is listed."""
    return record is not None and record.is_pair and queue.shorten(name) != record.names[0]


def find_queues(directory, via, origin, names: list):
    """Yield (name, "file" or "socket", its queue or the SoloError that refuses it, its tickets' files) of `names` and of the
    names nested in them, or of every name.
    """
    if via in (None, FILE):
        try:
            base = open_base(find_base(directory), directory)
        except FileNotFoundError:
            base = None  # no command was ever guarded here
        if base is not None:
            for name, place, files in find_files(base, names):
                queue = place if isinstance(place, SoloError) else Queue(place, origin)
                yield name, FILE, queue, list(filter(is_ticket, files))
            close(base.fd)
    if via in (None, SOCKET):
        for name in sorted({name for name, _ in list_addresses() if is_within(name, names)}):
            from solo.contention.sockets import SocketQueue

            queue = SocketQueue(name, origin)
            yield name, SOCKET, queue, queue.list_files()
            queue.leave()


def format_pid(row: dict, key: str):
    """Return our pid of the `launcher` or `child`; that of the record, with a question mark, if we cannot see the process
    or only the record claims it; None if unknown.
    """
    return f"{row['claims'][key]}?" if key in row["claims"] else row[key]


def format_user(row: dict):
    """Return the owner of the ticket, and the other user that its record claims, if any."""
    return f"{row['user']} (claims {row['claims']['user']})" if "user" in row["claims"] else row["user"]


def format_mode(row: dict) -> str:
    """Return the mode; of slots, `slot 2 of 4`, or how many are wanted or taken: `3 of 4 slots`."""
    if row["mode"] != "slots":
        return row["mode"]
    if row["slot"] is None or row["take"] != 1:
        return f"{row['take']} of {row['slots']} slots"
    return f"slot {row['slot']} of {row['slots']}"


def format_age(row: dict) -> str:
    return format_duration(time() - row["since"]) if row["since"] is not None else "?"


def make_cells(row: dict) -> list:
    """Return the cells of one row, in the order of COLUMNS."""
    return [
        row["name"],
        row["state"],
        format_mode(row),
        format_pid(row, "launcher") or "-",
        format_pid(row, "child") or "-",
        format_age(row),
        format_user(row),
        " ".join(row["command"]),
    ]
