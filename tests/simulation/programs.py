"""Short programs that must see the same on the simulated kernel as on the real one. Each returns what it saw; `k` has the modules."""

import errno
from types import SimpleNamespace

MODULES = ("posix", "fcntl", "_signal", "select", "time")
EX, SH, UN, NB = 2, 1, 8, 4


def attempt(call, *words, **named):
    """Return "ok", or the name of the error."""
    try:
        call(*words, **named)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def create(k, name="f", flags=0):
    return k.posix.open(name, k.posix.O_RDWR | k.posix.O_CREAT | k.posix.O_CLOEXEC | flags, 0o600)


def run_child(k, body):
    """Fork a child that runs `body` and exits with what it returns. Return its pid."""
    pid = k.posix.fork()
    if pid == 0:
        status = 99
        try:
            status = body() or 0
        finally:
            k.posix._exit(status)
    return pid


def wait(k, pid):
    return k.posix.waitstatus_to_exitcode(k.posix.waitpid(pid, 0)[1])


def park(k, first=None):
    """Return (pid, writer) of a child that has called `first` and then waits until `writer` is closed."""
    ready, say = k.posix.pipe2(k.posix.O_CLOEXEC)
    go, writer = k.posix.pipe2(k.posix.O_CLOEXEC)

    def body():
        k.posix.close(writer)
        if first:
            first()
        k.posix.write(say, b"!")
        k.posix.read(go, 1)

    pid = run_child(k, body)
    k.posix.read(ready, 1)
    return pid, writer


def file_is_created_once(k):
    create(k)
    return [
        attempt(create, k, "f", k.posix.O_EXCL),
        attempt(k.posix.open, "g", k.posix.O_RDONLY),
        attempt(k.posix.open, "f/x", k.posix.O_RDONLY),
    ]


def unlinked_file_keeps_its_data(k):
    fd = create(k)
    k.posix.pwrite(fd, b"abc", 0)
    k.posix.unlink("f")
    return [
        k.posix.fstat(fd).st_nlink,
        k.posix.pread(fd, 9, 1),
        attempt(k.posix.unlink, "f"),
        attempt(k.posix.stat, "f"),
    ]


def rename_replaces(k):
    old, new = create(k, "old"), create(k, "new")
    k.posix.rename("new", "old")
    return [
        k.posix.fstat(old).st_nlink,
        k.posix.fstat(new).st_nlink,
        k.posix.listdir("."),
        attempt(k.posix.rename, "new", "old"),
    ]


def unnamed_file_gets_a_name(k):
    fd = k.posix.open(".", k.posix.O_RDWR | k.posix.O_TMPFILE, 0o600)
    seen = [k.posix.fstat(fd).st_nlink, k.posix.listdir(".")]
    here = k.posix.open(".", k.posix.O_RDONLY)
    for _ in range(2):
        seen.append(attempt(k.posix.link, f"/proc/self/fd/{fd}", "f", dst_dir_fd=here, follow_symlinks=True))
    return [*seen, k.posix.fstat(fd).st_nlink, k.posix.listdir(".")]


def write_beyond_the_end_fills_with_zeros(k):
    fd = create(k)
    k.posix.pwrite(fd, b"x", 3)
    return [
        k.posix.pread(fd, 9, 0),
        k.posix.fstat(fd).st_size,
        k.posix.read(fd, 2),
        k.posix.read(fd, 9),
        k.posix.read(fd, 9),
    ]


def appending_write_goes_to_the_end(k):
    fd, other = create(k), create(k, "f", k.posix.O_APPEND)
    k.posix.write(fd, b"ab")
    k.posix.write(other, b"c")
    k.posix.write(fd, b"d")
    return [k.posix.pread(fd, 9, 0)]


def directories(k):
    seen = [attempt(k.posix.mkdir, "d"), attempt(k.posix.mkdir, "d"), attempt(k.posix.open, "d", k.posix.O_RDWR)]
    fd = k.posix.open("d", k.posix.O_RDONLY | k.posix.O_DIRECTORY)
    inner = k.posix.open("f", k.posix.O_RDWR | k.posix.O_CREAT, 0o600, dir_fd=fd)
    seen += [k.posix.listdir(f"/proc/self/fd/{fd}"), attempt(k.posix.rmdir, "d"), k.posix.fstat(inner).st_nlink]
    k.posix.unlink("f", dir_fd=fd)
    seen += [attempt(k.posix.rmdir, "d"), k.posix.fstat(fd).st_nlink]
    return [
        *seen,
        attempt(k.posix.open, "f", k.posix.O_RDWR | k.posix.O_CREAT, 0o600, dir_fd=fd),
        attempt(k.posix.mkdir, "x", dir_fd=fd),
    ]


def path_through_a_file(k):
    create(k)
    return [
        attempt(k.posix.open, "f", k.posix.O_RDONLY | k.posix.O_DIRECTORY),
        attempt(k.posix.mkdir, "f/d"),
        attempt(k.posix.unlink, "d/f"),
    ]


def locks_of_two_opens_conflict(k):
    one, two = create(k), create(k)
    seen = [
        attempt(k.fcntl.flock, one, EX | NB),
        attempt(k.fcntl.flock, two, EX | NB),
        attempt(k.fcntl.flock, two, SH | NB),
    ]
    k.fcntl.flock(one, UN)
    return [
        *seen,
        attempt(k.fcntl.flock, two, SH | NB),
        attempt(k.fcntl.flock, one, SH | NB),
        attempt(k.fcntl.flock, one, EX | NB),
    ]


def failed_conversion_loses_the_lock(k):
    one, two, three = create(k), create(k), create(k)
    k.fcntl.flock(one, SH)
    k.fcntl.flock(two, SH)
    seen = [attempt(k.fcntl.flock, one, EX | NB)]
    k.fcntl.flock(two, UN)
    return [*seen, attempt(k.fcntl.flock, three, EX | NB)]


def lock_ends_with_the_last_copy(k):
    fd, other = create(k), create(k)
    k.fcntl.flock(fd, EX)
    pid, writer = park(k)
    k.posix.close(fd)
    seen = [attempt(k.fcntl.flock, other, SH | NB)]
    k.posix.close(writer)
    return [*seen, wait(k, pid), attempt(k.fcntl.flock, other, SH | NB)]


def unlock_counts_for_all_copies(k):
    fd, other = create(k), create(k)
    k.fcntl.flock(fd, EX)
    pid, writer = park(k, lambda: k.fcntl.flock(fd, UN))
    seen = [attempt(k.fcntl.flock, other, EX | NB)]
    k.posix.close(writer)
    return [*seen, wait(k, pid)]


def lock_ends_with_a_killed_process(k):
    fd = create(k)
    pid, writer = park(k, lambda: k.fcntl.flock(create(k), EX))
    seen = [attempt(k.fcntl.flock, fd, EX | NB)]
    k.posix.kill(pid, 9)
    return [*seen, wait(k, pid), attempt(k.fcntl.flock, fd, EX | NB)]


def blocked_lock_is_granted(k):
    fd = create(k)
    k.fcntl.flock(fd, EX)
    pid = run_child(k, lambda: k.fcntl.flock(create(k), EX))
    k.fcntl.flock(fd, UN)
    return [wait(k, pid)]


def locks_of_processes_are_other_locks(k):
    fd, other = create(k), create(k)
    k.fcntl.flock(fd, EX)
    seen = [
        attempt(k.fcntl.lockf, fd, EX | NB),
        wait(k, run_child(k, lambda: attempt(k.fcntl.lockf, fd, EX | NB) == "EAGAIN")),
    ]
    k.posix.close(other)  # any descriptor of the file
    return [*seen, wait(k, run_child(k, lambda: attempt(k.fcntl.lockf, fd, EX | NB) == "EAGAIN"))]


def pipe_ends(k):
    reader, writer = k.posix.pipe2(k.posix.O_NONBLOCK)
    seen = [attempt(k.posix.read, reader, 1), k.posix.write(writer, b"ab"), k.posix.read(reader, 1)]
    k.posix.close(writer)
    return [*seen, k.posix.read(reader, 9), k.posix.read(reader, 9)]


def pipe_without_a_reader(k):
    reader, writer = k.posix.pipe()
    k.posix.close(reader)
    return [attempt(k.posix.write, writer, b"x")]


def reader_waits_for_all_writers(k):
    reader, writer = k.posix.pipe()
    pid = run_child(k, lambda: k.posix.write(writer, b"x") - 1)
    k.posix.close(writer)
    return [k.posix.read(reader, 9), k.posix.read(reader, 9), wait(k, pid)]


def pipe_can_be_made_to_block(k):
    reader, writer = k.posix.pipe2(k.posix.O_NONBLOCK)
    k.posix.set_blocking(reader, True)
    pid = run_child(k, lambda: k.posix.write(writer, b"x") - 1)
    return [k.posix.read(reader, 9), wait(k, pid)]


def exec_closes_what_is_marked(k):
    reader, writer = k.posix.pipe2(k.posix.O_CLOEXEC)
    kept = k.posix.dup(writer)
    seen = [k.posix.get_inheritable(writer), k.posix.get_inheritable(kept), k.posix.get_inheritable(0)]
    k.posix.close(kept)
    pid = run_child(k, lambda: k.posix.execve("/bin/true", ["true"], {}))
    k.posix.close(writer)
    return [*seen, k.posix.read(reader, 1), wait(k, pid)]


def exec_fails(k):
    return [attempt(k.posix.execve, "/bin/none", ["none"], {}), attempt(k.posix.execve, "", ["none"], {})]


def dup2_replaces(k):
    one, two = create(k, "one"), create(k, "two")
    k.posix.pwrite(two, b"2", 0)
    k.posix.dup2(two, one, False)
    return [
        k.posix.pread(one, 9, 0),
        k.posix.get_inheritable(one),
        attempt(k.posix.close, one),
        attempt(k.posix.close, one),
    ]


def status_of_children(k):
    pid = run_child(k, lambda: 3)
    seen = [wait(k, pid), attempt(k.posix.waitpid, pid, 0), attempt(k.posix.kill, pid, 0)]
    other, writer = park(k)
    seen += [k.posix.waitpid(other, k.posix.WNOHANG), attempt(k.posix.kill, other, 0)]
    k.posix.kill(other, 15)
    return [*seen, wait(k, other), attempt(k.posix.waitpid, -1, 0)]


def read_state(k, pid):
    fd = k.posix.open(f"/proc/{pid}/stat", k.posix.O_RDONLY)
    try:
        return k.posix.read(fd, 4096).rpartition(b")")[2].split()[0]
    finally:
        k.posix.close(fd)


def zombie(k):
    pid, writer = park(k)
    pidfd = k.posix.pidfd_open(pid)
    poller = k.select.poll()
    poller.register(pidfd, k.select.POLLIN)
    seen = [len(poller.poll(0))]
    k.posix.close(writer)
    seen += [
        len(poller.poll()),
        read_state(k, pid),
        attempt(k.posix.kill, pid, 0),
        attempt(k._signal.pidfd_send_signal, pidfd, 15),
    ]
    k.posix.waitpid(pid, 0)
    return [
        *seen,
        attempt(read_state, k, pid),
        attempt(k.posix.pidfd_open, pid),
        attempt(k._signal.pidfd_send_signal, pidfd, 15),
    ]


def stopped_child(k):
    pid, writer = park(k)
    k.posix.kill(pid, k._signal.SIGSTOP)
    status = k.posix.waitpid(pid, k.posix.WUNTRACED)[1]
    seen = [k.posix.WIFSTOPPED(status), k.posix.WSTOPSIG(status) == k._signal.SIGSTOP, read_state(k, pid)]
    k.posix.kill(pid, k._signal.SIGTERM)
    seen.append(k.posix.waitpid(pid, k.posix.WNOHANG)[0])
    k.posix.kill(pid, k._signal.SIGCONT)
    return [*seen, wait(k, pid)]


def blocked_signal_is_taken(k):
    block = {k._signal.SIGTERM, k._signal.SIGUSR1}
    k._signal.pthread_sigmask(k._signal.SIG_BLOCK, block)
    me = k.posix.getpid()
    k.posix.kill(me, 15)
    k.posix.kill(me, 15)
    seen = [k._signal.sigpending() == {15}, wait(k, run_child(k, lambda: len(k._signal.sigpending())))]
    info = k._signal.sigwaitinfo(block)
    return [*seen, int(info.si_signo), info.si_code, info.si_pid == me, k._signal.sigtimedwait(block, 0)]


def signal_of_a_child(k):
    k._signal.pthread_sigmask(k._signal.SIG_BLOCK, {k._signal.SIGCHLD})
    pid = run_child(k, lambda: 5)
    info = k._signal.sigwaitinfo({k._signal.SIGCHLD})
    seen = [info.si_code, info.si_pid == pid, info.si_status]
    other, writer = park(k)
    k._signal.sigtimedwait({k._signal.SIGCHLD}, 0)
    k.posix.kill(other, 9)
    info = k._signal.sigwaitinfo({k._signal.SIGCHLD})
    return [*seen, info.si_code, info.si_pid == other, info.si_status, wait(k, other)]


def handler_ends_a_blocking_call(k):
    one, two = create(k), create(k)
    k.fcntl.flock(one, EX)

    def ring(number, frame):
        raise TimeoutError

    k._signal.signal(k._signal.SIGALRM, ring)
    k._signal.setitimer(k._signal.ITIMER_REAL, 0.01)
    try:
        k.fcntl.flock(two, EX)
    except TimeoutError:
        return ["interrupted", attempt(k.fcntl.flock, two, SH | NB)]


def handler_that_returns_goes_on(k):
    heard = []
    k._signal.signal(k._signal.SIGUSR1, lambda number, frame: heard.append(int(number)))
    me, reader, writer = k.posix.getpid(), *k.posix.pipe()

    def body():
        k.posix.kill(me, k._signal.SIGUSR1)
        return k.posix.write(writer, b"x") - 1

    pid = run_child(k, body)
    return [k.posix.read(reader, 1), heard == [int(k._signal.SIGUSR1)], wait(k, pid)]


def ignored_children_are_not_kept(k):
    k._signal.signal(k._signal.SIGCHLD, k._signal.SIG_IGN)
    return [attempt(k.posix.waitpid, run_child(k, lambda: 0), 0)]


def orphan_gets_another_parent(k):
    reader, writer = k.posix.pipe()
    go, say = k.posix.pipe()
    begun, begin = k.posix.pipe()

    def inner():
        k.posix.close(say)
        before = k.posix.getppid()
        k.posix.write(begin, b"+")
        k.posix.read(go, 1)
        k.posix.write(writer, b"other" if k.posix.getppid() != before else b"same")

    def outer():
        run_child(k, inner)
        k.posix.read(begun, 1)

    seen = [wait(k, run_child(k, outer))]
    k.posix.close(say)
    return [*seen, k.posix.read(reader, 9)]


def name_of_an_open_file(k):
    fd = create(k)
    before = k.posix.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2]
    k.posix.unlink("f")
    return [
        before,
        k.posix.readlink(f"/proc/self/fd/{fd}").rpartition("/")[2],
        k.posix.stat(f"/proc/self/fd/{fd}").st_nlink,
    ]


def timers(k):
    begin = k.time.monotonic()
    poller = k.select.poll()
    reader, writer = k.posix.pipe()
    poller.register(reader, k.select.POLLIN)
    seen = [poller.poll(5), k._signal.sigtimedwait({k._signal.SIGUSR1}, 0.005)]
    k.time.sleep(0.005)
    return [*seen, k.time.monotonic() - begin >= 0.014]


PROGRAMS = [
    each
    for name, each in list(globals().items())
    if getattr(each, "__code__", attempt.__code__).co_varnames[:1] == ("k",) and each.__code__.co_argcount == 1
]


def run_all():
    """Return {name: what it saw} on the simulated kernel."""
    import sys

    from simulation import modules
    from simulation.kernel import Kernel
    from simulation.search import run_on

    found, k = {}, SimpleNamespace(**{name: sys.modules[name] for name in MODULES})
    for each in PROGRAMS:
        modules.kernel = kernel = Kernel({"/bin/true": lambda: 0})
        seen = found[each.__name__] = []
        kernel.spawn(2, lambda: seen.extend(each(k)) or 0)
        run_on(kernel)
        if kernel.violation:
            seen.append(kernel.violation)
        kernel.close_all()
    return found


def run_real(each, folder):
    """Return what a program sees on the real kernel, in a child and in an empty folder."""
    import importlib
    import os

    k = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            seen = repr(each(k))
        except BaseException as error:
            seen = repr(error)
        os.write(writer, seen.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        seen = file.read()
    os.waitpid(pid, 0)
    return seen
