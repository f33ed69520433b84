"""Join, wait, release: the line of one name, first come first served.

Newcomers and those in line run the same loop: under the gate, look for what is in my way; if nothing is, my hold is
published; else, outside the gate, block on just that one ticket, and look again.
"""

import posix
from time import monotonic

from solo.errors import Busy, SoloError
from solo.identity import walk_parents
from solo.kernel import say
from solo.rule import EXCLUSIVE, is_admitted
from solo.tickets import HOLD, LIVE, NEW, ORPHANED, SEAT, UNSEEN

NO_WAIT = None


def take_hold(line, record, deadline, tell):
    """Our hold on the name of `line`, for a command whose `record` says in what mode.

    `deadline` is on the monotonic clock, or NO_WAIT; `tell` is called with the ticket that is waited for. Raises Busy,
    SoloError.
    """
    seat = None
    try:
        while True:
            with line:
                obstacle = find_obstacle(line, record.mode, seat)
                if obstacle is None:
                    hold = line.publish(HOLD, record)
                    if hold is None:
                        continue
                    if seat is not None:
                        seat.release()
                        seat = None
                    return hold
                if seat is None:
                    refuse_own_ancestors(line, record.mode)
                if deadline is NO_WAIT or monotonic() >= deadline:
                    raise Busy(describe(line, record.mode, obstacle))
                if seat is None:
                    seat = line.publish(SEAT, record)
                    if seat is None:
                        obstacle.close()
                        continue
            tell(obstacle)
            obstacle.wait_end(deadline)
            obstacle.close()
    finally:
        if seat is not None:
            seat.release()


def find_obstacle(line, mode: str, seat):
    """The nearest living seat before ours, else a living hold in our way; None if we may go in. Removes the dead it meets."""
    files = line.list_files()
    for file in files:
        if file.startswith(NEW):
            line.remove(file)  # its maker was killed: whoever is behind the gate is alone
    before = seat.file if seat is not None else "/"  # "/" sorts after every seat's number
    seats = [file for file in files if file.startswith(SEAT) and file < before]
    while seats:
        nearest = max(seats)
        ticket = find_living(line, nearest)
        if ticket is not None:
            return ticket
        seats.remove(nearest)
    return next(find_holds_in_the_way(line, files, mode), None)


def find_holds_in_the_way(line, files: list, mode: str):
    """The living holds beside which the rule lets nobody in `mode` run, oldest first. A generator."""
    for file in sorted(files):
        if file.startswith(HOLD):
            ticket = find_living(line, file)
            if ticket is not None:
                if is_admitted(mode, read_mode(ticket)):
                    ticket.close()
                else:
                    yield ticket


def find_living(line, file: str):
    """The ticket if it is alive; a dead one is removed, so the gate must be ours."""
    ticket = line.open_ticket(file)
    if ticket is None or ticket.state in (LIVE, ORPHANED):
        return ticket
    if ticket.state is UNSEEN:
        say(f"{line.place.path}: taking over from {ticket.record.world.host}, whose processes can not be seen from here")
    line.remove(file)
    ticket.close()
    return None


def read_mode(ticket) -> str:
    """In what mode a living hold is; one that can not be read has it for itself alone."""
    record = ticket.read_record()
    return record.mode if record else EXCLUSIVE


def refuse_own_ancestors(line, mode: str):
    """A command under a name that asks for the same name would wait for itself, first in line or not."""
    ancestors = set(walk_parents(posix.getppid()))
    for hold in find_holds_in_the_way(line, line.files, mode):
        record = hold.read_record()
        hold.close()
        if record and record.world.pid_namespace == line.world.pid_namespace:
            for pid, _ in ancestors & {record.launcher, record.child}:
                raise SoloError(f"held by pid {pid}, an ancestor of this process: it would wait for itself")


def describe(line, mode: str, obstacle) -> str:
    """What a busy line says: who holds it, since when, running what. Under the gate."""
    from solo.words import describe_holder

    hold = next(find_holds_in_the_way(line, line.files, mode), obstacle)
    return f"busy: {describe_holder(hold)}"
