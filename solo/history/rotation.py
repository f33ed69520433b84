"""How a full journal makes room: JOURNAL becomes PAST, and a line of totals keeps the counts of the old PAST."""

from __future__ import annotations

import os
from fcntl import LOCK_EX

from solo.directories import STICKY, Directory
from solo.history.files import PAST, find_inode, read_journal
from solo.history.reader import add_up, format_totals, parse
from solo.journal_files import JOURNAL
from solo.kernel import try_lock

TAIL = 1 << 10  # bytes; a line of totals is shorter


def rotate(place: Directory, journal: int) -> bool:
    """Rename the full JOURNAL, open as `journal`, to PAST. Return False if it must stay for now. Raises OSError.

    Write the counts of PAST into JOURNAL first, so that SIGKILL at any moment loses none. Rotate under flock(2): a
    second rotation would rename the journal that the first one has just begun.
    """
    folder = os.fstat(place.fd)
    # A sticky directory forbids renaming the files of another user.
    may_rename = not folder.st_mode & STICKY or os.geteuid() in (0, folder.st_uid, os.fstat(journal).st_uid)
    if not may_rename or not try_lock(journal, LOCK_EX):
        return False
    stat = os.fstat(journal)
    if stat.st_ino != find_inode(place, JOURNAL):
        return True  # another process rotated it
    tail = os.pread(journal, TAIL, max(0, stat.st_size - TAIL))
    if parse("", tail.splitlines(True)[-1])[0] is None:  # else an earlier attempt wrote the totals, but did not rename
        line = b"\n" + format_totals(add_up(*parse("", read_journal(place, PAST)[0])))
        if os.write(journal, line) < len(line):
            return False
    try:
        os.rename(JOURNAL, PAST, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        return True
    except OSError:
        return False
