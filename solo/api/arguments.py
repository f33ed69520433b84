"""Arguments of the programs that use solo, verified and resolved as on the command line."""

import math
import os
from collections.abc import Iterable, Mapping
from typing import Optional, Union

from solo.argv import is_engine, read_variables
from solo.command import make_name
from solo.directories import check_new_name
from solo.errors import UsageError
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.options import DIR, LAUNCHER_OPTIONS, VIA

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

LONGEST_WAIT = 1e9  # seconds; longer waits have no limit
MOST_SLOTS = 999_999_999  # as on the command line


def list_paths(keyword: str, paths: Union[AnyPath, Iterable[AnyPath]]) -> list[str]:
    """Return the absolute paths of one or several files. Raises UsageError if one is invalid."""
    return [
        make_absolute(keyword, path)
        for path in ([paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths)
    ]


def make_absolute(keyword: str, path: AnyPath) -> str:
    """Return the absolute path. Raises UsageError if it cannot be one."""
    try:
        return os.path.abspath(check_path(keyword, path))
    except FileNotFoundError:
        raise UsageError(f"{keyword} is relative, and the working directory was removed") from None


def check_path(keyword: str, path: AnyPath) -> str:
    """Return the path. Raises UsageError if it cannot be one."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise UsageError(f"{keyword} has characters that cannot be in a path") from None
    if not encoded:
        raise UsageError(f"{keyword} is empty (is a variable unset?)")
    if b"\0" in encoded:
        raise UsageError(f"{keyword} may not contain NUL")
    return os.fsdecode(encoded)


def name_file(path: str) -> str:
    """Return the name of a file that is locked without a name, from its real path:
    `app.lock-1f0c2a9e`.
    """
    return make_name(os.path.realpath(path), [], "file")


def check_name(name: object) -> str:
    """Return the name. Raises UsageError if it is invalid."""
    if not isinstance(name, str):
        raise UsageError(f"a name is a str, not {type(name).__name__}")
    try:
        check_new_name(name)
    except UnicodeEncodeError:
        raise UsageError("a name with characters that cannot be in a file name") from None
    return name


def check_wait(wait: Optional[float]) -> Optional[float]:
    """Return the seconds, math.inf if they are too many. Raises UsageError if it is not a number of
    seconds.
    """
    if wait is not None and (
        isinstance(wait, bool) or not (isinstance(wait, (int, float)) and wait >= 0)
    ):
        raise UsageError(
            f"{wait!r} is not a number of seconds (None: do not wait, math.inf: without limit)"
        )
    return math.inf if wait is not None and wait > LONGEST_WAIT else wait


def make_claim(shared: bool, slots: Optional[int], take: int) -> Claim:
    """Return the claim of these arguments. Raises UsageError if they are invalid."""
    if slots is None:
        if take != 1:
            raise UsageError(f"take={take} needs slots")
        return Claim(SHARED if shared else EXCLUSIVE)
    if shared:
        raise UsageError("shared and slots exclude each other")
    if not (type(slots) is type(take) is int and 0 < take <= slots <= MOST_SLOTS):
        raise UsageError(
            f"slots={slots!r}, take={take!r}: take must be at least 1 and at most slots"
        )
    return Claim(SLOTS, slots, take)


def read_options(
    via: Optional[str], directory: Optional[AnyPath], variables: Mapping[bytes, bytes] = os.environb
) -> dict[str, str]:
    """Return the options as the command line would have read them. Raises UsageError."""
    options = {} if via is None else {VIA.key: via}
    if directory is not None:
        options[DIR.key] = check_path("directory", directory)
    try:
        read_variables(options, variables)
        if is_engine(options):
            from solo.commands.lookup import check_via

            check_via(options[VIA.key])
    except UsageError as error:
        raise UsageError(name_keywords(str(error))) from None
    return options


def name_keywords(text: str) -> str:
    """Return a message about options with the keywords of the API in their place."""
    options = [one for whole in LAUNCHER_OPTIONS for one in (whole, whole.part) if one]
    for one in sorted(options, key=lambda one: -len(one.title)):
        text = text.replace(one.title, one.keyword or one.title)
    return text
