"""`solo doctor --crontab` and `--unit`: read crontabs or systemd units, and print what to change.

Never writes a file and never runs a command of a line. A line to use is printed only if solo was tried there, as that user or with
the settings of that unit, and has the effect of the tool that it replaces; tests/test_oracle.py compares both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from solo.commands.checks import CRON_PATH
from solo.commands.crontab import Line, find_crontabs, parse_crontab, read_all
from solo.commands.guards import FAILS, NOTE, Finding, list_shared
from solo.commands.place import Place, find_place, find_solo
from solo.commands.units import find_units, parse_unit
from solo.text.tables import format_json
from solo.text.width import print_clean

Owners = dict[str, dict[tuple[str, frozenset[str]], Line]]  # of each name: (user, shared) of the first line


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print the findings as text, or with --json as an array with an object per line.

    Return 1 if something is wrong, else 0. Raises SoloError if a named file cannot be read.
    """
    is_unit = "unit" in options
    lines = list_lines(names, is_unit)
    others = [] if names else list_lines([], not is_unit)
    rows = [row for row in describe(lines, others) if row["findings"]]
    if options.get("json"):
        print(format_json(rows))
    else:
        for row in rows:
            print_row(row)
        wrong, unread = (sum(test(row) for row in rows) for test in (is_wrong, is_unread))
        count = sum(bool(line.command) for line in lines)
        read = f"{count} command{'s' * (count != 1)}"
        text = f"{wrong} of {read} to change" if wrong else f"nothing wrong in {read}"
        print_clean(text + f", {unread} not understood" * bool(unread))
    return int(any(map(is_wrong, rows)))


def is_wrong(row: dict[str, Any]) -> bool:
    return bool(row["state"] == FAILS)


def is_unread(row: dict[str, Any]) -> bool:
    return row["findings"][0]["check"] in ("unread", "unclear", "wrapper")


def list_lines(names: list[str], is_unit: bool) -> list[Line]:
    """Return the commands in the named files, or in all of the machine. Raises SoloError."""
    sources = read_all(names) if names else find_units() if is_unit else find_crontabs()
    return [line for source in sources for line in (parse_unit(source) if is_unit else parse_crontab(source))]


def print_row(row: dict[str, Any]) -> None:
    """Print a line for each finding about a command, and the line to use instead."""
    for finding in row["findings"]:
        print_clean(f"{finding['state']:<5}  {row['file']}:{row['line']}: {finding['text']}")
    if row["use"] is not None:
        print_clean(f"use    {row['use']}")


def describe(lines: list[Line], others: Iterable[Line] = ()) -> Iterator[dict[str, Any]]:
    """Yield a row for each line. `others` are lines that may have the same lock files and names."""
    users, owners = find_users([*lines, *others])
    for line in lines:
        advice = line.advice
        findings, use = list(advice.findings), None
        if advice.tool == "solo" and not advice.edits:
            findings += judge(line) + compare_names(line, owners) + find_twins(line, lines)
        elif advice.edits or advice.reason:
            reason = advice.reason or find_reason(line, users)
            use = None if reason else rewrite(line)
            if use is None:
                findings = [one for one in findings if one.check != "callers"]
                text = f"no line to use: {reason or 'it has control characters'}"
                findings.append(Finding(NOTE, "none", text))
        yield {
            "file": line.file,
            "line": line.number,
            "state": FAILS if any(finding.state == FAILS for finding in findings) else NOTE,
            "tool": advice.tool,
            "call": advice.call,
            "lock": advice.lock,
            "findings": [finding._asdict() for finding in findings],
            "use": use,
        }


def find_users(lines: list[Line]) -> tuple[dict[str, set[str]], Owners]:
    """Return (the users of each lock file, the users of each name that is typed)."""
    users: dict[str, set[str]] = {}
    owners: Owners = {}
    for line in lines:
        if line.user and line.advice.lock:
            users.setdefault(line.advice.lock, set()).add(line.user)
        for name in list_names(line):
            owners.setdefault(name, {}).setdefault((line.user, list_shared(line.advice.options)), line)
    return users, owners


def list_names(line: Line) -> list[str]:
    """Return the names of the user that the line types, if they are certainly in the directory of the user."""
    if not line.user or line.command.count("SOLO_") or {"SOLO_DIR", "SOLO_VIA"} & line.variables.keys():
        return []
    options = line.advice.options
    return [] if "via" in options else [name for name in options.get("name", ()) if "%" not in name]


def compare_names(line: Line, owners: Owners) -> list[Finding]:
    """Return a note for each name that a line of another user has, but not the same lock."""
    findings = []
    for name in list_names(line):
        found = {
            user: f"{user} ({other.file}:{other.number})"
            for (user, shared), other in owners.get(name, {}).items()
            if user != line.user and not shared & list_shared(line.advice.options)
        }
        if found:
            text = f"-n {name} does not exclude that of {', '.join(found.values())}: each user has separate names"
            findings.append(Finding(NOTE, "users", f"{text} (add the same --dir to these lines)"))
    return findings


def find_twins(line: Line, lines: list[Line]) -> list[Finding]:
    """Return a note if other lines of the user have the same words, so the same name, and none has -n."""

    def find_key(line: Line) -> tuple[object, ...]:
        return line.advice.unnamed, line.user, line.variables.get("SOLO_DIR"), line.advice.options.get("dir")

    twins = [other for other in lines if line.advice.unnamed and find_key(other) == find_key(line)]
    places = [f"{other.file}:{other.number}" for other in twins if other is not line]
    text = f"without -n its name is that of {', '.join(places)}: they skip each other (add another -n NAME to each)"
    return [Finding(NOTE, "twins", text)] if places else []


def find_reason(line: Line, users: dict[str, set[str]]) -> str:
    """Return why solo would not run there as the tool does, "" if it was tried."""
    if {"SOLO_VIA"} & line.variables.keys() or line.command.count("SOLO_"):
        return "SOLO_VIA or SOLO_DIR is set"
    place = find_line_place(line)
    if place.problem or place.unknown:
        return place.problem or place.unknown
    if len(users.get(line.advice.lock or "", ())) > 1:
        return f"lines of several users lock {line.advice.lock}, and each user has separate names"
    return ""


def find_line_place(line: Line) -> Place:
    """Return how the line can call solo and keep names."""
    if line.unit is None:
        asked = str(line.advice.options.get("dir") or line.variables.get("SOLO_DIR", ""))
        return find_place(line.user, line.variables.get("PATH", CRON_PATH), asked)
    if line.unit.problem or line.unit.unknown:
        return line.unit
    return find_place(line.user, None, line.asked)


def rewrite(line: Line) -> str | None:
    """Return the whole line with solo, None if it could not be pasted."""
    place = find_line_place(line)
    solo = place.solo if line.advice.is_bare or place.solo[:1] == "/" else place.path
    text = line.command
    for edit in sorted(line.advice.edits, reverse=True):
        text = f"{text[: edit.start]}{solo} {edit.words} -- {edit.command}{text[edit.end :]}"
    whole = line.head + text + line.tail
    whole = whole if set("\"'\\%") & set(whole) else whole.replace("\t", " ")
    return whole if whole.isprintable() else None


def judge(line: Line) -> list[Finding]:
    """Return what prevents that a line with solo runs: its call, its user, or the settings of its unit."""
    advice, findings = line.advice, list[Finding]()
    if "via" in advice.options or {"SOLO_VIA"} & line.variables.keys():
        return findings
    place, ours = find_line_place(line), find_solo()
    if advice.solo[:1] == "/":
        if not os.path.exists(advice.solo) and "%" not in advice.solo and os.geteuid() == 0:
            findings.append(Finding(FAILS, "path", f"{advice.solo} is not there (solo is {ours})"))
    elif advice.is_bare and place.solo != "solo" and line.unit is None:
        findings.append(Finding(FAILS, "path", f"cron does not find solo in the PATH of this line (write {ours})"))
    if advice.runs and place.problem and not line.command.count("SOLO_"):
        findings.append(Finding(FAILS, "place", place.problem))
    return findings
