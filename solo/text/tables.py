"""Prints rows: a table by rich on a terminal, aligned plain text in a pipe. No cell can control the terminal.

A table is fitted to the width of the terminal: texts are shortened with an ellipsis, then columns left out, but not the
last one.
"""

from __future__ import annotations

import sys

from solo.modes import EXCLUSIVE, INTEND_EXCLUSIVE, INTEND_SHARED, SHARED, SLOTS
from solo.text.width import clean, cut, measure, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from rich.console import Console

    Rows = list[list[str]]  # of cells
    Columns = Sequence[str]
    Styles = dict[str, str]  # by the text of a cell
    Change = Callable[[list[str], int], list[str] | None]  # of the cells of a column, to fit into some width

MODES = {EXCLUSIVE: "exclusive", SHARED: "shared", SLOTS: "slots"}
MODES.update({INTEND_EXCLUSIVE: "exclusive", INTEND_SHARED: "shared"})

GAP = 2  # cells between two columns on a terminal
NAME, NOTE = "NAME", "NOTE"
LEAST = 16  # cells of the last column, the command


def shorten(least: int) -> Change:
    """Return a change that cuts cells to the width that is left, but not below `least`."""
    return lambda cells, left: [cut(cell, max(least, left)) for cell in cells]


def omit(*_: object) -> None:
    return None


# In this order, until the last column has LEAST cells.
STEPS: tuple[tuple[str, Change], ...] = (
    (NOTE, shorten(12)),
    (NAME, shorten(12)),
    ("MODE", lambda cells, _: None if {*cells} == {"exclusive"} else cells),
    ("LAUNCHER", omit),
    ("TIME", lambda cells, _: [cell.partition("-")[2] or cell for cell in cells]),  # without the year
    ("USER", lambda cells, _: None if len({*cells}) == 1 else cells),
    ("DIRECTORY", shorten(12)),
    ("HOST", shorten(8)),
    ("WAITED", omit),
    (NOTE, shorten(8)),
    (NOTE, omit),
)


def print_rows(
    columns: Columns, rows: Sequence[Sequence[object]], styled: str = "", styles: Styles | None = None, empty: str = ""
) -> None:
    """Print `rows` under `columns`; without rows `empty`. `styles` are those of the values of the column `styled`."""
    lines = [[clean(cell) for cell in row] for row in rows]
    console = open_console() if lines else None
    if console:
        print_table(console, columns, lines, styled, styles or {})
    elif lines:
        print("\n".join(align([columns, *lines])))
    elif sys.stdout.isatty():
        print(empty)


def open_console() -> Console | None:
    """Return the Console of rich on a terminal, None elsewhere, and where rich is missing: tables are plain text then."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console()


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(measure, column)) for column in zip(*lines)]
    return ["  ".join(map(pad, cells, widths)).rstrip() for cells in lines]


def print_table(console: Console, columns: Columns, rows: Rows, styled: str, styles: Styles) -> None:
    """Print clean cells as a table by rich, fitted to the terminal. Cut the last column with an ellipsis."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns, rows = fit(columns, rows, console.width, GAP)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    *fixed, last = columns
    widths = [max(map(measure, cells)) for cells in list(zip(columns, *rows))[:-1]]
    for column, width in zip(fixed, widths):
        table.add_column(column, no_wrap=True, min_width=width, max_width=width)
    table.add_column(last, no_wrap=True, overflow="ellipsis", min_width=len(last), ratio=1)
    for row in rows:
        cells = zip(columns, row)
        table.add_row(*(Text(cell, styles.get(cell, "") if column == styled else "") for column, cell in cells))
    console.print(table, width=max(console.width, sum(widths) + GAP * len(widths) + len(last)), crop=True)


def fit(columns: Columns, rows: Rows, room: int, gap: int) -> tuple[Columns, Rows]:
    """Return (columns, rows) as they fit into `room` cells with `gap` cells between two columns."""
    table = {column: [row[at] for row in rows] for at, column in enumerate(columns)}
    for column, change in STEPS:
        lacking = find_lacking(table, room, gap)
        if lacking <= 0:
            break
        if column in table and column != columns[-1]:
            cells = change(table[column], find_width(column, table[column]) - lacking)
            if cells is None:
                del table[column]
            else:
                table[column] = cells
    return list(table), list(map(list, zip(*table.values()))) if rows else []


def find_lacking(table: dict[str, list[str]], room: int, gap: int) -> int:
    """Return how many cells more than `room` the table needs with LEAST cells of the last column."""
    *fixed, last = [find_width(column, cells) for column, cells in table.items()]
    return sum(fixed) + gap * len(fixed) + min(last, LEAST) - room


def find_width(column: str, cells: list[str]) -> int:
    return max(map(measure, [column, *cells]))


def describe_claim(claim: Any, slot: int | None) -> dict[str, Any]:
    """Return the fields of a row that describe a Claim, or the claim of a Run. `slot` is its first slot, or None."""
    slots, take = (claim.slots, claim.take) if claim.mode == SLOTS else (None, None)
    return {"mode": MODES[claim.mode], "slot": slot, "slots": slots, "take": take}


def format_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as --json prints them, with their times in RFC 3339."""
    return [{**row, "since": format_time(row["since"])} for row in rows]


def format_time(seconds: float | None) -> str | None:
    """Return a time in RFC 3339, local time, in milliseconds; None for None."""
    from datetime import datetime

    return None if seconds is None else datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def format_json(value: object) -> str:
    """Return JSON in ASCII. A byte of a name or a command that is not UTF-8 becomes four characters, like \\xff."""
    import json
    import re

    text = json.dumps(value, indent=2)
    # The first group skips what only looks like such a byte: after a backslash, or the end of a pair of surrogates.
    return re.sub(r"(\\\\|\\ud[89ab]..\\u....)|\\udc([89a-f].)", lambda found: found[1] or rf"\\x{found[2]}", text)
