"""The output of a run: in memory while the run goes on, then in a file beside its journal.

Of each name stay the last file and that of the last failed run, by the ends of their runs, which
are the times of the files. Tokens tell no order: those of an engine and of files differ.
"""

import os
import re
from time import time_ns

from solo.directories import Directory
from solo.journal_files import make_place
from solo.kernel import SAFELY, close, decode, encode, list_directory, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap

FILE = re.compile(r"\.captured\.(\d{1,19})(\.failed)?(\.new)?")
NEW = ".new"  # while it is written
MODE = 0o600
# The words at the begin of the memory: bytes of output so far, and after the read that goes on;
# whether the run succeeded, 0 until then; the pid of the reader; the most bytes shown; when the run
# ended, in ns since the epoch, 0 until then.
COUNT, TARGET, SUCCESS, READER, LIMIT, END = range(6)
NAMES = 64  # bytes, where lines of `TOKEN NAME` begin, after an empty one
HEAD = 1 << 13  # bytes, where the text begins that is printed before the output; "": print nothing
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
    return lines[: lines.rindex(b"\n", 0, HEAD - NAMES) + 1]


def read_names(memory: "mmap | bytes") -> "list[tuple[int, str]]":
    """Return [(token, name)] of the run."""
    pairs = [line.split(b" ", 1) for line in memory[NAMES:HEAD].split(b"\n")[1:-1]]
    return [(int(token), decode(name)) for token, name in pairs]


def store(directory: "str | None", memory: "mmap") -> None:
    """Write the output to a file for each name of the run. Raises OSError, SoloError."""
    words = memoryview(memory)[:NAMES].cast("Q")
    is_failure = not words[SUCCESS]
    end = words[END] or time_ns()
    text = join(memory)
    for token, name in read_names(memory):
        with make_place(directory, name) as place:
            write(place, f".captured.{token}{'.failed' * is_failure}", text, end)
            prune(place)


def write(place: Directory, file: str, text: bytes, end: int) -> None:
    """Write a whole file, with the time `end`, or none. Raises OSError."""
    new = file + NEW
    remove(place, new)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, MODE, dir_fd=place.fd)
    try:
        write_whole(fd, text, 0)
        os.utime(fd, ns=(end, end))
        os.rename(new, file, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except OSError:
        remove(place, new)
        raise
    finally:
        close(fd)


def remove(place: Directory, file: str) -> None:
    try:
        os.unlink(file, dir_fd=place.fd)
    except (FileNotFoundError, IsADirectoryError):
        pass


def list_kept(place: Directory) -> "list[tuple[int, int, str]]":
    """Return (end, token, file) of each output, in order. One that ended in the future is the
    oldest: the clock was ahead.
    """
    found, now = [], time_ns()
    for match in filter(None, map(FILE.fullmatch, list_directory(place.fd))):
        try:
            end = os.stat(match[0], dir_fd=place.fd, follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:
            continue  # another run has replaced it just now
        found.append((end if end <= now else 0, int(match[1]), match[0]))
    return sorted(found)


def prune(place: Directory) -> None:
    """Remove all but the last output, that of the last failed run, and what is being written.
    Raises OSError.
    """
    files = [file for _, _, file in list_kept(place)]
    while files and files[-1].endswith(NEW):
        files.pop()
    failed = [file for file in files if file.endswith(".failed")]
    for file in files[:-1]:
        if file not in failed[-1:]:
            remove(place, file)
