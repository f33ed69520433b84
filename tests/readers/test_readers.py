"""The readers of outside data: each is fed a sample of the inputs of `make fuzz`, and old findings
stay fixed.
"""

import ast
import json
import os
import subprocess
import sys
from random import SystemRandom

import fuzz
import pytest
from conftest import ROOT

from readers import TARGETS

SEED = int(os.environ.get("SOLO_SEED", SystemRandom().randrange(1 << 32)))
SHARE = 100  # inputs for each share of a target


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_hangs_or_misleads(name):
    result = fuzz.run(TARGETS[name], SEED, max(30, int(SHARE * TARGETS[name].share)))

    assert "why" not in result, (
        f"SOLO_SEED={SEED}: --replay {name} {json.dumps(result['input'])}\n{result['why']}"
    )


@pytest.mark.parametrize("line", (ROOT / "tests/corpus.txt").read_text().splitlines())
def test_an_old_finding_stays_fixed(line):
    name, _, data = line.partition(" ")
    fuzz.try_input(TARGETS[name], ast.literal_eval(data))


@pytest.mark.root
def test_a_process_with_many_groups_is_found_in_its_namespace():
    code = (
        "import os; from solo.identity import read_inner_pid; os.setgroups(range(1, 3000));"
        "print(read_inner_pid('self') == os.getpid())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout == "True\n", done.stderr
