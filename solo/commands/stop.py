"""`solo stop`: end the holders of the names, and with --waiting their waiters, but no contender
that arrives later.
"""

from collections.abc import Callable
from time import monotonic, sleep

from solo.commands.lookup import Asked, describe_place, make_own_stop, report_unknown, visit_queues
from solo.contention.evict import Eviction
from solo.contention.policies import identify_launcher
from solo.errors import SoloError
from solo.kernel import say
from solo.modes import INTENTIONS
from solo.obstacles import close_all, find_own_ancestors, list_holds, read_claim
from solo.plan import KILL_AFTER
from solo.process.watch import wait_any
from solo.text.describe import describe_owner, format_duration
from solo.text.width import print_clean
from solo.tickets import HOLD, LIVE, MOST_OPEN, ORPHANED, Queue, Ticket, is_published

STOP_POLL = 0.05  # seconds, for a launcher to end after its command


def run(options: Asked, names: "list[str]") -> int:
    """Print a line for each process that was ended. Return 125 if one could not be ended or a name
    was never used.
    """
    if options.is_engine:
        from solo.commands import remote

        return remote.stop(options, names)
    unknown = report_unknown(names, options, "stop")
    known = [name for name in names if name not in unknown]
    complete = visit_queues(known, options, lambda name, queue: stop_name(name, queue, options))
    return 0 if complete and not unknown else SoloError.status


def stop_name(name: str, queue: "Queue | None", options: Asked) -> bool:
    """End the holders of one name. Return False if one could not be ended. Raises SoloError if only
    nested are held.
    """
    if queue is not None:
        stop = Stop(name, queue, options)
        if stop.left:
            return stop.run()
        refuse_nested(name, list_holds(queue))
    print_clean(f"{name}: not held ({describe_place(options)})")
    return True


def refuse_nested(name: str, holds: "list[Ticket]") -> None:
    """Raise SoloError if a name nested in this one is held. Other holders arrived later."""
    for hold in holds:
        if hold.record and hold.record.claim.mode in INTENTIONS:
            nested = [one for one in hold.record.names if one.startswith(f"{name}/")]
            what, owner = [*nested, "a name nested in it"][0], describe_owner(hold)
            raise SoloError(f"not held itself, but {what} is, by {owner} (stop that)")


class Stop:
    """The tickets of one name that are to end: those that were there when this object was made.

    A waiter may acquire the name while it is being stopped. Its new hold then takes its place in
    `left`.
    """

    def __init__(self, name: str, queue: Queue, options: Asked) -> None:
        self.name = name
        self.queue = queue
        self.with_waiting = options.waiting
        self.eviction = Eviction(KILL_AFTER if options.kill_after is None else options.kill_after)
        self.begin = monotonic()
        found, _ = find_targets(queue, lambda ticket: True, options.waiting)
        refuse_own_ancestors(queue, found)
        self.left = {ticket.file: describe(ticket) for ticket in found}
        self.launchers = {
            ticket.file: identify_launcher(ticket) for ticket in found if not ticket.is_hold
        }
        self.decided = set(self.left)  # holds that are known to be in `left`, or not
        self.waiting: set[str] = set()  # waiters that the current look has met
        self.looked_twice: set[str] = set()  # waiters that one look missed

    def run(self) -> bool:
        """Send signals until all have ended, and print each end. Return False if one could not be
        ended.
        """
        while self.left:
            targets, here = self.look()
            # A waiter that is missing for the first time may have acquired the name after the files
            # were listed.
            missing = {
                file for file in self.launchers if file in self.left and file not in here
            } - self.looked_twice
            self.looked_twice |= missing
            if missing:
                close_all(targets)
                continue
            span = format_duration(monotonic() - self.begin)
            for file in [file for file in self.left if file not in here]:
                print_clean(f"{self.name}: ended {self.left.pop(file)} after {span}")
            due = self.eviction.act(targets)
            for file in [file for file in self.left if file in self.eviction.refused]:
                say(f"{self.name}: {self.eviction.refused[file]}")
                self.left.pop(file)
            if self.left:
                self.wait(due)
        return not self.eviction.refused

    def look(self) -> "tuple[list[Ticket], set[str]]":
        """Return (the tickets to signal, the files of all tickets of `left` that are still
        there).
        """
        self.waiting.clear()
        targets, settling = find_targets(self.queue, self.is_target, self.with_waiting)
        return targets, {ticket.file for ticket in targets} | settling

    def is_target(self, ticket: Ticket) -> bool:
        """Return whether the ticket is in `left`, or is the hold of a waiter that was. A look asks
        about the waiters first.
        """
        if not ticket.is_hold:
            self.waiting.add(ticket.file)
        elif ticket.file not in self.decided:
            self.decide(ticket)
        return ticket.file in self.left

    def decide(self, hold: Ticket) -> None:
        """Let a new hold take the place of the waiter that it was: its launcher may be seen waiting
        too.
        """
        launcher = identify_launcher(hold)
        waited = [file for file in self.left if launcher and self.launchers.get(file) == launcher]
        gone = [file for file in waited if file not in self.waiting]
        if gone:
            self.left[hold.file] = self.left.pop(gone[0])
            self.eviction.transfer_steps(gone[0], hold.file)
        if gone or not waited:
            self.decided.add(hold.file)

    def wait(self, due: float) -> None:
        """Block until a target may have ended, or until `due`. Poll while a launcher is about to
        end.
        """
        targets, here = self.look()
        if targets and len(here) == len(targets):
            wait_any(targets, due)
        else:
            sleep(STOP_POLL)
        close_all(targets)


def refuse_own_ancestors(queue: Queue, targets: "list[Ticket]") -> None:
    """Raise SoloError if one of them is above this process: to stop it would end the script that
    asks for that.
    """
    above = find_own_ancestors(queue, targets)
    if above:
        close_all(targets)
        owner = describe_owner(above[0])
        if above[0].record and above[0].record.is_kept:
            raise make_own_stop(owner, " (solo release ends only the hold)")
        raise make_own_stop(owner)


def find_targets(
    queue: Queue, is_wanted: "Callable[[Ticket], bool]", with_waiting: bool
) -> "tuple[list[Ticket], set[str]]":
    """Return (the living tickets that `is_wanted`, waiters first; the files of those that need no
    signal).

    A waiting ticket whose launcher already runs its command is about to vanish: it needs none.
    """
    targets = open_targets(queue, is_wanted, with_waiting)
    started = [
        ticket for ticket in targets if ticket.is_hold and ticket.record and ticket.record.child
    ]
    running = set(map(identify_launcher, started))
    settling = [
        ticket for ticket in targets if not ticket.is_hold and identify_launcher(ticket) in running
    ]
    close_all(settling)
    return [ticket for ticket in targets if ticket not in settling], {
        ticket.file for ticket in settling
    }


def open_targets(
    queue: Queue, is_wanted: "Callable[[Ticket], bool]", with_waiting: bool
) -> "list[Ticket]":
    """Return the living tickets that `is_wanted`, without holds of a parent for a nested name.
    MOST_OPEN stay open.
    """
    targets: list[Ticket] = []
    wanted = is_published if with_waiting else lambda file: file.startswith(HOLD)
    files = filter(wanted, queue.list_files())
    for file in sorted(files, key=lambda file: (file.startswith(HOLD), file)):
        ticket = queue.open_ticket(file)
        if ticket is None:
            continue
        is_target = (
            ticket.state in (LIVE, ORPHANED)
            and read_claim(ticket).mode not in INTENTIONS
            and is_wanted(ticket)
        )
        if not is_target or len(targets) >= MOST_OPEN:
            ticket.close()
        if is_target:
            targets.append(ticket)
    return targets


def describe(ticket: Ticket) -> str:
    """Describe the owner of the ticket, and close it."""
    record = ticket.read_record()
    ticket.close()
    return "a holder whose record cannot be read" if record is None else describe_owner(ticket)
