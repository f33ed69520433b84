"""`solo stop`: end those who hold the names now, and with --waiting those in line; whoever comes after is left alone."""

from time import monotonic, sleep

from solo.argv import is_engine
from solo.cells import tell
from solo.commands.lines import check_names, open_line, open_living
from solo.errors import SoloError
from solo.eviction import Eviction
from solo.holding import KILL_AFTER
from solo.identity import read_world
from solo.kernel import say
from solo.orphans import wait_any
from solo.queue import close_all, read_claim
from solo.rivals import identify_launcher
from solo.rule import INTENTIONS
from solo.tickets import HOLD, MOST_OPEN, ORPHANED, is_published
from solo.words import describe_orphan, describe_owner, format_duration

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
    left = {identify(ticket): describe(ticket) for ticket in find_targets(line, None, with_waiting)}
    if not left:
        tell(f"{name}: not held")
    while left:
        targets = find_targets(line, left, with_waiting)
        here = {identify(ticket) for ticket in targets}
        for one in [one for one in left if one not in here]:
            tell(f"{name}: ended {left.pop(one)} after {format_duration(monotonic() - begin)}")
        if left:
            due = eviction.act(targets)
            for ticket in targets:
                if ticket.file in eviction.refused and left.pop(identify(ticket), None):
                    say(f"{name}: {eviction.refused[ticket.file]}")
            targets = find_targets(line, left, with_waiting)
            wait_any(targets, due) if targets else sleep(LOOK_AGAIN)
            close_all(targets)
    return not eviction.refused


def find_targets(line, wanted, with_waiting: bool) -> list:
    """The living tickets to end, the first of them open, and those in line before the others; those of `wanted` only,
    files or what `identify` says, if that is given. What holds this name for one below is not ours.

    Of one whose command runs already, not the seat that it is just letting go of.
    """
    targets = []
    for ticket in open_living(line, lambda file: is_published(file) and (with_waiting or is_hold(file)), is_hold):
        is_asked = wanted is None or ticket.file in wanted or identify(ticket) in wanted
        is_meant = is_asked and read_claim(ticket).mode not in INTENTIONS
        if not is_meant or len(targets) >= MOST_OPEN:
            ticket.close()
        if is_meant:
            targets.append(ticket)
    running = {identify_launcher(ticket) for ticket in targets if ticket.is_hold and ticket.record and ticket.record.child}
    left = [ticket for ticket in targets if not ticket.is_hold and identify_launcher(ticket) in running]
    close_all(left)
    return [ticket for ticket in targets if ticket not in left]


def is_hold(file: str) -> bool:
    return file.startswith(HOLD)


def identify(ticket):
    """Whose it is, in line and in the name; of one that does not say that, which file."""
    return identify_launcher(ticket) or ticket.file


def describe(ticket) -> str:
    record = ticket.read_record()
    ticket.close()
    if record is None:
        return "a holder whose record can not be read"
    return describe_orphan(record) if ticket.state is ORPHANED else describe_owner(record)
