"""Looks for a process of another pid namespace, as far as this one can see into it. Cold."""

import posix

from solo.identity import read_namespace, read_stat
from solo.kernel import STATUS_SIZE, read_file


def find_pid(process: tuple, theirs, mine) -> int:
    """Our pid of (pid, start) of the world `theirs`, if that is ours dead or alive; 0 if we see none."""
    if theirs.boot != mine.boot:
        return 0
    return process[0] if theirs.pid_namespace == mine.pid_namespace else find_process(*process, theirs, mine)


def find_process(pid: int, start: int, theirs, mine) -> int:
    """Our pid of the live process that is `pid` in the namespace `theirs`; 0 if we see none."""
    for entry in posix.listdir("/proc"):
        if entry.isdigit() and is_process(entry, pid, start, theirs, mine):
            return int(entry)
    return 0


def is_process(entry: str, pid: int, start: int, theirs, mine) -> bool:
    try:
        if read_namespace(entry, "pid") != theirs.pid_namespace or read_inner_pid(entry) != pid:
            return False
        return read_stat(entry).is_started(start, theirs, mine)
    except OSError:
        return False


def read_inner_pid(entry: str) -> int:
    # In what a process calls itself only newlines are escaped: nothing else ends a line.
    for line in read_file(f"/proc/{entry}/status", STATUS_SIZE).split(b"\n"):
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0
