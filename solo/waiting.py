"""What one who stands in line is shown: on a terminal one live line, in a CI log a plain one each minute, elsewhere nothing. Cold.

Nothing of it is left when the wait is over: the line is gone before the command's first byte.
"""

import posix
from _signal import SIG_DFL, SIGHUP, SIGINT, SIGQUIT, SIGTERM, getsignal, signal
from time import monotonic

from solo.commands.lines import find_in_the_way
from solo.errors import SoloError
from solo.kernel import ENCODING, FOREVER, has_reader, say
from solo.tickets import LIVE, MOST_OPEN, SEAT
from solo.words import describe_holder, format_duration

TICK = 1.0  # seconds, on a terminal
MINUTE = 60.0
CLEAR = b"\r\x1b[2K"
ENDING = (SIGINT, SIGTERM, SIGHUP, SIGQUIT)


class Watch:
    """Blocks for a contender of `name`, and shows it on stderr, which may be a terminal or a log of CI.

    `deadline` is when it gives up, on the monotonic clock; `is_verbose`: tell as well who is waited for, whenever that changes.
    """

    def __init__(self, name: str, deadline: float, is_verbose: bool, is_terminal: bool, is_log: bool):
        self.name = name
        self.deadline = deadline
        self.is_verbose = is_verbose
        self.begin = monotonic()
        self.told = -MINUTE
        self.console = make_console() if is_terminal else None
        self.is_log = is_log

    def __call__(self, block, look_again: float, describe) -> bool:
        """Block until `look_again`, false, or until `block(until)`, which blocks until then at most, is true.

        `describe` gives our place in line, None if there is none, and who is in the way.
        """
        if self.is_verbose:
            say(f"{self.name}: waiting: {describe()[1]}")
            self.told = monotonic()
        if self.console is not None:
            return self.show_line(block, look_again, describe)
        return self.tell_minutes(block, look_again, describe) if self.is_log else block(look_again)

    def tell_minutes(self, block, look_again: float, describe):
        while True:
            if monotonic() >= self.told + MINUTE:
                self.told = monotonic()
                say(f"{self.name}: {self.tell_state(describe)}")
            if block(min(look_again, self.told + MINUTE)):
                return True
            if monotonic() >= look_again:
                return False

    def show_line(self, block, look_again: float, describe):
        """Those whom a signal ends clear the line first."""
        changed = {number: getsignal(number) for number in ENDING if getsignal(number) == SIG_DFL}
        for number in changed:
            signal(number, self.clear_and_end)
        try:
            while True:
                self.draw(f"solo: {self.name}: {self.tell_state(describe)}")
                if block(min(look_again, monotonic() + TICK)):
                    return True
                if monotonic() >= look_again:
                    return False
        finally:
            self.clear()
            for number, disposition in changed.items():
                signal(number, disposition)

    def clear_and_end(self, number, _):
        self.clear()
        signal(number, SIG_DFL)
        posix.kill(posix.getpid(), number)

    def tell_state(self, describe) -> str:
        place, who = describe()
        words = [f"waiting for {format_duration(monotonic() - self.begin)}"]
        if place is not None:
            words.append(f"place {place} in line")
        if self.deadline != FOREVER:
            words.append(f"{format_duration(self.deadline - monotonic())} left")
        return f"{', '.join(words)}: {who}"

    def draw(self, line: str):
        from rich.text import Text

        text = Text("".join(letter if letter.isprintable() else "?" for letter in line), style="dim")
        text.truncate(max(1, self.console.width - 1), overflow="ellipsis")
        with self.console.capture() as captured:
            self.console.print(text, end="\r", no_wrap=True, highlight=False, soft_wrap=True)
        self.write(CLEAR + captured.get().encode(ENCODING, "backslashreplace"))

    def clear(self):
        self.write(CLEAR)

    def write(self, data: bytes):
        """In one write, as a signal may come at any time; a terminal that is not ours or was stopped stays as it is."""
        try:
            if is_in_foreground() and has_reader():
                posix.write(2, data)
        except OSError:
            pass


def make_console():
    from rich.console import Console

    return Console(stderr=True)


def is_in_foreground() -> bool:
    """A background job leaves the terminal to whoever uses it."""
    try:
        return posix.tcgetpgrp(2) == posix.getpgrp()
    except OSError:
        return False


def describe_wait(line, record, seat) -> tuple:
    """(Our place in line, `held for 3h12m by pid 4711 (deploy.sh)`). Without the gate: what is found is only told."""
    try:
        before = sorted(file for file in line.list_files() if file.startswith(SEAT) and (seat is None or file < seat.file))
        place = 1 + max(0, len(before) - MOST_OPEN) + sum(is_living(line, file) for file in before[-MOST_OPEN:])
        text = "others stand in line"
        for ticket in find_in_the_way(line, record.claim):
            text = describe_holder(ticket) if ticket.is_hold else text
            ticket.close()
            if ticket.is_hold:
                break
        return place, text
    except (OSError, SoloError) as error:
        return None, str(error)


def is_living(line, file: str) -> bool:
    ticket = line.open_ticket(file)
    if ticket is not None:
        ticket.close()
    return ticket is not None and ticket.state is LIVE
