"""The kinds of values that options have: each is one object that says how a value is read,
completed and tested.
"""

import _signal
import posix

from solo.errors import UsageError
from solo.kernel import FOREVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NOTE_LIMIT = 200  # characters
SIGNAL_ALIASES = ("SIGCLD", "SIGIOT", "SIGPOLL")
UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0))

WHEN = ("failed", "keep")  # of --capture
SIZES = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
USUAL_CAPTURE, LARGEST_CAPTURE = 1 << 16, 1 << 30  # bytes

# of --notify-on
EVENTS = FAILED, SKIPPED, OVERDUE, ENDED, STARTED = (
    "failed", "skipped", "overdue", "ended", "started",
)  # fmt: skip
USUAL_EVENTS = EVENTS[:3]


class Kind:
    """`read(flag, text)` returns a value, and raises UsageError. `completes` names what the shells
    offer for it, see packaging/tables.py. `sample` is a value that is valid beside every other
    option, for the tests.
    """

    __slots__ = ("completes", "read", "sample")

    def __init__(
        self, read: "Callable[[str, str], object]", completes: str = "nothing", sample: str = ""
    ) -> None:
        self.read = read
        self.completes = completes
        self.sample = sample


def read_word(flag: str, text: str) -> str:
    if text == "":
        raise UsageError(f"{flag} needs a value, not an empty word (is a variable unset?)")
    return text


def read_duration(flag: str, text: str) -> float:
    """Return the seconds in `500ms`, `30`, `30s`, `5m`, `1h30m`, `2d`, `forever`."""
    if text == "forever":
        return FOREVER
    if is_number(text):
        return float(text)
    seconds, rest = 0.0, text
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        number, tail = rest[:digits], rest[digits:]
        for unit, factor in UNITS:
            if tail.startswith(unit) and is_number(number):
                seconds += float(number) * factor
                rest = tail[len(unit) :]
                break
        else:
            break
    if rest or not text:
        raise UsageError(
            f"{flag} {text}: not a duration (like 500ms, 30s, 5m, 1h30m, 2d or forever)"
        )
    return seconds


def read_age(flag: str, text: str) -> float:
    """Read a duration of hours or days: refuse 24 for 24h, or 30 for 30d."""
    if is_number(text) and float(text):
        raise UsageError(f"{flag} {text}: needs a unit (like {text}h, {text}d or {text}s)")
    return read_duration(flag, text)


def is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def is_count(text: str, most: int = 9) -> bool:
    """Return whether a text is a number of at most so many digits."""
    return text.isascii() and text.isdigit() and len(text) <= most


def read_count(flag: str, text: str) -> int:
    if is_count(text):
        return int(text)
    raise UsageError(f"{flag} {text}: not a number (0 to 999999999)")


def read_limit(flag: str, text: str) -> "int | float":
    """Return a count, an int, or a duration, a float."""
    if text[:1].isalpha() and text != "forever":
        raise UsageError(f"{flag} {text}: not a number, nor a duration (like 3, 30s, 6h)")
    return read_count(flag, text) if text.isdigit() else read_duration(flag, text)


def read_status(flag: str, text: str) -> int:
    if is_count(text, 3) and int(text) <= 255:
        return int(text)
    raise UsageError(f"{flag} {text}: not an exit status (0 to 255)")


def list_signals() -> "dict[str, int]":
    """Return {name: number} of every signal with a name. Python's module signal could, but takes 3
    ms to load.
    """
    return {
        name: getattr(_signal, name)
        for name in dir(_signal)
        if name[:3] == "SIG" and name[3:4] != "_"
    }


def name_signal(number: int) -> str:
    """Return `SIGKILL` for 9."""
    names = [
        name
        for name, value in list_signals().items()
        if value == number and name not in SIGNAL_ALIASES
    ]
    return names[0] if names else f"signal {number}"


def read_signal(flag: str, text: str) -> int:
    """Return the number of `INT`, `sigint` or `2`."""
    name = text.upper()
    named = list_signals().get(f"SIG{name.removeprefix('SIG')}")
    number = int(text) if is_count(text, 2) else named
    if number in _signal.valid_signals():
        return number
    raise UsageError(f"{flag} {text}: not a signal (like INT, SIGHUP or 10)")


def read_pid(flag: str, text: str) -> int:
    if text == "parent":
        return posix.getppid()
    if is_count(text) and int(text) > 0:
        return int(text)
    raise UsageError(f"{flag} {text}: not a process id")


def read_note(flag: str, text: str) -> str:
    """Return a text of one line that cannot control a terminal."""
    if (
        not isinstance(text, str)
        or not text.strip()
        or len(text) > NOTE_LIMIT
        or not text.isprintable()
    ):
        raise UsageError(f"{flag} must be one line of 1 to {NOTE_LIMIT} printable characters")
    return text


def read_capture(flag: str, text: str) -> "tuple[bool, int]":
    """Return (whether the output of a failed run is printed, how many bytes of it) of `failed` or
    `keep,1M`.
    """
    when, comma, size = text.partition(",")
    number, unit = (size[:-1], size[-1:]) if size[-1:] in SIZES else (size, "")
    if when not in WHEN:
        raise UsageError(f"{flag} {text}: not {' or '.join(WHEN)}")
    if not comma:
        return when == WHEN[0], USUAL_CAPTURE
    count = int(number) * SIZES[unit] if is_count(number, 10) else 0
    if not SIZES["k"] <= count <= LARGEST_CAPTURE:
        raise UsageError(f"{flag} {text}: not a size from 1k to 1G (like 64k or 1M)")
    return when == WHEN[0], count


def read_events(flag: str, text: str) -> "list[str]":
    """Return the events in `failed,ended`."""
    events = text.split(",")
    for event in events:
        if event not in EVENTS:
            raise UsageError(f"{flag} {text}: not of {','.join(EVENTS)}")
    return events


FLAG = Kind(lambda flag, text: True, "")  # has no value
NAME = Kind(read_word, "names", "job")
BACKEND = Kind(read_word, "backends", "socket")
DIRECTORY = Kind(read_word, "directories", "elsewhere")
FILE = Kind(read_word, "files", "a_file")
DURATION = Kind(read_duration, sample="30s")
AGE = Kind(read_age, sample="1d")
COUNT = Kind(read_count, sample="2")
LIMIT = Kind(read_limit, sample="6h")
STATUS = Kind(read_status, sample="3")
SIGNAL = Kind(read_signal, "signals", "INT")
PID = Kind(read_pid, sample="1")
NOTE = Kind(read_note, sample="migration until noon")
LINE = Kind(read_word, sample="echo $SOLO_OUTCOME")  # for the shell
CAPTURE = Kind(read_capture, sample="failed,1M")
ON = Kind(read_events, sample="failed,started")
