"""Fit a table to the width of a terminal: shorten texts with an ellipsis, then leave out columns. The last one always stays."""

from __future__ import annotations

from solo.text.width import cut, measure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME, NOTE = "NAME", "NOTE"
LEAST = 16  # cells of the last column, the command


def shorten(least: int) -> Callable[[list[str], int], list[str]]:
    """Return a change that cuts cells to the width that is left, but not below `least`."""
    return lambda cells, left: [cut(cell, max(least, left)) for cell in cells]


def omit(cells: list[str], left: int) -> None:
    """Leave the column out."""


def omit_exclusive(cells: list[str], left: int) -> list[str] | None:
    return None if {*cells} == {"exclusive"} else cells


def omit_equal(cells: list[str], left: int) -> list[str] | None:
    return None if len({*cells}) == 1 else cells


def omit_year(cells: list[str], left: int) -> list[str]:
    return [cell.partition("-")[2] or cell for cell in cells]


# In this order, until the last column has LEAST cells.
STEPS: tuple[tuple[str, Callable[[list[str], int], list[str] | None]], ...] = (
    (NOTE, shorten(12)),
    (NAME, shorten(12)),
    ("MODE", omit_exclusive),
    ("LAUNCHER", omit),
    ("TIME", omit_year),
    ("USER", omit_equal),
    ("DIRECTORY", shorten(12)),
    ("HOST", shorten(8)),
    ("WAITED", omit),
    (NOTE, shorten(8)),
    (NOTE, omit),
)


def fit(
    columns: Sequence[str], rows: Sequence[Sequence[str]], room: int, gap: int
) -> tuple[list[str], list[list[str]]]:
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
