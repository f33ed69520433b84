"""Ending those who hold or wait, for --replace and `solo stop`. Cold.

The command goes first and then its launcher, so that statuses stay true: SIGTERM, later SIGKILL. Every process is identified through
a pidfd, and gets a signal only if the owner of the ticket's file could have sent it one.
"""

from _signal import SIGKILL, SIGTERM
from time import monotonic

from solo.errors import SoloError
from solo.kernel import FOREVER, close
from solo.process.watch import poll
from solo.process.owners import is_trusted, may_signal, vouches
from solo.process.tree import end, find_children, find_descendants, open_target, send
from solo.tickets import LIVE

LOOK_AGAIN = 0.1  # seconds, for some of many to be gone
GRACE = 2.0  # seconds from the end of the command to that of its launcher, and from SIGKILL to the end


class Eviction:
    """What was done so far: `steps` has, by ticket and state, how many of STEPS and when the next one is due; `refused` the errors
    of those that can not be ended, by their files.
    """

    def __init__(self, kill_after: float):
        self.kill_after = kill_after
        self.steps = {}
        self.refused = {}

    def act(self, tickets: list) -> float:
        """Do what is due to each of `tickets`, and close them; when to come back. Those that are closed, as there are too many, are
        left for then, and holders as long as one in line is: it would get in when they end.
        """
        now, next_due = monotonic(), FOREVER
        try:
            left = [ticket for ticket in tickets if not ticket.is_open and is_known(ticket)]
            if left:
                next_due = now + LOOK_AGAIN
            in_line_first = [ticket for ticket in tickets if not ticket.is_hold]
            if not any(ticket in left for ticket in in_line_first):
                in_line_first += [ticket for ticket in tickets if ticket.is_hold]
            for ticket in in_line_first:
                if ticket in left or ticket.file in self.refused:
                    continue
                if ticket.is_open and ticket.state is LIVE and ticket.has_left():
                    next_due = now  # a command that it leaves behind is another matter
                    continue
                key = ticket.file, ticket.state
                steps, due = self.steps.get(key, (0, now))
                if due <= now:
                    try:
                        pause = STEPS[steps](ticket) if steps < len(STEPS) else refuse(ticket)
                    except SoloError as error:
                        self.refused[ticket.file] = error
                        continue
                    due = now + (self.kill_after if pause is None else pause)
                    self.steps[key] = steps + 1, due
                next_due = min(next_due, due)
        finally:
            for ticket in tickets:
                ticket.close()
        return next_due

    def go_on(self, seat: str, hold: str):
        """What was done to one in line, was done to the holder that it has become."""
        for (file, state), step in list(self.steps.items()):
            if file == seat:
                self.steps[hold, state] = step

    def act_on_all(self, tickets: list) -> float:
        """The same for who needs every one of them gone. Raises SoloError, when all were asked."""
        next_due = self.act(tickets)
        for error in self.refused.values():
            raise error
        return next_due


def is_known(ticket) -> bool:
    """Does its record say whose it is?"""
    record = ticket.read_record()
    return record is not None and record.launcher[0] > 0


def ask_to_end(ticket):
    """SIGTERM to the command. To its launcher, which forwards it, if there is no command yet, if it is a tree, or if the owner of
    the ticket could not signal the command: sudo(8) changes its user.
    """
    record = read_record(ticket)
    is_forwarded = ticket.state is LIVE and (record.tree is not None or record.child is None or not vouches(ticket, record.child))
    end_one(ticket, record.launcher if is_forwarded else record.child, SIGTERM)


def kill_command(ticket):
    record = read_record(ticket)
    end_one(ticket, record.child or record.launcher, SIGKILL)
    if record.tree is None or ticket.state is not LIVE or record.child is None:
        return GRACE
    kill_descendants(ticket)
    return GRACE + record.tree


def kill_descendants(ticket):
    """SIGKILL what descends from the launcher, but for its children from before the command. In another namespace it does so itself.

    Raises SoloError if the owner of the ticket could not have signalled the launcher.
    """
    record, mine = ticket.record, ticket.line.world
    if (record.world.pid_namespace, record.world.time_namespace) != (mine.pid_namespace, mine.time_namespace):
        return
    try:
        launcher = open_target(ticket, record.launcher)
    except ProcessLookupError:
        return
    try:
        strangers = [it for it in find_children(record.launcher[0]) if it[1] <= record.child[1] and it != record.child]
        found = find_descendants(record.launcher[0], strangers)
        if poll([launcher], 0):
            return  # its pid may have become another process's before we listed the children
    finally:
        close(launcher)
    for process in found:
        try:
            if is_trusted(ticket) or may_signal(ticket.owner_uid, process[0]):
                send(process, SIGKILL)
        except OSError:
            pass  # it has just ended


def kill_launcher(ticket):
    """One that is stopped, or hangs: its command is dead."""
    if ticket.state is LIVE:
        end_one(ticket, read_record(ticket).launcher, SIGKILL)
    return GRACE


def refuse(ticket):
    record = read_record(ticket)
    raise SoloError(f"pid {(record.child or record.launcher)[0]} does not end, not by SIGKILL either")


STEPS = (ask_to_end, kill_command, kill_launcher)


def end_one(ticket, process: tuple, signal: int):
    if process[0] <= 0:
        raise SoloError("cannot end the holder: it cannot be seen from here")
    end(ticket, process, signal)


def read_record(ticket):
    record = ticket.read_record()
    if record is None:
        raise SoloError("can not end the holder: its record can not be read")
    return record
