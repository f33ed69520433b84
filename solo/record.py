"""Text <-> record: what a ticket says about its owner. Pure.

A record is lines of `key value`, the last of them `uptime` and `since`, then blanks. Once the
command's process is known, and before its exec, one write replaces those two and the blanks with
the closing lines: a record without them means that the command never started. A record in neither
form is damaged, and read as None.
"""

from solo.identity import Origin, Process
from solo.kernel import decode, encode, escape
from solo.kinds import NOTE_LIMIT
from solo.modes import MODES, SLOTS, Claim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # The pid and start of its holder; the device and inode of its file, the byte that is locked
    # there, its path.
    Descriptor = tuple[int, int, int, int, int, bytes]

MAGIC = b"solo 1"
END = b"end\n"
RESERVED = 48  # bytes: `child`, a pid, a start time of 20 digits, `end`
WORDS_LIMIT = 256 * 1024  # bytes of quoted words; more are cut, with an ellipsis
RECORD_LIMIT = 3 * WORDS_LIMIT
LATEST = 1 << 37  # seconds since the epoch: about the year 6300; every library can format it
SPECIAL = bytes(range(33)) + b"%\x7f"
ELLIPSIS = "…".encode()


class Record:
    """The text of a ticket, which describes its owner. Processes are (pid, start) in `origin`.

    A field that not every record has is an attribute with its default here, and a row of OPTIONAL.
    """

    tree: "float | None" = None  # with --tree: seconds from SIGTERM to SIGKILL for descendants
    # when the ticket was made and, once `child` is known, when the command started
    since = 0.0  # in seconds since the epoch
    uptime: "float | None" = None  # the same on the boot clock
    child: "Process | None" = None  # the command, once it has started
    via = ""  # the engine that keeps the lock beyond this machine
    # for which `solo hold` acquires: once it is the child too, the hold is kept, and its launcher
    # has ended
    keep: "Process | None" = None
    outer: "Process | None" = None  # with --tree: above the launcher (process/pair.py)
    is_alone = False  # `outer` was killed
    is_timed = False  # `keep` is the timer of --for
    # a holder (process/holder.py) keeps the ticket locked until `keep` has ended, or with --fd
    # until the descriptor is closed everywhere
    is_guarded = False
    descriptor: "Descriptor | None" = None  # of --fd
    is_generated = False  # solo made the names from the command
    retained: "list[int] | None" = None  # the holds that a program keeps while it waits; None: all
    note = ""  # the text of --note
    is_captured = False  # it runs with --capture, which only the journal says

    def __init__(
        self,
        launcher: "Process",
        origin: Origin,
        uid: int,
        claim: Claim,
        names: "list[str]",
        command: "list[bytes]",
    ) -> None:
        self.launcher = launcher
        self.origin = origin
        self.uid = uid
        self.claim = claim  # on this name, one of those needed for all of `names`
        self.names = names
        self.command = command
        self.slot: list[tuple[int, int]] = []  # (first, last)

    @property
    def shown_names(self) -> "list[str]":
        """The names that people see: of a pair that solo made, only the name of the words as
        typed.
        """
        return self.names[:1] if self.is_generated else self.names

    @property
    def is_pair(self) -> bool:
        return self.is_generated and len(self.names) > 1

    def retains(self, number: int) -> bool:
        """Return whether a process that waits by this ticket keeps its hold `number` meanwhile."""
        return self.retained is None or number in self.retained

    @property
    def is_kept(self) -> bool:
        return self.keep is not None and self.child is not None

    @property
    def holder(self) -> "Process":
        """The process that a user knows as the holder: the one that was started, or the process of
        a kept hold.
        """
        if self.keep is not None and self.child is not None:
            return self.child
        return self.launcher if self.is_alone else self.outermost

    @property
    def outermost(self) -> "Process":
        """The process that the caller started: the launcher, with --tree the one above it. It may
        have been killed.
        """
        return self.outer or self.launcher

    def claiming(self, claim: Claim) -> "Record":
        """Return a copy that differs in the claim, without slots and child."""
        record = Record.__new__(Record)
        vars(record).update(vars(self), claim=claim, slot=[], child=None)
        return record


def format_record(record: Record) -> bytes:
    """Return the text of a record whose command has not started."""
    origin, claim = record.origin, format_claim(record.claim, record.slot)
    optional = b""
    for key, (name, write, _) in OPTIONAL.items():
        value = getattr(record, name)
        if value != getattr(Record, name):
            optional += b"%b %b\n" % (key, write(value))
    return b"%b\n%b%bhost %b\nnames %b\ncommand %b\n%b%b\n" % (
        MAGIC,
        f"launcher {record.launcher[0]} {record.launcher[1]}\n"
        f"boot {origin.boot}\npid-namespace {origin.pid_namespace}\ntime-namespace "
        f"{origin.time_namespace}\nshift {origin.shift}\n"
        f"uid {record.uid}\n{claim}tree {format_tree(record.tree)}\n".encode(),
        optional,
        quote(encode(origin.host)),
        quote_words(map(encode, record.names)),
        quote_words(record.command),
        format_since(record),
        b" " * (RESERVED - 1),
    )


def format_claim(claim: Claim, slot: "list[tuple[int, int]]") -> str:
    """Return the lines of a claim and its slots."""
    if claim.mode != SLOTS:
        return f"mode {claim.mode}\n"
    ranges = " ".join([f"{first}-{last}" for first, last in slot])
    return f"mode {claim.mode}\nslots {claim.slots}\ntake {claim.take}\nslot {ranges}\n"


def format_tree(tree: "float | None") -> str:
    """Return the milliseconds of `tree`, or - for None."""
    return "-" if tree is None else f"{min(tree, LATEST) * 1000:.0f}"


def parse_tree(text: str) -> "float | None":
    return None if text == "-" else int(text) / 1000


def format_since(record: Record) -> bytes:
    """Return the lines of the two clocks. Their length is the same for every time since 1970."""
    uptime = b"" if record.uptime is None else b"uptime %017.6f\n" % record.uptime
    return b"%bsince %017.6f\n" % (uptime, record.since)


def format_start(record: Record, child: "Process") -> bytes:
    """Return the text that replaces the end of a record when its command starts, from the clocks
    on.
    """
    return format_since(record) + format_closing(child)


def format_closing(child: "Process") -> bytes:
    """Return the text for the last RESERVED bytes: the command's process, and the end."""
    return f"child {child[0]} {child[1]}".encode().ljust(RESERVED - len(END) - 1) + b"\n" + END


def parse_record(data: bytes) -> "Record | None":
    """Return the record in `data`, or None if it is damaged."""
    try:
        head, tail = data[:-RESERVED], data[-RESERVED:]
        magic, *lines, rest = head.split(b"\n")
        if magic != MAGIC or rest:
            return None
        fields = dict(line.split(b" ", 1) for line in lines)
        boot, pids, clock = [
            fields[key].decode() for key in (b"boot", b"pid-namespace", b"time-namespace")
        ]
        origin = Origin(boot, pids, clock, parse_text(fields[b"host"]), int(fields[b"shift"]))
        launcher = parse_process(fields[b"launcher"])
        claim = parse_claim(fields)
        words = [unquote(word) for word in fields[b"command"].split(b" ")]
        names = [parse_text(name) for name in fields[b"names"].split(b" ")]
        record = Record(launcher, origin, int(fields[b"uid"]), claim, names, words)
        record.tree = parse_tree(fields[b"tree"].decode())
        record.since = parse_seconds(fields[b"since"])
        record.child = parse_closing(tail)
        record.slot = [parse_range(text) for text in fields.get(b"slot", b"").split()]
        record.uptime = parse_seconds(fields[b"uptime"]) if b"uptime" in fields else None
        for key in OPTIONAL.keys() & fields.keys():
            name, _, read = OPTIONAL[key]
            setattr(record, name, read(fields[key]))
        record.is_guarded |= record.descriptor is not None
        return record
    except (ValueError, KeyError, OverflowError):
        return None


def parse_claim(fields: "dict[bytes, bytes]") -> Claim:
    mode = fields[b"mode"].decode()
    return (
        check_claim(mode, int(fields[b"slots"]), int(fields[b"take"]))
        if mode == SLOTS
        else check_claim(mode)
    )


def check_claim(mode: str, slots: int = 1, take: int = 1) -> Claim:
    """Return the Claim that was read. Raises ValueError if solo does not write such a one."""
    if mode not in MODES or not 1 <= take <= slots:
        raise ValueError
    return Claim(mode, slots, take)


def parse_text(text: bytes) -> str:
    return decode(unquote(text))


def parse_note(text: bytes) -> str:
    return clean_note(unquote(text).decode("utf-8", "backslashreplace"))


def clean_note(text: str) -> str:
    """Return the note of somebody's record as --note would accept it: escaped, and cut to
    NOTE_LIMIT.
    """
    text = escape(text[: NOTE_LIMIT + 1])
    return text if len(text) <= NOTE_LIMIT else text[: NOTE_LIMIT - 1] + "…"


def parse_range(text: bytes) -> "tuple[int, int]":
    first, last = map(int, text.split(b"-"))
    if not 0 <= first <= last:
        raise ValueError
    return first, last


def parse_seconds(text: bytes) -> float:
    """Return a time or a span that a library can format. Raises ValueError."""
    if not 0 <= float(text) < LATEST:
        raise ValueError
    return float(text)


def parse_closing(tail: bytes) -> "Process | None":
    if tail == b" " * (RESERVED - 1) + b"\n":
        return None
    line, end = tail[: -len(END)], tail[-len(END) :]
    if end != END or not line.startswith(b"child "):
        raise ValueError
    return parse_process(line[len(b"child ") :])


def parse_process(text: bytes) -> "Process":
    pid, start = map(int, text.split())
    if not 0 < pid < 1 << 31 or start < 0:
        raise ValueError
    return pid, start


def format_descriptor(descriptor: "Descriptor") -> bytes:
    return b"%d %d %d %d %d %b" % (*descriptor[:-1], quote(descriptor[-1]))


def parse_descriptor(text: bytes) -> "Descriptor":
    *numbers, path = text.split(b" ")
    pid, start, device, inode, offset = map(int, numbers)
    if not 0 < pid < 1 << 31 or not 0 <= offset < 1 << 63:
        raise ValueError
    return pid, start, device, inode, offset, unquote(path)


FLAG = (b"%d".__mod__, bool)
PROCESS = (b"%d %d".__mod__, parse_process)
# The lines of what not every record has, by key: the attribute, how its value is written and read.
# One that has the default of the attribute has no line.
OPTIONAL: "dict[bytes, tuple[str, Callable[..., bytes], Callable[[bytes], object]]]" = {
    b"via": ("via", lambda via: quote(encode(via)), parse_text),
    b"keep": ("keep", *PROCESS),
    b"outer": ("outer", *PROCESS),
    b"timed": ("is_timed", *FLAG),
    b"guarded": ("is_guarded", *FLAG),
    b"descriptor": ("descriptor", format_descriptor, parse_descriptor),
    b"generated": ("is_generated", *FLAG),
    b"retained": (
        "retained",
        lambda numbers: " ".join(map(str, numbers)).encode(),
        lambda text: list(map(int, text.split())),
    ),
    b"note": ("note", lambda note: quote(note.encode()), parse_note),
}


def quote_words(plain: "Iterable[bytes]", limit: int = WORDS_LIMIT) -> bytes:
    """Return the words, quoted, with blanks between them; after `limit` bytes an ellipsis replaces
    the last word.
    """
    plain = list(plain)
    text = b" ".join(plain)
    if len(text) < limit and len(text.translate(None, SPECIAL)) == len(text) - len(plain) + 1:
        return text  # nothing in it needs quotes
    words = []
    size = 0
    for word in plain:
        words.append(quote(word))
        size += len(words[-1]) + 1
        if size > limit:
            words[-1] = ELLIPSIS
            break
    return b" ".join(words)


def quote(word: bytes) -> bytes:
    """Return the word with %XX for blanks, control characters and %."""
    if word.translate(None, SPECIAL) == word:
        return word
    return b"".join(b"%%%02X" % byte if byte in SPECIAL else b"%c" % byte for byte in word)


def unquote(word: bytes) -> bytes:
    """Return the word that `quote` was called with. Raises ValueError if a %XX is invalid."""
    if b"%" not in word:
        return word
    first, *rest = word.split(b"%")
    if not all(len(part) > 1 and part[:2].isalnum() for part in rest):
        raise ValueError  # int() would accept a torn 2, and +5
    return first + b"".join(bytes((int(part[:2], 16),)) + part[2:] for part in rest)
