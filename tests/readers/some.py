"""Random values: of the kinds that records, tables and answers contain."""

from solo import kernel
from solo.modes import MODES, SLOTS, Claim

WORDS = (
    b"a|job|a/b|x y|\xc3\xa9|\xff%|-n|list|a\nb|\x01|\x0bNSpid: 7|\x0c|\x85|) R 1|SigIgn:1".split(
        b"|"
    )
)


def word(rng) -> bytes:
    return (
        rng.choice(WORDS)
        if rng.random() < 0.7
        else rng.randbytes(rng.randrange(1, 12)).replace(b"\0", b"")
    )


def text(rng) -> str:
    return kernel.decode(word(rng))


def number(rng, most: int = 1 << 31) -> int:
    return rng.choice((0, 1, 2, 9, 10, most - 1, rng.randrange(most)))


def pid(rng) -> int:
    return max(1, number(rng))


def process(rng) -> tuple:
    return pid(rng), number(rng, 1 << 64)


def claim(rng) -> Claim:
    mode = rng.choice(MODES)
    slots = rng.randrange(1, 9)
    return Claim(mode, slots, rng.randrange(1, slots + 1)) if mode == SLOTS else Claim(mode)


def slot(rng, claim: Claim) -> list:
    firsts = sorted(rng.sample(range(50), rng.randrange(3))) if claim.mode == SLOTS else []
    return [(first, first + rng.randrange(4)) for first in firsts]


def many(rng, value, *counts) -> list:
    """Return some values of one kind; `counts` are those of range."""
    return [value(rng) for _ in range(rng.randrange(*counts))]
