"""The table of options agrees with what is written by hand: the signature of solo.run, and the manual after `make man`."""

import inspect

from conftest import ROOT

import solo
from solo.commands.table import SUBCOMMANDS
from solo.generate import manual
from solo.kinds import FLAG
from solo.options import LAUNCHER_OPTIONS, SUBCOMMAND_NAMES


def test_solo_run_has_a_keyword_for_every_option_and_its_default():
    """Without those for a command line only: its output and its exit status."""
    keywords = inspect.signature(solo.run).parameters
    others = {"argv", "check", "input", "capture_output", "popen"}

    assert keywords.keys() - others == {option.keyword for option in LAUNCHER_OPTIONS} - {None}
    for option in LAUNCHER_OPTIONS:
        assert option.keyword is None or keywords[option.keyword].default is (False if option.kind is FLAG else None), (
            option.flag
        )
    assert {option.flag for option in LAUNCHER_OPTIONS if option.keyword is None} == set(
        "busy-exit quiet loud-after syslog verbose help version".split()
    )


def test_names_of_subcommands_agree_with_the_table():
    assert tuple(one.name for one in SUBCOMMANDS) == SUBCOMMAND_NAMES


def test_manual_agrees_with_the_tables():
    pages = [(ROOT / "man" / name).read_text() for name in ("solo.1", "solo-hold.1")]

    assert [manual.rewrite(page) for page in pages] == pages, "run `make man`"
    assert sum(page.count('.\\" made from') for page in pages) == len(manual.TABLES)
