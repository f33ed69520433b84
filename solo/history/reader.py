"""Read journals: events -> runs and totals. Rotate a full one.

A journal is two files: PAST, then JOURNAL. The last line of `totals` in a file counts the events
before that file, which neither file still has. So the totals of a name are the totals in PAST, the
events of PAST and the events of JOURNAL. The totals in JOURNAL count only once it has become PAST.
Torn and invalid lines are skipped. The lines of `day` before the totals are the figures of each of
the last days of those earlier events: of a job that starts each minute the two files have some days
only.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from fcntl import LOCK_EX
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from solo.directories import STICKY, Directory
from solo.errors import SoloError
from solo.history.files import PAST, find_inode, read_both, read_journal
from solo.history.names import find_files
from solo.journal_files import ENDED, JOURNAL, REFUSED, SKIPPED, STARTED, UNNOTIFIED, open_place
from solo.kernel import try_lock
from solo.record import check_claim, parse_note, parse_seconds, parse_text, unquote

Readers = dict[str, Callable[[bytes], Any]]
DAY_SECONDS, MOST_DAYS = 86400.0, 35
TAIL = 1 << 10  # bytes; a line of totals is shorter
TAILS = (1 << 13, 1 << 17)  # bytes, for the events of the last minutes
CLOCK_STEP = 60.0  # seconds: lines are in the order of their times but for steps of the clock
MOST_DIGITS = 19
CACHED = 1 << 12  # pairs, and commands: most lines of a journal share most of theirs


def parse_int(text: bytes) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError
    return int(text)


def parse_count(text: bytes) -> int:
    value = parse_int(text)
    if value < 0:
        raise ValueError
    return value


# The fields of each event, and those that it may lack.
REQUIRED: Readers = {
    "host": parse_text,
    "mode": lambda text: check_claim(text.decode()).mode,
    **dict.fromkeys(("uid", "launcher", "slots", "take"), parse_count),
}
OPTIONAL: Readers = {
    **dict.fromkeys(("start", "waited", "ran"), parse_seconds),
    **dict.fromkeys(("child", "slot", "token"), parse_count),
    "code": parse_int,
    **dict.fromkeys(("why", "user"), parse_text),
    "note": parse_note,
}
READERS = {
    **{key.encode(): (key, read) for key, read in {**REQUIRED, **OPTIONAL}.items()},
    b"timed-out": ("is_timed_out", b"1".__eq__),
    b"lost": ("is_lost", b"1".__eq__),
    b"kept": ("is_kept", lambda value: True),
    b"generated": ("is_generated", lambda value: True),
    b"captured": ("is_captured", lambda value: True),
}
# The events, and which fields each cannot lack.
NEEDED = {
    STARTED: REQUIRED.keys() | {"start", "child", "token"},
    ENDED: REQUIRED.keys() | {"start", "child", "token", "ran", "code"},
    **dict.fromkeys((SKIPPED, REFUSED), REQUIRED.keys() | {"code"}),
    UNNOTIFIED: REQUIRED.keys() | {"why"},
}


class Run(NamedTuple):
    """One run, one contender that was skipped or refused, or one --notify that failed.

    Times are seconds since the epoch, spans are seconds.
    """

    event: bytes  # its last one: STARTED while it runs, and after its launcher was killed
    time: float
    names: "list[str]"
    words: bytes  # those of `command`, quoted
    command: "list[bytes]"
    host: str
    mode: str
    uid: int
    launcher: int
    slots: int
    take: int
    is_timed_out: bool = False
    is_lost: bool = False
    is_kept: bool = False  # by solo hold
    is_generated: bool = False
    is_captured: bool = False
    start: "float | None" = None
    waited: "float | None" = None
    ran: "float | None" = None
    child: "int | None" = None
    slot: "int | None" = None
    token: "int | None" = None
    code: "int | None" = None  # of the command, or -signal; if nothing ran, of solo
    why: "str | None" = None
    user: "str | None" = None  # at an engine, as another host may have other uids
    note: "str | None" = None

    @property
    def is_failure(self) -> bool:
        """Whether the command failed or could not start. A skip is not a failure."""
        return bool(
            self.event == REFUSED
            or (self.event == ENDED and (self.code or self.is_timed_out or self.is_lost))
        )

    @property
    def begin(self) -> float:
        """When it started; of what did not start when it was refused."""
        return self.start or self.time

    @property
    def arrival(self) -> float:
        """When the contender came: a run that waited was due before it started."""
        return self.begin - (self.waited or 0.0)

    @property
    def span(self) -> float:
        return self.ran or 0.0

    @property
    def is_success(self) -> bool:
        return self.event == ENDED and not self.is_failure and not self.is_kept


class Figures(SimpleNamespace):
    """Counts and times, 0 by default, and the line of a journal that has them: it begins with
    `mark`, then come the `fields`. Lines of earlier versions lack those of `later`.
    """

    mark: bytes
    fields: Readers
    later: "tuple[str, ...]" = ()

    def __init__(self, **known: float) -> None:
        super().__init__(**{**dict.fromkeys(self.fields, 0), **known})

    @classmethod
    def parse(cls, text: bytes) -> Any:
        """Return the figures in the fields of a line. Raises ValueError, KeyError."""
        pairs = dict(pair.split(b"=", 1) for pair in text.split(b" "))
        return cls(
            **{
                field: read(pairs[make_key(field)])
                for field, read in cls.fields.items()
                if make_key(field) in pairs or field not in cls.later
            }
        )

    def format(self) -> bytes:
        """Return the line."""
        forms: dict[object, bytes] = {parse_count: b" %b=%d", parse_seconds: b" %b=%.3f"}
        parts = [
            forms[read] % (make_key(field), getattr(self, field))
            for field, read in self.fields.items()
        ]
        return self.mark + b" 0" + b"".join(parts) + b"\n"


def make_key(field: str) -> bytes:
    """Return the key of a field of Figures in a line."""
    return field.replace("_", "-").encode()


class Totals(Figures):
    """Counts since the journal was begun.

    `waits` and `waited_ms` count the commands that started, `ends`, `ran_ms` and `last_ran_ms`
    those that ended. Milliseconds are whole: their sum does not depend on the order.
    """

    mark = b"totals"
    later = ("lost", "waits", "waited_ms", "ends", "ran_ms", "last_ran_ms")
    fields = {
        **dict.fromkeys(("runs", "skips", "failures"), parse_count),
        **dict.fromkeys(("last_success", "last_failure"), parse_seconds),
        **dict.fromkeys(later, parse_count),
    }
    last_success: float
    last_failure: float

    def add(self, run: Run) -> None:
        """Count one event. A kept hold is no run: no command started."""
        if run.is_kept and run.event in (STARTED, ENDED):
            return
        if run.event == STARTED:
            self.runs += 1
            if run.waited is not None:
                self.waits += 1
                self.waited_ms += round(run.waited * 1000)
            return
        self.skips += run.event == SKIPPED
        if run.is_failure:
            self.failures += 1
            self.lost += run.is_lost
            self.last_failure = max(self.last_failure, run.time)
        elif run.event == ENDED:
            self.last_success = max(self.last_success, run.time)
        if run.event == ENDED:
            self.ends += 1
            self.last_ran_ms = round(run.span * 1000)
            self.ran_ms += self.last_ran_ms


class Day(Figures):
    """The figures of the contenders that came on one day, by UTC.

    They came from `first` to `last`, seconds since the epoch; `gap_ms` is the longest time from one
    to the next.
    """

    mark = b"day"
    fields = {
        **dict.fromkeys(("first", "last"), parse_seconds),
        **dict.fromkeys(
            ("runs", "skips", "failures", "ends", "ran_ms", "longest_ms", "gap_ms"), parse_count
        ),
    }
    first: float
    last: float
    longest_ms: int
    gap_ms: int

    @property
    def number(self) -> int:
        return int(self.first // DAY_SECONDS)

    def add(self, run: Run, before: float) -> None:
        """Count one event, after a contender that came at `before`."""
        if run.event == ENDED:
            self.ends += 1
            self.ran_ms += round(run.span * 1000)
            self.longest_ms = max(self.longest_ms, round(run.span * 1000))
        else:
            self.first = min(self.first, run.arrival)
            self.last = max(self.last, run.arrival)
            self.gap_ms = max(self.gap_ms, round((run.arrival - before) * 1000))
        self.runs += run.event == STARTED
        self.skips += run.event == SKIPPED
        self.failures += run.is_failure


class History(NamedTuple):
    """The history of one name: `events` as they were written, and the totals over all events ever
    written.

    `days` are the figures of the last days before these events.
    """

    events: "list[Run]"
    totals: Totals
    days: "Sequence[Day]" = ()

    def list_runs(self) -> "list[Run]":
        """Return one Run per run or other event, in order of start: the end of a run replaces its
        start.
        """
        runs: dict[object, Run] = {}
        for number, run in enumerate(self.events):
            key = number if run.token is None else (run.token, run.child, run.host)
            if key in runs and run.event == STARTED:
                continue  # an end before its start: two clocks disagree
            runs[key] = run
        return sorted(runs.values(), key=lambda run: run.begin)


def find_histories(
    directory: "str | None", wanted: "Sequence[str]", after: float = 0.0
) -> "Iterator[tuple[str, History | SoloError]]":
    """Yield (name, History or SoloError) of `wanted` and the names nested in them, or all. Raises
    SoloError.

    If `after` is not 0, events before that may be missing.
    """
    try:
        place = open_place(directory)
    except FileNotFoundError:
        return
    with place:
        for name, inner, _ in find_files(place, wanted):
            try:
                yield (
                    name,
                    inner if isinstance(inner, SoloError) else read_history(name, inner, after),
                )
            except SoloError as error:
                yield name, error


def find_history(directory: "str | None", name: str) -> History:
    """Return the History of this name alone. Raises SoloError."""
    try:
        with open_place(directory, name) as place:
            return read_history(name, place)
    except FileNotFoundError:
        return History([], Totals())


def read_history(name: str, place: Directory, after: float = 0.0) -> History:
    """Return the History in the directory `place`; events before `after` may be missing. Raises
    SoloError.
    """
    try:
        past, now = read_since(place, after) if after else read_both(place)
    except OSError as error:
        raise SoloError(f"cannot read the journal in {place.path}: {error.strerror}") from None
    totals, events = parse(name, past)
    events += parse(name, now)[1]
    if not events and totals is None and (past + now).rpartition(b"\n")[0].strip():
        from solo.text.remedies import quote_path

        remedy = f"solo clean {quote_path(name)} removes it"
        raise SoloError(f"the journal in {place.path} is damaged: no line can be read ({remedy})")
    return History(events, add_up(totals, events), (*parse_days(past),))


def read_since(place: Directory, after: float) -> "tuple[bytes, bytes]":
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
        return parse_seconds(line.split(b" ", 2)[1]) < when
    except (ValueError, IndexError):
        return False


def parse(name: str, data: bytes) -> "tuple[Totals | None, list[Run]]":
    """Return (the last Totals or None, [the Run of each event]) of a journal's text."""
    totals, events = None, []
    for line in data.split(b"\n")[:-1]:  # text after the last newline is torn, or is being written
        try:
            event, when, rest = line.split(b" ", 2)
            if event == Totals.mark:
                totals = Totals.parse(rest)
            elif event in NEEDED:
                events.append(parse_event(name, event, when, rest))
        except (ValueError, KeyError, OverflowError):
            continue
    return totals, events


def parse_event(name: str, event: bytes, when: bytes, rest: bytes) -> Run:
    details, mark, command = rest.partition(b" command=")
    if not mark:
        raise ValueError
    pairs = details.split(b" ")
    fields: dict[str, Any] = dict(map(parse_pair, pairs))
    fields.pop("", None)
    if not NEEDED[event] <= fields.keys():
        raise ValueError
    names = [name]
    if b" name=" in details:
        names = [parse_text(pair[5:]) for pair in pairs if pair.startswith(b"name=")]
    words, typed = parse_command(command)
    return Run(
        event=event, time=parse_seconds(when), names=names, words=words, command=typed, **fields
    )


@lru_cache(CACHED)
def parse_pair(pair: bytes) -> "tuple[str, Any]":
    """Return (the attribute of a Run, its value), or "" as the first for a field of a later
    version.
    """
    key, value = pair.split(b"=", 1)
    attribute, read = READERS.get(key, ("", bytes))
    return attribute, read(value)


@lru_cache(CACHED)
def parse_command(words: bytes) -> "tuple[bytes, list[bytes]]":
    """Return (the quoted words, the words), the same objects for the same words."""
    return words, [unquote(word) for word in words.split(b" ")]


def parse_days(data: bytes) -> "list[Day]":
    """Return the days in a journal's text, in order. Of a day the last one counts: others were
    written in vain.
    """
    days: dict[int, Day] = {}
    for text in data.split(b"\n")[:-1]:
        mark, _, rest = text.partition(b" 0 ")
        if mark == Day.mark:
            try:
                day = Day.parse(rest)
            except (ValueError, KeyError):
                continue
            days[day.number] = day
    return [days[number] for number in sorted(days)]


def add_days(days: "list[Day]", events: "list[Run]") -> "list[Day]":
    """Return the last MOST_DAYS of `days` and of those of `events`."""
    known = {day.number: day for day in days}
    before = max([day.last for day in days], default=None)
    for run in sorted(events, key=lambda run: run.time):
        if run.is_kept or run.event == UNNOTIFIED:
            continue
        came = run.arrival
        day = known.setdefault(int(came // DAY_SECONDS), Day(first=came, last=came))
        day.add(run, came if before is None else before)
        before = max(came, before or 0.0)
    return [known[number] for number in sorted(known)[-MOST_DAYS:]]


def add_up(totals: "Totals | None", events: "list[Run]") -> Totals:
    """Return `totals`, or zeros if None, plus all `events`."""
    totals = totals or Totals()
    for event in events:
        totals.add(event)
    return totals


def rotate(place: Directory, journal: int) -> bool:
    """Rename the full JOURNAL, open as `journal`, to PAST. Return False if it must stay for now.
    Raises OSError.

    Write the counts of PAST into JOURNAL first, so that SIGKILL at any moment loses none. Rotate
    under flock(2): a second rotation would rename the journal that the first one has just begun.
    """
    folder = os.fstat(place.fd)
    # A sticky directory forbids renaming the files of another user.
    may_rename = not folder.st_mode & STICKY or os.geteuid() in (
        0,
        folder.st_uid,
        os.fstat(journal).st_uid,
    )
    if not may_rename or not try_lock(journal, LOCK_EX):
        return False
    stat = os.fstat(journal)
    if stat.st_ino != find_inode(place):
        return True  # another process rotated it
    tail = os.pread(journal, TAIL, max(0, stat.st_size - TAIL))
    # else an earlier attempt wrote the totals, but did not rename
    if parse("", tail.splitlines(True)[-1])[0] is None:
        past = read_journal(place, PAST)[0]
        totals, events = parse("", past)
        days = add_days(parse_days(past), events)
        text = b"\n" + b"".join([one.format() for one in (*days, add_up(totals, events))])
        if os.write(journal, text) < len(text):
            return False
    try:
        os.rename(JOURNAL, PAST, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        return True
    except OSError:
        return False
