"""The model of the protocol, tests/model/solo.pml: Spin searches all its states. Each property
finds a fault put into the model.
"""

import re
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("solo.pml")
STATES, ENDLESS = (
    "-DSAFETY",
    "-DNP",
)  # search for failed assertions and stuck processes; for endless runs

MUTANTS = [
    ("orphan", "#define NAMES_LIVING(t) false", STATES, "assertion violated (running==1)"),
    (
        "record",
        "STEP(go[me] = true); STEP(record[hold] = me + 1);",
        STATES,
        "assertion violated (n<(2*3))",
    ),
    (
        "order",
        ":: kind[n] == SEAT && LOCKED(n) && waiting == NONE -> obstacle = n; found = WAITER",
        STATES,
        "assertion violated (n==3)",
    ),
    ("gate", "", STATES, "invalid end state"),
    ("wait", ":: STEP(!LOCKED(obstacle))", ENDLESS, "non-progress cycle"),
]

pytestmark = [pytest.mark.full, pytest.mark.tool("spin", "gcc", "/usr/include/stdio.h")]


def search(model, folder, kind, crashes=1, level="-O0"):
    """Return what the verifier of a model's text prints, compiled at a level of optimization and
    run in `folder`.
    """
    (folder / "solo.pml").write_text(model)
    commands = [
        ["spin", "-a", f"-DCRASHES={crashes}", "solo.pml"],
        ["gcc", "-w", level, kind, "-DCOLLAPSE", "-o", "pan", "pan.c"],
        ["./pan", "-m10000", *(["-l"] if kind == ENDLESS else [])],
    ]
    for command in commands:
        result = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert result.returncode == 0, result.stdout
    return result.stdout


# A second and a third crash find in the model, which seldom changes, what the first one finds.
CRASHES = [(STATES, 1), (ENDLESS, 1), pytest.param(STATES, 3, marks=pytest.mark.rare)]


@pytest.mark.parametrize("kind, crashes", CRASHES, ids=["states", "endless", "three crashes"])
def test_model_keeps_the_promises(kind, crashes, tmp_path):
    found = search(MODEL.read_text(), tmp_path, kind, crashes, "-O1")

    assert "errors: 0" in found and "max search depth too small" not in found, found
    assert re.findall(r"\((\d+) of \d+ states\)", found) == ["0"] * 3, (
        "each step of the three processes is reached"
    )


@pytest.mark.parametrize("name, line, kind, error", MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_property_finds_its_mutant(name, line, kind, error, tmp_path):
    model, count = re.subn(rf"(?m)^.*/\* mutant: {name} \*/$", lambda _: line, MODEL.read_text())

    assert count == 1
    assert f"pan:1: {error}" in search(model, tmp_path, kind)
