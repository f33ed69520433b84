#!python
"""The `solo` command, and `python -m solo`. Also installed, as it stands, as the script."""

# First of all: Python turns SIGINT into a traceback, a launcher must just die of it.
import _signal

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

try:
    from solo.main import main

    main()
except Exception as error:  # memory ran out, as a rule: while Python loads, or where main says why
    import posix

    try:
        posix.write(
            2, f"solo: cannot go on: {str(error) or 'Cannot allocate memory'}\n".encode("ascii", "backslashreplace")
        )
    finally:
        posix._exit(125)
