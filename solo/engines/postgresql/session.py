"""PostgreSQL, by advisory locks of a session, which need no table and no privileges. The server's lock manager keeps
the queue and the exclusion while the session lives. The lock ends with the session, so its holder watches the socket.

The locks of a name are its key (link.make_key) and lanes in the key's last 16 bits. An exclusive claim locks the key
for itself, shared claims lock it together. Claims on slots lock it together too, after marking themselves by
COUNTING. Then they pass the GATE one by one: the first waits in it until there is room, and leaves it with a lock per
slot (SLOT + n) and one with its number of slots (LIMIT + n). A shared claim that finds a LIMIT waits until that is
gone.

Each of our queries has our record in a comment: of all that the server shows of a session (pg_stat_activity) only the
query is long enough.
"""

import posix
from time import monotonic, sleep

from solo.engines import json
from solo.engines.engine import Entry, EntryRecord, Gone, describe_skew, parse_entry_record
from solo.engines.postgresql.link import Canceled, Link, make_key
from solo.engines.postgresql.table import PostgresTable
from solo.engines.queue import (
    PAUSE,
    Renewer,
    ask_obstacles_to_end,
    check_patience,
    count_waiters,
    describe_entries,
    find_place,
    leave,
    pause,
    refuse,
)
from solo.errors import Busy, SoloError, Superseded, Unreachable, UsageError
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim, allot_slots, find_conflicts
from solo.queue import NO_WAIT

SETTLE = 0.25  # seconds: a holder whose session was ended must still kill its command
LOOK_AGAIN = 0.1  # seconds
PASSAGE = 0.5  # seconds: a claim with room passes the gate sooner
PASSING = "busy: other contenders are acquiring it"
COUNTING, GATE, LIMIT, SLOT, LAST, MOST = 1, 2, 0x4000, 0x8000, 0xFFFF, 0x3FFF
COMMENT, COMMENT_LIMIT = "/*solo ", 800  # bytes: the server keeps the first 1024 of a query
KEY = "(l.classid::bigint << 32 | l.objid::bigint)"
DATABASE = "(select oid from pg_database where datname = current_database())"
ADVISORY = f"l.locktype = 'advisory' and l.objsubid = 1 and l.database = {DATABASE}"
OURS = f"pg_locks l where {ADVISORY} and l.pid = pg_backend_pid() and l.granted"


def PostgreSQL(target, ttl: float, timeout: float):
    """Return the Engine that the URL selects."""
    return (PostgresTable if "table" in target.settings else PostgresSession)(target, ttl, timeout)


class PostgresSession:
    """See engine.Engine."""

    modes = (EXCLUSIVE, SHARED, SLOTS)
    caveat = ""
    skew = 0.0
    keeps_outcomes = False
    expires_leases = True
    is_view = False

    def __init__(self, target, ttl: float, timeout: float):
        self.where = target.shown
        self.ttl = ttl
        self.me = f"solo {posix.uname().nodename}:{posix.getpid()}"
        settings = {**target.settings, "application_name": self.me}
        self.link = Link(target, settings, ttl, timeout)
        self.other = Link(target, settings, ttl, timeout)  # for queries while `link` waits for a lock
        self.entries = {}  # our held entries by name
        self.wanted = None  # our waiting entry
        self.is_new = False  # whether the queue was not yet read since we joined it
        self.patience = NO_WAIT  # wait so long for a late answer: asking again would lose our place

    @property
    def timeout(self) -> float:
        return self.link.timeout

    @timeout.setter
    def timeout(self, seconds: float):
        self.link.timeout = self.other.timeout = seconds

    # --- requests ---------------------------------------------------------------------------------------------------

    def connect(self):
        self.link.open()
        if self.link.is_pooled:
            self.check_pooler()
        self.link.live_for_ttl()
        self.link.ask(f"listen solo_{self.link.pid}")

    def check_pooler(self):
        """Raise SoloError if the pooler may give our session to another client after each answer."""
        for _ in range(2):
            [[pid]] = self.link.ask("select pg_backend_pid()")
            self.refuse_pooler(int(pid) != self.link.pid)
        try:
            self.other.open()
            self.refuse_pooler(self.other.pid == self.link.pid)
        except Unreachable:
            pass  # the pooler has no other session
        finally:
            self.other.close()

    def refuse_pooler(self, is_shared: bool):
        if is_shared:
            self.link.close()  # unlock nothing: the locks may be of other clients
            raise SoloError(
                f"{self.where}: a pooler gives one session to several clients: set its pool_mode=session,"
                " or add table=NAME to the URL"
            )

    def ask(self, query: str, *values) -> list:
        now = monotonic()
        deadline = now + max(self.timeout, min(self.ttl, self.patience - now))
        return self.link.ask(self.make_comment() + query, *values, deadline=deadline)

    def look(self, query: str, *values) -> list:
        """As `ask`, but also while our session waits for a lock."""
        if not self.link.is_busy:
            return self.ask(query, *values)
        try:
            self.other.open()
            return self.other.ask(query, *values)
        finally:
            self.other.close()

    # --- the lease --------------------------------------------------------------------------------------------------

    def renew(self):
        """As Engine.renew."""
        keys = "{%s}" % ",".join(str(make_key(name)) for name in self.entries)
        try:
            [[pid, count]] = self.ask(
                f"select pg_backend_pid(), (select count(*) from {OURS} and {KEY} = any($1::bigint[]))", keys
            )
        except Unreachable:
            if self.link.connection is None:
                raise Gone("its session has ended") from None
            if monotonic() >= self.link.answered + self.ttl:
                self.link.close()
                raise Gone("its session does not answer") from None
            raise
        self.refuse_pooler(int(pid) != self.link.pid)
        if int(count) != len(self.entries):
            raise Gone("its lock was taken away")
        return self.find_asker()

    def find_asker(self):
        return (self.link.heard[0] or "another contender") if self.link.heard else None

    def wait_loss(self, seconds: float, stop):
        self.link.wait_end(seconds, stop)

    def release(self):
        try:
            if self.link.connection is not None:
                self.stop_waiting()
                self.ask("select pg_advisory_unlock_all()")
        finally:
            self.entries, self.wanted = {}, None
            self.close()

    def close(self):
        self.link.close()

    def stop_waiting(self):
        """Have the server cancel the query for which our session still waits."""
        if self.link.is_busy:
            self.look("select pg_cancel_backend($1)", self.link.pid)
            try:
                self.link.fetch(monotonic() + self.timeout)
            except Canceled:
                pass

    # --- the queue --------------------------------------------------------------------------------------------------

    def acquire(self, name: str, record, wait) -> Entry:
        if record.claim.slots > MOST:
            raise UsageError(f"--slots: PostgreSQL counts to {MOST}")
        asked, is_in = set(), False
        self.patience = wait.patience
        try:
            while True:
                try:
                    self.join(name, record)
                    if self.acquire_locks(make_key(name), record.claim, wait, asked):
                        sleep(SETTLE)
                    self.confirm(name)
                    is_in = True
                    return self.entries[name]
                except (Gone, Unreachable) as error:
                    if self.link.heard:
                        raise Superseded(f"superseded by {self.find_asker()}") from None
                    if self.entries:
                        raise Gone(str(error)) from None  # locks of other names may be lost too
                    check_patience(wait, error)
                    self.link.close()
                    pause(wait, error)
        finally:
            self.patience = NO_WAIT
            if not is_in:
                self.entries.pop(name, None)
                leave(self, name)

    def join(self, name: str, record):
        """Have a session that publishes our entry and has no lock of the name yet."""
        if self.link.connection is None:
            self.connect()
        known = f"{self.me} {' '.join([*self.entries, name])}"
        [[_, pid, number, count]] = self.ask(
            f"select set_config('application_name', $1, false), pg_backend_pid(), txid_current(),"
            f" (select count(*) from {OURS} and {KEY} between $2 and $2 + {LAST})",
            known,
            make_key(name),
        )
        self.refuse_pooler(int(pid) != self.link.pid or count != "0")
        self.wanted, self.is_new = Entry(name, f"{name}/{pid}", int(number), record, False), True

    def confirm(self, name: str):
        """Verify that we have the lock, number it, and renew. Raises Gone."""
        [[pid, number, count]] = self.ask(
            f"select pg_backend_pid(), txid_current(), (select count(*) from {OURS} and {KEY} = $1)", make_key(name)
        )
        self.refuse_pooler(int(pid) != self.link.pid)
        if count != "1":
            raise Gone("its lock was taken away")
        self.entries[name], self.wanted = self.wanted._replace(number=int(number), is_held=True), None
        Renewer(self).renew()

    def leave(self, name: str):
        try:
            if self.link.connection is not None:
                self.stop_waiting()
                self.unlock(make_key(name), make_key(name) + LAST)
        except Unreachable:
            self.link.close()  # all locks end with the session
            raise
        finally:
            self.wanted = None

    def unlock(self, first: int, last: int):
        """Release our locks from key `first` to `last`."""
        self.ask(
            f"select case l.mode when 'ExclusiveLock' then pg_advisory_unlock({KEY}) else pg_advisory_unlock_shared({KEY}) end"
            f" from {OURS} and {KEY} between $1 and $2",
            first,
            last,
        )

    def acquire_locks(self, key: int, claim, wait, asked: set) -> bool:
        """Acquire the locks of the claim. Return whether that took waiting. Raises Busy."""
        if claim.mode == EXCLUSIVE:
            return self.lock(key, "", wait, asked)
        if claim.mode == SHARED:
            has_waited = self.lock(key, "_shared", wait, asked)
            return self.wait_until(lambda: not self.read_lanes(key, LIMIT, SLOT - 1), wait, asked) or has_waited
        self.ask("select pg_advisory_lock_shared($1)", key + COUNTING)
        waits = [
            self.lock(key, "_shared", wait, asked),
            self.lock(key + GATE, "", wait, asked),
            self.wait_until(lambda: self.try_slots(key, claim), wait, asked),
        ]
        self.unlock(key + GATE, key + GATE)
        return any(waits)

    def lock(self, key: int, kind: str, wait, asked: set) -> bool:
        """Acquire one lock, in the server's queue. Return whether that took waiting. Raises Busy."""
        if self.try_lock(key, kind):
            return False
        if wait.deadline is NO_WAIT:
            return self.wait_until(lambda: self.try_lock(key, kind), wait, asked)
        self.link.send(f"{self.make_comment()}select pg_advisory_lock{kind}($1)", key)
        look_again = None
        while True:
            try:
                if look_again is not None and self.is_granted():
                    return True
                look_again = monotonic() + self.ttl
                self.check_obstacles(wait, asked)
            except Unreachable as error:
                if not self.link.is_busy:
                    raise
                check_patience(wait, error)  # only the second session failed
                look_again = monotonic() + PAUSE
            if wait.watch(
                lambda until: self.link.fetch(until) is not None, min(wait.deadline, look_again), self.describe
            ):
                return True

    def is_granted(self) -> bool:
        """Return whether our session has the lock. Raises Unreachable; Gone if it does not wait and does not answer."""
        query = f"select exists (select from pg_locks l where {ADVISORY} and l.pid = $1 and not l.granted)"
        if self.look(query, self.link.pid) == [["t"]]:
            return False
        if self.link.fetch(monotonic() + self.timeout) is None:
            raise Gone("its session does not answer")
        return True

    def try_lock(self, key: int, kind: str) -> bool:
        return self.ask(f"select pg_try_advisory_lock{kind}($1)", key) == [["t"]]

    def wait_until(self, is_free, wait, asked: set) -> bool:
        """Poll until `is_free()`. Return whether that took waiting. Raises Busy, Superseded."""
        if is_free():
            return False
        passed = monotonic() + PASSAGE

        def block(until: float) -> bool:
            while not is_free():
                if self.link.heard:
                    raise Superseded(f"superseded by {self.find_asker()}")
                if monotonic() >= until:
                    return False
                sleep(max(0.0, min(LOOK_AGAIN, until - monotonic())))
            return True

        while True:
            self.check_obstacles(wait, asked)
            if wait.deadline is not NO_WAIT:
                if wait.watch(block, wait.deadline, self.describe):
                    return True
            elif block(monotonic() + LOOK_AGAIN):
                return True
            elif monotonic() >= passed:
                raise Busy(PASSING)

    def try_slots(self, key: int, claim) -> bool:
        """In the gate, take our slots if enough are free and no shared claim is there. Return whether we have them."""
        locks = self.read_lanes(key, 0, LAST)
        taken = [lane - SLOT for _, lane in locks if lane >= SLOT]
        limit = min([claim.slots, *(lane - LIMIT for _, lane in locks if LIMIT <= lane < SLOT)])
        if self.has_sharers(locks) or find_conflicts(claim, [Claim(SLOTS, limit)] * len(taken)):
            return False
        slot = allot_slots(claim, [(number, number) for number in taken])
        keys = "{%s}" % ",".join(str(key + SLOT + number) for first, last in slot for number in range(first, last + 1))
        [[_, got]] = self.ask(
            "select pg_advisory_lock_shared($1), (select bool_and(pg_try_advisory_lock(slot)) from unnest($2::bigint[]) slot)",
            key + LIMIT + claim.slots,
            keys,
        )
        # Look again: a shared claim that came meanwhile did not see our LIMIT.
        if got != "t" or self.has_sharers(self.read_lanes(key, 0, LAST)):
            self.unlock(key + LIMIT, key + LAST)
            return False
        self.wanted = self.wanted._replace(record=self.wanted.record._replace(slot=slot))
        return True

    def has_sharers(self, locks: list) -> bool:
        return bool({pid for pid, lane in locks if lane == 0} - {pid for pid, lane in locks if lane == COUNTING})

    def read_lanes(self, key: int, first: int, last: int) -> list:
        """Return [(pid, lane)] of other sessions' locks of a name."""
        return [
            (pid, int(lane))
            for pid, lane in self.ask(
                f"select l.pid, {KEY} - $1 from pg_locks l where {ADVISORY} and l.granted and l.pid <> pg_backend_pid()"
                f" and {KEY} between $1 + $2::bigint and $1 + $3::bigint",
                key,
                first,
                last,
            )
        ]

    def check_obstacles(self, wait, asked: set):
        """Raise Busy if there are obstacles and we may not wait, or no longer. With --replace, ask them to end."""
        queue, place, obstacles = self.read_obstacles()
        if obstacles:
            refuse(queue[:place], obstacles, wait, self.is_new)
        elif wait.deadline is not NO_WAIT and monotonic() >= wait.deadline:
            raise Busy(PASSING)
        self.is_new = False
        ask_obstacles_to_end(self, obstacles, wait, asked)

    def describe(self) -> tuple:
        try:
            queue, place, obstacles = self.read_obstacles()
            return count_waiters(queue[:place]) + 1, describe_entries(obstacles) if obstacles else "free just now"
        except (SoloError, Gone) as error:
            return None, str(error)

    def read_obstacles(self) -> tuple:
        """Return (the queue of the wanted name, our place in it, the entries before it that keep us waiting)."""
        queue = self.list_entries(self.wanted.name)
        place = find_place(queue, self.wanted.key)
        place = len(queue) if place is None else place
        claims = [entry.record.claim for entry in queue[:place]]
        return queue, place, [queue[at] for at in find_conflicts(self.wanted.record.claim, claims)]

    # --- for views and other contenders -----------------------------------------------------------------------------

    def make_comment(self) -> str:
        """Return a comment with our entries for list_entries of other hosts.

        Comments nest, so no star may be inside.
        """
        entries = [*self.entries.values(), *([self.wanted] if self.wanted else [])]
        if not entries:
            return ""
        names, record = {}, entries[-1].record
        for entry in entries:
            claim = entry.record.claim
            own = {"mode": claim.mode, "slots": claim.slots, "take": claim.take, "slot": entry.record.slot}
            names[entry.name] = [entry.number, entry.is_held, own]
        while True:
            known = {**json.loads(record.format(self.link.skew)), "names": names}
            text = json.dumps(known).replace("*", "\\u002a")
            if len(text) <= COMMENT_LIMIT or not any(record.command) and not record.note:
                return f"{COMMENT}{text}*/ "
            record = shorten(record)

    def record_child(self, pid: int):
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record.start(pid))
        self.ask("select 1")

    def list_entries(self, name=None) -> list:
        rows = self.look(
            f"select l.pid, {KEY}, l.mode, l.granted, a.query, a.application_name"
            f" from pg_locks l left join pg_stat_activity a on a.pid = l.pid"
            f" where {ADVISORY} and {KEY} & {LAST} = 0 and ($1::bigint is null or {KEY} = $1::bigint)",
            None if name is None else make_key(name),
        )
        entries = [entry for row in rows for entry in [read_entry(name, *row, self.link.skew)] if entry is not None]
        return sorted(entries, key=lambda entry: (entry.name, not entry.is_held, entry.number))

    def ask_to_end(self, entry, asker: str):
        if entry.record.launcher is None:
            return  # another program does not listen
        pid = entry.key.rpartition("/")[2]
        self.look("select pg_notify('solo_' || $1::int, $2)", pid, asker)
        if not entry.is_held:
            self.look("select pg_cancel_backend($1)", pid)  # its session reads notifications only between queries

    def read_once(self, name: str):
        raise SoloError(f"{self.where}: cannot remember --once-per without a table (add table=NAME to the URL)")

    def write_once(self, name: str, before, ran) -> bool:
        return self.read_once(name)

    def examine(self) -> list:
        [[clock]] = self.link.ask("select extract(epoch from clock_timestamp())")
        pooled = [("note", "behind a pooler, which must detect lost hosts; its settings decide how long that takes")]
        return [
            ("ok", f"PostgreSQL {self.link.version}, advisory locks of a session"),
            describe_skew(float(clock)),
            ("ok", "first come, first served over all hosts; when a launcher dies, the next waiter acquires at once"),
            (
                "note",
                "a restart or failover of the server ends every lock and its command;"
                " with table=NAME in the URL locks survive",
            ),
            *(pooled if self.link.is_pooled else []),
        ]


def shorten(record):
    """Return the record with a shorter command, or without one with a shorter note."""
    if not any(record.command):
        return record._replace(note=record.note[: len(record.note) // 2])
    *words, last = record.command
    return record._replace(command=(*words, last[: len(last) // 2]) if len(last) > 1 else tuple(words))


def read_entry(name, pid: str, key: str, mode: str, is_granted: str, query, application, skew: float = 0.0):
    """Return the entry of one lock, or None if the lock belongs to no name. `name` is its name, if known."""
    for of, entry in parse_comment(query or "", skew).items():
        if make_key(of) == int(key):
            number, is_held, record = entry
            return Entry(of, f"{of}/{pid}", number, record, is_held and is_granted == "t")
    # The lock of another program, or of another role, whose queries we may not read.
    words = (application or "").split(" ", 2)
    name = words[2] if name is None and words[0] == "solo" and len(words) == 3 else name
    if name is None or make_key(name) != int(key):
        return None
    claim = Claim(EXCLUSIVE if mode == "ExclusiveLock" else SHARED)
    return Entry(name, f"{application or 'session'}/{pid}", 0, EntryRecord(claim), is_granted == "t")


def parse_comment(query: str, skew: float = 0.0) -> dict:
    """Return {name: (number, whether it is held, record)} from the comment in a query; {} without a valid one."""
    if not query.startswith(COMMENT):
        return {}
    try:
        known = json.loads(query[len(COMMENT) :].partition("*/")[0])
        return {
            name: (int(number), bool(is_held), parse_entry_record(json.dumps({**known, **own}).encode(), skew))
            for name, (number, is_held, own) in known["names"].items()
        }
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError, RecursionError):
        return {}
