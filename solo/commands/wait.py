"""`solo wait`: until nobody holds the names or stands in line for them. Blocks on each of those in turn, and polls nothing."""

from time import monotonic

from solo.argv import is_engine
from solo.commands.lookup import check_known, check_names, find_in_the_way, open_line, plan_exclusive
from solo.errors import Busy
from solo.identity import read_world
from solo.kernel import FOREVER
from solo.text.describe import describe_holder, describe_waited


def run(options: dict, names: list) -> int:
    """0 once all are free at their turn. Raises Busy when not in time, SoloError also for a name that was never used."""
    check_names(names)
    if is_engine(options):
        from solo.commands import remote

        return remote.wait(options, names)
    for name in names:
        check_known(name, options, "wait for")
    deadline = monotonic() + options.get("timeout", FOREVER)
    world = read_world()
    for name in names:
        for part, claim in plan_exclusive(name):
            while True:
                line = open_line(part, options, world)
                ticket = next(find_in_the_way(line, claim), None) if line else None
                if ticket is not None:
                    in_time = ticket.wait_end(deadline) or monotonic() < deadline
                    message = "" if in_time else f"{part}: busy: {describe_holder(ticket)}{describe_waited(options['timeout'])}"
                    ticket.close()
                if line is not None:
                    line.leave()
                if ticket is None:
                    break
                if message:
                    raise Busy(message)
    return 0
