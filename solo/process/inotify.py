"""inotify(7): watch for changes of a file."""

import posix

from solo.kernel import close

IN_ATTRIB = 4  # the number of links changed, among other attributes


def watch_links(fd: int) -> "int | None":
    """Return a new descriptor that is readable once the number of links of an open file changes.

    None if inotify cannot be used: no ctypes, or too many instances of this user.
    """
    try:
        from solo.process.library import find_function, load_library

        library = load_library()
        watch: int = find_function(library, "inotify_init1")(posix.O_CLOEXEC | posix.O_NONBLOCK)
        add = find_function(library, "inotify_add_watch")
    except (ImportError, OSError):
        return None
    if watch < 0:
        return None
    if add(watch, b"/proc/self/fd/%d" % fd, IN_ATTRIB) >= 0:
        return watch
    close(watch)
    return None
