"""What it costs to stand in line, and to hand over: time, CPU and wake-ups, from one in line to a thousand, beside flock(1).

Both run `true`, whose cost is in the times and not in the CPU, which is that of the launchers alone: what each has used when it is
dead and not yet reaped, less what it had used when it stood in line.
"""

import os
import shutil
import subprocess
import time
from contextlib import ExitStack

from bench.contestants import TRUE, Bench, Holder, read_cost, spawn, wait_standing
from bench.quartiles import Series

WAVE = 20  # who come at once


def list_lines(bench: Bench) -> dict:
    """{who: (the words of a holder, those of one who waits)}"""
    flock = ["flock", str(bench.folder / "line")]
    return {
        "flock(1)": (flock, flock),
        "solo": ([bench.solo, "-n", "line", "--"], [bench.solo, "-n", "line", "-w", "forever", "--"]),
    }


def drain(hold, wait, count: int) -> dict:
    """`count` come in waves, stand in line for up to a second, and get in one after the other once the holder's command ends.

    Each number is per contender; what standing costs, all of them together. That a wave has joined is seen to 20 ms or so.
    """
    with Holder(hold) as holder:
        begin = time.perf_counter()
        line, joined = [], []
        for wave in range(0, count, WAVE):
            line += [spawn([*wait, TRUE]) for _ in range(wave, min(wave + WAVE, count))]
            joined += wait_standing(line[wave:])
        joining = time.perf_counter() - begin
        time.sleep(min(1, count / 100))
        stood = [read_cost(pid) for pid in line]
        begin = time.perf_counter()
        holder.let_go()
        for pid in reversed(line):  # the last one first, so that we sleep meanwhile
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        seconds = time.perf_counter() - begin
        ended = [read_cost(pid) for pid in line]
        assert {os.waitpid(pid, 0)[1] for pid in line} == {0}
    cpu = [sum(nanoseconds for _, nanoseconds, _ in costs) / 1e6 for costs in (joined, stood, ended)]
    sleeps = [sum(sleeps for _, _, sleeps in costs) for costs in (stood, ended)]
    return {
        "joining": 1000 * joining / count, "joining, CPU": cpu[0] / count, "standing, CPU": cpu[1] - cpu[0],
        "hand-over": 1000 * seconds / count, "hand-over, CPU": (cpu[2] - cpu[1]) / count,
        "hand-over, wake-ups": (sleeps[1] - sleeps[0]) / count,
    }


def measure_handover(bench: Bench, rounds: int) -> dict:
    """In a line of 40."""
    lines = {**list_lines(bench), "floor": (bench.floor_in_line, bench.floor_in_line)}
    series = Series("ms", list_peers)
    for _ in range(rounds):
        series.add({who: drain(*words, 4 if bench.small else 40)["hand-over"] for who, words in lines.items()})
    return {"hand-over in a line of 40": series}


def measure_line(bench: Bench, rounds: int) -> dict:
    """A few in line are drained several times a turn: a hundred hand-overs or so are a turn."""
    found = {}
    for _ in range(rounds):
        turn = {}
        for count in (1, 4) if bench.small else (1, 10, 100, 1000):
            for who, words in list_lines(bench).items():
                drains = [drain(*words, count) for _ in range(1 if bench.small else max(1, min(20, 100 // count)))]
                for what in drains[0]:
                    turn.setdefault(what, {})[f"{who}, {count}"] = sum(one[what] for one in drains) / len(drains)
        turn["joining"] = {row: time for row, time in turn["joining"].items() if int(row.split(", ")[1]) >= WAVE}
        for what, rows in turn.items():
            found.setdefault(what, Series("" if "wake-ups" in what else "ms", list_references)).add(rows)
    return {f"line: {what}": series for what, series in found.items()}


def list_references(row: str) -> list:
    who, count = row.split(", ")
    return [f"flock(1), {count}", *(["solo, 10"] if int(count) > 10 else [])] if who == "solo" else []


def list_peers(row: str) -> list:
    return ["flock(1)", "floor"] if row.startswith("solo") else ["flock(1)"]


def measure_latency(bench: Bench, rounds: int) -> dict:
    """From the end of what is in the way to the first word of an `echo`, whose start is part of it."""
    flock, slots = ["flock", str(bench.folder / "latency")], ["-n", "slots", "--slots", "3", "--no-orphan"]
    series = Series("ms", list_peers)
    for _ in range(rounds):
        turn = {}
        for who, words in (("flock(1)", flock), ("floor", bench.floor_in_line)):
            with Holder(words) as holder:
                turn[who] = time_first_word(words, holder.let_go)
        with Holder([bench.solo, "-n", "next", "--"]) as holder:
            turn["solo"] = time_first_word([bench.solo, "-n", "next", "-w", "forever"], holder.let_go)
        with Holder([bench.solo, "-n", "orphan", "--"]) as holder:
            holder.process.kill()
            holder.process.wait()
            turn["solo, after an orphan"] = time_first_word([bench.solo, "-n", "orphan", "-w", "forever"], holder.let_go)
        with ExitStack() as stack:
            three = [stack.enter_context(Holder([bench.solo, *slots, "--"])) for _ in range(3)]
            turn["solo, after SIGKILL in a slot"] = time_first_word([bench.solo, *slots, "-w", "forever"], three[1].process.kill)
        series.add(turn)
    return {"latency": series}


def time_first_word(wait, end) -> float:
    """Milliseconds from `end` to the first byte of who waits for it."""
    waiter = subprocess.Popen([*wait, shutil.which("echo")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    wait_standing([waiter.pid])
    begin = time.perf_counter()
    end()
    assert waiter.stdout.read(1) == b"\n"
    milliseconds = 1000 * (time.perf_counter() - begin)
    waiter.communicate()
    return milliseconds
