"""JSON by the parts of Python's json that are written in C. The rest of it takes 6 ms to load,
mostly for re.
"""

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = dict[str, Any]


class Syntax:
    """The attributes of a json.JSONDecoder that its scanner reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


def refuse(value: object) -> None:
    raise TypeError(f"{value!r} is not of JSON")


scan = make_scanner(Syntax)  # type: ignore[arg-type]
encode = make_encoder({}, refuse, encode_basestring_ascii, None, ":", ",", False, False, True)


def loads(data: "str | bytes") -> "Any":
    """Return the value in a text, or in bytes of UTF-8. Raises ValueError, RecursionError."""
    text = (data if isinstance(data, str) else data.decode()).strip(" \t\n\r")
    try:
        value, end = scan(text, 0)
    except (StopIteration, SystemError):  # it finds no JSONDecodeError: json.decoder is not loaded
        raise ValueError("not JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def dumps(value: object) -> str:
    """Return the shortest text of a value, in ASCII. Raises TypeError."""
    return "".join(encode(value, 0))
