"""The command's process: started exactly as the caller would have, recorded before it may exec, then waited for.

The launcher blocks every signal before it forks and takes each one by sigwaitinfo(2), which shows who sent it: no handler,
no race, and not one system call while nothing happens.
"""

import _signal
import posix
import sys
from _signal import SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK, SIG_UNBLOCK, SIGCHLD, SIGCONT, SIGPIPE, SIGSTOP, SIGXFSZ
from time import sleep

from solo.errors import NotExecutable, NotFound, SoloError
from solo.identity import is_stopped, read_stat, walk_parents
from solo.kernel import (
    ENOEXEC,
    IS_REGULAR,
    STATUS_SIZE,
    TYPE_MASK,
    USUAL_SIZE,
    close,
    decode,
    drop_umask,
    list_descriptors,
    read_file,
    say,
)

ALL_SIGNALS = _signal.valid_signals()
GO = b"!"  # the last byte of what the child is told; no variable of ours has it
LARGEST_AT_ONCE = 4096  # bytes; PIPE_BUF
SPINS = 300  # half a millisecond; the launcher needs a third of that
PAUSE = 0.1  # seconds
HIGHEST_FD = 1 << 16  # where the kernel has no close_range(2), each one is a call
# Dispositions that Python changed before we ran, and that only the parent can tell us about.
CHANGED_BY_PYTHON = (SIGPIPE, SIGXFSZ)
# sd_listen_fds(3), sd_watchdog_enabled(3), systemd.exec(5): meant for the process that reads them, which we now are not.
NAMING_A_PID = (b"LISTEN_PID", b"WATCHDOG_PID", b"SYSTEMD_EXEC_PID")
STOPPING = {_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU}
SURVIVED = STOPPING | {_signal.SIGALRM, *CHANGED_BY_PYTHON}  # by a launcher in line: it goes on, has a time limit, ignores them
HANG_UP = (_signal.SIGHUP, SIGCONT)
KERNEL_TIMERS = (_signal.SIGALRM, _signal.SIGVTALRM, _signal.SIGPROF)


class Given:
    """What we were started with and the command must get: signal mask, blocked signals that wait, some dispositions, umask.

    Making it takes the umask: our own becomes 0, as it must not narrow the modes of shared files.
    """

    __slots__ = ("child_disposition", "ignored", "mask", "pending", "umask")

    def __init__(self):
        self.umask = drop_umask()
        self.mask = _signal.pthread_sigmask(SIG_BLOCK, ())
        self.pending = self.mask & _signal.sigpending() if self.mask else ()
        for signal in self.pending:
            _signal.sigtimedwait({signal}, 0)  # ours no more: a fork does not inherit it
        self.child_disposition = _signal.getsignal(SIGCHLD)
        self.ignored = read_parents_ignored()

    def take_signals(self):
        """Block every signal, so that from now on each is taken by sigwaitinfo, and undo what Python did to two of them.

        Undone in ourselves, not in the child: so a solo under this one reads the truth in /proc.
        """
        _signal.pthread_sigmask(SIG_BLOCK, ALL_SIGNALS)
        for signal in CHANGED_BY_PYTHON:
            if not self.ignored >> signal - 1 & 1:
                _signal.signal(signal, SIG_DFL)

    def restore(self):
        """In the child, before exec. What changes a mask comes last: a pending signal may end us there."""
        if self.child_disposition == SIG_IGN:
            _signal.signal(SIGCHLD, SIG_IGN)
        posix.umask(self.umask)
        for signal in self.pending:
            posix.kill(posix.getpid(), signal)
        _signal.pthread_sigmask(SIG_SETMASK, self.mask)


def read_parents_ignored() -> int:
    """The signals that our parent ignores, as SigIgn has them: what it gave to us, as far as can be known."""
    parent = posix.getppid()
    try:
        status = read_file(f"/proc/{parent}/status")
        if len(status) >= USUAL_SIZE:  # many groups
            status = read_file(f"/proc/{parent}/status", STATUS_SIZE)
        at = status.index(b"\nSigIgn:") + len(b"\nSigIgn:")  # not in what it calls itself
        ignored = int(status[at:at + 20].split()[0], 16)
        both = all(ignored >> signal - 1 & 1 for signal in CHANGED_BY_PYTHON)
        # A Python program ignores both for itself, and its subprocess module gives its children neither.
        if both and posix.readlink(f"/proc/{parent}/exe").rpartition("/")[2].startswith("python"):
            return 0
        return ignored
    except (OSError, ValueError, IndexError):
        # Hidden (ProtectProc=): a service manager has IgnoreSIGPIPE=yes if nobody told it otherwise.
        return 1 << SIGPIPE - 1 if parent == 1 and b"INVOCATION_ID" in posix.environ else 0


class Child:
    """The command's process. `pid` is ours to signal until it has been reaped; `status` as waitpid(2) gives it, None until then.

    `start` is when it was forked, in clock ticks since boot; `go` the pipe on which it waits for the word to become the command.
    `ending` knows of time limits and descendants, if the command has any.

    `stopped_by` is the signal that has it stopped or 0, `told_to_stop` whether we got such a signal as well, `was_stopped`
    whether we have stopped with it and not heard of SIGCONT yet.
    """

    __slots__ = ("ending", "go", "pid", "start", "status", "stopped_by", "told_to_stop", "was_stopped")

    def __init__(self, pid, start, go):
        self.pid = pid
        self.start = start
        self.go = go
        self.ending = None
        self.status = None
        self.stopped_by = 0
        self.told_to_stop = False
        self.was_stopped = False


class Starter:
    """What it takes to start the command: its `path`, `words` (argv), `environment` (a dict of bytes), what we were `given`, and
    `die_with`, which makes a process die with the launcher of a pid, or None.

    Who stands at the head of a line has it forked before its turn: then that takes no more than a word.
    """

    __slots__ = ("child", "die_with", "environment", "given", "path", "words")

    def __init__(self, path: str, words: list, environment: dict, given: Given, die_with):
        self.path = path
        self.words = words
        self.environment = environment
        self.given = given
        self.die_with = die_with
        self.child = None

    def prepare(self):
        """Fork already. If that can not be, it is no matter yet."""
        if self.child is not None:
            return
        mask = _signal.pthread_sigmask(SIG_BLOCK, ALL_SIGNALS)
        try:
            self.child = self.fork(is_early=True)
        except OSError:
            pass
        finally:
            _signal.pthread_sigmask(SIG_SETMASK, mask)  # until its turn a launcher just dies of what it gets

    def start(self, holds: list, variables: list, ending) -> Child:
        """Record the process in every hold, and only then let it become the command. Raises OSError if nothing ran.

        `variables` (`NAME=value`, bytes) are added to its environment. If we die before the go, it ends.
        """
        self.given.take_signals()
        if self.child is None or is_gone(self.child.pid):
            self.child = self.fork(is_early=False)
        child = self.child
        try:
            for hold in holds:
                hold.complete((child.pid, child.start))
            give_go(child.go, b"\0".join([*variables, GO]))
        except BaseException:
            self.dismiss()
            raise
        if ending is not None:
            ending.begin(child.pid)
        child.ending = ending
        close(child.go)
        return child

    def dismiss(self):
        """It will not be needed."""
        child, self.child = self.child, None
        if child is None:
            return
        if not is_gone(child.pid):
            posix.kill(child.pid, _signal.SIGKILL)  # it may be stopped
            posix.waitpid(child.pid, 0)
        close(child.go)

    def fork(self, is_early: bool) -> Child:
        """Raises OSError. Every signal is blocked."""
        if self.given.child_disposition == SIG_IGN:
            _signal.signal(SIGCHLD, SIG_DFL)  # else the kernel would reap the child itself, and its pid be anyone's
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
                posix.close(go)
                if self.die_with is not None:
                    self.die_with(launcher)
                if is_early:
                    close_ours(ready)
                variables = wait_go(ready, 0 if is_early else SPINS)
                if variables is not None:
                    while is_early and _signal.sigtimedwait(SURVIVED, 0):
                        pass  # what came while in line was for the launcher, which has gone on since
                    self.given.take_signals()
                    self.given.restore()
                    execute(self.path, self.words, script, self.complete_environment(launcher, variables))
            except BaseException as error:
                say(f"{self.words[0]}: could not be started: {error.strerror if isinstance(error, OSError) else error}")
            finally:
                posix._exit(SoloError.status)
        close(ready)
        try:
            return Child(pid, read_stat(pid).start, go)
        except BaseException:
            close(go)
            posix.waitpid(pid, 0)
            raise

    def complete_environment(self, launcher: int, variables: list) -> dict:
        """In the child."""
        environment = self.environment
        environment.update([variable.split(b"=", 1) for variable in variables])
        ours = b"%d" % launcher
        for variable in NAMING_A_PID:
            if environment.get(variable) == ours:
                environment[variable] = b"%d" % posix.getpid()
                if variable == b"LISTEN_PID":
                    environment.pop(b"LISTEN_PIDFDID", None)  # the same by pidfd; sd_listen_fds does without it
        return environment


def is_gone(pid: int) -> bool:
    """Has someone killed it? Then it is reaped."""
    try:
        return posix.waitpid(pid, posix.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # it was before


def close_ours(kept: int):
    """In a child that waits: close what it shares with its launcher and the command will not get, `kept` excepted. Ours is what
    exec would close: a lock lives as long as a copy of its descriptor.
    """
    try:
        descriptors = list_descriptors()
    except OSError:
        descriptors = range(HIGHEST_FD)  # to list them takes one more
    for fd in descriptors:
        try:
            if fd != kept and not posix.get_inheritable(fd):
                posix.close(fd)
        except OSError:
            continue


def give_go(go: int, message: bytes):
    if len(message) > LARGEST_AT_ONCE:
        posix.set_blocking(go, True)
    try:
        while message:
            message = message[posix.write(go, message):]  # to be stopped cuts short a long one
    except BrokenPipeError:
        pass  # someone has killed it just now: that is its status


def wait_go(ready: int, spins: int):
    """In the child: the variables that come with the go, or None if the launcher died.

    Where it comes soon, it is for a moment better asked for than slept for: to wake another core can take a millisecond.
    """
    message = b""
    while not message.endswith(GO):
        try:
            part = posix.read(ready, LARGEST_AT_ONCE)
        except BlockingIOError:
            if spins:
                spins -= 1
                posix.sched_yield()
            else:
                posix.set_blocking(ready, True)
            continue
        if not part:
            return None
        message += part
    return message.split(b"\0")[:-1]


def execute(path: str, words: list, script: list, environment: dict):
    """In the child: become the command, or say why not and exit as a shell would."""
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


def find_interpreter(path: str):
    """What to say of a file that is there, though the kernel did not find it; None if it is not."""
    try:
        start = read_file(path)
    except OSError:
        return None
    line = start[2:].partition(b"\n")[0].partition(b"\0")[0].replace(b"\t", b" ") if start[:2] == b"#!" else b""
    interpreter = line.strip(b" ").partition(b" ")[0]
    missing = f"interpreter {decode(interpreter)}" if interpreter and not posix.access(interpreter, posix.F_OK) else "loader"
    return f"its {missing} was not found"


def let_go_of_descriptors(kept: list, given=None):
    """Close all but `kept`, or only those of `given`: our copies of the caller's pipes would keep those at their other ends
    waiting.
    """
    kept = [*kept, *find_locked(kept)]
    if given is not None:
        for fd in given.difference(kept):
            close(fd)
        return
    low = 0
    for fd in sorted(kept):
        posix.closerange(low, fd)
        low = fd + 1
    posix.closerange(low, HIGHEST_FD)


def leave_directory():
    """The command runs: keep no file system busy that our working directory is on, unless Python's library is found from it."""
    if all([path[:1] == "/" for path in sys.path]):
        try:
            posix.chdir("/")
        except OSError:
            pass


def find_locked(kept: list) -> list:
    """Besides `kept`, descriptors of files with an fcntl(2) lock from before solo was executed: to close one gives it up."""
    locked = []
    try:
        for entry in posix.listdir("/proc/self/fd"):
            fd = int(entry)
            try:
                is_file = fd not in kept and posix.fstat(fd).st_mode & TYPE_MASK == IS_REGULAR
                if is_file and b" POSIX " in read_file(f"/proc/self/fdinfo/{entry}"):
                    locked.append(fd)
            except OSError:
                continue
    except OSError:
        pass
    return locked


def wait(child: Child) -> int:
    """Forward signals until the command has ended, and its tree if that counts; the status as waitpid(2) gives it."""
    while True:
        try:
            if child.status is not None and not (child.ending and child.ending.has_descendants()):
                return child.status
            info = take_signal(child)
        except OSError:
            # The command runs, or the rest of its tree: whatever went wrong, the name is not given up for that.
            if child.status is not None:
                sleep(PAUSE)
            else:
                child.status = posix.waitpid(child.pid, 0)[1]
            continue
        try:
            hear(info, child)
        except Exception:
            continue  # one signal is lost, and not the next ones


def hear(info, child: Child):
    """Do what a signal calls for; None is a time limit that has passed."""
    if info is None:
        return child.ending.advance(child)
    if info.si_signo == SIGCHLD:
        reap(child)
        if child.status is not None and child.ending is None:
            return  # others wait for this
    note_stop(info, child)
    is_for_it = is_for_the_command(info, child)
    if is_for_it:
        forward(info.si_signo, child)
    if child.ending is not None:
        child.ending.hear(info, is_for_it, child)
    if child.stopped_by:
        stop_too(child)


def take_signal(child: Child):
    """The next signal, or None if a time limit passed first."""
    left = child.ending.find_left() if child.ending is not None else None
    return _signal.sigwaitinfo(ALL_SIGNALS) if left is None else _signal.sigtimedwait(ALL_SIGNALS, left)


def reap(child: Child):
    """Collect every child that changed state, and note it if that was the command."""
    while True:
        # Any child: as pid 1 of a namespace, strangers end up with us.
        try:
            pid, status = posix.waitpid(-1, posix.WNOHANG | posix.WUNTRACED | posix.WCONTINUED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child.pid and child.status is None:
            if posix.WIFSTOPPED(status) or posix.WIFCONTINUED(status):
                child.stopped_by = posix.WSTOPSIG(status) if posix.WIFSTOPPED(status) else 0
            else:
                child.status, child.stopped_by = status, 0


def note_stop(info, child: Child):
    signal = info.si_signo
    if signal in STOPPING:
        child.told_to_stop = True
        if child.status is not None and info.si_code > 0:
            child.stopped_by = signal  # Ctrl-Z, and only the rest of the tree is left
    elif signal == SIGCONT:
        child.told_to_stop, child.stopped_by = False, 0


def stop_too(child: Child):
    """The command has stopped: stop ourselves the same way, so that the shell sees it.

    Not if it was stopped alone and no shell can see us: who lets it go on alone would leave us stopped, with the name.
    """
    pending = _signal.sigpending()
    if SIGCONT in pending:
        return  # already told to go on: a stop signal now would discard that
    if not (child.told_to_stop or pending & STOPPING or has_terminal()):
        return
    signal, child.stopped_by, child.told_to_stop, child.was_stopped = child.stopped_by, 0, False, True
    posix.kill(posix.getpid(), signal)
    if signal != SIGSTOP:
        if child.status is None and not is_stopped(child.pid):
            # A SIGCONT for both came meanwhile, and our own stop signal discarded ours: take that back.
            child.was_stopped = False
            _signal.sigtimedwait({signal}, 0)
        _signal.pthread_sigmask(SIG_UNBLOCK, {signal})
        _signal.pthread_sigmask(SIG_BLOCK, {signal})


def has_terminal() -> bool:
    try:
        posix.close(posix.open("/dev/tty", posix.O_RDONLY | posix.O_NOCTTY | posix.O_NONBLOCK | posix.O_CLOEXEC))
        return True
    except OSError:
        return False


def is_for_the_command(info, child: Child) -> bool:
    """Does this signal still have to reach the command?

    What the terminal sends it sends to the command as well; what the command or its descendants sent they did not mean for
    it; and after a stop, the shell's SIGCONT went to the whole group.
    """
    signal, sender = info.si_signo, info.si_pid
    if info.si_code > 0:
        # A hang-up tells the session's leader alone; a timer is an alarm(2) from before solo was executed.
        return signal in KERNEL_TIMERS or signal in HANG_UP and posix.getsid(0) == posix.getpid()
    if signal == SIGCONT and child.was_stopped:
        child.was_stopped = False
        return is_stopped(child.pid)
    if sender == posix.getpid():
        return False
    try:
        # With a tree, what outlives its parent descends from us.
        ancestor = posix.getpid() if child.ending is not None and child.ending.is_tree else child.pid
        return not descends_from(sender, ancestor) and not has_systemd_told_all(signal, sender, child)
    except Exception:
        return True  # better twice than never


def forward(signal: int, child: Child):
    if child.status is not None:
        return  # reaped: the pid may be someone else's by now
    try:
        posix.kill(child.pid, signal)
    except OSError:
        pass  # it runs as someone else now (sudo): the sender could not have signalled it either


def descends_from(pid: int, ancestor: int) -> bool:
    return any(process[0] == ancestor for process in walk_parents(pid))


def has_systemd_told_all(signal: int, sender: int, child: Child) -> bool:
    """Has a service manager sent this to every process of our control group, the command's too?"""
    try:
        if read_file(f"/proc/{sender}/comm") != b"systemd\n":
            return False
    except OSError:
        if sender > 1:
            return False  # else hidden (ProtectProc=), or outside our pid namespace (PrivatePIDs=)
    from solo.process.systemd import tells_all

    return tells_all(signal, sender, child.pid)


def mirror(status: int):
    """End as the command did: its exit status, or death by the same signal. Does not return."""
    if posix.WIFEXITED(status):
        posix._exit(posix.WEXITSTATUS(status))
    signal = posix.WTERMSIG(status)
    try:
        forbid_core()
        _signal.signal(signal, SIG_DFL)
    except (OSError, ValueError, ImportError):
        pass  # SIGKILL has no disposition to set
    posix.kill(posix.getpid(), signal)
    _signal.pthread_sigmask(SIG_UNBLOCK, {signal})
    posix._exit(128 + signal)  # only pid 1 of a namespace gets here


def forbid_core():
    """The command dumped its own core; ours would overwrite it."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    # 1 byte, not 0: for a core_pattern that is a pipe, only 1 means none (core(5)).
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard >= 0 else 1, hard))
