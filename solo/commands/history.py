"""`solo history`: every run and every skip in the journals: a table, and on a terminal a picture above it."""

from time import localtime, strftime, time

from solo.argv import is_engine
from solo.commands.lookup import check_names, check_via, describe_place, open_queue, report_unknown
from solo.errors import SoloError, UsageError
from solo.history.reader import find_histories, find_history
from solo.identity import read_origin
from solo.journal_files import ENDED, STARTED, UNNOTIFIED
from solo.kernel import decode, say
from solo.obstacles import list_holds
from solo.options import FILE, SOCKET
from solo.process.owners import is_orphaned
from solo.text.describe import format_span, name_signal
from solo.text.events import FAILED, LOST, OK, RUNNING, SIGNALED, TIMED_OUT, name_end
from solo.text.tables import (
    NAME,
    add_notes,
    describe_claim,
    format_json,
    format_time,
    open_console,
    print_rows,
    print_table,
)
from solo.text.users import find_user
from solo.text.width import clean, measure, pad
from solo.tickets import LIVE, ORPHANED

COLUMNS = (NAME, "TIME", "OUTCOME", "WAITED", "RAN", "PID", "USER", "COMMAND")
UNKNOWN, HELD, RELEASED, LEFT = "unknown", "held", "released", "ended"
SHORTEST_PICTURE = 20  # characters
LEAST_ROWS, LEAST_NAMES = 10, 3  # of the table, of the picture
OTHER_LINES = 9  # headings, the lines about what is left out, a prompt of some lines


def run(options: dict, names: list) -> int:
    """Print the runs and skips of `names` and of the names nested in them, or all, oldest first.

    Return 125 on a read error.
    """
    check_names(names)
    if options.get("via") == SOCKET:
        raise UsageError("history: --via socket keeps no history")
    check_via(options.get("via", FILE))
    after = time() - options["since"] if "since" in options else 0.0
    rows, complete = collect(options, names, after)
    if options.get("json"):
        print(format_json(rows))
    elif rows and (console := open_console()):
        print_picture_and_table(console, rows, after, options.get("via"))
    else:
        print_rows(*make_table(rows, options.get("via")), empty=f"no runs known: {describe_place(options)}")
    return 0 if complete else SoloError.status


def collect(options: dict, names: list, after: float = 0.0) -> tuple:
    """Return ([a row per run or skip that still runs or ended at `after` or later], whether all could be read)."""
    if is_engine(options):
        from solo.commands import remote

        runs = [(name, run) for name, run in remote.collect_runs(options["via"], names) if run.time >= after]
        return [
            make_row(name, run, None) for name, run in sorted(runs, key=lambda pair: (pair[1].start, pair[0]))
        ], True
    found, complete, origin = [], True, read_origin()
    for name in names:
        complete = not report_unknown(name, {**options, "via": FILE}, "show") and complete
    for name, history in find_histories(options.get("dir"), names, after):
        try:
            if isinstance(history, SoloError):
                raise history
            found += list_rows(name, history, options, origin, after)
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    return [row for _, row in sorted(found, key=lambda pair: pair[0])], complete


def list_rows(name: str, history, options: dict, origin, after: float = 0.0) -> list:
    """Return [(start time, row)] of one name. Raise SoloError if its queue or journal is refused."""
    states, rows, again = None, [], None
    if after:  # a run that began before its part of the journal may still be running
        states = find_states(open_queue(name, {**options, "via": FILE}, origin))
        if states.keys() - {(one.launcher, one.child) for one in history.events}:
            history = find_history(options.get("dir"), name)
    for one in history.list_runs():
        state = None
        if one.event == STARTED:
            if states is None:
                states = find_states(open_queue(name, {**options, "via": FILE}, origin))
            state = states.get((one.launcher, one.child))
            if state is None:  # it may have ended since we read the journal
                again = again or {run.token: run for run in find_history(options.get("dir"), name).list_runs()}
                one = again.get(one.token, one)
        if state is not None or one.time >= after:
            rows.append((one.start or one.time, make_row(name, one, state)))
    return rows


def find_states(queue) -> dict:
    """Return {(launcher, child): state} of the holds in `queue`: the token of a run at an engine names no ticket."""
    if queue is None:
        return {}
    try:
        holds = [(hold.record, ORPHANED if is_orphaned(hold) else hold.state) for hold in list_holds(queue)]
        return {(record.launcher[0], record.child[0]): state for record, state in holds if record and record.child}
    except SoloError:
        return {}  # a damaged ticket: the outcome is unknown
    finally:
        queue.leave()


def was_kept(one) -> bool:
    """Return whether solo hold acquired the name: its launcher has ended then."""
    return one.is_kept and one.event in (STARTED, ENDED)


def name_outcome(one, state) -> str:
    if was_kept(one):
        return RELEASED if one.event == ENDED else HELD if state else LEFT
    if one.event == STARTED:
        return {LIVE: RUNNING, ORPHANED: ORPHANED, None: UNKNOWN}[state]
    if one.event == ENDED:
        return name_end(one.code, one.is_timed_out, one.is_lost)
    return decode(one.event)


def make_row(name: str, one, state) -> dict:
    """Return a row as --json prints it: times in RFC 3339, spans in seconds.

    `state` is the state of a hold that still runs.
    """
    outcome, ran = name_outcome(one, state), one.ran
    if state is not None:
        ran = round(max(0.0, time() - one.start), 3)
    is_end = one.event == ENDED
    return {
        "name": name,
        "outcome": outcome,
        "time": format_time(one.start or one.time),
        "end": format_time(one.time) if is_end else None,
        "waited": one.waited,
        "ran": ran,
        "code": one.code if is_end and one.code >= 0 else None,
        "signal": -one.code if is_end and one.code < 0 else None,
        "reason": one.why,
        "names": one.names,
        **describe_claim(one, one.slot),
        "token": one.token,
        "launcher": None if was_kept(one) else one.launcher,
        "child": one.child,
        "user": one.user or find_user(one.uid),
        "host": one.host,
        "command": [decode(word) for word in one.command],
        "note": one.note or None,
    }


def make_table(rows: list, via=None) -> tuple:
    """Return (columns, lines of cells) of the rows, with their notes, and their hosts as in `solo list`."""
    from solo.commands.list import add_hosts

    return add_notes(*add_hosts(COLUMNS, list(map(make_cells, rows)), rows, via), rows)


def make_cells(row: dict) -> tuple:
    """Return the cells of one row, in the order of COLUMNS. A run that did not start has its reason as COMMAND."""
    outcome = row["outcome"]
    if outcome == FAILED:
        outcome = f"exit {row['code']}"
    elif outcome == SIGNALED:
        outcome = name_signal(row["signal"])
    when = row["time"].replace("T", " ")[: len("2026-01-31 23:59:59")]
    text = format_reason(row) if row["reason"] else " ".join(row["command"])
    return (
        row["name"],
        when,
        outcome,
        format_span(row["waited"]),
        format_span(row["ran"]),
        row["child"] if outcome == ORPHANED else row["launcher"] or row["child"],
        row["user"],
        text,
    )


def format_reason(row: dict) -> str:
    """Return the reason of a skip without the words that the columns NAME and OUTCOME already have."""
    return row["reason"].removeprefix(f"{row['name']}: ").removeprefix("busy: ")


# --- on a terminal -----------------------------------------------------------------------------------------------


def print_picture_and_table(console, rows: list, after: float, via=None):
    """Print a picture of all rows, and below it a table of the last ones that fit on the terminal."""
    runs = [row for row in rows if row["outcome"] != decode(UNNOTIFIED)]
    names = list(dict.fromkeys(row["name"] for row in reversed(runs)))
    drawn = names[: max(LEAST_NAMES, console.height - LEAST_ROWS - OTHER_LINES)]
    room = max(LEAST_ROWS, console.height - len(drawn) - OTHER_LINES)
    columns, cells = make_table(rows[-room:], via)
    if runs:
        runs = [row for row in runs if row["name"] in drawn]
        console.print(make_picture(runs, after, time(), console.width, console.encoding), no_wrap=True, overflow="crop")
        console.print(f"and {len(names) - len(drawn)} more names" if len(names) > len(drawn) else "")
    print_table(console, columns, [list(map(clean, line)) for line in cells], "OUTCOME", find_styles(rows))
    if len(rows) > room:
        console.print(f"the last {room} of {len(rows)}: all are in `solo history | less`, or fewer with --since")


def find_styles(rows: list) -> dict:
    """Return the style of each text in the column OUTCOME."""
    return {make_cells(row)[2]: STYLES[row["outcome"]] for row in rows}


STYLES = {
    OK: "green",
    RELEASED: "green",
    LEFT: "green",
    RUNNING: "bold green",
    HELD: "bold green",
    ORPHANED: "bold red",
    FAILED: "red",
    SIGNALED: "red",
    TIMED_OUT: "red",
    LOST: "red",
    UNKNOWN: "red",
    "skipped": "yellow",
    "refused": "red",
    decode(UNNOTIFIED): "red",
}
BAD = (FAILED, SIGNALED, TIMED_OUT, LOST, UNKNOWN, "refused")
MARKS = {"run": "━", "bad": "✗", "skipped": "○", "none": " "}
ASCII_MARKS = {"run": "=", "bad": "x", "skipped": "o", "none": " "}
MARK_STYLES = {"run": "green", "bad": "bold red", "skipped": "yellow", "none": ""}


def make_picture(rows: list, after: float, now: float, width: int, encoding: str):
    """Return a line per name: bars for its runs, marks for skips and failures, and how long its runs took."""
    from rich.text import Text

    by_name = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    begin = max(after, min(read_time(row["time"]) for row in rows))
    marks = MARKS if encoding.lower().startswith("utf") else ASCII_MARKS
    stats = {name: make_stats(mine) for name, mine in by_name.items()}
    titles = ("RUNS", "FAILED", "SKIPPED", "50%", "95%", "MAX")
    widths = [max(map(len, column)) for column in zip(titles, *stats.values())]
    room = max(map(measure, map(clean, by_name)))
    cells = max(SHORTEST_PICTURE, width - room - sum(widths) - 2 * len(widths) - 3)
    left, right = format_minute(begin), "now"
    lines = [Text(" " * room + "  " + left + right.rjust(cells - len(left)) + join(titles, widths), style="bold")]
    for name, mine in by_name.items():
        line = Text(pad(clean(name), room) + "  ")
        for kind in draw(mine, begin, now, cells):
            line.append(marks[kind], style=MARK_STYLES[kind])
        line.append(join(stats[name], widths))
        lines.append(line)
    return Text("\n").join(lines)


def join(cells, widths: list) -> str:
    return "".join("  " + cell.rjust(width) for cell, width in zip(cells, widths))


def format_minute(seconds: float) -> str:
    return strftime("%Y-%m-%d %H:%M", localtime(seconds))


def read_time(text: str) -> float:
    from datetime import datetime  # for the pictures on a terminal only

    return datetime.fromisoformat(text).timestamp()


def draw(rows: list, begin: float, now: float, cells: int) -> list:
    """Return the kind of each of `cells` equal spans between `begin` and `now`.

    A failure hides a skip, and a skip a run.
    """
    kinds = ["none"] * cells
    scale = cells / max(now - begin, 0.001)

    def find_cell(seconds):
        return min(cells - 1, max(0, int((seconds - begin) * scale)))

    for row in rows:
        start = read_time(row["time"])
        last = find_cell(start + (row["ran"] or 0))
        if row["outcome"] == "skipped":
            if kinds[last] != "bad":
                kinds[last] = "skipped"
            continue
        for at in range(find_cell(start), last + 1):
            if kinds[at] == "none":
                kinds[at] = "run"
        if row["outcome"] in BAD:
            kinds[last] = "bad"
    return kinds


def make_stats(rows: list) -> list:
    """Return the cells beside the picture of one name: runs, failures, skips, and percentiles of the durations."""
    spans = sorted(row["ran"] for row in rows if row["end"])
    counts = [
        sum(row["outcome"] not in ("skipped", "refused") for row in rows),
        sum(row["outcome"] in BAD for row in rows),
        sum(row["outcome"] == "skipped" for row in rows),
    ]
    return [*map(str, counts), *(format_span(find_percentile(spans, percent)) for percent in (50, 95, 100))]


def find_percentile(ordered: list, percent: int):
    """Return the nearest-rank percentile: the smallest value that `percent` of all do not exceed.

    None if there are none.
    """
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None
