"""A guarded run, step by step: plan, acquire, start, wait, release, report.

What a run gets, in this order, and where:

    holder    a process that keeps the locks, in a container       prepare
    names     with their parents, in one global order              acquire
    files     of --flock and --fcntl                               acquire_files
    engine    the same names there                                 acquire_remote
    period    of --once-per                                        acquire, acquire_remote
    command   perhaps forked early, by the head of the queue       start

It gives them back in the reverse order, whether nothing ran (`refuse`) or the command has ended
(`finish`): first a command that was only forked ends; then a run that failed gives back its period;
then `holds`, the stack of the other four, is released from its top. Only then the observers hear of
it, and the output of --capture is printed. One thing is released in the middle, once the command
runs: the waiting tickets that the names kept, so that the next waiter looks again (`wait`).
"""

import posix
from time import monotonic

from solo import acquire, supervise
from solo.command import find_command
from solo.errors import LEASE_LOST, TIMED_OUT, SoloError
from solo.identity import FIRST_PID_NAMESPACE, read_origin, read_self
from solo.journal import Journal, Observer
from solo.kernel import encode, occupy_standard_descriptors, read_file, say, say_promptly
from solo.plan import Plan, make_absolute
from solo.record import Record
from solo.start import InheritedState, Starter, open_working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.argv import Typed
    from solo.contention.period import PeriodGuard
    from solo.contention.protocols import Hold
    from solo.engines.acquire import EngineHold
    from solo.process.capture import Capture
    from solo.process.limits import Termination
    from solo.process.pair import Lower
    from solo.tickets import Ticket

ENVIRONMENT_LIMIT = 1 << 24  # bytes; more than execve(2) accepts


def run(typed: "Typed", command: "list[str]", observers: "list[Observer]") -> None:
    """Guard `command` as the options `typed` say, and end as it ends. Raises SoloError if nothing
    ran.

    The caller notifies its `observers` of a refusal; all other events reach them from here.
    """
    occupy_standard_descriptors()
    is_below_init = posix.getpid() == 1
    if is_below_init and "tree" not in typed:
        supervise.go_on_in_child()  # else it is the upper one of the pair
    guarded = Run(typed, command, observers, is_below_init)
    try:
        guarded.divide()
        guarded.acquire()
        guarded.start()
    except BaseException as error:
        raise guarded.refuse(error)
    guarded.wait()
    guarded.finish()


class Run:
    """One guarded run. Once started it has `pid`; once ended `code` (-N: by signal N), `seconds`,
    and `outcome`: TIMED_OUT, LEASE_LOST, or None if the command ended by itself. `local_holds` are
    the local ones by name, `named` the hold of each shown name that has its token and slot.
    `is_below_init` is whether the parent of the launcher is process 1. `pair` is the Lower of
    --tree.
    """

    names: "list[str]" = []  # of a run whose plan was refused
    own_observers: "list[Observer]" = []
    pair: "Lower | None" = None
    capture: "Capture | None" = None

    def __init__(
        self, typed: "Typed", command: "list[str]", observers: "list[Observer]", is_below_init: bool
    ) -> None:
        self.is_below_init = is_below_init
        self.inherited = InheritedState()
        self.environment = read_environment()
        for observer in observers:
            observer.run = self
        self.plan = plan = Plan(typed, command, self.environment)
        self.names = plan.names
        self.command = command
        self.observers = observers
        words = list(map(encode, command))
        origin = read_origin()  # before read_self: its error says what is wrong with /proc
        self.record = Record(read_self(), origin, posix.geteuid(), plan.claim, plan.names, words)
        self.record.tree = plan.kill_after if plan.tree else None
        self.record.note = plan.note or ""
        self.record.is_generated = plan.is_generated
        self.names = self.record.shown_names
        self.holds: list[Hold] = []
        self.own_observers = []  # these hear first, and of a refusal from here
        if plan.verbose:
            from solo.text.verbose import Verbose

            self.own_observers.append(Verbose())
        if not plan.is_socket:
            self.own_observers.append(Journal(self.record, plan.dir, self.print_verbose))
        self.local_holds: dict[str, Ticket] = {}
        self.pid: int | None = None
        self.outcome: int | None = None
        self.starter: Starter | None = None
        self.remote: EngineHold | None = None
        self.once: PeriodGuard | None = None
        self.termination: Termination | None = None

    def print_verbose(self, text: str) -> None:
        """Print it with --verbose. Once the command runs, a full pipe behind stderr must not block
        the launcher.
        """
        if self.plan.verbose:
            (say if self.pid is None else say_promptly)(text)

    def divide(self) -> None:
        """Make the pipe of --capture. With --tree go on in the lower one of two processes. Raises
        SoloError, UsageError.
        """
        try:
            if self.plan.capture is not None:
                from solo.process.capture import Capture

                self.capture = Capture(self, *self.plan.capture)
                self.own_observers.append(self.capture)
                self.record.is_captured = True
            if self.plan.tree:
                from solo.process.pair import go_on_below

                self.pair = go_on_below(self)
                self.own_observers.append(self.pair)
        except OSError as error:
            raise SoloError(f"{self.names[0]}: cannot prepare the run: {error.strerror}") from None

    def prepare(self) -> None:
        """Make all that can fail before a name is wanted. Raises SoloError, UsageError."""
        plan, environment = self.plan, self.environment
        path = find_command(self.command[0], environment.get(b"PATH"), *self.command[1:2])
        self.starter = starter = Starter(path, self.command, environment, self.inherited)
        starter.pair, starter.capture = self.pair, self.capture
        if plan.chdir is not None:
            starter.path = make_absolute(path)
            starter.directory = open_working_directory(plan.chdir)
        if plan.timeout is not None or plan.tree or plan.is_remote or plan.notify is not None:
            from solo.process.limits import Termination

            self.termination = Termination(plan)
        if (
            plan.no_orphan
            or (plan.locks_files and not plan.tree)
            or plan.is_socket
            or plan.is_remote
        ):
            from solo.process.prctl import make_die_with

            starter.die_with = make_die_with()
        if plan.is_remote:
            from solo.engines.acquire import EngineHold, OutcomeLog

            self.remote = EngineHold(plan, self.record, self.inherited)
            if self.remote.engine.keeps_outcomes:
                self.own_observers.append(OutcomeLog(self.record, self.remote, self.print_verbose))
        if plan.once_per is not None:
            from solo.contention.period import PeriodGuard

            self.once = PeriodGuard(plan)
        for variable in acquire.OF_SOME_RUNS:
            environment.pop(variable, None)  # of a run around this one
        environment[b"SOLO_NAME"] = encode(" ".join(self.names))
        if self.record.origin.pid_namespace != FIRST_PID_NAMESPACE and not (
            plan.is_socket or plan.tree
        ):
            from solo.process.holder import Holder

            starter.holder = Holder(self.record.origin)
            self.holds.append(starter.holder)

    def acquire(self) -> None:
        """Acquire the names, then the files, then the names at the engine; claim the period of
        --once-per last. Each hold is pushed as it is acquired. Raises Busy, SoloError.
        """
        self.prepare()
        plan = self.plan
        starter = self.starter if self.remote is None else None
        watch = acquire.make_watch(plan, plan.deadline)
        self.local_holds = acquire.acquire_names(
            self.record, plan, watch, self.holds, starter=starter
        )
        self.named = acquire.choose_named(self.record, self.local_holds)
        if plan.locks_files:
            self.acquire_files()
        if self.remote is not None:
            self.acquire_remote(self.remote)
        elif self.once is not None:
            self.once.claim()

    def acquire_files(self) -> None:
        from solo.contention.flocks import lock_files

        plan = self.plan
        watch = acquire.make_watch(plan, plan.file_deadline)
        files = plan, self.inherited.umask, watch, self.holds
        acquire.acquire_further(self.names[0], self.local_holds, lambda: lock_files(*files))

    def acquire_remote(self, remote: "EngineHold") -> None:
        """Acquire the names at the engine; last, so that contenders of one host exclude each other
        whatever it does. It claims the period too, and gives all back itself if it fails.
        """
        watch = acquire.make_watch(self.plan, self.plan.deadline)
        acquire.acquire_further(
            self.names[0], self.named, lambda: remote.acquire(self.plan.deadline, watch, self.once)
        )
        self.holds.append(remote)
        assert self.termination  # of every run with an engine
        self.termination.lease = remote.lease
        remote.add_variables(self.environment)
        if remote.engine.caveat:
            self.print_verbose(f"{self.names[0]}: {remote.engine.caveat}")
        self.named = remote.entries

    def start(self) -> None:
        """Start the command. Raises SoloError if it did not start."""
        assert self.starter
        try:
            variables = acquire.make_variables(self.names, self.named)
            self.process = self.starter.start(self.holds, variables, self.termination)
        except OSError as error:
            raise SoloError(
                f"{self.names[0]}: cannot start {self.command[0]}: {error.strerror}"
            ) from None

    def refuse(self, error: BaseException) -> BaseException:
        """Undo everything: nothing runs, because of `error`. Return the error to raise."""
        if self.starter is not None:
            self.starter.dismiss()
        acquire.add_own_skips(error, self.plan, self.record)
        acquire.add_waited(error, self.plan)
        if self.once is not None:
            error = self.once.undo_claim(error)
        acquire.release_all(self.holds)
        if isinstance(error, SoloError):
            for observer in self.own_observers:
                observer.refused(error)
        if self.pair is not None:
            self.pair.say("void")  # else the upper process would go on as the launcher
        return error

    def wait(self) -> None:
        """Wait for the command. First close every descriptor that neither a hold nor an observer
        needs.
        """
        acquire.settle_all(self.local_holds.values())  # release the waiting tickets
        acquire.take_over_unseen_holds(self.local_holds.values())
        self.pid, begin = self.process.pid, monotonic()
        if self.once is not None:
            self.print_verbose(self.once.describe())
        observers = [*self.own_observers, *self.observers]
        for observer in observers:
            observer.started(self)
        if self.pair is not None:
            self.pair.say("started")
        users: list[Hold | Observer] = [*self.holds, *observers]
        kept = [fd for user in users for fd in user.descriptors]
        if self.termination is not None and self.termination.may_end:
            kept.append(2)
        supervise.close_descriptors(
            kept, None if self.remote is None else self.remote.inherited_descriptors
        )
        if self.remote is None:
            supervise.leave_directory()  # an engine may read a certificate by a relative path again
        status = supervise.wait(self.process)
        if self.pair is not None:
            self.pair.say("over")
        if self.remote is not None:
            self.remote.lease.dead_man.disarm()  # nothing is left to kill
        self.note_end(status, begin)

    def note_end(self, status: int, begin: float) -> None:
        """Note how the command has ended, which began at that moment of the monotonic clock."""
        self.status = status
        self.seconds = monotonic() - begin
        self.code = posix.waitstatus_to_exitcode(status)
        if self.termination is not None:
            self.outcome = (
                LEASE_LOST
                if self.termination.loss
                else TIMED_OUT
                if self.termination.is_timed_out
                else None
            )

    def finish(self) -> None:
        """Release, report, and end as the command ended. Does not return."""
        plan = self.plan
        may_be_new = plan.is_generated and not (plan.is_remote or plan.is_socket)
        is_new = may_be_new and any(hold.queue.is_new for hold in self.local_holds.values())
        if self.remote is not None:
            self.remote.hurry(self)
        if self.once is not None and (self.code or self.outcome):
            self.once.undo_failed(self.process.is_refused)
        acquire.release_all(self.holds)
        for observer in (*self.own_observers, *self.observers):
            observer.ended(self)
        if self.capture is not None:
            self.capture.show(self)
        if is_new:
            try:
                from solo.commands.clean import prune_generated_names

                prune_generated_names(plan.dir)  # as this run added one
            except Exception:
                pass  # the command's status counts
        self.end()

    def end(self) -> None:
        """End as the command ended. Does not return."""
        if self.outcome is not None:
            posix._exit(self.outcome)
        supervise.mirror(self.status)


def read_environment() -> "dict[bytes, bytes]":
    """Return the environment as it was inherited, in bytes. Raises SoloError."""
    environment = dict(posix.environ)
    environment.pop(b"", None)  # execve(2) accepts it, Python's does not
    if b"LC_CTYPE" in environment:
        # In the C locale Python sets its own (PEP 538). Like getenv(3), use the first one that was
        # inherited.
        try:
            inherited = b"\0" + read_file("/proc/self/environ", ENVIRONMENT_LIMIT)
        except OSError as error:
            raise SoloError(f"cannot read /proc: {error.strerror}") from None
        value = inherited.partition(b"\0LC_CTYPE=")[1:]
        environment[b"LC_CTYPE"] = value[1].partition(b"\0")[0]
        if not value[0]:
            del environment[b"LC_CTYPE"]
    return environment
