"""A process that gets a signal: identified by its pid and start time, and signaled through a pidfd.

Without pidfds (before Linux 5.3, a seccomp filter, a Python built on old headers) kill(2) sends the
signal between two checks of the start time. A process that gets the pid after the first may get the
signal; the second then reports it.
"""

import _signal
import posix
from _signal import SIGCONT, SIGKILL
from errno import ENOSYS

from solo.errors import SoloError
from solo.identity import Origin, find_pid, is_hidden, is_stopped, read_stat
from solo.kernel import EPERM, close
from solo.process.watch import open_pidfd, poll

REFUSALS = (ENOSYS, EPERM)  # of pidfd_send_signal(2) by an old kernel and by seccomp filters
HERE = Origin("", "", "", "")  # of a process that we found in /proc


class Recipient:
    """(pid, start) in the origin `theirs`. Close it after use, or use it in a `with` block."""

    __slots__ = ("mine", "pid", "pidfd", "process", "theirs")

    def __init__(
        self, process: "tuple[int, int]", theirs: Origin = HERE, mine: Origin = HERE
    ) -> None:
        """Find the recorded process. Raises ProcessLookupError if it is gone, SoloError if it is
        hidden.
        """
        self.process = process
        self.theirs = theirs
        self.mine = mine
        self.pid = find_pid(process, theirs, mine)
        if self.pid <= 0:
            raise self.make_error("it cannot be seen from here")
        self.pidfd = open_pidfd(process, theirs, mine)
        if self.pidfd is None:
            self.verify()

    def end(self, signal: int) -> None:
        """Send `signal`, and SIGCONT if the process is stopped. Raises what `send` raises."""
        self.send(signal)
        if signal != SIGKILL and is_stopped(self.pid):
            self.send(SIGCONT)

    def send(self, signal: int) -> None:
        """Send `signal`. Raises ProcessLookupError if the process is gone, another OSError or
        SoloError.
        """
        try:
            if self.pidfd is not None:
                return _signal.pidfd_send_signal(self.pidfd, signal)
        except AttributeError:
            pass  # a Python built on old headers
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
        self.verify()
        posix.kill(self.pid, signal)
        try:
            stat = read_stat(self.pid)
        except OSError:
            return  # it has ended
        if not stat.is_dead() and not stat.is_same(self.process[1], self.theirs, self.mine):
            raise self.make_error("another process got its pid, and perhaps the signal")

    def verify(self) -> None:
        """Verify that the process is the recorded one. Raises ProcessLookupError if it is gone,
        SoloError if it is hidden.
        """
        try:
            if read_stat(self.pid).is_same(self.process[1], self.theirs, self.mine):
                return
        except OSError:
            if is_hidden(self.pid):
                raise self.make_error("it cannot be seen from here")
        raise ProcessLookupError

    def is_gone(self) -> bool:
        """Return whether the process has ended. False if it cannot be seen any more."""
        try:
            if self.pidfd is not None:
                return poll([self.pidfd], 0)
            self.verify()
        except ProcessLookupError:
            return True
        except SoloError:
            pass
        return False

    def make_error(self, reason: str) -> SoloError:
        from solo.process.owners import describe_pid

        return SoloError(
            f"cannot end pid {describe_pid(self.process, self.theirs, self.mine)}: {reason}"
        )

    def __enter__(self) -> "Recipient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pidfd, self.pidfd = self.pidfd, None
        if pidfd is not None:
            close(pidfd)
