"""A simulated kernel. A process is a greenlet; nothing happens but the step that a schedule
chooses.

- each call of POINTS stops its process until the schedule continues it; all other calls only
  concern the process
- fork copies no memory: the child runs its parent's program from the start, and each call returns
  what it returned to
  the parent, until the fork
- a process that is killed gets Ended from each further call, so its `finally` blocks change nothing
- time passes only when no process can do anything
"""

import _signal
import posix as real
import traceback
from _signal import SIG_DFL, SIG_IGN, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP
from collections import namedtuple
from errno import (
    EAGAIN,
    ECHILD,
    EINTR,
    EIO,
    EMFILE,
    ENOENT,
    ENOMEM,
    ENOSPC,
    EPERM,
    ESRCH,
    ETOOMANYREFS,
)

from greenlet import GreenletExit, getcurrent, greenlet

from simulation import proc
from simulation.files import BOOT, FIFO, FOLDER, Files, Inode, OpenFile, is_readable
from simulation.proc import fail
from simulation.reduction import is_independent

SIGNALS = {
    "kill": SIGKILL,
    "group": SIGKILL,  # of the process group
    "container": SIGKILL,  # of the pid namespace
    "stop": SIGSTOP,
    "suspend": _signal.SIGTSTP,
    "continue": SIGCONT,
}  # that a schedule sends
STOPPING = {_signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU}
IGNORED = {SIGCHLD, SIGCONT, _signal.SIGURG, _signal.SIGWINCH}  # by default
IGNORED_BY_PYTHON = {_signal.SIGPIPE: SIG_IGN, _signal.SIGXFSZ: SIG_IGN}
SENT, EXITED, KILLED, STOPPED, CONTINUED, BY_KERNEL = 0, 1, 2, 5, 6, 128  # si_code

Info = namedtuple("Info", "si_signo si_code si_pid si_uid si_status")

ERRORS = {  # the calls that each error can come from
    EIO: "open close pread pwrite read write fstat stat unlink rename mkdir rmdir listdir readlink utime",
    ENOSPC: "open pwrite rename mkdir",
    EMFILE: "open listdir pidfd_open",
    ENOMEM: "flock fork poll",
    EAGAIN: "fork",
    ETOOMANYREFS: "sendmsg",
    EINTR: "close",
}
# Calls that other processes can see or change.
POINTS = {
    *"getppid setsid".split(),
    *"execve waitpid kill pidfd_send_signal sigtimedwait work _exit sleep".split(),
    *"recvmsg waitid prctl wait_for_gate serve".split(),
    *" ".join(ERRORS.values()).split(),
}
# Those that change nothing for other processes: a kill just after one leaves what a kill just
# before it leaves.
LOOKS = "fstat stat listdir readlink pread poll pidfd_open sigtimedwait work waitid getppid".split()
# Calls that only concern others where the two processes of --tree have a socket between them.
OF_PAIR = "getppid setsid".split()


class Ended(GreenletExit):
    """The process has ended."""


class Executed(BaseException):
    """The process executes another program."""


class Unknown(BaseException):
    """solo made a call that this kernel does not have."""


class Process:
    def __init__(self, pid, parent, start, program, words):
        self.pid, self.parent, self.start, self.program, self.words = (
            pid,
            parent,
            start,
            program,
            words,
        )
        self.state, self.status, self.is_reaped, self.children, self.made = "R", None, False, 0, 0
        self.descriptors, self.namespace = {}, proc.FIRST_PID_NAMESPACE
        self.handlers, self.mask, self.pending = dict(IGNORED_BY_PYTHON), frozenset(), {}
        self.alarm = self.wake = self.is_ready = self.error = self.change = self.running = (
            self.folder
        ) = None
        self.call, self.log, self.repeated, self.history = ("begin",), [], 0, 0
        self.command, self.is_suspended = None, False
        self.has_executed = self.is_replaced = self.is_spared = self.has_run = self.is_unseen = (
            self.left_early
        ) = False
        self.death_signal, self.has_effect, self.output, self.environment = 0, True, b"", {}
        self.group, self.is_subreaper = pid, False
        self.is_asking = False  # all its calls are one step

    is_alive = property(lambda self: self.state in proc.ALIVE)
    name = property(lambda self: self.words[0])


class Kernel(Files):
    """`programs` maps the paths that can be executed to functions. `faults` are those left: kill,
    stop, suspend, error.

    To suspend is to type Ctrl-Z: a command and its launcher get SIGTSTP.
    """

    is_hashing = is_reduced = False
    never_made = ("/run/solo",)  # paths that solo looks for
    tick = 0.0  # seconds that a step takes
    lifetime = 1  # steps of a command

    def __init__(self, programs, faults=None, reuses_pids=False):
        self.programs, self.faults, self.reuses_pids = programs, dict(faults or {}), reuses_pids
        self.processes, self.hub, self.trace, self.violation = {}, getcurrent(), [], None
        self.now, self.forks, self.calls, self.todo = 100.0, 0, 0, []
        self.root = Inode("root", FOLDER | 0o755, links=2)
        self.null = OpenFile("null", Inode("null", FIFO | 0o600))

    # What a scene checks: (process, folder, name) got a name; (process, line) executed a program,
    # until when `line` were its words.
    published = executed = lambda *_: None

    def violate(self, text):
        self.violation = self.violation or text

    # --- processes
    def make_number(self, process):
        """Return a number for a file that does not depend on what other processes do: equal states
        are then found to be equal.
        """
        process.made += 1
        return f"{process.pid}.{process.made}"

    def spawn(self, pid, words, program=None):
        process = self.add(pid, 1, program or self.programs[f"/bin/{words[0]}"], words)
        for fd in range(3):
            self.attach(process, self.null, False, fd)
        return process

    def add(self, pid, parent, program, words):
        process = Process(
            pid, parent, int(self.now * 100) + self.forks * self.reuses_pids, program, words
        )
        self.forks += 1
        self.processes[pid] = process
        process.greenlet = greenlet(lambda: self.live(process), self.hub)
        process.greenlet.process = process
        return process

    def live(self, process):
        """Run its program, and all that it executes."""
        try:
            while True:
                try:
                    status = process.program()
                    self.enter("_exit", (status or 0,), {})
                except Executed:
                    process.is_replaced = False
        except Ended:
            pass
        except BaseException:
            self.violate(f"crash of pid {process.pid}: {traceback.format_exc()}")
            if process.is_alive:
                self.end(process, 1 << 8)

    def fork(self, process):
        process.children += 1
        pid = process.pid * 10 + process.children
        if self.reuses_pids:
            taken = {pid for pid, other in self.processes.items() if not other.is_reaped}
            pid = next(pid for pid in range(2, 1 << 15) if pid not in taken)
        child = self.add(pid, process.pid, process.program, process.words)
        child.namespace, child.mask, child.group = process.namespace, process.mask, process.group
        child.log = [*process.log, ("fork", 0, None)]
        for fd, (file, is_closed) in process.descriptors.items():
            self.attach(child, file, is_closed, fd)
        return pid

    def execve(self, process, path, words, environment):
        program = self.programs.get(path) or fail(ENOENT)
        for fd, (_, is_closed) in list(process.descriptors.items()):
            if is_closed:
                self.close(process, fd)
        process.handlers = {
            number: SIG_IGN for number, handler in process.handlers.items() if handler == SIG_IGN
        }
        line, process.program, process.words = (
            process.words,
            program,
            [path.rpartition("/")[2], *words[1:]],
        )
        process.environment, process.has_executed, process.is_replaced = environment, True, True
        process.log, process.repeated, process.alarm = [], 0, None
        self.executed(process, line)
        raise Executed

    def _exit(self, process, status):
        self.end(process, status << 8)
        raise Ended

    def end(self, process, status):
        """End a process: the kernel closes its descriptors, and its parent hears of it."""
        process.state, process.status, process.running = "Z", status, None
        process.alarm = process.wake = None
        for fd in list(process.descriptors):
            self.close(process, fd)
        reaper = self.find_reaper(process)
        for child in self.processes.values():
            if child.parent == process.pid and not child.is_reaped:
                child.parent = 1 if reaper is None else reaper.pid
                if child.state == "Z":
                    self.report_end(child)
                self.send(child, child.death_signal, SENT, process.pid)
        self.report_end(process)
        if getcurrent() is not process.greenlet:
            self.todo.append(process)  # its greenlet ends after this step

    def find_reaper(self, process):
        """Return the subreaper that adopts the children of a process, or None."""
        other = self.processes.get(process.parent)
        while other is not None and not (other.is_alive and other.is_subreaper):
            other = self.processes.get(other.parent)
        return other

    def report_end(self, process):
        parent = self.processes.get(process.parent)
        process.is_reaped = (
            parent is None or not parent.is_alive or parent.handlers.get(SIGCHLD) == SIG_IGN
        )
        code, pid, _, value = make_info(process)
        self.send(parent, SIGCHLD, code, pid, value)

    def waitid(self, process, kind, pid, flags):
        """Only look for an end (WNOWAIT | WNOHANG)."""
        children = self.find_children(process, -1 if kind == real.P_ALL else pid) or fail(ECHILD)
        ended = [child for child in children if child.state == "Z"]
        return Info(SIGCHLD, *make_info(ended[0])) if ended else None

    def waitpid(self, process, pid, flags=0):
        for child in self.find_children(process, pid) or fail(ECHILD):
            if child.state == "Z":
                child.is_reaped = True
                return child.pid, child.status
            if child.change and flags & real.WUNTRACED:
                change, child.change = child.change, None
                return child.pid, change
        return 0, 0

    def find_children(self, process, pid):
        children = [
            child
            for child in self.processes.values()
            if child.parent == process.pid and not child.is_reaped
        ]
        return [child for child in children if pid in (-1, child.pid)]

    def can_waitpid(self, process, pid, flags=0):
        children = self.find_children(process, pid)
        ready = [
            child
            for child in children
            if child.state == "Z" or flags & real.WUNTRACED and child.change
        ]
        return flags & real.WNOHANG or ready or not children

    getpid = lambda self, process: process.pid
    monotonic = lambda self, process: self.now
    time = lambda self, process: BOOT + self.now
    sigpending = lambda self, process: process.mask.intersection(process.pending)
    set_death_signal = lambda self, process, signal: setattr(process, "death_signal", signal)
    work = lambda self, process: None  # a program of a scene stops here once more
    sleep = lambda self, process, seconds: None
    can_sleep = lambda self, process, seconds: self.is_time(process, seconds)

    def prctl(self, process, option, value):
        setattr(process, {1: "death_signal", 36: "is_subreaper"}[option], value)

    def setsid(self, process):
        process.group = fail(EPERM) if process.group == process.pid else process.pid

    def getppid(self, process):
        parent = self.processes.get(process.parent)
        is_seen = parent is None or process.namespace in (
            proc.FIRST_PID_NAMESPACE,
            parent.namespace,
        )
        return process.parent if is_seen else 0

    # --- signals
    def kill(self, process, pid, signal):
        self.send(proc.find(self, process, str(pid), ESRCH), int(signal), SENT, process.pid)

    def pidfd_open(self, process, pid, flags=0):
        return self.install(
            process, "pidfd", proc.find(self, process, str(pid), ESRCH), real.O_CLOEXEC
        )

    def pidfd_send_signal(self, process, fd, signal, *_):
        other = self.get(process, fd).target
        self.send(fail(ESRCH) if other.is_reaped else other, int(signal), SENT, process.pid)

    def send(self, process, signal, code, sender, value=0):
        """Send a signal: what it does at once, or what waits until the process unblocks it or
        runs.
        """
        if process is None or not process.is_alive or not signal:
            return
        if signal == SIGKILL:
            return self.end(process, signal)
        if signal == SIGSTOP:
            return self.stop(process, signal)
        # A signal to stop and one to continue discard each other.
        for other in STOPPING if signal == SIGCONT else {SIGCONT} if signal in STOPPING else ():
            process.pending.pop(other, None)
        if (signal, process.state) == (SIGCONT, "T"):
            self.change_state(process, "R", 0xFFFF, CONTINUED, signal)
        process.pending.setdefault(signal, Info(signal, code, sender, 0, value))
        if process.state == "R":
            self.act_on_unblocked(process)

    def stop(self, process, signal):
        process.pending.pop(SIGCONT, None)
        if process.state == "R":
            self.change_state(process, "T", signal << 8 | 0x7F, STOPPED, signal)

    def change_state(self, process, state, change, code, signal):
        process.state, process.change = state, change
        self.send(self.processes.get(process.parent), SIGCHLD, code, process.pid, signal)

    def pthread_sigmask(self, process, how, signals):
        before, signals = process.mask, frozenset(map(int, signals)) - {SIGKILL, SIGSTOP}
        if how != _signal.SIG_SETMASK:
            signals = before | signals if how == _signal.SIG_BLOCK else before - signals
        process.mask = signals
        self.act_on_unblocked(process)
        return before

    def act_on_unblocked(self, process):
        """Let pending signals without a handler have their effect, if they are not blocked."""
        for signal in [signal for signal in process.pending if signal not in process.mask]:
            handler = process.handlers.get(signal, SIG_DFL)
            if not callable(handler) and process.state == "R":
                del process.pending[signal]
                if handler == SIG_DFL and signal in STOPPING:
                    self.stop(process, signal)
                elif handler == SIG_DFL and signal not in IGNORED:
                    self.end(process, signal)

    def can_sigtimedwait(self, process, signals, seconds):
        return not signals.isdisjoint(process.pending) or self.is_time(process, seconds)

    def sigtimedwait(self, process, signals, seconds):
        found = next((signal for signal in sorted(process.pending) if signal in signals), None)
        return None if found is None else process.pending.pop(found)

    def find_deliverable(self, process):
        return next((signal for signal in process.pending if signal not in process.mask), None)

    def run_handlers(self, process):
        """Run the handlers of pending signals. Each is written into the log, for a child that
        repeats it.
        """
        while signal := self.find_deliverable(process):
            del process.pending[signal]
            self.write_log(process, "handler", signal, None)
            process.handlers[signal](signal, None)

    # --- time
    def is_time(self, process, seconds):
        if seconds is not None and process.wake is None:
            process.wake = self.now + seconds
        return seconds is not None and process.wake <= self.now

    def setitimer(self, process, which, seconds, interval=0.0):
        before = self.getitimer(process, which)
        process.alarm = self.now + seconds if seconds else None
        return before

    def getitimer(self, process, which):
        return 0.0 if process.alarm is None else max(0.0, process.alarm - self.now), 0.0

    def can_poll(self, process, fds, milliseconds=None):
        is_endless = milliseconds is None or milliseconds < 0
        return self.poll(process, fds) or self.is_time(
            process, None if is_endless else milliseconds / 1000
        )

    def poll(self, process, fds, milliseconds=None):
        open_fds = process.descriptors
        return [
            (fd, events)
            for fd, events in fds
            if fd not in open_fds or self.is_ready(open_fds[fd][0])
        ]

    def is_ready(self, file):
        if file.kind == "pidfd":
            return not file.target.is_alive
        if file.kind == "links":
            return [inode.links for inode in file.target] != file.offset
        return file.kind != "pipe-read" or is_readable(file.target)

    # --- calls
    def enter(self, name, words, named):
        """Make a system call for the running process."""
        process = getcurrent().process
        if not process.is_alive:
            raise Ended
        if process.is_replaced:
            raise Executed
        if process.repeated < len(process.log):
            return self.repeat(process, name)
        error = None
        if name in POINTS and not process.is_asking and is_point(process, name, words):
            error = self.wait_turn(process, name, words, named)
            process.has_effect = (
                bool(words[1] & real.O_CREAT) if name == "open" else name not in LOOKS
            )
        try:
            if error is not None:
                if name == "close":
                    self.close(process, words[0])  # it is closed all the same
                fail(error)
            result = getattr(self, name)(process, *words, **named)
        except OSError as found:
            self.write_log(process, name, None, (found.errno, found.strerror))
            raise
        if not process.is_alive:
            raise Ended  # by its own signal
        self.write_log(
            process,
            name,
            result,
            None,
            process.descriptors[words[0]][0] if name == "fstat" else None,
        )
        if name == "pthread_sigmask":
            self.run_handlers(process)
        return result

    def wait_turn(self, process, name, words, named):
        """Return at the turn of the process, with the number of the error that the call must fail
        with, or None.
        """
        is_ready = getattr(self, f"can_{name}", None)
        process.wake, process.is_ready = (
            None,
            is_ready and (lambda: is_ready(process, *words, **named)),
        )
        process.call, process.folder = (name, *words), named.get("dir_fd")
        if self.is_reduced and self.goes_on(process):
            self.trace.append(("run", [process.pid], process.call))
            return None
        while True:
            self.hub.switch()
            if not process.is_alive:
                raise Ended
            if not self.find_deliverable(process):
                break
            self.run_handlers(process)  # one that returns: Python calls again
        error, process.error, process.is_ready, process.wake = process.error, None, None, None
        return error

    def write_log(self, process, name, result, error, file=None):
        result = tuple(result) if isinstance(result, list) else result
        process.log.append((name, result, error))
        process.repeated = len(process.log)
        if (
            self.is_hashing
        ):  # without sizes and times, of which each use is of a constant; see reduction.py
            seen = result[:4] if name in ("fstat", "stat") and error is None else result
            seen = None if file is not None and file.owner is not process else seen
            if name == "recvmsg" and error is not None:
                return  # there was no message: it will ask again
            if name in ("listdir", "read") and error is None:
                seen = proc.forget_strangers(self, process, result)
            process.history = hash((process.history, name, seen, error))

    def repeat(self, process, name):
        """Return what the call returned to the parent of the process, before it forked it."""
        while True:
            before, result, error = process.log[process.repeated]
            process.repeated += 1
            if before != "handler":
                break
            process.handlers[result](result, None)
        assert before == name, (
            f"a child of {process.parent} calls {name}, and its parent called {before}"
        )
        if error is not None:
            raise OSError(*error)
        return list(result) if name in ("listdir", "poll") else result

    # --- the schedule
    def can_run(self, process):
        is_ready = process.is_ready
        return process.state == "R" and (
            is_ready is None or bool(is_ready()) or self.find_deliverable(process)
        )

    def goes_on(self, process):
        """Whether the next call is the only choice: independent, and no fault can come before
        it.
        """
        kinds = ("error", *set(SIGNALS)) if process.has_effect else ("error",)
        return (
            not any(map(self.faults.get, kinds))
            and self.can_run(process)
            and self.is_alone(process)
        )

    def list_choices(self):
        """Return the steps that are possible now: ("run", pid), (one of SIGNALS, pid), ("fail",
        pid, errno), ("time",).
        """
        runnable = [process for process in self.processes.values() if self.can_run(process)]
        alone = (
            next(([process] for process in runnable if self.is_alone(process)), None)
            if self.is_reduced
            else None
        )
        runnable = alone or runnable
        choices = [("run", process.pid) for process in runnable]
        if not runnable and self.find_next_time() is not None:
            choices.append(("time",))
        choices += [
            ("continue", process.pid)
            for process in self.processes.values()
            if self.can_continue(process)
        ]
        parents = [self.find_parent(each) for each in alone or () if each.death_signal]
        for process in [*alone, *filter(None, parents)] if alone else self.processes.values():
            if process.state != "R" or process.call[0] == "begin" or process.is_spared:
                continue
            if process.has_effect or not alone:
                kinds = ("kill", "stop", *(["suspend"] if process.has_executed else []))
                for kind in ("group", "container"):
                    if alone or process is self.find_alike(kind, process)[0]:
                        kinds = (kind, *kinds)
                choices += [(kind, process.pid) for kind in kinds if self.faults.get(kind)]
            is_ours = not process.has_executed and process.running is None
            if self.faults.get("error") and process in runnable and is_ours:
                errors = [
                    error for error, calls in ERRORS.items() if process.call[0] in calls.split()
                ]
                choices += [("fail", process.pid, error) for error in errors]
        return choices

    def can_continue(self, process):
        """Whether it is stopped, and not by Ctrl-Z below a living launcher: then that gets SIGCONT,
        and forwards it.
        """
        launcher = self.processes.get(process.parent)
        return process.state == "T" and not (
            process.is_suspended and launcher is not None and launcher.is_alive
        )

    def find_parent(self, process):
        """Return the parent, None if that has ended or is process 1."""
        parent = self.processes.get(process.parent)
        return parent if parent is not None and parent.is_alive else None

    def find_alike(self, kind, process):
        """Return the living processes of the group, or the container, of a process."""
        word = {"group": "group", "container": "namespace"}[kind]
        living = [each for each in self.processes.values() if each.is_alive]
        return [each for each in living if vars(each)[word] == vars(process)[word]]

    def is_alone(self, process):
        return not self.find_deliverable(process) and is_independent(self, process)

    def find_next_time(self):
        times = [
            at
            for each in self.processes.values()
            if each.state == "R"
            for at in (each.wake, each.alarm)
        ]
        return min([at for at in times if at is not None and at > self.now], default=None)

    def step(self, choice):
        """Take one of the steps of list_choices."""
        kind, *rest = choice
        process = self.processes[rest[0]] if rest else None
        self.trace.append((kind, rest, process.call if process else ()))
        self.calls += 1
        self.now += self.tick
        if kind == "time":
            self.now = self.find_next_time()
            for each in self.processes.values():
                if each.alarm is not None and each.alarm <= self.now:
                    each.alarm = None
                    self.send(each, _signal.SIGALRM, SENT, 0)
        elif kind in SIGNALS:
            if kind in self.faults:
                self.faults[kind] -= 1
            is_one = kind not in ("group", "container")
            for each in [process] if is_one else self.find_alike(kind, process):
                self.send(each, SIGNALS[kind], BY_KERNEL if kind == "suspend" else SENT, 0)
            process.is_suspended = kind == "suspend"
            if kind == "suspend":
                self.send(self.processes.get(process.parent), SIGNALS[kind], BY_KERNEL, 0)
        else:
            if kind == "fail":
                self.faults["error"] -= 1
                process.error = rest[1]
            process.greenlet.switch()
        while self.todo:
            self.todo.pop().greenlet.throw(Ended)

    def close_all(self):
        """End all greenlets."""
        for process in self.processes.values():
            process.state = "Z"
        for process in self.processes.values():
            process.greenlet.throw(Ended)


def make_info(process):
    """Return what a siginfo_t says of the end of a process."""
    is_killed, status = process.status & 0x7F, process.status >> 8
    return KILLED if is_killed else EXITED, process.pid, 0, is_killed or status


def is_point(process, name, words):
    """Whether other processes can see or change the call: not if only the process itself has what
    it concerns.
    """
    if (
        name in ("open", "readlink", "listdir", "stat")
        and isinstance(words[0], str)
        and words[0].startswith("/proc/")
    ):
        return words[0].startswith("/proc/self/fd/") or not proc.is_own(process, words[0])
    if name in ("read", "close", "fstat", "write") and words[0] in process.descriptors:
        file = process.descriptors[words[0]][0]
        if file.kind == "proc":
            return name == "read" and not proc.is_own(process, file.target)
        return (
            file.is_pipe or file.kind == "file" and (name != "close" or file in file.target.locks)
        )
    if name in OF_PAIR:
        return proc.is_of_pair(process)
    if name == "poll":
        return [fd for fd, _ in words[0]] != [2]  # stderr always has room
    return name != "sigtimedwait" or words[1] != 0
