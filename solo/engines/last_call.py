"""Ends the launcher soon after a signal, even if the engine is silent while all signals are blocked."""

import posix
from _signal import SIG_UNBLOCK, pthread_sigmask, sigpending
from _thread import allocate_lock
from time import sleep

from solo.engines.network import start_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TIMEOUT = 0.4  # seconds of one call after a signal: one may fail, and the next one, on a new connection, succeed
DELAY = 0.8  # seconds from the signal to the end
LOOK_AGAIN = 0.05  # seconds


class LastCall:
    """Calls `end(number)` in a thread, DELAY after the signal `number`, unless `close` was called.

    Until then the main thread may finish what it does. That is the signal that has come, or the first one of the
    blocked `signals`: it stays pending.
    """

    def __init__(self, signals: "Iterable[int]", end: "Callable[[int], None]", number: int = 0) -> None:
        self.signals = set(signals)
        self.end = end
        self.number = number
        self.is_over = False
        self.lock = allocate_lock()
        start_thread(self.run)  # without a thread the calls end by their timeouts

    def run(self) -> None:
        while not self.number:
            sleep(LOOK_AGAIN)
            if self.is_over:
                return
            self.number = min(sigpending() & self.signals, default=0)
        sleep(DELAY)
        with self.lock:
            if not self.is_over:
                self.end(self.number)

    def close(self) -> None:
        with self.lock:
            self.is_over = True


def die(number: int) -> None:
    """Die of a signal with its default action, in any thread."""
    posix.kill(posix.getpid(), number)
    pthread_sigmask(SIG_UNBLOCK, {number})
