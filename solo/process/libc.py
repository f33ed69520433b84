"""Functions of the C library that Python's own does not have.

By `_ctypes` alone: ctypes, which is made from it, imports so much more that a launcher took 1.5 times as long to start.
"""

import posix
from _ctypes import CFuncPtr, _SimpleCData, dlopen, dlsym, get_errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CDECL, USE_ERRNO = 1, 8  # flags of a function, as in CPython's ctypes.h


class Int(_SimpleCData):  # type: ignore[type-arg]
    """A C int, for a pointer to it: byref(Int())."""

    _type_ = "i"


class Function(CFuncPtr):
    """A C function that returns an int and may set errno."""

    _flags_ = CDECL | USE_ERRNO
    _restype_ = Int


def load(name: str) -> "Callable[..., int]":
    """Return the C function `name` as one of ints, bytes and pointers that raises OSError instead of returning a
    negative number.

    Raises OSError if the C library does not have it.
    """
    handle = dlopen(None, 0)  # type: ignore[arg-type]
    function = Function(dlsym(handle, name))

    def call(*words: object) -> int:
        result: int = function(*words)
        if result < 0:
            raise OSError(get_errno(), posix.strerror(get_errno()))
        return result

    return call
