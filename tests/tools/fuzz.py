"""`make fuzz`: feed millions of inputs to the targets of readers/, in one process for each CPU.

Inputs are valid texts after a few small changes. An input is bytes: `check` reads it, and for one
in four it is also the seed of a `trip`. Findings are printed with their input; `--replay TARGET
INPUT` runs it again.
"""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
import traceback
from ast import literal_eval
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from random import Random
from zlib import crc32

import measured

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

COUNT = 10_000_000
PATIENCE = 20  # seconds of CPU until an input counts as a hang
LARGEST = 4096  # bytes of an input
SEEDS = 40  # valid texts to begin with
BYTES = b"\0\n\r\t \x0b%-+_=/.,:;\"'()[]{}@019azZ\x7f\x80\xc3\xff"


class Hang(BaseException):
    """An input took too long. No Exception, so that no reader catches it."""


def raise_hang(*_):
    raise Hang


def try_input(target, data: bytes):
    """Run one input. Raises AssertionError for a wrong answer, Hang, or any exception of the
    reader.
    """
    signal.signal(signal.SIGPROF, raise_hang)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        target.check(data)
        chance = crc32(data)
        if target.trip is not None and chance % 4 == 0:
            target.trip(Random(chance))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def mutate(target, rng, data: bytes) -> bytes:
    """Return `data` after a few small changes, or sometimes a new valid text."""
    if rng.random() < 0.2:
        return target.make(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        data = rng.choice(CHANGES)(target, rng, data, at)
    return data[:LARGEST]


def flip(target, rng, data, at):
    return (
        data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        if at < len(data)
        else data
    )


def put(target, rng, data, at):
    return data[:at] + bytes((rng.choice(BYTES),)) + data[at + rng.randrange(2) :]


def put_word(target, rng, data, at):
    return data[:at] + rng.choice(target.words or (b"",)) + data[at + rng.choice((0, 0, 1, 5)) :]


def cut(target, rng, data, at):
    return data[:at]


def drop(target, rng, data, at):
    return data[:at] + data[at + rng.choice((1, 2, 8, 21)) :]


def repeat(target, rng, data, at):
    return data[:at] + data[at : at + 30] * rng.choice((2, 2, 3, 3, 3, 40)) + data[at + 30 :]


def splice(target, rng, data, at):
    other = target.make(rng)
    return data[:at] + other[rng.randrange(len(other) + 1) :]


CHANGES = (flip, put, put, put_word, put_word, cut, drop, repeat, splice)


def generate(target, seed: int):
    """Yield inputs without end: the same ones for the same seed."""
    rng = Random(seed)
    pool = [target.make(rng) for _ in range(SEEDS)] + [b""]
    while True:
        data = mutate(target, rng, rng.choice(pool))
        if rng.random() < 0.02:
            pool[rng.randrange(len(pool))] = data
        yield data


def run(target, seed: int, count: int) -> dict:
    """Feed `count` inputs to a target. Return the result, with the finding if there is one."""
    begin, done, finding = time.monotonic(), 0, {}
    for done, data in enumerate(islice(generate(target, seed), count), 1):
        try:
            try_input(target, data)
        except (Exception, Hang):
            finding = {"input": repr(data), "why": traceback.format_exc()}
            break
    return {
        "target": target.name,
        "inputs": done,
        "seconds": round(time.monotonic() - begin),
        **finding,
    }


def run_named(name: str, seed: int, count: int) -> dict:
    """Run a target, in a process of the pool, which imports the readers itself."""
    from readers import TARGETS

    return run(TARGETS[name], seed, count)


def run_all(shares: dict, seed: int) -> list:
    """Run all targets, the largest first; return their results."""
    spawning = multiprocessing.get_context("spawn")
    results = []
    with ProcessPoolExecutor(os.cpu_count(), spawning) as pool:
        largest = sorted(shares, key=shares.get, reverse=True)
        for found in pool.map(
            run_named, largest, [seed] * len(largest), [shares[name] for name in largest]
        ):
            outcome = "FOUND" if "why" in found else "-"
            print(
                f"| {found['target']} | {found['inputs']:,} | {found['seconds']} | {outcome} |",
                flush=True,
            )
            results.append(found)
    return results


def share_out(targets: list, count: int) -> dict:
    """Return {target: its number of inputs}, fewer for slow targets; at least `count` in all."""
    whole = sum(target.share for target in targets)
    return {target.name: int(-(-count * target.share // whole)) for target in targets}


def describe(results: list, seed: int) -> dict:
    """Return the record of a run without findings."""
    inputs = {
        found["target"]: found["inputs"]
        for found in sorted(results, key=lambda found: found["target"])
    }
    return {**measured.describe(), "seed": seed, "inputs": sum(inputs.values()), "targets": inputs}


def make_sentence(run: dict) -> str:
    """Return the sentence for docs/evidence.md."""
    readers = f"{len(run['targets'])} readers ({', '.join(run['targets'])})"
    command = f"`make fuzz SEED={run['seed']}`, {measured.format_measured(run)}"
    return (
        f"{run['inputs']:,} inputs for {readers}: no crash, no hang, no wrong answer ({command})."
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("targets", nargs="*")
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--count", type=int, default=COUNT)
    options.add_argument(
        "--record", action="store_true", help="write build/records and docs/evidence.md"
    )
    options.add_argument("--replay", nargs=2, metavar=("TARGET", "INPUT"))
    asked = options.parse_args()
    if asked.record and asked.targets:
        options.error("--record is for a run of all targets")
    from readers import TARGETS

    if asked.replay:
        return try_input(TARGETS[asked.replay[0]], literal_eval(asked.replay[1]))
    shares = share_out([TARGETS[name] for name in asked.targets or TARGETS], asked.count)
    print(
        f"SEED={asked.seed}, Python {platform.python_version()}\n\n| target | inputs | seconds | found |"
    )
    print("|---|---:|---:|---|")
    results = run_all(shares, asked.seed)
    findings = [found for found in results if "why" in found]
    record = describe(results, asked.seed)
    print("\n" + (f"{len(findings)} found" if findings else make_sentence(record)))
    for found in findings:
        print(
            f"\n{found['target']}: --replay {found['target']} {json.dumps(found['input'])}\n{found['why']}"
        )
    if asked.record and not findings:
        measured.write_record("fuzz", record, {"fuzz": make_sentence(record)})
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
