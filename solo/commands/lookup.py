"""Where the tickets of a name are, for the subcommands: who looks does so without the gate, and changes nothing."""

import posix
from itertools import islice

from solo.errors import SoloError, UsageError
from solo.journal import open_place
from solo.kernel import close, say
from solo.options import FILE, KEEPERS, SOCKET
from solo.directories import find_base, find_names, open_base, open_below, split_name
from solo.queue import read_claim
from solo.modes import EXCLUSIVE, Claim, find_conflicts, plan_claims
from solo.contention.sockets import SocketLine
from solo.tickets import LIVE, ORPHANED, Line, is_published
from solo.text.describe import find_user

MOST_NAMES = 5000  # that are compared with one that is unknown


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


def check_known(name: str, options: dict, verb: str):
    """Raises SoloError if no run of `name` left a directory or a journal: it may be mistyped, or another user's.

    Sockets and engines keep nothing of a name that is idle: there each one is known.
    """
    if options.get("via", FILE) != FILE or "allow_unknown" in options or has_traces(name, options.get("dir")):
        return
    from difflib import get_close_matches

    near = get_close_matches(name, islice(list_known(options.get("dir")), MOST_NAMES), 1)
    remedy = f" (did you mean {near[0]}?)" if near else "" if options.get("dir") else " (another user has other names)"
    raise SoloError(f"{name}: cannot {verb} it: not among the {describe_place(options)}{remedy}")


def report_unknown(name: str, options: dict, verb: str) -> bool:
    """The same as a line on stderr: True if it was said."""
    try:
        check_known(name, options, verb)
        return False
    except SoloError as error:
        say(str(error))
        return True


def has_traces(name: str, directory) -> bool:
    for open_one in (lambda: open_below(open_base(find_base(directory), directory), split_name(name)), lambda: open_place(directory, name)):
        try:
            close(open_one().fd)
            return True
        except FileNotFoundError:
            pass
        except SoloError:
            return True  # it is there, and refused
    return False


def list_known(directory):
    """Every name that has a directory or a journal, some of them twice. A generator."""
    for open_all in (lambda: open_base(find_base(directory), directory), lambda: open_place(directory)):
        try:
            base = open_all()
        except (FileNotFoundError, SoloError):
            continue
        try:
            yield from (name for name, _ in find_names(base))
        finally:
            close(base.fd)


def describe_place(options: dict) -> str:
    """Whose names the options mean: `names of alice, in /home/alice/.local/state/solo`."""
    if options.get("via", FILE) == SOCKET:
        return f"names of {find_user(posix.geteuid())}, by sockets"
    if options.get("dir"):
        return f"names in {options['dir']}"
    return f"names of {find_user(posix.geteuid())}, in {find_base(None)}"


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
