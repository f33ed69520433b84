"""The judge: what a contender would do now, by its own Attempt, over a queue that locks, publishes
and removes nothing.
"""

import posix
from time import time
from typing import Any

from solo.contention.protocols import Block, Describe
from solo.directories import PRIVATE, Directory, check_file, explain
from solo.errors import SoloError
from solo.gate import DIGITS, GATE, LARGEST_NUMBER, FileGate
from solo.identity import Origin
from solo.kernel import CLOSED, SAFELY
from solo.modes import MODES
from solo.queue import WAITING, Attempt, make_block
from solo.record import Record
from solo.tickets import HOLD, FileQueue, FileTicket

NOWHERE = Directory(CLOSED, "", PRIVATE, False)


class Waits(SoloError):
    """The run would wait: the text says for whom, `place` is ours in the queue, or None. Not a
    failure.
    """

    status = 0

    def __init__(self, place: "int | None", text: str, forecast: str) -> None:
        super().__init__(text)
        self.place = place
        self.forecast = forecast


def refuse_wait(
    block: Block, look_again: float, describe: Describe, in_one_go: bool = False
) -> bool:
    """A `watch` that raises Waits."""
    raise Waits(*describe())


class Look(FileGate):
    """A gate that is read, but neither locked nor changed."""

    def __enter__(self) -> "Look":
        """Read the gate, if it is there. Raises SoloError if the run could not lock it."""
        try:
            if self.place.fd != CLOSED:
                self.fd = posix.open(GATE, posix.O_RDWR | SAFELY, dir_fd=self.place.fd)
                check_file(self.place, GATE, posix.fstat(self.fd))
                self.load()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self.fail(explain(GATE, error, self.place)) from None
        self.close()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def count_skip(self, mode: str) -> "int | None":
        return self.read_skips()[MODES.index(mode)]

    def restore_skips(self) -> None:
        pass


class Nowhere(FileQueue):
    """The empty queue of a name that has no directory."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(NOWHERE, origin)

    def list_files(self, before: str = "") -> "list[str]":
        return self.files


class Rehearsal(Attempt):
    """An Attempt that acts on nothing. Its `watch` is called where it would wait, and then it looks
    again.
    """

    def __init__(self, queue: Any, *words: Any) -> None:
        super().__init__(queue, *words)
        queue.gate = Look(vars(queue).get("place", NOWHERE), queue.origin.boot)
        queue.publish = self.publish
        queue.remove = lambda file: None
        queue.raise_counter = lambda number: None

    def publish(self, kind: str, record: Record) -> "FileTicket | None":
        """Return a hold that was not made; None once the wait is over, as if the gate was removed:
        from then on look again as a waiter does.
        """
        record.since = time()
        ticket = FileTicket(self.queue, f"{kind}{LARGEST_NUMBER:0{DIGITS}d}", CLOSED, record)  # type: ignore[arg-type]
        if kind == HOLD:
            self.policy = None  # it would act now
            return ticket
        self.waiting = ticket  # behind all others
        self.refuse_deadlock()
        self.watch(make_block(self.record, self.obstacles), self.deadline, self.describe)
        self.state = WAITING
        return None
