"""The table of options agrees with what is written by hand: the signature of solo.run, and the
manual after `make man`.
"""

import inspect

import pytest
import tables
from conftest import ROOT

import solo
from solo.api.run import make_words
from solo.commands.cli import SUBCOMMANDS
from solo.errors import UsageError
from solo.kinds import FLAG
from solo.options import LAUNCHER_OPTIONS, ONCE_PER, PARTS, SUBCOMMAND_NAMES, WAIT

pytestmark = pytest.mark.quick


def test_solo_run_has_a_keyword_for_every_option_and_its_default():
    """Without those for a command line only: its output and its exit status."""
    keywords = inspect.signature(solo.run).parameters
    others = {"argv", "check", "input", "capture_output", "popen"}

    assert keywords.keys() - others == {
        option.keyword for option in (*LAUNCHER_OPTIONS, *PARTS)
    } - {None}
    for option in (*LAUNCHER_OPTIONS, *PARTS):
        default = False if option.kind is FLAG else None
        assert option.keyword is None or keywords[option.keyword].default is default, option.flag
    flags = {option.flag for option in LAUNCHER_OPTIONS if option.keyword is None}
    assert flags == set(
        "busy-exit quiet loud-after syslog capture verbose explain json help version".split()
    )


def test_solo_run_types_a_part_after_the_value_of_its_option():
    assert make_words(WAIT, {"wait": 5, "max_waiting": 0}) == ["--wait", "5.000000000s,0"]
    assert make_words(ONCE_PER, {"once_per": 60, "once_retry": True}) == [
        "--once-per",
        "60.000000000s,retry",
    ]
    assert make_words(ONCE_PER, {"once_per": 60, "once_retry": False}) == [
        "--once-per",
        "60.000000000s",
    ]
    with pytest.raises(UsageError, match="max_waiting needs wait"):
        make_words(WAIT, {"wait": None, "max_waiting": 1})


def test_names_of_subcommands_agree_with_their_signatures():
    assert list(SUBCOMMANDS) == SUBCOMMAND_NAMES


def test_manual_and_completions_agree_with_the_tables():
    paths = [
        ROOT / "man/solo.1",
        ROOT / "man/solo-hold.1",
        *(ROOT / "packaging/completions").iterdir(),
    ]
    texts = [path.read_text() for path in paths]

    assert [tables.rewrite(text) for text in texts] == texts, "run `make man`"
    assert sum(len(tables.MARKED.findall(text)) for text in texts) == len(tables.TABLES)
