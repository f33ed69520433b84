"""An object store with conditional writes: Amazon S3 and what speaks its protocol. No server keeps time for us.

One object per name, PREFIX/NAME.json, has the whole queue. Every change of it is a GET and a PUT with If-Match, or
If-None-Match for the first one, so changes are in one order and none is lost. The random word in each document keeps
an old ETag from coming back. An object per entry would need a listing per look, which costs as much as a PUT, and a
second protocol for the order.

The rule. A renewal increments the entry's `renewals`. A contender that has seen one and the same (owner, number,
renewals) for ttl (1 + RATE) by its own boot clock, since the answer of the first GET that showed it, may remove the
entry, by a PUT with If-Match. Then the holder's command is dead, as lease.py demands:

    The holder sent the renewal at s, by real time, and a PUT takes effect after it was sent. So each answer that shows
    it comes after s, and no contender begins to count before s. If no clock's rate is wrong by more than RATE, counting
    ends after s + ttl. The command is dead by its own clock at s + ttl (1 - RATE) - LATENCY, thus before s + ttl. If a
    later renewal took effect before the removal, the ETag differs, and the removal fails. If the removal took effect
    first, the renewal fails, so it never moved the deadline.

A PUT without an answer may have taken effect, or may do so later. Therefore `s` counts only if a PUT sent after s was
answered; a document that shows a renewal proves nothing, as an earlier try may have written it. After a lost answer we
read again, and write even what needs no change unless the ETag has changed: then the lost PUT can only fail.

No wall clock takes part. An entry's `renewed`, by the store's clock, is a hint: views do not show what has long not been
renewed, and a contender without --wait waits for the end of such an entry instead of being busy.
"""

import posix
from time import monotonic, sleep, time

from solo.engines import json
from solo.engines.engine import SKEWED, Entry, Gone, describe_skew, parse_entry_record, pick_between, read_boot_clock
from solo.engines.lease import RATE
from solo.engines.queue import OrderedEngine, ask_until_answered, find_obstacles, make_busy, sort_queues
from solo.engines.s3.document import Document, Stored, parse_document
from solo.engines.s3.sign import quote
from solo.engines.s3.store import BUSY, MISSING, NOT_MODIFIED, REFUSED, Reply, Store, find_text, find_texts
from solo.errors import SoloError, Unreachable
from solo.kernel import decode, encode
from solo.modes import MODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NamedTuple, Optional

    from solo.contention.period import LastRun
    from solo.engines.engine import EntryRecord
    from solo.engines.queue import Wait
    from solo.engines.targets import Target

    Change = Callable[[Document], Document]
else:
    from solo.engines.fields import NamedTuple

PREFIX, SUFFIX, PROBE = "solo", ".json", ".probe-"  # no name starts with a dot
POLL = (0.5, 1.5)  # seconds; random, so that waiters do not all ask at once
SLOWEST = 16.0  # times as seldom, if the store asks us to slow down
BACKOFF, LONGEST_PAUSE = 0.03, 1.0  # seconds
WRONG = "0" * 32  # no object's ETag
ROUNDS = 5  # of the races of `solo doctor`
ABSENT = ""  # the ETag of an object that does not exist
UNSAFE = "the store does not honour If-Match and If-None-Match on PUT, so it cannot keep locks"


class State(NamedTuple):
    """An object as last read or written."""

    etag: str
    document: Document


class S3(OrderedEngine):
    """An OrderedEngine; see also engine.Engine."""

    modes = MODES
    caveat = ""

    def __init__(self, target: "Target", ttl: float, timeout: float) -> None:
        self.where: str = target.shown
        self.ttl = ttl
        self.store = Store(target, timeout)
        self.prefix = "".join(f"{quote(part)}/" for part in (target.path or PREFIX).split("/") if part)
        self.owner = make_owner()
        self.joined: list[str] = []  # names with our entry in their queue
        self.entries: dict[str, Entry] = {}  # our held entries by name
        self.states: dict[str, State] = {}
        self.written: set[str] = set()  # names whose state we have just written: no need to read it
        self.lost: dict[str, str] = {}  # the ETag that a PUT without an answer was to replace, by name
        self.seen: dict[str, dict[tuple[str, int, int], float]] = {}  # when each mark was first seen, by name
        self.queues: dict[str, list[Entry]] = {}  # as last returned by read_queue
        self.stale_records: set[str] = set()  # held names whose record the next renewal writes
        self.is_quoted = True  # Ceph before version 18 wants the ETag of If-Match without quotes
        self.pace = 1.0  # how much more seldom we poll

    @property
    def timeout(self) -> float:
        return self.store.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.store.timeout = seconds

    # --- objects ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        self.store.renew_keys()

    def make_key(self, name: str) -> str:
        return make_key(self.prefix, name)

    @property
    def skew(self) -> float:
        """How far the store's clock is ahead of this host's; 0 if whole seconds cannot show it."""
        skew = self.store.read_clock() - time()
        return skew if abs(skew) >= SKEWED else 0.0

    def read(self, name: str, deadline: "Optional[float]" = None) -> State:
        """Return the present state of a name. Raises Unreachable, SoloError."""
        deadline = monotonic() + self.timeout if deadline is None else deadline
        known = self.states.get(name)
        headers = {"If-None-Match": f'"{known.etag}"'} if known is not None and known.etag else {}
        reply = self.get(self.make_key(name), headers, deadline)
        if known is not None and reply.status == NOT_MODIFIED:
            state = known
        elif reply.status == MISSING:
            state = State(ABSENT, Document(int(self.store.read_clock() * 1e6)))
        elif reply.status == 200:
            state = State(reply.etag, self.parse(name, reply))
        else:
            self.store.refuse(reply, self.make_key(name))
        self.states[name] = state
        self.observe(name, state.document)
        return state

    def get(self, key: str, headers: "dict[str, str]", deadline: float) -> Reply:
        """Return the answer to a GET. Asks again if the store is busy, or has closed an idle connection."""
        attempt = 0
        while True:
            was_open = self.store.connection is not None
            try:
                reply = self.store.ask("GET", key, headers, deadline=deadline)
            except Unreachable:
                if not was_open or monotonic() >= deadline:
                    raise
                continue
            if reply.status not in BUSY:
                self.pace = max(1.0, self.pace / 2)
                return reply
            attempt += 1
            self.back_off(attempt, deadline, reply)

    def back_off(self, attempt: int, deadline: float, reply: Reply) -> None:
        """Sleep before the next try, the longer the more there were. Raises Unreachable if the time is over."""
        if reply.status in BUSY:
            self.pace = min(self.pace * 2, SLOWEST)
        pause = pick_between(0, min(BACKOFF * 2**attempt, LONGEST_PAUSE))
        if monotonic() + pause >= deadline:
            raise Unreachable(f"cannot reach {self.where}: {reply.code or f'HTTP {reply.status}'}")
        sleep(pause)

    def parse(self, name: str, reply: Reply) -> Document:
        if not reply.etag:
            raise SoloError(f"{self.where}: answers without an ETag, so it cannot keep locks")
        try:
            return parse_document(reply.body)
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError, AttributeError) as error:
            raise Foreign(
                f"{self.where}: the object {self.make_key(name)} has no queue of solo: {error} (remove the object)"
            ) from None

    def change(self, name: str, change: "Change", deadline: "Optional[float]" = None) -> State:
        """Replace the document by what `change` returns for it, and return the state then.

        `change` may be called again, on the document that another contender or our own unanswered PUT wrote; what it raises
        is raised. Nothing is written if it returns its argument. Raises Unreachable, SoloError.
        """
        deadline = monotonic() + self.timeout if deadline is None else deadline
        attempt = 0
        while True:
            state = self.states.get(name) or self.read(name, deadline)
            wanted = change(state.document)
            if wanted is state.document and self.lost.get(name) != state.etag:
                return state
            was_open = self.store.connection is not None
            try:
                reply = self.put(name, state, wanted, deadline)
            except Unreachable:
                if not was_open or monotonic() >= deadline:
                    raise
                continue  # the store may have closed an idle connection
            if reply.status == 200:
                return self.states[name]
            attempt += 1
            self.back_off(attempt, deadline, reply)
            if reply.status == REFUSED and self.read(name, deadline).etag == state.etag != ABSENT:
                self.is_quoted = not self.is_quoted

    def put(self, name: str, state: State, document: Document, deadline: float) -> Reply:
        """Replace a state. After anything but success it is no longer known."""
        del self.states[name]
        self.written.discard(name)
        self.lost[name] = state.etag
        text = document.format()
        reply = self.store.ask("PUT", self.make_key(name), self.expect(state.etag), text, deadline=deadline)
        if reply.status in (REFUSED, MISSING):
            del self.lost[name]
        elif reply.status == 200:
            if state.etag == ABSENT:
                self.verify(self.make_key(name), text, deadline)
            if reply.etag:
                self.states[name] = State(reply.etag, document)
                self.written.add(name)
            else:
                self.read(name, deadline)
            del self.lost[name]
        return reply

    def expect(self, etag: str) -> "dict[str, str]":
        """Return the header of a PUT that replaces this ETag only."""
        if etag == ABSENT:
            return {"If-None-Match": "*"}
        return {"If-Match": f'"{etag}"' if self.is_quoted else etag}

    def verify(self, key: str, text: str, deadline: float) -> None:
        """Verify, once per object, that conditions count: two PUTs of what is there must fail. Raises SoloError."""
        for headers in ({"If-None-Match": "*"}, {"If-Match": f'"{WRONG}"'}):
            reply = self.store.ask("PUT", key, headers, text, deadline=deadline)
            if reply.status == 200:
                raise SoloError(f"{self.where}: {UNSAFE}")

    # --- the lease ----------------------------------------------------------------------------------------------------

    def observe(self, name: str, document: Document) -> None:
        """Note when each mark was first seen: now, after the answer that showed it."""
        now, before = read_boot_clock(), self.seen.get(name, {})
        self.seen[name] = {stored.mark: before.get(stored.mark, now) for stored in document.queue}

    def find_dead(self, name: str) -> "set[tuple[str, int, int]]":
        """Return the marks of entries that may be removed, as the rule above says."""
        now, seen = read_boot_clock(), self.seen.get(name, {})
        state = self.states.get(name)
        return {
            stored.mark
            for stored in (state.document.queue if state else ())
            if stored.owner != self.owner and now - seen.get(stored.mark, now) > stored.ttl * (1 + RATE)
        }

    def renew(self) -> "Optional[str]":
        """As Engine.renew."""
        deadline = monotonic() + self.timeout
        if not self.joined:
            self.get(self.prefix + PROBE, {}, deadline)  # `solo doctor` measures it
        asker = ""
        for name in self.joined:
            state = self.states.get(name)
            if name in self.entries and state is not None and len(state.document.queue) > 1:
                del self.states[name]  # the others have probably changed it
            self.written.discard(name)
            stored = self.find_own(self.change(name, self.make_renewal(name), deadline).document)
            self.stale_records.discard(name)
            asker = asker or stored.asked
        return asker or None

    def make_renewal(self, name: str) -> "Change":
        def change(document: Document) -> Document:
            old = self.find_own(document)
            new = old._replace(renewals=old.renewals + 1, ttl=self.ttl, renewed=self.store.read_clock())
            if name in self.stale_records:
                new = new._replace(record=self.pack(self.entries[name].record))
            return document.put(new)

        return change

    def find_own(self, document: Document) -> Stored:
        own = document.find(self.owner)
        if own is None:
            raise Gone("its entry was removed")
        return own

    def release(self) -> None:
        try:
            deadline = monotonic() + self.timeout
            for name in list(self.joined):
                self.remove(name, deadline)
        finally:
            self.owner, self.joined, self.entries = make_owner(), [], {}
            self.stale_records.clear()
            self.store.hang_up()

    # --- the queue ----------------------------------------------------------------------------------------------------

    def take(self, name: str, record: "EntryRecord", wait: "Wait") -> Entry:
        """As OrderedEngine.take. A contender whose wait is over is busy without an entry, which saves four requests."""
        mine, queue = Entry(name, "", 0, record, False), ask_until_answered(wait, self.read_queue, name)
        obstacles, stale = find_obstacles([*queue, mine], len(queue)), self.find_stale(name)
        if obstacles and stale.keys() >= {entry.key for entry in obstacles}:
            # Their hosts are probably dead: wait for the proof, which no later contender would wait for either.
            proof = max(stale[entry.key] for entry in obstacles) * (1 + RATE)
            wait = wait._replace(deadline=max(wait.deadline, monotonic() + proof + 2 * POLL[1]))
        elif obstacles and wait.deadline <= monotonic():
            raise make_busy(obstacles)
        taken: Entry = super().take(name, record, wait)
        return taken

    def find_stale(self, name: str) -> "dict[str, float]":
        """Return the ttl of each entry that has not been renewed in time, if the store's clock is right, by key."""
        now = self.store.read_clock()
        return {
            self.make_entry_key(name, stored): stored.ttl
            for stored in self.states[name].document.queue
            if now - stored.renewed > stored.ttl * (1 + RATE) + SKEWED
        }

    def join(self, name: str, record: "EntryRecord") -> str:
        if name not in self.joined:
            self.joined.append(name)

        def change(document: Document) -> Document:
            if document.find(self.owner) is not None:
                return document
            number = document.counter + 1
            new = Stored(self.owner, number, 0, self.ttl, self.store.read_clock(), "", self.pack(record))
            return document._replace(counter=number, queue=(*document.queue, new))

        return self.make_entry_key(name, self.find_own(self.change(name, change).document))

    def leave(self, name: str) -> None:
        if name in self.joined:
            self.remove(name, monotonic() + self.timeout)
            self.joined.remove(name)

    def remove(self, name: str, deadline: float) -> None:
        def change(document: Document) -> Document:
            queue = tuple(stored for stored in document.queue if stored.owner != self.owner)
            return document if queue == document.queue else document._replace(queue=queue)

        self.change(name, change, deadline)

    def rewrite(self, entry: Entry) -> None:
        def change(document: Document) -> Document:
            return document.put(self.find_own(document)._replace(record=self.pack(entry.record)))

        self.change(entry.name, change)

    def record_child(self, pid: int) -> None:
        """The next renewal writes it: that saves a request per run."""
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record._replace(child=pid))
            self.stale_records.add(name)

    def read_queue(self, name: str) -> "list[Entry]":
        """As OrderedEngine.read_queue. Removes entries whose owners are dead."""
        if name not in self.written:
            self.read(name)
        self.written.discard(name)
        dead = self.find_dead(name)
        if dead:
            self.change(name, lambda document: drop(document, dead))
        self.queues[name] = self.make_entries(name, self.states[name].document)
        return self.queues[name]

    def wait_change(self, name: str, key: "Optional[str]", deadline: float) -> bool:
        before = summarize(self.queues[name], key)
        while True:
            state = self.states.get(name)
            if state is None or summarize(self.make_entries(name, state.document), key) != before:
                return True  # seen here, or by a renewal
            left = deadline - monotonic()
            if self.find_dead(name) or left <= 0:
                return left > 0
            sleep(min(left, pick_between(*POLL) * self.pace))
            self.read(name)

    def make_entries(self, name: str, document: Document) -> "list[Entry]":
        skew = self.skew
        return [
            Entry(
                name,
                self.make_entry_key(name, stored),
                stored.number,
                parse_entry_record(json.dumps(stored.record).encode(), skew),
                False,
            )
            for stored in document.queue
        ]

    def make_entry_key(self, name: str, stored: Stored) -> str:
        return f"{self.make_key(name)}#{stored.owner}"

    def pack(self, record: "EntryRecord") -> "Any":
        return json.loads(record.format(self.skew))

    # --- for views and other contenders -------------------------------------------------------------------------------

    def list_entries(self, name: "Optional[str]" = None) -> "list[Entry]":
        entries = []
        for one in self.list_names() if name is None else [name]:
            try:
                self.read(one)
            except Foreign:
                entries.append(Entry(one, self.make_key(one), 0, parse_entry_record(b""), False))
                continue
            stale = self.find_stale(one)
            entries += [entry for entry in self.make_entries(one, self.states[one].document) if entry.key not in stale]
        found: list[Entry] = sort_queues(entries)
        return found

    def list_names(self) -> "list[str]":
        names: list[str] = []
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self.prefix, **({"continuation-token": token} if token else {})}
            reply = self.store.ask("GET", "", query=query)
            if reply.status != 200:
                self.store.refuse(reply, self.prefix)
            names += parse_names(reply.body.decode(), self.prefix)
            token = find_text(reply.body, "NextContinuationToken")
            if not token:
                return names

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        owner = entry.key.rpartition("#")[2]

        def change(document: Document) -> Document:
            old = document.find(owner)
            return document if old is None or old.asked else document.put(old._replace(asked=asker))

        self.change(entry.name, change)

    def read_once(self, name: str) -> "Optional[LastRun]":
        from solo.contention.period import parse_ran

        found: Optional[LastRun] = parse_ran(encode(self.read(name).document.once))
        return found

    def write_once(self, name: str, before: "Optional[LastRun]", ran: "Optional[LastRun]") -> bool:
        from solo.contention.period import format_ran, parse_ran

        def change(document: Document) -> Document:
            now = parse_ran(encode(document.once))
            if now == ran:
                return document
            if now != before:
                raise Changed
            return document._replace(once=format_ran(ran).decode())

        try:
            self.change(name, change)
        except Changed:
            return False
        return True

    # --- doctor -------------------------------------------------------------------------------------------------------

    def examine(self) -> "list[tuple[str, str]]":
        key = f"{self.prefix}{PROBE}{make_owner()}"
        losses = self.race(key)
        notes = [
            ("ok", f"conditional writes: of {2 * losses} racing PUTs {losses} were refused"),
            describe_skew(self.store.read_clock()),
            ("ok", f"first come, first served over all hosts; waiters ask every {sum(POLL) / 2:g}s"),
            (
                "note",
                f"after the death of a host its names are free once a waiter has seen that for {1 + RATE:g} times the ttl",
            ),
        ]
        try:
            self.store.ask("DELETE", key)
        except SoloError as error:
            notes.append(("note", f"the object {key} remains, as it cannot be deleted: {error}"))
        return notes

    def race(self, key: str) -> int:
        """Write an object twice at the same moment, repeatedly, first a new one. Return how often one PUT was refused.

        Raises SoloError if both succeed, Unreachable if none does.
        """
        other = Store(self.store.target, self.timeout)
        etag, losses = ABSENT, 0
        self.store.hang_up()  # an idle connection may be closed
        try:
            for _ in range(ROUNDS + 1):
                deadline = monotonic() + self.timeout
                texts = [f"{make_owner()}\n" for _ in range(2)]
                for store, text in zip((self.store, other), texts):
                    store.send("PUT", key, self.expect(etag), text, {}, deadline)
                replies = [store.receive(deadline)[1] for store in (self.store, other)]
                won = [text for text, reply in zip(texts, replies) if reply.status == 200]
                there = self.get(key, {}, deadline)
                if etag and not won and self.is_quoted and there.etag == etag:
                    self.is_quoted = False
                    continue
                if len(won) == 1 and there.body.decode(errors="replace") == won[0]:
                    etag, losses = there.etag, losses + 1
                elif won:
                    raise SoloError(f"{self.where}: {UNSAFE}")
                else:
                    self.store.refuse(replies[0], key)
        finally:
            other.hang_up()
        return losses


class Foreign(SoloError):
    """An object is not one of solo. Views show it as held by another program."""


class Changed(Exception):
    """The last period is no longer as it was read."""


def make_key(prefix: str, name: str) -> str:
    return f"{prefix}{quote(name, '/')}{SUFFIX}"


def make_owner() -> str:
    return posix.urandom(8).hex()


def drop(document: Document, dead: "set[tuple[str, int, int]]") -> Document:
    """Return the document without the entries of these marks."""
    queue = tuple(stored for stored in document.queue if stored.mark not in dead)
    return document if len(queue) == len(document.queue) else document._replace(queue=queue)


def summarize(queue: "list[Entry]", key: "Optional[str]") -> "list[Any]":
    """Return what a waiter for the entry `key`, None for any, needs to know of a queue."""
    return [(entry.key, entry.record.slot) for entry in queue if key in (None, entry.key)]


def parse_names(text: str, prefix: str) -> "list[str]":
    """Return the names whose objects are in a listing."""
    names = []
    for key in find_texts(text, "Key"):
        first, *others = key[len(prefix) : -len(SUFFIX)].encode().split(b"%")
        try:
            name = decode(first + b"".join(bytes([int(other[:2], 16)]) + other[2:] for other in others))
        except ValueError:
            continue
        if make_key(prefix, name) == key and name and not name.startswith("."):
            names.append(name)
    return names
