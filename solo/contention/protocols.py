"""The types of what blocks a waiter. No run imports this file."""

from collections.abc import Callable
from typing import Optional, Protocol

Block = Callable[[float], bool]  # block until a deadline; return False if it came first
Describe = Callable[
    [], tuple[Optional[int], str, str]
]  # our position in the queue, the holder, a forecast or ""


class Watch(Protocol):
    """Blocks for a waiter, and may show it."""

    # Call `block` until it returns True; return False at `look_again`. `in_one_go`: call it only
    # once.
    def __call__(
        self, block: Block, look_again: float, describe: Describe, in_one_go: bool = False
    ) -> bool: ...
