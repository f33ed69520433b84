"""The text of a name's object, in JSON. Pure functions.

`counter` is the number of the last entry, which outlives it: tokens grow. `write` is a random word
of each write, so that no two writes have the same ETag. `proven` is where the store was seen to
honour conditions (objects.py), or "": a copy of the object in another store proves nothing there.
An entry's `renewals` counts its renewals; `renewed` is their time by the store's clock, for views.
An entry `waits` until a renewal, conditional as every PUT, has said that it holds the name: only
then its command begins. Earlier versions do not write that; their entries count as holding.
"""

import posix

from solo.engines import json
from solo.engines.engine import RENEWALS
from solo.engines.fields import NamedTuple
from solo.engines.lease import LONGEST_TTL, RATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DOCUMENT_VERSION = 1
MISSED = 3  # periods without a renewal of an entry that waits
# whose types are verified
FIELDS = (("owner", str), ("number", int), ("renewals", int), ("asked", str))


class Stored(NamedTuple):
    """An entry as stored. `record` is an EntryRecord as a value of JSON; `asked` is who asks the
    owner to end, or "".
    """

    owner: str
    number: int
    renewals: int
    ttl: float
    renewed: float
    asked: str = ""
    record: object = None
    waits: bool = False

    @property
    def proof(self) -> float:
        """For how many seconds a contender must see no renewal before it may remove the entry."""
        if self.waits:
            # no command of it runs: a live owner only joins again
            return self.ttl / RENEWALS * MISSED
        return self.ttl * (1 + RATE)

    @property
    def mark(self) -> "tuple[str, int, int]":
        """A value that changes with each renewal and never comes back."""
        return self.owner, self.number, self.renewals


class Document(NamedTuple):
    """The queue of a name, in order of arrival, and its last period (contention/period.py)."""

    counter: int
    once: str = ""
    queue: "tuple[Stored, ...]" = ()
    proven: str = ""

    def find(self, owner: str) -> "Stored | None":
        return next((stored for stored in self.queue if stored.owner == owner), None)

    def put(self, new: Stored) -> "Document":
        """Replace the entry of the same owner."""
        return self._replace(
            queue=tuple(new if old.owner == new.owner else old for old in self.queue)
        )

    def format(self) -> str:
        queue = [dict(zip(Stored._fields, stored)) for stored in self.queue]
        known = {**dict(zip(self._fields, self)), "queue": queue}
        return json.dumps({"solo": DOCUMENT_VERSION, "write": posix.urandom(8).hex(), **known})


def parse_document(data: bytes) -> Document:
    """Return the Document in `data`. Raises ValueError, LookupError, TypeError, RecursionError."""
    known = json.loads(data)
    if known["solo"] != DOCUMENT_VERSION:
        raise ValueError("written by another version of solo")
    queue = tuple(parse_stored(value) for value in known["queue"])
    if sorted(stored.number for stored in queue) != [stored.number for stored in queue]:
        raise ValueError("not in order")
    if len({stored.owner for stored in queue}) < len(queue):
        raise ValueError("an owner has two entries")
    proven = expect(str, known.get("proven", ""))
    document = Document(expect(int, known["counter"]), expect(str, known["once"]), queue, proven)
    if queue and queue[-1].number > document.counter:
        raise ValueError("a number exceeds the counter")
    return document


def parse_stored(value: "json.Object") -> Stored:
    known = {field: expect(kind, value[field]) for field, kind in FIELDS}
    stored = Stored(
        ttl=float(value["ttl"]),
        renewed=float(value["renewed"]),
        record=value["record"],
        waits=expect(bool, value.get("waits", False)),
        **known,
    )
    if not 0 < stored.ttl <= LONGEST_TTL or not abs(stored.renewed) < float("inf"):
        raise ValueError("not a time")
    return stored


def expect(kind: type, value: "Any") -> "Any":
    if type(value) is not kind:
        raise TypeError(f"{value!r:.20} is not of type {kind.__name__}")
    return value
