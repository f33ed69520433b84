"""`solo history`: every run and every skip in the journals: a table, and on a terminal a picture
above it.
"""

from collections.abc import Iterable, Sequence
from posix import isatty
from time import localtime, strftime, time

from solo.commands.list import Cells
from solo.commands.list import make_table as make_list
from solo.commands.lookup import Asked, describe_place, has_traces, report_unknown, visit_queue
from solo.errors import SoloError, UsageError
from solo.history.health import Held
from solo.history.reader import History, Run, find_histories, find_history
from solo.history.usual import find_percentile
from solo.identity import Origin, read_origin
from solo.journal import FIELD_LIMIT
from solo.journal_files import ENDED, STARTED, UNNOTIFIED
from solo.kernel import decode, say
from solo.modes import INTENTIONS
from solo.obstacles import list_holds
from solo.options import FILE, SOCKET
from solo.process.owners import is_orphaned
from solo.record import quote_words
from solo.text.describe import format_count, format_duration, format_rough, format_span
from solo.text.events import (
    FAILED,
    LOST,
    OK,
    RUNNING,
    SIGNALED,
    TIMED_OUT,
    describe_outcome,
    encode_any,
    name_end,
)
from solo.text.rows import JobRow, RunRow, describe_claim
from solo.text.stdout import write_stdout
from solo.text.tables import format_json, open_console, print_rows, print_table
from solo.text.users import find_user
from solo.text.width import clean, clean_lines, measure, pad, print_clean
from solo.tickets import LIVE, ORPHANED, Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLUMNS = "NAME TIME OUTCOME WAITED RAN PID USER HOST NOTE COMMAND".split()
UNKNOWN, HELD, RELEASED, LEFT = "unknown", "held", "released", "ended"
SHORTEST_PICTURE = 20  # characters
LEAST_ROWS, LEAST_NAMES = 10, 3  # of the table, of the picture
TREND, STEEP = 10, 1.25  # runs that are compared, and how much longer the one half must be
OTHER_LINES = 9  # headings, the lines about what is left out, a prompt of some lines


def run(options: Asked, names: "list[str]") -> int:
    """Print the runs and skips of `names` and those nested in them, or all, oldest first. Return
    125 on an error.
    """
    if options.via == SOCKET:
        raise UsageError("history: --via socket keeps no history")
    after = options.since
    rows, quiet, complete = collect(options, names, after)
    if options.failed:
        rows = [row for row in rows if row.outcome in BAD]
    rows = rows[-(options.limit or len(rows)) :]
    if options.captured:
        return print_captured(options, names, rows, complete)
    if options.json:
        print(format_json(rows))
    elif rows and (console := open_console()):
        print_picture_and_table(console, rows, after, options.via, [] if options.failed else quiet)
    else:
        columns, lines = make_table(rows, options.via)
        print_rows(columns, lines, empty="" if rows else describe_nothing(options, names))
    return 0 if complete else SoloError.status


def print_captured(options: Asked, names: "list[str]", rows: "list[RunRow]", complete: bool) -> int:
    """Print the last output that `rows` have of each name. Return 125 if one has none."""
    if not names:
        raise UsageError("history: --captured needs a NAME")
    from solo.commands.captured import find_last

    for name in names:
        mine = [row for row in rows if row.name == name]
        found = find_last(options.dir, name, mine)
        if found is not None:
            write_stdout(encode_any(clean_lines(found)) if isatty(1) else found)
        elif has_traces(name, options.dir):
            none = "no output is kept (--capture keeps it)"
            say(f"{name}: {none if mine else describe_nothing(options, [name])}")
            complete = False
    return 0 if complete else SoloError.status


def describe_nothing(options: Asked, names: "list[str]") -> str:
    """Return `no runs in the last 12h; the last one: 2026-01-31 03:00:00, ok`, or that none is
    known.
    """
    rows = (
        []
        if options.is_engine or not options.since and not options.failed
        else collect(options, names)[0]
    )
    if not rows:
        return f"no runs known: {describe_place(options)}"
    kind = "failed runs" if options.failed else "runs"
    span = f" in the last {format_duration(time() - options.since + 0.5)}" if options.since else ""
    last = rows[-1]
    name = "" if names == [last.name] else f"{last.name}, "
    return f"no {kind}{span}; the last one: {name}{format_start(last)}, {format_outcome(last)}"


def collect(
    options: Asked, names: "list[str]", after: float = 0.0
) -> "tuple[list[RunRow], list[str], bool]":
    """Return ([a row per run or skip that still runs or ended at `after` or later], [the names, not
    those made from commands, of which all events are earlier], whether all could be read).
    """
    if options.is_engine:
        from solo.commands import remote

        runs = sorted(
            remote.collect_runs(options.where, names), key=lambda pair: (pair[1].begin, pair[0])
        )
        return [make_row(name, run, None) for name, run in runs if run.time >= after], [], True
    found = list[RunRow]()
    quiet = list[str]()
    origin = read_origin()
    complete = not report_unknown(names, options.at(FILE), "show")
    for name, history in find_histories(options.dir, names, after):
        try:
            if isinstance(history, SoloError):
                raise history
            mine = list_rows(name, history, options, origin, after)
            found += mine
            if history.events and not mine and not history.events[-1].is_generated:
                quiet.append(name)
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    return sorted(found, key=lambda row: row.time), quiet, complete


def list_rows(
    name: str, history: History, options: Asked, origin: Origin, after: float = 0.0
) -> "list[RunRow]":
    """Return the rows of one name. Raise SoloError if its queue or journal is refused."""
    states = {}
    rows = []
    again = None
    if after or any(one.event == STARTED for one in history.list_runs()):
        # By pids: the token of a run at an engine names no ticket.
        holds = visit_queue(name, options.at(FILE), lambda queue: find_holds(name, queue), origin)
        states = {hold.pids: state for hold, state in holds.items()}
    # A run that began before its part of the journal may still be running.
    if after and states.keys() - {(one.launcher, one.child) for one in history.events}:
        history = find_history(options.dir, name)
    for one in history.list_runs():
        state = states.get((one.launcher, one.child or 0)) if one.event == STARTED else None
        if one.event == STARTED and state is None:  # it may have ended since we read the journal
            again = again or {run.token: run for run in find_history(options.dir, name).list_runs()}
            one = again.get(one.token, one)
        if state is not None or one.time >= after:
            rows.append(make_row(name, one, state))
    return rows


def find_holds(name: str, queue: "Queue | None") -> "dict[Held, str]":
    """Return {a Held of the queue of a name: whether it lives or is an orphan}. A damaged ticket
    hides the others.
    """
    found: dict[Held, str] = {}
    if queue is None:
        return found
    try:
        for hold in list_holds(queue):
            record = hold.record
            if record is None or record.child is None or record.claim.mode in INTENTIONS:
                continue  # the last is a hold of a nested name, in whose history the run is
            if record.is_pair and queue.shorten(name) != record.names[0]:
                continue  # the run is in the history of the first name
            words = quote_words(record.command, FIELD_LIMIT)
            held = Held(record.since, words, (record.outermost[0], record.child[0]))
            found[held] = ORPHANED if is_orphaned(hold) else hold.state
    except SoloError:
        pass
    return found


def was_kept(one: Run) -> bool:
    """Return whether solo hold acquired the name: its launcher has ended then."""
    return one.is_kept and one.event in (STARTED, ENDED)


def name_outcome(one: Run, state: "str | None") -> str:
    if was_kept(one):
        return RELEASED if one.event == ENDED else HELD if state else LEFT
    if one.event == STARTED:
        return {LIVE: RUNNING, ORPHANED: ORPHANED, None: UNKNOWN}[state]
    if one.event == ENDED:
        return name_end(one.code or 0, one.is_timed_out, one.is_lost)
    return decode(one.event)


def make_row(name: str, one: Run, state: "str | None") -> RunRow:
    """Return the row of a run; `state` is that of a hold that still runs, else None."""
    is_end, code = one.event == ENDED, one.code or 0
    return RunRow(
        name,
        name_outcome(one, state),
        one.begin,
        one.time if is_end else None,
        one.waited,
        one.ran if state is None else round(max(0.0, time() - one.begin), 3),
        code if is_end and code >= 0 else None,
        -code if is_end and code < 0 else None,
        one.why,
        one.names,
        *describe_claim(one, one.slot),
        token=one.token,
        launcher=None if was_kept(one) else one.launcher,
        child=one.child,
        user=one.user or find_user(one.uid),
        host=one.host,
        command=[decode(word) for word in one.command],
        note=one.note or None,
        captured=one.is_captured,
    )


def make_table(
    rows: "list[RunRow]", via: "str | None" = None
) -> "tuple[list[str], list[list[object]]]":
    return make_list(COLUMNS, rows, CELLS, via)


def format_start(row: RunRow) -> str:
    return strftime("%F %T", localtime(row.time))


def format_outcome(row: "RunRow | JobRow") -> str:
    return describe_outcome(row.outcome or "", row.code or -(row.signal or 0))


CELLS: "Cells[RunRow]" = {
    "TIME": format_start,
    "OUTCOME": format_outcome,
    "WAITED": lambda row: format_span(row.waited),
    "RAN": lambda row: format_span(row.ran),
    "PID": lambda row: row.pid,
    "USER": lambda row: row.user,
    "COMMAND": lambda row: format_reason(row) or " ".join(row.command),
}


def format_reason(row: RunRow) -> str:
    """Return why nothing ran, without the words that the columns NAME and OUTCOME already have."""
    return (row.reason or "").removeprefix(f"{row.name}: ").removeprefix("busy: ")


# --- on a terminal--------------------------------------------------------------------------------


def print_picture_and_table(
    console: "Console",
    rows: "list[RunRow]",
    after: float,
    via: "str | None",
    quiet: "Sequence[str]",
) -> None:
    """Print a picture of all rows, and below it a table of the last ones that fit on the terminal.

    In the picture the `quiet` names have a row too: the job that did not run.
    """
    runs = [row for row in rows if row.outcome != decode(UNNOTIFIED)]
    names = list(dict.fromkeys([*[row.name for row in reversed(runs)], *quiet]))
    drawn = names[: max(LEAST_NAMES, console.height - LEAST_ROWS - OTHER_LINES)]
    room = max(LEAST_ROWS, console.height - len(drawn) - OTHER_LINES)
    columns, cells = make_table(rows[-room:], via)
    if runs:
        runs = [row for row in runs if row.name in drawn]
        quiet = [name for name in quiet if name in drawn]
        picture = make_picture(runs, after, time(), console.width, console.encoding, quiet)
        console.print(picture, no_wrap=True, overflow="crop")
        for name, trend in find_trends(runs).items():
            print_clean(f"{name}: {trend}")
        left = len(names) - len(drawn)
        console.print(f"and {format_count(left, 'more name')}" if left > 0 else "")
    print_table(
        console, columns, [list(map(clean, line)) for line in cells], "OUTCOME", find_styles(rows)
    )
    if len(rows) > room:
        console.print(
            f"the last {room} of {len(rows)}: all are in `solo history | less`, or fewer with "
            "--since"
        )


STYLES = {
    **dict.fromkeys((OK, RELEASED, LEFT), "green"),
    **dict.fromkeys((RUNNING, HELD), "bold green"),
    ORPHANED: "bold red",
    "skipped": "yellow",
}
BAD = (FAILED, SIGNALED, TIMED_OUT, LOST, UNKNOWN, "refused")
NOTHING, RUN, SKIP, FAILURE = range(4)  # a failure hides a skip, and a skip a run
MARKS, ASCII_MARKS = " ━○✗", " =ox"
MARK_STYLES = ("", "green", "yellow", "bold red")


def find_styles(rows: "list[RunRow]") -> "dict[str, str]":
    """Return the style of each text in the column OUTCOME."""
    return {format_outcome(row): STYLES.get(row.outcome, "red") for row in rows}


def find_trends(rows: "list[RunRow]") -> "dict[str, str]":
    """Return {name: `59m; 40m a month ago`} of the names whose runs now take plainly longer, or
    less long, than at first.
    """
    by_name: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.outcome == OK:
            by_name.setdefault(row.name, []).append(row)
    trends = {}
    for name, mine in by_name.items():
        first, last = [list_spans(part) for part in (mine[:TREND], mine[-TREND:])]
        apart = mine[-1].time - mine[0].time
        is_plain = first[0] > last[-1] or last[0] > first[-1]
        before, now = [find_percentile(spans, 50) for spans in (first, last)]
        if len(mine) >= 2 * TREND and is_plain and max(before, now) > STEEP * min(before, now):
            trends[name] = (
                f"{format_rough(now)}; {format_rough(before)} {format_duration(apart)} ago"
            )
    return trends


def make_picture(
    rows: "list[RunRow]",
    after: float,
    now: float,
    width: int,
    encoding: str,
    quiet: "Sequence[str]" = (),
) -> "Text":
    """Return a line per name: bars for its runs, marks for skips and failures, and how long its
    runs took.

    The `quiet` names have no row.
    """

    from rich.text import Text

    by_name: dict[str, list[RunRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    by_name.update({name: [] for name in quiet})
    begin = max(after, min(row.time for row in rows))
    marks = MARKS if encoding.lower().startswith("utf") else ASCII_MARKS
    stats = {name: make_stats(mine) for name, mine in by_name.items()}
    titles = ("RUNS", "FAILED", "SKIPPED", "50%", "95%", "MAX")
    widths = [max(map(len, column)) for column in zip(titles, *stats.values())]
    room = max(map(measure, map(clean, by_name)))
    while widths and room + SHORTEST_PICTURE + sum(widths) + 2 * len(widths) + 3 > width:
        widths.pop()  # half a number at the edge would be read as another one
    cells = max(SHORTEST_PICTURE, width - room - sum(widths) - 2 * len(widths) - 3)
    left = strftime("%Y-%m-%d %H:%M", localtime(begin))
    lines = [
        Text(
            " " * room + "  " + left + "now".rjust(cells - len(left)) + join(titles, widths),
            style="bold",
        )
    ]
    for name, mine in by_name.items():
        line = Text(pad(clean(name), room) + "  ")
        for mark in draw(mine, begin, now, cells):
            line.append(marks[mark], style=MARK_STYLES[mark])
        line.append(join(stats[name], widths))
        lines.append(line)
    return Text("\n").join(lines)


def join(cells: "Iterable[str]", widths: "list[int]") -> str:
    return "".join("  " + cell.rjust(width) for cell, width in zip(cells, widths))


def draw(rows: "list[RunRow]", begin: float, now: float, cells: int) -> "list[int]":
    """Return the mark of each of `cells` equal spans between `begin` and `now`."""
    marks = [NOTHING] * cells
    scale = cells / max(now - begin, 0.001)
    for row in rows:
        ends = row.time, row.time + (row.ran or 0)
        first, last = [min(cells - 1, max(0, int((seconds - begin) * scale))) for seconds in ends]
        for at in range(first, last):
            marks[at] = max(marks[at], RUN)
        mark = SKIP if row.outcome == "skipped" else FAILURE if row.outcome in BAD else RUN
        marks[last] = max(marks[last], mark)
    return marks


def make_stats(rows: "list[RunRow]") -> "list[str]":
    """Return the cells beside the picture of one name: runs, failures, skips, and percentiles of
    the durations.
    """
    spans = list_spans([row for row in rows if row.end])
    outcomes = [row.outcome for row in rows]
    skips, failures = outcomes.count("skipped"), sum(outcome in BAD for outcome in outcomes)
    counts = map(str, (len(rows) - skips - outcomes.count("refused"), failures, skips))
    shown = [find_percentile(spans, percent) if spans else None for percent in (50, 95, 100)]
    return [*counts, *map(format_span, shown)]


def list_spans(rows: "list[RunRow]") -> "list[float]":
    return sorted(row.ran for row in rows if row.ran is not None)
