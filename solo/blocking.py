"""How a Python program waits: one thread blocks, until a time limit or until it is told to give up, and needs no signal. Cold.

flock(2) itself can do neither. So another thread blocks in it: one for each ticket that is waited for, however often and by
however many; it stays until that ticket is gone. The invariant: what that thread locks is never what a caller relies on, but
for the gate, whose lock it takes through the caller's own open file.
"""

import os
import select
import threading
from fcntl import LOCK_EX, LOCK_SH, flock
from time import monotonic

from solo import kernel
from solo.kernel import FOREVER, close

PAUSE = 0.05  # seconds, after what can not be waited for

mine = threading.local()  # .waiter: the Waiter of what this thread is trying to get
watched_lock = threading.Lock()
watched: dict = {}  # (device, inode) of a ticket -> its Watch


class Cancelled(BaseException):
    """Whoever wanted it does not want it any more."""


class Waiter:
    """One that may block, in one thread; any other may wake or cancel it."""

    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.lock = threading.Lock()
        self.is_cancelled = False

    def wake(self):
        with self.lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def cancel(self):
        self.is_cancelled = True
        self.wake()

    def close(self):
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
    """A thread that blocks in flock(2) on `fd`, which becomes its own, and then wakes all `waiters`."""

    def __init__(self, fd: int, mode: int, key=None):
        self.fd = fd
        self.mode = mode
        self.key = key
        self.waiters: set = set()
        self.is_over = False

    def start(self):
        try:
            threading.Thread(target=self.run, name="solo watches a ticket", daemon=True).start()
        except RuntimeError as error:
            close(self.fd)
            raise OSError(11, str(error)) from None

    def run(self):
        try:
            flock(self.fd, self.mode)
        except OSError:
            threading.Event().wait(PAUSE)
        close(self.fd)
        with watched_lock:
            self.is_over = True
            watched.pop(self.key, None)
            waiters = list(self.waiters)
        for waiter in waiters:
            waiter.wake()

    def wait(self, waiter: Waiter, deadline: float) -> bool:
        while not self.is_over:
            if not waiter.wait(select.poll(), deadline):
                return self.is_over
        return True


class Blocker:
    """What kernel.py calls instead of setting alarms."""

    @staticmethod
    def wait_lock(fd: int, mode: int, deadline: float) -> bool:
        """Block until `fd` could be locked - only if `mode` is LOCK_EX it is then -, False once `deadline` has passed."""
        waiter = mine.waiter
        with watched_lock:
            watch = watch_gate(fd) if mode == LOCK_EX else watch_ticket(fd)
            watch.waiters.add(waiter)
        try:
            return watch.wait(waiter, deadline)
        finally:
            with watched_lock:
                watch.waiters.discard(waiter)

    @staticmethod
    def wait_poll(poller, deadline: float) -> bool:
        """poll(2) until `deadline`."""
        return mine.waiter.wait(poller, deadline)


def watch_gate(fd: int) -> Watch:
    """Takes the lock through a copy of `fd`. If nobody waits for it any more, the last descriptor's end gives it up."""
    watch = Watch(os.dup(fd), LOCK_EX)
    watch.start()
    return watch


def watch_ticket(fd: int) -> Watch:
    stat = os.fstat(fd)
    key = stat.st_dev, stat.st_ino
    if key not in watched:
        # An open file of its own: a lock taken through a copy would be the caller's too.
        watch = Watch(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC), LOCK_SH, key)
        watch.start()
        watched[key] = watch
    return watched[key]


def forget():
    """In a forked child: the threads are not there."""
    global watched_lock
    watched_lock = threading.Lock()
    for watch in watched.values():
        close(watch.fd)
    watched.clear()


kernel.block_by(Blocker)
os.register_at_fork(after_in_child=forget)
