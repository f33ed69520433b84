"""The handoff, prepared: a waiter that has only holds in its way forks its command, which waits for
the go message.

On an idle machine the first word of the next command comes after 2.95 ms instead of 3.38 (200
handoffs each way in turn). The costs: ps(1) shows a second solo beside the waiter at the head; if
somebody stops that one, the command starts only once it is continued.

A waiter of the launcher loads this file when it joins the queue: in its turn that would cost what
it saves.
"""

import _signal
import posix
from _signal import SIG_BLOCK, SIG_SETMASK, SIGALRM

from solo.kernel import HIGHEST_FD, list_descriptors
from solo.start import ALL_SIGNALS, CHANGED_BY_PYTHON, STOPPING, Starter, wait_go

# Signals that a launcher survives in the queue: it is continued, has a time limit, or ignores them
# as Python does.
SURVIVED = STOPPING | {SIGALRM, *CHANGED_BY_PYTHON}


def fork_early(starter: Starter) -> None:
    """Fork the command, which waits for our turn. Ignore a failure: `starter.start` forks again."""
    if starter.child is not None:
        return
    mask = _signal.pthread_sigmask(SIG_BLOCK, ALL_SIGNALS)
    try:
        starter.child = starter.fork(lambda ready: wait_turn(ready, starter))
    except OSError:
        pass
    finally:
        # until its turn a signal simply ends the launcher
        _signal.pthread_sigmask(SIG_SETMASK, mask)


def wait_turn(ready: int, starter: Starter) -> "list[bytes] | None":
    """Wait for the go message in the child, as wait_go does, with nothing of the launcher but the
    pipe `ready`.
    """
    close_private(ready)
    try:
        # Let execve(2) fail once: it copies the memory pages that it writes, first shared with the
        # launcher, before our turn.
        posix.execve("", starter.words, starter.environment)
    except OSError:
        pass
    variables = wait_go(ready, 0)
    while _signal.sigtimedwait(SURVIVED, 0):
        pass  # they were sent to the launcher, which survived them
    return variables


def close_private(kept: int) -> None:
    """Close every close-on-exec descriptor but `kept`, in a child that waits: any copy of it would
    keep the lock.
    """
    try:
        descriptors: set[int] | range = list_descriptors()
    except OSError:
        descriptors = range(HIGHEST_FD)  # listing them takes a free descriptor
    for fd in descriptors:
        try:
            if fd != kept and not posix.get_inheritable(fd):
                posix.close(fd)
        except OSError:
            continue
