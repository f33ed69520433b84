"""Counts of the torture, and the seed of all its choices.

SOLO_SEED sets the seed. SOLO_TORTURE=whole runs all points instead of a sample, SOLO_POINT runs one
point or round. torture.py sets two more: SOLO_TALLY, the file of JSON lines in which a part records
its work, and SOLO_UNTIL, its deadline in seconds of the monotonic clock. A part records each point
before its attempt, so the last recorded point is the one that failed.
"""

import itertools
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

WHOLE = os.environ.get("SOLO_TORTURE") == "whole"
SEED = int(os.environ.get("SOLO_SEED") or random.SystemRandom().randrange(1 << 32))
POINT = os.environ.get("SOLO_POINT")
UNTIL = float(os.environ["SOLO_UNTIL"]) if "SOLO_UNTIL" in os.environ else None
FILE = os.environ.get("SOLO_TALLY")


def make_random(*purpose) -> random.Random:
    """Return a Random for one purpose, independent of all earlier draws."""
    return random.Random(f"{SEED} {purpose}")


def add(**counts):
    """Add counts to the tally: numbers, or numbers by kind, as in faults={"EIO": 1}."""
    write({"add": counts})


def note(point):
    write({"point": str(point)})


def find_disordered(tokens: list) -> list:
    """Return the tokens that are not greater than their predecessor."""
    return [after for before, after in zip(tokens, tokens[1:]) if after <= before]


def write(record: dict):
    if FILE:
        with open(FILE, "a") as file:
            file.write(json.dumps(record) + "\n")


def is_time_left() -> bool:
    return UNTIL is None or time.monotonic() < UNTIL


def share(points):
    """Return a random third of the points of a sweep; all of them in a whole torture."""
    return points if WHOLE else points[SEED % 3 :: 3]


def rounds(sample: int, whole: int):
    """Yield the numbers of the rounds to run. With a deadline, run at least one, and more while
    there is time.
    """
    if POINT:
        yield int(POINT)
        return
    for number in itertools.count() if UNTIL else range(whole if WHOLE else sample):
        yield number
        if not is_time_left():
            return


def choose(points: list, sample: int):
    """Yield points in random order while there is time: a sample, or with SOLO_TORTURE=whole
    all.
    """
    write({"of": len(points)})
    if POINT:
        points = [POINT]
    for point in make_random("points").sample(
        points, len(points) if WHOLE else min(sample, len(points))
    ):
        if not is_time_left():
            return
        note(point)
        yield point


def read(file) -> SimpleNamespace:
    """Return the work of a part: its `counts`, and the `points` that it tried of the `of` that
    there are.
    """
    tally = SimpleNamespace(counts=Counter(), points=[], of=0)
    for record in map(
        json.loads, Path(file).read_text().splitlines() if os.path.exists(file) else ()
    ):
        tally.of = record.get("of", tally.of)
        tally.points += [record["point"]] if "point" in record else []
        for what, amount in record.get("add", {}).items():
            if isinstance(amount, dict):
                tally.counts.setdefault(what, Counter()).update(amount)
            else:
                tally.counts[what] += amount
    return tally
