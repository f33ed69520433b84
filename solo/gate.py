"""The guard mutex of a name, called the gate: the file `.gate`, locked for microseconds. One that
was removed meanwhile is opened anew.

Its text, every number in DIGITS digits:

    counter       the number of the last ticket
    skips         a line per mode of MODES: skips since a hold in that mode, or in a stronger one
    boot number   the boot id of the last ticket, and the first number of that boot
"""

import posix
from fcntl import LOCK_EX, LOCK_UN, flock
from time import monotonic

from solo.directories import Directory, explain, open_file
from solo.errors import SoloError, Vanished
from solo.kernel import CLOSED, FOREVER, SAFELY, Opened, try_lock, wait_lock, write_whole
from solo.modes import EXCLUSIVE, MODES, is_stronger

TYPE_CHECKING = False

GATE = ".gate"
DIGITS = 20  # so that the order of numbers is the order of file names
LINE_SIZE = DIGITS + 1
# no counter from a clock gets there before the year 33658: a larger number is damage
LARGEST_NUMBER = 10**18
BOOT_AT = LINE_SIZE * (1 + len(MODES))
BOOT_SIZE = 36 + 1 + LINE_SIZE
GATE_PATIENCE = 10.0  # seconds, for a gate that does not change hands
LEAST_PATIENCE = 1.0  # seconds, whatever is left of --wait: a last look needs the gate too


class Gate(Opened):
    """The gate of a name, whatever it is kept as. `with gate:` locks it until `deadline`. This one
    counts no skips.
    """

    deadline: float

    if TYPE_CHECKING:

        def __enter__(self) -> "Gate": ...
        def __exit__(self, *_: object) -> None: ...

    def count_skip(self, mode: str) -> "int | None":
        """Count a skip. Return those of `mode` before it, None if they cannot be kept. Gate
        locked.
        """
        return None

    def restore_skips(self) -> None:
        """Count the skips again that our hold ended, and close the gate: nothing ran, as something
        else was busy.
        """


class FileGate(Gate):
    """The gate of the name whose directory is `place`.

    `boot` is the boot id of this machine, `deadline` that of the contender, FOREVER without --wait.
    `text` is what the gate said when it was last locked, with what we wrote since. `number` and
    `mode` are those of our last ticket, the mode None for a waiting ticket; `ended` the skips that
    it ended.
    """

    def __init__(self, place: Directory, boot: str) -> None:
        self.place = place
        self.boot = boot
        self.deadline = FOREVER
        self.fd = CLOSED
        self.text = b""
        self.number = 0
        self.mode: str | None = None
        self.ended = [0] * len(MODES)

    # --- the mutex--------------------------------------------------------------------------------

    def __enter__(self) -> "FileGate":
        """Lock and read the gate. Raises SoloError if one process keeps it for GATE_PATIENCE, Busy
        if `deadline` comes first, Vanished without a directory.
        """
        while True:
            if self.fd == CLOSED:
                self.fd = self.open()
            try:
                if not try_lock(self.fd, LOCK_EX):
                    self.wait()
                if not self.is_lost():
                    self.load()
                    return self
            except OSError as error:
                raise self.fail(error.strerror) from None
            self.close()

    def __exit__(self, *_: object) -> None:
        flock(self.fd, LOCK_UN)

    def open(self) -> int:
        """Open the gate, made if it is missing. Raises SoloError, Vanished."""
        try:
            return open_file(self.place, GATE, posix.O_RDWR)
        except (
            FileNotFoundError
        ):  # in a directory that was removed, or is just being removed by `solo clean`
            raise Vanished(f"cannot use {self.place.path}: another process removed it") from None
        except OSError as error:
            raise self.fail(explain(GATE, error, self.place)) from None

    def wait(self) -> None:
        """Block until the gate is locked, as long as it changes hands. Raises SoloError once it
        does not, Busy.
        """
        begin, seen = monotonic(), posix.fstat(self.fd).st_mtime_ns
        deadline = max(self.deadline, begin + LEAST_PATIENCE)
        if not wait_lock(self.fd, LOCK_EX, min(deadline, begin + GATE_PATIENCE / 4)):
            from solo.process.watch import wait_crowded_gate

            wait_crowded_gate(self.fd, f"{self.place.path}/{GATE}", seen, GATE_PATIENCE, deadline)
        try:
            # a contender that only looks writes nothing: show the others that the gate moves
            posix.utime(self.fd)
        except OSError:
            pass

    def is_lost(self) -> bool:
        """Return whether the file was removed after we opened it. Other contenders may lock another
        one then.
        """
        ours = posix.fstat(self.fd)
        if not self.place.shared or not ours.st_nlink:
            return not ours.st_nlink
        try:  # another user may have given it a second link
            return (
                posix.stat(GATE, dir_fd=self.place.fd, follow_symlinks=False).st_ino != ours.st_ino
            )
        except FileNotFoundError:
            return True

    def fail(self, reason: "str | None") -> SoloError:
        return SoloError(f"cannot lock {self.place.path}/{GATE}: {reason}")

    # --- its text---------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the text. Raises OSError."""
        self.text = posix.pread(self.fd, BOOT_AT + BOOT_SIZE, 0)

    def read_unlocked(self) -> None:
        """Read the text without the lock, and close the gate. Raises OSError."""
        self.fd = posix.open(GATE, posix.O_RDONLY | SAFELY, dir_fd=self.place.fd)
        try:
            self.load()
        finally:
            self.close()

    def read_counter(self) -> "int | None":
        """Return the number of the last ticket, None if there was none or the line is damaged."""
        counter = read_line(self.text[:LINE_SIZE])
        return counter if counter is not None and counter + 1 < LARGEST_NUMBER else None

    def read_skips(self) -> "list[int]":
        """Return the skips of each of MODES, 0 for a damaged line."""
        if not self.text[LINE_SIZE:BOOT_AT].strip(b"\0\n0"):
            return [0] * len(MODES)
        return [
            read_line(self.text[at : at + LINE_SIZE]) or 0
            for at in range(LINE_SIZE, BOOT_AT, LINE_SIZE)
        ]

    def read_boot(self) -> "tuple[str, int] | tuple[None, None]":
        """Return the boot id of the last ticket and the first number of that boot, two Nones if the
        line is damaged.
        """
        boot, _, line = self.text[BOOT_AT:].partition(b" ")
        number = read_line(line)
        return (None, None) if number is None else (boot.decode(errors="replace"), number)

    def is_of_this_boot(self, number: int) -> bool:
        """Return whether a ticket with that number is of this boot. A step of the clock moves all
        times of files.
        """
        if self.fd == CLOSED:
            self.read_unlocked()
        boot, first = self.read_boot()
        return boot == self.boot and first is not None and number >= first

    def write_number(self, number: int, held_mode: "str | None" = None) -> None:
        """Write the number of a new ticket; one that holds ends the skips of its mode and weaker
        ones. Raises OSError.
        """
        self.number, self.mode, skips = number, held_mode, self.read_skips()
        self.ended = [
            count if held_mode and is_stronger(held_mode, mode) else 0
            for mode, count in zip(MODES, skips)
        ]
        left = (
            [before - ended for before, ended in zip(skips, self.ended)] if any(self.ended) else []
        )
        self.write_lines([number, *left])
        boot, _ = self.read_boot()
        if boot != self.boot:
            # without the line, an older ticket may be of this boot too
            first = 0 if boot is None else number
            self.write(b"%b %0*d\n" % (self.boot.encode(), DIGITS, first), BOOT_AT)

    def write_lines(self, counts: "list[int]", first: int = 0) -> None:
        """Write lines of the text, from number `first` on. Raises OSError."""
        self.write(b"".join([b"%0*d\n" % (DIGITS, count) for count in counts]), first * LINE_SIZE)

    def write(self, text: bytes, at: int) -> None:
        write_whole(self.fd, text, at)
        self.text = self.text[:at].ljust(at, b"\0") + text + self.text[at + len(text) :]

    # --- skips------------------------------------------------------------------------------------

    def count_skip(self, mode: str) -> "int | None":
        at = MODES.index(mode)
        try:
            skips = self.read_skips()[at]
            self.write_lines([skips + 1], 1 + at)
            return skips
        except OSError:
            return None

    def restore_skips(self) -> None:
        try:
            with self:
                # Beside a hold that is not exclusive, another contender may have run since, which
                # ended them for good.
                if self.mode == EXCLUSIVE or self.number == self.read_counter():
                    self.write_lines(
                        [now + ended for now, ended in zip(self.read_skips(), self.ended)], 1
                    )
        except (OSError, SoloError):
            pass
        self.close()


def read_line(line: bytes) -> "int | None":
    """Return the number on a line of the gate, None if the line is damaged. All start with 0: so
    texts sort as numbers.
    """
    digits = line[:-1]
    is_whole = (
        len(digits) == DIGITS and digits[:1] == b"0" and digits.isdigit() and line.endswith(b"\n")
    )
    return int(digits) if is_whole else None
