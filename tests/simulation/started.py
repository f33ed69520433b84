"""Start a search in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS}/tools", "PYTHONHASHSEED": "0"}


def simulate(*words, module="simulation"):
    """Return the status and the output of a search."""
    command = [sys.executable, "-m", module, *map(str, words)]
    result = subprocess.run(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return result.returncode, result.stdout
