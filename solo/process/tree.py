"""Other processes: who descends from whom, and sending a signal to just that one and never to a reused pid. Cold."""

import _signal
import posix
from _signal import SIGCONT, SIGKILL

from solo.errors import SoloError
from solo.identity import find_pid, is_alive, is_stopped, read_stat
from solo.kernel import close
from solo.process.watch import open_pidfd, poll
from solo.process.owners import vouches
from solo.tickets import LIVE
from solo.text.describe import find_user


def end(ticket, process: tuple, signal: int):
    """Send `signal` to (pid, start), which the record of `ticket` names, and SIGCONT if it is stopped. Not an error if it is gone.

    Raises SoloError if it cannot be signalled, or the owner of the ticket could not have signalled it.
    """
    try:
        pidfd = open_target(ticket, process)
    except ProcessLookupError:
        return
    try:
        _signal.pidfd_send_signal(pidfd, signal)
        if signal != SIGKILL and is_stopped(find_pid(process, ticket.record.world, ticket.line.world)):
            _signal.pidfd_send_signal(pidfd, SIGCONT)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise SoloError(f"cannot end pid {process[0]}: {error.strerror}") from None
    finally:
        close(pidfd)


def open_target(ticket, process: tuple) -> int:
    """Return a pidfd of (pid, start), which the record of `ticket` names: the way to every signal that a ticket asks for.

    Raises ProcessLookupError if it is gone, SoloError if we cannot see it or the owner of the ticket could not have signalled it.
    """
    pidfd = open_pidfd(process, ticket.record.world, ticket.line.world)
    if pidfd is None:
        raise SoloError(f"cannot end pid {process[0]}: it cannot be seen from here, or there is no pidfd")
    if vouches(ticket, process):
        return pidfd
    is_gone = poll([pidfd], 0)
    close(pidfd)
    if is_gone:
        raise ProcessLookupError
    writer = find_user(ticket.owner_uid)
    raise SoloError(f"cannot end pid {process[0]}: its record was written by {writer}, a user that could not have signalled it")


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
    if record.child is None:
        return find_here(ticket, record.launcher)
    if record.tree is not None and ticket.state is LIVE:
        return [pid for launcher in find_here(ticket, record.launcher) for pid, _ in find_children(launcher)]
    return find_here(ticket, record.child)


def find_here(ticket, process: tuple) -> list:
    """[The pid by which we see (pid, start)], which the record of `ticket` names, or nothing if that is not to be believed."""
    theirs, mine = ticket.record.world, ticket.line.world
    pid = find_pid(process, theirs, mine)
    return [pid] if pid > 0 and vouches(ticket, process) and is_alive(*process, theirs, mine) else []


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
