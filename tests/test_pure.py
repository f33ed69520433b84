"""The floors without I/O, by properties and over every case: the rule, the words, the records, /proc's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solo import argv, identity, modes, record
from solo.errors import UsageError

WORDS = st.binary(max_size=40).filter(lambda word: b"\0" not in word)


# --- the rule ----------------------------------------------------------------------------------------------------

GRAY = {"IS": {"IS", "IX", "S"}, "IX": {"IS", "IX"}, "S": {"IS", "S"}, "X": set(), "C": {"C"}}
PLAIN = [mode for mode in modes.MODES if mode != modes.COUNTED]
COUNTS = st.integers(1, 6).flatmap(
    lambda slots: st.builds(modes.Claim, st.just("C"), st.just(slots), st.integers(1, slots))
)
CLAIMS = st.builds(modes.Claim, st.sampled_from(PLAIN)) | COUNTS


def goes_in(wanted, held):
    return not modes.find_conflicts(wanted, held)


def test_the_modes_are_compatible_as_gray_et_al_have_it_and_counted_use_goes_with_itself():
    for wanted in modes.MODES:
        assert {held for held in modes.MODES if goes_in(modes.Claim(wanted, 9), [modes.Claim(held, 9)])} == GRAY[wanted]


@given(CLAIMS, CLAIMS)
def test_the_rule_does_not_care_who_came_first(one, other):
    assert goes_in(one, [other]) == goes_in(other, [one])


@given(st.lists(CLAIMS, max_size=8))
def test_whoever_was_let_in_one_by_one_may_be_there_together(contenders):
    """However they come: modes are compatible pair by pair, and the takes fit the smallest number of slots that anyone named."""
    inside = []
    for claim in contenders:
        if goes_in(claim, inside):
            inside.append(claim)

    assert all(other.mode in GRAY[one.mode] for at, one in enumerate(inside) for other in inside[:at])
    if inside and inside[0].mode == modes.COUNTED:
        assert sum(claim.take for claim in inside) <= min(claim.slots for claim in inside)


@given(CLAIMS, st.lists(CLAIMS, max_size=6))
def test_what_is_in_the_way_names_all_that_matter_and_without_it_one_goes_in(wanted, held):
    conflicts = modes.find_conflicts(wanted, held)

    assert (
        goes_in(wanted, [claim for at, claim in enumerate(held) if at not in conflicts]) or wanted.mode == modes.COUNTED
    )
    assert conflicts == sorted(set(conflicts))
    if not conflicts:
        assert all(goes_in(wanted, [claim]) for claim in held)


@given(CLAIMS, st.lists(CLAIMS, max_size=6), CLAIMS)
def test_one_more_hold_never_lets_anyone_in(wanted, held, more):
    assert goes_in(wanted, held) or not goes_in(wanted, [*held, more])


@given(st.lists(COUNTS, max_size=12), st.data())
def test_slots_are_the_lowest_free_ones_and_never_given_twice(contenders, data):
    inside = []
    for claim in contenders:
        if inside and data.draw(st.booleans()):
            inside.pop(data.draw(st.integers(0, len(inside) - 1)))
        if goes_in(claim, [other for other, _ in inside]):
            taken = {number for _, numbers in inside for number in numbers}
            pairs = modes.allot_slots(claim, [(number, number) for number in taken])
            numbers = [number for first, last in pairs for number in range(first, last + 1)]
            assert numbers == [number for number in range(claim.slots) if number not in taken][: claim.take]
            assert len(numbers) == claim.take
            inside.append((claim, numbers))


NAMES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join), min_size=1, max_size=4)


@given(NAMES, NAMES, st.sampled_from(["X", "S"]), st.sampled_from(["X", "S"]))
def test_two_plans_conflict_exactly_if_a_name_is_a_part_of_another_and_not_both_are_shared(one, other, mine, theirs):
    def overlaps(a, b):
        return a == b or a.startswith(b + "/") or b.startswith(a + "/")

    first, second = dict(modes.plan_claims(one, modes.Claim(mine))), dict(modes.plan_claims(other, modes.Claim(theirs)))
    conflict = any(not goes_in(first[name], [second[name]]) for name in first.keys() & second.keys())

    assert conflict == (any(overlaps(a, b) for a in one for b in other) and (mine, theirs) != ("S", "S"))


@given(NAMES, CLAIMS.filter(lambda claim: claim.mode in modes.INTENTION))
def test_claims_come_in_one_order_with_parents_first(names, claim):
    claims = [name.split("/") for name, _ in modes.plan_claims(names, claim)]

    assert claims == sorted(claims)
    assert all(claim[:-1] in claims[:at] for at, claim in enumerate(claims) if len(claim) > 1)


# --- the words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, options, rest",
    [
        (["true"], {}, ["true"]),
        (["--", "list"], {}, ["list"]),
        (["-n", "a", "-nb", "--name", "c", "--name=d", "x", "-n"], {"name": ["a", "b", "c", "d"]}, ["x", "-n"]),
        (["-qvE0", "x"], {"quiet": True, "verbose": True, "busy_exit": 0}, ["x"]),
        (["-qw", "1h30m", "--", "-x"], {"quiet": True, "wait": 5400.0}, ["-x"]),
        (["--wait=forever", "-"], {"wait": float("inf")}, ["-"]),
        ([], {}, []),
    ],
)
def test_words_are_read_as_gnu_programs_read_them(words, options, rest):
    assert argv.parse(words) == (options, None, rest)


def test_the_first_word_decides_whether_it_is_a_subcommand():
    assert argv.parse(["--dir", "d", "list", "x"]) == ({"dir": "d"}, "list", ["list", "x"])
    assert argv.parse(["--", "list"])[1] is None
    assert argv.parse(["./list"])[1] is None


@pytest.mark.parametrize(
    "words, text",
    [
        (["--wiat", "5"], "--wiat: no such option (did you mean --wait?)"),
        (["-z"], "-z: no such option"),
        (["-n"], "-n needs a value"),
        (["--quiet=1"], "--quiet takes no value"),
        (["-n", ""], "-n needs a value"),
        (["-w", "5x"], "-w 5x: not a duration"),
        (["-w", ""], "not a duration"),
        (["-w", "-5"], "not a duration"),
        (["-E", "000000000999"], "not an exit status"),
        (["-E", "0" * 5000], "not an exit status"),
        (["-E", "256"], "-E 256: not an exit status"),
        (["-E", "x"], "not an exit status"),
        (["-E", "²"], "not an exit status"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(words, text):
    with pytest.raises(UsageError) as caught:
        argv.parse(words)
    assert text in str(caught.value)


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
        ("0", 0),
        (".5", 0.5),
    ],
)
def test_durations(text, seconds):
    assert argv.read_duration("-w", text) == seconds


FRAGMENTS = st.sampled_from(
    ["-", "--", "=", "n", "w", "E", "q", "name", "wait", "busy-exit", "dir", "0", "9", "99", "h", "ms", ".", "²"]
)


@given(st.lists(st.lists(FRAGMENTS, max_size=6).map("".join), max_size=6))
def test_no_words_crash_the_parser(words):
    try:
        argv.parse(words)
    except UsageError as error:
        assert str(error)


# --- records -----------------------------------------------------------------------------------------------------

ORIGINS = st.builds(
    identity.Origin,
    st.just("b-1"),
    st.integers(1, 1 << 32).map(str),
    st.sampled_from(["-", "7"]),
    st.text("ab %\n", max_size=9),
)
PROCESSES = st.tuples(st.integers(1, (1 << 31) - 1), st.integers(0, (1 << 64) - 1))
RANGES = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))
RECORDS = st.builds(
    record.Record,
    PROCESSES,
    ORIGINS,
    st.integers(0, 1 << 32),
    CLAIMS,
    st.lists(st.text("ab/ %é", min_size=1), min_size=1),
    st.none() | st.integers(0, 99).map(float),
    st.lists(WORDS, min_size=1, max_size=9),
    st.lists(RANGES),
    st.integers(0, 1 << 32).map(float),
    st.none() | PROCESSES,
)


def write(original):
    data = record.format_record(original)
    return data if original.child is None else data[: -record.RESERVED] + record.format_closing(original.child)


def tell(one):
    claim = one.claim
    counted = (claim.slots, claim.take, one.slot) if claim.mode == modes.COUNTED else ()
    return (
        one.launcher,
        one.child,
        one.uid,
        claim.mode,
        *counted,
        one.names,
        one.tree,
        one.command,
        one.since,
        *(getattr(one.origin, key) for key in identity.Origin.__slots__),
    )


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(original):
    assert tell(record.parse_record(write(original))) == tell(original)


@given(RECORDS, st.data())
def test_a_record_cut_anywhere_is_damaged_and_never_another(original, data):
    whole = write(original)
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert record.parse_record(whole[:cut]) is None


@given(st.binary(max_size=300))
def test_garbage_is_no_record(data):
    assert record.parse_record(data) is None


def test_the_closing_lines_always_fit_their_place():
    assert len(record.format_closing(((1 << 31) - 1, (1 << 64) - 1))) == record.RESERVED


def test_a_command_too_long_to_keep_ends_in_an_ellipsis():
    original = record.Record(
        (1, 1), identity.Origin("b", "1", "1", "h"), 0, modes.Claim("X"), ["a"], None, [b"x" * 1000] * 1000
    )

    words = record.parse_record(record.format_record(original)).command

    assert words[-1] == "…".encode() and len(words) < 300


# --- /proc -------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=20), st.integers(1, 1 << 22), st.integers(0, 1 << 60))
def test_a_process_may_call_itself_anything(name, parent, start):
    data = b"5 (%b) S %d 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 1000 100 1844 1" % (name, parent, start)

    stat = identity.parse_stat(data)

    assert (stat.pid, stat.state, stat.parent, stat.threads, stat.start) == (5, "S", parent, 1, start)


def test_a_start_time_is_compared_over_time_namespaces():
    there, here = identity.Origin("b", "1", "2", "h", 1000), identity.Origin("b", "1", "3", "h", -50)
    stat = identity.Stat(5, "S", 1, 1, 7000 - 50)

    assert [stat.is_started(start, there, here) for start in (8000, 8001, 8005, 6950)] == [True, True, False, False]
    assert [stat.is_started(start, here, here) for start in (6950, 6951)] == [True, False]
