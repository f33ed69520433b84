"""`make simulation`: search scenes, print a table, and for a broken promise the steps in words and
the line that replays them.
"""

import argparse
import os
import re
import sys

from simulation import modules, mutants, search

MODULES = """
    main errors kernel modes identity record directories gate tickets obstacles queue acquire start supervise launcher journal plan command
    journal_files process.watch process.owners process.holder process.recipient process.tree process.limits process.pair process.upper contention.handoff
    contention.policies contention.evict contention.deadlock contention.judge contention.progress text.describe text.remedies text.users commands.hold
    commands.dispatch commands.cli commands.clean commands.release commands.lookup history.reader text.hints
""".split()
RECORD = modules.ROOT / "docs/evidence.md"
HEAD = [
    "| scene | faults, at most | searched | steps | CPU s | broken |",
    "|---|---|---|---|---|---|",
]


def format_row(found):
    faults = (
        ", ".join(
            [f"{count} {kind}{'s' * (count > 1)}" for kind, count in found.scene.faults.items()]
        )
        or "none"
    )
    amount = f"{found.states:,} states" if found.states else f"{found.runs:,} runs"
    return f"| {found.scene.name} | {faults} | {'all: ' * found.is_complete}{amount} | {found.steps:,} | {found.seconds:.1f} | {int(found.violation is not None)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", action="append", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=60, help="of CPU, for all scenes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, help="random runs of each scene, at most")
    parser.add_argument(
        "--exhaustive", action="store_true", help="take every path instead of random ones"
    )
    parser.add_argument("--unreduced", action="store_true", help="without partial-order reduction")
    parser.add_argument(
        "--outcomes", action="store_true", help="print what became of the contenders"
    )
    parser.add_argument("--mutant", help="put this fault of mutants.py into solo")
    parser.add_argument("--programs", action="store_true", help="print what the short programs see")
    parser.add_argument(
        "--record", action="store_true", help="write the table into docs/evidence.md"
    )
    options = parser.parse_args()
    faults = [fault for fault in mutants.FOUND + mutants.HARMLESS if fault.name == options.mutant]
    modules.load(MODULES, faults)
    from simulation import programs, scenes

    if options.programs:
        print(repr(programs.run_simulated()))
        return
    known = scenes.make_scenes()
    chosen = [known[name] for name in options.scene or known]
    rows, failed = list(HEAD), False
    print("\n".join(rows))
    for scene in chosen:
        scene.is_reducible = scene.is_reducible and not options.unreduced
        found = (
            search.Exhaustive(scene)
            if options.exhaustive
            else search.Random(scene, options.seed, options.runs)
        )
        rows.append(format_row(found.run(options.seconds / len(chosen))))
        print(rows[-1], flush=True)
        if options.outcomes:
            print(sorted(found.outcomes))
        if found.violation:
            print("\n".join(found.trace))
            print(f"{scene.name}: {found.violation.strip()}")
            how = "--exhaustive" if options.exhaustive else f"--seed {found.seed} --runs 1"
            print(f"replay: make simulation ARGS='--scene {scene.name} {how}'")
            failed = True
    if options.record and not failed:
        record(rows, "exhaustive" if options.exhaustive else "random")
    sys.exit(failed)


def record(rows, kind):
    """Write the table into docs/evidence.md."""
    from measured import describe, format_measured

    text = f"`make simulation` ({format_measured(describe())})\n\n" + "\n".join(rows)
    block = rf"(<!-- simulation: {kind} -->\n).*?(<!-- end -->)"
    page, count = re.subn(
        block, lambda place: place[1] + text + "\n" + place[2], RECORD.read_text(), flags=re.S
    )
    assert count == 1, "docs/evidence.md has no marker for it"
    RECORD.write_text(page)


if __name__ == "__main__":
    if (
        sys.flags.hash_randomization
    ):  # the order of sets would not be that of the same seed next time
        words = [sys.executable, "-m", "simulation", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, "PYTHONHASHSEED": "0"})
    main()
