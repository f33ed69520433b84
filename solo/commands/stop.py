"""`solo stop`: end those who hold the names now, and with --waiting those in line; whoever comes after is left alone."""

from time import monotonic, sleep

from solo.argv import is_engine
from solo.text.width import tell
from solo.commands.lookup import check_names, describe_place, open_line, open_living, report_unknown
from solo.errors import SoloError
from solo.contention.evict import Eviction
from solo.acquire import KILL_AFTER
from solo.identity import read_world
from solo.kernel import say
from solo.process.watch import wait_any
from solo.queue import close_all, read_claim
from solo.contention.policies import identify_launcher
from solo.modes import INTENTIONS
from solo.tickets import HOLD, MOST_OPEN, is_published
from solo.text.describe import describe_owner, format_duration

LOOK_AGAIN = 0.05  # seconds, for a launcher to end after its command


def run(options: dict, names: list) -> int:
    """Print what was done, a line each. 125 if one of them could not be ended, or was never used."""
    check_names(names)
    if is_engine(options):
        from solo.commands import remote

        return remote.stop(options, names)
    world, complete = read_world(), True
    for name in names:
        if report_unknown(name, options, "stop"):
            complete = False
            continue
        line = open_line(name, options, world)
        if line is None:
            tell(f"{name}: not held ({describe_place(options)})")
            continue
        try:
            complete = stop(name, line, options.get("kill_after", KILL_AFTER), "waiting" in options, describe_place(options)) and complete
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
        finally:
            line.leave()
    return 0 if complete else SoloError.status


def stop(name: str, line, kill_after: float, with_waiting: bool, place: str) -> bool:
    """End all that can be ended; False, and it is said, if one could not. `place` says whose names these are."""
    eviction, begin = Eviction(kill_after), monotonic()
    found, _ = find_targets(line, lambda ticket: True, with_waiting)
    left = {ticket.file: describe(ticket) for ticket in found}
    launchers = {ticket.file: identify_launcher(ticket) for ticket in found if not ticket.is_hold}
    known, in_line, doubted = {ticket.file for ticket in found}, set(), set()
    if not left:
        tell(f"{name}: not held ({place})")

    def is_one_of_them(ticket) -> bool:
        """Also as what one that was in line has become. Those in line are asked about first."""
        if not ticket.is_hold:
            in_line.add(ticket.file)
        elif ticket.file not in known:
            launcher = identify_launcher(ticket)
            seats = [file for file in left if launcher and launchers.get(file) == launcher]
            gone = [file for file in seats if file not in in_line]
            if gone:
                left[ticket.file] = left.pop(gone[0])
                eviction.go_on(gone[0], ticket.file)
            if gone or not seats:
                known.add(ticket.file)
        return ticket.file in left

    while left:
        in_line.clear()
        targets, settling = find_targets(line, is_one_of_them, with_waiting)
        here = {ticket.file for ticket in targets} | settling
        unsure = {file for file in launchers if file in left and file not in here} - doubted
        if unsure:  # it may have got in since the files were listed
            doubted |= unsure
            close_all(targets)
            continue
        for file in [file for file in left if file not in here]:
            tell(f"{name}: ended {left.pop(file)} after {format_duration(monotonic() - begin)}")
        if left:
            due = eviction.act(targets)
            for file in [file for file in left if file in eviction.refused]:
                say(f"{name}: {eviction.refused[file]}")
                left.pop(file)
            in_line.clear()
            targets, settling = find_targets(line, is_one_of_them, with_waiting)
            wait_any(targets, due) if targets and not settling else sleep(LOOK_AGAIN)
            close_all(targets)
    return not eviction.refused


def find_targets(line, is_wanted, with_waiting: bool) -> tuple:
    """The living tickets that `is_wanted` says are to end, those in line first, and the first of them open. What holds this name
    for one below is none of them.

    And the files of seats that are just being let go of, as their launcher's command runs already.
    """
    targets = []
    for ticket in open_living(line, lambda file: is_published(file) and (with_waiting or file.startswith(HOLD)), put_in_line_first):
        is_meant = read_claim(ticket).mode not in INTENTIONS and is_wanted(ticket)
        if not is_meant or len(targets) >= MOST_OPEN:
            ticket.close()
        if is_meant:
            targets.append(ticket)
    running = {identify_launcher(ticket) for ticket in targets if ticket.is_hold and ticket.record and ticket.record.child}
    settling = [ticket for ticket in targets if not ticket.is_hold and identify_launcher(ticket) in running]
    close_all(settling)
    return [ticket for ticket in targets if ticket not in settling], {ticket.file for ticket in settling}


def put_in_line_first(file: str) -> tuple:
    return file.startswith(HOLD), file


def describe(ticket) -> str:
    record = ticket.read_record()
    ticket.close()
    if record is None:
        return "a holder whose record can not be read"
    return describe_owner(ticket)
