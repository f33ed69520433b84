"""Find the tickets of a name, for the subcommands. Looking needs no gate and changes nothing."""

import posix
from collections.abc import Callable, Iterator
from itertools import islice
from posixpath import exists

from solo.directories import Directory, find_base, open_base, open_below, split_name
from solo.errors import SoloError, UsageError
from solo.history.names import find_files
from solo.identity import Origin, read_origin
from solo.journal_files import open_place
from solo.kernel import FOREVER, USERS_PLACE, decode, say
from solo.modes import MODES
from solo.options import FILE, LOCAL_BACKENDS, SOCKET
from solo.text.users import find_user
from solo.tickets import FileQueue, Queue, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from solo.acquire import FindPlace
    from solo.contention.protocols import Watch
    from solo.plan import Plan
    from solo.record import Record

    Result = TypeVar("Result")

MOST_COMPARED = 5000  # to compare with an unknown one


class Asked:
    """The options of a subcommand: those that were typed, or set by the environment."""

    dir: "str | None" = None
    via: "str | None" = None
    json = null = captured = failed = waiting = allow_unknown = generated = False
    crontab = unit = fix = False
    since = 0.0
    limit: "int | None" = None
    timeout = FOREVER
    within: "tuple[float | None, float | None]" = (None, None)
    kill_after: "float | None" = None
    history: "float | None" = None  # seconds
    output: "str | None" = None
    pid: "int | None" = None

    def __init__(self, **typed: object) -> None:
        vars(self).update(typed)

    def at(self, via: str) -> "Asked":
        """Return the same options for another backend."""
        return Asked(**{**vars(self), "via": via})

    @property
    def where(self) -> str:
        return self.via or FILE

    @property
    def is_engine(self) -> bool:
        return self.where not in LOCAL_BACKENDS


def check_via(where: str) -> None:
    """Raise UsageError if `where` names no backend, SoloError if it cannot be verified."""
    if where not in LOCAL_BACKENDS:
        from solo.engines.targets import find_target

        find_target(where)


def open_queue(name: str, options: Asked, origin: Origin) -> "Queue | None":
    """Return the queue of `name`, or None if the name was never used. Raise SoloError if it is
    refused.
    """
    if options.where == SOCKET:
        from solo.contention.sockets import SocketQueue

        return SocketQueue(name, origin)
    try:
        base = open_base(find_base(options.dir), options.dir)
        return FileQueue(open_below(base, split_name(name)), origin, base.path)
    except FileNotFoundError:
        return None


def look_at_names(
    wanted: "Record",
    plan: "Plan",
    watch: "Watch",
    find_place: "FindPlace",
    check: "Callable[[Directory, list[str]], None] | None" = None,
) -> "dict[str, Ticket]":
    """Do as acquire_names, but act on nothing. `watch` is called where it would wait; then it looks
    again.

    `check` is called with the directory of all names and the parts of a name that has none. Raises
    Busy, SoloError.
    """
    from solo.acquire import acquire_names
    from solo.contention.judge import Nowhere, Rehearsal

    def open_name(base: "Directory | None", name: str, origin: Origin) -> Queue:
        queue = open_queue(name, Asked(dir=plan.dir, via=plan.via), origin)
        if queue is None:
            queue = Nowhere(origin)
            if base and check:
                check(base, split_name(name))
        return queue

    return acquire_names(wanted, plan, watch, [], open_name, None, Rehearsal, find_place)


def read_skips(queue: "Queue | None") -> "dict[str, int]":
    """Return the skips in a row by mode, without the modes that have none."""
    if not isinstance(queue, FileQueue):
        return {}
    try:
        queue.gate.read_unlocked()
        return {mode: count for mode, count in zip(MODES, queue.gate.read_skips()) if count}
    except OSError:
        return {}


def check_names(names: "list[str]") -> None:
    for name in names:
        split_name(name)


def check_words(words: "list[str]", names: "list[str]") -> None:
    """Raise UsageError for words that look like a command: they would be names."""
    after = words[words.index("--") + 1 :] if "--" in words else []
    if after and len(names) > len(after):
        raise UsageError("a subcommand runs no command (solo -n NAME -- COMMAND does)")


def check_units(words: "list[str]", flags: "list[str]", directory: "str | None") -> None:
    """Raise UsageError for a duration of two words after one of `flags`, as `-k 5 m`, unless m is a
    known name.
    """
    for flag, number, unit in zip(words, words[1:], words[2:]):
        if flag in flags and number.isdecimal():
            from solo.text.hints import UNITS_OF_TIME

            if unit.lower() in UNITS_OF_TIME and not has_traces(unit, directory):
                remedy = f"for a name {unit}: {flag} {number}s {unit}"
                raise UsageError(
                    f"{flag} {number} {unit}: a duration is one word, like 30s, 5m, 2h ({remedy})"
                )


def check_known(name: str, options: Asked, verb: str) -> None:
    """Raise SoloError if `name` left no traces: it may be mistyped, or another user's. All are
    known without files.
    """
    if options.where != FILE or options.allow_unknown or has_traces(name, options.dir):
        return
    from difflib import get_close_matches

    from solo.text.hints import ALIKE

    near = get_close_matches(name, islice(list_known(options.dir), MOST_COMPARED), 1, ALIKE)
    remedy = ""
    if not options.dir and (user := find_owner(name)):
        remedy = f" (as that user: runuser -u {user} -- solo ...)"
    elif near:
        remedy = f" (did you mean {near[0]}?)"
    elif not options.dir:
        remedy = " (another user has other names)"
    elif verb in ("wait for", "stop"):
        remedy = " (--allow-unknown treats it as free)"
    raise SoloError(f"{name}: cannot {verb} it: not among the {describe_place(options)}{remedy}")


def find_owner(name: str) -> str:
    """Return the user without a home directory whose name it is, if root asks; else ""."""
    try:
        uids = filter(str.isdecimal, posix.listdir(USERS_PLACE))
        owners = [find_user(int(uid)) for uid in uids if exists(f"{USERS_PLACE}/{uid}/{name}")]
    except OSError:
        return ""
    return next((user for user in owners if not user.isdecimal()), "")


def report_unknown(names: "list[str]", options: Asked, verb: str) -> "list[str]":
    """Return the names that check_known refuses, and print its errors on stderr."""
    unknown = []
    for name in names:
        try:
            check_known(name, options, verb)
        except SoloError as error:
            say(str(error))
            unknown.append(name)
    return unknown


def visit_queue(
    name: str,
    options: Asked,
    visit: "Callable[[Queue | None], Result]",
    origin: "Origin | None" = None,
) -> "Result":
    """Return what `visit` returns for the queue of `name`, or for None if the name was never used.
    Raises SoloError.
    """
    queue = open_queue(name, options, origin or read_origin())
    try:
        return visit(queue)
    finally:
        if queue is not None:
            queue.leave()


def visit_queues(
    names: "list[str]", options: Asked, visit: "Callable[[str, Queue | None], bool]"
) -> bool:
    """Call `visit(name, queue or None)` for each name, and print errors. Return whether every visit
    returned True.
    """
    origin, complete = read_origin(), True
    for name in names:
        try:
            is_whole = visit_queue(name, options, lambda queue: visit(name, queue), origin)  # noqa: B023
            complete = is_whole and complete
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    return complete


def open_names(directory: "str | None", *names: str) -> Directory:
    """Open the directory of all names, or of one. Raises SoloError, or FileNotFoundError if it is
    missing.
    """
    parts = [part for name in names for part in split_name(name)]
    return open_below(open_base(find_base(directory), directory), parts)


def open_existing(
    directory: "str | None", open_one: "Callable[..., Directory]" = open_names, *names: str
) -> "Directory | None":
    """Return what open_names, or open_place of the journals, returns, None if it is missing. Raises
    SoloError.
    """
    try:
        return open_one(directory, *names)
    except FileNotFoundError:
        return None


# where a name can be: in that of the journals also by a file of --once-per
PLACES = (open_names, open_place)


def has_traces(name: str, directory: "str | None") -> bool:
    """Return whether a name has a directory, a journal or a file of --once-per."""
    for open_one in PLACES:
        try:
            with open_one(directory, name):
                return True
        except FileNotFoundError:
            pass
        except SoloError:
            return True  # it exists, but is refused
    return False


def list_known(directory: "str | None") -> "Iterator[str]":
    """Yield every name that has a directory, a journal or a file of --once-per, some of them
    twice.
    """
    for open_one in PLACES:
        try:
            base = open_one(directory)
        except (FileNotFoundError, SoloError):
            continue
        with base:
            yield from (name for name, *_ in find_files(base))


def describe_place(options: Asked) -> str:
    """Return whose names the options mean: `names of alice, in /home/alice/.local/state/solo`."""
    if options.is_engine:
        return f"names at {describe_engine(options)}"
    user = find_user(posix.geteuid())
    if options.via == SOCKET:
        return f"names of {user}, by sockets"
    if options.dir:
        return f"names in {options.dir}{'' if exists(options.dir) else ', which does not exist'}"
    return f"names of {user}, in {find_base(None)}"


def describe_no_locks(complete: bool) -> str:
    """Return what is said of names without a ticket that could be read."""
    return f"no locks {'held' if complete else 'readable'}"


def describe_engine(options: Asked) -> str:
    """Return the URL of --via, without secrets."""
    from solo.engines.targets import find_target

    return find_target(options.where).shown


def make_own_stop(owner: str, remedy: str = " (exit ends the job)") -> SoloError:
    """Return the error for a job that would stop itself: its `owner` is above this process."""
    return SoloError(f"cannot stop it from inside: {owner} is an ancestor of this process", remedy)


def warn_of_program(words: "list[str]") -> None:
    """Warn that `solo ls` runs ls(1): on a terminal, or if an argument is a name of solo."""
    from solo.text.hints import MEANINGS

    directory = decode(posix.environ.get(b"SOLO_DIR", b""))
    plain = [name for name in words[1:] if name[:1] not in "-/%." and not name.isdecimal()]
    if (
        any(has_traces(name, directory) for name in plain)
        or posix.isatty(2)
        and (words[0] == "kill" or not words[1:])
    ):
        say(f"{words[0]} is run as COMMAND (did you mean {MEANINGS[words[0]]}?)")
