"""`solo clean`: remove what the dead left, and names that nobody uses.

Each under its gate; whoever comes just then finds that gate gone, and makes the name anew.
"""

import posix
from errno import ENOTEMPTY
from time import time

from solo.cells import tell
from solo.commands.lines import check_names, find_in_the_way, open_line
from solo.errors import SoloError
from solo.history import PAST
from solo.identity import read_world
from solo.journal import JOURNAL, open_place
from solo.kernel import SAFELY, close, list_directory, say
from solo.once import FILE as ONCE
from solo.places import STICKY, find_base, find_names, is_within, open_base, tighten
from solo.queue import find_living
from solo.rule import EXCLUSIVE, Claim
from solo.tickets import GATE, NEW, READABLE, Line


def run(options: dict, names: list) -> int:
    """Print what was removed. 125 if something could not be looked into; the rest is done."""
    check_names(names)
    directory = options.get("dir")
    complete = clean_all(lambda: open_base(find_base(directory), directory), names, options, clean)
    tighten_journals(directory)
    if "history" in options:
        complete = clean_all(lambda: open_place(directory), names, options, forget) and complete
    return 0 if complete else SoloError.status


def tighten_journals(directory):
    """Take from other users the rights that an earlier version gave them to journals."""
    try:
        place = open_place(directory)
    except (FileNotFoundError, SoloError):
        return  # a journal is never a reason to fail
    for _, inner in find_names(place):
        for file in (JOURNAL, PAST, ONCE) if not isinstance(inner, SoloError) else ():
            try:
                fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=inner.fd)
            except OSError:
                continue
            tighten(fd, inner.mode)
            tighten(inner.fd, inner.mode)
            close(fd)
    close(place.fd)


def clean_all(open_all, names: list, options: dict, clean_one) -> bool:
    """`clean_one` for each of `names` that there is in the place that `open_all` opens, or for all; False if one fails."""
    try:
        base = open_all()
    except FileNotFoundError:
        return True  # nothing was ever guarded here
    complete = True
    # The innermost first: a name goes only when nothing nests in it.
    for name, place in reversed([*find_names(base)]):
        if not is_within(name, names):
            continue
        try:
            if isinstance(place, SoloError):
                raise place
            clean_one(name, base, options)
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    close(base.fd)
    return complete


def clean(name: str, base, options: dict):
    """Remove what is dead of a name, and all of it if it is idle."""
    line = open_line(name, options, read_world())
    if line is None:
        return
    with line:
        before = line.list_files()
        for file in before:
            if file.startswith(NEW):
                line.remove(file)
            else:
                ticket = find_living(line, file)
                if ticket is not None:
                    tighten(ticket.fd, line.place.mode & READABLE)
                    ticket.close()
        after = list_directory(line.place.fd)
        dead = len(before) - sum(file in after for file in before)
        # A new gate numbers from the clock: one that is ahead of it must stay, or a token could come twice.
        removed = after == [GATE] and (line.read_gate()[0] or 0) < time() * 1e6 and remove_name(name, line, base)
    if removed:
        tell(f"{name}: removed")
    elif dead:
        tell(f"{name}: removed {dead} dead ticket{'s' * (dead != 1)}")
    line.leave()


def remove_name(name: str, line: Line, base) -> bool:
    """Whoever has the gate open sees that it is gone; whoever makes a new one first keeps the directory.

    A name that root made in a sticky directory stays: if another user made it anew, everybody else would be refused.
    """
    if line.place.mode & STICKY and posix.fstat(line.place.fd).st_uid == 0:
        return False
    try:
        posix.unlink(GATE, dir_fd=line.place.fd)
        posix.rmdir(name, dir_fd=base.fd)
        return True
    except OSError:
        return False


def forget(name: str, base, options: dict):
    """Remove a journal that nobody has written in for so long, if nobody holds the name or stands in line."""
    line = open_line(name, options, read_world())
    if line is not None:
        used = next(find_in_the_way(line, Claim(EXCLUSIVE)), None)
        line.leave()
        if used is not None:
            used.close()
            return
    place, written = None, []
    try:
        place = open_place(options.get("dir"), name)
        journals = [file for file in list_directory(place.fd) if file in (JOURNAL, PAST)]
        written = [posix.stat(file, dir_fd=place.fd, follow_symlinks=False).st_mtime for file in journals]
        if not written or time() - max(written) < options["history"]:
            return
        for file in journals:
            posix.unlink(file, dir_fd=place.fd)
        tell(f"{name}: history removed")
        for part in range(name.count("/") + 1):
            posix.rmdir(name.rsplit("/", part)[0], dir_fd=base.fd)
    except FileNotFoundError:
        return  # someone else cleans
    except OSError as error:
        if error.errno != ENOTEMPTY:  # others nest in it
            raise SoloError(f"its history can not be removed: {error.strerror}") from None
    finally:
        if place is not None:
            close(place.fd)
