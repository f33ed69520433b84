"""The date, commit, kernel and Python of a measurement; its record in build/records, and its blocks
in docs/evidence.md.
"""

import json
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS, PAGE = ROOT / "build/records", ROOT / "docs/evidence.md"
sys.path.append(str(ROOT / "tests"))  # for what the instruments share with the tests
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
        changed = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", *SOURCES], capture_output=True
        ).returncode
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return f"{commit} with changes" if changed else commit


def format_measured(run: dict) -> str:
    return f"{run['date']}, commit {run['commit']}, Linux {run['kernel']}, Python {run['python']}"


def write_record(name: str, result: dict, blocks: dict):
    """Write a result to build/records/NAME.json, and its blocks into docs/evidence.md."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(fill_page(PAGE.read_text(), blocks))


def fill_page(page: str, blocks: dict) -> str:
    """Return the page with each block, between `<!-- NAME -->` and `<!-- end -->`, replaced. Fail
    if it has no marker.
    """
    for name, text in blocks.items():
        block = f"<!-- {name} -->\n{text}\n<!-- end -->"
        page, count = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->", lambda _, block=block: block, page, flags=re.S
        )
        assert count == 1, f"docs/evidence.md has no marker for {name}"
    return page
