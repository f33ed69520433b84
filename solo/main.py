"""The command line decides: a guarded run, or a subcommand. Only this module prints errors and
exits.
"""

import posix
import sys
from time import time

from solo import launcher
from solo.argv import check_command, parse, read_variables
from solo.errors import Busy, RanAlready, SoloError, Superseded, UsageError
from solo.kernel import encode, say
from solo.options import HELP, PARTS, SUBCOMMAND_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.api.status_pipe import Report
    from solo.argv import Typed
    from solo.journal import Observer


def main(report: "Report | None" = None) -> None:
    """Run the `solo` command with sys.argv. Does not return. `report` is that to solo.run(), which
    started this process.
    """
    typed: Typed = {}
    words: list[str] | None = None
    observers: list[Observer] = [] if report is None else [report]
    try:
        if not sys.argv[1:]:
            from solo.text.hints import INTRODUCTION

            posix.write(2, INTRODUCTION)  # `solo` alone is a question, but in a script a mistake
            posix._exit(UsageError.status)
        typed, subcommand, words = parse(sys.argv[1:])
        if "version" in typed:
            from solo import __version__
            from solo.text.stdout import write_stdout

            write_stdout(encode(f"solo {__version__}\n"))
            posix._exit(0)
        if subcommand or HELP.key in typed:
            run_subcommand(typed, subcommand, words, observers)
        prepare(typed, words, [] if "explain" in typed else observers)
        if "explain" in typed:
            from solo.commands import explain

            posix._exit(explain.run(typed, words, launcher.Run, find_status))
        launcher.run(typed, words, observers)
    except SoloError as error:
        refusal = error
    except OSError as error:
        refusal = SoloError(f"cannot continue: {error.strerror or error}")
    except ModuleNotFoundError as error:
        from solo.text.missing import describe_missing

        refusal = SoloError(describe_missing(error.name))
    except (
        MemoryError,
        SystemError,
    ) as error:  # SystemError: Python's own mistakes, as where memory runs out
        refusal = SoloError(f"cannot continue: {str(error) or 'Cannot allocate memory'}")
    except ImportError as error:
        refusal = SoloError(f"cannot load a part of Python: {error}")
    except Exception as error:
        refusal = SoloError(f"this is a bug in solo: {type(error).__name__}: {error}")
    if words is None and report is None:
        refuse_check(refusal)
    posix._exit(refuse(refusal, typed, observers, report is not None))


def prepare(typed: "Typed", words: "list[str]", observers: "list[Observer]") -> None:
    """Add the options that the environment sets and the observers that the options ask for. Raises
    UsageError.
    """
    if not typed and words[:1] in (["ls"], ["ps"], ["kill"], ["rm"]):
        from solo.commands.lookup import warn_of_program

        warn_of_program(words)
    if any([part.key in typed for part in PARTS]):
        from solo.text.hints import report_earlier_spellings

        report_earlier_spellings(sys.argv[1 : len(sys.argv) - len(words)])
    if "syslog" in typed or "notify" in typed:
        observers += make_observers(typed)
    read_variables(typed, posix.environ)
    check_command(words, sys.argv[1:])


def run_subcommand(
    typed: "Typed", name: "str | None", words: "list[str]", observers: "list[Observer]"
) -> None:
    """Run a subcommand, or --help if `name` is None, and exit. Raises SoloError."""
    if name == "hold" and "--export" in words:
        from solo.commands.hold import Exporter

        observers.append(Exporter())
    from solo.commands import dispatch

    status = dispatch.run(typed, name, words[1:])
    if sys.stdout is not None:
        sys.stdout.flush()
    posix._exit(status)  # Python's own end would take a fifth of the time of `solo list`


def refuse_check(error: SoloError) -> None:
    """Answer as UNKNOWN, and exit, if `check` comes after an option that is wrong: a monitor reads
    the status.
    """
    typed = sys.argv[1 : [*sys.argv, "--"].index("--")]
    words = [word for word in typed if word[:1] != "-"][:2]  # the first may be a value
    if next((word for word in words if word in SUBCOMMAND_NAMES), "") == "check":
        from solo.commands.check import answer_error

        posix._exit(answer_error(error))


def refuse(error: SoloError, typed: "Typed", observers: "list[Observer]", is_reported: bool) -> int:
    """Report why nothing ran, on stderr unless an observer does. Return the exit status."""
    status = find_status(error, typed)
    is_silent = "quiet" in typed or (isinstance(error, RanAlready) and "verbose" not in typed)
    if not is_reported and (error.is_loud or not is_silent):
        say(str(error))
    for observer in observers:
        observer.refused(error)
    return status


def find_status(error: SoloError, typed: "Typed") -> int:
    """Decide whether the error is loud, and return its exit status."""
    error.is_loud = not isinstance(error, Busy) or is_loud(error, typed.get("loud_after"))
    if not error.is_loud:
        error.status = typed.get("busy_exit", error.status)
    return error.status


def is_loud(busy: Busy, limit: "int | float | None") -> bool:
    """Return whether --loud-after ends --quiet: after `limit` skips (int), or `limit` seconds of
    the holder (float).
    """
    if limit is None or isinstance(busy, (Superseded, RanAlready)):
        return False
    if isinstance(limit, int):
        # A start of another command ends the skips of the name, but not those of this line.
        return busy.skips is None or max(busy.skips, busy.own_skips) >= limit
    return busy.since is None or time() - busy.since >= limit


def make_observers(typed: "Typed") -> "list[Observer]":
    """Return the observers of --syslog and --notify that this Python can load: the command's status
    counts.
    """
    made: list[Observer] = []
    try:
        if "syslog" in typed:
            from solo.text.syslog import Syslog

            made.append(Syslog(typed))
    except (OSError, ImportError):
        pass
    if "notify" in typed:
        from solo.process.notify import Notifier

        made.append(Notifier(typed))  # the last one: it may wait
    return made
