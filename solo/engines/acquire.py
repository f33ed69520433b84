"""The names of a guarded run at an engine: acquired after its local names, kept by a Lease, released before them."""

import _signal
import posix
from _signal import SIG_BLOCK, SIG_DFL, SIG_SETMASK, getsignal, pthread_sigmask, signal, valid_signals

from solo.engines.engine import (
    INVALID_ANSWER,
    Entry,
    EntryRecord,
    Gone,
    make_entry_record,
    make_invalid_answer,
    make_lost,
)
from solo.engines.last_call import TIMEOUT, LastCall, die
from solo.engines.lease import RATE, TTL, Lease, Terms
from solo.engines.queue import Wait, ask_until_answered, check_patience, pause
from solo.engines.targets import open_engine
from solo.errors import SoloError, UsageError
from solo.kernel import encode, list_descriptors, say_promptly
from solo.modes import plan_claims
from solo.text.describe import describe_self

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from solo.contention.period import LastRun, PeriodGuard
    from solo.contention.protocols import Watch
    from solo.engines.queue import Engine
    from solo.modes import Claim
    from solo.plan import Plan
    from solo.record import Record
    from solo.start import InheritedState

# Signals whose default action does not end a process; those that cannot be caught; faults.
NOT_FATAL = "CHLD CONT KILL STOP TSTP TTIN TTOU URG WINCH ABRT BUS FPE ILL SEGV SYS TRAP".split()
FATAL = valid_signals() - {getattr(_signal, f"SIG{name}") for name in NOT_FATAL}


class Interrupted(BaseException):
    """Signal `number` ends the launcher before its command runs."""

    def __init__(self, number: int) -> None:
        self.number = number


class EngineHold:
    """The hold of one run at the engine of --via. Like the run's Tickets it has `complete` and `release`.

    `wanted` is the run's record, `inherited` the InheritedState. `entries` are our held entries by name; `lease` renews
    them. `inherited_descriptors` were open before the engine. `caught` are the signals that would end us; `is_released`
    tells whether the engine answered at the end. Raises UsageError, SoloError.
    """

    descriptors = ()

    def __init__(self, plan: "Plan", wanted: "Record", inherited: "InheritedState") -> None:
        self.wanted = wanted
        self.inherited = inherited
        self.inherited_descriptors = list_descriptors()
        self.most = plan.max_waiting
        self.replaces = plan.replace
        self.is_quiet = plan.quiet
        self.patience = plan.file_deadline
        self.claims = plan_claims(wanted.names, wanted.claim)
        terms = Terms(TTL if plan.ttl is None else plan.ttl, plan.grace)
        terms.check()
        self.engine = open_engine(plan.via, terms)
        check_plan(plan)
        wanted.via = self.engine.where
        self.lease = Lease(self.engine, terms)
        self.entries: dict[str, Any] = {}
        self.caught: list[int] = []
        self.last_call: LastCall | None = None
        self.is_released = False

    def acquire(self, deadline: float, watch: "Watch", once: "PeriodGuard | None") -> None:
        """Hold all wanted names and arm the kernel's timer, which kills us when the lease ends. On return all signals
        are blocked and `inherited` has the mask and the pending signals.

        A signal that ends us is delayed until the engine has everything back, but not for long. `once` is a PeriodGuard
        or None; it is asked before the queue and claimed after it. Raises Busy, Unreachable, UsageError, SoloError.
        """
        wait = Wait(deadline, watch, self.patience, self.most, self.replaces, describe_self(), self.is_quiet)
        self.caught = caught = [int(number) for number in FATAL if getsignal(number) == SIG_DFL]
        try:
            for number in caught:
                signal(number, self.interrupt)
            ask_until_answered(wait, self.engine.connect)
            if once is not None:
                ask_until_answered(wait, once.add, self)
            self.acquire_and_renew(wait, once)
            self.inherited.take_signals()
        except BaseException as failure:
            error = failure
            try:
                # Not in a function: its call could deliver a signal outside of this try.
                pthread_sigmask(SIG_BLOCK, caught)
            except Interrupted as interrupted:
                error = interrupted
                pthread_sigmask(SIG_BLOCK, caught)
            raise self.give_up(error, once) from None
        for number in caught:
            signal(number, SIG_DFL)

    def give_up(self, error: BaseException, once: "PeriodGuard | None") -> BaseException:
        """Give everything back, then die of an Interrupted. Return the error to raise. Our signals are blocked."""
        for number in self.caught:
            signal(number, SIG_DFL)
        if isinstance(error, Interrupted):
            posix.kill(posix.getpid(), error.number)  # it ends us once it is no longer blocked
        else:
            LastCall(self.caught, die)
        if once is not None:
            error = once.undo_claim(error)
        if isinstance(error, Gone):
            error = make_lost(self.engine, error)
        elif isinstance(error, INVALID_ANSWER) and not isinstance(error, SoloError):
            error = make_invalid_answer(self.engine, error)
        self.give_back()
        pthread_sigmask(SIG_SETMASK, self.inherited.mask)  # a signal that came meanwhile ends us now
        return error

    def acquire_and_renew(self, wait: Wait, once: "PeriodGuard | None") -> None:
        """Hold all names, claim the period, then renew: the command starts under a fresh lease.

        Start over if it is lost.
        """
        while True:
            try:
                self.entries = acquire_all(self.engine, self.claims, make_entry_record(self.wanted), wait)
                if once is not None:
                    ask_until_answered(wait, once.claim)
                ask_until_answered(wait, self.lease.start, self.engine.ttl)
                return
            except Gone as error:
                self.entries = {}
                forget(self.engine)
                check_patience(wait, make_lost(self.engine, error))
                pause(wait, error)

    def interrupt(self, number: int, _: "Any") -> None:
        for other in FATAL:
            if getsignal(other) == self.interrupt:  # leave SIGPIPE ignored: a broken connection causes one
                signal(other, SIG_DFL)  # a second signal ends us at once
        self.engine.timeout = min(self.engine.timeout, TIMEOUT)
        LastCall((), die, number)
        raise Interrupted(number)

    def add_variables(self, environment: "dict[bytes, bytes]") -> None:
        """Add to the command's environment what `entries` do not have."""
        environment[b"SOLO_VIA_KEY"] = b" ".join([encode(self.entries[name].key) for name in self.wanted.names])
        environment[b"SOLO_TTL"] = b"%g" % self.engine.ttl

    def complete(self, child: "tuple[int, int]") -> None:
        """Verify the lease just before the forked command starts. Raises Unreachable, SoloError."""
        if not self.lease.is_fresh():
            last_call = LastCall(self.caught, die)
            try:
                self.lease.renew()
            except Gone as error:
                raise make_lost(self.engine, error) from None
            finally:
                last_call.close()
        self.lease.check_start()

    def ended(self, run: "Any") -> None:
        """Have the launcher end as its command soon after a signal, one that has come or one during the release."""

        def end(_: int) -> None:
            self.report_failure(f"{self.engine.where} does not answer")
            run.end()

        if self.lease.ordered:
            self.engine.timeout = min(self.engine.timeout, TIMEOUT)
        self.last_call = LastCall(self.caught, end, self.lease.ordered)

    def release(self) -> None:
        """Give the lease back: the command has ended, or never ran."""
        self.last_call = self.last_call or LastCall(self.caught, die)
        try:
            self.lease.end()
            self.is_released = True
        except Exception as error:  # the exit status is still the command's
            self.report_failure(error)

    def report_failure(self, reason: object) -> None:
        ttl = self.lease.terms.ttl
        if self.engine.expires_leases:
            say_promptly(f"{reason}: the engine frees our names in {ttl:.0f}s")
            return
        say_promptly(f"{reason}: our names are free once a contender has seen no renewal for {ttl * (1 + RATE):.0f}s")

    def read_once(self, name: str) -> "LastRun | None":
        """As LocalStore.read_once (contention/period.py), between two renewals."""
        from solo.contention.period import parse_ran

        with self.lease.lock:
            ran: LastRun | None = parse_ran(self.engine.read_once(name)[0])
        return ran

    def write_once(self, name: str, before: "LastRun | None", ran: "LastRun | None") -> bool:
        from solo.contention.period import format_ran, parse_ran

        with self.lease.lock:
            text, version = self.engine.read_once(name)
            return parse_ran(text) == before and self.engine.write_once(name, version, format_ran(ran))

    def give_back(self) -> None:
        try:
            self.lease.end()
        except Exception:
            pass  # the engine forgets the lease after its ttl


def check_plan(plan: "Plan") -> None:
    """Raise UsageError for options that need the queue of one machine."""
    if plan.name is None:
        raise UsageError("a name made from the command can differ between hosts (choose one with -n NAME)")
    if plan.latest:
        raise UsageError("--latest cannot reach the waiters of other hosts (use --replace, or N of --wait)")
    if plan.replace_after is not None:
        raise UsageError("--replace-after cannot be used with an engine (use --replace)")


def acquire_all(
    engine: "Engine", claims: "list[tuple[str, Claim]]", record: EntryRecord, wait: Wait
) -> "dict[str, Entry]":
    """Return our entry for each name of `claims`. Raises Gone if the lease is lost meanwhile."""
    entries = {}
    for name, claim in claims:
        try:
            entries[name] = engine.acquire(name, record._replace(claim=claim), wait)
        except SoloError as error:
            error.args = (f"{name}: {error}",)
            error.name = name
            raise
    return entries


def forget(engine: "Engine") -> None:
    """Give up the rest of a lost lease. If that fails, the engine forgets it by itself."""
    try:
        engine.release()
    except (SoloError, Gone):
        pass
