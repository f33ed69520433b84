"""The queue of a name at an engine that keeps entries in their order of arrival.

An entry holds the name once its claim is compatible with all entries before it, waiting ones included. So no
contender overtakes, and the engine's order is all that the contenders have to agree upon.
"""

from time import monotonic, sleep, time

from solo.engines.engine import Entry, Gone, make_lost
from solo.errors import Busy, SoloError, Superseded, Unreachable
from solo.modes import SLOTS, allot_slots, find_conflicts
from solo.queue import NO_WAIT
from solo.text.describe import cut_command, describe_note, format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Optional
else:
    from solo.engines.fields import NamedTuple

PAUSE = 0.5  # seconds
RENEWALS = 5  # in the life of a lease
NEW, LOST, BLOCKED, UNSETTLED, SLOTLESS, UNCONFIRMED, HELD = range(7)  # see Contender


class Wait(NamedTuple):
    """How a contender waits: until `deadline`; `watch` blocks and prints the progress, as in queue.acquire_hold.

    Until `patience` an engine that does not answer is asked again; without --wait that is NO_WAIT. With `most`
    waiters before us we are busy; None is no limit. If it `replaces`, the contender asks its obstacles to end,
    in the name of `asker`. `is_quiet`: print nothing about a wait that was not asked for.
    """

    deadline: float
    watch: object
    patience: float = NO_WAIT
    most: "Optional[int]" = None
    replaces: bool = False
    asker: str = ""
    is_quiet: bool = False


class OrderedEngine:
    """Base of the engines that keep the entries of a name in their order of arrival. The methods that raise
    NotImplementedError are each engine's own. `entries` are the entries we hold, by name.
    """

    entries: dict
    ttl: float
    caveat = ""
    skew: float = 0.0
    keeps_outcomes = False
    expires_leases = True
    is_view = False

    def close(self):
        """As Engine.close."""

    def join(self, name: str, record) -> str:
        """Append our entry to the queue of `name` and return its key. Change nothing if we have an entry there."""
        raise NotImplementedError

    def leave(self, name: str):
        """Remove our entry from the queue of `name`, if there is one."""
        raise NotImplementedError

    def read_queue(self, name: str) -> list:
        """Return the entries of `name` in order of arrival; those after ours may be left out. Their `is_held` is not set."""
        raise NotImplementedError

    def rewrite(self, entry: Entry):
        """Store the record of `entry`, which is ours. Raises Gone if the engine no longer has the entry."""
        raise NotImplementedError

    def wait_change(self, name: str, key: "Optional[str]", deadline: float) -> bool:
        """Block until the entry `key`, None for any, may have changed since read_queue.

        Return False at the deadline.
        """
        raise NotImplementedError

    @property
    def period(self) -> float:
        """The seconds between two renewals of a waiter."""
        return self.ttl / RENEWALS

    def acquire(self, name: str, record, wait: Wait) -> Entry:
        self.entries[name] = Contender(self, name, record, wait).acquire()
        return self.entries[name]

    def record_child(self, pid: int):
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record.start(pid))
            self.rewrite(self.entries[name])


class Contender:
    """One contender for one name: a state machine that reads the queue, does one step, and reads it again.

    NEW          has no entry: append one
    LOST         the lease ran out and the entry went with it: start over at the end of the queue
    BLOCKED      has obstacles: wait until one of them may have gone
    UNSETTLED    may run, but an earlier entry has no slots yet: wait a moment
    SLOTLESS     may run: take slots
    UNCONFIRMED  may run: renew the lease, as an engine may list an entry whose lease is over
    HELD         may still run after the renewal
    """

    def __init__(self, engine: OrderedEngine, name: str, record, wait: Wait):
        self.engine = engine
        self.name = name
        self.record = record
        self.wait = wait
        self.renewer = Renewer(engine)
        self.settled = monotonic() + engine.timeout  # until then earlier entries get time to take their slots
        self.holds_others = bool(engine.entries)  # they are lost with the lease
        self.key = self.place = None
        self.queue, self.obstacles, self.asked = [], [], set()
        self.is_new = self.is_renewed = self.has_changed = self.has_slots = False

    def acquire(self) -> Entry:
        """Return our entry once it is held. Raises as Engine.acquire does, and then leaves the queue."""
        state = NEW
        try:
            while True:
                try:
                    state = self.look()
                    if state is HELD:
                        return self.queue[self.place]._replace(is_held=True)
                    self.STEPS[state](self)
                except Gone as error:
                    if self.holds_others:
                        raise
                    self.key = None
                    check_patience(self.wait, make_lost(self.engine, error))
                    pause(self.wait, error)
                except Unreachable as error:
                    check_patience(self.wait, error)
                    pause(self.wait, error)
        finally:
            if state is not HELD:
                leave(self.engine, self.name)

    def look(self) -> int:
        """Read the queue and return our state. Raises Unreachable, SoloError, Gone."""
        if self.key is None:
            return NEW
        self.queue = self.engine.read_queue(self.name)
        self.place = find_place(self.queue, self.key)
        if self.place is None:
            return LOST
        self.obstacles = find_obstacles(self.queue, self.place)
        if self.obstacles:
            self.is_renewed = False
            return BLOCKED
        # A rewrite whose answer was lost may have succeeded; later entries then rely on its slots.
        has_slots = self.has_slots or self.queue[self.place].record.slot
        if self.record.claim.mode == SLOTS and not has_slots:
            return UNSETTLED if find_unready(self.queue[: self.place]) else SLOTLESS
        return HELD if self.is_renewed else UNCONFIRMED

    def join(self):
        self.key = self.engine.join(self.name, self.record)
        if not self.holds_others:
            self.renewer = Renewer(self.engine)
        self.is_new, self.is_renewed, self.has_slots = True, False, False

    def start_over(self):
        if self.holds_others:
            raise Gone("the place in the queue was lost")
        self.key = None
        check_patience(self.wait, Unreachable(f"{self.engine.where}: the place in the queue was lost"))

    def wait_for_obstacles(self):
        """Block until an obstacle may have gone. Raises Busy, Superseded."""
        refuse(self.queue[: self.place], self.obstacles, self.wait, self.is_new)
        self.is_new = self.has_changed = False
        ask_obstacles_to_end(self.engine, self.obstacles, self.wait, self.asked)
        self.wait.watch(self.wait_change, self.wait.deadline, self.describe)

    def wait_change(self, deadline: float) -> bool:
        """Block until an obstacle may have gone; meanwhile renew, but do not read the whole queue again."""
        # Of several holders of slots any one makes room.
        is_any = len(self.obstacles) > 1 and self.obstacles[0].record.claim.mode == SLOTS
        key = None if is_any else self.obstacles[-1].key
        while not self.has_changed:
            self.renewer.renew_in_time()
            if self.engine.wait_change(self.name, key, min(self.renewer.due, deadline)):
                return True
            if monotonic() >= deadline:
                return False
        return True

    def describe(self) -> "tuple[Optional[int], str, str]":
        """Return (our place among the waiters or None, a text, no forecast) for the progress line."""
        try:
            queue = mark_holds(self.engine.read_queue(self.name))
            place = find_place(queue, self.key)
            obstacles = [] if place is None else find_obstacles(queue, place)
            # Remember a change seen here: wait_change may report only later ones.
            self.has_changed = [one.key for one in obstacles] != [one.key for one in self.obstacles]
            if place is None:
                return None, "the lease ran out", ""
            return count_waiters(queue[:place]) + 1, describe_entries(obstacles) if obstacles else "free just now", ""
        except (SoloError, Gone) as error:
            return None, str(error), ""

    def wait_for_slots(self):
        """Wait for earlier entries to take their slots. Raises Busy if they are stuck."""
        if monotonic() >= max(self.settled, self.wait.deadline):
            raise make_busy(find_unready(mark_holds(self.queue[: self.place])))
        self.renewer.renew_in_time()
        self.engine.wait_change(self.name, None, monotonic() + PAUSE)

    def take_slots(self):
        taken = [pair for other in self.queue[: self.place] for pair in other.record.slot]
        record = self.record._replace(slot=allot_slots(self.record.claim, taken))
        self.engine.rewrite(self.queue[self.place]._replace(record=record))
        self.has_slots = True

    def confirm(self):
        self.renewer.renew()
        self.is_renewed = True

    STEPS = {
        NEW: join,
        LOST: start_over,
        BLOCKED: wait_for_obstacles,
        UNSETTLED: wait_for_slots,
        SLOTLESS: take_slots,
        UNCONFIRMED: confirm,
    }


class Renewer:
    """Renews the lease of a waiter when that is due, whether the queue changes seldom or often."""

    def __init__(self, engine):
        self.engine = engine
        self.due = monotonic() + engine.period

    def renew(self):
        """Renew now. Raises Superseded if a contender asks us to end; Unreachable, Gone."""
        asker = self.engine.renew()
        self.due = monotonic() + self.engine.period
        if asker:
            raise Superseded(f"superseded by {asker}")

    def renew_in_time(self):
        if monotonic() >= self.due:
            self.renew()


def check_patience(wait: Wait, error: SoloError):
    """Raise `error` unless the engine may be asked again."""
    if monotonic() >= wait.patience:
        raise error


def pause(wait: Wait, error):
    """Wait before the engine is asked again, with `error` as the progress."""

    def block(deadline: float) -> bool:
        sleep(max(0.0, min(PAUSE, deadline - monotonic())))
        return True

    wait.watch(block, wait.patience, lambda: (None, str(error), ""))


def ask_until_answered(wait: Wait, ask, *words):
    """Call `ask` until it no longer raises Unreachable, or the patience is over. Return what it returns."""
    while True:
        try:
            return ask(*words)
        except Unreachable as error:
            check_patience(wait, error)
            pause(wait, error)


def leave(engine, name: str):
    try:
        engine.leave(name)
    except (SoloError, Gone):
        pass  # the entry ends with the lease


def find_place(queue: list, key: str) -> "Optional[int]":
    return next((at for at, entry in enumerate(queue) if entry.key == key), None)


def find_obstacles(queue: list, place: int) -> list:
    """Return the earlier entries that keep the entry at `place` from running."""
    return [
        queue[at] for at in find_conflicts(queue[place].record.claim, [other.record.claim for other in queue[:place]])
    ]


def find_unready(earlier: list) -> list:
    """Return the entries without slots yet. They take slots one after another, so no slot is taken twice."""
    return [other for other in earlier if other.record.claim.mode == SLOTS and not other.record.slot]


def ask_obstacles_to_end(engine, obstacles: list, wait: Wait, asked: set):
    """With --replace, ask each obstacle to end, once. `asked` are the keys of those already asked."""
    for obstacle in obstacles if wait.replaces else ():
        if obstacle.key not in asked:
            engine.ask_to_end(obstacle, wait.asker)
            asked.add(obstacle.key)


def refuse(earlier: list, obstacles: list, wait: Wait, is_new: bool):
    """Raise Busy if a contender may not wait, or no longer: these `obstacles` are among the `earlier` entries."""
    is_late, has_limit = monotonic() >= wait.deadline, is_new and wait.most is not None
    if is_late or has_limit:
        earlier = mark_holds(earlier)
        if is_late or count_waiters(earlier) >= wait.most:
            keys = {entry.key for entry in obstacles}
            raise make_busy([entry for entry in earlier if entry.key in keys])


def mark_holds(queue: list) -> list:
    """Return the entries of a queue with `is_held` set."""
    claims = [entry.record.claim for entry in queue]
    return [
        entry._replace(is_held=not find_conflicts(claim, claims[:at]))
        for at, (entry, claim) in enumerate(zip(queue, claims))
    ]


def count_waiters(entries: list) -> int:
    """Return how many of the entries wait. Their `is_held` is set."""
    return sum(not entry.is_held for entry in entries)


def sort_queues(entries: list) -> list:
    """Return entries of any names as Engine.list_entries does: each queue in its order, with `is_held` set."""
    queues = {}
    for entry in entries:
        queues.setdefault(entry.name, []).append(entry)
    return [entry for _, queue in sorted(queues.items()) for entry in mark_holds(queue)]


def make_busy(obstacles: list) -> Busy:
    """Return what to raise for these obstacles, whose `is_held` is set."""
    shown = choose_shown(obstacles)
    busy = Busy(f"busy: {describe_holders(shown)}")
    busy.since, busy.note = shown[0].record.since, shown[0].record.note
    return busy


def describe_entries(entries: list) -> str:
    """Return the text of describe_holders for those to show, with the note of the first one."""
    shown = choose_shown(entries)
    return describe_holders(shown) + describe_note(shown[0].record)


def choose_shown(obstacles: list) -> list:
    """Return the holders among the obstacles, or, if all of them wait, all."""
    return [entry for entry in obstacles if entry.is_held] or obstacles


def describe_holders(entries: list) -> str:
    """Return `held for 3h12m by pid 4711 on db1 (backup.sh --full)`, with `and 2 more` if there are more entries.

    If the first one waits: `pid 4711 on db1 (backup.sh --full) has waited for 3h12m`.
    """
    record = entries[0].record
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    if record.launcher is None:
        return f"held by another program ({entries[0].key}){more}"
    span = format_duration(time() - record.since)
    owner = f"pid {record.launcher} on {record.host} ({cut_command(record.command)})"
    return f"held for {span} by {owner}{more}" if entries[0].is_held else f"{owner} has waited for {span}{more}"
