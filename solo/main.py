"""argv decides: a guarded run, or something for people to read. The one place that prints errors and exits."""

import posix
import sys
from time import time

from solo import guard
from solo.argv import check_via, parse
from solo.errors import Busy, SoloError, Superseded, UsageError
from solo.kernel import decode, encode, say
from solo.options import DIR, FILE, HELP, LOUD_AFTER, SOCKET, VIA


def main():
    """Run the `solo` command with sys.argv. Does not return."""
    options = {}
    try:
        options, subcommand, words = parse(sys.argv[1:])
        if "version" in options:
            from solo import __version__

            posix.write(1, encode(f"solo {__version__}\n"))
            posix._exit(0)
        if subcommand and options.keys() - {DIR.key, VIA.key, HELP.key}:
            raise UsageError(f"before {subcommand} only --{DIR.flag} and --{VIA.flag} have a meaning")
        read_variables(options)
        if subcommand or HELP.key in options:
            from solo.cli import run_subcommand

            sys.exit(run_subcommand(sys.argv[1:], options))
        if not words or not words[0]:
            raise UsageError("no command given (solo --help tells more)")
        guard.run(options, words)
    except SoloError as error:
        busy = isinstance(error, Busy)
        discreet = busy and not is_loud(error, options.get("loud_after"))
        if not (discreet and "quiet" in options):
            say(str(error))
        status = options.get("busy_exit", error.status) if discreet else error.status
        if "syslog" in options:
            guard.log(f"{'skipped' if busy else 'not started'}: {error}", not discreet)
    except OSError as error:
        say(error.strerror or str(error))
        status = SoloError.status
    except Exception as error:
        say(f"this is a bug in solo: {type(error).__name__}: {error}")
        status = SoloError.status
    posix._exit(status)


def read_variables(options: dict):
    """What was not typed, from the environment. Raises UsageError."""
    for option in (VIA, DIR):
        value = posix.environ.get(option.variable.encode())
        if value and option.key not in options and not (option is DIR and options.get(VIA.key) == SOCKET):
            options[option.key] = decode(value)
    check_via(options.get(VIA.key, FILE))
    if options.get(VIA.key) == SOCKET:
        if DIR.key in options:
            raise UsageError("--dir makes no sense with --via socket: it keeps no file")
        if isinstance(options.get(LOUD_AFTER.key), int):
            raise UsageError("--loud-after can not count with --via socket, which keeps no file: give a duration")


def is_loud(busy: Busy, limit) -> bool:
    """Must it be said, whatever --quiet says? After so many skips (int), or once the holder has run so long (float, seconds)."""
    if limit is None or isinstance(busy, Superseded):
        return False
    if isinstance(limit, int):
        return busy.skips is None or busy.skips >= limit
    return busy.since is None or time() - busy.since >= limit
