"""The interface of an engine and the types in it: Engine, Entry, EntryRecord.

An engine keeps a queue for each name. Each contender in it has an entry, which lives as long as its owner's lease. A
lease has to be renewed: `ttl` seconds after the last renewal the engine gives the name to the next waiter, even if
the owner's command still runs. lease.py guarantees that the command is dead by then; an engine never has to.
"""

import posix
from time import time

from solo.engines import json
from solo.errors import Unreachable
from solo.kernel import decode
from solo.modes import EXCLUSIVE, MODES, SLOTS, Claim
from solo.record import clean_note, parse_range, parse_since
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Optional, Protocol

    from solo.contention.period import LastRun
else:
    from solo.engines.fields import NamedTuple

    Protocol = object

COMMAND_LIMIT = 1 << 10  # characters of JSON
LAST_WORD = 20  # characters kept of the word that exceeds the limit
SKEWED = 1.5  # seconds; some servers report their time in whole seconds
KEPT = 100  # outcomes of a name
VERSION = 1  # of an entry record: launchers of several versions may share an engine
# Exceptions that reading an invalid answer raises.
INVALID_ANSWER = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class Gone(Exception):
    """The engine reports that we no longer have our entry. The text is the engine's reason."""


class EntryRecord(NamedTuple):
    """The record of an entry's owner. `slot` is a list of (first, last), empty until slots are taken; `child` is None
    until the command runs.

    `since` is by this host's wall clock. The stored text has it by the engine's clock, which is ahead by `skew`, so
    that hosts with different clocks agree on how long ago it was.
    """

    claim: Claim
    slot: list = []
    host: str = ""
    user: str = ""
    launcher: "Optional[int]" = None
    child: "Optional[int]" = None
    since: "Optional[float]" = None
    command: tuple = ()
    note: str = ""

    def start(self, child: int) -> "EntryRecord":
        """Return the record of the same entry once its command runs, as `child`, from now on."""
        return self._replace(child=child, since=time())

    def format(self, skew: float = 0.0) -> bytes:
        claim = self.claim
        since = None if self.since is None else self.since + skew
        return json.dumps(
            {
                "solo": VERSION,
                "mode": claim.mode,
                "slots": claim.slots,
                "take": claim.take,
                "slot": self.slot,
                "host": self.host,
                "user": self.user,
                "launcher": self.launcher,
                "child": self.child,
                "since": since,
                "command": self.command,
                **({"note": self.note} if self.note else {}),
            }
        ).encode()


def parse_entry_record(data: bytes, skew: float = 0.0) -> EntryRecord:
    """Return the record in `data`. Anything else, such as the data of another program, counts as an exclusive claim."""
    try:
        known = json.loads(data)
        mode, slots, take = known["mode"], int(known["slots"]), int(known["take"])
        if mode not in MODES or not 1 <= take <= slots:
            raise ValueError
        return EntryRecord(
            Claim(mode, slots, take) if mode == SLOTS else Claim(mode),
            [parse_range(b"%d-%d" % tuple(pair)) for pair in known["slot"]],
            str(known["host"]),
            str(known["user"]),
            *map(read_optional, (known["launcher"], known["child"])),
            parse_since(known["since"]) - skew,
            tuple(map(str, known["command"])),
            clean_note(str(known.get("note") or "")),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return EntryRecord(Claim(EXCLUSIVE))


def read_optional(value) -> "Optional[int]":
    return None if value is None else int(value)


def cut(words) -> tuple:
    """Return the first words of a command, up to COMMAND_LIMIT characters of JSON."""
    kept, left = [], COMMAND_LIMIT
    for word in words:
        left -= len(json.dumps(word)) + 2
        if left < 0:
            kept.append(word[:LAST_WORD] + "…")
            break
        kept.append(word)
    return tuple(kept)


def make_entry_record(record) -> EntryRecord:
    """Return the entry record of a local record, for other hosts to read."""
    command = cut(decode(word).encode("utf-8", "replace").decode() for word in record.command)
    host, user, launcher = record.origin.host, find_user(record.uid), record.launcher[0]
    return EntryRecord(record.claim, [], host, user, launcher, None, time(), command, record.note)


class Entry(NamedTuple):
    """A contender's entry in the queue of `name`. As in a Ticket, `number` grows with each entry of a name, and
    `record` is an EntryRecord.

    `key` is the engine's own identifier.
    """

    name: str
    key: str
    number: int
    record: EntryRecord
    is_held: bool


class Engine(Protocol):
    """One connection to an engine, with one lease for all names held through it.

    `where` names it in messages, without secrets. `caveat` is a warning that -v prints about every lock there, or "".
    `ttl` is how many seconds an unrenewed lease lives: as requested, and after `acquire` as granted. `skew` is how many
    seconds its clock is ahead of this host's, 0 if unknown. `keeps_outcomes` is whether it has log_outcome and
    read_outcomes. `expires_leases` is whether it ends an unrenewed lease without the help of a contender. `is_view`,
    which the caller may set before `connect`: create nothing there.

    Every method but `acquire` returns within `timeout` seconds. All raise Unreachable if the engine does not answer and
    SoloError if it refuses; Gone only where stated.
    """

    where: str
    caveat: str
    ttl: float
    timeout: float
    skew: float
    keeps_outcomes: bool
    expires_leases: bool
    is_view: bool

    def connect(self) -> None:
        """Connect, and verify that the server can keep locks."""

    def acquire(self, name: str, record: EntryRecord, wait) -> Entry:
        """Return our entry for `name` once it is held, has its slots, and was renewed after that.

        Parents are acquired first. `wait` is a Wait (queue.py). Raises Busy. After any exception we have left the queue.
        """

    def renew(self) -> "Optional[str]":
        """Renew the lease and verify that all our entries are still there. Raises Gone if not.

        Return the contender that asks us to end (ask_to_end), or None.
        """

    def record_child(self, pid: int) -> None:
        """Record in our entries that the command runs, as `pid`."""

    def release(self) -> None:
        """Give up all our entries and the lease. Our command has ended."""

    def close(self) -> None:
        """Close the connection. Call it after `release`."""

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        """Keep the outcome of our hold `number` of `name`, after its release, and only the last KEPT of the name."""

    def read_outcomes(self, name: "Optional[str]" = None) -> list:
        """Return [(name, text)] of the outcomes of `name` and of the names nested in it, or all. Sets `skew`."""

    def list_entries(self, name: "Optional[str]" = None) -> list:
        """Return the entries of one name, or of all, each queue in its order."""

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        """Ask the owner of `entry` to end its command or leave the queue. It reads that at its next renewal."""

    def read_once(self, name: str) -> "Optional[LastRun]":
        """Return the LastRun of `name` (contention/period.py), or None if the engine has none."""

    def write_once(self, name: str, before: "Optional[LastRun]", ran: "Optional[LastRun]") -> bool:
        """Replace `before`, as read, by `ran`; None forgets it. Return False if it was changed meanwhile."""

    def examine(self) -> list:
        """Return [("ok" or "note", text)] for `solo doctor`: version, clock, promises and their limits."""


def make_lost(engine, error) -> Unreachable:
    """Return the exception for a lease that was lost before the command ran."""
    return Unreachable(f"{engine.where}: the lease was lost before the command could start: {error}")


def make_invalid_answer(engine, error: Exception) -> Unreachable:
    """Return the exception for an invalid answer, which raised one of INVALID_ANSWER."""
    return Unreachable(f"{engine.where}: the answer is invalid ({type(error).__name__}: {error})")


def describe_skew(server: float) -> tuple:
    """Return the line of Engine.examine about the server's wall clock, given in seconds since the epoch."""
    skew = server - time()
    order = "ahead of" if skew > 0 else "behind"
    return "ok" if abs(skew) < SKEWED else "note", f"its clock is {abs(skew):.1f}s {order} this host's"


def pick_between(least: float, most: float) -> float:
    """Return a random number, so that waiters do not all ask at once."""
    return least + (most - least) * posix.urandom(1)[0] / 255
