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


class SoloError(Exception):
    """solo failed; only with LeaseLost did the command run. The text is for the user, `status` the
    exit status of solo.
    """

    status = 125
    is_loud = True  # False: --quiet and --busy-exit apply
    name = ""  # of the names, the one that could not be acquired


class Vanished(SoloError):
    """The directory of a name was removed while it was in use. It can be made again."""


class UsageError(SoloError, ValueError):
    """The command line, or an argument of a function, is invalid."""


class Busy(SoloError):
    """The name is held, or too many contenders wait for it.

    `skips` counts the contenders that were skipped since the name was last acquired, None if that
    is not known. `since` is when the holder's command started, or its ticket was made if it has
    none, in seconds since the epoch. `name` is the busy one of the names, `holders` a tuple of
    Holder. `tickets`, `note`, which ends the text, and `own_skips`, those of this command line
    since it last started, are internal. From solo.run, `skips` and `since` are None.
    """

    status = 75
    skips: "int | None" = None
    since: "float | None" = None
    tickets: "Sequence[Ticket]" = ()
    note: str = ""
    own_skips = 0
    holders: "tuple[solo.Holder, ...]" = ()


class RanAlready(Busy):
    """The job already ran in this period (--once-per). Not a failure."""

    status = 0


def make_own_wait(held: str, remedy: str = "") -> SoloError:
    """Return the error for a contender that would wait for what it holds itself: `held` says what,
    and by whom.
    """
    return SoloError(f"{held}: it would wait for itself{remedy}")


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
