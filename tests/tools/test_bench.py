"""The bench works, whatever its numbers: its meters react to changes."""

import json
import os
import subprocess
import sys

import pytest
from bench.__main__ import make_tables
from bench.contestants import TRUE, Series, cut, read_cost, wait_asleep
from bench.programs import read_cpu
from conftest import TESTS, until
from measured import PAGE, fill_page

pytestmark = pytest.mark.full

AT_ENGINES = {f"engines: {what}" for what in ("launch", "CPU", "acquire", "renew", "release")}
TITLES = {
    *("crowd: refused", "crowd: a turn", "crowd: lost holders"),
    *("launch", "options", "busy", "latency", "list", "python"),
    *("queue: handoff", "queue: handoff, CPU", "queue: handoff, wake-ups", "queue: waiting, CPU"),
    *("memory: RSS", "memory: PSS", "memory: USS"),
}


@pytest.fixture(scope="module")
def results(solo_script, tmp_path_factory):
    """The results of a small bench."""
    for library in ("filelock", "fasteners"):
        pytest.importorskip(library)
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    words = [sys.executable, "-m", "bench", "--smoke", "--launcher", solo_script, "--into", file]
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": f"{TESTS}/tools:{TESTS}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.mark.tool("flock")
def test_smoke_run_has_every_measure_with_ordered_quartiles(results):
    assert {"date", "kernel", "python", "cpu", "cores", "load"} <= results["machine"].keys()
    assert results["measures"].keys() - AT_ENGINES == TITLES
    for measure in results["measures"].values():
        assert measure.keys() == {"unit", "turns", "rows"} and measure["turns"] == 3
        for row in measure["rows"].values():
            assert row.keys() == {"turns", "quartiles", "ratios"} and row["quartiles"] == sorted(
                row["quartiles"]
            )
            assert row["ratios"].keys() <= measure["rows"].keys()
    rows = [item for measure in results["measures"].values() for item in measure["rows"].items()]
    assert sum(len(found["ratios"]) for row, found in rows if row.startswith("solo")) > 25


@pytest.mark.tool("flock")
def test_every_table_has_a_place_in_the_evidence(results):
    tables = {name: table for name, table in make_tables(results).items() if name != "bench: crowd"}

    page = fill_page(PAGE.read_text(), tables)
    assert all(text in page for text in tables.values())
    assert "| solo, after an orphan | " in page
    assert tables["bench: memory"].startswith("|  | RSS, MB | PSS, MB | USS, MB |")


def test_slow_turn_does_not_change_a_ratio():
    series = Series("ms", lambda row: ["floor"])
    for slower in (1, 1, 5, 1, 9, 2, 2):
        series.add({"floor": 10 * slower, "solo": 12 * slower})

    row = series.summarize()["rows"]["solo"]
    assert row == {"turns": 7, "quartiles": [12, 24, 42], "ratios": {"floor": [1.2, 1.2, 1.2]}}
    assert cut([3, 1]) == [1, 2, 3]


def test_sleeping_process_costs_nothing_and_a_wake_up_counts():
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    try:
        [before] = wait_asleep([process.pid])
        assert [before] == wait_asleep([process.pid])

        process.stdin.write(b"\n")
        until(lambda: read_cost(process.pid) > before)

        [after] = wait_asleep([process.pid])
        assert after[1] > before[1] and after[2] == before[2] + 1
    finally:
        process.communicate()


def test_cpu_of_a_run_includes_its_dead_children():
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done"

    assert read_cpu(["sh", "-c", f"({loop}); exit 0"]) > 2 * read_cpu([TRUE])
