"""The memory of a process as one value: two of equal memory go on alike, whatever they have seen
before.
"""

import sys
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType

PLAIN = (type(None), bool, int, float, str, bytes, Enum)


def describe(value, seen=None):
    """Return all that can be reached from a value, as nested tuples that a later state can equal.
    Raises TypeError for what cannot be read, as an iterator.
    """
    seen = {} if seen is None else seen
    if isinstance(value, PLAIN):
        return value
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, (set, frozenset)):
        return "set", tuple(sorted([str(describe(item, seen)) for item in value]))
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif isinstance(value, MethodType):
        items = enumerate((value.__func__.__qualname__, value.__self__))
    elif isinstance(value, FunctionType):
        items = enumerate([value.__qualname__, *[c.cell_contents for c in value.__closure__ or ()]])
    elif isinstance(value, (type, BuiltinFunctionType)):
        return value.__qualname__
    elif hasattr(value, "__dict__"):
        items = sorted(vars(value).items())
    elif hasattr(value, "__slots__"):
        items = [(name, getattr(value, name)) for name in value.__slots__]
    else:
        raise TypeError(f"cannot describe {value!r}")
    return type(value).__name__, tuple([(str(key), describe(item, seen)) for key, item in items])


def describe_frames(function, word, outermost):
    """Return what `word` is in the running call of `function`, and what its callers up to
    `outermost` remember: none of them is in a loop.
    """
    frame = sys._getframe(1)
    while frame.f_code is not function.__code__:
        frame = frame.f_back
    remembered = [frame.f_locals[word]]
    while (frame := frame.f_back).f_code is not outermost.__code__:
        remembered.append((frame.f_code.co_name, frame.f_lasti, dict(frame.f_locals)))
    return describe(remembered)
