"""Who goes in: one pure function. No I/O, no clock, no state.

The modes are those of multi-granularity locking (J. Gray, R. Lorie, G. Putzolu, I. Traiger, "Granularity of Locks and
Degrees of Consistency in a Shared Data Base", 1975): exclusive and shared on a name, and the intention to take one of
them further down on every parent of a nested name.
"""

EXCLUSIVE, SHARED, INTEND_EXCLUSIVE, INTEND_SHARED = MODES = ("X", "S", "IX", "IS")

COMPATIBLE = frozenset((
    (SHARED, SHARED), (SHARED, INTEND_SHARED), (INTEND_SHARED, SHARED),
    (INTEND_EXCLUSIVE, INTEND_EXCLUSIVE), (INTEND_EXCLUSIVE, INTEND_SHARED),
    (INTEND_SHARED, INTEND_EXCLUSIVE), (INTEND_SHARED, INTEND_SHARED),
))


def is_admitted(wanted: str, held: str) -> bool:
    """May a contender in mode `wanted` run beside a hold in mode `held`?"""
    return (wanted, held) in COMPATIBLE


def plan_claims(names: list) -> list:
    """What to take for exclusive use of `names`: [(name, mode)], parents first, in the one order everybody uses."""
    claims = {}
    for name in names:
        claims[name] = EXCLUSIVE
        parts = name.split("/")
        for depth in range(1, len(parts)):
            claims.setdefault("/".join(parts[:depth]), INTEND_EXCLUSIVE)
    return sorted(claims.items(), key=lambda claim: claim[0].split("/"))
