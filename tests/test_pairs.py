"""Every pair of options: it either works, or is refused in one line that names both; which are refused is in the table."""

import itertools

import pytest

from solo.options import DIR, HELP, LAUNCHER_OPTIONS, ONCE_PER, VERSION, VIA

VALUES = {
    "name": ["job"], "dir": None, "via": ["socket"], "flock": None, "slots": ["3"], "take": ["2"], "wait": ["5s"], "max-waiting": ["1"],
    "busy-exit": ["3"], "loud-after": ["6h"], "timeout": ["30s"], "kill-after": ["5s"],
    "ttl": ["20s"], "once-per": ["5m"],
}
OPTIONS = [option for option in LAUNCHER_OPTIONS if option not in (HELP, VERSION)]
PAIRS = list(itertools.combinations(OPTIONS, 2))


def find_refusal(one, other):
    """What the table, and the one rule about values, say of a pair: the start of the message, or None."""
    for option, beside in ((one, other), (other, one)):
        if beside.flag in option.excludes:
            return f"--{option.flag} and --{beside.flag} exclude each other"
    for option, beside in ((one, other), (other, one)):
        # --via is a socket here, and what needs it needs an engine.
        if option.needs and (beside is VIA or beside.flag not in option.needs):
            return f"--{option.flag} makes no sense without --{option.needs[0]}"
    if {one, other} == {ONCE_PER, VIA}:
        return "--once-per makes no sense with --via socket"
    return "--dir makes no sense with --via socket" if {one, other} == {DIR, VIA} else None


def type_option(lab, option):
    values = {"dir": [lab.path / "elsewhere"], "flock": [lab.path / "theirs"]}.get(option.flag) or VALUES.get(option.flag, [])
    return [f"--{option.flag}", *values]


@pytest.mark.parametrize("one, other", PAIRS, ids=[f"{one.flag}-{other.flag}" for one, other in PAIRS])
def test_a_pair_of_options_works_or_is_refused_in_one_line(lab, one, other):
    result = lab.run(*type_option(lab, one), *type_option(lab, other), "--", "sh", "-c", "echo ran >>$LAB/log; exit 7")
    refusal = find_refusal(one, other)

    if refusal:
        assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])
        assert result.stderr.decode().startswith(f"solo: {refusal}")
    else:
        assert (result.returncode, lab.read_log()) == (7, ["ran"]), result.stderr
    assert b"Traceback" not in result.stderr and b"bug" not in result.stderr


def test_help_and_version_ignore_every_other_option(lab):
    words = [word for option in OPTIONS for word in type_option(lab, option)]

    assert b"Usage" in lab.run(*words, "--help", "--", "false").stdout
    assert lab.run(*words, "--version", "--", "false").stdout.startswith(b"solo ")


@pytest.mark.parametrize("option", [option for option in OPTIONS if not option.needs], ids=lambda option: option.flag)
def test_an_option_that_is_typed_twice_counts_once(lab, option):
    """The last one wins, where it does not add up: as getopt(3) programs have it."""
    words = type_option(lab, option)

    assert lab.run(*words, *words, "--", "sh", "-c", "exit 7").returncode == 7
