"""`solo doctor --crontab` and `--unit`: read crontabs or systemd units, and print what to change.

Never writes a file and never runs a command of a line. A line to use is printed only if solo was tried there, as that user or with
the settings of that unit, and has the effect of the tool that it replaces; tests/doctor/test_oracle.py compares both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from solo.command import make_name
from solo.commands.checks import CRON_PATH
from solo.commands.crontab import Line, find_crontabs, parse_crontab, read_all
from solo.commands.guards import FAILS, NOTE, Finding, list_shared
from solo.commands.place import Place, call_as, find_place, find_solo, find_uid
from solo.commands.units import UNITS, parse_unit
from solo.history.reader import find_history
from solo.history.usual import MOST, find_usual
from solo.journal_files import SKIPPED
from solo.kernel import encode
from solo.text.describe import format_duration, format_rough
from solo.text.tables import format_json
from solo.text.width import print_clean

# With these a start need not find the run before it, or its history is elsewhere.
OVERLAPS = frozenset("via slots shared once_per".split())
HOUR = 60  # minutes
PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")
NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}
Groups = dict[tuple[object, ...], list[Line]]  # lines that have one lock file, one name or the same words


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print the findings. Return 1 if something is wrong, else 0. Raises SoloError if a named file cannot be read."""
    is_unit = "unit" in options
    lines = list_lines(names, is_unit)
    rows = [row for row in describe(lines, [] if names else list_lines([], not is_unit)) if row["findings"]]
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
    # Names that are not certainly in the directory of the user are left out.
    is_elsewhere = line.is_set_apart or line.variables.get("SOLO_DIR") or "via" in advice.options
    names = advice.options.get("name", ()) if line.user and not is_elsewhere else ()
    keys += [("name", name) for name in names if "%" not in name]
    where = line.variables.get("SOLO_DIR"), advice.options.get("dir")
    return keys + [("words", advice.unnamed, line.user, where)] * bool(advice.unnamed)


def compare(line: Line, groups: Groups) -> Iterator[Finding]:
    """Yield a note for each name, or words without -n, that another line has too and that will surprise the user."""
    shared = list_shared(line.advice.options)
    for key in list_keys(line):
        others = [other for other in groups[key] if other is not line]
        if key[0] == "name":
            others = [one for one in others if one.user != line.user and not shared & list_shared(one.advice.options)]
            found = {one.user: f"{one.user} ({one.file}:{one.number})" for one in reversed(others)}
            text = f"-n {key[1]} does not exclude that of {', '.join(found.values())}: each user has separate names"
            if found:
                yield Finding(NOTE, "users", f"{text} (add the same --dir to these lines)")
        elif key[0] == "words" and others:
            places = ", ".join(f"{one.file}:{one.number}" for one in others)
            text = f"without -n its name is that of {places}: they skip each other (add another -n NAME to each)"
            yield Finding(NOTE, "twins", text)


def find_reason(line: Line, groups: Groups) -> str:
    """Return why solo would not run there as the tool does, "" if it was tried."""
    if line.is_set_apart:
        return "SOLO_VIA or SOLO_DIR is set"
    place, lock = find_line_place(line), line.advice.lock
    are_several = len({other.user for other in groups.get(("lock", lock), ())}) > 1
    others = f"lines of several users lock {lock}, and each user has separate names" if are_several else ""
    return place.problem or place.unknown or others


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
    if advice.solo[:1] == "/" and not os.path.exists(advice.solo) and "%" not in advice.solo and os.geteuid() == 0:
        yield Finding(FAILS, "path", f"{advice.solo} is not there (solo is {ours})")
    elif advice.solo[:1] != "/" and advice.is_bare and place.solo != "solo" and line.unit is None:
        yield Finding(FAILS, "path", f"cron does not find solo in the PATH of this line (write {ours})")
    if advice.runs and place.problem and not line.is_set_apart:
        yield Finding(FAILS, "place", place.problem)


# --- how often a crontab starts a line, beside how long the job usually runs


def check_schedule(line: Line) -> Iterator[Finding]:
    """Yield a note if the next start comes before the usual run of a line with solo ends."""
    options, gap, name, uid = line.advice.options, find_gap(line.times), find_name(line), find_uid(line.user)
    if gap is None or uid is None or not name or OVERLAPS & options.keys() or os.geteuid() not in (0, uid):
        return
    asked = options.get("dir") or line.variables.get("SOLO_DIR")
    words = list(map(encode, line.advice.words))
    usual, skips, starts = call_as(line.user, lambda: read_starts(asked, name, words)) or (0, 0, 0)
    if usual > gap * 60:
        spans = f"the usual run takes {format_rough(usual)}, the next start comes after {format_duration(gap * 60)}"
        seen = f": {skips} of the last {starts} starts were skipped" if skips else ""
        yield Finding(NOTE, "outgrown", f"{line.times}: {spans}{seen} (start it less often)")


def find_name(line: Line) -> str:
    """Return the name under which the runs of a line are in the history, "" if it is not certain."""
    first, *rest = line.advice.unnamed or [""]
    names = line.advice.options.get("name") or [make_name(first, rest)] * bool(first)
    return names[0] if names and not set("%$") & set(names[0]) and not line.is_set_apart else ""


def read_starts(asked: str | None, name: str, words: list[bytes]) -> tuple[float, int, int] | None:
    """Return (seconds of the usual run of a command, skips among its last starts, these); None for too few runs."""
    usual = find_usual(asked, name, words)
    if usual is None:
        return None
    starts = [run for run in find_history(asked, name).list_runs() if run.command[0] == words[0]][-MOST:]
    return usual.median, sum(run.event == SKIPPED for run in starts), len(starts)


def find_gap(times: str) -> int | None:
    """Return the least minutes between two starts of a day, None if that is not certain."""
    fields = NAMED.get(times, times).split()
    if len(fields) < 5:
        return None
    hours, minutes = list_values(fields[1], 24), list_values(fields[0], HOUR)
    starts = sorted(hour * HOUR + minute for hour in hours for minute in minutes)
    if fields[2:] == ["*"] * 3:
        starts += [start + 24 * HOUR for start in starts[:1]]
    return min((later - sooner for sooner, later in zip(starts, starts[1:])), default=None)


def list_values(field: str, most: int) -> set[int]:
    """Return the numbers below `most` that a field of time means, none if it is unclear."""
    values: set[int] = set()
    for found in map(PART.fullmatch, field.split(",")):
        if not found:
            return set()
        first, last, step = found.groups()
        end = min(int(last or first or most), most - 1)
        values.update(range(int(first or 0), end + 1, int(step or 1) or 1))
    return values
