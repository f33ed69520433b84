"""The journal of a name: what ran and what was turned away, a line an event, each appended by one write.

Never a reason for a job to fail: what can not be written is not, and only --verbose tells. The journals are in a FOLDER beside
the locks, but root's in DURABLE_PLACE, as /run is empty after a boot. In a sticky directory each user has a FOLDER of its own,
which nobody else can read or write. Whoever finds one full renames it; history.py does that,
and reads them.
"""

import posix
from time import monotonic, time

from solo.errors import LEASE_LOST, TIMED_OUT, Busy, SoloError
from solo.kernel import EFBIG, ENOSPC, close, encode
from solo.directories import PRIVATE, ROOT_PLACE, STICKY, Place, find_base, make_directory, open_base, open_below, open_file, open_parts, split_name
from solo.record import quote, quote_words

DURABLE_PLACE = "/var/lib/solo"
FOLDER = ".journals"  # no name starts with a dot
JOURNAL = ".journal"
SIZE_LIMIT = 1 << 20  # bytes; there it is renamed, and the one before it goes
LARGEST = 2 * SIZE_LIMIT  # bytes, of one that can not be renamed: then nothing more is written
WORDS_LIMIT = 1 << 10  # bytes, of the command, of the names and of the reason in one line
STARTED, ENDED, SKIPPED, REFUSED = b"started", b"ended", b"skipped", b"refused"


class Journal:
    """What a launcher with this `record` tells the journals of all its names.

    `directory` is --dir; `tell` hears of what goes wrong. `waiting_since` and `running_since` are on the monotonic clock.
    """

    __slots__ = ("directory", "record", "running_since", "start", "tell", "tokens", "waiting_since")

    def __init__(self, record, directory, tell):
        self.record = record
        self.directory = directory
        self.tell = tell
        self.waiting_since = monotonic()
        self.running_since = 0.0
        self.start = b""
        self.tokens = {}

    def tell_start(self, holds: dict, child: int):
        """The command runs, as pid `child`, under `holds`, one a name."""
        self.running_since = monotonic()
        self.start = b" start=%.3f waited=%.3f child=%d" % (time(), self.running_since - self.waiting_since, child)

        def describe() -> bytes:
            self.tokens = {name: format_token(holds[name]) for name in self.record.names}
            return self.start

        self.append_all(STARTED, describe)

    def tell_end(self, code: int, outcome):
        """It ended, with the exit status `code` or of the signal -`code`; `outcome` is TIMED_OUT, LEASE_LOST, or None: by itself.
        """
        ran = monotonic() - self.running_since
        self.append_all(ENDED, lambda: b"%b ran=%.3f code=%d timed-out=%d%b" % (
            self.start, ran, code, outcome == TIMED_OUT, b" lost=1" if outcome == LEASE_LOST else b""))

    def tell_error(self, error: SoloError):
        """Nothing ran."""
        waited = monotonic() - self.waiting_since
        event = SKIPPED if isinstance(error, Busy) else REFUSED
        self.append_all(event, lambda: b" waited=%.3f code=%d why=%b" % (waited, error.status, format_reason(str(error))))

    def append_all(self, event: bytes, describe):
        """A line in the journal of each name. Whatever goes wrong: the job must not hear of it."""
        try:
            self.append_lines(event, describe())
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.tell(f"{self.record.names[0]}: the journal is not written: {reason}")

    def append_lines(self, event: bytes, details: bytes):
        record, claim = self.record, self.record.claim
        common = b"uid=%d host=%b launcher=%d mode=%b slots=%d take=%d%b%b" % (
            record.uid, quote(encode(record.world.host)), record.launcher[0], encode(claim.mode), claim.slots, claim.take,
            format_names(record.names), details,
        )
        command = quote_words(record.command, WORDS_LIMIT)
        failed = None
        for name in record.names:
            line = b"%b %.3f %b%b command=%b\n" % (event, time(), common, self.tokens.get(name, b""), command)
            try:
                place = make_place(self.directory, name) if event == STARTED or not self.start else open_place(self.directory, name)
                append(place, line, event != STARTED)
            except (OSError, SoloError) as error:
                failed = error
        if failed is not None:
            raise failed


def format_token(hold) -> bytes:
    slot = hold.record.slot
    return b" token=%d" % hold.number + (b" slot=%d" % slot[0][0] if slot else b"")


def format_names(names: list) -> bytes:
    """Those of a run that has several. Each journal has them: in all they must not grow by the square."""
    if len(names) == 1:
        return b""
    return b"".join([b" name=" + name for name in quote_words(map(encode, names), WORDS_LIMIT).split(b" ")])


def format_reason(text: str) -> bytes:
    try:
        return quote(encode(text[:WORDS_LIMIT]))
    except UnicodeEncodeError:  # the locale has no ellipsis
        return quote(text[:WORDS_LIMIT].encode("ascii", "backslashreplace"))


def find_journals(directory, *names) -> tuple:
    """Where the journal of one name in --dir `directory` is, or without one all are: (path, directories below it, whether others
    may write there).
    """
    path, parts = find_base(directory), [part for name in names for part in split_name(name)]
    is_roots = path == ROOT_PLACE or directory and is_same(path, ROOT_PLACE)
    return (DURABLE_PLACE, parts, False) if is_roots else (path, [FOLDER, *parts], bool(directory))


def is_same(path: str, other: str) -> bool:
    """Do both lead to one file?"""
    try:
        one, two = posix.stat(path), posix.stat(other)
        return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
    except OSError:
        return path.rstrip("/") == other


def make_place(directory, *names):
    """Open the directory of the journal of one name, or without one that of all; made if it is missing. Raises SoloError."""
    path, parts, may_be_shared = find_journals(directory, *names)
    try:
        base = open_base(path, may_be_shared)
    except FileNotFoundError:
        make_directory(path)
        base = open_base(path, may_be_shared)
    try:
        return open_parts(*choose_own(base, parts))
    finally:
        close(base.fd)


def open_place(directory, *names):
    """The same without making anything. Raises SoloError, FileNotFoundError."""
    path, parts, may_be_shared = find_journals(directory, *names)
    return open_below(*choose_own(open_base(path, may_be_shared), parts))


def choose_own(base, parts: list) -> tuple:
    """`base` and `parts`, or in a sticky directory those of our own journals: others could write in common ones, or lock them."""
    if not base.mode & STICKY:
        return base, parts
    return Place(base.fd, base.path, PRIVATE, False), [f"{FOLDER}.{posix.geteuid()}", *parts[1:]]


def append(place, line: bytes, may_rotate: bool = True):
    """Append a whole line to the journal in `place`, which is closed. Raises OSError."""
    journal = -1
    try:
        journal = open_journal(place)
        size = posix.fstat(journal).st_size
        if size >= SIZE_LIMIT and may_rotate:
            from solo.history.reader import rotate

            if rotate(place, journal):
                close(journal)
                journal = -1
                journal = open_journal(place)
                size = posix.fstat(journal).st_size
        if size >= LARGEST:
            raise OSError(EFBIG, "it is full, and can not be renamed")
        if size and posix.pread(journal, 1, size - 1) != b"\n":
            line = b"\n" + line  # after what a full disk or a power loss tore
        if posix.write(journal, line) < len(line):
            raise OSError(ENOSPC, "only a part of a line was written")
    finally:
        if journal >= 0:
            close(journal)
        close(place.fd)


def open_journal(place) -> int:
    return open_file(place, JOURNAL, posix.O_RDWR | posix.O_APPEND)
