"""The lock of solo(1) for Python programs: work under a name never runs twice at once.

    import solo

    with solo.Lock("nightly", wait=600) as hold:
        print("alone, with token", hold.token)

    solo.run(["backup.sh", "--full"], name="backup", check=True)

`Lock` gives a `Hold`, or raises `Busy`; `run` is subprocess.run under a lock; `holders` says who
holds a name. Each error is a `SoloError`. solo(3) is the manual page.
"""

# The command line starts in __main__.py, and does not load api/, which has what programs use.

__version__ = "0.4.0"
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
