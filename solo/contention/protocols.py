"""The types of what blocks a waiter, of what a run holds, and of the parts of its Plan. No run
imports this file.
"""

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


class Rules(Protocol):
    """How other contenders of a name are treated."""

    max_waiting: "int | None"
    latest: bool
    replace: bool
    replace_after: "int | float | None"
    kill_after: float


class Contention(Rules, Protocol):
    """Where and how names are acquired: `dir` is absolute, or None for the default; `deadline` on
    the monotonic clock, FOREVER or NO_WAIT.
    """

    dir: "str | None"
    is_socket: bool
    verbose: bool
    deadline: float


class Files(Protocol):
    """The user's files that are locked too."""

    flock: "Sequence[str]"
    fcntl: "Sequence[str]"
    file_deadline: float


class Limits(Protocol):
    """When and how the command of `names` is ended."""

    names: "list[str]"
    timeout: "float | None"
    signal: "int | None"
    kill_after: float
    tree: bool
    is_remote: bool
