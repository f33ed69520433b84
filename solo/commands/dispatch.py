"""Run a subcommand: `hold` and `release` by the parser of a guarded run, the others by typer."""

import posix
import sys
from _signal import SIG_DFL, SIGCHLD, SIGPIPE, signal

from solo.argv import check_excludes, parse_option, read_variable
from solo.commands.lookup import check_names, check_units, check_words
from solo.commands.table import KEPT, KEPT_HELP
from solo.errors import UsageError
from solo.kernel import occupy_standard_descriptors
from solo.kinds import DURATION, LIMIT
from solo.options import DIR, HELP, PARTS, VIA, Option
from solo.text.stdout import replace_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WITHOUT_VIA = ("hold", "clean")
PLAIN_FLAGS = {
    "--json": "json",
    "--null": "null",
    "-0": "null",
    "--all": "all",
}  # of list, where typer is missing


def run(before: "dict[str, Any]", name: "str | None", words: "list[str]") -> int:
    """Run subcommand `name` with options `before` it and `words` after it, or print help. Return
    the exit status.
    """
    signal(SIGPIPE, SIG_DFL)  # `solo list | head` prints no error
    signal(SIGCHLD, SIG_DFL)  # else the kernel reaps our children, and their status is lost
    occupy_standard_descriptors()
    if sys.stdout is not None or name not in KEPT:  # these print nothing
        replace_stdout()
    if name is None or HELP.key in before:
        from solo.commands.help import format_brief_help, format_help, paint

        print(paint(format_help() if "--help" in sys.argv else format_brief_help()))
        return 0
    known = (DIR,) if name in WITHOUT_VIA else (DIR, VIA)
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(
            f"only {flags} may precede {name} (to run a program of this name, type -- before it)"
        )
    if name in KEPT:
        return keep(before, name, words)
    try:
        from solo.commands import cli
    except ModuleNotFoundError:
        if name != "list":
            raise
        return list_plainly(before, words)

    return cli.run(name, [f"--{key}={value}" for key, value in before.items()], words)


def keep(before: "dict[str, Any]", name: str, words: "list[str]") -> int:
    """Run hold or release."""
    kept = KEPT[name]
    options, names = parse_mixed(words, (*kept.options, KEPT_HELP))
    check_words(words, names)
    if KEPT_HELP.key in options:
        from solo.commands.help import format_kept_help, paint

        print(paint(format_kept_help(name)))
        return 0
    before.update(options)  # main asks it for --quiet and --busy-exit
    check_excludes(before, (*kept.options, *PARTS))
    read_variable(before, DIR, posix.environ)
    timed = [option for option in kept.options if option.kind in (DURATION, LIMIT)]
    flags = [f"--{one.flag}" for one in timed] + [f"-{one.short}" for one in timed if one.short]
    check_units(words, flags, before.get(DIR.key))
    if not names:
        remedy = (
            "in a script: solo hold --pid $$ NAME" if name == "hold" else "solo list shows them"
        )
        raise UsageError(f"{name}: no name given ({remedy})")
    if any(part.key in before for part in PARTS):
        from solo.text.hints import report_earlier_spellings

        report_earlier_spellings(words)
    check_names(names)
    command = __import__(f"solo.commands.{name}", fromlist=["run"])  # importlib imports warnings
    return int(command.run(before, names))


def list_plainly(before: "dict[str, Any]", words: "list[str]") -> int:
    """Run `solo list` without typer. Raises ModuleNotFoundError for words that need it."""
    names = [word for word in words if word not in PLAIN_FLAGS]
    if any(word[:1] == "-" for word in names):
        raise ModuleNotFoundError(name="typer")
    for option in (DIR, VIA):
        read_variable(before, option, posix.environ)
    options = {**before, **{PLAIN_FLAGS[word]: True for word in words if word in PLAIN_FLAGS}}
    if options.pop("all", False):
        from solo.commands import states

        return int(states.run(options, names))
    from solo.commands import list

    return int(list.run(options, names))


def parse_mixed(
    words: "list[str]", table: "tuple[Option, ...]"
) -> "tuple[dict[str, Any], list[str]]":
    """Return (options by key, names) of the words after a subcommand, in any order. Raises
    UsageError.
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
