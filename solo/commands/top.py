"""`solo top`: holders and waiters, live, with the CPU time and memory of their processes. A key
ends one.
"""

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from time import monotonic, strftime

from solo.commands import stop
from solo.commands.list import (
    CELLS,
    STYLES,
    Cells,
    add_usual,
    collect,
    describe_empty,
    make_table,
    report_absent,
)
from solo.commands.lookup import Asked, check_via, visit_queue
from solo.commands.show import Processes
from solo.contention.evict import Eviction
from solo.errors import SoloError, UsageError
from solo.kernel import ENDING, say
from solo.plan import KILL_AFTER
from solo.process.tree import find_roots
from solo.text.rows import Row
from solo.text.tables import GAP, fit, make_rich, print_rows
from solo.text.width import clean, cut, print_clean
from solo.tickets import Queue, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rich.console import Group

Key = tuple[str, str, int]
INTERVAL = 1.0  # seconds
COLUMNS = "NAME STATE PID FOR CPU MEMORY USER USUAL COMMAND".split()
MIB = 1 << 20
MESSAGE_STAYS = 5.0  # seconds
HELP = "up/down: select   s: stop it   q: quit"
UP, DOWN, QUIT, STOP, YES = "up", "down", "q", "s", "y"
KEYS = {b"\x1b[A": UP, b"\x1bOA": UP, b"k": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"j": DOWN}
SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.?)?|.", re.DOTALL
)  # ECMA-48: CSI, SS3, or a byte


def run(options: Asked, names: "list[str]") -> int:
    """Show the view until q or a signal. Without a terminal, or on a dumb one, print it once.
    Return 125 for an unknown name.
    """
    check_via(options.where)
    if options.is_engine:
        remedy = "solo list shows the holders and waiters at an engine"
        raise UsageError(f"top cannot show processes of other machines ({remedy})")
    view = View(options, names)
    is_terminal = sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()
    is_once = not is_terminal or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    view.refresh(say if is_once else None)
    status = 0
    if report_absent(names, [row.name for row in view.rows], options, "show"):
        status = SoloError.status
    if is_once:
        empty = "" if status else describe_empty(options, view.complete)
        print_rows(*view.make_table(), "STATE", STYLES, empty)
        return status if view.complete else SoloError.status
    if status:
        return status
    with Screen() as screen:
        show(view, screen)
    if view.evictions:
        view.refresh()
    for row, _ in view.evictions.values():
        print_clean(f"{describe(row)}: got SIGTERM, and has not ended yet")
    return 0


def show(view: "View", screen: "Screen") -> None:
    """Draw the view once a second and obey keys, until q."""
    key, due = None, monotonic()
    while key != QUIT:
        was_asked = view.asked
        view.press(key)
        if key == YES or monotonic() >= due:
            view.refresh()
            due = monotonic() + INTERVAL
        if view.asked is not was_asked:
            screen.forget_typed()  # keys typed before the question do not answer it
        if not screen.typed:
            screen.live.update(view.render(*screen.console.size), refresh=True)
        key = screen.wait_key(max(0, due - monotonic()))


class View:
    """The contents of the screen: `rows` of `solo list`, the `selected` one, the one we `asked`
    about, and a `message`.
    """

    def __init__(self, options: Asked, names: "list[str]") -> None:
        self.options = options
        self.names = names
        self.rows: list[Row] = []
        self.selected: Key | None = None
        self.asked: Row | None = None
        self.complete = True  # could all names be read?
        self.message = ""
        self.message_time = 0.0
        self.evictions: dict[Key, tuple[Row, Eviction]] = {}
        self.usage = Usage()

    def refresh(self, report: "Callable[[str], None] | None" = None) -> None:
        """Read all rows again, `report` or show what cannot be read, and take the next step of each
        eviction.
        """
        report = report or self.show_message
        if monotonic() > self.message_time + MESSAGE_STAYS:
            self.message = ""
        for row, _ in list(self.evictions.values()):
            self.end(row)
        roots, where = {}, self.options.dir

        def visit(row: Row, ticket: Ticket) -> None:
            roots[identify(row)] = find_roots(ticket) if ticket.is_hold else []

        rows, self.complete = collect(where, self.options.via, self.names, report, visit)
        self.rows = add_usual(rows, where)
        problem = self.usage.measure(roots)
        if problem and not self.message:
            self.show_message(problem)
        keys = list(map(identify, self.rows))
        if self.selected not in keys:
            self.selected = keys[0] if keys else None
        if self.asked and identify(self.asked) not in keys:
            self.show_message(f"{describe(self.asked)} has ended by itself")
            self.asked = None

    def show_message(self, message: str) -> None:
        """Show a message for some seconds."""
        self.message = clean(message)
        self.message_time = monotonic()

    def press(self, key: "str | None") -> None:
        """Act on a key."""
        if key is None:
            return
        at = self.find_selected()
        if self.asked:
            if key == YES:
                self.evictions[identify(self.asked)] = self.asked, Eviction(KILL_AFTER)
                self.show_message(f"ending {describe(self.asked)}")
            self.asked = None
        elif key in (UP, DOWN) and self.rows:
            at += 1 if key == DOWN else -1
            self.selected = identify(self.rows[max(0, min(len(self.rows) - 1, at))])
        elif key == STOP and self.rows:
            self.asked = self.rows[at]
            self.message = ""

    def find_selected(self) -> int:
        """Return the number of the selected row."""
        return next((at for at, row in enumerate(self.rows) if identify(row) == self.selected), 0)

    def end(self, row: Row) -> None:
        """Take the next step of ending the owner of a row, or report that it has ended."""
        key = identify(row)
        try:
            if visit_queue(
                row.name, self.options.at(row.via), lambda queue: self.evict(key, queue)
            ):
                return
            who = describe(row)
            self.show_message(f"{who} no longer waits" if row.is_waiting else f"ended {who}")
        except SoloError as error:
            self.show_message(f"{row.name}: {error}")
        del self.evictions[key]

    def evict(self, key: Key, queue: "Queue | None") -> bool:
        """Take the next step of ending the owner of a ticket in `queue`. Return False if it has
        ended.
        """
        if queue is None:
            return False
        targets, settling = stop.find_targets(queue, lambda ticket: ticket.number == key[-1], True)
        self.evictions[key][1].act_on_all(targets)
        return bool(targets or settling)

    def make_table(self) -> "tuple[list[str], list[list[str]]]":
        """Return (columns, lines of clean cells)."""
        cells: Cells[Row] = {
            **CELLS,
            "PID": lambda row: row.shown_pid or None,
            "CPU": lambda row: self.usage.found.get(identify(row), "--")[0],
            "MEMORY": lambda row: self.usage.found.get(identify(row), "--")[1],
        }
        columns, lines = make_table(COLUMNS, self.rows, cells)
        return columns, [list(map(clean, line)) for line in lines]

    def render(self, width: int, height: int) -> "Group":
        """Return the screen for rich: counts and time of day, the rows around the selected one, a
        question or message.
        """
        from rich.console import Group
        from rich.text import Text

        columns, lines = fit(*self.make_table(), width, GAP)
        at = self.find_selected()
        room = max(1, height - 3)
        first = max(0, min(at - room // 2, len(lines) - room))
        shown = range(first, min(len(lines), first + room))
        looks = ["reverse" if number == at else "" for number in shown]
        table = make_rich(
            columns, [lines[number] for number in shown], "STATE", STYLES, looks=looks
        )
        held = sum(not row.is_waiting for row in self.rows)
        title = f"solo: {held} held, {len(self.rows) - held} waiting"
        title += strftime("%H:%M:%S").rjust(max(1, width - len(title)))
        question = (
            self.asked and f"stop {cut(describe(self.asked), width - len('stop ? y/n'))}? y/n"
        )
        bottom = Text(question or self.message or HELP, "bold yellow" if question else "dim")
        texts = Text(title, "bold"), bottom
        for text in texts:
            text.truncate(max(1, width), overflow="ellipsis")
        return Group(texts[0], table, *[""] * (room - len(shown)), bottom)


def identify(row: Row) -> Key:
    """Return the key of a row's ticket; its last part is the number."""
    return row.via, row.name, row.ticket


def describe(row: Row) -> str:
    return clean(f"{row.name}: pid {row.shown_pid or '?'} ({' '.join(row.command)})")


class Usage:
    """The CPU use of processes and all their descendants since the last look, and their memory
    now.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[int, float], float] = {}  # by pid and start
        self.when = 0.0
        self.found: dict[Key, tuple[str, str]] = {}

    def measure(self, roots: "dict[Key, list[int]]") -> str:
        """Look at all processes once, for the pids of each key of `roots`. Return why that is
        impossible, or "".
        """
        if not any(roots.values()):
            return ""
        now, processes = monotonic(), Processes()
        found, seconds = {}, {}
        for root, pids in roots.items():
            infos = {
                pid: info
                for pid, _, info in processes.walk(pids, "cpu_times", "memory_info", "create_time")
            }
            resident = sum(
                info["memory_info"].rss for info in infos.values() if info["memory_info"]
            )
            # None: a process that we may not look at.
            times = {
                (pid, one["create_time"]): sum((one["cpu_times"] or ())[:2])
                for pid, one in infos.items()
            }
            spent = sum(times[key] - self.seconds[key] for key in times if key in self.seconds)
            share = f"{100 * spent / (now - self.when):.0f}%" if self.when else "-"
            found[root] = (share, f"{resident / MIB:.1f} MiB") if infos else ("-", "-")
            seconds.update(times)
        self.seconds = seconds
        self.when = now
        self.found = found
        return processes.problem


class Screen:
    """The terminal: alternate screen, keys as they are typed. Every way to end restores it."""

    def __enter__(self) -> "Screen":
        from rich.console import Console
        from rich.live import Live

        for variable in ("COLUMNS", "LINES"):
            os.environ.pop(variable, None)  # an exported size may be outdated
        self.console = Console()
        self.live = Live(
            console=self.console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.settings = termios.tcgetattr(0)
        self.received: list[int] = []
        self.typed = b""
        self.woken, self.wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGTSTP):
            if number == signal.SIGWINCH or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.receive)
        try:
            self.occupy()
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()
        for number in self.find_ending():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def receive(self, number: int, _: object) -> None:
        self.received.append(number)

    def find_ending(self) -> "set[int]":
        """Return the signals that asked us to end."""
        return set(self.received) & set(ENDING)

    def occupy(self) -> None:
        tty.setcbreak(0)
        self.live.start()

    def restore(self) -> None:
        try:
            termios.tcflow(1, termios.TCOON)  # Ctrl-S would block every writer
            self.live.stop()
            termios.tcsetattr(0, termios.TCSANOW, self.settings)
        except (OSError, termios.error):
            pass  # the terminal is gone

    def wait_key(self, seconds: float) -> "str | None":
        """Return the next key, None after `seconds` or a change of size, QUIT after a signal or a
        hangup.
        """
        ready = select.select([0, self.woken], [], [], 0 if self.typed else seconds)[0]
        if self.woken in ready:
            os.read(self.woken, 1 << 10)
        if signal.SIGTSTP in self.received:
            self.received = [number for number in self.received if number != signal.SIGTSTP]
            self.stop()
        if self.find_ending():
            return QUIT
        if 0 in ready:
            try:
                typed = os.read(0, 1 << 10)
            except OSError:
                typed = b""
            if not typed:
                return QUIT
            self.typed += typed
        if not self.typed:
            return None
        key: bytes = SEQUENCE.findall(self.typed)[0]
        self.typed = self.typed[len(key) :]
        return KEYS.get(key, key.decode("latin-1"))

    def forget_typed(self) -> None:
        self.typed = b""
        termios.tcflush(0, termios.TCIFLUSH)

    def stop(self) -> None:
        """Handle Ctrl-Z: restore the terminal until SIGCONT."""
        self.restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self.receive)
        if not self.find_ending():
            self.occupy()
