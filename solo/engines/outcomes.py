"""The history of a name at an engine: the last outcomes over all hosts, each written by the launcher of the holder.

An outcome is the line of a journal, with times by the engine's clock. It is written after the release, and never makes a
job fail.
"""

from solo.engines.last_call import TIMEOUT
from solo.journal import Journal
from solo.journal_files import ENDED
from solo.record import quote
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.engines.acquire import EngineHold
    from solo.record import Record


class OutcomeLog(Journal):
    """The listener that writes the outcomes of a run with this `record` to the engine of `remote`."""

    __slots__ = ("remote",)
    title = "the history at the engine"

    def __init__(self, record: "Record", remote: "EngineHold", report: "Callable[[str], None]") -> None:
        super().__init__(record, None, report)
        self.remote = remote

    def clock(self) -> float:
        return float(super().clock() + self.remote.engine.skew)

    def refused(self, error: BaseException) -> None:
        """Write nothing: skips would push the outcomes out."""

    def append_lines(self, event: bytes, details: bytes) -> None:
        if event == ENDED and self.remote.is_released:
            user = quote(find_user(self.record.uid).encode("utf-8", "replace"))
            engine = self.remote.engine
            engine.timeout = min(engine.timeout, TIMEOUT)
            try:
                super().append_lines(event, details + b" user=" + user)
            finally:
                engine.close()

    def write(self, name: str, event: bytes, line: bytes) -> None:
        self.remote.engine.log_outcome(name, self.remote.entries[name].number, line)
