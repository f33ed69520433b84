"""Reports from a launcher to the program that started it by solo.run(). The exit status could also
be the command's.

A message is three texts, each of which ends with a NUL.
"""

import posix

from solo.errors import LEASE_LOST, TIMED_OUT, SoloError
from solo.journal import Observer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.launcher import Run

STARTED, ENDED, OUTCOMES = "Started", "Ended", {TIMED_OUT: "TimedOut", LEASE_LOST: "LeaseLost"}
# bytes of the last text: with the longest name a message stays below PIPE_BUF, so one write sends
# it
REPORT_LIMIT = 2000


class Report(Observer):
    """A pipe to that program, which the command does not inherit. A message that cannot be sent is
    dropped.
    """

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.descriptors = (pipe,)
        posix.set_inheritable(pipe, False)

    def started(self, run: "Run") -> None:
        self.send(STARTED)

    def ended(self, run: "Run") -> None:
        if run.outcome is not None:
            self.send(OUTCOMES[run.outcome])
        else:
            self.send(ENDED, "", str(run.code))

    def refused(self, error: SoloError) -> None:
        self.send(type(error).__name__, error.name, str(error))

    def send(self, kind: str, name: str = "", text: str = "") -> None:
        parts = [
            part.encode("utf-8", "surrogateescape").replace(b"\0", b"")
            for part in (kind, name, text)
        ]
        parts[2] = parts[2][:REPORT_LIMIT]
        try:
            posix.write(self.pipe, b"".join([part + b"\0" for part in parts]))
        except OSError:
            pass


def read_last(report: bytes) -> "tuple[str, str, str] | None":
    """Return (kind, name, text) of the last message of a report; None if there is none."""
    parts = report.decode("utf-8", "surrogateescape").split("\0")
    end = len(parts) // 3 * 3
    return (parts[end - 3], parts[end - 2], parts[end - 1]) if end else None
