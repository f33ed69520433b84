"""The width of text on a terminal (Unicode Standard Annex 11): some letters take two cells,
combining marks none.
"""

from itertools import accumulate

from solo.kernel import decode, escape

ELLIPSIS = "…"


def clean(text: object) -> str:
    """Return a value as text that cannot control a terminal; ? for None, an unknown value."""
    return "?" if text is None else escape(str(text))


def clean_lines(data: bytes) -> str:
    """Return lines that cannot control a terminal."""
    return "\n".join(escape(line.expandtabs()) for line in decode(data).split("\n"))


def print_clean(text: object) -> None:
    """Print a line that cannot control a terminal, and flush it."""
    print(clean(text), flush=True)


def measure(text: str) -> int:
    return len(text) if text.isascii() else sum(measure_letters(text))


def measure_letters(text: str) -> "list[int]":
    """Return the width of each character in cells: 0, 1 or 2."""
    from unicodedata import category, east_asian_width

    return [
        0
        if category(letter) in ("Mn", "Me", "Cf")
        else 1 + (east_asian_width(letter) in ("W", "F"))
        for letter in text
    ]


def pad(text: str, width: int) -> str:
    """Return the text, followed by blanks up to `width` cells."""
    return text + " " * (width - measure(text))


def cut(text: str, width: int) -> str:
    """Return at most `width` cells of the text. An ellipsis replaces the missing rest."""
    if measure(text) <= width:
        return text
    ends = accumulate(measure_letters(text))
    kept = [letter for letter, end in zip(text, ends) if end < width]
    return "".join(kept) + ELLIPSIS if width > 0 else ""
