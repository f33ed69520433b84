"""libpq, PostgreSQL's C library: the few functions that a Link calls. It has TLS, passwords and
time limits.

psycopg loads it too, but takes 150 ms more for what solo does not use.
"""

import posix
import sys
from _ctypes import byref

from solo.process.library import Bytes, Int, Pointer, find_function, load_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SYSTEM = "libpq.so.5"
BUNDLED = "psycopg_binary.libs"  # a folder beside the Python library psycopg_binary, with a libpq
BAD = 1  # PQstatus
FAILED, READING, WRITING, OK = 0, 1, 2, 3  # PQconnectPoll
COMMAND_OK, TUPLES_OK = 1, 2  # PQresultStatus
SQLSTATE, PRIMARY = b"CM"  # PQresultErrorField
# The beginning of a PGnotify: the channel, a pid padded to a pointer's size, and the payload.
# Python 3.14 loads all of ctypes for a Structure.
NOTIFICATION = Bytes * 3
# By the type of the result, then those of the arguments.
FUNCTIONS: "dict[tuple[Any, ...], str]" = {
    (Int, Pointer): "PQconnectPoll PQstatus PQconnectionNeedsPassword PQsocket PQbackendPID"
    " PQflush PQconsumeInput PQisBusy PQresultStatus PQntuples PQnfields",
    (Int, Pointer, Int): "PQsetnonblocking",
    (Int, Pointer, Int, Int): "PQgetisnull",
    (Int, Pointer, Bytes, Int, Pointer, Pointer, Pointer, Pointer, Int): "PQsendQueryParams",
    (Bytes, Pointer): "PQerrorMessage PQresultErrorMessage",
    (Bytes, Pointer, Int): "PQresultErrorField",
    (Bytes, Pointer, Int, Int): "PQgetvalue",
    (Pointer, Pointer): "PQgetResult PQnotifies",
    (Pointer, Bytes): "PQconnectStart",
    (Pointer, Bytes, Pointer): "PQconninfoParse",
    (Pointer, Pointer, Pointer, Pointer): "PQsetNoticeProcessor",
    (None, Pointer): "PQconninfoFree PQfinish PQclear PQfreemem",
}


class LibpqError(Exception):
    """A call failed. The text is libpq's."""


class Result:
    """The answer to a query: its `rows` of bytes or None, or why it failed: its `message` and
    `code`, an SQLSTATE.
    """

    def __init__(self, address: int) -> None:
        self.is_ok = pq.PQresultStatus(address) in (COMMAND_OK, TUPLES_OK)
        columns = range(pq.PQnfields(address))
        self.rows = [
            [read_value(address, row, at) for at in columns] for row in range(pq.PQntuples(address))
        ]
        self.message = pq.PQresultErrorField(address, PRIMARY) or pq.PQresultErrorMessage(address)
        self.code = pq.PQresultErrorField(address, SQLSTATE)
        pq.PQclear(address)


def start_connection(settings: bytes) -> int:
    """Return the address of a connection that is being made with these settings, as of
    make_conninfo.
    """
    address: int = pq.PQconnectStart(settings)
    if not address:
        raise MemoryError
    # libpq prints notices to stderr. It now calls PQfreemem(NULL, text) instead, which does
    # nothing.
    pq.PQsetNoticeProcessor(address, pq.PQfreemem, None)
    return address


def get_message(connection: int) -> str:
    message: bytes = pq.PQerrorMessage(connection) or b""
    return message.decode(errors="replace")


def read_value(address: int, row: int, column: int) -> "bytes | None":
    value: bytes = pq.PQgetvalue(address, row, column)
    return value if value or not pq.PQgetisnull(address, row, column) else None


def make_conninfo(settings: "dict[str, object]") -> bytes:
    """Return the settings as libpq reads them. Raises LibpqError if it does not know one."""
    pairs = []
    for key, value in settings.items():
        quoted = str(value).replace("\\", "\\\\").replace("'", "\\'")
        pairs.append(f"{key}='{quoted}'")
    text = " ".join(pairs).encode("utf-8", "surrogateescape")
    problem = Bytes()
    options = pq.PQconninfoParse(text, byref(problem))
    if not options:
        raise LibpqError((problem.value or b"").decode(errors="replace"))
    pq.PQconninfoFree(options)
    return text


def list_files() -> "Iterator[str]":
    """Yield files that may be libpq: that of psycopg's wheel, then that of the system."""
    for folder in sys.path:
        try:
            names = posix.listdir(f"{folder}/{BUNDLED}")
        except OSError:
            continue
        yield from (f"{folder}/{BUNDLED}/{name}" for name in names if name.startswith("libpq-"))
    yield SYSTEM


class Functions:
    """The functions of a libpq, by name. Raises ImportError."""

    def __init__(self) -> None:
        problem = None
        for file in list_files():
            try:
                library = load_library(file)
                for (result, *arguments), names in FUNCTIONS.items():
                    for name in names.split():
                        setattr(self, name, find_function(library, name, result, arguments))
                return
            except OSError as error:
                problem = error
        raise ImportError(str(problem), name="psycopg")


pq: "Any" = Functions()
