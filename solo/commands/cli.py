"""What people read: --help and the subcommands, as a typer application made from the tables of options.py. Cold."""

import _signal
import importlib
import inspect
import posix
import sys
from typing import Optional

import typer

from solo.argv import check_excludes, read_variable, store
from solo.errors import EXIT_STATUSES, UsageError
from solo.text.hints import explain_option
from solo.options import DIR, HELP, LAUNCHER_OPTIONS, SUBCOMMANDS, VIA

SUMMARY = """Run COMMAND so that it never runs twice at once.

A lock that the kernel holds guards NAME while COMMAND runs; it is gone when COMMAND ends, however that happens. \
The exit status is COMMAND's. After "--" the next word is always COMMAND, else it may be one of the subcommands below."""


def run_subcommand(words: list, before: dict, name) -> int:
    """Run `words` of a command line that has the subcommand `name` or --help in it; the exit status. Raises SoloError.

    `before` is what was typed before the subcommand.
    """
    if name and HELP.key not in before:
        check_before(before, next(subcommand for subcommand in SUBCOMMANDS if subcommand.name == name))
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)  # `solo list | head` ends in silence
    if sys.stdout is None:
        raise UsageError("stdout is closed")
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return make_app(before)(words, prog_name="solo", standalone_mode=False) or 0
    except Exception as error:
        if hasattr(error, "option_name") and hasattr(error, "possibilities"):
            raise UsageError(f"{error.option_name}: no such option{explain_option(error.option_name, list_flags(error.ctx))}") from None
        if hasattr(error, "format_message"):  # click's usage errors, in whichever module typer keeps them
            message = error.format_message().rstrip(".")
            raise UsageError(message[:1].lower() + message[1:]) from None
        raise


def find_common(subcommand) -> list:
    """Its options that may also be typed before it, or be set in the environment."""
    return [option for option in (DIR, VIA) if option in subcommand.options]


def check_before(before: dict, subcommand):
    """Raises UsageError for what has no meaning to it."""
    known = find_common(subcommand)
    if before.keys() - {option.key for option in known}:
        flags = " and ".join(f"--{option.flag}" for option in known)
        raise UsageError(f"before {subcommand.name} only {flags} ha{'ve' if len(known) > 1 else 's'} a meaning")


def list_flags(context) -> list:
    return [flag for parameter in context.command.params for flag in parameter.opts] if context else []


def make_app(before: dict) -> typer.Typer:
    """The application: the launcher's options as its own, for --help, and a command for every subcommand."""
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})

    def accept_launcher_options(**_):
        pass  # argv.py has read them

    set_signature(accept_launcher_options, [make_parameter(option) for option in LAUNCHER_OPTIONS if option is not HELP])
    epilog = "Exit status: " + "; ".join(f"{status}: {meaning}" for status, meaning in EXIT_STATUSES) + "."
    app.callback(help=SUMMARY, epilog=epilog, options_metavar="[OPTION]...", subcommand_metavar="[--] COMMAND [ARG]...")(
        accept_launcher_options
    )
    for subcommand in SUBCOMMANDS:
        app.command(subcommand.name, help=subcommand.help)(make_command(subcommand, before))
    return app


def make_command(subcommand, before: dict):
    def command(names=(), **options):
        module = importlib.import_module(f"solo.commands.{subcommand.name}")
        if subcommand.needs_name and not names:
            raise UsageError(f"{subcommand.name}: no name given (solo list shows them)")
        given = {**before, **read_typed(subcommand, options)}
        check_excludes(given, subcommand.options)
        for option in find_common(subcommand):
            read_variable(given, option, posix.environ)
        status = module.run(given, names or [])
        sys.stdout.flush()
        return status

    names = typer.Argument(None, metavar=subcommand.arguments, show_default=False)
    arguments = [declare("names", Optional[list[str]], names)] if subcommand.arguments else []
    set_signature(command, arguments + [make_parameter(option) for option in subcommand.options])
    return command


def read_typed(subcommand, options: dict) -> dict:
    """What was typed, its values read as argv.py reads them."""
    read = {}
    for option in subcommand.options:
        value = options[option.key]
        if value or value == "":
            store(read, option, f"--{option.flag}", value)
    return read


def set_signature(function, parameters: list):
    """Give a function the signature that typer reads: ours come from tables, not from source."""
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def make_parameter(option) -> inspect.Parameter:
    flags = [f"--{option.flag}"] + ([f"-{option.short}"] if option.short else [])
    kind = bool if option.kind == "flag" else Optional[list[str]] if option.many else Optional[str]
    default = False if option.kind == "flag" else None
    return declare(option.key, kind, typer.Option(default, *flags, help=option.help, metavar=option.metavar, show_default=False))


def declare(name: str, kind, declared) -> inspect.Parameter:
    """A parameter declared by its default, which every typer reads; only those since 0.9 read Annotated."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=declared)
