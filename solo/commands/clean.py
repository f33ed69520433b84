"""`solo clean`: remove what the dead left, and names that nobody uses.

Each under its gate; whoever comes just then finds that gate gone, and makes the name anew.
"""

import posix

from solo.text.width import tell
from solo.commands.lookup import check_names
from solo.commands.prune import clean, forget
from solo.errors import SoloError
from solo.history.reader import PAST
from solo.journal import JOURNAL, open_place
from solo.kernel import SAFELY, close, say
from solo.contention.period import FILE as ONCE
from solo.directories import find_base, find_names, is_within, open_base, tighten


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
            removed = clean_one(name, base, options)
            if removed:
                tell(f"{name}: {removed}")
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    close(base.fd)
    return complete
