"""inotify(7): watch for changes of a file."""

import posix

from solo.kernel import close

IN_ATTRIB = 4  # the number of links changed, among other attributes


def watch_links(fd: int) -> "int | None":
    """Return a new descriptor that is readable once the number of links of an open file changes.

    None if inotify cannot be used: no ctypes, or too many instances of this user.
    """
    try:
        from solo.process.libc import load

        watch = load("inotify_init1")(posix.O_CLOEXEC | posix.O_NONBLOCK)
    except (ImportError, OSError):
        return None
    try:
        load("inotify_add_watch")(watch, b"/proc/self/fd/%d" % fd, IN_ATTRIB)
        return watch
    except OSError:
        close(watch)
        return None
