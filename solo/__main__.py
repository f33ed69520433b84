#!python
"""The `solo` command, and `python -m solo`. Also installed, as it stands, as the script."""

# First of all: Python turns SIGINT into a traceback, a launcher must just die of it.
import _signal

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from solo.main import main  # noqa: E402

main()
