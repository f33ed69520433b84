"""The date, commit, kernel and Python of a measurement, for its record."""

import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("solo", "tests", "Makefile", "pyproject.toml")


def describe() -> dict:
    """Return them by name. Take the commit before a measurement writes into the tree."""
    return {
        "date": time.strftime("%F"),
        "commit": find_commit(),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def find_commit() -> str:
    """Return the short commit of the tree; "no commit" outside of a repository or without git."""
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *SOURCES], capture_output=True).returncode
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"{commit} with changes" if changed else commit


def format_measured(run: dict) -> str:
    return f"{run['date']}, commit {run['commit']}, Linux {run['kernel']}, Python {run['python']}"
