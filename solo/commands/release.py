"""`solo release`: give up names that `solo hold` keeps, while their process lives."""

import posix
from _signal import SIGTERM
from collections.abc import Callable
from time import time

from solo.commands.lookup import Asked, open_queue, report_unknown, visit_queues
from solo.errors import SoloError, UsageError
from solo.identity import Process, find_pid, walk_parents
from solo.journal import Journal, format_token
from solo.journal_files import ENDED
from solo.kernel import say
from solo.modes import INTENTIONS, plan_claims
from solo.obstacles import list_holds, read_claim
from solo.process.owners import describe_pid
from solo.process.tree import end
from solo.text.describe import describe_owner
from solo.text.users import find_user
from solo.tickets import FileQueue, Queue, Ticket

NOT_KEPT = "not held by solo hold"
MOST_PIDS = 10  # in a message


def run(options: "Asked", names: "list[str]") -> int:
    """Release the kept hold of each name, or its dead ones at an engine. Return 125 if one was not
    released.
    """
    if options.via is not None:
        if not options.is_engine:
            raise UsageError(
                "release --via: not an engine (without --via, release works with files)"
            )
        from solo.commands import remote

        return remote.release(options, names)
    deepest_first = sorted(dict.fromkeys(names), key=lambda name: -name.count("/"))
    unknown = report_unknown(deepest_first, options, "release")
    known = [name for name in deepest_first if name not in unknown]
    complete = visit_queues(known, options, lambda name, queue: release(name, queue, options))
    return 0 if complete and not unknown else SoloError.status


class KeptHold:
    """A ticket that `solo hold` left: its `record`, the `process` that keeps it, and `uid`, the
    user of its file.

    All tickets of one call of `solo hold` share `call`: the user, launcher and process.
    """

    def __init__(self, queue: "FileQueue", ticket: "Ticket") -> None:
        assert ticket.record and ticket.record.child and ticket.owner_uid is not None
        self.queue = queue
        self.ticket = ticket
        self.record = ticket.record
        self.process: Process = ticket.record.child
        self.uid = ticket.owner_uid
        self.call = self.uid, self.record.launcher, self.process

    @property
    def pid(self) -> int:
        """Our pid of the process; that of its record if we cannot see it."""
        return find_pid(self.process, self.record.origin, self.queue.origin) or self.process[0]

    def remove(self) -> None:
        """Remove the ticket: waiters look again. Raises SoloError."""
        try:
            posix.unlink(self.ticket.file, dir_fd=self.queue.place.fd)
        except FileNotFoundError:
            raise SoloError("it was released meanwhile") from None
        except OSError as error:
            raise SoloError(f"cannot release it: {error.strerror}") from None


def release(name: str, queue: "Queue | None", options: "Asked") -> bool:
    """Release the kept hold of one name, and those of its parents that only it needs. Raises
    SoloError.
    """
    if not isinstance(queue, FileQueue):
        raise SoloError(NOT_KEPT)
    hold = choose(name, queue, options)
    names, claim = hold.record.names, hold.record.claim
    left = [other for other in names if other != name and is_kept(other, options, hold)]
    nested = [other for other in left if other.startswith(f"{name}/")]
    if nested:
        raise SoloError(
            f"cannot release it: {nested[0]}, held with it, is nested in it (release that first)"
        )
    hold.remove()
    needed = {part for part, _ in plan_claims(left, claim)}
    for part, needs in reversed(plan_claims([name], claim)):
        if part not in needed and needs.mode in INTENTIONS:
            visit_same(part, options, hold, KeptHold.remove)
    append_journal(name, hold, options.dir)
    try:
        if hold.record.is_timed and not left:
            end(hold.ticket, hold.process, SIGTERM)
    except SoloError as error:
        say(f"{hold.record.names[0]}: {error}")  # the name is released all the same
    return True


def append_journal(name: str, hold: KeptHold, directory: "str | None") -> None:
    """Write that the hold of `name` was released."""
    hold.record.names = [name]
    journal = Journal(hold.record, directory, lambda text: None)
    journal.tokens = {name: format_token(hold.ticket)}
    journal.start = b" start=%.3f child=%d" % (hold.record.since, hold.process[0])
    ran = max(0, time() - hold.record.since)
    journal.append_all(ENDED, lambda: b"%b ran=%.3f code=0 timed-out=0" % (journal.start, ran))


def visit_same(
    name: str, options: "Asked", hold: KeptHold, visit: "Callable[[KeptHold], None]"
) -> bool:
    """Call `visit` with the kept hold of `name` from the same call as `hold`. Return False if there
    is none.
    """
    try:
        queue = open_queue(name, options, hold.queue.origin)
    except SoloError:
        return False  # refused, or no valid name: a record can be written by another user
    if not isinstance(queue, FileQueue):
        return False
    try:
        for other in find_kept(queue, list_holds(queue)):
            if other.call == hold.call:
                visit(other)
                return True
        return False
    finally:
        queue.leave()


def is_kept(name: str, options: "Asked", hold: KeptHold) -> bool:
    """Return whether `name` still has a kept hold from the same call as `hold`."""
    return visit_same(name, options, hold, lambda _: None)


def find_kept(queue: "FileQueue", holds: "list[Ticket]") -> "list[KeptHold]":
    """Return those of `holds` that `solo hold` left, the oldest first."""
    kept = [hold for hold in holds if hold.record and hold.record.is_kept]
    return [KeptHold(queue, hold) for hold in sorted(kept, key=lambda hold: hold.number)]


def explain_others(
    name: str, options: "Asked", holds: "list[Ticket]", found: "list[KeptHold]"
) -> str:
    """Return what to add to NOT_KEPT: who else holds the name, or which name nested in it is kept
    by one of `found`.
    """
    for hold in found:
        for other in hold.record.names:
            if other.startswith(f"{name}/") and is_kept(other, options, hold):
                return f", but {other} is, which is nested in it (release that)"
    others = [hold for hold in holds if read_claim(hold).mode not in INTENTIONS]
    if others and others[0].record is None:
        return ", and the record of its holder cannot be read"
    return f"; it is held by {describe_owner(others[0])} (solo stop ends it)" if others else ""


def choose(name: str, queue: "FileQueue", options: "Asked") -> KeptHold:
    """Return the kept hold of --pid, else of the nearest ancestor, else the user's only one. Raises
    SoloError.
    """
    pid = options.pid
    holds = list_holds(queue)
    found = find_kept(queue, holds)
    kept = [hold for hold in found if hold.record.claim.mode not in INTENTIONS]
    if not kept:
        raise SoloError(NOT_KEPT + explain_others(name, options, holds, found))
    ours = [hold for hold in kept if posix.geteuid() in (0, hold.uid)]
    if not ours:
        whose = "root" if kept[0].uid == 0 else f"{find_user(kept[0].uid)} and root"
        raise SoloError(f"held by {describe_owner(kept[0].ticket)}: only {whose} can release it")
    if pid is not None:
        if wanted := [hold for hold in ours if hold.pid == pid]:
            return wanted[0]
        raise SoloError(f"not held for pid {pid}")
    by_process = {hold.process: hold for hold in reversed(ours)}
    for process in walk_parents(posix.getppid()):
        if process in by_process:
            return by_process[process]
    pids = list(
        {
            hold.process: describe_pid(hold.process, hold.record.origin, queue.origin)
            for hold in ours
        }.values()
    )
    if len(pids) > 1:
        shown = ", ".join(pids[:MOST_PIDS] + ["..."] * bool(pids[MOST_PIDS:]))
        raise SoloError(f"held for {len(pids)} processes: pids {shown} (choose one with --pid)")
    return ours[0]
