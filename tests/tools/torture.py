"""`make torture`: run all loops of kills, faults and soaks for some minutes, from one seed, and
summarize them.

First run the exhaustive parts: every system call in every scene. Then run rounds of the random
parts, each with its own seed. A part is one test of the suite in its own process; as root also in
its own namespaces, so that all its processes end with it. It records its work by tally.py.
"""

import argparse
import hashlib
import json
import os
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
from measured import describe, format_measured, write_record
from test_torture import SCENES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/torture"
LOOPS = (
    "test_sigkill_at_every_system_call_breaks_no_promise",
    "test_failure_of_any_system_call_breaks_no_promise",
)
EXHAUSTIVE = [
    *(f"tools/test_torture.py::{loop}[{scene.__name__}]" for scene in SCENES for loop in LOOPS),
    "launcher/test_tree.py::test_sigkill_at_any_step_of_either_starts_no_second_tree[upper]",
    "launcher/test_tree.py::test_sigkill_at_any_step_of_either_starts_no_second_tree[lower]",
    "queue/test_hold.py::test_sigkill_at_every_system_call_of_a_timed_hold_holds_all_or_none",
]
EXHAUSTIVE = {f"tests/{node}": 1 for node in EXHAUSTIVE}
RANDOM = {  # each test's share of a round; the longest first
    "tests/engines/test_faults.py::test_soak_of_all_engines_finds_no_overlap": 8,
    "tests/api/test_api_signals.py::test_interrupt_at_each_bytecode_releases": 1,
    "tests/api/test_api_signals.py::test_interrupt_at_any_moment_releases": 1,
    "tests/api/test_api_signals.py::test_interrupt_at_each_line_of_run_ends_the_launcher": 1,
    "tests/api/test_api_exit.py::test_program_killed_at_any_moment_leaves_the_name_free[file]": 1,
    "tests/api/test_api_exit.py::test_program_killed_at_any_moment_leaves_the_name_free[socket]": 1,
    "tests/launcher/test_tree.py::test_killed_pairs_never_overlap": 1,
    "tests/queue/test_soak.py::test_soak_over_slots_keeps_limit_and_loses_no_command[file]": 2,
    "tests/queue/test_soak.py::test_soak_over_slots_keeps_limit_and_loses_no_command[socket]": 2,
}
FOR_EXHAUSTIVE = 0.6  # at most this share of the time
ROUND = 600  # seconds
ENDING = 20  # seconds that a part may need after its last round
GRACE = 150  # seconds until a part counts as stuck
SUMS = "launchers commands kills missed interrupts overlaps unrecorded stuck disordered".split()
KINDS = ("faults", "engines")

WORKERS = (
    2 if os.geteuid() == 0 else 1
)  # socket names are shared by a network namespace, which only root can make
ISOLATED = "unshare --net --pid --fork --kill-child --mount-proc sh -c".split()
ISOLATED += ['ip link set lo up && "$@"; exit $?', "sh"]


class Part:
    """One test with its own seed, derived from the seed of the run."""

    def __init__(self, node: str, weight: float, seed: int, number: int = 0):
        self.node, self.weight = node, weight
        self.seed = int.from_bytes(
            hashlib.sha256(f"{seed} {node} {number}".encode()).digest()[:4], "big"
        )
        self.file = BUILD / f"{re.sub(r'[^a-zA-Z]+', '-', node.partition('::')[2])}{number}.tally"
        self.has_failed, self.process = False, None

    def run(self, until: float):
        own = {
            "SOLO_TORTURE": "whole",
            "SOLO_SEED": self.seed,
            "SOLO_TALLY": self.file,
            "SOLO_UNTIL": until,
        }
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}}
        pytest = [
            sys.executable,
            *"-m pytest -q -p no:cacheprovider --timeout 0".split(),
            self.node,
        ]
        words = [*ISOLATED, *pytest] if os.geteuid() == 0 else pytest
        with open(self.file.with_suffix(".log"), "wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(words, cwd=ROOT, env=environment, **streams)
            try:
                status = self.process.wait(until - time.monotonic() + GRACE)
            except subprocess.TimeoutExpired:
                status = None
                self.process.kill()
        if status != 0:
            self.has_failed = True
            reason = "did not end" if status is None else f"status {status}"
            lines = self.file.with_suffix(".log").read_text(errors="replace").splitlines()[-40:]
            text = "\n".join([f"FAILED: {self.name}: {reason}", *lines, f"replay: {self.replay}"])
            print(text, file=sys.stderr, flush=True)

    @property
    def replay(self) -> str:
        points = tally.read(self.file).points
        point = f"SOLO_POINT='{points[-1]}' " if points else ""
        return f"SOLO_SEED={self.seed} SOLO_TORTURE=whole {point}make test ARGS=\"'{self.node}'\""

    @property
    def name(self) -> str:
        return self.node.partition("::")[2].removeprefix("test_").replace("_", " ")


def run_parts(parts: list, end: float):
    """Run the parts on all workers, each for its share by weight of the time that is left until
    `end`.
    """
    left, lock = list(parts), threading.Lock()

    def work():
        while True:
            with lock:
                now = time.monotonic()
                if not left or now >= end:
                    return
                share = WORKERS * (end - now) * left[0].weight / sum(part.weight for part in left)
                part = left.pop(0)
            part.run(min(end, now + share))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:  # an interrupt ends all parts
        for part in parts:
            if part.process:
                part.process.kill()


def run_all(seed: int, minutes: float, only: list) -> list:
    """Run all parts; return them, including those that found no time."""
    begin = time.monotonic()
    end = begin + 60 * minutes - ENDING

    def make(weights, number=0):
        chosen = [node for node in weights if all(word in node for word in only)]
        return [Part(node, weights[node], seed, number) for node in chosen]

    parts = make(EXHAUSTIVE)
    random.Random(seed).shuffle(parts)
    run_parts(parts, begin + FOR_EXHAUSTIVE * 60 * minutes)
    rounds = max(1, round((end - time.monotonic()) / ROUND))
    for number in range(rounds):
        drawn = make(RANDOM, number)
        now = time.monotonic()
        run_parts(drawn, now + (end - now) / (rounds - number))
        parts += drawn
    return parts


def sum_up(parts: list, seed: int, minutes: float, took: float, measured: dict) -> dict:
    """Return the content of torture.json."""
    tallies = {part: tally.read(part.file) for part in parts}
    tried = {part: len(set(each.points)) for part, each in tallies.items()}
    total, by_kind = Counter(), {kind: Counter() for kind in KINDS}
    for each in tallies.values():
        for kind, amounts in by_kind.items():
            amounts.update(each.counts.pop(kind, {}))
        total.update(each.counts)
    loops = [part for part in parts if tallies[part].of and part.node in EXHAUSTIVE]
    busy = {part.name for part in parts if tallies[part].of or tallies[part].counts}
    return {
        **measured,
        "seed": seed,
        "minutes": minutes,
        "took": round(took / 60, 1),
        "scenes": len({part.node.partition("[")[2] or part.name for part in loops}),
        "points": sum(tallies[part].of for part in loops),
        "hit": sum(tried[part] for part in loops),
        **{what: total[what] for what in SUMS},
        **{kind: dict(amounts.most_common()) for kind, amounts in by_kind.items()},
        "unfinished": [
            f"{part.name}: {tried[part]} of {tallies[part].of}"
            for part in loops
            if tried[part] < tallies[part].of
        ],
        "idle": sorted({part.name for part in parts} - busy),
        "failed": [part.replay for part in parts if part.has_failed],
    }


def render(result: dict) -> str:
    """Return the summary as a Markdown table."""

    def list_amounts(amounts):
        return ", ".join(f"{what} {count:,}" for what, count in amounts.items()) or 0

    rows = {
        f"kills and errors at system calls in {result['scenes']} scenes: tried, of all": f"{result['hit']:,} of {result['points']:,}",
        "of these without effect, as the repeated run did not make that system call": f"{result['missed']:,}",
        "launchers started": f"{result['launchers']:,}",
        "commands run": f"{result['commands']:,}",
        "kills survived": f"{result['kills']:,}",
        "faults injected": f"{sum(result['faults'].values()):,}: {list_amounts(result['faults'])}",
        "Ctrl-C between two steps of the Python API": f"{result['interrupts']:,}",
        "commands at engines behind networks that fail": list_amounts(result["engines"]),
        "overlaps": result["overlaps"],
        "unrecorded runs": result["unrecorded"],
        "stuck names": result["stuck"],
        "tokens out of order": result["disordered"],
        "failed": len(result["failed"]),
        "loops over all calls of a scene that the time limit cut short": len(result["unfinished"]),
        "parts of the torture that did not run": ", ".join(result["idle"]) or "none",
    }
    head = f"`make torture MINUTES={result['minutes']:g} SEED={result['seed']}` ({format_measured(result)})"
    return "\n".join(
        [f"| {head} | |", "|---|---|", *(f"| {what} | {amount} |" for what, amount in rows.items())]
    )


def main():
    parser = argparse.ArgumentParser(
        description="Run all parts of the torture. The same seed makes the same choices."
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=tally.SEED)
    only = "only parts with WORD in their names; repeatable, all must match"
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help=only)
    parser.add_argument(
        "--record",
        action="store_true",
        help="write build/records and the table in docs/evidence.md",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"make torture MINUTES={options.minutes:g} SEED={options.seed}", flush=True)
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    begin, measured = time.monotonic(), describe()
    parts = run_all(options.seed, options.minutes, options.only)
    result = sum_up(parts, options.seed, options.minutes, time.monotonic() - begin, measured)
    print("\n".join(["", render(result), "", f"took {result['took']} minutes"]))
    for loop in result["unfinished"]:
        print(f"not finished: {loop}")
    (BUILD / "torture.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.record:
        write_record("torture", result, {"torture": render(result)})
    for replay in result["failed"]:
        print(f"replay: {replay}")
    wrong = any(result[what] for what in ("overlaps", "unrecorded", "stuck", "disordered"))
    sys.exit("the torture failed" if result["failed"] or wrong or not parts else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was recorded")
