"""Other processes: who descends from whom, and sending a signal to just that one and never to a reused pid. Cold."""

import _signal
import posix
from _signal import SIGCONT, SIGKILL

from solo.errors import SoloError
from solo.identity import is_alive, is_stopped, read_stat
from solo.kernel import close
from solo.namespaces import find_pid
from solo.orphans import open_pidfd
from solo.tickets import LIVE


def end(process: tuple, theirs, mine, signal: int):
    """Send `signal` to (pid, start) of the world `theirs`, and let it go on if it is stopped; one that is gone is fine.

    Raises SoloError if it can not be told.
    """
    try:
        pidfd = open_pidfd(process, theirs, mine)
    except ProcessLookupError:
        return
    if pidfd is None:
        raise SoloError(f"can not end pid {process[0]}: it can not be seen from here, or there is no pidfd")
    try:
        _signal.pidfd_send_signal(pidfd, signal)
        if signal != SIGKILL and is_stopped(find_pid(process, theirs, mine)):
            _signal.pidfd_send_signal(pidfd, SIGCONT)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise SoloError(f"can not end pid {process[0]}: {error.strerror}") from None
    finally:
        close(pidfd)


def send(process: tuple, signal: int):
    """The same to a descendant of ours, as well as it can be done; who can not be told is passed over."""
    try:
        pidfd = posix.pidfd_open(process[0])
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        pidfd = None  # an old kernel: the moment between looking and sending is all that can go wrong
    try:
        stat = read_stat(process[0])
        if stat.start == process[1]:
            for number in (signal, SIGCONT) if stat.state == "T" and signal != SIGKILL else (signal,):
                posix.kill(process[0], number) if pidfd is None else _signal.pidfd_send_signal(pidfd, number)
    except OSError:
        pass
    finally:
        if pidfd is not None:
            close(pidfd)


def find_roots(ticket) -> list:
    """The pids, as we see them, of what runs under a hold: its command, or all that is left of its tree, or a program itself."""
    record = ticket.read_record()
    if record is None:
        return []
    mine = ticket.line.world
    if record.child is None:
        return find_here(record.launcher, record.world, mine)
    if record.tree is not None and ticket.state is LIVE:
        return [pid for launcher in find_here(record.launcher, record.world, mine) for pid, _ in find_children(launcher)]
    return find_here(record.child, record.world, mine)


def find_here(process: tuple, theirs, mine) -> list:
    """[The pid by which we see (pid, start) of the world `theirs`], or nothing."""
    pid = find_pid(process, theirs, mine)
    return [pid] if pid > 0 and is_alive(*process, theirs, mine) else []


def find_children(pid: int) -> list:
    """[(pid, start)] of the living children of `pid`."""
    return [(stat.pid, stat.start) for stat in read_all() if stat.parent == pid]


def find_descendants(pid: int, besides=()) -> list:
    """[(pid, start)] of all that descend from `pid` and live, without those `besides` and what descends from them."""
    children = {}
    for stat in read_all():
        if (stat.pid, stat.start) not in besides:
            children.setdefault(stat.parent, []).append(stat)
    found, parents = [], [pid]
    while parents:
        for stat in children.pop(parents.pop(), ()):
            found.append((stat.pid, stat.start))
            parents.append(stat.pid)
    return found


def read_all():
    """What /proc says of every living process, one after the other: a generator, not a snapshot."""
    for entry in posix.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = read_stat(entry)
            except OSError:
                continue
            if not stat.is_dead():
                yield stat
