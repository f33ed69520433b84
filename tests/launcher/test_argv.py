"""solo/argv.py: the words of the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solo import argv, kinds
from solo.errors import UsageError
from solo.options import LAUNCHER_OPTIONS

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "words, options, rest",
    [
        (["true"], {}, ["true"]),
        (["--", "list"], {}, ["list"]),
        (
            ["-n", "a", "-nb", "--name", "c", "--name=d=e", "x", "-n"],
            {"name": ["a", "b", "c", "d=e"]},
            ["x", "-n"],
        ),
        (["-qvE0", "x"], {"quiet": True, "verbose": True, "busy_exit": 0}, ["x"]),
        (["-qw", "1h30m", "--", "-x"], {"quiet": True, "wait": 5400.0}, ["-x"]),
        (["--wait=forever", "-"], {"wait": float("inf")}, ["-"]),
        (["-w5s,3", "--slots=4,2"], {"wait": 5.0, "max_waiting": 3, "slots": 4, "take": 2}, []),
        (
            ["--max-waiting", "3", "--take=2", "--once-retry"],
            {"max_waiting": 3, "take": 2, "once_retry": True},
            [],
        ),
        (["-w", "9s,1", "-w", "9s", "--slots=4,2", "--slots", "5"], {"wait": 9.0, "slots": 5}, []),
        (["--once-per", "1d,retry", "x"], {"once_per": 86400.0, "once_retry": True}, ["x"]),
        ([], {}, []),
    ],
)
def test_words_are_parsed_like_gnu_programs_do(words, options, rest):
    assert argv.parse(words) == (options, None, rest)


PARTED = {option.flag: option for option in LAUNCHER_OPTIONS if option.part is not None}
PART_VALUES = {"take": "12", "max-waiting": "03", "signal": ["INT", "9"], "once-retry": ["retry"]}


def make_words(option):
    """Return a strategy of the words of one option: alone, with a part after the comma, or the part
    as earlier releases have it.
    """
    values = ("7d", "9h") if option.kind is kinds.AGE else ("7", "9")
    value, part = st.sampled_from(values), st.sampled_from(PART_VALUES[option.part.flag])
    earlier = [f"--{option.part.flag}"]
    return st.one_of(
        st.tuples(st.just(f"--{option.flag}"), value),
        st.tuples(st.just(f"--{option.flag}"), st.builds("{},{}".format, value, part)),
        st.just(tuple(earlier))
        if option.part.kind is kinds.FLAG
        else st.tuples(st.just(earlier[0]), part),
    )


def read_last(option, typed):
    """Return what the words mean: the last of the option counts, with the last of its parts from
    there on.

    If the option is typed once, or not at all, a part as an option of its own may come before it.
    """
    wholes = [at for at, words in enumerate(typed) if words[0] == f"--{option.flag}"]
    meant, found = {}, typed[wholes[-1] :] if len(wholes) > 1 else typed
    for flag, *values in found:
        value, comma, part = (values or [""])[0].partition(",")
        if flag == f"--{option.flag}":
            meant[option.key] = option.kind.read(flag, value)
        else:
            comma, part = ",", value
        if comma:
            meant[option.part.key] = option.part.kind.read(flag, part)
    return meant


@pytest.mark.parametrize("flag", PARTED)
@given(data=st.data())
def test_last_of_a_repeated_option_replaces_its_part_too(flag, data):
    typed = data.draw(st.lists(make_words(PARTED[flag]), max_size=5))

    assert argv.parse([word for words in typed for word in words])[0] == read_last(
        PARTED[flag], typed
    )


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
        *((["-w", text], f"-w {text}: not a duration") for text in ("5x", "-5")),
        *(
            ([flag, text], f"{what} needs a value, not an empty word (is a variable unset?)")
            for flag, text, what in (
                ("--wait", "", "--wait"),
                ("-w", ",3", "-w"),
                ("-w", "5,", "N of -w"),
                ("--slots", "3,", "K of --slots"),
                ("-t", "5,", "SIG of -t"),
                ("-E", "", "-E"),
                ("--loud-after", "", "--loud-after"),
            )
        ),
        *(
            (["-E", text], "not an exit status")
            for text in ("000000000999", "0" * 5000, "256", "x", "²")
        ),
        (["--slots", "4,x"], "K of --slots x: not a number"),
        (["--once-per", "1d,again"], "--once-per 1d,again: after the comma only retry may stand"),
    ],
)
def test_invalid_words_are_a_usage_error(words, text):
    with pytest.raises(UsageError) as caught:
        argv.parse(words)

    assert text in str(caught.value)
