"""Shows a waiter's progress: one live line on a terminal, a plain line every minute in a CI log,
nothing elsewhere.

The live line is erased before the command writes its first byte. It is drawn without rich, which
takes longer to load than a handoff takes, and doubles the memory of a waiter.
"""

import posix
from _signal import SIG_DFL, getsignal, signal
from time import monotonic, time

from solo.errors import SoloError
from solo.kernel import ENCODING, ENDING, FOREVER, has_room, say_promptly
from solo.modes import Claim, find_conflicts
from solo.obstacles import list_living, read_claim
from solo.text.describe import (
    describe_holders,
    describe_note,
    find_usual_run,
    format_duration,
    format_rough,
    format_usual,
)
from solo.text.width import ELLIPSIS, clean, cut
from solo.tickets import HOLD, MOST_OPEN, SEAT, Queue, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.contention.protocols import Block, Describe
    from solo.history.usual import Usual
    from solo.record import Record

REDRAW_PERIOD = 1.0  # seconds, on a terminal
MINUTE = 60.0
CLEAR, DIM, PLAIN = b"\r\x1b[2K", b"\x1b[2m", b"\x1b[0m"
SOME_WIDTH = 80  # cells, if the terminal does not say
usual_runs: "dict[object, Usual | None]" = {}  # what find_usual_run returned, by job


class Watch:
    """Blocks for a contender of `names` and shows that on stderr, which may be a terminal or a CI
    log.

    `deadline`: when it gives up, on the monotonic clock. `is_verbose`: also print the holder
    whenever it changes.
    """

    def __init__(
        self, names: "list[str]", deadline: float, is_verbose: bool, is_terminal: bool, is_log: bool
    ) -> None:
        self.name = " ".join(names)
        self.deadline = deadline
        self.is_verbose = is_verbose
        self.is_terminal = is_terminal
        self.is_log = is_log
        self.begin = monotonic()
        self.last_shown = -MINUTE
        self.printed = ("", "")

    def __call__(
        self, block: "Block", look_again: float, describe: "Describe", in_one_go: bool = False
    ) -> bool:
        """Call `block` until it returns True, only once if `in_one_go`. Return False at
        `look_again`.

        Show our state whenever that is due. A signal that ends the launcher clears the live line
        first.
        """
        if self.is_verbose:
            self.print_holder(describe()[1])
        if not (self.is_terminal or self.is_log):
            return block(look_again)
        show = self.draw if self.is_terminal else self.log
        changed = {
            number: getsignal(number)
            for number in ENDING
            if self.is_terminal and getsignal(number) == SIG_DFL
        }
        for number in changed:
            signal(number, self.clear_and_end)
        try:
            while True:
                due = show(lambda: f"{self.name}: {self.describe_state(describe, in_one_go)}")
                if block(look_again if in_one_go else min(look_again, due)):
                    return True
                if monotonic() >= look_again:
                    return False
        finally:
            if self.is_terminal:
                self.write(CLEAR)
            for number, disposition in changed.items():
                signal(number, disposition)

    def print_holder(self, description: str) -> None:
        """Print the description, unless only the age of the hold has changed."""
        before, _, rest = description.partition("held for ")
        holder = before, rest.partition(" ")[2]
        if holder != self.printed:
            self.printed = holder
            self.last_shown = monotonic()
            say_promptly(f"{self.name}: waiting: {description}")

    def log(self, describe_state: "Callable[[], str]") -> float:
        """Print the state once a minute."""
        if monotonic() >= self.last_shown + MINUTE:
            self.last_shown = monotonic()
            say_promptly(describe_state())
        return self.last_shown + MINUTE

    def clear_and_end(self, number: int, _: object) -> None:
        """Clear the line, then die by the signal."""
        self.write(CLEAR)
        signal(number, SIG_DFL)
        posix.kill(posix.getpid(), number)

    def describe_state(self, describe: "Describe", in_one_go: bool) -> str:
        """Return `waiting for 5s, 25s left, 2nd in the queue; usually 4m each: about 6m; held for
        1m by pid 4711 (a.sh)`.
        """
        position, holder, forecast = describe()
        words = [
            "waiting" if in_one_go else f"waiting for {format_duration(monotonic() - self.begin)}"
        ]
        if self.deadline != FOREVER and not in_one_go:
            words.append(f"{format_duration(-((monotonic() - self.deadline) // 1))} left")
        if position is not None:
            words.append(f"{format_ordinal(position)} in the queue")
        return f"{', '.join(words)}{f'; {forecast};' if forecast else ':'} {holder}"

    def draw(self, describe_state: "Callable[[], str]") -> float:
        """Draw the live line over the last one."""
        try:
            width = posix.get_terminal_size(2).columns or SOME_WIDTH
        except OSError:
            width = SOME_WIDTH
        whole = clean(f"solo: {describe_state()}")
        line = cut(whole, width - 1)
        if line != whole:  # a duration without its unit would mislead
            line = f"{line.rpartition(' ')[0]} {ELLIPSIS}"
        text = line.encode(ENCODING, "replace")
        self.write(CLEAR + (text if posix.environ.get(b"NO_COLOR") else DIM + text + PLAIN) + b"\r")
        return monotonic() + REDRAW_PERIOD

    def write(self, data: bytes) -> None:
        """Write to the terminal, in one write: a signal may come any time. Do nothing if it is
        stopped.
        """
        try:
            # A background job must not write over the foreground job.
            if posix.tcgetpgrp(2) == posix.getpgrp() and has_room(2):
                posix.write(2, data)
        except OSError:
            pass


def describe_wait(
    queue: "Queue", record: "Record", waiting: "Ticket | None"
) -> "tuple[int | None, str, str]":
    """Return (our position, `held for 3h12m by pid 4711 (deploy.sh)`, `usually 4m each: about 6m`
    or ""). Without the gate.
    """
    try:
        files = sorted(queue.list_files())
        before = [
            file
            for file in files
            if file.startswith(SEAT) and (waiting is None or file < waiting.file)
        ]
        more, waiters = max(0, len(before) - MOST_OPEN), list_living(queue, before[-MOST_OPEN:])
        position = 1 + more + len(waiters)
        holds = list_living(queue, [file for file in files if file.startswith(HOLD)])
        conflicts = [holds[at] for at in find_conflicts(record.claim, list(map(read_claim, holds)))]
        if conflicts:
            forecast = "" if more else forecast_wait(holds, waiters, record.claim)
            return (
                position,
                describe_holders(conflicts, record.claim, not forecast)
                + describe_note(conflicts[0]),
                forecast,
            )
        return position, "others are waiting" if position > 1 else "free just now", ""
    except (OSError, SoloError) as error:
        return None, str(error), ""


def forecast_wait(holds: "list[Ticket]", waiters: "list[Ticket]", wanted: "Claim") -> str:
    """Return `usually 4m each: about 6m`, or "" if it is not known of a run ahead how long it
    usually takes.
    """
    from solo.history.usual import estimate_wait

    words: set[str] = set()
    running: list[tuple[float, Claim]] = []
    ahead: list[tuple[float, Claim]] = []
    for ticket in (*holds, *waiters):
        usual = know_usual_run(ticket)
        age = time() - ticket.record.since if ticket.record else 0.0
        left = None if usual is None else usual.find_left(age) if ticket.is_hold else usual.median
        if usual is None or left is None:
            return ""
        words.add(format_usual(usual.median, usual.range))
        (running if ticket.is_hold else ahead).append((left, read_claim(ticket)))
    each = " each" if len(running) + len(ahead) > 1 else ""
    usually = f"usually {words.pop()}{each}: " if len(words) == 1 else ""
    return f"{usually}about {format_rough(estimate_wait(running, ahead, wanted))}"


def know_usual_run(ticket: "Ticket") -> "Usual | None":
    """Return what find_usual_run does, read once for each job while we wait."""
    record = ticket.record
    key = record and (record.shown_names[0], *record.command)
    if key not in usual_runs:
        usual_runs[key] = find_usual_run(ticket)
    return usual_runs[key]


def format_ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"
