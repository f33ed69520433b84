"""How long a job usually runs, from the tail of its journal. Never fails: what is usual is only
shown.

A run that goes on for longer than `Usual.long_after` runs long: this is the only rule of that, for
views, --notify, metrics and the judge of health.
"""

from solo.errors import SoloError
from solo.history.files import read_both
from solo.journal import FIELD_LIMIT
from solo.journal_files import ENDED, SKIPPED, STARTED, open_place
from solo.kernel import decode
from solo.modes import Claim, find_conflicts
from solo.record import parse_seconds, quote_words, unquote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST, FEWEST = 100, 5  # runs: no more are looked at, and fewer say nothing
SIZES = (1 << 16, 1 << 20)  # bytes of the tail; the second if skips fill the first
LEAST_LONG = 300.0  # seconds: no shorter run is long
DIGITS = b"0123456789"
Ran = tuple[float, bytes]  # seconds of a successful run, its quoted words


class Usual:
    """The usual run of a job, by its last 5 to 100 successful runs.

    `spans` are their seconds, sorted. `median` is what half of them took at most. Where they
    spread, `range` is the 10th and the 90th percentile, by nearest rank, else None. A run of more
    than `long_after` seconds is long.
    """

    def __init__(self, spans: "list[float]") -> None:
        self.spans = sorted(spans)
        self.median = find_median(self.spans)
        low, high = [find_percentile(self.spans, percent) for percent in (10, 90)]
        # Of runs of 3 or 40 minutes the median is the one or the other by chance.
        is_wide = high > 2 * self.median or 2 * low < self.median
        self.range = [low, high] if is_wide else None
        # Not a percentile: where runs spread, the 95th reports every 20th run of a job that is
        # well.
        self.long_after = max(1.25 * self.spans[-1], 2 * self.median, LEAST_LONG)

    def find_left(self, age: float) -> "float | None":
        """Return the seconds that a run of that `age` has left: what longer runs had, their median;
        None without one.
        """
        longer = [span - age for span in self.spans if span > age]
        return find_median(longer) if longer else None


def estimate_wait(
    running: "list[tuple[float, Claim]]", waiting: "list[tuple[float, Claim]]", wanted: Claim
) -> float:
    """Return after how many seconds a contender that wants `wanted` probably holds.

    `running` are (seconds left, claim) of the holds, `waiting` (seconds of a run, claim) of the
    waiters ahead, in their order: each starts once the waiter before it has started and no hold
    conflicts.
    """
    now, running = 0.0, list(running)
    for seconds, claim in [*waiting, (0.0, wanted)]:
        while running and find_conflicts(claim, [held for _, held in running]):
            now = max(now, min(end for end, _ in running))
            running = [hold for hold in running if hold[0] > now]
        running.append((now + seconds, claim))
    return now


def find_percentile(ordered: "list[float]", percent: int) -> float:
    """Return the smallest value that `percent` of all do not exceed (nearest rank)."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def find_median(numbers: "list[float]") -> float:
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def find_usual(
    directory: "str | None", name: str, command: "list[bytes] | None" = None
) -> "Usual | None":
    """Return what is usual for `name` in `directory`, --dir; None if too few runs succeeded. Never
    raises.

    With `command`, the words of a record, only the runs of that command count, as choose_usual
    says.
    """
    runs: list[Ran] = []
    for lines in read_tails(directory, name):
        runs = [run for line in lines if line.startswith(ENDED) and (run := parse_run(line))]
        if len(runs) >= MOST:
            break
    return choose_usual(runs, quote_words(command, FIELD_LIMIT) if command else b"")


def read_tails(directory: "str | None", name: str) -> "Iterator[list[bytes]]":
    """Yield the last lines of the journal of a name, then more of them if there are more. Never
    raises.
    """
    try:
        with open_place(directory, name) as place:
            for size in SIZES:
                tail = b"".join(read_both(place, size))
                yield tail.split(b"\n")[:-1]
                if len(tail) < size:
                    return
    except (OSError, SoloError):
        pass


def choose_usual(runs: "list[Ran]", words: bytes = b"") -> "Usual | None":
    """Return what is usual after these successful runs, the last one last; None for fewer than
    FEWEST.

    With quoted `words` count only runs of these: jobs that share a name need not take equally long.
    If there are too few, as where an argument is a date, digits do not count.
    """
    for ignored in (b"", DIGITS):
        wanted = words.translate(None, ignored)
        spans = [
            span for span, theirs in runs if not words or theirs.translate(None, ignored) == wanted
        ]
        if len(spans) >= FEWEST:
            return Usual(spans[-MOST:])
    return None


def parse_run(line: bytes) -> "Ran | None":
    """Return (seconds, quoted command) of a line of ENDED; None if the run did not succeed, or the
    line is torn.
    """
    details, mark, command = line.partition(b" command=")
    if (
        not mark
        or b" code=0 timed-out=0" not in details
        or b" lost=1" in details
        or b" kept=1" in details
    ):
        return None
    try:
        return parse_seconds(details.partition(b" ran=")[2].partition(b" ")[0]), command
    except ValueError:
        return None


def is_busy_skip(code: int, why: str) -> bool:
    """Return whether a skip was for want of the lock. One by --once-per has status 0, one by
    --latest says so.
    """
    return code != 0 and ": superseded by " not in why.partition(": busy: ")[0]


def count_own_skips(directory: "str | None", name: str, command: "list[bytes]") -> int:
    """Return how often this command line was skipped since it last started, whatever else ran.
    Never raises.

    The line is of these words; if the journal has no start and no skip of them, digits do not
    count.
    """
    words, most = quote_words(command, FIELD_LIMIT), 0
    for lines in read_tails(directory, name):
        for ignored in (b"", DIGITS):
            count, was_started = count_last_skips(lines, words, ignored)
            if count or was_started:
                break
        most = max(most, count)
        if was_started:
            break
    return most


def count_last_skips(lines: "list[bytes]", words: bytes, ignored: bytes) -> "tuple[int, bool]":
    """Return (the skips of a command line since its last start, whether the journal has that
    start).
    """
    wanted, count = words.translate(None, ignored), 0
    for line in reversed(lines):
        if not line.startswith((SKIPPED, STARTED)):
            continue
        details, _, theirs = line.partition(b" command=")
        if theirs.translate(None, ignored) != wanted or b" kept=1" in details:
            continue
        if line.startswith(STARTED):
            return count, True
        try:
            code, why = [
                details.partition(key)[2].partition(b" ")[0] for key in (b" code=", b" why=")
            ]
            count += is_busy_skip(int(code), decode(unquote(why)))
        except ValueError:
            continue  # torn
    return count, False
