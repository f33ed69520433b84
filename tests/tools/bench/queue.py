"""Measure waiting and handoff: time, CPU and wake-ups with one to a thousand waiters, beside
flock(1) and the floor.

All run `true`. Times include it; CPU is that of the launchers alone: the CPU of each launcher when
it is dead and not yet reaped, less its CPU while it waited.
"""

import os
import shutil
import subprocess
import time

from bench.contestants import TRUE, Bench, Holder, Series, read_cost, spawn, wait_asleep

WAVE = 20  # waiters that start at once
COUNTS = (1, 10, 100)  # waiters; MOST only in the first turn, as they take half a minute
MOST = 1000


def list_contenders(bench: Bench) -> dict:
    """Return {launcher: (words of a holder, words of a waiter)}."""
    flock = ["flock", str(bench.folder / "queue")]
    return {
        "flock(1)": (flock, flock),
        "floor": (bench.floor_in_queue, bench.floor_in_queue),
        "solo": (
            [bench.solo, "-n", "queue", "--"],
            [bench.solo, "-n", "queue", "-w", "forever", "--"],
        ),
    }


def drain(hold, wait, count: int) -> dict:
    """Start `count` waiters in waves, let them wait for up to a second, then end the holder and
    time the handoffs.

    Numbers are per waiter, but "waiting, CPU" is the sum of all waiters.
    """
    with Holder(hold) as holder:
        waiters, joined = [], []
        for wave in range(0, count, WAVE):
            waiters += [spawn([*wait, TRUE]) for _ in range(wave, min(wave + WAVE, count))]
            joined += wait_asleep(waiters[wave:])
        time.sleep(min(1, count / 100))
        waited = [read_cost(pid) for pid in waiters]
        begin = time.perf_counter()
        holder.release()
        for pid in reversed(waiters):  # last first: this process then sleeps until all have ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        seconds = time.perf_counter() - begin
        ended = [read_cost(pid) for pid in waiters]
        assert {os.waitpid(pid, 0)[1] for pid in waiters} == {0}
    cpu = [
        sum(nanoseconds for _, nanoseconds, _ in costs) / 1e6 for costs in (joined, waited, ended)
    ]
    sleeps = [sum(sleeps for _, _, sleeps in costs) for costs in (waited, ended)]
    return {
        "waiting, CPU": cpu[1] - cpu[0],
        "handoff": 1000 * seconds / count,
        "handoff, CPU": (cpu[2] - cpu[1]) / count,
        "handoff, wake-ups": (sleeps[1] - sleeps[0]) / count,
    }


def measure_queue(bench: Bench, rounds: int) -> dict:
    """Measure queues of several lengths. Drain short ones repeatedly, so that a turn has up to a
    hundred handoffs.
    """
    found = {}
    for number in range(rounds):
        turn = {}
        counts = (1, 4) if bench.small else COUNTS if number else (*COUNTS, MOST)
        for count in counts:
            for name, words in list_contenders(bench).items():
                drains = [
                    drain(*words, count)
                    for _ in range(1 if bench.small else max(1, min(10, 100 // count)))
                ]
                for what in drains[0]:
                    turn.setdefault(what, {})[f"{name}, {count}"] = sum(
                        one[what] for one in drains
                    ) / len(drains)
        for what, rows in turn.items():
            found.setdefault(what, Series("" if "wake-ups" in what else "ms", list_references)).add(
                rows
            )
    return {f"queue: {what}": series for what, series in found.items()}


def list_references(row: str) -> list:
    """Compare with the peers in a queue of the same length, and a long queue of solo with a short
    one.
    """
    name, count = row.split(", ")
    return [f"{peer}, {count}" for peer in list_peers(name)] + ["solo, 10"] * (
        name == "solo" and int(count) > 10
    )


def list_peers(row: str) -> list:
    return ["flock(1)", "floor"] if row.startswith("solo") else ["flock(1)"]


def measure_latency(bench: Bench, rounds: int) -> dict:
    """Measure from the end of the holder to the first word of the waiter's `echo`, including the
    start of `echo`.
    """
    series = Series("ms", list_peers)
    for _ in range(rounds):
        turn = {}
        for name, (hold, wait) in list_contenders(bench).items():
            with Holder(hold) as holder:
                turn[name] = time_first_word(wait, holder.release)
        with Holder([bench.solo, "-n", "orphan", "--"]) as holder:
            holder.process.kill()
            holder.process.wait()
            words = [bench.solo, "-n", "orphan", "-w", "forever"]
            turn["solo, after an orphan"] = time_first_word(words, holder.release)
        series.add(turn)
    return {"latency": series}


def time_first_word(wait, end) -> float:
    """Start a waiter, call `end`; return the milliseconds until the first byte of the waiter's
    command.
    """
    words = [*wait, shutil.which("echo")]
    waiter = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    wait_asleep([waiter.pid])
    begin = time.perf_counter()
    end()
    assert waiter.stdout.read(1) == b"\n"
    milliseconds = 1000 * (time.perf_counter() - begin)
    waiter.communicate()
    return milliseconds
