"""What one who stands in line is shown: on a terminal one live line, in a CI log a plain one each minute, elsewhere nothing. Cold.

Nothing of it is left when the wait is over: the line is gone before the command's first byte. It is drawn by hand: to load what
draws tables would take the head of the line longer than a hand-over, and twice its memory.
"""

import posix
from _signal import SIG_DFL, SIGHUP, SIGINT, SIGQUIT, SIGTERM, getsignal, signal
from time import monotonic

from solo.text.width import clean, cut
from solo.errors import SoloError
from solo.kernel import ENCODING, FOREVER, has_room, say_promptly
from solo.queue import read_claim
from solo.modes import find_conflicts
from solo.tickets import HOLD, LIVE, MOST_OPEN, ORPHANED, SEAT
from solo.text.describe import describe_holders, format_duration

TICK = 1.0  # seconds, on a terminal
MINUTE = 60.0
CLEAR, DIM, PLAIN = b"\r\x1b[2K", b"\x1b[2m", b"\x1b[0m"
ENDING = (SIGINT, SIGTERM, SIGHUP, SIGQUIT)
SOME_WIDTH = 80  # cells, where the terminal does not say


class Watch:
    """Blocks for a contender of `names`, and shows it on stderr, which may be a terminal or a log of CI.

    `deadline` is when it gives up, on the monotonic clock; `is_verbose`: tell as well who is waited for, whenever that changes.
    """

    def __init__(self, names: list, deadline: float, is_verbose: bool, is_terminal: bool, is_log: bool):
        self.name = " ".join(names)
        self.deadline = deadline
        self.is_verbose = is_verbose
        self.is_terminal = is_terminal
        self.is_log = is_log
        self.begin = monotonic()
        self.told = -MINUTE

    def __call__(self, block, look_again: float, describe, in_one_go: bool = False) -> bool:
        """Block until `look_again`, false, or until `block(until)`, which blocks until then at most, is true.

        `describe` gives our place in line, None if there is none, and who is in the way. What is to be blocked for in one go
        is shown once, and without the times.
        """
        if self.is_verbose:
            say_promptly(f"{self.name}: waiting: {describe()[1]}")
            self.told = monotonic()
        if self.is_terminal:
            return self.show_line(block, look_again, describe, in_one_go)
        return self.block_and_show(block, look_again, describe, in_one_go, self.tell) if self.is_log else block(look_again)

    def block_and_show(self, block, look_again: float, describe, in_one_go: bool, show) -> bool:
        """`show` is called with our state and says when to call it again."""
        while True:
            due = show(lambda: f"{self.name}: {self.tell_state(describe, in_one_go)}")
            if block(look_again if in_one_go else min(look_again, due)):
                return True
            if monotonic() >= look_again:
                return False

    def tell(self, describe_state) -> float:
        """In a log: once a minute."""
        if monotonic() >= self.told + MINUTE:
            self.told = monotonic()
            say_promptly(describe_state())
        return self.told + MINUTE

    def show_line(self, block, look_again: float, describe, in_one_go: bool) -> bool:
        """Those whom a signal ends clear the line first."""
        changed = {number: getsignal(number) for number in ENDING if getsignal(number) == SIG_DFL}
        for number in changed:
            signal(number, self.clear_and_end)
        try:
            return self.block_and_show(block, look_again, describe, in_one_go, self.draw)
        finally:
            self.write(CLEAR)
            for number, disposition in changed.items():
                signal(number, disposition)

    def clear_and_end(self, number, _):
        self.write(CLEAR)
        signal(number, SIG_DFL)
        posix.kill(posix.getpid(), number)

    def tell_state(self, describe, in_one_go: bool) -> str:
        place, who = describe()
        words = ["waiting" if in_one_go else f"waiting for {format_duration(monotonic() - self.begin)}"]
        if place is not None:
            words.append(f"place {place} in line")
        if self.deadline != FOREVER and not in_one_go:
            words.append(f"{format_duration(-((monotonic() - self.deadline) // 1))} left")
        return f"{', '.join(words)}: {who}"

    def draw(self, describe_state) -> float:
        """On a terminal: in place of what was there."""
        try:
            width = posix.get_terminal_size(2).columns or SOME_WIDTH
        except OSError:
            width = SOME_WIDTH
        text = cut(clean(f"solo: {describe_state()}"), width - 1).encode(ENCODING, "replace")
        self.write(CLEAR + (text if posix.environ.get(b"NO_COLOR") else DIM + text + PLAIN) + b"\r")
        return monotonic() + TICK

    def write(self, data: bytes):
        """In one write, as a signal may come at any time; a terminal that is not ours or was stopped stays as it is."""
        try:
            # A background job leaves the terminal to whoever uses it.
            if posix.tcgetpgrp(2) == posix.getpgrp() and has_room(2):
                posix.write(2, data)
        except OSError:
            pass


def describe_wait(line, record, seat) -> tuple:
    """(Our place in line, `held for 3h12m by pid 4711 (deploy.sh)`). Without the gate: what is found is only told."""
    try:
        files = sorted(line.list_files())
        before = [file for file in files if file.startswith(SEAT) and (seat is None or file < seat.file)]
        place = 1 + max(0, len(before) - MOST_OPEN) + len(look_at(line, before[-MOST_OPEN:]))
        holds = look_at(line, [file for file in files if file.startswith(HOLD)])
        conflicts = [holds[at] for at in find_conflicts(record.claim, list(map(read_claim, holds)))]
        if conflicts:
            return place, describe_holders(conflicts, record.claim)
        return place, "others stand in line" if place > 1 else "free just now"
    except (OSError, SoloError) as error:
        return None, str(error)


def look_at(line, files: list) -> list:
    """The living tickets among `files`, closed, with their records."""
    living = []
    for file in files:
        ticket = line.look(file)
        if ticket is not None:
            ticket.read_record()
            ticket.close()
            if ticket.state in (LIVE, ORPHANED):
                living.append(ticket)
    return living
