"""The width of text on a terminal: letters of some scripts take two cells, combining marks none.

The widths are those of Unicode Standard Annex 11, East Asian Width, from Python's unicodedata.
"""

from __future__ import annotations

from solo.kernel import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ELLIPSIS = "…"


def clean(text: object) -> str:
    """Return a value as text that cannot control a terminal; ? for None, an unknown value."""
    return "?" if text is None else escape(str(text))


def print_clean(text: object) -> None:
    """Print a line that cannot control a terminal, and flush it."""
    print(clean(text), flush=True)


def measure(text: str) -> int:
    return len(text) if text.isascii() else sum(measure_letters(text))


def measure_letters(text: str) -> Iterator[int]:
    """Yield the width of each character in cells: 0, 1 or 2."""
    from unicodedata import category, east_asian_width

    for letter in text:
        if category(letter) in ("Mn", "Me", "Cf"):
            yield 0
        else:
            yield 2 if east_asian_width(letter) in ("W", "F") else 1


def pad(text: str, width: int) -> str:
    """Return the text, followed by blanks up to `width` cells."""
    return text + " " * (width - measure(text))


def cut(text: str, width: int) -> str:
    """Return at most `width` cells of the text. An ellipsis replaces the missing rest."""
    if measure(text) <= width:
        return text
    left, kept = width - 1, []
    for letter, cells in zip(text, measure_letters(text)):
        left -= cells
        if left < 0:
            break
        kept.append(letter)
    return "".join(kept) + ELLIPSIS if width > 0 else ""
