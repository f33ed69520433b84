"""Where the journals are, and how one is opened. Below journal.py, which writes them, and history/,
which reads them.

The journals are in FOLDER beside the locks. Those of root's own directory are in DURABLE_PLACE,
because /run is empty after a boot. In a sticky directory each user has a private folder, which no
other user can read or write.
"""

import posix

from solo import directories
from solo.directories import PRIVATE, STICKY, Directory, open_base
from solo.kernel import ROOT_PLACE

DURABLE_PLACE = "/var/lib/solo"
FOLDER = ".journals"  # no name starts with a dot
JOURNAL = ".journal"
SIZE_LIMIT = 1 << 20  # bytes; a journal of this size is rotated
JOURNAL_LIMIT = 2 * SIZE_LIMIT  # bytes; a journal that cannot be rotated stops growing here
STARTED, ENDED, SKIPPED, REFUSED = b"started", b"ended", b"skipped", b"refused"  # the events
UNNOTIFIED = b"unnotified"  # not of a run: --notify failed


def find_journals(directory: "str | None", *names: str) -> "tuple[str, list[str], bool]":
    """Return (path, parts below it, whether other users may write there) of the journal of one
    name, or of all.
    """
    path = directories.find_base(directory)
    parts = [part for name in names for part in directories.split_name(name)]
    is_roots = not posix.geteuid() and (
        path == ROOT_PLACE or (directory and is_same(path, ROOT_PLACE))
    )
    return (DURABLE_PLACE, parts, False) if is_roots else (path, [FOLDER, *parts], bool(directory))


def is_same(path: str, other: str) -> bool:
    """Return whether both paths lead to one file."""
    try:
        first, second = posix.stat(path), posix.stat(other)
        return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
    except OSError:
        return path.rstrip("/") == other


def make_place(directory: "str | None", *names: str) -> Directory:
    """Open the directory of the journal of one name, or of all names, made if it is missing. Raises
    SoloError.
    """
    path, parts, may_be_shared = find_journals(directory, *names)
    try:
        base = open_base(path, may_be_shared)
    except FileNotFoundError:
        directories.make_directory(path)
        base = open_base(path, may_be_shared)
    with base:
        return directories.open_parts(*choose_own(base, parts))


def open_place(directory: "str | None", *names: str) -> Directory:
    """Open the same directory without making anything. Raises SoloError, or FileNotFoundError if it
    is missing.
    """
    path, parts, may_be_shared = find_journals(directory, *names)
    return directories.open_below(*choose_own(open_base(path, may_be_shared), parts))


def choose_own(base: Directory, parts: "list[str]") -> "tuple[Directory, list[str]]":
    """Return `base` and `parts`; in a sticky directory, where others could write or lock, those of
    this user's own folder.
    """
    if not base.mode & STICKY:
        return base, parts
    return Directory(base.fd, base.path, PRIVATE, False), [
        f"{FOLDER}.{posix.geteuid()}",
        *parts[1:],
    ]


def open_journal(place: Directory) -> int:
    """Open the journal in `place`, made if it is missing. Raises OSError."""
    return directories.open_file(place, JOURNAL, posix.O_RDWR | posix.O_APPEND)
