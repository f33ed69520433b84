"""The merger of the bundle: modules in one namespace behave as the modules they were, whatever is at hand."""

import ast

import pytest

from solo.generate.merge import Merger


def run(sources, used=()):
    """Merge modules {name: source}, execute what is at hand, and load parts when they are wanted.

    `used` are names at hand, as `module.name`. Return (the namespace, the names of the parts that were loaded).
    """
    by_module = {}
    for name in used:
        module, _, rest = name.partition(".")
        by_module.setdefault(f"solo.{module}", set()).add(rest)
    merged = Merger({f"solo.{name}": source for name, source in sources.items()}, by_module).merge()
    space, loaded = {"__name__": "merged"}, []

    def execute(tree):
        exec(compile(ast.fix_missing_locations(tree), "merged", "exec"), space)

    def late(name):
        owner = merged.owners.get(name)
        if owner is not None and owner not in loaded:
            loaded.append(owner)
            execute(merged.parts[owner])
        return space[name]

    def find_method(self, name):
        for found in type(self).__mro__:
            part = merged.methods.get(found.__name__)
            if part and name in {node.name for node in part.body[-1].body}:
                loaded.append(found.__name__)
                execute(part)
                setattr(found, name, vars(space["_Methods"])[name])
                return getattr(self, name)
        raise AttributeError(name)

    space.update(_late=late, _late_method=find_method, _expose=lambda: loaded.append("files"))
    execute(merged.at_hand)
    return space, loaded


def call(sources, used=("a.main",)):
    space, loaded = run(sources, used)
    return space["main"](), loaded


def test_function_of_another_module_is_loaded_when_it_is_called():
    sources = {"b": "def double(x): return 2 * x", "a": "from solo.b import double\ndef main(): return double(4)"}

    assert call(sources) == (8, ["solo.b"])
    assert call(sources, ("a.main", "b.double")) == (8, [])


def test_name_of_two_modules_means_each_its_own():
    sources = {
        "b": "LIMIT = 1\ndef get(): return LIMIT",
        "a": "from solo import b\nfrom solo.b import get as other\nLIMIT = 2\ndef get(): return LIMIT\n"
        "def main(): return get(), other(), b.LIMIT, b.get()",
    }

    for used in (("a.main",), ("a.main", "a.get", "b.get"), ("a.main", "b.get")):
        assert call(sources, used)[0] == (2, 1, 1, 1)


def test_module_and_its_function_of_one_name_are_kept_apart():
    sources = {
        "b": "from math import floor\nfrom time import time\ndef get(): return floor(2.5), time() > 0",
        "a": "import time\nfrom solo.b import get\ndef main(): return get(), time.time() > 0",
    }

    assert call(sources)[0] == ((2, True), True)


def test_module_in_a_package_binds_the_package():
    source = "import importlib.util\nimport os.path as place\ndef main(): return importlib.util.find_spec('os').name, place.sep"

    assert call({"a": source})[0] == ("os", "/")


def test_local_names_hide_global_ones():
    sources = {
        "b": "def wait(): return 'global'\ndef size(): return 'global'",
        "a": """
from solo.b import size, wait
def main():
    def inner(wait):
        return wait, [size for size in "x"], (lambda size: size)("y"), {wait for wait in "z"}
    for count in range(1):
        try:
            raise ValueError("caught")
        except ValueError as error:
            size_of = str(error)
    return wait(), size(), inner("own"), size_of
""",
    }

    assert call(sources)[0] == ("global", "global", ("own", ["x"], "y", {"z"}), "caught")


def test_alias_is_not_hidden_by_a_local_of_its_real_name():
    sources = {
        "b": "def wait(): return 'b'",
        "a": "from solo.b import wait as pause\ndef main():\n wait = 1\n return pause(), wait",
    }

    assert call(sources, ("a.main", "b.wait"))[0] == ("b", 1)
    assert call(sources)[0] == ("b", 1)


def test_names_of_a_class_body_are_not_seen_in_its_methods():
    sources = {
        "b": "def close(): return 'global'",
        "a": """
from solo.b import close
class Gate:
    kept = "kept"
    also = kept
    def close(self): return close()
    shut = close
def main():
    return Gate().close(), Gate().shut(), Gate.also
""",
    }

    for used in (("a.main",), ("a.main", "a.Gate.close"), ("a.main", "a.Gate", "b.close")):
        assert call(sources, used)[0] == ("global", "global", "kept")


def test_global_variable_is_one_for_all_parts():
    source = "count = 0\ndef add():\n global count\n count += 1\ndef get(): return count\ndef main():\n add()\n add()\n return get()"

    assert call({"a": source})[0] == 2
    assert call({"a": source}, ("a.main", "a.get"))[0] == 2


def test_late_method_and_property_are_loaded_once_for_the_class():
    source = """
class Run:
    __slots__ = ("value",)
    def __init__(self): self.value = 3
    def double(self): return 2 * self.value
    @property
    def triple(self): return 3 * self.value
    def at_hand(self): return self.double() + self.triple
def main():
    run = Run()
    return run.at_hand(), Run().at_hand(), hasattr(run, "other"), getattr(run, "started", None)
"""
    result, loaded = call({"a": source}, ("a.main", "a.Run.__init__", "a.Run.at_hand"))

    assert result == (15, 15, False, None)
    assert loaded.count("Run") == 2  # one for each method, as it is first wanted


def test_class_that_is_only_compared_with_is_the_class_of_its_part():
    sources = {
        "b": "class Base(Exception): pass\nclass Busy(Base): status = 75\ndef fail(): raise Busy('held')",
        "a": """
from solo.b import Base, Busy, fail
def main():
    try:
        fail()
    except (KeyError, Busy) as error:
        return isinstance(error, Base), error.status, str(error)
""",
    }

    assert call(sources)[0] == (True, 75, "held")


def test_error_of_loading_a_part_belongs_where_it_is_imported():
    sources = {
        "b": "import no_such_module_anywhere\ndef get(): return no_such_module_anywhere",
        "a": "def main():\n try:\n  from solo.b import get\n except ImportError:\n  return 'refused'\n return get()",
    }

    assert call(sources)[0] == "refused"


def test_fields_of_named_tuples_stay():
    source = (
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n one: int\n two: str = 'x'\ndef main(): return Pair(1)"
    )

    assert call({"a": source})[0] == (1, "x")


def test_types_and_docstrings_go():
    source = '"""Module."""\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n    import nowhere\nvalue: "nowhere.Type" = 1\ndef main(x: int = 2) -> int:\n    """Doc."""\n    return value + x'
    space, _ = run({"a": source}, ("a.main",))

    assert space["main"]() == 3 and space["main"].__doc__ is None and not space["main"].__annotations__


def test_module_outside_is_imported_from_its_file():
    source = "def main():\n from solo.errors import Busy\n return Busy.status"

    assert call({"a": source}) == (75, ["files"])


@pytest.mark.parametrize(
    "source, text",
    [
        ("from solo.b import missing\ndef main(): return missing()", "missing"),
        ("from solo import b\ndef main(): return b", "used as a value"),
        ("def main(): return undefined", "undefined is not defined"),
    ],
)
def test_what_would_fail_at_run_time_fails_when_merged(source, text):
    with pytest.raises((ValueError, KeyError), match=text):
        run({"b": "x = 1", "a": source}, ("a.main",))
