"""An object store with conditional writes: Amazon S3 and what speaks its protocol. No server keeps
time for us.

One object per name, PREFIX/NAME.json, has the whole queue. Every change of it is a GET and a PUT
with If-Match, or If-None-Match for the first one, so changes are in one order and none is lost. The
random word in each document keeps an old ETag from coming back. A store is first proved to honour
these conditions (objects.py). An object per entry would need a listing per look, which costs as
much as a PUT, and a second protocol for the order.

The rule. A renewal increments the entry's `renewals`. A contender that has seen one and the same
(owner, number, renewals) for ttl (1 + RATE) by its own boot clock, since the answer of the first
GET that showed it, may remove the entry, by a PUT with If-Match. Then the holder's command is dead,
as lease.py demands:

    The holder sent the renewal at s, by real time, and a PUT takes effect after it was sent. So
    each answer that shows it comes after s, and no contender begins to count before s. If no
    clock's rate is wrong by more than RATE, counting ends after s + ttl. The command is dead by its
    own clock at s + ttl (1 - RATE) - LATENCY, thus before s + ttl. If a later renewal took effect
    before the removal, the ETag differs, and the removal fails. If the removal took effect first,
    the renewal fails, so it never moved the deadline.

An entry that waits may be removed sooner, after MISSED of its periods: no command of it runs, and
none will, as the renewal that says that it holds the name, by a PUT with If-Match, fails after the
removal. A slow waiter then joins again.

A PUT without an answer may have taken effect, or may do so later. Therefore `s` counts only if a
PUT sent after s was answered; a document that shows a renewal proves nothing, as an earlier try may
have written it. objects.py has the rest.

All changes of a name compete for one object, and no crowd may cost a holder its lease. So a waiter
renews, and looks, the more seldom the more waiters are before it. Its entry's ttl says so: if it
dies there, the proof of that takes longer, but its turn would have come later too. Only a holder
and the first waiter repeat a refused PUT soon; the others write nothing when the holder's renewal
is due.

No wall clock takes part. An entry's `renewed`, by the store's clock, is a hint: views do not show
what has long not been renewed, and a contender without --wait waits for the end of such an entry
instead of being busy.
"""

from time import monotonic, sleep, time

from solo.engines import json, queue
from solo.engines.engine import (
    RENEWALS,
    SKEWED,
    Entry,
    EntryRecord,
    Gone,
    Renewal,
    describe_skew,
    parse_entry_record,
    pick_between,
)
from solo.engines.s3.document import Document, Stored
from solo.engines.s3.objects import Contended, Foreign, Objects, make_word
from solo.errors import Busy, SoloError, Superseded
from solo.kernel import encode, read_boot_clock, say_promptly
from solo.text.describe import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.engines.network import Target
    from solo.engines.queue import Wait
    from solo.engines.s3.objects import Change

PROBE_PREFIX = ".probe-"  # no name starts with a dot
POLL = (0.5, 1.5)  # seconds; random, so that waiters do not all ask at once
SELDOM = 10  # times as seldom a waiter asks at most


class S3(queue.Engine):
    """See queue.Engine."""

    # a holder's renewal says that it waits no longer
    keeps_outcomes = expires_leases = confirms = False

    def __init__(self, target: "Target", ttl: float, timeout: float) -> None:
        self.where: str = target.shown
        self.ttl = ttl
        self.objects = Objects(target, timeout)
        self.client = self.store = self.objects.store
        self.owner = make_word()
        self.joined: list[str] = []  # names with our entry in their queue
        self.entries: dict[str, Entry] = {}  # our held entries by name
        self.queues: dict[str, list[Entry]] = {}  # as last returned by read_queue
        self.stale_records: set[str] = set()  # held names whose record the next renewal writes
        self.lives: dict[str, float] = {}  # the ttl of each of our entries
        self.lease_end = self.patience = 0.0  # by the monotonic clock

    def connect(self) -> None:
        self.store.renew_keys()

    @property
    def skew(self) -> float:  # type: ignore[override]
        """How far the store's clock is ahead of this host's; 0 if whole seconds cannot show it."""
        skew = self.store.read_clock() - time()
        return skew if abs(skew) >= SKEWED else 0.0

    def find_dead(self, name: str) -> "set[tuple[str, int, int]]":
        """Return the marks of entries that may be removed, as the rule above says."""
        now, seen = read_boot_clock(), self.objects.seen.get(name, {})
        state = self.objects.states.get(name)
        return {
            stored.mark
            for stored in (state.document.queue if state else ())
            if stored.owner != self.owner and now - seen.get(stored.mark, now) > stored.proof
        }

    @property
    def period(self) -> float:
        return min(self.lives.values(), default=self.ttl) / RENEWALS

    def renew(self) -> "str | None":
        sent = monotonic()
        deadline = self.objects.find_deadline()
        yields = None
        if self.period > self.ttl / RENEWALS:  # there is time
            deadline, yields = sent + self.period, self.yields
        if not self.joined:
            # `solo doctor` measures it
            self.objects.repeat(deadline, "GET", self.objects.prefix + PROBE_PREFIX, {})
        asker = ""
        for name in self.joined:
            self.forget_stale(name)
            stored = self.find_own(
                self.objects.change(name, self.make_renewal(name), deadline, yields).document
            )
            if name in self.entries:
                self.objects.fresh.discard(name)  # a holder's next look comes a period later
            self.stale_records.discard(name)
            self.lives[name] = stored.ttl
            asker = asker or stored.asked
        self.lease_end = sent + self.ttl
        return asker or None

    def forget_stale(self, name: str) -> None:
        """Forget the state of a queue that its other contenders have probably changed: a PUT would
        be refused.
        """
        state = self.objects.states.get(name)
        if name not in self.objects.fresh and state is not None and len(state.document.queue) > 1:
            del self.objects.states[name]
        self.objects.fresh.discard(name)

    def make_renewal(self, name: str) -> "Change":
        def change(document: Document) -> Document:
            old = self.find_own(document)
            ttl = self.ttl * self.find_rank(name, document)
            new = old._replace(renewals=old.renewals + 1, ttl=ttl, renewed=self.store.read_clock())
            new = new._replace(waits=name not in self.entries)
            if name in self.stale_records:
                new = new._replace(record=self.pack(self.entries[name].record))
            return document.put(new)

        return change

    def find_rank(self, name: str, document: Document) -> int:
        """Return our place among the waiters, 1 for the first one, and for a holder; without an
        entry that of the next one.
        """
        if name in self.entries:
            return 1
        entries = queue.mark_holds(self.make_entries(name, document))
        at = next(
            (at for at, stored in enumerate(document.queue) if stored.owner == self.owner),
            len(entries),
        )
        is_held = at < len(entries) and entries[at].is_held
        return 1 if is_held else 1 + queue.count_waiters(entries[:at])

    def yields(self, name: str, document: Document) -> float:
        """Return for how many seconds only the first holder should write, as its renewal is due by
        the store's clock.

        Never for a holder or the first waiter: by this document we may have become one, whose turn
        must not be late.
        """
        if self.find_rank(name, document) == 1:
            return 0.0
        first = document.queue[0]
        # A holder that has just waited has the longer ttl of its former place until it renews.
        age, ttl = self.store.read_clock() - first.renewed, min(first.ttl, self.ttl)
        period = ttl / RENEWALS
        # Not until a moment: a poll of each waiter in a crowd would cost more requests than its
        # write.
        return (
            max(0.0, period - age) + pick_between(0, period / 2)
            if period / 2 < age < ttl / 2
            else 0.0
        )

    def find_own(self, document: Document) -> Stored:
        own = document.find(self.owner)
        if own is None:
            raise Gone("its entry was removed")
        return own

    def release(self) -> None:
        try:
            # Until then no contender removes our entries.
            end = max(self.lease_end, self.objects.find_deadline())
            for name in list(self.joined):
                self.remove_own(name, end)
        finally:
            self.owner = make_word()
            self.joined = []
            self.entries = {}
            self.lives = {}
            self.stale_records.clear()
            self.store.hang_up()

    def acquire(self, name: str, record: EntryRecord, wait: "Wait") -> Entry:
        """As Engine.acquire. A contender whose wait is over is busy without an entry, which saves
        two PUTs.
        """
        entries = queue.ask_until_answered(wait, self.read_queue, name)
        obstacles = queue.find_obstacles(queue.mark_holds(entries), record.claim)
        stale = self.find_stale(name)
        if obstacles and stale.keys() >= {entry.key for entry in obstacles}:
            # Their hosts are probably dead: wait for the proof, which no later contender would wait
            # for either.
            longest = max(stale[entry.key] for entry in obstacles) + 2 * POLL[1]
            wait = extend(wait, longest, name, obstacles[0].record.host)
        elif obstacles and wait.deadline <= monotonic():
            raise queue.make_busy(obstacles, record.claim)
        queue.ask_until_answered(wait, self.objects.prove, self.objects.states[name])
        self.patience = wait.patience
        try:
            return super().acquire(name, record, wait)
        except Contended as error:
            raise Busy(f"busy: {error}") from None

    def find_stale(self, name: str) -> "dict[str, float]":
        """Return the proof of each entry that has not been renewed in time, if the store's clock is
        right, by key.
        """
        now = self.store.read_clock()
        return {
            self.make_entry_key(name, stored): stored.proof
            for stored in self.objects.states[name].document.queue
            if now - stored.renewed > stored.proof + SKEWED
        }

    def join(self, name: str, record: EntryRecord) -> str:
        if name not in self.joined:
            self.joined.append(name)

        def change(document: Document) -> Document:
            if document.find(self.owner) is not None:
                return document
            number = document.counter + 1
            new = Stored(
                self.owner,
                number,
                0,
                self.ttl,
                self.store.read_clock(),
                "",
                self.pack(record),
                True,
            )
            document = document._replace(counter=number, queue=(*document.queue, new))
            return document.put(new._replace(ttl=self.ttl * self.find_rank(name, document)))

        end = max(self.objects.find_deadline(), self.patience)
        stored = self.find_own(self.objects.change(name, change, end, self.yields).document)
        self.lives[name] = stored.ttl
        return self.make_entry_key(name, stored)

    def leave(self, name: str) -> None:
        if name in self.joined:
            self.remove_own(name, self.objects.find_deadline())
            self.joined.remove(name)
            self.lives.pop(name, None)

    def remove_own(self, name: str, end: float) -> None:
        self.forget_stale(name)
        self.objects.change(
            name, lambda document: drop(document, lambda stored: stored.owner == self.owner), end
        )

    def rewrite(self, entry: Entry) -> None:
        def change(document: Document) -> Document:
            return document.put(self.find_own(document)._replace(record=self.pack(entry.record)))

        self.objects.change(entry.name, change)

    def record_child(self, pid: int) -> None:
        """The next renewal writes it: that saves a request per run."""
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record.start(pid))
            self.stale_records.add(name)

    def read_queue(self, name: str) -> "list[Entry]":
        """As Engine.read_queue. Removes entries whose owners are dead."""
        if name not in self.objects.fresh:
            self.objects.read(name)
        self.objects.fresh.discard(name)
        dead = self.find_dead(name)
        if dead:
            self.objects.change(
                name, lambda document: drop(document, lambda stored: stored.mark in dead)
            )
        self.queues[name] = self.make_entries(name, self.objects.states[name].document)
        return self.queues[name]

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        before = summarize(self.queues[name], key)
        seen = None
        rank = 1
        while True:
            state = self.objects.states.get(name)
            own = state.document.find(self.owner) if state else None
            if state is None or own is None:
                return True  # seen here, or by a renewal
            if state is not seen:
                if summarize(self.make_entries(name, state.document), key) != before:
                    return True
                seen, rank = state, self.find_rank(name, state.document)
            if own.asked:
                raise Superseded(f"superseded by {own.asked}")
            left = deadline - monotonic()
            if self.find_dead(name) or left <= 0:
                return left > 0
            self.objects.fresh.discard(name)
            sleep(min(left, pick_between(*POLL) * self.objects.pace * min(rank, SELDOM)))
            self.objects.read(name)

    def make_entries(self, name: str, document: Document) -> "list[Entry]":
        return [
            Entry(
                name,
                self.make_entry_key(name, stored),
                stored.number,
                parse_entry_record(json.dumps(stored.record).encode(), self.skew),
            )
            for stored in document.queue
        ]

    def make_entry_key(self, name: str, stored: Stored) -> str:
        return f"{self.objects.make_key(name)}#{stored.owner}"

    def pack(self, record: EntryRecord) -> object:
        return json.loads(record.format(self.skew))

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        entries = []
        for one in self.objects.list_names() if name is None else [name]:
            try:
                self.objects.read(one)
            except Foreign:
                if name is not None:
                    raise
                entries.append(Entry(one, self.objects.make_key(one), 0, parse_entry_record(b"")))
                continue
            stale = self.find_stale(one) if self.is_view else {}
            known = self.make_entries(one, self.objects.states[one].document)
            entries += [entry for entry in known if entry.key not in stale]
        return queue.sort_queues(entries)

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        state = self.objects.states.get(entry.name)  # none of an object that is not of solo
        stored = state and state.document.find(entry.key.rpartition("#")[2])
        if not stored:
            return None
        age = max(0.0, self.store.read_clock() - stored.renewed)
        return Renewal(age, max(0.0, stored.proof - age), stored.ttl / RENEWALS)

    def remove(self, entry: Entry) -> None:
        owner = entry.key.rpartition("#")[2]
        self.objects.change(
            entry.name, lambda document: drop(document, lambda stored: stored.owner == owner)
        )

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        owner = entry.key.rpartition("#")[2]

        def change(document: Document) -> Document:
            old = document.find(owner)
            return document if old is None or old.asked else document.put(old._replace(asked=asker))

        self.objects.change(entry.name, change)

    def read_once(self, name: str) -> "tuple[bytes, str]":
        once = self.objects.read(name).document.once
        return encode(once), once

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        new = text.decode()

        def change(document: Document) -> Document:
            return document._replace(once=new) if document.once == version != new else document

        return self.objects.change(name, change).document.once == new

    def examine(self) -> "list[tuple[str, str]]":
        key = f"{self.objects.prefix}{PROBE_PREFIX}{make_word()}"
        losses = self.objects.race(key)
        notes = [
            ("ok", f"conditional writes: of {2 * losses} racing PUTs {losses} were refused"),
            describe_skew(self.store.read_clock()),
        ]
        try:
            self.store.ask("DELETE", key, {})
        except SoloError as error:
            notes.append(("note", f"the object {key} remains, as it cannot be deleted: {error}"))
        return notes


def extend(wait: "Wait", seconds: float, name: str, host: str) -> "Wait":
    """Return a wait of at least `seconds`, and say so if that is longer."""
    deadline = monotonic() + seconds
    if deadline <= wait.deadline:
        return wait
    if not wait.is_quiet:
        span = format_duration(-(-seconds // 1))
        where = f" on {host}" if host else ""
        say_promptly(f"{name}: waiting up to {span}: the holder{where} does not renew its lease")
    return wait._replace(deadline=deadline)


def drop(document: Document, is_over: "Callable[[Stored], bool]") -> Document:
    """Return the document without the entries that are over."""
    left = tuple(stored for stored in document.queue if not is_over(stored))
    return document if len(left) == len(document.queue) else document._replace(queue=left)


def summarize(entries: "list[Entry]", key: "str | None") -> "list[object]":
    """Return what a waiter for the entry `key`, None for any, needs to know of a queue's
    entries.
    """
    # The number too: an owner that lost its place joins again, behind us, with the same key.
    return [
        (entry.key, entry.number, entry.record.slot)
        for entry in entries
        if key in (None, entry.key)
    ]
