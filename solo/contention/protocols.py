"""The types of what blocks a waiter, and of what a run holds. No run imports this file."""

from collections.abc import Callable, Sequence
from typing import Protocol

from solo.identity import Process

Block = Callable[[float], bool]  # block until a deadline; return False if it came first
# our position in the queue, the holder, a forecast or ""
Describe = Callable[[], tuple["int | None", str, str]]


class Watch(Protocol):
    """Blocks for a waiter, and may show it."""

    # Call `block` until it returns True; return False at `look_again`. `in_one_go`: call it only
    # once.
    def __call__(
        self, block: Block, look_again: float, describe: Describe, in_one_go: bool = False
    ) -> bool: ...


class Hold(Protocol):
    """An acquired thing: a ticket, a locked file, the names at an engine, a holder process."""

    # They stay open while the command runs.
    @property
    def descriptors(self) -> "Sequence[int]": ...

    # Record the forked command in it, just before its exec. Raises OSError, SoloError.
    def complete(self, child: Process) -> None: ...

    def release(self) -> None: ...
