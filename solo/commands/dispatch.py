"""Run a subcommand: `hold` and `release` by the parser of a guarded run, the others by typer."""

import posix
import sys
from _io import TextIOWrapper  # io loads two more modules in Python 3.14
from _signal import SIG_DFL, SIGCHLD, SIGPIPE, signal

from solo.argv import check_excludes, parse_option, read_variable
from solo.commands.table import KEPT, Kept
from solo.errors import UsageError
from solo.kernel import occupy_standard_descriptors
from solo.kinds import DURATION, LIMIT
from solo.options import DIR, HELP, PARTS, VIA, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WITHOUT_VIA = (*KEPT, "clean")
PLAIN_FLAGS = {"--json": "json", "--null": "null", "-0": "null"}  # of list, where typer is missing


def run(before: "dict[str, Any]", name: "str | None", words: "list[str]") -> int:
    """Run the subcommand `name` with the `words` after it, or print help. Return the exit status. Raises SoloError.

    `before` are the options before it.
    """
    signal(SIGPIPE, SIG_DFL)  # `solo list | head` prints no error
    signal(SIGCHLD, SIG_DFL)  # else the kernel reaps our children, and their status is lost
    occupy_standard_descriptors()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    elif name not in KEPT:  # these print nothing
        raise UsageError("stdout is closed")
    if name is None or HELP.key in before:
        from solo.commands.help import format_brief_help, format_help, paint

        print(paint(format_help() if "--help" in sys.argv else format_brief_help()))
        return 0
    check_before(before, name)
    if name in KEPT:
        return keep(before, name, words)
    try:
        from solo.commands import cli
    except ModuleNotFoundError:
        if name != "list":
            raise
        return list_plainly(before, words)

    def check(names: "list[str]", timed: "list[str]", directory: "str | None") -> None:
        check_words(words, names)
        check_units(words, timed, directory)

    typed_before = [f"--{key}={value}" for key, value in before.items()]
    return cli.run(name, typed_before + words, check)


def keep(before: "dict[str, Any]", name: str, words: "list[str]") -> int:
    """Run hold or release."""
    kept = KEPT[name]
    options, names = parse_mixed(words, (*kept.options, HELP))
    check_words(words, names)
    if HELP.key in options:
        from solo.commands.help import format_kept_help, paint

        print(paint(format_kept_help(name)))
        return 0
    before.update(options)  # main asks it for --quiet and --busy-exit
    check_excludes(before, (*kept.options, *PARTS))
    read_variable(before, DIR, posix.environ)
    check_units(words, list_timed(kept), before.get(DIR.key))
    if not names:
        raise UsageError(f"{name}: no name given (solo list shows them)")
    if any(part.key in before for part in PARTS):
        from solo.text.hints import report_earlier_spellings

        report_earlier_spellings(words)
    command = __import__(f"solo.commands.{name}", fromlist=["run"])  # importlib imports warnings
    return int(command.run(before, names))


def list_plainly(before: "dict[str, Any]", words: "list[str]") -> int:
    """Run `solo list` without typer. Raises ModuleNotFoundError for words that need it."""
    names = [word for word in words if word not in PLAIN_FLAGS]
    if any(word[:1] == "-" for word in names):
        raise ModuleNotFoundError(name="typer")
    for option in (DIR, VIA):
        read_variable(before, option, posix.environ)
    from solo.commands import list

    return int(list.run({**before, **{PLAIN_FLAGS[word]: True for word in words if word in PLAIN_FLAGS}}, names))


def parse_mixed(words: "list[str]", table: "tuple[Option, ...]") -> "tuple[dict[str, Any], list[str]]":
    """Parse the words after a subcommand, names and the options of `table` in any order.

    Return (options by key, names). Raises UsageError.
    """
    parts = [option.part for option in table if option.part is not None]
    known = {"--" + option.flag: option for option in (*table, *parts)}
    known.update({"-" + option.short: option for option in table if option.short})
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
            at = parse_option(options, words, at, known, known)
    return options, names


def check_words(words: "list[str]", names: "list[str]") -> None:
    """Raise UsageError for words that look like a command: they would be names."""
    after = words[words.index("--") + 1 :] if "--" in words else []
    if after and len(names) > len(after):
        raise UsageError("a subcommand runs no command (solo -n NAME -- COMMAND does)")


def list_timed(kept: Kept) -> "list[str]":
    """Return the flags of its options whose value is a duration."""
    timed = [option for option in kept.options if option.kind in (DURATION, LIMIT)]
    return [f"--{option.flag}" for option in timed] + [f"-{option.short}" for option in timed if option.short]


def check_units(words: "list[str]", flags: "list[str]", directory: "str | None") -> None:
    """Raise UsageError for a duration of two words after one of `flags`, as `-k 5 m`, unless m is a known name."""
    for flag, number, unit in zip(words, words[1:], words[2:]):
        if flag in flags and number.isdecimal():
            from solo.commands.lookup import has_traces
            from solo.text.hints import UNITS_OF_TIME

            if unit.lower() in UNITS_OF_TIME and not has_traces(unit, directory):
                remedy = f"for a name {unit}: {flag} {number}s {unit}"
                raise UsageError(f"{flag} {number} {unit}: a duration is one word, like 30s, 5m, 2h ({remedy})")


def check_before(before: "dict[str, Any]", name: str) -> None:
    """Raise UsageError for options before the subcommand that it does not have."""
    known = (DIR,) if name in WITHOUT_VIA else (DIR, VIA)
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(f"only {flags} may precede {name} (to run a program of this name, type -- before it)")
