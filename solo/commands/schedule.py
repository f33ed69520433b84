"""How often a crontab starts a line, beside how long the job usually runs, for `solo doctor --crontab`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from solo.command import make_name
from solo.commands.crontab import Line
from solo.commands.guards import NOTE, Finding
from solo.commands.place import call_as, find_uid
from solo.history.reader import find_history
from solo.history.usual import MOST, find_usual
from solo.journal_files import SKIPPED
from solo.kernel import encode
from solo.text.describe import format_duration, format_rough

# With these a start need not find the run before it, or its history is elsewhere.
OVERLAPS = frozenset("via slots shared once_per".split())
HOUR = 60  # minutes
PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?")
NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *"}


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
        first, last, step = (int(number) if number else None for number in found.groups())
        end = most - 1 if first is None else first if last is None else min(last, most - 1)
        values.update(range(first or 0, end + 1, step or 1))
    return values
