"""Reports from a launcher to the program that started it by solo.run(). The exit status alone could also be the
command's.

A message is a line with the lengths of three texts, then the texts. They may contain any byte, as a name may.
"""

import posix

from solo.errors import LEASE_LOST, TIMED_OUT, SoloError

STARTED, OUTCOMES = "Started", {TIMED_OUT: "TimedOut", LEASE_LOST: "LeaseLost"}
LIMIT = 1000  # bytes of a text: a pipe accepts a message in one write, even if nobody reads


class Report:
    """A pipe to that program, which the command does not inherit. A message that cannot be sent is dropped."""

    def __init__(self, pipe: int):
        self.pipe = pipe
        self.descriptors = (pipe,)
        posix.set_inheritable(pipe, False)

    def started(self, run):
        self.send(STARTED)

    def timed_out(self, run):
        self.send(OUTCOMES[run.outcome])

    def refused(self, error: SoloError):
        self.send(type(error).__name__, getattr(error, "name", ""), str(error))

    def send(self, kind: str, name: str = "", text: str = ""):
        parts = [part.encode("utf-8", "surrogateescape")[:LIMIT] for part in (kind, name, text)]
        try:
            posix.write(self.pipe, b"%d %d %d\n" % tuple(map(len, parts)) + b"".join(parts))
        except OSError:
            pass


def read_last(report: bytes):
    """Return (kind, name, text) of the last message of a report; None if there is none."""
    last = None
    while report:
        head, _, rest = report.partition(b"\n")
        try:
            kind, name, text = map(int, head.split(b" "))
        except ValueError:
            break
        last = rest[:kind], rest[kind : kind + name], rest[kind + name : kind + name + text]
        report = rest[kind + name + text :]
    return last and tuple(part.decode("utf-8", "surrogateescape") for part in last)
