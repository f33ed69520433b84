"""Obstacles: the tickets in a contender's way. The nearest live waiter ahead, else the live holds
that conflict.

The gate is locked while these functions run, as they remove dead tickets; but for `list_holds` and
`list_living`, which remove nothing. They return open tickets, which the caller closes; these two
return closed ones.
"""

import posix

from solo.errors import Busy
from solo.identity import Process, walk_parents
from solo.modes import EXCLUSIVE, Claim, allot_slots, find_conflicts
from solo.tickets import HOLD, LIVE, MOST_OPEN, ORPHANED, SEAT, UNPUBLISHED, UNSEEN, Queue, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from solo.record import Record


def find_obstacles(
    queue: "Queue",
    record: "Record",
    waiting: "Ticket | None",
    ignores: "Callable[[Ticket, Record], bool] | None" = None,
) -> "tuple[list[Ticket], list[tuple[int, int]]]":
    """Return the nearest waiter before `waiting`, ours, that the policy does not ignore, else the
    conflicting holds; and our slots if there are neither. Removes the dead tickets it finds. Raises
    SoloError.
    """
    files = queue.list_files() if waiting is None else queue.list_files(waiting.file)
    for file in files:
        if file.startswith(UNPUBLISHED):
            queue.remove(file)  # its maker was killed: nobody else publishes while we hold the gate
    waiters = [file for file in files if file.startswith(SEAT)]
    while waiters:
        nearest = max(waiters)  # not sorted: mostly the first one lives
        ticket = find_living(queue, nearest)
        if ticket is not None:
            if ignores is None or not ignores(ticket, record):
                return [ticket], []
            ticket.close()
        waiters.remove(nearest)
    return find_conflicting_holds(queue, record.claim)


def find_conflicting_holds(
    queue: "Queue", claim: Claim
) -> "tuple[list[Ticket], list[tuple[int, int]]]":
    """Return the live holds that conflict with `claim`, oldest first, the first open; and its slots
    if there are none.
    """
    holds = find_holds(queue)
    conflicts = [holds[at] for at in find_conflicts(claim, list(map(read_claim, holds)))]
    if not conflicts:
        close_all(holds)
        return [], allot_slots(
            claim, [pair for hold in holds if hold.record for pair in hold.record.slot]
        )
    close_all([hold for hold in holds if hold not in conflicts])
    if not conflicts[0].is_open:
        first = find_living(queue, conflicts[0].file)
        if first is None:
            close_all(conflicts[1:])
            return find_conflicting_holds(queue, claim)  # it has just ended
        first.read_record()
        conflicts[0] = first
    return conflicts, []


def find_holds(queue: "Queue", most_open: int = MOST_OPEN) -> "list[Ticket]":
    """Return all live holds, oldest first, with their records. Leaves no more than `most_open` of
    them open.
    """
    holds: list[Ticket] = []
    for file in sorted(queue.files):
        hold = find_living(queue, file) if file.startswith(HOLD) else None
        if hold is not None:
            hold.read_record()
            if len(holds) >= most_open:
                hold.close()
            holds.append(hold)
    return holds


def find_living(queue: "Queue", file: str) -> "Ticket | None":
    """Return the ticket if it is alive, else remove it, or note it in `queue.unseen`, and return
    None. Raises SoloError.
    """
    ticket = queue.open_ticket(file)
    if ticket is None or ticket.state in (LIVE, ORPHANED):
        return ticket
    if ticket.state is UNSEEN and ticket.record is not None:
        queue.unseen[file] = ticket.record
    else:
        queue.remove(file)
    ticket.close()
    return None


def list_holds(queue: "Queue") -> "list[Ticket]":
    """Return all live holds, closed, with their records. Removes nothing, so it needs no gate."""
    return list_living(queue, [file for file in queue.list_files(SEAT) if file.startswith(HOLD)])


def list_living(queue: "Queue", files: "Iterable[str]") -> "list[Ticket]":
    """Return the live tickets among `files`, closed, with their records. Removes nothing, so it
    needs no gate.
    """
    living = []
    for file in files:
        ticket = queue.look(file)
        if ticket is not None:
            if ticket.state in (LIVE, ORPHANED):
                ticket.read_record()
                living.append(ticket)
            ticket.close()
    return living


def find_first_waiter(queue: "Queue") -> "list[Ticket]":
    """Return the first live waiter alone, closed; none if there is none. Removes nothing."""
    seats = sorted([file for file in queue.files if file.startswith(SEAT)])
    return next(filter(None, (list_living(queue, [seat]) for seat in seats)), [])


def find_own_ancestors(
    queue: "Queue", tickets: "list[Ticket]", keep: "Process | None" = None
) -> "list[Ticket]":
    """Return those of `tickets` whose launcher or command is `keep`, or an ancestor of this process
    or of `keep`.
    """
    if not tickets:
        return []
    ancestors = {*walk_parents(posix.getppid()), *(walk_parents(keep[0]) if keep else ())}
    here = queue.origin.pid_namespace
    known = [
        (ticket, ticket.record)
        for ticket in tickets
        if ticket.record and ticket.record.origin.pid_namespace == here
    ]
    named = [
        (ticket, ancestors & {record.launcher, record.child, record.outer})
        for ticket, record in known
    ]
    if not any(processes for _, processes in named):
        return []
    from solo.process.owners import vouches  # whose owner may be believed

    return [
        ticket
        for ticket, processes in named
        if any(vouches(ticket, process) for process in processes)
    ]


def read_claim(ticket: "Ticket") -> Claim:
    """Return the claim of a live ticket; exclusive if its record cannot be read."""
    record = ticket.read_record()
    return record.claim if record else Claim(EXCLUSIVE)


def make_busy(queue: "Queue", record: "Record", obstacles: "list[Ticket]") -> Busy:
    """Count a skip and return what to raise for it, with the text still missing. Closes the
    obstacles.
    """
    obstacles[0].read_record()
    shown = obstacles
    if not obstacles[0].is_hold:
        close_all(obstacles)
        holds, _ = find_conflicting_holds(queue, record.claim)
        # the first waiter, which may be stopped, keeps the later ones from a free name
        shown = holds or find_first_waiter(queue) or obstacles
    first = shown[0].record
    busy = Busy()
    busy.skips = queue.gate.count_skip(record.claim.mode)
    busy.since = first.since if first else None
    busy.tickets = shown
    close_all(shown)
    return busy


def close_all(tickets: "Iterable[Ticket]") -> None:
    for ticket in tickets:
        ticket.close()
