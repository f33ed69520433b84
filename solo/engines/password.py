"""The password of a target as it is at each log-in, as it may change while a job runs; and the
files that it may be in.
"""

import posix
from time import monotonic

from solo.engines.network import Target, describe
from solo.engines.program import OUTPUT_LIMIT, ask_program
from solo.errors import SoloError

COMMAND_PATIENCE = 30.0  # seconds: for the first answer of a password_command, before any lease


class Password:
    """The password of a target, from its password_file, its password_command, or itself."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.patience = COMMAND_PATIENCE

    def find(self, deadline: float) -> "tuple[str | None, float]":
        """Return (the present password or None, the deadline, which the first run of a command
        moves). Raises SoloError, Unreachable.
        """
        target, begin = self.target, monotonic()
        if target.password_file is not None:
            return parse(read_password(target, target.password_file)), deadline
        if target.password_command is None:
            return target.password, deadline
        limit = max(deadline - begin, self.patience)
        what = f"cannot reach {target.shown}: password_command"
        password = parse(ask_program(target.password_command, what, limit))
        if not password:
            raise SoloError(f"--via {target.shown}: password_command printed no password")
        if self.patience:
            self.patience, deadline = 0.0, deadline + monotonic() - begin
        return password, deadline


def parse(data: bytes) -> str:
    return data.decode(errors="surrogateescape").rstrip("\r\n")


def read_password(target: Target, path: str) -> bytes:
    try:
        return read_trusted(path)[0]
    except OSError as error:
        raise SoloError(f"--via {target.shown}: cannot read {path}: {describe(error)}") from None
    except SoloError as error:
        raise SoloError(f"--via {target.shown}: {error}") from None


def read_trusted(path: str) -> "tuple[bytes, int]":
    """Return (the bytes, the mode) of a file that only root and we can write. Raises SoloError,
    OSError.
    """
    import stat

    # O_NONBLOCK: opening a FIFO in its place must not hang.
    with open(
        posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC), "rb"
    ) as file:
        status = posix.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > OUTPUT_LIMIT:
            raise SoloError(
                f"cannot use {path}: not a regular file of less than {OUTPUT_LIMIT >> 20} MiB"
            )
        if status.st_uid not in (0, posix.geteuid()) or status.st_mode & (
            stat.S_IWGRP | stat.S_IWOTH
        ):
            raise SoloError(
                f"cannot trust {path}: others can write to it (make it yours, chmod go-w)"
            )
        return file.read(OUTPUT_LIMIT), status.st_mode
