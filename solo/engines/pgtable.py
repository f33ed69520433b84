"""PostgreSQL with a table: an entry is a row that lives until `expires` by the server's clock; its `number` is the order of the
line, and the fencing token. What ends a session, a restart too, ends no lock. Cold.
"""

import posix
import re
from time import monotonic

from solo.engines.engine import Entry, Gone, describe_skew, parse_note
from solo.engines.lines import Lined, sort_lines
from solo.engines.pglink import Link, make_key
from solo.errors import SoloError, Unreachable, UsageError
from solo.once import format_ran, parse_ran
from solo.rule import MODES

CHANNEL_LIMIT = 60  # characters
LOOK_AGAIN = 0.5  # seconds: nobody tells of a lease that ran out
ONCE = ""  # the owner of the row that says when a name ran last
COLUMNS = (
    "number bigint generated always as identity primary key, name text not null, owner text not null, expires timestamptz,"
    " asked text, note text not null, unique (name, owner)"
)


class PostgresTable(Lined):
    """See engine.Engine, and Lined for join, leave, read_line, rewrite and wait_change."""

    modes = MODES
    caveat = ""

    def __init__(self, target, ttl: float, timeout: float):
        self.where = target.shown
        settings = dict(target.settings)
        self.name = settings.pop("table")
        if not re.fullmatch(r"\w+(\.\w+)?", self.name, re.ASCII):
            raise UsageError(f"--via {self.where}: table: not the name of a table")
        self.table = '"' + self.name.replace(".", '"."') + '"'
        self.channel = f"solo {self.name}"[:CHANNEL_LIMIT]
        self.ttl = ttl
        self.timeout = timeout
        self.link = Link(target, {**settings, "application_name": f"solo {posix.uname().nodename}:{posix.getpid()}"}, ttl, timeout)
        self.owner = f"{posix.uname().nodename}:{posix.getpid()}:{posix.urandom(8).hex()}"
        self.entries = {}  # ours by name, once they are held
        self.seen = []  # of the line, when it was last read
        self.once_text = None  # of the last period, when it was last read

    # --- asking ---------------------------------------------------------------------------------------------------

    def connect(self):
        self.open()
        problem = self.probe()
        if problem and self.ask("select to_regclass($1)", self.table) == [[None]]:
            self.create(problem)
        # Probe again: another contender may have created the table since.
        problem = problem and self.probe()
        if problem:
            raise problem

    def probe(self):
        """Return why the table cannot be read, or None. Raises Unreachable."""
        try:
            self.ask("select 1 from TABLE limit 0")
        except Unreachable:
            raise
        except SoloError as error:
            return error

    def create(self, error: SoloError):
        try:
            self.ask(f"create table if not exists TABLE ({COLUMNS})")
        except Unreachable:
            raise
        except SoloError:
            if self.ask("select to_regclass($1)", self.table) != [[None]]:
                return  # two at once
            raise SoloError(f"{error}; an administrator must run: create table {self.table} ({COLUMNS});"
                            f" grant select, insert, update, delete on {self.table} to ...") from None

    def open(self):
        self.link.open()
        if not self.link.is_pooled:  # behind a pooler a session is somebody else's too
            self.link.set(synchronous_commit="on", statement_timeout=0)
            self.link.ask(f'listen "{self.channel}"')

    def ask(self, query: str, *values) -> list:
        """Raises Unreachable, SoloError."""
        try:
            if self.link.connection is None:
                self.open()
            return self.link.ask(query.replace("TABLE", self.table), *values)
        except Unreachable:
            self.link.close()  # a new session may find a way, or another host
            raise

    # --- the lease ------------------------------------------------------------------------------------------------

    def renew(self):
        """Who asks us to end, or None."""
        self.link.heard.clear()
        rows = self.ask(
            "update TABLE set expires = clock_timestamp() + make_interval(secs => $2::float8)"
            " where owner = $1 and expires > clock_timestamp() returning number, asked", self.owner, self.ttl)
        if {entry.number for entry in self.entries.values()} - {int(number) for number, _ in rows}:
            raise Gone("its row has expired or was removed")
        return next((asked or "someone" for _, asked in rows if asked is not None), None)

    def release(self):
        try:
            self.remove("owner = $1", self.owner)
        finally:
            self.entries = {}
            self.link.close()

    # --- the line -------------------------------------------------------------------------------------------------

    def join(self, name: str, note) -> str:
        self.ask("delete from TABLE where name = $1 and expires <= clock_timestamp()", name)
        # Under a lock until it is committed: so numbers are seen in their order.
        self.ask(
            "with locked as (select pg_advisory_xact_lock($1::bigint)) insert into TABLE (name, owner, expires, note)"
            " select $2, $3, clock_timestamp() + make_interval(secs => $4::float8), $5 from locked"
            " on conflict (name, owner) do nothing",
            make_key(f"{self.name} {name}"), name, self.owner, self.ttl, note.format().decode())
        return f"{self.name}/{name}/{self.owner}"

    def leave(self, name: str):
        self.remove("owner = $1 and name = $2", self.owner, name)

    def remove(self, which: str, *values):
        self.tell(f"delete from TABLE where {which} returning 1", *values)

    def rewrite(self, entry):
        if not self.tell("update TABLE set note = $1 where number = $2 and owner = $3 and expires > clock_timestamp() returning 1",
                         entry.record.format().decode(), entry.number, self.owner):
            raise Gone("its row has expired or was removed")

    def tell(self, change: str, *values) -> list:
        """Change something, and wake those in line."""
        return self.ask(f"with changed as ({change}) select pg_notify('{self.channel}', '') from changed limit 1", *values)

    def read_line(self, name: str) -> list:
        self.seen = self.read_rows("and name = $1", name)
        return self.make_entries(self.seen)

    def read_rows(self, which: str, *values) -> list:
        return self.ask(f"select number, name, owner, note from TABLE where expires > clock_timestamp() {which} order by number",
                        *values)

    def make_entries(self, rows: list) -> list:
        return [
            Entry(name, f"{self.name}/{name}/{owner}", int(number), parse_note(note.encode()), False)
            for number, name, owner, note in rows
        ]

    def wait_change(self, name: str, key, deadline: float) -> bool:
        seen = self.seen
        while monotonic() < deadline:
            self.link.wait_heard(min(deadline, monotonic() + LOOK_AGAIN))
            self.link.heard.clear()
            if self.read_rows("and name = $1", name) != seen:
                return True
        return False

    # --- what others ask ------------------------------------------------------------------------------------------

    def list_entries(self, name=None) -> list:
        return sort_lines(self.make_entries(self.read_rows("and name = $1", name) if name is not None else self.read_rows("")))

    def ask_to_end(self, entry, who: str):
        self.ask("update TABLE set asked = $1 where number = $2", who, entry.number)

    def read_once(self, name: str):
        known = self.ask("select note from TABLE where name = $1 and owner = $2", name, ONCE)
        self.once_text = known[0][0] if known else None
        return parse_ran(self.once_text.encode()) if known else None

    def write_once(self, name: str, before, ran) -> bool:
        if self.read_once(name) != before:
            return False
        text = format_ran(ran).decode()
        if self.once_text is None:
            return bool(self.ask("insert into TABLE (name, owner, note) values ($1, $2, $3) on conflict do nothing returning 1",
                                 name, ONCE, text))
        return bool(self.ask("update TABLE set note = $3 where name = $1 and owner = $2 and note = $4 returning 1",
                             name, ONCE, text, self.once_text))

    def examine(self) -> list:
        [[clock]] = self.ask("select extract(epoch from clock_timestamp())")
        return [
            ("ok", f"PostgreSQL {self.link.version}, locks in the table {self.name}"),
            describe_skew(float(clock)),
            ("ok", "first come, first served over all hosts; a lock outlives a restart of the server and the end of a session"),
            ("note", "a step forward of the server's clock ends leases early; a standby that takes over without the last commits"
                     " forgets locks"),
        ]
