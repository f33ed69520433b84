"""The bench works, whatever its numbers: its meters react to changes and every regression is reported."""

import json
import os
import subprocess
import sys

import pytest
from bench.contestants import TRUE, Series, cut, read_cost, wait_asleep
from bench.engines import read_cpu
from bench.report import find_worse, list_ratios, make_tables
from conftest import TESTS, until
from measured import PAGE, fill_page

AT_ENGINES = {f"engines: {what}" for what in ("launch", "CPU", "acquire", "renew", "release")}
TITLES = {
    *("launch", "options", "busy", "latency", "list", "python", "python: 20 threads"),
    *("queue: handoff", "queue: handoff, CPU", "queue: handoff, wake-ups", "queue: waiting, CPU"),
    *("memory: RSS", "memory: PSS", "memory: USS"),
    *("crowd: refused", "crowd: next start", "crowd: lost holders"),
}


def run_bench(*words):
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run([sys.executable, "-m", "bench", *words], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def smoke(solo_script, tmp_path_factory):
    """Run a small bench; return the file of its results."""
    for library in ("filelock", "fasteners"):
        pytest.importorskip(library)
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    done = run_bench("--smoke", "--launcher", solo_script, "--into", file, "--against", file)
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def results(smoke):
    return json.loads(smoke.read_text())


@pytest.mark.tool("flock")
def test_smoke_run_has_every_measure_with_ordered_quartiles(results):
    assert {"date", "kernel", "python", "cpu", "cores", "load"} <= results["machine"].keys()
    assert results["measures"].keys() - AT_ENGINES == TITLES
    for measure in results["measures"].values():
        assert measure.keys() == {"unit", "turns", "rows"} and measure["turns"] == 3
        for row in measure["rows"].values():
            assert row.keys() == {"turns", "quartiles", "ratios"} and row["quartiles"] == sorted(row["quartiles"])
            assert row["ratios"].keys() <= measure["rows"].keys()
    assert sum(1 for _ in list_ratios(results["measures"])) > 25


@pytest.mark.tool("flock")
def test_every_table_has_a_place_in_the_evidence(results):
    tables = make_tables(results)

    page = fill_page(PAGE.read_text(), tables)
    assert all(text in page for text in tables.values())
    assert "| solo, after an orphan | " in page and tables["bench: memory"].startswith(
        "|  | RSS, MB | PSS, MB | USS, MB |"
    )


@pytest.mark.tool("flock")
def test_regression_is_reported_and_fails_the_run(smoke, results, tmp_path):
    cuts = results["measures"]["memory: RSS"]["rows"]["solo"]["ratios"]["python -IS"]
    cuts[:] = [number / 2 for number in cuts]
    (tmp_path / "recorded").write_text(json.dumps(results))

    done = run_bench("--results", smoke, "--against", tmp_path / "recorded", "--into", tmp_path / "now")

    assert (done.returncode, done.stdout.count("worse than recorded")) == (1, 1), done.stderr
    assert "worse than recorded: memory: RSS: solo:" in done.stdout


@pytest.mark.parametrize(
    "now, worse",
    [
        ([2.0, 2.2, 2.4], True),
        ([1.3, 1.39, 1.5], False),
        ([1.35, 1.41, 1.5], True),
        ([0.1, 1.5, 2], False),
        ([0.5, 0.6, 0.7], False),
    ],
)
def test_regression_exceeds_both_spreads(now, worse):
    assert bool(find_worse(make_ratio("solo", now), make_ratio("solo", [0.8, 1.0, 1.2]))) is worse


def test_tiny_differences_few_turns_and_peers_are_no_regression():
    once = make_ratio("solo", [9.0] * 3)
    once["launch"]["rows"]["solo"]["turns"] = 1
    recorded = make_ratio("solo", [1.0] * 3)

    assert find_worse(make_ratio("solo", [1.06] * 3), recorded)
    assert find_worse(make_ratio("solo", [1.04] * 3), recorded) == []
    assert find_worse(make_ratio("solo", [1.06] * 3), make_ratio("solo", [1.0] * 3, turns=2)) == []
    assert find_worse(make_ratio("flock(1)", [9.0] * 3), make_ratio("flock(1)", [1.0] * 3)) == []
    assert find_worse(once, recorded) == []


def make_ratio(row, cuts, turns=3):
    return {"launch": {"turns": turns, "rows": {row: {"quartiles": cuts, "ratios": {"floor": cuts}}}}}


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
