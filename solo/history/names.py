"""Find all names below a directory. Each directory is opened once and listed once."""

import os
from collections.abc import Iterable, Iterator, Sequence

from solo.directories import DEEPEST, Directory, open_part
from solo.errors import SoloError
from solo.kernel import IS_DIRECTORY, TYPE_MASK
from solo.tickets import is_foreign


class ForeignName(SoloError):
    """Another user made the name, in a directory of all users. Runs of this user refuse it."""


def find_files(
    base: Directory, wanted: "Sequence[str]" = ()
) -> "Iterator[tuple[str, Directory | SoloError, list[str]]]":
    """Yield (name, its Directory or why it is refused, its entries), in order, of `wanted` and
    nested names, or of all.

    Raises OSError. Each Directory is closed when the next one is asked for.
    """
    listed = [] if wanted else os.listdir(base.fd)
    return (found for found in walk(base, listed, "", wanted) if is_within(found[0], wanted))


def walk(
    place: Directory, listed: "Iterable[str]", above: str, wanted: "Sequence[str]"
) -> "Iterator[tuple[str, Directory | SoloError, list[str]]]":
    """Yield what find_files does for each directory `listed` in `place`, whose own name with a
    slash is `above`.
    """
    if not is_within(above[:-1], wanted):
        listed = {name[len(above) :].partition("/")[0] for name in wanted if name.startswith(above)}
    for part in sorted([part for part in listed if part[0] != "."]):
        name = above + part
        try:
            inner = open_part(place, part)
        except FileNotFoundError:
            continue
        except SoloError as error:
            if is_directory(place, part):
                yield name, ForeignName(str(error)) if is_foreign(place, part) else error, []
            continue
        with inner:
            try:
                # not by kernel.list_directory: nobody else reads this descriptor
                files = os.listdir(inner.fd)
            except OSError as error:
                yield name, SoloError(f"cannot list {inner.path}: {error.strerror}"), []
                continue
            yield name, inner, files
            if above.count("/") < DEEPEST:
                yield from walk(inner, files, f"{name}/", wanted)


def is_directory(place: Directory, part: str) -> bool:
    """Return whether `part` is a directory in `place`, and not a link to one."""
    try:
        return (
            os.stat(part, dir_fd=place.fd, follow_symlinks=False).st_mode & TYPE_MASK
            == IS_DIRECTORY
        )
    except OSError:
        return False


def is_within(name: str, wanted: "Sequence[str]") -> bool:
    """Return whether the name is one of `wanted` or nested in one. True if `wanted` is empty."""
    return not wanted or any(name == above or name.startswith(above + "/") for above in wanted)
