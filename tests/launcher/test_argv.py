"""solo/argv.py: the words of the command line, and the values of options."""

import pytest

from solo import argv, kinds
from solo.errors import UsageError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "words, options, rest",
    [
        (["true"], {}, ["true"]),
        (["--", "list"], {}, ["list"]),
        (["-n", "a", "-nb", "--name", "c", "--name=d=e", "x", "-n"], {"name": ["a", "b", "c", "d=e"]}, ["x", "-n"]),
        (["-qvE0", "x"], {"quiet": True, "verbose": True, "busy_exit": 0}, ["x"]),
        (["-qw", "1h30m", "--", "-x"], {"quiet": True, "wait": 5400.0}, ["-x"]),
        (["--wait=forever", "-"], {"wait": float("inf")}, ["-"]),
        (["-w5s,3", "--slots=4,2"], {"wait": 5.0, "max_waiting": 3, "slots": 4, "take": 2}, []),
        (["--max-waiting", "3", "--take=2", "--once-retry"], {"max_waiting": 3, "take": 2, "once_retry": True}, []),
        (["--once-per", "1d,retry", "x"], {"once_per": 86400.0, "once_retry": True}, ["x"]),
        ([], {}, []),
    ],
)
def test_words_are_parsed_like_gnu_programs_do(words, options, rest):
    assert argv.parse(words) == (options, None, rest)


def test_subcommand_is_a_bare_word_after_the_options():
    assert argv.parse(["--dir", "d", "list", "x"]) == ({"dir": "d"}, "list", ["list", "x"])
    assert argv.parse(["--", "list"])[1] is None
    assert argv.parse(["./list"])[1] is None


@pytest.mark.parametrize(
    "words, text",
    [
        (["--wiat", "5"], "--wiat: no such option (did you mean --wait?)"),
        (["-z"], "-z: no such option (--help lists the options)"),
        (["-n"], "-n needs a value"),
        (["--quiet=1"], "--quiet takes no value"),
        (["-n", ""], "-n needs a value"),
        *((["-w", text], f"-w {text}: not a duration") for text in ("5x", "", "-5")),
        *((["-E", text], "not an exit status") for text in ("000000000999", "0" * 5000, "256", "x", "²")),
        (["--slots", "4,x"], "K of --slots x: not a number"),
        (["--once-per", "1d,again"], "--once-per 1d,again: after the comma only retry may stand"),
    ],
)
def test_invalid_words_are_a_usage_error(words, text):
    with pytest.raises(UsageError) as caught:
        argv.parse(words)

    assert text in str(caught.value)


@pytest.mark.parametrize(
    "text, seconds",
    [("500ms", 0.5), ("30", 30), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), (".5", 0.5)]
    + [("0", 0), ("9" * 400, float("inf")), ("forever", float("inf"))],
)
def test_duration_is_read_in_seconds(text, seconds):
    assert kinds.read_duration("-w", text) == seconds
