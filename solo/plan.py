"""The plan of one guarded run: each typed option, resolved once. Below `launcher.run` nothing reads
the options.
"""

import posix
from time import monotonic

from solo.command import find_command, make_names
from solo.directories import check_new_name
from solo.errors import SoloError, UsageError
from solo.kernel import FOREVER, NO_WAIT
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.options import FILE, LOCAL_BACKENDS, SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from solo.argv import Typed

KILL_AFTER = 10.0  # seconds


class Plan:
    """The typed options, resolved. Most attributes are options by their keys; one that was not
    typed is None, a flag False.
    """

    def __init__(
        self,
        typed: "Typed",
        command: "Sequence[str]" = (),
        environment: "dict[bytes, bytes] | None" = None,
    ) -> None:
        """Resolve `typed`, as argv.py reads it. Raises UsageError, NotFound, NotExecutable,
        SoloError.
        """
        get = typed.get
        self.dir: str | None = get("dir")
        if self.dir is not None:
            self.dir = make_absolute(self.dir)  # the launcher changes its working directory
        self.via: str = get("via") or FILE
        self.is_socket = self.via == SOCKET
        self.is_remote = self.via not in LOCAL_BACKENDS
        self.flock: Sequence[str] = get("flock") or ()
        self.fcntl: Sequence[str] = get("fcntl") or ()
        self.locks_files = bool(self.flock or self.fcntl)
        self.note: str | None = get("note")
        self.quiet: bool = get("quiet", False)
        self.verbose: bool = get("verbose", False)
        self.capture: tuple[bool, int] | None = get("capture")
        self.notify: str | None = get("notify")
        self.timeout: float | None = get("timeout")
        self.signal: int | None = get("signal")
        self.grace: float | None = get("kill_after")  # a lease has another default
        self.kill_after = KILL_AFTER if self.grace is None else self.grace
        self.tree: bool = get("tree", False)
        self.no_orphan: bool = get("no_orphan", False)
        self.chdir: str | None = get("chdir")
        self.ttl: float | None = get("ttl")
        self.once_per: float | None = get("once_per")
        self.once_retry: bool = get("once_retry", False)
        self.claim = choose_claim(get("shared", False), get("slots"), get("take"))
        self.read_rules(typed)
        self.find_names(get("name") or (), command, environment or {})

    def read_rules(self, typed: "Typed") -> None:
        """Set what counts when busy."""
        get = typed.get
        self.max_waiting: int | None = get("max_waiting")
        self.latest: bool = get("latest", False)
        self.replace: bool = get("replace", False)
        self.replace_after: int | float | None = get("replace_after")
        self.wait: float | None = get("wait")
        # When a waiter gives up, on the monotonic clock.
        self.deadline = FOREVER if self.replace else NO_WAIT
        self.file_deadline = NO_WAIT  # --replace cannot end the holder of a file
        if self.wait is not None:
            self.deadline = self.file_deadline = monotonic() + self.wait

    def find_names(
        self, typed: "Sequence[str]", command: "Sequence[str]", environment: "dict[bytes, bytes]"
    ) -> None:
        """Set the typed names, or make some from the command. Raises as above."""
        self.names: list[str] = list(dict.fromkeys(typed))
        for name in self.names:
            check_new_name(name)  # refuse an invalid name before waiting for another
        self.is_generated = not self.names
        if command and self.is_generated:
            path = find_command(command[0], environment.get(b"PATH"), *command[1:2])
            self.names = make_names(path, list(command))


def make_absolute(path: str) -> str:
    """Return the path as seen from any working directory. Raises SoloError."""
    try:
        return path if path[:1] == "/" else f"{posix.getcwd()}/{path}"
    except OSError as error:
        reason = f"{error.strerror} (give an absolute path)"
        raise SoloError(f"cannot find {path} from the working directory: {reason}") from None


def choose_claim(shared: bool, slots: "int | None", take: "int | None") -> Claim:
    """Return the mode that the names are wanted in. Raises UsageError."""
    if shared:
        return Claim(SHARED)
    if slots is None:
        return Claim(EXCLUSIVE)
    take = 1 if take is None else take
    if slots < 1:
        raise UsageError("--slots must be at least 1")
    if not 0 < take <= slots:
        raise UsageError("K of --slots must be at least 1 and at most N")
    return Claim(SLOTS, slots, take)
