"""What the journals of journal.py tell: events -> runs and totals; and how a full journal makes room. Cold.

A journal is two files: PAST, then JOURNAL. A line of `totals` in a file, the last one if there are several, counts what came
before that file: what is in neither file any more. So all there ever was is the totals in PAST, the events of PAST, and those of
JOURNAL; what JOURNAL has of totals counts only once it is PAST itself. What is torn or makes no sense is skipped.
"""

import posix
from dataclasses import dataclass, field
from fcntl import LOCK_EX

from solo.errors import SoloError
from solo.journal import ENDED, JOURNAL, LARGEST, REFUSED, SIZE_LIMIT, SKIPPED, STARTED, open_place
from solo.kernel import EINVAL, IS_REGULAR, SAFELY, TYPE_MASK, close, decode, try_lock
from solo.directories import STICKY, find_names, is_within
from solo.record import LATEST, unquote
from solo.modes import MODES

PAST = ".journal.past"
TOTALS = b"totals"
READ_LIMIT = LARGEST + SIZE_LIMIT  # bytes
MOST_DIGITS = 19
ATTEMPTS = 10
TAIL = 1 << 10  # bytes; a line of totals is shorter


@dataclass
class Run:
    """One run, or one contender that was turned away. Times in seconds since the epoch, spans in seconds.

    `code` is the exit status or -signal of the command, or, where nothing ran, the exit status of solo. `event` is the last
    that is known of it: STARTED only while it runs, or if its launcher was killed.
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

    @property
    def is_failure(self) -> bool:
        """Did it end badly, or could it not even start? A skip is none."""
        return self.event == REFUSED or self.event == ENDED and (self.code != 0 or self.is_timed_out or self.is_lost)

    @property
    def is_success(self) -> bool:
        return self.event == ENDED and not self.is_failure


@dataclass
class Totals:
    """Counts since a journal was begun; `last_success` and `last_failure` are when, in seconds since the epoch, 0 for never."""

    runs: int = 0
    skips: int = 0
    failures: int = 0
    last_success: float = 0.0
    last_failure: float = 0.0

    def add(self, run: Run):
        """Count one event."""
        self.runs += run.event == STARTED
        self.skips += run.event == SKIPPED
        self.failures += run.is_failure
        if run.is_success:
            self.last_success = max(self.last_success, run.time)
        if run.is_failure:
            self.last_failure = max(self.last_failure, run.time)


@dataclass
class History:
    """All that is known of one name: `events` in the order in which they were written, and the totals of all there ever were."""

    events: list[Run] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    def list_runs(self) -> list:
        """A Run each, in order of start; one that has ended replaces its own start."""
        runs = {}
        for number, run in enumerate(self.events):
            key = number if run.token is None else (run.token, run.child, run.host)
            if key in runs and run.event == STARTED:
                continue  # never so, but for two clocks
            runs[key] = run
        return sorted(runs.values(), key=lambda run: run.start or run.time)


def find_histories(directory, wanted: list):
    """(name, its History or a SoloError) of the `wanted` names and what nests in them, or of all. A generator.

    Raises SoloError if where they are is refused.
    """
    try:
        place = open_place(directory)
    except FileNotFoundError:
        return
    try:
        for name, inner in find_names(place):
            if is_within(name, wanted):
                try:
                    yield name, inner if isinstance(inner, SoloError) else read_history(name, inner)
                except SoloError as error:
                    yield name, error
    finally:
        close(place.fd)


def find_history(directory, name: str) -> History:
    """That of just this name. Raises SoloError."""
    try:
        place = open_place(directory, name)
    except FileNotFoundError:
        return History()
    try:
        return read_history(name, place)
    finally:
        close(place.fd)


def read_history(name: str, place) -> History:
    """The history that is kept in `place`; an empty one if nothing is. Raises SoloError if it can not be read."""
    try:
        past, now = read_both(place)
    except OSError as error:
        raise SoloError(f"the journal in {place.path} can not be read: {error.strerror}") from None
    totals, events = parse(name, past)
    events += parse(name, now)[1]
    return History(events, add_up(totals, events))


def read_both(place) -> tuple:
    """What is in PAST and in JOURNAL, with no rotation in between. Raises OSError."""
    for _ in range(ATTEMPTS):
        now, number = read_journal(place, JOURNAL)
        past, _ = read_journal(place, PAST)
        if number == find_inode(place, JOURNAL):
            break
    return past, now


def read_journal(place, file: str) -> tuple:
    """(The end of a file, its inode number); nothing and None if there is none. Raises OSError."""
    try:
        fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=place.fd)
    except FileNotFoundError:
        return b"", None
    try:
        stat = posix.fstat(fd)
        if stat.st_mode & TYPE_MASK != IS_REGULAR:
            raise OSError(EINVAL, f"{file} is not a regular file")
        return posix.pread(fd, READ_LIMIT, max(0, stat.st_size - READ_LIMIT)), stat.st_ino
    finally:
        close(fd)


def find_inode(place, file: str):
    try:
        return posix.stat(file, dir_fd=place.fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def parse(name: str, data: bytes) -> tuple:
    """(The last Totals in it or None, [Run of each event]) of a journal's text."""
    totals, events = None, []
    for line in data.split(b"\n")[:-1]:  # what the last newline does not end is torn, or just being written
        if not line:
            continue
        try:
            event, when, rest = line.split(b" ", 2)
            if event == TOTALS:
                totals = parse_totals(rest)
            elif event in (STARTED, ENDED, SKIPPED, REFUSED):
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
        event=event, time=parse_time(when), start=parse_optional(fields, b"start", parse_time),
        waited=parse_optional(fields, b"waited", parse_time), ran=parse_optional(fields, b"ran", parse_time),
        code=parse_optional(fields, b"code", parse_int), is_timed_out=fields.get(b"timed-out") == b"1",
        is_lost=fields.get(b"lost") == b"1",
        why=parse_optional(fields, b"why", lambda text: decode(unquote(text))),
        uid=parse_int(fields[b"uid"]), host=decode(unquote(fields[b"host"])), launcher=parse_int(fields[b"launcher"]),
        child=parse_optional(fields, b"child", parse_int), mode=fields[b"mode"].decode(),
        slots=parse_int(fields[b"slots"]), take=parse_int(fields[b"take"]),
        slot=parse_optional(fields, b"slot", parse_int), token=parse_optional(fields, b"token", parse_int),
        names=names or [name], command=[unquote(word) for word in command.split(b" ")],
    )
    if run.mode not in MODES or run.event in (STARTED, ENDED) and None in (run.start, run.child, run.token):
        raise ValueError
    if run.event == ENDED and None in (run.ran, run.code) or run.event in (SKIPPED, REFUSED) and run.code is None:
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
    if min(counts) < 0:
        raise ValueError
    return Totals(*counts, parse_time(fields[b"last-success"]), parse_time(fields[b"last-failure"]))


def format_totals(totals: Totals) -> bytes:
    return (
        f"totals 0 runs={totals.runs} skips={totals.skips} failures={totals.failures}"
        f" last-success={totals.last_success:.3f} last-failure={totals.last_failure:.3f}\n"
    ).encode()


def rotate(place, journal: int) -> bool:
    """Let the full JOURNAL, open as `journal`, become PAST; False if it must stay for now. Raises OSError.

    SIGKILL at any moment leaves the same counts: those of PAST are written down before it goes. One at a time, as a second one
    would rename what the first has just begun.
    """
    if not may_rename(place, journal) or not try_lock(journal, LOCK_EX):
        return False
    stat = posix.fstat(journal)
    if stat.st_ino != find_inode(place, JOURNAL):
        return True  # someone else was faster
    tail = posix.pread(journal, TAIL, max(0, stat.st_size - TAIL))
    if parse("", tail.splitlines(True)[-1])[0] is None:  # else it was tried before, and the disk took it all
        line = b"\n" + format_totals(add_up(*parse("", read_journal(place, PAST)[0])))
        if posix.write(journal, line) < len(line):
            return False
    try:
        posix.rename(JOURNAL, PAST, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        return True
    except OSError:
        return False


def may_rename(place, journal: int) -> bool:
    """Another user's files can not be renamed in a directory with the sticky bit."""
    folder = posix.fstat(place.fd)
    return not folder.st_mode & STICKY or posix.geteuid() in (0, folder.st_uid, posix.fstat(journal).st_uid)


def add_up(totals, events: list) -> Totals:
    """`totals`, or None for nothing, and all `events` after them."""
    totals = totals or Totals()
    for event in events:
        totals.add(event)
    return totals
