"""`solo clean`: remove dead tickets and idle names.

It holds the gate of each name. A contender that arrives meanwhile finds the gate gone and creates the name again.
"""

from __future__ import annotations

import posix
from typing import Any

from solo.commands.lookup import check_names, open_names, report_unknown
from solo.commands.prune import LIKE_GENERATED, clean, forget, is_generated
from solo.contention.period import FILE as ONCE
from solo.directories import tighten
from solo.errors import SoloError
from solo.history.files import PAST
from solo.history.names import find_names
from solo.journal_files import JOURNAL, open_place
from solo.kernel import SAFELY, close, say
from solo.text.width import print_clean


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print a line per name that changed.

    Return 125 if a name was never used or could not be read; the others are cleaned all the same.
    """
    check_names(names)
    directory = options.get("dir")
    unknown = [name for name in names if report_unknown(name, options, "clean")]
    complete = clean_all(open_names, names, options, clean) and not unknown
    tighten_journals(directory)
    if "history" in options:
        complete = clean_all(open_place, names, options, forget) and complete
    return 0 if complete else SoloError.status


def tighten_journals(directory: str | None) -> None:
    """Remove the access for other users that an earlier version left on journals."""
    try:
        place = open_place(directory)
    except (FileNotFoundError, SoloError):
        return  # a journal never makes a command fail
    for _, inner in find_names(place):
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
    close(place.fd)


def clean_all(open_one: Any, names: list[str], options: dict[str, Any], clean_one: Any) -> bool:
    """Call `clean_one` for each of `names`, or for all, in the directory that `open_one` opens.

    Return False if one fails.
    """
    try:
        base = open_one(options.get("dir"))
    except FileNotFoundError:
        return True  # no command was ever guarded here
    complete = True
    # Nested names first: only a name without any can be removed.
    for name, place in reversed([*find_names(base, names)]):
        if "generated" in options and not LIKE_GENERATED.fullmatch(name):
            continue
        try:
            if isinstance(place, SoloError):
                raise place
            if "generated" in options and not is_generated(name, options.get("dir")):
                continue
            removed = clean_one(name, base, options)
            if removed:
                print_clean(f"{name}: {removed}")
        except SoloError as error:
            say(f"{name}: {error}")
            complete = False
    close(base.fd)
    return complete
