"""Leases and crowds at engines, in virtual time."""

import pytest

from simulation import leases
from simulation.started import simulate

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "engine, hours", [pytest.param("s3", 2, marks=pytest.mark.full), ("etcd", 1)]
)
def test_leases_keep_the_promises_in_virtual_time(engine, hours):
    status, output = simulate("--engine", engine, "--hours", hours, module="simulation.leases")

    assert status == 0, output


# Where that takes long to show: at the other engine most show sooner.
SLOW = {
    "etcd": ["renewal after its answer", "queue of a join read again"],
    "s3": [
        "renewal after its answer",
        "timer stays when not renewed",
        "lease confirmed by nothing",
        "clocks trusted",
        "life without its margins",
    ],
}
FAULTS = [(fault.name, engine) for fault in leases.FOUND for engine in fault.scene.split()]


@pytest.mark.full
@pytest.mark.parametrize(
    "name, engine",
    [
        pytest.param(name, engine, marks=[pytest.mark.rare] * (name in SLOW[engine]))
        for name, engine in FAULTS
    ],
)
def test_fault_in_the_lease_is_found(name, engine):
    words = "--engine", engine, "--mutant", name, "--hours", 100
    status, output = simulate(*words, module="simulation.leases")

    assert status == 1 and "replay: " in output, output


@pytest.mark.rare
@pytest.mark.full
@pytest.mark.parametrize(
    "words, status", [(["60"], 0), (["50", "--rude", "--seed", "3"], 1)], ids=["polite", "rude"]
)
def test_crowd_costs_the_holder_its_lease_only_if_nobody_yields(words, status):
    ended, output = gather(0.2, *words)

    assert (ended, "not renewed" in output) == (status, bool(status)), output


@pytest.mark.full
@pytest.mark.parametrize(
    "waiters",
    [pytest.param(count, marks=[pytest.mark.rare] * (count > 10)) for count in leases.CROWDED],
)
def test_name_is_idle_before_a_crowd_only_with_a_fault(waiters):
    fault = leases.CROWDED[waiters].name
    (status, output), (found, slow) = (
        gather(0.02, waiters),
        gather(0.02, waiters, "--mutant", fault),
    )

    assert (status, found) == (0, 1), output + slow


def gather(latency, *words):
    """Return (the exit status, the line) of a crowd in virtual time."""
    status, output = simulate("--latency", latency, "--crowd", *words, module="simulation.leases")
    assert output.count("PUT/s refused") == 1, output
    return status, output
