"""`solo metrics`: every name in Prometheus's text format, for example for the textfile collector of
node_exporter.

Not OpenMetrics: that collector and promtool would not see that a counter of OpenMetrics is one.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from solo import __version__
from solo.commands.list import collect, report_absent
from solo.commands.lookup import Asked, describe_engine, read_skips, visit_queue
from solo.commands.states import Job, examine_all, is_passing, read_clock
from solo.commands.writable import describe_unrecorded
from solo.directories import find_base
from solo.errors import SoloError, Unreachable, UsageError
from solo.history.health import STATES
from solo.history.names import ForeignName
from solo.history.reader import Totals
from solo.identity import Origin, read_origin
from solo.journal_files import is_same
from solo.kernel import say
from solo.modes import SLOTS
from solo.options import FILE
from solo.text.rows import Row
from solo.text.users import find_user
from solo.text.width import clean
from solo.tickets import Ticket

Numbers = dict[str, float]  # by sample
Samples = dict[tuple[str, str], Numbers]  # by name and backend
MODE = 0o644  # of a new file: its reader is another user
STATE = "solo_job_state"
# of the samples of a family
SUFFIXES = {"gauge": ("",), "counter": ("",), "summary": ("_sum", "_count")}
# A name has few runs a day: a histogram would be a dozen of nearly empty series for each name.
# fmt: off
FAMILIES = (
    ("solo_engine_up", "gauge", "Whether the engine answered."),
    (STATE, "gauge", "Whether that is true of the job; list --all shows the first one that is."),
    ("solo_held", "gauge", "Number of holders."),
    ("solo_held_seconds", "gauge", "Seconds for which the oldest holder has held the name."),
    ("solo_waiting", "gauge", "Number of waiters."),
    ("solo_slots", "gauge", "Number of slots of the name."),
    ("solo_slots_taken", "gauge", "Number of slots that holders have."),
    ("solo_runs_total", "counter", "Commands that were started."),
    ("solo_skips_total", "counter", "Contenders that did not run: busy, or --once-per had run."),
    ("solo_skips_in_a_row", "gauge", "Skips since a command last started."),
    ("solo_failures_total", "counter", "Commands that failed or could not be started."),
    ("solo_lost_leases_total", "counter", "Commands that were ended because their lease was lost."),
    ("solo_run_seconds", "summary", "Seconds for which commands ran that have ended."),
    ("solo_last_run_seconds", "gauge", "Seconds for which the command ran that ended last."),
    ("solo_usual_seconds", "gauge", "Median seconds of the last hundred successful runs of "
                                    "the command line of list --all."),
    ("solo_overdue_after_seconds", "gauge", "Seconds after which that command runs long."),
    ("solo_wait_seconds", "summary", "Seconds for which commands waited before they started."),
    ("solo_last_success_timestamp_seconds", "gauge", "When a command last ended with status 0."),
    ("solo_last_failure_timestamp_seconds", "gauge", "When a command last failed, or one started "
                                                     "whose end nobody recorded."),
    ("solo_killed_runs", "gauge", "Commands in the journal whose end nobody recorded, as their "
                                  "launcher was killed."),
)
# fmt: on


def run(options: Asked, names: "list[str]") -> int:
    """Print the metrics, or replace the file of --output. Return 125 if a name cannot be read or an
    engine refuses us; the others are there.
    """
    samples, generated, complete = collect_samples(options, names)
    # A directory alone is not enough: sockets, and journals in a sticky directory, are of one user.
    common = {"dir": os.path.abspath(find_base(options.dir)), "user": find_user(os.geteuid())}
    lines = format_metrics(samples, generated, common)
    if options.output not in (None, "-"):
        write_atomically(options.output, lines)
    else:
        show = clean if sys.stdout.isatty() else str
        sys.stdout.writelines(f"{show(line[:-1])}\n" for line in lines)
    return 0 if complete else SoloError.status


def collect_samples(options: Asked, names: "list[str]") -> "tuple[Samples, set[str], bool]":
    """Return (the samples, the names that solo made from commands, whether all could be read)."""
    samples: Samples = {}
    readable = True
    origin = read_origin()
    clock = read_clock()
    generated, reported = set[str](), set[str]()

    def report(text: str) -> None:
        if text not in reported:
            say(text)
        reported.add(text)

    def visit(row: Row, ticket: Ticket) -> None:
        if ticket.record is not None and ticket.record.is_generated:
            generated.add(row.name)

    nothing: Numbers = {"solo_held": 0, "solo_waiting": 0}
    held = nothing if options.where == FILE else {}  # else no ticket of a file is read
    if unrecorded := describe_unrecorded(options.dir):
        report(unrecorded)
    rows, complete = collect_rows(samples, options, names, report, visit)
    used = dict.fromkeys([row.name for row in rows], False) if held else None
    for name, job in examine_all(Asked(dir=options.dir), names, clock, used):
        if isinstance(job, SoloError):
            report(f"{name}: {job}")
            readable = readable and not names and isinstance(job, ForeignName)
        elif job.history.totals != Totals():
            if job.history.events[-1].is_generated:
                generated.add(name)
            skips = count_skips(name, options, origin) if job.history.totals.skips else 0
            mine = {**held, **count_runs(job), "solo_skips_in_a_row": skips}
            if not is_passing(job, clock):
                mine.update({STATE + state: state in job.health.states for state in STATES})
            samples[name, FILE] = mine
    for row in rows:
        add_row(samples.setdefault((row.name, row.via), {**nothing}), row, clock.now)
    unknown = report_absent(names, [name for name, _ in samples], options, "show")
    return samples, generated, complete and readable and not unknown


def collect_rows(
    samples: "Samples",
    options: Asked,
    names: "list[str]",
    report: "Callable[[str], None]",
    visit: "Callable[[Row, Ticket], None]",
) -> "tuple[list[Row], bool]":
    """Return what `collect` does. Of an engine that fails there are no rows, but a sample of no
    name.
    """
    directory, via = options.dir, options.via
    if not options.is_engine:
        # Sockets belong to no directory: else each file of one collector had the same series.
        if via is None and directory and not is_default(directory):
            via = FILE
        return collect(directory, via, names, report, visit)
    up = samples.setdefault(("", describe_engine(options)), {"solo_engine_up": 0})
    try:
        found = collect(directory, via, names)
    except UsageError:
        raise
    except SoloError as error:
        report(str(error))
        # that one is reported; a refusal may be our mistake
        return [], isinstance(error, Unreachable)
    up["solo_engine_up"] = 1
    return found


def is_default(directory: str) -> bool:
    try:
        return is_same(directory, find_base(None))
    except SoloError:
        return False  # this user has none


def count_runs(job: Job) -> "Numbers":
    """Return the samples of a name that come from its journal."""
    totals, last = job.history.totals, job.history.events[-1]
    mine: Numbers = {
        "solo_runs_total": totals.runs,
        "solo_skips_total": totals.skips,
        "solo_failures_total": totals.failures,
        "solo_lost_leases_total": totals.lost,
        "solo_killed_runs": len(job.unended),
        "solo_run_seconds_sum": totals.ran_ms / 1000,
        "solo_run_seconds_count": totals.ends,
        "solo_wait_seconds_sum": totals.waited_ms / 1000,
        "solo_wait_seconds_count": totals.waits,
    }
    if totals.ends:
        mine["solo_last_run_seconds"] = totals.last_ran_ms / 1000
    usual = job.health.usual
    if usual is not None:
        mine.update(solo_usual_seconds=usual.median, solo_overdue_after_seconds=usual.long_after)
    failure = max([totals.last_failure, *[run.time for run in job.unended]])
    for outcome, when in (("success", totals.last_success), ("failure", failure)):
        if when:
            mine[f"solo_last_{outcome}_timestamp_seconds"] = when
    if last.mode == SLOTS:
        mine.update(solo_slots=last.slots, solo_slots_taken=0)
    return mine


def count_skips(name: str, options: Asked, origin: "Origin") -> int:
    """Return the skips in a row that the gate counts, as `solo show` prints them; 0 if it cannot be
    read.
    """
    try:
        skips = visit_queue(name, Asked(dir=options.dir), read_skips, origin)
        return sum(skips.values())
    except SoloError:
        return 0  # listing the tickets reports it


def add_row(mine: "Numbers", row: Row, now: float) -> None:
    """Add a ticket, a row of `solo list`, to the samples of its name."""
    is_held = not row.is_waiting
    mine["solo_held" if is_held else "solo_waiting"] += 1
    if row.slots is not None and row.take is not None:
        mine["solo_slots"] = max(row.slots, mine.get("solo_slots", 0))
        mine["solo_slots_taken"] = mine.get("solo_slots_taken", 0) + row.take * is_held
    if is_held and row.since is not None:
        age = round(max(0.0, now - row.since), 3)
        mine["solo_held_seconds"] = max(age, mine.get("solo_held_seconds", 0.0))


def format_metrics(
    samples: "Samples", generated: "set[str]", common: "dict[str, str]"
) -> "Iterator[str]":
    """Yield each line: of 10,000 names they are 40 MB."""
    yield "# HELP solo_build_info The version of solo that wrote this.\n"
    yield "# TYPE solo_build_info gauge\n"
    yield f"solo_build_info{{{format_labels(version=__version__, **common)}}} 1\n"
    shared = format_labels(**common)
    rows = []
    for (name, via), values in sorted(samples.items()):
        of = format_labels(**({"name": name} if name else {}), via=via)
        rows.append((of + ',generated="true"' * (name in generated) + f",{shared}", values))
    for family, kind, help in FAMILIES:
        yield f"# HELP {family} {help}\n"
        yield f"# TYPE {family} {kind}\n"
        for labels, values in rows:
            for suffix in STATES if family == STATE else SUFFIXES[kind]:
                value = values.get(family + suffix)
                if value is not None:
                    sample = f"{family}{suffix}{{{labels}}}"
                    if family == STATE:
                        sample = f'{STATE}{{{labels},state="{suffix}"}}'
                    number = int(value) if isinstance(value, int) else f"{value:.3f}"
                    yield f"{sample} {number}\n"
    yield "# EOF\n"


def format_labels(**labels: str) -> str:
    return ",".join(f'{label}="{quote_label(text)}"' for label, text in labels.items())


def quote_label(text: str) -> str:
    """Return the text as a label, in UTF-8: other bytes become \\xNN, and no two texts have one
    label.
    """
    data = text.encode(errors="surrogateescape")
    if "\\x" in text or data != text.encode(errors="replace"):
        data = data.replace(b"\\", b"\\\\")
    text = data.decode(errors="backslashreplace")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_atomically(path: str, lines: "Iterable[str]") -> None:
    """Replace the contents of `path` by `lines`, in one step unless it is a device or pipe. Raises
    SoloError.
    """
    path = os.path.realpath(path)
    folder, file = os.path.split(path)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            return write_lines(path, lines)
        # Not *.prom, which would be collected.
        with tempfile.TemporaryDirectory(prefix=f".{file}.", dir=folder) as made:
            new = Path(made, file)
            write_lines(new, lines)
            new.chmod(os.stat(path).st_mode & 0o7777 if os.path.exists(path) else MODE)
            os.replace(new, path)
    except OSError as error:
        raise SoloError(f"cannot write {path}: {error.strerror}") from None


def write_lines(path: "str | Path", lines: "Iterable[str]") -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)
