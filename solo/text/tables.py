"""Prints rows: a table by rich on a terminal, aligned plain text in a pipe. No cell can control the terminal."""

import sys
from time import localtime, strftime

from solo.modes import EXCLUSIVE, INTEND_EXCLUSIVE, INTEND_SHARED, SHARED, SLOTS
from solo.text.width import clean, cut, measure, pad

MODES = {
    EXCLUSIVE: "exclusive",
    SHARED: "shared",
    SLOTS: "slots",
    INTEND_EXCLUSIVE: "exclusive",
    INTEND_SHARED: "shared",
}

NAME, NOTE = "NAME", "NOTE"  # the columns that are cut, the last one first
SHORTEST = 12  # cells of them
JSON_CONSTANTS = {"None": "null", "True": "true", "False": "false"}


def print_rows(columns: tuple, rows: list, styled: str = "", styles=None, empty: str = "") -> None:
    """Print `rows` of cells under `columns`; without rows `empty`.

    `styles` maps values of the column `styled` to their style.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        print_table(Console(), columns, rows, styled, styles or {}) if rows else print(empty)
    elif rows:
        print("\n".join(align([columns, *rows])))


def align(lines: list) -> list:
    """Return the lines of cells as text in columns."""
    widths = [max(map(measure, column)) for column in zip(*lines)]
    return ["  ".join(map(pad, cells, widths)).rstrip() for cells in lines]


def print_table(console, columns: tuple, rows: list, styled: str, styles: dict) -> None:
    """Print clean cells as a table by rich. Cut cells wider than the terminal; in the last column with an ellipsis."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", expand=True)
    *fixed, last = columns
    widths = find_widths([columns, *rows], console.width, len(last), gap=3)
    for column, width in zip(fixed, widths):
        table.add_column(column, no_wrap=True, min_width=width, max_width=width)
    table.add_column(last, no_wrap=True, overflow="ellipsis", min_width=len(last), ratio=1)
    for row in rows:
        row = [*map(cut, row, widths), row[-1]]
        table.add_row(
            *(Text(cell, styles.get(cell, "") if column == styled else "") for column, cell in zip(columns, row))
        )
    console.print(table, width=max(console.width, sum(widths) + 3 * len(widths) + len(last)), crop=True)


def find_widths(lines: list, room: int, last: int, gap: int) -> list:
    """Return the width of each column except the last, which needs `last` cells.

    If `room` is too small, cut notes and then names only.
    """
    widths = [max(map(measure, column)) for column in list(zip(*lines))[:-1]]
    for column in (NOTE, NAME):
        if column in lines[0]:
            at = lines[0].index(column)
            lacking = sum(widths) + gap * len(widths) + last - room
            widths[at] = max(min(widths[at], SHORTEST), widths[at] - max(0, lacking))
    return widths


def add_column(columns: tuple, lines: list, heading: str, cells: list) -> tuple:
    """Return (columns, lines of cells), with one more column before the last."""
    return (*columns[:-1], heading, columns[-1]), [[*line[:-1], cell, line[-1]] for line, cell in zip(lines, cells)]


def add_notes(columns: tuple, lines: list, rows: list) -> tuple:
    """Return (columns, lines of cells), with the notes of the rows if some row has one."""
    if not any(row["note"] for row in rows):
        return columns, lines
    return add_column(columns, lines, NOTE, [row["note"] or "-" for row in rows])


def describe_claim(claim, slot) -> dict:
    """Return the fields of a row that describe a claim. `slot` is its first slot, or None."""
    has_slots = claim.mode == SLOTS
    return {
        "mode": MODES[claim.mode],
        "slot": slot,
        "slots": claim.slots if has_slots else None,
        "take": claim.take if has_slots else None,
    }


def format_times(rows: list) -> list:
    """Return the rows as --json prints them, with their times in RFC 3339."""
    return [{**row, "since": format_time(row["since"])} for row in rows]


def format_time(seconds):
    """Return a time in RFC 3339, local time, in milliseconds; None for None.

    The module datetime could, but takes 2 ms to load.
    """
    if seconds is None:
        return None
    whole, milliseconds = divmod(int(seconds) * 1000 + round(seconds % 1 * 1e6) // 1000, 1000)
    local = localtime(whole)
    hours, minutes = divmod(abs(local.tm_gmtoff) // 60, 60)
    sign = "-" if local.tm_gmtoff < 0 else "+"
    return f"{strftime('%Y-%m-%dT%H:%M:%S', local)}.{milliseconds:03d}{sign}{hours:02d}:{minutes:02d}"


def format_json(value, indent: str = "\n") -> str:
    """Return valid JSON in ASCII, as json.dumps(value, indent=2), which takes 5 ms to load and is slower with an indent.

    A byte of a name or a command that is not UTF-8 becomes four characters, like \\xff.
    """
    inner = indent + "  "
    if isinstance(value, str):
        return quote_json(value)
    if isinstance(value, dict):
        begin, items, end = "{", [f"{quote_json(key)}: {format_json(item, inner)}" for key, item in value.items()], "}"
    elif isinstance(value, (list, tuple)):
        begin, items, end = "[", [format_json(item, inner) for item in value], "]"
    else:
        return JSON_CONSTANTS.get(repr(value), repr(value))
    return f"{begin}{inner}{f',{inner}'.join(items)}{indent}{end}" if items else begin + end


def quote_json(text: str) -> str:
    """Return a string of JSON in ASCII."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps("".join([f"\\x{ord(one) & 0xFF:02x}" if "\ud800" <= one <= "\udfff" else one for one in text]))
