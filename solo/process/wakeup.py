"""A descriptor that one thread makes readable, to wake another from poll(2)."""

import posix

from solo.kernel import CLOSED, close


class Wakeup:
    """A pipe: Python 3.9 has no eventfd(2). `fd` is readable from `send` until `clear`."""

    def __init__(self) -> None:
        self.fd, self.writer = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)

    def fileno(self) -> int:
        return self.fd

    def send(self) -> None:
        """Make `fd` readable. Do nothing after `close`."""
        try:
            if self.writer != CLOSED:
                posix.write(self.writer, b"!")
        except BlockingIOError:
            pass  # the pipe is full, so it is readable

    def clear(self) -> None:
        """Make `fd` unreadable until the next `send`."""
        try:
            posix.read(self.fd, 65536)  # all that a pipe can hold
        except BlockingIOError:
            pass  # it was not readable

    def close(self) -> None:
        fds = self.fd, self.writer
        self.fd = self.writer = CLOSED  # first: a closed number may soon be another file's
        for fd in fds:
            close(fd)
