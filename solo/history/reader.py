"""Read journals: events -> runs and totals.

A journal is two files: PAST, then JOURNAL. The last line of `totals` in a file counts the events before that file,
which neither file still has. So the totals of a name are the totals in PAST, the events of PAST and the events of
JOURNAL. The totals in JOURNAL count only once it has become PAST. Torn and invalid lines are skipped.
"""

from __future__ import annotations

from types import SimpleNamespace  # dataclasses take 8 ms to load

from solo.errors import SoloError
from solo.history.files import read_both
from solo.history.names import find_names
from solo.journal_files import ENDED, REFUSED, SKIPPED, STARTED, UNNOTIFIED, open_place
from solo.kernel import close, decode
from solo.modes import MODES
from solo.record import LATEST, parse_note, unquote

TOTALS = b"totals"
TAILS = (1 << 13, 1 << 17)  # bytes, for the events of the last minutes
CLOCK_STEP = 60.0  # seconds: lines are in the order of their times but for steps of the clock
MOST_DIGITS = 19
LATER_COUNTS = ("lost", "waits", "waited_ms", "ends", "ran_ms", "last_ran_ms")  # lines of earlier versions lack them


class Run(SimpleNamespace):
    """One run, one contender that was skipped or refused, or one --notify that failed. Times are seconds since the
    epoch, spans are seconds.

    `code` is the exit status of the command, or -signal; if nothing ran, the exit status of solo. `event` is its last
    event: STARTED while it runs, and after its launcher was killed.
    """

    event: bytes
    time: float
    start: float | None
    waited: float | None
    ran: float | None
    code: int | None
    is_timed_out: bool
    is_lost: bool
    why: str | None
    uid: int
    user: str | None  # at an engine, as another host may have other uids
    host: str
    launcher: int
    child: int | None
    mode: str
    slots: int
    take: int
    slot: int | None
    token: int | None
    names: list[str]
    command: list[bytes]
    note: str | None
    is_kept: bool  # by solo hold
    is_generated: bool  # solo made the name from the command

    @property
    def is_failure(self) -> bool:
        """Whether the command failed or could not start. A skip is not a failure."""
        return self.event == REFUSED or self.event == ENDED and (self.code != 0 or self.is_timed_out or self.is_lost)

    @property
    def is_success(self) -> bool:
        return self.event == ENDED and not self.is_failure and not self.is_kept


class Totals(SimpleNamespace):
    """Counts since the journal was begun.

    `last_success` and `last_failure` are seconds since the epoch, 0 for never. `waits` and `waited_ms` count the
    commands that started, `ends`, `ran_ms` and `last_ran_ms` those that ended. Milliseconds are whole: their sum does
    not depend on the order.
    """

    last_success: float
    last_failure: float

    def __init__(self, runs=0, skips=0, failures=0, last_success=0.0, last_failure=0.0, **later):
        super().__init__(
            runs=runs,
            skips=skips,
            failures=failures,
            last_success=last_success,
            last_failure=last_failure,
            **{**dict.fromkeys(LATER_COUNTS, 0), **later},
        )

    def add(self, run: Run):
        """Count one event. A kept hold is no run: no command started."""
        if run.is_kept and run.event in (STARTED, ENDED):
            return
        self.runs += run.event == STARTED
        self.skips += run.event == SKIPPED
        self.failures += run.is_failure
        self.lost += run.is_lost
        if run.is_success:
            self.last_success = max(self.last_success, run.time)
        if run.is_failure:
            self.last_failure = max(self.last_failure, run.time)
        if run.event == STARTED and run.waited is not None:
            self.waits += 1
            self.waited_ms += round(run.waited * 1000)
        if run.event == ENDED:
            self.ends += 1
            self.last_ran_ms = round(run.ran * 1000)
            self.ran_ms += self.last_ran_ms


class History(SimpleNamespace):
    """The history of one name: `events` as they were written, and the totals over all events ever written."""

    def __init__(self, events: list[Run], totals: Totals):
        super().__init__(events=events, totals=totals)

    def list_runs(self) -> list:
        """Return one Run per run or other event, in order of start: the end of a run replaces its start."""
        runs = {}
        for number, run in enumerate(self.events):
            key = number if run.token is None else (run.token, run.child, run.host)
            if key in runs and run.event == STARTED:
                continue  # an end before its start: two clocks disagree
            runs[key] = run
        return sorted(runs.values(), key=lambda run: run.start or run.time)


def find_histories(directory, wanted: list, after: float = 0.0):
    """Yield (name, its History or a SoloError) for the `wanted` names and the names nested in them; for all if none is
    wanted. If `after` is not 0, its events before that may be missing.

    Raises SoloError if the directory of the journals is refused.
    """
    try:
        place = open_place(directory)
    except FileNotFoundError:
        return
    try:
        for name, inner in find_names(place, wanted):
            try:
                yield name, inner if isinstance(inner, SoloError) else read_history(name, inner, after)
            except SoloError as error:
                yield name, error
    finally:
        close(place.fd)


def find_history(directory, name: str) -> History:
    """Return the History of this name alone. Raises SoloError."""
    try:
        place = open_place(directory, name)
    except FileNotFoundError:
        return History([], Totals())
    try:
        return read_history(name, place)
    finally:
        close(place.fd)


def read_history(name: str, place, after: float = 0.0) -> History:
    """Return the History in the directory `place`, empty if it has no journal. If `after` is not 0, it may begin there, and
    its totals too.

    Raises SoloError if the journal cannot be read.
    """
    try:
        past, now = read_since(place, after) if after else read_both(place)
    except OSError as error:
        raise SoloError(f"cannot read the journal in {place.path}: {error.strerror}") from None
    totals, events = parse(name, past)
    events += parse(name, now)[1]
    return History(events, add_up(totals, events))


def read_since(place, after: float) -> tuple:
    """Return what read_both does, from a line before `after` on. Raises OSError."""
    for size in TAILS:
        past, now = read_both(place, size)
        if len(past) + len(now) < size:
            break
        first, *lines = (past + now).split(b"\n", 2)  # the first line may begin before the tail
        if lines and is_before(lines[0], after - CLOCK_STEP):
            return (past[len(first) :], now) if past else (b"", now[len(first) :])
    return read_both(place)


def is_before(line: bytes, when: float) -> bool:
    try:
        return parse_time(line.split(b" ", 2)[1]) < when
    except (ValueError, IndexError):
        return False


def parse(name: str, data: bytes) -> tuple:
    """Return (the last Totals or None, [the Run of each event]) of a journal's text."""
    totals, events = None, []
    for line in data.split(b"\n")[:-1]:  # text after the last newline is torn, or is being written
        if not line:
            continue
        try:
            event, when, rest = line.split(b" ", 2)
            if event == TOTALS:
                totals = parse_totals(rest)
            elif event in (STARTED, ENDED, SKIPPED, REFUSED, UNNOTIFIED):
                events.append(parse_event(name, event, when, rest))
        except (ValueError, KeyError, OverflowError):
            continue
    return totals, events


def parse_event(name: str, event: bytes, when: bytes, rest: bytes) -> Run:
    details, mark, command = rest.partition(b" command=")
    if not mark:
        raise ValueError
    pairs = [pair.split(b"=", 1) for pair in details.split(b" ")]
    fields = {key: value for key, value in pairs}
    names = [decode(unquote(value)) for key, value in pairs if key == b"name"]
    run = Run(
        event=event,
        time=parse_time(when),
        start=parse_optional(fields, b"start", parse_time),
        waited=parse_optional(fields, b"waited", parse_time),
        ran=parse_optional(fields, b"ran", parse_time),
        code=parse_optional(fields, b"code", parse_int),
        is_timed_out=fields.get(b"timed-out") == b"1",
        is_lost=fields.get(b"lost") == b"1",
        why=parse_optional(fields, b"why", lambda text: decode(unquote(text))),
        uid=parse_int(fields[b"uid"]),
        user=parse_optional(fields, b"user", lambda text: decode(unquote(text))),
        host=decode(unquote(fields[b"host"])),
        launcher=parse_int(fields[b"launcher"]),
        child=parse_optional(fields, b"child", parse_int),
        mode=fields[b"mode"].decode(),
        slots=parse_int(fields[b"slots"]),
        take=parse_int(fields[b"take"]),
        slot=parse_optional(fields, b"slot", parse_int),
        token=parse_optional(fields, b"token", parse_int),
        names=names or [name],
        command=[unquote(word) for word in command.split(b" ")],
        is_kept=b"kept" in fields,
        is_generated=b"generated" in fields,
        note=parse_optional(fields, b"note", parse_note),
    )
    if run.mode not in MODES or run.event in (STARTED, ENDED) and None in (run.start, run.child, run.token):
        raise ValueError
    if run.event == ENDED and None in (run.ran, run.code) or run.event in (SKIPPED, REFUSED) and run.code is None:
        raise ValueError
    if run.event == UNNOTIFIED and run.why is None:
        raise ValueError
    return run


def parse_optional(fields: dict, key: bytes, parse):
    return parse(fields[key]) if key in fields else None


def parse_int(text: bytes) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError
    return int(text)


def parse_time(text: bytes) -> float:
    value = float(text)
    if not 0 <= value < LATEST:
        raise ValueError
    return value


def parse_totals(rest: bytes) -> Totals:
    fields = dict(pair.split(b"=", 1) for pair in rest.split(b" "))
    counts = [parse_int(fields[key]) for key in (b"runs", b"skips", b"failures")]
    later = {count: parse_int(fields.get(make_key(count), b"0")) for count in LATER_COUNTS}
    if min(*counts, *later.values()) < 0:
        raise ValueError
    return Totals(*counts, parse_time(fields[b"last-success"]), parse_time(fields[b"last-failure"]), **later)


def format_totals(totals: Totals) -> bytes:
    line = b"totals 0 runs=%d skips=%d failures=%d last-success=%.3f last-failure=%.3f" % (
        totals.runs,
        totals.skips,
        totals.failures,
        totals.last_success,
        totals.last_failure,
    )
    later = b"".join([b" %b=%d" % (make_key(count), getattr(totals, count)) for count in LATER_COUNTS])
    return line + later + b"\n"


def make_key(count: str) -> bytes:
    """Return the key of a count in the line of totals."""
    return count.replace("_", "-").encode()


def add_up(totals, events: list) -> Totals:
    """Return `totals`, or zeros if None, plus all `events`."""
    totals = totals or Totals()
    for event in events:
        totals.add(event)
    return totals
