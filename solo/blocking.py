"""How a Python program waits: one thread blocks, until a time limit or until it is told to give up, and needs no signal. Cold.

flock(2) itself can do neither. So another thread blocks in it, one for each file and mode, however often and by however many it
is waited for; it stays until it has its turn. Then it tells all who wait for a ticket to be gone, or hands its own open file,
with the lock, to one of those who want to have it.
"""

import _signal
import os
import select
import threading
from errno import EAGAIN
from fcntl import F_GETFL, LOCK_SH, fcntl, flock
from time import monotonic

from solo import kernel
from solo.kernel import FOREVER, close

SIGNALS = sorted(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})
PAUSE = 0.05  # seconds, after what can not be waited for

mine = threading.local()  # .waiter: the Waiter of what this thread is trying to get
watched_lock = threading.Lock()
watched: dict = {}  # (kind, device, inode, mode) -> its Watch


class Cancelled(BaseException):
    """Whoever wanted it does not want it any more."""


class WouldWait(BaseException):
    """It can not be had at once."""


class Hasty:
    """The waiter of one that must not block: any attempt to ends it."""

    given: list = []

    def wait(self, poller, deadline: float) -> bool:
        raise WouldWait

    def close(self):
        """It has nothing open."""


class Waiter:
    """One that may block, in one thread; any other may wake or cancel it."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.lock = threading.Lock()
        self.is_cancelled = False
        self.given: list = []

    def give(self, what):
        """What it waits for is there."""
        self.given.append(what)
        self.wake()

    def wake(self):
        with self.lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.wake()

    def close(self) -> None:
        with self.lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                close(fd)

    def wait(self, poller, deadline: float) -> bool:
        """Poll until something is there, False once `deadline` (monotonic) has passed. Raises Cancelled."""
        poller.register(self.fd, select.POLLIN)
        left = None if deadline == FOREVER else max(0.0, deadline - monotonic()) * 1000
        ready = poller.poll(left)
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
        self.fd = os.open(f"/proc/self/fd/{fd}", access | os.O_CLOEXEC)
        self.mode = mode
        self.key = key
        self.waiters: list = []

    def start(self):
        watched[self.key] = self
        try:
            threading.Thread(target=self.run, name="solo watches a file", daemon=True).start()
        except RuntimeError as error:
            del watched[self.key]
            close(self.fd)
            raise OSError(EAGAIN, str(error)) from None

    def run(self):
        try:
            flock(self.fd, self.mode)
        except OSError:
            threading.Event().wait(PAUSE)
        with watched_lock:
            del watched[self.key]
            self.tell()

    def tell(self):
        """The ticket is gone: all may look again."""
        close(self.fd)
        for waiter in self.waiters:
            waiter.give(None)


class Take(Watch):
    """The same for one that wants to have the lock."""

    def tell(self):
        if not self.waiters:
            close(self.fd)
            return
        first, *others = self.waiters
        if others:
            again = Take(self.fd, self.mode, self.key)
            again.waiters = others
            again.start()
        first.give(self.fd)


class Blocker:
    """What kernel.py calls instead of setting alarms. Both block until `deadline`, and then give False. Raise Cancelled."""

    @staticmethod
    def wait_unlocked(fd: int, deadline: float) -> bool:
        """Until nobody holds a lock on the file of `fd`."""
        return wait(Watch, fd, LOCK_SH, deadline)

    @staticmethod
    def wait_lock(fd: int, mode: int, deadline: float) -> bool:
        """Until `fd` is locked; it is then another open file."""
        return wait(Take, fd, mode, deadline)

    @staticmethod
    def wait_poll(poller, deadline: float) -> bool:
        """poll(2)."""
        return mine.waiter.wait(poller, deadline)


def wait(kind: type, fd: int, mode: int, deadline: float) -> bool:
    waiter, stat = mine.waiter, os.fstat(fd)
    if isinstance(waiter, Hasty):
        raise WouldWait
    key = kind, stat.st_dev, stat.st_ino, mode
    with watched_lock:
        if key not in watched:
            kind(fd, mode, key).start()
        watch = watched[key]
        waiter.given = []
        watch.waiters.append(waiter)
    try:
        while not waiter.given and waiter.wait(select.poll(), deadline):
            pass
    finally:
        with watched_lock:
            for other in watched.values():
                if waiter in other.waiters:
                    other.waiters.remove(waiter)
        for given in filter(None, waiter.given):
            os.dup2(given, fd, inheritable=False)
            close(given)
    return bool(waiter.given)


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Deferred:
    """Until the end of its block no signal handler of the program runs, as one may raise anything anywhere; then they do.

    Those run in the main thread: elsewhere there is nothing to do. For a moment only.
    """

    def __init__(self) -> None:
        self.changed: list = []
        self.received: list = []

    def __enter__(self):
        try:
            for number in SIGNALS if is_main_thread() else ():
                handler = _signal.getsignal(number)
                if callable(handler):
                    self.changed.append((number, handler))
                    _signal.signal(number, self.receive)
            return self
        except BaseException:
            self.restore()
            raise

    def receive(self, number, _):
        self.received.append(number)

    def __exit__(self, *_):
        try:
            self.restore()
        except BaseException:  # of a handler that is back already, while another is not
            self.restore()
            raise
        while self.received:
            _signal.raise_signal(self.received.pop(0))

    def restore(self):
        while self.changed:
            _signal.signal(*self.changed[-1])
            self.changed.pop()


def forget():
    """In a forked child: the threads are not there."""
    global watched_lock
    watched_lock = threading.Lock()
    for watch in watched.values():
        close(watch.fd)
    watched.clear()


kernel.block_by(Blocker)
os.register_at_fork(after_in_child=forget)
