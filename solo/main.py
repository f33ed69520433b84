"""The command line decides: a guarded run, or a subcommand. Only this module prints errors and exits."""

import posix
import sys
from time import time

from solo import launcher
from solo.argv import parse, read_variables
from solo.errors import Busy, RanAlready, SoloError, Superseded, UsageError
from solo.kernel import encode, say
from solo.options import HELP


def main(report=None):
    """Run the `solo` command with sys.argv.

    Does not return. `report` is the Report to solo.run(), if that started this process.
    """
    typed, listeners = {}, [] if report is None else [report]
    try:
        typed, subcommand, words = parse(sys.argv[1:])
        if "version" in typed:
            print_version()
        if "syslog" in typed:
            listeners += make_syslog_listener()
        if subcommand or HELP.key in typed:
            from solo.commands.cli import run_subcommand

            sys.exit(run_subcommand(sys.argv[1:], typed, subcommand))
        if not typed and words in (["kill"], ["ls"], ["ps"]):
            from solo.text.hints import warn_of_program

            warn_of_program(words[0])
        read_variables(typed, posix.environ)
        if not words or not words[0]:
            raise UsageError("no command given (solo --help tells more)")
        launcher.run(typed, words, listeners)
    except SoloError as error:
        status = refuse(error, typed, listeners, report)
    except OSError as error:
        status = print_error(error.strerror or str(error), report)
    except ModuleNotFoundError as error:
        from solo.text.missing import describe_missing

        status = print_error(describe_missing(error.name), report)
    except MemoryError:
        status = print_error("cannot go on: Cannot allocate memory", report)
    except ImportError as error:
        status = print_error(f"cannot load a part of Python: {error}", report)
    except Exception as error:
        status = print_error(f"this is a bug in solo: {type(error).__name__}: {error}", report)
    posix._exit(status)


def refuse(error: SoloError, typed: dict, listeners: list, report) -> int:
    """Report why nothing ran. Return the exit status."""
    error.is_loud = not isinstance(error, Busy) or is_loud(error, typed.get("loud_after"))
    is_silent = "quiet" in typed or isinstance(error, RanAlready) and "verbose" not in typed
    if report is None and (error.is_loud or not is_silent):
        say(str(error))
    for listener in listeners:
        listener.refused(error)
    return error.status if error.is_loud else typed.get("busy_exit", error.status)


def is_loud(busy: Busy, limit) -> bool:
    """Return whether --loud-after ends --quiet: after `limit` skips (int), or `limit` seconds of the holder (float)."""
    if limit is None or isinstance(busy, (Superseded, RanAlready)):
        return False
    if isinstance(limit, int):
        return busy.skips is None or busy.skips >= limit
    return busy.since is None or time() - busy.since >= limit


def print_error(text: str, report) -> int:
    if report is None:
        say(text)
    else:
        report.refused(SoloError(text))
    return SoloError.status


def print_version():
    from solo import __version__

    posix.write(1, encode(f"solo {__version__}\n"))
    posix._exit(0)


def make_syslog_listener() -> list:
    """Return the listener of --syslog, or none where this Python has no syslog: the command's status counts."""
    try:
        from solo.text.syslog import Syslog

        return [Syslog()]
    except (OSError, ImportError):
        return []
