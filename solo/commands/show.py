"""`solo show`: all there is to know of a name: who holds it, running what, in which processes; who waits; which files."""

import json
import posix
from datetime import datetime
from time import time

from solo.commands.lines import check_names, close_line, open_line
from solo.commands.list import make_row
from solo.errors import SoloError
from solo.identity import read_world
from solo.kernel import say
from solo.options import FILE
from solo.rule import MODES
from solo.sockets import SocketLine
from solo.tickets import LIVE, ORPHANED, is_published
from solo.words import format_duration

KIB = 1024


def run(options: dict, names: list) -> int:
    """Print each name: text, or with --json an array with an object a name. 125 if something could not be read."""
    check_names(names)
    world, complete, shown = read_world(), True, []
    for name in names:
        line = open_line(name, options, world)
        try:
            shown.append(collect(name, line, options.get("via", FILE)))
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
        finally:
            if line is not None:
                close_line(line)
    if options.get("json"):
        print(json.dumps(shown, indent=2))
    else:
        print("\n\n".join(map(format_name, shown)))
    return 0 if complete else SoloError.status


def collect(name: str, line, via: str) -> dict:
    """What is known of one name, as JSON has it: `holds` and `waiting` are rows of `solo list`, with `processes` added."""
    known = {"name": name, "via": via, "path": None, "skips": {}, "holds": [], "waiting": []}
    if line is None:
        return known
    if not isinstance(line, SocketLine):
        known["path"] = line.place.path
        known["skips"] = read_skips(line)
    for file in sorted(filter(is_published, line.list_files())):
        ticket = line.open_ticket(file)
        if ticket is None:
            continue
        if ticket.state in (LIVE, ORPHANED):
            row = make_row(name, via, ticket, ticket.read_record())
            if ticket.is_hold:
                row["names"] = ticket.record.names if ticket.record is not None and via == FILE else [name]
                row["processes"] = list_processes(row["child"])
                known["holds"].append(row)
            else:
                known["waiting"].append(row)
        ticket.close()
    return known


def read_skips(line) -> dict:
    """How many were turned away since someone got in, by mode; those that are not 0."""
    try:
        line.gate = posix.open(".gate", posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=line.place.fd)
        return {mode: count for mode, count in zip(MODES, line.read_gate()[1]) if count}
    except OSError:
        return {}


def list_processes(pid) -> list:
    """[{pid, depth, state, cpu_seconds, resident_bytes, since, command}] of a command and its descendants, parents first."""
    import psutil

    def walk(process, depth):
        try:
            with process.oneshot():
                times = process.cpu_times()
                yield {
                    "pid": process.pid, "depth": depth, "state": process.status(),
                    "cpu_seconds": round(times.user + times.system, 2), "resident_bytes": process.memory_info().rss,
                    "seconds": round(time() - process.create_time(), 1), "command": process.cmdline() or [process.name()],
                }
            children = process.children()
        except psutil.Error:
            return  # it has just ended, or is not ours to look at
        for child in children:
            yield from walk(child, depth + 1)

    try:
        return list(walk(psutil.Process(pid), 0)) if pid else []
    except psutil.Error:
        return []


def format_name(known: dict) -> str:
    lines = [f"{known['name']}: {len(known['holds'])} held, {len(known['waiting'])} waiting"]
    for row in known["holds"]:
        lines += ["", *format_hold(row)]
    if known["waiting"]:
        lines += ["", "in line:"]
        for at, row in enumerate(known["waiting"], 1):
            who = f"pid {row['launcher']} ({row['user']}, {row['mode']})"
            lines.append(f"  {at}. {who} for {tell_age(row)}: {' '.join(row['command'])}")
    total = sum(known["skips"].values())
    if total:
        lines += ["", f"turned away since: {total}"]
    if known["path"]:
        lines += ["", f"files: {known['path']}"]
    return "\n".join("".join(c if c.isprintable() or c == "\n" else "?" for c in line) for line in lines)


def format_hold(row: dict) -> list:
    slot = f", slot {row['slot']} of {row['slots']}" if row["mode"] == "slots" else ""
    names = f", for {' '.join(row['names'])}" if row["names"] != [row["name"]] else ""
    who = f"pid {row['launcher']} ({row['user']} on {row['host']})"
    lines = [
        f"{row['state']} for {tell_age(row)} by {who}, {row['mode']}{slot}, {row['via']}{names}",
        f"  command: {' '.join(row['command'])}",
        f"  since:   {row['since']}",
    ]
    if row["processes"]:
        lines.append(f"  {'PID':>9}  {'STATE':<10} {'CPU':>8} {'MEMORY':>9} {'AGE':>7}  COMMAND")
    for process in row["processes"]:
        size, age = process["resident_bytes"] // KIB, format_duration(process["seconds"])
        numbers = f"{process['cpu_seconds']:>7.2f}s {size:>5} KiB {age:>7}"
        command = "  " * process["depth"] + " ".join(process["command"])
        lines.append(f"  {process['pid']:>9}  {process['state']:<10} {numbers}  {command}")
    return lines


def tell_age(row: dict) -> str:
    return format_duration(time() - datetime.fromisoformat(row["since"]).timestamp()) if row["since"] else "?"
