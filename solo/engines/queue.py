"""The line of a name at an engine that keeps entries in their order of arrival: who is in, who waits for whom. Cold.

An entry is in when the rule lets it run beside all entries before it, those that wait included: so nobody overtakes, and nothing
but the engine's order has to be agreed upon.
"""

from time import monotonic, sleep, time
from typing import NamedTuple, Optional

from solo.engines.engine import Gone, make_lost
from solo.errors import Busy, SoloError, Superseded, Unreachable
from solo.modes import COUNTED, allot_slots, find_conflicts
from solo.queue import NO_WAIT
from solo.text.describe import cut_command, format_duration

PAUSE = 0.5  # seconds
RENEWALS = 5  # while its lease lives


class Wait(NamedTuple):
    """How one who takes a name waits: until `deadline`; `watch` blocks and shows it, as in queue.take_hold.

    `patience` is until when an engine that does not answer is asked again; without --wait that is over at once. `most` is how
    many may stand in line before us, None: any number; `replaces`: ask those in the way to end, as `who`.
    """

    deadline: float
    watch: object
    patience: float = NO_WAIT
    most: Optional[int] = None
    replaces: bool = False
    who: str = ""


class Lined:
    """What engines have in common that keep the entries of a name in their order of arrival. They have, besides,

    `join(name, note)` -> key of our entry, now the last one; `leave(name)` forgets it; `read_line(name)` -> entries by order of
    arrival, their is_held not yet known; `rewrite(entry)` has the entry say its note; `wait_change(name, key, deadline)` blocks
    until the entry `key` of the line, None: any, may have changed since read_line; false at the deadline. `join` changes nothing
    if we are in the line already. `entries` are those we hold, by name.
    """

    def take(self, name: str, note, wait: Wait):
        self.entries[name] = take_in_line(self, name, note, wait)
        return self.entries[name]

    def tell_child(self, pid: int):
        for name, entry in self.entries.items():
            self.entries[name] = entry._replace(record=entry.record._replace(child=pid))
            self.rewrite(self.entries[name])

    def wait_loss(self, seconds: float, stop):
        stop.wait(seconds)


def take_in_line(engine: Lined, name: str, note, wait: Wait):
    """As Engine.take."""
    key, asked, is_renewed, is_in = None, set(), False, False
    keeper, settled = Keeper(engine), monotonic() + engine.timeout
    holds_others = bool(engine.entries)  # under other names, which are lost with the lease
    try:
        while True:
            try:
                if key is None:
                    note = note._replace(slot=[])
                    key, is_new = engine.join(name, note), True
                line = engine.read_line(name)
                place = find_place(line, key)
                if place is None:  # our lease ran out, and our place went with it: to the end of the line
                    if holds_others:
                        raise Gone("our place in the line was lost")
                    key, is_renewed = None, False
                    check_patience(wait, Unreachable(f"{engine.where}: our place in the line was lost"))
                    continue
                entry, obstacles = line[place], find_obstacles(line, place)
                unready = find_unready(line[:place])
                if obstacles:
                    is_renewed = False
                    refuse(line, place, obstacles, wait, is_new)
                    is_new = False
                    for obstacle in [other for other in obstacles if wait.replaces and other.key not in asked]:
                        engine.ask_to_end(obstacle, wait.who)
                        asked.add(obstacle.key)
                    block(engine, name, key, obstacles, wait, keeper)
                elif note.claim.mode == COUNTED and not note.slot and unready:
                    # In a moment those before us say which slots are left; unless they are stuck.
                    if monotonic() >= max(settled, wait.deadline):
                        raise make_busy(unready)
                    keeper.renew_in_time()
                    engine.wait_change(name, None, monotonic() + PAUSE)
                elif note.claim.mode == COUNTED and not note.slot:
                    taken = [pair for other in line[:place] for pair in other.record.slot]
                    note = note._replace(slot=allot_slots(note.claim, taken))
                    engine.rewrite(entry._replace(record=note))
                elif not is_renewed:
                    # An engine may let one in whose lease is over: renewed after that, and looked at again, it is ours.
                    keeper.renew()
                    is_renewed = True
                else:
                    is_in = True
                    return entry._replace(is_held=True)
            except Gone as error:
                if holds_others:
                    raise
                key, is_renewed = None, False
                check_patience(wait, make_lost(engine, error))
                pause(wait, error)
            except Unreachable as error:
                check_patience(wait, error)
                pause(wait, error)
    finally:
        if not is_in:
            leave(engine, name)


class Keeper:
    """Keeps our place in the line: a lease must be renewed also while nothing changes, and however often something does."""

    def __init__(self, engine):
        self.engine = engine
        self.due = monotonic() + engine.ttl / RENEWALS

    def renew(self):
        """Raises Superseded, Unreachable, Gone."""
        who = self.engine.renew()
        self.due = monotonic() + self.engine.ttl / RENEWALS
        if who:
            raise Superseded(f"superseded by {who}")

    def renew_in_time(self):
        if monotonic() >= self.due:
            self.renew()


def check_patience(wait: Wait, error: SoloError):
    """Raise `error`, unless the engine may be asked again."""
    if monotonic() >= wait.patience:
        raise error


def pause(wait: Wait, error):
    """Before the engine is asked again."""
    def block(deadline: float) -> bool:
        sleep(max(0.0, min(PAUSE, deadline - monotonic())))
        return True

    wait.watch(block, wait.patience, lambda: (None, str(error)))


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
        pass  # it goes with our lease


def find_place(line: list, key: str):
    return next((at for at, entry in enumerate(line) if entry.key == key), None)


def find_obstacles(line: list, place: int) -> list:
    """Whom the entry at `place` waits for: those before it beside whom it may not run."""
    return [line[at] for at in find_conflicts(line[place].record.claim, [other.record.claim for other in line[:place]])]


def find_unready(earlier: list) -> list:
    """Those who are about to take their slots. One does so after the other, so no two take the same."""
    return [other for other in earlier if other.record.claim.mode == COUNTED and not other.record.slot]


def refuse(line: list, place: int, obstacles: list, wait: Wait, is_new: bool):
    """Raise Busy if the entry at `place` may not wait, or not any longer."""
    waiting = mark_held(line[:place]).count(False) if is_new and wait.most is not None else -1
    if waiting >= (wait.most or 0) or monotonic() >= wait.deadline:
        raise make_busy(obstacles)


def mark_held(line: list) -> list:
    """Which entries of a line are in."""
    claims = [entry.record.claim for entry in line]
    return [not find_conflicts(claim, claims[:at]) for at, claim in enumerate(claims)]


def sort_lines(entries: list) -> list:
    """Entries of any names, each line in its order, as Engine.list_entries gives them."""
    lines = {}
    for entry in entries:
        lines.setdefault(entry.name, []).append(entry)
    return [
        entry._replace(is_held=is_held)
        for _, line in sorted(lines.items()) for entry, is_held in zip(line, mark_held(line))
    ]


def block(engine, name: str, key: str, obstacles: list, wait: Wait, keeper: Keeper):
    """Until who is in our way may have left. Of those that hold slots any one makes room."""
    waited_for = None if len(obstacles) > 1 and obstacles[0].record.claim.mode == COUNTED else obstacles[-1].key
    has_changed = False

    def describe() -> tuple:
        nonlocal has_changed
        try:
            line = engine.read_line(name)
            place = find_place(line, key)
            others = [] if place is None else find_obstacles(line, place)
            # What is seen here is news: wait_change may tell only of what comes after it.
            has_changed = [one.key for one in others] != [one.key for one in obstacles]
            if place is None:
                return None, "the lease ran out"
            return mark_held(line[:place]).count(False) + 1, describe_entries(others) if others else "free just now"
        except (SoloError, Gone) as error:
            return None, str(error)

    def wait_change(deadline: float) -> bool:
        keeper.renew_in_time()
        return has_changed or engine.wait_change(name, waited_for, min(keeper.due, deadline))

    wait.watch(wait_change, wait.deadline, describe)


def make_busy(obstacles: list) -> Busy:
    busy = Busy(f"busy: {describe_entries(obstacles)}")
    busy.since = obstacles[0].record.since
    return busy


def describe_entries(entries: list) -> str:
    """`held for 3h12m by pid 4711 on db1 (backup.sh --full)`, and its kin."""
    note = entries[0].record
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    if note.launcher is None:
        return f"held by another program ({entries[0].key}){more}"
    span = format_duration(time() - note.since)
    return f"held for {span} by pid {note.launcher} on {note.host} ({cut_command(note.command)}){more}"
