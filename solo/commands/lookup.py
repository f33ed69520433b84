"""Find the tickets of a name, for the subcommands. Looking needs no gate and changes nothing."""

from __future__ import annotations

import posix
from collections.abc import Iterator
from itertools import islice

from solo.argv import is_engine
from solo.directories import Directory, find_base, open_base, open_below, split_name
from solo.errors import SoloError, UsageError
from solo.history.names import find_names
from solo.identity import read_origin
from solo.journal_files import open_place
from solo.kernel import close, decode, say
from solo.modes import EXCLUSIVE, MODES, Claim, find_conflicts, plan_claims
from solo.obstacles import read_claim
from solo.options import FILE, LOCAL_BACKENDS, SOCKET
from solo.text.users import find_user
from solo.tickets import LIVE, ORPHANED, Queue, is_published

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_NAMES = 5000  # to compare with an unknown one


def check_via(where: str) -> None:
    """Raise UsageError if `where` names no backend, SoloError if it cannot be verified."""
    if where not in LOCAL_BACKENDS:
        from solo.engines.targets import find_target

        find_target(where)


def open_queue(name: str, options: dict[str, Any], origin: Any) -> Any:
    """Return the queue of `name`, or None if the name was never used. Raise SoloError if it is refused."""
    via = options.get("via", FILE)
    check_via(via)
    if via == SOCKET:
        from solo.contention.sockets import SocketQueue

        return SocketQueue(name, origin)
    try:
        base = open_base(find_base(options.get("dir")), options.get("dir"))
        return Queue(open_below(base, split_name(name)), origin, base.path)
    except FileNotFoundError:
        return None


def read_skips(queue: Any) -> dict[str, Any]:
    """Return the skips in a row by mode, without the modes that have none."""
    try:
        queue.gate.read_unlocked()
        return {mode: count for mode, count in zip(MODES, queue.gate.read_skips()) if count}
    except OSError:
        return {}


def check_names(names: list[str]) -> None:
    """Raise UsageError for an invalid name."""
    for name in names:
        if not name:
            raise UsageError("a name may not be empty (is a variable unset?)")
        split_name(name)


def check_known(name: str, options: dict[str, Any], verb: str) -> None:
    """Raise SoloError if `name` has no directory, journal or file of --once-per: it may be mistyped, or another user's.

    Sockets and engines keep nothing of an idle name, so every name is known there.
    """
    if options.get("via", FILE) != FILE or "allow_unknown" in options or has_traces(name, options.get("dir")):
        return
    from difflib import get_close_matches

    near = get_close_matches(name, islice(list_known(options.get("dir")), MOST_NAMES), 1)
    remedy = f" (did you mean {near[0]}?)" if near else "" if options.get("dir") else " (another user has other names)"
    raise SoloError(f"{name}: cannot {verb} it: not among the {describe_place(options)}{remedy}")


def report_unknown(name: str, options: dict[str, Any], verb: str) -> bool:
    """Print the error of check_known on stderr. Return True if there was one."""
    try:
        check_known(name, options, verb)
        return False
    except SoloError as error:
        say(str(error))
        return True


def visit_queues(names: list[str], options: dict[str, Any], visit: Any) -> bool:
    """Call `visit(name, queue)` for each name; the queue is None if the name was never used.

    Print an error for a name that is refused. Return whether every visit returned True.
    """
    origin, complete = read_origin(), True
    for name in names:
        queue = None
        try:
            queue = open_queue(name, options, origin)
            complete = visit(name, queue) and complete
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
        finally:
            if queue is not None:
                queue.leave()
    return complete


def open_names(directory: str | None, *names: str) -> Directory:
    """Open the directory of all names, or of one. Raises SoloError, or FileNotFoundError if it is missing."""
    parts = [part for name in names for part in split_name(name)]
    return open_below(open_base(find_base(directory), directory), parts)


PLACES = (open_names, open_place)  # where a name can be: in that of the journals also by a file of --once-per


def has_traces(name: str, directory: str | None) -> bool:
    """Return whether a name has a directory, a journal or a file of --once-per."""
    for open_one in PLACES:
        try:
            close(open_one(directory, name).fd)
            return True
        except FileNotFoundError:
            pass
        except SoloError:
            return True  # it exists, but is refused
    return False


def list_known(directory: str | None) -> Iterator[str]:
    """Yield every name that has a directory, a journal or a file of --once-per, some of them twice."""
    for open_one in PLACES:
        try:
            base = open_one(directory)
        except (FileNotFoundError, SoloError):
            continue
        try:
            yield from (name for name, _ in find_names(base))
        finally:
            close(base.fd)


def describe_place(options: dict[str, Any]) -> str:
    """Return whose names the options mean: `names of alice, in /home/alice/.local/state/solo`."""
    if is_engine(options):
        from solo.engines.targets import find_target

        return f"names at {find_target(options['via']).shown}"
    if options.get("via") == SOCKET:
        return f"names of {find_user(posix.geteuid())}, by sockets"
    if options.get("dir"):
        return f"names in {options['dir']}"
    return f"names of {find_user(posix.geteuid())}, in {find_base(None)}"


def open_living(queue: Any, wanted: Any = is_published, key: Any = None) -> Iterator[Any]:
    """Yield the living tickets whose files are `wanted`, holds first, or in the order of `key`.

    The caller closes them.
    """
    for file in sorted(filter(wanted, queue.list_files()), key=key):
        ticket = queue.open_ticket(file)
        if ticket is not None and ticket.state in (LIVE, ORPHANED):
            yield ticket
        elif ticket is not None:
            ticket.close()


def find_in_the_way(queue: Any, claim: Claim) -> Iterator[Any]:
    """Yield the living tickets that `claim` would have to wait for: conflicting holds, and every waiter."""
    for ticket in open_living(queue):
        if ticket.is_hold and not find_conflicts(claim, [read_claim(ticket)]):
            ticket.close()
        else:
            yield ticket


def plan_exclusive(names: list[str]) -> list[tuple[str, Claim]]:
    """Return the (name, claim) of each part that an exclusive hold of each of `names` needs."""
    return [plan for name in names for plan in plan_claims([name], Claim(EXCLUSIVE))]


def warn_of_program(words: list[str]) -> None:
    """Warn that `solo ls` runs ls(1): on a terminal, or if an argument is a name of solo."""
    from solo.text.hints import MEANINGS

    directory = decode(posix.environ.get(b"SOLO_DIR", b""))
    named = [
        name for name in words[1:] if name[:1] not in "-/%." and not name.isdecimal() and has_traces(name, directory)
    ]
    if named or posix.isatty(2) and (words[0] == "kill" or not words[1:]):
        say(f"{words[0]} is run as COMMAND (did you mean {MEANINGS[words[0]]}?)")
