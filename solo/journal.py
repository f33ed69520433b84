"""The journal of a name: what ran and what was turned away, a line an event, each appended by one write.

Never a reason for a job to fail: what can not be written is not, and only --verbose tells. The journals are in a FOLDER beside
the locks, but root's in DURABLE_PLACE, as /run is empty after a boot. Whoever finds one full renames it; history.py does that,
and reads them.
"""

import posix
from time import monotonic, time

from solo.errors import Busy, SoloError
from solo.kernel import close, encode
from solo.places import ROOT_PLACE, find_base, make_base, open_file, open_parts, split_name
from solo.record import quote, quote_words

DURABLE_PLACE = "/var/lib/solo"
FOLDER = ".journals"  # no name starts with a dot
JOURNAL = ".journal"
SIZE_LIMIT = 1 << 20  # bytes; there it is renamed, and the one before it goes
COMMAND_LIMIT = 1 << 10  # bytes
STARTED, ENDED, SKIPPED, REFUSED = b"started", b"ended", b"skipped", b"refused"


class Journal:
    """What a launcher with this `record` tells the journals of all its names; it waits from when this is made to `tell_start`.

    `directory` is --dir; `tell` hears of what goes wrong.
    """

    __slots__ = ("begin", "directory", "record", "start", "tell", "tokens")

    def __init__(self, record, directory, tell):
        self.record = record
        self.directory = directory
        self.tell = tell
        self.begin = monotonic()
        self.start = b""
        self.tokens = {}

    def tell_start(self, holds: dict, child: int):
        """The command runs, as pid `child`, under `holds`, one a name."""
        waited = monotonic() - self.begin
        self.begin += waited
        self.start = b" start=%.3f waited=%.3f child=%d" % (time(), waited, child)
        self.tokens = {name: format_token(holds[name]) for name in self.record.names}
        self.append(STARTED, self.start)

    def tell_end(self, code: int, is_timed_out: bool):
        """It ended, with the exit status `code` or of the signal -`code`."""
        self.append(ENDED, b"%b ran=%.3f code=%d timed-out=%d" % (self.start, monotonic() - self.begin, code, is_timed_out))

    def tell_error(self, error: SoloError):
        """Nothing ran."""
        event = SKIPPED if isinstance(error, Busy) else REFUSED
        self.append(event, b" waited=%.3f code=%d why=%b" % (monotonic() - self.begin, error.status, quote(encode(str(error)))))

    def append(self, event: bytes, details: bytes):
        record, claim, names = self.record, self.record.claim, b""
        if len(record.names) > 1:
            names = b"".join([b" name=" + quote(encode(name)) for name in record.names])
        common = b"uid=%d host=%b launcher=%d mode=%b slots=%d take=%d%b%b" % (
            record.uid, quote(encode(record.world.host)), record.launcher[0], encode(claim.mode), claim.slots, claim.take, names,
            details,
        )
        command = quote_words(record.command, COMMAND_LIMIT)
        for name in record.names:
            line = b"%b %.3f %b%b command=%b\n" % (event, time(), common, self.tokens.get(name, b""), command)
            try:
                append(self.directory, name, line)
            except Exception as error:  # whatever it is: the job must not hear of it
                reason = error.strerror if isinstance(error, OSError) else error
                self.tell(f"{name}: the journal is not written: {reason}")


def format_token(hold) -> bytes:
    slot = hold.record.slot
    return b" token=%d" % hold.number + (b" slot=%d" % slot[0][0] if slot else b"")


def find_journals(directory) -> tuple:
    """Where the journals for names in --dir `directory` are: (the --dir of that, the directories below it)."""
    return (DURABLE_PLACE, []) if find_base(directory) == ROOT_PLACE else (directory, [FOLDER])


def append(directory, name: str, line: bytes):
    """One more line in the journal of `name`. Raises OSError, SoloError."""
    asked, parts = find_journals(directory)
    base = make_base(asked)
    place, journal = None, -1
    try:
        place = open_parts(base, parts + split_name(name))
        journal = open_journal(place)
        size = posix.fstat(journal).st_size
        if size >= SIZE_LIMIT:
            from solo.history import rotate

            if rotate(place, journal, size):
                close(journal)
                journal = open_journal(place)
                size = 0
        if size and posix.pread(journal, 1, size - 1) != b"\n":
            line = b"\n" + line  # after what a full disk or a power loss tore
        posix.write(journal, line)
    finally:
        close(base.fd)
        if place is not None:
            close(place.fd)
        if journal >= 0:
            close(journal)


def open_journal(place) -> int:
    return open_file(place, JOURNAL, posix.O_RDWR | posix.O_APPEND)
