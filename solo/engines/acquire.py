"""The names of a guarded run at an engine: acquired after its local names, kept by a Lease,
released before them.
"""

import _signal
import posix
from _thread import allocate_lock
from time import sleep

from solo.engines.engine import INVALID_ANSWER, Entry, Gone, make_entry_record
from solo.engines.lease import RATE, TTL, Lease, Terms
from solo.engines.network import start_thread
from solo.engines.queue import Wait, ask_until_answered, pause, try_to
from solo.engines.targets import open_engine
from solo.errors import SoloError, UsageError
from solo.journal import Journal
from solo.journal_files import ENDED
from solo.kernel import encode, list_descriptors, say_promptly
from solo.modes import plan_claims
from solo.record import Record, quote
from solo.text.describe import describe_self
from solo.text.users import find_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from solo.contention.period import LastRun, PeriodGuard
    from solo.contention.protocols import Watch
    from solo.launcher import Run
    from solo.plan import Plan
    from solo.start import InheritedState

# Signals whose default action does not end a process; those that cannot be caught; faults.
NOT_FATAL = "CHLD CONT KILL STOP TSTP TTIN TTOU URG WINCH ABRT BUS FPE ILL SEGV SYS TRAP".split()
FATAL = _signal.valid_signals() - {getattr(_signal, f"SIG{name}") for name in NOT_FATAL}

# seconds of one call after a signal: one may fail, and the next one, on a new connection, succeed
TIMEOUT = 0.4
DELAY = 0.8  # seconds from the signal to the end
ORDER_POLL = 0.05  # seconds


class Interrupted(BaseException):
    """Signal `number` ends the launcher before its command runs."""

    def __init__(self, number: int) -> None:
        self.number = number


class EngineHold:
    """The hold of one run at the engine of --via. Like the run's Tickets it has `complete` and
    `release`.

    `wanted` is the run's record, `inherited` the InheritedState. `entries` are our held entries by
    name; `lease` renews them. `inherited_descriptors` were open before the engine. `caught` are the
    signals that would end us; `is_released` tells whether the engine answered at the end. Raises
    UsageError, SoloError.
    """

    descriptors = ()

    def __init__(self, plan: "Plan", wanted: "Record", inherited: "InheritedState") -> None:
        self.wanted = wanted
        self.inherited = inherited
        self.inherited_descriptors = list_descriptors()
        self.plan = plan
        self.claims = plan_claims(wanted.names, wanted.claim)
        terms = Terms(TTL if plan.ttl is None else plan.ttl, plan.grace)
        terms.check()
        self.engine = open_engine(plan.via, terms)
        check_plan(plan)
        wanted.via = self.engine.where
        self.lease = Lease(self.engine, terms)
        self.entries: dict[str, Any] = {}  # as of Ticket, for who asks either
        self.caught: list[int] = []
        self.last_call: LastCall | None = None
        self.is_released = False

    def acquire(self, deadline: float, watch: "Watch", once: "PeriodGuard | None") -> None:
        """Hold all wanted names and arm the kernel's timer, which kills us when the lease ends. On
        return all signals are blocked and `inherited` has the mask and the pending signals.

        A signal that ends us is delayed until the engine has everything back, but not for long.
        `once` is a PeriodGuard or None; it is asked before the queue and claimed after it. Raises
        Busy, Unreachable, UsageError, SoloError.
        """
        plan, most = self.plan, self.plan.max_waiting
        wait = Wait(
            deadline, watch, plan.file_deadline, most, plan.replace, describe_self(), plan.quiet
        )
        self.caught = caught = [
            int(number) for number in FATAL if _signal.getsignal(number) == _signal.SIG_DFL
        ]
        try:
            for number in caught:
                _signal.signal(number, self.interrupt)
            ask_until_answered(wait, self.engine.connect)
            if once is not None:
                ask_until_answered(wait, once.add, self)
            self.acquire_and_renew(wait, once)
            self.inherited.take_signals()
        except BaseException as failure:
            error = failure
            try:
                # Not in a function: its call could deliver a signal outside of this try.
                _signal.pthread_sigmask(_signal.SIG_BLOCK, caught)
            except Interrupted as interrupted:
                error = interrupted
                _signal.pthread_sigmask(_signal.SIG_BLOCK, caught)
            raise self.give_up(error, once) from None
        for number in caught:
            _signal.signal(number, _signal.SIG_DFL)

    def give_up(self, error: BaseException, once: "PeriodGuard | None") -> BaseException:
        """Give everything back, then die of an Interrupted. Return the error to raise. Our signals
        are blocked.
        """
        for number in self.caught:
            _signal.signal(number, _signal.SIG_DFL)
        if isinstance(error, Interrupted):
            posix.kill(posix.getpid(), error.number)  # it ends us once it is no longer blocked
        else:
            LastCall(self.caught, die)
        if once is not None:
            error = once.undo_claim(error)
        if isinstance(error, Gone):
            error = self.engine.make_lost(error)
        elif isinstance(error, INVALID_ANSWER) and not isinstance(error, SoloError):
            error = self.engine.make_invalid_answer(error)
        try:
            self.lease.end()
        except Exception:
            pass  # the engine forgets the lease after its ttl
        # a signal that came meanwhile ends us now
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.inherited.mask)
        return error

    def acquire_and_renew(self, wait: Wait, once: "PeriodGuard | None") -> None:
        """Hold all names, claim the period, then renew: the command starts under a fresh lease.
        Start over if it is lost.
        """
        while True:
            try:
                self.entries = self.acquire_all(wait)
                if once is not None:
                    ask_until_answered(wait, once.claim)
                ask_until_answered(wait, self.lease.start, self.engine.ttl)
                return
            except Gone as error:
                self.entries = {}
                try_to(self.engine.release)
                pause(wait, self.engine.make_lost(error))

    def acquire_all(self, wait: Wait) -> "dict[str, Entry]":
        """Return our entry for each name. Raises Gone if the lease is lost meanwhile."""
        entries, record = {}, make_entry_record(self.wanted)._replace(ttl=self.engine.ttl)
        for name, claim in self.claims:
            try:
                entries[name] = self.engine.acquire(name, record._replace(claim=claim), wait)
            except SoloError as error:
                error.name = error.shown = name
                raise
        return entries

    def interrupt(self, number: int, _: object) -> None:
        for other in FATAL:
            # leave SIGPIPE ignored: a broken connection causes one
            if _signal.getsignal(other) == self.interrupt:
                _signal.signal(other, _signal.SIG_DFL)  # a second signal ends us at once
        self.engine.timeout = min(self.engine.timeout, TIMEOUT)
        LastCall((), die, number)
        raise Interrupted(number)

    def add_variables(self, environment: "dict[bytes, bytes]") -> None:
        """Add to the command's environment what `entries` do not have."""
        environment[b"SOLO_VIA_KEY"] = b" ".join(
            [encode(self.entries[name].key) for name in self.wanted.names]
        )
        environment[b"SOLO_TTL"] = b"%g" % self.engine.ttl

    def complete(self, child: "tuple[int, int]") -> None:
        """Verify the lease just before the forked command starts. Raises Unreachable, SoloError."""
        if not self.lease.is_fresh():
            last_call = LastCall(self.caught, die)
            try:
                self.lease.renew()
            except Gone as error:
                raise self.engine.make_lost(error) from None
            finally:
                last_call.close()
        self.lease.check_start()

    def hurry(self, run: "Run") -> None:
        """Have the launcher end as its command soon after a signal, one that has come or one during
        the release.
        """

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
        how = f"our names are free once a contender has seen no renewal for {ttl * (1 + RATE):.0f}s"
        if self.engine.expires_leases:
            how = f"the engine frees our names in {ttl:.0f}s"
        say_promptly(f"{reason}: {how}")

    def read_once(self, name: str) -> "LastRun | None":
        """As LocalStore.read_once (contention/period.py), between two renewals."""
        from solo.contention.period import parse_ran

        with self.lease.lock:
            return parse_ran(self.engine.read_once(name)[0])

    def write_once(self, name: str, before: "LastRun | None", ran: "LastRun | None") -> bool:
        from solo.contention.period import format_ran, parse_ran

        with self.lease.lock:
            text, version = self.engine.read_once(name)
            return parse_ran(text) == before and self.engine.write_once(
                name, version, format_ran(ran)
            )


class LastCall:
    """Calls `end(number)` in a thread, DELAY after the signal `number`, unless `close` was called.

    Until then the main thread may finish what it does. That is the signal that has come, or the
    first one of the blocked `signals`: it stays pending.
    """

    def __init__(
        self, signals: "Iterable[int]", end: "Callable[[int], None]", number: int = 0
    ) -> None:
        self.signals = set(signals)
        self.end = end
        self.number = number
        self.is_over = False
        self.lock = allocate_lock()
        start_thread(self.run)  # without a thread the calls end by their timeouts

    def run(self) -> None:
        while not self.number:
            sleep(ORDER_POLL)
            if self.is_over:
                return
            self.number = min(_signal.sigpending() & self.signals, default=0)
        sleep(DELAY)
        with self.lock:
            if not self.is_over:
                self.end(self.number)

    def close(self) -> None:
        with self.lock:
            self.is_over = True


def die(number: int) -> None:
    """Die of a signal with its default action, in any thread."""
    posix.kill(posix.getpid(), number)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})


def check_plan(plan: "Plan") -> None:
    """Raise UsageError for options that need the queue of one machine."""
    if plan.is_generated:
        raise UsageError(
            "a name made from the command can differ between hosts (choose one with -n NAME)"
        )
    if plan.latest:
        raise UsageError(
            "--latest cannot reach the waiters of other hosts (use --replace, or N of --wait)"
        )
    if plan.replace_after is not None:
        raise UsageError("--replace-after cannot be used with an engine (use --replace)")


class OutcomeLog(Journal):
    """Writes the outcome of a run with this `record` to the engine of `remote`: the line of a
    journal, with times by the engine's clock. It is written after the release, and never makes a
    job fail.
    """

    title = "the history at the engine"

    def __init__(
        self, record: "Record", remote: "EngineHold", report: "Callable[[str], None]"
    ) -> None:
        super().__init__(record, None, report)
        self.remote = remote

    def clock(self) -> float:
        return float(super().clock() + self.remote.engine.skew)

    def refused(self, error: SoloError) -> None:
        """Write nothing: skips would push the outcomes out."""

    def append_lines(self, event: bytes, details: bytes) -> None:
        if event == ENDED and self.remote.is_released:
            user = quote(find_user(self.record.uid).encode("utf-8", "replace"))
            engine = self.remote.engine
            engine.timeout = min(engine.timeout, TIMEOUT)
            try:
                super().append_lines(event, details + b" user=" + user)
            finally:
                engine.close()

    def write(self, name: str, event: bytes, line: bytes) -> None:
        self.remote.engine.log_outcome(name, self.remote.entries[name].number, line)
