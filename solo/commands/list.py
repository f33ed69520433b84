"""`solo list`: a row for everyone who holds or waits, as a table for people or JSON for programs."""

import sys
from datetime import datetime
from time import time

from solo.commands.lookup import check_via
from solo.text.tables import NAME, describe_claim, format_json, format_time, print_rows
from solo.errors import SoloError
from solo.identity import read_world
from solo.kernel import close, decode, encode, say
from solo.options import FILE, KEEPERS, SOCKET
from solo.process.owners import is_trusted, vouches
from solo.directories import find_base, find_names, is_within, open_base, split_name
from solo.modes import EXCLUSIVE, INTENTIONS, Claim
from solo.contention.sockets import SocketLine, list_addresses
from solo.tickets import HOLD, LIVE, ORPHANED, Line, is_published
from solo.text.describe import find_user, format_duration

COLUMNS = (NAME, "STATE", "MODE", "LAUNCHER", "CHILD", "FOR", "USER", "COMMAND")
STYLES = {"held": "green", "orphaned": "bold red", "waiting": "yellow"}


def run(options: dict, names: list) -> int:
    """Print the tickets of `names` and what nests in them, or of all. 125 if some can not be read; the rest is printed."""
    via = options.get("via")
    if via is not None:
        check_via(via)
    rows, complete = collect(options.get("dir"), via, names)
    if options.get("null"):
        print_names(rows)
    elif options.get("json"):
        print(format_json(rows))
    else:
        columns, cells = add_hosts(COLUMNS, list(map(make_cells, rows)), rows, via)
        print_rows(columns, cells, "STATE", STYLES, "nothing is held, and nobody waits")
    return 0 if complete else SoloError.status


def add_hosts(columns: tuple, lines: list, rows: list, via) -> tuple:
    """(columns, lines of cells), with the host of each row before the last column if an engine keeps them."""
    if via in (None, *KEEPERS):
        return columns, lines
    return (*columns[:-1], "HOST", columns[-1]), [
        [*cells[:-1], row["host"] or "-", cells[-1]] for cells, row in zip(lines, rows)
    ]


def print_names(rows: list):
    """Each name once, in the bytes that the file system has. A name cannot hold a NUL byte."""
    for name in dict.fromkeys(row["name"] for row in rows):
        sys.stdout.buffer.write(encode(name) + b"\0")
    sys.stdout.buffer.flush()


def collect(directory, via, names: list, tell=say, meet=None) -> tuple:
    """([an object per living ticket, by name and order of arrival], whether all could be read). `via` None: all there is.

    `meet`, if given, is called with each object and its ticket.
    """
    for name in names:
        split_name(name)  # a bad one is an error, not an empty list
    if via not in (None, *KEEPERS):
        from solo.commands import remote

        return remote.collect(via, names), True
    rows, complete = [], True
    for name, where, line in find_lines(directory, via, read_world()):
        if not is_within(name, names):
            continue
        if isinstance(line, SoloError):
            tell(f"{name}: {line}")
            complete = False
            continue
        for file in sorted(filter(is_published, line.list_files()), key=lambda file: (not file.startswith(HOLD), file)):
            try:
                ticket = line.look(file)
            except SoloError as error:
                tell(f"{name}: {error}")
                complete = False
                continue
            if ticket is None:
                continue
            record = ticket.read_record()
            # What holds a parent for a nested name is listed under that; one who waits at the parent stands nowhere else.
            told_elsewhere = ticket.is_hold and record is not None and record.claim.mode in INTENTIONS
            if ticket.state in (LIVE, ORPHANED) and not told_elsewhere:
                rows.append(make_row(name, where, ticket, record))
                if meet is not None:
                    meet(rows[-1], ticket)
            ticket.close()
    return rows, complete


def find_lines(directory, via, world):
    """(name, "file" or "socket", its queue or a SoloError) of every name there is. A generator."""
    if via in (None, FILE):
        try:
            base = open_base(find_base(directory), directory)
        except FileNotFoundError:
            base = None  # nothing was ever guarded here
        if base is not None:
            for name, place in find_names(base):
                yield name, FILE, place if isinstance(place, SoloError) else Line(place, world)
            close(base.fd)
    if via in (None, SOCKET):
        for name in sorted({name for name, _ in list_addresses()}):
            line = SocketLine(name, world)
            yield name, SOCKET, line
            line.leave()


def make_row(name: str, where: str, ticket, record) -> dict:
    # One that has the name here waits at its engine until its command runs.
    is_waiting = not ticket.is_hold or record is not None and record.via and record.child is None
    state = "waiting" if is_waiting else "orphaned" if ticket.state is ORPHANED else "held"
    row = {
        "name": name, "state": state, **describe_claim(Claim(EXCLUSIVE), None),
        "launcher": None, "child": None, "since": None, "user": find_user(ticket.owner_uid), "host": None, "command": [], "via": where,
        "ticket": ticket.number, "claims": {},
    }
    if record is not None:
        claims = find_claims(ticket, record)
        row.update(
            describe_claim(record.claim, record.slot[0][0] if record.slot else None),
            launcher=None if "launcher" in claims else record.launcher[0],
            child=record.child[0] if record.child and "child" not in claims else None,
            since=format_time(record.since),
            host=record.world.host,
            command=[decode(word) for word in record.command],
            via=record.via or where,
            claims=claims,
        )
    return row


def find_claims(ticket, record) -> dict:
    """What the record says and the owner of its file cannot be believed about: `user`, and the pids `launcher` and `child`."""
    claims = {}
    if not is_trusted(ticket):
        if record.uid != ticket.owner_uid:
            claims["user"] = find_user(record.uid)
        for key, process in (("launcher", record.launcher), ("child", record.child)):
            if process and not vouches(ticket, process):
                claims[key] = process[0]
    return claims


def format_pid(row: dict, key: str):
    """The pid of the `launcher` or the `child`, with a question mark if only the record says so; None if it is unknown."""
    return f"{row['claims'][key]}?" if key in row["claims"] else row[key]


def format_user(row: dict):
    """The owner of the ticket, and any other user that its record claims."""
    return f"{row['user']} (claims {row['claims']['user']})" if "user" in row["claims"] else row["user"]


def tell_age(row: dict) -> str:
    return format_duration(time() - datetime.fromisoformat(row["since"]).timestamp()) if row["since"] else "?"


def make_cells(row: dict) -> list:
    """The texts of one row of the table, in the order of COLUMNS."""
    return [row["name"], row["state"], row["mode"], format_pid(row, "launcher"), format_pid(row, "child") or "-",
            tell_age(row), format_user(row), " ".join(row["command"])]
