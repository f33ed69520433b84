"""What a launcher tells the program that started it by solo.run(): why nothing ran, beside a status that a command could give too.

VARIABLE has the number of a pipe; the command gets neither. Without it, nothing is told. Cold.
"""

import posix

from solo.errors import SoloError

VARIABLE = b"SOLO_REPORT"
STARTED, TIMED_OUT = "Started", "TimedOut"
END = b"\1"
LIMIT = 1000  # bytes: a pipe takes all of it at once, whoever reads


def find_pipe(environment: dict) -> list:
    """[its descriptor], which the command will not get; nothing if there is none."""
    try:
        pipe = int(environment.pop(VARIABLE))
        posix.set_inheritable(pipe, False)
        return [pipe]
    except (KeyError, ValueError, OverflowError, OSError):
        return []


def tell_error(error: SoloError) -> bool:
    """Say which error it is; False if nobody wants to know."""
    return tell(type(error).__name__, getattr(error, "name", ""), str(error))


def tell_start() -> bool:
    return tell(STARTED, "", "")


def tell_timeout() -> bool:
    return tell(TIMED_OUT, "", "")


def tell(kind: str, name: str, text: str) -> bool:
    said = b"\0".join([part.encode("utf-8", "surrogateescape")[:LIMIT] for part in (kind, name, text)]) + END
    pipes = find_pipe(dict(posix.environ))
    try:
        return any(posix.write(pipe, said) for pipe in pipes)
    except OSError:
        return False
