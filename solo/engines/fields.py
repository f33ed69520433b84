"""Named tuples, without typing and collections, which take 5 ms to load."""

from _operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class NamedTuple(tuple):
        """As typing.NamedTuple; type checkers read that one instead."""

        __slots__ = ()
        _fields: "tuple[str, ...]" = ()
        _defaults: "dict[str, object]" = {}

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {
                name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__
            }
            for at, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(at)))

        def __new__(cls, *values: "object", **named: "object") -> "NamedTuple":
            known = {**cls._defaults, **dict(zip(cls._fields, values)), **named}
            if len(values) > len(cls._fields) or known.keys() != set(cls._fields):
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}")
            return super().__new__(cls, [known[name] for name in cls._fields])

        def _replace(self, **changed: "object") -> "NamedTuple":
            return type(self)(**{**dict(zip(self._fields, self)), **changed})
