"""Refuses a contender that would wait for a run that waits for it.

The contender that closes the circle finds it: each looks once, when it has joined the queue.

- a waiter waits for the holds in its way
- a hold waits for the waiters below its launcher
- the circle is closed by a hold of our run, or above us
- the kernel says which process has a waiting ticket open
- no ticket's number is used twice: tickets that two looks find were there all the time in between
- what cannot be seen makes no circle: we wait

Of a program, one thread may wait while another releases: its waiting ticket says which holds it retains meanwhile. Only
tickets kept as files are found.
"""

import posix
from fcntl import LOCK_SH
from time import monotonic

from solo.directories import PRIVATE, Directory
from solo.errors import SoloError
from solo.identity import Process, find_pid, is_alive
from solo.kernel import DIRECTORY, SAFELY, close, read_file, wait_lock
from solo.modes import Claim, find_conflicts, plan_claims
from solo.obstacles import find_own_ancestors, list_holds, read_claim
from solo.process.owners import describe_pid, vouches
from solo.tickets import LIVE, SEAT, FileQueue, FileTicket, Queue, Ticket, is_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from solo.record import Record

CHILDREN_SIZE = 1 << 20  # bytes of a /proc/PID/task/TID/children
PATIENCE = 1.0  # seconds for a contender that joined after us to find the same circle, and to leave


def refuse_deadlock(queue: "Queue", record: "Record", waiting: "Ticket") -> None:
    """Raise SoloError if the run of `record`, which waits in `queue`, would wait for a run that waits for it."""
    try:
        before: list[int] = []
        while circle := find_circle(queue, record, waiting):
            numbers = [ticket.number for ticket in circle]
            if numbers == before:
                break
            before = numbers
            wait_newest(circle, record)
    except (OSError, SoloError):
        return
    if circle:
        raise SoloError(describe_circle(circle))


def find_circle(queue: "Queue", record: "Record", waiting: "Ticket") -> "list[Ticket]":
    """Return the closed tickets of a circle: a hold in our way, a waiter that it waits for, and so on to our own hold."""
    seen: set[tuple[Process, int]] = set()

    def search(queue: "Queue", claim: "Claim", waiting: "Ticket", is_first: bool) -> "list[Ticket]":
        for hold in list_in_the_way(queue, claim, waiting):
            if hold.record is None or (hold.record.launcher, hold.number) in seen:
                continue
            seen.add((hold.record.launcher, hold.number))
            if is_ours(hold, record):
                if is_first:
                    continue  # the queue has judged it
                return [hold]
            for inner in open_waiters(hold):
                try:
                    found = search(inner.queue, read_claim(inner), inner, False)
                finally:
                    inner.close()
                    inner.queue.leave()
                if found:
                    return [hold, inner, *found]
        return []

    return search(queue, record.claim, waiting, True)


def list_in_the_way(queue: "Queue", claim: "Claim", waiting: "Ticket") -> "list[Ticket]":
    """Return the holds that conflict with `claim`, or with a waiter ahead of the ticket `waiting`, closed."""
    holds = list_holds(queue)
    claims = list(map(read_claim, holds))
    found = set(find_conflicts(claim, claims))
    ahead = sorted([file for file in queue.list_files(waiting.file) if file.startswith(SEAT)], reverse=True)
    while ahead and len(found) < len(holds):
        ticket = queue.look(ahead.pop())
        if ticket is not None:
            if ticket.state is LIVE:
                found.update(find_conflicts(read_claim(ticket), claims))
            ticket.close()
    return [holds[at] for at in sorted(found)]


def is_ours(hold: "Ticket", record: "Record") -> bool:
    """Return whether the hold stays until we have run: it is of our run, retained by our program, or above us."""
    theirs = hold.record
    assert theirs is not None
    if theirs.launcher == record.launcher and theirs.origin.pid_namespace == record.origin.pid_namespace:
        return record.retains(hold.number)
    return bool(theirs.child and find_own_ancestors(hold.queue, [hold], record.keep))


def open_waiters(hold: "Ticket") -> "Iterator[FileTicket]":
    """Yield the waiting tickets that the hold waits for. The caller closes them and leaves their queues."""
    record = hold.record
    assert record is not None
    process = record.holder if hold.state is LIVE else record.child
    if process is None or not vouches(hold, process) or not is_alive(*process, record.origin, hold.queue.origin):
        return
    pid = find_pid(process, record.origin, hold.queue.origin)
    for each in [pid] if record.child is None else list_below(pid):
        for ticket in open_waiting(each, hold.queue):
            if record.child is not None or ticket.record and ticket.record.retains(hold.number):
                yield ticket
            else:
                ticket.close()
                ticket.queue.leave()


def list_below(pid: int) -> "Iterator[int]":
    """Yield the process and its descendants, as the kernel lists them."""
    parents = [pid]
    while parents:
        parent = parents.pop()
        yield parent
        try:
            for thread in posix.listdir(f"/proc/{parent}/task"):
                parents += map(int, read_file(f"/proc/{parent}/task/{thread}/children", CHILDREN_SIZE).split())
        except OSError:
            continue  # it has just ended


def open_waiting(pid: int, ours: "Queue") -> "Iterator[FileTicket]":
    """Yield the waiting tickets of a process, of those that it has open: a waiter opens the ticket ahead too."""
    try:
        opened = posix.listdir(f"/proc/{pid}/fd")
    except OSError:
        return  # it has just ended, or is another user's
    for fd in opened:
        try:
            folder, _, file = posix.readlink(f"/proc/{pid}/fd/{fd}").rpartition("/")
            if not (file.startswith(SEAT) and is_ticket(file)):
                continue
            theirs = posix.stat(f"/proc/{pid}/fd/{fd}")
            queue = FileQueue(Directory(posix.open(folder, DIRECTORY), folder, PRIVATE, False), ours.origin)
        except OSError:
            continue
        ticket = queue.look(file)
        record = ticket and ticket.state is LIVE and ticket.read_record()
        if ticket and record and record.launcher[0] == pid and posix.fstat(ticket.fd).st_ino == theirs.st_ino:
            yield ticket
            continue
        if ticket:
            ticket.close()
        queue.leave()


def wait_newest(circle: "list[Ticket]", record: "Record") -> None:
    """If another waiter of the circle joined after us, wait for it to leave: it finds the circle as well."""
    newest = max(circle[1::2], key=lambda ticket: ticket.record.since if ticket.record else 0.0)
    if newest.record is None or newest.record.since <= record.since or not isinstance(newest.queue, FileQueue):
        return
    try:
        fd = posix.open(f"{newest.queue.place.path}/{newest.file}", posix.O_RDONLY | SAFELY)
    except OSError:
        return
    try:
        wait_lock(fd, LOCK_SH, monotonic() + PATIENCE)
    finally:
        close(fd)


def describe_circle(circle: "list[Ticket]") -> str:
    """Return `a deadlock: held by pid 12 (a.sh), which waits for db, held by us (pid 11)`."""
    from solo.text.describe import describe_owner

    *others, ours = circle
    words = "a deadlock: "
    for hold, waiting in zip(others[::2], others[1::2]):
        words += f"held by {describe_owner(hold)}, which waits for {find_name(waiting)}, "
    assert ours.record is not None
    return f"{words}held by us (pid {describe_pid(ours.record.holder, ours.record.origin, ours.queue.origin)})"


def find_name(waiting: "Ticket") -> str:
    """Return the name in whose queue a waiting ticket is, among those that its run wants."""
    record = waiting.record
    assert record is not None
    assert isinstance(waiting.queue, FileQueue)
    path = waiting.queue.place.path
    wanted = [name for name, _ in plan_claims(record.names, record.claim) if path.endswith(f"/{name}")]
    return max(wanted, key=len, default=path)
