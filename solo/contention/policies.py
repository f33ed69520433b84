"""What a contender does about others who want the same: --max-waiting, --latest, --replace. Cold.

Kubernetes calls --replace the concurrency policy Replace (Forbid is our default); GitHub's cancel-in-progress is --replace
where something runs, and its pending queue of one is --latest.

Each is an object whose methods the queue calls. Under the gate: `leave_room`, before a seat is taken, `ignores`, and `meet`,
with those it is about. Outside: `act`, which says when to look again.
"""

import _signal

from solo.errors import SoloError, Superseded
from solo.contention.evict import Eviction
from solo.kernel import BELL, close
from solo.process.tree import open_target
from solo.queue import close_all, find_holds, find_holds_in_the_way, find_own_ancestors, read_claim
from solo.modes import INTEND_SHARED, SHARED, find_conflicts
from solo.tickets import LIVE, MOST_OPEN, SEAT, get_number, is_published
from solo.text.describe import describe_owner


def make_rivals(options: dict, kill_after: float):
    """What `options` ask for, or None. They exclude each other."""
    if "max_waiting" in options:
        return MaxWaiting(options["max_waiting"])
    if "latest" in options:
        return Latest()
    return Replace(kill_after) if "replace" in options else None


class Rivals:
    """Does nothing about anyone."""

    def leave_room(self, line, record) -> bool:
        """May we take a seat?"""
        return True

    def ignores(self, ticket, record) -> bool:
        """Is this one, before us in line, not to be waited for?"""
        return False

    def meet(self, line, record, seat, obstacles: list):
        """Do what must be done under the gate. `seat` is our own, if we have one; no obstacles: we are in."""

    def act(self, deadline: float) -> float:
        """Do it; when to look again, `deadline` at the latest."""
        return deadline


class MaxWaiting(Rivals):
    """Leave if so many want the same name already and wait for it."""

    def __init__(self, limit: int):
        self.limit = limit

    def leave_room(self, line, record):
        waiting = find_seats(line, None)
        count = sum(wants_the_same(seat, record) for seat in waiting)
        close_all(waiting)
        return count < self.limit


class Latest(Rivals):
    """Newest wins: those before us in line are rung, and leave. Under the gate, so that none of them gets in first."""

    def __init__(self):
        self.met = set()

    def ignores(self, ticket, record):
        return wants_the_same(ticket, record)

    def meet(self, line, record, seat, obstacles):
        for ticket in find_seats(line, seat):
            if ticket.file not in self.met and wants_the_same(ticket, record):
                self.met.add(ticket.file)
                ring(ticket)
            ticket.close()


def ring(ticket):
    """Ring the bell of a waiter. It listens from before it took its seat, so once is enough."""
    try:
        record = ticket.read_record()
        if record is not None:
            pidfd = open_target(ticket, record.launcher)
            try:
                _signal.pidfd_send_signal(pidfd, BELL)
            finally:
                close(pidfd)
    except (OSError, SoloError):
        pass  # it has left, or is another user's: then we pass it all the same


def name_superseder(error: Superseded, line, record, seat) -> Superseded:
    """Say by whom we were superseded, if it is still there. Needs no gate: what is found is only told."""
    newest = None
    try:
        for file in sorted(filter(is_published, line.list_files()), key=get_number):
            ticket = line.open_ticket(file) if seat is None or get_number(file) > seat.number else None
            if ticket is not None:
                if ticket.state is LIVE and wants_the_same(ticket, record) and ticket.record:
                    newest = describe_owner(ticket)
                ticket.close()
    except SoloError:
        pass
    return Superseded(f"superseded by {newest}" if newest else str(error))


class Replace(Rivals):
    """End whoever holds the name or stands in line before us: the command first, then its launcher."""

    def __init__(self, kill_after: float):
        self.eviction = Eviction(kill_after)
        self.targets = []

    def meet(self, line, record, seat, obstacles):
        if not obstacles:
            return
        holds, _ = find_holds_in_the_way(line, record.claim)
        spared = find_own_ancestors(line, holds)
        others = [hold for hold in holds if hold not in spared]
        enough = next((size for size in range(len(others)) if not conflicts(record, spared + others[size:])), len(others))
        self.targets = others[:enough]
        close_all([hold for hold in holds if hold not in self.targets])
        for ticket in find_seats(line, seat):
            if conflicts(record, [ticket]) or wants_the_same(ticket, record) and not both_shared(ticket, record):
                self.targets.append(ticket)
            else:
                ticket.close()

    def act(self, deadline):
        targets, self.targets = self.targets, []
        return min(deadline, self.eviction.act_on_all(targets))


def conflicts(record, tickets: list) -> bool:
    return bool(find_conflicts(record.claim, list(map(read_claim, tickets))))


def both_shared(ticket, record) -> bool:
    return {read_claim(ticket).mode, record.claim.mode} <= {SHARED, INTEND_SHARED}


def find_seats(line, seat) -> list:
    """All living seats, or those before ours, with their records; the last of them are open. Under the gate; the files are as last
    listed.

    Not that of one whose command runs already, and which is just letting go of it.
    """
    seats, running = [], {identify_launcher(hold) for hold in find_holds(line, 0) if hold.record and hold.record.child}
    for file in sorted(line.files, reverse=True):
        ticket = line.open_ticket(file) if file.startswith(SEAT) and (seat is None or file < seat.file) else None
        if ticket is None:
            continue
        launcher = identify_launcher(ticket)
        if len(seats) >= MOST_OPEN or ticket.state is not LIVE or launcher in running:
            ticket.close()
        if ticket.state is LIVE and launcher not in running:
            seats.append(ticket)
    return seats


def identify_launcher(ticket) -> tuple:
    record = ticket.read_record()
    return record and (record.launcher, record.world.pid_namespace)


def wants_the_same(ticket, record) -> bool:
    """Is it for one of our own names? On a parent stand others too."""
    theirs = ticket.read_record()
    return theirs is None or not set(theirs.names).isdisjoint(map(ticket.line.shorten, record.names))
