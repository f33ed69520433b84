"""`make bench`: measure the cost of solo beside a floor and its peers, in turn within one run.

`make bench ARGS='launch queue --rounds 30'` takes only these measures. Results go to
build/bench.json; --record writes them to build/records and renews the tables of docs/evidence.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.contestants import ROOT, Bench, describe_machine
from bench.crowd import measure_crowd
from bench.launch import measure_busy, measure_launch, measure_list, measure_memory, measure_options
from bench.programs import measure_engines, measure_python
from bench.queue import measure_latency, measure_queue
from measured import format_measured, write_record

FEWEST = 3  # turns; fewer show no spread
MEASURES = {  # the function and its share of --rounds
    "launch": (measure_launch, 1),
    "options": (measure_options, 0.5),
    "busy": (measure_busy, 0.5),
    "latency": (measure_latency, 0.2),
    "queue": (measure_queue, 0.03),
    "list": (measure_list, 0.1),
    "memory": (measure_memory, 0.05),
    "python": (measure_python, 1),
    "engines": (measure_engines, 0.2),
    "crowd": (measure_crowd, 0.01),
}


def parse_words():
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "measures", nargs="*", help=f"one of {', '.join(MEASURES)} (default: all but crowd)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=100,
        help="turns of the quick measures; slower ones take a share",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="three turns of small sizes: does every measure work?"
    )
    parser.add_argument("--launcher", help="measure this solo instead of installing one")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build/bench.json", help="the file for the results"
    )
    parser.add_argument(
        "--record", action="store_true", help="record the results; needs all measures"
    )
    asked = parser.parse_args()
    if unknown := set(asked.measures) - MEASURES.keys():
        parser.error(f"no such measure: {', '.join(unknown)}")
    if asked.record and (asked.measures or asked.smoke):
        parser.error("--record needs the default measures and no --smoke")
    return asked


def measure(asked) -> dict:
    machine, measures = describe_machine(), {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), asked.launcher, asked.smoke)
        usual = [
            name for name in MEASURES if asked.smoke or name != "crowd"
        ]  # which takes seven minutes
        for name in asked.measures or usual:
            function, part = MEASURES[name]
            rounds = FEWEST if asked.smoke else max(1, round(asked.rounds * part))
            print(f"{name}: {rounds} turns", end="", file=sys.stderr, flush=True)
            begin = time.monotonic()
            measures |= {
                title: series.summarize() for title, series in function(bench, rounds).items()
            }
            print(f", {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return {"machine": machine, "measures": measures}


def main():
    os.environ.pop("PYTHONPATH", None)
    for variable in [name for name in os.environ if name.startswith("SOLO_")]:
        del os.environ[variable]
    asked = parse_words()
    results = measure(asked)
    asked.into.parent.mkdir(parents=True, exist_ok=True)
    asked.into.write_text(json.dumps(results, indent=1) + "\n")
    tables = make_tables(results)
    print("\n\n".join(tables.values()))
    if asked.record:
        write_record("bench", results, tables)


def make_tables(results: dict) -> dict:
    """Return {marker: table}. Measures whose titles begin with one word are the columns of one
    table.
    """
    machine, groups = results["machine"], {}
    for title, measure in results["measures"].items():
        group, _, column = title.partition(": ")
        heading = f"{column or group}, {measure['unit'].replace('us', 'µs')}".removesuffix(", ")
        groups.setdefault(group, {})[heading] = measure["rows"]
    where = f"{machine['cores']} cores of {machine['cpu']}, load {machine['load']} at the start"
    tables = {f"bench: {group}": make_table(columns) for group, columns in groups.items()}
    return {**tables, "bench: machine": f"({format_measured(machine)}, {where}.)"}


def make_table(columns: dict) -> str:
    rows = dict.fromkeys(row for cells in columns.values() for row in cells)
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    lines += [[row, *(show(cells.get(row)) for cells in columns.values())] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(found) -> str:
    """Return the median of a row, and its first ratio with the quartiles."""
    if found is None:
        return ""
    median = found["quartiles"][1]
    text = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
    for other, (first, ratio, last) in list(found["ratios"].items())[:1]:
        text += f" = {ratio:.2f} x {other}" + f" ({first:.2f} to {last:.2f})" * (first < last)
    return text


if __name__ == "__main__":
    main()
