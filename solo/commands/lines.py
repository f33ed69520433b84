"""Where the tickets of a name are, for the subcommands: who looks does so without the gate, and changes nothing."""

from solo.errors import UsageError
from solo.options import FILE, KEEPERS, SOCKET
from solo.places import find_base, open_base, open_below, split_name
from solo.queue import read_claim
from solo.rule import EXCLUSIVE, Claim, find_conflicts, plan_claims
from solo.sockets import SocketLine
from solo.tickets import LIVE, ORPHANED, Line, is_published


def check_via(where: str):
    """Raises UsageError if that is nothing that keeps locks, or SoloError."""
    if where not in KEEPERS:
        from solo.engines.targets import find_target

        find_target(where)


def open_line(name: str, options: dict, world):
    """The queue of `name`, or None if it was never used. Raises SoloError."""
    via = options.get("via", FILE)
    check_via(via)
    if via == SOCKET:
        return SocketLine(name, world)
    try:
        base = open_base(find_base(options.get("dir")), options.get("dir"))
        return Line(open_below(base, split_name(name)), world)
    except FileNotFoundError:
        return None


def check_names(names: list):
    """Raises UsageError for a name that can not be one."""
    for name in names:
        if not name:
            raise UsageError("a name may not be empty")
        split_name(name)


def open_living(line, wanted=is_published, key=None):
    """The living tickets of the files that are `wanted`, holds first, or in the order of `key`. A generator; each is open, and the
    caller's.
    """
    for file in sorted(filter(wanted, line.list_files()), key=key):
        ticket = line.open_ticket(file)
        if ticket is not None and ticket.state in (LIVE, ORPHANED):
            yield ticket
        elif ticket is not None:
            ticket.close()


def find_in_the_way(line, claim: Claim):
    """Those of them that keep `claim` out: holds, and whoever stands in line."""
    for ticket in open_living(line):
        if ticket.is_hold and not find_conflicts(claim, [read_claim(ticket)]):
            ticket.close()
        else:
            yield ticket


def plan_exclusive(name: str) -> list:
    return plan_claims([name], Claim(EXCLUSIVE))
