"""How is a job? The one judge of that, pure: from the tail of a name's journal, and from what is
held now.

All states that are true of a name are kept; shown is the first of this table.

| state | rule |
|---|---|
| lost | the end of the last run was never recorded, and no success came since |
| failing | the last run failed, and no success came since |
| starving | a command line was skipped in its last 5 starts, never by its own run, and still starts |
| outgrown | 3 or more, and a third, of the last 20 starts of a command line were skipped by its own earlier run |
| late | a start that came last week and the week before, at this time of the week, has not come now |
| long | held for longer than max(1.25 x the longest of the last 100 successes, 2 x their median, 5 min) |
| running | held now |
| new | fewer than 5 starts |
| ok | none of these |

A start is a run or a skip, at the time when its contender came. Skips by --once-per and --latest
are starts of a line that is well. A command line is what runs with the same words; those with fewer
than 5 starts are one line if they differ in digits only, as a date does. `solo hold` runs nothing:
its holds only skip others.

- starving: a line still starts if its last start is no longer ago than 1.25 x the longest of its
  last 20 distances.
- outgrown: skips by a run that ran long are left out. They are the fault of that run, not of its
  schedule.
- late: needs two weeks of starts, of which four in five have one at this time a week before, within
  a slack that the
  distances choose. It must also be longer ago than before that start of last week: a job that was
  moved is late once.
  A job that starts every second day or less often is late after 1.25 x the longest of its last 20
  distances, and on a
  machine that sleeps at times, so that its nights differ, each job after 1.25 x the longest of all;
  so is one that
  starts so often that its journal has less than two weeks of starts, by the figures of the days
  before.
- late: a start that was due before the machine came up is `missed` instead: a machine that was off
  is one event. A
  line is not late once a line of other words has begun since: somebody changed the words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from operator import sub
from time import localtime, mktime
from typing import NamedTuple

from solo.errors import STARVED_AFTER
from solo.history.reader import Day, Run
from solo.history.usual import DIGITS, FEWEST, Usual, choose_usual, find_median, is_busy_skip
from solo.journal_files import ENDED, SKIPPED, STARTED, UNNOTIFIED

STATES = LOST, FAILING, STARVING, OUTGROWN, LATE, LONG, RUNNING, NEW, OK = (
    "lost", "failing", "starving", "outgrown", "late", "long", "running", "new", "ok",
)  # fmt: skip
BAD = STATES[: STATES.index(RUNNING)]
LAST = 20  # starts, and distances between them
LEAST_SKIPS = 3  # of an outgrown line
MOST_BEFORE = 100  # runs before a skip among which is the one that caused it
MINUTE, HOUR, DAY, WEEK = 60.0, 3600.0, 86400.0, 7 * 86400.0
LEAST_SLACK, MOST_SLACK = 5 * MINUTE, HOUR
RARE = 1.5 * DAY  # the median distance from which a week has too few starts to compare
BEYOND = 1.25  # of the longest of the past
SAMPLE = 100  # starts of a week, of many
ENOUGH = 0.8  # of the starts of a week, for a regular job


class Held(NamedTuple):
    """A hold of the name. `pids` are those of its launcher and its command, `words` those of the
    command, quoted.
    """

    since: float
    words: bytes
    pids: "tuple[int, int]"


class Line:
    """A command line: its `runs` and skips in order of arrival, with their `ids`, and the `times` of
    arrival.

    `starts` are the runs and skips that count for it: not those by --once-per and --latest.
    """

    def __init__(self, runs: "list[Run]") -> None:
        self.runs = sorted(runs, key=lambda run: run.arrival)
        self.ids = set(map(id, runs))
        self.times = [run.arrival for run in self.runs]
        self.starts = [
            run
            for run in self.runs
            if run.event != SKIPPED or is_busy_skip(run.code or 0, run.why or "")
        ]

    def owns(self, run: "Run | None") -> bool:
        return id(run) in self.ids

    @property
    def last(self) -> "Run | None":
        """The last run; a skip is none."""
        return next((run for run in reversed(self.runs) if run.event != SKIPPED), None)

    @property
    def words(self) -> bytes:
        """Return the words of the last run; without one, of the last skip."""
        shown = self.last or next(reversed(self.runs), None)
        return shown.words if shown else b""

    def find_successes(self, before: float = float("inf")) -> "list[tuple[float, bytes]]":
        """Return what choose_usual needs of the runs that succeeded before that time."""
        ended = sorted(
            [run for run in self.runs if run.is_success and run.time < before],
            key=lambda run: run.time,
        )
        return [(run.span, run.words) for run in ended]


class Health(NamedTuple):
    """The states of a job. `line` is the command line that `state` is about, or all of them.

    `due` is when a start should have come, of a late job. `missed` is the same of a start for which
    the machine was off.
    """

    states: "list[str]"
    line: Line
    usual: "Usual | None"
    due: "float | None"
    missed: "float | None"

    @property
    def state(self) -> str:
        return self.states[0]

    @property
    def is_bad(self) -> bool:
        return self.state in BAD

    @property
    def last(self) -> "Run | None":
        return self.line.last

    @property
    def skipped(self) -> "tuple[int, int]":
        """The skips among the last 20 starts, and the number of these."""
        starts = self.line.starts[-LAST:]
        return sum(run.event == SKIPPED for run in starts), len(starts)


class Clock(NamedTuple):
    """The time `now`, when the machine came up, and whether it sleeps at times."""

    now: float
    up_since: float = 0.0
    sleeps: bool = False


def judge(
    runs: "list[Run]", held: "list[Held]", clock: Clock, days: "Sequence[Day]" = ()
) -> Health:
    """Return the Health of a name, from the Runs of its History, its holds, and the days before
    these runs.
    """
    now = clock.now
    whole = Line([run for run in runs if run.event != UNNOTIFIED and not run.is_kept])
    begun = sorted([run for run in runs if run.start], key=lambda run: run.begin)
    lines = group(whole)
    living = {hold.pids for hold in held}
    successes = whole.find_successes()
    found: dict[str, Line] = {}
    last = find_last(whole, living)
    if last is not None and not any(run.is_success and run.time >= last.time for run in whole.runs):
        if last.event == STARTED:
            found[LOST] = whole
        elif last.is_failure:
            found[FAILING] = whole
    for line in lines:
        causes = find_causes(line, begun, living)
        if is_starving(line, causes, now):
            found.setdefault(STARVING, line)
        if is_outgrown(line, causes, now):
            found.setdefault(OUTGROWN, line)
    due = find_due(whole, lines, clock, days)
    missed = None if due else find_missed(whole, lines, clock, days)
    if due:
        found[LATE] = due[1]
    for hold in held:
        line = next(
            (one for one in lines if any(run.words == hold.words for run in one.runs)), whole
        )
        usual = choose_usual(successes, hold.words)
        if usual is not None and now - hold.since > usual.long_after:
            found.setdefault(LONG, line)
        found.setdefault(RUNNING, line)
    if len(whole.runs) < FEWEST:
        found[NEW] = whole
    states = [state for state in STATES if state in found] or [OK]
    line = found.get(states[0], whole)
    usual = choose_usual(successes, line.words)
    return Health(states, line, usual, due and due[0], missed and missed[0])


def group(whole: Line) -> "list[Line]":
    """Return the command lines of which there are enough starts to judge them."""
    exact: dict[bytes, list[Run]] = {}
    for run in whole.runs:
        exact.setdefault(run.words, []).append(run)
    if len(exact) == 1 and len(whole.runs) >= FEWEST:
        return [whole]
    alike: dict[bytes, list[Run]] = {}
    for words, mine in exact.items():
        alike.setdefault(
            words if len(mine) >= FEWEST else words.translate(None, DIGITS), []
        ).extend(mine)
    return [Line(mine) for mine in alike.values() if len(mine) >= FEWEST]


def find_last(whole: Line, living: "set[tuple[int, int]]") -> "Run | None":
    """Return the last run that does not go on."""
    ended = [run for run in whole.runs if run.event != SKIPPED and not is_living(run, living)]
    return max(ended, key=lambda run: run.begin, default=None)


def find_unended(runs: "list[Run]", living: "Container[tuple[int, int]]") -> "list[Run]":
    """Return the runs that do not go on, and whose end nobody recorded: their launcher was
    killed.
    """
    return [
        run
        for run in runs
        if run.event == STARTED and not run.is_kept and not is_living(run, living)
    ]


def is_living(run: Run, living: "Container[tuple[int, int]]") -> bool:
    return run.event == STARTED and (run.launcher, run.child) in living


# --- skips----------------------------------------------------------------------------------------


def find_causes(
    line: Line, begun: "list[Run]", living: "set[tuple[int, int]]"
) -> "dict[int, Run | None]":
    """Return {position of a skip among the last starts: the run that held the name, its own one if
    there is, or None}.

    `begun` are all runs of the name, in order of start.
    """
    times = [run.begin for run in begun]
    causes: dict[int, Run | None] = {}
    for at in range(max(0, len(line.starts) - LAST), len(line.starts)):
        skip = line.starts[at]
        if skip.event == SKIPPED:
            end = bisect_right(times, skip.time)
            before = begun[max(0, end - MOST_BEFORE) : end]
            # One without an end went on until the next run began.
            upto = {id(run): after.begin for run, after in zip(before, before[1:])}
            held = [
                run
                for run in before
                if skip.time <= (run.time if run.event == ENDED else upto.get(id(run), skip.time))
                or is_living(run, living)
            ]
            causes[at] = max(held, key=line.owns, default=None)
    return causes


def is_starving(line: Line, causes: "dict[int, Run | None]", now: float) -> bool:
    last = range(len(line.starts) - STARVED_AFTER, len(line.starts))
    if last.start < 0 or any(at not in causes or line.owns(causes[at]) for at in last):
        return False
    return is_current(line, now)


def is_current(line: Line, now: float) -> bool:
    """Return whether a line still starts: its last start is no longer ago than its starts ever were
    apart.
    """
    return now - line.times[-1] <= BEYOND * max(find_distances(line.times)) + LEAST_SLACK


def is_outgrown(line: Line, causes: "dict[int, Run | None]", now: float) -> bool:
    by_own = [run for run in causes.values() if run is not None and line.owns(run)]
    skips = sum(not has_run_long(line, run, now) for run in by_own)
    return skips >= LEAST_SKIPS and 3 * skips >= len(line.starts[-LAST:]) and is_current(line, now)


def has_run_long(line: Line, run: Run, now: float) -> bool:
    usual = choose_usual(line.find_successes(run.begin))
    span = run.span if run.event == ENDED else now - run.begin
    return usual is not None and span > usual.long_after


# --- starts that did not come---------------------------------------------------------------------


def find_due(
    whole: Line, lines: "list[Line]", clock: Clock, days: "Sequence[Day]"
) -> "tuple[float, Line] | None":
    """Return (when a start was due, its line) of a command line, or of the name, that is late; None
    of none.
    """
    begun: dict[bytes, float] = {}
    for run, time in zip(whole.runs, whole.times):
        begun.setdefault(run.words.translate(None, DIGITS), time)
    newest = max(begun.values(), default=0.0)
    for line in dict.fromkeys([*lines, whole]):
        is_changed = newest > line.times[-1] if line.times else True
        due = None if is_changed else find_late(line.times, clock, days if line is whole else ())
        if due is not None:
            return due, line
    return None


def find_missed(
    whole: Line, lines: "list[Line]", clock: Clock, days: "Sequence[Day]"
) -> "tuple[float, Line] | None":
    """Return what find_due would, had the machine always been up."""
    came = [line.times[-1] for line in [*lines, whole] if line.times]
    was_up = clock.up_since <= min(came, default=clock.now)
    return None if was_up else find_due(whole, lines, Clock(clock.now), days)


def find_late(times: "list[float]", clock: Clock, days: "Sequence[Day]" = ()) -> "float | None":
    """Return when a start was due after the last of `times`, sorted, that has not come; None if
    none was.

    One that was due before the machine came up does not count. `days` are the figures of the starts
    before.
    """
    if len(times) < FEWEST:
        return None
    if days and times[-1] - times[0] < 2 * WEEK <= times[-1] - days[0].first:
        longest = max(max(day.gap_ms for day in days) / 1000, *map(sub, times[1:], times))
        is_due = clock.now - max(times[-1], clock.up_since) > BEYOND * longest + LEAST_SLACK
        return times[-1] + longest if is_due else None
    now, last = clock.now, times[-1]
    distances = find_distances(times)
    usual = find_median(sorted(distances))
    if usual > RARE or clock.sleeps:
        longest = max(distances if usual > RARE else map(sub, times[1:], times))
        near = sum(usual / 2 <= distance <= 1.5 * usual for distance in distances)
        is_due = now - last > BEYOND * longest and now - clock.up_since > (BEYOND - 1) * longest
        return last + longest if is_due and near >= ENOUGH * len(distances) else None
    slack = learn_slack(times, usual) if last - times[0] >= 2 * WEEK else None
    if slack is None:
        return None
    at, before = [
        find_start(times, max(last, clock.up_since), now, weeks, slack) for weeks in (1, 2)
    ]
    if at is None or before is None or now - last <= times[at] - times[at - 1] + slack:
        return None
    return shift_weeks(times[at], 1)


def find_distances(times: "list[float]") -> "list[float]":
    """Return the distances between the last starts."""
    last = times[-LAST - 1 :]
    return list(map(sub, last[1:], last))


def find_start(
    times: "list[float]", since: float, now: float, weeks: int, slack: float
) -> "int | None":
    """Return the position of the first start between `since` and `now`, both so many weeks ago;
    None if none came.
    """
    at = bisect_right(times, shift_weeks(since, -weeks) + slack)
    return at if at < len(times) and times[at] <= shift_weeks(now, -weeks) - slack else None


def learn_slack(times: "list[float]", usual: float) -> "float | None":
    """Return by how many seconds a start may differ from that of a week before; None if the starts
    are not regular.
    """
    half = usual / 2
    recent = times[bisect_right(times, times[-1] - WEEK) :]
    recent = recent[:: 1 + len(recent) // SAMPLE]
    apart = sorted(find_nearest(times, shift_weeks(time, -1)) for time in recent)
    paired = [distance for distance in apart if distance <= half]
    if len(paired) < ENOUGH * len(apart):
        return None
    return max(min(half, MOST_SLACK), LEAST_SLACK, min(half, BEYOND * paired[-1]))


def find_nearest(times: "list[float]", wanted: float) -> float:
    at = bisect_left(times, wanted)
    return min(abs(time - wanted) for time in times[max(0, at - 1) : at + 1])


def shift_weeks(time: float, weeks: int) -> float:
    """Return the same time of the day by the wall clock, so many weeks later."""
    local = localtime(time)
    moved = (*local[:2], local.tm_mday + 7 * weeks, *local[3:6], 0, 0, -1)
    return mktime(moved) + time % 1
