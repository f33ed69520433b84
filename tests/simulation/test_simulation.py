"""solo's real files in a simulated kernel: tests/simulation/. The searches run in a process of
their own, as they replace posix.
"""

import ast
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from simulation import leases, mutants, programs
from simulation.started import ENVIRONMENT, simulate

pytestmark = pytest.mark.long

RUNS = 30  # of each scene
# Scenes that are searched completely.
COMPLETE = [
    ["locks-skip"],
    ["tree-probe", "stop-probe"],
    *[
        pytest.param([scene], marks=pytest.mark.rare)
        for scene in (
            "tree-probe-kill",
            "tree-probe-group",
            "tree-no-orphan-probe",
            "hold-probe",
            "hold-container",
        )
    ],
    pytest.param(
        ["locks", "two-plain", "two", "locks-kill", "busy", "two-kill"], marks=pytest.mark.rare
    ),
]


def read_broken(output):
    return re.findall(r"^three: .*", output, re.M)


@pytest.fixture(scope="module")
def simulated():
    return ast.literal_eval(simulate("--programs")[1])


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.__name__)
def test_program_sees_the_same_on_both_kernels(program, simulated, tmp_path):
    assert programs.run_real(program, tmp_path) == repr(simulated[program.__name__])


@pytest.mark.parametrize(
    "part",
    [0, *(pytest.param(part, marks=[pytest.mark.full, pytest.mark.rare]) for part in (1, 2))],
)
def test_random_schedules_keep_the_promises(part):
    status, output = simulate("--seed", 1 + part * RUNS // 3, "--runs", RUNS // 3)

    assert status == 0, output


# one seed: it finds what test_random_schedules_keep_the_promises finds, in more schedules
@pytest.mark.rare
@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_random_schedules_keep_the_promises():
    status, output = simulate("--seconds", 60, "--seed", 1000)

    assert status == 0, output


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenes", COMPLETE, ids=" ".join)
def test_every_schedule_keeps_the_promises(scenes):
    words = [word for scene in scenes for word in ("--scene", scene)]
    status, output = simulate("--exhaustive", "--seconds", 2400, *words)

    assert status == 0 and output.count("all: ") == len(scenes), output


@pytest.mark.rare  # of the search, which changes seldom
@pytest.mark.full
def test_reduction_keeps_the_outcomes():
    """Print what becomes of the contenders, with and without the reduction."""
    words = "--exhaustive", "--seconds", 900, "--outcomes", "--scene", "locks-bare"
    outputs = [simulate(*words)[1], simulate(*words, "--unreduced")[1]]

    found = [re.findall(r"^(\[\(.*)|all: ", output, re.M) for output in outputs]
    assert found[0] == found[1] and len(found[0]) == 2, outputs


def test_failure_prints_steps_and_what_replays_it():
    words = "--mutant", "gate not locked", "--scene", "three"
    status, output = simulate(*words)
    seed = re.search(
        r"^replay: make simulation ARGS='--scene three --seed (\d+) --runs 1'$", output, re.M
    )[1]

    assert status == 1 and re.search(r"^pid \d+ \(solo\) rename\('\.new\.", output, re.M)
    assert (
        read_broken(simulate(*words, "--seed", seed, "--runs", 1)[1]) == read_broken(output) != []
    )


def test_each_fault_has_its_code():
    faults = (
        *mutants.FOUND,
        *mutants.HARMLESS,
        *leases.FOUND,
        *leases.CROWDED.values(),
        *leases.RUDE,
    )

    changed = [fault.put_into((ROOT / "solo" / fault.file).read_text()) for fault in faults]
    assert len(changed) > 50


@pytest.mark.parametrize(
    "code, error",
    [
        (
            "load(['gate'], [Fault('', 'gate.py FileGate.load', 'nothing()', '', '')])",
            "FileGate.load has 0 times: nothing()",
        ),
        ("load(['kernel']); import posix; posix.mknod('x')", "Unknown: posix.mknod"),
    ],
)
def test_fault_without_its_code_and_unknown_call_are_errors(code, error):
    command = [
        sys.executable,
        "-c",
        f"from simulation.modules import load; from simulation.faults import Fault; {code}",
    ]

    assert error in subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True).stderr
