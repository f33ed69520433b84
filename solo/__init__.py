"""solo runs a command so that it never runs twice at once.

The command line starts in `__main__.py`; the story of a run is `guard.py`.
"""

__version__ = "0.1.0"
