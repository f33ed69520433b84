"""solo runs a command so that it never runs twice at once, and gives Python programs the same lock.

    import solo

    with solo.Lock("nightly"):
        ...

The command line starts in `__main__.py`; `launcher.py` is a guarded run. Programs get what is
listed in `__all__`, from `api/`, which is loaded when it is first asked for: the command line does
not load it.
"""

__version__ = "0.3.0"
__all__ = [
    "Busy",
    "Hold",
    "Holder",
    "LeaseLost",
    "Lock",
    "NotExecutable",
    "NotFound",
    "RanAlready",
    "SoloError",
    "Unreachable",
    "UsageError",
    "holders",
    "run",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from solo.api.hold import Hold
    from solo.api.holder import Holder, holders
    from solo.api.lock import Lock
    from solo.api.run import run
    from solo.errors import (
        Busy,
        LeaseLost,
        NotExecutable,
        NotFound,
        RanAlready,
        SoloError,
        Unreachable,
        UsageError,
    )


def __getattr__(name: str) -> object:
    import sys

    if sys.implementation.name != "cpython":
        raise ImportError(f"solo needs CPython, not {sys.implementation.name}")
    for module in ("errors", "api.lock", "api.holder", "api.run") if name in __all__ else ():
        found = getattr(__import__(f"solo.{module}", fromlist=["*"]), name, None)
        if found is not None:
            globals()[name] = found
            return found
    raise AttributeError(f"module 'solo' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted([*globals(), *__all__])
