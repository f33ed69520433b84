"""A process that outlives the one that forked it: it must keep nothing of its caller busy."""

import posix
from _signal import SIG_DFL, SIGKILL, SIGSTOP, signal, valid_signals


def detach() -> None:
    """Leave the caller's session, terminal, streams and directory, not its other descriptors; reset dispositions."""
    posix.setsid()
    for number in valid_signals() - {SIGKILL, SIGSTOP}:
        signal(number, SIG_DFL)
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
        posix.set_inheritable(fd, True)  # dup2 does nothing if they are the same
    posix.chdir("/")
