"""Other processes: who descends from whom, and sending a signal to just that one and never to a reused pid. Cold."""

import _signal
import posix
from _signal import SIGCONT, SIGKILL

from solo.errors import SoloError
from solo.identity import read_stat
from solo.kernel import close
from solo.orphans import open_pidfd


def end(process: tuple, theirs, mine, signal: int):
    """Send `signal` to (pid, start) of the world `theirs`, and let it go on if it is stopped; one that is gone is fine.

    Raises SoloError if it can not be told.
    """
    try:
        pidfd = open_pidfd(process, theirs, mine)
    except ProcessLookupError:
        return
    if pidfd is None:
        raise SoloError(f"can not end pid {process[0]}: it can not be seen from here, or the kernel has no pidfd")
    try:
        _signal.pidfd_send_signal(pidfd, signal)
        if signal != SIGKILL and is_stopped(process[0]):
            _signal.pidfd_send_signal(pidfd, SIGCONT)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise SoloError(f"can not end pid {process[0]}: {error.strerror}") from None
    finally:
        close(pidfd)


def end_all(processes: list, mine, signal: int):
    """The same for several of our own world; who can not be told is passed over."""
    for process in processes:
        try:
            end(process, mine, mine, signal)
        except SoloError:
            pass


def is_stopped(pid: int) -> bool:
    try:
        return read_stat(pid).state == "T"
    except OSError:
        return False


def find_descendants(pid: int, besides=()) -> list:
    """[(pid, start)] of all that descend from `pid` and live, without those `besides` and what descends from them."""
    children = {}
    for entry in posix.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = read_stat(entry)
            except OSError:
                continue
            if not stat.is_dead() and stat.pid not in besides:
                children.setdefault(stat.parent, []).append(stat)
    found, parents = [], [pid]
    while parents:
        for stat in children.pop(parents.pop(), ()):
            found.append((stat.pid, stat.start))
            parents.append(stat.pid)
    return found
