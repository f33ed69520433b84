"""Join, wait, acquire: the queue of one name, first come, first served.

A name is a directory of `.gate` and of tickets: `.seat.<n>` of waiters, `.hold.<n>` of holders.

- a ticket is alive while its owner has flock(2) on it: the kernel unlocks it, however its owner
  ends
- it is written and locked first, then given its name
- its n grows with each ticket, and never comes twice
- the gate is locked to look and to publish, never while anything runs or waits
- only the gate's holder removes dead tickets of others
- nothing in the way: a contender publishes its hold
- one that may not wait is busy: a skip
- others publish a waiting ticket, and so join the queue
- a waiter blocks on the nearest waiter before it, at the head on the conflicting holds
- it blocks outside the gate, then looks again
- the command's process is in the hold before it may exec
- an owner removes its own ticket at any time, then unlocks it
- without its owner a hold is alive as long as its command: an orphan
"""

from time import monotonic

from solo.errors import Busy, SoloError, Superseded, Vanished, make_own_wait
from solo.identity import read_stat
from solo.kernel import FOREVER, NO_WAIT, block_wake_signal, is_woken, restore_mask
from solo.modes import EXCLUSIVE, SLOTS, find_conflicts
from solo.obstacles import (
    close_all,
    find_holds,
    find_obstacles,
    find_own_ancestors,
    make_busy,
    read_claim,
)
from solo.tickets import HOLD, SEAT, Queue, Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.contention.policies import Policy
    from solo.contention.protocols import Block, Describe, Watch
    from solo.record import Record
    from solo.start import Starter

# The states of an Attempt, each with what leads out of it; a published hold leads out of each.
NEW = "new"  # no ticket: publish a waiting ticket (WAITING)
WAITING = "waiting"  # a waiting ticket: block on the waiter before it, until there is none (HEAD)
HEAD = "head"  # the first waiter, its command forked in advance: block on the conflicting holds


class Attempt:
    """One contender on its way to a hold on the name of `queue`, for a command whose `record` has
    its claim.

    `deadline` is on the monotonic clock, or NO_WAIT. `watch` blocks for us, and may show it.
    `policy` deals with other waiters. `starter` starts our command: at the head of the queue it
    forks it. An exclusive hold then keeps the waiting ticket before it until finish_handoff: the
    next waiter looks again when our command has started.

    `state` is one of NEW, WAITING, HEAD. `waiting` is its waiting ticket, then `hold` its hold. At
    the latest look, `obstacles` were the tickets in its way. `mask` is the signal mask from before
    the wake signal was blocked.
    """

    def __init__(
        self,
        queue: "Queue",
        record: "Record",
        deadline: float,
        watch: "Watch",
        policy: "Policy | None" = None,
        starter: "Starter | None" = None,
    ) -> None:
        self.queue = queue
        self.record = record
        self.deadline = deadline
        self.watch = watch
        self.policy = policy
        self.starter = starter
        self.state = NEW
        self.hold: Ticket | None = None
        self.waiting: Ticket | None = None
        self.mask: set[int] | None = None
        self.obstacles: list[Ticket] = []

    def acquire(self) -> "Ticket":
        """Return the hold. Raises Busy, SoloError; then no ticket is left in the queue."""
        try:
            while self.hold is None:
                self.advance()
            return self.hold
        except Superseded as error:
            from solo.contention.policies import name_superseder

            raise name_superseder(error, self.queue, self.record, self.waiting) from None
        except Busy as error:
            if error.tickets:
                from solo.text.describe import explain_busy

                explain_busy(error, self.record.claim)  # without the gate: it reads a journal
            raise
        except Vanished as error:
            # Only an idle name may vanish: with our ticket in it, another program removed it, and a
            # holder with it.
            raise error if self.waiting is None else SoloError(str(error)) from None
        except BaseException:
            if self.hold is not None:
                self.hold.release()
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close and release everything but the hold."""
        self.queue.gate.deadline = FOREVER
        close_all(self.obstacles)
        self.release_waiting()
        if self.mask is not None:
            restore_mask(self.mask)

    def advance(self) -> None:
        """Look and publish under the gate; then, without the gate, wait until the next look is
        due.
        """
        if self.deadline != NO_WAIT:
            self.queue.gate.deadline = self.deadline
        was_new = self.state is NEW
        with self.queue.gate:
            is_published = self.look_and_publish()
        if not is_published or self.hold is not None:
            return
        if was_new:
            self.refuse_deadlock()
        if not self.prepare_handoff():
            # else look again now: it copies the pages that the fork shares, before our turn
            self.wait()

    def look_and_publish(self) -> bool:
        """Look, then publish our hold or our waiting ticket if there is none yet. Gate locked.

        Returns False if the gate was removed under us. Raises Busy if we may not wait, or no
        longer.
        """
        if self.waiting is not None and self.mask is not None and is_woken():
            raise Superseded("superseded by a newer one")
        self.look()
        if self.obstacles:
            is_published = self.join_queue()
        else:
            self.hold = self.queue.publish(HOLD, self.record)
            is_published = self.hold is not None
        if not is_published:
            return False
        if self.policy is not None:
            self.policy.meet(self.queue, self.record, self.waiting, self.obstacles)
        if self.hold is not None:
            self.leave_queue()
        return True

    def look(self) -> None:
        """Find the tickets in our way, and the slots for us if there are none. Gate locked."""
        close_all(self.obstacles)
        ignores = None if self.policy is None else self.policy.ignores
        self.obstacles, self.record.slot = find_obstacles(
            self.queue, self.record, self.waiting, ignores
        )

    def leave_queue(self) -> None:
        """Give up our waiting ticket now that we have the hold; an exclusive one once our command
        has started.
        """
        if self.record.claim.mode != EXCLUSIVE:
            # others may run beside us: our waiting ticket would make them busy
            self.release_waiting()
        elif self.starter is not None:
            self.queue.kept, self.waiting = self.waiting, None

    def release_waiting(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.release()

    def join_queue(self) -> bool:
        """Publish our waiting ticket, unless there is one. Raises Busy if we may not wait, or no
        longer.
        """
        if self.state is NEW:
            self.refuse_own_ancestors(find_holds(self.queue, 0))
        if self.policy is not None:
            self.deadline = self.policy.choose_deadline(self.queue, self.record, self.deadline)
        may_wait = (
            self.state is not NEW
            or self.policy is None
            or self.policy.may_wait(self.queue, self.record)
        )
        if monotonic() >= self.deadline or not may_wait:
            raise make_busy(self.queue, self.record, self.obstacles)
        if self.state is not NEW:
            return True
        if self.mask is None:
            self.mask = block_wake_signal()
        self.waiting = self.queue.publish(SEAT, self.record)
        if self.waiting is None:
            return False
        self.state = WAITING
        return True

    def refuse_own_ancestors(self, holds: "list[Ticket]") -> None:
        """Raise SoloError if we would wait for ourselves: an ancestor of this process has one of
        the live `holds`.

        A program with a limit is busy then: a reloader's child, or a forked server, asks whether it
        is the leader.
        """
        if self.record.retained is not None and self.deadline != FOREVER:
            return
        keep = self.record.keep
        above = find_own_ancestors(self.queue, holds, keep)
        held = [hold.record for hold in above if hold.record and not may_release(hold.record)]
        if not held:
            return
        whose = (
            "for which it was asked" if held[0].holder == keep else "an ancestor of this process"
        )
        ancestor = f"pid {held[0].holder[0]}, {whose}"
        if find_conflicts(self.record.claim, [theirs.claim for theirs in held]):
            raise make_own_wait(f"held by {ancestor}")
        if not self.obstacles[0].is_hold and self.deadline != NO_WAIT:
            raise SoloError(f"held by {ancestor}, and waiters ahead wait for it: a deadlock")

    def refuse_deadlock(self) -> None:
        """Raise SoloError if a run that we would wait for waits for us, once we have joined the
        queue.
        """
        # With --replace we wait only until that run has ended.
        if self.waiting is not None and (self.policy is None or not self.policy.ends_holders):
            from solo.contention.deadlock import refuse_deadlock

            refuse_deadlock(self.waiting, None if self.policy is None else self.policy.ignores)

    def prepare_handoff(self) -> bool:
        """Load what forks our command in advance; at the head of the queue fork it, once. Return
        whether that was now.
        """
        try:
            if self.starter is not None and self.state is WAITING:
                from solo.contention.handoff import fork_early

                if self.obstacles[0].is_hold:
                    self.state = HEAD
                    fork_early(self.starter)
                    return True
        except (OSError, ImportError):
            pass  # it only saves time
        return False

    def wait(self) -> None:
        """Block until the tickets in our way may have changed, or the deadline, or the policy has
        something to do.
        """
        look_again = self.deadline if self.policy is None else self.policy.act(self.deadline)
        self.watch(make_block(self.record, self.obstacles), look_again, self.describe)

    def describe(self) -> "tuple[int | None, str, str]":
        from solo.contention.progress import describe_wait

        return describe_wait(self.queue, self.record, self.waiting)


def may_release(record: "Record") -> bool:
    """Return whether the owner of a hold above us may release it before we end: a program with more
    than one thread.
    """
    try:
        return record.child is None and read_stat(record.launcher[0]).threads > 1
    except OSError:
        return True


def make_block(record: "Record", obstacles: "list[Ticket]") -> "Block":
    """Return a function that blocks until an obstacle may have left, True, or until its deadline,
    False.

    Any one of several that hold slots may make room for us. Else all must end: wait for one after
    the other.
    """
    if len(obstacles) > 1 and record.claim.mode == read_claim(obstacles[0]).mode == SLOTS:
        from solo.process.watch import wait_any

        return lambda deadline: wait_any(obstacles, deadline)
    return obstacles[0].wait_end


def wait_silently(
    block: "Block", look_again: float, describe: "Describe", in_one_go: bool = False
) -> bool:
    """A `watch` that shows nothing."""
    load_words()
    return block(look_again)


def load_words() -> None:
    """Load what a waiter needs to say why it gives up: an upgrade may remove Python's library
    meanwhile.
    """
    try:
        import select  # noqa: F401

        import solo.history.usual
        import solo.text.describe  # noqa: F401
    except (OSError, ImportError):
        pass
