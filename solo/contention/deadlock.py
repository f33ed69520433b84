"""Refuses a contender that would wait for a run that waits for it.

The contender that closes the circle finds it: each looks once, when it has joined the queue.

- a waiter waits for the waiters ahead of it, and for holds in its queue
- a hold waits for the waiters below its launcher
- knots.py says which of them never leave, unless one of them fails
- the kernel says which process has a waiting ticket open; other users' tickets must be vouched for
- a descriptor leads only into our base, or where no other user can write
- no ticket's number is used twice: tickets that two looks find were there all the time in between
- what cannot be seen makes no circle: we wait

Of a program, one thread may wait while another releases: its waiting ticket says which holds it
retains meanwhile. Only tickets kept as files are found.
"""

import posix
from fcntl import LOCK_SH
from time import monotonic

from solo.contention.knots import Held, Waiting, find_circle, find_in_the_way, find_stuck
from solo.directories import Directory, open_base, open_below
from solo.errors import SoloError
from solo.kernel import SAFELY, close, read_file, wait_lock
from solo.modes import EXCLUSIVE, Claim, plan_claims
from solo.obstacles import list_holds, list_living, read_claim
from solo.process.owners import describe_pid, find_origins, has_launcher, has_trusted_users
from solo.process.tree import find_here
from solo.tickets import SEAT, FileQueue, FileTicket, Ticket, is_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from solo.record import Record

    Ignores = Callable[[Ticket, Record], bool]

CHILDREN_SIZE = 1 << 20  # bytes of a /proc/PID/task/TID/children
# seconds for a contender that joined after us to find the same circle, and to leave
CIRCLE_PATIENCE = 1.0


def refuse_deadlock(waiting: "Ticket", ignores: "Ignores | None") -> None:
    """Raise SoloError if our waiting ticket closes a circle that opens only if a run in it fails.

    `ignores` is of our policy: which waiters ahead of us leave for us.
    """
    # That of a rehearsal is a FileTicket in any queue.
    if not (isinstance(waiting, FileTicket) and isinstance(waiting.queue, FileQueue)):
        return
    try:
        before: object = None
        while (look := Look(waiting, ignores)).circle and look.stuck != before:
            before = look.stuck
            look.wait_newest()
    except (OSError, SoloError):
        return
    if look.circle:
        raise SoloError(describe_circle(look.circle))


class Look:
    """The graph of what our `waiting` ticket waits for, as it is now. Raises OSError, SoloError.

    `circle` is that of find_circle, `stuck` what identifies all tickets that never leave.
    """

    def __init__(self, waiting: FileTicket, ignores: "Ignores | None") -> None:
        self.queue = waiting.queue
        depth = self.queue.place.path.count("/") - self.queue.base.count("/")
        self.base = posix.readlink(f"/proc/self/fd/{self.queue.place.fd}").rsplit("/", depth)[0]
        self.queues: dict[str, FileQueue] = {}
        self.waits: dict[object, Waiting] = {}
        self.holds: dict[object, Held] = {}
        self.processes: dict[int, list[Waiting]] = {}
        self.unexplored: list[Waiting] = []
        try:
            self.start = self.find_wait(waiting)
            while self.unexplored:
                wait = self.unexplored.pop()
                wait.holds = [self.find_hold(hold) for hold in list_holds_beside(wait.ticket)]
            for wait in self.waits.values():
                if any(hold.waits for hold in wait.holds):
                    wait.claims += list_claims_ahead(
                        wait.ticket, ignores if wait is self.start else None
                    )
        finally:
            for queue in self.queues.values():
                queue.leave()
        stuck = find_stuck(self.holds.values())
        self.circle = find_circle(self.start, stuck)
        self.stuck_waits = {
            key: wait for key, wait in self.waits.items() if find_in_the_way(wait, stuck)
        }
        self.stuck = {
            *self.stuck_waits,
            *[key for key, hold in self.holds.items() if hold in stuck],
        }

    def find_wait(self, ticket: "Ticket") -> Waiting:
        """Return the node of a waiting ticket."""
        key = identify(ticket)
        if key not in self.waits:
            self.waits[key] = Waiting(ticket, [read_claim(ticket)])
            self.unexplored.append(self.waits[key])
        return self.waits[key]

    def find_hold(self, ticket: "Ticket") -> Held:
        """Return the node of a hold, with the waiters that it waits for."""
        key = identify(ticket)
        if key not in self.holds:
            waits = [wait for pid in list_processes(ticket) for wait in self.find_waits(pid)]
            keeping = [wait for wait in waits if is_kept_by(ticket, wait)]
            self.holds[key] = Held(ticket, read_claim(ticket), keeping)
        return self.holds[key]

    def find_waits(self, pid: int) -> "list[Waiting]":
        """Return the nodes of the waiting tickets of a process."""
        if pid not in self.processes:
            found = list(map(self.find_wait, self.list_waiting(pid)))
            if pid == posix.getpid() and self.start not in found:
                found.append(self.start)  # of a rehearsal: the process has no such ticket
            self.processes[pid] = found
        return self.processes[pid]

    def list_waiting(self, pid: int) -> "Iterator[Ticket]":
        """Yield the waiting tickets of a process, closed."""
        try:
            seats = list_seats(pid)
            is_trusted = bool(seats) and has_trusted_users(pid)
        except OSError:
            return  # it has just ended, or is another user's
        for folder, file in seats:
            try:
                queue = self.open_queue(folder, is_trusted)
            except (OSError, SoloError):
                continue
            for ticket in list_living(queue, [file]) if queue else []:
                if ticket.record and pid in find_here(ticket, ticket.record.launcher):
                    yield ticket

    def open_queue(self, folder: str, is_trusted: bool) -> "FileQueue | None":
        """Return the queue in a directory below our base, or if we trust the process that uses it
        in one where no other user can write, else None. Raises OSError, SoloError.
        """
        if folder not in self.queues:
            if folder.startswith(f"{self.base}/"):
                place = open_below(
                    open_base(self.base, True), folder[len(self.base) + 1 :].split("/")
                )
            elif is_trusted:
                place = open_base(folder, None)
            else:
                return None
            self.queues[folder] = FileQueue(place, self.queue.origin)
        return self.queues[folder]

    def wait_newest(self) -> None:
        """If another of the waiters that never leave joined after us, wait for that: it finds the
        circle as well.
        """
        newest = max([wait.ticket for wait in self.stuck_waits.values()], key=get_since)
        if get_since(newest) <= get_since(self.start.ticket):
            return
        try:
            path = f"{get_place(newest).path}/{newest.file}"
            fd = posix.open(path, posix.O_RDONLY | SAFELY)
        except OSError:
            return
        try:
            wait_lock(fd, LOCK_SH, monotonic() + CIRCLE_PATIENCE)
        finally:
            close(fd)


def identify(ticket: "Ticket") -> object:
    """Return what no other ticket has: its directory and file."""
    stat = posix.fstat(get_place(ticket).fd)
    return stat.st_dev, stat.st_ino, ticket.file


def get_place(ticket: "Ticket") -> "Directory":
    """Return the directory of a ticket; all in the graph are kept as files."""
    assert isinstance(ticket.queue, FileQueue)
    return ticket.queue.place


def get_record(ticket: "Ticket") -> "Record":
    """Return the record of a ticket in a circle: without it nobody knows for what its owner
    waits.
    """
    assert ticket.record is not None
    return ticket.record


def get_since(ticket: "Ticket") -> float:
    return get_record(ticket).since


def list_holds_beside(waiting: "Ticket") -> "list[Ticket]":
    """Return the holds in the queue of a waiter, without one of its own: a launcher that acquired
    just now has both.
    """
    record = waiting.record
    own = record.launcher if record and record.retained is None else None
    return [
        hold
        for hold in list_holds(waiting.queue)
        if own is None or not hold.record or hold.record.launcher != own
    ]


def list_claims_ahead(waiting: "Ticket", ignores: "Ignores | None") -> "list[Claim]":
    """Return the claims of the waiters ahead, each once."""
    if read_claim(waiting).mode == EXCLUSIVE:
        return []  # what is in their way is in ours
    files = [file for file in waiting.queue.list_files(waiting.file) if file.startswith(SEAT)]
    ahead = list_living(waiting.queue, files)
    if ignores is not None and waiting.record is not None:
        ahead = [ticket for ticket in ahead if not ignores(ticket, waiting.record)]
    return list(
        {(claim.mode, claim.slots, claim.take): claim for claim in map(read_claim, ahead)}.values()
    )


def list_processes(hold: "Ticket") -> "Iterator[int]":
    """Yield the processes for whose waits the hold waits: a program itself, or all below a launcher
    or a command.
    """
    record = hold.record
    if record is None:
        return
    process = record.launcher if has_launcher(hold) else record.child
    for pid in find_here(hold, process) if process else []:
        yield from [pid] if record.child is None else list_below(pid)


def is_kept_by(hold: "Ticket", wait: Waiting) -> bool:
    """Return whether the hold lasts while one of its processes waits: another thread of a program
    may release it.
    """
    return get_record(hold).child is not None or get_record(wait.ticket).retains(hold.number)


def list_seats(pid: int) -> "list[tuple[str, str]]":
    """Return (directory, file) of each waiting ticket that a process has open: its own, and that
    ahead. Raises OSError.
    """
    found = []
    for fd in posix.listdir(f"/proc/{pid}/fd"):
        try:
            folder, _, file = posix.readlink(f"/proc/{pid}/fd/{fd}").rpartition("/")
        except OSError:
            continue  # closed meanwhile
        if file.startswith(SEAT) and is_ticket(file):
            found.append((folder, file))
    return found


def list_below(pid: int) -> "Iterator[int]":
    """Yield the process and its descendants, as the kernel lists them."""
    parents = [pid]
    while parents:
        parent = parents.pop()
        yield parent
        try:
            for thread in posix.listdir(f"/proc/{parent}/task"):
                parents += map(
                    int, read_file(f"/proc/{parent}/task/{thread}/children", CHILDREN_SIZE).split()
                )
        except OSError:
            continue  # it has just ended


def describe_circle(circle: "list[Ticket]") -> str:
    """Return `a deadlock: held by pid 12 (a.sh), in which pid 13 waits for db, held by us (pid
    11)`.
    """
    from solo.text.describe import describe_owner

    *others, ours = circle
    words = "a deadlock: "
    for hold, waiting in zip(others[::2], others[1::2]):
        waiter = get_record(waiting).holder
        who = "which"
        if waiter != get_record(hold).holder:
            who = f"in which pid {describe_pid(waiter, *find_origins(waiting))}"
        words += f"held by {describe_owner(hold)}, {who} waits for {find_name(waiting)}, "
    return f"{words}held by us (pid {describe_pid(get_record(ours).holder, *find_origins(ours))})"


def find_name(waiting: "Ticket") -> str:
    """Return the name in whose queue a waiting ticket is, among those that its run wants."""
    record, path = get_record(waiting), get_place(waiting).path
    wanted = [
        name for name, _ in plan_claims(record.names, record.claim) if path.endswith(f"/{name}")
    ]
    return max(wanted, key=len, default=path)
