"""What a contender does about others who want the same: --max-waiting, --latest, --replace. Cold.

Kubernetes calls --replace the concurrency policy Replace (Forbid is our default); GitHub's cancel-in-progress is --replace
where something runs, and its pending queue of one is --latest.

Each is an object with three methods that the queue calls. Under the gate: `leave_room`, before a seat is taken, and `meet`,
which opens those it is about. Outside: `act`, which says when to look again.
"""

import _signal
from _signal import SIGKILL, SIGTERM
from time import monotonic, sleep

from solo.errors import SoloError, Superseded
from solo.kernel import BELL, close
from solo.orphans import open_pidfd
from solo.processes import end, end_all, find_descendants
from solo.queue import close_all, find_holds_in_the_way, read_claim
from solo.rule import COUNTED, find_conflicts
from solo.tickets import LIVE, SEAT, get_number, is_published
from solo.words import describe_owner

RINGS = 20  # a bell may be lost in the moment before its hearer listens
PAUSE = 0.01  # seconds, between two rings, and longer each time
GRACE = 2.0  # seconds from the end of the command to that of its launcher, and from SIGKILL to the end


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

    def meet(self, line, record, seat):
        """Open those that `act` is about. `seat` is our own, if we have one."""

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
    """Newest wins: those before us in line are rung, and leave."""

    def __init__(self):
        self.met = set()
        self.before = []

    def ignores(self, ticket, record):
        return wants_the_same(ticket, record)

    def meet(self, line, record, seat):
        for ticket in find_seats(line, seat):
            if ticket.file in self.met or not wants_the_same(ticket, record):
                ticket.close()
            else:
                self.met.add(ticket.file)
                self.before.append(ticket)

    def act(self, deadline):
        for attempt in range(RINGS):
            staying = []
            for ticket in self.before:
                if ring(ticket):
                    staying.append(ticket)
                else:
                    ticket.close()
            self.before = staying
            if not staying:
                break
            sleep(PAUSE * (1 + attempt))
        close_all(self.before)  # stopped, or not ours to ring: we pass them all the same
        self.before = []
        return deadline


def ring(ticket) -> bool:
    """Ring the bell of one who waits; False if it has left, or can not be rung."""
    if ticket.wait_end(0):
        return False
    try:
        record = ticket.read_record()
        pidfd = record and open_pidfd(record.launcher, record.world, ticket.line.world)
    except ProcessLookupError:
        return False
    if pidfd is None:
        return False
    try:
        _signal.pidfd_send_signal(pidfd, BELL)
        return True
    except OSError:
        return False
    finally:
        close(pidfd)


def name_superseder(error: Superseded, line, record, seat) -> Superseded:
    """Say by whom we were superseded, if it is still there. Needs no gate: what is found is only told."""
    newest = None
    try:
        for file in sorted(filter(is_published, line.list_files()), key=get_number):
            ticket = line.open_ticket(file) if seat is None or get_number(file) > seat.number else None
            if ticket is not None:
                newest = ticket.read_record() if ticket.state is LIVE and wants_the_same(ticket, record) else newest
                ticket.close()
    except SoloError:
        pass
    return Superseded(f"superseded by {describe_owner(newest)}" if newest else str(error))


class Replace(Rivals):
    """End whoever holds the name or stands in line before us: the command first, then its launcher."""

    def __init__(self, kill_after: float):
        self.kill_after = kill_after
        self.steps = {}  # by ticket and state: (how many steps were done, when the next one is due)
        self.targets = []

    def meet(self, line, record, seat):
        holds = find_holds_in_the_way(line, record)
        enough = next((size for size in range(len(holds)) if not conflicts(record, holds[size:])), len(holds))
        close_all(holds[enough:])
        self.targets = holds[:enough]
        for ticket in find_seats(line, seat):
            claim = read_claim(ticket)
            if conflicts(record, [ticket]) or record.claim.mode == claim.mode == COUNTED:
                self.targets.append(ticket)
            else:
                ticket.close()

    def act(self, deadline):
        now = monotonic()
        try:
            for ticket in self.targets:
                key = ticket.file, ticket.state
                steps, due = self.steps.get(key, (0, now))
                if due <= now:
                    pause = STEPS[steps](ticket) if steps < len(STEPS) else refuse(ticket)
                    due = now + (self.kill_after if pause is None else pause)
                    self.steps[key] = steps + 1, due
                deadline = min(deadline, due)
        finally:
            close_all(self.targets)
            self.targets = []
        return deadline


def ask_to_end(ticket):
    """SIGTERM to the command; where there is none yet, or a whole tree, to the launcher, who passes it on."""
    record = read_record(ticket)
    launcher_knows = ticket.state is LIVE and (record.tree or record.child is None)
    end_one(ticket, record.launcher if launcher_knows else record.child, SIGTERM)


def kill_command(ticket):
    record = read_record(ticket)
    if record.tree and ticket.state is LIVE:
        end_all(find_descendants(record.launcher[0]), ticket.line.world, SIGKILL)
    end_one(ticket, record.child or record.launcher, SIGKILL)
    return GRACE


def kill_launcher(ticket):
    """One that is stopped, or hangs: its command is dead."""
    if ticket.state is LIVE:
        end_one(ticket, read_record(ticket).launcher, SIGKILL)
    return GRACE


def refuse(ticket):
    record = read_record(ticket)
    raise SoloError(f"pid {(record.child or record.launcher)[0]} does not end, not by SIGKILL either")


STEPS = (ask_to_end, kill_command, kill_launcher)


def end_one(ticket, process: tuple, signal: int):
    end(process, ticket.record.world, ticket.line.world, signal)


def read_record(ticket):
    record = ticket.read_record()
    if record is None:
        raise SoloError("can not end the holder: its record can not be read")
    return record


def conflicts(record, tickets: list) -> bool:
    return bool(find_conflicts(record.claim, list(map(read_claim, tickets))))


def find_seats(line, seat) -> list:
    """Open all living seats, or those before ours. Under the gate; the files are as last listed."""
    seats = []
    for file in line.files:
        if file.startswith(SEAT) and (seat is None or file < seat.file):
            ticket = line.open_ticket(file)
            if ticket is not None and ticket.state is LIVE:
                seats.append(ticket)
            elif ticket is not None:
                ticket.close()
    return seats


def wants_the_same(ticket, record) -> bool:
    """Is it for one of our own names? On a parent stand others too."""
    theirs = ticket.read_record()
    return theirs is None or not set(theirs.names).isdisjoint(map(ticket.line.shorten, record.names))
