"""What every engine can be asked, and the words for it: Engine, Entry, Note. Cold.

An engine keeps a line for each name. Whoever is in it has an entry, which lives as long as its owner's lease: that must be
renewed, and after `ttl` seconds without it the engine gives the name to the next one, whatever the owner's command does. lease.py
sees to it that the command is dead by then; an engine never has to.
"""

import json
from time import CLOCK_BOOTTIME, clock_gettime, time
from typing import NamedTuple, Optional, Protocol

from solo.errors import Unreachable
from solo.kernel import decode
from solo.contention.period import Ran
from solo.record import parse_range, parse_since
from solo.modes import COUNTED, EXCLUSIVE, MODES, Claim
from solo.text.describe import find_user

COMMAND_LIMIT = 1 << 10  # characters of JSON
LAST_WORD = 20  # characters that are kept of a word that would be too much
SKEWED = 1.5  # seconds; some tell their time in whole ones
VERSION = 1  # of a note; what an engine keeps outlives a solo
# What reading an answer raises that is none.
NONSENSE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class Gone(Exception):
    """The engine says that what we held is no longer ours. The text says what it said."""


class Note(NamedTuple):
    """What an entry says of its owner. `slot` is a list of (first, last) once it has them, `child` None until the command runs.

    `since` is by our wall clock. An entry has it by the engine's, which is ahead of ours by the `skew`: so hosts whose clocks differ
    agree on how long ago it was.
    """

    claim: Claim
    slot: list = []
    host: str = ""
    user: str = ""
    launcher: Optional[int] = None
    child: Optional[int] = None
    since: Optional[float] = None
    command: tuple = ()

    def format(self, skew: float = 0.0) -> bytes:
        claim = self.claim
        since = None if self.since is None else self.since + skew
        return json.dumps({
            "solo": VERSION, "mode": claim.mode, "slots": claim.slots, "take": claim.take, "slot": self.slot, "host": self.host,
            "user": self.user, "launcher": self.launcher, "child": self.child, "since": since, "command": self.command,
        }).encode()


def parse_note(data: bytes, skew: float = 0.0) -> Note:
    """The note in `data`. What is not one, as that of another program that locks the same name, wants it for itself alone."""
    try:
        known = json.loads(data)
        mode, slots, take = known["mode"], int(known["slots"]), int(known["take"])
        if mode not in MODES or not 1 <= take <= slots:
            raise ValueError
        return Note(
            Claim(mode, slots, take) if mode == COUNTED else Claim(mode),
            [parse_range(b"%d-%d" % tuple(pair)) for pair in known["slot"]],
            str(known["host"]), str(known["user"]), *map(read_optional, (known["launcher"], known["child"])),
            parse_since(known["since"]) - skew, tuple(map(str, known["command"])),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Note(Claim(EXCLUSIVE))


def read_optional(value) -> Optional[int]:
    return None if value is None else int(value)


def cut(words) -> tuple:
    """The words as far as COMMAND_LIMIT goes."""
    kept, left = [], COMMAND_LIMIT
    for word in words:
        left -= len(json.dumps(word)) + 2
        if left < 0:
            kept.append(word[:LAST_WORD] + "…")
            break
        kept.append(word)
    return tuple(kept)


def make_note(record) -> Note:
    """What a local record says, for others to see."""
    command = cut(decode(word).encode("utf-8", "replace").decode() for word in record.command)
    return Note(record.claim, [], record.world.host, find_user(record.uid), record.launcher[0], None, time(), command)


class Entry(NamedTuple):
    """A place in the line of `name`; as a Ticket has it, with a `number` that grows with each of the name, and a `record`.

    `key` is what the engine calls it.
    """

    name: str
    key: str
    number: int
    record: Note
    is_held: bool


class Engine(Protocol):
    """One connection to an engine, with one lease for all that is taken by it.

    `where` names it in messages, without secrets. `modes` are those of modes.py it can do, `caveat` what -v says of a
    lock there, if anything. `ttl` is how many seconds the lease lives unrenewed: as asked for, and after `take` as answered.

    Every method but `take` and `wait_loss` returns within `timeout` seconds. All raise Unreachable if the engine did not answer,
    and SoloError if it refused; Gone only where that is said. Only one thread at a time calls, but for `wait_loss`.
    """

    where: str
    modes: tuple
    caveat: str
    ttl: float
    timeout: float

    def connect(self) -> None:
        """Be able to ask."""

    def take(self, name: str, note: Note, wait) -> Entry:
        """Our entry for `name` once it is held, with its slots, and renewed after that was seen. Called parents first.

        `wait` is a Wait (lines.py). Raises Busy. Whatever is raised, nothing of ours is left in the line of `name`.
        """

    def renew(self) -> Optional[str]:
        """Renew the lease, and see that all we took is still ours. Who asks us to end (ask_to_end), or None. Raises Gone."""

    def wait_loss(self, seconds: float, stop) -> None:
        """Sleep that long, or until the Event `stop`, which poll takes too. Raises Gone where the engine can say so by itself."""

    def record_child(self, pid: int) -> None:
        """Our entries say from now on that the command runs, as `pid`."""

    def release(self) -> None:
        """Give up all we took, and the lease. Our command has ended."""

    def list_entries(self, name: Optional[str] = None) -> list:
        """All entries, or those of one name, in the order of the lines."""

    def ask_to_end(self, entry: Entry, who: str) -> None:
        """Have the owner of `entry` end its command, or leave the line; it learns of it when it renews its lease."""

    def read_once(self, name: str) -> Optional[Ran]:
        """The last period in which `name` ran (contention/period.py), None if that is not known."""

    def write_once(self, name: str, before: Optional[Ran], ran: Optional[Ran]) -> bool:
        """Replace `before`, as read, by `ran`, None: forget it. False if it is no longer what was read."""

    def examine(self) -> list:
        """[("ok" or "note", text)] for `solo doctor`: its version and clock, what it promises and what it does not."""


def make_lost(engine, error) -> Unreachable:
    """What to raise when our lease is gone and nothing runs yet."""
    return Unreachable(f"{engine.where}: the lease was lost before the command could start: {error}")


def make_nonsense(engine, error: Exception) -> Unreachable:
    """What to raise for one of NONSENSE."""
    return Unreachable(f"{engine.where}: its answer makes no sense ({type(error).__name__}: {error})")


def describe_skew(server: float) -> tuple:
    """What Engine.examine says of the server's wall clock, in seconds since the epoch."""
    skew = server - time()
    return "ok" if abs(skew) < SKEWED else "note", f"its clock is {abs(skew):.1f}s {'ahead of' if skew > 0 else 'behind'} ours"


def read_boot_clock() -> float:
    """Seconds since boot, also of those it slept: no jump of the wall clock moves it, and no suspension stops it."""
    return clock_gettime(CLOCK_BOOTTIME)
