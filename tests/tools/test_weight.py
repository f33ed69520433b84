"""`make weight` counts what has to be understood, not how it is laid out."""

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


def test_an_f_string_is_one_token():
    assert weight.count_tokens("x = f'{one} and {two}'\n") == 3


def test_weight_is_printed_by_folder_against_the_last_release(tmp_path, monkeypatch, capsys):
    (tmp_path / "solo/text").mkdir(parents=True)
    (tmp_path / "solo/one.py").write_text(CODE)
    (tmp_path / "solo/text/two.py").write_text(CODE)
    (tmp_path / "weight.txt").write_text("1.0\nsolo 12\nsolo/ 12\n")
    monkeypatch.setattr(weight, "ROOT", tmp_path)
    monkeypatch.setattr(weight, "RELEASE", tmp_path / "weight.txt")
    monkeypatch.setattr("sys.argv", ["weight"])

    weight.main()

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["tokens", "since", "1.0"],
        ["10", "-2", "solo"],
        ["20", "+8", "solo/"],
        ["10", "+10", "solo/text"],
    ]
