"""`solo hold`: acquire names for a process that runs already, or for a time, and leave them held.

A kept hold is a ticket that records that process as its child, and whose launcher has ended: it
lives as long as the process. All names are acquired before the first record gets its child. So
whatever ends this process, it leaves either nothing, or holds of a process that it has seen alive.
"""

import _signal
import _thread
import posix
import select
from _signal import SIG_BLOCK, SIG_SETMASK, SIGKILL, pthread_sigmask, valid_signals
from errno import EACCES, ENOENT, ESRCH
from time import localtime, strftime, time

from solo import identity
from solo.acquire import (
    OF_SOME_RUNS,
    acquire_names,
    add_waited,
    make_variables,
    make_watch,
    release_all,
    take_over_unseen_holds,
)
from solo.argv import check_together
from solo.errors import SoloError, UsageError
from solo.journal import Journal, Observer
from solo.kernel import FOREVER, HIGHEST_FD, close, decode, drop_umask, encode, read_file, say
from solo.options import FILE
from solo.plan import Plan
from solo.process.holder import detach, fork_blocked, leave_holder
from solo.process.owners import may_signal
from solo.process.watch import open_pidfd
from solo.record import Record
from solo.text.describe import format_duration
from solo.text.stdout import write_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.argv import Typed
    from solo.contention.protocols import Hold
    from solo.record import Descriptor
    from solo.tickets import Ticket

WORDS_SIZE = 1 << 20  # bytes read of a command line
SLEEP = ("/usr/bin/sleep", "/bin/sleep")
LONGEST_SLEEP = 1e9  # seconds
UNFINISHED, FAILED = b"false || ", b"(exit %d)\n"


def run(options: "Typed", names: "list[str]") -> int:
    """Acquire `names` and leave them held. Return 0. Raises SoloError."""
    if options.get("for", FOREVER) <= 0:
        raise UsageError("--for must be longer than 0s")
    until = next((key for key in KEEPERS if key in options), None)
    if until is None:
        raise UsageError(
            f"hold needs --pid, --fd or --for (in a script: solo hold --pid $$ {' '.join(names)})"
        )
    if "export" in options and options.get("busy_exit") == 0:
        raise UsageError(
            "--export and --busy-exit 0 exclude each other: eval would go on without the names"
        )
    via = posix.environ.get(b"SOLO_VIA", b"")
    if via not in (b"", encode(FILE)):
        raise UsageError(
            f"hold works only with files, not with SOLO_VIA={decode(via)} (unset SOLO_VIA)"
        )
    check_together(options)
    drop_umask()
    plan = Plan({**options, "name": names})
    try:
        kept = KEEPERS[until](options[until])
    except OSError as error:
        raise SoloError(f"{names[0]}: cannot hold it: {error.strerror}") from None
    hold = Keeping(plan, kept)
    hold.acquire()
    hold.keep("export" in options)
    if posix.isatty(2) and "quiet" not in options and "export" not in options:
        report(names, hold.kept.until)
    if "pid" in options and "quiet" not in options:
        warn_of_fork(options["pid"], names[0])
    return 0


def report(names: "list[str]", until: str) -> None:
    """Print until when the names are held, and how to release them."""
    from shlex import quote

    words = " ".join(map(quote, names))
    say(f"held{until}: {', '.join(names)} (solo release {words} releases earlier)")


class Keeping:
    """A kept hold in the making, for the process `kept`."""

    def __init__(self, plan: Plan, kept: "GivenProcess") -> None:
        self.plan = plan
        self.kept = kept
        self.origin = identity.read_origin()
        self.record = record = Record(
            identity.read_self(), self.origin, posix.geteuid(), plan.claim, plan.names, kept.words
        )
        record.keep = kept.identity
        record.is_timed = kept.is_timed
        record.descriptor = kept.descriptor
        record.is_guarded = (
            kept.descriptor is not None or self.origin.pid_namespace != identity.FIRST_PID_NAMESPACE
        )
        record.note = plan.note or ""
        self.holds: list[Hold] = []
        self.journal = Journal(self.record, plan.dir, lambda text: None)
        self.pid = kept.identity[0]
        self.named: dict[str, Ticket] = {}

    def acquire(self) -> None:
        """Acquire all names. Raises SoloError, and then holds none."""
        plan = self.plan
        try:
            if plan.wait or plan.replace or plan.replace_after is not None:
                self.kept.watch(self.origin)
            self.named = acquire_names(
                self.record, plan, make_watch(plan, plan.deadline), self.holds
            )
            if not identity.is_alive(self.pid, self.kept.identity[1], self.origin, self.origin):
                raise SoloError(
                    f"{plan.names[0]}: cannot hold it for pid {self.pid}: the process has ended"
                )
        except BaseException as error:
            self.refuse(error)
            raise

    def keep(self, exports: bool) -> None:
        """Record the process, so that the holds outlive this one, then write the variables if
        wanted.

        Raises SoloError, and then holds none. From the first record on no signal ends this process:
        it would leave some of the names held. A shell that has gone is then an error, EPIPE.
        """
        pthread_sigmask(SIG_BLOCK, valid_signals())
        try:
            for hold in self.holds:
                hold.complete(self.kept.identity)
            self.guard()
            self.kept.go([*self.named.values()])
            if exports:
                self.write_variables()
        except (OSError, SoloError) as error:
            reason = (
                error
                if isinstance(error, SoloError)
                else f"cannot write the record: {error.strerror}"
            )
            failed = SoloError(f"{self.plan.names[0]}: {reason}")
            self.refuse(failed)
            raise failed from None
        take_over_unseen_holds(self.named.values())
        self.journal.write_start(self.pid, self.named)

    def guard(self) -> None:
        """Where other contenders may be unable to look for the process, leave a holder. Raises
        SoloError.
        """
        if self.record.is_guarded and self.kept.descriptor is None:
            try:
                leave_holder(self.kept.identity, self.origin, self.named.values())
            except OSError as error:
                raise SoloError(f"cannot fork: {error.strerror}") from None

    def write_variables(self) -> None:
        """Write the rest of the shell code of --export. Raises SoloError."""
        name = b"SOLO_NAME=" + encode(" ".join(self.plan.names))
        variables = [
            quote_variable(each) for each in (name, *make_variables(self.plan.names, self.named))
        ]
        write_stdout(b"unset %b && export %b\n" % (b" ".join(OF_SOME_RUNS), b" ".join(variables)))

    def refuse(self, error: BaseException) -> None:
        add_waited(error, self.plan)
        self.kept.dismiss()
        release_all(self.holds)
        if isinstance(error, SoloError):
            self.journal.refused(error)


class GivenProcess:
    """The process of --pid: its `identity` and `words`, and `until` when the names are held."""

    is_timed = False
    descriptor: "Descriptor | None" = None

    def __init__(self, pid: int) -> None:
        self.identity = find_process(pid)
        self.words = read_words(pid)
        self.until = f" until pid {pid} ends"

    def watch(self, origin: identity.Origin) -> None:
        """End this process when the other ends: nobody would use what we wait for."""
        pidfd = open_pidfd(self.identity, origin, origin)
        if pidfd is None:
            return
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        mask = pthread_sigmask(SIG_BLOCK, valid_signals())  # they are for the main thread

        def end() -> None:
            poller.poll()
            say(f"cannot hold for pid {self.identity[0]}: the process has ended")
            posix._exit(SoloError.status)

        _thread.start_new_thread(end, ())
        pthread_sigmask(SIG_SETMASK, mask)

    def go(self, holds: "list[Ticket]") -> None:
        """Do nothing: it runs already."""

    def dismiss(self) -> None:
        """Do nothing: it is not ours."""


class GivenDescriptor(GivenProcess):
    """The descriptor of --fd, and the process that called solo, for people."""

    def __init__(self, fd: int) -> None:
        from solo.process.descriptor import DescriptorHolder

        super().__init__(posix.getppid())
        self.until = f" until descriptor {fd} is closed everywhere"
        self.holder = DescriptorHolder(fd)
        self.descriptor = self.holder.descriptor

    def go(self, holds: "list[Ticket]") -> None:
        """Give the tickets to the holder."""
        self.holder.give(holds)

    def dismiss(self) -> None:
        self.holder.dismiss()


class Timer(GivenProcess):
    """The process of --for, forked before there is a ticket, as a copy of its descriptor would keep
    the lock.

    It waits for `go`, then sleeps. It ends with this process if that never comes.
    """

    is_timed = True

    def __init__(self, seconds: float) -> None:
        whole = format_duration(seconds) if seconds == seconds // 1 else f"{seconds:g}s"
        self.words = [
            b"solo",
            b"hold",
            b"--for",
            encode("forever" if seconds > LONGEST_SLEEP else whole),
        ]
        self.until = (
            strftime(" until %F %T", localtime(time() + seconds))
            if seconds <= LONGEST_SLEEP
            else ""
        )
        reader, self.writer = posix.pipe()
        pid = fork_blocked()
        if pid == 0:
            try:
                sleep(reader, min(seconds, LONGEST_SLEEP))
            finally:
                posix._exit(SoloError.status)
        close(reader)
        self.identity = pid, identity.read_stat(pid).start

    def watch(self, origin: identity.Origin) -> None:
        """Do nothing: it lives at least as long as this process, unless this one dismisses it."""

    def go(self, holds: "list[Ticket]") -> None:
        posix.write(self.writer, b"!")

    def dismiss(self) -> None:
        posix.kill(self.identity[0], SIGKILL)  # our child, not reaped: its pid is its own


KEEPERS: "dict[str, type[GivenProcess]]" = {
    "fd": GivenDescriptor,
    "pid": GivenProcess,
    "for": Timer,
}


def sleep(reader: int, seconds: float) -> None:
    """Be the timer: a small process, apart from the caller's session, terminal, directory,
    descriptors and signals.
    """
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT):
        # discard what the end of the caller's session has sent
        _signal.signal(number, _signal.SIG_IGN)
    detach()
    pthread_sigmask(SIG_SETMASK, ())
    if reader != 3:
        posix.dup2(reader, 3, False)
    posix.closerange(4, HIGHEST_FD)
    if posix.read(3, 1):
        for path in SLEEP:
            try:
                posix.execve(path, ["sleep", f"{seconds:.3f}".rstrip("0").rstrip(".")], {})
            except OSError:
                continue
        from time import sleep as pause

        pause(seconds)
        posix._exit(0)


def find_process(pid: int) -> "tuple[int, int]":
    """Return (pid, start) of a process for which this user may hold a name. Raises SoloError."""
    try:
        stat, group = identity.read_stat(pid), int(identity.read_status(pid, b"Tgid:")[0])
        is_ours = posix.geteuid() == 0 or may_signal(posix.geteuid(), pid)
        ours = identity.read_namespace("self", "pid")
        theirs = identity.read_namespace(pid, "pid") if is_ours else ""
    except OSError as error:
        gone = error.errno in (ENOENT, ESRCH)
        remedy = (
            " (root needs CAP_SYS_PTRACE for it)"
            if error.errno == EACCES and posix.geteuid() == 0
            else ""
        )
        unseen = (
            "there is no such process"
            if gone
            else f"/proc/{pid} cannot be read: {error.strerror}{remedy}"
        )
        raise SoloError(f"cannot hold for pid {pid}: {unseen}") from None
    reason = ""
    if stat.is_dead():
        reason = "the process has ended"
    elif group != pid:
        reason = f"it is a thread of pid {group}"
    elif pid == posix.getpid():
        reason = "it is solo hold itself"
    elif not is_ours:
        reason = "it is another user's process"
    elif ours not in (theirs, identity.FIRST_PID_NAMESPACE):
        # Other contenders would look for it in our namespace.
        reason = "it is in another pid namespace (run solo hold there)"
    if reason:
        raise SoloError(f"cannot hold for pid {pid}: {reason}")
    return pid, stat.start


def warn_of_fork(pid: int, name: str) -> None:
    """Print a warning if the caller is a fork of `pid`, as in `( solo hold --pid $$ ... ) &`: $$ is
    the main shell's pid.
    """
    caller = posix.getppid()
    try:
        first, second = [
            (read_words(each), posix.readlink(f"/proc/{each}/exe")) for each in (caller, pid)
        ]
        # it still runs what `pid` does
        if caller != pid and identity.descends_from(caller, pid) and first == second:
            remedy = "for that one: solo hold --pid parent"
            say(f"{name}: held for pid {pid}, not for its subshell, pid {caller} ({remedy})")
    except OSError:
        pass  # one has just ended, or is hidden


def read_words(pid: int) -> "list[bytes]":
    """Return the command line of a process, or its name in brackets if it shows none."""
    try:
        words = read_file(f"/proc/{pid}/cmdline", WORDS_SIZE).rstrip(b"\0")
        return (
            words.split(b"\0")
            if words
            else [b"[%b]" % read_file(f"/proc/{pid}/comm").rstrip(b"\n")]
        )
    except OSError:
        return [b"?"]


# --- for eval-------------------------------------------------------------------------------------


class Exporter(Observer):
    """The observer that writes shell code for `eval`: its first words fail if no more follow, as
    solo was killed.
    """

    def __init__(self) -> None:
        write_stdout(UNFINISHED)

    def refused(self, error: SoloError) -> None:
        try:
            write_stdout(FAILED % error.status)
        except SoloError:
            pass


def quote_variable(variable: bytes) -> bytes:
    """Return `NAME=value` with the value in single quotes, for any shell."""
    name, _, value = variable.partition(b"=")
    return name + b"='" + value.replace(b"'", b"'\\''") + b"'"
