"""Functions of C libraries, by the part of ctypes that is written in C. The rest of it takes 4 ms
to load.
"""

import _ctypes
from sys import byteorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def make_type(code: str) -> "Any":
    return type(code, (_ctypes._SimpleCData,), {"_type_": code})


# Types of C. Bytes is a char *: bytes up to a NUL, or None.
Int, Pointer, Bytes = map(make_type, "iPz")


def load_library(name: "str | None" = None) -> int:
    """Return a handle of a library, by default of the program and its libraries. Raises OSError."""
    return _ctypes.dlopen(name, 0)  # type: ignore[arg-type]


def find_function(
    library: int, name: str, result: "type | None" = Int, arguments: "Sequence[type] | None" = None
) -> "Callable[..., Any]":
    """Return a function. Its errno is in get_errno(). Raises OSError if the library does not have
    it.
    """
    types = {} if arguments is None else {"_argtypes_": tuple(arguments)}
    flags = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    kind = type(name, (_ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": result, **types})
    return kind(_ctypes.dlsym(library, name))  # type: ignore[no-any-return]


def pack(kind: "type", *numbers: int) -> bytes:
    """Return the numbers as a C program has them in memory, each of the size of `kind`: Pointer for
    a long.
    """
    return b"".join([number.to_bytes(_ctypes.sizeof(kind), byteorder) for number in numbers])
