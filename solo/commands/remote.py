"""The subcommands where an engine keeps the locks: rows made from its entries, and requests to its
launchers.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from solo.commands.lookup import Asked, make_own_stop, visit_queue
from solo.engines.engine import INVALID_ANSWER, Entry, Gone, Renewal
from solo.engines.lease import TTL, Terms
from solo.engines.queue import (
    Contender,
    Engine,
    Wait,
    count_waiters,
    describe_entries,
    describe_owner,
    find_obstacles,
    make_busy,
)
from solo.engines.targets import open_engine
from solo.errors import SoloError, UsageError, make_own_wait
from solo.history.names import is_within
from solo.history.reader import Run, parse
from solo.kernel import read_boot_clock, say
from solo.modes import EXCLUSIVE, INTENTIONS, Claim, plan_claims
from solo.obstacles import find_own_ancestors, list_holds
from solo.options import FILE
from solo.text.describe import describe_self, format_duration, format_span
from solo.text.rows import Row, make_entry_row
from solo.text.width import print_clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.contention.period import PeriodGuard
    from solo.contention.protocols import Watch
    from solo.engines.acquire import EngineHold

LOOK_AGAIN = 0.25  # seconds
SAMPLES = 5  # calls, for the latency


@contextmanager
def look(via: str, is_view: bool = True) -> "Iterator[Engine]":
    """Yield the engine, connected. Raise Unreachable, SoloError."""
    engine = open_engine(via, Terms(TTL))
    engine.is_view = is_view
    try:
        engine.connect()
        yield engine
    except SoloError:
        raise
    except (Gone, *INVALID_ANSWER) as error:
        raise engine.make_invalid_answer(error) from None
    finally:
        with suppress(Exception):  # we held nothing there
            engine.release()
            engine.close()


def collect(via: str, names: "list[str]") -> "list[Row]":
    """Return the rows of `solo list` for `names` and the names nested in them, or for all."""
    with look(via) as engine:
        # The hold of a parent for a nested name is listed there. A waiter at the parent has no
        # other entry.
        return [
            make_entry_row(entry, engine.where, find_renewal(engine, entry))
            for entry in engine.list_entries()
            if is_within(entry.name, names)
            and not (entry.is_held and entry.record.claim.mode in INTENTIONS)
        ]


def collect_runs(via: str, names: "list[str]") -> "list[tuple[str, Run]]":
    """Return [(name, Run)] of the outcomes of `names` and of the names nested in them, or all, by
    this host's clock.
    """
    with look(via) as engine:
        if not engine.keeps_outcomes:
            raise SoloError(
                f"{engine.where}: cannot keep a history (etcd, ZooKeeper, Redis and PostgreSQL can)"
            )
        wanted: list[str | None] = [*names] or [None]
        found = dict.fromkeys(pair for name in wanted for pair in engine.read_outcomes(name))
        skew = engine.skew
    return [
        (name, run._replace(time=run.time - skew, start=run.start - skew))
        for name, text in found
        for run in parse(name, text)[1]
        if run.start
    ]


def find_renewal(engine: Engine, entry: Entry) -> "Renewal | None":
    """Return when the lease of an entry was renewed, or None if the engine does not say that, or
    not to us.
    """
    with suppress(SoloError):
        return engine.read_renewal(entry)
    return None


def wait(options: Asked, names: "list[str]") -> int:
    """Do as commands.wait.run does, but poll the engine."""
    deadline, claims = (monotonic() + options.timeout, plan_claims(names, Claim(EXCLUSIVE)))
    above = {part: find_launchers_above(options, part) for part, _ in claims}
    with look(options.where) as engine:
        while busy := [
            (part, found)
            for part, claim in claims
            if (found := find_obstacles(engine.list_entries(part), claim))
        ]:
            for part, found in busy:
                for entry in select_own(found, above[part]):
                    owner = f"{describe_owner(entry)}, an ancestor of this process"
                    raise make_own_wait(f"{part}: held by {owner}")
            if monotonic() >= deadline:
                part, in_the_way = busy[0]
                error = make_busy(in_the_way, Claim(EXCLUSIVE))
                error.shown = part
                error.waited = format_span(options.timeout) if options.timeout else ""
                raise error
            sleep(max(0.0, min(LOOK_AGAIN, deadline - monotonic())))
    return 0


class Onlooker(Contender):
    """A Contender without an entry, behind all others."""

    def acquire(self) -> None:  # type: ignore[override]
        """Return if it would acquire. Raises Busy, and what `watch` does."""
        self.earlier = self.engine.list_entries(self.name)
        self.is_new = True
        self.obstacles = find_obstacles(self.earlier, self.record.claim)
        if self.obstacles:
            self.wait_for_obstacles()

    def describe(self) -> "tuple[int | None, str, str]":
        shown = describe_entries(self.obstacles, self.record.claim)
        return count_waiters(self.earlier) + 1, shown, ""


def rehearse(hold: "EngineHold", once: "PeriodGuard | None", watch: "Watch") -> None:
    """Do as EngineHold.acquire, but join no queue: `watch` is called where it would wait. Raises
    Busy, SoloError.
    """
    with look(hold.plan.via) as engine:
        hold.engine = engine
        if once is not None:
            once.add(hold)
        engine.acquire = lambda *words: Onlooker(engine, *words).acquire()  # type: ignore[assignment, method-assign]
        hold.acquire_all(Wait(hold.plan.deadline, watch, most=hold.plan.max_waiting))


def stop(options: Asked, names: "list[str]") -> int:
    """Do as commands.stop.run does. Each launcher ends its command after the next renewal of its
    lease.
    """
    if options.kill_after is not None:
        raise UsageError(
            "stop cannot use --kill-after with an engine: the option of the holder's launcher "
            "counts"
        )
    with look(options.where) as engine:
        complete = [stop_name(engine, name, options) for name in names]
    return 0 if all(complete) else SoloError.status


def stop_name(engine: Engine, name: str, options: Asked) -> bool:
    """Ask the launchers of one name to end, and print each end. Return False if one could not be
    asked.
    """
    begin = monotonic()
    left, complete = ask_to_end(engine, name, options)
    if not left and complete:
        print_clean(f"{name}: not held (names at {engine.where})")
    while left:
        here = {entry.key for entry in engine.list_entries(name)}
        for key in [key for key in left if key not in here]:
            print_clean(
                f"{name}: ended {left.pop(key)} after {format_duration(monotonic() - begin)}"
            )
        sleep(LOOK_AGAIN if left else 0)
    return complete


def find_launchers_above(options: Asked, name: str) -> "set[tuple[str, int]]":
    """Return (host, pid) of the launchers above this process that hold the name on this host, as
    they do for an engine too.
    """
    try:
        holds = visit_queue(
            name,
            options.at(FILE),
            lambda queue: find_own_ancestors(queue, list_holds(queue)) if queue else [],
        )
    except SoloError:
        return set()
    known = [hold.record for hold in holds if hold.record]
    return {(record.origin.host, record.outermost[0]) for record in known}


def select_own(entries: "list[Entry]", above: "set[tuple[str, int]]") -> "list[Entry]":
    return [one for one in entries if (one.record.host, one.record.launcher) in above]


def ask_to_end(engine: Engine, name: str, options: Asked) -> "tuple[dict[str, str], bool]":
    """Return ({key: description} of the entries whose launchers were asked, whether all could be
    asked).
    """
    asked, complete = dict[str, str](), True
    entries = engine.list_entries(name)
    for entry in select_own(entries, find_launchers_above(options, name)):
        say(f"{name}: {make_own_stop(describe_owner(entry))}")
        return {}, False
    for entry in entries:
        record = entry.record
        if record.claim.mode in INTENTIONS or not (entry.is_held or options.waiting):
            continue
        if record.launcher is None:
            say(f"{name}: cannot end the holder: {entry.key} belongs to another program")
            complete = False
        else:
            engine.ask_to_end(entry, describe_self())
            asked[entry.key] = describe_owner(entry)
            renewal = find_renewal(engine, entry)
            if renewal and renewal.is_late:
                say(f"{name}: {asked[entry.key]} may be dead: {renewal.describe()}")
    return asked, complete


def release(options: Asked, names: "list[str]") -> int:
    """Remove the entries of each name that nobody renews. Return 125 if one has none."""
    with look(options.where, is_view=False) as engine:
        complete = [release_name(engine, name) for name in names]
    return 0 if all(complete) else SoloError.status


def release_name(engine: Engine, name: str) -> bool:
    """Remove the entries of one name that nobody renews, and print their owners, or why there are
    none. Return whether there were.
    """
    found = [(entry, find_renewal(engine, entry)) for entry in engine.list_entries(name)]
    silent = [(entry, renewal) for entry, renewal in found if renewal and renewal.is_late]
    for entry, renewal in silent:
        engine.remove(entry)
        risk = (
            f"if its host lives, its command may run {format_duration(renewal.left)} longer, "
            "beside the next one"
        )
        say(f"{name}: removed the lock of {describe_owner(entry)}, {renewal.describe()}: {risk}")
    if not silent and not found:
        say(f"{name}: not held (names at {engine.where})")
    elif not silent:
        entry, last = found[0]
        why = "the engine does not say when it was renewed"
        remedy = "solo-engines(7) has the way by hand"
        if last:
            why = f"it was renewed {format_duration(last.age)} ago"
            remedy = "solo stop ends it" if entry.record.launcher else "end that program"
        say(f"{name}: cannot release the lock of {describe_owner(entry)}: {why} ({remedy})")
    return bool(silent)


def examine(via: str) -> "Iterator[tuple[str, str]]":
    """Yield (state, text) of each finding of `solo doctor`."""
    try:
        begin = read_boot_clock()
        with look(via, is_view=False) as engine:
            engine.renew()
            reached = read_boot_clock() - begin
            begin = read_boot_clock()
            for _ in range(SAMPLES):
                engine.renew()
            latency = (read_boot_clock() - begin) / SAMPLES
            findings = list(engine.examine())
    except SoloError as error:
        yield "fails", str(error)
        return
    took = f"{reached * 1000:.0f} ms, and renews a lease in {latency * 1000:.1f} ms"
    yield "ok", f"{engine.where} is reached in {took}"
    yield from findings
