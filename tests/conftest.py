"""Fixtures and tools of all tests. Each test gets its own directory and runs the real `solo` in
real processes.

A test waits for a line, a state in /proc or the end of a process, never for a length of time.
"""

import contextlib
import ctypes
import fcntl
import functools
import importlib.util
import inspect
import itertools
import json
import os
import pty
import py_compile
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import loops
import pytest
from hypothesis import HealthCheck, settings
from loops import pytest_addoption, pytest_collection_modifyitems, pytest_ignore_collect  # noqa: F401
from needed import PACKAGES, find_tool

import solo
from solo.contention import addresses
from solo.identity import FIRST_PID_NAMESPACE, read_namespace
from solo.process.tree import find_children

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
SITE = next(
    path for path in sys.path if path.endswith("site-packages")
)  # of the libraries of views
NOBODY = 65534
LIBC, CLONE_NEWNET = ctypes.CDLL(None), 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
network = None  # a descriptor of the machine's network namespace, if this worker has left it
source = ROOT  # of the solo that tests start; where the network namespace cannot be left, a copy
# flock, poll and fcntl in /proc/PID/syscall
BLOCKING = {"x86_64": ("73", "7", "72"), "aarch64": ("32", "73", "25")}[os.uname().machine]
FCNTL, WAITING_FCNTL = (
    BLOCKING[2],
    (7, 38),
)  # F_SETLKW and F_OFD_SETLKW; no other command waits for long
# Of long tests, for the fixtures via and kind.
SOCKET_IN_FULL = ["file", pytest.param("socket", marks=pytest.mark.full)]
# Under this prefix the wall clock has stepped ahead: by it, this machine has just booted.
STEPPED = "env FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 faketime -f +999d".split()
PATH_IS_SET = "site-packages')\n"  # after this a `solo` that imports modules finds all of them
PATIENCE = 60  # seconds until a process counts as stuck; never a measurement
# for a shell that runs its traps soon, and leaves no process when it ends
LIVE = "while :; do sleep 0.05; done"
PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
CAPTURED = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE}

sys.path.insert(0, str(ROOT))
sys.path.append(str(ROOT / "packaging"))  # tables.py
sys.dont_write_bytecode = False  # else every worker compiles all tests again: 10 seconds


# The initial environment of every test, on every machine. None: unset.
UNSET = (
    "LANGUAGE LC_ALL LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME LC_COLLATE COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR_FORCE CI"
    " JENKINS_URL TEAMCITY_VERSION TF_BUILD GITHUB_ACTIONS GITLAB_CI NOTIFY_SOCKET LISTEN_FDS LISTEN_PID WATCHDOG_PID"
    " INVOCATION_ID PYTHONPATH PYTHONWARNINGS PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED BASH_ENV ENV CDPATH"
    " SOLO_DIR SOLO_NAME SOLO_SLOT SOLO_TOKEN SOLO_VIA"
).split()
ENVIRONMENT = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HISTFILE": "", **dict.fromkeys(UNSET)}
# No deadlines or limits on slowness: a busy machine must not change a result.
settings.register_profile(
    "solo", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("quick", settings.get_profile("solo"), max_examples=20)
settings.register_profile("test", settings.get_profile("solo"), max_examples=40)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    loops.pytest_configure(config)
    config.addinivalue_line("markers", "tool(name): skip and name the tool if it is not installed")
    config.addinivalue_line("markers", "root: needs to be root")
    config.addinivalue_line(
        "markers",
        "host: needs the first pid namespace; in others each run has a holder, and gone pids are 0",
    )
    config.addinivalue_line("markers", "network: needs the machine's network, for packages")
    for marker, meaning in loops.MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    settings.load_profile({"quick": "quick", "test": "test"}.get(config.getoption("loop"), "solo"))
    # A shell's background job ignores SIGINT and SIGQUIT: reset them, as from a terminal.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if config.option.basetemp is None:
        config.option.basetemp = config.own_basetemp = tempfile.mkdtemp(prefix="pytest-solo-")
    for variable, value in ENVIRONMENT.items():
        os.environ.pop(variable, None) if value is None else os.environ.update({variable: value})
    os.environ["PARALLEL_HOME"] = f"{config.option.basetemp}/parallel"  # GNU parallel writes there
    runs_tests = "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None)
    if runs_tests and not leave_network():
        # In this process; those that it starts use a copy of the source. Another pid namespace has
        # the same pids.
        addresses.PREFIX = os.urandom(2).hex()
    # A worker of xdist has several threads. With -n 0 a launcher would be refused a name that
    # pytest, with one thread, holds.
    threading.Thread(target=threading.Event().wait, daemon=True).start()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Remove the temporary directory, unless a test failed."""
    folder = getattr(session.config, "own_basetemp", None)
    if folder and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)


def leave_network():
    """Enter a new network namespace, which hides the sockets of other processes. Return whether the
    machine allows it.
    """
    global network
    machines = os.open("/proc/self/ns/net", os.O_RDONLY)
    if LIBC.unshare(CLONE_NEWNET):
        os.close(machines)
        return False
    try:
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    except PermissionError:  # root of systemd-nspawn may not set up a network
        LIBC.setns(machines, CLONE_NEWNET)
        os.close(machines)
        return False
    network = machines
    return True


def show_page(name):
    """Return a page of the manual as a reader sees it, in lines too long to break a recipe."""
    words = ["mandoc", "-T", "utf8", "-O", "width=500", ROOT / "man" / name]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def copy_source(folder):
    """Copy solo into `folder`, with our prefix of the addresses of sockets: those of other
    processes are not names to it.
    """
    shutil.copytree(ROOT / "solo", folder / "solo")
    file = folder / "solo/contention/addresses.py"
    text = file.read_text()
    assert 'PREFIX = "solo"' in text
    file.write_text(text.replace('PREFIX = "solo"', f'PREFIX = "{addresses.PREFIX}"'))
    py_compile.compile(file)  # as the others are: a launcher writes no file
    importlib.import_module("solo.api.run").__file__ = str(
        folder / "solo/api/run.py"
    )  # solo.run starts the copy too
    return folder


@contextmanager
def use_network():
    """Enter the machine's network namespace for the block."""
    if network is None:
        yield
        return
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    LIBC.setns(network, CLONE_NEWNET)
    try:
        yield
    finally:
        LIBC.setns(own, CLONE_NEWNET)
        os.close(own)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Run a test with the marker `network`, and its fixtures, in the machine's network
    namespace.
    """
    with use_network() if item.get_closest_marker("network") else nullcontext():
        return (yield)


def need_tools(*tools):
    """Skip the test, naming the tool, if one of the tools is not installed."""
    for tool in tools:
        if not find_tool(tool):
            pytest.skip(f"needs {tool}: make test-deps")


# Options of unshare(1) that fail in some environments: --mount in a chroot whose root is no mount
# point, as a package builder's.
NAMESPACES = {"--user", "-m", "--mount", "--mount-proc", "-p", "--pid", "-f", "--fork"}


def need_namespaces(words):
    """Skip the test, naming what fails, if `unshare` in the words of a command line cannot make its
    namespaces here, or a script in them cannot replace its files of /proc: below systemd-nspawn the
    boot_id is one that was removed.
    """
    words = list(map(str, words))
    if "unshare" not in words:
        return
    options = itertools.takewhile(lambda word: word[:1] == "-", words[words.index("unshare") + 1 :])
    tried = [[option for option in options if option in NAMESPACES] + ["true"]]
    places = re.findall(r"mount --bind \S+ (/proc/[a-z_/]+)", " ".join(words))
    tried += [["--mount", "mount", "--bind", "/dev/null", place] for place in places]
    for wanted in tried:
        if reason := try_unshare(*wanted):
            pytest.skip(f"needs unshare {' '.join(wanted)}: {reason}")


@functools.cache
def try_unshare(*words):
    """Return why unshare(1) fails with these words, empty if it does not."""
    return subprocess.run(["unshare", *words], capture_output=True, text=True).stderr.strip()


def find_script(name):
    """Return the path of a program of the dependency group deploy. Skips if it is missing."""
    path = shutil.which(name, path=os.path.dirname(sys.executable))
    return path or pytest.skip(f"needs {name}: make test-full installs it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    for mark in item.iter_markers("tool"):
        need_tools(*mark.args)
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    if item.get_closest_marker("host") and read_namespace("self", "pid") != FIRST_PID_NAMESPACE:
        pytest.skip("needs the first pid namespace")
    return (yield from skip_without_tool())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from skip_without_tool())


def skip_without_tool():
    """Skip a test that starts a missing tool without having a marker for it."""
    try:
        return (yield)
    except FileNotFoundError as error:
        if error.filename in PACKAGES:
            need_tools(error.filename)
        raise


@pytest.fixture(scope="session")
def solo_script(tmp_path_factory):
    """Make the `solo` of this source tree that `make install` makes: its modules in one file."""
    global source
    if network is None:
        source = copy_source(tmp_path_factory.mktemp("source"))
    return make_bundled(tmp_path_factory.mktemp("bin"))


def write_program(path, text):
    """Write a program that every user can run; return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_solo(path, place, site=None, python=sys.executable):
    """Write a `solo` over the source tree in `place`, for which only views look into `site`. Return
    its path.
    """
    head = f"#!{python} -IS\nimport sys\nsys.path.insert(0, {str(place)!r})\n"
    head += f"sys.path.append({str(site)!r})\n" if site else ""
    return write_program(path, head + (ROOT / "solo/__main__.py").read_text().partition("\n")[2])


def reboot(lab):
    """Return a prefix under which this machine has just booted: with another boot id, after all
    that was written. Needs root.
    """
    (lab.path / "boot_id").write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    return (
        *in_mounts(f"mount --bind {lab.path}/boot_id /proc/sys/kernel/random/boot_id"),
        *STEPPED,
    )


def copy_package(place):
    """Copy solo's modules into a directory, compiled by the system's Python: a launcher writes no
    file.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source / "solo", place / "solo", ignore=ignored, dirs_exist_ok=True)
    if os.access("/usr/bin/python3", os.X_OK):
        subprocess.run(["/usr/bin/python3", "-m", "compileall", "-q", place / "solo"], check=True)


def open_to_all(place):
    """Let every user enter a temporary directory."""
    for path in (place, *place.parents):
        if path == place or path.name.startswith(("pytest", "popen")):
            path.chmod(0o755)


def in_mounts(script):
    """Return a prefix that runs a script, which mounts something, in a new mount namespace before
    the rest of the words.
    """
    return ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")


def make_bundled(folder):
    """Write a program and the script that opens it, as `make install` does. Return the script."""
    program = folder / "program"

    def bundle(*words):
        words = [sys.executable, "-m", "solo.generate.bundle", *words]
        return subprocess.run(words, cwd=source, check=True, stdout=subprocess.PIPE, text=True)

    bundle("program", source / "solo", program)
    script = bundle("script", sys.executable, "", source, SITE, program)
    return write_program(folder / "solo", script.stdout)


class NetworkLock:
    """Lets one test at a time use sockets in a network namespace, as tests use the same names. A
    lab that uses sockets holds it.
    """

    def __init__(self):
        self.labs = set()
        self.descriptor = None

    def acquire(self, lab):
        if self.descriptor is None:
            self.descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.labs.add(lab)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def release(self, lab):
        self.labs.discard(lab)
        if self.descriptor is not None and not self.labs:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)


network_lock = NetworkLock()


def find_holders(name):
    """Return the holders by the backend of the test: an ordinary user's workers share names that
    are kept as sockets.
    """
    return solo.holders(name, via=os.environ.get("SOLO_VIA", "file"))


class Lab:
    """One directory of names and one log, with methods that start, observe and end processes."""

    def __init__(self, script, path):
        self.script = str(script)
        self.program = Path(script).with_name("program")
        self.path = path
        self.directory = path / "names"
        self.log = path / "log"
        self.log.touch()
        self.started = []
        self.environment = {**os.environ, "SOLO_DIR": str(self.directory), "LAB": str(path)}
        self.environment["SOLO"] = self.script

    def use_sockets(self):
        """Use sockets from now on. Names are then shared by the network namespace, so lock it for
        this lab.
        """
        self.environment["SOLO_VIA"] = "socket"
        network_lock.acquire(self)

    def hasten(self, constant, seconds):
        """Change a constant, such as `solo.gate.GATE_PATIENCE`, in every launcher from now on,
        where a test waits for it.
        """
        module, _, name = constant.rpartition(".")
        assert hasattr(importlib.import_module(module), name)
        text = self.put_in(f"import {module}\n{constant} = {seconds}\n")
        self.script = str(write_program(self.path / "hastened", text))

    def use_modules(self):
        """Use a solo from now on that imports its modules file by file."""
        self.script = str(write_solo(self.path / "modules", source, SITE))

    def put_in(self, code):
        """Return the text of a solo that runs `code` first of all. Its modules are files."""
        if PATH_IS_SET not in Path(self.script).read_text():
            self.use_modules()
        return Path(self.script).read_text().replace(PATH_IS_SET, PATH_IS_SET + code, 1)

    def use_clock(self):
        """Give every launcher from now on a monotonic clock that `leap` sets."""
        ahead = f"86400 * __import__('posix').access({str(self.path / 'leap')!r}, 0)"
        self.hasten("time.monotonic", f"(lambda real: lambda: real() + {ahead})(time.monotonic)")

    def leap(self, *waiters):
        """Let a day pass. A waiter looks at its clock when it gets SIGALRM."""
        (self.path / "leap").touch()
        for waiter in waiters:
            os.kill(waiter.pid, signal.SIGALRM)

    def start(self, *words, prefix=(), **options):
        """Start `solo WORDS`; all three streams are pipes unless `options` (of Popen) say
        otherwise.
        """
        if "socket" in words:
            network_lock.acquire(self)
        return self.start_words(*prefix, self.script, *words, **options)

    def start_shell(self, script):
        """Start a shell with `script`, in which $SOLO is solo; all three streams are pipes."""
        return self.start_words("sh", "-c", script)

    def start_code(self, code, *words, flags=("-IS",), prefix=()):
        """Start a Python program that has imported solo and what such programs use; all three
        streams are pipes.
        """
        head = f"import sys; sys.path.insert(0, {str(source)!r})\nimport math, os, signal, threading, time, solo\n"
        head += inspect.getsource(find_holders)
        return self.start_words(
            *prefix, sys.executable, *flags, "-c", head + code, *map(str, words)
        )

    def run_code(self, code, *words, **options):
        """Run such a program to its end; return (status, stdout, stderr)."""
        return finish(self.start_code(code, *words, **options))

    def start_words(self, *words, **options):
        options = {"env": self.environment, **PIPES, **options}
        need_namespaces(words)
        process = subprocess.Popen(list(map(os.fspath, words)), **options)
        self.started.append(process)
        return process

    def run(self, *words, prefix=(), **options):
        """Run `solo WORDS` to its end. Fails the test if it does not end."""
        if "socket" in words:
            network_lock.acquire(self)
        need_namespaces(prefix)
        options = {"env": self.environment, **CAPTURED, **options}
        return subprocess.run([*prefix, self.script, *map(os.fspath, words)], **options)

    def hold(self, name, *words, script="echo $$; read line; exit 0", **options):
        """Start a holder of `name` whose command prints its pid, as `child`; by default it lives
        until its stdin is closed.
        """
        process = self.start(*words, "-n", name, "--", "sh", "-c", script, **options)
        process.child = int(read_line(process))
        process.helpers = [pid for pid, _ in find_children(process.pid) if pid != process.child]
        return process

    def orphan(self, name, *words):
        """Hold a name by a command whose launcher was killed."""
        holder = self.hold(name, *words)
        kill(holder)
        return holder

    def hold_old(self, name):
        """Hold a name that only version 0.2.0 accepts, as it contains control characters."""
        process = self.hold("new")
        until(self.find_journal("new").exists)  # it is written once the command runs
        for folder in (self.directory, self.directory / ".journals"):
            (folder / "new").rename(folder / name)
        return process

    def start_waiter(self, name, *words, tag=None, script=None, **options):
        """Start a contender that writes `tag` to the log when it runs, or runs `script`; return
        once it waits in the queue.
        """
        before = self.find_waiting(
            name
        )  # maybe with that of a holder whose command has just started
        script = script or f"echo {tag} >>$LAB/log"
        process = self.start(
            "-w", "forever", "-n", name, *words, "--", "sh", "-c", script, **options
        )
        until(lambda: self.find_waiting(name) - before)
        until(
            lambda: process.poll() is not None or is_blocked(process.pid)
        )  # it has unlocked the gate
        return process

    def find_hold(self, name):
        """Return the only hold file of `name`."""
        [file] = (self.directory / name).glob(".hold.*")
        return file

    def count_waiting(self, name):
        return len(self.find_waiting(name))

    def find_waiting(self, name):
        """Return what identifies each waiting ticket, including dead ones."""
        if "SOLO_VIA" in self.environment:
            return {row["ticket"] for row in self.collect(name) if row["state"] == "waiting"}
        path = self.directory / name
        return (
            {file for file in os.listdir(path) if file.startswith(".seat.")}
            if path.exists()
            else set()
        )

    def list(self, *words):
        if not any(word.startswith("-") for word in words):
            return self.collect(*words)
        if "--via" not in words:
            words = ("--via", self.environment.get("SOLO_VIA", "file"), *words)
        result = self.run("list", "--json", *words)
        assert result.returncode == 0 or b"not among the names" in result.stderr, result.stderr
        return json.loads(result.stdout)

    def collect(self, *names):
        """Return the rows of `solo list` from this process, for polling: a start of the view takes
        100 ms of CPU.
        """
        from solo.commands.list import collect
        from solo.text.tables import format_json

        rows, complete = collect(
            self.environment.get("SOLO_DIR"), self.environment.get("SOLO_VIA", "file"), names
        )
        assert complete
        return json.loads(format_json(rows))

    def history(self, *words):
        """Return the rows of `solo history`, from this process if `words` are names: see
        collect.
        """
        if not any(word.startswith("-") for word in words) and "SOLO_VIA" not in self.environment:
            from solo.commands.history import collect
            from solo.commands.lookup import Asked
            from solo.text.tables import format_json

            rows, _, complete = collect(Asked(dir=self.environment.get("SOLO_DIR")), words)
            assert complete
            return json.loads(format_json(rows))
        result = self.run("history", "--json", *words)
        assert (result.returncode, result.stderr) == (0, b"")
        return json.loads(result.stdout)

    def find_journal(self, name):
        return self.directory / ".journals" / name / ".journal"

    def read_log(self):
        return self.log.read_text().split()

    def read_tokens(self):
        """Return the tokens of the witnesses in the order in which they ran."""
        path = self.path / "tokens"
        return list(map(int, path.read_text().split())) if path.exists() else []

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            process.wait()
        network_lock.release(self)
        for ticket in self.directory.rglob(".hold.*") if self.directory.exists() else ():
            end_orphan(ticket)


def end_orphan(ticket):
    """Kill the command recorded in a leftover ticket, if the pid still belongs to it."""
    from solo.identity import read_stat
    from solo.record import parse_record

    try:
        record = parse_record(ticket.read_bytes()) if ticket.is_file() else None
        if record and record.child and read_stat(record.child[0]).start == record.child[1]:
            os.kill(record.child[0], signal.SIGKILL)
    except OSError:
        pass


@pytest.fixture
def lab(solo_script, tmp_path):
    lab = Lab(solo_script, tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def new(solo_script, tmp_path):
    """Return a function that makes a new machine with the programs of the recipes."""
    from machine import Machine

    machines = []

    def make():
        path = tmp_path / str(len(machines))
        path.mkdir()
        machines.append(Machine(solo_script, path))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


class Terminal:
    """A process on its own pty, as leader of its session; `screen` is its output so far."""

    def __init__(self, words, environment):
        need_namespaces(words)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, environment)
        self.screen = b""

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text, after=0):
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.screen[after:]:
            assert select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0], (
                self.screen
            )
            try:
                self.screen += os.read(self.fd, 65536)
            except OSError:
                raise AssertionError(self.screen) from None

    def read_to_end(self):
        """Read until the process closes the terminal; return all output."""
        with suppress(OSError):
            while select.select([self.fd], [], [], PATIENCE)[0] and (
                part := os.read(self.fd, 65536)
            ):
                self.screen += part
        return self.screen

    def wait(self):
        """Return its exit status, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.fixture
def terminal(lab):
    """Return a function that starts a program on a terminal of its own; without words: bash, once
    it prompts.
    """
    opened = []

    def open_terminal(*words, **environment):
        words = words or ("bash", "--norc", "--noprofile", "-i")
        opened.append(
            Terminal(words, {**lab.environment, "PS1": "$ ", "TERM": "dumb", **environment})
        )
        if words[-1] == "-i":
            opened[-1].wait_for("$ ")
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.fixture
def shared(common):
    """A lab whose directory all users share."""
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    return common


@pytest.fixture(params=["file", "socket"])
def via(request, lab):
    """Run the test with both kinds of ticket."""
    if request.param == "socket":
        lab.use_sockets()
    return request.param


def write_script(place):
    """Write a `solo` that runs the source in `place` on Debian's Python. Return its path."""
    return write_solo(place / "run", place, python="/usr/bin/python3")


# What a view needs.
LIBRARIES = (
    "typer click rich pygments markdown_it mdurl shellingham annotated_doc typing_extensions"
    " pydantic pydantic_core annotated_types typing_inspection"
).split()


def copy_libraries(place):
    """Give the `solo` of write_script the libraries of a view, where all users can read them:
    Debian's Python may lack them.
    """
    for library in LIBRARIES:
        found = importlib.util.find_spec(library)
        if found is not None and found.submodule_search_locations:
            shutil.copytree(Path(found.origin).parent, place / library)
        elif found is not None:
            shutil.copy(found.origin, place)


@pytest.fixture(scope="session")
def compiled(solo_script, tmp_path_factory):
    """Return a directory with the source, compiled by Debian's Python, that all users can read."""
    if os.geteuid() != 0 or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("needs root and /usr/bin/python3")
    place = tmp_path_factory.mktemp("compiled")
    copy_package(place)
    open_to_all(place)
    return place


@pytest.fixture
def common(lab, compiled, tmp_path_factory):
    """Return a lab that other users can use: its script runs on Debian's Python."""
    place = tmp_path_factory.mktemp("common")
    open_to_all(place)
    (place / "solo").symlink_to(compiled / "solo")
    lab.script = str(write_script(place))
    lab.directory = place / "names"
    lab.environment["SOLO_DIR"] = str(lab.directory)
    lab.list = None  # Debian's Python lacks its libraries
    return lab


def inject(lab, *what, paths=(), follow=False):
    """Return a prefix that injects faults or delays, in the syntax of strace --inject, into all
    calls or those on `paths`.
    """
    words = [word for path in paths for word in ("-P", path)]
    words += [word for one in what for word in ("-e", f"inject={one}")]
    return ("strace", "-qq", "-o", lab.path / "injected", *(["-f"] if follow else []), *words)


def configured(path):
    """Return a prefix that makes /etc/solo.toml a copy of `path` in a new mount namespace. Needs
    root.
    """
    folder = path.parent / "etc"
    folder.mkdir(exist_ok=True)
    copy = (
        f"mount -t tmpfs tmpfs {folder} && cp -a /etc/. {folder} && cp -a {path} {folder}/solo.toml"
    )
    return in_mounts(f"{copy} && mount --bind {folder} /etc")


def count_injected(lab):
    """Count the injected calls so far."""
    return (lab.path / "injected").read_text().count("(INJECTED)")


def until(condition, patience=PATIENCE):
    """Poll until `condition()` is true. Use it only if no line, lock or descriptor shows the
    event.
    """
    deadline, pause = time.monotonic() + patience, 0.001
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(pause)
        pause = min(
            1.5 * pause, 0.02
        )  # what takes long is asked less often: some conditions read all of /proc


def read_line(process, patience=PATIENCE):
    """Read one line of a process's stdout; return it without its newline. Fails if the process ends
    first.
    """
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([process.stdout], [], [], patience)[0], f"no line, only {line!r}"
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            pytest.fail(f"ended after {line!r}: {process.stderr.read() if process.stderr else ''}")
        line += byte
    return line[:-1].decode()


def finish(process, send=b""):
    """Close its stdin and wait for its end; return (status, stdout, stderr)."""
    out, err = process.communicate(send, timeout=PATIENCE)
    return (
        process.returncode,
        (out or b"").decode(errors="replace"),
        (err or b"").decode(errors="replace"),
    )


def list_open(pid):
    """Return what the descriptors of a process lead to, without those that it closes meanwhile, the
    installed program, which each solo has open to its end, and what libffi 3.5 opens for itself.
    """
    found = []
    with contextlib.suppress(PermissionError):  # for an ordinary user, of a process that has ended
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(entry.path))
    return [path for path in found if Path(path).name != "program" and "/libffi.so" not in path]


def has_pending_signal(pid):
    """Return whether a signal to the process has not been received yet."""
    from solo.identity import read_status

    return int(read_status(pid, b"ShdPnd:")[0], 16) != 0


def read_state(pid):
    """Return the state letter of /proc/PID/stat, or "gone" if there is no such process."""
    from solo.identity import read_stat

    try:
        return read_stat(pid).state
    except OSError:
        return "gone"


def count_switches(pid, kinds=("voluntary", "nonvoluntary")):
    """Count the context switches of a process. The count does not change while it sleeps."""
    rows = (row for row in open(f"/proc/{pid}/status") if "ctxt_switches" in row)
    return sum(int(row.split()[1]) for row in rows if row.startswith(kinds))


def make_full_pipe():
    """Return the two ends of a full pipe: a write blocks."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    return read, write


def read_call(pid):
    return open(f"/proc/{pid}/syscall").read()


def is_blocked(pid):
    """Return whether a process sleeps in flock(2), poll(2) or fcntl(2), as a waiter does.

    strace stops its process (state t) in each of these calls, also in those that do not block.
    """
    try:
        before, state, after = read_call(pid), read_state(pid), read_call(pid)
        number, *arguments = after.split()
        waits = number in BLOCKING and (number != FCNTL or int(arguments[1], 16) in WAITING_FCNTL)
        return waits and state == "S" and before == after
    except (OSError, IndexError):
        return False


def wait_dead(pid):
    until(lambda: read_state(pid) in ("gone", "Z"))


def kill(process):
    """SIGKILL a process that the test has started; return once it is dead."""
    process.kill()
    process.wait()


def kill_both(holder):
    """SIGKILL the launcher and then its command; return once both are dead, and what keeps the
    locks in a pid namespace.
    """
    kill(holder)
    try:
        os.kill(holder.child, signal.SIGKILL)
    except ProcessLookupError:
        pass  # with sockets the command ends with its launcher
    for pid in (holder.child, *holder.helpers):
        wait_dead(pid)


def set_alarm(prepare="pass"):
    """Return a prefix that sets an alarm(2) of one second and executes the rest of the words, like
    perl's time limit idiom.
    """
    code = f"import posix, _signal, sys; {prepare}; _signal.alarm(1); posix.execv(sys.argv[1], sys.argv[1:])"
    return (sys.executable, "-IS", "-c", code)


def do_when(condition, act):
    """Call `act` in a thread once `condition()` is true."""
    threading.Thread(target=lambda: (until(condition), act())).start()


def run_threads(work, arguments):
    """Call `work` with each argument, each in a thread of its own; return the results."""
    arguments = list(arguments)
    ready = threading.Barrier(len(arguments))
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(
            pool.map(
                lambda argument: (ready.wait(PATIENCE), work(argument))[1],
                arguments,
                timeout=PATIENCE,
            )
        )


def in_thread(act):
    """Call `act` in a thread; return its result."""
    return run_threads(lambda _: act(), [None])[0]


def is_locked(path, *words):
    """Whether flock(1) is refused a lock on that file."""
    return subprocess.run(["flock", "-n", *words, path, "true"]).returncode != 0


@pytest.fixture
def files(lab, monkeypatch):
    """Use the lab's names in this process too, by files."""
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))


@pytest.fixture(params=["file", "socket"])
def kind(request, lab, files, monkeypatch):
    """Use the lab's names in this process too, by files or by sockets."""
    if request.param == "socket":
        monkeypatch.setenv("SOLO_VIA", "socket")
        monkeypatch.delenv("SOLO_DIR")
        lab.environment.pop("SOLO_DIR")
        lab.use_sockets()
    return request.param
