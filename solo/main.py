"""argv decides: a guarded run, or something for people to read. The one place that prints errors and exits."""

import posix
import sys
from time import time

from solo import launcher
from solo.argv import parse, read_variables
from solo.errors import Busy, RanAlready, SoloError, Superseded, UsageError
from solo.kernel import encode, say
from solo.options import HELP


def main(report=None):
    """Run the `solo` command with sys.argv. Does not return. `report` is a Report to solo.run(), if that started us."""
    options = {}
    try:
        options, subcommand, words = parse(sys.argv[1:])
        if "version" in options:
            from solo import __version__

            posix.write(1, encode(f"solo {__version__}\n"))
            posix._exit(0)
        if subcommand or HELP.key in options:
            from solo.commands.cli import run_subcommand

            sys.exit(run_subcommand(sys.argv[1:], options, subcommand))
        if not options and words in (["kill"], ["ls"], ["ps"]):
            from solo.text.hints import warn_of_program

            warn_of_program(words[0])
        read_variables(options, posix.environ)
        if not words or not words[0]:
            raise UsageError("no command given (solo --help tells more)")
        launcher.run(options, words, report)
    except SoloError as error:
        busy = isinstance(error, Busy)
        discreet = busy and not is_loud(error, options.get("loud_after"))
        if report is not None:
            report.tell_error(error)
        elif not (discreet and ("quiet" in options or isinstance(error, RanAlready) and "verbose" not in options)):
            say(str(error))
        status = options.get("busy_exit", error.status) if discreet else error.status
        if "syslog" in options:
            launcher.log(f"{'skipped' if busy else 'not started'}: {error}", not discreet)
    except OSError as error:
        status = say_error(error.strerror or str(error), report)
    except ModuleNotFoundError as error:
        from solo.text.missing import describe_missing

        status = say_error(describe_missing(error.name), report)
    except MemoryError:
        status = say_error("cannot go on: Cannot allocate memory", report)
    except ImportError as error:
        status = say_error(f"cannot load a part of Python: {error}", report)
    except Exception as error:
        status = say_error(f"this is a bug in solo: {type(error).__name__}: {error}", report)
    posix._exit(status)


def say_error(text: str, report) -> int:
    if report is None:
        say(text)
    else:
        report.tell_error(SoloError(text))
    return SoloError.status


def is_loud(busy: Busy, limit) -> bool:
    """Must it be said, whatever --quiet says? After so many skips (int), or once the holder has run so long (float, seconds)."""
    if limit is None or isinstance(busy, (Superseded, RanAlready)):
        return False
    if isinstance(limit, int):
        return busy.skips is None or busy.skips >= limit
    return busy.since is None or time() - busy.since >= limit
