"""One attempt to acquire a Lock, in the thread that asks or in one of its own."""

import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from solo.acquire import acquire_further, acquire_names, settle_all, take_over_unseen_holds
from solo.api import blocking
from solo.api.arguments import read_options
from solo.api.hold import Hold, all_holds, identify_file, release_all
from solo.directories import Directory, open_parts, split_name
from solo.errors import Busy, SoloError, make_own_wait
from solo.identity import Origin, Process, read_origin, read_self
from solo.kernel import FOREVER, OWNER_BITS, read_file, read_umask
from solo.modes import EXCLUSIVE, Claim, find_conflicts
from solo.obstacles import find_living, read_claim
from solo.plan import Plan
from solo.queue import wait_silently
from solo.record import Record
from solo.tickets import HOLD, READABLE, SEAT, FileQueue, FileTicket, Queue, Ticket

if TYPE_CHECKING:
    from solo.api.lock import Lock  # a Lock makes its Attempts

all_attempts: "set[LockAttempt]" = set()


class LockAttempt:
    """One attempt to acquire `lock` until `deadline`. `is_async`: an event loop runs meanwhile.
    Raises SoloError at the end.

    Its Hold has exactly one owner, whatever exception interrupts its caller: the caller, or if it
    was abandoned none.
    """

    def __init__(
        self, lock: "Lock", deadline: float, owner: object, is_async: bool = False
    ) -> None:
        if not blocking.can_act():
            raise SoloError(f"{lock.name}: the program is ending")
        self.lock = lock
        self.deadline = deadline
        self.owner = owner
        self.is_async = is_async
        self.thread = threading.current_thread()
        self.waiter: Optional[blocking.Waiter] = None  # None: it must not wait
        self.hold: Optional[Hold] = None
        self.error: Optional[BaseException] = None
        self.is_abandoned = False
        self.tickets: list[Ticket] = []  # all tickets of the attempt, waiting ones too
        self.holds: list[Any] = []  # the acquired ones and locked files
        self.queues: list[Queue] = []

    def try_here(self) -> bool:
        """Acquire it in this thread. Return False if it would have to wait."""
        with blocking.Deferred():
            try:
                self.keep_result()
            except blocking.WouldWait:
                return False
        return True

    def start(self, notify: Callable[[], object]) -> None:
        """Acquire it in a thread of its own, which no signal handler interrupts; then call
        `notify`. Raises SoloError.
        """
        self.waiter = blocking.Waiter()
        try:
            if (
                blocking.start_thread(lambda: self.run(notify), f"solo acquires {self.lock.name}")
                is None
            ):
                self.run(notify)
        except OSError as error:
            self.waiter.close()
            raise SoloError(f"{self.lock.name}: cannot wait: {error.strerror}") from None

    def run(self, notify: Optional[Callable[[], object]] = None) -> None:
        """Acquire it in this thread, and wait if necessary; then call `notify`."""
        self.waiter = self.waiter or blocking.Waiter()
        try:
            with blocking.acting:
                self.keep_result()
                if self.is_abandoned:
                    self.drop()
        finally:
            try:
                if notify is not None:
                    notify()
            except RuntimeError:
                self.drop()  # the event loop is closed: no task will take the Hold

    def keep_result(self) -> None:
        """Keep the Hold or the error of the attempt. The caller is acting. Raises WouldWait if it
        must wait, but must not.
        """
        if getattr(blocking.mine, "attempt", None) is not None:
            where = "inside another acquire (a __del__, or a callback)"
            self.error = SoloError(f"{self.lock.name}: cannot acquire the lock {where}")
            return
        all_attempts.add(self)
        blocking.mine.attempt = self
        try:
            self.hold = self.acquire()
        except blocking.WouldWait:
            raise
        except BaseException as error:
            self.error = error
        finally:
            blocking.mine.attempt = None
            if self.waiter is not None:
                self.waiter.close()
            all_attempts.discard(self)

    def acquire(self) -> Hold:
        """Acquire all names and files. Raises what acquire_names and lock_files raise, with the
        holders in a Busy.
        """
        lock = self.lock
        options = read_options(lock.via, lock.directory)
        plan = Plan(
            {**options, "max_waiting": lock.max_waiting, "flock": lock.flock, "fcntl": lock.fcntl}
        )
        plan.claim = lock._claim
        plan.deadline = plan.file_deadline = self.deadline
        launcher, origin, command = identify(os.getpid())
        wanted = Record(launcher, origin, os.geteuid(), plan.claim, lock.names, command)
        wanted.note = lock.note or ""
        # With a limit, another thread may be about to release them.
        own = self.find_own_tickets() if self.deadline == FOREVER else []
        wanted.retained = [ticket.number for ticket in own if hasattr(ticket, "number")]
        holds = self.holds = []
        self.refuse_own_files()
        try:
            named = acquire_names(wanted, plan, wait_silently, holds, self.make_queue)
            settle_all(holds)
            if lock.flock or lock.fcntl:
                from solo.contention.flocks import lock_files

                files = plan, read_umask(), wait_silently, holds
                acquire_further(lock.name, named, lambda: lock_files(*files, is_program=True))
            take_over_unseen_holds(named.values())
            for hold in named.values():
                if not isinstance(hold.queue, FileQueue):
                    hold.queue.leave()  # its watches are not needed any more
            return Hold(lock.names, named, holds)
        except BaseException as error:
            release_all(holds)
            if isinstance(error, Busy):
                from solo.api.holder import make_holder
                from solo.text.rows import make_row

                rows = [make_row(error.name, plan.via, ticket) for ticket in error.tickets]
                error.holders = tuple(map(make_holder, rows))
                error.tickets = ()
            raise

    def make_queue(self, base: Optional[Directory], name: str, origin: Origin) -> Queue:
        """Return the queue of `name`: files in `base`, or sockets if that is None."""
        queue: Queue
        if base is not None:
            queue = OwnQueue(open_parts(base, split_name(name)), origin, base.path)
        else:
            from solo.contention.sockets import SocketQueue

            class OwnSocketQueue(Own, SocketQueue):
                pass

            queue = OwnSocketQueue(name, origin)
        self.queues.append(queue)
        return queue

    def find_own_tickets(self) -> list[Any]:
        """Return the tickets that cannot be released while this attempt waits: those of its own
        thread or task; if the thread itself waits, also those of its other tasks, whose event loop
        stands still.
        """
        owners = {id(self.thread), id(self.owner)}
        return [
            ticket
            for hold in list(all_holds)
            if id(hold._owner()) in owners or (not self.is_async and hold._thread() is self.thread)
            for ticket in hold._tickets
        ]

    def refuse_own_tickets(self, queue: Queue, wanted: Claim) -> None:
        """Under the gate: raise SoloError if it would wait without limit for itself, or for a
        waiter that waits for it.
        """
        if self.deadline != FOREVER:
            return
        own = [
            ticket
            for ticket in self.find_own_tickets()
            if identify_queue(ticket.queue) == identify_queue(queue)
        ]
        if not own:
            return
        claims = [ticket.record.claim for ticket in own]
        waited = [wanted]
        for file in queue.list_files():
            ticket = find_living(queue, file) if file.startswith(SEAT) else None
            if ticket is not None:
                waited.append(read_claim(ticket))
                ticket.close()  # each at once: there may be more waiters than descriptors
        if any(find_conflicts(claim, claims) for claim in waited):
            names = sorted({name for ticket in own for name in ticket.record.names})
            raise self.make_own_wait(" and ".join(names))

    def refuse_own_files(self) -> None:
        """Raise SoloError if it would wait without limit for a file that it has locked itself."""
        lock = self.lock
        if self.deadline != FOREVER or not (lock.flock or lock.fcntl):
            return
        from solo.contention.flocks import FILE_LOCKS

        own = {
            (type(ticket), identify_file(ticket.fd)): ticket for ticket in self.find_own_tickets()
        }
        for kind in FILE_LOCKS:
            for path in filter(os.path.exists, getattr(lock, kind.option)):
                stat = os.stat(path)
                found = own.get((kind, (stat.st_dev, stat.st_ino)))
                if found is not None and EXCLUSIVE in (found.mode, lock._claim.mode):
                    raise self.make_own_wait(path, f"{lock.name}: ")

    def make_own_wait(self, held: str, name: str = "") -> SoloError:
        owner = "thread" if self.owner is self.thread else "task or its thread"
        remedy = " (if another thread will release that Hold, set a wait in seconds)"
        return make_own_wait(
            f"{name}cannot wait for the lock: this {owner} already holds {held} by another Lock",
            remedy,
        )

    def abandon(self) -> None:
        """Cancel the attempt, and release its Hold if it has one."""
        if not blocking.can_act():
            return
        with blocking.Deferred():
            self.is_abandoned = True
            if self.waiter is not None:
                self.waiter.cancel()
            self.drop()

    def drop(self) -> None:
        if self.hold is not None:
            with blocking.acting:
                self.hold._release()

    def forget(self) -> None:
        """Close everything in a forked child: the thread is not there, and its tickets belong to
        the parent.
        """
        for ticket in (*self.tickets, *self.holds):
            ticket.close()
        for queue in self.queues:
            queue.leave()  # this closes a copy of the gate, too
        if self.waiter is not None:
            self.waiter.close()


class Own(Queue):
    """A queue that adds the tickets it publishes to those of this thread's attempt."""

    def publish(self, kind: str, record: Record) -> Any:
        attempt: LockAttempt = blocking.mine.attempt
        if kind == SEAT:
            attempt.refuse_own_tickets(self, record.claim)
            if attempt.waiter is None:
                # before it is published: a waiter that leaves lets others overtake
                raise blocking.WouldWait
        ticket = super().publish(kind, record)
        if ticket is not None:
            attempt.tickets.append(ticket)
            if kind == HOLD and record.retained is not None:
                record.retained.append(ticket.number)  # while it waits for the next name
        return ticket


class OwnQueue(Own, FileQueue):
    """A queue of files."""

    def write_ticket(self, file: str, fd: int, record: Record) -> FileTicket:
        # lost to the umask of the program
        if self.place.mode & READABLE & OWNER_BITS & ~os.fstat(fd).st_mode:
            os.fchmod(fd, self.place.mode & READABLE)
        return super().write_ticket(file, fd, record)


def identify_queue(queue: object) -> object:
    """Return the directory of a queue, or for sockets its name, to compare. None for a locked
    file.
    """
    place = getattr(queue, "place", None)
    return getattr(queue, "name", None) if place is None else identify_file(place.fd)


@functools.lru_cache(1)
def identify(pid: int) -> tuple[Process, Origin, list[bytes]]:
    """Return ((pid, start), origin, command line) of this process, whose pid is `pid`. Raises
    SoloError.
    """
    try:
        command = read_file("/proc/self/cmdline", 1 << 20).split(b"\0")[:-1]
        return read_self(), read_origin(), command
    except OSError as error:
        raise SoloError(f"cannot read {error.filename or '/proc/self'}: {error.strerror}") from None
