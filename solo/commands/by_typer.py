"""Parse by typer the words after the name of a subcommand, from its signature in cli.py. On a
terminal rich draws its help.
"""

import os
from types import FunctionType
from typing import Any

import typer
from typer.core import TyperCommand

from solo.argv import store
from solo.commands.cli import Names, Subcommand
from solo.kinds import FLAG
from solo.options import Option

# Newer versions of typer contain click.
ClickException = (vars(typer.core).get("_click") or vars(typer.core)["click"]).ClickException


class Mistake(Exception):
    """A usage error of click, which each version words in its own way."""


class Command(TyperCommand):
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


def parse(one: Subcommand, words: "list[str]") -> "tuple[dict[str, Any], list[str]] | None":
    """Return (options by key, names) of the words after a subcommand; None after help. Raises
    Mistake; UsageError for a value.
    """
    if os.environ.get("NO_COLOR"):
        leave_colors()
    try:
        found = make_command(one).make_context(f"solo {one.name}", [*words]).params
    except typer.Exit:
        return None
    except ClickException:
        raise Mistake from None
    options: dict[str, Any] = {}
    for option in one.options:
        text = found[option.key]
        if text not in (None, False):
            store(options, option, f"--{option.flag}", "" if text is True else text)
    return options, [*(found["names"] or ())]


def make_command(one: Subcommand) -> Any:
    """Return the command that typer makes of a copy of the function, with defaults of typer."""
    defaults = tuple(map(declare, one.function.__defaults__))
    function = FunctionType(one.function.__code__, {}, one.name, defaults)
    function.__annotations__ = one.function.__annotations__
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False)
    app.command(one.name, cls=Command, help=one.text, context_settings=settings)(function)
    return typer.main.get_command(app)


def declare(default: "Names | Option") -> Any:
    """Return what typer calls an argument or an option."""
    if isinstance(default, Names):
        return typer.Argument(None, metavar=default.metavar, help=default.help, show_default=False)
    is_flag = default.kind is FLAG
    short = [f"-{default.short}"] if default.short else []
    return typer.Option(
        False if is_flag else None,
        *short,
        f"--{default.flag}",
        help=default.help,
        metavar=default.metavar,
    )


def leave_colors() -> None:
    """Let help be without colors, as tables are."""
    try:
        from typer import rich_utils
    except ImportError:
        return  # without rich it is plain
    rich_utils.COLOR_SYSTEM = None
