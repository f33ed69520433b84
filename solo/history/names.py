"""Find all names below a directory. Each directory is opened once and listed once."""

import posix

from solo.directories import DEEPEST, Directory, open_part
from solo.errors import SoloError
from solo.kernel import IS_DIRECTORY, TYPE_MASK, close
from solo.tickets import is_foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class ForeignName(SoloError):
    """Another user made the name, in a directory of all users. Runs of this user refuse it."""


def find_names(base: Directory) -> "Iterator[tuple[str, Directory | SoloError]]":
    """Yield (name, Directory) of every name below `base`, in order; (name, SoloError) if it is refused.

    Each Directory is closed when the next one is asked for.
    """
    for name, place, _ in find_files(base):
        yield name, place


def find_files(base: Directory) -> "Iterator[tuple[str, Directory | SoloError, list[str]]]":
    """Yield the same with what each directory contains. Raises OSError if `base` cannot be listed."""
    return walk(base, posix.listdir(base.fd), "")


def walk(place: Directory, listed: "list[str]", above: str) -> "Iterator[tuple[str, Directory | SoloError, list[str]]]":
    """Yield what find_files does for each directory `listed` in `place`, whose own name with a slash is `above`."""
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
        try:
            files = posix.listdir(inner.fd)  # not by kernel.list_directory: nobody else reads this descriptor
        except OSError as error:
            yield name, SoloError(f"cannot list {inner.path}: {error.strerror}"), []
        else:
            yield name, inner, files
            if above.count("/") < DEEPEST:
                yield from walk(inner, files, f"{name}/")
        finally:
            close(inner.fd)


def is_directory(place: Directory, part: str) -> bool:
    """Whether `part` is a directory in `place`, and not a link to one."""
    try:
        return posix.stat(part, dir_fd=place.fd, follow_symlinks=False).st_mode & TYPE_MASK == IS_DIRECTORY
    except OSError:
        return False


def is_within(name: str, wanted: "list[str]") -> bool:
    """Whether the name is one of `wanted` or nested in one. True if `wanted` is empty."""
    return not wanted or any(name == one or name.startswith(one + "/") for one in wanted)
