"""`solo check`: the health of jobs for a monitoring system, by the guidelines of the Monitoring
Plugins: a line with performance data, and an exit status of 0 to 3.
"""

import posix
from collections.abc import Callable
from typing import NamedTuple

from solo.commands.lookup import Asked, check_known, describe_place
from solo.commands.states import Job, describe_state, find_jobs, read_clock
from solo.commands.writable import describe_unrecorded
from solo.errors import SoloError
from solo.history.health import FAILING, LOST, RUNNING, Clock
from solo.history.names import ForeignName, is_within
from solo.journal_files import ENDED
from solo.text.describe import format_duration, format_usual
from solo.text.events import encode_any
from solo.text.missing import describe_missing
from solo.text.remedies import quote_path
from solo.text.stdout import write_stdout
from solo.text.width import clean, cut

STATUSES = OK, WARNING, CRITICAL, UNKNOWN = ("OK", "WARNING", "CRITICAL", "UNKNOWN")  # from 0 on
WORST_FIRST = (CRITICAL, WARNING, UNKNOWN, OK)
MOST_NAMED, MOST_LETTERS = 3, 200  # of the line: NRPE cuts it after 1024 bytes
Limits = tuple["float | None", "float | None"]  # seconds from which on to warn, and critical ones


class Answer(NamedTuple):
    status: str
    text: str
    job: "Job | None" = None


def run(options: Asked, names: "list[str]") -> int:
    """Print the line about the names, or all. Return its status."""
    clock, limits = read_clock(), options.within
    try:
        found = find(options, names, clock, limits)
    except SoloError as error:
        found = [Answer(UNKNOWN, f"{error}{describe_roots(options, names)}")]
    if unrecorded := describe_unrecorded(options.dir):
        found = [one for one in found if one.status != OK] + [Answer(UNKNOWN, unrecorded)]
    found.sort(key=lambda one: WORST_FIRST.index(one.status))
    statuses = [one.status for one in found]
    numbers = [f"{status.lower()}={statuses.count(status)};;;0" for status in STATUSES]
    job = found[0].job if len(found) == len(names) == 1 else None
    if job is not None:
        numbers = measure(job, clock, limits)
    return answer(found[0].status, summarize(found), " ".join(numbers))


def answer(status: str, text: str, numbers: str = "") -> int:
    """Print the line, and return its status. What follows a | is performance data."""
    text = clean(text).replace("|", "\\x7c")
    line = f"SOLO {status}: {text}" + f" | {numbers}" * bool(numbers)
    write_stdout(encode_any(f"{line}\n"))  # at once: nothing is left to flush at exit
    return STATUSES.index(status)


def answer_errors(call: "Callable[[], int]") -> int:
    """Return what `call` does. What it raises is UNKNOWN: another status would be read as one of a
    job.
    """
    try:
        return call()
    except ModuleNotFoundError as error:
        return answer_error(SoloError(describe_missing(error.name)))
    except Exception as error:
        return answer_error(error)


def answer_error(error: Exception) -> int:
    text = str(error) if isinstance(error, (SoloError, OSError)) else repr(error)
    try:
        return answer(UNKNOWN, text)
    except SoloError:
        return STATUSES.index(UNKNOWN)  # full or closed


def find(options: Asked, names: "list[str]", clock: Clock, limits: Limits) -> "list[Answer]":
    """Return what is found about each job, and each name without one; at least one. Raises
    SoloError.
    """
    jobs, refused, _ = find_jobs(options, names, clock)
    found = [judge(job, clock, limits, job.name in names) for job in jobs]
    found += [
        Answer(UNKNOWN, f"{name}: {error}")
        for name, error in refused
        if names or not isinstance(error, ForeignName)
    ]
    known = [*[job.name for job in jobs], *[name for name, _ in refused]]
    for name in names:
        if not any(is_within(one, [name]) for one in known):
            found.append(Answer(UNKNOWN, explain_unknown(name, options)))
    if not found:
        place = f"no names known: {describe_place(options)}"
        found.append(Answer(UNKNOWN, place + describe_roots(options, names)))
    return found


def explain_unknown(name: str, options: Asked) -> str:
    try:
        check_known(name, options, "check")
    except SoloError as error:
        return f"{error}{describe_roots(options, [name])}"
    return f"{name}: no run is recorded"


def describe_roots(options: Asked, names: "list[str]") -> str:
    """Return what to type for root's names, "" for root, who sees them."""
    if options.dir or posix.geteuid() == 0:
        return ""
    return "; for root's: " + " ".join(["sudo -n solo check", *map(quote_path, names)])


def judge(job: Job, clock: Clock, limits: Limits, is_typed: bool) -> Answer:
    """Return what the health of a job and the age of its last success mean."""
    health = job.health
    status = OK
    text = ""
    if health.is_bad:
        status = CRITICAL if health.state in (LOST, FAILING) else WARNING
        text = f"{health.state}: {describe_state(job, clock)}, "
    elif health.state == RUNNING:
        last = health.last
        text = f"running for {format_duration(clock.now - last.begin)}, " if last else "running, "
    success = job.history.totals.last_success
    if not success:
        # Of a daemon, or a first run, that goes on nothing else is expected without limits.
        if status != CRITICAL and (limits[1] is not None or is_typed and not job.living):
            status = UNKNOWN
        text += "never succeeded"
    else:
        age = clock.now - success
        text += f"success {format_duration(age)} ago"
        warn, critical = [limit is not None and age > limit for limit in limits]
        if warn or critical:
            text += f", not within {format_duration(float(limits[critical] or 0))}"
            status = CRITICAL if critical or status == CRITICAL else WARNING
    if health.usual is not None:
        text += f", usually {format_usual(health.usual.median, health.usual.range)}"
    return Answer(status, f"{job.name}: {text}", job)


def summarize(found: "list[Answer]") -> str:
    """Return the worst texts, and how many others there are. `found` begins with the worst."""
    bad = [one.text for one in found if one.status != OK]
    if len(found) == 1:
        return found[0].text
    texts = [cut(text, MOST_LETTERS) for text in bad[:MOST_NAMED]]
    if len(bad) > MOST_NAMED:
        texts.append(f"{len(bad) - MOST_NAMED} more")
    return "; ".join([*texts, f"{len(found) - len(bad)} of {len(found)} ok"])


def measure(job: Job, clock: Clock, limits: Limits) -> "list[str]":
    """Return the performance data of a job: LABEL=VALUE;WARN;CRIT;LEAST, U for an unknown value."""
    success = job.history.totals.last_success
    age = f"{max(0, clock.now - success):.0f}s" if success else "U"
    warn, critical = ["" if limit is None else f"{limit:.0f}" for limit in limits]
    ran = [run.span for run in job.health.line.runs if run.event == ENDED]
    duration = f"{ran[-1]:.3f}".rstrip("0").rstrip(".") + "s" if ran else "U"
    return [f"age={age};{warn};{critical};0", f"duration={duration};;;0"]
