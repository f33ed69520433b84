"""Run a subcommand. Its words are parsed like those of a guarded run; typer is loaded for --help and errors only."""

import posix
import sys
from _io import TextIOWrapper  # io loads two more modules in Python 3.14
from _signal import SIG_DFL, SIGCHLD, SIGPIPE, signal

from solo.argv import check_excludes, parse_option, read_variable
from solo.commands.table import SUBCOMMANDS, Subcommand
from solo.errors import UsageError
from solo.kernel import occupy_standard_descriptors
from solo.kinds import DURATION, LIMIT
from solo.options import DIR, HELP, VIA, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PRINT_NOTHING = ("hold", "release")  # these work with stdout closed


def run(before: "dict[str, Any]", name: "str | None", words: "list[str]") -> int:
    """Run the subcommand `name` with the `words` after it. Return the exit status. Raises SoloError.

    `before` are the options before it, to which those after it are added.
    """
    subcommand = next((one for one in SUBCOMMANDS if one.name == name), None)
    signal(SIGPIPE, SIG_DFL)  # `solo list | head` prints no error
    signal(SIGCHLD, SIG_DFL)  # else the kernel reaps our children, and their status is lost
    occupy_standard_descriptors()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    elif name not in PRINT_NOTHING:
        raise UsageError("stdout is closed")
    if subcommand is None or name is None or HELP.key in before:
        return print_help(sys.argv[1:], None)
    check_before(before, subcommand)
    try:
        typed, names = parse_mixed(words, (*subcommand.options, HELP))
        check_words(words, names)
        if names and not subcommand.arguments:
            raise UsageError(f"{name} takes no names")
    except UsageError:
        try:
            run_typer([name, *words])  # explains the error in its own words
        except ModuleNotFoundError:
            pass
        raise
    if HELP.key in typed:
        return print_help([name, "--help"], subcommand)
    before.update(typed)
    check_excludes(before, subcommand.options)
    for option in find_common(subcommand):
        if option.variable is not None:
            read_variable(before, option, posix.environ)
    check_units(words, subcommand.options, before)
    if subcommand.needs_name and not names:
        raise UsageError(f"{name}: no name given (solo list shows them)")
    command = __import__(f"solo.commands.{name}", fromlist=["run"])  # importlib imports warnings
    return int(command.run(before, names))


def parse_mixed(words: "list[str]", table: "tuple[Option, ...]") -> "tuple[dict[str, Any], list[str]]":
    """Parse the words after a subcommand, names and the options of `table` in any order.

    Return (options by key, names). Raises UsageError.
    """
    short = {"-" + option.short: option for option in table if option.short}
    long = {"--" + option.flag: option for option in table}
    options: dict[str, Any] = {}
    names: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            return options, names + words[at:]
        if word[:1] != "-" or word == "-":
            names.append(word)
        else:
            at = parse_option(options, words, at, long, short)
    return options, names


def check_words(words: "list[str]", names: "list[str]") -> None:
    """Raise UsageError for words that look like a command: they would be names."""
    after = words[words.index("--") + 1 :] if "--" in words else []
    if after and len(names) > len(after):
        raise UsageError("a subcommand runs no command (solo -n NAME -- COMMAND does)")


def check_units(words: "list[str]", options: "tuple[Option, ...]", typed: "dict[str, Any]") -> None:
    """Raise UsageError for a duration of two words, as `-k 5 m`, unless m is a known name."""
    timed = [option for option in options if option.kind in (DURATION, LIMIT)]
    flags = [f"--{option.flag}" for option in timed] + [f"-{option.short}" for option in timed if option.short]
    for flag, number, unit in zip(words, words[1:], words[2:]):
        if flag in flags and number.isdecimal():
            from solo.commands.lookup import has_traces
            from solo.text.hints import UNITS_OF_TIME

            if unit.lower() in UNITS_OF_TIME and not has_traces(unit, typed.get(DIR.key)):
                raise UsageError(
                    f"{flag} {number} {unit}: a duration is one word, like 30s, 5m, 2h (for a name {unit}: {flag} {number}s {unit})"
                )


def print_help(words: "list[str]", subcommand: "Subcommand | None") -> int:
    """Print the help that `words` ask for; without typer that of `subcommand`, or of solo. Return 0. Raises UsageError."""
    try:
        return run_typer(words)
    except ModuleNotFoundError:
        from solo.commands.help import format_help, format_subcommand_help, paint

        print(paint(format_subcommand_help(subcommand) if subcommand else format_help()))
        return 0


def run_typer(words: "list[str]") -> int:
    from solo.commands import cli

    return int(cli.run(words))


def find_common(subcommand: Subcommand) -> "list[Option]":
    """Return its options that may also come before it, or be set in the environment."""
    return [option for option in subcommand.options if option.key in (DIR.key, VIA.key)]


def check_before(before: "dict[str, Any]", subcommand: Subcommand) -> None:
    """Raise UsageError for options that it does not have."""
    known = find_common(subcommand)
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(
            f"only {flags} may precede {subcommand.name} (to run a program of this name, type -- before it)"
        )
