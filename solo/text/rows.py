"""The rows of all views, and what --json prints of them: docs/solo.schema.json is made from these
classes and the comments at their fields, by `make man`.
"""

from time import time
from typing import Literal, NamedTuple

from solo.identity import find_pid
from solo.kernel import decode
from solo.modes import EXCLUSIVE, INTEND_EXCLUSIVE, INTEND_SHARED, SHARED, SLOTS, Claim
from solo.options import FILE
from solo.process.owners import find_origins, is_orphaned, is_trusted, vouches
from solo.text.describe import find_directory, format_duration
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.engines.engine import Entry, Renewal
    from solo.history.reader import Run
    from solo.tickets import Ticket

Time = float  # seconds since the epoch; --json has it in RFC 3339
Mode = Literal["exclusive", "shared", "slots"]
MODES: "dict[str, Mode]" = {
    EXCLUSIVE: "exclusive",
    SHARED: "shared",
    SLOTS: "slots",
    INTEND_EXCLUSIVE: "exclusive",
    INTEND_SHARED: "shared",
}
FIELDS_OF_TIME = frozenset("since time end last due missed first".split())


class ProcessRow(NamedTuple):
    """A process below a command."""

    pid: int
    depth: int  # 0: the command itself
    state: str
    cpu_seconds: float
    resident_bytes: int
    seconds: float  # its age
    command: "list[str]"


class Row(NamedTuple):
    """A holder or a waiter."""

    name: str
    state: "Literal['held', 'orphaned', 'waiting']"
    mode: Mode
    slot: "int | None"  # the first slot that it holds, from 0
    slots: "int | None"  # N of --slots
    take: "int | None"  # K of --slots
    launcher: "int | None"  # its pid here
    child: "int | None"  # the command's pid here
    since: "Time | None"  # when the command started; before that, when the ticket was made
    user: "str | None"  # the owner of the ticket's file
    host: "str | None"
    command: "list[str]"
    note: "str | None"
    via: str  # file, socket or the URL of an engine, without its password
    # its number: tickets of a name are numbered in order of arrival; of a holder SOLO_TOKEN, at an
    # engine only with --via
    ticket: int
    claims: "dict[str, str | int]"  # what the ticket says and cannot be verified
    names: "list[str]"  # all names of the run
    directory: "str | None" = None  # the working directory, of a run without -n in another one
    usual: "float | None" = None  # the median of the last successful runs
    # the 10th and the 90th percentile, where the runs spread
    usual_range: "list[float] | None" = None
    overdue: bool = False  # whether it runs long
    renewed_ago: "float | None" = None  # at an engine: since its lease was renewed; null if unknown
    free_in: "float | None" = None  # at an engine: until its lease ends, unless it is renewed
    silent: "str | None" = None  # at an engine: both in words, if its renewal is late
    processes: "list[ProcessRow] | None" = None  # of a hold in show, null elsewhere

    @property
    def is_waiting(self) -> bool:
        return self.state == "waiting"

    def format_pid(self, key: str) -> str:
        """Return our pid of the `launcher` or `child`; the record's with a ? if we cannot see the
        process; or "".
        """
        return f"{self.claims[key]}?" if key in self.claims else str(getattr(self, key) or "")

    @property
    def pid(self) -> "int | None":
        """The pid that the busy line names: of the launcher, or of the process of an orphan or a
        kept hold.
        """
        return self.child if self.state == "orphaned" else self.launcher or self.child

    @property
    def shown_pid(self) -> str:
        """The same, also one that we cannot verify; "" for an unknown one."""
        pid = "" if self.state == "orphaned" else self.format_pid("launcher")
        return pid or self.format_pid("child")

    @property
    def shown_user(self) -> "str | None":
        """The owner of the ticket, and the other user that its record claims, if any."""
        claimed = self.claims.get("user")
        return self.user if claimed is None else f"{self.user} (claims {claimed})"

    @property
    def shown_mode(self) -> str:
        """The mode; of slots, `slot 2 of 4`, or how many are wanted or taken: `3 of 4 slots`."""
        if self.slots is None:
            return self.mode
        if self.slot is None or self.take != 1:
            return f"{self.take} of {self.slots} slots"
        return f"slot {self.slot} of {self.slots}"

    @property
    def age(self) -> str:
        return "?" if self.since is None else format_duration(time() - self.since)


class RunRow(NamedTuple):
    """A run, a skip or another event of a journal."""

    name: str
    outcome: str  # as history shows it, see solo(7)
    time: Time
    end: "Time | None"
    waited: "float | None"
    ran: "float | None"
    code: "int | None"
    signal: "int | None"  # the number of the signal that ended it
    reason: "str | None"
    names: "list[str]"
    mode: Mode
    slot: "int | None"
    slots: "int | None"
    take: "int | None"
    token: "int | None"  # grows with each hold of the name
    launcher: "int | None"
    child: "int | None"
    user: "str | None"
    host: "str | None"
    command: "list[str]"
    note: "str | None"
    captured: bool  # whether it ran with --capture

    @property
    def pid(self) -> "int | None":
        return self.child if self.outcome == "orphaned" else self.launcher or self.child


class JobRow(NamedTuple):
    """A name that has a history, with what the judge of health says of it."""

    name: str
    state: str  # the first of states
    states: "list[str]"  # all that are true, bad ones first
    reason: "str | None"  # why the state is bad
    last: "Time | None"  # when the last run started, of the command line that the state is about
    ago: "float | None"
    outcome: "str | None"  # of that run, as history shows it
    code: "int | None"
    signal: "int | None"
    usual: "float | None"  # the median of the last successful runs
    usual_range: "list[float] | None"  # the 10th and the 90th percentile, where the runs spread
    skipped: int  # how many of the last starts were skipped
    starts: int  # these starts, at most 20
    due: "Time | None"  # when a start was due, of a late job
    missed: "Time | None"  # when one was due while the machine was off
    command: "list[str]"


class DayRow(NamedTuple):
    """The contenders of a day, by UTC."""

    first: Time  # when the first one came
    last: Time
    runs: int
    skips: int
    failures: int
    mean: "float | None"  # of the durations
    longest: "float | None"


class NameRow(NamedTuple):
    """All about a name."""

    name: str
    via: str
    path: "str | None" = None
    journal: "str | None" = None
    # the skips in a row, above 0: of X exclusive, S shared, C slots, IX and IS for nested names
    skips: "dict[str, int]" = {}
    state: "str | None" = None  # as list --all has it, null without a history
    reason: "str | None" = None  # why a state is bad
    days: "list[DayRow]" = []  # figures of the days before the runs in the journal
    holds: "list[Row]" = []
    waiting: "list[Row]" = []
    runs: "list[RunRow]" = []
    # its last lines, if the last run goes on or failed, with --capture
    output: "list[str]" = []


class Verdict(NamedTuple):
    """The answer of --explain: the outcome of a run that starts now."""

    command: "list[str]"  # the path of the program, and its arguments
    names: "list[str]"  # all names of the run
    mode: Mode
    slots: "int | None"  # N of --slots
    take: "int | None"  # K of --slots
    directory: "str | None"  # the directory of names, null for sockets
    via: str  # file, socket or the URL of an engine, without its password
    # runs, waits, replaces (ends what is in its way, then runs), busy, ran (already in this
    # period), or refused
    outcome: str
    name: "str | None"  # of the names, the one that is in the way
    reason: "str | None"  # why it does not run, or not at once
    place: "int | None"  # in the queue, from 1
    status: int  # the exit status, 0 if it runs or waits


GOOD, BAD, NOTE = "ok", "fails", "note"  # states of a finding of doctor


class Finding(NamedTuple):
    """A finding about this machine."""

    state: str  # ok, note or fails
    check: str  # a word for programs
    text: str


class LineRow(NamedTuple):
    """A line of a crontab, or a unit."""

    file: str
    line: int
    state: str
    tool: "str | None"  # what guards the line today
    call: "str | None"
    lock: "str | None"
    findings: "list[Finding]"
    use: "str | None"  # the line to use, only where its effect was tried


def describe_claim(
    claim: "Claim | Run", slot: "int | None" = None
) -> "tuple[Mode, int | None, int | None, int | None]":
    """Return the mode, the first slot, N and K of --slots, as rows have them."""
    counts = (claim.slots, claim.take) if claim.mode == SLOTS else (None, None)
    return MODES[claim.mode], slot, *counts


def make_row(name: str, where: str, ticket: "Ticket") -> Row:
    """Return the row of a ticket, whose record was read."""
    record = ticket.record
    assert ticket.owner_uid is not None
    # Before its command runs, a launcher that holds the name may wait at its engine, or for the
    # second name of a pair.
    is_waiting = not ticket.is_hold
    if record is not None and record.child is None and (record.via or record.is_pair):
        is_waiting = True
    state: Literal["held", "orphaned"] = "orphaned" if is_orphaned(ticket) else "held"
    pids, claims = find_claims(ticket)
    return Row(
        name,
        "waiting" if is_waiting else state,
        *describe_claim(
            record.claim if record else Claim(EXCLUSIVE),
            record.slot[0][0] if record and record.slot else None,
        ),
        launcher=pids.get("launcher"),
        child=pids.get("child"),
        since=record.since if record else None,
        user=find_user(ticket.owner_uid),
        host=record.origin.host if record else None,
        command=[decode(word) for word in record.command] if record else [],
        note=record.note or None if record else None,
        via=record.via or where if record else where,
        ticket=ticket.number,
        claims=claims,
        names=record.names if record and where == FILE else [name],  # sockets do not say them
        directory=find_directory(ticket) if record else None,
    )


def find_claims(ticket: "Ticket") -> "tuple[dict[str, int], dict[str, str | int]]":
    """Return (our pids by `launcher` and `child`; what the record says but the owner of its file
    cannot vouch for).
    """
    pids: dict[str, int] = {}
    claims: dict[str, str | int] = {}
    record, trusted = ticket.record, is_trusted(ticket)
    if record is None:
        return pids, claims
    if not trusted and record.uid != ticket.owner_uid:
        claims["user"] = find_user(record.uid)
    for key, process in (
        ("launcher", None if record.is_kept else record.holder),
        ("child", record.child),
    ):
        if process and process[0]:
            pid = find_pid(process, *find_origins(ticket))
            if pid and (trusted or vouches(ticket, process)):
                pids[key] = pid
            else:
                claims[key] = pid or process[0]
    return pids, claims


def make_entry_row(entry: "Entry", where: str, renewal: "Renewal | None") -> Row:
    """Return the row of an engine's entry, whose lease was renewed then, None if that is not
    known.
    """
    record = entry.record
    return Row(
        entry.name,
        "held" if entry.is_held else "waiting",
        *describe_claim(record.claim, record.slot[0][0] if record.slot else None),
        launcher=record.launcher,
        child=record.child,
        since=record.since,
        user=record.user or None,
        host=record.host or None,
        command=list(record.command),
        note=record.note or None,
        via=where,
        ticket=entry.number,
        claims={},
        names=[entry.name],
        renewed_ago=round(renewal.age, 1) if renewal else None,
        free_in=round(renewal.left, 1) if renewal else None,
        silent=renewal.describe() if renewal and renewal.is_late else None,
    )
