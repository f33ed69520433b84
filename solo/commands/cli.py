"""The subcommands that people type: typer parses their words by the signatures here, and prints
their help by rich.
"""

import os
import sys
from datetime import datetime, timedelta
from time import time
from typing import Any, Callable, Optional, TypeVar

import typer
from typer.core import TyperCommand

from solo.argv import check_variable
from solo.commands.lookup import check_names, check_units, check_words
from solo.errors import UsageError
from solo.kinds import is_number, read_duration, read_word
from solo.options import DIR, VIA

DURATION, WHERE, FOLDER, FILE, SINCE, COUNT = (
    "DURATION",
    "WHERE",
    "DIR",
    "FILE",
    "DURATION|DATE",
    "N",
)  # completions know the kind of a value by these


def read_value(context: typer.Context, parameter: typer.CallbackParam, word: Optional[str]) -> Any:
    """Return the value of an option. Raises UsageError, also for a relative path in the
    environment.
    """
    flag = max(parameter.opts, key=len)
    if word is None:
        return None
    if parameter.metavar == DURATION:
        return read_duration(flag, read_word(flag, word))
    source = context.get_parameter_source(str(parameter.name))
    if flag == "--dir" and word and source is not None and source.name == "ENVIRONMENT":
        check_variable(DIR, word)
    return read_word(flag, word)


def read_age(context: typer.Context, parameter: typer.CallbackParam, word: Optional[str]) -> Any:
    """Do as read_value, but refuse 30 for 30 days: what is removed does not come back."""
    if word and is_number(word) and float(word):
        raise UsageError(
            f"{parameter.opts[0]} {word}: needs a unit (like {word}d for days, {word}s for seconds)"
        )
    return read_value(context, parameter, word)


def read_since(context: typer.Context, parameter: typer.CallbackParam, word: Optional[str]) -> Any:
    """Return the moment that a duration ago, a date or the begin of a day means. Raises
    UsageError.
    """
    if word is None:
        return None
    word = read_word("--since", word)
    if word in ("today", "yesterday"):
        day = datetime.now().date() - timedelta(days=word == "yesterday")
        word = day.isoformat()
    try:
        return max(0.0, datetime.fromisoformat(word).timestamp())
    except ValueError:
        pass
    try:
        return max(0.0, time() - read_duration("--since", word))
    except UsageError:
        examples = "(like 12h, 2d, yesterday, 2026-01-31 or '2026-01-31 03:00')"
        raise UsageError(f"--since {word}: not a duration or a date {examples}") from None


def read_limit(context: typer.Context, parameter: typer.CallbackParam, word: Optional[str]) -> Any:
    if word is not None and not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{parameter.opts[0]} {word}: not a number above 0")
    return None if word is None else int(word)


def declare(
    flags: str, help: str, metavar: Optional[str] = None, read: Any = read_value, **rest: Any
) -> Any:
    """Return an option of typer, by default None, or without a metavar False."""
    if metavar is None:
        return typer.Option(False, *flags.split(), help=help)
    return typer.Option(None, *flags.split(), help=help, metavar=metavar, callback=read, **rest)


def declare_names(help: str, metavar: str = "NAME...") -> Any:
    return typer.Argument(
        None if metavar[0] == "[" else ..., metavar=metavar, help=help, show_default=False
    )


Words = Optional[list[str]]
Text = Optional[str]
ONLY_NAMES = declare_names(
    "Only these names, and all names nested in them. Default: all names.", "[NAME]..."
)
DIRECTORY = declare("--dir", DIR.help, FOLDER, envvar=DIR.variable, show_envvar=False)
BACKEND = declare("--via", VIA.help, WHERE, envvar=VIA.variable, show_envvar=False)
ALLOW_UNKNOWN = declare("--allow-unknown", "Accept a name that was never used")
JSON = declare("--json", "Print a JSON array")
Function = TypeVar("Function", bound=Callable[..., None])


class Subcommand(TyperCommand):
    """A subcommand whose help is the same in all versions of typer."""

    def collect_usage_pieces(self, ctx: Any) -> "list[str]":
        """Return the words of the usage line. Some versions put more dots and brackets around a
        metavar.
        """
        return [
            "[OPTION]...",
            *[str(one.metavar) for one in self.params if one.param_type_name == "argument"],
        ]

    def get_params(self, ctx: Any) -> "list[Any]":
        """Return the parameters. Newer versions show a flag that lacks a metavar as one with a
        value, <bool>.
        """
        found = super().get_params(ctx)
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found


app = typer.Typer(add_completion=False)


def subcommand(help: str) -> Callable[[Function], Function]:
    """Return a decorator that makes a function a subcommand, called as the function.

    What it does is no docstring: compiled into the one file of an installation, it has none.
    """

    def add(function: Function) -> Function:
        settings = {"help_option_names": ["-h", "--help"]}
        name = function.__name__.rstrip("_")
        return app.command(name, cls=Subcommand, help=help, context_settings=settings)(function)

    return add


@subcommand(
    "List the holders and waiters of each name, or of the NAMEs and the names nested in them; with "
    "--all "
    "the last run and the health of each job, held or not."
)
def list_(
    names: Words = ONLY_NAMES,
    all: bool = declare("--all", "A row for each name known, bad states first"),
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    json: bool = JSON,
    null: bool = declare("-0 --null", "Print only the names, each ended by a NUL byte"),
) -> None: ...


@subcommand(
    "Show the holders of each NAME and their processes, the queue, the last runs, and the paths of "
    "its files."
)
def show(
    names: "list[str]" = declare_names("The names to show."),
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    json: bool = JSON,
) -> None: ...


@subcommand(
    "Wait until no process holds or wants any of the names. The exit status is 0 then, 75 after "
    "--timeout, 125 if one is unknown."
)
def wait(
    names: "list[str]" = declare_names("The names to wait for."),
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    timeout: Text = declare("-t --timeout", "Give up after DURATION, with status 75", DURATION),
    allow_unknown: bool = ALLOW_UNKNOWN,
) -> None: ...


@subcommand(
    "End the holders of the names, by SIGTERM and then SIGKILL, and print what was done; it is an "
    "error if only nested ones are held."
)
def stop(
    names: "list[str]" = declare_names("The names whose holders are to end."),
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    kill_after: Text = declare("-k --kill-after", "Time from SIGTERM to SIGKILL (10s)", DURATION),
    waiting: bool = declare("--waiting", "End the waiters too, not only the holders"),
    allow_unknown: bool = ALLOW_UNKNOWN,
) -> None: ...


@subcommand(
    "Show each run and each skip: when it started or was skipped, how long it waited and ran, and "
    "how it ended."
)
def history(
    names: Words = ONLY_NAMES,
    dir: Text = DIRECTORY,
    via: Text = declare("--via", "Show the last runs that an engine keeps", WHERE),
    since: Text = declare(
        "--since", "Omit what ended before: 12h, yesterday, 2026-01-31", SINCE, read_since
    ),
    failed: bool = declare("--failed", "Only runs that failed, or whose end is unknown"),
    limit: Text = declare("--limit", "Only the last N", COUNT, read_limit),
    json: bool = JSON,
) -> None: ...


@subcommand(
    "Print the numbers of holds, waiters, runs, skips and failures, and their times, as text for "
    "Prometheus."
)
def metrics(
    names: Words = ONLY_NAMES,
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    output: Text = declare("--output", "Write to FILE, replacing it atomically", FILE),
) -> None: ...


@subcommand(
    "Show holders and waiters live, with CPU time and memory; the key s stops the selected one."
)
def top(names: Words = ONLY_NAMES, dir: Text = DIRECTORY, via: Text = BACKEND) -> None: ...


@subcommand(
    "Remove idle names (--generated: only those made from commands), and files left by dead "
    "processes. Jobs may start meanwhile."
)
def clean(
    names: Words = ONLY_NAMES,
    dir: Text = DIRECTORY,
    generated: bool = declare("--generated", "Only names that solo made from commands"),
    history: Text = declare(
        "--history", "Also remove journals of names idle for DURATION", DURATION, read_age
    ),
) -> None: ...


@subcommand(
    "Check that this machine and user, and with --via the engine, have all that solo needs; with "
    "--crontab or --unit check FILEs, see solo(7). The status is 1 if a check fails."
)
def doctor(
    names: Words = declare_names(
        "Crontabs or units, or directories of them; - is standard input.", "[FILE]..."
    ),
    dir: Text = DIRECTORY,
    via: Text = BACKEND,
    crontab: bool = declare("--crontab", "Check crontabs: FILEs, or those of cron"),
    unit: bool = declare("--unit", "Check systemd units: FILEs, names, or the local ones"),
    json: bool = JSON,
) -> None: ...


def run(name: str, before: "list[str]", words: "list[str]") -> int:
    """Run a subcommand with options `before` it and `words` after it, or print its help. Raises
    SoloError.
    """
    command = get_commands()[name]
    if not {"-h", "--help"}.isdisjoint(words):
        choose_colors()
    try:
        with command.make_context(f"solo {name}", before + words) as context:
            timed = [
                flag
                for parameter in command.params
                if parameter.metavar in (DURATION, SINCE)
                for flag in parameter.opts
            ]
            typed = {
                key: value
                for key, value in context.params.items()
                if value is not None and value is not False
            }
            names = [*typed.pop("names", ())]
            check_words(words, names)
            check_units(words, timed, typed.get("dir"))
            check_names([] if name == "doctor" else names)  # of which they are files
            module = "states" if typed.pop("all", False) else name
            return int(__import__(f"solo.commands.{module}", fromlist=["run"]).run(typed, names))
    except typer.Exit as end:  # after --help
        return end.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise UsageError(describe(name, error)) from None


def choose_colors() -> None:
    """Let help be plain text in a pipe, also in CI, and where NO_COLOR is set, as tables are."""
    try:
        from typer import rich_utils
    except ImportError:
        return  # without rich it is plain
    rich_utils.FORCE_TERMINAL = sys.stdout.isatty()
    if os.environ.get("NO_COLOR"):
        rich_utils.COLOR_SYSTEM = None


def get_commands() -> "dict[str, Any]":
    """Return the commands that typer made of the functions above: {name: command}."""
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def describe(name: str, error: Any) -> str:
    """Return a usage error of click, which some versions of typer contain, as the other messages of
    solo.
    """
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        from solo.text.hints import explain_option

        flags: Any = dict.fromkeys(
            flag for parameter in error.ctx.command.params for flag in parameter.opts
        )
        return f"{error.option_name}: no such option{explain_option(error.option_name, flags)}"
    if type(error).__name__ == "MissingParameter":
        return f"{name}: no name given (solo list shows them)"
    message: str = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]
