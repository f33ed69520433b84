"""`make coverage`: print which lines and branches of the hot path the tests run in real processes, and unexplained misses.

The tests run in a copy of the tree that traces every process which imports solo (coverage_tracer.py). coverage.py decides which
lines can run at all. ARGS: --record also writes build/records and the sentence in docs/evidence.md; other words go to pytest, and
tests/... replaces TESTS.
"""

import ast
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from coverage import Coverage, CoverageData
from coverage_explained import EXPLAINED, LEFT_OUT, TESTS
from coverage_tracer import LINES, SIZE
from measured import describe, format_measured, write_record

ROOT = Path(__file__).resolve().parent.parent
NOT_SOURCE = (".git", ".venv*", "build", "dist", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache")


class Missed:
    """A line that no process ran or, with `target`, a branch from it that none took. `target` is the text of a line, or exit."""

    def __init__(self, module, function, text, line, target=None):
        self.module = module
        self.line = line
        self.key = f"{module}.{function}" if function else module, text if target is None else f"{text}  ->  {target}"

    def __str__(self):
        return f"{self.module}.py:{self.line}: {self.key[1]}"


def make_copy(place: Path, modules: list) -> tuple:
    """Copy the source with tracing added; return (the tree, the file of arcs)."""
    tree, arcs = place / "tree", place / "arcs"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    with open(arcs, "wb") as file:
        file.truncate(len(modules) * SIZE * SIZE)
    arcs.chmod(0o666)
    tracer = (ROOT / "tests/coverage_tracer.py").read_text()
    with open(tree / "solo/__init__.py", "a") as file:
        file.write(
            f"\n(lambda scope: (exec({tracer!r}, scope), scope['start_tracing']({str(arcs)!r}, {modules!r})))({{}})\n"
        )
    script = tree / "solo/__main__.py"  # the tests copy its text into a script
    text = script.read_text()
    script.write_text(f"#!python\nimport solo\nexec(compile({text!r}, {str(script)!r}, 'exec'))\n")
    return tree, arcs


def read_arcs(arcs: Path, modules: list) -> dict:
    """Return {module: {(from, to)}}, in the format of coverage.py."""
    found = {module: set() for module in modules}
    with open(arcs, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as marks:
        at = marks.find(b"\1")
        while at >= 0:
            module, arc = divmod(at, SIZE * SIZE)
            found[modules[module]].add(tuple(end if end < LINES else LINES - end for end in divmod(arc, SIZE)))
            at = marks.find(b"\1", at + 1)
    return found


def analyse(arcs: dict, folder: Path, place: Path) -> dict:
    """Return {module: its part of coverage.py's JSON report}."""
    data = CoverageData(str(place / "data"))
    files = {str(folder / f"{module}.py"): found for module, found in arcs.items()}
    data.add_arcs(files)
    data.touch_files(files)  # include modules of which nothing ran
    data.write()
    coverage = Coverage(data_file=str(place / "data"), branch=True, config_file=False, messages=False)
    coverage.load()
    coverage.json_report(outfile=str(place / "json"))
    found = json.loads((place / "json").read_text())["files"]
    return {Path(name).stem: report for name, report in found.items()}


def find_missed(module: str, source: str, report: dict) -> list:
    """Return the Missed lines and branches of one module."""
    lines = source.splitlines()
    functions = {}
    for node in ast.walk(ast.parse(source)):  # outer functions first, so that inner ones replace them
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            functions.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.name))

    def make(line, target=None):
        to = None if target is None else "exit" if target < 0 else lines[target - 1].strip()
        return Missed(module, functions.get(line), lines[line - 1].strip(), line, to)

    return [make(line) for line in report["missing_lines"]] + [
        make(line, target) for line, target in report["missing_branches"] if line not in report["missing_lines"]
    ]


def make_table(reports: dict) -> str:
    """Return the table of all modules in Markdown."""
    rows = ["| module | lines | not run | branches | not taken |", "|---|--:|--:|--:|--:|"]
    total = [0, 0, 0, 0]
    for module, report in reports.items():
        summary = report["summary"]
        counts = [summary[key] for key in ("num_statements", "missing_lines", "num_branches", "missing_branches")]
        total = [sum(pair) for pair in zip(total, counts)]
        rows.append(f"| `{module}.py` | {' | '.join(map(str, counts))} |")
    return "\n".join([*rows, f"| all | {' | '.join(map(str, total))} |"]) + "\n"


def compare(missed: list, explained: dict) -> tuple:
    """Return (the missed and not explained, the explained and not missed)."""
    keys = {one.key for one in missed}
    return [one for one in missed if one.key not in explained], [key for key in explained if key not in keys]


def record(reports: dict, missed: list):
    """Write the counts of each module and the reason of each miss to build/records, and the sentence in docs/evidence.md."""
    run = describe()
    modules = {module: report["summary"] for module, report in reports.items()}
    lines, branches = (sum(counts[key] for counts in modules.values()) for key in ("num_statements", "num_branches"))
    rest = f"All but {len(missed)}" if missed else "All"
    version = f"coverage.py {metadata.version('coverage')}"
    text = f"{rest} of {lines:,} lines and {branches} branches together ({format_measured(run)}, {version})."
    reasons = {": ".join(key): reason for key, reason in EXPLAINED.items()}
    write_record("coverage", {**run, "modules": modules, "not run": reasons}, {"coverage": text})


def main():
    from test_layers import HOT

    words = [word for word in sys.argv[1:] if word != "--record"]
    modules = sorted(HOT)
    with tempfile.TemporaryDirectory(prefix="solo-coverage-") as folder:
        place = Path(folder)
        place.chmod(0o755)  # launchers of other users write there too
        tree, arcs = make_copy(place, modules)
        workers = ["-n", "2", "--dist", "loadfile"] if os.geteuid() == 0 else []
        left_out = [word for test in LEFT_OUT for word in ("--deselect", f"tests/{test}")]
        tests = [] if any(word.startswith("tests/") for word in words) else TESTS
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *left_out, *tests, *words]
        failed = subprocess.run(pytest, cwd=tree, stdin=subprocess.DEVNULL).returncode
        reports = analyse(read_arcs(arcs, modules), ROOT / "solo", place)
    missed = [
        one
        for module, report in reports.items()
        for one in find_missed(module, (ROOT / f"solo/{module}.py").read_text(), report)
    ]
    table = make_table(reports)
    unexplained, outdated = compare(missed, EXPLAINED)
    print(table)
    for one in unexplained:
        print(f"missed: {one}")
    for where, what in outdated if not words else ():
        print(f"explained, but run or gone: {where}: {what}")
    if failed:
        print("tests failed")
    if "--record" in sys.argv and not (failed or unexplained or outdated or words):
        record(reports, missed)
    sys.exit(1 if failed or unexplained or outdated and not words else 0)


if __name__ == "__main__":
    main()
