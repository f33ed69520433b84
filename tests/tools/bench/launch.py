"""Measure a run of `true` behind each launcher and with options, a skip, `solo list`, and the
memory of launchers.
"""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

from bench.contestants import TRUE, Bench, Holder, Series, run_in_turn, spawn, wait_asleep

OPTIONS = ["--no-orphan", "--tree", "--timeout 9", "--flock FILE", "--via socket"]
EACH = 500  # names per launcher, which keeps a descriptor open for each


def measure_launch(bench: Bench, rounds: int) -> dict:
    solos = {
        "solo, make install": [bench.solo, "-n", "job", "--", TRUE],
        "solo, default name": [bench.solo, "--", TRUE],
    }
    references = {
        "true alone": [TRUE],
        "python -IS": [bench.python, "-IS", "-c", "pass"],
        "floor": bench.floor,
    }
    if bench.pip:  # without -IS: the floor imports site too
        solos["solo, pip"] = [f"{bench.pip}/solo", "-n", "job", "--", TRUE]
        solos["solo, pyz"] = [bench.python, str(bench.folder / "solo.pyz"), "-n", "job", "--", TRUE]
        references["floor, pip"] = [f"{bench.pip}/python", bench.floor[-1]]
    contestants = references | solos | bench.list_peers()

    def list_references(row):
        return ["floor", "floor, pip"] if row == "solo, pip" else ["floor"]

    return {
        "launch": run_in_turn(
            {name: (words, 0) for name, words in contestants.items()}, rounds, list_references
        )
    }


def measure_options(bench: Bench, rounds: int) -> dict:
    """Measure a run of `true` with each option that makes the launcher do more."""
    file = str(bench.folder / "options")
    contestants = {"floor": (bench.floor,)}
    for option in OPTIONS:
        words = option.replace("FILE", file).split()
        contestants[f"solo {option}"] = ([bench.solo, *words, "-n", "job", "--", TRUE],)
    return {"options": run_in_turn(contestants, rounds, lambda row: ["floor"])}


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


def measure_list(bench: Bench, rounds: int) -> dict:
    """Measure `solo list`, written into a pipe, for growing numbers of names, beside that of an
    empty directory.
    """
    stocks = ["0 held", "10 held", "5 idle"]
    if not bench.small:
        stocks = ["0 held", "10 held", "100 held", "1000 held", "10000 held", "1000 idle"]
    contestants = {"python -IS": ([bench.python, "-IS", "-c", "pass"],)}
    with ExitStack() as stack:
        for stock in stocks:
            place = ["--dir", str(bench.folder / stock)]
            for holder in hold_names(bench, place, int(stock.split()[0])):
                stack.enter_context(holder)
                if stock.endswith("idle"):
                    holder.release()
            contestants[f"solo list, {stock}"] = ([bench.solo, "list", *place],)

        def list_references(row):
            return ["python -IS"] if row == "solo list, 0 held" else ["solo list, 0 held"]

        return {"list": run_in_turn(contestants, rounds, list_references)}


def hold_names(bench: Bench, place: list, count: int) -> list:
    names = [f"name{number:05d}" for number in range(count)]
    parts = [names[at : at + EACH] for at in range(0, count, EACH)]
    return [
        Holder([bench.solo, *place, *(word for name in part for word in ("-n", name)), "--"])
        for part in parts
    ]


SCRIPT = "import posix; posix.write(1, posix.read(0, 1)); posix.read(0, 1)"


def measure_memory(bench: Bench, rounds: int) -> dict:
    """Measure RSS, PSS with its share of shared pages, and the private USS, in MB of a million
    bytes; of 50 launchers, the mean.
    """
    series = {what: Series("MB", lambda row: ["python -IS"]) for what in ("RSS", "PSS", "USS")}
    for _ in range(rounds):
        turn = {
            "python -IS": read_residents(bench, [bench.python, "-IS", "-c", SCRIPT], 1),
            "flock(1)": read_residents(bench, ["flock", str(bench.folder / "memory")], 1),
            "solo": read_residents(bench, [bench.solo, "-n", "memory{}", "--"], 1),
            "solo, waiting": read_waiting(bench),
            "solo, one of 50": read_residents(
                bench, [bench.solo, "-n", "memory{}", "--"], 5 if bench.small else 50
            ),
        }
        for what, one in series.items():
            one.add({row: memory[what] for row, memory in turn.items()})
    return {f"memory: {what}": one for what, one in series.items()}


def read_residents(bench: Bench, words: list, count: int) -> dict:
    with ExitStack() as stack:
        holders = [
            stack.enter_context(Holder([word.format(number) for word in words]))
            for number in range(count)
        ]
        wait_asleep([holder.pid for holder in holders])
        found = [read_memory(holder.pid) for holder in holders]
    return {what: sum(one[what] for one in found) / count for what in found[0]}


def read_waiting(bench: Bench) -> dict:
    with Holder([bench.solo, "-n", "memory", "--"]):
        waiter = spawn([bench.solo, "-n", "memory", "-w", "forever", "--", TRUE])
        wait_asleep([waiter])
        memory = read_memory(waiter)
        os.kill(waiter, signal.SIGTERM)
        os.waitpid(waiter, 0)
    return memory


def read_memory(pid: int) -> dict:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    megabytes = {
        key: int(value.split()[0]) * 1024 / 1e6
        for key, value in (line.split(":") for line in lines)
    }
    private = megabytes["Private_Clean"] + megabytes["Private_Dirty"]
    return {"RSS": megabytes["Rss"], "PSS": megabytes["Pss"], "USS": private}
