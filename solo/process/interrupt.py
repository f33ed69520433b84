"""Lock a file in a thread that another thread can interrupt.

Python repeats a system call that a signal has interrupted: a thread in fcntl.flock() would take the
lock long after its caller gave up. `lock` calls libc instead. `interrupt` sends a real-time signal
that the program does not use; its handler is a function of libc without effect.
"""

import _signal
import functools
import os
from _signal import SIG_DFL, SIG_SETMASK, SIGRTMAX, SIGRTMIN, getsignal
from collections.abc import Callable
from errno import EINTR
from fcntl import F_OFD_SETLKW, flock

Call = Callable[[int, int], object]  # flock(2), or what is called as it is


@functools.cache
def prepare() -> "tuple[int, dict[Call, Call], Callable[[], int]] | None":
    """Return (the signal, the calls of libc by those of Python, what returns errno); None if one is
    not to be had.
    """
    try:
        import _ctypes

        from solo.process import ofd
        from solo.process.library import Bytes, Int, Pointer, find_function, load_library

        libc = load_library()
        call_flock = find_function(libc, "flock")
        call_fcntl = find_function(libc, "fcntl", Int, (Int, Int, Bytes))
        set_handler = find_function(libc, "signal", Pointer, (Int, Pointer))
        number = next(
            number for number in range(SIGRTMAX, SIGRTMIN, -1) if getsignal(number) == SIG_DFL
        )
        # takes an int, as a signal handler does
        before = set_handler(number, _ctypes.dlsym(libc, "abs"))
        if before is not None:  # that of C code, of which Python does not know
            set_handler(number, before)
            return None
        find_function(libc, "siginterrupt")(number, 1)
        calls: dict[Call, Call] = {flock: call_flock}
        calls[ofd.lock] = lambda fd, mode: call_fcntl(fd, F_OFD_SETLKW, ofd.make_request(mode))
        return number, calls, _ctypes.get_errno
    except (ImportError, OSError, StopIteration):
        return None


def lock(call: Call, fd: int, mode: int, is_over: "Callable[[], bool]") -> None:
    """Do as `call`, without the program's signals; after an interrupt only until `is_over`. Raises
    OSError.
    """
    prepared = prepare()
    if prepared is None or call not in prepared[1]:
        call(fd, mode)
        return
    number, calls, get_errno = prepared
    _signal.pthread_sigmask(SIG_SETMASK, _signal.valid_signals() - {number})
    while calls[call](fd, mode):
        error = get_errno()
        if error != EINTR or is_over():
            raise OSError(error, os.strerror(error))


def interrupt(thread: int, call: Call) -> bool:
    """Interrupt a thread that lives in `lock`. Return False if that is not possible."""
    prepared = prepare()
    if prepared is None or call not in prepared[1] or getsignal(prepared[0]) != SIG_DFL:
        return False
    _signal.pthread_kill(thread, prepared[0])
    return True
