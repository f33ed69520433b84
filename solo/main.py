"""argv decides: a guarded run, or something for people to read. The one place that prints errors and exits."""

import posix
import sys

from solo import guard
from solo.argv import parse
from solo.errors import Busy, SoloError, UsageError
from solo.kernel import decode, encode, say
from solo.options import DIR, HELP


def main():
    """Run the `solo` command with sys.argv. Does not return."""
    options = {}
    try:
        options, subcommand, words = parse(sys.argv[1:])
        if "version" in options:
            from solo import __version__

            posix.write(1, encode(f"solo {__version__}\n"))
            posix._exit(0)
        if DIR.key not in options and posix.environ.get(DIR.variable.encode()):
            options[DIR.key] = decode(posix.environ[DIR.variable.encode()])
        if subcommand and options.keys() - {DIR.key, HELP.key}:
            raise UsageError(f"before {subcommand} only --{DIR.flag} has a meaning")
        if subcommand or HELP.key in options:
            from solo.cli import run_subcommand

            sys.exit(run_subcommand(sys.argv[1:], options))
        if not words or not words[0]:
            raise UsageError("no command given (solo --help tells more)")
        guard.run(options, words)
    except SoloError as error:
        busy = isinstance(error, Busy)
        if not (busy and "quiet" in options):
            say(str(error))
        status = options.get("busy_exit", error.status) if busy else error.status
    except OSError as error:
        say(error.strerror or str(error))
        status = SoloError.status
    except Exception as error:
        say(f"this is a bug in solo: {type(error).__name__}: {error}")
        status = SoloError.status
    posix._exit(status)
