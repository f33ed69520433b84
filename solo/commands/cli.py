"""The subcommands that people type: typer parses their words by the signatures here, and prints their help by rich.

A function declares what may be typed. The module of its name, loaded then, does the work.
"""

import os
import sys
from typing import Any, Callable, Optional, TypeVar

import typer
import typer.core

from solo.argv import check_variable
from solo.errors import UsageError
from solo.kinds import read_duration, read_word
from solo.options import DIR, VIA

DURATION, WHERE, FOLDER, FILE = "DURATION", "WHERE", "DIR", "FILE"  # completions know the kind of a value by these


def check_directory(context: typer.Context, directory: Optional[str]) -> Optional[str]:
    """Raise UsageError for an empty word, or a relative path in the environment."""
    check_word("--dir", directory)
    source = context.get_parameter_source("directory")
    if directory and source is not None and source.name == "ENVIRONMENT":
        check_variable(DIR, directory)
    return directory


def check_via(via: Optional[str]) -> Optional[str]:
    check_word("--via", via)
    return via


def check_word(flag: str, word: Optional[str]) -> None:
    """Raise UsageError for an empty word."""
    if word is not None:
        read_word(flag, word)


def declare(flags: str, help: str, metavar: Optional[str] = None, **rest: Any) -> Any:
    """Return an option of typer, by default None, or without a metavar False."""
    default = None if metavar else False
    return typer.Option(default, *flags.split(), help=help, metavar=metavar, show_default=False, **rest)


def declare_names(help: str, metavar: str = "NAME...") -> Any:
    return typer.Argument(None if metavar[0] == "[" else ..., metavar=metavar, help=help, show_default=False)


Words = Optional[list[str]]
Text = Optional[str]
ONLY_NAMES = declare_names("Only these names, and all names nested in them. Default: all names.", "[NAME]...")
DIRECTORY = declare("--dir", DIR.help, FOLDER, envvar=DIR.variable, show_envvar=False, callback=check_directory)
BACKEND = declare("--via", VIA.help, WHERE, envvar=VIA.variable, show_envvar=False, callback=check_via)
ALLOW_UNKNOWN = declare("--allow-unknown", "Accept a name that was never used")
JSON = declare("--json", "Print a JSON array")
Function = TypeVar("Function", bound=Callable[..., int])
app = typer.Typer(add_completion=False)


def subcommand(help: str, name: Optional[str] = None) -> Callable[[Function], Function]:
    """Make a function a subcommand, called `name` or as the function."""
    return app.command(name, help=help, context_settings={"help_option_names": ["-h", "--help"]})


@subcommand(
    name="list", help="List the holders and waiters of each name, or of the NAMEs and the names nested in them."
)
def list_tickets(
    names: Words = ONLY_NAMES,
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    json: bool = JSON,
    null: bool = declare("-0 --null", "Print only the names, each ended by a NUL byte"),
) -> int:
    if json and null:
        raise UsageError("--null and --json exclude each other")
    return call("list", names, dir=directory, via=via, json=json, null=null)


@subcommand(
    help="Show the holders of each NAME and their processes, the queue, the last runs, and the paths of its files."
)
def show(
    names: list[str] = declare_names("The names to show."),
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    json: bool = JSON,
) -> int:
    return call("show", names, dir=directory, via=via, json=json)


@subcommand(
    help="Wait until no process holds or wants any of the names. The exit status is 0 then, 75 after --timeout, 125 if one is"
    " unknown."
)
def wait(
    names: list[str] = declare_names("The names to wait for."),
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    timeout: Text = declare("-t --timeout", "Give up after DURATION, with status 75", DURATION),
    allow_unknown: bool = ALLOW_UNKNOWN,
) -> int:
    patience = find_seconds("--timeout", timeout)
    return call("wait", names, dir=directory, via=via, timeout=patience, allow_unknown=allow_unknown)


@subcommand(
    help="End the holders of the names, by SIGTERM and then SIGKILL, and print what was done; it is an error if only nested ones"
    " are held."
)
def stop(
    names: list[str] = declare_names("The names whose holders are to end."),
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    kill_after: Text = declare("-k --kill-after", "Time from SIGTERM to SIGKILL (10s)", DURATION),
    waiting: bool = declare("--waiting", "End the waiters in the queue as well"),
    allow_unknown: bool = ALLOW_UNKNOWN,
) -> int:
    grace = find_seconds("--kill-after", kill_after)
    return call("stop", names, dir=directory, via=via, kill_after=grace, waiting=waiting, allow_unknown=allow_unknown)


@subcommand(
    help="Show each run and each skip: when it started or was skipped, how long it waited and ran, and how it ended."
)
def history(
    names: Words = ONLY_NAMES,
    directory: Text = DIRECTORY,
    via: Text = declare("--via", "Show the last runs that an engine keeps", WHERE, callback=check_via),
    since: Text = declare("--since", "Omit what ended more than DURATION ago", DURATION),
    json: bool = JSON,
) -> int:
    return call("history", names, dir=directory, via=via, since=find_seconds("--since", since), json=json)


@subcommand(
    help="Print the numbers of holds, waiters, runs, skips and failures, and their times, as text for Prometheus."
)
def metrics(
    names: Words = ONLY_NAMES,
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    output: Text = declare("--output", "Write to FILE, replacing it atomically", FILE),
) -> int:
    check_word("--output", output)
    return call("metrics", names, dir=directory, via=via, output=output)


@subcommand(help="Show holders and waiters live, with CPU time and memory; the key s stops the selected one.")
def top(names: Words = ONLY_NAMES, directory: Text = DIRECTORY, via: Text = BACKEND) -> int:
    return call("top", names, dir=directory, via=via)


@subcommand(
    help="Remove idle names (--generated: only those made from commands), and files left by dead processes. Jobs may start"
    " meanwhile."
)
def clean(
    names: Words = ONLY_NAMES,
    directory: Text = DIRECTORY,
    generated: bool = declare("--generated", "Only names that solo made from commands"),
    history: Text = declare("--history", "Also remove journals of names idle for DURATION", DURATION),
) -> int:
    return call("clean", names, dir=directory, generated=generated, history=find_seconds("--history", history))


@subcommand(
    help="Check that this machine and user, and with --via the engine, have all that solo needs; with --crontab or --unit check"
    " FILEs, see solo(7). The status is 1 if a check fails."
)
def doctor(
    files: Words = declare_names("Crontabs or units, or directories of them; - is standard input.", "[FILE]..."),
    directory: Text = DIRECTORY,
    via: Text = BACKEND,
    crontab: bool = declare("--crontab", "Check crontabs: FILEs, or those of cron"),
    unit: bool = declare("--unit", "Check systemd units: FILEs, or the local ones"),
    json: bool = JSON,
) -> int:
    if crontab and unit:
        raise UsageError("--crontab and --unit exclude each other")
    return call("doctor", files, dir=directory, via=via, crontab=crontab, unit=unit, json=json)


def find_seconds(flag: str, text: Optional[str]) -> Optional[float]:
    """Return the seconds of a duration, None if it was not typed. Raises UsageError."""
    return None if text is None else read_duration(flag, text)


def call(name: str, names: Words, **options: Any) -> int:
    """Run the module of a subcommand with the options that were typed. Return the exit status."""
    typed = {key: value for key, value in options.items() if value is not None and value is not False}
    command = __import__(f"solo.commands.{name}", fromlist=["run"])
    return int(command.run(typed, names or []))


def run(name: str, words: "list[str]", check: Any) -> int:
    """Run a subcommand, or print its help. `check` looks at its names, flags of durations and directory first.

    Return the exit status. Raises SoloError.
    """
    command = get_commands()[name]
    if not {"-h", "--help"}.isdisjoint(words):
        choose_colors()
    try:
        with command.make_context(f"solo {name}", words) as context:
            timed = [flag for parameter in command.params if parameter.metavar == DURATION for flag in parameter.opts]
            typed = context.params
            check(typed.get("names") or typed.get("files") or [], timed, typed["directory"])
            return int(command.invoke(context))
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
    return typer.main.get_command(app).commands


def describe(name: str, error: Any) -> str:
    """Return a usage error of click, which some versions of typer contain, as the other messages of solo."""
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        from solo.text.hints import explain_option

        flags = [flag for parameter in error.ctx.command.params for flag in parameter.opts]
        return f"{error.option_name}: no such option{explain_option(error.option_name, dict.fromkeys(flags))}"
    if type(error).__name__ == "MissingParameter":
        return f"{name}: no name given (solo list shows them)"
    message: str = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]
