"""The journal of a name: one line per event, each appended by one write(2).

A journal never makes a job fail: a line that cannot be written is dropped, and only --verbose
reports it. history/reader.py reads journals, and rotates a full one.
"""

import posix
from time import monotonic, time

from solo import journal_files as files
from solo.errors import LEASE_LOST, TIMED_OUT, Busy, SoloError
from solo.journal_files import make_place, open_journal, open_place
from solo.kernel import CLOSED, EFBIG, ENOSPC, close, encode
from solo.record import Record, quote, quote_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from solo.directories import Directory
    from solo.launcher import Run
    from solo.tickets import Ticket

FIELD_LIMIT = 1 << 10  # bytes, of the command, of the names and of the reason in one line


class Observer:
    """Hears of a run, and reports it; it acquires and releases nothing. No method raises.

    `descriptors` stay open while the command runs. `run` is that of an observer from the command
    line, None until there is one.
    """

    descriptors: "tuple[int, ...]" = ()
    run: "Run | None" = None

    def refused(self, error: SoloError) -> None:
        """Nothing ran, because of `error`; all is released."""

    def started(self, run: "Run") -> None:
        """The command runs."""

    def ended(self, run: "Run") -> None:
        """The command has ended, and all is released."""

    def unnotified(self, reason: str) -> None:
        """A command of --notify failed."""


class Journal(Observer):
    """Writes the events of a launcher with this `record` to the journals of all its names, below
    `directory` (--dir).

    `report` is called with each problem. `waiting_since` and `running_since` are on the monotonic
    clock.
    """

    title = "the journal"
    clock = staticmethod(time)

    def __init__(
        self, record: Record, directory: "str | None", report: "Callable[[str], None]"
    ) -> None:
        self.record = record
        self.directory = directory
        self.report = report
        self.waiting_since = monotonic()
        self.running_since = 0.0
        self.start = b""
        self.tokens: dict[str, bytes] = {}

    def started(self, run: "Run") -> None:
        assert run.pid
        self.write_start(run.pid, run.named)

    def write_start(self, child: int, named: "Mapping[str, Ticket]") -> None:
        """Write that the command runs as `child`, under these holds by name."""

        def describe() -> bytes:
            self.begin(
                child,
                monotonic(),
                {name: format_token(named[name]) for name in self.record.shown_names},
            )
            return self.start

        self.append_all(files.STARTED, describe)

    def begin(self, child: int, since: float, tokens: "dict[str, bytes]") -> None:
        """Note that the command runs as `child` since that moment of the monotonic clock."""
        self.running_since = since
        self.tokens = tokens
        waited, start = since - self.waiting_since, self.clock() - (monotonic() - since)
        self.start = b" start=%.3f waited=%.3f child=%d" % (start, waited, child)

    def ended(self, run: "Run") -> None:
        """Write that it ended, with exit status `run.code` or by signal -`run.code`; or that it was
        never executed.
        """
        if run.process.is_refused:
            why = format_reason(f"{run.command[0]}: not executed")
            return self.append_all(
                files.REFUSED, lambda: self.start + b" code=%d why=%b" % (run.code, why)
            )
        result = monotonic() - self.running_since, run.code, run.outcome == TIMED_OUT
        lost = b" lost=1" if run.outcome == LEASE_LOST else b""
        self.append_all(
            files.ENDED, lambda: self.start + b" ran=%.3f code=%d timed-out=%d" % result + lost
        )

    def refused(self, error: SoloError) -> None:
        """Write that nothing ran, because of `error`."""
        result = monotonic() - self.waiting_since, error.status
        event = files.SKIPPED if isinstance(error, Busy) else files.REFUSED
        self.append_all(
            event, lambda: b" waited=%.3f code=%d why=" % result + format_reason(str(error))
        )

    def unnotified(self, reason: str) -> None:
        """Write that --notify failed, because of `reason`."""
        self.append_all(files.UNNOTIFIED, lambda: b" why=" + format_reason(reason))

    def append_all(self, event: bytes, describe: "Callable[[], bytes]") -> None:
        """Append a line to the journal of each name. Report an exception of any kind: the job must
        go on.
        """
        try:
            self.append_lines(event, describe())
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.report(f"{self.record.names[0]}: {self.title} is not written: {reason}")

    def append_lines(self, event: bytes, details: bytes) -> None:
        record, claim = self.record, self.record.claim
        host, mode = quote(encode(record.origin.host)), encode(claim.mode)
        owner = b"uid=%d host=%b launcher=%d" % (record.uid, host, record.outermost[0])
        common = b"%b mode=%b slots=%d take=%d" % (owner, mode, claim.slots, claim.take)
        if record.keep:
            common += b" kept=1"
        if record.is_generated:
            common += b" generated=1"
        if record.is_captured:
            common += b" captured=1"
        if len(record.shown_names) > 1:  # the journal of each name has them all, up to a limit
            names = quote_words(map(encode, record.shown_names), FIELD_LIMIT).split(b" ")
            common += b"".join([b" name=" + name for name in names])
        common += details
        if record.note:
            common += b" note=" + quote(record.note.encode())
        command = quote_words(record.command, FIELD_LIMIT)
        failed, now = None, self.clock()
        for name in record.shown_names:
            line = b"%b %.3f %b%b command=%b\n" % (
                event,
                now,
                common,
                self.tokens.get(name, b""),
                command,
            )
            try:
                self.write(name, event, line)
            except (OSError, SoloError) as error:
                failed = error
        if failed is not None:
            raise failed

    def write(self, name: str, event: bytes, line: bytes) -> None:
        is_first = event == files.STARTED or not self.start
        append(
            (make_place if is_first else open_place)(self.directory, name),
            line,
            event != files.STARTED,
        )


def format_token(hold: "Ticket") -> bytes:
    slot = hold.record and hold.record.slot
    return b" token=%d" % hold.number + (b" slot=%d" % slot[0][0] if slot else b"")


def format_reason(text: str) -> bytes:
    try:
        return quote(encode(text[:FIELD_LIMIT]))
    except UnicodeEncodeError:  # the locale has no ellipsis
        return quote(text[:FIELD_LIMIT].encode("ascii", "backslashreplace"))


def append(place: "Directory", line: bytes, may_rotate: bool = True) -> None:
    """Append a whole line to the journal in `place`, and close `place`. Raises OSError."""
    journal = CLOSED
    try:
        journal = open_journal(place)
        size = posix.fstat(journal).st_size
        if size >= files.SIZE_LIMIT and may_rotate:
            from solo.history.reader import rotate

            if rotate(place, journal):
                close(journal)
                journal = CLOSED
                journal = open_journal(place)
                size = posix.fstat(journal).st_size
        if size >= files.JOURNAL_LIMIT:
            raise OSError(EFBIG, "it is full and cannot be renamed")
        if size and posix.pread(journal, 1, size - 1) != b"\n":
            line = b"\n" + line  # a full disk or a power loss tore the line before
        if posix.write(journal, line) < len(line):
            raise OSError(ENOSPC, "only a part of a line was written")
    finally:
        close(journal)
        close(place.fd)
