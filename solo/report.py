"""What a launcher tells the program that started it by solo.run(): why nothing ran, beside a status that a command could give too.

VARIABLE has the number of a pipe; the command gets neither. Without it, nothing is told. Cold.
"""

import posix

from solo.errors import SoloError
from solo.kernel import encode

VARIABLE = b"SOLO_REPORT"
TIMED_OUT = "TimedOut"


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


def tell_timeout() -> bool:
    return tell(TIMED_OUT, "", "")


def tell(kind: str, name: str, text: str) -> bool:
    pipes = find_pipe(dict(posix.environ))
    try:
        return any(posix.write(pipe, b"\0".join(map(encode, (kind, name, text)))) for pipe in pipes)
    except OSError:
        return False
