"""solo/modes.py: properties of the compatibility rule, of slots and of the claims of several
names.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solo import modes

pytestmark = pytest.mark.quick

GRAY = {"IS": {"IS", "IX", "S"}, "IX": {"IS", "IX"}, "S": {"IS", "S"}, "X": set(), "C": {"C"}}
PLAIN = [mode for mode in modes.MODES if mode != modes.SLOTS]
COUNTS = st.integers(1, 6).flatmap(
    lambda slots: st.builds(modes.Claim, st.just("C"), st.just(slots), st.integers(1, slots))
)
CLAIMS = st.builds(modes.Claim, st.sampled_from(PLAIN)) | COUNTS


def is_granted(wanted, held):
    return not modes.find_conflicts(wanted, held)


def test_modes_are_compatible_as_in_gray_1975_and_slots_with_slots():
    claims = [modes.Claim(mode, 9) for mode in modes.MODES]
    granted = {
        wanted.mode: {held.mode for held in claims if is_granted(wanted, [held])}
        for wanted in claims
    }

    assert granted == GRAY


@given(CLAIMS, CLAIMS)
def test_compatibility_is_symmetric(one, other):
    assert is_granted(one, [other]) == is_granted(other, [one])


@given(st.lists(CLAIMS, max_size=8))
def test_claims_granted_one_by_one_are_compatible_together(claims):
    """Modes are compatible pair by pair, and the slots taken fit the smallest number of slots in
    any claim.
    """
    held = []
    for claim in claims:
        if is_granted(claim, held):
            held.append(claim)

    assert all(other.mode in GRAY[one.mode] for at, one in enumerate(held) for other in held[:at])
    if held and held[0].mode == modes.SLOTS:
        assert sum(claim.take for claim in held) <= min(claim.slots for claim in held)


@given(CLAIMS, st.lists(CLAIMS, max_size=6))
def test_claim_is_granted_without_its_conflicts(wanted, held):
    conflicts = modes.find_conflicts(wanted, held)

    others = [claim for at, claim in enumerate(held) if at not in conflicts]
    assert is_granted(wanted, others) or wanted.mode == modes.SLOTS
    assert conflicts == sorted(set(conflicts))
    if not conflicts:
        assert all(is_granted(wanted, [claim]) for claim in held)


@given(CLAIMS, st.lists(CLAIMS, max_size=6), CLAIMS)
def test_one_more_hold_never_admits_a_claim(wanted, held, more):
    assert is_granted(wanted, held) or not is_granted(wanted, [*held, more])


@given(st.lists(COUNTS, max_size=12), st.data())
def test_slots_are_the_lowest_free_ones_and_never_taken_twice(claims, data):
    held = []
    for claim in claims:
        if held and data.draw(st.booleans()):
            held.pop(data.draw(st.integers(0, len(held) - 1)))
        if is_granted(claim, [other for other, _ in held]):
            taken = {number for _, numbers in held for number in numbers}
            pairs = modes.allot_slots(claim, [(number, number) for number in taken])
            numbers = [number for first, last in pairs for number in range(first, last + 1)]
            assert (
                numbers
                == [number for number in range(claim.slots) if number not in taken][: claim.take]
            )
            assert len(numbers) == claim.take
            held.append((claim, numbers))


NAMES = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join), min_size=1, max_size=4
)


@given(NAMES, NAMES, st.sampled_from(["X", "S"]), st.sampled_from(["X", "S"]))
def test_nested_names_conflict_unless_both_are_shared(one, other, mine, theirs):
    def overlaps(a, b):
        return a == b or a.startswith(b + "/") or b.startswith(a + "/")

    first, second = (
        dict(modes.plan_claims(one, modes.Claim(mine))),
        dict(modes.plan_claims(other, modes.Claim(theirs))),
    )
    conflict = any(
        not is_granted(first[name], [second[name]]) for name in first.keys() & second.keys()
    )

    assert conflict == (
        any(overlaps(a, b) for a in one for b in other) and (mine, theirs) != ("S", "S")
    )


@given(NAMES, CLAIMS.filter(lambda claim: claim.mode in modes.INTENTION))
def test_claims_are_sorted_with_parents_first(names, claim):
    claims = [name.split("/") for name, _ in modes.plan_claims(names, claim)]

    assert claims == sorted(claims)
    assert all(claim[:-1] in claims[:at] for at, claim in enumerate(claims) if len(claim) > 1)
