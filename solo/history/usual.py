"""How long a job usually runs, from the tail of its journal. Never fails: what is usual is only shown."""

from __future__ import annotations

from solo.errors import SoloError
from solo.history.files import read_both
from solo.journal import WORDS_LIMIT
from solo.journal_files import ENDED, open_place
from solo.kernel import close
from solo.modes import Claim, find_conflicts
from solo.record import LATEST, quote_words

MOST, FEWEST = 100, 5  # runs: no more are looked at, and fewer say nothing
SIZES = (1 << 16, 1 << 20)  # bytes of the tail; the second if skips fill the first
LEAST_OVERDUE = 60.0  # seconds: no report of a shorter run


class Usual:
    """The usual run of a job: `spans` are the seconds of its last 5 to 100 successful runs, sorted, `median` is what half of
    them took at most, `high` their 95th percentile, by nearest rank. After `overdue_after` seconds a run is overdue.
    """

    def __init__(self, spans: list[float]) -> None:
        self.spans = sorted(spans)
        self.median = find_median(self.spans)
        self.high = self.spans[-(-95 * len(spans) // 100) - 1]
        # The 95th percentile alone would report every 20th run of a job that is well.
        self.overdue_after = max(self.high, 2 * self.median, LEAST_OVERDUE)

    def find_left(self, age: float) -> float | None:
        """Return the seconds that a run of that `age` has left: what longer runs had, their median; None without one."""
        longer = [span - age for span in self.spans if span > age]
        return find_median(longer) if longer else None


def estimate_wait(running: list[tuple[float, Claim]], waiting: list[tuple[float, Claim]], wanted: Claim) -> float:
    """Return after how many seconds a contender that wants `wanted` probably holds.

    `running` are (seconds left, claim) of the holds, `waiting` (seconds of a run, claim) of the waiters ahead, in their
    order: each starts once the waiter before it has started and no hold conflicts.
    """
    now, running = 0.0, list(running)
    for seconds, claim in [*waiting, (0.0, wanted)]:
        while running and find_conflicts(claim, [held for _, held in running]):
            now = max(now, min(end for end, _ in running))
            running = [hold for hold in running if hold[0] > now]
        running.append((now + seconds, claim))
    return now


def find_median(numbers: list[float]) -> float:
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def find_usual(directory: str | None, name: str, command: list[bytes] | None = None) -> Usual | None:
    """Return what is usual for `name` in `directory`, --dir; None if too few runs succeeded. Never raises.

    With `command`, the words of a record, count only runs of these words: jobs that share a name need not take equally
    long. If there are too few, as where an argument is a date, digits do not count.
    """
    try:
        place = open_place(directory, name)
    except (OSError, SoloError):
        return None
    runs: list[tuple[float, bytes]] = []
    try:
        for size in SIZES:
            tail = b"".join(read_both(place, size))
            runs = [run for line in tail.split(b"\n")[:-1] if line.startswith(ENDED) and (run := parse_run(line))]
            if len(runs) >= MOST or len(tail) < size:
                break
    except OSError:
        pass
    finally:
        close(place.fd)
    words = quote_words(command, WORDS_LIMIT) if command else b""
    for ignored in (b"", b"0123456789"):
        wanted = words.translate(None, ignored)
        spans = [span for span, theirs in runs if not words or theirs.translate(None, ignored) == wanted]
        if usual := choose_usual(spans):
            return usual
    return None


def choose_usual(spans: list[float]) -> Usual | None:
    """Return what is usual after successful runs of these seconds, the last one last; None for fewer than FEWEST."""
    return Usual(spans[-MOST:]) if len(spans) >= FEWEST else None


def parse_run(line: bytes) -> tuple[float, bytes] | None:
    """Return (seconds, quoted command) of a line of ENDED; None if the run did not succeed, or the line is torn."""
    details, mark, command = line.partition(b" command=")
    if not mark or b" code=0 timed-out=0" not in details or b" lost=1" in details or b" kept=1" in details:
        return None
    try:
        ran = float(details.partition(b" ran=")[2].partition(b" ")[0])
        return (ran, command) if 0 <= ran < LATEST else None
    except ValueError:
        return None
