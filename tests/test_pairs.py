"""Every pair of options: it either works, or is refused in one line that names both; which are refused is in the table."""

import itertools

import pytest

from solo.options import DIR, HELP, LAUNCHER_OPTIONS, ONCE_PER, VERSION, VIA

VALUES = {
    "name": ["job"], "dir": None, "via": ["socket"], "flock": None, "slots": ["3"], "take": ["2"], "wait": ["5s"], "max-waiting": ["1"],
    "busy-exit": ["3"], "loud-after": ["6h"], "timeout": ["30s"], "kill-after": ["5s"],
    "ttl": ["20s"], "once-per": ["5m"],
}
PAIRS = list(itertools.combinations(LAUNCHER_OPTIONS, 2))


def find_refusal(one, other):
    """What the table, and the one rule about values, say of a pair: the start of the message, or None."""
    if {HELP, VERSION} & {one, other}:
        return None
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

    if VERSION in (one, other):
        assert result.returncode == 0 and result.stdout.startswith(b"solo ")
    elif HELP in (one, other):
        assert result.returncode == 0 and b"Usage" in result.stdout
    elif refusal:
        assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])
        assert result.stderr.decode().startswith(f"solo: {refusal}")
    else:
        assert (result.returncode, lab.read_log()) == (7, ["ran"]), result.stderr
    assert b"Traceback" not in result.stderr and b"bug" not in result.stderr


@pytest.mark.parametrize("option", [option for option in LAUNCHER_OPTIONS if not option.needs and option not in (HELP, VERSION)],
                         ids=lambda option: option.flag)
def test_an_option_that_is_typed_twice_counts_once(lab, option):
    """The last one wins, where it does not add up: as getopt(3) programs have it."""
    words = type_option(lab, option)

    assert lab.run(*words, *words, "--", "sh", "-c", "exit 7").returncode == 7
