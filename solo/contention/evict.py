"""Ends holders and waiters, for --replace and `solo stop`.

First SIGTERM, then SIGKILL; first to the command and then to its launcher, which so exits with the
command's status. Every process is verified, and signalled only if the owner of the ticket's file
could have signalled it.
"""

import posix
from _signal import SIGCONT, SIGKILL, SIGTERM
from time import monotonic

from solo.errors import SoloError
from solo.identity import Process, find_pid, is_stopped
from solo.kernel import FOREVER, decode, say_promptly
from solo.process.owners import describe_pid, has_launcher, is_trusted, may_signal, vouches
from solo.process.tree import end, find_children, find_descendants, open_recipient, send
from solo.text.describe import describe_owner
from solo.text.users import find_user
from solo.tickets import LIVE, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from solo.record import Record

EVICT_POLL = 0.1  # seconds until some of too many tickets have ended
# seconds from the end of the command to that of its launcher, and from SIGKILL to the end
GRACE = 2.0


class Eviction:
    """An eviction. `steps`: by (file, state) of a ticket, the number of STEPS taken and when the
    next one is due; `refused`: by file, the error of a ticket that cannot be ended.
    """

    def __init__(self, kill_after: float) -> None:
        self.kill_after = kill_after
        self.steps: dict[tuple[str, str], tuple[int, float]] = {}
        self.refused: dict[str, SoloError] = {}

    def act(self, tickets: "Sequence[Ticket]") -> float:
        """Take the step that is due for each of `tickets`, close them, and return when to call
        again.

        Leave tickets that could not be kept open, because there are too many, for the next call.
        Leave all holders too while a waiter is among those: it would acquire when the holders end.
        """
        now = monotonic()
        try:
            closed = [(ticket, ticket.read_record()) for ticket in tickets if not ticket.is_open]
            left = [ticket for ticket, record in closed if record and record.launcher[0] > 0]
            acted = [ticket for ticket in tickets if not ticket.is_hold]
            if not any(ticket in left for ticket in acted):
                acted += [ticket for ticket in tickets if ticket.is_hold]
            due = [self.advance(ticket, now) for ticket in acted if ticket not in left]
            return min(due + [now + EVICT_POLL] * bool(left), default=FOREVER)
        finally:
            for ticket in tickets:
                ticket.close()

    def advance(self, ticket: "Ticket", now: float) -> float:
        """Take the step that is due for one ticket. Return when its next step is due: never if it
        cannot be ended.
        """
        if ticket.file in self.refused:
            return FOREVER
        if ticket.is_open and ticket.state is LIVE and ticket.has_left():
            return now  # it ended just now and may have left an orphan
        key = ticket.file, ticket.state
        steps, due = self.steps.get(key, (0, now))
        if due <= now:
            try:
                pause = STEPS[steps](ticket) if steps < len(STEPS) else refuse(ticket)
            except SoloError as error:
                self.refused[ticket.file] = error
                return FOREVER
            due = now + (self.kill_after if pause is None else pause)
            self.steps[key] = steps + 1, due
        return due

    def transfer_steps(self, waiting: str, hold: str) -> None:
        """Count the steps taken for a waiter as taken for the holder that it has become: the names
        of its tickets.
        """
        for (file, state), step in list(self.steps.items()):
            if file == waiting:
                self.steps[hold, state] = step

    def act_on_all(self, tickets: "Sequence[Ticket]") -> float:
        """Act on tickets that all must end. Raises SoloError for one that cannot be ended, after
        asking all others.
        """
        next_due = self.act(tickets)
        for error in self.refused.values():
            raise error
        return next_due


def ask_to_end(ticket: "Ticket") -> "float | None":
    """Send SIGTERM to the command; to the launcher, which forwards it, if no command runs yet, with
    --tree, or if the owner of the ticket could not signal the command, as after sudo(8).
    """
    record = read_record(ticket)
    process = record.child
    if process is None or (
        has_launcher(ticket) and (record.tree is not None or not vouches(ticket, process))
    ):
        process = record.launcher
    end(
        ticket,
        process,
        SIGTERM,
        (lambda: announce_kept(ticket, record)) if record.is_kept else None,
    )
    if process is record.child and has_launcher(ticket):
        continue_launcher(ticket, record.launcher)
    return None


def continue_launcher(ticket: "Ticket", launcher: "Process") -> None:
    """Send SIGCONT to a launcher that Ctrl-Z has stopped: it must see the end of its command."""
    try:
        with open_recipient(ticket, launcher) as recipient:
            if is_stopped(recipient.pid):
                recipient.send(SIGCONT)
    except (OSError, SoloError):
        pass  # it has ended, or is ended by a later step


def announce_kept(ticket: "Ticket", record: "Record") -> None:
    """Say which process ends: the user may not know that a hold of it is in the way."""
    whose = ""
    try:
        uid = posix.stat(
            f"/proc/{find_pid(record.holder, record.origin, ticket.queue.origin)}"
        ).st_uid
        if uid != ticket.owner_uid:
            whose = f" of {find_user(uid)}"
    except OSError:
        pass  # it has ended
    say_promptly(
        f"{record.names[0]}: ending {describe_owner(ticket)}{whose}, for which solo hold keeps the "
        "name"
    )


def kill_command(ticket: "Ticket") -> "float | None":
    """Send SIGKILL to the command, with --tree also to the launcher's other descendants."""
    record = read_record(ticket)
    end(ticket, record.child or record.launcher, SIGKILL)
    if record.tree is None or not has_launcher(ticket) or record.child is None:
        return GRACE
    kill_descendants(ticket, record, record.child)
    return GRACE + record.tree


def kill_descendants(ticket: "Ticket", record: "Record", command: "Process") -> None:
    """Send SIGKILL to the descendants of the launcher, except its children from before the command.

    A launcher in another namespace does that itself. Raises SoloError as open_recipient does.
    """
    mine = ticket.queue.origin
    if (record.origin.pid_namespace, record.origin.time_namespace) != (
        mine.pid_namespace,
        mine.time_namespace,
    ):
        return
    try:
        with open_recipient(ticket, record.launcher) as launcher:
            # Within one clock tick the lower pid is older, unless pids wrapped: so Termination
            # keeps earlier children apart.
            children = find_children(record.launcher[0])
            strangers = [
                (pid, start) for pid, start in children if (start, pid) < (command[1], command[0])
            ]
            found = find_descendants(record.launcher[0], strangers)
            if launcher.is_gone():
                return  # another process may have got its pid before we listed the children
    except ProcessLookupError:
        return
    for process in found:
        try:
            if is_trusted(ticket) or may_signal(ticket.owner_uid or 0, process[0]):
                send(process, SIGKILL)
        except OSError:
            pass  # it has just ended


def kill_launcher(ticket: "Ticket") -> "float | None":
    """Send SIGKILL to a launcher that is stopped or hangs after its command has ended."""
    if has_launcher(ticket):
        end(ticket, read_record(ticket).launcher, SIGKILL)
    return GRACE


def refuse(ticket: "Ticket") -> "float | None":
    """Raise SoloError: no step is left."""
    record = read_record(ticket)
    pid = describe_pid(record.child or record.launcher, record.origin, ticket.queue.origin)
    if record.descriptor is None:
        raise SoloError(f"cannot end pid {pid}: it does not end even by SIGKILL")
    from solo.text.remedies import quote_path

    path = decode(record.descriptor[-1])
    remedy = f"list them: fuser {quote_path(path)}"
    raise SoloError(
        f"pid {pid} has ended, but a process that it started has {path} open ({remedy})"
    )


# each returns the seconds until the next, None: --kill-after
STEPS = (ask_to_end, kill_command, kill_launcher)


def read_record(ticket: "Ticket") -> "Record":
    """Return the record of the ticket. Raises SoloError if it is unreadable."""
    record = ticket.read_record()
    if record is None:
        raise SoloError("cannot end the holder: its record cannot be read")
    return record
