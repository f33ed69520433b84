"""The handoff, prepared: a waiter does as much as it can before its turn, and leaves what it can until after.

- when only holds are in its way, it forks its command, which waits for the go message
- it writes and locks its hold as a file without a name (O_TMPFILE), which ends with it; linkat(2) then publishes it
- if the one hold in its way was released and the gate's counter did not move, it does not list the directory
- its waiting ticket and the tickets that were in its way stay until its command has started

What cannot be done in advance is done at its turn.

The gain, on an idle machine, 200 handoffs each way in turn: the first word of the next command comes after 2.69 ms
instead of 3.38 (2.95 with the fork alone). A queue of 40 gains nothing: 3.22 ms a handoff instead of 3.04. The costs:
ps(1) shows a second solo beside the waiter at the head; if somebody stops that one, the command starts only once it
is continued.

A waiter of the launcher loads this file when it joins the queue: in its turn that would cost what it saves.
"""

import _signal
import posix
from _signal import SIG_BLOCK, SIG_SETMASK, SIGALRM

from solo.kernel import CLOSED, HIGHEST_FD, SAFELY, close, create, list_descriptors, write_whole
from solo.modes import SLOTS
from solo.obstacles import close_all
from solo.record import RESERVED, format_since
from solo.start import ALL_SIGNALS, CHANGED_BY_PYTHON, STOPPING, wait_go
from solo.tickets import LIVE, READABLE, Queue, stamp
from solo.tickets import Ticket as FileTicket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from solo.contention.protocols import Policy, Ticket  # protocols name the types of all
    from solo.contention.protocols import Queue as AnyQueue  # the same
    from solo.record import Record
    from solo.start import Starter  # a Starter needs a Ticket, a Ticket its Handoff

# Signals that a launcher survives in the queue: it is continued, has a time limit, or ignores them as Python does.
SURVIVED = STOPPING | {SIGALRM, *CHANGED_BY_PYTHON}


class Handoff:
    """Preparations of a waiter in `queue`, and its remains until tickets.finish_handoff.

    `starter` starts its command. `hold` is its hold without a name, or None; `counter` the gate's counter at the last
    look. Once it has the name, `waiting` is its waiting ticket, and `passed` are the tickets that were in its way.
    """

    def __init__(self, queue: "AnyQueue", starter: "Starter") -> None:
        self.queue, self.starter = queue, starter
        self.hold: FileTicket | None = None
        self.counter: int | None = None
        self.waiting: Ticket | None = None
        self.passed: list[Ticket] = []

    def prepare(self, record: "Record", policy: "Policy | None") -> None:
        """Fork the command and make the hold. Its slots are not known before its turn, nor what a policy finds."""
        fork_early(self.starter)
        if policy is None and record.claim.mode != SLOTS and isinstance(self.queue, Queue):
            self.hold = make_hold(self.queue, record)
            self.counter = self.queue.gate.read_counter()

    def is_free(self, obstacles: "list[Ticket]") -> bool:
        """Return whether the only ticket in our way was released, and no contender has joined since. Gate locked.

        Each contender takes a number before it publishes a ticket. In a shared directory others can write the counter:
        it proves nothing there. Notes the counter for the next call: if False, look for obstacles now.
        """
        if self.hold is None:
            return False
        queue = self.hold.queue
        before, self.counter = self.counter, queue.gate.read_counter()
        is_unchanged = before is not None and before == self.counter and not queue.place.shared
        return is_unchanged and len(obstacles) == 1 and is_released(obstacles[0])

    def name_hold(self, file: str) -> "FileTicket | None":
        """Publish the hold as `file` and return it, None if that cannot be done. Gate locked."""
        hold, self.hold = self.hold, None
        if hold is None:
            return None
        assert hold.record is not None
        try:
            stamp(hold.record)  # it may be long until its command starts: another name comes first
            text = format_since(hold.record)
            write_whole(hold.fd, text, hold.size - RESERVED - len(text))
            posix.link(f"/proc/self/fd/{hold.fd}", file, dst_dir_fd=hold.queue.place.fd, follow_symlinks=True)
        except OSError:
            hold.close()
            return None
        hold.file = file
        return hold

    def keep(self, waiting: "Ticket | None", passed: "list[Ticket]") -> None:
        """Keep the waiting ticket and the tickets that were in our way: the next waiter looks when our command runs."""
        self.waiting, self.passed = waiting, passed

    def finish(self) -> None:
        """Wake the next waiter, and close what is left."""
        if self.waiting is not None:
            self.waiting.release()
        close_all(self.passed)
        if self.hold is not None:
            self.hold.close()


def make_hold(queue: Queue, record: "Record") -> "FileTicket | None":
    """Return our hold, written and locked but without a name, None if the file system has no such files."""
    fd = CLOSED
    try:
        flags = posix.O_RDWR | posix.O_TMPFILE | SAFELY
        fd = create(posix.open, ".", flags, queue.place.mode & READABLE, dir_fd=queue.place.fd)
        return queue.write_ticket("", fd, record)
    except OSError:
        close(fd)
        return None


def is_released(ticket: "Ticket") -> bool:
    """Return whether its owner released it. Then its command has ended."""
    return isinstance(ticket, FileTicket) and ticket.state is LIVE and not posix.fstat(ticket.fd).st_nlink


def fork_early(starter: "Starter") -> None:
    """Fork the command, which waits for our turn. Ignore a failure: `starter.start` forks again."""
    if starter.child is not None:
        return
    mask = _signal.pthread_sigmask(SIG_BLOCK, ALL_SIGNALS)
    try:
        starter.child = starter.fork(lambda ready: wait_turn(ready, starter))
    except OSError:
        pass
    finally:
        _signal.pthread_sigmask(SIG_SETMASK, mask)  # until its turn a signal simply ends the launcher


def wait_turn(ready: int, starter: "Starter") -> "list[bytes] | None":
    """Wait for the go message in the child, as wait_go does, with nothing of the launcher but the pipe `ready`."""
    close_private(ready)
    warm_up(starter)
    variables = wait_go(ready, 0)
    while _signal.sigtimedwait(SURVIVED, 0):
        pass  # they were sent to the launcher, which survived them
    return variables


def warm_up(starter: "Starter") -> None:
    """Call execve(2) once in the child, so that it fails: the memory pages that it writes, first shared with the launcher,
    are then copied before our turn.
    """
    try:
        posix.execve("", starter.words, starter.environment)
    except OSError:
        pass


def close_private(kept: int) -> None:
    """Close every close-on-exec descriptor but `kept`, in a child that waits: any copy of it would keep the lock."""
    try:
        descriptors: Iterable[int] = list_descriptors()
    except OSError:
        descriptors = range(HIGHEST_FD)  # listing them takes a free descriptor
    for fd in descriptors:
        try:
            if fd != kept and not posix.get_inheritable(fd):
                posix.close(fd)
        except OSError:
            continue
