"""prctl(2), which Python's library does not have. Cold: ctypes costs 2 ms."""

import posix
from _signal import SIGKILL

from solo.errors import SoloError

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36


def load_prctl():
    """prctl(2) as a function. Raises SoloError."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        raise SoloError("this Python has no ctypes, which --tree, --no-orphan, --flock and --via socket need") from None


def make_die_with():
    """A function for a forked child: from now on it gets SIGKILL when its launcher, of the given pid, dies."""
    prctl = load_prctl()

    def die_with(launcher: int):
        # A launcher that died in between is no longer the parent; who that is now depends on subreapers.
        if prctl(SET_PDEATHSIG, SIGKILL, 0, 0, 0) or posix.getppid() != launcher:
            posix._exit(SoloError.status)

    return die_with


def become_subreaper():
    """From now on descendants whose parents die become our children."""
    if load_prctl()(SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SoloError("this kernel can not do --tree")
