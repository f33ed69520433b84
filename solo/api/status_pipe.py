"""What a launcher tells the program that started it by solo.run(), beside a status that a command could give too. Cold.

A message is a line with the lengths of three texts, and these: they may hold any byte, as a name may.
"""

import posix

from solo.errors import LEASE_LOST, TIMED_OUT, SoloError

STARTED, OUTCOMES = "Started", {TIMED_OUT: "TimedOut", LEASE_LOST: "LeaseLost"}
LIMIT = 1000  # bytes: a pipe takes all of it at once, whoever reads


class Report:
    """A pipe to that program, of which the command knows nothing. What can not be told is not."""

    def __init__(self, pipe: int):
        self.pipe = pipe
        posix.set_inheritable(pipe, False)

    def tell_start(self):
        self.tell(STARTED)

    def tell_outcome(self, outcome: int):
        """Say that it ended before its time."""
        self.tell(OUTCOMES[outcome])

    def tell_error(self, error: SoloError):
        """Say which error it is."""
        self.tell(type(error).__name__, getattr(error, "name", ""), str(error))

    def tell(self, kind: str, name: str = "", text: str = ""):
        parts = [part.encode("utf-8", "surrogateescape")[:LIMIT] for part in (kind, name, text)]
        try:
            posix.write(self.pipe, b"%d %d %d\n" % tuple(map(len, parts)) + b"".join(parts))
        except OSError:
            pass


def read_last(report: bytes):
    """(Kind, name, text) of the last message of a report; None if there is none."""
    last = None
    while report:
        head, _, rest = report.partition(b"\n")
        try:
            kind, name, text = map(int, head.split(b" "))
        except ValueError:
            break
        last = rest[:kind], rest[kind:kind + name], rest[kind + name:kind + name + text]
        report = rest[kind + name + text:]
    return last and tuple(part.decode("utf-8", "surrogateescape") for part in last)
