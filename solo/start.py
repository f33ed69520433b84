"""Fork and exec: the command starts exactly as the caller would have started it, and is recorded
before it may exec.

Every signal is blocked from before the fork on, so none is lost between the launcher and the
command.
"""

import _signal
import posix
import sys
from _signal import SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK, SIGCHLD, SIGPIPE, SIGXFSZ

from solo.command import explain_interpreter
from solo.errors import NotExecutable, NotFound, SoloError
from solo.identity import read_stat
from solo.kernel import (
    ENOEXEC,
    STATUS_SIZE,
    USUAL_SIZE,
    close,
    decode,
    drop_umask,
    end_child,
    is_gone,
    read_file,
    say,
)
from solo.tickets import Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from solo.contention.protocols import Hold
    from solo.process.capture import Capture
    from solo.process.holder import Holder
    from solo.process.limits import Termination
    from solo.process.pair import Lower
    from solo.process.upper import Upper

ALL_SIGNALS = _signal.valid_signals()
GO = b"!"  # the last byte of a go message; no variable of a launcher ends in it
LARGEST_AT_ONCE = 4096  # bytes; PIPE_BUF
NO_MEMORY = b"solo: cannot start the command: Cannot allocate memory\n"
# calls of sched_yield(2), some 0.5 ms in all; the launcher usually writes within a third of that
SPINS = 300
CHANGED_BY_PYTHON = (SIGPIPE, SIGXFSZ)  # it ignores both at its start
# Programs whose children inherit what they inherited. Others (sshd, node, git, tmux, fish, sudo on
# a terminal) ignore SIGPIPE for themselves and reset it in their children.
HAND_ON = (
    b"sh bash dash zsh ksh mksh ash busybox perl make xargs find timeout flock script su runuser "
    b"run-parts cron crond"
    b" systemd init runsv s6-supervise tini docker-init dumb-init"
).split()
# sd_listen_fds(3), sd_watchdog_enabled(3), systemd.exec(5): addressed to the pid that reads them,
# which is now the command.
NAMING_A_PID = (b"LISTEN_PID", b"WATCHDOG_PID", b"SYSTEMD_EXEC_PID")
STOPPING = {_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU}


class InheritedState:
    """The signal mask, pending signals, some dispositions and the umask that the launcher owes to
    the command.

    Creating it sets the umask of the launcher to 0: it must not narrow the modes of shared files.
    """

    def __init__(self) -> None:
        self.umask = drop_umask()
        self.mask = _signal.pthread_sigmask(SIG_BLOCK, ())
        self.pending = self.mask & _signal.sigpending() if self.mask else ()
        for signal in self.pending:
            _signal.sigtimedwait({signal}, 0)  # take it: a fork does not inherit it
        self.child_disposition = _signal.getsignal(SIGCHLD)
        self.ignored = read_parents_ignored()

    def take_signals(self) -> None:
        """Block every signal, for sigwaitinfo(2), and undo what Python did to two: a nested solo
        reads that in /proc.
        """
        _signal.pthread_sigmask(SIG_BLOCK, ALL_SIGNALS)
        for signal in CHANGED_BY_PYTHON:
            if not self.ignored >> signal - 1 & 1:
                _signal.signal(signal, SIG_DFL)

    def restore(self) -> None:
        """Restore all of it in the child, before exec. The mask comes last: a pending signal may
        end the child there.
        """
        if self.child_disposition == SIG_IGN:
            _signal.signal(SIGCHLD, SIG_IGN)
        posix.umask(self.umask)
        for signal in self.pending:
            posix.kill(posix.getpid(), signal)
        _signal.pthread_sigmask(SIG_SETMASK, self.mask)


def read_parents_ignored() -> int:
    """Return which signals of CHANGED_BY_PYTHON we inherited as ignored, a mask like SigIgn.

    The stub of an installed solo read it before Python started. Without a stub, believe "ignored"
    only of a parent that hands it on: a command that wrongly ignores SIGPIPE may outlive its reader
    for good.
    """
    parent = posix.getppid()
    try:
        if "solo_ignored" in sys._xoptions:
            return int(sys._xoptions["solo_ignored"], 16)
        status = read_file(f"/proc/{parent}/status")
        if len(status) >= USUAL_SIZE:  # many groups
            status = read_file(f"/proc/{parent}/status", STATUS_SIZE)
        # a newline is escaped in the Name: line
        at = status.index(b"\nSigIgn:") + len(b"\nSigIgn:")
        pipe, size = [
            int(status[at : at + 20].split()[0], 16) & 1 << signal - 1
            for signal in CHANGED_BY_PYTHON
        ]
        if not pipe | size:
            return 0
        program = find_program(parent, status)
        # A Python program ignores both, and resets them in its children; but solo's launcher has
        # what it inherited.
        is_launcher = program == b"python" and not (pipe and size)
        return pipe | size if is_launcher or program in HAND_ON else 0
    except (OSError, ValueError, IndexError):
        # Hidden by ProtectProc=: IgnoreSIGPIPE=yes is the default of a service manager.
        return 1 << SIGPIPE - 1 if parent == 1 and b"INVOCATION_ID" in posix.environ else 0


def find_program(pid: int, status: bytes) -> bytes:
    """Return what the process `pid` runs, without a version; another user's by the name in its
    `status` file.
    """
    try:
        program = (
            posix.readlink(b"/proc/%d/exe" % pid).rpartition(b"/")[2].removesuffix(b" (deleted)")
        )
    except PermissionError:
        program = status.partition(b"\n")[0].partition(b"\t")[2]
    return program.rstrip(b"0123456789.-")


class Child:
    """The command's process. `pid` is safe to signal until it is reaped; `status` is that of
    waitpid(2), None until then. `start` is when it was forked, in clock ticks since boot; `go` the
    pipe on which it waits for the go message.

    `termination` enforces the time limit and ends descendants; None without either. `is_refused`:
    it failed before its exec. `stopped_by` is the signal that stopped it, or 0; `got_stop` whether
    the launcher has got such a signal as well, `was_stopped` whether it has stopped with it, and
    not seen SIGCONT yet. With --tree, `pair` is our end of it.
    """

    send = staticmethod(posix.kill)
    pair: "Lower | Upper | None" = None
    capture: "Capture | None" = None

    def __init__(self, pid: int, start: int, go: int) -> None:
        self.pid = pid
        self.start = start
        self.go = go
        self.termination: Any = None  # a Termination, or the Upper of process/upper.py
        self.status: int | None = None
        self.is_refused = self.got_stop = self.was_stopped = False
        self.stopped_by = 0


class Starter:
    """Starts the command from its `path`, `words` (argv), `environment` and `inherited` state.
    `die_with` makes a process die with the launcher of a pid, or is None; `directory` is a
    descriptor of --chdir, or None. `child` is the forked command, or None; contention/handoff.py
    forks it in advance. `pair` is that of --tree.
    """

    die_with: "Callable[[int], None] | None" = None
    directory: "int | None" = None
    child: "Child | None" = None
    holder: "Holder | None" = None
    pair: "Lower | None" = None
    capture: "Capture | None" = None

    def __init__(
        self,
        path: str,
        words: "list[str]",
        environment: "dict[bytes, bytes]",
        inherited: InheritedState,
    ) -> None:
        self.path = path
        self.words = words
        self.environment = environment
        self.inherited = inherited

    def start(
        self, holds: "Iterable[Hold]", variables: "list[bytes]", termination: "Termination | None"
    ) -> Child:
        """Record the process in every hold, and only then let it exec the command, with `variables`
        (`NAME=value`) added to its environment. If the launcher dies before the go message, it
        ends. Raises OSError if nothing ran.
        """
        self.inherited.take_signals()
        if self.child is None or is_gone(self.child.pid):
            self.child = self.fork(wait_go)
        child = self.child
        try:
            for hold in holds:
                hold.complete((child.pid, child.start))
            if self.holder is not None:
                self.holder.begin(
                    (child.pid, child.start), [hold for hold in holds if isinstance(hold, Ticket)]
                )
                if termination is not None and self.holder.process is not None:
                    termination.strangers.add(self.holder.process)
            if self.capture is not None:
                self.capture.begin()
            if self.pair is not None:
                self.pair.begin(child.pid, holds)
            send_go(child.go, b"\0".join([*variables, GO]))
        except BaseException:
            self.dismiss()
            raise
        if termination is not None:
            termination.begin(child.pid)
        child.termination, child.pair, child.capture = termination, self.pair, self.capture
        close(child.go)
        return child

    def dismiss(self) -> None:
        """End and reap a child that was forked in advance."""
        child, self.child = self.child, None
        if child is None:
            return
        end_child(child.pid)
        close(child.go)

    def fork(self, wait: "Callable[[int], list[bytes] | None]") -> Child:
        """Fork a child that waits for the go message by `wait`, as wait_go. Every signal is
        blocked. Raises OSError.
        """
        if self.inherited.child_disposition == SIG_IGN:
            # else the kernel reaps the child and may reuse its pid
            _signal.signal(SIGCHLD, SIG_DFL)
        launcher = posix.getpid()
        script = ["/bin/sh", self.path, *self.words[1:]]
        ready, go = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        try:
            pid = posix.fork()
        except BaseException:
            close(go)
            close(ready)
            raise
        if pid == 0:
            try:
                try:
                    posix.close(go)
                    if self.capture is not None:
                        posix.dup2(self.capture.sink, 1)
                        posix.dup2(self.capture.sink, 2)
                    if self.die_with is not None:
                        self.die_with(launcher)
                    if self.directory is not None:
                        posix.fchdir(self.directory)
                    variables = wait(ready)
                    if variables is not None:
                        self.inherited.take_signals()
                        self.inherited.restore()
                        execute(
                            self.path,
                            self.words,
                            script,
                            self.complete_environment(launcher, variables),
                        )
                except MemoryError:
                    raise
                except BaseException as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    say(
                        f"{decode(self.environment[b'SOLO_NAME'])}: cannot start {self.words[0]}: "
                        f"{reason}"
                    )
            except MemoryError:
                posix.write(2, NO_MEMORY)  # as it is: there may be no room for another line
            finally:
                posix._exit(SoloError.status)
        close(ready)
        try:
            return Child(pid, read_stat(pid).start, go)
        except BaseException:
            close(go)
            posix.waitpid(pid, 0)
            raise

    def complete_environment(self, launcher: int, variables: "list[bytes]") -> "dict[bytes, bytes]":
        """Return the command's environment, in the child: with `variables` added and pids of the
        launcher replaced.
        """
        environment = self.environment
        environment.update([variable.partition(b"=")[::2] for variable in variables])
        executed_pid = b"%d" % (launcher if self.pair is None else self.pair.upper[0])
        for variable in NAMING_A_PID:
            if environment.get(variable) == executed_pid:
                environment[variable] = b"%d" % posix.getpid()
                if variable == b"LISTEN_PID":
                    # the same by pidfd; sd_listen_fds does without it
                    environment.pop(b"LISTEN_PIDFDID", None)
        return environment


def open_working_directory(path: str) -> int:
    """Open the directory of --chdir, once and early: it stays the same while the launcher waits.
    Raises SoloError.
    """
    try:
        # "/.": needs the right to enter it.
        return posix.open(f"{path}/.", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    except OSError as error:
        raise SoloError(f"cannot change to directory {path}: {error.strerror}") from None


def send_go(go: int, message: bytes) -> None:
    if len(message) > LARGEST_AT_ONCE:
        posix.set_blocking(go, True)
    try:
        while message:
            message = message[posix.write(go, message) :]  # a stop signal interrupts a long write
    except BrokenPipeError:
        pass  # killed just now: waitpid(2) shows it


def wait_go(ready: int, spins: int = SPINS) -> "list[bytes] | None":
    """Return the variables in the go message, in the child; None if the launcher died.

    Spin briefly first: waking another core can take 1 ms.
    """
    message = b""
    while not message.endswith(GO):
        try:
            part = posix.read(ready, LARGEST_AT_ONCE)
        except BlockingIOError:
            if spins and try_yield():
                spins -= 1
            else:
                posix.set_blocking(ready, True)
            continue
        if not part:
            return None
        message += part
    return message.split(b"\0")[:-1]


def try_yield() -> bool:
    """Let another process run. Return False if a filter of system calls refuses that."""
    try:
        posix.sched_yield()
        return True
    except OSError:
        return False


def execute(
    path: str, words: "list[str]", script: "list[str]", environment: "dict[bytes, bytes]"
) -> None:
    """Become the command, in the child, or print why not and exit with the status of a shell."""
    try:
        try:
            posix.execve(path, words, environment)
        except OSError as error:
            if error.errno != ENOEXEC:
                raise
            posix.execve(script[0], script, environment)  # a script without #!: as execvp(3) does
    except (FileNotFoundError, NotADirectoryError) as error:
        say(f"{words[0]}: {find_interpreter(path) or error.strerror}")
        posix._exit(NotFound.status)
    except OSError as error:
        say(f"{words[0]}: {error.strerror}")
        posix._exit(NotExecutable.status)


def find_interpreter(path: str) -> "str | None":
    """Return what the kernel missed for an existing file: its interpreter or its loader. None if
    the file is missing.
    """
    try:
        return explain_interpreter(path) or "its loader was not found"
    except OSError:
        return None
