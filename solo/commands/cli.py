"""--help and the subcommands: a typer application made from the tables of options.py. Cold."""

import _signal
import importlib
import inspect
import posix
import re
import sys
import textwrap
from shutil import get_terminal_size
from typing import Optional

import typer
import typer.core

from solo.argv import check_excludes, read_variable, store
from solo.errors import EXIT_STATUSES, UsageError
from solo.options import DIR, GROUPS, HELP, LAUNCHER_OPTIONS, SUBCOMMANDS, VIA
from solo.text.hints import explain_option

COLUMN, WIDTH = 31, 79  # where the explanation of an option starts; the longest line
USAGE = "Usage: solo [OPTION]... [--] COMMAND [ARG]...\n       solo SUBCOMMAND [OPTION]... [NAME]..."
SUMMARY = """Run COMMAND so that it never runs twice at once.

The kernel locks NAME while COMMAND runs, and releases it when COMMAND ends, however it ends. The exit status is COMMAND's. The \
first word after "--" is always COMMAND; without "--" it may be a SUBCOMMAND."""
EXAMPLES = """Examples:
  solo -q -- backup.sh --full
      Skip this run if the last one still runs.
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
    arguments = (
        [f"Arguments:\n{format_line('  NAME', subcommand.argument_help, COLUMN)}"] if subcommand.arguments else []
    )
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
    return textwrap.fill(text, width, initial_indent=f"{head:<{column}}", subsequent_indent=" " * column)


def paint(text: str) -> str:
    """Color the flags on a terminal, unless NO_COLOR is set."""
    if posix.environ.get(b"NO_COLOR") or posix.environ.get(b"TERM", b"dumb") == b"dumb" or not posix.isatty(1):
        return text
    return FLAGS.sub(lambda flags: f"\x1b[1;36m{flags[0]}\x1b[0m", text)


def run_subcommand(words: list, before: dict, name) -> int:
    """Run the `words` of a command line with the subcommand `name`, or with --help. Return the exit status. Raises
    SoloError.

    `before` are the options before the subcommand.
    """
    if name and HELP.key not in before:
        check_before(before, next(subcommand for subcommand in SUBCOMMANDS if subcommand.name == name))
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)  # `solo list | head` prints no error
    if sys.stdout is None:
        raise UsageError("stdout is closed")
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return make_app(before)(words, prog_name="solo", standalone_mode=False) or 0
    except Exception as error:
        if hasattr(error, "option_name") and hasattr(error, "possibilities"):
            hint = explain_option(error.option_name, list_flags(error.ctx))
            raise UsageError(f"{error.option_name}: no such option{hint}") from None
        if hasattr(error, "format_message"):  # a usage error of click, which some versions of typer contain
            message = error.format_message().rstrip(".")
            raise UsageError(message[:1].lower() + message[1:]) from None
        raise


def find_common(subcommand) -> list:
    """Return its options that may also come before it, or be set in the environment."""
    return [option for option in (DIR, VIA) if option in subcommand.options]


def check_before(before: dict, subcommand):
    """Raise UsageError for options that it does not have."""
    known = find_common(subcommand)
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(f"before {subcommand.name} only {flags} ha{'ve' if len(known) > 1 else 's'} a meaning")


def list_flags(context) -> list:
    return [flag for parameter in context.command.params for flag in parameter.opts] if context else []


def make_app(before: dict) -> typer.Typer:
    """Return the application: with the launcher's options, for --help, and a command for every subcommand."""
    app = typer.Typer(cls=HelpText, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})

    def accept_launcher_options(**_):
        pass  # argv.py has read them

    set_signature(
        accept_launcher_options, [make_parameter(option) for option in LAUNCHER_OPTIONS if option is not HELP]
    )
    app.callback()(accept_launcher_options)
    for subcommand in SUBCOMMANDS:
        app.command(subcommand.name, cls=SubcommandHelpText)(make_command(subcommand, before))
    return app


def make_command(subcommand, before: dict):
    def command(names=(), **options):
        module = importlib.import_module(f"solo.commands.{subcommand.name}")
        if subcommand.needs_name and not names:
            raise UsageError(f"{subcommand.name}: no name given (solo list shows them)")
        typed = {**before, **read_typed(subcommand, options)}
        check_excludes(typed, subcommand.options)
        for option in find_common(subcommand):
            read_variable(typed, option, posix.environ)
        status = module.run(typed, names or [])
        sys.stdout.flush()
        return status

    names = typer.Argument(None, metavar=subcommand.arguments, show_default=False)
    arguments = [declare("names", Optional[list[str]], names)] if subcommand.arguments else []
    set_signature(command, arguments + [make_parameter(option) for option in subcommand.options])
    return command


def read_typed(subcommand, options: dict) -> dict:
    """Return the options of the subcommand by key, their values read as argv.py reads them."""
    read = {}
    for option in subcommand.options:
        value = options[option.key]
        if value or value == "":
            store(read, option, f"--{option.flag}", value)
    return read


def set_signature(function, parameters: list):
    """Give a function the signature that typer reads: it comes from a table, not from source."""
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def make_parameter(option) -> inspect.Parameter:
    flags = [f"--{option.flag}"] + ([f"-{option.short}"] if option.short else [])
    kind = bool if option.kind == "flag" else Optional[list[str]] if option.many else Optional[str]
    default = False if option.kind == "flag" else None
    return declare(
        option.key, kind, typer.Option(default, *flags, help=option.help, metavar=option.metavar, show_default=False)
    )


def declare(name: str, kind, declared) -> inspect.Parameter:
    """Return a parameter declared by its default: typer before 0.9 does not read Annotated."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=declared)
