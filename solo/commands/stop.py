"""`solo stop`: end those who hold the names now, and with --waiting those in line; whoever comes after is left alone."""

from time import monotonic, sleep

from solo.argv import is_engine
from solo.cells import tell
from solo.commands.lines import check_names, open_line
from solo.errors import SoloError
from solo.eviction import Eviction
from solo.identity import read_world
from solo.kernel import say
from solo.orphans import wait_any
from solo.queue import close_all
from solo.rivals import identify_launcher
from solo.rule import INTEND_EXCLUSIVE, INTEND_SHARED
from solo.tickets import HOLD, LIVE, MOST_OPEN, ORPHANED, is_published
from solo.words import describe_orphan, describe_owner, format_duration

KILL_AFTER = 10.0  # seconds
LOOK_AGAIN = 0.05  # seconds, for a launcher to end after its command


def run(options: dict, names: list) -> int:
    """Print what was done, a line each. 125 if one of them could not be ended."""
    check_names(names)
    if is_engine(options):
        from solo.commands import remote

        return remote.stop(options, names)
    world, complete = read_world(), True
    for name in names:
        line = open_line(name, options, world)
        if line is None:
            tell(f"{name}: not held")
            continue
        try:
            complete = stop(name, line, options.get("kill_after", KILL_AFTER), "waiting" in options) and complete
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
        finally:
            line.leave()
    return 0 if complete else SoloError.status


def stop(name: str, line, kill_after: float, with_waiting: bool) -> bool:
    """End all that can be ended; False, and it is said, if one could not."""
    eviction, begin = Eviction(kill_after), monotonic()
    wanted = {ticket.file: describe(ticket) for ticket in find_targets(line, None, with_waiting)}
    if not wanted:
        tell(f"{name}: not held")
    left = dict(wanted)
    while left:
        targets = find_targets(line, left, with_waiting)
        here = {ticket.file for ticket in targets}
        for file in [file for file in left if file not in here]:
            tell(f"{name}: ended {left.pop(file)} after {format_duration(monotonic() - begin)}")
        if left:
            due = eviction.act(targets)
            for file in [file for file in left if file in eviction.refused]:
                say(f"{name}: {eviction.refused[file]}")
                left.pop(file)
            targets = find_targets(line, left, with_waiting)
            wait_any(targets, due) if targets else sleep(LOOK_AGAIN)
            close_all(targets)
    return not eviction.refused


def find_targets(line, wanted, with_waiting: bool) -> list:
    """The living tickets to end, the first of them open; those of `wanted` only, if that is given. What holds this name for one
    below is not ours.

    Of one whose command runs already, not the seat that it is just letting go of.
    """
    targets = []
    for file in sorted(filter(is_published, line.list_files())):
        if wanted is not None and file not in wanted or not (with_waiting or file.startswith(HOLD)):
            continue
        ticket = line.open_ticket(file)
        if ticket is None:
            continue
        record = ticket.read_record()
        nested = record is not None and record.claim.mode in (INTEND_EXCLUSIVE, INTEND_SHARED)
        if ticket.state not in (LIVE, ORPHANED) or nested or len(targets) >= MOST_OPEN:
            ticket.close()
        if ticket.state in (LIVE, ORPHANED) and not nested:
            targets.append(ticket)
    running = {identify_launcher(ticket) for ticket in targets if ticket.is_hold and ticket.record and ticket.record.child}
    left = [ticket for ticket in targets if not ticket.is_hold and identify_launcher(ticket) in running]
    close_all(left)
    return [ticket for ticket in targets if ticket not in left]


def describe(ticket) -> str:
    record = ticket.read_record()
    ticket.close()
    if record is None:
        return "a holder whose record can not be read"
    return describe_orphan(record) if ticket.state is ORPHANED else describe_owner(record)
