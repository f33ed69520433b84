"""`make fuzz`: feed millions of inputs to the targets of readers/, two at a time, each in its own process.

With atheris installed (make fuzz installs it if it can), the first tenth is guided by coverage. The rest mutates the corpus of that
part and valid texts. An input is bytes: `check` reads it, and for one in four it is also the seed of a `trip`. Findings are printed
with their input; `--replay TARGET INPUT` runs it again.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from ast import literal_eval
from pathlib import Path
from random import Random
from zlib import crc32

import measured

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

COUNT = 10_000_000
PATIENCE = 20  # seconds of CPU until an input counts as a hang
LARGEST = 4096  # bytes of an input; test_fuzz.py has larger ones
BESIDE = 2  # processes at a time
GUIDED = 10  # one input in 10
GAVE_UP = 77  # libFuzzer's exit status when it gives up; the unguided run meets the same problem
SEEDS = 40  # valid texts in the initial corpus
BYTES = b"\0\n\r\t \x0b%-+_=/.,:;\"'()[]{}@019azZ\x7f\x80\xc3\xff"


class Hang(BaseException):
    """An input took too long. No Exception, so that no reader catches it."""


def raise_hang(*_):
    raise Hang


def try_input(target, data: bytes):
    """Run one input. Raises AssertionError for a wrong answer, Hang, or any exception of the reader."""
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
    return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :] if at < len(data) else data


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


def generate(target, seed: int, corpus=()):
    """Yield inputs without end: the same ones for the same seed and corpus."""
    rng = Random(seed)
    pool = [target.make(rng) for _ in range(SEEDS)] + [b"", *corpus]
    while True:
        data = mutate(target, rng, rng.choice(pool))
        if rng.random() < 0.02:
            pool[rng.randrange(len(pool))] = data
        yield data


def run_plain(target, seed: int, count: int, corpus=()) -> dict:
    """Fuzz without guidance, starting with `corpus` and valid texts. Return the result, with the finding if there is one."""
    begin, data, done = time.monotonic(), b"", 0
    for data in generate(target, seed, corpus):
        if done >= count:
            break
        done += 1
        try:
            try_input(target, data)
        except (Exception, Hang):
            return summarize(target, done, begin, data, traceback.format_exc())
    return summarize(target, done, begin)


def summarize(target, done: int, begin: float, data=None, why: str = "") -> dict:
    found = {} if data is None else {"input": repr(data), "why": why}
    return {"target": target.name, "inputs": done, "seconds": time.monotonic() - begin, **found}


def run_guided(load, seed: int, count: int, corpus: str, answer: str):
    """Fuzz with atheris, which ends this process. The result goes to the file `answer`, new inputs to the folder `corpus`."""
    import atheris

    with atheris.instrument_imports(include=["solo"]):
        target = load()
    begin, done = time.monotonic(), 0

    def finish(*finding):
        # Rename it: libFuzzer may give up in the middle of a write.
        Path(answer + ".new").write_text(json.dumps(summarize(target, done, begin, *finding)))
        os.replace(answer + ".new", answer)
        os._exit(0)

    def one_input(data: bytes):
        nonlocal done
        done += 1
        try:
            try_input(target, data)
        except (Exception, Hang):
            finish(data, traceback.format_exc())
        if done >= count:
            finish()

    def change(data: bytes, most: int, seed: int) -> bytes:
        return mutate(target, Random(seed), data)[:most] if seed % 8 < 5 else atheris.Mutate(data, most)

    rng = Random(seed)
    for number in range(SEEDS):
        Path(corpus, str(number)).write_bytes(target.make(rng))
    # No timeout of libFuzzer: try_input has its own timer.
    flags = f"-seed={seed % (1 << 32) or 1} -max_len={LARGEST} -timeout=0 -runs=-1 -verbosity=0 -rss_limit_mb=0".split()
    flags.append(f"-artifact_prefix={corpus}/")  # the unguided run tries the input at which it gave up
    atheris.Setup(["fuzz", *flags, corpus], one_input, custom_mutator=change)
    atheris.Fuzz()


def run_one(name: str, engine: str, seed: int, count: int, answer: str):
    """Fuzz one target in this process: a guided tenth, then the rest, unguided and several times as fast."""

    def load():
        from readers import TARGETS

        return TARGETS[name]

    first = {"inputs": 0, "seconds": 0, "outcome": "-"}
    with tempfile.TemporaryDirectory() as corpus:
        if engine == "atheris":
            guided = os.fork()
            if guided == 0:
                run_guided(load, seed, -(-count // GUIDED), corpus, answer)
            status = os.waitstatus_to_exitcode(os.waitpid(guided, 0)[1])
            if status != GAVE_UP or os.path.exists(answer):
                first = json.loads(Path(answer).read_text())
            else:
                first["outcome"] = "unguided"
        found = [file.read_bytes() for file in sorted(Path(corpus).iterdir())]
    if "why" not in first:
        last = run_plain(load(), seed, count - first["inputs"], found)
        first = {**first, **last, **{key: first[key] + last[key] for key in ("inputs", "seconds")}}
    Path(answer).write_text(json.dumps(first))


def share_out(targets: list, count: int) -> dict:
    """Return {target: its number of inputs}, fewer for slow targets; at least `count` in all."""
    whole = sum(target.share for target in targets)
    return {target.name: int(-(-count * target.share // whole)) for target in targets}


def run_all(shares: dict, engine: str, seed: int) -> list:
    """Fuzz all targets, BESIDE at a time; return their results."""
    waiting, running, done = sorted(shares, key=shares.get), {}, []
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < BESIDE:
                name = waiting.pop()
                answer = os.path.join(folder, name)
                words = [sys.executable, __file__, "--one", name, "--engine", engine, "--seed", str(seed)]
                words += ["--count", str(shares[name]), "--answer", answer]
                process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=open(answer + ".err", "wb"))
                running[process] = name, answer
            process = wait_for_one(running)
            name, answer = running.pop(process)
            try:
                known = json.loads(Path(answer).read_text())
            except (OSError, ValueError):
                why = Path(answer + ".err").read_text()[-3000:]
                known = {"target": name, "inputs": 0, "seconds": 0, "input": "?", "why": why}
            if known.get("outcome") == "unguided":
                print(Path(answer + ".err").read_text(errors="replace")[-1000:], file=sys.stderr)  # why it gave up
            done.append(known)
            outcome = "FOUND" if "why" in known else known.get("outcome", "-")
            print(f"| {name} | {known['inputs']:,} | {known['seconds']:.0f} | {outcome} |", flush=True)
    return done


def wait_for_one(running):
    """Wait until one of the processes has ended; return it."""
    poller = select.poll()
    pidfds = {os.pidfd_open(process.pid): process for process in running}
    for pidfd in pidfds:
        poller.register(pidfd, select.POLLIN)
    process = pidfds[poller.poll()[0][0]]
    for pidfd in pidfds:
        os.close(pidfd)
    process.wait()
    return process


def describe(results: list, seed: int, engine: str) -> dict:
    """Return the record of a run without findings."""
    version = f"atheris {importlib.metadata.version('atheris')}" if engine == "atheris" else "no atheris"
    return {
        **measured.describe(),
        "engine": version,
        "seed": seed,
        "inputs": sum(known["inputs"] for known in results),
        "targets": {
            known["target"]: {
                "inputs": known["inputs"],
                "seconds": round(known["seconds"]),
                "found": known.get("outcome", "-"),
            }
            for known in sorted(results, key=lambda known: known["target"])
        },
    }


def make_sentence(run: dict) -> str:
    """Return the sentence for docs/evidence.md."""
    command = f"`make fuzz SEED={run['seed']}`"
    readers = f"{len(run['targets'])} readers ({', '.join(run['targets'])})"
    return f"{run['inputs']:,} inputs for {readers}: no crash, no hang, no wrong answer ({command}, {measured.format_measured(run)}, {run['engine']})."


def find_engine() -> str:
    return "atheris" if importlib.util.find_spec("atheris") else "plain"


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("targets", nargs="*")
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--count", type=int, default=COUNT)
    options.add_argument("--engine", choices=("atheris", "plain"), default=find_engine())
    options.add_argument(
        "--record", action="store_true", help="if nothing is found, write build/records and docs/evidence.md"
    )
    options.add_argument("--replay", nargs=2, metavar=("TARGET", "INPUT"))
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--answer", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.one:
        return run_one(asked.one, asked.engine, asked.seed, asked.count, asked.answer)
    if asked.record and asked.targets:
        options.error("--record is for a run of all targets")
    from readers import TARGETS

    if asked.replay:
        return try_input(TARGETS[asked.replay[0]], literal_eval(asked.replay[1]))
    shares = share_out([TARGETS[name] for name in asked.targets or TARGETS], asked.count)
    print(
        f"SEED={asked.seed}, {asked.engine}, Python {platform.python_version()}\n\n"
        "| target | inputs | seconds | found |\n|---|---:|---:|---|"
    )
    results = run_all(shares, asked.engine, asked.seed)
    found = [known for known in results if "why" in known]
    run = describe(results, asked.seed, asked.engine)
    print("\n" + (f"{len(found)} found" if found else make_sentence(run)))
    for known in found:
        print(f"\n{known['target']}: --replay {known['target']} {json.dumps(known['input'])}\n{known['why']}")
    if asked.record and not found:
        measured.write_record("fuzz", run, {"fuzz": make_sentence(run)})
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
