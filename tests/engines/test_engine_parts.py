"""The small substitutes for slow modules of Python: JSON, named tuples, C functions."""

import json
import math
import subprocess
import sys
import typing

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as some

from solo.engines import fields
from solo.engines import json as ours
from solo.process.library import Int, Pointer, find_function, load_library, pack

pytestmark = pytest.mark.quick

VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)


@given(VALUES)
def test_json_is_written_and_read_as_by_python(value):
    assert ours.dumps(value) == json.dumps(value, separators=(",", ":"))
    assert repr(ours.loads(f" {json.dumps(value)}\n".encode())) == repr(value)


@given(some.text('[]{}",:0123456789eE+-.truefalsn \\u') | some.text())
def test_json_is_refused_as_by_python(text):
    try:
        wanted = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            ours.loads(text)
    else:
        assert repr(ours.loads(text)) == repr(wanted)


def test_json_is_refused_where_that_of_python_is_not_loaded():
    """As in a launcher: the scanner in C has no exception of its own to raise there."""
    texts = [
        "{bad",
        '{"]',
        '{"a" 1}',
        '{"a":1,}',
        "[1,",
        '"abc',
        '"\\u12',
        '"\\q"',
        '{"a":"\n"}',
        "",
    ]
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from solo.engines.json import loads
assert "json" not in sys.modules
for text in {texts!r}:
    try: loads(text)
    except ValueError: print()
"""
    out = subprocess.run([sys.executable, "-IS", "-c", code], check=True, capture_output=True)
    assert out.stdout == b"\n" * len(texts)


def test_json_has_no_other_values():
    with pytest.raises(TypeError):
        ours.dumps({"a": object()})
    with pytest.raises(RecursionError):
        ours.loads("[" * 100_000)
    assert math.isnan(ours.loads("NaN"))


class Ours(fields.NamedTuple):
    name: str
    number: int = 7
    items: tuple = ()


class Theirs(typing.NamedTuple):
    name: str
    number: int = 7
    items: tuple = ()


@pytest.mark.parametrize(
    "make",
    [
        lambda kind: kind("a"),
        lambda kind: kind("a", 8, (1,)),
        lambda kind: kind(name="a", items=(2,)),
        lambda kind: kind("a")._replace(number=9),
        lambda kind: (kind("a").name, kind("a").number, kind("a", 1) == kind("a", 1)),
        lambda kind: kind(),
        lambda kind: kind("a", 1, (), 5),
        lambda kind: kind("a", other=5),
    ],
)
def test_named_tuples_are_those_of_typing(make):
    try:
        wanted = make(Theirs)
    except TypeError:
        with pytest.raises(TypeError):
            make(Ours)
    else:
        assert make(Ours) == wanted


def test_c_functions_take_and_return_numbers():
    library = load_library()

    assert find_function(library, "abs")(-7) == 7
    assert (pack(Int, 1), len(pack(Pointer, 1, 2))) == ((1).to_bytes(4, "little"), 16)
    with pytest.raises(OSError):
        find_function(library, "no_such_function")
