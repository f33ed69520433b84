"""Who goes in: pure functions. No I/O, no clock, no state.

The modes are those of multi-granularity locking (J. Gray, R. Lorie, G. Putzolu, I. Traiger, "Granularity of Locks and
Degrees of Consistency in a Shared Data Base", 1975): exclusive and shared on a name, and the intention to take one of
them further down on every parent of a nested name. Counted use is a fifth: it goes with nothing but itself, as long as
there is room.
"""

EXCLUSIVE, SHARED, INTEND_EXCLUSIVE, INTEND_SHARED, COUNTED = MODES = ("X", "S", "IX", "IS", "C")
INTENTIONS = (INTEND_EXCLUSIVE, INTEND_SHARED)
INTENTION = {EXCLUSIVE: INTEND_EXCLUSIVE, SHARED: INTEND_SHARED, COUNTED: INTEND_EXCLUSIVE}

COMPATIBLE = frozenset((
    (SHARED, SHARED), (SHARED, INTEND_SHARED), (INTEND_SHARED, SHARED),
    (INTEND_EXCLUSIVE, INTEND_EXCLUSIVE), (INTEND_EXCLUSIVE, INTEND_SHARED),
    (INTEND_SHARED, INTEND_EXCLUSIVE), (INTEND_SHARED, INTEND_SHARED),
    (COUNTED, COUNTED),
))
# Whoever may be in a mode could as well be in one of these: what keeps those out would have kept it out.
NO_STRONGER = {
    EXCLUSIVE: MODES, SHARED: (SHARED, INTEND_SHARED), INTEND_EXCLUSIVE: (INTEND_EXCLUSIVE, INTEND_SHARED),
    INTEND_SHARED: (INTEND_SHARED,), COUNTED: (COUNTED,),
}


class Claim:
    """In what mode a name is wanted or held; if counted, `take` of at most `slots`."""

    __slots__ = ("mode", "slots", "take")

    def __init__(self, mode, slots=1, take=1):
        self.mode = mode
        self.slots = slots
        self.take = take


def find_conflicts(wanted: Claim, held: list) -> list:
    """Which of the claims `held` keep `wanted` out, as indices; none if it may go in.

    Either all of them must end first, or, if wanted and the first of them are counted, any one may make room. The smallest
    number of slots that anyone named is the limit for all.
    """
    conflicts = [at for at, claim in enumerate(held) if (wanted.mode, claim.mode) not in COMPATIBLE]
    if conflicts or wanted.mode != COUNTED:
        return conflicts
    limit = min([claim.slots for claim in held], default=wanted.slots)
    if wanted.take + sum([claim.take for claim in held]) <= min(limit, wanted.slots):
        return []
    return list(range(len(held)))


def allot_slots(wanted: Claim, taken: list) -> list:
    """The lowest free numbers for one who was let in, beside those `taken`: both lists of (first, last). None if not counted."""
    free, at = [], 0
    left = wanted.take if wanted.mode == COUNTED else 0
    for first, last in [*sorted(taken), (wanted.slots, wanted.slots)]:
        size = min(first - at, left)
        if size > 0:
            free.append((at, at + size - 1))
            left -= size
        at = max(at, last + 1)
    return free


def plan_claims(names: list, claim: Claim) -> list:
    """What to take to have `claim` on each of `names`: [(name, Claim)], parents first, in the one order everybody uses."""
    claims = dict.fromkeys(names, claim)
    intention = Claim(INTENTION[claim.mode])
    for name in names:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            claims.setdefault("/".join(parts[:depth]), intention)
    return sorted(claims.items(), key=lambda claim: claim[0].split("/"))
