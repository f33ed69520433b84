"""`solo show`: everything about a name: its holders with their processes, its waiters, its last
runs and its files.
"""

from collections.abc import Iterator, Sequence
from posix import uname
from time import localtime, strftime, time
from typing import Any

from solo.commands import history
from solo.commands.captured import list_last_lines
from solo.commands.list import CELLS, Cells, add_usual, find_lost, look_at, make_table, show_slot
from solo.commands.list import collect as collect_rows
from solo.commands.lookup import (
    Asked,
    describe_no_locks,
    describe_place,
    open_existing,
    read_skips,
    report_unknown,
    visit_queues,
)
from solo.commands.states import describe_state, examine, read_clock
from solo.errors import SoloError, describe_skips
from solo.history.reader import Day, find_history
from solo.identity import Origin, read_origin
from solo.journal_files import JOURNAL, open_place
from solo.kernel import close, say
from solo.options import FILE
from solo.process.tree import find_roots
from solo.text.describe import format_count, format_duration, format_rough, format_usual
from solo.text.remedies import quote_path
from solo.text.rows import DayRow, NameRow, ProcessRow, Row, make_row
from solo.text.tables import Styles, format_json, format_time, print_rows
from solo.text.width import print_clean
from solo.tickets import FileQueue, Queue

KIB = 1024
LAST_RUNS = 5
ATTRIBUTES = ("status", "cpu_times", "memory_info", "create_time", "cmdline", "name")  # of psutil


def run(options: Asked, names: "list[str]") -> int:
    """Print each name as text or JSON. Return 125 if one cannot be read or was never used."""
    unknown: list[str] = []
    unread: list[str] = []
    shown: list[NameRow] = []
    origin = read_origin()

    def show(name: str, queue: "Queue | None") -> bool:
        known, is_whole = collect(name, queue, options, origin)
        shown.append(known)
        if not is_whole:
            unread.append(name)
        return is_whole

    if options.is_engine:
        rows, complete = collect_rows(options.dir, options.where, names)
        # Of a host's launchers only one at a time is in the engine's queue.
        local = collect_rows(options.dir, FILE, names)[0]
        seen = {row.pid for row in rows if row.host == uname().nodename}
        rows += [row for row in local if row.is_waiting and row.pid not in seen]
        for name in names:  # without processes, which can be seen on their own host only
            mine = [row._replace(processes=[]) for row in rows if row.name == name]
            shown.append(add_tickets(NameRow(name, options.where), mine))
    else:
        unknown = report_unknown(names, options, "show")
        complete = visit_queues(names, options, show)
    if options.json:
        print(format_json(shown))
    else:
        for at, known in enumerate(one for one in shown if one.name not in unknown):
            print("\n" * (at > 0), end="")
            print_name(known, known.name not in unread, describe_place(options))
    return 0 if complete and not unknown else SoloError.status


def collect(
    name: str, queue: "Queue | None", options: Asked, origin: Origin
) -> "tuple[NameRow, bool]":
    """Return (the row of one name, whether all of its tickets could be read), and print errors."""
    via, directory = options.where, options.dir
    known, complete = NameRow(name, via), True
    if via == FILE:
        known = show_history(known, options, origin)
    if queue is None:
        return known, complete
    if isinstance(queue, FileQueue):
        known = known._replace(path=queue.place.path, skips=read_skips(queue))
    rows, roots = list[Row](), dict[int, list[int]]()
    for ticket in look_at(queue, queue.list_files()):
        if isinstance(ticket, SoloError):
            say(f"{name}: {ticket}")
            complete = False
            continue
        ticket.read_record()
        row = show_slot(make_row(name, via, ticket), ticket, directory, via)
        rows.append(row)
        if not row.is_waiting:
            roots[row.ticket] = find_roots(ticket)
            lost = find_lost(name, ticket)
            if lost and not options.json:
                say(lost)
        ticket.close()
    rows = add_usual(rows, directory)
    if roots:
        processes = Processes()
        if processes.problem:
            say(processes.problem)
        rows = [
            row._replace(processes=list_processes(processes, roots[row.ticket]))
            if row.ticket in roots
            else row
            for row in rows
        ]
    return add_tickets(known, rows), complete


def show_history(known: NameRow, options: Asked, origin: Origin) -> NameRow:
    """Return the row of a name with what its journal says."""
    name, directory = known.name, options.dir
    found = find_history(directory, name)
    rows = history.list_rows(name, found, options, origin)
    if not rows:
        return known
    clock = read_clock()
    job = examine(name, found, options, origin, clock)
    if place := open_existing(directory, open_place, name):
        close(place.fd)  # else it has just been removed
    runs = sorted(rows, key=lambda row: row.time)[-LAST_RUNS:]
    return known._replace(
        state=job.health.state,
        reason=describe_state(job, clock) or None,
        days=list(map(make_day, found.days)),
        runs=runs,
        output=list_last_lines(directory, name, runs),
        journal=f"{place.path}/{JOURNAL}" if place else None,
    )


def add_tickets(known: NameRow, rows: "list[Row]") -> NameRow:
    holds, waiting = [[row for row in rows if row.is_waiting is it] for it in (False, True)]
    return known._replace(holds=holds, waiting=waiting)


def list_processes(processes: "Processes", roots: "list[int]") -> "list[ProcessRow]":
    """Return these processes and their descendants, parents first."""
    return [
        ProcessRow(
            pid,
            depth,
            info["status"],
            round(info["cpu_times"].user + info["cpu_times"].system, 2),
            info["memory_info"].rss,
            round(time() - info["create_time"], 1),
            info["cmdline"] or [info["name"]],
        )
        for pid, depth, info in processes.walk(roots, *ATTRIBUTES)
        if info["cpu_times"] and info["memory_info"]  # else we may not look at it
    ]


class Processes:
    """All processes at one moment. Without psutil there are none, and `problem` says why."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}
        self.children: dict[int, list[int]] = {}
        self.problem = ""
        try:
            import psutil
        except ModuleNotFoundError:
            from solo.text.missing import describe_missing

            self.problem = f"processes are not shown: {describe_missing('psutil')}"
            return
        self.Gone = psutil.NoSuchProcess
        for process in psutil.process_iter(["ppid"]):
            self.found[process.pid] = process
            self.children.setdefault(process.info["ppid"], []).append(process.pid)

    def walk(
        self, pids: "list[int]", *attributes: str
    ) -> "Iterator[tuple[int, int, dict[str, Any]]]":
        """Yield (pid, depth, what psutil knows of it) for each of these processes and its
        descendants, parents first.
        """
        seen = set()
        left = [(pid, 0) for pid in reversed(pids)]
        while left:
            pid, depth = left.pop()
            if pid not in self.found or pid in seen:
                continue
            seen.add(pid)
            left += [(child, depth + 1) for child in reversed(self.children.get(pid, []))]
            try:
                yield pid, depth, self.found[pid].as_dict(attributes)
            except self.Gone:
                continue


WAITING_COLUMNS = "PLACE PID USER MODE FOR HOST NOTE COMMAND".split()
PROCESS_COLUMNS = "PID STATE CPU MEMORY AGE COMMAND".split()


def print_name(known: NameRow, complete: bool, place: str) -> None:
    """Print one name, of which all tickets could be read or not. `place` says whose names were
    looked at, for a name without tickets.
    """
    skips = describe_skips(sum(known.skips.values()))
    if known.holds or known.waiting:
        print_clean(f"{known.name}: {len(known.holds)} held, {len(known.waiting)} waiting{skips}")
    else:
        print_clean(f"{known.name}: {describe_no_locks(complete)}{skips}: {place}")
    if known.reason:
        print_clean(f"{known.state}: {known.reason}")
    for row in known.holds:
        print_section(
            describe_hold(row), PROCESS_COLUMNS, list(map(make_process_cells, row.processes or ()))
        )
    if known.waiting:
        places = {row.ticket: place for place, row in enumerate(known.waiting, 1)}
        cells: Cells[Row] = {
            **CELLS,
            "PLACE": lambda row: places[row.ticket],
            "PID": lambda row: row.format_pid("launcher") or None,
        }
        table = make_table(WAITING_COLUMNS, known.waiting, cells, known.via)
        print_section(["waiting:"], *table)
    if known.days:
        print_section([describe_days(known.days)])
    if known.runs:
        columns, lines = history.make_table(known.runs)
        print_section(
            ["last runs:"],
            columns[1:],
            [line[1:] for line in lines],
            "OUTCOME",
            history.find_styles(known.runs),
        )
    if known.output:
        print_section(
            [
                f"last lines (solo history --captured {quote_path(known.name)} has all):",
                *known.output,
            ]
        )
    if files := format_facts(("files:", known.path), ("journal:", known.journal)):
        print_section(files)


def print_section(
    head: "list[str]",
    columns: "list[str]" = [],  # noqa: B006
    rows: "Sequence[Sequence[object]]" = (),
    styled: str = "",
    styles: "Styles | None" = None,
) -> None:
    """Print an empty line, the lines of `head`, and a table of `rows` if there are any."""
    print()
    for text in head:
        print_clean(text)  # flushed now, before rich writes
    if rows:
        print_rows(columns, rows, styled, styles)


def describe_hold(row: Row) -> "list[str]":
    """Return the lines about one hold."""
    if not row.shown_pid:
        return [f"{row.state}, {row.via}: holder unknown"]
    names = f", for {' '.join(row.names)}" if row.names != [row.name] else ""
    pid = f"{'orphan ' if row.state == 'orphaned' else ''}pid {row.shown_pid}"
    overdue = ", running long" if row.overdue else ""
    usual = ""
    if row.usual is not None:
        usual = f", usually {format_usual(row.usual, row.usual_range)}{overdue},"
    return [
        f"{row.state} for {row.age}{usual} by {pid} "
        f"({row.shown_user} on {row.host}), {row.shown_mode}, {row.via}{names}",
        *format_facts(
            ("command:", " ".join(row.command)),
            ("in:", row.directory),
            ("since:", format_time(row.since)),
            ("lease:", row.silent),
            ("note:", row.note),
        ),
    ]


def format_facts(*facts: "tuple[str, str | None]") -> "list[str]":
    """Return a line for each fact that is known."""
    return [f"{title:<9}{text}" for title, text in facts if text]


def make_day(day: Day) -> DayRow:
    """Return the figures of a day that the journal no longer has run by run."""
    mean, longest = None, None
    if day.ends:
        mean, longest = round(day.ran_ms / day.ends / 1000, 3), day.longest_ms / 1000
    return DayRow(day.first, day.last, day.runs, day.skips, day.failures, mean, longest)


def describe_days(days: "list[DayRow]") -> str:
    """Return `earlier, since 2026-01-01: 40321 runs, 3 failed, 17 skips, at most 4m`."""
    runs, failures = sum(day.runs for day in days), sum(day.failures for day in days)
    since = strftime("%F", localtime(days[0].first))
    skips = format_count(sum(day.skips for day in days), "skip")
    text = f"earlier, since {since}: {format_count(runs, 'run')}, {failures} failed, {skips}"
    longest = max((day.longest for day in days if day.longest is not None), default=None)
    return text if longest is None else f"{text}, at most {format_rough(longest)}"


def make_process_cells(process: ProcessRow) -> "list[object]":
    size = f"{process.resident_bytes // KIB} KiB"
    command = "  " * process.depth + " ".join(process.command)
    cpu, age = f"{process.cpu_seconds:.2f}s", format_duration(process.seconds)
    return [process.pid, process.state, cpu, size, age, command]
