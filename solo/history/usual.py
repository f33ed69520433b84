"""How long a job usually runs: the tail of its journal -> its last successful runs.

Reads at most SIZES bytes, however large the journal is, and never fails: what is usual is only shown.
"""

from __future__ import annotations

from solo.errors import SoloError
from solo.history.reader import PAST, parse_time, read_journal
from solo.journal import WORDS_LIMIT
from solo.journal_files import ENDED, JOURNAL, open_place
from solo.kernel import close
from solo.record import quote_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from solo.directories import Directory

MOST, FEWEST = 100, 5  # runs: no more are looked at, and fewer say nothing
SIZES = (1 << 16, 1 << 20)  # bytes of the tail; the second if skips fill the first
LEAST_OVERDUE = 60.0  # seconds: no report of a shorter run


class Usual:
    """The usual run of a job. `spans` are the seconds of its last successful runs, from 5 to 100 of them, sorted.

    A run that failed, timed out, lost its lease or was killed does not count, nor does a hold of `solo hold`.
    """

    __slots__ = ("spans",)

    def __init__(self, spans: Iterable[float]) -> None:
        self.spans = sorted(spans)

    @property
    def median(self) -> float:
        """Return the seconds that half of the runs took at most: `usually 4m`."""
        return find_median(self.spans)

    @property
    def high(self) -> float:
        """Return the 95th percentile of the seconds, by nearest rank; of fewer than 20 runs the longest."""
        return self.spans[-(-95 * len(self.spans) // 100) - 1]

    @property
    def overdue_after(self) -> float:
        """Return after how many seconds a run is overdue: beyond the 95th percentile and twice the median.

        The 95th percentile alone would report every 20th run of a job that is well. Never less than LEAST_OVERDUE.
        """
        return max(self.high, 2 * self.median, LEAST_OVERDUE)

    def find_left(self, age: float) -> float | None:
        """Return how many seconds a run of that `age` probably has left: the median of what the longer runs had left.

        None if no run was longer: nothing is known then.
        """
        longer = [span - age for span in self.spans if span > age]
        return find_median(longer) if longer else None


def find_median(numbers: list[float]) -> float:
    """Return the median of sorted numbers."""
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def find_usual(directory: str | None, name: str, command: list[bytes] | None = None) -> Usual | None:
    """Return what is usual for the runs of `name`, None if its journal has fewer than FEWEST successful ones.

    `directory` is --dir. With `command`, the words of a record, count only runs of these words or, if there are too few,
    as where an argument is a date, of this program: jobs that share a name need not take equally long. Never raises, and
    makes nothing.
    """
    try:
        place = open_place(directory, name)
    except (OSError, SoloError):
        return None
    try:
        return read_usual(place, command)
    finally:
        close(place.fd)


def read_usual(place: Directory, command: list[bytes] | None = None) -> Usual | None:
    """Return the same of the journal in the open directory `place`, as find_names of commands/names yields it."""
    words = quote_words(command, WORDS_LIMIT) if command else b""
    runs: list[tuple[float, bytes]] = []
    for size in SIZES:
        try:
            tail = read_tail(place, size)
        except OSError:
            break
        runs = [run for line in tail.split(b"\n")[:-1] if line.startswith(ENDED) and (run := parse_run(line))]
        if len(runs) >= MOST or len(tail) < size:
            break
    return (
        choose_usual(runs, lambda theirs: theirs == words)
        or choose_usual(runs, lambda theirs: theirs.partition(b" ")[0] == words.partition(b" ")[0])
        if words
        else choose_usual(runs, lambda theirs: True)
    )


def choose_usual(runs: list[tuple[float, bytes]], is_wanted: Callable[[bytes], bool]) -> Usual | None:
    """Return what is usual for the last MOST of the `runs` whose command `is_wanted`; None for too few."""
    spans = [span for span, command in runs if is_wanted(command)][-MOST:]
    return Usual(spans) if len(spans) >= FEWEST else None


def read_tail(place: Directory, size: int) -> bytes:
    """Return the last `size` bytes of both files of a journal. Raises OSError."""
    now, _ = read_journal(place, JOURNAL, size)
    left = size - len(now)
    return (read_journal(place, PAST, left)[0] if left else b"") + now


def parse_run(line: bytes) -> tuple[float, bytes] | None:
    """Return (seconds, quoted command) of a line of ENDED; None if the run did not succeed, or the line is torn."""
    details, mark, command = line.partition(b" command=")
    if not mark or b" code=0 timed-out=0" not in details or b" lost=1" in details or b" kept=1" in details:
        return None
    try:
        return parse_time(details.partition(b" ran=")[2].partition(b" ")[0]), command
    except ValueError:
        return None
