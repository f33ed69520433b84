"""Every pair of options works, or is refused in one line as the table of options declares."""

import itertools
import os

import pytest

from solo import argv, kinds
from solo.errors import UsageError
from solo.options import (
    BUSY_EXIT,
    DIR,
    EVERY_OPTION,
    EXPLAIN,
    HELP,
    JSON,
    LAUNCHER_OPTIONS,
    LOUD_AFTER,
    NAME,
    NOTIFY_ON,
    ONCE_PER,
    PARTS,
    SHARED,
    SLOTS,
    SYSLOG,
    VERSION,
    VIA,
)
from solo.plan import Plan

OPTIONS = [
    option for option in (*LAUNCHER_OPTIONS, *PARTS) if option not in (EXPLAIN, JSON, HELP, VERSION)
]
PAIRS = list(itertools.combinations(OPTIONS, 2))


def find_refusal(one, other):
    """Return the start of the message that refuses a pair, by the table and the rules for --via
    socket; else None.
    """
    for option, beside in ((one, other), (other, one)):
        if beside.flag in option.excludes:
            return f"{option.title} and {beside.title} exclude each other"
    for option, beside in ((one, other), (other, one)):
        # --via is socket here, but an option that needs --via needs an engine.
        if option.needs and (beside is VIA or beside.flag not in option.needs):
            return f"--{option.flag} needs "
    if {one, other} == {ONCE_PER, VIA}:
        return "--via socket and --once-per exclude each other"
    return "--via socket and --dir exclude each other" if {one, other} == {DIR, VIA} else None


REFUSED = [pair for pair in PAIRS if find_refusal(*pair)]


def make_sets():
    """Yield lists of options that all work together, until each pair that works was in one: a tenth
    as many runs as pairs.
    """
    left = [pair for pair in PAIRS if pair not in REFUSED]
    while left:
        chosen = list(left[0])
        for option in sorted(OPTIONS, key=lambda option: -sum(option in pair for pair in left)):
            if option not in chosen and not any(
                find_refusal(*sorted((option, other), key=OPTIONS.index)) for other in chosen
            ):
                chosen.append(option)
        left = [pair for pair in left if not set(pair) <= set(chosen)]
        yield chosen


def type_option(lab, option):
    if option.kind is kinds.FLAG:
        return [f"--{option.flag}"]
    value = option.kind.sample
    if option.kind in (kinds.DIRECTORY, kinds.FILE):
        value = lab.path / value
        (lab.path / kinds.DIRECTORY.sample).mkdir(mode=0o700, exist_ok=True)
    return [f"--{option.flag}", value]


def run_with(lab, options):
    words = [word for option in options for word in type_option(lab, option)]
    result = lab.run(*words, "--", "sh", "-c", "echo ran >>$LAB/log; exit 7")
    assert b"Traceback" not in result.stderr and b"bug" not in result.stderr
    return result


def read(lab, pair):
    """Return the meaning of a pair of options, as a launcher reads it. Raises UsageError."""
    words = [os.fspath(word) for option in pair for word in type_option(lab, option)]
    typed, _, command = argv.parse([*words, "--", "true"])
    argv.read_variables(typed, {})
    return Plan(typed, command)


# Options that only main reads, and those from which the plan makes `names` and `claim`.
ONLY_TYPED = {BUSY_EXIT, LOUD_AFTER, NOTIFY_ON, SYSLOG, EXPLAIN, JSON, HELP, VERSION}
MERGED = {NAME, SHARED, SLOTS, SLOTS.part}
MADE = (
    "names is_generated claim is_socket is_remote locks_files deadline file_deadline grace".split()
)


def test_plan_has_the_value_of_each_option_and_no_other_attribute():
    expected = {}
    for option in set(EVERY_OPTION) - ONLY_TYPED - MERGED:
        value = option.kind.read(option.flag, option.kind.sample)
        value = f"/{value}" if option is DIR else value
        expected[option.key] = [value] if option.many else value

    plan = vars(Plan(expected))
    assert {key: value for key, value in plan.items() if key not in MADE} == expected
    assert plan.keys() - expected.keys() == set(MADE)


def test_refused_pair_of_options_is_a_usage_error(lab):
    messages = {}
    for pair in REFUSED:
        with pytest.raises(UsageError) as raised:
            read(lab, pair)
        messages[pair] = str(raised.value)

    assert {
        pair: message
        for pair, message in messages.items()
        if not message.startswith(find_refusal(*pair))
    } == {}


@pytest.mark.parametrize(
    "pair", REFUSED[::40], ids=lambda pair: "-".join(option.flag for option in pair)
)
def test_refused_pair_of_options_runs_nothing(lab, pair):
    result = run_with(lab, pair)

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])
    assert result.stderr.decode().startswith(f"solo: {find_refusal(*pair)}")


@pytest.mark.parametrize(
    "options", list(make_sets()), ids=lambda options: "-".join(option.flag for option in options)
)
def test_options_that_are_not_refused_work_together(lab, options):
    result = run_with(lab, options)

    assert (result.returncode, lab.read_log()) == (7, ["ran"]), result.stderr


def test_help_and_version_ignore_every_other_option(lab):
    words = [word for option in OPTIONS for word in type_option(lab, option)]

    assert b"Usage" in lab.run(*words, "--help", "--", "false").stdout
    assert lab.run(*words, "--version", "--", "false").stdout.startswith(b"solo ")


def test_option_given_twice_counts_once(lab):
    """The last value applies, unless values add up, as in programs that use getopt(3)."""
    left = {option for option in OPTIONS if not option.needs}
    for options in make_sets():
        if left & set(options):
            assert run_with(lab, 2 * options).returncode == 7
        left -= set(options)

    assert left == set()


def test_invalid_slots_are_refused(lab):
    bad = {
        "at least 1": ("0", "2,0"),
        "at most N": ("2,3",),
        "not a number": ("-1", "x", "9999999999"),
    }
    for text, value in [(text, value) for text, values in bad.items() for value in values]:
        result = lab.run("--slots", value, "-n", "job", "true")
        assert (result.returncode, result.stderr.count(b"\n")) == (
            125,
            1,
        ) and text in result.stderr.decode()
