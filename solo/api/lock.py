"""The lock for Python programs: the same names, directory, queue and records as the command line.

A program holds a name as a launcher does, without a command: its record identifies the program's process, and when that
ends the name is free. Blocking calls run in a thread of their own, see api/blocking.py. So no signal is needed to
interrupt them, and no exception of a signal handler, such as KeyboardInterrupt, can lose a name that was just acquired.
"""

import functools
import math
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Optional, TypeVar, Union, cast

from solo.acquire import acquire_files, acquire_names, remove_unseen_holds, settle_all
from solo.api import blocking
from solo.argv import check_note, is_engine, read_variables
from solo.directories import check_new_name, open_name
from solo.errors import Busy, SoloError, UsageError
from solo.identity import read_origin, read_self
from solo.kernel import FOREVER, OWNER_BITS, read_file, read_umask
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim, find_conflicts
from solo.obstacles import find_living, read_claim
from solo.options import DIR, FILE, SOCKET, VIA
from solo.plan import Plan, make_absolute
from solo.queue import NO_WAIT, wait_silently
from solo.record import Record
from solo.tickets import READABLE, SEAT, Queue

if TYPE_CHECKING:
    import asyncio

    from solo.contention.protocols import Queue as AnyQueue
    from solo.contention.protocols import Ticket
    from solo.directories import Directory
    from solo.identity import Origin, Process
    from solo.tickets import Ticket as FileTicket

Function = TypeVar("Function", bound=Callable[..., Any])
AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

COMMAND_SIZE = 1 << 20  # bytes
UNFINISHED: dict[type, str] = {  # what a call may return before any of its work is done
    CoroutineType: "a coroutine",
    GeneratorType: "a generator",
    AsyncGeneratorType: "an asynchronous generator",
}
LONGEST_WAIT = 1e9  # seconds; longer waits have no limit
MOST_SLOTS = 999_999_999  # as on the command line
VARIABLES = [option.variable.encode() for option in (VIA, DIR) if option.variable]  # of read_variables
UNSET: Any = ...  # the default of an argument for which None has a meaning


@dataclass(frozen=True)
class Holder:
    """A holder of a name: a row of `solo list --json`.

    `launcher` is the pid of the solo process, or of the program that holds the name; `child` is the pid of the command.
    `since` is an aware datetime. A value that is not known is None. `user` owns the ticket. Fields of its record about
    which that user cannot be believed, and pids of processes that cannot be seen from here, are only in `claims`, under
    their names: "user", "launcher", "child".
    """

    name: str
    state: Literal["held", "orphaned", "waiting"]
    mode: Literal["exclusive", "shared", "slots"]
    slot: Optional[int]
    slots: Optional[int]
    take: Optional[int]
    launcher: Optional[int]
    child: Optional[int]
    since: Optional[datetime]
    user: Optional[str]
    host: Optional[str]
    command: tuple[str, ...]
    via: str
    ticket: int
    claims: dict[str, Any] = field(default_factory=dict, hash=False)
    note: Optional[str] = None


def holders(name: str, *, via: Optional[str] = None, directory: Optional[AnyPath] = None) -> list[Holder]:
    """Return the holders of `name` and of the names nested in it, the oldest of each name first.

    `via` and `directory` are as for `Lock`, but `via` may name an engine. Without `via`, list the holders by files and
    by sockets; SOLO_VIA is ignored.

    Raises UsageError for an invalid name, SoloError if a ticket or an engine cannot be read.

    >>> with Lock("reports"):
    ...     [(holder.state, holder.launcher == os.getpid()) for holder in holders("reports")]
    [('held', True)]
    """
    from solo.commands.list import collect

    problems: list[str] = []
    rows, complete = collect(read_options(via, directory).get("dir"), via, [check_name(name)], report=problems.append)
    if not complete:
        raise SoloError(problems[0])
    return [make_holder(row) for row in rows if row["state"] != "waiting"]


def make_holder(row: dict[str, Any]) -> Holder:
    """Return the Holder of a row of `solo list`. Its time is that of --json, in milliseconds."""
    from solo.text.tables import format_time

    since = row["since"] if row["since"] is None else datetime.fromisoformat(format_time(row["since"]))
    return Holder(**{**row, "since": since, "command": tuple(row["command"])})


class Hold:
    """An acquired lock, returned by `Lock.acquire`. Release it by `release`, or by leaving its `with` block.

    `name` is the first of the names, `token` and `slot` are those of it; `tokens` and `slots` have those of each name.
    A token is greater than all earlier tokens of its name, over crashes and reboots: a resource can refuse a request
    with an older one. If a name has N slots, its slot is the lowest of the numbers 0 to N-1 that this hold has; else it
    is None. Only a Lock creates Holds.
    """

    def __init__(self, names: list[str], named: dict[str, Any], tickets: list[Any]) -> None:
        self.name = names[0]
        self._files = {fd: identify_file(fd) for ticket in tickets for fd in ticket.descriptors}
        self.tokens: dict[str, int] = {name: named[name].number for name in names}
        self.slots: dict[str, Optional[int]] = {name: find_slot(named[name]) for name in names}
        self.depth = 1  # the number of times that a reentrant Lock acquired it
        self._tickets = tickets
        self._pid = os.getpid()
        self._owner: Callable[[], object] = no_owner  # the thread or task that acquired it, if it still exists
        self._thread: Callable[[], object] = no_owner  # the thread in which it was acquired
        all_holds.add(self)

    @property
    def token(self) -> int:
        """The fencing token of the first name."""
        return self.tokens[self.name]

    @property
    def slot(self) -> Optional[int]:
        """The slot of the first name, None if it has no slots."""
        return self.slots[self.name]

    @property
    def locked(self) -> bool:
        """Whether it is still held: not if it was released, or if the program has closed its descriptors."""
        return bool(self._tickets) and all(self._has_kept(ticket.fd) for ticket in self._tickets)

    def release(self) -> None:
        """Release the lock; if it is reentrant, undo one acquire. Do nothing if it was released before, or in a forked
        child.

        Raises SoloError if the program has closed its descriptors: the lock ended then, and another process may have
        had it.
        """
        if not blocking.can_act():
            return
        with blocking.Deferred():
            self._undo()

    def _undo(self) -> None:
        """Undo one acquire. The caller is acting. Raises SoloError as `release` does."""
        if self.depth > 1:
            self.depth -= 1
        elif self._release():
            raise SoloError(
                f"{self.name}: cannot release the lock: the program has closed its descriptors, which ended it"
            )

    def _release(self) -> bool:
        """Release it. Return True if the program had closed its descriptors before."""
        tickets, self._tickets = self._tickets, []
        all_holds.discard(self)
        if self._pid != os.getpid():
            return False
        is_lost = self._forget_closed(tickets)
        release_all(tickets)
        return is_lost

    def _has_kept(self, fd: int) -> bool:
        """Whether the descriptor is still ours.

        The program may have closed it and opened another file with its number.
        """
        return fd in self._files and self._files[fd] == identify_file(fd)

    def _forget_closed(self, tickets: list[Any]) -> bool:
        """Forget descriptors that the program has closed: they may be other files now.

        Return True if that ended a lock.
        """
        is_lost = False
        for ticket in tickets:
            place = getattr(ticket.queue, "place", None)
            if place is not None and not self._has_kept(place.fd):
                place.fd = -1
            if not self._has_kept(ticket.fd):
                ticket.fd, is_lost = -1, True
        return is_lost

    def _abandon(self) -> None:
        """Close our copies of the descriptors in a forked child, without unlocking: the lock belongs to the parent."""
        tickets, self._tickets = self._tickets, []
        self._forget_closed(tickets)
        for ticket in tickets:
            ticket.close()
            ticket.queue.leave()

    def __enter__(self) -> "Hold":
        block = blocking.opening.take(self)
        if block is not None:
            block.hold = self
        return self

    if TYPE_CHECKING:

        def __exit__(self, *_: object) -> None: ...
    else:
        __exit__ = blocking.LeaveBlock()

    def _leave(self, block: blocking.WithBlock) -> None:
        if not blocking.can_act():
            return
        with blocking.Deferred():
            if not block.left:
                block.left = True
                self._undo()

    def __del__(self) -> None:
        ending = sys is None or sys.is_finalizing()  # then the kernel releases what we cannot
        try:
            if getattr(self, "_tickets", None) and self._pid == os.getpid() and blocking.can_act():
                with blocking.Deferred():
                    is_lost = self._release()
                if not (ending or is_lost):
                    warnings.warn(
                        f"solo: {self.name} was still held when its Lock was dropped", ResourceWarning, 2, self
                    )
        except Exception:
            if not ending:
                raise

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied: the end of a copy would release the lock."""
        raise TypeError("a Hold cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<solo.Hold of {', '.join(self.tokens)}{'' if self.locked else ', released'}>"


def release_all(tickets: list[Any]) -> None:
    """Release the tickets, the last one first, and leave their queues."""
    for ticket in reversed(tickets):
        ticket.release()
        ticket.queue.leave()


def no_owner() -> None:
    """Stand in for a weak reference until the Hold has an owner."""


def identify_file(fd: int) -> Optional[tuple[int, int]]:
    """Return the device and inode of an open file; None if it is not open."""
    try:
        stat = os.fstat(fd)
        return stat.st_dev, stat.st_ino
    except (OSError, OverflowError):
        return None


def find_slot(ticket: "Ticket") -> Optional[int]:
    """Return the lowest slot of a ticket, or None."""
    return ticket.record.slot[0][0] if ticket.record and ticket.record.slot else None


all_holds: "weakref.WeakSet[Hold]" = weakref.WeakSet()
all_attempts: "set[LockAttempt]" = set()
all_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """The lock of `solo -n NAME`, on one name or on several: all or none, acquired in an order that cannot deadlock.

    with solo.Lock("nightly"):            raises Busy if the name is held
    with solo.Lock("nightly", wait=30):   waits in the queue for up to 30 seconds; math.inf: without limit
    async with solo.Lock("nightly"):      does the same while the event loop runs
    @solo.Lock("nightly")                 holds it during each call of a function, a coroutine function or a generator

    `shared`: together with other shared holders. `slots`: the number of slots of the name; this hold uses `take` of
    them. `wait`: seconds to wait in the queue; None (the default): do not wait. `max_waiting`: do not wait if so many
    already wait. `reentrant`: the owner may acquire it again by this Lock, and must release it once for each acquire.
    `flock`: files or directories to lock with flock(2) as well, so that solo and programs that use flock(2) exclude
    each other. `fcntl`: files to lock with fcntl(2) as well, for programs that use fcntl(2) or lockf(3). `via`: "file"
    or "socket", by default SOLO_VIA or file. `directory`: where names live, by default SOLO_DIR or the directory of the
    user (see solo(1)). `note`: one line of at most 200 characters, shown to everybody who finds the name busy or lists
    it; not with sockets.

    Many threads and tasks can use one Lock: each thread, and in an event loop each task, has its own hold, and they
    contend as processes do. A forked child holds nothing. A Lock can be pickled; its holds are not.

    Raises UsageError (a ValueError) for invalid arguments. Acquiring raises Busy, with the `holders` of the name, or
    SoloError if it fails or if this thread or task would wait for itself.

    >>> lock = Lock("nightly")
    >>> with lock:
    ...     lock.locked, lock.slot
    (True, None)
    >>> lock.locked
    False
    """

    def __init__(
        self,
        name: Union[str, Iterable[str]],
        *,
        shared: bool = False,
        slots: Optional[int] = None,
        take: int = 1,
        wait: Optional[float] = None,
        max_waiting: Optional[int] = None,
        reentrant: bool = False,
        flock: Union[AnyPath, Iterable[AnyPath]] = (),
        fcntl: Union[AnyPath, Iterable[AnyPath]] = (),
        via: Optional[str] = None,
        directory: Optional[AnyPath] = None,
        note: Optional[str] = None,
    ) -> None:
        names = list(name) if isinstance(name, Iterable) and not isinstance(name, str) else [name]
        if not names:
            raise UsageError("a Lock needs a name")
        self.names = list(dict.fromkeys(map(check_name, names)))
        self.wait = check_wait(wait)
        self.max_waiting = max_waiting
        self.reentrant = reentrant
        self.note = note
        self.via = via
        self.directory = None if directory is None else os.fsdecode(directory)
        self.flock, self.fcntl = list_paths("flock", flock), list_paths("fcntl", fcntl)
        self._claim = make_claim(shared, slots, take)
        if max_waiting is not None and not (type(max_waiting) is int and max_waiting >= 0):
            raise UsageError(f"max_waiting={max_waiting!r}: not a count")
        if note is not None:
            check_note("note", note)
        options = read_options(via, self.directory)
        if is_engine(options):
            from solo.commands.lookup import check_via

            check_via(str(options["via"]))
            raise UsageError("a program cannot hold a lock at an engine, which could not end it in time: solo.run can")
        self._start()

    def _start(self) -> None:
        """Begin without holds, as a new, an unpickled or a forked Lock does."""
        self._holds: weakref.WeakKeyDictionary[object, Hold] = weakref.WeakKeyDictionary()
        self._asking: set[object] = set()
        self._is_forked = False
        all_locks.add(self)

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    @property
    def hold(self) -> Optional[Hold]:
        """The Hold of this thread or task, None if it holds nothing."""
        hold = self._holds.get(find_owner())
        return hold if hold is not None and hold.locked else None

    @property
    def locked(self) -> bool:
        """Whether this thread or task holds it."""
        return self.hold is not None

    @property
    def token(self) -> Optional[int]:
        """The fencing token of this thread or task, None if it holds nothing."""
        return self.hold.token if self.hold is not None else None

    @property
    def slot(self) -> Optional[int]:
        """The slot of this thread or task, None if it holds nothing or no slot."""
        return self.hold.slot if self.hold is not None else None

    def acquire(self, timeout: Optional[float] = UNSET) -> Hold:
        """Acquire it for this thread or task. `timeout`, in seconds, replaces `wait` if it is given.

        None does not wait; math.inf waits without limit.

        Raises Busy, SoloError. Any thread or task can release the Hold; `Lock.release` releases the one of its caller.
        """
        return self._acquire(timeout, [])

    def _acquire(self, timeout: Optional[float], entered: list[Hold]) -> Hold:
        """Acquire it, and append the Hold to `entered`: a signal handler may raise before it is returned."""
        deadline, owner = self._find_deadline(timeout), find_owner()
        again = self._enter_again(owner, entered)
        if again is not None:
            return again
        attempt = LockAttempt(self, deadline, owner)
        try:
            if not blocking.is_main_thread():
                attempt.run_here()  # signal handlers run only in the main thread
            elif not attempt.run_hastily() and attempt.start():
                attempt.wait()
            return self._keep(owner, attempt.find_result(), entered)
        except BaseException:
            attempt.abandon()
            raise

    def acquire_async(self, timeout: Optional[float] = UNSET) -> "Coroutine[Any, Any, Hold]":
        """Acquire it as `acquire` does, while the event loop of asyncio runs. If cancelled, leave the queue."""
        return self._acquire_async(find_owner(), self.hold, timeout)

    async def _acquire_async(self, owner: object, held: Optional[Hold], timeout: Optional[float]) -> Hold:
        """Acquire it for the task `owner`, which called while it `held` that Hold, or None.

        Another task may await it: asyncio.wait_for before 3.12 makes one. But if the owner is acquiring something else
        or has acquired it since, the task was made to run beside it, and is the owner itself.
        """
        deadline, hold = self._find_deadline(timeout), self._holds.get(owner)
        is_held = hold is not None and hold.locked
        if owner is not find_owner() and (owner in self._asking or is_held and hold is not held):
            owner = find_owner()
        again = self._enter_again(owner, [])
        if again is not None:
            return again
        import asyncio

        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        attempt = LockAttempt(self, deadline, owner, lambda: loop.call_soon_threadsafe(set_ready, ready))
        self._asking.add(owner)
        try:
            if not attempt.run_hastily() and attempt.start():
                await ready
            return self._keep(owner, attempt.find_result(), [])
        except BaseException:
            attempt.abandon()
            raise
        finally:
            self._asking.discard(owner)

    def release(self) -> None:
        """Release the Hold of this thread or task; if it is reentrant, undo one acquire.

        Raises SoloError if there is none.
        """
        if not blocking.can_act():
            return
        with blocking.Deferred():
            if not self._undo(self._holds.get(find_owner())):
                raise SoloError(f"{self.name}: is not held by this thread or task")

    def _undo(self, hold: Optional[Hold]) -> bool:
        """Undo one acquire. Return whether `hold` was still held. The caller is acting. Raises SoloError as Hold.release.

        A Hold that has ended may die here. Later, in its __del__, Python would ignore what a signal handler raises.
        """
        if hold is None or not hold._tickets:
            return False
        try:
            hold._undo()
        finally:
            owner = hold._owner()
            if owner is not None and not hold._tickets and self._holds.get(owner) is hold:
                self._holds.pop(owner, None)
        return True

    def _find_deadline(self, timeout: Optional[float]) -> float:
        """Return the deadline on the monotonic clock."""
        wait = self.wait if timeout is UNSET else check_wait(timeout)
        return NO_WAIT if wait is None else FOREVER if wait == math.inf else time.monotonic() + wait

    def _enter_again(self, owner: object, entered: list[Hold]) -> Optional[Hold]:
        """Return the Hold that `owner` has, one acquire deeper, or None. Raises SoloError unless the Lock is reentrant."""
        hold = self._holds.get(owner)
        if hold is None:
            return None
        with blocking.Deferred():  # another thread may release it
            if not hold.locked:
                return None
            if not self.reentrant:
                raise SoloError(
                    f"{self.name}: held by this thread or task already: it would wait for itself (reentrant=True counts)"
                )
            hold.depth += 1
            entered.append(hold)
        return hold

    def _keep(self, owner: object, hold: Hold, entered: list[Hold]) -> Hold:
        """Note that `owner` has acquired `hold`, and return it."""
        self._holds[owner] = hold
        hold._owner, hold._thread = weakref.ref(owner), weakref.ref(threading.current_thread())
        entered.append(hold)
        return hold

    def __enter__(self) -> Hold:
        entered: list[Hold] = []
        block = blocking.opening.take(self)
        try:
            self._acquire(UNSET, entered)
            if block is not None:
                block.hold = entered[0]
            return entered[0]
        except BaseException:  # a signal handler may raise after the lock was acquired
            if entered and blocking.can_act():
                with blocking.Deferred():
                    if block is not None:
                        block.hold = None
                    self._undo(entered.pop())
            raise

    if TYPE_CHECKING:

        def __exit__(self, *_: object) -> None: ...
        async def __aexit__(self, *_: object) -> None: ...
    else:
        __exit__ = blocking.LeaveBlock()
        __aexit__ = blocking.LeaveBlock(blocking.Done())

    def _leave(self, block: blocking.WithBlock) -> None:
        if not blocking.can_act():
            return
        with blocking.Deferred():
            if block.left:
                return
            block.left = True
            hold, block.hold = block.hold if block.of == id(self) else None, None
            is_inherited = block.pid != os.getpid() or hold is None and self._is_forked
            is_done = self._undo(hold or self._find_left())
            del hold  # see _undo
            if not is_done and not is_inherited:
                raise SoloError(
                    f"{self.name}: this block's hold was released before its end (with lock.acquire(): may be)"
                )

    def _find_left(self) -> Optional[Hold]:
        """Return the Hold that a call of `__exit__` by hand ends: that of this thread or task, else the only one."""
        holds = [hold for hold in list(self._holds.values()) if hold._tickets]
        own = self._holds.get(find_owner())
        return own if own in holds else holds[0] if len(holds) == 1 else None

    async def __aenter__(self) -> Hold:
        block = blocking.opening.take(self)
        hold = await self.acquire_async()
        if block is not None:
            block.hold = hold
        return hold

    def __call__(self, function: Function) -> Function:
        """Decorate a function: each call holds the lock."""
        import inspect

        if inspect.isasyncgenfunction(function):
            raise UsageError("an asynchronous generator cannot be decorated: use async with inside of it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded_coroutine(*args: Any, **kwargs: Any) -> Any:
                with await self.acquire_async():
                    return await function(*args, **kwargs)

            return cast(Function, guarded_coroutine)
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def guarded_generator(*args: Any, **kwargs: Any) -> Any:
                with self.acquire():  # released here, also if another thread closes the generator
                    return (yield from function(*args, **kwargs))

            return cast(Function, guarded_generator)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return refuse_unfinished(function(*args, **kwargs))

        return cast(Function, guarded)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_holds", "_asking", "_is_forked")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        return f"<solo.Lock on {', '.join(self.names)}{', held' if self.locked else ''}>"


def refuse_unfinished(result: Any) -> Any:
    """Return the result of a decorated function. Raises UsageError if its work has yet to be done, without the lock."""
    kind = UNFINISHED.get(type(result))
    if kind is None:
        return result
    if isinstance(result, CoroutineType):
        result.close()  # else Python warns that it was never awaited
    raise UsageError(
        f"the decorated function returned {kind}, which would run without the lock: decorate the function"
        " that is defined with async def or yield, or use the Lock inside of it"
    )


class LockAttempt:
    """One attempt to acquire `lock` until `deadline`, in this thread or in one of its own. `notify` is called when it
    is over.

    Its Hold has exactly one owner, whatever exception interrupts its caller: the caller, or if it was abandoned none.
    """

    def __init__(
        self, lock: Lock, deadline: float, owner: object, notify: Optional[Callable[[], object]] = None
    ) -> None:
        self.lock = lock
        self.deadline = deadline
        self.owner = owner
        self.thread = threading.current_thread()
        self.notify = notify  # set only by an event loop, which runs meanwhile
        self.waiter: Optional[blocking.Waiter] = None
        self.done: Optional[threading.Event] = None  # set when it is over, if it runs in a thread of its own
        self.hold: Optional[Hold] = None
        self.error: Optional[BaseException] = None
        self.is_abandoned = False
        self.tickets: list[Any] = []  # all tickets of the attempt, waiting ones too
        self.holds: list[Any] = []  # the acquired ones and locked files
        self.queues: list[Any] = []  # each is an Own

    def run_hastily(self) -> bool:
        """Acquire it in this thread. Return False if it would have to wait."""
        if not blocking.can_act():
            self.error = SoloError(f"{self.lock.name}: the program is ending")
            return True
        with blocking.Deferred():
            try:
                self.acquire_with(blocking.Hasty())
            except blocking.WouldWait:
                return False
        return True

    def run_here(self) -> None:
        """Acquire it in this thread, and wait if necessary."""
        if not blocking.can_act():
            self.error = SoloError(f"{self.lock.name}: the program is ending")
            return
        self.waiter = blocking.Waiter()
        self.run()

    def run(self) -> None:
        """Acquire it in this thread, and notify the caller."""
        assert self.waiter is not None
        try:
            with blocking.acting:
                self.acquire_with(self.waiter)
                if self.is_abandoned:
                    self.drop()
        finally:
            if self.done is not None:
                self.done.set()
            try:
                if self.notify is not None:
                    self.notify()
            except RuntimeError:
                self.drop()  # the event loop is closed: no task will take the Hold

    def start(self) -> bool:
        """Run in a thread of its own, which no exception of a signal handler can interrupt.

        Return False after running here, if Python is shutting down. Raises SoloError if there are too many threads.
        """
        self.waiter, self.done = blocking.Waiter(), threading.Event()
        try:
            threading.Thread(target=self.run, name=f"solo acquires {self.lock.name}", daemon=True).start()
            return True
        except RuntimeError as error:
            if not blocking.is_ending(error):
                self.waiter.close()
                raise SoloError(f"{self.lock.name}: cannot wait: {error}") from None
            self.run()
            return False

    def wait(self) -> None:
        """Wait until it is over; signal handlers run meanwhile."""
        if self.done is not None:
            self.done.wait()

    def acquire_with(self, waiter: Union[blocking.Waiter, blocking.Hasty]) -> None:
        """Keep the Hold or the error of the attempt.

        The caller is acting. Raises WouldWait if `waiter` must not wait.
        """
        if getattr(blocking.mine, "waiter", None) is not None:
            self.error = SoloError(
                f"{self.lock.name}: cannot acquire the lock inside another acquire (a __del__, or a callback)"
            )
            return
        all_attempts.add(self)
        blocking.mine.waiter = waiter
        try:
            self.hold = self.acquire()
        except blocking.WouldWait:
            raise
        except BaseException as error:
            self.error = error
        finally:
            blocking.mine.waiter = None
            waiter.close()
            all_attempts.discard(self)
            for queue in self.queues:
                queue.attempt = None  # else a Hold would refer to its owner, which would never be collected

    def acquire(self) -> Hold:
        """Acquire all names and files. Raises what acquire_names and acquire_files raise, with the holders in a Busy."""
        lock = self.lock
        plan = LockPlan(lock, self.deadline)
        launcher, origin, command = identify()
        note = lock.note or ""
        wanted = Record(launcher, origin, os.geteuid(), lock._claim, lock.names, None, command, note=note)
        holds = self.holds = []

        def make(base: "Optional[Directory]", name: str, origin: "Origin") -> "AnyQueue":
            queue: AnyQueue = make_queue(base, name, origin, self)
            self.queues.append(queue)
            return queue

        self.refuse_own_files()
        try:
            named = acquire_names(wanted, plan, wait_silently, holds, make)
            settle_all(holds)
            if lock.flock or lock.fcntl:
                acquire_files(lock.name, named, plan, read_umask(), wait_silently, holds, True)
            remove_unseen_holds(named.values())
            for hold in named.values():
                if not isinstance(hold.queue, Queue):
                    hold.queue.leave()  # its watches are not needed any more
            return Hold(lock.names, named, holds)
        except BaseException as error:
            release_all(holds)
            if isinstance(error, Busy):
                from solo.commands.list import make_row

                rows = [
                    make_row(error.name, plan.via, ticket, ticket.record)
                    for ticket in cast("Sequence[Ticket]", error.tickets)
                ]
                error.holders = tuple(map(make_holder, rows))
                error.tickets = ()
            raise

    def find_own_tickets(self) -> list[Any]:
        """Return the tickets that cannot be released while this attempt waits: those of its own thread or task.

        An event loop runs while a task waits, so the holds of other tasks are not among them. If the thread itself
        waits, they are.
        """
        tickets = []
        owners = {id(self.thread), id(self.owner)}
        for hold in list(all_holds):
            if id(hold._owner()) in owners or self.notify is None and hold._thread() is self.thread:
                tickets += hold._tickets
        return tickets

    def refuse_own_tickets(self, queue: "AnyQueue", wanted: Claim) -> None:
        """Raise SoloError if it would wait in `queue` without limit for itself, or for waiters that wait for it.

        Under the gate.
        """
        if self.deadline != FOREVER:
            return
        own = [ticket for ticket in self.find_own_tickets() if identify_queue(ticket.queue) == identify_queue(queue)]
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
            raise SoloError(
                self.describe_own(" and ".join(sorted({name for ticket in own for name in ticket.record.names})))
            )

    def refuse_own_files(self) -> None:
        """Raise SoloError if it would wait without limit for a file that it has locked itself."""
        lock = self.lock
        if self.deadline != FOREVER or not (lock.flock or lock.fcntl):
            return
        from solo.contention.flocks import KINDS

        own = {(type(ticket), identify_file(ticket.fd)): ticket for ticket in self.find_own_tickets()}
        for kind in KINDS:
            for path in filter(os.path.exists, getattr(lock, kind.option)):
                stat = os.stat(path)
                found = own.get((kind, (stat.st_dev, stat.st_ino)))
                if found is not None and EXCLUSIVE in (found.mode, lock._claim.mode):
                    raise SoloError(f"{lock.name}: {self.describe_own(path)}")

    def describe_own(self, held: str) -> str:
        """Return the message of a wait for itself."""
        owner = "thread" if self.owner is self.thread else "task or its thread"
        remedy = "if another thread will release that Hold, set a wait in seconds"
        return f"cannot wait for the lock: this {owner} already holds {held} by another Lock, and would wait for itself ({remedy})"

    def find_result(self) -> Hold:
        """Return the Hold, or raise the error of the attempt."""
        if self.hold is None:
            assert self.error is not None
            raise self.error
        return self.hold

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
        """Release the Hold, if there is one."""
        if self.hold is not None:
            with blocking.acting:
                self.hold._release()

    def forget(self) -> None:
        """Close everything in a forked child: the thread is not there, and its tickets belong to the parent."""
        for ticket in (*self.tickets, *self.holds):
            ticket.close()
        for queue in self.queues:
            queue.leave()  # this closes a copy of the gate, too
        if self.waiter is not None:
            self.waiter.close()


class LockPlan(Plan):
    """The part of a Plan that acquire_names and acquire_files read: to make all of it takes a tenth of an acquire."""

    __slots__ = ()
    latest = replace = verbose = False
    replace_after = None

    def __init__(self, lock: Lock, deadline: float) -> None:
        options = read_options(lock.via, lock.directory)
        self.via = options.get("via", FILE)
        self.is_socket = self.via == SOCKET
        self.dir = make_absolute(options["dir"]) if "dir" in options else None
        self.max_waiting, self.flock, self.fcntl = lock.max_waiting, lock.flock, lock.fcntl
        self.deadline = self.file_deadline = deadline


class Own:
    """A queue that adds the tickets it publishes to those of `attempt`."""

    __slots__ = ()
    attempt: Optional["LockAttempt"]

    def publish(self, kind: str, record: Record) -> Any:
        assert self.attempt is not None
        if kind == SEAT:
            self.attempt.refuse_own_tickets(cast("AnyQueue", self), record.claim)
            if isinstance(blocking.mine.waiter, blocking.Hasty):
                raise blocking.WouldWait  # before it is published: a waiter that leaves lets others overtake
        ticket = super().publish(kind, record)  # type: ignore[misc]
        if ticket is not None:
            self.attempt.tickets.append(ticket)
        return ticket


class OwnQueue(Own, Queue):
    """A queue of files. `own_files` are the tickets of this process: removing one wakes its waiters in this process.

    `written` is the stat of the last ticket. `heir` is our exclusive hold: the waiters behind our waiting ticket then
    wait for that, and need not look.
    """

    __slots__ = ("attempt", "heir", "own_files", "written")
    heir: Optional[tuple[int, int]]
    own_files: dict[str, tuple[int, int]]
    written: os.stat_result

    def publish(self, kind: str, record: Record) -> Any:
        ticket = super().publish(kind, record)
        if ticket is not None:
            self.own_files[ticket.file] = own = blocking.remember_own(ticket.fd, self.written)
            self.heir = own if ticket.is_hold and record.claim.mode == EXCLUSIVE else None
        return ticket

    def write_ticket(self, file: str, fd: int, record: Record) -> "FileTicket":
        self.written = os.fstat(fd)
        if self.place.mode & READABLE & OWNER_BITS & ~self.written.st_mode:  # lost to the umask of the program
            os.fchmod(fd, self.place.mode & READABLE)
        return super().write_ticket(file, fd, record)

    def remove(self, file: str) -> None:
        super().remove(file)
        if file in self.own_files:
            own = self.own_files.pop(file)
            if own == self.heir:
                self.heir = None
            blocking.forget_own(own, self.heir)


def identify_queue(queue: Any) -> object:
    """Return what identifies the queue of a name: its directory, or for sockets the name. None for a locked file."""
    place = getattr(queue, "place", None)
    return getattr(queue, "name", None) if place is None else identify_file(place.fd)


def make_queue(base: "Optional[Directory]", name: str, origin: "Origin", attempt: "LockAttempt") -> Any:
    """Return the queue of `name`: files in `base`, or sockets if that is None."""
    if base is not None:
        queue: Any = OwnQueue(open_name(base, name), origin)
        queue.own_files, queue.heir = {}, None
    else:
        from solo.contention.sockets import SocketQueue

        class OwnSocketQueue(Own, SocketQueue):
            __slots__ = ("attempt",)

        queue = OwnSocketQueue(name, origin)
    queue.attempt = attempt
    return queue


def set_ready(future: "asyncio.Future[None]") -> None:
    """Complete the future, unless it was cancelled."""
    if not future.done():
        future.set_result(None)


def find_owner() -> object:
    """Return the owner of a hold: the running task if an event loop runs here, else the thread."""
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)  # another thread may be importing it
    if current_task is not None:
        try:
            task = current_task()
        except RuntimeError:
            task = None
        if task is not None:
            return task
    return threading.current_thread()


def identify() -> "tuple[Process, Origin, list[bytes]]":
    """Return ((pid, start), origin, command line) of this process. Raises SoloError."""
    if identity[0] != os.getpid():
        try:
            command = read_file("/proc/self/cmdline", COMMAND_SIZE).split(b"\0")[:-1]
            identity[:] = [os.getpid(), (read_self(), read_origin(), command)]
        except OSError as error:
            raise SoloError(f"cannot read {error.filename or '/proc/self'}: {error.strerror}") from None
    return cast("tuple[Process, Origin, list[bytes]]", identity[1])


identity: list[Any] = [0, None]


def list_paths(keyword: str, paths: Union[AnyPath, Iterable[AnyPath]]) -> list[str]:
    """Return the paths of one or several files. Raises UsageError if one is invalid."""
    return [check_path(keyword, path) for path in ([paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths)]


def check_path(keyword: str, path: AnyPath) -> str:
    """Return the path. Raises UsageError if it cannot be one."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise UsageError(f"{keyword} has characters that cannot be in a path") from None
    if not encoded:
        raise UsageError(f"{keyword} is empty (is a variable unset?)")
    if b"\0" in encoded:
        raise UsageError(f"{keyword} may not contain NUL")
    return os.fsdecode(encoded)


def check_name(name: object) -> str:
    """Return the name. Raises UsageError if it is invalid."""
    if not isinstance(name, str):
        raise UsageError(f"a name is a str, not {type(name).__name__}")
    try:
        check_new_name(name)
    except UnicodeEncodeError:
        raise UsageError("a name with characters that cannot be in a file name") from None
    if "\0" in name:
        raise UsageError("a name may not contain NUL")
    return name


def check_wait(wait: Optional[float]) -> Optional[float]:
    """Return the seconds, math.inf if they are too many. Raises UsageError if it is not a number of seconds."""
    if wait is not None and (isinstance(wait, bool) or not (isinstance(wait, (int, float)) and wait >= 0)):
        raise UsageError(f"{wait!r} is not a number of seconds (None: do not wait, math.inf: without limit)")
    return math.inf if wait is not None and wait > LONGEST_WAIT else wait


def make_claim(shared: bool, slots: Optional[int], take: int) -> Claim:
    """Return the claim of these arguments. Raises UsageError if they are invalid."""
    if slots is None:
        if take != 1:
            raise UsageError(f"take={take} needs slots")
        return Claim(SHARED if shared else EXCLUSIVE)
    if shared:
        raise UsageError("shared and slots exclude each other")
    if not (type(slots) is type(take) is int and 0 < take <= slots <= MOST_SLOTS):
        raise UsageError(f"slots={slots!r}, take={take!r}: take must be at least 1 and at most slots")
    return Claim(SLOTS, slots, take)


def read_options(via: Optional[str], directory: Optional[AnyPath]) -> dict[str, Any]:
    """Return the options as the command line would have read them; not to be changed. Raises UsageError."""
    path = None if directory is None else check_path("directory", directory)
    return resolve_options(via, path, *[(variable, os.environb.get(variable)) for variable in VARIABLES])


@functools.lru_cache
def resolve_options(
    via: Optional[str], directory: Optional[str], *variables: tuple[bytes, Optional[bytes]]
) -> dict[str, Any]:
    """Return the options of these arguments and environment variables. Raises UsageError."""
    typed = {"via": via, "dir": directory}
    options = {key: value for key, value in typed.items() if value is not None}
    read_variables(options, dict(variables))
    return options


def forget_all() -> None:
    """Forget all holds in a forked child: they belong to the parent."""
    for hold in list(all_holds):
        hold._abandon()  # first: a Lock that drops it would release it
    for attempt in list(all_attempts):
        attempt.forget()
    for lock in list(all_locks):
        lock._start()
        lock._is_forked = True
    all_attempts.clear()
    all_holds.clear()


os.register_at_fork(after_in_child=forget_all)
