"""Prints rows: by rich on a terminal, fitted to its width, else as plain text. No cell can control
the terminal.
"""

import sys
from collections.abc import Callable, Sequence

from solo.text.rows import FIELDS_OF_TIME
from solo.text.width import clean, cut, measure, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table

Rows = list[list[str]]  # of cells
Columns = Sequence[str]
Styles = dict[str, str]  # by the text of a cell
# returns the cells of a column, as they fit into some width, or None
Change = Callable[[list[str], int], "list[str] | None"]

GAP = 2  # cells between two columns on a terminal
NAME, NOTE = "NAME", "NOTE"
LEAST = 16  # cells of the last column, the command


def shorten(least: int) -> Change:
    """Return a change that cuts cells to the width that is left, but not below `least`."""
    return lambda cells, left: [cut(cell, max(least, left)) for cell in cells]


# In this order, until the last column has LEAST cells.
STEPS: "tuple[tuple[str, Change], ...]" = (
    (NOTE, shorten(12)),
    (NAME, shorten(12)),
    ("MODE", lambda cells, _: None if {*cells} == {"exclusive"} else cells),
    ("CHILD", lambda *_: None),  # LAUNCHER is the pid for kill(1)
    (
        "TIME",
        lambda cells, _: [cell.partition("-")[2] or cell for cell in cells],
    ),  # without the year
    ("USER", lambda cells, _: None if len({*cells}) == 1 else cells),
    ("DIRECTORY", shorten(12)),
    ("HOST", shorten(8)),
    ("WAITED", lambda *_: None),
    (NOTE, shorten(8)),
    (NOTE, lambda *_: None),
)


def print_rows(
    columns: Columns,
    rows: "Sequence[Sequence[object]]",
    styled: str = "",
    styles: "Styles | None" = None,
    empty: str = "",
) -> None:
    """Print `rows` under `columns`; without rows `empty`. `styles` are those of the values of the
    column `styled`.
    """
    lines = [[clean(cell) for cell in row] for row in rows]
    console = open_console() if lines else None
    if console:
        print_table(console, columns, lines, styled, styles or {})
    elif lines:
        widths = [max(map(measure, column)) for column in zip(columns, *lines)]
        for line in [columns, *lines]:
            print("  ".join(map(pad, line, widths)).rstrip())
    elif empty and sys.stdout.isatty():
        print(empty)


def open_console() -> "Console | None":
    """Return the Console of rich on a terminal, None elsewhere, and where rich is missing: tables
    are plain text then.
    """
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    # Of a dumb terminal rich takes the size only from here. 0: unknown, before Python 3.11.
    size = get_terminal_size()
    return Console(width=size.columns or 80, height=size.lines or 25)


def print_table(
    console: "Console", columns: Columns, rows: Rows, styled: str, styles: Styles
) -> None:
    """Print clean cells as a table by rich, fitted to the terminal. Cut the last column with an
    ellipsis.
    """
    from rich import box

    columns, rows = fit(columns, rows, console.width, GAP)
    table = make_rich(columns, rows, styled, styles, box=box.SIMPLE_HEAD)
    least = sum((column.min_width or 0) + GAP for column in table.columns) - GAP
    console.print(table, width=max(console.width, least), crop=True)


def make_rich(
    columns: Columns,
    rows: Rows,
    styled: str,
    styles: Styles,
    box: "Box | None" = None,
    looks: "Sequence[str]" = (),
) -> "Table":
    """Return the table of rich, with columns as wide as their cells; the last one has the rest of
    the width.
    """
    from rich.table import Table
    from rich.text import Text

    gap = GAP - 1 if box else GAP  # a box has one more blank
    table = Table(
        box=box,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        expand=True,
        row_styles=looks,
    )
    *fixed, last = columns
    widths = [max(map(measure, cells)) for cells in zip(fixed, *rows)]
    for column, width in zip(fixed, widths):
        table.add_column(column, no_wrap=True, min_width=width, max_width=width)
    table.add_column(last, no_wrap=True, overflow="ellipsis", min_width=len(last), ratio=1)
    for row in rows:
        cells = zip(columns, row)
        table.add_row(
            *(
                Text(cell, styles.get(cell, "") if column == styled else "")
                for column, cell in cells
            )
        )
    return table


def fit(columns: Columns, rows: Rows, room: int, gap: int) -> "tuple[Columns, Rows]":
    """Return (columns, rows) as they fit into `room` cells with `gap` cells between two columns."""
    table = {column: [row[at] for row in rows] for at, column in enumerate(columns)}
    for column, change in STEPS:
        *fixed, last = [find_width(*each) for each in table.items()]
        lacking = sum(fixed) + gap * len(fixed) + min(last, LEAST) - room
        if lacking <= 0:
            break
        if column in table and column != columns[-1]:
            cells = change(table[column], find_width(column, table[column]) - lacking)
            if cells is None:
                del table[column]
            else:
                table[column] = cells
    return list(table), list(map(list, zip(*table.values()))) if rows else []


def find_width(column: str, cells: "list[str]") -> int:
    return max(map(measure, [column, *cells]))


def format_time(seconds: "float | None") -> "str | None":
    """Return a time in RFC 3339, local time, in milliseconds; None for None."""
    if seconds is None:
        return None
    from datetime import datetime  # `list` in a pipe needs neither it nor json: they are a tenth

    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def format_json(value: object) -> str:
    """Return JSON in ASCII; of a row an object, with its times in RFC 3339. A byte of a name or a
    command that is not UTF-8 becomes four characters, like \\xff.
    """
    import json
    import re

    text = json.dumps(convert(value), indent=2)
    # The first group skips what only looks like such a byte: after a backslash, or the end of a
    # pair of surrogates.
    return re.sub(
        r"(\\\\|\\ud[89ab]..\\u....)|\\udc([89a-f].)",
        lambda found: found[1] or rf"\\x{found[2]}",
        text,
    )


def convert(value: object) -> object:
    if isinstance(value, list):
        return list(map(convert, value))
    if not isinstance(value, tuple):
        return value
    fields = zip(value._fields, value)  # type: ignore[attr-defined]
    return {key: format_time(one) if key in FIELDS_OF_TIME else convert(one) for key, one in fields}
