"""Measure a run of `true` behind each launcher, with options and inherited descriptors, and a skip."""

import os
import random
import resource

from bench.contestants import TRUE, Bench, Holder, time_run
from bench.quartiles import Series

# These run only in every tenth or fourth turn.
SLOW = {"sem": 10, "solo list, 10000 held": 4, "solo list --json, 10000 held": 4}
OPTIONS = {
    "--no-orphan": ["--no-orphan"],
    "--tree": ["--tree"],
    "--timeout 9": ["--timeout", "9"],
    "--flock FILE": ["--flock", "{}"],
    "--via socket": ["--via", "socket"],
}
FILES = 1000  # open files that a launcher inherits
SPARE = 100  # descriptors of the bench itself


def measure_launch(bench: Bench, rounds: int) -> dict:
    solos = {
        "solo, make install": [bench.solo, "-n", "job", "--", TRUE],
        "solo, default name": [bench.solo, "--", TRUE],
    }
    if bench.pip_solo:
        solos["solo, pip"] = [bench.pip_solo, "-n", "job", "--", TRUE]
    references = {"true alone": [TRUE], "python -IS": [bench.python, "-IS", "-c", "pass"], "floor": bench.floor}
    if bench.pip_python:
        references["floor, pip"] = [
            bench.pip_python,
            bench.floor[-1],
        ]  # without -IS: it imports site, as "solo, pip" does
    contestants = references | solos | bench.list_peers()

    def list_references(row):
        return ["floor", "floor, pip"] if row == "solo, pip" else ["floor"]

    return {"launch": run_in_turn({name: (words, 0) for name, words in contestants.items()}, rounds, list_references)}


def measure_options(bench: Bench, rounds: int) -> dict:
    """Measure a run of `true` with each option that makes the launcher do more."""
    file = str(bench.folder / "options")
    contestants = {"floor": (bench.floor,)}
    for option, words in OPTIONS.items():
        words = [word.format(file) for word in words]
        contestants[f"solo {option}"] = ([bench.solo, *words, "-n", "job", "--", TRUE],)
    return {"options": run_in_turn(contestants, rounds, lambda row: ["floor"])}


def measure_descriptors(bench: Bench, rounds: int) -> dict:
    """Measure a run of `true` whose launcher inherits 1,000 open files, beside one that inherits none."""
    launchers = {"floor": bench.floor, "solo": [bench.solo, "-n", "job", "--", TRUE]}
    folder = bench.folder / "files"
    folder.mkdir()
    contestants = {}
    for name, words in launchers.items():
        contestants[name] = (words, folder, 0)
        contestants[f"{name}, {FILES} files"] = (words, folder, FILES)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Both runs get the same limit: a launcher may read it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], max(limits[0], FILES + SPARE)), limits[1]))
    try:
        series = run_in_turn(contestants, rounds, lambda row: [row.partition(",")[0]], time_inheritor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return {"descriptors": series}


def time_inheritor(words, folder, count: int) -> float:
    """Run `words` with `count` open files that they inherit; return the milliseconds, without opening the files."""
    files = [os.open(folder / str(number), os.O_RDWR | os.O_CREAT) for number in range(count)]
    try:
        for file in files:
            os.set_inheritable(file, True)
        return time_run(words)
    finally:
        for file in files:
            os.close(file)


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


def run_in_turn(contestants: dict, rounds: int, against, run=time_run) -> Series:
    """Call `run` for every contestant once a turn, in a random order, so that none always follows the same one.

    `contestants` are {name: arguments of `run`}. Discard a first turn.
    """
    series, dice = Series("ms", against), random.Random(0)
    for turn in range(-1, rounds):
        names = [name for name in contestants if turn % SLOW.get(name, 1) == 0 or turn < 0]
        dice.shuffle(names)
        times = {name: run(*contestants[name]) for name in names}
        if turn >= 0:
            series.add({name: times[name] for name in contestants if name in times})
    return series
