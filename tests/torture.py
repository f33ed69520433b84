"""The torture as a whole: all kill and fail loops, walks and soaks for so many minutes, from one seed, and one summary of them.

First what can be exhausted: every system call in every scene. Then, in rounds, what is drawn at random, each with a seed of its
own. A part is a test of the suite in a process, and as root in namespaces, of its own, of which nothing is left when its time is
over; it tells what it did by tally.py.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import tally
from test_torture import SCENES

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/torture"
RECORD = ROOT / "docs/torture.json"
LOOPS = ("test_sigkill_at_every_system_call_breaks_no_promise", "test_a_failure_of_any_system_call_breaks_no_promise")
CHILD = "test_sigkill_at_every_system_call_of_a_child_forked_before_its_turn_breaks_no_promise"
EXHAUSTIVE = {f"tests/test_torture.py::{loop}[{scene.__name__}]": 1 for scene in SCENES for loop in LOOPS} | {
    f"tests/test_torture.py::{CHILD}[{via}]": 1 for via in ("file", "socket")
}
RANDOM = {  # and how much of a round each gets; the longest first
    "tests/test_faults.py::test_soaks_of_all_engines_find_no_two_at_once": 8,
    "tests/test_torture.py::test_whatever_is_done_at_a_hand_over_breaks_no_promise[file]": 4,
    "tests/test_torture.py::test_whatever_is_done_at_a_hand_over_breaks_no_promise[socket]": 2,
    "tests/test_api.py::test_an_interrupt_at_each_step_of_the_interpreter_lets_go": 1,
    "tests/test_api.py::test_ctrl_c_at_any_moment_lets_go": 1,
    "tests/test_api.py::test_a_program_killed_at_random_points_leaves_nothing_in_the_way[file]": 1,
    "tests/test_api.py::test_a_program_killed_at_random_points_leaves_nothing_in_the_way[socket]": 1,
    "tests/test_stateful.py::test_a_random_walk_agrees_with_the_model[file]": 3,
    "tests/test_stateful.py::test_a_random_walk_agrees_with_the_model[socket]": 2,
    "tests/test_crowd.py::test_churn_with_kills_never_overlaps_and_leaves_nothing": 1,
    "tests/test_torture.py::test_a_crowd_that_arrives_at_once_joins_in_time_and_runs_once_each": 1,
    "tests/test_crowd.py::test_a_crowd_runs_once_each_and_in_order": 1,
    "tests/test_crowd.py::test_a_soak_of_sixty_over_three_slots_never_has_four_and_loses_nobody[file]": 2,
    "tests/test_crowd.py::test_a_soak_of_sixty_over_three_slots_never_has_four_and_loses_nobody[socket]": 2,
}
FOR_EXHAUSTIVE = 0.6  # of all the time, at most
ROUND = 600  # seconds
ENDING = 20  # seconds, that a part may need after its last round
GRACE = 150  # seconds after which it is stuck
FAILURES = 2  # of one part, then it is left alone
SUMS = ("launchers", "commands", "kills", "missed", "walks", "interrupts", "overlaps", "unrecorded", "stuck", "disordered")
KINDS = ("faults", "handovers", "engines")

WORKERS = 2 if os.geteuid() == 0 else 1  # names by sockets are seen in all of a network namespace
APART = (
    "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", 'ip link set lo up && "$@"; exit $?', "sh",
) if os.geteuid() == 0 else ()


class Part:
    """One test, with a seed of its own from that of the whole."""

    def __init__(self, node: str, weight: float, seed: int, number: int = 0):
        self.node, self.weight = node, weight
        self.seed = int.from_bytes(hashlib.sha256(f"{seed} {node} {number}".encode()).digest()[:4], "big")
        self.file = BUILD / f"{re.sub(r'[^a-zA-Z]+', '-', node.partition('::')[2])}{number}.tally"
        self.failures = []  # how to see each again
        self.process = None

    def run(self, until: float):
        environment = {**os.environ, "SOLO_TORTURE": "whole", "SOLO_SEED": str(self.seed), "SOLO_TALLY": str(self.file),
                       "SOLO_UNTIL": str(until)}
        words = [*APART, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "0", self.node]
        with open(self.file.with_suffix(".log"), "wb") as log:
            self.process = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                status = self.process.wait(until - time.monotonic() + GRACE)
            except subprocess.TimeoutExpired:
                status = None
                self.process.kill()
        if status != 0:
            self.fail(status)

    def fail(self, status):
        """Say it at once, with how to see it again."""
        self.failures.append(self.replay)
        reason = "it did not end" if status is None else f"status {status}"
        log = self.file.with_suffix(".log").read_text(errors="replace").splitlines()
        print("\n".join([f"FAILED: {self.name}: {reason}", *log[-40:], f"replay: {self.replay}"]), file=sys.stderr, flush=True)

    @property
    def replay(self) -> str:
        points = tally.read(self.file).points
        point = f"SOLO_POINT='{points[-1]}' " if points else ""
        return f"SOLO_SEED={self.seed} SOLO_TORTURE=whole {point}make test ARGS=\"'{self.node}'\""

    @property
    def name(self) -> str:
        return self.node.partition("::")[2].removeprefix("test_").replace("_", " ")

    @property
    def scene(self) -> str:
        return self.node.partition("[")[2][:-1]

    @property
    def is_finished(self) -> bool:
        told = tally.read(self.file)
        return len(set(told.points)) >= told.of


class Shift:
    """Parts in turn, by all workers: each gets its share of the time that is left until `end`.

    `again`: those that had too little of it come once more, while there is some.
    """

    def __init__(self, parts: list, end: float, again: bool):
        self.queue, self.end, self.again = list(parts), end, again
        self.lock = threading.Lock()
        self.busy = {}  # part: until when

    def run(self):
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # nothing outlives an interrupt
            for part in self.busy:
                if part.process:
                    part.process.kill()

    def work(self):
        while part := self.take():
            part.run(self.busy[part])
            self.give_back(part)

    def take(self):
        now = time.monotonic()
        with self.lock:
            if not self.queue or now >= self.end:
                return None
            left = WORKERS * (self.end - now) - sum(max(0, until - now) for until in self.busy.values())
            share = left * self.queue[0].weight / sum(part.weight for part in self.queue)
            part = self.queue.pop(0)
            self.busy[part] = min(self.end, now + share)
            return part

    def give_back(self, part):
        with self.lock:
            del self.busy[part]
            if self.again and not part.is_finished and len(part.failures) < FAILURES:
                self.queue.append(part)


def run_all(seed: int, minutes: float, only: list) -> list:
    """The parts that were run, or should have been."""
    begin = time.monotonic()
    end = begin + 60 * minutes - ENDING

    def make(weights, number=0):
        return [Part(node, weight, seed, number) for node, weight in weights.items() if all(word in node for word in only)]

    parts = make(EXHAUSTIVE)
    random.Random(seed).shuffle(parts)
    Shift(parts, begin + FOR_EXHAUSTIVE * 60 * minutes, again=True).run()
    rounds = max(1, round((end - time.monotonic()) / ROUND))
    for number in range(rounds):
        drawn = make(RANDOM, number)
        now = time.monotonic()
        Shift(drawn, now + (end - now) / (rounds - number), again=False).run()
        parts += drawn
    return parts


def sum_up(parts: list, seed: int, minutes: float, took: float) -> dict:
    told = {part: tally.read(part.file) for part in parts}
    total, by_kind = Counter(), {kind: Counter() for kind in KINDS}
    for each in told.values():
        for kind, amounts in by_kind.items():
            amounts.update(each.counts.pop(kind, {}))
        total.update(each.counts)
    loops = [part for part in parts if told[part].of and part.node in EXHAUSTIVE]
    busy = {part.name for part in parts if told[part].of or told[part].counts}
    return {
        "date": str(datetime.date.today()), "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(), "seed": seed,
        "minutes": minutes, "took": round(took / 60, 1), "scenes": len({part.scene for part in loops}),
        "points": sum(told[part].of for part in loops), "hit": sum(len(set(told[part].points)) for part in loops),
        **{what: total[what] for what in SUMS}, **{kind: dict(amounts.most_common()) for kind, amounts in by_kind.items()},
        "unfinished": [f"{part.name}: {len(set(told[part].points))} of {told[part].of}" for part in loops if not part.is_finished],
        "idle": sorted({part.name for part in parts} - busy),
        "failed": [replay for part in parts for replay in part.failures],
    }


def render(result: dict) -> str:
    """The summary, in Markdown."""
    def list_amounts(amounts):
        return ", ".join(f"{what} {count:,}" for what, count in amounts.items()) or 0

    rows = {
        f"kills and errors at system calls, in {result['scenes']} scenes, that were tried, of all there are":
            f"{result['hit']:,} of {result['points']:,}",
        "of them did not come in the run in which they were to be hit": f"{result['missed']:,}",
        "launchers started, commands run": f"{result['launchers']:,}, {result['commands']:,}",
        "kills survived": f"{result['kills']:,}",
        "faults injected": f"{sum(result['faults'].values()):,}: {list_amounts(result['faults'])}",
        "struck at hand-overs": list_amounts(result["handovers"]),
        "random walks that a model follows": f"{result['walks']:,}",
        "Ctrl-C between two steps of the Python API": f"{result['interrupts']:,}",
        "commands at engines behind networks that fail": list_amounts(result["engines"]),
        "overlaps": result["overlaps"], "unrecorded runs": result["unrecorded"], "stuck names": result["stuck"],
        "tokens out of order": result["disordered"], "failed": len(result["failed"]),
        "loops over all calls of a scene that had no time to finish": len(result["unfinished"]),
        "parts that told of nothing": ", ".join(result["idle"]) or "none",
    }
    head = f"`make torture MINUTES={result['minutes']:g} SEED={result['seed']}` ({result['date']}, Linux {result['kernel']}, " \
           f"Python {result['python']})"
    return "\n".join([f"| {head} | |", "|---|---|", *(f"| {what} | {amount} |" for what, amount in rows.items())])


def write_record(result: dict):
    """Write docs/torture.json, and the table in docs/evidence.md between its marks."""
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(result, indent=1) + "\n")
    page = ROOT / "docs/evidence.md"
    text, count = re.subn(r"(<!-- torture -->\n).*?(\n<!-- end -->)", lambda found: found[1] + render(result) + found[2],
                          page.read_text(), flags=re.S)
    assert count == 1, "no place for it in docs/evidence.md"
    page.write_text(text)


def main():
    options = argparse.ArgumentParser(description="All the torture for so many minutes. The same seed makes the same choices.")
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--seed", type=int, default=tally.SEED)
    options.add_argument("--only", action="append", default=[], metavar="WORD",
                         help="the parts that have it in their names; all of several")
    options.add_argument("--record", action="store_true", help="write docs/torture.json, and its table in docs/evidence.md")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"make torture MINUTES={given.minutes:g} SEED={given.seed}", flush=True)
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    begin = time.monotonic()
    parts = run_all(given.seed, given.minutes, given.only)
    result = sum_up(parts, given.seed, given.minutes, time.monotonic() - begin)
    print("\n".join(["", render(result), "", f"took {result['took']} minutes"]))
    for loop in result["unfinished"]:
        print(f"not finished: {loop}")
    (BUILD / "torture.json").write_text(json.dumps(result, indent=1) + "\n")
    if given.record:
        write_record(result)
    for replay in result["failed"]:
        print(f"replay: {replay}")
    wrong = any(result[what] for what in ("overlaps", "unrecorded", "stuck", "disordered"))
    sys.exit("the torture failed" if result["failed"] or wrong or not parts else 0)


if __name__ == "__main__":
    main()
