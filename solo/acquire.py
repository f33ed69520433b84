"""Acquire all that one run holds: its names and their parents, in one global order. Release it in
the reverse order.
"""

import posix
from time import monotonic

from solo.directories import Directory, make_base, open_parts, split_name
from solo.errors import Busy, RanAlready, SoloError, Vanished
from solo.kernel import FOREVER, NO_WAIT, close
from solo.modes import Claim, plan_claims
from solo.obstacles import read_claim
from solo.queue import Attempt, wait_silently
from solo.tickets import FileQueue, Queue, Ticket, finish_handoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from solo.contention.policies import Policy
    from solo.contention.protocols import Block, Describe, Hold, Watch
    from solo.identity import Origin, Process
    from solo.plan import Plan
    from solo.record import Record
    from solo.start import Starter

    FindPlace = Callable[[str | None, bool], Directory | None]
    Result = TypeVar("Result")
NAME_ATTEMPTS = 20
# the variables that a run sets only with some options
OF_SOME_RUNS = (b"SOLO_SLOT", b"SOLO_TTL", b"SOLO_VIA_KEY")
# set where people read stderr as a log
CI_VARIABLES = (b"CI", b"JENKINS_URL", b"TEAMCITY_VERSION", b"TF_BUILD")


def release_all(holds: "list[Hold]") -> None:
    """Release all, the last acquired first."""
    while holds:
        holds.pop().release()


def acquire_names(
    wanted: "Record",
    plan: "Plan",
    watch: "Watch",
    holds: "list[Hold]",
    make_queue: "Callable[[Directory | None, str, Origin], Queue] | None" = None,
    starter: "Starter | None" = None,
    contend: "type[Attempt]" = Attempt,
    find_place: "FindPlace" = make_base,
) -> "dict[str, Ticket]":
    """Acquire what the names of the record `wanted` need, in global order. Append each to `holds`;
    return them by name.

    The last hold is still to be settled. `watch` and `starter` are as for Attempt; `make_queue` is
    by default open_queue. `contend` and `find_place` replace what acts, for --explain. Raises Busy,
    SoloError.
    """
    named: dict[str, Ticket] = {}
    name, base = wanted.names[0], None

    def make(record: "Record", policy: "Policy | None") -> Attempt:
        queue = (make_queue or open_queue)(base, name, wanted.origin)
        if wanted.is_pair and named:
            queue.count_from(named[wanted.names[0]].number - 1)
        return contend(queue, record, plan.deadline, watch, policy, starter)

    try:
        base = None if plan.is_socket else find_place(plan.dir, plan.verbose)
        for name, claim in order_claims(wanted):
            settle_all(named.values())
            named[name] = acquire_name(wanted.claiming(claim), plan, make)
            holds.append(named[name])
        if wanted.is_pair:
            named[wanted.names[0]].queue.raise_counter(named[name].number)
        return named
    except BaseException as error:
        for hold in named.values():
            hold.queue.gate.restore_skips()
        if isinstance(error, OSError):
            raise SoloError(f"{name}: cannot be held: {error.strerror}") from None
        if isinstance(error, SoloError):
            error.name = name
            error.shown = wanted.names[0] if wanted.is_generated else name
        raise
    finally:
        if base is not None:
            close(base.fd)


def order_claims(wanted: "Record") -> "list[tuple[str, Claim]]":
    """Return [(name, Claim)] in the order of acquiring: the global one.

    A pair that solo made is acquired as it is: all waiters of one line are then in the queue of one
    name. The second name is of a real path, which is the only name of that path: so no circle of
    waiters comes from this order.
    """
    if wanted.is_generated:
        return [(name, wanted.claim) for name in wanted.names]
    return plan_claims(wanted.names, wanted.claim)


def choose_named(wanted: "Record", holds: "dict[str, Ticket]") -> "dict[str, Ticket]":
    """Return, by shown name, the holds that give a run its tokens and slots.

    Of a pair that is the second one, as all spellings of a program share it.
    """
    return {wanted.names[0]: holds[wanted.names[1]]} if wanted.is_pair else holds


def acquire_name(
    record: "Record", plan: "Plan", make: "Callable[[Record, Policy | None], Attempt]"
) -> "Ticket":
    """Acquire one name by the Attempt that `make` returns. If `solo clean` removes its directory,
    make another one.
    """
    policy, left = None, NAME_ATTEMPTS
    if (
        plan.max_waiting is not None
        or plan.latest
        or plan.replace
        or plan.replace_after is not None
    ):
        from solo.contention.policies import make_policy

        policy = make_policy(plan)
    while True:
        left -= 1
        attempt = None
        try:
            attempt = make(record, policy)
            hold = attempt.acquire()
            attempt.queue.gate.close()
            return hold
        except BaseException as error:
            if attempt is not None:
                attempt.queue.leave()
            if not (left and isinstance(error, Vanished)):
                raise


def acquire_further(
    name: str, named: "dict[str, Ticket]", acquire: "Callable[[], Result]"
) -> "Result":
    """Call `acquire`, which acquires what a run needs beside its names; if it raises Busy, count a
    skip of the name.
    """
    hold = named[name]
    settle_all(named.values())
    try:
        return acquire()
    except BaseException as error:
        hold.queue.gate.restore_skips()
        if isinstance(error, Busy) and not isinstance(error, RanAlready):
            with hold.queue.gate:
                error.skips = hold.queue.gate.count_skip(read_claim(hold).mode)
            hold.queue.gate.close()
            if not error.name:
                error.name = error.shown = name
        raise


def add_own_skips(error: BaseException, plan: "Plan", record: "Record") -> None:
    """Add to the Busy error how often its command line was skipped in a row, whatever else ran."""
    if type(error) is Busy and not plan.is_socket:  # of which there is no journal
        from solo.history.usual import count_own_skips

        error.own_skips = count_own_skips(plan.dir, record.shown_names[0], record.command)


def add_waited(error: BaseException, plan: "Plan") -> None:
    """Add how long it waited to the Busy error of a contender that gave up."""
    if type(error) is Busy and plan.wait and monotonic() >= plan.deadline:
        from solo.text.describe import format_span

        error.waited = format_span(plan.wait)


def open_queue(base: "Directory | None", name: str, origin: "Origin") -> "Queue":
    """Return the queue of a name, as files in `base` or, if that is None, as sockets."""
    if base is not None:
        return FileQueue(open_parts(base, split_name(name)), origin, base.path)
    from solo.contention.sockets import SocketQueue

    return SocketQueue(name, origin)


def settle_all(holds: "Iterable[Ticket]") -> None:
    """Release the waiting tickets kept with `holds`; the next waiter then looks again."""
    for hold in holds:
        finish_handoff(hold.queue)


def take_over_unseen_holds(holds: "Iterable[Ticket]") -> None:
    """Report the unseen holds beside `holds`, of a name before its parents. Call it once the
    command runs.
    """
    known: set[tuple[Process, str, str]] = set()
    for hold in reversed(list(holds)):
        if isinstance(hold.queue, FileQueue) and hold.queue.unseen:
            hold.queue.take_over(read_claim(hold), known)


def make_variables(names: "list[str]", named: "dict[str, Ticket]") -> "list[bytes]":
    """Return what the command learns of its holds, a list of `NAME=value`, in the order of the
    typed names.
    """
    records = [named[name].record for name in names]
    slots = [b"%d" % record.slot[0][0] for record in records if record and record.slot]
    variables = [b"SOLO_TOKEN=" + b" ".join([b"%d" % named[name].number for name in names])]
    return [*variables, b"SOLO_SLOT=" + b" ".join(slots)] if slots else variables


def make_watch(plan: "Plan", deadline: float) -> "Watch":
    """Return what blocks a waiter and shows its progress; it is loaded only if somebody reads
    it.
    """
    if plan.replace_after is not None:
        deadline = FOREVER  # --wait no longer counts once it is time to end the holder
    is_terminal = is_log = False
    if deadline != NO_WAIT and not plan.quiet:
        is_log = any(
            posix.environ.get(variable, b"") not in (b"", b"0", b"false")
            for variable in CI_VARIABLES
        )
        is_terminal = not is_log and posix.isatty(2)
        if is_terminal and posix.environ.get(b"TERM", b"dumb") == b"dumb":
            is_terminal, is_log = False, True
    if deadline == NO_WAIT or not (plan.verbose or is_terminal or is_log):
        return wait_silently
    made: list[Watch] = []

    def watch(
        block: "Block", look_again: float, describe: "Describe", in_one_go: bool = False
    ) -> bool:
        from solo.contention import progress

        if not made:
            names = plan.names[:1] if plan.is_generated else plan.names
            made.append(progress.Watch(names, deadline, plan.verbose, is_terminal, is_log))
        return made[0](block, look_again, describe, in_one_go)

    return watch
