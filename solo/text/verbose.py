"""The listener of --verbose: starts and ends, on stderr."""

from __future__ import annotations

from solo.kernel import say_promptly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.launcher import Run  # a Run makes the listener


class Verbose:
    descriptors = (2,)

    def started(self, run: Run) -> None:
        say_promptly(f"{run.names[0]}: started {run.command[0]} as pid {run.pid}")

    def ended(self, run: Run) -> None:
        say_promptly(f"{run.names[0]}: pid {run.pid} ended {describe_code(run.code)}")


def describe_code(code: int) -> str:
    """Return `with status 3`, or `by SIGKILL`: a negative code is a signal."""
    if code >= 0:
        return f"with status {code}"
    try:
        from solo.text.describe import name_signal

        return f"by {name_signal(-code)}"
    except (OSError, ImportError):
        return f"by signal {-code}"
