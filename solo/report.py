"""What a launcher tells the program that started it by solo.run(), beside a status that a command could give too. Cold.

It goes through a pipe of which the command knows nothing.
"""

import posix

from solo.errors import SoloError

STARTED, TIMED_OUT = "Started", "TimedOut"
END = b"\1"
LIMIT = 1000  # bytes: a pipe takes all of it at once, whoever reads


def tell_error(pipe: int, error: SoloError):
    """Say which error it is."""
    tell(pipe, type(error).__name__, getattr(error, "name", ""), str(error))


def tell(pipe: int, kind: str, name: str = "", text: str = ""):
    """One message. Never raises."""
    said = b"\0".join([part.encode("utf-8", "surrogateescape")[:LIMIT] for part in (kind, name, text)]) + END
    try:
        posix.write(pipe, said)
    except OSError:
        pass
