"""The text of --help, from the tables of the options and subcommands."""

import posix
import re
import textwrap
from shutil import get_terminal_size

from solo.commands.cli import HELP, SUBCOMMANDS, Subcommand
from solo.errors import EXIT_STATUSES
from solo.options import (
    GROUPS,
    LAUNCHER_OPTIONS,
    LOUD_AFTER,
    NAME,
    QUIET,
    SLOTS,
    TIMEOUT,
    TREE,
    WAIT,
    Option,
)

COLUMN, WIDTH = 32, 79  # where the explanation of an option starts; the longest line
USAGE = (
    "Usage: solo [OPTION]... [--] COMMAND [ARG]...\n       solo SUBCOMMAND [OPTION]... [NAME]..."
)
SUMMARY = """Run COMMAND so that it never runs twice at once.

Without -n, NAME is made from COMMAND and its ARGs. The kernel releases the lock on NAME once solo and COMMAND have ended, however \
they ended. The exit status is COMMAND's. After "--" the first word is always COMMAND; else it may be a SUBCOMMAND."""
EXAMPLES = """Examples:
  solo -q -- backup.sh --full
      Skip this run if another one still runs.
  solo -n deploy/prod -w 10m -- ./deploy
      Wait up to 10 minutes for the name.
  solo -n build --slots 4 -w forever -- make
      Run at most 4 at once; the others wait."""
BRIEFLY = """See, steer: list, show, wait, stop, history, check, metrics, top, clean, doctor
For scripts: hold, release. What a run would do: --explain"""
MORE = "The exit status is COMMAND's; 75: busy. solo --help for all"
FLAGS = re.compile("^  (?:-.,|   ) --[a-z-]+", re.MULTILINE)


def format_help() -> str:
    """Return the text of `solo --help`, from the tables."""
    by_group = {
        group: [option for option in LAUNCHER_OPTIONS if option.group == group] for group in GROUPS
    }
    groups = [f"{group}:\n{format_options(options)}" for group, options in by_group.items()]
    subcommands = "\n".join(
        format_line(f"  {name}", one.summary, 12) for name, one in SUBCOMMANDS.items()
    )
    statuses = "\n".join(
        format_line(f"  {status}", meaning, 18) for status, meaning in EXIT_STATUSES
    )
    tables = [
        f"Subcommands:\n{subcommands}",
        EXAMPLES,
        f"Exit status:\n{statuses}",
        "Manual: solo(1)",
    ]
    return "\n\n".join(
        [USAGE, *[format_line("", part) for part in SUMMARY.split("\n\n")], *groups, *tables]
    )


def format_brief_help() -> str:
    """Return the text of `solo -h`: what most people need, on one screen."""
    options = format_options((NAME, QUIET, WAIT, TIMEOUT, TREE, SLOTS, LOUD_AFTER))
    return "\n".join(
        [USAGE, SUMMARY.split("\n")[0], "", options, "", BRIEFLY, "", EXAMPLES, "", MORE]
    )


def format_subcommand_help(one: Subcommand) -> str:
    """Return the text of `solo stop --help`."""
    words = one.names.metavar
    name = words.strip("[].")
    return "\n\n".join(
        [
            f"Usage: solo {one.name} [OPTION]... {words}",
            format_line("", one.text),
            f"Arguments:\n{format_line(f'  {name}', one.names.help, COLUMN)}",
            f"Options:\n{format_options([*one.options, HELP])}",
        ]
    )


def format_options(options: "list[Option] | tuple[Option, ...]") -> str:
    return "\n".join(
        format_line(
            f"  {f'-{one.short},' if one.short else '':<3} --{one.flag} {one.metavar or ''}",
            one.help,
            COLUMN,
        )
        for one in options
    )


def format_line(head: str, text: str, column: int = 0) -> str:
    """Return `head`, and from `column` on `text`, in lines no longer than those of the terminal."""
    width = min(WIDTH, get_terminal_size().columns or WIDTH)  # 0: unknown, before Python 3.11
    indent = " " * column
    if head and len(head) + 1 >= column:
        return (
            f"{head}\n{textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)}"
        )
    return textwrap.fill(text, width, initial_indent=f"{head:<{column}}", subsequent_indent=indent)


def paint(text: str) -> str:
    """Color the flags on a terminal, unless NO_COLOR is set."""
    if (
        posix.environ.get(b"NO_COLOR")
        or posix.environ.get(b"TERM", b"dumb") == b"dumb"
        or not posix.isatty(1)
    ):
        return text
    return FLAGS.sub(lambda flags: f"\x1b[1;36m{flags[0]}\x1b[0m", text)
