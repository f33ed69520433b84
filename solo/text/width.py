"""How wide text is on a terminal: letters of some scripts take two cells, combining marks none. Cold.

After Unicode Standard Annex 11, East Asian Width, as Python's unicodedata knows it.
"""

from unicodedata import category, east_asian_width

from solo.kernel import escape

ELLIPSIS = "…"


def clean(text) -> str:
    """A value as `escape` has it; ? for None, which is what cannot be known."""
    return "?" if text is None else escape(str(text))


def tell(text):
    """Print a line that can do no harm on a terminal, at once."""
    print(clean(text), flush=True)


def measure(text: str) -> int:
    """In cells."""
    return len(text) if text.isascii() else sum(map(measure_letter, text))


def measure_letter(letter: str) -> int:
    if category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(letter) in ("W", "F") else 1


def pad(text: str, width: int) -> str:
    """Followed by blanks up to `width` cells."""
    return text + " " * (width - measure(text))


def cut(text: str, width: int) -> str:
    """No more than `width` cells of it, the last one an ellipsis if something is missing."""
    if measure(text) <= width:
        return text
    left, kept = width - 1, []
    for letter in text:
        left -= measure_letter(letter)
        if left < 0:
            break
        kept.append(letter)
    return "".join(kept) + ELLIPSIS if width > 0 else ""
