"""The lock for Python programs: the same names, directory, queue and records as the command line.

A program holds a name as a launcher does, without a command: its record identifies the program's
process, and when that ends the name is free. Blocking calls run in a thread of their own, see
api/blocking.py. So no exception of a signal handler, such as KeyboardInterrupt, can lose a name
that was just acquired.
"""

import contextlib
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Optional, TypeVar, Union, cast

from solo.api import blocking
from solo.api.arguments import (
    AnyPath,
    check_name,
    check_wait,
    list_paths,
    make_absolute,
    make_claim,
    name_file,
    read_options,
)
from solo.api.attempt import LockAttempt, all_attempts
from solo.api.hold import Hold, all_holds
from solo.argv import is_engine
from solo.errors import SoloError, UsageError, make_own_wait
from solo.kernel import FOREVER, NO_WAIT
from solo.kinds import read_note

Function = TypeVar("Function", bound=Callable[..., Any])

UNFINISHED: dict[type, str] = {  # what a call may return before any of its work is done
    CoroutineType: "a coroutine",
    GeneratorType: "a generator",
    AsyncGeneratorType: "an asynchronous generator",
    contextlib._GeneratorContextManager: "a context manager",
    contextlib._AsyncGeneratorContextManager: "an asynchronous context manager",
}
UNSET: Any = ...  # the default of an argument for which None has a meaning

all_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """The lock of `solo -n NAME`, on one name or on several: all or none, acquired in an order that
    cannot deadlock.

        with solo.Lock("nightly"):           # raises Busy if the name is held
        with solo.Lock("nightly", wait=30):  # waits in the queue; math.inf: without limit
        async with solo.Lock("nightly"):     # does the same while the event loop runs
        @solo.Lock("nightly")                # holds it in each call, or while a generator runs

    `shared`: together with other shared holders. `slots`: the number of slots of the name; this
    hold uses `take` of them. `wait`: seconds to wait in the queue; None (the default): do not wait.
    `max_waiting`: do not wait if so many already wait. `reentrant`: the owner may acquire it again
    by this Lock, and must release it once for each acquire. `flock`: files or directories to lock
    with flock(2) as well, so that solo and programs that use flock(2) exclude each other; without a
    `name`, one is made from the real path of each file. `fcntl`: files to lock with fcntl(2) as
    well, for programs that use fcntl(2) or lockf(3). `via`: "file" or "socket", by default SOLO_VIA
    or file. `directory`: where names live, by default SOLO_DIR or the directory of the user (see
    solo(1)). `note`: one line of at most 200 characters, shown to everybody who finds the name busy
    or lists it; not with sockets.

    Many threads and tasks can use one Lock: each thread, and in an event loop each task, has its
    own hold, and they contend as processes do. A forked child holds nothing. A Lock can be pickled;
    its holds are not.

    Raises UsageError (a ValueError) for invalid arguments. Acquiring raises Busy, with the
    `holders` of the name, or SoloError if it fails or if this thread or task would wait for itself.

    >>> lock = Lock("nightly")
    >>> with lock:
    ...     lock.locked, lock.slot
    (True, None)
    >>> lock.locked
    False
    """

    def __init__(
        self,
        name: Union[str, Iterable[str], None] = None,
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
        self.flock = list_paths("flock", flock)
        self.fcntl = list_paths("fcntl", fcntl)
        if name is None:
            names: list[object] = [*map(name_file, (*self.flock, *self.fcntl))]
        else:
            names = (
                list(name)
                if isinstance(name, Iterable) and not isinstance(name, (str, bytes))
                else [name]
            )
        if not names:
            raise UsageError("a Lock needs a name, or files (flock, fcntl)")
        self.names = list(dict.fromkeys(map(check_name, names)))
        self.wait = check_wait(wait)
        self.max_waiting = max_waiting
        self.reentrant = reentrant
        self.note = note
        self.via = via
        self.directory = None if directory is None else make_absolute("directory", directory)
        self._claim = make_claim(shared, slots, take)
        if max_waiting is not None and not (type(max_waiting) is int and max_waiting >= 0):
            raise UsageError(f"max_waiting={max_waiting!r}: not a count")
        if note is not None:
            read_note("note", note)
        if is_engine(read_options(via, self.directory)):
            raise UsageError(
                "a program cannot hold a lock at an engine, which could not end it in time: "
                "solo.run can"
            )
        self._start()

    def _start(self) -> None:
        """Begin without holds, as a new, an unpickled or a forked Lock does."""
        self._holds: weakref.WeakKeyDictionary[object, Hold] = weakref.WeakKeyDictionary()
        # of the blocks that have not ended: a thread that entered one may end earlier
        self._entered: list[Hold] = []
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
        """Acquire it for this thread or task. `timeout` replaces `wait`: seconds, None (do not
        wait) or math.inf (no limit).

        Raises Busy, SoloError. Any thread or task can release the Hold; `Lock.release` releases the
        one of its caller.
        """
        return self._acquire(timeout, [])

    def _acquire(self, timeout: Optional[float], entered: list[Hold]) -> Hold:
        """Acquire it, and append the Hold to `entered`: a signal handler may raise before it is
        returned.
        """
        deadline, owner = self._find_deadline(timeout), find_owner()
        again = self._enter_again(owner, entered)
        if again is not None:
            return again
        attempt = LockAttempt(self, deadline, owner)
        hub = sys.modules["gevent"].get_hub() if blocking.is_gevent() else None
        try:
            if hub is None and not (blocking.is_main_thread() or blocking.is_eventlet()):
                attempt.run()  # signal handlers run only in the main thread
            elif not attempt.try_here():
                if blocking.is_eventlet():
                    why = "eventlet would run no other greenlet meanwhile"
                    remedy = "acquire without wait, and try again after eventlet.sleep"
                    raise SoloError(f"{self.name}: cannot wait: {why} ({remedy})")
                done = threading.Event() if hub is None else GreenEvent(hub)
                attempt.start(done.set)
                done.wait()
            return self._keep(owner, attempt, entered)
        except BaseException:
            attempt.abandon()
            raise

    def acquire_async(self, timeout: Optional[float] = UNSET) -> "Coroutine[Any, Any, Hold]":
        """Acquire it as `acquire` does, while the event loop of asyncio runs. If cancelled, leave
        the queue.
        """
        return self._acquire_async(find_owner(), self.hold, timeout)

    async def _acquire_async(
        self, owner: object, held: Optional[Hold], timeout: Optional[float]
    ) -> Hold:
        """Acquire it for the task `owner`, which called while it `held` that Hold, or None.

        Another task may await it: asyncio.wait_for before 3.12 makes one. But if the owner is
        acquiring something else or has acquired it since, the task was made to run beside it, and
        is the owner itself.
        """
        deadline, hold = self._find_deadline(timeout), self._holds.get(owner)
        is_held = hold is not None and hold.locked
        if owner is not find_owner() and (owner in self._asking or (is_held and hold is not held)):
            owner = find_owner()
        again = self._enter_again(owner, [])
        if again is not None:
            return again
        import asyncio

        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        attempt = LockAttempt(self, deadline, owner, is_async=True)
        self._asking.add(owner)
        try:
            if attempt.try_here():
                await asyncio.sleep(0)  # else a loop of such acquires would starve all other tasks
            else:
                attempt.start(lambda: loop.call_soon_threadsafe(ready.set))
                await ready.wait()
            return self._keep(owner, attempt, [])
        except BaseException:
            attempt.abandon()
            raise
        finally:
            self._asking.discard(owner)

    def release(self) -> None:
        """Release the Hold of this thread or task; if it is reentrant, undo one acquire. Raises
        SoloError without one.
        """
        blocking.perform(self._release)

    def _release(self) -> None:
        if not self._undo(self._holds.get(find_owner())):
            raise SoloError(f"{self.name}: is not held by this thread or task")

    def _undo(self, hold: Optional[Hold]) -> bool:
        """Undo one acquire. Return whether `hold` was still held. The caller is acting. Raises
        SoloError as Hold.release.

        A Hold that has ended may die here. Later, in its __del__, Python would ignore what a signal
        handler raises.
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
        wait = self.wait if timeout is UNSET else check_wait(timeout)
        return NO_WAIT if wait is None else FOREVER if wait == math.inf else time.monotonic() + wait

    def _enter_again(self, owner: object, entered: list[Hold]) -> Optional[Hold]:
        """Return the Hold that `owner` has, one acquire deeper, or None. Raises SoloError unless
        the Lock is reentrant.
        """
        hold = self._holds.get(owner)
        if hold is None:
            return None
        with blocking.Deferred():  # another thread may release it
            if not hold.locked:
                return None
            if not self.reentrant:
                held = f"{self.name}: held by this thread or task already"
                raise make_own_wait(held, " (reentrant=True counts)")
            hold.depth += 1
            entered.append(hold)
        return hold

    def _keep(self, owner: object, attempt: LockAttempt, entered: list[Hold]) -> Hold:
        """Note that `owner` has acquired the Hold of the attempt, and return it. Raises the error
        of the attempt.
        """
        if attempt.error is not None:
            raise attempt.error
        self._holds[owner] = hold = cast(Hold, attempt.hold)
        hold._owner = weakref.ref(owner)
        hold._thread = weakref.ref(threading.current_thread())
        entered.append(hold)
        return hold

    def __enter__(self) -> Hold:
        entered: list[Hold] = []
        try:
            self._entered.append(self._acquire(UNSET, entered))
            return entered[0]
        except BaseException:  # a signal handler may raise after the lock was acquired
            if entered:
                blocking.perform(lambda: self._undo(entered.pop()))
            raise

    def __exit__(self, *_: object) -> None:
        blocking.perform(self._leave)

    def _leave(self) -> None:
        """End the block of this thread or task."""
        if not self._undo(self._pop_entered()) and not self._is_forked:
            why = "this block's hold was released before its end (with lock.acquire(): may be)"
            raise SoloError(f"{self.name}: {why}")

    async def __aenter__(self) -> Hold:
        hold = await self.acquire_async()
        self._entered.append(hold)
        return hold

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _pop_entered(self) -> Optional[Hold]:
        """Return the hold of the block that ends: the last one that this thread or task entered,
        else the last one.

        Without a block (`__exit__` called by hand) it is that of this thread or task, but not in a
        forked child.
        """
        own = self._holds.get(find_owner())
        if not self._entered:
            return None if self._is_forked else own
        at = -1 - (self._entered[::-1].index(own) if own in self._entered else 0)
        return self._entered.pop(at)

    def __call__(self, function: Function) -> Function:
        """Decorate a function: each call holds the lock."""
        import inspect

        if inspect.isasyncgenfunction(function):
            raise UsageError(
                "an asynchronous generator cannot be decorated: use async with inside of it"
            )

        async def guard_coroutine(*args: object, **kwargs: object) -> object:
            with await self.acquire_async():
                return await function(*args, **kwargs)

        def guard_generator(*args: Any, **kwargs: Any) -> Any:
            with self.acquire():  # released here, also if another thread closes the generator
                return (yield from function(*args, **kwargs))

        def guard(*args: object, **kwargs: object) -> object:
            with self:
                return refuse_unfinished(function(*args, **kwargs))

        guarded: Callable[..., object] = (
            guard_generator if inspect.isgeneratorfunction(function) else guard
        )
        guarded = guard_coroutine if inspect.iscoroutinefunction(function) else guarded
        return cast(Function, functools.wraps(function)(guarded))

    def __getstate__(self) -> dict[str, object]:
        own = ("_holds", "_entered", "_asking", "_is_forked")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._start()

    def __repr__(self) -> str:
        return f"<solo.Lock on {', '.join(self.names)}{', held' if self.locked else ''}>"


def refuse_unfinished(result: object) -> object:
    """Return the result of a decorated function. Raises UsageError if its work has yet to be done,
    without the lock.
    """
    kind = UNFINISHED.get(type(result))
    if kind is None:
        return result
    if isinstance(result, CoroutineType):
        result.close()  # else Python warns that it was never awaited
    remedy = (
        "decorate the function that is defined with async def or yield, or use the Lock "
        "inside of it"
    )
    raise UsageError(
        f"the decorated function returned {kind}, which would run without the lock: {remedy}"
    )


class GreenEvent:
    """An event that any thread may set, while gevent's hub runs the other greenlets of the thread
    that waits.
    """

    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self.event = Event()
        self.watcher = hub.loop.async_()
        self.watcher.start(self.hear)
        self.set = self.watcher.send
        self.wait = self.event.wait

    def hear(self) -> None:
        self.event.set()
        self.watcher.close()


def find_owner() -> object:
    """Return the owner of a hold: the running task if an event loop runs here, else the thread."""
    # another thread may be importing it
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)
    try:
        task = current_task and current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()


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
