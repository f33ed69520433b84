"""inotify(7): watch for changes of a file."""

import posix

from solo.kernel import close

IN_ATTRIB = 4  # the number of links changed, among other attributes


def watch_links(fd: int) -> "int | None":
    """Return a new descriptor, readable once the links of an open file change in number; None without inotify."""
    try:
        from solo.process.library import find_function, load_library

        library = load_library()
        watch: int = find_function(library, "inotify_init1")(posix.O_CLOEXEC | posix.O_NONBLOCK)
        add = find_function(library, "inotify_add_watch")
    except (ImportError, OSError):
        return None  # no ctypes
    if watch < 0:
        return None  # this user has too many instances
    if add(watch, b"/proc/self/fd/%d" % fd, IN_ATTRIB) >= 0:
        return watch
    close(watch)
    return None
