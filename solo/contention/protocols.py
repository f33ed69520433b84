"""The interfaces of ticket, gate, queue and policy. For readers, type checkers and a test: no run imports this file.

| protocol | as files         | as sockets                  |
|----------|------------------|-----------------------------|
| Ticket   | tickets.Ticket   | contention.sockets.SocketTicket |
| Gate     | gate.Gate        | contention.sockets.SocketGate   |
| Queue    | tickets.Queue    | contention.sockets.SocketQueue  |

Policy: contention.policies.Policy and the classes below it.
"""

from collections.abc import Callable
from typing import Optional, Protocol

from solo.contention.handoff import Handoff
from solo.identity import Origin
from solo.record import Record

Block = Callable[[float], bool]  # block until a deadline; return False if it came first
Describe = Callable[[], tuple[Optional[int], str, str]]  # our place in the queue, the holder, a forecast or ""


class Ticket(Protocol):
    """A contender's entry in the queue: of a waiter or of a holder, ours or another contender's."""

    @property
    def queue(self) -> "Queue": ...

    # Its file's name; a socket is named as a file would be. The order of the names of one kind is the order of arrival.
    file: str
    # tickets.LIVE, ORPHANED, DEAD or UNSEEN, as it was found.
    state: str
    # None until read_record.
    record: Optional[Record]

    # The n of its name.
    @property
    def number(self) -> int: ...

    # Whether it is a holder's ticket, not a waiter's.
    @property
    def is_hold(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    # The descriptors that must stay open while the ticket is ours.
    @property
    def descriptors(self) -> tuple[int, ...]: ...

    # The user whose word the record is; None as long as that is not known.
    @property
    def owner_uid(self) -> Optional[int]: ...

    # Return the record, None if it is damaged. May raise SoloError.
    def read_record(self) -> Optional[Record]: ...

    # Write the command's (pid, start) into our own ticket. The command may start only afterwards. May raise OSError.
    def complete(self, child: tuple[int, int]) -> None: ...

    # Block until the ticket may no longer be in the way, True, or until the deadline, False.
    def wait_end(self, deadline: float) -> bool: ...

    # Return whether the ticket is no longer in the way.
    def has_left(self) -> bool: ...

    # Return new descriptors, one of which is readable once the ticket may no longer be in the way, and whether they
    # report every end. If not, ask has_left from time to time. May raise ProcessLookupError.
    def open_watches(self) -> tuple[list[int], bool]: ...

    # Close our descriptors; another contender's ticket lives on. May be called twice.
    def close(self) -> None: ...

    # Give up our own ticket: the next contenders look again. Never fails.
    def release(self) -> None: ...


class Gate(Protocol):
    """The guard mutex of a name; `with queue.gate:` locks it. May raise SoloError, Busy."""

    # When the contender gives up, FOREVER without --wait.
    deadline: float

    def __enter__(self) -> "Gate": ...

    def __exit__(self, *_: object) -> None: ...

    # Close the descriptor, which also unlocks. The next `with` opens it again.
    def close(self) -> None: ...

    # Count a contender that was skipped. Return the skips of that mode before it, None if they are not counted. Gate
    # locked.
    def count_skip(self, mode: str) -> Optional[int]: ...

    # Write back the skips from before our hold, under which nothing ran.
    def restore_skips(self) -> None: ...


class Queue(Protocol):
    """The contenders of one name in order of arrival."""

    # Where our own pids are valid.
    @property
    def origin(self) -> Origin: ...

    @property
    def gate(self) -> Gate: ...

    # What our waiter prepares, and leaves until tickets.finish_handoff; or None.
    handoff: "Optional[Handoff]"
    # The names of all tickets, as last listed.
    files: list[str]
    # The path of the directory of all names, "" of sockets: there the runs of the queue have journals.
    base: str
    # The records of holds whose processes we cannot look for, by file.
    unseen: dict[str, Record]

    # Whether our ticket was the first of this name.
    @property
    def is_new(self) -> bool: ...

    # Return the names of all tickets, or of those that sort before one. May raise SoloError.
    def list_files(self, before: str = "/") -> list[str]: ...

    # Return the waiting ticket that was published last, if it lives and can be found without a listing. Gate locked.
    def find_newest_waiting(self) -> Optional[Ticket]: ...

    # Return a ticket with its state, None if it is gone. May raise SoloError.
    def open_ticket(self, file: str) -> Optional[Ticket]: ...

    # The same for callers that show the ticket again and again: leaves no trace at its owner.
    def look(self, file: str) -> Optional[Ticket]: ...

    # Publish a ticket of `kind` (tickets.SEAT or HOLD). Gate locked. Return None if the gate was removed meanwhile.
    def publish(self, kind: str, record: Record) -> Optional[Ticket]: ...

    # Remove a dead ticket (gate locked) or our own. Never fails.
    def remove(self, file: str) -> None: ...

    # Return a name as the records of this queue have it.
    def shorten(self, name: str) -> str: ...

    # Close everything but the tickets.
    def leave(self) -> None: ...


class Policy(Protocol):
    """The rule by which a contender treats other contenders of its name."""

    # Whether it ends the holders in its way: then it waits for none for long.
    ends_holders: bool

    # Return whether we may join the queue. Gate locked.
    def may_wait(self, queue: Queue, record: Record) -> bool: ...

    # Return whether we need not wait for this waiter ahead of us. Gate locked.
    def ignores(self, ticket: Ticket, record: Record) -> bool: ...

    # Return when we give up, now that tickets are in the way; `deadline`, or later. Gate locked.
    def choose_deadline(self, queue: Queue, record: Record, deadline: float) -> float: ...

    # Find the contenders to act on. Gate locked. `waiting` is our waiting ticket or None; without obstacles we have the
    # hold.
    def meet(self, queue: Queue, record: Record, waiting: Optional[Ticket], obstacles: list[Ticket]) -> None: ...

    # Act on them, without the gate. Return when to look again, `deadline` at the latest. May raise SoloError.
    def act(self, deadline: float) -> float: ...


class Watch(Protocol):
    """Blocks for a waiter, and may show it."""

    # Call `block` until it returns True; return False at `look_again`. `in_one_go`: call it only once.
    def __call__(self, block: Block, look_again: float, describe: Describe, in_one_go: bool = False) -> bool: ...
