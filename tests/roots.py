"""Minimal Debian roots, built once by debootstrap and kept in build/roots, for tests that need a pristine system."""

import hashlib
import shutil
import subprocess
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from conftest import ROOT, use_network

CACHE = ROOT / "build/roots"


def get_root(suite: str, packages: str) -> Path:
    """Return a minimal `suite` (bookworm, trixie) with `packages`, separated by commas. Skips if it cannot be built.

    Never write to it: mount an overlay over it.
    """
    root = CACHE / f"{suite}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(f"{root}.lock", "w") as lock:
        flock(lock, LOCK_EX)  # several workers may need the same root
        make_root(root, suite, packages)
    return root


def make_root(root: Path, suite: str, packages: str):
    if not (root / "ready").exists():
        shutil.rmtree(root, ignore_errors=True)
        words = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={packages}", suite, root]
        with use_network():  # what debootstrap mounts ends with it, even if it is killed: the root can be removed
            made = subprocess.run([*words, *find_mirror()], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"debootstrap failed: {made.stdout[-200:]}")
        (root / "ready").touch()


def start_container(root: Path, lab: Path, *words) -> subprocess.Popen:
    """Start systemd-nspawn in a layer over `root`, with `lab` at /lab, where its output goes to `console`. Words: the rest."""
    return subprocess.Popen(
        ["systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--volatile=overlay", f"--bind={lab}:/lab"]
        + list(words),
        stdin=subprocess.DEVNULL,
        stdout=open(lab / "console", "w"),
        stderr=subprocess.STDOUT,
    )


def find_mirror() -> list:
    """Return [the mirror of this machine's apt], or [] if it is unknown."""
    for source in Path("/etc/apt").rglob("*.sources"):
        for line in source.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1:2]
    return []
