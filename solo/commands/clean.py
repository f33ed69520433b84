"""`solo clean`: remove dead tickets and idle names, and the history of typed ones; a few generated
names after a run.

A name is removed under its gate. A contender that arrives meanwhile finds the gate gone and creates
the name again.
"""

import posix
import re
from collections.abc import Callable
from errno import ENOTEMPTY
from functools import lru_cache
from itertools import islice
from time import time

from solo.commands.lookup import (
    PLACES,
    Asked,
    open_existing,
    open_names,
    report_unknown,
    visit_queue,
)
from solo.contention.period import ONCE_FILE as ONCE
from solo.directories import STICKY, Directory, open_below, tighten
from solo.errors import SoloError
from solo.gate import GATE
from solo.history import captured
from solo.history.files import PAST
from solo.history.names import find_files
from solo.history.reader import find_history
from solo.identity import read_origin
from solo.journal_files import JOURNAL, open_place
from solo.kernel import SAFELY, close, list_directory, say
from solo.obstacles import find_living, list_living
from solo.text.width import print_clean
from solo.tickets import READABLE, UNPUBLISHED, FileQueue, FileTicket, Queue, is_published

# like those of command.make_names; some users choose such names
LIKE_GENERATED = re.compile(r"[^/]*-[0-9a-f]{8}")
find_origin = lru_cache(1)(read_origin)
IDLE = 30 * 86400.0  # seconds after which a generated name, with its history, is removed
MOST_LOOKED_AT, MOST_REMOVED = 256, 16  # names in one go


def run(options: Asked, names: "list[str]") -> int:
    """Print a line per name that changed. Return 125 if a name was never used or could not be
    read.
    """
    directory = options.dir
    unknown = report_unknown(names, options, "clean")
    complete = clean_all(open_names, names, options, clean) and not unknown
    tighten_journals(directory)
    if options.history is not None:
        complete = clean_all(open_place, names, options, forget) and complete
    elif names and not options.generated:

        def forget_typed(name: str, base: Directory, options: Asked) -> "str | None":
            return forget(name, base, options) if name in names else None  # not the nested ones

        complete = clean_all(open_place, names, options, forget_typed) and complete
    return 0 if complete else SoloError.status


def tighten_journals(directory: "str | None") -> None:
    """Remove the access for other users that an earlier version left on journals."""
    try:
        place = open_place(directory)
    except (FileNotFoundError, SoloError):
        return  # a journal never makes a command fail
    with place:
        for _, inner, _ in find_files(place):
            if isinstance(inner, SoloError):
                continue
            for file in (JOURNAL, PAST, ONCE):
                try:
                    fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=inner.fd)
                except OSError:
                    continue
                tighten(fd, inner.mode)
                tighten(inner.fd, inner.mode)
                close(fd)


def clean_all(
    open_one: "Callable[..., Directory]",
    names: "list[str]",
    options: Asked,
    clean_one: "Callable[[str, Directory, Asked], str | None]",
) -> bool:
    """Call `clean_one` for `names`, or all, in the directory that `open_one` opens. Return False if
    one fails.
    """
    base, complete = open_existing(options.dir, open_one), True
    if base is None:
        return True  # no command was ever guarded here
    # Nested names first: only a name without any can be removed.
    for name, place, _ in reversed([*find_files(base, names)]):
        if options.generated and not LIKE_GENERATED.fullmatch(name):
            continue
        try:
            if isinstance(place, SoloError):
                raise place
            if options.generated and not is_generated(name, options.dir):
                continue
            removed = clean_one(name, base, options)
            if removed:
                print_clean(f"{name}: {removed}")
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    close(base.fd)
    return complete


def prune_generated_names(directory: "str | None") -> None:
    """Remove at most MOST_REMOVED names that solo made from commands, idle for IDLE seconds, with
    their journals.

    Look at MOST_LOOKED_AT names, in a window that moves with the clock. Raises SoloError, OSError.
    """
    options = Asked(dir=directory, history=IDLE)
    for open_one, remove in zip(PLACES, (clean, forget)):
        base = open_existing(directory, open_one)
        if base is None:
            continue
        with base:
            names = sorted(filter(LIKE_GENERATED.fullmatch, list_directory(base.fd)))
            start = int(time()) * MOST_LOOKED_AT % max(1, len(names))
            window = (names[start:] + names[:start])[:MOST_LOOKED_AT]
            found = (
                name for name in window if is_idle(base, name) and is_generated(name, directory)
            )
            for name in islice(found, MOST_REMOVED):
                remove(name, base, options)


def is_idle(base: Directory, name: str) -> bool:
    """Return whether no ticket has come or gone, and no journal was written, for IDLE seconds."""
    try:
        times = [
            posix.stat(f"{name}/{file}", dir_fd=base.fd, follow_symlinks=False).st_mtime
            for file in (".", GATE, JOURNAL)
            if file == "." or posix.access(f"{name}/{file}", posix.F_OK, dir_fd=base.fd)
        ]
    except OSError:
        return False
    return time() - max(times) >= IDLE


def is_generated(name: str, directory: "str | None") -> bool:
    """Return whether solo made this name each time that it was used. The second of a pair has no
    journal.
    """
    try:
        with open_place(directory, name):
            events = find_history(directory, name).events
    except FileNotFoundError:
        return True
    except SoloError:
        return False
    return bool(events) and all(event.is_generated for event in events)


def clean(name: str, base: Directory, options: Asked) -> "str | None":
    """Remove the dead tickets of a name, and its directory if it is idle. Return a text that says
    so, or None.
    """
    return visit_queue(
        name,
        options,
        lambda queue: clean_queue(name, queue, base) if isinstance(queue, FileQueue) else None,
        find_origin(),
    )


def clean_queue(name: str, queue: FileQueue, base: Directory) -> "str | None":
    with queue.gate:
        before = queue.list_files()
        for file in before:
            if file.startswith(UNPUBLISHED):
                queue.remove(file)
            else:
                ticket = find_living(queue, file)
                if isinstance(ticket, FileTicket):
                    tighten(ticket.fd, queue.place.mode & READABLE)
                    ticket.close()
        after = list_directory(queue.place.fd)
        dead = len(before) - sum(file in after for file in before)
        # A new gate counts from the clock. A gate ahead of it must stay, or a token could repeat.
        is_idle = after == [GATE] and (queue.gate.read_counter() or 0) < time() * 1e6
        if is_idle and remove_name(name, queue, base):
            return "removed"
        return f"removed {dead} dead ticket{'s' * (dead != 1)}" if dead else None


def remove_name(name: str, queue: FileQueue, base: Directory) -> bool:
    """Remove the gate and directory of a name. Return False if it must stay, or a contender made a
    new gate first.

    A name that root made in a sticky directory stays: if another user created it again, all others
    would be refused.
    """
    if queue.place.mode & STICKY and posix.fstat(queue.place.fd).st_uid == 0:
        return False
    try:
        posix.unlink(GATE, dir_fd=queue.place.fd)
        remove_directory(name, base)
        return True
    except (OSError, SoloError):
        return False


def remove_directory(name: str, base: Directory) -> None:
    """Remove the empty directory of a name, each part opened by itself: in a shared directory one
    may be a link.
    """
    *above, last = name.split("/")
    copy = Directory(posix.dup(base.fd), base.path, base.mode, base.shared)
    with open_below(copy, above) as place:
        posix.rmdir(last, dir_fd=place.fd)


def forget(name: str, base: Directory, options: Asked) -> "str | None":
    """Remove the journal of a name idle for options.history seconds. Return a text that says so,
    or None.
    """
    place = open_existing(options.dir, open_place, name)
    if place is None:
        return None
    try:
        if is_used(name, options):
            return None if options.history is not None else "kept, as it is in use"
        journals = [
            file
            for file in list_directory(place.fd)
            if file in (JOURNAL, PAST) or captured.FILE.fullmatch(file)
        ]
        written = [
            posix.stat(file, dir_fd=place.fd, follow_symlinks=False).st_mtime for file in journals
        ]
        if not written or time() - max(written) < (options.history or 0.0):
            return None
        for file in journals:
            posix.unlink(file, dir_fd=place.fd)
        for part in range(name.count("/") + 1):
            remove_directory(name.rsplit("/", part)[0], base)
    except FileNotFoundError:
        return None  # another process removes it
    except OSError as error:
        if error.errno != ENOTEMPTY:  # a nested name is left
            raise SoloError(f"cannot remove its history: {error.strerror}") from None
    finally:
        close(place.fd)
    return "history removed"


def is_used(name: str, options: Asked) -> bool:
    """Return whether a name has a holder or a waiter, or a ticket that `clean` could not read."""

    def has_tickets(queue: "Queue | None") -> bool:
        return queue is not None and any(
            list_living(queue, filter(is_published, queue.list_files()))
        )

    try:
        return visit_queue(name, options, has_tickets, find_origin())
    except SoloError:
        return True
