"""`solo show`: everything about a name: its holders with their processes, its waiters, its last
runs and its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from posix import uname
from time import time
from typing import Any

from solo.argv import is_engine
from solo.commands import history
from solo.commands.captured import list_last_lines
from solo.commands.list import (
    add_usual,
    find_lost,
    format_age,
    format_mode,
    format_pid,
    format_user,
    look_at,
    make_table,
    show_slot,
    show_usual,
)
from solo.commands.list import collect as collect_rows
from solo.commands.lookup import (
    describe_place,
    open_existing,
    read_skips,
    report_unknown,
    visit_queues,
)
from solo.commands.states import describe_state, examine, read_clock
from solo.errors import SoloError, describe_skips
from solo.history.reader import find_history
from solo.identity import read_origin
from solo.journal_files import JOURNAL, open_place
from solo.kernel import close, say
from solo.options import FILE, SOCKET
from solo.process.tree import find_roots
from solo.text.describe import format_duration, format_rough
from solo.text.tables import format_json, format_time, format_times, make_row, print_rows
from solo.text.width import print_clean

KIB = 1024
LAST_RUNS = 5
ATTRIBUTES = ("status", "cpu_times", "memory_info", "create_time", "cmdline", "name")  # of psutil


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print each name as text or JSON. Return 125 if one cannot be read or was never used."""
    unknown, shown, origin = list[str](), list[dict[str, Any]](), read_origin()

    def show(name: Any, queue: Any) -> bool:
        errors: list[SoloError] = []
        shown.append(collect(name, queue, options, origin, errors.append))
        for error in errors:
            say(f"{name}: {error}")
        return not errors

    if is_engine(options):
        rows, complete = collect_rows(options.get("dir"), options["via"], names)
        # Of a host's launchers only one at a time is in the engine's queue.
        local = collect_rows(options.get("dir"), FILE, names)[0]
        seen = {row["launcher"] for row in rows if row["host"] == uname().nodename}
        rows += [row for row in local if row["state"] == "waiting" and row["launcher"] not in seen]
        shown += [collect_remote(name, options["via"], rows) for name in names]
    else:
        unknown = [name for name in names if report_unknown(name, options, "show")]
        complete = visit_queues(names, options, show)
    for known in shown:
        add_usual([*known["holds"], *known["waiting"]], options.get("dir"))
    if options.get("json"):
        for known in shown:
            known.update({key: format_times(known[key]) for key in ("holds", "waiting")})
        print(format_json(shown))
    else:
        for at, known in enumerate(one for one in shown if one["name"] not in unknown):
            print("\n" * (at > 0), end="")
            print_name(known, describe_place(options))
    return 0 if complete and not unknown else SoloError.status


def collect(
    name: str, queue: Any, options: dict[str, Any], origin: Any, report: Any
) -> dict[str, Any]:
    """Return the object of one name, as --json prints it. Call `report` with each SoloError of a
    ticket.
    """
    via = options.get("via", FILE)
    known = make_empty(name, via)
    if via == FILE:
        found = find_history(options.get("dir"), name)
        rows = history.list_rows(name, found, options, origin)
        if rows:
            clock = read_clock()
            job = examine(name, found, options, origin, clock)
            known.update(state=job.health.state, reason=describe_state(job, clock) or None)
            known["days"] = list(map(make_day, found.days))
            known["runs"] = [row for _, row in sorted(rows, key=lambda pair: pair[0])[-LAST_RUNS:]]
            known["output"] = list_last_lines(options.get("dir"), name, known["runs"])
            if place := open_existing(options.get("dir"), open_place, name):
                close(place.fd)  # else it has just been removed
                known["journal"] = f"{place.path}/{JOURNAL}"
    if queue is None:
        return known
    if via != SOCKET:
        known["path"] = queue.place.path
        known["skips"] = read_skips(queue)
    holds = []
    for ticket in look_at(queue, queue.list_files()):
        if isinstance(ticket, SoloError):
            report(ticket)
            continue
        row = make_row(name, via, ticket, ticket.read_record())
        show_slot(row, ticket, options.get("dir"), via)
        if row["state"] == "waiting":
            known["waiting"].append(row)
        else:
            row["names"] = (
                ticket.record.names if ticket.record is not None and via == FILE else [name]
            )
            holds.append((row, find_roots(ticket)))
            for text in () if options.get("json") else find_lost(row, ticket):
                say(text)
        ticket.close()
    if holds:
        processes = Processes()
        if processes.problem:
            say(processes.problem)
        known["holds"] = [
            {**row, "processes": list_processes(processes, roots)} for row, roots in holds
        ]
    return known


def collect_remote(name: str, via: str, rows: list[Any]) -> dict[str, Any]:
    """Return the same object for a name at an engine. It has no processes: they can be seen on
    their own host only.
    """
    mine = [{**row, "names": [name], "processes": []} for row in rows if row["name"] == name]
    holds, waiting = [
        [row for row in mine if row["state"] == state] for state in ("held", "waiting")
    ]
    return {**make_empty(name, via), "holds": holds, "waiting": waiting}


def make_empty(name: str, via: str) -> dict[str, Any]:
    known: dict[str, Any] = {"name": name, "via": via, "path": None, "journal": None, "skips": {}}
    known.update(state=None, reason=None, days=[])
    return {**known, "holds": [], "waiting": [], "runs": [], "output": []}


def list_processes(processes: Processes, roots: list[Any]) -> list[Any]:
    """Return an object for each of these processes and their descendants, parents first."""
    return [
        {
            "pid": pid,
            "depth": depth,
            "state": info["status"],
            "cpu_seconds": round(info["cpu_times"].user + info["cpu_times"].system, 2),
            "resident_bytes": info["memory_info"].rss,
            "seconds": round(time() - info["create_time"], 1),
            "command": info["cmdline"] or [info["name"]],
        }
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

    def walk(self, pids: list[int], *attributes: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
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


WAITING_COLUMNS = ("PLACE", "PID", "USER", "MODE", "FOR", "HOST", "NOTE", "COMMAND")
PROCESS_COLUMNS = ("PID", "STATE", "CPU", "MEMORY", "AGE", "COMMAND")


def print_name(known: dict[str, Any], place: str) -> None:
    """Print one name. `place` says whose names were looked at, for a name without tickets."""
    skips, runs = describe_skips(sum(known["skips"].values())), known["runs"]
    if known["holds"] or known["waiting"]:
        print_clean(
            f"{known['name']}: {len(known['holds'])} held, {len(known['waiting'])} waiting{skips}"
        )
    else:
        print_clean(f"{known['name']}: no locks held{skips}: {place}")
    if known["reason"]:
        print_clean(f"{known['state']}: {known['reason']}")
    for row in known["holds"]:
        print_section(
            describe_hold(row), PROCESS_COLUMNS, list(map(make_process_cells, row["processes"]))
        )
    if known["waiting"]:
        waiting = [{**row, "place": place} for place, row in enumerate(known["waiting"], 1)]
        table = make_table(
            WAITING_COLUMNS, waiting, known["via"], PID=lambda row: format_pid(row, "launcher")
        )
        print_section(["waiting:"], *table)
    if known["days"]:
        print_section([describe_days(known["days"])], (), [])
    if runs:
        columns, lines = history.make_table(runs)
        print_section(
            ["last runs:"],
            columns[1:],
            [line[1:] for line in lines],
            "OUTCOME",
            history.find_styles(runs),
        )
    if known["output"]:
        print_section(["last lines (solo history --captured has all):", *known["output"]], (), [])
    files = [
        f"{title:<9}{known[key]}"
        for title, key in (("files:", "path"), ("journal:", "journal"))
        if known[key]
    ]
    if files:
        print_section(files, (), [])


def print_section(head: list[Any], columns: tuple[Any, ...], rows: list[Any], *styles: Any) -> None:
    """Print an empty line, the lines of `head`, and a table of `rows` if there are any."""
    print()
    for text in head:
        print_clean(text)  # flushed now, before rich writes
    if rows:
        print_rows(columns, rows, *styles)


def describe_hold(row: dict[str, Any]) -> list[Any]:
    """Return the lines about one hold."""
    holder = format_pid(row, "launcher") or format_pid(row, "child")
    if holder is None:
        return [f"{row['state']}, {row['via']}: holder unknown"]
    names = f", for {' '.join(row['names'])}" if row["names"] != [row["name"]] else ""
    pid = (
        f"orphan pid {format_pid(row, 'child')}" if row["state"] == "orphaned" else f"pid {holder}"
    )
    overdue = ", running long" if row["overdue"] else ""
    usual = "" if row["usual"] is None else f", usually {show_usual(row)}{overdue},"
    return [
        f"{row['state']} for {format_age(row)}{usual} by {pid} "
        f"({format_user(row)} on {row['host']}), {format_mode(row)}, {row['via']}{names}",
        f"command: {' '.join(row['command'])}",
        *([f"in:      {row['directory']}"] if row["directory"] else []),
        f"since:   {format_time(row['since'])}",
        *([f"lease:   {row['silent']}"] if row["silent"] else []),
        *([f"note:    {row['note']}"] if row["note"] else []),
    ]


def make_day(day: Any) -> dict[str, Any]:
    """Return the figures of a day that the journal no longer has run by run."""
    return {
        "first": format_time(day.first),
        "last": format_time(day.last),
        **{key: getattr(day, key) for key in ("runs", "skips", "failures")},
        "mean": round(day.ran_ms / day.ends / 1000, 3) if day.ends else None,
        "longest": day.longest_ms / 1000 if day.ends else None,
    }


def describe_days(days: list[dict[str, Any]]) -> str:
    """Return `earlier, since 2026-01-01: 40321 runs, 3 failed, 17 skips, at most 4m`."""
    runs, skips, failures = [sum(day[key] for day in days) for key in ("runs", "skips", "failures")]
    longest = max((day["longest"] for day in days if day["longest"] is not None), default=None)
    text = f"earlier, since {days[0]['first'][:10]}: {runs} runs, {failures} failed, {skips} skips"
    return text if longest is None else f"{text}, at most {format_rough(longest)}"


def make_process_cells(process: dict[str, Any]) -> tuple[Any, ...]:
    size, command = (
        f"{process['resident_bytes'] // KIB} KiB",
        "  " * process["depth"] + " ".join(process["command"]),
    )
    cpu, age = f"{process['cpu_seconds']:.2f}s", format_duration(process["seconds"])
    return process["pid"], process["state"], cpu, size, age, command
