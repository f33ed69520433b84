"""Tickets as abstract UNIX sockets (--via socket): the same queue without any file, for read-only
systems.

A ticket is a listening socket. Its address,
`\\0solo/<uid>/<name>/<kind>.<n>.<claim>.<names>.<tree>.<child>`, is its record. It is alive while
it is bound, and the kernel unbinds it however its owner ends. The gate is one more such address,
which only one process can bind. The kernel says which process owns a socket (SO_PEERCRED). A waiter
connects to the ticket ahead, until that hangs up. An orphan would have no ticket, so the command
dies with its launcher; a contender that saw both alive waits for the end of both.
"""

import os
from _socket import (
    AF_UNIX,
    SO_PEERCRED,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)
from binascii import crc32
from errno import EADDRINUSE
from time import monotonic, sleep, time

from solo.argv import parse
from solo.contention.addresses import PREFIX, list_addresses
from solo.errors import Busy, SoloError
from solo.gate import DIGITS, GATE_PATIENCE, LEAST_PATIENCE, Gate
from solo.identity import Origin, Process, read_namespace, read_stat
from solo.kernel import CLOSED, FOREVER, close, decode, encode, read_boot_clock, read_file
from solo.modes import INTENTIONS, SLOTS, Claim
from solo.options import NOTE
from solo.process.recipient import Recipient
from solo.process.watch import GATE_BUSY, describe_stuck, poll, wait_any
from solo.record import Record, check_claim, format_tree, parse_tree, quote
from solo.tickets import HOLD, LEAST_STEP, LIVE, ORPHANED, SEAT, Queue, Ticket, finish_handoff

ADDRESS_MAX = 107  # bytes, after the first
BACKLOG = 4096  # each connection stays in it, as nobody accepts
NO_CHILD = ".0"
TICKET_KINDS = {"hold": HOLD, "seat": SEAT}
BLINK = 0.001  # seconds
WORDS_SIZE = 1 << 20  # bytes
# of packaging/stub.c, before the words of an installed solo
MASKS = (b"0", b"1000", b"1000000", b"1001000")
MOST_PARENTS = 3  # in the address of a ticket at a parent
# instead of names: for which name of a pair that solo made from a command
OF_PAIR = FIRST, SECOND = ("1", "2")

# by name and the rest of the address, of tickets that were shown before
owners: "dict[tuple[str, str], int]" = {}


class SocketTicket(Ticket):
    """A ticket with the `fd` of our socket, or of our connection to theirs, CLOSED if its backlog
    is full.

    `text` is the last part of its address; `owner` the pid of its owner, 0: unknown; `watch` a
    Recipient of the command.
    """

    queue: "SocketQueue"

    def __init__(
        self,
        queue: "SocketQueue",
        file: str,
        text: str,
        fd: int,
        owner: int = 0,
        record: "Record | None" = None,
    ) -> None:
        self.queue = queue
        self.file = file
        self.text = text
        self.fd = fd
        self.owner = owner
        self.record = record
        self.state = LIVE
        self.watch: Recipient | None = None
        self.owner_uid = os.geteuid()  # connect() asked the kernel

    @property
    def is_open(self) -> bool:
        return self.fd != CLOSED or self.watch is not None

    def read_record(self) -> "Record | None":
        """Return the record, from its address and /proc; None if the address is damaged."""
        if self.record is None:
            self.record = make_record(self)
        return self.record

    def complete(self, child: "Process") -> None:
        """Put the command's process into our address: a second socket takes the place of the first.
        Raises OSError.
        """
        self.text = f"{self.text.rpartition('.')[0]}.{child[0]}"
        old, self.fd = self.fd, bind(self.queue.name, self.text)
        close(old)

    def open_watches(self) -> "tuple[list[int], bool]":
        watched = self.fd if self.watch is None else self.watch.pidfd
        return ([], False) if watched is None or watched == CLOSED else ([os.dup(watched)], True)

    def wait_end(self, deadline: float) -> bool:
        """Block until the ticket may no longer be in the way; False if the deadline passed
        first.
        """
        return wait_any([self], deadline)

    def has_left(self) -> bool:
        return poll([self.fd], 0)

    def release(self) -> None:
        finish_handoff(self.queue)
        self.close()


class SocketGate(Gate):
    """The guard mutex of a name as an address, which only one process can bind. It counts no
    skips.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.deadline = FOREVER
        self.fd = CLOSED

    def __enter__(self) -> "SocketGate":
        """Bind the gate's address. Raises SoloError if one process keeps it for GATE_PATIENCE, Busy
        at `deadline`.
        """
        deadline = max(self.deadline, monotonic() + LEAST_PATIENCE)
        owner, limit = -1, FOREVER
        while True:
            try:
                self.fd = bind(self.name, "gate")
                return self
            except FileExistsError:
                owner, limit = self.wait(owner, limit, deadline)
            if monotonic() >= deadline:
                raise Busy(GATE_BUSY)
            if monotonic() >= limit:
                raise make_error(
                    f"cannot bind the gate's address: {describe_stuck(owner, GATE_PATIENCE)}"
                )

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, before: int, limit: float, deadline: float) -> "tuple[int, float]":
        """Block until the gate's owner unbinds it, but not beyond `deadline` or our patience.
        Return its pid, 0: unknown, and when that patience ends: `limit`, but later for another
        owner than `before`.
        """
        try:
            fd, owner = connect(self.name, "gate")
        except ConnectionRefusedError:
            fd, owner = CLOSED, 0  # bound and not listening yet, or gone
        if owner != before:
            limit = monotonic() + GATE_PATIENCE
        try:
            if fd == CLOSED:
                sleep(BLINK)
            else:
                poll([fd], min(limit, deadline))
            return owner, limit
        finally:
            close(fd)


class SocketQueue(Queue):
    """The queue of `name` as sockets. `texts` has the last part of each ticket's address, by its
    file.
    """

    def __init__(self, name: str, origin: "Origin") -> None:
        self.name = name
        self.origin = origin
        self.gate = SocketGate(name)
        self.files = []
        self.texts: dict[str, str] = {}
        self.unseen = {}  # stays empty: all tickets are of this machine
        # by file: its command, which may outlive the launcher for a moment
        self.seen: dict[str, Recipient] = {}
        # Of the tickets that answered: any process can add to the list of sockets.
        self.highest = 0

    def leave(self) -> None:
        self.gate.close()
        while self.seen:
            self.seen.popitem()[1].close()

    def count_from(self, number: int) -> None:
        self.highest = number

    def raise_counter(self, number: int) -> None:
        pass  # each counts from the clock

    def list_files(self, before: str = "/") -> "list[str]":
        """Return the tickets, named as files would be, each until its command has ended too. Raises
        SoloError.
        """
        self.texts = self.find_texts()
        for key in [
            key for key in owners if key[0] == self.name and key[1] not in self.texts.values()
        ]:
            del owners[key]
        for file in self.seen.keys() - self.texts.keys():
            if self.seen[file].is_gone():
                self.seen.pop(file).close()
        self.files = [
            file for file in (*self.texts, *(self.seen.keys() - self.texts.keys())) if file < before
        ]
        return self.files

    def find_texts(self) -> "dict[str, str]":
        """Return {file: the last part of the address} of the tickets that are bound now."""
        texts: dict[str, str] = {}
        for name, text in list_addresses():
            kind, _, rest = text.partition(".")
            number = rest.partition(".")[0]
            is_number = number.isascii() and number.isdigit() and len(number) < DIGITS - 1
            if name == self.name and kind in TICKET_KINDS and is_number:
                file = f"{TICKET_KINDS[kind]}{int(number):0{DIGITS}d}"
                # `complete` binds a second one before it closes the first.
                if texts.get(file, NO_CHILD).endswith(NO_CHILD):
                    texts[file] = text
        return texts

    def open_ticket(self, file: str) -> "SocketTicket | None":
        """Return a ticket with its state, None if it is gone. Raises SoloError if another user owns
        it.
        """
        while file in self.texts:
            text = self.texts[file]
            try:
                fd, owner = connect(self.name, text)
            except ConnectionRefusedError:
                again = self.find_texts().get(file)
                if again in (None, text):
                    break
                self.texts[file] = again  # its command has just started
                continue
            ticket = SocketTicket(self, file, text, fd, owner)
            self.highest = max(self.highest, ticket.number)
            self.see_command(ticket)
            return ticket
        if file in self.seen and not self.seen[file].is_gone():
            ticket = SocketTicket(self, file, "", CLOSED)
            ticket.state = ORPHANED
            ticket.watch = self.seen[file]
            return ticket
        return None

    def look(self, file: str) -> "SocketTicket | None":
        """Return a ticket, for callers that show it again and again: each connection stays in its
        owner's backlog.
        """
        text = self.texts.get(file, "")
        if (self.name, text) in owners:
            return SocketTicket(self, file, text, CLOSED, owners[self.name, text])
        ticket = self.open_ticket(file)
        if ticket is not None and ticket.state is LIVE and ticket.owner:
            owners[self.name, ticket.text] = ticket.owner
        return ticket

    def see_command(self, ticket: SocketTicket) -> None:
        """Keep a Recipient of its command. While the launcher lives the pid can be no other
        process's.
        """
        record = ticket.read_record() if ticket.is_hold and ticket.file not in self.seen else None
        if record is not None and record.child is not None:
            try:
                self.seen[ticket.file] = Recipient(record.child, self.origin, self.origin)
            except (ProcessLookupError, SoloError):
                pass  # it has just ended, or cannot be seen

    def publish(self, kind: str, record: Record) -> "SocketTicket | None":
        """Make our ticket. Gate locked. Raises SoloError."""
        record.since = time()
        number = max(int(record.since * 1e6), self.highest + 1)
        file = f"{kind}{number:0{DIGITS}d}"
        below = [name for name in record.names if name.startswith(self.name + "/")]
        names = (
            "-".join(map(self.shorten, below[:MOST_PARENTS]))
            if record.claim.mode in INTENTIONS
            else ""
        )
        if record.is_pair:
            names = OF_PAIR[record.names.index(self.name)]
        tree = format_tree(record.tree)
        text = f"{kind.strip('.')}.{number}.{format_claim(record)}.{names}.{tree}{NO_CHILD}"
        try:
            fd = bind(self.name, text)
        except FileExistsError:
            raise make_error("another process has our address") from None
        return SocketTicket(self, file, text, fd, os.getpid(), record)

    def remove(self, file: str) -> None:
        pass  # the kernel removes a ticket with its owner

    def shorten(self, name: str) -> str:
        """Return a name as the addresses of this queue have it: at a parent, those of nested
        names.
        """
        return f"{crc32(encode(name)):08x}"


def make_error(reason: str) -> SoloError:
    return SoloError(f"--via socket: {reason}")


def make_address(name: str, text: str) -> bytes:
    address = b"%b/%d/%b/%b" % (PREFIX.encode(), os.geteuid(), quote(encode(name)), text.encode())
    if len(address) > ADDRESS_MAX:
        raise make_error(
            "the name is too long for the address of a socket (choose a shorter one with -n)"
        )
    return b"\0" + address


def bind(name: str, text: str) -> int:
    """Return a listening socket. Raises FileExistsError if another process has the address."""
    new = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
    try:
        new.bind(make_address(name, text))
        new.listen(BACKLOG)
        return new.detach()
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise FileExistsError(error.errno, error.strerror) from None
        raise
    finally:
        new.close()


def connect(name: str, text: str) -> "tuple[int, int]":
    """Return (descriptor, pid of the owner); (CLOSED, 0) if its backlog is full. Raises SoloError
    if it is another user's.
    """
    new = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
    try:
        new.connect(make_address(name, text))
        credentials = new.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
        pid, uid = (int.from_bytes(credentials[at : at + 4], "little") for at in (0, 4))
        if uid != os.geteuid():
            raise make_error(f"pid {pid} of uid {uid} has bound an address of this user")
        return new.detach(), pid
    except BlockingIOError:
        return CLOSED, 0
    finally:
        new.close()


def format_claim(record: Record) -> str:
    """Return the claim and slots of a record, as in an address."""
    claim = record.claim
    if claim.mode != SLOTS:
        return claim.mode
    ranges = "".join([f"-{first}-{last}" for first, last in record.slot])
    return f"{claim.mode}-{claim.slots}-{claim.take}{ranges}"


def parse_claim(text: str) -> "tuple[Claim, list[tuple[int, int]]]":
    """Return (Claim, slots as (first, last)). Raises ValueError."""
    mode, *numbers = text.split("-")
    slots, take, *ends = map(int, numbers) if mode == SLOTS else (1, 1)
    ranges = list(zip(ends[::2], ends[1::2]))
    if len(ends) % 2 or any(first > last for first, last in ranges):
        raise ValueError
    return check_claim(mode, slots, take), ranges


def make_record(ticket: SocketTicket) -> "Record | None":
    """Return the record that a ticket would have in its file. Command and note are from the owner's
    own command line.
    """
    own, origin = ticket.queue.shorten(ticket.queue.name), ticket.queue.origin
    try:
        _, number, text, names, tree, child = ticket.text.split(".")
        claim, slot = parse_claim(text)
        for_names = {FIRST: [own, ""], SECOND: ["", own]}.get(names) or (
            names.split("-") if names else [own]
        )
        record = Record((0, 0), origin, os.geteuid(), claim, for_names, [b"?"])
        record.tree = parse_tree(tree)
        record.slot = slot
        record.is_generated = names in OF_PAIR
        pid, since = int(child), int(number) / 1e6
    except (ValueError, OverflowError):
        return None
    try:
        if ticket.owner:
            record.launcher = ticket.owner, read_stat(ticket.owner).start
            record.command, record.note = read_command(ticket.owner)
            if pid and read_namespace(ticket.owner, "pid") == origin.pid_namespace:
                stat = read_stat(pid)
                record.child = (pid, stat.start) if stat.parent == ticket.owner else None
            if record.tree is not None:
                record.outer = find_outer(ticket.owner)
    except OSError:
        pass  # it has just ended
    record.since = follow_clock(since, record.launcher[1], record.child)
    return record


def find_outer(launcher: int) -> "Process | None":
    """Return the process above the launcher of --tree, which has the same words; None if it was
    killed.
    """
    outer = read_stat(read_stat(launcher).parent)
    words = [read_file(f"/proc/{pid}/cmdline", WORDS_SIZE) for pid in (outer.pid, launcher)]
    return (outer.pid, outer.start) if words[0] == words[1] else None


def follow_clock(since: float, start: int, child: "Process | None") -> float:
    """Return `since`; if the wall clock was set after it, as it lies before the owner's `start` or
    ahead, the time of the command's fork, else the present one: no command is ended for an age that
    is not known.
    """
    now, ticks = time(), os.sysconf("SC_CLK_TCK")
    if now - read_boot_clock() + start / ticks - LEAST_STEP <= since <= now + LEAST_STEP:
        return since
    return now if child is None else now - read_boot_clock() + child[1] / ticks


def read_command(pid: int) -> "tuple[list[bytes], str]":
    """Return the command of a launcher, its words after its own options, and its --note or ""."""
    words = read_file(f"/proc/{pid}/cmdline", WORDS_SIZE).split(b"\0")[:-1]
    for at, word in enumerate(words):
        if word.rpartition(b"/")[2] in (b"solo", b"__main__.py", b"solo.pyz"):
            own = words[at + 1 :]
            if own and own[0] in MASKS:
                del own[0]
            try:
                typed, _, command = parse([decode(word) for word in own])
                return [encode(word) for word in command] or words, typed.get(NOTE.key, "")
            except SoloError:
                continue
    return words, ""
