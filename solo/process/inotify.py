"""inotify(7), through ctypes: Python's library does not have it."""

import posix

from solo.kernel import close

IN_ATTRIB = 4  # the number of links changed, among other attributes


def watch_links(fd: int) -> "int | None":
    """Return a new descriptor that is readable once the number of links of an open file changes.

    None if inotify cannot be used: no ctypes, or too many instances of this user.
    """
    try:
        import ctypes

        library = ctypes.CDLL(None)
        watch: int = library.inotify_init1(posix.O_CLOEXEC | posix.O_NONBLOCK)
        if watch < 0:
            return None
        if library.inotify_add_watch(watch, b"/proc/self/fd/%d" % fd, IN_ATTRIB) >= 0:
            return watch
    except (ImportError, OSError, AttributeError):
        return None
    close(watch)
    return None
