"""`make simulation`: search scenes, print a table, and for a broken promise the steps in words and the line that replays them."""

import argparse
import os
import re
import sys

from simulation import modules, mutants, programs, search

MODULES = """
    errors kernel modes identity record directories gate tickets obstacles queue acquire start supervise launcher journal plan command
    journal_files process.watch process.owners process.holder process.inotify process.recipient process.tree contention.handoff
    contention.policies contention.evict contention.deadlock contention.progress text.describe text.remedies text.users commands.hold
    commands.prune commands.release commands.lookup history.reader text.hints
""".split()
RECORD = modules.ROOT / "docs/evidence.md"
LETTERS = {"r": "run", "k": "kill", "s": "stop", "c": "continue", "f": "fail", "t": "time"}


def format_path(path):
    """Return choices as text, r2.k3.f2:5.t: what runs, is killed, is stopped, goes on, fails with an errno; time passes."""
    return ".".join([kind[0] + ":".join(map(str, rest)) for kind, *rest in path])


def parse_path(text):
    return [(LETTERS[part[0]], *map(int, filter(None, part[1:].split(":")))) for part in text.split(".")]


def replay(scene, path):
    """Take the steps of a path; return a Result."""
    kernel, result = search.begin(scene), search.Result()
    kernel.lifetime = 0
    for choice in path:
        kernel.step(choice)
    if kernel.violation is None:
        search.finish(scene, kernel, result)
    if kernel.violation:
        search.report(result, kernel, path)
    kernel.close_all()
    return result


def search_scene(scene, options, seconds):
    if options.path:
        return replay(scene, parse_path(options.path))
    if options.exhaustive:
        return search.explore(scene, seconds, not options.unreduced)
    return search.walk(scene, seconds, options.seed, options.runs)


def tell(scene, result):
    """Print how a promise was broken, and what replays it."""
    print("\n".join(result.trace))
    print(f"{scene.name}: {result.violation.strip()}")
    how = f"--path {format_path(result.path)}" if result.seed is None else "--runs 1"
    print(
        f"replay: make simulation{f' SEED={result.seed}' if result.seed is not None else ''} ARGS='--scene {scene.name} {how}'"
    )


def format_row(scene, result):
    faults = ", ".join([f"{count} {kind}{'s' * (count > 1)}" for kind, count in scene.faults.items()]) or "none"
    amount = (
        f"all: {result.states:,} states"
        if result.is_complete
        else f"{result.states:,} states"
        if result.states
        else f"{result.runs:,} runs"
    )
    return f"| {scene.name} | {faults} | {amount} | {result.steps:,} | {result.seconds:.1f} | {1 if result.violation else 0} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", action="append", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=60, help="of CPU, for all scenes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, help="random runs of each scene, at most")
    parser.add_argument("--exhaustive", action="store_true", help="take every path instead of random ones")
    parser.add_argument("--unreduced", action="store_true", help="without partial-order reduction")
    parser.add_argument("--outcomes", action="store_true", help="print what became of the contenders")
    parser.add_argument("--path", help="replay these steps of a scene")
    parser.add_argument("--mutant", help="put this fault of mutants.py into solo")
    parser.add_argument("--programs", action="store_true", help="print what the short programs see")
    parser.add_argument("--record", action="store_true", help="write the table into docs/evidence.md")
    options = parser.parse_args()
    sys.exit(run(options))


def run(options):
    row = next((row for row in mutants.FOUND + mutants.HARMLESS if row[0] == options.mutant), None)
    modules.load(MODULES, {row[1]: [row[2:4]]} if row else {})
    if options.programs:
        print(repr(programs.run_all()))
        return 0
    from simulation import scenes

    found = scenes.make_scenes()
    chosen = [found[name] for name in options.scene or found]
    rows, failed = ["| scene | faults, at most | searched | steps | CPU s | broken |", "|---|---|---|---|---|---|"], 0
    print("\n".join(rows))
    for scene in chosen:
        result = search_scene(scene, options, options.seconds / len(chosen))
        rows.append(format_row(scene, result))
        print(rows[-1], flush=True)
        if options.outcomes:
            print(sorted(result.outcomes))
        if result.violation:
            tell(scene, result)
            failed += 1
    if options.record and not failed:
        record(rows, options)
    return 1 if failed else 0


def record(rows, options):
    """Write the table into docs/evidence.md."""
    from measured import describe, format_measured

    kind = "exhaustive" if options.exhaustive else "random"
    text = f"`make simulation` ({format_measured(describe())})\n\n" + "\n".join(rows)
    page, count = re.subn(
        rf"(<!-- simulation: {kind} -->\n).*?(<!-- end -->)",
        lambda place: place[1] + text + "\n" + place[2],
        RECORD.read_text(),
        flags=re.S,
    )
    assert count == 1, "docs/evidence.md has no marker for it"
    RECORD.write_text(page)


if __name__ == "__main__":
    if sys.flags.hash_randomization:  # the order of sets would not be that of the same seed next time
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    main()
