"""solo's real files in a simulated kernel: tests/simulation/. The searches run in a process of their own, as they replace posix."""

import ast
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from simulation import leases, mutants, programs

SEEDS = [  # scene and seed of a run that once broke a promise
    ("namespaces", 42)  # a command killed before its holder was forked was refused, for the reason None
]
COMPLETE = ["locks", "locks-skip", "locks-kill", "two-plain"]  # scenes that are searched completely


def simulate(*words, module="simulation"):
    """Return the status and the output of a search."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", module, *words]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def read_outcomes(output):
    return [line for line in output.splitlines() if line.startswith("[(")]


@pytest.fixture(scope="module")
def simulated():
    return ast.literal_eval(simulate("--programs")[1])


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.__name__)
def test_program_sees_the_same_on_both_kernels(program, simulated, tmp_path):
    assert programs.run_real(program, tmp_path) == repr(simulated[program.__name__])


def test_random_schedules_keep_the_promises():
    status, output = simulate("--runs", "12")

    assert status == 0, output


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_random_schedules_keep_the_promises():
    status, output = simulate("--seconds", "120", "--seed", "1000")

    assert status == 0, output


@pytest.mark.parametrize("scene, seed", SEEDS)
def test_seed_that_failed_passes(scene, seed):
    status, output = simulate("--scene", scene, "--seed", str(seed), "--runs", "1")

    assert status == 0, output


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_schedule_keeps_the_promises():
    words = [word for scene in COMPLETE for word in ("--scene", scene)]
    status, output = simulate("--exhaustive", "--seconds", "900", *words)

    assert status == 0 and output.count("all: ") == len(COMPLETE), output


@pytest.mark.full
def test_reduction_keeps_the_outcomes():
    searches = [
        simulate("--exhaustive", "--seconds", "900", "--outcomes", "--scene", "locks-skip", *words)
        for words in ((), ("--unreduced",))
    ]

    assert [status for status, _ in searches] == [0, 0] and "all: " in searches[1][1], searches
    assert read_outcomes(searches[0][1]) == read_outcomes(searches[1][1]) != []


def test_failure_prints_steps_and_what_replays_it():
    status, output = simulate("--mutant", "gate not locked", "--scene", "three")
    seed = re.search(r"^replay: make simulation SEED=(\d+) ARGS='--scene three --runs 1'$", output, re.M)[1]

    assert status == 1 and re.search(r"^pid \d+ \(solo\) rename\('\.new\.", output, re.M)
    again = simulate("--mutant", "gate not locked", "--scene", "three", "--seed", seed, "--runs", "1")
    assert re.findall(r"^three: .*", again[1], re.M) == re.findall(r"^three: .*", output, re.M)


def test_path_of_a_complete_search_is_replayed():
    words = "--mutant", "another process recorded", "--scene", "two-plain"
    status, output = simulate("--exhaustive", *words)
    path = re.search(r"^replay: make simulation ARGS='--scene two-plain --path ([^']+)'$", output, re.M)[1]

    assert status == 1
    assert re.findall(r"^two-plain: .*", simulate(*words, "--path", path)[1], re.M) == re.findall(
        r"^two-plain: .*", output, re.M
    )


def test_fault_without_its_text_is_an_error():
    code = "from simulation.modules import load; load(['gate'], {'gate.py': [('no such text', '')]})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert "gate.py has 0 times: no such text" in result.stderr


def test_unknown_call_is_an_error():
    code = "from simulation.modules import load; load(['kernel']); import posix; posix.mknod('x')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert "Unknown: posix.mknod" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("row", mutants.FOUND, ids=lambda row: row[0])
def test_fault_in_the_hot_path_is_found(row):
    status, output = simulate("--mutant", row[0], "--scene", row[4], "--seconds", "120")

    assert status == 1 and "replay: " in output, output


@pytest.mark.full
@pytest.mark.parametrize("row", mutants.HARMLESS, ids=lambda row: row[0])
def test_harmless_fault_breaks_no_promise(row):
    status, output = simulate("--mutant", row[0], "--scene", row[4], "--seconds", "10")

    assert status == 0, output


def test_leases_keep_the_promises_in_virtual_time():
    status, output = simulate("--hours", "0.5", module="simulation.leases")

    assert status == 0, output


@pytest.mark.full
@pytest.mark.parametrize("row", leases.FOUND, ids=lambda row: row[0])
def test_fault_in_the_lease_is_found(row):
    status, output = simulate("--mutant", row[0], "--hours", "100", module="simulation.leases")

    assert status == 1 and "replay: " in output, output


@pytest.mark.full
@pytest.mark.parametrize("words, status", [(("100", "0.2"), 0), (("50", "0.2", "rude"), 1)], ids=["polite", "rude"])
def test_crowd_costs_the_holder_its_lease_only_if_nobody_yields(words, status):
    ended, output = simulate(*words, module="simulation.crowd")

    assert (ended, output.count("PUT/s refused")) == (status, 1), output
