"""The observer of --verbose: starts and ends, on stderr."""

from solo.journal import Observer
from solo.kernel import say_promptly
from solo.kinds import name_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.launcher import Run


class Verbose(Observer):
    descriptors = (2,)

    def started(self, run: "Run") -> None:
        say_promptly(f"{run.names[0]}: started {run.command[0]} as pid {run.pid}")

    def ended(self, run: "Run") -> None:
        how = f"with status {run.code}" if run.code >= 0 else f"by {name_signal(-run.code)}"
        say_promptly(f"{run.names[0]}: pid {run.pid} ended {how}")
