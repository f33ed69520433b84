"""PostgreSQL with a table: an entry is a row that lives until `expires` by the server's clock. Its
`number` is the order of the queue and the fencing token. A lock survives the end of a session and a
restart of the server.

One change wakes one waiter. Each row has its own channel, which is notified when the row is deleted
and when it gets its slots; only the next waiter listens there. A waiter that may run after any
change of its name listens to the name's channel. Earlier versions notify only one channel of the
whole table, so every waiter listens to that too, and read again twice a second without a
notification. A waiter reads the row it waits for, never the whole queue, until that row changes.
"""

import posix
from time import monotonic

from solo.engines.engine import (
    OUTCOMES_KEPT,
    Entry,
    EntryRecord,
    Gone,
    Renewal,
    describe_skew,
    make_renewal,
    parse_entry_record,
    pick_between,
)
from solo.engines.postgresql.link import Link, hash_name, make_key
from solo.engines.queue import Engine, find_index, find_unready, sort_queues
from solo.errors import SoloError, Unreachable, UsageError
from solo.modes import SLOTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.engines.network import Target
    from solo.engines.postgresql.link import Rows

CHANNEL_LIMIT, PREFIX_LIMIT, DIGEST = 60, 40, 16  # characters; a channel has 63 at most
POOLED_POLL = 0.5  # seconds: no notification passes a pooler
EXPIRY_MARGIN = 0.01  # seconds
LOOK_SELDOM = 4.0, 8.0  # seconds: an administrator who deletes a row notifies no waiter
TABLE = "solo_lock"  # the one that we propose
# In a statement on which a lock depends: its commit waits for the disk.
SYNCED = "set_config('synchronous_commit', 'on', true) is not null"
PROBE = "select 1 from TABLE limit 0"
ONCE_OWNER = ""  # the owner of the row with the last period of a name
LOCK_COLUMNS = (
    "number bigint generated always as identity primary key, name text not null, owner text not "
    "null, expires timestamptz,"
    " asked text, note text not null, unique (name, owner)"
)
# Outcomes have a table of their own: each renewal and each listing reads all of the other one.
LOG = "_log"
LOG_COLUMNS = "name text, number bigint, outcome text not null, primary key (name, number)"


class PostgreSQL(Engine):
    def __init__(self, target: "Target", ttl: float, timeout: float):
        self.where = target.shown
        settings = dict(target.settings)
        self.name = settings.pop("table", None)
        if self.name is None:
            mark = "&" if target.settings else "?"
            raise UsageError(
                f"--via {self.where}: names no table for its locks (use "
                f"{self.where}{mark}table={TABLE})"
            )
        parts = self.name.split(".")
        if len(parts) > 2 or not all(
            part.isascii() and part.replace("_", "x").isalnum() for part in parts
        ):
            raise UsageError(f"--via {self.where}: table: not the name of a table")
        self.table, self.log = (
            '"' + name.replace(".", '"."') + '"' for name in (self.name, self.name + LOG)
        )
        self.channel = f"solo {self.name}"[:CHANNEL_LIMIT]  # the channel of earlier versions
        self.prefix = f"solo {self.name}"[:PREFIX_LIMIT] + " "
        self.channels: set[str] = set()  # the session listens to them
        self.ttl = ttl
        self.is_missing = False  # a view found no table
        me = f"{posix.uname().nodename}:{posix.getpid()}"
        self.client = self.link = Link(
            target, {**settings, "application_name": f"solo {me}"}, ttl, timeout
        )
        self.owner = f"{me}:{posix.urandom(8).hex()}"
        self.joined: set[str] = set()  # names with our row in their queue
        self.entries = {}  # our held entries by name
        self.seen: Rows = []  # the rows of the queue as it was last read, and their entries
        self.queue: list[Entry] = []
        self.look_due = 0.0  # when wait_change reads again without a notification

    def connect(self) -> None:
        self.open()
        problem = self.attempt(PROBE)
        self.is_missing = problem is not None and not self.has(self.table)
        if self.is_missing and self.is_view:
            return
        if self.is_missing:
            self.create(self.table, LOCK_COLUMNS, problem)
        # Probe again: another contender may have created the table since.
        problem = problem and self.attempt(PROBE)
        if problem:
            raise self.refuse(problem)
        self.is_missing = False

    def attempt(self, query: str, *values: object) -> "SoloError | None":
        """Ask, and return the error with which the server refuses it, or None. Raises
        Unreachable.
        """
        try:
            self.ask(query, *values)
        except Unreachable:
            raise
        except SoloError as error:
            return error
        return None

    def has(self, table: str) -> bool:
        return self.ask("select to_regclass($1)", table) != [[None]]

    def create(self, table: str, columns: str, error: "SoloError | None") -> None:
        # Another contender may create it meanwhile.
        if self.attempt(f"create table if not exists {table} ({columns})") and not self.has(table):
            raise self.refuse(error)

    def refuse(self, error: "SoloError | None") -> SoloError:
        """Return `error` with the SQL that makes our tables, for an administrator to run."""
        [[role]] = self.ask("select quote_ident(current_user)")
        tables = ((self.table, LOCK_COLUMNS), (self.log, LOG_COLUMNS))
        made = "".join(
            f"create table if not exists {table} ({columns}); " for table, columns in tables
        )
        schema, is_named, _ = self.table.rpartition(".")
        if is_named:
            made = (
                f"create schema if not exists {schema}; grant usage on schema {schema} to "
                f"{role}; {made}"
            )
        rights = f"grant select, insert, update, delete on {self.table}, {self.log} to {role};"
        return SoloError(f"{error} (an administrator must run: {made}{rights})")

    def open(self) -> None:
        self.channels = set()
        self.link.open()
        self.skew = self.link.skew

    def ask(self, query: str, *values: object) -> "Rows":
        """Return the rows of an answer, in a new session if need be. Raises Unreachable,
        SoloError.
        """
        try:
            if not self.link.connection:
                self.open()
            synced = SYNCED if self.link.is_pooled else "true"  # else the session is set
            return self.link.ask(
                query.replace("TABLE", self.table).replace("SYNCED", synced), *values
            )
        except Unreachable:
            self.link.close()  # a new session may work, perhaps at another host
            raise

    def renew(self) -> "str | None":
        rows = self.ask(
            "update TABLE set expires = clock_timestamp() + make_interval(secs => $2::float8)"
            " where owner = $1 and expires > clock_timestamp() and SYNCED returning number, asked",
            self.owner,
            self.ttl,
        )
        numbers = {int(number) for number, _ in rows}
        if (
            len(numbers) < len(self.joined)
            or {entry.number for entry in self.entries.values()} - numbers
        ):
            raise Gone("its row has expired or was removed")
        return next((asked or "another contender" for _, asked in rows if asked is not None), None)

    def release(self) -> None:
        try:
            if self.joined:
                self.notify("delete from TABLE where owner = $1", self.owner)
        finally:
            self.entries = {}
            self.joined = set()

    def close(self) -> None:
        self.link.close()

    def join(self, name: str, record: EntryRecord) -> str:
        self.joined.add(name)
        self.ask("delete from TABLE where name = $1 and expires <= clock_timestamp()", name)
        # Hold a lock until the commit, so that rows become visible in order of their numbers.
        values = (
            make_key(f"{self.name} {name}"),
            name,
            self.owner,
            self.ttl,
            record.format(self.skew).decode(),
        )
        self.ask(
            "with locked as (select pg_advisory_xact_lock($1::bigint)) insert into TABLE (name, "
            "owner, expires, note)"
            " select $2, $3, clock_timestamp() + make_interval(secs => $4::float8), $5 from locked "
            "where SYNCED"
            " on conflict (name, owner) do nothing",
            *values,
        )
        return self.make_entry_key(name)

    def leave(self, name: str) -> None:
        if name in self.joined:
            self.notify("delete from TABLE where owner = $1 and name = $2", self.owner, name)
            self.joined.remove(name)

    def rewrite(self, entry: Entry) -> None:
        # Waiters need to know its slots, but not its child.
        gets_slots = entry.record.claim.mode == SLOTS and entry.record.child is None
        change = (
            self.notify
            if gets_slots
            else lambda query, *values: self.ask(f"{query} returning 1", *values)
        )
        if not change(
            "update TABLE set note = $1 where number = $2 and owner = $3 and expires > "
            "clock_timestamp() and SYNCED",
            entry.record.format(self.skew).decode(),
            entry.number,
            self.owner,
        ):
            raise Gone("its row has expired or was removed")

    def notify(self, change: str, *values: object) -> "Rows":
        """Change rows and wake the waiters behind them. Return a row per changed row."""
        return self.ask(
            f"with changed as ({change} returning number, name)"
            f" select pg_notify('{self.prefix}' || number, ''), pg_notify('{self.prefix}'"
            f" || left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), {DIGEST}), '') from "
            "changed",
            *values,
        )

    def listen(self, channel: str) -> None:
        """Listen to this channel and that of earlier versions, and to no others."""
        wanted = {self.channel, self.prefix + channel}
        for one in sorted(self.channels ^ wanted):
            self.look_due = 0.0  # we did not hear what changed before
            self.ask(f'{"listen" if one in wanted else "unlisten"} "{one}"')
            self.channels ^= {one}

    def read_queue(self, name: str) -> "list[Entry]":
        """As Engine.read_queue, without the entries after ours."""
        self.look_due = 0.0
        self.seen = self.read_rows(
            "and name = $1"
            " and number <= coalesce((select max(number) from TABLE where name = $1 and owner = "
            "$2), 9223372036854775807)",
            name,
            self.owner,
        )
        self.queue = self.make_entries(self.seen)
        return self.queue

    def read_rows(self, condition: str, *values: object) -> "Rows":
        """Return [[number, name, owner, note, seconds until it expires]], in order."""
        if self.is_missing:
            return []
        return self.ask(
            "select number, name, owner, note, extract(epoch from expires - clock_timestamp()) "
            "from TABLE"
            f" where expires > clock_timestamp() {condition} order by number",
            *values,
        )

    def make_entries(self, rows: "Rows") -> "list[Entry]":
        return [
            Entry(
                name,
                f"{self.name}/{name}/{owner}",
                int(number),
                parse_entry_record(record.encode(), self.skew),
            )
            for number, name, owner, record, _ in rows
        ]

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        number = self.find_decisive(name, key)
        if not self.link.is_pooled:
            self.listen(str(number) if number else hash_name(name).hex()[:DIGEST])
        first, last = (number, number) if number else (0, self.queue[-1].number)
        seen = [row[:-1] for row in self.seen if first <= int(row[0]) <= last]
        while True:
            if self.link.heard or monotonic() >= self.look_due:
                self.link.heard.clear()
                rows = self.read_rows(
                    "and name = $1 and number between $2 and $3", name, first, last
                )
                if not rows or [row[:-1] for row in rows] != seen:
                    return True
                pause = POOLED_POLL if self.link.is_pooled else pick_between(*LOOK_SELDOM)
                self.look_due = monotonic() + min(
                    pause, min(float(row[-1]) for row in rows) + EXPIRY_MARGIN
                )
            if monotonic() >= deadline:
                return False
            self.link.wait_heard(min(deadline, self.look_due))

    def find_decisive(self, name: str, key: "str | None") -> "int | None":
        """Return the number of the row to wait for in the queue as last read, or None for any."""
        if key is None:
            # A claim on slots waits for the entry before it, which rewrites its row when it takes
            # its slots.
            earlier = find_unready(self.queue[: find_index(self.queue, self.make_entry_key(name))])
            key = earlier[-1].key if earlier else None
        return next((entry.number for entry in self.queue if entry.key == key), None)

    def make_entry_key(self, name: str) -> str:
        return f"{self.name}/{name}/{self.owner}"

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        rows = self.read_rows("") if name is None else self.read_rows("and name = $1", name)
        return sort_queues(self.make_entries(rows))

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        left = "select extract(epoch from expires - clock_timestamp()) from TABLE where number = $1"
        known = self.ask(left, entry.number)
        return make_renewal(float(known[0][0]), entry.record.ttl) if known else None

    def remove(self, entry: Entry) -> None:
        self.notify("delete from TABLE where number = $1", entry.number)

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        self.ask("update TABLE set asked = $1 where number = $2", asker, entry.number)

    def read_once(self, name: str) -> "tuple[bytes, object]":
        if self.is_missing:
            return b"", None
        known = self.ask("select note from TABLE where name = $1 and owner = $2", name, ONCE_OWNER)
        return (known[0][0].encode(), known[0][0]) if known else (b"", None)

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        if version is None:
            added = (
                "insert into TABLE (name, owner, note) select $1, $2, $3 where SYNCED on "
                "conflict do nothing returning 1"
            )
            return bool(self.ask(added, name, ONCE_OWNER, text.decode()))
        changed = (
            "update TABLE set note = $3 where name = $1 and owner = $2 and note = $4 and "
            "SYNCED returning 1"
        )
        return bool(self.ask(changed, name, ONCE_OWNER, text.decode(), version))

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        # A snapshot: the deletion does not see the new row.
        change = (
            f"with added as (insert into {self.log} values ($1, $2, $3) on conflict do nothing)"
            f" delete from {self.log} where name = $1 and number <= (select number from {self.log} "
            "where name = $1"
            f" order by number desc limit 1 offset {OUTCOMES_KEPT - 1})"
        )
        error = self.attempt(change, name, number, text.decode())
        if error and self.has(self.log):
            raise error
        if error:
            self.create(self.log, LOG_COLUMNS, error)
            self.ask(change, name, number, text.decode())

    def read_outcomes(self, name: "str | None") -> "list[tuple[str, bytes]]":
        if not self.has(self.log):
            return []  # no run has ended yet
        rows = self.ask(
            f"select name, outcome from {self.log} where $1::text is null or name = $1 or "
            "starts_with(name, $1 || '/')",
            name,
        )
        return [(one, text.encode()) for one, text in rows]

    def examine(self) -> "list[tuple[str, str]]":
        [[clock]] = self.ask("select extract(epoch from clock_timestamp())")
        return [
            ("ok", f"PostgreSQL {self.link.version}, locks in the table {self.name}"),
            describe_skew(float(clock)),
        ]
