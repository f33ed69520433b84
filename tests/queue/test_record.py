"""solo/record.py: facts, and a small sample of `make fuzz` for `make quick`."""

import fuzz
import pytest
from readers import TARGETS

from solo import identity, modes, record

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", ["record", "quoted", "gate", "stat", "value", "words"])
def test_sample_of_inputs_is_read_correctly(name):
    """Records survive a round trip and are never another one when torn; process names and words may
    be anything.
    """
    result = fuzz.run(TARGETS[name], 1, 150)

    assert "why" not in result, result


def test_closing_lines_fit_their_reserved_place():
    assert len(record.format_closing(((1 << 31) - 1, (1 << 64) - 1))) == record.RESERVED


def test_command_too_long_for_a_record_ends_in_an_ellipsis():
    origin = identity.Origin("b", "1", "1", "h")
    original = record.Record((1, 1), origin, 0, modes.Claim("X"), ["a"], [b"x" * 1000] * 1000)

    words = record.parse_record(record.format_record(original)).command

    assert words[-1] == "…".encode() and len(words) < 300
