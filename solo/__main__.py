#!python
"""The `solo` command, and `python -m solo`. Also installed, as it stands, as the script."""

# First of all: Python turns SIGINT into a traceback, a launcher must just die of it.
import _signal

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import posix
import sys

last_words = b"solo: cannot continue: Cannot allocate memory\n"
try:
    if sys.implementation.name != "cpython":
        raise ImportError(
            f"solo needs CPython, not {sys.implementation.name} (start it with python3)"
        )
    from solo.main import main

    main()  # does not return
except Exception as error:  # as a rule memory ran out, perhaps again while this one is handled
    # No `:=`: Python 3.6 reads this file of solo.pyz too, to say which one it needs.
    reason = getattr(error, "strerror", "") or str(error)
    if reason:
        last_words = f"solo: cannot continue: {reason}\n".encode("ascii", "backslashreplace")
finally:
    try:
        posix.write(2, last_words)
    finally:
        posix._exit(125)
