"""The values of options."""

import signal

import pytest

from solo import kinds
from solo.errors import UsageError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("500ms", 0.5),
        ("30", 30),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        (".5", 0.5),
    ]
    + [("0", 0), ("9" * 400, float("inf")), ("forever", float("inf"))],
)
def test_duration_is_read_in_seconds(text, seconds):
    assert kinds.read_duration("-w", text) == seconds


@pytest.mark.parametrize("text", ["24", "1.5", "90"])
def test_age_needs_a_unit(text):
    with pytest.raises(UsageError) as caught:
        kinds.read_age("--once-per", text)

    assert (
        str(caught.value) == f"--once-per {text}: needs a unit (like {text}h, {text}d or {text}s)"
    )
    assert kinds.read_age("--once-per", "0") == 0


def test_signals_have_pythons_names():
    numbers = signal.valid_signals()

    assert {number: kinds.name_signal(number) for number in numbers} == {
        number: number.name if isinstance(number, signal.Signals) else f"signal {number}"
        for number in numbers
    }
