"""Run searches: `make simulation`."""

import argparse
import os
import sys

MODULES = """
    errors kernel modes identity record directories gate tickets obstacles queue acquire start supervise launcher journal plan command
    journal_files process.watch process.owners process.holder process.inotify process.recipient process.tree contention.handoff
    contention.policies contention.evict contention.deadlock contention.progress text.describe text.remedies text.users commands.hold
    commands.prune commands.release commands.lookup history.reader text.hints
""".split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scene", action="append")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--programs", action="store_true")
    options = parser.parse_args()
    from simulation import modules, search  # before time is replaced

    modules.load(MODULES)
    from simulation import scenes

    if options.programs:
        from simulation import programs

        for name, seen in programs.run_all().items():
            print(name, seen)
        return
    found = scenes.make_scenes()
    for name in options.scene or found:
        scene = found[name]
        if options.exhaustive:
            result = search.explore(scene, options.seconds, not options.full)
        else:
            result = search.walk(scene, options.seconds, options.seed)
        print(
            f"{name}: {'COMPLETE' if result.is_complete else ''} {result.states} states, {result.runs} runs, {result.ends} ends, {result.steps} steps, {result.seconds:.1f} s, {result.violation or 'no violation'}"
        )
        if result.violation:
            print("\n".join(result.trace), "\nseed", result.seed)
        print(sorted(result.outcomes)[:20])


if __name__ == "__main__":
    if sys.flags.hash_randomization:  # the order of sets would not be that of the same seed next time
        os.execve(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    main()
