"""Tickets kept as files: the queue of one name, as a directory of `.gate`, `.seat.<n>` and `.hold.<n>`.

A ticket is alive while its owner holds flock(2) on it, so the kernel ends it however the owner ends. It is published
whole: written and locked as `.new.<n>` or without a name, then given its own. Its n, from a counter in the gate, is never used
twice. Only who holds the gate may publish, or remove what is dead; an owner may always remove its own. Below the gate's counter
stands a line a mode: how many who wanted it were turned away since someone in a mode no weaker got in. The last line is the boot
id of the last ticket and the first number given since that boot.
"""

import posix
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from time import monotonic, time

from solo.errors import SoloError, Vanished
from solo.identity import is_alive
from solo.kernel import (
    IS_REGULAR,
    SAFELY,
    TYPE_MASK,
    USUAL_SIZE,
    close,
    create,
    list_directory,
    read_file,
    say_promptly,
    try_lock,
    wait_lock,
    wait_unlocked,
    write_whole,
)
from solo.directories import explain, open_file
from solo.record import RESERVED, SIZE_LIMIT, format_record, format_since, format_start, parse_record
from solo.modes import COMPATIBLE, COUNTED, MODES, NO_STRONGER

GATE, NEW, SEAT, HOLD = ".gate", ".new.", ".seat.", ".hold."
DIGITS = 20  # so that the order of numbers is the order of file names
LARGEST = 10**18  # no counter from a clock gets there before the year 33658: a larger number is damage
READABLE = 0o644  # mode of a ticket where it is shared: contenders open it for reading, and lock it shared
BOOT_AT = (DIGITS + 1) * (1 + len(MODES))  # where the gate's last line begins
BOOT_SIZE = 36 + 1 + DIGITS + 1
MOST_OPEN = 64  # holds of one name that are watched at once, or kept though they can not be seen
GATE_PATIENCE = 2.5  # seconds, twice, for a gate that does not change hands

# UNSEEN: its owner is gone, and its command was in a world that can not be looked into.
LIVE, ORPHANED, DEAD, UNSEEN = "live", "orphaned", "dead", "unseen"


class Ticket:
    """One `file` of the queue `line`, ours or someone's: open as `fd`, LIVE or another state, `record` once it was read.

    `owner_uid` is the user of its file once its record was read. `size` is that of the file if it is ours, in bytes. Until our hold is settled, `seat` is what we had before it, and `passed`
    are those that were in our way then.
    """

    __slots__ = ("fd", "file", "line", "owner_uid", "passed", "record", "seat", "size", "state")

    def __init__(self, line, file, fd, state, record=None, size=0):
        self.size = size
        self.owner_uid = None
        self.seat = None
        self.passed = ()
        self.line = line
        self.file = file
        self.fd = fd
        self.state = state
        self.record = record

    @property
    def number(self) -> int:
        return get_number(self.file)

    @property
    def is_hold(self) -> bool:
        return self.file.startswith(HOLD)

    def read_record(self):
        """What it says of its owner, or None if that makes no sense. Only what is wanted is ever read. Raises SoloError."""
        if self.record is None and self.is_open:
            try:
                data = posix.pread(self.fd, USUAL_SIZE, 0)
                if len(data) == USUAL_SIZE:
                    data = posix.pread(self.fd, SIZE_LIMIT + 1, 0)
                self.owner_uid = posix.fstat(self.fd).st_uid
            except OSError as error:
                raise self.line.fail(self.file, error.strerror) from None
            if len(data) <= SIZE_LIMIT:
                self.record = parse_record(data)
        return self.record

    @property
    def descriptors(self) -> tuple:
        """What must stay open while it is ours."""
        return self.fd, self.line.place.fd

    def complete(self, child: tuple):
        """Write the command's process and the closing line into our own record, and since when. Raises OSError."""
        self.record.since = time()
        text = format_start(self.record.since, child)
        write_whole(self.fd, text, self.size - len(text))

    def wait_end(self, deadline: float) -> bool:
        """Block until it may no longer be in the way; False if the deadline passed first."""
        if self.state is ORPHANED:
            from solo.process.watch import wait_any

            return wait_any([self], deadline)
        return wait_unlocked(self.fd, deadline)

    def has_left(self) -> bool:
        """Is it no longer in the way? It goes out of the directory a moment before its lock."""
        return not posix.fstat(self.fd).st_nlink or try_lock(self.fd, LOCK_SH)

    def is_released(self) -> bool:
        """Did its owner let go of it itself? Then its command has ended."""
        return self.state is LIVE and self.is_open and not posix.fstat(self.fd).st_nlink

    def open_watch(self):
        """A new descriptor that is readable once it may no longer be in the way, or None. Raises ProcessLookupError: it is gone."""
        from solo.process.watch import open_pidfd

        record = self.read_record()
        if record is None:
            return None
        if self.state is ORPHANED:
            return open_pidfd(record.child, record.world, self.line.world)
        try:
            return open_pidfd(record.launcher, record.world, self.line.world)
        except ProcessLookupError:
            return None  # a child of it has the lock, just before its exec

    @property
    def is_watch_exact(self) -> bool:
        """Does its watch tell every end? A launcher lets go a moment before it exits, a program long before."""
        return self.state is ORPHANED

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def close(self):
        fd, self.fd = self.fd, -1  # first: a number that was closed may soon be someone else's
        if fd >= 0:
            close(fd)

    def release(self):
        """Give up our own. Never fails: what can not be removed is dead once it is unlocked."""
        settle(self)
        self.line.remove(self.file)
        try:
            flock(self.fd, LOCK_UN)  # not left to close(): a forked copy of the descriptor must not keep the lock
        except (OSError, ValueError):
            pass
        self.close()


def settle(hold):
    """Let go of what brought us to our `hold`."""
    seat, hold.seat = hold.seat, None
    passed, hold.passed = hold.passed, ()
    if seat is not None:
        seat.release()
    for ticket in passed:
        ticket.close()


class Line:
    """The queue of one name, as `place` keeps it.

    `world` is where our own pids are valid, `gate` the gate's descriptor or None, `text` what the gate said when we locked it,
    `seen` its counter when we last looked for obstacles, `files` the tickets as last listed, `unseen` the records of those among
    them whose command may run where we can not look, by their files, `newest` the number last given to us, `skips` how many
    were turned away before our hold, for each of MODES.
    """

    __slots__ = ("files", "gate", "is_new", "newest", "place", "seen", "skips", "text", "unseen", "world")

    def __init__(self, place, world):
        self.place = place
        self.world = world
        self.gate = None
        self.text = self.seen = b""
        self.newest = "0"
        self.is_new = False  # whether our ticket was the first one that this gate numbered
        self.files = []
        self.unseen = {}
        self.skips = [0] * len(MODES)

    # --- the gate -------------------------------------------------------------------------------------------------

    def __enter__(self):
        """Lock the gate. Raises SoloError if one process sits on it for five seconds."""
        while True:
            if self.gate is None:
                self.gate = self.open_gate()
            try:
                if not try_lock(self.gate, LOCK_EX):
                    self.wait_gate()
                if not self.is_gate_lost():
                    self.load()
                    return self
            except OSError as error:
                raise self.fail(GATE, error.strerror) from None
            self.close_gate()

    def __exit__(self, *_):
        flock(self.gate, LOCK_UN)

    def open_gate(self) -> int:
        try:
            return open_file(self.place, GATE, posix.O_RDWR)
        except OSError as error:
            if not posix.fstat(self.place.fd).st_nlink:
                raise Vanished(f"{self.place.path}: someone removed it") from None
            raise self.fail(GATE, explain(self.place.path, error)) from None

    def close_gate(self):
        if self.gate is not None:
            close(self.gate)
            self.gate = None

    def leave(self):
        """Close what is open but for tickets; nothing can be done with it any more."""
        self.close_gate()
        fd, self.place.fd = self.place.fd, -1
        if fd >= 0:
            close(fd)

    def wait_gate(self):
        """Block until the gate is ours, as long as it changes hands. Raises SoloError once it stands still."""
        seen = posix.fstat(self.gate).st_mtime_ns
        if not wait_lock(self.gate, LOCK_EX, monotonic() + GATE_PATIENCE):
            from solo.process.watch import wait_crowded_gate

            owner, seconds = wait_crowded_gate(self.gate, seen, GATE_PATIENCE)
            if seconds:
                who = f"pid {owner}" if owner else "a process"
                raise self.fail(GATE, f"{who} has been sitting on it for {seconds:.0f} seconds (is it stopped?)")
        try:
            posix.utime(self.gate)  # a contender that only looks writes nothing: show the others that the gate moves
        except OSError:
            pass

    def take_number(self, kind: str, mode: str) -> str:
        """The next number of this name, past all that is there. A new or a damaged counter goes on from the clock."""
        counter, self.skips = self.read_gate()
        if counter is None:
            self.is_new = True
            self.list_files()  # those behind us as well: what we write is where who comes next goes on
        newest = max([self.newest, *[file[-DIGITS:] for file in self.files]])
        number = 1 + max(int(time() * 1e6) if counter is None else counter, int(newest))
        if number >= LARGEST:  # made by damage or another user: take a number that is free now
            taken = {get_number(file) for file in filter(is_ticket, list_directory(self.place.fd))}
            number = 1 + max(int(time() * 1e6), counter or 0)
            while number in taken:
                number += 1
        kept = [0 if other in NO_STRONGER[mode] else self.skips[at] for at, other in enumerate(MODES)] if any(self.skips) else []
        self.write_gate([number, *kept] if kind is HOLD else [number])
        boot, _ = self.read_boot()
        if boot != self.world.boot:
            first = 0 if boot is None else number  # without the line, an older ticket may be of this boot too
            self.write_at(b"%b %0*d\n" % (self.world.boot.encode(), DIGITS, first), BOOT_AT)
        self.newest = f"{number:0{DIGITS}d}"
        return self.newest

    def load(self):
        """Read what the gate says; raises OSError."""
        self.text = posix.pread(self.gate, BOOT_AT + BOOT_SIZE, 0)

    def read_gate(self) -> tuple:
        """The last number given, None if that is damaged or there was none, and the skips of each of MODES."""
        lines = [self.text[at:at + DIGITS + 1] for at in range(0, (DIGITS + 1) * (1 + len(MODES)), DIGITS + 1)]
        counter, *skips = [int(line[:-1]) if line.endswith(b"\n") and is_number(line[:-1]) else None for line in lines]
        return counter if counter is not None and counter + 1 < LARGEST else None, [count or 0 for count in skips]

    def read_boot(self) -> tuple:
        """The boot id of the last ticket, and the first number given since that boot; two Nones if the line is damaged."""
        boot, _, number = self.text[BOOT_AT:].partition(b" ")
        is_whole = number[DIGITS:] == b"\n" and is_number(number[:DIGITS])
        return (boot.decode(errors="replace"), int(number)) if is_whole else (None, None)

    def is_of_this_boot(self, ticket) -> bool:
        """Was its number given since the boot, as the gate says? A step of the clock moves all times of files, and no number."""
        if self.gate is None:
            self.read_unlocked()
        boot, first = self.read_boot()
        return boot == self.world.boot and ticket.number >= first

    def read_unlocked(self):
        """Read the gate without locking it. Raises OSError."""
        self.gate = posix.open(GATE, posix.O_RDONLY | SAFELY, dir_fd=self.place.fd)
        try:
            self.load()
        finally:
            self.close_gate()

    def write_gate(self, counts: list, first: int = 0):
        """Write lines of the gate, from the one with the number `first` on. Raises OSError."""
        self.write_at(b"".join([b"%0*d\n" % (DIGITS, count) for count in counts]), first * (DIGITS + 1))

    def write_at(self, text: bytes, at: int):
        write_whole(self.gate, text, at)
        self.text = self.text[:at].ljust(at, b"\0") + text + self.text[at + len(text):]

    def note_look(self):
        """We look for obstacles now, under the gate."""
        self.seen = self.text[:DIGITS + 1]

    def is_unchanged(self) -> bool:
        """Has no contender joined since we last looked? Each takes a number before it publishes a ticket.

        Where others can write the gate, its counter proves nothing.
        """
        return not self.place.shared and self.text[:DIGITS + 1] == self.seen and is_number(self.seen[:-1])

    def count_skip(self, mode: str):
        """One more who wanted `mode` was turned away: how many were before. None if that can not be kept. Under the gate."""
        at = MODES.index(mode)
        try:
            skips = self.read_gate()[1][at]
            self.write_gate([skips + 1], 1 + at)
            return skips
        except OSError:
            return None

    def restore_skips(self):
        """Our hold came to nothing, as something else was busy: count on from where we found it."""
        try:
            with self:
                self.write_gate(self.skips, 1)
        except (OSError, SoloError):
            pass
        self.close_gate()

    # --- the tickets ----------------------------------------------------------------------------------------------

    def list_files(self, before: str = "/") -> list:
        """The names of ticket files that sort `before` one, or of all, in no order. Raises SoloError."""
        self.unseen.clear()
        try:
            # What thousands behind us are is not asked.
            self.files = list(filter(is_ticket, [file for file in list_directory(self.place.fd) if file < before]))
        except OSError as error:
            raise SoloError(f"can not list {self.place.path}: {error.strerror}") from None
        return self.files

    def find_newest_seat(self):
        """The living seat that was published last, if nothing was since; else None. Under the gate.

        A joiner with this seat before it need not list the directory: the queue may be thousands long.
        """
        number = self.text[:DIGITS]
        ticket = self.open_ticket(SEAT + number.decode()) if is_number(number) else None
        if ticket is not None and ticket.state is not LIVE:
            ticket.close()
            return None
        return ticket

    def is_gate_lost(self) -> bool:
        """Was our gate removed under us? Then others may be behind another one."""
        ours = posix.fstat(self.gate)
        if not self.place.shared or not ours.st_nlink:
            return not ours.st_nlink
        try:  # another user may have given it a second link
            return posix.stat(GATE, dir_fd=self.place.fd, follow_symlinks=False).st_ino != ours.st_ino
        except FileNotFoundError:
            return True

    def open_ticket(self, file: str):
        """Someone's ticket, with its state; None if it is gone. Raises SoloError if its state can not be told."""
        try:
            fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=self.place.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.fail(file, error.strerror) from None
        ticket = Ticket(self, file, fd, LIVE)
        try:
            if try_lock(fd, LOCK_SH):
                ticket.state = self.judge(ticket)
        except (OSError, SoloError) as error:
            close(fd)
            raise error if isinstance(error, SoloError) else self.fail(file, error.strerror) from None
        return ticket

    look = open_ticket  # for who only wants to tell of it

    def judge(self, ticket) -> str:
        """A ticket without its owner is dead, unless its record knows of a command that lives."""
        stat = posix.fstat(ticket.fd)
        if stat.st_mode & TYPE_MASK != IS_REGULAR:
            raise self.fail(ticket.file, "is not a regular file")
        if not ticket.is_hold or not stat.st_nlink:
            return DEAD
        record = ticket.read_record()
        if record is None:
            if stat.st_ctime < read_boot_time() and not self.is_of_this_boot(ticket):
                return DEAD  # torn by a power loss: nothing of that time lives
            raise self.fail(ticket.file, "damaged, and its command may still run (remove it if not)")
        if record.child is None:
            return DEAD
        theirs, mine = record.world, self.world
        if theirs.boot != mine.boot and theirs.host == mine.host and stat.st_ctime >= read_boot_time():
            theirs.boot = mine.boot  # whatever it is called: in systemd-nspawn a unit with a /proc of its own sees another id
        return {True: ORPHANED, False: DEAD, None: UNSEEN}[is_alive(*record.child, theirs, mine)]

    def make_spare(self, record):
        """A hold of ours that is whole and locked but has no name, and so goes with us; None where that can not be."""
        if record.claim.mode == COUNTED:
            return None  # its slots are not known before its turn
        fd = -1
        try:
            flags = posix.O_RDWR | posix.O_TMPFILE | SAFELY
            fd = create(posix.open, ".", flags, self.place.mode & READABLE, dir_fd=self.place.fd)
            return self.write_ticket("", fd, record)
        except OSError:  # not every file system can
            if fd >= 0:
                close(fd)
            return None

    def write_ticket(self, file: str, fd: int, record) -> Ticket:
        if self.place.shared:
            posix.fchmod(fd, self.place.mode & READABLE)  # the umask of a program is its own
        record.since = time()
        text = format_record(record)
        write_whole(fd, text, 0)
        flock(fd, LOCK_EX | LOCK_NB)
        return Ticket(self, file, fd, LIVE, record, len(text))

    def publish(self, kind: str, record, spare=None):
        """Make a ticket of ours, or give a `spare` its name, under the gate; None, and nothing made, if that was removed under us.
        Raises SoloError.
        """
        directory = self.place.fd
        fd = -1
        try:
            number = self.take_number(kind, record.claim.mode)
            new, file = NEW + number, kind + number
            ticket = self.name_spare(spare, file) if spare is not None else None
            if ticket is None:
                flags = posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | SAFELY
                fd = create(posix.open, new, flags, self.place.mode & READABLE, dir_fd=directory)
                ticket = self.write_ticket(file, fd, record)
                posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if fd >= 0:
                close(fd)
                self.remove(new)
            if self.is_gate_lost():
                return None
            raise SoloError(f"can not write in {self.place.path}: {error.strerror}") from None
        if self.is_gate_lost():
            ticket.release()
            return None
        return ticket

    def take_over(self, claim, gone: set):
        """We run with that `claim`: who can look into what we could not finds our hold there now, and no more what it does not go
        with, whose launchers are `gone`. A ticket's name is never used twice, so this needs no gate.
        """
        for at, (file, record) in enumerate(sorted(self.unseen.items(), reverse=True)):
            launcher = record.launcher, record.world.pid_namespace, record.world.host
            if claim.mode == COUNTED or (claim.mode, record.claim.mode) not in COMPATIBLE:
                gone.add(launcher)
                host = record.world.host
                say_promptly(f"{self.place.path}: taking over from {host}, whose processes can not be seen from here")
            if launcher in gone or at >= MOST_OPEN:  # or else those of containers that are no more would be ever more
                self.remove(file)

    def name_spare(self, spare, file: str):
        """The spare, published; None, and it is closed, where that can not be."""
        try:
            spare.record.since = time()  # it may be long until its command starts: another name comes first
            text = format_since(spare.record.since)
            write_whole(spare.fd, text, spare.size - RESERVED - len(text))
            posix.link(f"/proc/self/fd/{spare.fd}", file, dst_dir_fd=self.place.fd, follow_symlinks=True)
            spare.file = file
            return spare
        except OSError:
            spare.close()
            return None

    def remove(self, file: str):
        """Our own, or under the gate a dead one. What can not be removed is dead all the same, and is passed over again."""
        try:
            posix.unlink(file, dir_fd=self.place.fd)
        except OSError:
            pass

    def shorten(self, name: str) -> str:
        """A name as the records in this line have it."""
        return name

    def fail(self, file: str, reason: str) -> SoloError:
        return SoloError(f"{self.place.path}/{file}: {reason}")


def is_ticket(file: str) -> bool:
    return file[:-DIGITS] in (SEAT, HOLD, NEW) and file.isascii() and is_number(file[-DIGITS:].encode())


def get_number(file: str) -> int:
    return int(file[-DIGITS:])


def is_published(file: str) -> bool:
    return not file.startswith(NEW)


def is_number(digits: bytes) -> bool:
    """All numbers start with 0: the order of their texts is theirs, and none is ever too long to be seen."""
    return len(digits) == DIGITS and digits[:1] == b"0" and digits.isdigit()


def read_boot_time() -> float:
    """When this machine started, in seconds since the epoch."""
    return time() - float(read_file("/proc/uptime").split()[0])
