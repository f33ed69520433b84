"""One event of a run, as --syslog and --notify report it: a line of text, and values by name."""

from solo import errors
from solo.errors import Busy, SoloError
from solo.journal import Observer
from solo.journal_files import ENDED, REFUSED, SKIPPED, STARTED
from solo.kernel import ENCODING, encode, escape
from solo.kinds import name_signal
from solo.text.describe import format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.argv import Typed
    from solo.launcher import Run


# The outcomes of a run, in `solo history` too; those of a contender for which nothing ran are
# events of the journal.
OK = "ok"
FAILED = "failed"
SIGNALED = "signaled"
TIMED_OUT = "timed out"
LOST = "lost"
RUNNING = "running"
OVERDUE = "overdue"  # of a run that goes on
VALUE_LIMIT = 4096  # characters of a value
OUTCOME, STATUS, RAN = "SOLO_OUTCOME", "SOLO_STATUS", "SOLO_RAN"
PID = "SOLO_HOLDER_PID"
COMMAND = "SOLO_HOLDER_COMMAND"
SINCE = "SOLO_HOLDER_SINCE"
NOTE = "SOLO_HOLDER_NOTE"
CAPTURED = "SOLO_CAPTURED"
VALUES = OUTCOME, STATUS, RAN, PID, COMMAND, SINCE, NOTE, CAPTURED


class Event:
    """An event `kind` of the journal, about `names`. `text` is one line; `values` has some of
    VALUES, as text.
    """

    def __init__(
        self, kind: bytes, names: "list[str]", text: str, is_bad: bool, values: "dict[str, str]"
    ) -> None:
        self.kind = kind
        self.names = names
        self.text = escape(text)
        self.is_bad = is_bad
        self.values = {name: escape(value)[:VALUE_LIMIT] for name, value in values.items()}


class Reporter(Observer):
    """An observer that also hears of refusals from before there is a Run."""

    def __init__(self, typed: "Typed") -> None:
        self.typed = typed

    @property
    def names(self) -> "list[str]":
        """The names of the run; those that were typed if it has none yet."""
        names: list[str] = (self.run and self.run.names) or self.typed.get("name", [])
        return names


def make_start(run: "Run") -> Event:
    text = f"{' '.join(run.names)}: started {' '.join(run.command)} as pid {run.pid}"
    return Event(STARTED, run.names, text, False, {OUTCOME: RUNNING})


def make_overdue(run: "Run", seconds: float, usual: str) -> Event:
    """Return the event of a run that goes on after `seconds`, much longer than the `usual` ones."""
    span = format_duration(seconds)
    text = (
        f"{' '.join(run.names)}: pid {run.pid} is overdue: it has run for {span}, usually {usual}"
    )
    return Event(OVERDUE.encode(), run.names, text, True, {OUTCOME: OVERDUE, RAN: f"{seconds:.3f}"})


def make_end(run: "Run") -> Event:
    verb = {
        errors.TIMED_OUT: "timed out and ended",
        errors.LEASE_LOST: "lost its lease and ended",
        None: "ended",
    }
    text = (
        f"{' '.join(run.names)}: pid {run.pid} {verb[run.outcome]} "
        f"{describe_end(run.code, run.seconds)}"
    )
    values = {
        OUTCOME: name_run(run),
        STATUS: str(run.outcome or (run.code if run.code >= 0 else 128 - run.code)),
        RAN: f"{run.seconds:.3f}",
    }
    return Event(ENDED, run.names, text, values[OUTCOME] != OK, values)


def make_refusal(error: SoloError, names: "list[str]") -> Event:
    """Return the event of a contender for which nothing ran, because of `error`."""
    kind, verb = (SKIPPED, "skipped") if isinstance(error, Busy) else (REFUSED, "not started")
    values = {OUTCOME: kind.decode(), STATUS: str(error.status)}
    if isinstance(error, Busy):
        values.update(find_holder(error))
    text = str(error)
    if names and not any(text.startswith(f"{name}: ") for name in names):
        text = f"{' '.join(names)}: {text}"
    return Event(kind, names, f"{verb}: {text}", error.is_loud, values)


def find_holder(busy: Busy) -> "dict[str, str]":
    """Return the known values of the first holder, without a pid about which the ticket's owner is
    not believed.
    """
    from solo.text.rows import make_row
    from solo.text.tables import format_time

    values = {SINCE: format_time(busy.since) or "", NOTE: busy.note}
    if busy.tickets:
        row = make_row(busy.name, "", busy.tickets[0])
        values.update(
            {PID: str(row.pid or ""), COMMAND: " ".join(row.command), NOTE: row.note or ""}
        )
    return values


def name_end(code: int, is_timed_out: bool, is_lost: bool) -> str:
    """Return the outcome of a run that ended with the exit status `code`, or by signal -`code`."""
    if is_lost or is_timed_out:
        return LOST if is_lost else TIMED_OUT
    return OK if code == 0 else FAILED if code > 0 else SIGNALED


def name_run(run: "Run") -> str:
    """Return the outcome of a run that has ended."""
    return name_end(run.code, run.outcome == errors.TIMED_OUT, run.outcome == errors.LEASE_LOST)


def describe_outcome(outcome: str, code: int) -> str:
    """Return `exit 3`, `SIGKILL`, or the outcome itself."""
    if outcome == FAILED:
        return f"exit {code}"
    return name_signal(-code) if outcome == SIGNALED else outcome


def describe_end(exit_code: int, seconds: float) -> str:
    """Return `with exit status 3 after 3h12m`, or `by SIGKILL after 3h12m` for a negative code, as
    in Popen.
    """
    how = f"by {name_signal(-exit_code)}" if exit_code < 0 else f"with exit status {exit_code}"
    return f"{how} after {format_duration(seconds)}"


def encode_any(text: str) -> bytes:
    """Return the bytes of any text: a letter that the locale lacks becomes an escape, as in say."""
    try:
        return encode(text)
    except UnicodeEncodeError:
        return text.encode(ENCODING, "backslashreplace")
