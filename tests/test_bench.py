"""The bench works, whatever its numbers: its meters react to changes and every regression is reported."""

import json
import os
import subprocess
import sys

import pytest
from bench.contestants import TRUE, read_cost, wait_asleep
from bench.engines import read_cpu
from bench.launch import time_inheritor
from bench.quartiles import Series, cut
from bench.report import find_worse, list_ratios, list_targets, print_targets
from bench.tables import fill_page
from conftest import ROOT, TESTS, until

TITLES = {
    "launch",
    "options",
    "descriptors",
    "busy",
    "handoff in a queue of 40",
    "latency",
    "queue: handoff",
    "queue: handoff, CPU",
    "queue: handoff, wake-ups",
    "queue: waiting, CPU",
    "queue: joining",
    "queue: joining, CPU",
    "list",
    "memory: RSS",
    "memory: PSS",
    "memory: USS",
    "python",
    "python: 20 threads",
    "views",
}
AT_ENGINES = {"engines: launch", "engines: CPU", "engines: steps", "engines: crowd"}
SMOKE_TARGETS = {  # without installations, engines and large sizes
    "launch, / floor",
    "largest of four options, / floor",
    "--via socket, / floor",
    "first word after a handoff, / flock(1)",
    "queue of 40, / floor",
    "resident, a waiter, MB",
    "list, nothing held, / python -IS",
    "uncontended solo.Lock, / filelock",
    "handoff between 20 threads, / filelock",
    "1,000 inherited files, ms",
}
PLOTS = ["bench-launch.svg", "bench-queue.svg", "bench-list.svg"]


def run_bench(*words, **variables):
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **variables}
    return subprocess.run([sys.executable, "-m", "bench", *words], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def smoke(solo_script, tmp_path_factory):
    """Run a small bench; return the folder of its results and plots."""
    for library in ("matplotlib", "filelock", "fasteners"):
        pytest.importorskip(library)
    folder = tmp_path_factory.mktemp("bench")
    done = run_bench("--smoke", "--launcher", solo_script, "--into", folder, "--against", folder / "nothing")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def results(smoke):
    return json.loads((smoke / "bench.json").read_text())


@pytest.mark.tool("flock")
def test_smoke_run_has_every_measure_with_ordered_quartiles(results):
    assert {"date", "kernel", "python", "cpu", "cores", "load", "versions"} <= results["machine"].keys()
    assert results["measures"].keys() - AT_ENGINES == TITLES
    for measure in results["measures"].values():
        assert measure.keys() == {"unit", "turns", "rows"} and measure["turns"] == 3
        for row in measure["rows"].values():
            assert row.keys() == {"turns", "quartiles", "ratios"} and row["quartiles"] == sorted(row["quartiles"])
            assert row["ratios"].keys() <= measure["rows"].keys()
    assert sum(1 for _ in list_ratios(results["measures"])) > 30
    titles = {title for title, _, _ in list_targets(results["measures"])}
    assert titles - {"CPU at etcd, / etcdctl lock"} == SMOKE_TARGETS


@pytest.mark.tool("flock")
def test_plots_are_reproducible(results, tmp_path):
    """Even with equal rows and different hash seeds of Python."""
    for row in results["measures"]["launch"]["rows"].values():
        row["ratios"]["floor"] = [1, 1, 1]
    (tmp_path / "results").write_text(json.dumps(results))
    once, again = tmp_path / "once", tmp_path / "again"
    for seed, folder in enumerate((once, again)):
        run_bench(
            "--results",
            tmp_path / "results",
            "--against",
            tmp_path / "nothing",
            "--into",
            folder,
            PYTHONHASHSEED=str(seed),
        )

    for plot in PLOTS:
        assert (once / plot).read_bytes() == (again / plot).read_bytes()
        assert "<svg" in (once / plot).read_text()


@pytest.mark.tool("flock")
def test_regression_is_reported_and_fails_the_run(smoke, results, tmp_path):
    cuts = results["measures"]["memory: RSS"]["rows"]["solo"]["ratios"]["python -IS"]
    cuts[:] = [number / 2 for number in cuts]
    (tmp_path / "recorded").write_text(json.dumps(results))

    done = run_bench("--results", smoke / "bench.json", "--against", tmp_path / "recorded", "--into", tmp_path)

    assert (done.returncode, done.stdout.count("worse than recorded")) == (1, 1), done.stderr
    assert "worse than recorded: memory: RSS: solo:" in done.stdout


@pytest.mark.parametrize(
    "now, worse",
    [
        ([2.0, 2.2, 2.4], True),
        ([1.0, 1.2, 1.4], False),
        ([1.3, 1.39, 1.5], False),
        ([1.35, 1.41, 1.5], True),
        ([0.1, 1.5, 2], False),
        ([0.5, 0.6, 0.7], False),
    ],
)
def test_regression_exceeds_both_spreads(now, worse):
    assert bool(find_worse(make_ratio("solo", now), make_ratio("solo", [0.8, 1.0, 1.2]))) is worse


def test_tiny_differences_few_turns_and_peers_are_no_regression():
    assert find_worse(make_ratio("solo", [1.04] * 3), make_ratio("solo", [1.0] * 3)) == []
    assert find_worse(make_ratio("solo", [1.06] * 3), make_ratio("solo", [1.0] * 3))
    assert find_worse(make_ratio("solo", [1.06] * 3), make_ratio("solo", [1.0] * 3, turns=2)) == []
    assert find_worse(make_ratio("flock(1)", [9.0] * 3), make_ratio("flock(1)", [1.0] * 3)) == []


def test_row_of_one_turn_is_no_regression():
    once = make_ratio("solo", [9.0] * 3)
    once["launch"]["rows"]["solo"]["turns"] = 1

    assert find_worse(once, make_ratio("solo", [1.0] * 3)) == []


def make_ratio(row, cuts, turns=3):
    return {"launch": {"turns": turns, "rows": {row: {"quartiles": cuts, "ratios": {"floor": cuts}}}}}


def test_targets_are_printed_beside_recorded_values(capsys):
    print_targets(make_ratio("solo, make install", [2.44] * 3), make_ratio("solo, make install", [1.2] * 3))
    assert capsys.readouterr().out.split()[-11:] == "launch, / floor 2.44 1.2 1.22 missed by 1.22 (100 %)".split()

    print_targets(make_ratio("solo, make install", [1.2] * 3), {})
    assert capsys.readouterr().out.split()[-7:] == "launch, / floor 1.2 - 1.22 met".split()


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


def test_timed_launcher_inherits_the_files(tmp_path):
    count = "set -- /proc/self/fd/*; [ $#"

    assert time_inheritor(["sh", "-c", f"{count} -gt 50 ]"], tmp_path, 50) > 0
    assert time_inheritor(["sh", "-c", f"{count} -lt 50 ]"], tmp_path, 0) > 0


def test_evidence_matches_the_recorded_results():
    page = (ROOT / "docs/evidence.md").read_text()

    assert fill_page(page, json.loads((ROOT / "docs/bench.json").read_text())) == page
    for plot in PLOTS:
        assert f"({plot})" in page and (ROOT / "docs" / plot).exists()
