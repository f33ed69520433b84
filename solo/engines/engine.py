"""The entries of a name, the records in them, and texts about an engine, as all engines share
them.
"""

import posix
from time import time

from solo.engines import json
from solo.engines.fields import NamedTuple
from solo.kernel import decode
from solo.modes import EXCLUSIVE, Claim
from solo.record import Record, check_claim, clean_note, parse_range, parse_seconds
from solo.text.describe import format_duration
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND_LIMIT = 1 << 10  # characters of JSON
LAST_WORD = 20  # characters kept of the word that exceeds the limit
SKEWED = 1.5  # seconds; some servers report their time in whole seconds
RENEWALS = 5  # in the life of a lease
LATE_PERIODS = 2  # periods: a renewal may fail once
OUTCOMES_KEPT = 100  # outcomes of a name
RECORD_VERSION = 1  # of an entry record: launchers of several versions may share an engine
# what Engine.examine says of two engines
RESTORED = "restoring a backup forgets locks, and SOLO_TOKEN may repeat"
# Exceptions that reading an invalid answer raises.
INVALID_ANSWER = (
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)


class Gone(Exception):
    """The engine reports that we no longer have our entry. The text is the engine's reason."""


class EntryRecord(NamedTuple):
    """The record of an entry's owner. `slot` is a list of (first, last), empty until slots are
    taken; `child` is None until the command runs. The stored text has the fields under these names.

    `since` is by this host's wall clock. The stored text has it by the engine's clock, which is
    ahead by `skew`, so that hosts with different clocks agree on how long ago it was.
    """

    claim: Claim
    slot: "list[tuple[int, int]]" = []
    host: str = ""
    user: str = ""
    launcher: "int | None" = None
    child: "int | None" = None
    since: "float | None" = None
    command: "tuple[str, ...]" = ()
    note: str = ""
    ttl: "float | None" = None  # of its lease; earlier versions do not store it

    def start(self, child: int) -> "EntryRecord":
        """Return the record of the same entry once its command runs, as `child`, from now on."""
        return self._replace(child=child, since=time())

    def format(self, skew: float = 0.0) -> bytes:
        claim, values = self.claim, dict(zip(self._fields[1:], self[1:]))
        values["since"] = None if self.since is None else self.since + skew
        if not self.note:
            del values["note"]
        known = {
            "solo": RECORD_VERSION,
            "mode": claim.mode,
            "slots": claim.slots,
            "take": claim.take,
            **values,
        }
        return json.dumps(known).encode()


def parse_entry_record(data: bytes, skew: float = 0.0) -> EntryRecord:
    """Return the record in `data`. Anything else, such as the data of another program, counts as an
    exclusive claim.
    """
    try:
        known = json.loads(data)
        launcher, child = (
            None if known[key] is None else int(known[key]) for key in ("launcher", "child")
        )
        return EntryRecord(
            check_claim(known["mode"], int(known["slots"]), int(known["take"])),
            [parse_range(b"%d-%d" % tuple(pair)) for pair in known["slot"]],
            str(known["host"]),
            str(known["user"]),
            launcher,
            child,
            parse_seconds(known["since"]) - skew,
            tuple(map(str, known["command"])),
            clean_note(str(known.get("note") or "")),
            parse_seconds(known["ttl"]) if known.get("ttl") else None,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return EntryRecord(Claim(EXCLUSIVE))


def cut(words: "Iterable[str]") -> "tuple[str, ...]":
    """Return the first words of a command, up to COMMAND_LIMIT characters of JSON."""
    kept, left = [], COMMAND_LIMIT
    for word in words:
        left -= len(json.dumps(word)) + 2
        if left < 0:
            kept.append(word[:LAST_WORD] + "…")
            break
        kept.append(word)
    return tuple(kept)


def make_entry_record(record: Record) -> EntryRecord:
    """Return the entry record of a local record, for other hosts to read."""
    command = cut(decode(word).encode("utf-8", "replace").decode() for word in record.command)
    host = record.origin.host
    user = find_user(record.uid)
    launcher = record.outermost[0]
    return EntryRecord(record.claim, [], host, user, launcher, None, time(), command, record.note)


class Entry(NamedTuple):
    """A contender's entry in the queue of `name`. As a Ticket's, `number` grows; `key` is the
    engine's own identifier.
    """

    name: str
    key: str
    number: int
    record: EntryRecord
    is_held: bool = False


class Renewal(NamedTuple):
    """The lease of an entry: renewed `age` seconds ago, it ends `left` seconds from now unless it
    is renewed. It is renewed each `period`.
    """

    age: float
    left: float
    period: float

    @property
    def is_late(self) -> bool:
        return self.age > LATE_PERIODS * self.period + SKEWED

    def describe(self) -> str:
        return f"last renewed {format_duration(self.age)} ago, free in {format_duration(self.left)}"


def make_renewal(left: "float | None", ttl: "float | None") -> "Renewal | None":
    """Return the Renewal of a lease that lives `ttl` seconds without one, of which so many are
    left; None if unknown.
    """
    return (
        Renewal(max(0.0, ttl - left), max(0.0, left), ttl / RENEWALS)
        if left is not None and ttl
        else None
    )


def describe_skew(server: float) -> "tuple[str, str]":
    """Return the line of Engine.examine about the server's wall clock, given in seconds since the
    epoch.
    """
    skew = server - time()
    order = "ahead of" if skew > 0 else "behind"
    return "ok" if abs(
        skew
    ) < SKEWED else "note", f"its clock is {abs(skew):.1f}s {order} this host's"


def pick_between(least: float, most: float) -> float:
    """Return a random number, so that waiters do not all ask at once."""
    return least + (most - least) * posix.urandom(1)[0] / 255
