"""Read the two files of a journal: PAST, then JOURNAL."""

import posix

from solo.directories import Directory
from solo.journal_files import JOURNAL, JOURNAL_LIMIT, SIZE_LIMIT
from solo.kernel import EINVAL, IS_REGULAR, SAFELY, TYPE_MASK, close

PAST = ".journal.past"
READ_LIMIT = JOURNAL_LIMIT + SIZE_LIMIT  # bytes
READ_ATTEMPTS = 10  # to read both files with no rotation in between


def read_both(place: Directory, size: "int | None" = None) -> "tuple[bytes, bytes]":
    """Return (PAST, JOURNAL), or their last `size` bytes, read with no rotation in between. Raises
    OSError.
    """
    for _ in range(READ_ATTEMPTS):
        now, number = read_journal(place, JOURNAL, size)
        if len(now) == size:
            return b"", now
        past, older = read_journal(place, PAST, size and size - len(now))
        if older is None or number == find_inode(place):
            break
    return past, now


def read_journal(
    place: Directory, file: str, size: "int | None" = None
) -> "tuple[bytes, int | None]":
    """Return (the last `size` bytes, or READ_LIMIT, of a file; its inode), (b"", None) without it.
    Raises OSError.
    """
    try:
        fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=place.fd)
    except FileNotFoundError:
        return b"", None
    try:
        stat = posix.fstat(fd)
        if stat.st_mode & TYPE_MASK != IS_REGULAR:
            raise OSError(EINVAL, f"{file} is not a regular file")
        size = min(size or READ_LIMIT, stat.st_size)  # not more: it fills a buffer
        return posix.pread(fd, size, stat.st_size - size), stat.st_ino
    finally:
        close(fd)


def find_inode(place: Directory) -> "int | None":
    try:
        return posix.stat(JOURNAL, dir_fd=place.fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
