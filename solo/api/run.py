"""solo.run: as subprocess.run, but the command runs under a lock, through the launcher."""

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, FileIO, TextIOWrapper
from time import monotonic
from typing import Any, NamedTuple, Optional, Union

from solo import errors, kinds
from solo.api.arguments import AnyPath, check_name, check_wait, name_keywords, read_options
from solo.api.blocking import CANCEL_POLL, LONGEST_POLL, Deferred, keep
from solo.api.holder import holders
from solo.api.status_pipe import ENDED, OUTCOMES, STARTED, read_last
from solo.directories import find_base
from solo.kernel import FOREVER
from solo.options import FILE, LAUNCHER_OPTIONS, Option
from solo.plan import KILL_AFTER

Keywords = dict[str, Any]  # of solo.run, or of subprocess.Popen
Launched = subprocess.Popen[Any]  # of text or bytes

DEATH_PERIOD = 1000  # milliseconds between two looks at a launcher that has reported nothing yet

# Start as `solo` does, but with sys.path of this program, where the library of an engine may be.
# The words are: the pipe, `solo` (so that ps(1) shows it), and the arguments of solo.
LAUNCHER = """import sys, _signal
if _signal.getsignal(2) is _signal.default_int_handler:
    _signal.signal(2, _signal.SIG_DFL)
sys.path = [{root!r}, *sys.path, *{path!r}]
from solo.api.status_pipe import Report
report = Report(int(sys.argv[1]))
del sys.argv[:2]
from solo.main import main
main(report)"""


def run(
    argv: Sequence[AnyPath],
    *,
    name: Union[str, Sequence[str], None] = None,
    shared: bool = False,
    slots: Optional[int] = None,
    take: Optional[int] = None,
    wait: Optional[float] = None,
    max_waiting: Optional[int] = None,
    latest: bool = False,
    replace: bool = False,
    replace_after: Union[int, float, None] = None,
    timeout: Optional[float] = None,
    kill_after: Optional[float] = None,
    signal: Union[int, str, None] = None,
    tree: bool = False,
    no_orphan: bool = False,
    flock: Union[AnyPath, Sequence[AnyPath], None] = None,
    fcntl: Union[AnyPath, Sequence[AnyPath], None] = None,
    note: Optional[str] = None,
    via: Optional[str] = None,
    ttl: Optional[float] = None,
    once_per: Optional[float] = None,
    once_retry: bool = False,
    notify: Optional[str] = None,
    notify_on: Optional[str] = None,
    chdir: Optional[AnyPath] = None,
    directory: Optional[AnyPath] = None,
    check: bool = False,
    input: object = None,
    capture_output: bool = False,
    **popen: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run the command `argv` (a sequence of words) under the lock of `name`, and wait for its end.

    The options are those of solo(1) but for those about output, durations in seconds;
    `wait=math.inf` waits without a limit; `replace_after` is a number of skips as an int, seconds
    as a float. Without `name`, names are made from the command. All other arguments are those of
    subprocess.run, except `shell` and `executable`. Return its CompletedProcess.

    Raises Busy, with its `holders`, if the name is held; its subclass RanAlready if the command ran
    in this period (`once_per`); Unreachable if the engine of `via` cannot be reached; LeaseLost if
    the lease there was lost and the command ended; NotFound, NotExecutable, UsageError or SoloError
    if the command could not be started; subprocess.TimeoutExpired after `timeout` seconds, when
    SIGTERM (or `signal`) or, `kill_after` seconds later (default 10), SIGKILL has ended the
    command, or if another process still has its captured output open then; with `check`
    subprocess.CalledProcessError.

    >>> run(["echo", "hello"], name="greeting", capture_output=True, text=True).stdout
    'hello\\n'
    """
    keywords = locals()
    argv = [] if isinstance(argv, (str, bytes)) else list(argv)
    if not argv:
        raise errors.UsageError("argv is a sequence of words, with a command in it")
    if name is not None and not name:
        check_name("")  # raises
    for word in ("shell", "executable", *[one.key for one in LAUNCHER_OPTIONS if not one.keyword]):
        if popen.pop(word, None):
            why = ": the command is the words of argv" if word in ("shell", "executable") else ""
            raise errors.UsageError(f"solo.run cannot use {word}={why}")
    words = [
        word
        for option in LAUNCHER_OPTIONS
        if option.keyword
        for word in make_words(option, keywords)
    ]
    add_pipes(popen, capture_output, input)
    code, report, output = launch([*words, "--", *argv], input, popen, check_wait(timeout))
    message = read_last(report)
    if message is None:
        raise errors.SoloError(f"solo ended with status {code} before the command was started")
    kind, where, text = message
    if kind == OUTCOMES[errors.TIMED_OUT] or (kind in (STARTED, ENDED) and output.is_cut):
        raise subprocess.TimeoutExpired(list(argv), timeout or 0, output.stdout, output.stderr)
    if kind == ENDED:
        code = int(text)  # nobody can reap a launcher for a program that ignores SIGCHLD
    elif kind == STARTED:
        why = "its launcher was killed, and it may still run (solo list shows it)"
        raise errors.SoloError(f"{argv[0]!r}: {why}")
    elif kind == OUTCOMES[errors.LEASE_LOST]:
        raise errors.LeaseLost(f"{argv[0]!r}: the lease was lost, and it was ended")
    else:
        raise make_error(kind, where, text, via, directory, popen)
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess(
        list(argv), code, output.stdout, output.stderr
    )
    if check:
        done.check_returncode()
    return done


def add_pipes(popen: Keywords, capture_output: bool, input: object) -> None:
    """Add the pipes that these arguments ask for. Raises UsageError, where subprocess.run raises
    ValueError.
    """
    if capture_output:
        if popen.get("stdout") is not None or popen.get("stderr") is not None:
            raise errors.UsageError("capture_output excludes stdout and stderr")
        popen.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        if popen.get("stdin") is not None:
            raise errors.UsageError("input and stdin exclude each other")
        popen["stdin"] = subprocess.PIPE


def make_words(option: Option, keywords: Keywords) -> list[AnyPath]:
    """Return the words of the command line for one option and its part. Raises UsageError."""
    value, part = keywords[option.keyword or ""], option.part
    second = part and keywords[part.keyword or ""]
    if part and second is not None and second is not False:
        if value is None:
            raise errors.UsageError(f"{part.keyword} needs {option.keyword}")
        second = part.metavar if second is True else format_value(part, second)
        return [f"--{option.flag}", f"{format_value(option, value)!s},{second!s}"]
    if option.kind is kinds.FLAG:
        return [f"--{option.flag}"] if value else []
    values = (
        list(value or ())
        if option.many and not isinstance(value, (str, bytes, os.PathLike))
        else [value]
    )
    return [
        word
        for item in values
        if item is not None
        for word in (f"--{option.flag}", format_value(option, item))
    ]


def format_value(option: Option, value: Any) -> AnyPath:
    if option.kind is kinds.NAME:
        return check_name(value)
    is_duration = option.kind in (kinds.DURATION, kinds.AGE)
    if is_duration or (option.kind is kinds.LIMIT and isinstance(value, float)):
        seconds = check_wait(value)
        return "forever" if seconds == FOREVER else f"{seconds or 0:.9f}s"  # not -0
    if isinstance(value, bool):
        raise errors.UsageError(f"{option.keyword}={value}: not a number, a name or a path")
    is_path = option.kind in (kinds.DIRECTORY, kinds.FILE)
    if isinstance(value, int) and not is_path:
        return str(int(value))  # str() of signal.SIGINT is its name before Python 3.11
    return os.fspath(value) if is_path or isinstance(value, (bytes, os.PathLike)) else str(value)


class Output(NamedTuple):
    """The output that was read. `is_cut`: another process kept a pipe open until after the
    timeout.
    """

    stdout: Union[str, bytes, None]
    stderr: Union[str, bytes, None]
    is_cut: bool = False


def launch(
    words: list[AnyPath], input: object, popen: Keywords, timeout: Optional[float]
) -> tuple[int, bytes, Output]:
    """Run a launcher. Return its status, its report and its output."""
    process = pipe = None
    try:
        with Deferred():  # a handler that raises in Popen would leave a launcher that nobody knows
            process, pipe = start(words, popen)
        output = communicate(process, pipe, input, timeout)
        os.set_blocking(pipe.fileno(), False)
        return process.returncode, pipe.read(1 << 16) or b"", output
    except BaseException:
        if process is not None:
            end(process)
        raise
    finally:
        if pipe is not None:
            pipe.close()


def start(words: list[AnyPath], popen: Keywords) -> tuple[Launched, FileIO]:
    """Start a launcher. Return it and our end of the pipe of its report."""
    own_end, launchers_end = map(keep, os.pipe())  # not 0 to 2, which the program may have closed
    pipe = FileIO(own_end)
    try:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        code = LAUNCHER.format(
            root=root, path=[one for one in sys.path if one and isinstance(one, str)]
        )
        launcher = [sys.executable, "-IS", "-c", code, str(launchers_end), "solo", *words]
        passed = tuple(popen.get("pass_fds", ()))
        if passed or popen.get("close_fds", True):
            popen = {**popen, "pass_fds": (*passed, launchers_end)}
        else:
            os.set_inheritable(launchers_end, True)  # as pass_fds would override close_fds
        return subprocess.Popen(launcher, **popen), pipe
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(launchers_end)


def communicate(process: Launched, pipe: FileIO, input: object, timeout: Optional[float]) -> Output:
    """Exchange input and output with a launcher until both it and the output have ended.

    Once the timeout has passed, do not wait longer than for the launcher: another process may keep
    a pipe open.
    """
    if (
        timeout is None
        or timeout == FOREVER
        or process.stdin is process.stdout is process.stderr is None
    ):
        return Output(*process.communicate(input))
    wait_started(process, pipe)
    deadline, is_over = monotonic() + timeout, False
    while True:
        try:
            left = min(deadline - monotonic(), LONGEST_POLL / 1000)
            return Output(*process.communicate(input, max(CANCEL_POLL, left)))
        except subprocess.TimeoutExpired as error:
            if is_over:
                with process:  # closes its pipes
                    read = (
                        make_text(error.stdout, process.stdout),
                        make_text(error.stderr, process.stderr),
                    )
                    return Output(*read, is_cut=True)
        input = None  # communicate() refuses it a second time
        is_over = monotonic() >= deadline and process.poll() is not None  # then read once more


def wait_started(process: Launched, pipe: FileIO) -> None:
    """Wait until the launcher has started the command, which the timeout counts from, or has
    refused it.

    Only the first communicate() sends input in most versions of Python, so none may time out before
    the start.
    """
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    # If the launcher dies, another child of this program may have its end of the pipe.
    while not poller.poll(DEATH_PERIOD) and process.poll() is None:
        pass


def make_text(output: Optional[bytes], stream: object) -> Union[str, bytes, None]:
    """Return the first part of the output of a stream, as text if it is a stream of text."""
    if output is None or not isinstance(stream, TextIOWrapper):
        return output
    return TextIOWrapper(BytesIO(output), stream.encoding, "replace").read()


def end(process: Launched) -> None:
    """End a launcher. It forwards SIGTERM; SIGKILL would leave an orphan."""
    with process:  # closes its pipes
        process.terminate()
        try:
            process.wait(KILL_AFTER)
        except subprocess.TimeoutExpired:
            process.kill()


def find_place(
    via: Optional[str], directory: Optional[AnyPath], popen: Keywords
) -> dict[str, Optional[str]]:
    """Return the backend and the directory of names that the launcher used, as seen from this
    process. Raises SoloError.
    """
    env = popen.get("env")
    variables = (
        os.environb
        if env is None
        else {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    )
    options = read_options(via, directory, variables)
    backend = options.get("via", FILE)
    path = (
        os.path.join(os.fsdecode(popen.get("cwd") or ""), find_base(options.get("dir")))
        if backend == FILE
        else None
    )
    return {"via": backend, "directory": path}


def make_error(
    kind: str,
    where: str,
    text: str,
    via: Optional[str],
    directory: Optional[AnyPath],
    popen: Keywords,
) -> errors.SoloError:
    """Return the error that the launcher reported, a Busy with its holders at that backend."""
    if kind == errors.UsageError.__name__:
        text = name_keywords(text)
    error: errors.SoloError = getattr(errors, kind, errors.SoloError)(text)
    if isinstance(error, errors.Busy):
        error.name = where
        try:
            error.holders = (
                tuple(holders(where, **find_place(via, directory, popen))) if where else ()
            )
        except errors.SoloError:
            pass  # a damaged ticket: report Busy without holders
    return error
