"""--help, and what is wrong with a command line: a typer application made from the tables of options.py."""

import inspect
import posix
import re
import textwrap
from shutil import get_terminal_size
from typing import Optional

import typer
import typer.core

from solo.commands.table import SUBCOMMANDS
from solo.errors import EXIT_STATUSES, UsageError
from solo.options import GROUPS, HELP, LAUNCHER_OPTIONS
from solo.text.hints import explain_option

COLUMN, WIDTH = 31, 79  # where the explanation of an option starts; the longest line
USAGE = "Usage: solo [OPTION]... [--] COMMAND [ARG]...\n       solo SUBCOMMAND [OPTION]... [NAME]..."
SUMMARY = """Run COMMAND so that it never runs twice at once.

The kernel releases the lock on NAME once solo and COMMAND have ended, however they ended. The exit status is COMMAND's. After \
"--" the first word is always COMMAND; else it may be a SUBCOMMAND."""
EXAMPLES = """Examples:
  solo -q -- backup.sh --full
      Skip this run if another one still runs.
  solo -n deploy/prod -w 10m -- ./deploy
      Wait up to 10 minutes for the name.
  solo -n build --slots 4 -w forever -- make
      Run at most 4 at once; the others wait."""
FLAGS = re.compile("^  (?:-.,|   ) --[a-z-]+", re.MULTILINE)


class HelpText(typer.core.TyperGroup):
    def format_help(self, ctx, formatter):
        formatter.write(paint(format_help()))


class SubcommandHelpText(typer.core.TyperCommand):
    def format_help(self, ctx, formatter):
        formatter.write(paint(format_subcommand_help(next(one for one in SUBCOMMANDS if one.name == self.name))))


def format_help() -> str:
    """Return the text of `solo --help`, from the tables."""
    groups = [
        f"{group}:\n" + format_options(option for option in LAUNCHER_OPTIONS if option.group == group)
        for group in GROUPS
    ]
    subcommands = "\n".join(format_line(f"  {one.name}", one.help, 12) for one in SUBCOMMANDS)
    statuses = "\n".join(format_line(f"  {status}", meaning, 18) for status, meaning in EXIT_STATUSES)
    tables = [f"Subcommands:\n{subcommands}", EXAMPLES, f"Exit status:\n{statuses}"]
    return "\n\n".join(
        [USAGE, *[format_line("", part) for part in SUMMARY.split("\n\n")], *groups, *tables, "Manual: solo(1)"]
    )


def format_subcommand_help(subcommand) -> str:
    """Return the text of `solo SUBCOMMAND --help`."""
    usage = f"Usage: solo {subcommand.name} [OPTION]... {subcommand.arguments}".rstrip()
    kind = subcommand.arguments.strip("[].")
    arguments = [f"Arguments:\n{format_line(f'  {kind}', subcommand.argument_help, COLUMN)}"] if kind else []
    options = "Options:\n" + format_options([*subcommand.options, HELP])
    return "\n\n".join([usage, format_line("", subcommand.text), *arguments, options])


def format_options(options) -> str:
    return "\n".join(
        format_line(f"  {f'-{one.short},' if one.short else '':<3} --{one.flag} {one.metavar or ''}", one.help, COLUMN)
        for one in options
    )


def format_line(head: str, text: str, column: int = 0) -> str:
    """Return `head`, and from `column` on `text`, in lines no longer than those of the terminal."""
    width = min(WIDTH, get_terminal_size().columns)
    indent = " " * column
    if head and len(head) >= column:
        return f"{head}\n{textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)}"
    return textwrap.fill(text, width, initial_indent=f"{head:<{column}}", subsequent_indent=indent)


def paint(text: str) -> str:
    """Color the flags on a terminal, unless NO_COLOR is set."""
    if posix.environ.get(b"NO_COLOR") or posix.environ.get(b"TERM", b"dumb") == b"dumb" or not posix.isatty(1):
        return text
    return FLAGS.sub(lambda flags: f"\x1b[1;36m{flags[0]}\x1b[0m", text)


def run(words: list) -> int:
    """Print the help that the `words` of a command line ask for, and return 0, or explain what is wrong with them.

    Raises UsageError.
    """
    try:
        return make_app()(words, prog_name="solo", standalone_mode=False) or 0
    except Exception as error:
        if hasattr(error, "option_name") and hasattr(error, "possibilities"):
            hint = explain_option(error.option_name, list_flags(error.ctx))
            raise UsageError(f"{error.option_name}: no such option{hint}") from None
        if hasattr(error, "format_message"):  # a usage error of click, which some versions of typer contain
            message = error.format_message().rstrip(".")
            raise UsageError(message[:1].lower() + message[1:]) from None
        raise


def list_flags(context) -> list:
    return [flag for parameter in context.command.params for flag in parameter.opts] if context else []


def make_app() -> typer.Typer:
    """Return the application: with the launcher's options, for --help, and a command for every subcommand."""
    app = typer.Typer(cls=HelpText, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(make_function([make_parameter(option) for option in LAUNCHER_OPTIONS if option is not HELP]))
    for one in SUBCOMMANDS:
        names = typer.Argument(None, metavar=one.arguments, show_default=False)
        arguments = [declare("names", Optional[list[str]], names)] if one.arguments else []
        parameters = [*arguments, *(make_parameter(option) for option in one.options)]
        app.command(one.name, cls=SubcommandHelpText)(make_function(parameters))
    return app


def make_function(parameters: list):
    """Return a function that does nothing, with the signature that typer reads: it comes from a table."""

    def function(**_):
        pass

    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def make_parameter(option) -> inspect.Parameter:
    flags = [f"--{option.flag}"] + ([f"-{option.short}"] if option.short else [])
    kind = bool if option.kind == "flag" else Optional[list[str]] if option.many else Optional[str]
    default = False if option.kind == "flag" else None
    return declare(
        f"{option.key}_",
        kind,
        typer.Option(default, *flags, help=option.help, metavar=option.metavar, show_default=False),
    )


def declare(name: str, kind, declared) -> inspect.Parameter:
    """Return a parameter declared by its default: typer before 0.9 does not read Annotated."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=declared)
