"""solo.run: as subprocess.run, but the command runs under a lock, through the launcher. Cold."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Optional, Union

from solo import errors
from solo.api.lock import check_name, check_wait, holders
from solo.api.blocking import keep
from solo.kernel import FOREVER
from solo.options import LAUNCHER_OPTIONS
from solo.plan import KILL_AFTER
from solo.api.status_pipe import OUTCOMES, STARTED, read_last

FLAGS = {option.flag for option in LAUNCHER_OPTIONS if option.kind == "flag"}
# As `solo` itself starts, without what Python would load for others, but with where the library of an engine may be. The words
# are: the pipe, `solo` - there to be found on the command line -, and what follows that.
LAUNCHER = """import sys, _signal
if _signal.getsignal(2) is _signal.default_int_handler:
    _signal.signal(2, _signal.SIG_DFL)
sys.path = [{root!r}, *sys.path, *{path!r}]
from solo.api.status_pipe import Report
report = Report(int(sys.argv[1]))
del sys.argv[:2]
from solo.main import main
main(report)"""

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def run(
    argv: Sequence[Path], *, name: Union[str, Sequence[str], None] = None, shared: bool = False, slots: Optional[int] = None,
    take: Optional[int] = None, wait: Optional[float] = None, max_waiting: Optional[int] = None, latest: bool = False,
    replace: bool = False, timeout: Optional[float] = None, kill_after: Optional[float] = None, tree: bool = False,
    no_orphan: bool = False, flock: Union[Path, Sequence[Path], None] = None, via: Optional[str] = None,
    ttl: Optional[float] = None, once_per: Optional[float] = None, once_retry: bool = False,
    directory: Union[str, "os.PathLike[str]", None] = None, check: bool = False, input: Any = None,
    capture_output: bool = False, **popen: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run the command `argv` (a sequence of words) under the lock of `name`, and wait for its end.

    The options are those of solo(1), spans in seconds; `wait=math.inf` waits for ever. Without `name` the command gives it. The
    others are those of subprocess.run, and its CompletedProcess is what this gives.

    Raises Busy if the name is held, with its `holders`, and RanAlready, a kind of it, if it ran in this period (`once_per`);
    Unreachable if the engine of `via` did not answer, and LeaseLost if what that kept was lost, and the command ended; NotFound,
    NotExecutable, UsageError or SoloError if the command could not be started; subprocess.TimeoutExpired if `timeout` seconds
    were not enough, when the command has ended, by SIGTERM or, after `kill_after` (10 s), by SIGKILL;
    subprocess.CalledProcessError with `check`.

    >>> run(["echo", "hello"], name="greeting", capture_output=True, text=True).stdout
    'hello\\n'
    """
    if isinstance(argv, (str, bytes)) or not argv:
        raise errors.UsageError("argv is a sequence of words, with a command in it")
    names = [check_name(one) for one in ([name] if isinstance(name, (str, bytes, os.PathLike)) else name or ())]
    files = [] if flock is None else [flock] if isinstance(flock, (str, bytes, os.PathLike)) else list(flock)
    words: list[Path] = []
    for flag, value in (
        *(("name", one) for one in names), *(("flock", one) for one in files), ("shared", shared), ("slots", slots), ("take", take),
        ("wait", format_span(wait)), ("max-waiting", max_waiting), ("latest", latest), ("replace", replace),
        ("timeout", format_span(timeout)), ("kill-after", format_span(kill_after)), ("tree", tree), ("no-orphan", no_orphan),
        ("via", via), ("ttl", format_span(ttl)), ("once-per", format_span(once_per)), ("once-retry", once_retry),
        ("dir", directory),
    ):
        if flag in FLAGS:
            words += [f"--{flag}"] if value else []
        elif isinstance(value, bool):
            raise errors.UsageError(f"{flag}={value}: not a number, a name or a path")
        elif value is not None:
            words += [f"--{flag}", os.fspath(value) if isinstance(value, (bytes, os.PathLike)) else str(value)]
    if capture_output:
        popen.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        popen["stdin"] = subprocess.PIPE
    code, report, stdout, stderr = launch([*words, "--", *argv], input, popen)
    said = read_last(report)
    if said is None:
        raise errors.SoloError(f"solo ended with status {code} before the command was started")
    kind, where, text = said
    if kind != STARTED:
        if kind == OUTCOMES[errors.TIMED_OUT]:
            raise subprocess.TimeoutExpired(list(argv), timeout or 0, stdout, stderr)
        if kind == OUTCOMES[errors.LEASE_LOST]:
            raise errors.LeaseLost(f"{argv[0]!r}: the lease was lost, and it was ended")
        raise make_error(kind, where, text, via, find_directory(directory, popen))
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess(list(argv), code, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def format_span(seconds: Optional[float]) -> Optional[str]:
    seconds = check_wait(seconds)
    return None if seconds is None else "forever" if seconds == FOREVER else f"{seconds:.3f}"


def launch(words: list[Path], input: Any, popen: dict[str, Any]) -> tuple[int, bytes, Any, Any]:
    """(Status, what the launcher reports, stdout, stderr)."""
    ours, theirs = map(keep, os.pipe())  # none of 0 to 2, should the program have closed those
    try:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        code = LAUNCHER.format(root=root, path=list(filter(None, sys.path)))
        launcher = [sys.executable, "-IS", "-c", code, str(theirs), "solo", *words]
        with subprocess.Popen(launcher, **{**popen, "pass_fds": (*popen.get("pass_fds", ()), theirs)}) as process:
            os.close(theirs)
            theirs = -1
            try:
                stdout, stderr = process.communicate(input)
            except BaseException:
                process.terminate()  # the command, through the launcher: killed, it would leave an orphan
                try:
                    process.wait(KILL_AFTER)
                except subprocess.TimeoutExpired:
                    process.kill()
                raise
        os.set_blocking(ours, False)
        try:
            report = os.read(ours, 1 << 16)
        except BlockingIOError:
            report = b""
        return process.returncode, report, stdout, stderr
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def find_directory(directory: Any, popen: dict[str, Any]) -> Any:
    """Where the launcher looked for names, as seen from here."""
    if directory is None:
        directory = (popen.get("env") or {}).get("SOLO_DIR")
    return directory and os.path.join(popen.get("cwd") or "", directory)


def make_error(kind: str, where: str, text: str, via: Any, directory: Any) -> errors.SoloError:
    error: errors.SoloError = getattr(errors, kind, errors.SoloError)(text)
    if isinstance(error, errors.Busy):
        error.name = where
        try:
            error.holders = tuple(holders(where, via=via, directory=directory)) if where else ()
        except errors.SoloError:
            pass  # of what is garbage there; that it is busy is what counts
    return error
