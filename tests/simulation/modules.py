"""The modules of Python that solo's hot path uses, over the simulated kernel: posix, fcntl,
_signal, select, time, _socket. And the loader of solo.
"""

import _signal as real_signal
import _socket as real_socket
import fcntl as real_fcntl
import importlib.abc
import importlib.util
import posix as real_posix
import select as real_select
import sys
import time as real_time
import types
from _signal import SIG_DFL
from array import array
from io import BytesIO
from pathlib import Path

from greenlet import getcurrent

from simulation.kernel import Kernel, Unknown

ROOT = Path(__file__).resolve().parents[2]
# Functions that ask the machine nothing. What else the simulated kernel does not have is an
# Unknown.
PURE = """
    WIFEXITED WIFSTOPPED WIFCONTINUED WIFSIGNALED WEXITSTATUS WSTOPSIG WTERMSIG waitstatus_to_exitcode strerror fspath strftime localtime
    gmtime strptime mktime valid_signals
""".split()
# Loaded before the modules are replaced: each imports something of the machine.
REAL = "os re json datetime shlex functools contextlib struct io typing pwd grp random traceback linecache shutil errno zlib _ctypes argparse subprocess itertools"

kernel = None  # the one in which processes run now


def make_call(name):
    return lambda *words, **named: kernel.enter(name, words, named)


def make_module(real):
    """Return a module with the constants of `real`, and its calls by the simulated kernel."""
    module = types.ModuleType(real.__name__)
    for word, value in vars(real).items():
        if callable(value) and not isinstance(value, type) and word not in PURE:
            value = (
                make_call(word)
                if hasattr(Kernel, word)
                else make_unknown(f"{real.__name__}.{word}")
            )
        setattr(module, word, value)
    return module


def make_unknown(name):
    def refuse(*words, **named):
        raise Unknown(f"{name}{words}")

    return refuse


def make_modules():
    """Return {name: module}."""
    made = {
        real.__name__: make_module(real)
        for real in (real_posix, real_fcntl, real_signal, real_select, real_time, real_socket)
    }
    posix, fcntl, signal, select, time, socket = made.values()
    posix.environ = {b"PATH": b"/bin", b"SOLO_DIR": b"/locks"}
    posix.geteuid = posix.getuid = posix.getsid = lambda *_: 0
    posix.isatty = lambda fd: False
    posix.sched_yield = posix.chdir = lambda *_: None
    posix.getcwd = lambda: "/"
    posix.sysconf = lambda name: 100
    posix.uname = lambda: types.SimpleNamespace(nodename="host")
    posix.umask, posix.lstat = lambda mask: 0, posix.stat
    fcntl.lockf = lambda fd, mode: None  # whoever has it looks for the owner of a gate
    signal.signal = set_handler
    signal.getsignal = lambda number: getcurrent().process.handlers.get(int(number), SIG_DFL)
    signal.pthread_sigmask = lambda how, signals: kernel.enter(
        "pthread_sigmask", (int(how), frozenset(signals)), {}
    )
    signal.sigtimedwait = lambda signals, seconds: kernel.enter(
        "sigtimedwait", (frozenset(signals), seconds), {}
    )
    signal.sigwaitinfo = lambda signals: signal.sigtimedwait(signals, None)
    select.poll = Poll
    socket.socketpair = lambda *_: tuple(map(Socket, kernel.enter("socketpair", (), {})))
    time.clock_gettime = lambda clock: kernel.enter("monotonic", (), {})
    return made


def set_handler(number, handler):
    """As signal.signal. It is in the memory of the process: a child that repeats its parent's calls
    sets its own.
    """
    handlers = getcurrent().process.handlers
    before = handlers.get(int(number), SIG_DFL)
    handlers[int(number)] = handler
    return before


class Poll:
    fds = ()

    def register(self, fd, events=real_select.POLLIN):
        self.fds += ((fd, events),)

    def poll(self, milliseconds=None):
        return kernel.enter("poll", (self.fds, milliseconds), {})


class Socket:
    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd

    def close(self):
        kernel.enter("close", (self.fd,), {})

    def send(self, data, flags):
        kernel.enter("sendmsg", (self.fd, data), {})

    def sendmsg(self, parts, ancillary, flags):
        numbers = [number for _, _, data in ancillary for number in array("i", data)]
        kernel.enter("sendmsg", (self.fd, b"".join(parts), tuple(numbers)), {})

    def recvmsg(self, *_):
        data, fds = kernel.enter("recvmsg", (self.fd,), {})
        return data, [(0, 0, array("i", fds).tobytes())] if fds else [], 0, None


class Loader(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports solo's files, with `faults`. Raises ValueError as Fault.put_into."""

    def __init__(self, faults):
        self.faults = list(faults)

    def find_spec(self, name, path=None, target=None):
        place = ROOT.joinpath(*name.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if name.partition(".")[0] != "solo" or not file.exists():
            return None
        folders = [str(place)] if place.is_dir() else None
        return importlib.util.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=folders
        )

    def get_filename(self, name):
        return sys.modules[name].__spec__.origin

    def get_data(self, path):
        text = Path(path).read_text()
        file = str(Path(path).relative_to(ROOT / "solo"))
        for fault in [fault for fault in self.faults if fault.file == file]:
            text = fault.put_into(text)
            self.faults.remove(fault)
        return text.encode()

    def path_stats(self, path):
        raise OSError  # neither read nor write .pyc files


def load_changed(modules, faults):
    """Import solo's `modules` (names below solo) with `faults`. Return them."""
    loader = Loader(faults)
    sys.meta_path.insert(0, loader)
    found = [importlib.import_module(f"solo.{name}") for name in modules]
    if loader.faults:
        raise ValueError(f"not loaded: {loader.faults}")
    return found


def load(modules, faults=()):
    """Import solo's `modules` over the simulated kernel, in this process for good, with
    `faults`.
    """
    for name in REAL.split():
        __import__(name)
    sys.modules.update(make_modules())
    sys.modules["resource"] = None  # it would set limits of this process
    load_changed(modules, faults)
    for name, module in list(sys.modules.items()):
        if name.startswith("solo."):
            module.open = make_unknown("open")
    # What solo binds at import, or calls through libc or threads.
    from solo import kernel as solo_kernel, start  # isort: skip
    from solo.commands import hold
    from solo.process import holder, prctl, watch

    solo_kernel.is_umask_dropped = True
    start.wait_go.__defaults__ = (0,)  # a spin is a schedule like any other
    watch.watch_links = make_call("watch_links")
    prctl.loaded.append(lambda *words: kernel.enter("prctl", words, {}))
    prctl.make_die_with = lambda: lambda pid: kernel.enter("set_death_signal", (9,), {})
    hold.GivenProcess.watch = lambda self, origin: None  # a thread
    holder.open = lambda *words: BytesIO()  # of /proc/self/comm
