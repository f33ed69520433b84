"""The state of each job, as the judge of health sees it: `solo list --all`, and lines for `show`
and `doctor`.
"""

import posix
import sys
from collections.abc import Iterator
from itertools import chain
from time import CLOCK_MONOTONIC, clock_gettime, localtime, strftime, time
from typing import NamedTuple

from solo.commands import history as runs
from solo.commands.lookup import Asked, describe_place, open_existing, report_unknown, visit_queue
from solo.commands.writable import describe_unrecorded
from solo.errors import SoloError, UsageError
from solo.history.health import (
    BAD,
    LATE,
    LONG,
    LOST,
    NEW,
    OUTGROWN,
    STARVING,
    STATES,
    Clock,
    Health,
    Held,
    find_unended,
    judge,
)
from solo.history.names import ForeignName, find_files
from solo.history.reader import History, Run, Totals, find_histories, find_history, parse_command
from solo.identity import Origin, read_origin, read_stat
from solo.journal_files import STARTED
from solo.kernel import decode, encode, read_boot_clock, say
from solo.options import FILE
from solo.text.describe import format_count, format_duration, format_usual
from solo.text.rows import JobRow
from solo.text.tables import format_json, print_rows
from solo.text.width import print_clean
from solo.tickets import HOLD, is_ticket

COLUMNS = "NAME STATE LAST AGO OUTCOME USUAL SKIPPED COMMAND".split()
STYLES = {
    **dict.fromkeys(BAD, "bold red"),
    "late": "bold yellow",
    "long": "bold yellow",
    "running": "green",
}
ASLEEP = 60.0  # seconds of sleep since boot: the machine sleeps at times
MOST_REASONS = 10  # lines below the table
DAY, THIS_WEEK = 86400.0, 6 * 86400.0


class Job(NamedTuple):
    """A name with its Health. `living` has the state of each hold, by its pids, `unended` the runs
    of which nobody will record the end.
    """

    name: str
    health: Health
    living: "dict[tuple[int, int], str]"
    history: History
    unended: "list[Run]"


def run(options: Asked, names: "list[str]") -> int:
    """Print a row for each name known, held or not, bad states first. Return 125 if one is
    unreadable or unknown.
    """
    if options.where != FILE:
        raise UsageError(
            "list --all shows names that are kept as files (of others: solo list, solo history)"
        )
    unknown = report_unknown(names, options, "list")
    clock = read_clock()
    jobs, refused, passing = find_jobs(options, names, clock)
    for name, error in refused:
        say(f"{name}: {error}")
    if unrecorded := describe_unrecorded(options.dir):
        say(unrecorded)
    complete = not names and all(isinstance(error, ForeignName) for _, error in refused)
    if options.null:
        sys.stdout.buffer.write(b"".join(encode(job.name) + b"\0" for job in jobs))
    elif options.json:
        print(format_json([make_row(job, clock) for job in jobs]))
    else:
        lines = [make_cells(make_row(job, clock), clock) for job in jobs]
        empty = f"no names known: {describe_place(options)} (each user has separate names)"
        print_rows(COLUMNS, lines, "STATE", STYLES, "" if passing else empty)
        if sys.stdout.isatty():
            print_summary(jobs, passing, clock)
    return 0 if (complete or not refused) and not unknown else SoloError.status


def read_clock() -> Clock:
    """Return the time, and when the first process of this machine, or container, started."""
    now, uptime = time(), read_boot_clock()
    try:
        since = now - uptime + read_stat(1).start / posix.sysconf("SC_CLK_TCK")
    except OSError:
        since = now - uptime
    return Clock(now, since, uptime - clock_gettime(CLOCK_MONOTONIC) > ASLEEP)


def find_jobs(
    options: Asked, names: "list[str]", clock: Clock
) -> "tuple[list[Job], list[tuple[str, SoloError]], int]":
    """Return ([the Job of each name with a journal or a hold], bad states first; [(name, why it
    cannot be read)]; the number of names left out, which solo made from commands).
    """
    jobs: list[Job] = []
    refused: list[tuple[str, SoloError]] = []
    passing = 0
    for name, job in examine_all(options, names, clock):
        if isinstance(job, SoloError):
            refused.append((name, job))
        elif name not in names and is_passing(job, clock):
            passing += 1
        elif job.history.events or job.living:
            jobs.append(job)
    jobs.sort(key=lambda job: STATES.index(job.health.state))
    return jobs, refused, passing


def examine_all(
    options: Asked, names: "list[str]", clock: Clock, used: "dict[str, bool] | None" = None
) -> "Iterator[tuple[str, Job | SoloError]]":
    """Yield (name, its Job or why it is refused) of each name with a journal, then of the others
    with a hold. `used` is what find_used returns, if that is known.
    """
    origin, used = read_origin(), find_used(options.dir, names) if used is None else used
    for name, history in chain(
        find_histories(options.dir, names),
        ((name, History([], Totals())) for name, is_held in list(used.items()) if is_held),
    ):
        try:
            if isinstance(history, SoloError):
                raise history
            if history.events or used.get(name):
                yield name, examine(name, history, options, origin, clock, name in used)
        except SoloError as error:
            yield name, error
        used[name] = False


def find_used(directory: "str | None", names: "list[str]") -> "dict[str, bool]":
    """Return {name: whether it has a hold} of each name with a ticket, or whose directory is
    refused.
    """
    place = open_existing(directory)
    if place is None:
        return {}
    with place:
        return {
            name: any(file.startswith(HOLD) for file in files)
            for name, inner, files in find_files(place, names)
            if isinstance(inner, SoloError) or any(map(is_ticket, files))
        }


def examine(
    name: str, history: History, options: Asked, origin: Origin, clock: Clock, is_used: bool = True
) -> Job:
    """Return the Job of a name, which `is_used` if it had a ticket. Raises SoloError if its queue
    or journal is refused.
    """
    found, holds = history.list_runs(), dict[Held, str]()
    if is_used or find_unended(found, set()):
        own = options.at(FILE)
        holds = visit_queue(name, own, lambda queue: runs.find_holds(name, queue), origin)
    living = {hold.pids: state for hold, state in holds.items()}
    if find_unended(found, living):  # or they have ended since we read the journal
        history = find_history(options.dir, name)
        found = history.list_runs()
    health = judge(found, [*holds], clock, history.days)
    return Job(name, health, living, history, find_unended(found, living))


def is_passing(job: Job, clock: Clock) -> bool:
    """Return whether solo made the name from a command, perhaps of changing words: fewer than 5
    starts, of which none failed in the last day.
    """
    health = job.health
    if (
        NEW not in health.states
        or job.living
        or not all(run.is_generated for run in health.line.runs)
    ):
        return False
    return not health.is_bad or clock.now - health.line.times[-1] > DAY


# --- rows-----------------------------------------------------------------------------------------


def make_row(job: Job, clock: Clock) -> JobRow:
    health, last = job.health, job.health.last
    shown = None
    if last is not None:
        state = job.living.get((last.launcher, last.child or 0)) if last.event == STARTED else None
        shown = runs.make_row(job.name, last, state)
    skipped, starts = health.skipped
    usual, words = health.usual, health.line.words
    return JobRow(
        job.name,
        health.state,
        health.states,
        describe_state(job, clock) or None,
        last=shown.time if shown else None,
        ago=round(clock.now - shown.time, 3) if shown else None,
        outcome=shown.outcome if shown else None,
        code=shown.code if shown else None,
        signal=shown.signal if shown else None,
        usual=round(usual.median, 3) if usual else None,
        usual_range=usual.range if usual else None,
        skipped=skipped,
        starts=starts,
        due=health.due,
        missed=health.missed,
        command=[decode(word) for word in parse_command(words)[1]] if words else [],
    )


def make_cells(row: JobRow, clock: Clock) -> "list[str]":
    return [
        row.name,
        row.state,
        "-" if row.last is None else format_moment(row.last, clock.now),
        "-" if row.ago is None else format_duration(row.ago),
        "-" if row.last is None else runs.format_outcome(row),
        format_usual(row.usual, row.usual_range),
        f"{row.skipped} of {row.starts}" if row.skipped else "-",
        " ".join(row.command),
    ]


def format_moment(when: float, now: float) -> str:
    """Return `03:00` of today, `Sat 03:00` of this week, else the day."""
    if strftime("%F", localtime(when)) == strftime("%F", localtime(now)):
        return strftime("%H:%M", localtime(when))
    return strftime("%a %H:%M" if abs(now - when) < THIS_WEEK else "%F", localtime(when))


def describe_state(job: Job, clock: Clock) -> str:
    """Return why a job is in a bad state, "" if it is in none."""
    health, now = job.health, clock.now
    state, last, (skipped, starts) = health.state, health.last, health.skipped
    if state == STARVING:
        return f"skipped {skipped} of its last {starts} times, as others held the name"
    if state == OUTGROWN:
        return f"skipped {skipped} of its last {starts} times, as its own run went on"
    if state == LATE and health.due is not None:
        return f"a start was due: {format_moment(health.due, now)}"
    if last is None or state not in BAD:
        return ""
    when = format_moment(last.begin, now)
    if state == LONG and health.usual is not None:
        return (
            f"running since {when}, usually {format_usual(health.usual.median, health.usual.range)}"
        )
    if state == LOST:
        return f"the end of its run was never recorded: {when}"
    return f"{runs.format_outcome(runs.make_row(job.name, last, None))}: {when}"


def describe_bad(count: int, among: str) -> str:
    """Return `2 of 40 need a look`."""
    return f"{count or 'none'} of {among} need{'s' * (count == 1)} a look"


def print_summary(jobs: "list[Job]", passing: int, clock: Clock) -> None:
    """Print below the table, where a long one leaves the prompt, why jobs are in bad states."""
    bad = [job for job in jobs if job.health.is_bad]
    for job in bad[:MOST_REASONS]:
        print_clean(f"{job.name}: {job.health.state}: {describe_state(job, clock)}")
    if jobs:
        print_clean(describe_bad(len(bad), str(len(jobs))) + " (solo show NAME)" * bool(bad))
    missed = [job.name for job in jobs if job.health.missed is not None]
    if missed:
        names = ", ".join(missed[:MOST_REASONS]) + ", ..." * (len(missed) > MOST_REASONS)
        up = format_moment(clock.up_since, clock.now)
        print_clean(f"{len(missed)} did not start while the machine was off, until {up}: {names}")
    if passing:
        names = format_count(passing, "name")
        print_clean(f"not shown: {names} made from a command (solo history shows the runs)")
