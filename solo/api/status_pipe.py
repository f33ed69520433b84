"""Reports from a launcher to the program that started it by solo.run(). The exit status alone could also be the
command's.

A message is a line with the lengths of three texts, then the texts. They may contain any byte, as a name may.
"""

import posix

from solo.errors import LEASE_LOST, TIMED_OUT, SoloError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.launcher import Run

STARTED, OUTCOMES = "Started", {TIMED_OUT: "TimedOut", LEASE_LOST: "LeaseLost"}
LIMIT = 2000  # bytes of the last text: with the longest name a message stays below PIPE_BUF, so one write sends it


class Report:
    """A pipe to that program, which the command does not inherit. A message that cannot be sent is dropped."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.descriptors = (pipe,)
        posix.set_inheritable(pipe, False)

    def started(self, run: "Run") -> None:
        self.send(STARTED)

    def timed_out(self, run: "Run") -> None:
        if run.outcome is not None:
            self.send(OUTCOMES[run.outcome])

    def refused(self, error: SoloError) -> None:
        self.send(type(error).__name__, getattr(error, "name", ""), str(error))

    def send(self, kind: str, name: str = "", text: str = "") -> None:
        parts = [part.encode("utf-8", "surrogateescape") for part in (kind, name, text)]
        parts[2] = parts[2][:LIMIT]
        try:
            posix.write(self.pipe, b"%d %d %d\n" % tuple(map(len, parts)) + b"".join(parts))
        except OSError:
            pass


def read_last(report: bytes) -> "tuple[str, str, str] | None":
    """Return (kind, name, text) of the last message of a report; None if there is none."""
    last: tuple[bytes, bytes, bytes] | None = None
    while report:
        head, _, rest = report.partition(b"\n")
        try:
            kind, name, text = map(int, head.split(b" "))
        except ValueError:
            break
        last = rest[:kind], rest[kind : kind + name], rest[kind + name : kind + name + text]
        report = rest[kind + name + text :]
    if last is None:
        return None
    first, second, third = (part.decode("utf-8", "surrogateescape") for part in last)
    return first, second, third
