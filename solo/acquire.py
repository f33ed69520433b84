"""All that one run holds: its names and what they need of their parents, taken in one global order, let go the other way round."""

from solo.errors import Busy, RanAlready, SoloError, Vanished
from solo.kernel import close
from solo.options import SOCKET
from solo.directories import make_base, open_name
from solo.queue import take_hold
from solo.modes import plan_claims
from solo.tickets import Queue, finish_handoff

KILL_AFTER = 10.0  # seconds
ATTEMPTS = 20


def take_names(wanted, options: dict, deadline, watch, holds: list, make_line=None, prepare=None) -> dict:
    """Take what the names of the record `wanted` need, in the order that everybody uses; appended to `holds` one by one.

    The hold of each name, the last of which is still to be settled. `deadline`, `watch` and `prepare` are as for take_hold;
    `make_line` makes a queue of (base, name, world), by default that of `open_line`. Raises Busy, SoloError.
    """
    kill_after = options.get("kill_after", KILL_AFTER)
    policy, taken = None, {}
    base = make_base(options.get("dir")) if options.get("via") != SOCKET else None
    try:
        for name, claim in plan_claims(wanted.names, wanted.claim):
            settle_all(holds)
            record = wanted.claiming(claim)
            if "max_waiting" in options or "latest" in options or "replace" in options:
                from solo.contention.policies import make_policy

                policy = make_policy(options, kill_after)
            try:
                taken[name] = take_name(make_line or open_line, base, name, record, deadline, watch, policy, prepare)
                holds.append(taken[name])
            except OSError as error:
                raise SoloError(f"{name}: can not be held: {error.strerror}") from None
            except BaseException as error:
                if isinstance(error, SoloError):
                    error.args = (f"{name}: {error}",)
                    error.name = name
                for hold in holds:
                    hold.queue.gate.restore_skips()
                raise
    finally:
        if base is not None:
            close(base.fd)
    return taken


def take_name(make_line, base, name: str, record, deadline, watch, policy, prepare):
    """Our hold on one name. What `solo clean` removed under us is made again."""
    left = ATTEMPTS
    while True:
        left -= 1
        line = None
        try:
            line = make_line(base, name, record.world)
            hold = take_hold(line, record, deadline, watch, policy, prepare)
            line.gate.close()
            return hold
        except BaseException as error:
            if line is not None:
                line.leave()
            if not (left and isinstance(error, Vanished)):
                raise


def take_files(name: str, named: dict, paths: list, umask: int, deadline, watch, holds: list, is_program: bool = False):
    """Take the user's own files as well, after the names; busy counts as busy for the first `name`. As take_flocks."""
    from solo.contention import flocks

    mode = named[name].record.claim.mode
    take_more(name, named, lambda: flocks.take_flocks(paths, mode, umask, deadline, watch, holds, is_program))


def take_more(name: str, named: dict, take):
    """Call `take`, which takes what a run needs beside its names; if that is busy, it counts as busy for the name."""
    hold = named[name]
    settle_all(named.values())
    try:
        return take()
    except BaseException as error:
        hold.queue.gate.restore_skips()
        if isinstance(error, Busy) and not isinstance(error, RanAlready):
            from solo.text.describe import describe_skips

            with hold.queue.gate:
                error.skips = hold.queue.gate.count_skip(hold.record.claim.mode)
            hold.queue.gate.close()
            error.args = (f"{error if error.name else f'{name}: {error}'}{describe_skips(error.skips)}",)
            error.name = error.name or name
        raise


def open_line(base, name: str, world):
    """The queue of a name, as files in `base` or, where that is None, as sockets."""
    if base is not None:
        return Queue(open_name(base, name), world)
    from solo.contention.sockets import SocketQueue

    return SocketQueue(name, world)


def settle_all(holds):
    """Give up the seats from which we came to our `holds`: who stood behind us looks again."""
    for hold in holds:
        finish_handoff(hold)


def take_over(holds):
    """Our command has started, or our program has all that it wanted: forget the holds that we could not look into, those of a
    name before what they need of its parents.
    """
    gone = set()
    for hold in reversed(list(holds)):
        if hold.queue.unseen:
            hold.queue.take_over(hold.record.claim, gone)


def release(holds: list):
    for hold in reversed(holds):
        hold.release()
