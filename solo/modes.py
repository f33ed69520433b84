"""Lock modes and their compatibility. Pure functions: no I/O, no clock, no state.

The modes are those of multi-granularity locking (J. Gray, R. Lorie, G. Putzolu, I. Traiger,
"Granularity of Locks and Degrees of Consistency in a Shared Data Base", 1975): exclusive and shared
on a name, and on every parent of a nested name the intention to acquire one of them further down. A
fifth mode is for slots: it is compatible only with itself, as long as slots are free.
"""

EXCLUSIVE, SHARED, INTEND_EXCLUSIVE, INTEND_SHARED, SLOTS = MODES = ("X", "S", "IX", "IS", "C")
INTENTIONS = (INTEND_EXCLUSIVE, INTEND_SHARED)
INTENTION = {EXCLUSIVE: INTEND_EXCLUSIVE, SHARED: INTEND_SHARED, SLOTS: INTEND_EXCLUSIVE}

COMPATIBLE = {
    EXCLUSIVE: (),
    SHARED: (SHARED, INTEND_SHARED),
    INTEND_EXCLUSIVE: INTENTIONS,
    INTEND_SHARED: (SHARED, *INTENTIONS),
    SLOTS: (SLOTS,),
}


def is_stronger(mode: str, other: str) -> bool:
    """Return whether what conflicts with the mode `other` also conflicts with `mode`, as each does
    with itself.
    """
    return set(COMPATIBLE[mode]) <= set(COMPATIBLE[other])


class Claim:
    """The mode in which a name is wanted or held; with slots, `take` of at most `slots`."""

    __slots__ = ("mode", "slots", "take")

    def __init__(self, mode: str, slots: int = 1, take: int = 1) -> None:
        self.mode = mode
        self.slots = slots
        self.take = take


def find_conflicts(wanted: Claim, held: "list[Claim]") -> "list[int]":
    """Return the indices of the claims `held` that conflict with `wanted`; none if it can be
    granted.

    All of them must end first; but if wanted and the first of them are for slots, one may be
    enough. The limit for all is the smallest number of slots in any claim.
    """
    conflicts = [at for at, claim in enumerate(held) if claim.mode not in COMPATIBLE[wanted.mode]]
    if conflicts or wanted.mode != SLOTS:
        return conflicts
    limit = min([claim.slots for claim in held], default=wanted.slots)
    if wanted.take + sum([claim.take for claim in held]) <= min(limit, wanted.slots):
        return []
    return list(range(len(held)))


def allot_slots(wanted: Claim, taken: "list[tuple[int, int]]") -> "list[tuple[int, int]]":
    """Return the lowest free slots for a granted claim, as [(first, last)], beside those `taken`;
    [] without slots.
    """
    if wanted.mode != SLOTS:
        return []
    free, at = [], 0
    left = wanted.take
    for first, last in [*sorted(taken), (wanted.slots, wanted.slots)]:
        size = min(first - at, left)
        if size > 0:
            free.append((at, at + size - 1))
            left -= size
        at = max(at, last + 1)
    return free


def plan_claims(names: "list[str]", claim: Claim) -> "list[tuple[str, Claim]]":
    """Return [(name, Claim)] to acquire for `claim` on each of `names`, parents first, in the
    global order.
    """
    claims = dict.fromkeys(names, claim)
    if len(names) == 1 and "/" not in names[0]:
        return [(names[0], claim)]
    intention = Claim(INTENTION[claim.mode])
    for name in names:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            claims.setdefault("/".join(parts[:depth]), intention)
    return sorted(claims.items(), key=lambda item: item[0].split("/"))
