"""Tickets kept as files, in the directory of a name. queue.py has the protocol."""

import posix
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from time import time

from solo import kernel
from solo.directories import STICKY, Directory, explain
from solo.errors import SoloError
from solo.gate import DIGITS, LARGEST_NUMBER, FileGate, Gate
from solo.identity import Origin, Process, is_alive, read_uptime
from solo.kernel import (
    CLOSED,
    SAFELY,
    Opened,
    close,
    list_directory,
    say_promptly,
    try_lock,
    wait_lock,
    write_whole,
)
from solo.modes import COMPATIBLE, SLOTS, Claim
from solo.record import RECORD_LIMIT, Record, format_record, format_start, parse_record

TYPE_CHECKING = False

UNPUBLISHED, SEAT, HOLD = ".new.", ".seat.", ".hold."
# mode of a ticket where it is shared: contenders open it for reading, and lock it shared
READABLE = 0o644
LEAST_STEP = 0.5  # seconds between the two clocks that are more than the time between reading them
MOST_OPEN = 64  # holds of one name that are watched at once, or kept though they cannot be seen
# mtime of an unseen hold that a contender took over: the next one need not say so again
REPORTED = 0

# UNSEEN: its launcher is gone, and its command ran where we cannot look for processes.
LIVE, ORPHANED, DEAD, UNSEEN = "live", "orphaned", "dead", "unseen"


class Ticket(Opened):
    """A ticket in `queue`, ours or another contender's, whatever it is kept as. To close another's
    ends nothing.

    `file` is its name, in whose order contenders arrived; `state` is as it was found. `record` and
    `owner_uid`, whose word the record is, are None until the record was read.
    """

    queue: "Queue"
    file: str
    state: str
    record: "Record | None"
    owner_uid: "int | None"

    if TYPE_CHECKING:

        @property
        def is_open(self) -> bool: ...
        def read_record(self) -> "Record | None": ...
        def complete(self, child: Process) -> None: ...
        def wait_end(self, deadline: float) -> bool: ...
        def has_left(self) -> bool: ...
        def open_watches(self) -> "tuple[list[int], bool]": ...
        def release(self) -> None: ...

    @property
    def number(self) -> int:
        return get_number(self.file)

    @property
    def is_hold(self) -> bool:
        return self.file.startswith(HOLD)


class FileTicket(Ticket):
    """The ticket kept as `file` in the directory of `queue`, open as `fd`. `size`: of our file, in
    bytes.
    """

    queue: "FileQueue"

    def __init__(
        self, queue: "FileQueue", file: str, fd: int, record: "Record | None" = None, size: int = 0
    ) -> None:
        self.queue = queue
        self.file = file
        self.fd = fd
        self.state = LIVE
        self.record = record
        self.size = size
        self.owner_uid = None

    @property
    def is_open(self) -> bool:
        return self.fd != CLOSED

    @property
    def descriptors(self) -> "tuple[int, ...]":
        return self.fd, self.queue.place.fd

    def read_record(self) -> "Record | None":
        """Return the record, None if it is damaged. Read it once, at the first call. Raises
        SoloError.
        """
        if self.record is None and self.is_open:
            try:
                stat = posix.fstat(self.fd)
                self.owner_uid = stat.st_uid
                if not kernel.is_regular(stat.st_mode):
                    return None
                # not more: it fills a buffer
                data = posix.pread(self.fd, min(stat.st_size, RECORD_LIMIT) + 1, 0)
            except OSError as error:
                raise self.queue.fail(self.file, error.strerror) from None
            if len(data) <= RECORD_LIMIT:
                self.record = parse_record(data)
                if self.record is not None:
                    follow_boot(self.record.origin, self.queue.origin, stat.st_ctime)
                    follow_clock(self.record, self.queue.origin)
                    if self.record.outer is not None:
                        follow_pair(self.record, self.record.outer, self.queue.origin)
        return self.record

    def complete(self, child: "Process") -> None:
        """Write the start time and the command's process into our own record, which has them then.
        Raises OSError.
        """
        assert self.record is not None
        stamp(self.record)
        text = format_start(self.record, child)
        write_whole(self.fd, text, self.size - len(text))

    def wait_end(self, deadline: float) -> bool:
        """Block until the ticket may no longer be in the way; False if the deadline passed
        first.
        """
        if self.state is ORPHANED:
            from solo.process.watch import wait_any

            return wait_any([self], deadline)
        return wait_lock(self.fd, LOCK_SH, deadline)

    def has_left(self) -> bool:
        """Return whether the ticket is no longer in the way. Its owner removes the file a moment
        before the lock.
        """
        is_removed = not posix.fstat(self.fd).st_nlink
        return is_removed or (self.state is not ORPHANED and try_lock(self.fd, LOCK_SH))

    def open_watches(self) -> "tuple[list[int], bool]":
        """Return new descriptors, for `watch_ticket` to report its end. Raises ProcessLookupError
        if it has left.
        """
        from solo.process.watch import watch_ticket

        return watch_ticket(self, self.state is ORPHANED)

    def release(self) -> None:
        """Give up our own ticket. Never fails: a file that cannot be removed is dead once it is
        unlocked.
        """
        finish_handoff(self.queue)
        self.queue.remove(self.file)
        try:
            # not left to close(): a forked copy of the descriptor must not keep the lock
            flock(self.fd, LOCK_UN)
        except (OSError, ValueError):
            pass
        self.close()


def finish_handoff(queue: "Queue") -> None:
    """Release the waiting ticket that our hold in `queue` keeps until its command has started."""
    kept, queue.kept = queue.kept, None
    if kept is not None:
        kept.release()


class Queue:
    """The queue of one name, whatever it is kept as.

    `origin` is where our own pids are valid; `gate` the guard mutex; `files` the tickets as last
    listed; `unseen` the records of those among them whose command may run where we cannot look, by
    their files; `is_new` whether our ticket was the first that this gate numbered; `kept` the
    ticket that our holder had as a waiter, or None; `base` the path of the directory of all names,
    "" if nobody asks.
    """

    origin: "Origin"
    gate: "Gate"
    files: "list[str]"
    unseen: "dict[str, Record]"
    is_new = False
    kept: "Ticket | None" = None
    base = ""

    if TYPE_CHECKING:

        def leave(self) -> None: ...
        def count_from(self, number: int) -> None: ...
        def raise_counter(self, number: int) -> None: ...
        def list_files(self, before: str = "/") -> "list[str]": ...
        def open_ticket(self, file: str) -> "Ticket | None": ...
        def look(self, file: str) -> "Ticket | None": ...
        def publish(self, kind: str, record: Record) -> "Ticket | None": ...
        def remove(self, file: str) -> None: ...

    def shorten(self, name: str) -> str:
        """Return a name as the records of this queue have it: sockets have less room."""
        return name


class FileQueue(Queue):
    """The queue in the directory `place`. Our next number is above that in the digits `newest`."""

    gate: FileGate

    def __init__(self, place: "Directory", origin: "Origin", base: str = "") -> None:
        self.place = place
        self.origin = origin
        self.base = base
        self.gate = FileGate(place, origin.boot)
        self.files = []
        self.unseen = {}
        self.newest = "0"

    def leave(self) -> None:
        """Close the gate and the directory. Only the tickets stay open; the queue is of no use any
        more.
        """
        self.gate.close()
        fd, self.place.fd = self.place.fd, CLOSED
        close(fd)

    def count_from(self, number: int) -> None:
        """Give our tickets numbers above this one."""
        self.newest = f"{number:0{DIGITS}d}"

    def raise_counter(self, number: int) -> None:
        """Give later tickets, also those of others, numbers above this one. Raises OSError,
        SoloError.
        """
        if number > self.gate.number:
            with self.gate:
                if number > (self.gate.read_counter() or 0):
                    self.gate.write_lines([number])
            self.gate.close()

    def fail(self, file: str, reason: "str | None") -> SoloError:
        return SoloError(f"cannot read {self.place.path}/{file}: {reason}")

    # --- reading----------------------------------------------------------------------------------

    def list_files(self, before: str = "/") -> "list[str]":
        """Return the files of all tickets, or of those that sort `before` one, in no order. Raises
        SoloError.
        """
        self.unseen.clear()
        try:
            # Leave out the tickets behind ours first: there may be thousands.
            self.files = list(
                filter(is_ticket, [file for file in list_directory(self.place.fd) if file < before])
            )
        except OSError as error:
            raise SoloError(f"cannot list {self.place.path}: {error.strerror}") from None
        return self.files

    def open_ticket(self, file: str) -> "FileTicket | None":
        """Return a ticket with its state, None if it is gone or no ticket of another user. Raises
        SoloError.
        """
        try:
            fd = posix.open(file, posix.O_RDONLY | SAFELY, dir_fd=self.place.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_foreign(self.place, file):
                return None  # solo makes tickets that all users of the directory can open
            raise self.fail(file, explain(file, error, self.place)) from None
        ticket = FileTicket(self, file, fd)
        try:
            if try_lock(fd, LOCK_SH):
                ticket.state = self.judge(ticket)
            elif ticket.is_hold and self.has_ended(ticket):
                ticket.state = DEAD
        except (OSError, SoloError) as error:
            close(fd)
            raise (
                error if isinstance(error, SoloError) else self.fail(file, error.strerror)
            ) from None
        return ticket

    look = open_ticket  # for callers that only show the ticket

    def judge(self, ticket: FileTicket) -> str:
        """Return the state of an unlocked ticket: dead, unless its record names a command that
        lives. Raises SoloError.
        """
        stat = posix.fstat(ticket.fd)
        if not ticket.is_hold or not stat.st_nlink:
            return DEAD
        record = ticket.read_record()
        if record is None:
            if is_foreign(self.place, ticket.file):
                return DEAD  # only its user can have damaged it, and could as well have removed it
            if not kernel.is_regular(stat.st_mode):
                raise self.fail(
                    ticket.file, explain(ticket.file, OSError(kernel.EINVAL, ""), self.place)
                )
            if self.is_of_earlier_boot(ticket):
                return DEAD  # torn by a power loss: nothing of that time lives
            from solo.text.remedies import explain_damage

            raise self.fail(
                ticket.file, explain_damage(stat.st_uid, f"{self.place.path}/{ticket.file}")
            )
        if record.child is None:
            return DEAD
        theirs, mine = record.origin, self.origin
        lives = is_alive(*record.child, theirs, mine)
        if record.descriptor is not None and not lives:
            from solo.process.descriptor import is_locked

            if is_locked(record.descriptor) is not False:
                return ORPHANED
        if lives is None and theirs.boot != mine.boot:
            from solo.process.boot import is_alive_after_boot

            lives = is_alive_after_boot(ticket)
        # A kept hold never has a launcher, so without a holder the free lock proves nothing: count
        # it as held.
        unseen = ORPHANED if record.is_kept and not record.is_guarded else UNSEEN
        return {True: ORPHANED, False: DEAD, None: unseen}[lives]

    def has_ended(self, ticket: FileTicket) -> bool:
        """Return whether the process of a kept hold has ended, which its holder is about to notice.
        Raises SoloError.
        """
        record, mine = ticket.read_record(), self.origin
        if (
            record is None
            or record.child is None
            or not record.is_guarded
            or record.descriptor is not None
        ):
            return False
        # Elsewhere the lock decides alone.
        is_here = (record.origin.boot, record.origin.pid_namespace) == (
            mine.boot,
            mine.pid_namespace,
        )
        return is_here and is_alive(*record.child, record.origin, mine) is False

    def is_of_earlier_boot(self, ticket: FileTicket) -> bool:
        """Return whether the ticket is from before this boot, also if the clock was stepped since.
        Raises OSError.
        """
        ctime = posix.fstat(ticket.fd).st_ctime
        return ctime < read_boot_time(self.origin) and not self.gate.is_of_this_boot(ticket.number)

    # --- writing----------------------------------------------------------------------------------

    def publish(self, kind: str, record: "Record") -> "FileTicket | None":
        """Make our ticket; None if the gate was removed. Gate locked. Raises SoloError."""
        directory = self.place.fd
        fd = CLOSED
        if kind == HOLD and self.gate.number:  # our last ticket waited, maybe for long
            self.refuse_replaced_place()
        try:
            number = self.take_number(kind, record.claim.mode)
            new, file = UNPUBLISHED + number, kind + number
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | SAFELY
            fd = posix.open(new, flags, self.place.mode & READABLE, dir_fd=directory)
            ticket = self.write_ticket(file, fd, record)
            posix.rename(new, file, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if fd != CLOSED:
                close(fd)
                self.remove(new)
            if self.gate.is_lost():
                return None
            raise SoloError(
                f"cannot write in {self.place.path}: {explain(self.place.path, error)}"
            ) from None
        if self.gate.is_lost():
            ticket.release()
            return None
        return ticket

    def refuse_replaced_place(self) -> None:
        """Raise SoloError if our path leads to another directory now, in which newcomers look. A
        relative one may.
        """
        path = self.place.path
        if path[:1] != "/":
            return
        try:
            ours, now = posix.fstat(self.place.fd), posix.stat(path)
            is_same = (ours.st_dev, ours.st_ino) == (now.st_dev, now.st_ino)
        except FileNotFoundError:
            is_same = False
        except OSError:
            return  # newcomers cannot use it either
        if not is_same:
            raise SoloError(
                f"cannot use {path}: it was replaced or unmounted during the wait (start again)"
            )

    def take_number(self, kind: str, mode: str) -> str:
        """Return the next number, above those of all tickets, as digits. Gate locked. Raises
        OSError, SoloError.
        """
        counter = self.gate.read_counter()
        clock = int(time() * 1e6)
        if counter is None:  # new or damaged: go on from the clock
            self.is_new = True
            # With those behind ours, as the next contender counts on from the number that we write.
            # Not by list_files, which forgets the unseen holds of the last look.
            self.files = list(filter(is_ticket, list_directory(self.place.fd)))
        newest = max([self.newest, *[file[-DIGITS:] for file in self.files]])
        number = 1 + max(clock if counter is None else counter, int(newest))
        # made by damage or another user: take a number that is free now
        if number >= LARGEST_NUMBER:
            taken = {get_number(file) for file in filter(is_ticket, list_directory(self.place.fd))}
            number = 1 + max(clock, counter or 0)
            while number in taken:
                number += 1
        self.gate.write_number(number, mode if kind == HOLD else None)
        self.count_from(number)
        return self.newest

    def write_ticket(self, file: str, fd: int, record: "Record") -> FileTicket:
        """Write the record into our new file and lock it. Raises OSError."""
        if self.place.shared:
            posix.fchmod(fd, self.place.mode & READABLE)  # the umask of a program is its own
        stamp(record)
        text = format_record(record)
        write_whole(fd, text, 0)
        flock(fd, LOCK_EX | LOCK_NB)
        return FileTicket(self, file, fd, record, len(text))

    def take_over(self, claim: "Claim", known: "set[tuple[Process, str, str]]") -> None:
        """Report the unseen holds that conflict with `claim`, with which our command runs now, each
        launcher once.

        Those in `known` were reported; others are added. The tickets stay, for contenders that can
        look for the command; but only the newest: those of former containers would pile up. A
        ticket's name is never used twice, so this needs no gate.
        """
        for at, (file, record) in enumerate(sorted(self.unseen.items(), reverse=True)):
            if at >= MOST_OPEN:
                self.remove(file)
            elif claim.mode == SLOTS or record.claim.mode not in COMPATIBLE[claim.mode]:
                path, host = self.place.path, record.origin.host
                launcher = record.launcher, record.origin.pid_namespace, host
                if self.mark_reported(file) and launcher not in known:
                    say_promptly(
                        f"{path}: taking over from {host}, whose processes cannot be seen from here"
                    )
                known.add(launcher)

    def mark_reported(self, file: str) -> bool:
        """Set the time of a ticket to that of one which was reported. Return False if it was, True
        also if that fails.
        """
        try:
            if posix.stat(file, dir_fd=self.place.fd, follow_symlinks=False).st_mtime == REPORTED:
                return False
            posix.utime(file, (REPORTED, REPORTED), dir_fd=self.place.fd, follow_symlinks=False)
        except OSError:
            pass  # it has been removed, or is another user's
        return True

    def remove(self, file: str) -> None:
        """Remove our own ticket, or with the gate locked a dead one. If that fails, it is dead all
        the same.
        """
        try:
            posix.unlink(file, dir_fd=self.place.fd)
        except OSError:
            pass


def is_foreign(place: "Directory", file: str) -> bool:
    """Return whether a file in a directory of all users belongs to neither root nor this user."""
    try:
        owner = posix.stat(file, dir_fd=place.fd, follow_symlinks=False).st_uid
    except OSError:
        return False
    return bool(place.mode & STICKY) and owner not in (0, posix.geteuid())


def is_ticket(file: str) -> bool:
    kind, number = file[:-DIGITS], file[-DIGITS:]
    return (
        kind in (SEAT, HOLD, UNPUBLISHED)
        and number[0] == "0"
        and number.isascii()
        and number.isdigit()
    )


def get_number(file: str) -> int:
    return int(file[-DIGITS:])


def is_published(file: str) -> bool:
    return not file.startswith(UNPUBLISHED)


def stamp(record: "Record") -> None:
    """Set the time of a record that we write, by both clocks."""
    record.since, record.uptime = time(), read_uptime(record.origin)


def follow_boot(theirs: "Origin", mine: "Origin", changed: float) -> None:
    """If a ticket `changed` since this boot names another one on this host, set the name that we
    know it by.

    In systemd-nspawn a process with a /proc of its own sees another id of the same boot.
    """
    if theirs.boot != mine.boot and theirs.host == mine.host and changed >= read_boot_time(mine):
        theirs.boot = mine.boot


def follow_clock(record: "Record", mine: "Origin") -> None:
    """If the wall clock was set since a record of this boot was written, set `since` by the present
    one.
    """
    if record.uptime is not None and record.origin.boot == mine.boot:
        since = time() - (read_uptime(mine) - record.uptime)
        if abs(since - record.since) >= LEAST_STEP:
            record.since = since


def follow_pair(record: "Record", outer: "Process", mine: "Origin") -> None:
    """Make the process above the launcher the launcher if that was killed, and note if it was
    killed itself.
    """
    if is_alive(*record.launcher, record.origin, mine) is False:
        record.launcher = outer
    else:
        record.is_alone = is_alive(*outer, record.origin, mine) is False


def read_boot_time(mine: "Origin") -> float:
    """Return when this machine started, in seconds since the epoch: not the container, of which
    lxcfs shows the uptime.
    """
    return time() - read_uptime(mine)
