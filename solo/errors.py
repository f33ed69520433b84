"""Exit statuses and the errors that end in them. Whoever knows what went wrong raises; only main prints and exits."""

EXIT_STATUSES = (
    ("the command's", "it ran"),
    (75, "busy, or waited long enough (EX_TEMPFAIL)"),
    (125, "solo could not do its part; nothing ran"),
    (126, "COMMAND is not executable"),
    (127, "COMMAND was not found"),
)


class SoloError(Exception):
    """solo could not do its part, and nothing ran. The text is what a user reads."""

    status = 125


class UsageError(SoloError):
    """The words of the command line make no sense."""


class Busy(SoloError):
    """Others hold the name or stand in line for it."""

    status = 75


class NotExecutable(SoloError):
    """The command is there but can not be executed."""

    status = 126


class NotFound(SoloError):
    """There is no such command."""

    status = 127
