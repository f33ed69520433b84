"""--capture: the command writes to one pipe, of which a reader keeps the head and the tail.

The reader is a holder process without a lock: no descriptor of the caller, a session of its own,
every signal blocked. It and the launcher share the memory of the output, so that SIGKILL of either
loses nothing. Without its reader the launcher forks another one, and the command never gets
SIGPIPE; without its launcher the reader keeps the file. A daemon that the command left behind keeps
only the reader.

At the end of the command the pipe is drained, so that the other observers have the whole output;
only then is it printed, as nobody may read stderr. With --tree the upper process prints, the last
of both to end; the lower one only if the upper one was killed.

A read first clears where it reads to and notes how far it may get: so it is known what it has read
if its process was killed meanwhile, but for zero bytes at the end.
"""

import _signal
import fcntl
import posix
import select
from _signal import SIG_BLOCK, SIG_IGN, SIG_UNBLOCK, SIGCONT
from mmap import mmap
from time import time_ns

from solo.errors import SoloError
from solo.history import captured, usual
from solo.history.captured import (
    COUNT,
    END,
    HEAD,
    LARGEST_READ,
    LIMIT,
    NAMES,
    OUTPUT,
    READER,
    SUCCESS,
    TARGET,
)
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
    """The output of a run. Raises OSError."""

    def __init__(self, run: "Run", is_printed: bool, limit: int) -> None:
        self.run: Run = run
        self.is_printed = is_printed
        self.source, self.sink = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self.source, False)  # the command can open it, and read from it
        self.pulse, self.life = posix.pipe2(posix.O_CLOEXEC)  # at its end once no launcher lives
        self.file = open_memory()
        posix.ftruncate(self.file, captured.measure(limit))
        self.memory = mmap(self.file, 0)
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
            self.fill(NAMES, HEAD, captured.format_names(tokens))
        close(self.sink)
        self.fork()

    def fill(self, start: int, end: int, text: bytes) -> None:
        self.view[start:end] = text[: end - start].ljust(end - start, b"\0")

    def fork(self) -> None:
        pid = self.words[READER] = fork_holder(self.read, [self.source, self.pulse, self.file])
        if self.run.termination is not None:
            self.run.termination.spare(pid, self.run.pair)

    def mend(self) -> None:
        """Fork another reader if this child has ended, as by SIGKILL."""
        try:
            if is_gone(self.words[READER]):
                self.fork()
        except OSError:
            pass  # the pipe may fill, and the command wait; the next child that ends brings us here

    def read(self) -> None:
        """Be the reader: read until no process has the pipe, nor the life of a launcher, and keep
        the output.
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
        if self.words[COUNT]:  # else nothing has run, perhaps
            self.keep()

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
        """Read what is left, and note what `show` prints: nothing if this fails."""
        try:
            self.drain()
            self.words[END] = time_ns()
            outcome = name_run(run)
            self.words[SUCCESS] = outcome == OK
            if run.process.is_refused:  # the output is of solo itself
                self.fill(HEAD, OUTPUT, captured.join(self.memory))
                self.fill(NAMES, HEAD, b"")
                self.words[COUNT] = self.words[TARGET] = 0
            elif self.is_printed and outcome != OK:
                self.fill(HEAD, OUTPUT, describe(run, outcome, self.words[COUNT] > 0))
        except Exception as error:
            self.report(error)

    def drain(self) -> bool:
        """Read what the pipe has now, not what a daemon writes meanwhile. Return whether no process
        has it.
        """
        if not is_gone(self.words[READER]):
            posix.kill(self.words[READER], SIGCONT)  # it may be stopped, and read alone
        left, size = fcntl.fcntl(self.source, GET_PIPE_SIZE), 1
        while left > 0 and size > 0:
            size = self.take(left)
            left -= size
        return size == 0

    def show(self, run: "Run") -> None:
        """Print the output of a failed run, and keep it: once all others know of the end. What
        fails does not change the status.
        """
        if run.pair is not None and run.pair.has_upper():
            return  # it prints
        shown = b""
        try:
            is_over = self.drain()
            shown = bytes(self.view[HEAD:OUTPUT]).rstrip(b"\0")
            if shown:
                shown += captured.join(self.memory)
                write(shown)
            self.keep()
            if is_over:
                end_child(self.words[READER])
        except Exception as error:
            write(b"\n" * (shown[-1:] not in (b"", b"\n")))
            self.report(error)

    def keep(self) -> None:
        captured.store(self.run.plan.dir, self.memory)

    def report(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error) or "Cannot allocate memory"
        say(f"{self.run.names[0]}: the output is not kept: {reason}")


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
    """Write to stderr, until a signal asks for the end. Ignore errors: there may be no reader."""
    if posix.isatty(2):
        text = encode_any(clean_lines(text))

    def stop(*_: object) -> None:
        _signal.pthread_sigmask(SIG_BLOCK, ENDING)
        raise InterruptedError

    for signal in ENDING:
        if _signal.getsignal(signal) != SIG_IGN:
            _signal.signal(signal, stop)
    while _signal.sigtimedwait(ENDING, 0):
        pass  # they have ended the command
    try:
        _signal.pthread_sigmask(SIG_UNBLOCK, ENDING)
        Stream(2, "w", closefd=False).write(text)
        _signal.pthread_sigmask(SIG_BLOCK, ENDING)
    except OSError:
        _signal.pthread_sigmask(SIG_BLOCK, ENDING)
