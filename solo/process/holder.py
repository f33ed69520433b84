"""A holder: a process that keeps the locks of a run until the command has ended, even if the
launcher is killed.

An orphan holds no lock: a contender finds it by its pid. In another pid namespace, as of a second
container, that pid means nothing. So a launcher outside the first pid namespace forks a holder,
before the command's exec, and `solo hold` leaves one. It is in a session of its own, has every
signal blocked, and keeps no descriptor of the caller.
"""

import posix
import select
from _signal import (
    SIG_BLOCK,
    SIG_DFL,
    SIG_SETMASK,
    SIGKILL,
    SIGSTOP,
    pthread_sigmask,
    signal,
    valid_signals,
)
from time import sleep

from solo.identity import HOLDER, Origin, Process, is_alive, read_stat
from solo.kernel import USUAL_SIZE, close, close_all_but, end_child
from solo.process.watch import SLOW_CHECK, open_pidfd, watch_links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from solo.tickets import Ticket  # a Ticket's process is a holder


class Holder:
    """The holder of a run, its (pid, start) or None: the lowest of what the run holds, as it ends
    after the tickets were released.
    """

    descriptors = ()

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.process: Process | None = None

    def begin(self, child: Process, tickets: "list[Ticket]") -> None:
        """Keep the `tickets` locked until the process `child` has ended. Raises OSError."""
        launcher = posix.getpid()
        try:
            pidfd = open_pidfd(child, self.origin, self.origin)
        except ProcessLookupError:
            return  # killed just now: waitpid(2) shows it

        def wait() -> None:
            if pidfd is not None:
                wait_readable([pidfd])
            while is_alive(*child, self.origin, self.origin):
                sleep(SLOW_CHECK)  # an old kernel, or a filter of system calls
            # a contender that cannot look for the process finds no ticket then
            if posix.getppid() != launcher:
                for ticket in reversed(tickets):
                    ticket.queue.remove(ticket.file)

        pid = fork_keeper(wait, tickets, pidfd)
        self.process = pid, read_stat(pid).start

    def complete(self, child: Process) -> None:
        """Do nothing: it begins once all records have the command."""

    def release(self) -> None:
        """End and reap it: process 1 of a container may reap no orphan."""
        if self.process is not None:
            end_child(self.process[0])


def leave_holder(process: Process, origin: Origin, tickets: "Iterable[Ticket]") -> None:
    """Fork a holder that keeps the `tickets` locked until `process` has ended, or each until it was
    released.

    Raises OSError.
    """
    left = list(tickets)
    try:
        pidfd = open_pidfd(process, origin, origin)
    except ProcessLookupError:
        return  # it has ended just now: the tickets are dead

    def wait() -> None:
        links = watch_links([ticket.fd for ticket in left])
        watches = [fd for fd in (pidfd, links) if fd is not None]
        while True:
            for ticket in [ticket for ticket in left if not posix.fstat(ticket.fd).st_nlink]:
                left.remove(ticket)
                ticket.close()  # its waiters wake
            if not left or not is_alive(*process, origin, origin):
                break
            wait_readable(watches, None if len(watches) == 2 else SLOW_CHECK)
            if links is not None:
                forget_events(links)
        for ticket in reversed(left):
            ticket.queue.remove(ticket.file)

    fork_keeper(wait, left, pidfd)


def fork_keeper(wait: "Callable[[], object]", tickets: "list[Ticket]", pidfd: "int | None") -> int:
    """Fork a holder that keeps the `tickets` until `wait` returns, and give it the `pidfd`. Return
    its pid. Raises OSError.
    """
    watched = [] if pidfd is None else [pidfd]
    pid = fork_holder(wait, [*watched, *(fd for ticket in tickets for fd in ticket.descriptors)])
    for fd in watched:
        close(fd)
    return pid


def forget_events(links: int) -> None:
    """Read what `watch_links` has reported, so that it reports again."""
    if wait_readable([links], 0):
        posix.read(links, USUAL_SIZE)


def wait_readable(watches: "list[int]", seconds: "float | None" = None) -> bool:
    """Block until one of the descriptors is readable; return False after `seconds`. Every signal
    stays blocked.
    """
    poller = select.poll()
    for watch in watches:
        poller.register(watch, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


def detach() -> None:
    """Leave the caller's session, terminal, streams and directory, not its other descriptors; reset
    dispositions.

    For a process that outlives the one that forked it: it must keep nothing of its caller busy.
    """
    posix.setsid()
    for number in valid_signals() - {SIGKILL, SIGSTOP}:
        signal(number, SIG_DFL)
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
        posix.set_inheritable(fd, True)  # dup2 does nothing if they are the same
    posix.chdir("/")


def fork_blocked() -> int:
    """Fork a child with every signal blocked: SIGHUP must not kill it before it has left the
    caller's session.

    Raises OSError.
    """
    mask = pthread_sigmask(SIG_BLOCK, valid_signals())
    pid = -1
    try:
        pid = posix.fork()
    finally:
        if pid:
            pthread_sigmask(SIG_SETMASK, mask)
    return pid


def fork_holder(wait: "Callable[[], object]", kept: "list[int]") -> int:
    """Fork a process that keeps the descriptors `kept` until `wait` returns. Return its pid. Raises
    OSError.
    """
    name = rename(HOLDER)  # before the fork: a launcher with --tree that sees it knows it by that
    pid = -1
    try:
        pid = fork_blocked()
    finally:
        if pid:
            rename(name)
    if pid:
        return pid
    try:
        posix.setsid()
        close_all_but(kept)
        posix.chdir("/")
        wait()
    finally:
        posix._exit(0)


def rename(name: bytes) -> bytes:
    """Give this process another name in ps(1). Return the former one."""
    try:
        with open("/proc/self/comm", "r+b", 0) as comm:
            former: bytes = comm.read(USUAL_SIZE).rstrip(b"\n")
            comm.write(name)
            return former
    except OSError:
        return b""
