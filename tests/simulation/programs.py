"""Short programs that must see the same on the simulated kernel as on the real one. Each yields
what it sees, in an empty directory.

`python -m simulation --programs` imports them over the simulated kernel, the tests over the real
one.
"""

import _signal
import errno
import inspect
import os
import posix
import select
import time
from _signal import SIGALRM, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1
from _socket import AF_UNIX, MSG_DONTWAIT, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socketpair
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from sys import byteorder

from solo.process.prctl import SET_CHILD_SUBREAPER, SET_PDEATHSIG, load_prctl


def attempt(call, *words, **named):
    """Return "ok", or the name of the error."""
    try:
        call(*words, **named)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def create(name="f", flags=0, **named):
    return posix.open(name, posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | flags, 0o600, **named)


def pipe(flags=posix.O_CLOEXEC):
    return posix.pipe2(flags)


def try_lock(fd, mode):
    return attempt(flock, fd, mode | LOCK_NB)


def run_child(body):
    """Fork a child that runs `body` and exits with what it returns. Return its pid."""
    pid = posix.fork()
    if pid == 0:
        status = 99
        try:
            status = body() or 0
        finally:
            posix._exit(status)
    return pid


def wait(pid):
    return posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1])


def park(first=None):
    """Return (pid, writer) of a child that has called `first` and then waits until `writer` is
    closed.
    """
    ready, say = pipe()
    go, writer = pipe()

    def body():
        posix.close(writer)
        if first:
            first()
        posix.write(say, b"!")
        posix.read(go, 1)

    pid = run_child(body)
    posix.read(ready, 1)
    return pid, writer


def files():
    fd, appending = create(), create("f", posix.O_APPEND)
    yield (
        attempt(create, "f", posix.O_EXCL),
        attempt(posix.open, "g", posix.O_RDONLY),
        attempt(posix.unlink, "d/f"),
    )
    posix.pwrite(fd, b"x", 3)  # beyond the end
    posix.write(appending, b"c")
    yield posix.pread(fd, 9, 0), posix.fstat(fd).st_size
    posix.rename("f", "new")
    yield posix.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2], attempt(posix.rename, "f", "g")
    posix.unlink("new")
    yield (
        posix.pread(fd, 9, 4),
        posix.fstat(fd).st_nlink,
        attempt(posix.unlink, "new"),
        attempt(posix.stat, "new"),
    )
    place = f"/proc/self/fd/{fd}"
    yield posix.readlink(place).rpartition("/")[2], posix.stat(place).st_nlink


def directories():
    yield attempt(posix.mkdir, "d"), attempt(posix.mkdir, "d")
    fd = posix.open("d", posix.O_RDONLY | posix.O_DIRECTORY)
    inner = create("f", dir_fd=fd)
    yield (
        posix.listdir(f"/proc/self/fd/{fd}"),
        attempt(posix.rmdir, "d"),
        posix.fstat(inner).st_nlink,
    )
    posix.unlink("f", dir_fd=fd)
    yield attempt(posix.rmdir, "d"), posix.fstat(fd).st_nlink
    yield attempt(create, "f", dir_fd=fd), attempt(posix.mkdir, "x", dir_fd=fd)


def locks_of_two_opens_conflict():
    one, two = create(), create()
    yield try_lock(one, LOCK_EX), try_lock(two, LOCK_EX), try_lock(two, LOCK_SH)
    flock(one, LOCK_UN)
    yield try_lock(two, LOCK_SH), try_lock(one, LOCK_SH), try_lock(one, LOCK_EX)
    flock(two, LOCK_UN)
    yield try_lock(create(), LOCK_EX)  # the failed conversion has lost the lock


def lock_ends_with_its_last_copy_or_by_any_copy():
    fd, other, third = create(), create(), create()
    flock(fd, LOCK_EX)
    pid, _ = park()
    posix.close(fd)
    yield try_lock(other, LOCK_SH)
    posix.kill(pid, SIGKILL)
    yield wait(pid), try_lock(other, LOCK_SH)
    park(lambda: flock(other, LOCK_UN))
    yield try_lock(third, LOCK_EX)
    pid = run_child(lambda: flock(create(), LOCK_EX))
    flock(third, LOCK_UN)
    yield wait(pid)


def pipes_whose_reader_waits_for_all_writers():
    reader, writer = pipe(posix.O_NONBLOCK)
    yield attempt(posix.read, reader, 1), posix.write(writer, b"ab"), posix.read(reader, 1)
    posix.set_blocking(reader, True)
    pid = run_child(lambda: posix.write(writer, b"x") - 1)
    posix.close(writer)
    yield posix.read(reader, 1), posix.read(reader, 9), posix.read(reader, 9), wait(pid)
    reader, writer = pipe()
    posix.close(reader)
    yield attempt(posix.write, writer, b"x")


def exec_closes_what_is_marked():
    reader, writer = pipe()
    kept = posix.dup(writer)
    yield posix.get_inheritable(writer), posix.get_inheritable(kept), posix.get_inheritable(0)
    posix.close(kept)
    pid = run_child(lambda: posix.execve("/bin/true", ["true"], {}))
    posix.close(writer)
    yield posix.read(reader, 1), wait(pid)
    yield attempt(posix.execve, "/bin/none", ["none"], {}), attempt(posix.execve, "", ["none"], {})


def read_state(pid):
    fd = posix.open(f"/proc/{pid}/stat", posix.O_RDONLY | posix.O_CLOEXEC)
    return posix.read(fd, 4096).rpartition(b")")[2].split()[0]


def states_of_a_child():
    pid, _ = park()
    pidfd, poller = posix.pidfd_open(pid), select.poll()
    poller.register(pidfd, select.POLLIN)
    yield len(poller.poll(0)), posix.waitpid(pid, posix.WNOHANG), attempt(posix.kill, pid, 0)
    posix.kill(pid, SIGSTOP)
    status = posix.waitpid(pid, posix.WUNTRACED)[1]
    yield posix.WIFSTOPPED(status), posix.WSTOPSIG(status) == SIGSTOP, read_state(pid)
    _signal.pidfd_send_signal(pidfd, SIGTERM)
    yield posix.waitpid(pid, posix.WNOHANG)[0]
    posix.kill(pid, SIGCONT)
    yield (
        len(poller.poll()),
        read_state(pid),
        attempt(posix.kill, pid, 0),
        attempt(_signal.pidfd_send_signal, pidfd, SIGTERM),
    )
    yield (
        wait(pid),
        attempt(posix.waitpid, pid, 0),
        attempt(posix.kill, pid, 0),
        attempt(read_state, pid),
    )
    yield (
        attempt(posix.pidfd_open, pid),
        attempt(_signal.pidfd_send_signal, pidfd, SIGTERM),
        wait(run_child(lambda: 3)),
    )
    _signal.signal(SIGCHLD, _signal.SIG_IGN)
    yield attempt(posix.waitpid, run_child(lambda: 0), 0)


def blocked_signals_are_taken():
    me = posix.getpid()
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {SIGTERM, SIGCHLD})
    posix.kill(me, SIGTERM)
    posix.kill(me, SIGTERM)
    yield _signal.sigpending() == {SIGTERM}
    for body in (lambda: len(_signal.sigpending()), lambda: posix.kill(posix.getpid(), SIGKILL)):
        pid = run_child(body)
        info = _signal.sigwaitinfo({SIGCHLD})
        yield info.si_code, info.si_pid == pid, info.si_status, wait(pid)
    info = _signal.sigwaitinfo({SIGTERM})
    yield int(info.si_signo), info.si_code, info.si_pid == me, _signal.sigtimedwait({SIGTERM}, 0)


def stops_and_continues_discard_each_other():
    me = posix.getpid()
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {SIGTSTP, SIGCONT})
    for number in (SIGTSTP, SIGCONT, SIGTSTP):
        posix.kill(me, number)
        yield [pending for pending in (SIGTSTP, SIGCONT) if pending in _signal.sigpending()] == [
            number
        ]


def handler_runs_as_its_signal_is_unblocked():
    heard = []
    _signal.signal(SIGUSR1, lambda number, frame: heard.append(int(number)))
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {SIGUSR1})
    posix.kill(posix.getpid(), SIGUSR1)
    yield heard
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {SIGUSR1})
    yield heard == [int(SIGUSR1)]


def handler_ends_a_blocking_call():
    one, two = create(), create()
    flock(one, LOCK_EX)

    def ring(number, frame):
        raise TimeoutError

    _signal.signal(SIGALRM, ring)
    _signal.setitimer(_signal.ITIMER_REAL, 0.01)
    try:
        flock(two, LOCK_EX)
    except TimeoutError:
        yield "interrupted", try_lock(two, LOCK_SH)


def handler_that_returns_goes_on():
    heard, me, (reader, writer) = [], posix.getpid(), pipe()
    _signal.signal(SIGUSR1, lambda number, frame: heard.append(int(number)))

    def body():
        posix.kill(me, SIGUSR1)
        return posix.write(writer, b"x") - 1

    pid = run_child(body)
    yield posix.read(reader, 1), heard == [int(SIGUSR1)], wait(pid)


def start_inner(writer, go, say):
    """Start a child that writes, once nobody has `say`, whether this process is its parent."""
    me = posix.getpid()

    def inner():
        posix.close(say)
        posix.read(go, 1)
        posix.write(writer, b"same" if posix.getppid() == me else b"other")

    run_child(inner)


def orphan_gets_another_parent():
    (reader, writer), (go, say) = pipe(), pipe()
    yield wait(run_child(lambda: start_inner(writer, go, say)))
    posix.close(say)
    yield posix.read(reader, 9)


def descriptors_on_their_way_keep_a_lock():
    one, two = create(), create()
    flock(one, LOCK_EX)
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    right = [(SOL_SOCKET, SCM_RIGHTS, one.to_bytes(4, byteorder))]
    ours.sendmsg([b"a"], right, MSG_DONTWAIT)
    ours.sendmsg([b"b"], right, MSG_DONTWAIT)
    posix.close(one)
    yield try_lock(two, LOCK_SH)
    data, ancillary, *_ = theirs.recvmsg(9, 64, MSG_DONTWAIT)
    posix.close(int.from_bytes(ancillary[0][2], byteorder))
    yield data, try_lock(two, LOCK_SH), attempt(theirs.send, b"c", 0)
    theirs.close()
    yield try_lock(two, LOCK_SH), attempt(ours.send, b"d", 0) in ("EPIPE", "ECONNRESET")


def empty_socket_has_no_message():
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    yield attempt(theirs.recvmsg, 9, 64, MSG_DONTWAIT)
    ours.send(b"a", 0)
    ours.close()
    yield theirs.recvmsg(9, 64, MSG_DONTWAIT)[0], theirs.recvmsg(9, 64, MSG_DONTWAIT)[0]


def look_for_end(pid):
    ended = posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
    return ended and (ended.si_pid == pid, ended.si_status)


def subreaper_adopts_the_living_and_the_dead():
    load_prctl()(SET_CHILD_SUBREAPER, 1)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {SIGCHLD})
    (reader, writer), (go, say) = pipe(), pipe()

    def outer():
        start_inner(writer, go, say)
        ended = run_child(lambda: 4)
        _signal.sigwaitinfo({SIGCHLD})
        return look_for_end(ended) != (True, 4)

    first = run_child(outer)
    yield wait(first), posix.waitpid(-1, 0)[1], _signal.sigpending() == {SIGCHLD}
    posix.close(say)
    yield posix.read(reader, 9), posix.waitpid(-1, 0)[1], attempt(posix.waitpid, -1, 0)
    yield attempt(look_for_end, 1)


def death_signal_comes_with_the_end_of_the_parent():
    (reader, writer), (ready, say) = pipe(), pipe()

    def outer():
        def inner():
            load_prctl()(SET_PDEATHSIG, SIGKILL)
            posix.write(say, b"!")
            posix.read(pipe()[0], 1)

        run_child(inner)
        posix.read(ready, 1)

    yield wait(run_child(outer))
    posix.close(writer)
    yield posix.read(reader, 1)


def leader_of_a_session_cannot_begin_one():
    def body():
        posix.setsid()
        return attempt(posix.setsid) == "EPERM"

    yield wait(run_child(body))


def timers():
    begin, poller, (reader, _) = time.monotonic(), select.poll(), pipe()
    poller.register(reader, select.POLLIN)
    yield poller.poll(5), _signal.sigtimedwait({SIGUSR1}, 0.005)
    yield time.monotonic() - begin >= 0.009


PROGRAMS = [each for each in list(globals().values()) if inspect.isgeneratorfunction(each)]


def run_simulated():
    """Return {name: what each program saw} on the simulated kernel."""
    from simulation import modules
    from simulation.kernel import Kernel
    from simulation.search import run_on

    found = {}
    for each in PROGRAMS:
        modules.kernel = kernel = Kernel({"/bin/true": lambda: 0})
        kernel.spawn(2, ["program"], lambda: found.update({each.__name__: list(each())}))
        run_on(kernel)
        found[each.__name__] = kernel.violation or found[each.__name__]
        kernel.close_all()
    return found


def run_real(each, folder):
    """Return what a program sees on the real kernel, in a child and in an empty folder."""
    reader, writer = pipe()

    def body():
        os.chdir(folder)
        posix.write(writer, repr(list(each())).encode())

    pid = run_child(body)
    posix.close(writer)
    seen = posix.read(reader, 1 << 16).decode()
    wait(pid)
    return seen
