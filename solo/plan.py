"""The plan of one guarded run: each typed option, resolved once. Below `launcher.run` nothing reads
the options.
"""

import posix
from time import monotonic

from solo.command import find_command, make_names
from solo.directories import check_new_name
from solo.errors import SoloError, UsageError
from solo.kernel import FOREVER, NO_WAIT
from solo.kinds import FLAG
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.options import EVERY_OPTION, FILE, LOCAL_BACKENDS, SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

KILL_AFTER = 10.0  # seconds


class Plan:
    """The options by their keys, a flag as a bool, an option that was not typed as None; and more.

    `names`: all names, once each; made from the command if none was typed, `is_generated`;
    `command`: its words. `claim`: the mode, slots and take. `deadline`: when a waiter gives up, on
    the monotonic clock, FOREVER or NO_WAIT; `file_deadline`: the same for files. `locks_files`:
    whether --flock or --fcntl is used. `is_remote`, `is_socket`: the backend of the lock. `dir`:
    absolute, or None for the default. `kill_after`: with its default; `grace`: as typed or None,
    since a lease has another default. `tree_grace`: `kill_after` with --tree, else None.
    """

    if TYPE_CHECKING:
        dir: "str | None"
        via: str
        kill_after: float
        names: "list[str]"

        def __getattr__(self, key: str) -> "Any": ...  # an option: its kind has checked the value

    def __init__(
        self,
        typed: "dict[str, object]",
        command: "Sequence[str]" = (),
        environment: "dict[bytes, bytes] | None" = None,
    ) -> None:
        """Resolve `typed`, as argv.py reads it. Raises UsageError, NotFound, NotExecutable,
        SoloError.
        """
        vars(self).update(
            {option.key: False if option.kind is FLAG else None for option in EVERY_OPTION}, **typed
        )
        self.command = command
        self.grace = self.kill_after
        if self.kill_after is None:
            self.kill_after = KILL_AFTER
        self.tree_grace = self.kill_after if self.tree else None
        self.via = self.via or FILE
        self.is_socket = self.via == SOCKET
        self.is_remote = self.via not in LOCAL_BACKENDS
        self.locks_files = bool(self.flock or self.fcntl)
        if self.dir is not None:
            self.dir = make_absolute(self.dir)  # the launcher changes its working directory
        self.deadline = (
            monotonic() + self.wait
            if self.wait is not None
            else FOREVER
            if self.replace
            else NO_WAIT
        )
        # --replace cannot end the holder of a file.
        self.file_deadline = self.deadline if self.wait is not None else NO_WAIT
        self.claim = choose_claim(self)
        self.names = list(dict.fromkeys(self.name or ()))
        for name in self.names:
            check_new_name(name)  # refuse an invalid name before waiting for another
        self.is_generated = not self.names
        if command and self.is_generated:
            path = find_command(command[0], (environment or {}).get(b"PATH"), *command[1:2])
            self.names = make_names(path, list(command))


def make_absolute(path: str) -> str:
    """Return the path as seen from any working directory. Raises SoloError."""
    try:
        return path if path[:1] == "/" else f"{posix.getcwd()}/{path}"
    except OSError as error:
        reason = f"{error.strerror} (give an absolute path)"
        raise SoloError(f"cannot find {path} from the working directory: {reason}") from None


def choose_claim(plan: Plan) -> Claim:
    """Return the mode that the names are wanted in. Raises UsageError."""
    if plan.shared:
        return Claim(SHARED)
    if plan.slots is None:
        return Claim(EXCLUSIVE)
    take = 1 if plan.take is None else plan.take
    if plan.slots < 1:
        raise UsageError("--slots must be at least 1")
    if not 0 < take <= plan.slots:
        raise UsageError("K of --slots must be at least 1 and at most N")
    return Claim(SLOTS, plan.slots, take)
