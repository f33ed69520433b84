"""stdout of views and of shell code: what is written arrives whole, and a failure names it."""

import sys
from _io import BufferedWriter, FileIO, TextIOWrapper  # io loads two more modules in Python 3.14

from solo.errors import SoloError, UsageError
from solo.kernel import has_room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Stream(FileIO):
    """Descriptor 1 or 2. node, bun and asyncio leave O_NONBLOCK on it, for all programs that share
    it.
    """

    def write(self, data: "ReadableBuffer") -> int:
        """Write all of `data`. Raises OSError."""
        left = memoryview(data)
        size = left.nbytes
        try:
            while left:
                written = super().write(left)
                if written is None:
                    has_room(self.fileno(), None)
                else:
                    left = left[written:]
        except OSError as error:
            raise OSError(error.errno, f"stdout: {error.strerror}") from None
        return size


def open_stdout() -> Stream:
    """Return stdout. Raises UsageError if it is closed."""
    if not isinstance(sys.stdout, TextIOWrapper):
        raise UsageError("stdout is closed")
    return Stream(1, "w", closefd=False)


def replace_stdout() -> None:
    """Let print() write to a Stream, and escape what its encoding lacks. Raises UsageError."""
    buffer = BufferedWriter(open_stdout())
    is_lines = bool(sys.stdout.line_buffering)
    sys.stdout = TextIOWrapper(
        buffer, sys.stdout.encoding, "backslashreplace", line_buffering=is_lines
    )


def write_stdout(data: bytes) -> None:
    """Write all of `data`. Raises SoloError."""
    try:
        open_stdout().write(data)
    except OSError as error:
        raise SoloError(f"cannot write to {error.strerror}") from None
