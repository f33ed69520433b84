"""--capture: the command writes to one pipe, of which a reader keeps the head and the tail.

The reader is a holder process without a lock: no descriptor of the caller, a session of its own,
every signal blocked. It and the launcher share the memory of the output, so that SIGKILL of either
loses nothing. Without its reader the launcher forks another one, and the command never gets
SIGPIPE; without its launcher the reader keeps the file. A daemon that the command left behind keeps
only the reader.

A read first clears where it reads to and notes how far it may get: so it is known what it has read
if its process was killed meanwhile, but for zero bytes at the end.
"""

import _signal
import fcntl
import posix
import select
from _signal import SIG_DFL, SIG_IGN, SIG_SETMASK, SIG_UNBLOCK
from mmap import mmap

from solo.errors import SoloError
from solo.history import captured, usual
from solo.history.captured import COUNT, KEPT, LARGEST_READ, LIMIT, NAMES, READER, SUCCESS, TARGET
from solo.journal import Observer
from solo.kernel import ENDING, close, end_child, escape, is_gone, say, write_whole
from solo.process.holder import fork_holder
from solo.text.describe import format_span, format_usual
from solo.text.events import OK, describe_outcome, encode_any, name_run
from solo.text.stdout import Stream
from solo.text.width import clean_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.launcher import Run

GET_PIPE_SIZE = 1032  # of fcntl(2); Python 3.9 lacks its name


class Capture(Observer):
    """The output of a run: prints and keeps it once the run has ended."""

    def __init__(self, run: "Run", is_printed: bool, limit: int) -> None:
        self.run: Run = run
        self.is_printed = is_printed
        self.directory = run.plan.dir
        self.source, self.sink = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self.source, False)  # the command can open it, and read from it
        self.pulse, self.life = posix.pipe2(posix.O_CLOEXEC)  # at its end once no launcher lives
        self.file = open_memory()
        posix.ftruncate(self.file, captured.measure(limit))
        self.memory = mmap(self.file, captured.measure(limit))
        self.view = memoryview(self.memory)
        self.words = self.view[:NAMES].cast("Q")
        self.words[LIMIT] = limit
        self.descriptors = 2, self.source, self.pulse, self.life, self.file

    def begin(self) -> None:
        """Start the reader, just before the command's exec. Raises OSError."""
        run = self.run
        if posix.isatty(1) or posix.isatty(2):
            say(f"{run.names[0]}: --capture gives the command a pipe instead of the terminal")
        if not run.plan.is_socket:
            tokens = [(run.named[name].number, name) for name in run.record.shown_names]
            names = captured.format_names(tokens)
            self.view[NAMES : NAMES + len(names)] = names
        close(self.sink)
        self.fork()

    def fork(self) -> None:
        self.words[READER] = fork_holder(self.read, [self.source, self.pulse, self.file])

    def mend(self) -> None:
        """Fork another reader if this child has ended, as by SIGKILL."""
        try:
            if is_gone(self.words[READER]):
                self.fork()
        except OSError:
            pass  # the pipe may fill, and the command wait; the next child that ends brings us here

    def read(self) -> None:
        """Be the reader: read until no process has the pipe, nor the life of a launcher. Keep what
        is not kept.
        """
        poller = select.poll()
        left = {self.source, self.pulse}
        for fd in left:
            poller.register(fd, select.POLLIN)
        while left:
            for fd, _ in poller.poll():
                if fd == self.pulse or not self.take(LARGEST_READ):
                    poller.unregister(fd)
                    left.remove(fd)
        if self.words[COUNT] > self.words[KEPT]:
            captured.store(self.directory, self.memory)

    def take(self, most: int) -> int:
        """Read at most `most` bytes into the memory, alone. Return their number, 0 at the end of
        the pipe, -1 if it is empty.
        """
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            self.recover()
            count = self.words[COUNT]
            start, end = captured.locate(self.words[LIMIT], count)
            end = min(end, start + most)
            self.view[start:end] = bytes(end - start)
            self.words[TARGET] = count + end - start
            size = posix.readv(self.source, [self.view[start:end]])
            self.words[COUNT] = self.words[TARGET] = count + size
            return size
        except BlockingIOError:
            self.words[TARGET] = self.words[COUNT]
            return -1
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)

    def recover(self) -> None:
        """Count what a reader has read that was killed before it could."""
        count, target = self.words[COUNT], self.words[TARGET]
        if target > count:
            start = captured.locate(self.words[LIMIT], count)[0]
            self.words[COUNT] += len(self.memory[start : start + target - count].rstrip(b"\0"))

    def copy(self) -> str:
        """Return the path of a copy of the output so far. It lives until this process ends. Raises
        OSError.
        """
        fd = open_memory()
        write_whole(fd, captured.join(self.memory), 0)
        return f"/proc/{posix.getpid()}/fd/{fd}"

    # --- an observer of the run--------------------------------------------------------------------

    def refused(self, error: SoloError) -> None:
        if self.words[READER]:
            end_child(self.words[READER])

    def ended(self, run: "Run") -> None:
        """Print the output of a failed run, and keep it. What fails does not change the status."""
        try:
            self.show(run)
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or "Cannot allocate memory"
            say(f"{run.names[0]}: the output is not kept: {reason}")

    def show(self, run: "Run") -> None:
        left, size = fcntl.fcntl(self.source, GET_PIPE_SIZE), 1
        while left > 0 and size > 0:  # not what a daemon writes meanwhile
            size = self.take(left)
            left -= size
        outcome = name_run(run)
        self.words[SUCCESS] = outcome == OK
        text = captured.join(self.memory)
        if run.process.is_refused:
            write(text)  # of solo itself
            self.words[KEPT] = self.words[COUNT]
        else:
            is_shown = self.is_printed and outcome != OK
            shown = describe(run, outcome, bool(text)) + text if is_shown else b""
            write(shown)
            self.keep(run.names[0], b"\n" * (shown[-1:] not in (b"", b"\n")))
        if size == 0:
            end_child(self.words[READER])

    def keep(self, name: str, newline: bytes) -> None:
        """Keep the output. Report a failure, after a `newline` if one is missing."""
        try:
            captured.store(self.directory, self.memory)
        except (OSError, SoloError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            write(newline)
            say(f"{name}: the output is not kept: {reason}")


def open_memory() -> int:
    """Return the descriptor of a file that no directory has. Raises OSError."""
    if hasattr(posix, "memfd_create"):
        return posix.memfd_create("solo", posix.MFD_CLOEXEC)
    return posix.open("/dev/shm", posix.O_TMPFILE | posix.O_RDWR | posix.O_CLOEXEC, captured.MODE)


def describe(run: "Run", outcome: str, has_output: bool) -> bytes:
    """Return `solo: backup: exit 3 after 12m (usually 11m), output:`, a line."""
    known = None
    if not run.plan.is_socket:
        known = usual.find_usual(run.plan.dir, run.names[0], run.record.command)
    often = f" (usually {format_usual(known.median, known.range)})" if known else ""
    output = "output:" if has_output else "no output"
    text = f"{run.names[0]}: {describe_outcome(outcome, run.code)} after "
    text += f"{format_span(run.seconds)}{often}, {output}"
    return encode_any(f"solo: {escape(text)}\n")


def write(text: bytes) -> None:
    """Write to stderr, and end by a signal that asks for it meanwhile. Ignore errors: there may be
    no reader.
    """
    if not text:
        return
    if posix.isatty(2):
        text = encode_any(clean_lines(text))
    for signal in ENDING:
        if _signal.getsignal(signal) != SIG_IGN:
            _signal.signal(signal, SIG_DFL)
    while _signal.sigtimedwait(ENDING, 0):
        pass  # they have ended the command
    mask = _signal.pthread_sigmask(SIG_UNBLOCK, ENDING)
    try:
        Stream(2, "w", closefd=False).write(text)
    except OSError:
        pass
    _signal.pthread_sigmask(SIG_SETMASK, mask)
