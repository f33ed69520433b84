"""Blocks a thread of a user's program until a name is free, without alarms and without losing a
signal.

THREADS. An acquire in the main thread first tries there, without a `Waiter`. If it would have to
wait, a thread of its own waits, and the main thread waits for that, so that signal handlers run
meanwhile; so do those of asyncio and gevent, while the loop or the hub runs. Any other thread runs
no signal handlers, and waits itself. flock(2) has no time limit, so a waiting thread does not call
it: one more thread (`Watch`) blocks in flock(2) or fcntl(2), for each ticket or file and mode. It
hands its locked descriptor to one of its waiters, and wakes the others. The last that gives up
interrupts it.

THE LOCK `acting`. A thread holds it whenever it touches a queue, a ticket or `watched`, and gives
it up only in the waits of `Waiter`, and while it blocks in flock(2). The gate of a queue is never
held across such a wait. fork takes `acting` too: a child must find no half-done change, whose
descriptors it could not know. It is reentrant, because the garbage collector may run a __del__ that
releases a Hold in the middle of an acquire.

EXCEPTIONS. Only a signal handler can raise at any line, and only in the main thread. While a thread
acts, `Deferred` replaces every handler by a recorder; at its end the handlers are restored and
called, and may raise there. One that raises before an acquire begins to act costs nothing; after
it, the `except` of `Lock._acquire` abandons the attempt, that of `Lock.__enter__` releases the
Hold. Whatever releases does so by `perform`, also if one raises on the way. In the first
instructions of `__exit__`, or between the return of `acquire` and the assignment of its result,
nothing helps, as the manual says. An abandoned attempt is cancelled: its thread releases all that
it has acquired.

THE END. While Python ends, a daemon thread may be frozen as it holds `acting`. `can_act` then
returns False, and the kernel releases all locks.
"""

import _signal
import _thread
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable
from errno import EAGAIN
from fcntl import F_DUPFD_CLOEXEC, F_GETFL, LOCK_UN, fcntl
from itertools import compress
from time import monotonic
from types import FrameType
from typing import Any, Optional, Union, cast

from solo import kernel
from solo.kernel import FOREVER, close
from solo.process import interrupt
from solo.process.interrupt import Call
from solo.process.wakeup import Wakeup

CANCEL_POLL = 0.05  # seconds
# seconds; a thread that was interrupted before it began to block needs another signal
AGAIN_AFTER = 0.001
LONGEST_POLL = 1e9  # milliseconds; poll(2) takes an int
SIGNALS = sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})
NO_HANDLERS = "main interpreter"  # in Python's message to a subinterpreter, where no handler runs
AGAIN = "again"
Answer = Union[str, int, OSError]  # AGAIN, a locked descriptor
Handler = Callable[[int, Optional[FrameType]], object]
Signal = tuple[Handler, int, Optional[FrameType]]
Key = tuple[int, int, int, Call]  # device, inode, mode, what locks

acting = _thread.RLock()
mine = threading.local()  # .attempt: that of this thread
watched: "dict[Key, Watch]" = {}
deferring: "list[Deferred]" = []  # those of the main thread whose handlers may not be restored yet


class Cancelled(BaseException):
    """The attempt was abandoned."""


class WouldWait(BaseException):
    """The lock is not free, and the attempt must not block."""


class Waiter:
    """An attempt that may block. Any thread may cancel it at any time, or, while acting, do all
    else with it.
    """

    def __init__(self) -> None:
        self.bell = find_native("allocate_lock")()  # locked until it is woken
        self.bell.acquire()
        self.wakeup: Optional[Wakeup] = None  # the same for poll(2), made when it is called
        self.is_cancelled = False
        self.answer: Optional[Answer] = None

    def give(self, answer: Answer) -> None:
        """End its wait by AGAIN, a locked descriptor, which it then owns, or an OSError."""
        self.answer = answer
        self.wake()

    def wake(self) -> None:
        if self.bell.locked():
            self.bell.release()
        if self.wakeup is not None:
            self.wakeup.send()

    def cancel(self) -> None:
        self.is_cancelled = True
        with acting:
            self.wake()

    def close(self) -> None:
        if self.wakeup is not None:
            self.wakeup.close()
        if isinstance(self.answer, int):  # not read yet: only in a forked child
            close(self.answer)

    def wait_answer(self, deadline: float) -> bool:
        """Block until this waiter is woken. Return False once `deadline` has passed. Raises
        Cancelled.
        """
        left = max(0.0, min(deadline - monotonic(), threading.TIMEOUT_MAX))
        return bool(self.block(self.bell.acquire, True, left))

    def wait(self, poller: "select.poll", deadline: float) -> bool:
        """Block until `poller` or this waiter is ready. Return False once `deadline` has passed.
        Raises Cancelled.
        """
        self.wakeup = self.wakeup or Wakeup()
        poller.register(self.wakeup, select.POLLIN)
        try:
            ready: list[tuple[int, int]] = []
            while not ready:
                left = (
                    None
                    if deadline == FOREVER
                    else max(0.0, min((deadline - monotonic()) * 1000, LONGEST_POLL))
                )
                ready = self.block(poller.poll, left)
                if monotonic() >= deadline:
                    break
        finally:
            poller.unregister(self.wakeup)
        if any(fd == self.wakeup.fd for fd, _ in ready):
            self.wakeup.clear()
        return bool(ready)

    def block(self, call: Callable[..., Any], *words: Any) -> Any:
        """Make a call that blocks, while this thread does not act. Raises Cancelled."""
        if not self.is_cancelled:
            acting.release()
            try:
                result = call(*words)
            finally:
                acting.acquire()
        if self.is_cancelled:
            raise Cancelled
        return result


class Watch:
    """A thread that blocks until it can lock the file of `fd`, through an open file of its own."""

    def __init__(self, fd: int, key: Key) -> None:
        access = fcntl(fd, F_GETFL) & os.O_ACCMODE
        # Open it anew: a copy of the descriptor would share its lock.
        self.fd = keep(os.open(f"/proc/self/fd/{fd}", access | os.O_CLOEXEC))
        self.key = key
        _, _, self.mode, self.lock = key
        self.waiters: list[Waiter] = []
        self.thread: Optional[int] = None
        self.stat = os.fstat(self.fd)
        self.is_left = False
        self.ended = find_native("allocate_lock")()  # locked until the thread no longer blocks
        self.ended.acquire()

    def start(self) -> bool:
        """Start the thread. Return False if Python is ending. Raises OSError."""
        interrupt.prepare()  # here, where one thread acts
        try:
            self.thread = start_thread(self.run, "solo watches a file")
        finally:
            if self.thread is None:
                close(self.fd)
            else:
                watched[self.key] = self
        return self.thread is not None

    def run(self) -> None:
        try:
            interrupt.lock(self.lock, self.fd, self.mode, lambda: self.is_left)
            error = None
        except OSError as failure:
            error = failure
        self.ended.release()
        with acting:  # so the thread lives as long as `leave` may interrupt it
            if watched.get(self.key) is self:  # else a fork has replaced `watched`
                del watched[self.key]
                self.finish(error)

    def leave(self) -> None:
        """End the thread, which would lock the file for nobody. If that is not possible, it
        stays.
        """
        self.is_left = True
        while not self.ended.acquire(timeout=AGAIN_AFTER):
            if self.thread is None or not interrupt.interrupt(self.thread, self.lock):
                self.is_left = False
                return
        del watched[self.key]
        self.unlock()

    def finish(self, error: Optional[OSError]) -> None:
        """Give the locked file to the first waiter. The others look again."""
        answers: list[Answer] = [error or AGAIN for _ in self.waiters]
        if answers and error is None and self.is_open():
            answers[0] = self.fd
        else:
            self.unlock()
        for waiter, answer in zip(self.waiters, answers):
            waiter.give(answer)

    def unlock(self) -> None:
        if self.is_open():
            try:
                self.lock(self.fd, LOCK_UN)
            except OSError:
                pass  # it was not locked
            close(self.fd)

    def is_open(self) -> bool:
        """Return whether the file is still open. If the program has closed it, the descriptor may
        be another file now.
        """
        try:
            return os.path.samestat(self.stat, os.fstat(self.fd))
        except OSError:
            return False


# kernel.py calls the next two instead of setting alarms. At `deadline` they return False. They
# raise Cancelled, OSError, and WouldWait in an attempt without a Waiter.


def wait_lock(fd: int, mode: int, deadline: float, lock: Call) -> bool:
    """Block until `lock` has locked `fd`. It is another open file of the same inode then."""
    answer: Optional[Answer] = AGAIN
    while answer == AGAIN:
        answer = wait(fd, mode, deadline, lock)
    return answer is not None


def wait_poll(poller: "select.poll", deadline: float) -> bool:
    return find_waiter().wait(poller, deadline)


def find_waiter() -> Waiter:
    """Return the Waiter of this thread's attempt. Raises WouldWait if it has none."""
    if mine.attempt.waiter is None:
        raise WouldWait
    return cast(Waiter, mine.attempt.waiter)


def wait(fd: int, mode: int, deadline: float, lock: Call) -> Optional[Answer]:
    """Block until a watch answers. Put a locked descriptor in the place of `fd`. Return the answer,
    None at `deadline`.
    """
    waiter, stat = find_waiter(), os.fstat(fd)
    key = stat.st_dev, stat.st_ino, mode, lock
    watch = watched.get(key)
    if watch is None:
        watch = Watch(fd, key)
        if not watch.start():
            return look(waiter, fd, mode, deadline, lock)
    watch.waiters.append(waiter)
    try:
        while waiter.answer is None and waiter.wait_answer(deadline):
            pass
    finally:
        if waiter in watch.waiters:
            watch.waiters.remove(waiter)
        if not watch.waiters and watched.get(key) is watch:
            watch.leave()
        answer, waiter.answer = waiter.answer, None
        if isinstance(answer, int):
            os.dup2(answer, fd, inheritable=False)
            close(answer)
    if isinstance(answer, OSError):
        raise answer
    return answer


def look(waiter: Waiter, fd: int, mode: int, deadline: float, lock: Call) -> Optional[int]:
    """Try to lock `fd` until `deadline`, as no thread can be started. Return it, or None."""
    while not kernel.try_lock(fd, mode, lock):
        if monotonic() >= deadline:
            return None
        waiter.wait_answer(min(deadline, monotonic() + CANCEL_POLL))
    return fd


# gevent and eventlet replace Python's threads by greenlets, which all stop if one blocks. gevent
# keeps the originals.


def is_gevent() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def is_eventlet() -> bool:
    patcher = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("thread"))


def find_native(name: str) -> Any:
    """Return what the module _thread had before gevent: it makes threads of the system and their
    locks.
    """
    return (
        sys.modules["gevent.monkey"].get_original("_thread", name)
        if is_gevent()
        else getattr(_thread, name)
    )


def start_thread(run: Callable[[], object], name: str) -> Optional[int]:
    """Start a thread of the system. Return its identifier, None if Python is ending: 3.12 starts
    none. Raises OSError.
    """
    try:
        if is_gevent():
            return int(find_native("start_new_thread")(run, ()))
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread.ident
    except RuntimeError as error:
        if "shutdown" in str(error):
            return None
        raise OSError(EAGAIN, str(error)) from None


def keep(fd: int) -> int:
    """Return `fd`, or a copy above 2 if the program has closed its standard descriptors."""
    if fd > 2:
        return fd
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, 3)
    finally:
        close(fd)


def is_main_thread() -> bool:
    """Return whether Python calls signal handlers in this thread of the system."""
    if is_gevent():
        return _thread.get_native_id() == os.getpid()
    return threading.current_thread() is threading.main_thread()


class Deferred:
    """Acts during the block, a short one, and puts off the signal handlers of the main thread: they
    may raise anywhere.
    """

    def __init__(self) -> None:
        self.changed: dict[int, Handler] = {}  # the handlers that `receive` replaces, by signal
        self.received: list[Signal] = []

    def __enter__(self) -> "Deferred":
        has_handler = map(callable, map(_signal.getsignal, SIGNALS))  # one in Python
        handled = list(compress(SIGNALS, has_handler)) if is_main_thread() else ()
        acts: list[bool] = []
        try:
            # One call locks and notes it, as a handler may raise after any call. It may also in
            # `with acting`: Python 3.14 runs handlers between the `__enter__` of an object in C and
            # the block.
            acts.extend(map(acting.acquire, (True,)))
            if handled:
                deferring[:] = [*(earlier for earlier in deferring if earlier.changed), self]
            self.put_off_all(handled)
        except BaseException:
            if acts:
                self.__exit__()
            raise
        return self

    def put_off_all(self, numbers: Iterable[int]) -> None:
        """Replace the handlers of these signals. In a subinterpreter there are none to replace."""
        try:
            for number in numbers:
                self.put_off(number)
        except ValueError as error:
            if NO_HANDLERS not in str(error):
                raise
            self.changed.clear()

    # Loop bodies are functions: in Python 3.13 a jump back from an `if` is outside the `try`, but a
    # handler may raise there.

    def put_off(self, number: int) -> None:
        handler = _signal.getsignal(number)
        # Leave the handler of asyncio: it does nothing, and replacing it would lose its flag.
        if callable(handler) and getattr(handler, "__name__", "") != "_sighandler_noop":
            self.changed[number] = handler
            _signal.signal(number, self.receive)

    def put_back(self) -> None:
        """Restore the handlers, the last one first."""
        while self.changed:
            _signal.signal(*next(reversed(self.changed.items())))
            self.changed.popitem()

    def receive(self, number: int, frame: Optional[FrameType]) -> None:
        """Record a signal; this is the handler meanwhile."""
        self.received.append((self.changed[number], number, frame))

    def __exit__(self, *_: object) -> None:
        # Release first: once a handler is restored it may raise anywhere, in Python 3.9 also on the
        # way to a `finally`.
        try:
            acting.release()
        finally:
            try:
                self.restore()
            finally:
                run_handlers(self.received)

    def restore(self) -> None:
        try:
            self.put_back()
        finally:
            if self.changed:  # a restored handler has raised
                self.restore()


def perform(change: Callable[[], object]) -> None:
    """Call `change`, which releases, in a Deferred block, even if a handler raises before that:
    then raise it afterwards. Raises what `change` does. Do nothing where nobody can act.
    """
    begun: list[bool] = []
    try:
        if can_act():
            with Deferred():
                begun.append(True)
                change()
    except BaseException:
        if not begun:
            perform(change)
        raise


def can_act() -> bool:
    """Return whether this thread can act. Not if Python, while it ends, has frozen a thread that
    acts.
    """
    if sys.is_finalizing():
        if not acting.acquire(blocking=False):
            return False
        acting.release()
    return True


def run_handlers(received: list[Signal]) -> None:
    """Call all recorded handlers in their order, even if one raises."""
    if received:
        handler, number, frame = received.pop(0)
        try:
            handler(number, frame)
        finally:
            run_handlers(received)


def forget() -> None:
    """Start anew in a forked child: the threads are not there, and it is the parent that acts."""
    acting._at_fork_reinit()  # type: ignore[attr-defined]  # as concurrent.futures does
    for deferred in reversed(deferring):
        for change in reversed(deferred.changed.items()):
            # another thread has forked: the main thread, which would do this, is not here
            _signal.signal(*change)
    for watch in watched.values():
        close(watch.fd)
    watched.clear()


kernel.blocker = sys.modules[__name__]
# Functions in C: in one of Python a handler may raise before its first line, and fork(2) would
# ignore the exception.
os.register_at_fork(before=acting.acquire, after_in_parent=acting.release, after_in_child=forget)
