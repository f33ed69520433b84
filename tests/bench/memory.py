"""Measure the memory of a launcher, in MB of a million bytes: resident (RSS), with its share of shared pages (PSS), private (USS).

Of 50 launchers at once, take the mean.
"""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

from bench.contestants import TRUE, Bench, Holder, Series, spawn, wait_asleep

SCRIPT = "import posix; posix.write(1, posix.read(0, 1)); posix.read(0, 1)"


def measure_memory(bench: Bench, rounds: int) -> dict:
    series = {what: Series("MB", lambda row: ["python -IS"]) for what in ("RSS", "PSS", "USS")}
    for _ in range(rounds):
        turn = {
            "python -IS": read_residents(bench, [bench.python, "-IS", "-c", SCRIPT], 1),
            "flock(1)": read_residents(bench, ["flock", str(bench.folder / "memory")], 1),
            "solo": read_residents(bench, [bench.solo, "-n", "memory{}", "--"], 1),
            "solo, waiting": read_waiting(bench),
            "solo, one of 50": read_residents(bench, [bench.solo, "-n", "memory{}", "--"], 5 if bench.small else 50),
        }
        for what, one in series.items():
            one.add({row: memory[what] for row, memory in turn.items()})
    return {f"memory: {what}": one for what, one in series.items()}


def read_residents(bench: Bench, words: list, count: int) -> dict:
    with ExitStack() as stack:
        holders = [stack.enter_context(Holder([word.format(number) for word in words])) for number in range(count)]
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
    megabytes = {key: int(value.split()[0]) * 1024 / 1e6 for key, value in (line.split(":") for line in lines)}
    return {
        "RSS": megabytes["Rss"],
        "PSS": megabytes["Pss"],
        "USS": megabytes["Private_Clean"] + megabytes["Private_Dirty"],
    }
