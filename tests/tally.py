"""What the torture counts, and the seed from which all its choices derive.

SOLO_SEED is that seed, SOLO_TORTURE=whole asks for all instead of a sample, SOLO_POINT for one point or round alone.
torture.py sets two more: SOLO_TALLY, the file of JSON lines in which a part tells what it did, and SOLO_UNTIL, when it is to
end, in seconds of the monotonic clock. A point is told before it is hit: the last one told is where it failed.
"""

import itertools
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

WHOLE = os.environ.get("SOLO_TORTURE") == "whole"
SEED = int(os.environ.get("SOLO_SEED") or random.SystemRandom().randrange(1 << 32))
POINT = os.environ.get("SOLO_POINT")
UNTIL = float(os.environ["SOLO_UNTIL"]) if "SOLO_UNTIL" in os.environ else None
FILE = os.environ.get("SOLO_TALLY")


def make_random(*what) -> random.Random:
    """Chance for one thing, whatever else was drawn before."""
    return random.Random(f"{SEED} {what}")


def add(**counts):
    """Each a number, or what is an amount by kind: faults={"EIO": 1}."""
    tell({"add": counts})


def note(point):
    tell({"point": str(point)})


def find_disordered(tokens: list) -> list:
    """Those that are not greater than the one before."""
    return [after for before, after in zip(tokens, tokens[1:]) if after <= before]


def tell(what: dict):
    if FILE:
        with open(FILE, "a") as file:
            file.write(json.dumps(what) + "\n")


def is_time_left() -> bool:
    return UNTIL is None or time.monotonic() < UNTIL


def rounds(sample: int, whole: int):
    """The numbers of so many rounds; where there is an end, of as many as there is time for, but at least one."""
    if POINT:
        yield int(POINT)
        return
    for number in itertools.count() if UNTIL else range(whole if WHOLE else sample):
        yield number
        if not is_time_left():
            return


def choose(points: list, sample: int):
    """A sample of them or, whole, all that were not told of yet, in an order of the seed, as long as there is time."""
    tell({"of": len(points)})
    if POINT:
        points = [POINT]
    hit = set(read(FILE).points) if FILE else set()
    left = [point for point in points if point not in hit]
    for point in make_random("points").sample(left, len(left) if WHOLE else min(sample, len(left))):
        if not is_time_left():
            return
        note(point)
        yield point


class Tally:
    """What a part told: `counts`, the `points` it came to, `of` how many."""

    def __init__(self):
        self.counts, self.points, self.of = Counter(), [], 0

    def take(self, line: dict):
        self.of = line.get("of", self.of)
        self.points += [line["point"]] if "point" in line else []
        for what, amount in line.get("add", {}).items():
            if isinstance(amount, dict):
                self.counts.setdefault(what, Counter()).update(amount)
            else:
                self.counts[what] += amount


def read(file) -> Tally:
    tally = Tally()
    for line in Path(file).read_text().splitlines() if os.path.exists(file) else ():
        tally.take(json.loads(line))
    return tally
