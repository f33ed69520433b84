"""Exit statuses and the errors that end in them. Whoever knows what went wrong raises; only main prints and exits."""

# Not errors of ours: the command did run.
LEASE_LOST, TIMED_OUT = 123, 124


class SoloError(Exception):
    """solo could not do its part, and nothing ran. The text is what a user reads; `status` the exit status of the command."""

    status = 125


class Vanished(SoloError):
    """The directory of a name was removed under us: it can be made again."""


class UsageError(SoloError, ValueError):
    """The words of the command line, or the arguments, make no sense."""


class Busy(SoloError):
    """Others hold the name or stand in line for it.

    `skips` is how many found it so since a command last started, None if nobody can count; `since` when the holder came, in
    seconds since the epoch. `name` is which of the names was busy, `tickets` whom we met; programs get `holders`, what those
    say as objects.
    """

    status = 75
    skips: "int | None" = None
    since: "float | None" = None
    name = ""
    tickets: list = []
    holders: tuple = ()


class RanAlready(Busy):
    """It ran in this period (--once-per), and that is well."""

    status = 0


class Unreachable(SoloError):
    """The engine did not answer in time."""

    status = 69


class LeaseLost(SoloError):
    """The engine gave the name to others, or may have, and the command was ended. Only solo.run() raises it."""

    status = LEASE_LOST


class Superseded(Busy):
    """A newer contender has taken our place in line (--latest)."""


class NotExecutable(SoloError):
    """The command is there but can not be executed."""

    status = 126


class NotFound(SoloError):
    """There is no such command."""

    status = 127


EXIT_STATUSES = (
    ("the command's", "it ran"),
    (Unreachable.status, "the engine can not be reached; nothing ran (EX_UNAVAILABLE)"),
    (Busy.status, "busy, or waited long enough (EX_TEMPFAIL)"),
    (LEASE_LOST, "the lease was lost, and the command was ended"),
    (TIMED_OUT, "--timeout ended it"),
    (SoloError.status, "solo could not do its part; nothing ran"),
    (NotExecutable.status, "COMMAND is not executable"),
    (NotFound.status, "COMMAND was not found"),
)
