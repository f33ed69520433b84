"""Join, wait, release: the line of one name, first come first served.

Newcomers and those in line run the same loop: under the gate, look for what is in my way; if nothing is, my hold is
published; else, outside the gate, block on just that one ticket, and look again.
"""

from time import monotonic

from solo.errors import Busy, SoloError
from solo.rule import EXCLUSIVE, is_admitted
from solo.tickets import DEAD, HOLD, SEAT

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
                    return line.publish(HOLD, record)
                if obstacle.is_hold:
                    refuse_own_ancestor(obstacle)
                if deadline is NO_WAIT or monotonic() >= deadline:
                    raise Busy(describe(line, obstacle))
                if seat is None:
                    seat = line.publish(SEAT, record)
            tell(obstacle)
            obstacle.wait_end(deadline)
            obstacle.close()
    finally:
        if seat is not None:
            seat.release()


def find_obstacle(line, mode: str, seat):
    """The nearest living seat before ours, else a living hold that the rule puts in our way; None if we may go in.

    Drops the dead ones that it meets.
    """
    files = line.list_files()
    before = seat.file if seat is not None else "/"  # "/" sorts after every seat's number
    seats = [file for file in files if file.startswith(SEAT) and file < before]
    while seats:
        nearest = max(seats)
        ticket = find_living(line, nearest)
        if ticket is not None:
            return ticket
        seats.remove(nearest)
    for file in files:
        if file.startswith(HOLD):
            ticket = find_living(line, file)
            if ticket is not None:
                if not is_admitted(mode, read_mode(ticket)):
                    return ticket
                ticket.close()
    return None


def find_living(line, file: str):
    ticket = line.open_ticket(file)
    if ticket is None:
        return None
    if ticket.state is DEAD:
        line.remove(file)
        ticket.close()
        return None
    return ticket


def read_mode(ticket) -> str:
    """In what mode a living hold is; one that can not be read has it for itself alone."""
    record = ticket.read_record()
    return record.mode if record else EXCLUSIVE


def refuse_own_ancestor(hold):
    """A command under a name that asks for the same name would wait for itself."""
    record = hold.read_record()
    if record is None:
        return
    import posix

    from solo.identity import walk_parents

    for process in walk_parents(posix.getppid()):
        if process in (record.launcher, record.child) and record.world.boot == hold.line.world.boot:
            raise SoloError(f"held by pid {process[0]}, an ancestor of this process: it would wait for itself")


def describe(line, obstacle) -> str:
    """What a busy line says: who holds it, since when, running what."""
    from solo.words import describe_holder

    holder = obstacle
    if not obstacle.is_hold:
        holds = [file for file in line.list_files() if file.startswith(HOLD)]
        living = (find_living(line, file) for file in sorted(holds))
        holder = next((ticket for ticket in living if ticket is not None), obstacle)
    return f"busy: {describe_holder(holder)}"
