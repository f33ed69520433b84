"""How a thread of somebody's program waits for a name, without alarms and without losing a signal. Cold.

THREADS. An acquire in the main thread first tries in that thread (`Hasty`). If it would have to wait, a thread of ours waits for
it and the main thread waits for that thread, so that signal handlers run meanwhile. An acquire of asyncio does the same, and the
event loop goes on. Any other thread runs no signal handlers, and waits itself. flock(2) has no time limit and cannot be
cancelled, so whoever waits does not call it: one more thread (`Watch`) blocks in flock(2), for each ticket or file and mode.
It tells all its waiters when the ticket is gone, or hands its locked descriptor to one of them (`Take`). It cannot be stopped:
after a time limit it stays until the file is unlocked. A ticket of this process needs no such thread (`OwnWatch`): the thread
that removes it wakes the waiters.

THE LOCK `acting`. A thread holds it whenever it touches a queue, a ticket, `watched` or `own_files`, and gives it up only in
`Waiter.wait`, around poll(2), and while it blocks in flock(2). The gate of a queue is never held across such a wait. fork takes
`acting` too, so a child finds nothing half done: it closes what it inherited, makes a new `acting` and starts without watches.
`acting` is reentrant, because the garbage collector may run a __del__ that releases a Hold in the middle of an acquire.

EXCEPTIONS. Only a signal handler raises where no line of ours does, and only in the main thread. `Deferred` puts a recorder in
the place of every handler for the moment of acting; at its end the handlers are put back and called, and may raise there.
A handler may still raise before `Deferred` has begun or after it has ended:
- before an acquire has begun to act: nothing was acquired;
- after it: the `except` of `Lock._acquire` abandons the attempt, that of `Lock.__enter__` releases the Hold;
- at the entry of `__exit__`, before any `try` of ours: `LeaveBlock`;
- between the return of `acquire` and the assignment of its result: nothing helps, the manual says so.
A thread of ours raises into nobody: it keeps the error, and `Try.find_result` raises it in the thread that asked. An attempt that
nobody wants any more is cancelled: its `Waiter.wait` raises Cancelled, and the thread gives back what it has.

THE END. While Python ends, a daemon thread may be frozen as it holds `acting`. `can_act` then says no, and the kernel releases
what is held.
"""

import _signal
import functools
import os
import select
import sys
import threading
from errno import EAGAIN
from fcntl import F_DUPFD_CLOEXEC, F_GETFL, LOCK_SH, LOCK_UN, fcntl, flock
from time import monotonic

from solo import kernel
from solo.kernel import FOREVER, close

LONGEST_POLL = 1e9  # milliseconds; poll(2) takes an int
SIGNALS = sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})
NO_HANDLERS = "main interpreter"  # what Python says to an interpreter within it, where no handler ever runs
GONE, AGAIN = "gone", "again"

acting = threading.RLock()
mine = threading.local()  # .waiter: the Waiter of what this thread is trying to get
watched: dict = {}  # (kind, device, inode, mode) -> its Watch
own_files: dict = {}  # (device, inode) of each ticket of this process -> its descriptor


class Cancelled(BaseException):
    """Whoever wanted it does not want it any more."""


class WouldWait(BaseException):
    """It can not be had at once."""


class Hasty:
    """The waiter of one that must not block: any attempt to ends it."""

    def wait(self, poller, deadline: float) -> bool:
        raise WouldWait

    def close(self):
        """It has nothing open."""


class Waiter:
    """One that may block, in one thread; any other may give it what it waits for, or cancel it. All but `cancel` while acting."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_cancelled = False
        self.given: list = []

    def give(self, what):
        """GONE, AGAIN, a locked descriptor that becomes its own, or an OSError."""
        self.given.append(what)
        self.wake()

    def wake(self):
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def cancel(self) -> None:
        self.is_cancelled = True
        with acting:
            self.wake()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)
        for given in self.given:  # only in a forked child is there any that was not taken
            if isinstance(given, int):
                close(given)
        self.given = []

    def wait(self, poller, deadline: float) -> bool:
        """Poll until something is there, False once `deadline` (monotonic) has passed. Raises Cancelled."""
        if self.is_cancelled:
            raise Cancelled
        poller.register(self.fd, select.POLLIN)
        acting.release()
        try:
            while True:
                left = None if deadline == FOREVER else max(0.0, min((deadline - monotonic()) * 1000, LONGEST_POLL))
                ready = poller.poll(left)
                if ready or monotonic() >= deadline:
                    break
        finally:
            acting.acquire()
            poller.unregister(self.fd)
        if any(fd == self.fd for fd, _ in ready):
            os.eventfd_read(self.fd)
        if self.is_cancelled:
            raise Cancelled
        return bool(ready)


class Watch:
    """A thread that blocks until the file of `fd` can be locked in `mode`; it has an open file of its own."""

    def __init__(self, fd: int, mode: int, key: tuple):
        access = fcntl(fd, F_GETFL) & os.O_ACCMODE
        # A copy of the descriptor would be the same open file: what is locked through one, all have locked.
        self.fd = keep(os.open(f"/proc/self/fd/{fd}", access | os.O_CLOEXEC))
        self.mode = mode
        self.key = key
        self.waiters: list = []
        self.stat = os.fstat(self.fd)

    def start(self):
        try:
            threading.Thread(target=self.run, name="solo watches a file", daemon=True).start()
        except RuntimeError as error:
            close(self.fd)
            raise OSError(EAGAIN, str(error)) from None
        watched[self.key] = self

    def run(self):
        try:
            flock(self.fd, self.mode)
            error = None
        except OSError as failure:
            error = failure
        with acting:
            if watched.get(self.key) is self:  # else we are in a forked child, or it was
                del watched[self.key]
                self.tell(error)

    def tell(self, error):
        """The ticket is gone: all may look again."""
        self.let_go()
        for waiter in self.waiters:
            waiter.give(error or GONE)

    def let_go(self):
        try:
            if not os.path.samestat(self.stat, os.fstat(self.fd)):
                return  # the program has closed all descriptors: it is another file's now
            flock(self.fd, LOCK_UN)
        except OSError:
            pass
        close(self.fd)


class OwnWatch(Watch):
    """The watch of a ticket of this process: `forget_own` ends it, and no thread has to block in flock(2)."""

    def __init__(self, fd: int, mode: int, key: tuple):
        self.fd = -1
        self.key = key
        self.waiters: list = []

    def start(self):
        watched[self.key] = self

    def let_go(self):
        """It has nothing open."""


def remember_own(fd: int) -> tuple:
    """Note that `fd` is a ticket of this process, until `forget_own` of what this returns."""
    stat = os.fstat(fd)
    own_files[stat.st_dev, stat.st_ino] = fd
    return stat.st_dev, stat.st_ino


def is_own(stat) -> bool:
    """Is that file a ticket of this process? Not if the program has closed it: then the inode may be another's by now."""
    try:
        return os.path.samestat(stat, os.fstat(own_files.get((stat.st_dev, stat.st_ino), -1)))
    except OSError:
        return False


def forget_own(file: tuple):
    """The ticket was removed: all that wait for it look again."""
    own_files.pop(file, None)
    key = Watch, *file, LOCK_SH
    if isinstance(watched.get(key), OwnWatch):
        watched.pop(key).tell(None)


class Take(Watch):
    """The same for one that wants to have the lock; the others try again."""

    def tell(self, error):
        if error is not None or not self.waiters:
            super().tell(error)
            return
        first, *others = self.waiters
        first.give(self.fd)
        for waiter in others:
            waiter.give(AGAIN)


# What kernel.py calls instead of setting alarms. All block until `deadline`, and then give False. They raise Cancelled, OSError.


def wait_unlocked(fd: int, deadline: float) -> bool:
    """Until nobody holds a lock on the file of `fd`."""
    return wait(Watch, fd, LOCK_SH, deadline)


def wait_lock(fd: int, mode: int, deadline: float) -> bool:
    """Until `fd` is locked; it is then another open file."""
    return wait(Take, fd, mode, deadline)


def wait_poll(poller, deadline: float) -> bool:
    """poll(2)."""
    return mine.waiter.wait(poller, deadline)


def wait(kind: type, fd: int, mode: int, deadline: float) -> bool:
    waiter, stat = mine.waiter, os.fstat(fd)
    if isinstance(waiter, Hasty):
        raise WouldWait
    key = kind, stat.st_dev, stat.st_ino, mode
    while True:
        if key not in watched:
            (OwnWatch if kind is Watch and is_own(stat) else kind)(fd, mode, key).start()
        watch = watched[key]
        waiter.given = []
        watch.waiters.append(waiter)
        try:
            while not waiter.given and waiter.wait(select.poll(), deadline):
                pass
        finally:
            if waiter in watch.waiters:
                watch.waiters.remove(waiter)
            given = waiter.given[0] if waiter.given else None
            if isinstance(given, int):
                os.dup2(given, fd, inheritable=False)
                close(given)
                waiter.given = []
        if isinstance(given, OSError):
            raise given
        if given != AGAIN:
            return given is not None


def keep(fd: int) -> int:
    """A descriptor that is none of 0 to 2, should the program have closed those."""
    if fd > 2:
        return fd
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, 3)
    finally:
        close(fd)


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Deferred:
    """Act, and until the end of the block no signal handler of the program runs, as one may raise anything anywhere; then they do.

    Those run in the main thread: elsewhere there is nothing to put off. For a moment only.
    """

    def __init__(self) -> None:
        self.changed: list = []
        self.handlers: dict = {}
        self.received: list = []

    def __enter__(self):
        with acting:  # to take a lock by `with` is one step; by acquire() a handler could raise before it is known to be ours
            try:
                for number in SIGNALS if is_main_thread() else ():
                    self.put_off(number)
            except BaseException as error:
                if isinstance(error, ValueError) and NO_HANDLERS in str(error):
                    self.changed.clear()
                else:
                    self.restore()
                    raise
            acting.acquire()  # for the block; no handler can raise any more
        return self

    # In functions of their own: to Python 3.13 a jump back from an `if` is in no `try`, though a handler may raise there.

    def put_off(self, number: int):
        handler = _signal.getsignal(number)
        # That of asyncio does nothing, and has set a flag that would be lost.
        if callable(handler) and getattr(handler, "__name__", "") != "_sighandler_noop":
            self.handlers[number] = handler
            self.changed.append((number, handler))
            _signal.signal(number, self.receive)

    def put_back(self):
        while self.changed:
            _signal.signal(*self.changed[-1])
            self.changed.pop()

    def receive(self, number, frame):
        self.received.append((self.handlers[number], number, frame))

    def __exit__(self, *_):
        try:
            self.end()
        finally:
            run_handlers(self.received)

    def end(self):
        try:
            self.restore()
        finally:
            acting.release()

    def restore(self):
        try:
            self.put_back()
        finally:
            if self.changed:  # a handler that was back already raised
                self.restore()


class LeaveBlock:
    """The `__exit__` of a class: `with` always reaches its `_leave`, though a signal handler raises at any moment.

    A handler may raise at the first bytecode of a Python function, before any `try` of it. But a suspended generator is in its
    `try` already. `with` looks `__exit__` up before it enters the block, and gets a callable in C that resumes such a generator:
    max() calls `send` for each argument, and returns the first, `result`.
    """

    def __init__(self, result: object = False) -> None:
        self.result = result

    def __get__(self, owner, kind=None):
        if owner is None:
            return lambda owner, *error: self.prepare(owner)(*error)  # contextlib.ExitStack looks it up in the class
        return self.prepare(owner)

    def prepare(self, owner):
        leaving = leave_once(owner)
        next(leaving)
        return functools.partial(max, self.result, None, key=leaving.send)


def leave_once(owner):
    """A generator that calls `owner._leave` when it is resumed. `_leave` appends to its list once no handler can raise."""
    left: list = []
    try:
        yield
        owner._leave(left)
    except GeneratorExit:
        return  # the block was never entered
    except BaseException:
        try:
            owner._leave(left)
        finally:
            owner._leave(left)
        raise
    while True:
        yield 0


class Done:
    """What `async with` awaits when it is over already."""

    def __await__(self):
        return iter(())


def can_act() -> bool:
    """Not where Python, at its end, has frozen a thread in the middle of acting. Then the kernel lets go of what is held."""
    if sys.is_finalizing():
        if not acting.acquire(blocking=False):
            return False
        acting.release()
    return True


def run_handlers(received: list):
    """All of them, in their order, though one raises."""
    if received:
        handler, number, frame = received.pop(0)
        try:
            handler(number, frame)
        finally:
            run_handlers(received)


def forget():
    """In a forked child: the threads are not there, and it is the parent that acts."""
    global acting
    acting = threading.RLock()
    for watch in watched.values():
        close(watch.fd)
    watched.clear()
    own_files.clear()


def take_part():
    acting.acquire()


def leave_off():
    acting.release()


kernel.block_by(sys.modules[__name__])
os.register_at_fork(before=take_part, after_in_parent=leave_off, after_in_child=forget)
