"""Draw the help of a subcommand by typer, from the table in cli.py."""

import contextlib
import os
from inspect import Parameter, Signature

import typer
from typer.core import TyperCommand

from solo.commands.cli import Subcommand
from solo.kinds import FLAG
from solo.options import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typer import _click


class Command(TyperCommand):
    """A subcommand whose help is the same in all versions of typer."""

    def collect_usage_pieces(self, ctx: object) -> "list[str]":
        """Return the words of the usage line. Some versions put more dots and brackets around a
        metavar.
        """
        return [
            "[OPTION]...",
            *[str(one.metavar) for one in self.params if one.param_type_name == "argument"],
        ]

    def get_params(self, ctx: "_click.Context") -> "list[_click.Parameter]":
        """Return the parameters. Newer versions show a flag that lacks a metavar as one with a
        value, <bool>.
        """
        found = super().get_params(ctx)
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found


def print_help(one: Subcommand) -> None:
    """Print the help of a subcommand, drawn by rich where that is installed."""
    if os.environ.get("NO_COLOR"):
        leave_colors()
    with contextlib.suppress(typer.Exit):
        make_command(one).make_context(f"solo {one.name}", ["--help"])


def make_command(one: Subcommand) -> "_click.Command":
    """Return the command that typer makes of a function with the parameters of a subcommand."""

    def function() -> None: ...

    names = typer.Argument(None, metavar=one.names.metavar, help=one.names.help, show_default=False)
    words = Parameter("names", Parameter.KEYWORD_ONLY, default=names, annotation=list[str])
    function.__signature__ = Signature([words, *map(declare, one.options)])  # type: ignore[attr-defined]
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False)
    app.command(one.name, cls=Command, help=one.text, context_settings=settings)(function)
    return typer.main.get_command(app)


def declare(option: Option) -> Parameter:
    is_flag = option.kind is FLAG
    short = [f"-{option.short}"] if option.short else []
    default = typer.Option(
        False if is_flag else None,
        *short,
        f"--{option.flag}",
        help=option.help,
        metavar=option.metavar,
    )
    kind = bool if is_flag else str
    return Parameter(option.key, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def leave_colors() -> None:
    """Let help be without colors, as tables are."""
    try:
        from typer import rich_utils
    except ImportError:
        return  # without rich it is plain
    rich_utils.COLOR_SYSTEM = None
