"""The names of a guarded run at an engine: acquired after its local names, kept by a Lease, released before them."""

import _signal
import posix
from _signal import SIG_BLOCK, SIG_DFL, SIG_SETMASK, getsignal, pthread_sigmask, signal, valid_signals

from solo.engines.engine import INVALID_ANSWER, Gone, make_entry_record, make_invalid_answer, make_lost
from solo.engines.last_call import TIMEOUT, LastCall, die
from solo.engines.lease import RATE, TTL, Lease, Terms
from solo.engines.queue import Wait, ask_until_answered, check_patience, pause
from solo.engines.targets import open_engine
from solo.errors import SoloError, UsageError
from solo.kernel import encode, list_descriptors, say_promptly
from solo.modes import plan_claims
from solo.text.describe import describe_self

# FATAL: signals whose default action ends a process, except faults and those that cannot be caught.
FAULTS = {
    _signal.SIGSEGV,
    _signal.SIGBUS,
    _signal.SIGFPE,
    _signal.SIGILL,
    _signal.SIGTRAP,
    _signal.SIGSYS,
    _signal.SIGABRT,
}
NOT_ENDING = {
    _signal.SIGKILL,
    _signal.SIGSTOP,
    _signal.SIGTSTP,
    _signal.SIGTTIN,
    _signal.SIGTTOU,
    _signal.SIGCONT,
    _signal.SIGCHLD,
    _signal.SIGURG,
    _signal.SIGWINCH,
}
FATAL = valid_signals() - FAULTS - NOT_ENDING


class Interrupted(BaseException):
    """Signal `number` ends the launcher before its command runs."""

    def __init__(self, number: int):
        self.number = number


class EngineHold:
    """The hold of one run at the engine of --via. Like the run's Tickets it has `complete` and `release`.

    `wanted` is the run's record, `inherited` the InheritedState. `entries` are our held entries by name; `lease` renews
    them. `inherited_descriptors` were open before the engine. `caught` are the signals that would end us; `is_released`
    tells whether the engine answered at the end. Raises UsageError, SoloError.
    """

    descriptors = ()

    def __init__(self, plan, wanted, inherited):
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
        self.entries = {}
        self.caught = []
        self.last_call = None
        self.is_released = False

    def acquire(self, deadline, watch, once):
        """Hold all wanted names and arm the kernel's timer, which kills us when the lease ends. On return all signals
        are blocked and `inherited` has the mask and the pending signals.

        A signal that ends us is delayed until the engine has everything back, but not for long. `once` is a PeriodGuard
        or None; it is asked before the queue and claimed after it. Raises Busy, Unreachable, UsageError, SoloError.
        """
        wait = Wait(deadline, watch, self.patience, self.most, self.replaces, describe_self(), self.is_quiet)
        self.caught = caught = [number for number in FATAL if getsignal(number) == SIG_DFL]
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

    def give_up(self, error: BaseException, once) -> BaseException:
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

    def acquire_and_renew(self, wait: Wait, once):
        """Hold all names, claim the period, then renew: the command starts under a fresh lease.

        Start over if it is lost.
        """
        while True:
            try:
                self.entries = acquire_all(self.engine, self.claims, make_entry_record(self.wanted), wait)
                if once is not None:
                    ask_until_answered(wait, once.claim)
                return ask_until_answered(wait, self.lease.start, self.engine.ttl)
            except Gone as error:
                self.entries = {}
                forget(self.engine)
                check_patience(wait, make_lost(self.engine, error))
                pause(wait, error)

    def interrupt(self, number, _):
        for other in FATAL:
            if getsignal(other) == self.interrupt:  # leave SIGPIPE ignored: a broken connection causes one
                signal(other, SIG_DFL)  # a second signal ends us at once
        self.engine.timeout = min(self.engine.timeout, TIMEOUT)
        LastCall((), die, number)
        raise Interrupted(number)

    def add_variables(self, environment: dict):
        """Add to the command's environment what `entries` do not have."""
        environment[b"SOLO_VIA_KEY"] = b" ".join([encode(self.entries[name].key) for name in self.wanted.names])
        environment[b"SOLO_TTL"] = b"%g" % self.engine.ttl

    def complete(self, child: tuple):
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

    def ended(self, run):
        """Have the launcher end as its command soon after a signal, one that has come or one during the release."""

        def end(_):
            self.report_failure(f"{self.engine.where} does not answer")
            run.end()

        if self.lease.ordered:
            self.engine.timeout = min(self.engine.timeout, TIMEOUT)
        self.last_call = LastCall(self.caught, end, self.lease.ordered)

    def release(self):
        """Give the lease back: the command has ended, or never ran."""
        self.last_call = self.last_call or LastCall(self.caught, die)
        try:
            self.lease.end()
            self.is_released = True
        except Exception as error:  # the exit status is still the command's
            self.report_failure(error)

    def report_failure(self, reason):
        ttl = self.lease.terms.ttl
        if self.engine.expires_leases:
            return say_promptly(f"{reason}: the engine frees our names in {ttl:.0f}s")
        say_promptly(f"{reason}: our names are free once a contender has seen no renewal for {ttl * (1 + RATE):.0f}s")

    def read_once(self, name: str):
        """As Engine.read_once, between two renewals."""
        with self.lease.lock:
            return self.engine.read_once(name)

    def write_once(self, name: str, before, ran) -> bool:
        with self.lease.lock:
            return self.engine.write_once(name, before, ran)

    def give_back(self):
        try:
            self.lease.end()
        except Exception:
            pass  # the engine forgets the lease after its ttl


def check_plan(plan):
    """Raise UsageError for options that need the queue of one machine."""
    if plan.name is None:
        raise UsageError("a name made from the command can differ between hosts (choose one with -n NAME)")
    if plan.latest:
        raise UsageError("--latest cannot reach the waiters of other hosts (use --replace or --max-waiting)")
    if plan.replace_after is not None:
        raise UsageError("--replace-after cannot be used with an engine (use --replace)")


def acquire_all(engine, claims: list, record, wait: Wait) -> dict:
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


def forget(engine):
    """Give up the rest of a lost lease. If that fails, the engine forgets it by itself."""
    try:
        engine.release()
    except (SoloError, Gone):
        pass
