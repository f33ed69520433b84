"""Other processes: their descendants, and signals that reach exactly one process and never a reused pid."""

import _signal
import posix
from _signal import SIGCONT, SIGKILL

from solo.errors import SoloError
from solo.identity import find_pid, is_alive, is_stopped, read_stat
from solo.kernel import close
from solo.process.owners import vouches
from solo.process.watch import open_pidfd, poll
from solo.text.describe import find_user
from solo.tickets import LIVE


def end(ticket, process: tuple, signal: int):
    """Send `signal` to (pid, start), which the record of `ticket` names, and SIGCONT if it is stopped. Do nothing if it
    is gone.

    Raises SoloError if it cannot be signalled, or the owner of the ticket could not have signalled it.
    """
    try:
        pidfd = open_target(ticket, process)
    except ProcessLookupError:
        return
    try:
        _signal.pidfd_send_signal(pidfd, signal)
        if signal != SIGKILL and is_stopped(find_pid(process, ticket.record.origin, ticket.queue.origin)):
            _signal.pidfd_send_signal(pidfd, SIGCONT)
    except ProcessLookupError:
        pass
    except OSError as error:
        raise SoloError(f"cannot end pid {process[0]}: {error.strerror}") from None
    finally:
        close(pidfd)


def open_target(ticket, process: tuple) -> int:
    """Return a pidfd of (pid, start), which the record of `ticket` names. Every signal to a process of a record goes
    through here.

    Raises ProcessLookupError if it is gone, SoloError if we cannot see it or the owner of the ticket could not have
    signalled it.
    """
    pidfd = open_pidfd(process, ticket.record.origin, ticket.queue.origin)
    if pidfd is None:
        raise SoloError(f"cannot end pid {process[0]}: it cannot be seen from here, or there is no pidfd")
    if vouches(ticket, process):
        return pidfd
    is_gone = poll([pidfd], 0)
    close(pidfd)
    if is_gone:
        raise ProcessLookupError
    writer = find_user(ticket.owner_uid)
    raise SoloError(
        f"cannot end pid {process[0]}: its record was written by {writer}, a user that could not have signalled it"
    )


def send(process: tuple, signal: int):
    """Send `signal` to our descendant (pid, start), and SIGCONT if it is stopped.

    Never signal one that cannot be identified.
    """
    try:
        pidfd = posix.pidfd_open(process[0])
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        pidfd = None  # an old kernel: the pid could be reused only between the check and kill(2)
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
    """Return our pids of the processes under a hold: the command and its tree, or the program that holds it."""
    record = ticket.read_record()
    if record is None:
        return []
    if record.child is None:
        return find_here(ticket, record.launcher)
    if record.tree is not None and ticket.state is LIVE:
        return [pid for launcher in find_here(ticket, record.launcher) for pid, _ in find_children(launcher)]
    return find_here(ticket, record.child)


def find_here(ticket, process: tuple) -> list:
    """Return [our pid of (pid, start)] in the record of `ticket`; [] if it is gone or the record is not believed."""
    theirs, mine = ticket.record.origin, ticket.queue.origin
    pid = find_pid(process, theirs, mine)
    return [pid] if pid > 0 and vouches(ticket, process) and is_alive(*process, theirs, mine) else []


def find_children(pid: int) -> list:
    """Return [(pid, start)] of the living children of `pid`."""
    return [(stat.pid, stat.start) for stat in read_all() if stat.parent == pid]


def find_descendants(pid: int, besides=()) -> list:
    """Return [(pid, start)] of the living descendants of `pid`, without `besides` and their descendants."""
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
    """Yield the Stat of every living process. They are read one by one: not a snapshot."""
    for entry in posix.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = read_stat(entry)
            except OSError:
                continue
            if not stat.is_dead():
                yield stat
