"""--help, and what is wrong with a command line: a typer application made from the tables of options.py."""

import inspect
from typing import Optional

import typer
import typer.core

from solo.commands.help import format_help, format_subcommand_help, paint
from solo.commands.table import SUBCOMMANDS
from solo.errors import UsageError
from solo.kinds import FLAG
from solo.options import HELP, LAUNCHER_OPTIONS
from solo.text.hints import explain_option


class HelpText(typer.core.TyperGroup):
    def format_help(self, ctx, formatter):
        formatter.write(paint(format_help()))


class SubcommandHelpText(typer.core.TyperCommand):
    def format_help(self, ctx, formatter):
        formatter.write(paint(format_subcommand_help(next(one for one in SUBCOMMANDS if one.name == self.name))))


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
    kind = bool if option.kind is FLAG else Optional[list[str]] if option.many else Optional[str]
    default = False if option.kind is FLAG else None
    return declare(
        f"{option.key}_",
        kind,
        typer.Option(default, *flags, help=option.help, metavar=option.metavar, show_default=False),
    )


def declare(name: str, kind, declared) -> inspect.Parameter:
    """Return a parameter declared by its default: typer before 0.9 does not read Annotated."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=declared)
