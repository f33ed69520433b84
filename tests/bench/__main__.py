"""`make bench`: measure the cost of solo beside a floor and its peers, in turn within one run.

`make bench ARGS='launch queue --rounds 30'` takes only these measures. Results and plots go to build/bench; --record writes them to
docs/ and rewrites the tables of docs/evidence.md. All measures take less than five minutes on an idle machine with two cores. Prints
the targets beside the recorded values. Exits with 1 if a ratio exceeds the recorded one by more than the noise.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.contestants import ROOT, Bench
from bench.engines import measure_crowd, measure_engines
from bench.launch import measure_busy, measure_descriptors, measure_launch, measure_options
from bench.library import measure_python, measure_threads
from bench.machine import describe_machine
from bench.memory import measure_memory
from bench.queue import measure_handoff, measure_latency, measure_queue
from bench.report import FEWEST, find_worse, print_rows, print_targets
from bench.tables import fill_page
from bench.views import measure_list, measure_views

RECORDED = ROOT / "docs"
MEASURES = {  # the function and its share of --rounds
    "launch": (measure_launch, 1),
    "options": (measure_options, 0.5),
    "descriptors": (measure_descriptors, 0.5),
    "busy": (measure_busy, 0.5),
    "handoff": (measure_handoff, 0.1),
    "latency": (measure_latency, 0.2),
    "queue": (measure_queue, 0.03),
    "list": (measure_list, 0.1),
    "memory": (measure_memory, 0.05),
    "python": (measure_python, 1),
    "threads": (measure_threads, 0.1),
    "engines": (measure_engines, 0.2),
    "crowd": (measure_crowd, 0.01),
    "views": (measure_views, 0.05),
}


def parse_words():
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"one of {', '.join(MEASURES)} (default: all)")
    parser.add_argument(
        "--rounds", type=int, default=100, help="turns of the quick measures; slower ones take a share of it (100)"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="three turns of small sizes, to check that every measure works"
    )
    parser.add_argument("--launcher", help="measure this solo instead of installing one")
    parser.add_argument("--results", type=Path, help="read the results of an earlier run from this file")
    parser.add_argument(
        "--against", type=Path, default=RECORDED / "bench.json", help="results to compare with (docs/bench.json)"
    )
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build/bench", help="the directory for results and plots (build/bench)"
    )
    parser.add_argument(
        "--record", action="store_true", help="write docs/bench.json and docs/evidence.md; needs all measures"
    )
    asked = parser.parse_args()
    if unknown := set(asked.measures) - MEASURES.keys():
        parser.error(f"no such measure: {', '.join(unknown)}")
    if asked.record and (asked.measures or asked.smoke):
        parser.error("--record needs all measures and no --smoke")
    return asked


def measure(asked) -> dict:
    machine, measures, start = describe_machine(), {}, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), asked.launcher, asked.smoke)
        for name in asked.measures or MEASURES:
            function, part = MEASURES[name]
            rounds = FEWEST if asked.smoke else max(1, round(asked.rounds * part))
            print(f"{name}: {rounds} turns", end="", file=sys.stderr, flush=True)
            begin = time.monotonic()
            measures |= {title: series.summarize() for title, series in function(bench, rounds).items()}
            print(f", {time.monotonic() - begin:.1f} s", file=sys.stderr)
    print(f"all, with installations: {time.monotonic() - start:.1f} s", file=sys.stderr)
    return {"machine": machine, "measures": measures}


def main() -> int:
    os.environ.pop("PYTHONPATH", None)
    for variable in [name for name in os.environ if name.startswith("SOLO_")]:
        del os.environ[variable]
    asked = parse_words()
    results = json.loads(asked.results.read_text()) if asked.results else measure(asked)
    recorded = json.loads(asked.against.read_text())["measures"] if asked.against.exists() else {}
    into = RECORDED if asked.record else asked.into
    into.mkdir(parents=True, exist_ok=True)
    (into / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    print_rows(results)
    print_targets(results["measures"], recorded)
    from bench.plots import draw

    draw(results["measures"], into)
    if asked.record:
        page = ROOT / "docs/evidence.md"
        page.write_text(fill_page(page.read_text(), results))
    worse = find_worse(results["measures"], recorded)
    print("\n".join(worse) or "nothing is worse than recorded by more than the noise")
    return 1 if worse and not asked.record else 0


if __name__ == "__main__":
    sys.exit(main())
