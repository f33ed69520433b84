"""`solo clean`: remove what the dead left, and names that nobody uses.

Each under its gate; whoever comes just then finds that gate gone, and makes the name anew.
"""

import posix
from time import time

from solo.commands.lines import check_names, close_line, open_line
from solo.errors import SoloError
from solo.identity import read_world
from solo.kernel import close, say
from solo.places import find_base, find_names, open_base
from solo.queue import find_living
from solo.tickets import GATE, NEW, Line


def run(options: dict, names: list) -> int:
    """Print what was removed. 125 if something could not be looked into; the rest is done."""
    check_names(names)
    try:
        base = open_base(find_base(options.get("dir")), options.get("dir"))
    except FileNotFoundError:
        return 0  # nothing was ever guarded here
    world, complete = read_world(), True
    # The innermost first: a name goes only when nothing nests in it.
    for name, place in reversed([*find_names(base)]):
        if names and not any(name == wanted or name.startswith(wanted + "/") for wanted in names):
            continue
        try:
            if isinstance(place, SoloError):
                raise place
            line = open_line(name, options, world)
            if line is not None:
                clean(name, line, base)
                close_line(line)
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    close(base.fd)
    return 0 if complete else SoloError.status


def clean(name: str, line: Line, base):
    with line:
        before = line.list_files()
        for file in before:
            if file.startswith(NEW):
                line.remove(file)
            else:
                ticket = find_living(line, file)
                if ticket is not None:
                    ticket.close()
        after = posix.listdir(line.place.fd)
        dead = len(before) - sum(file in after for file in before)
        # A new gate numbers from the clock: one that is ahead of it must stay, or a token could come twice.
        removed = after == [GATE] and (line.read_gate()[0] or 0) < time() * 1e6 and remove_name(name, line, base)
    if removed:
        print(f"{name}: removed")
    elif dead:
        print(f"{name}: removed {dead} dead ticket{'s' * (dead != 1)}")


def remove_name(name: str, line: Line, base) -> bool:
    """Whoever has the gate open sees that it is gone; whoever makes a new one first keeps the directory."""
    try:
        posix.unlink(GATE, dir_fd=line.place.fd)
        posix.rmdir(name, dir_fd=base.fd)
        return True
    except OSError:
        return False
