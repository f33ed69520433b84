"""Exit statuses and the errors that cause them. Any module raises them; only main prints them and
exits.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import solo
    from solo.tickets import Ticket

# Not errors: the command did run.
LEASE_LOST, TIMED_OUT = 123, 124


STARVED_AFTER = 5  # skips in a row of a command line


class SoloError(Exception):
    """solo failed; only with LeaseLost did the command run. `str` of it is for the user, `status`
    the exit status of solo.
    """

    status = 125
    is_loud = True  # False: --quiet and --busy-exit apply
    name = ""  # of the names, the one that could not be acquired
    shown = ""  # the name in front of the text, if the reason has none

    def __init__(self, reason: str = "", remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy  # in brackets, after a blank

    def __str__(self) -> str:
        name = f"{self.shown}: " if self.shown else ""
        return f"{name}{self.reason}{self._describe()}{self.remedy}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _describe(self) -> str:
        """Return what is known beside the reason."""
        return ""


class Vanished(SoloError):
    """The directory of a name was removed while it was in use. It can be made again."""


class UsageError(SoloError, ValueError):
    """The command line, or an argument of a function, is invalid."""


class Busy(SoloError):
    """The name is held, or too many contenders wait for it.

    `skips` counts the contenders that were skipped since the name was last acquired, None if that
    is not known. `since` is when the holder's command started, or its ticket was made if it has
    none, in seconds since the epoch. `name` is the busy one of the names, `holders` a tuple of
    Holder. From solo.run, `skips` and `since` are None. All else is internal.
    """

    status = 75
    skips: "int | None" = None
    since: "float | None" = None
    holders: "tuple[solo.Holder, ...]" = ()
    tickets: "Sequence[Ticket]" = ()
    note = ""  # of the holder
    own_skips = 0  # of this command line, since it last started
    waited = ""  # how long, in words

    def _describe(self) -> str:
        text = describe_skips(self.skips)
        if self.note:
            text += f": {self.note}"
        times = self.own_skips + 1
        if times >= STARVED_AFTER and times > 1 + (self.skips or 0):
            text += f"; this command line was skipped {times} times in a row"
        return f"{text}; waited {self.waited}" if self.waited else text


def describe_skips(skips: "int | None") -> str:
    return f", {skips} skip{'s' if skips > 1 else ''} since" if skips else ""


class RanAlready(Busy):
    """The job already ran in this period (--once-per). Not a failure."""

    status = 0


def make_own_wait(held: str, remedy: str = "") -> SoloError:
    """Return the error for a contender that would wait for what it holds itself: `held` says what,
    and by whom.
    """
    return SoloError(f"{held}: it would wait for itself", remedy)


class Unreachable(SoloError):
    """The engine cannot be reached, or did not answer in time. Nothing ran."""

    status = 69


class LeaseLost(SoloError):
    """The command was ended: the engine may have given the name to another contender. Only
    solo.run() raises it.
    """

    status = LEASE_LOST


class Superseded(Busy):
    """A newer contender took this place in the queue (--latest)."""


class NotExecutable(SoloError):
    """The command exists but cannot be executed."""

    status = 126


class NotFound(SoloError):
    """The command was not found."""

    status = 127


EXIT_STATUSES = (
    ("the command's", "it ran"),
    (RanAlready.status, "the command succeeded, or --once-per skipped it"),
    (
        Unreachable.status,
        "the engine cannot be reached, even after --wait; nothing ran (EX_UNAVAILABLE)",
    ),
    (Busy.status, "busy, or still busy when --wait ran out (EX_TEMPFAIL)"),
    (LEASE_LOST, "the lease was lost, and the command was ended"),
    (TIMED_OUT, "--timeout ended the command, or with --tree its descendants"),
    (SoloError.status, "solo failed before it started the command; nothing ran"),
    (NotExecutable.status, "COMMAND is not executable"),
    (NotFound.status, "COMMAND was not found"),
)
