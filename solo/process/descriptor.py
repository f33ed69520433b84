"""A hold that lives as long as an open file description (solo hold --fd), as a lock by `flock 9`
does.

solo locks one byte of the caller's file through the caller's descriptor. The lock belongs to the
open file description: it ends when the last process that inherited the descriptor closes it. A
holder, forked before there is a ticket, opens the file again and waits for that byte; meanwhile it
keeps the tickets locked. If it is killed, contenders look at the byte.
"""

import _thread
import os
import socket
from fcntl import F_GETFL, LOCK_EX, LOCK_NB, fcntl
from time import sleep, time_ns

from solo.errors import SoloError
from solo.identity import read_stat
from solo.kernel import CLOSED, ENOENT, SAFELY, close, encode, is_regular
from solo.process.holder import forget_events, fork_holder, wait_readable
from solo.process.ofd import find_conflict, lock
from solo.process.watch import SLOW_CHECK, watch_links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from solo.record import Descriptor
    from solo.tickets import Ticket  # a Ticket asks for its lock

    Kept = list[tuple[int, int, bytes]]  # a ticket's descriptor, that of its directory, its file

LONGEST_FILE = 255  # bytes of a ticket's name


class DescriptorHolder:
    """The holder for a descriptor `fd` of the caller. `descriptor` is what records say of it.
    Raises SoloError.
    """

    def __init__(self, fd: int) -> None:
        try:
            stat = os.fstat(fd)
            if not is_regular(stat.st_mode) or not fcntl(fd, F_GETFL) & (os.O_WRONLY | os.O_RDWR):
                raise SoloError(
                    f"cannot hold by descriptor {fd}: it is not a file open for writing "
                    f"({fd}>>FILE)"
                )
            path = os.readlink(f"/proc/self/fd/{fd}")
            opened = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SoloError(
                f"cannot hold by descriptor {fd}: {error.strerror} (open it: {fd}>>FILE)"
            ) from None
        self.fd = fd
        self.offset = time_ns()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = fork_holder(
            lambda: keep_tickets(theirs, opened, self.offset), [theirs.fileno(), opened]
        )
        theirs.close()
        close(opened)
        self.socket = ours
        self.descriptor: Descriptor = (
            pid,
            read_stat(pid).start,
            stat.st_dev,
            stat.st_ino,
            self.offset,
            encode(path),
        )

    def give(self, tickets: "Iterable[Ticket]") -> None:
        """Lock the byte, and give the tickets to the holder. Raises OSError; SoloError if the file
        is locked.
        """
        try:
            lock(self.fd, LOCK_EX | LOCK_NB, self.offset, 1)
        except BlockingIOError:
            raise SoloError(
                f"cannot hold by descriptor {self.fd}: another process has locked its file"
            ) from None
        for ticket in tickets:
            socket.send_fds(self.socket, [ticket.file.encode()], list(ticket.descriptors))
        self.socket.send(b"!")

    def dismiss(self) -> None:
        """Let the holder end: it has no ticket, or none that is not released."""
        self.socket.close()


def keep_tickets(received: socket.socket, opened: int, offset: int) -> None:
    """Be the holder: keep the tickets that arrive until the byte is unlocked, or until all were
    released.

    If `solo release` has removed a ticket, unlock that, so that its waiters wake.
    """
    tickets: Kept = []
    while True:
        message, fds, _, _ = socket.recv_fds(received, LONGEST_FILE, 2)
        if not fds:
            break
        tickets.append((fds[0], fds[1], message))
    received.close()
    if not message:
        return  # solo hold has failed, and released what it had
    _thread.start_new_thread(remove_at_end, (tickets, opened, offset))
    links = watch_links([ticket for ticket, _, _ in tickets])
    while True:
        for ticket in [ticket for ticket in tickets if not os.fstat(ticket[0]).st_nlink]:
            tickets.remove(ticket)
            close(ticket[0])
        if not tickets:
            return
        if links is None:
            sleep(SLOW_CHECK)
        else:
            wait_readable([links])
            forget_events(links)


def remove_at_end(tickets: "Kept", opened: int, offset: int) -> None:
    """Wait until no process has the caller's descriptor. Then remove the tickets, and end the
    holder, which unlocks them.
    """
    try:
        lock(opened, LOCK_EX, offset, 1)
        for _, directory, file in reversed(tickets):
            try:
                os.unlink(file, dir_fd=directory)
            except OSError:
                pass  # it is dead all the same
    finally:
        os._exit(0)


def is_locked(descriptor: "Descriptor") -> "bool | None":
    """Return whether a process still has the descriptor, by the lock of its byte; None if the file
    cannot be opened.
    """
    _, _, device, inode, offset, path = descriptor
    found = fd = CLOSED
    try:
        # another user may have named it: to open a FIFO wakes its writer
        found = os.open(path, os.O_PATH | SAFELY)
        stat = os.fstat(found)
        if not is_regular(stat.st_mode) or (stat.st_dev, stat.st_ino) != (device, inode):
            return False
        fd = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return find_conflict(fd, LOCK_EX, offset, 1) is not None
    except (OSError, ValueError) as error:
        # not there: only its holder knew
        return False if getattr(error, "errno", ENOENT) == ENOENT else None
    finally:
        close(fd)
        close(found)
