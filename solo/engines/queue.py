"""The interface of an engine, and the queue of a name there.

An engine keeps a queue for each name. Each contender in it has an entry, which lives as long as its
owner's lease. A lease has to be renewed: `ttl` seconds after the last renewal the engine gives the
name to the next waiter, even if the owner's command still runs. lease.py guarantees that the
command is dead by then; an engine never has to.

An entry holds the name once its claim is compatible with all entries before it, waiting ones
included. So no contender overtakes, and the engine's order is all that the contenders have to agree
upon.
"""

from time import monotonic, sleep, time

from solo.engines.engine import RENEWALS, Entry, EntryRecord, Gone, Renewal
from solo.engines.fields import NamedTuple
from solo.errors import Busy, SoloError, Superseded, Unreachable
from solo.kernel import NO_WAIT, read_boot_clock
from solo.modes import SLOTS, Claim, allot_slots, find_conflicts
from solo.text.describe import cut_command, format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from solo.contention.protocols import Watch

    Answer = TypeVar("Answer")

PAUSE = 0.5  # seconds
NEVER = -float("inf")


class Wait(NamedTuple):
    """How a contender waits: until `deadline`; `watch` blocks and prints the progress, as in
    queue.Attempt.

    Until `patience` an engine that does not answer is asked again; without --wait that is NO_WAIT.
    With `most` waiters before us we are busy; None is no limit. If it `replaces`, the contender
    asks its obstacles to end, in the name of `asker`. `is_quiet`: print nothing about a wait that
    was not asked for.
    """

    deadline: float
    watch: "Watch"
    patience: float = NO_WAIT
    most: "int | None" = None
    replaces: bool = False
    asker: str = ""
    is_quiet: bool = False


class Engine:
    """Base of the engines: one connection, with one lease for all names held through it. Methods
    that raise NotImplementedError are each engine's own.

    `where` names it in messages, without secrets. `caveat` is a warning that -v prints about every
    lock there, or "". `ttl` is how many seconds an unrenewed lease lives: as requested, and after
    `acquire` as granted. `skew` is how many seconds its clock is ahead of this host's, 0 if
    unknown. `keeps_outcomes` is whether it has log_outcome and read_outcomes. `expires_leases` is
    whether it ends an unrenewed lease without the help of a contender. `is_view`, which the caller
    may set before `connect`: create nothing there, and list no entry whose lease is over. `entries`
    are the entries we hold, by name. `client` makes the requests.

    Every method but `acquire` returns within `timeout` seconds. All raise Unreachable if the engine
    does not answer and SoloError if it refuses; Gone only where stated.
    """

    where: str
    ttl: float
    entries: "dict[str, Entry]"
    client: "Any"
    caveat = ""
    skew: float = 0.0
    keeps_outcomes = True
    expires_leases = True
    is_view = False
    # when the last renewal was sent that confirmed an entry whose turn had come, by read_boot_clock
    confirmed = NEVER
    confirms = True  # whether a command may begin by that renewal, without one more as its holder

    @property
    def timeout(self) -> float:
        return float(self.client.timeout)

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self.client.timeout = seconds

    def make_lost(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"{self.where}: the lease was lost before the command could start: {error}"
        )

    def make_invalid_answer(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self.where}: the answer is invalid: {type(error).__name__}: {error}")

    def connect(self) -> None:
        """Connect, and verify that the server can keep locks."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection. Call it after `release`."""

    # --- the lease--------------------------------------------------------------------------------

    def renew(self) -> "str | None":
        """Renew the lease, or raise Gone if one of our entries is lost. Return who asks us to end
        (ask_to_end), or None.
        """
        raise NotImplementedError

    @property
    def period(self) -> float:
        """The seconds between two renewals of a waiter."""
        return self.ttl / RENEWALS

    def release(self) -> None:
        """Give up all our entries and the lease. Our command has ended."""
        raise NotImplementedError

    # --- the queue--------------------------------------------------------------------------------

    def acquire(self, name: str, record: EntryRecord, wait: Wait) -> Entry:
        """Return our entry for `name` once it is held, has its slots, and was renewed after that.
        Parents are acquired first.

        Raises Busy. After any exception we have left the queue.
        """
        self.entries[name] = Contender(self, name, record, wait).acquire()
        return self.entries[name]

    def join(self, name: str, record: EntryRecord) -> str:
        """Append our entry to the queue of `name` and return its key. Change nothing if we have an
        entry there.
        """
        raise NotImplementedError

    def leave(self, name: str) -> None:
        """Remove our entry from the queue of `name`, if there is one."""
        raise NotImplementedError

    def read_queue(self, name: str) -> "list[Entry]":
        """Return the entries of `name` in order of arrival; those after ours may be left out. Their
        `is_held` is not set.
        """
        raise NotImplementedError

    def rewrite(self, entry: Entry) -> None:
        """Store the record of `entry`, which is ours. Raises Gone if the engine no longer has the
        entry.
        """
        raise NotImplementedError

    def wait_change(self, name: str, key: "str | None", deadline: float) -> bool:
        """Block until the entry `key`, None for any, may have changed since read_queue. Return
        False at the deadline.
        """
        raise NotImplementedError

    def record_child(self, pid: int) -> None:
        """Record in our entries that the command runs, as `pid`."""
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record.start(pid))
            self.rewrite(self.entries[name])

    # --- for views and other contenders-----------------------------------------------------------

    def list_entries(self, name: "str | None" = None) -> "list[Entry]":
        """Return the entries of one name, or of all, each queue in its order."""
        raise NotImplementedError

    def read_renewal(self, entry: Entry) -> "Renewal | None":
        """Return when the lease of `entry`, which was read through us, was renewed; None if the
        engine does not know.
        """
        raise NotImplementedError

    def remove(self, entry: Entry) -> None:
        """Remove an entry of anybody, and wake the waiters behind it. Its owner may live, and
        notices at its next renewal.
        """
        raise NotImplementedError

    def ask_to_end(self, entry: Entry, asker: str) -> None:
        """Ask the owner of `entry` to end its command or leave the queue. It reads that at its next
        renewal.
        """
        raise NotImplementedError

    def read_once(self, name: str) -> "tuple[bytes, object]":
        """Return (the text of the last run of `name`, b"" if there is none; its version)."""
        raise NotImplementedError

    def write_once(self, name: str, version: object, text: bytes) -> bool:
        """Replace the text of this version. Return False if it was changed meanwhile."""
        raise NotImplementedError

    def log_outcome(self, name: str, number: int, text: bytes) -> None:
        """Keep the outcome of our hold `number` of `name`, after its release, and only the last
        KEPT of the name.
        """
        raise NotImplementedError

    def read_outcomes(self, name: "str | None") -> "list[tuple[str, bytes]]":
        """Return [(name, text)] of the outcomes of `name` and of the names nested in it, or all.
        Sets `skew`.
        """
        raise NotImplementedError

    def examine(self) -> "list[tuple[str, str]]":
        """Return [("ok" or "note", text)] for `solo doctor`: version, clock, promises and their
        limits.
        """
        raise NotImplementedError


class Contender:
    """One contender for one name: a state machine that reads the queue, does one step, and reads it
    again.

    join                it has no entry, or the lease ran out and the entry went with it
    wait_for_obstacles  it has obstacles: wait until one of them may have gone
    wait_for_slots      it may run, but an earlier entry has no slots yet
    take_slots          it may run
    confirm             it may run: renew the lease first, as an engine may list a dead entry
    None                it may still run after the renewal: it holds the name
    """

    def __init__(self, engine: Engine, name: str, record: EntryRecord, wait: Wait) -> None:
        self.engine = engine
        self.name = name
        self.record = record
        self.wait = wait
        # when to renew, whether the queue changes seldom or often
        self.due = monotonic() + engine.period
        # until then earlier entries get time to take their slots
        self.settled = monotonic() + engine.timeout
        self.holds_others = bool(engine.entries)  # they are lost with the lease
        self.key: str | None = None
        self.own: Entry = None  # type: ignore[assignment]  # our entry, once `look` has found it
        self.earlier: list[Entry] = []
        self.obstacles: list[Entry] = []
        self.asked: set[str] = set()  # keys of the obstacles that were asked to end
        self.is_new = self.is_renewed = self.has_changed = self.has_slots = False

    def acquire(self) -> Entry:
        """Return our entry once it is held. Raises as Engine.acquire does, and then leaves the
        queue.
        """
        step: Callable[[], None] | None = self.join
        try:
            while True:
                try:
                    step = self.look()
                    if step is None:
                        return self.own._replace(is_held=True)
                    step()
                except Gone as error:
                    if self.holds_others:
                        raise
                    self.key = None
                    pause(self.wait, self.engine.make_lost(error))
                except Unreachable as error:
                    pause(self.wait, error)
        finally:
            if step is not None:
                try_to(self.engine.leave, self.name)

    def look(self) -> "Callable[[], None] | None":
        """Read the queue and return the next step. Raises Unreachable, SoloError, Gone."""
        if self.key is None:
            return self.join
        queue = self.engine.read_queue(self.name)
        at = find_index(queue, self.key)
        if at is None:
            raise Gone("the place in the queue was lost")
        self.earlier = queue[:at]
        self.own = queue[at]
        self.obstacles = find_obstacles(self.earlier, self.own.record.claim)
        if self.obstacles:
            self.is_renewed = False
            return self.wait_for_obstacles
        # A rewrite whose answer was lost may have succeeded; later entries then rely on its slots.
        has_slots = self.has_slots or self.own.record.slot
        if self.record.claim.mode == SLOTS and not has_slots:
            return self.wait_for_slots if find_unready(self.earlier) else self.take_slots
        return None if self.is_renewed else self.confirm

    def join(self) -> None:
        self.key = self.engine.join(self.name, self.record)
        if not self.holds_others:
            self.due = monotonic() + self.engine.period
        self.is_new = True
        self.is_renewed = False
        self.has_slots = False

    def wait_for_obstacles(self) -> None:
        """Block until an obstacle may have gone. Raises Busy, Superseded."""
        most = self.wait.most
        is_full = (
            self.is_new and most is not None and count_waiters(mark_holds(self.earlier)) >= most
        )
        if is_full or monotonic() >= self.wait.deadline:
            keys = {entry.key for entry in self.obstacles}
            found = [entry for entry in mark_holds(self.earlier) if entry.key in keys]
            raise make_busy(found, self.record.claim)
        self.is_new = self.has_changed = False
        for obstacle in self.obstacles if self.wait.replaces else ():
            if obstacle.key not in self.asked:
                self.engine.ask_to_end(obstacle, self.wait.asker)
                self.asked.add(obstacle.key)
        self.wait.watch(self.wait_change, self.wait.deadline, self.describe)

    def wait_change(self, deadline: float) -> bool:
        """Block until an obstacle may have gone; meanwhile renew, but do not read the whole queue
        again.
        """
        # Of several holders of slots any one makes room.
        is_any = len(self.obstacles) > 1 and self.obstacles[0].record.claim.mode == SLOTS
        key = None if is_any else self.obstacles[-1].key
        while not self.has_changed:
            self.renew_in_time()
            if self.engine.wait_change(self.name, key, min(self.due, deadline)):
                return True
            if monotonic() >= deadline:
                return False
        return True

    def describe(self) -> "tuple[int | None, str, str]":
        """Return (our place among the waiters or None, a text, no forecast) for the progress
        line.
        """
        try:
            queue = mark_holds(self.engine.read_queue(self.name))
            at = find_index(queue, self.key)
            obstacles = [] if at is None else find_obstacles(queue[:at], queue[at].record.claim)
            # Remember a change seen here: wait_change may report only later ones.
            self.has_changed = [one.key for one in obstacles] != [one.key for one in self.obstacles]
            if at is None:
                return None, "the lease ran out", ""
            return (
                count_waiters(queue[:at]) + 1,
                describe_entries(obstacles, self.record.claim) if obstacles else "free just now",
                "",
            )
        except (SoloError, Gone) as error:
            return None, str(error), ""

    def wait_for_slots(self) -> None:
        """Wait for earlier entries to take their slots. Raises Busy if they are stuck."""
        if monotonic() >= max(self.settled, self.wait.deadline):
            raise make_busy(find_unready(mark_holds(self.earlier)), self.record.claim)
        self.renew_in_time()
        self.engine.wait_change(self.name, None, monotonic() + PAUSE)

    def take_slots(self) -> None:
        taken = [pair for other in self.earlier for pair in other.record.slot]
        record = self.record._replace(slot=allot_slots(self.record.claim, taken))
        self.engine.rewrite(self.own._replace(record=record))
        self.has_slots = True

    def confirm(self) -> None:
        sent = read_boot_clock()
        self.renew()
        self.is_renewed = True
        self.engine.confirmed = sent if self.engine.confirms else NEVER

    def renew(self) -> None:
        """Renew now. Raises Superseded if a contender asks us to end; Unreachable, Gone."""
        asker = self.engine.renew()
        self.due = monotonic() + self.engine.period
        if asker:
            raise Superseded(f"superseded by {asker}")

    def renew_in_time(self) -> None:
        if monotonic() >= self.due:
            self.renew()


def pause(wait: Wait, error: SoloError) -> None:
    """Wait before the engine is asked again, with `error` as the progress. Raise it if the patience
    is over.
    """
    if monotonic() >= wait.patience:
        raise error

    def block(deadline: float) -> bool:
        sleep(max(0.0, min(PAUSE, deadline - monotonic())))
        return True

    wait.watch(block, wait.patience, lambda: (None, str(error), ""))


def ask_until_answered(wait: Wait, ask: "Callable[..., Answer]", *words: object) -> "Answer":
    """Call `ask` until it no longer raises Unreachable, or the patience is over. Return what it
    returns.
    """
    while True:
        try:
            return ask(*words)
        except Unreachable as error:
            pause(wait, error)


def try_to(give_up: "Callable[..., None]", *words: str) -> None:
    """Give up entries. If that fails, they end with the lease."""
    try:
        give_up(*words)
    except (SoloError, Gone):
        pass


def find_index(queue: "list[Entry]", key: "str | None") -> "int | None":
    return next((at for at, entry in enumerate(queue) if entry.key == key), None)


def find_obstacles(earlier: "list[Entry]", claim: Claim) -> "list[Entry]":
    """Return those of the earlier entries that keep an entry with this claim from running."""
    return [earlier[at] for at in find_conflicts(claim, [other.record.claim for other in earlier])]


def find_unready(earlier: "list[Entry]") -> "list[Entry]":
    """Return the entries without slots yet. They take slots one after another, so no slot is taken
    twice.
    """
    return [
        other for other in earlier if other.record.claim.mode == SLOTS and not other.record.slot
    ]


def mark_holds(queue: "list[Entry]") -> "list[Entry]":
    """Return the entries of a queue with `is_held` set."""
    claims = [entry.record.claim for entry in queue]
    return [
        entry._replace(is_held=not find_conflicts(claim, claims[:at]))
        for at, (entry, claim) in enumerate(zip(queue, claims))
    ]


def count_waiters(entries: "list[Entry]") -> int:
    """Return how many of the entries wait. Their `is_held` is set."""
    return sum(not entry.is_held for entry in entries)


def sort_queues(entries: "Iterable[Entry]") -> "list[Entry]":
    """Return entries of any names as Engine.list_entries does: each queue in its order, with
    `is_held` set.
    """
    queues: dict[str, list[Entry]] = {}
    for entry in entries:
        queues.setdefault(entry.name, []).append(entry)
    return [entry for _, queue in sorted(queues.items()) for entry in mark_holds(queue)]


def make_busy(obstacles: "list[Entry]", claim: Claim) -> Busy:
    """Return what to raise for these obstacles of `claim`, whose `is_held` is set."""
    shown = choose_shown(obstacles, claim)
    busy = Busy(f"busy: {describe_holders(shown)}")
    busy.since = shown[0].record.since
    busy.note = shown[0].record.note
    return busy


def describe_entries(entries: "list[Entry]", claim: Claim) -> str:
    """Return the text of describe_holders for those to show, with the note of the first one."""
    shown = choose_shown(entries, claim)
    note = shown[0].record.note
    return f"{describe_holders(shown)}{note and f': {note}'}"


def choose_shown(obstacles: "list[Entry]", claim: Claim) -> "list[Entry]":
    """Return the holders among the obstacles, or, if these leave room for `claim`, the waiters."""
    in_the_way = find_obstacles([entry for entry in obstacles if entry.is_held], claim)
    return in_the_way or [entry for entry in obstacles if not entry.is_held] or obstacles


def describe_holders(entries: "list[Entry]") -> str:
    """Return `held for 3h12m by pid 4711 on db1 (backup.sh --full)`, with `and 2 more` if there are
    more entries.

    If the first one waits: `pid 4711 on db1 (backup.sh --full) has waited for 3h12m`.
    """
    record, owner = entries[0].record, describe_owner(entries[0])
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    if record.launcher is None:
        return f"held by {owner}{more}"
    span = format_duration(time() - (record.since or time()))
    return (
        f"held for {span} by {owner}{more}"
        if entries[0].is_held
        else f"{owner} has waited for {span}{more}"
    )


def describe_owner(entry: Entry) -> str:
    record = entry.record
    if record.launcher is None:
        return f"another program ({entry.key})"
    return f"pid {record.launcher} on {record.host} ({cut_command(record.command)})"
