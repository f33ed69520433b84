"""What a launcher tells the program that started it by solo.run(), beside a status that a command could give too. Cold."""

import posix

from solo.errors import LEASE_LOST, TIMED_OUT, SoloError

STARTED, OUTCOMES = "Started", {TIMED_OUT: "TimedOut", LEASE_LOST: "LeaseLost"}
END = b"\1"
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
        said = b"\0".join([part.encode("utf-8", "surrogateescape")[:LIMIT] for part in (kind, name, text)]) + END
        try:
            posix.write(self.pipe, said)
        except OSError:
            pass
