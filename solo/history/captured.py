"""The output of a run: in memory while the run goes on, then in a file beside its journal.

Of each name stay the last file and that of the last failed run, by the tokens of their runs.
"""

import os
import re

from solo.directories import Directory
from solo.journal_files import make_place
from solo.kernel import SAFELY, close, decode, encode, list_directory, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap

FILE = re.compile(r"\.captured\.(\d{1,19})(\.failed)?")
MODE = 0o600
# The words at the begin of the memory: bytes of output so far, and after the read that goes on; how
# many of them are in the kept file; whether the run succeeded, 0 until then; the pid of the reader;
# the most bytes shown.
COUNT, TARGET, KEPT, SUCCESS, READER, LIMIT = range(6)
NAMES = 64  # bytes, where lines of `TOKEN NAME` begin, after an empty one
OUTPUT = 1 << 14  # bytes, where the output begins
LARGEST_READ = 1 << 16  # bytes
SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def measure(limit: int) -> int:
    """Return the size of the memory of an output of which `limit` bytes are shown."""
    return OUTPUT + limit + LARGEST_READ


def locate(limit: int, count: int) -> "tuple[int, int]":
    """Return where byte number `count` of the output is in the memory, and the end of the space
    there.

    After the head a ring has the tail, and room for a read beside the part that is shown.
    """
    ring, end = OUTPUT + limit - limit // 2, measure(limit)
    start = OUTPUT + count
    return (start, ring) if start < ring else (ring + (start - ring) % (end - ring), end)


def join(memory: "mmap | bytes") -> bytes:
    """Return the output in the memory as it is shown: its head, how much is left out, its tail."""
    words = memoryview(memory)[:NAMES].cast("Q")
    count, limit = words[COUNT], words[LIMIT]
    ring = OUTPUT + limit - limit // 2
    head = memory[OUTPUT : min(OUTPUT + count, ring)]
    last, end = locate(limit, count)
    size = min(count - len(head), limit // 2)
    tail = (memory[last:end] + memory[ring:last])[end - ring - size :] if size else b""
    left_out = count - len(head) - size
    if not left_out:
        return head + tail
    return b"%b%b[... %b left out ...]\n%b" % (
        head,
        b"\n" * (head[-1:] != b"\n"),
        format_size(left_out).encode(),
        tail,
    )


def format_size(size: int) -> str:
    """Return `1.2 GB`."""
    for unit, factor in SIZES:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def format_names(tokens: "list[tuple[int, str]]") -> bytes:
    """Return what the memory has at NAMES: the token by each name of the run, as far as they
    fit.
    """
    lines = b"".join([b"\n%d %b" % (token, encode(name)) for token, name in tokens]) + b"\n"
    return lines[: lines.rindex(b"\n", 0, OUTPUT - NAMES) + 1]


def read_names(memory: "mmap | bytes") -> "list[tuple[int, str]]":
    """Return [(token, name)] of the run."""
    pairs = [line.split(b" ", 1) for line in memory[NAMES:OUTPUT].split(b"\n")[1:-1]]
    return [(int(token), decode(name)) for token, name in pairs]


def store(directory: "str | None", memory: "mmap") -> None:
    """Write the output to a file for each name of the run. Raises OSError, SoloError."""
    words = memoryview(memory)[:NAMES].cast("Q")
    count, is_failure, text = words[COUNT], not words[SUCCESS], join(memory)
    for token, name in read_names(memory):
        place = make_place(directory, name)
        try:
            write(place, f".captured.{token}{'.failed' * is_failure}", text)
            prune(place)
        finally:
            close(place.fd)
    words[KEPT] = count


def write(place: Directory, file: str, text: bytes) -> None:
    """Write a whole file, or none. Raises OSError."""
    remove(place, file)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, MODE, dir_fd=place.fd)
    try:
        write_whole(fd, text, 0)
    except OSError:
        remove(place, file)
        raise
    finally:
        close(fd)


def remove(place: Directory, file: str) -> None:
    try:
        os.unlink(file, dir_fd=place.fd)
    except FileNotFoundError:
        pass


def list_kept(place: Directory) -> "list[tuple[int, bool, str]]":
    """Return (token, whether the run failed, file) of each kept output, in order."""
    found = filter(None, map(FILE.fullmatch, list_directory(place.fd)))
    return sorted((int(one[1]), one[2] is not None, one[0]) for one in found)


def prune(place: Directory) -> None:
    """Remove all but the last output and that of the last failed run. Raises OSError."""
    found = list_kept(place)
    failed = [one for one in found if one[1]]
    for one in found:
        if one not in (found[-1], *failed[-1:]):
            remove(place, one[2])
