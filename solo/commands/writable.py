"""Could a run that starts now write its tickets and its journal?"""

import os

from solo.commands.lookup import open_existing
from solo.directories import find_base
from solo.errors import SoloError
from solo.journal_files import open_place
from solo.kernel import HOME_PLACE
from solo.process.boot import read_mount
from solo.text.remedies import explain, find_nearest


def find_existing(path: str, asked: "str | None") -> str:
    """Return `path`, or the nearest directory in which a run would make it. Raises SoloError if it
    would not.
    """
    if os.path.isdir(path):
        return path
    first, folder = path, os.path.dirname(os.path.abspath(path))
    needed = folder if asked else path.removesuffix(HOME_PLACE)
    while not os.path.lexists(folder) and len(folder) > len(needed):
        first, folder = folder, os.path.dirname(folder)
    try:
        write_file(folder)
        return folder
    except OSError as error:
        raise SoloError(f"cannot create {first}: {explain(first, error, asked)}") from None


def explain_unrecorded(path: str, asked: "str | None") -> str:
    """Return why a run that starts now is not recorded in `path`, "" if it is."""
    try:
        write_file(find_existing(path, asked))
        return ""
    except (SoloError, OSError) as error:
        return str(getattr(error, "strerror", None) or error)


def describe_unrecorded(asked: "str | None") -> str:
    """Return that the journals, of which there are some, get no more lines, "" if they do, or if
    names and journals are mounted read-only here, to be looked at.
    """
    try:
        journals = open_existing(asked, open_place)
    except SoloError:
        return ""  # each name tells
    if journals is None:
        return ""
    with journals:
        if is_read_only(journals.path) and is_read_only(find_base(asked)):
            return ""
        reason = explain_unrecorded(journals.path, asked)
    return reason and f"no run is recorded in {journals.path} now: {reason}"


def is_read_only(path: str) -> bool:
    """Return whether this mount of a file system is read-only, and not the file system."""
    fd = os.open(find_nearest(path), os.O_PATH)
    try:
        is_either = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
        return is_either and b"ro" not in read_mount(fd)[1].split(b",")
    finally:
        os.close(fd)


def write_file(folder: str) -> None:
    """Write a file without a name. Raises OSError."""
    import tempfile  # for `check` and doctor: `show` and `top` load this module too

    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x" * 4096)
        file.flush()
