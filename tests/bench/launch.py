"""Measure a run of `true` behind each launcher, and a skip."""

import random

from bench.contestants import TRUE, Bench, Holder, time_run
from bench.quartiles import Series

SLOW = {"sem": 10}  # runs only in every tenth turn


def measure_launch(bench: Bench, rounds: int) -> dict:
    solos = {
        "solo, make install": [bench.solo, "-n", "job", "--", TRUE],
        "solo, default name": [bench.solo, "--", TRUE],
    }
    if bench.pip_solo:
        solos["solo, pip"] = [bench.pip_solo, "-n", "job", "--", TRUE]
    references = {"true alone": [TRUE], "python -IS": [bench.python, "-IS", "-c", "pass"], "floor": bench.floor}
    contestants = references | solos | bench.list_peers()
    return {
        "launch": run_in_turn({name: (words, 0) for name, words in contestants.items()}, rounds, lambda row: ["floor"])
    }


def measure_busy(bench: Bench, rounds: int) -> dict:
    lock = str(bench.folder / "busy")
    contestants = {
        "python -IS": ([bench.python, "-IS", "-c", "pass"], 0),
        "flock(1)": (["flock", "-n", lock, TRUE], 1),
        "solo": ([bench.solo, "-n", "busy", "--", TRUE], 75),
        "solo -q": ([bench.solo, "-q", "-n", "busy", "--", TRUE], 75),
    }
    with Holder([bench.solo, "-n", "busy", "--"]), Holder(["flock", lock]):
        return {"busy": run_in_turn(contestants, rounds, lambda row: ["python -IS"])}


def run_in_turn(contestants: dict, rounds: int, against) -> Series:
    """Time every contestant once a turn, in a random order, so that none always follows the same one. Discard a first turn."""
    series, dice = Series("ms", against), random.Random(0)
    for turn in range(-1, rounds):
        names = [name for name in contestants if turn % SLOW.get(name, 1) == 0 or turn < 0]
        dice.shuffle(names)
        times = {name: time_run(*contestants[name]) for name in names}
        if turn >= 0:
            series.add({name: times[name] for name in contestants if name in times})
    return series
