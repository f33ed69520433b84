"""Policies for other contenders of the same name: N of --wait, --latest, --replace,
--replace-after.

The queue calls a policy at five points: `act` without the gate, all others with the gate locked.
"""

from time import monotonic, time

from solo.contention.evict import Eviction
from solo.errors import SoloError, Superseded
from solo.gate import FileGate
from solo.kernel import FOREVER, WAKE_SIGNAL
from solo.modes import INTEND_SHARED, MODES, SHARED, find_conflicts
from solo.obstacles import (
    close_all,
    find_conflicting_holds,
    find_holds,
    find_own_ancestors,
    read_claim,
)
from solo.process.tree import open_recipient
from solo.text.describe import describe_owner
from solo.tickets import LIVE, MOST_OPEN, SEAT, Queue, Ticket, get_number, is_published

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.plan import Plan
    from solo.record import Record

FIRST_PAUSE, LONGEST_WAKE_PAUSE = 0.1, 0.8  # seconds between two wake signals


def make_policy(plan: "Plan") -> "Policy":
    """Return the policy that the options ask for. The options exclude each other."""
    if plan.max_waiting is not None:
        return MaxWaiting(plan.max_waiting)
    if plan.latest:
        return Latest()
    if plan.replace_after is not None:
        return ReplaceAfter(plan.replace_after, plan.kill_after)
    return Replace(plan.kill_after)


class Policy:
    """Treats other contenders of a name: this one not at all. `ends_holders`: then it waits for
    none of them for long.
    """

    ends_holders = False

    def may_wait(self, queue: "Queue", record: "Record") -> bool:
        """Return whether we may join the queue."""
        return True

    def ignores(self, ticket: "Ticket", record: "Record") -> bool:
        """Return whether we need not wait for this waiter ahead of us."""
        return False

    def choose_deadline(self, queue: "Queue", record: "Record", deadline: float) -> float:
        """Return when we give up, now that tickets are in the way: `deadline`, or later."""
        return deadline

    def meet(
        self, queue: "Queue", record: "Record", waiting: "Ticket | None", obstacles: "list[Ticket]"
    ) -> None:
        """Find the contenders to act on. Without obstacles we have the hold."""

    def act(self, deadline: float) -> float:
        """Act on them, and return when to look again. Raises SoloError."""
        return deadline


class MaxWaiting(Policy):
    """Do not wait if so many waiters want the same name already."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def may_wait(self, queue: "Queue", record: "Record") -> bool:
        waiters = find_waiters(queue, None)
        count = sum(wants_the_same(waiter, record) for waiter in waiters)
        close_all(waiters)
        return count < self.limit


class Latest(Policy):
    """Supersede the waiters ahead of us: send each the wake signal, with the gate locked, so that
    none acquires first.

    One that arrives just before the waiter's system call has no effect until that call ends: repeat
    it a few times.
    """

    def __init__(self) -> None:
        self.pause = FIRST_PAUSE
        self.has_woken = False

    def ignores(self, ticket: "Ticket", record: "Record") -> bool:
        return wants_the_same(ticket, record)

    def meet(
        self, queue: "Queue", record: "Record", waiting: "Ticket | None", obstacles: "list[Ticket]"
    ) -> None:
        waiters = find_waiters(queue, waiting)
        self.has_woken = any(
            [wants_the_same(ticket, record) and wake(ticket) for ticket in waiters]
        )
        close_all(waiters)

    def act(self, deadline: float) -> float:
        if not self.has_woken or self.pause > LONGEST_WAKE_PAUSE:
            return deadline  # no waiter was signalled, or it cannot leave: stopped, or a program
        pause, self.pause = self.pause, 2 * self.pause
        return min(deadline, monotonic() + pause)


def wake(ticket: "Ticket") -> bool:
    """Send a waiter the wake signal, which it blocked before it joined. Return whether that was
    possible.
    """
    try:
        record = ticket.read_record()
        if record is not None:
            with open_recipient(ticket, record.launcher) as recipient:
                recipient.send(WAKE_SIGNAL)
                return True
    except (OSError, SoloError):
        # it has left, or is another user's: then it keeps its place, and either can acquire first
        pass
    return False


def name_superseder(
    error: Superseded, queue: "Queue", record: "Record", waiting: "Ticket | None"
) -> Superseded:
    """Return `error` with the contender that superseded us, if it is still there. The text is only
    shown: no gate.
    """
    newest = None
    try:
        for file in sorted(filter(is_published, queue.list_files()), key=get_number):
            ticket = (
                queue.open_ticket(file)
                if waiting is None or get_number(file) > waiting.number
                else None
            )
            if ticket is not None:
                if ticket.state is LIVE and wants_the_same(ticket, record) and ticket.record:
                    newest = describe_owner(ticket)
                ticket.close()
    except SoloError:
        pass
    return Superseded(f"superseded by {newest}" if newest else str(error))


class Replace(Policy):
    """Terminate the conflicting holders and the waiters ahead of us: the command first, then its
    launcher.
    """

    ends_holders = True

    def __init__(self, kill_after: float) -> None:
        self.eviction = Eviction(kill_after)
        self.targets: list[Ticket] = []

    def meet(
        self, queue: "Queue", record: "Record", waiting: "Ticket | None", obstacles: "list[Ticket]"
    ) -> None:
        close_all(self.targets)
        self.targets = []
        if not obstacles:
            return
        holds, _ = find_conflicting_holds(queue, record.claim)
        spared = find_own_ancestors(queue, holds, record.keep)
        others = [hold for hold in holds if hold not in spared]
        sizes = range(len(others))
        enough = next(
            (size for size in sizes if not conflicts(record, spared + others[size:])), len(others)
        )
        self.targets = others[:enough]
        close_all([hold for hold in holds if hold not in self.targets])
        waiters = find_waiters(queue, waiting)
        own = find_own_ancestors(queue, waiters, record.keep)  # of a program with several threads
        for ticket in waiters:
            both_shared = {read_claim(ticket).mode, record.claim.mode} <= {SHARED, INTEND_SHARED}
            is_target = wants_the_same(ticket, record) and not both_shared
            if ticket not in own and (is_target or conflicts(record, [ticket])):
                self.targets.append(ticket)
            else:
                ticket.close()

    def act(self, deadline: float) -> float:
        targets, self.targets = self.targets, []
        return min(deadline, self.eviction.act_on_all(targets))


class ReplaceAfter(Replace):
    """Do as Replace once the oldest conflicting holder has run for `limit` seconds (float), or
    after `limit` skips (int).

    `due` is when the holder will have run that long, on the monotonic clock. Once it has, the
    deadline no longer counts.
    """

    ends_holders = False  # not yet

    def __init__(self, limit: "int | float", kill_after: float) -> None:
        super().__init__(kill_after)
        self.limit = limit
        self.is_due = False
        self.due = FOREVER

    def choose_deadline(self, queue: "Queue", record: "Record", deadline: float) -> float:
        left = 0.0 if self.is_due else self.find_time_left(queue, record)
        self.is_due = left <= 0
        self.due = monotonic() + left
        return FOREVER if self.is_due else deadline

    def find_time_left(self, queue: "Queue", record: "Record") -> float:
        """Return how many seconds the holder may still run; FOREVER if that is not known, or if an
        ancestor is in the way.
        """
        holds, _ = find_conflicting_holds(queue, record.claim)
        close_all(holds)
        spared = find_own_ancestors(queue, holds, record.keep)
        oldest = next((hold.record for hold in holds if hold not in spared), None)
        if oldest is None or conflicts(record, spared):
            return FOREVER
        if isinstance(self.limit, int):
            assert isinstance(queue.gate, FileGate)  # sockets count no skips: refused before
            skips = queue.gate.read_skips()[MODES.index(record.claim.mode)]
            return 0.0 if skips >= self.limit else FOREVER
        return oldest.since + self.limit - time()

    def meet(
        self, queue: "Queue", record: "Record", waiting: "Ticket | None", obstacles: "list[Ticket]"
    ) -> None:
        if self.is_due:
            super().meet(queue, record, waiting, obstacles)

    def act(self, deadline: float) -> float:
        return super().act(deadline) if self.is_due else min(deadline, self.due)


def conflicts(record: "Record", tickets: "list[Ticket]") -> bool:
    return bool(find_conflicts(record.claim, list(map(read_claim, tickets))))


def find_waiters(queue: "Queue", waiting: "Ticket | None") -> "list[Ticket]":
    """Return the live waiting tickets before ours, or all, with their records; the last are open.
    Gate locked.

    Uses the files as last listed. Leaves out a launcher whose command runs already: it is just
    finishing its handoff.
    """
    waiters: list[Ticket] = []
    running = {
        identify_launcher(hold)
        for hold in find_holds(queue, 0)
        if hold.record and hold.record.child
    }
    for file in sorted(queue.files, reverse=True):
        ticket = (
            queue.open_ticket(file)
            if file.startswith(SEAT) and (waiting is None or file < waiting.file)
            else None
        )
        if ticket is None:
            continue
        is_waiter = identify_launcher(ticket) not in running and ticket.state is LIVE
        if len(waiters) >= MOST_OPEN or not is_waiter:
            ticket.close()
        waiters += [ticket] if is_waiter else []
    return waiters


def identify_launcher(ticket: "Ticket") -> object:
    record = ticket.read_record()
    return record and (record.launcher, record.origin.pid_namespace)


def wants_the_same(ticket: "Ticket", record: "Record") -> bool:
    """Return whether the ticket is for one of our names. At a parent there are tickets for other
    nested names too.
    """
    theirs = ticket.read_record()
    return theirs is None or not set(theirs.names).isdisjoint(
        map(ticket.queue.shorten, record.names)
    )
