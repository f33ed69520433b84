"""Each fault in the hot path breaks a promise in its scene, unless it is harmless."""

import pytest

from simulation import mutants
from simulation.started import simulate

pytestmark = [pytest.mark.long, pytest.mark.full]


SLOW = "pair in one group", "holds not shared by a pair"  # a quarter of a minute each


def may_be_rare(fault):
    """Leave to a release those in SLOW, and those that only a complete search finds: half a minute
    each.
    """
    is_rare = "--exhaustive" in fault.scene or fault.name in SLOW
    return pytest.param(fault, marks=[pytest.mark.rare] * is_rare)


@pytest.mark.parametrize(
    "fault", list(map(may_be_rare, mutants.FOUND)), ids=lambda fault: fault.name
)
def test_fault_in_the_hot_path_is_found(fault):
    words = fault.scene.split()  # a scene, and how it is searched
    status, output = simulate("--mutant", fault.name, "--runs", 600, "--scene", *words)

    assert status == 1 and "replay: " in output, output


@pytest.mark.rare  # a fault that it finds is a mistake in the list, not in solo
@pytest.mark.parametrize("fault", mutants.HARMLESS, ids=lambda fault: fault.name)
def test_harmless_fault_breaks_no_promise(fault):
    status, output = simulate("--mutant", fault.name, "--scene", fault.scene, "--seconds", 5)

    assert status == 0, output
