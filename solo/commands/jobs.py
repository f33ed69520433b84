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
from solo.commands.schedule import check_schedule
from solo.commands.units import UNITS, parse_unit
from solo.text.tables import format_json
from solo.text.width import print_clean

Groups = dict[tuple[object, ...], list[Line]]  # lines that have one lock file, one name or the same words


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
            for finding in row["findings"]:
                print_clean(f"{finding['state']:<5}  {row['file']}:{row['line']}: {finding['text']}")
            if row["use"] is not None:
                print_clean(f"use    {row['use']}")
        print_clean(summarize(sum(bool(line.command) for line in lines), rows))
    return int(any(row["state"] == FAILS for row in rows))


def summarize(count: int, rows: list[dict[str, Any]]) -> str:
    """Return the last line, about so many commands."""
    if not count:
        return "no command found"
    wrong = sum(row["state"] == FAILS for row in rows)
    unread = sum(row["findings"][0]["check"] in ("unread", "unclear", "wrapper") for row in rows)
    read = f"{count} command{'s' * (count != 1)}"
    text = f"{wrong} of {read} to change" if wrong else f"nothing wrong in {read}"
    return text + f", {unread} not understood" * bool(unread)


def list_lines(names: list[str], is_unit: bool) -> list[Line]:
    """Return the commands in the named files, or in all of the machine. Raises SoloError."""
    sources = read_all(names) if names else read_all([UNITS], must_exist=False) if is_unit else find_crontabs()
    return [line for source in sources for line in (parse_unit(source) if is_unit else parse_crontab(source))]


def describe(lines: list[Line], others: Iterable[Line] = ()) -> Iterator[dict[str, Any]]:
    """Yield a row for each line. `others` are lines that may have the same lock files and names."""
    groups: Groups = {}
    for line in [*lines, *others]:
        for key in list_keys(line):
            groups.setdefault(key, []).append(line)
    for line in lines:
        advice, use = line.advice, None
        findings = list(advice.findings)
        if advice.tool == "solo" and not advice.edit:
            findings += [*judge(line), *compare(line, groups), *check_schedule(line)]
        elif advice.edit or advice.reason:
            reason = advice.reason or find_reason(line, groups)
            use = None if reason else rewrite(line)
            if use is None:
                findings = [one for one in findings if one.check != "callers"]
                findings.append(Finding(NOTE, "none", f"no line to use: {reason or 'it has control characters'}"))
        findings.sort(key=lambda finding: finding.state != FAILS)
        row = {"file": line.file, "line": line.number, "state": findings[0].state if findings else NOTE}
        row |= {"tool": advice.tool, "call": advice.call, "lock": advice.lock}
        yield {**row, "findings": [finding._asdict() for finding in findings], "use": use}


def list_keys(line: Line) -> list[tuple[object, ...]]:
    """Return what other lines may have too: the lock file, the names of the line, the words that its name comes from."""
    advice = line.advice
    keys: list[tuple[object, ...]] = [("lock", advice.lock)] if line.user and advice.lock else []
    keys += [("name", name) for name in list_names(line)]
    if advice.unnamed:
        where = line.variables.get("SOLO_DIR"), advice.options.get("dir")
        keys.append(("words", advice.unnamed, line.user, where))
    return keys


def list_names(line: Line) -> list[str]:
    """Return the names of the user that the line types, if they are certainly in the directory of the user."""
    options = line.advice.options
    is_elsewhere = line.is_set_apart or line.variables.get("SOLO_DIR") or "via" in options
    names = options.get("name", ()) if line.user and not is_elsewhere else ()
    return [name for name in names if "%" not in name]


def compare(line: Line, groups: Groups) -> Iterator[Finding]:
    """Yield a note for each name that a line of another user has, but not the same lock; and if another line of the user
    has the same words, so the same name, and neither has -n.
    """
    shared = list_shared(line.advice.options)
    for key in list_keys(line):
        others = [other for other in groups[key] if other is not line]
        if key[0] == "name":
            others = [one for one in others if one.user != line.user and not shared & list_shared(one.advice.options)]
            found = {one.user: f"{one.user} ({one.file}:{one.number})" for one in reversed(others)}
            text = f"-n {key[1]} does not exclude that of {', '.join(found.values())}: each user has separate names"
            yield from [Finding(NOTE, "users", f"{text} (add the same --dir to these lines)")] * bool(found)
        elif key[0] == "words" and others:
            places = ", ".join(f"{one.file}:{one.number}" for one in others)
            text = f"without -n its name is that of {places}: they skip each other (add another -n NAME to each)"
            yield Finding(NOTE, "twins", text)


def find_reason(line: Line, groups: Groups) -> str:
    """Return why solo would not run there as the tool does, "" if it was tried."""
    if line.is_set_apart:
        return "SOLO_VIA or SOLO_DIR is set"
    place, lock = find_line_place(line), line.advice.lock
    if place.problem or place.unknown:
        return place.problem or place.unknown
    if len({other.user for other in groups.get(("lock", lock), ())}) > 1:
        return f"lines of several users lock {lock}, and each user has separate names"
    return ""


def find_line_place(line: Line) -> Place:
    """Return how the line can call solo and keep names."""
    if line.unit is None:
        asked = str(line.advice.options.get("dir") or line.variables.get("SOLO_DIR", ""))
        return find_place(line.user, line.variables.get("PATH", CRON_PATH), asked)
    return line.unit if line.unit.problem or line.unit.unknown else find_place(line.user, None, line.asked)


def rewrite(line: Line) -> str | None:
    """Return the whole line with solo, None if it could not be pasted."""
    place, edit, text = find_line_place(line), line.advice.edit, line.command
    solo = place.solo if line.advice.is_bare else find_solo()
    if edit is not None:
        text = f"{text[: edit[0]]}{solo} {edit[2]}{text[edit[1] :]}"
    whole = line.head + text + line.tail
    whole = whole if set("\"'\\%") & set(whole) else whole.replace("\t", " ")
    return whole if whole.isprintable() else None


def judge(line: Line) -> Iterator[Finding]:
    """Yield what prevents that a line with solo runs: its call, its user, or the settings of its unit."""
    advice, ours = line.advice, find_solo()
    if "via" in advice.options or {"SOLO_VIA"} & line.variables.keys():
        return
    place = find_line_place(line)
    if advice.solo[:1] == "/":
        if not os.path.exists(advice.solo) and "%" not in advice.solo and os.geteuid() == 0:
            yield Finding(FAILS, "path", f"{advice.solo} is not there (solo is {ours})")
    elif advice.is_bare and place.solo != "solo" and line.unit is None:
        yield Finding(FAILS, "path", f"cron does not find solo in the PATH of this line (write {ours})")
    if advice.runs and place.problem and not line.is_set_apart:
        yield Finding(FAILS, "place", place.problem)
