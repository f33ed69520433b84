"""Run a subcommand. The parser of a guarded run reads its words, on a terminal typer draws its
help: both from the table in cli.py.
"""

import posix
import sys
from _signal import SIG_DFL, SIGCHLD, SIGPIPE, signal

from solo.argv import check_excludes, parse_option, read_variable
from solo.commands.cli import HELP, SINCE, SUBCOMMANDS, WITHIN, Subcommand
from solo.commands.lookup import Asked, check_names, check_units, check_words
from solo.errors import UsageError
from solo.kernel import occupy_standard_descriptors
from solo.kinds import AGE, DURATION, LIMIT
from solo.options import DIR, PARTS, VIA, Option
from solo.text.stdout import replace_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.argv import Typed

OF_SCRIPTS = ("hold", "release")  # which print nothing, and whose help is always plain
TIMES = (DURATION, LIMIT, AGE, SINCE, WITHIN)


def run(before: "Typed", name: "str | None", words: "list[str]") -> int:
    """Run subcommand `name` with options `before` it and `words` after it, or print help. Return
    the exit status.
    """
    if name != "check":
        return run_any(before, name, words)
    from solo.commands.check import answer_errors

    return answer_errors(lambda: run_any(before, name, words))


def run_any(before: "Typed", name: "str | None", words: "list[str]") -> int:
    """Do as `run`. Raises SoloError."""
    signal(SIGPIPE, SIG_DFL)  # `solo list | head` prints no error
    signal(SIGCHLD, SIG_DFL)  # else the kernel reaps our children, and their status is lost
    occupy_standard_descriptors()
    if sys.stdout is not None or name not in OF_SCRIPTS:
        replace_stdout()
    if name is None or HELP.key in before:
        from solo.commands.help import format_brief_help, format_help, paint

        print(paint(format_help() if "--help" in sys.argv else format_brief_help()))
        return 0
    one = SUBCOMMANDS[name]
    keys = {option.key for option in one.options}
    known = [option for option in (DIR, VIA) if option.key in keys]
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(
            f"only {flags} may precede {name}, other options follow it (to run a program of this "
            "name, type -- before it)"
        )
    options, names = parse_mixed(words, (*one.options, HELP))
    if HELP.key in options:
        print_help(one)
        return 0
    before.update(options)  # main asks it for --quiet and --busy-exit
    check(one, before, words, names)
    module = "states" if before.pop("all", False) else name
    command = __import__(f"solo.commands.{module}", fromlist=["run"])  # importlib imports warnings
    return int(command.run(before if name == "hold" else Asked(**before), names))


def print_help(one: Subcommand) -> None:
    """Print the help of a subcommand: as typer draws it on a terminal, else plain."""
    if one.name not in OF_SCRIPTS and posix.isatty(1):
        try:
            from solo.commands import by_typer

            return by_typer.print_help(one)
        except ModuleNotFoundError:
            pass
    from solo.commands.help import format_subcommand_help, paint

    print(paint(format_subcommand_help(one)))


def check(one: Subcommand, options: "Typed", words: "list[str]", names: "list[str]") -> None:
    """Add options from the environment. Raises UsageError for what does not go together."""
    check_words(words, names)
    check_excludes([option for option in (*one.options, *PARTS) if option.key in options])
    for option in one.options:
        if option.variable:
            read_variable(options, option, posix.environ)
    timed = [option for option in one.options if option.kind in TIMES]
    flags = [f"--{one.flag}" for one in timed] + [f"-{one.short}" for one in timed if one.short]
    check_units(words, flags, options.get(DIR.key))
    if not names and not one.names.may_lack:
        remedy = "solo list shows them"
        if one.name == "hold":
            remedy = "in a script: solo hold --pid $$ NAME"
        raise UsageError(f"{one.name}: no name given ({remedy})")
    if any(part.key in options for part in PARTS):
        from solo.text.hints import report_earlier_spellings

        report_earlier_spellings(words)
    if not one.names.are_files:
        check_names(names)


def parse_mixed(words: "list[str]", table: "tuple[Option, ...]") -> "tuple[Typed, list[str]]":
    """Return (options by key, names) of the words after a subcommand, in any order. Raises
    UsageError.
    """
    parts = [option.part for option in table if option.part is not None]
    known = {"--" + option.flag: option for option in (*table, *parts)}
    known.update({"-" + option.short: option for option in table if option.short})
    options: Typed = {}
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
            at = parse_option(options, words, at, known, known)
    return options, names
