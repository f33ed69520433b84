"""Debian roots of our own, made by debootstrap once and kept in build/roots: for what needs a system that nothing was done to."""

import hashlib
import shutil
import subprocess
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from conftest import ROOT

CACHE = ROOT / "build/roots"


def get_root(suite: str, packages: str) -> Path:
    """A minimal `suite` (bookworm, trixie) with `packages`, separated by commas. Never written to: mount something over it.

    Skips by name where there can be none.
    """
    root = CACHE / f"{suite}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(f"{root}.lock", "w") as lock:
        flock(lock, LOCK_EX)  # tests run beside each other
        make_root(root, suite, packages)
    return root


def make_root(root: Path, suite: str, packages: str):
    if not (root / "ready").exists():
        shutil.rmtree(root, ignore_errors=True)
        made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={packages}", suite, root, *find_mirror()],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"debootstrap can not: {made.stdout[-200:]}")
        (root / "ready").touch()


def find_mirror() -> list:
    """Where apt of this machine gets Debian from; nothing if that can not be told."""
    for source in Path("/etc/apt").rglob("*.sources"):
        for line in source.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1:2]
    return []
