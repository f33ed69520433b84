"""`make weight` counts what has to be understood, not how it is laid out."""

import subprocess
import sys

import pytest
import weight

CODE = "def double(number):\n    return 2 * number\n"


@pytest.mark.parametrize(
    "text",
    [
        'def double(number):\n    """Return its double."""\n    return 2 * number\n',
        "def double(\n    number\n):  # twice\n\n    return 2 * number\n",
        '"""Numbers."""\n' + CODE,
    ],
    ids=["docstring", "layout and comment", "docstring of the file"],
)
def test_layout_and_prose_have_no_weight(text):
    assert weight.count_tokens(text) == weight.count_tokens(CODE) == 10


def test_a_string_that_is_no_docstring_has_weight():
    assert weight.count_tokens("x = 'one'\n'two'\n") == 4


def test_weight_is_printed_by_folder_against_the_last_release():
    lines = subprocess.run(
        [sys.executable, weight.__file__], capture_output=True, text=True, check=True
    ).stdout.splitlines()

    tokens, grown, folder = lines[1].split()
    assert (lines[0].split()[:2], folder) == (["tokens", "since"], "solo")
    assert int(tokens.replace(",", "")) == weight.weigh()["solo"] and grown[0] in "+-"
