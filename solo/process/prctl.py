"""prctl(2): what happens to a process when its parent ends."""

import posix
from _signal import SIGKILL

from solo.errors import SoloError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SET_PDEATHSIG, GET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 2, 36
# at most one: to make a type of ctypes takes 0.3 ms
loaded: "list[Callable[[int, object], None]]" = []


def load_prctl() -> "Callable[[int, object], None]":
    """Return prctl(2) as a function that raises OSError. Raises SoloError if the C library cannot
    be called.
    """
    if loaded:
        return loaded[0]
    try:
        from _ctypes import get_errno

        from solo.process.library import find_function, load_library

        call = find_function(load_library(), "prctl")
    except ModuleNotFoundError:
        users = "--tree, --no-orphan, --flock, --fcntl, --via socket"
        raise SoloError(f"this Python has no ctypes ({users} need it)") from None
    except (ImportError, OSError) as error:
        raise SoloError(f"cannot load ctypes: {error}") from None

    def prctl(option: int, value: object) -> None:
        if call(option, value, 0, 0, 0):
            raise OSError(get_errno(), posix.strerror(get_errno()))

    loaded.append(prctl)
    return prctl


def make_die_with() -> "Callable[[int], None]":
    """Return a function that a forked child calls with the launcher's pid: it gets SIGKILL when the
    launcher dies.

    Raises SoloError if prctl(2) fails here: the child could then only end without running its
    command.
    """
    prctl = load_prctl()
    from _ctypes import byref

    from solo.process.library import Int

    ours = Int()
    try:
        prctl(GET_PDEATHSIG, byref(ours))
        prctl(SET_PDEATHSIG, ours.value)
    except OSError as error:
        raise SoloError(
            f"cannot make the command die with its launcher: prctl: {error.strerror}"
        ) from None

    def die_with(launcher: int) -> None:
        prctl(SET_PDEATHSIG, SIGKILL)
        # the launcher died before; the parent is then init or a subreaper
        if posix.getppid() != launcher:
            posix._exit(SoloError.status)

    return die_with


def become_subreaper() -> None:
    """Adopt descendants whose parents die, from now on. Raises SoloError."""
    try:
        load_prctl()(SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        raise SoloError(
            f"cannot adopt the command's descendants (--tree): prctl: {error.strerror}"
        ) from None
