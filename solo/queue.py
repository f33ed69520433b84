"""Join, wait, release: the line of one name, first come first served.

Newcomers and those in line run the same loop: under the gate, look for what is in my way; if nothing is, my hold is
published; else, outside the gate, block on just what is in the way, and look again.
"""

import posix
from time import monotonic

from solo.errors import Busy, SoloError, Superseded, Vanished
from solo.identity import walk_parents
from solo.kernel import has_rung, listen_for_bell, stop_listening
from solo.modes import COUNTED, EXCLUSIVE, Claim, allot_slots, find_conflicts
from solo.tickets import HOLD, LIVE, MOST_OPEN, NEW, ORPHANED, SEAT, UNSEEN, settle

NO_WAIT = float("-inf")  # a deadline that has passed


def take_hold(line, record, deadline, watch, rivals=None, prepare=None):
    """Our hold on the name of `line`, for a command whose `record` says what it claims.

    `deadline` is on the monotonic clock, or NO_WAIT; `watch` blocks for us, and may show it; `rivals` is what we do about
    others in line, if anything; `prepare` is called once when only holds are before us. An exclusive hold keeps our seat, if we
    had one, until it is settled: who is behind us is told when our command has started. Raises Busy, SoloError.
    """
    hold = seat = mask = spare = newest = None
    obstacles = []
    try:
        while hold is None:
            with line:
                if seat is not None and has_rung():
                    raise Superseded("superseded by a newer one")
                passed = obstacles
                if spare is not None and is_over(line, obstacles):
                    obstacles = []
                else:
                    is_late = monotonic() >= deadline
                    newest = line.find_newest_seat() if seat is None and rivals is None and not is_late else None
                    obstacles, record.slot = ([newest], []) if newest else find_obstacles(line, record, seat, rivals)
                if not obstacles:
                    hold = line.publish(HOLD, record, spare)
                    spare = None
                    if hold is None:
                        continue
                    hold.seat, seat = seat, None
                    hold.passed = passed
                else:
                    close_all(passed)
                    if seat is None and newest is None:
                        refuse_own_ancestors(line, record, deadline, obstacles, find_holds(line, 0))
                    if is_late:
                        raise turn_away(line, record, obstacles)
                    if seat is None:
                        if rivals and not rivals.leave_room(line, record):
                            raise turn_away(line, record, obstacles)
                        mask = listen_for_bell() if mask is None else mask
                        seat = line.publish(SEAT, record)
                        if seat is None:
                            continue
                if rivals:
                    rivals.meet(line, record, hold.seat if hold else seat, obstacles)
                if hold is not None and record.claim.mode != EXCLUSIVE:
                    settle(hold)  # others may go in beside us: to one who does not wait it would be someone in line
            if newest is not None:  # the directory was not listed: do it now, when nobody waits for us
                newest = None
                refuse_own_ancestors(line, record, deadline, obstacles, look_at_holds(line))
            if obstacles and prepare is not None and obstacles[0].is_hold:
                prepare()
                prepare = None
                spare = line.make_spare(record) if rivals is None else None
                continue  # and look again: what a fork shares is copied when it is touched, now and not when it is our turn
            if obstacles:
                look_again = rivals.act(deadline) if rivals else deadline
                watch(make_block(record, obstacles), look_again, make_describe(line, record, seat))
        return hold
    except Superseded as error:
        from solo.contention.policies import name_superseder

        raise name_superseder(error, line, record, seat) from None
    except Vanished as error:
        # Only what is idle may vanish: with a seat there, someone else removed it, and a holder with it.
        raise error if seat is None else SoloError(str(error)) from None
    except BaseException:
        if hold is not None:
            hold.release()
        raise
    finally:
        close_all(obstacles)
        if spare is not None:
            spare.close()
        if seat is not None:
            seat.release()
        if mask is not None:
            stop_listening(mask)


def is_over(line, obstacles: list) -> bool:
    """Is what was alone in our way gone, and nothing new there since we looked? Under the gate."""
    return len(obstacles) == 1 and line.is_unchanged() and obstacles[0].is_released()


def find_obstacles(line, record, seat, rivals=None) -> tuple:
    """The nearest living seat before ours, else the living holds in our way; then the slots we get. Removes the dead it meets.

    No obstacles: we may go in.
    """
    files = line.list_files(seat.file) if seat is not None else line.list_files()
    line.note_look()
    for file in files:
        if file.startswith(NEW):
            line.remove(file)  # its maker was killed: whoever is behind the gate is alone
    seats = [file for file in files if file.startswith(SEAT)]
    while seats:
        nearest = max(seats)
        ticket = find_living(line, nearest)
        if ticket is not None:
            if not (rivals and rivals.ignores(ticket, record)):
                return [ticket], []
            ticket.close()
        seats.remove(nearest)
    return find_holds_in_the_way(line, record.claim)


def find_holds_in_the_way(line, claim: Claim) -> tuple:
    """The living holds beside which the rule does not let `claim` run, oldest first; then the slots it gets if there are none.

    The first of them is open, and so are as many as one would wait for.
    """
    holds = find_holds(line)
    conflicts = [holds[at] for at in find_conflicts(claim, list(map(read_claim, holds)))]
    if not conflicts:
        close_all(holds)
        return [], allot_slots(claim, [pair for hold in holds for pair in hold.record.slot])
    close_all([hold for hold in holds if hold not in conflicts])
    if not conflicts[0].is_open:
        conflicts[0] = find_living(line, conflicts[0].file)
        if conflicts[0] is None:
            close_all(conflicts[1:])
            return find_holds_in_the_way(line, claim)  # it has just ended
        conflicts[0].read_record()
    return conflicts, []


def find_holds(line, most_open=MOST_OPEN) -> list:
    """All living holds, oldest first, with their records. No more than `most_open` of them are left open."""
    holds = []
    for file in sorted(line.files):
        hold = find_living(line, file) if file.startswith(HOLD) else None
        if hold is not None:
            hold.read_record()
            if len(holds) >= most_open:
                hold.close()
            holds.append(hold)
    return holds


def find_living(line, file: str):
    """The ticket if it is alive; a dead one is removed, so the gate must be ours. What can not be told is left for who gets in."""
    ticket = line.open_ticket(file)
    if ticket is None or ticket.state in (LIVE, ORPHANED):
        return ticket
    if ticket.state is UNSEEN:
        line.unseen[file] = ticket.record
    else:
        line.remove(file)
    ticket.close()
    return None


def read_claim(ticket) -> Claim:
    """What a living ticket claims; one that can not be read has the name for itself alone."""
    record = ticket.read_record()
    return record.claim if record else Claim(EXCLUSIVE)


def make_block(record, obstacles: list):
    """What blocks until something changed, or until a deadline: false. Of those that hold slots any one may make room for
    another; else all must end in turn."""
    if len(obstacles) > 1 and record.claim.mode == read_claim(obstacles[0]).mode == COUNTED:
        from solo.process.watch import wait_any

        return lambda deadline: wait_any(obstacles, deadline)
    return obstacles[0].wait_end


def make_describe(line, record, seat):
    def describe() -> tuple:
        from solo.contention.progress import describe_wait

        return describe_wait(line, record, seat)

    return describe


def wait_unseen(block, look_again: float, describe, in_one_go: bool = False):
    """A `watch` that shows nothing."""
    return block(look_again)


def close_all(tickets: list):
    for ticket in tickets:
        ticket.close()


def look_at_holds(line) -> list:
    """All living holds, closed, with their records. Without the gate: nothing is removed."""
    holds = []
    for file in line.list_files(SEAT):
        hold = line.look(file) if file.startswith(HOLD) else None
        if hold is not None:
            if hold.state in (LIVE, ORPHANED):
                hold.read_record()
                holds.append(hold)
            hold.close()
    return holds


def refuse_own_ancestors(line, record, deadline, obstacles: list, holds: list):
    """A command under a name that asks for the same name would wait for itself: what its ancestors hold never ends before it."""
    # A program that holds it, and has no command, may let go before we end.
    mine = [hold.record for hold in find_own_ancestors(line, holds) if hold.record.child]
    if mine and find_conflicts(record.claim, [theirs.claim for theirs in mine]):
        raise SoloError(f"held by pid {mine[0].launcher[0]}, an ancestor of this process: it would wait for itself")
    if mine and not obstacles[0].is_hold and deadline is not NO_WAIT:
        who = f"pid {mine[0].launcher[0]}, an ancestor of this process"
        raise SoloError(f"held by {who}, and others stand in line: they would wait for it, and it for them")


def find_own_ancestors(line, holds: list) -> list:
    """Those of `holds` under which we run ourselves."""
    ancestors = set(walk_parents(posix.getppid()))
    return [
        hold for hold in holds
        if hold.record and hold.record.world.pid_namespace == line.world.pid_namespace
        and is_any_of(hold, ancestors & {hold.record.launcher, hold.record.child})
    ]


def is_any_of(hold, processes) -> bool:
    """Is the owner of the hold to be believed that it is one of these?"""
    if not processes:
        return False
    from solo.process.owners import vouches

    return any(vouches(hold, process) for process in processes)


def turn_away(line, record, obstacles: list) -> Busy:
    """What to raise, and so count, when others are in our way. Under the gate."""
    from solo.text.describe import describe_holders, describe_skips

    nearest = obstacles[0].read_record()
    close_all(obstacles)
    holds, _ = find_holds_in_the_way(line, record.claim)
    first = holds[0].record if holds else nearest
    skips = line.count_skip(record.claim.mode)
    busy = Busy(f"busy: {describe_holders(holds or obstacles, record.claim)}{describe_skips(skips)}")
    busy.skips = skips
    busy.since = first.since if first else None
    busy.tickets = holds or obstacles
    close_all(holds)
    return busy
