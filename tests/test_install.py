"""Getting it: `make install` and `uninstall`, and pip in a clean environment. Needs a package index, or skips by name."""

import os
import subprocess
import sys

import pytest
from conftest import PATIENCE, ROOT


pytestmark = pytest.mark.network


def list_tree(path):
    return sorted(os.path.relpath(os.path.join(folder, name), path) for folder, folders, files in os.walk(path)
                  for name in folders + files)


def run(*words, **options):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=4 * PATIENCE, **options)


def make(*words):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return run("make", "-C", ROOT, f"PYTHON={sys.executable}", *words, env=environment)


@pytest.fixture(scope="module")
def index():
    """Skips where pip can get nothing."""
    result = run(sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--force-reinstall", "--no-deps", "hatchling")
    if result.returncode:
        pytest.skip(f"pip gets no packages: {result.stderr[-200:]}")


@pytest.mark.tool("strace")
def test_make_install_works_at_once_and_uninstall_removes_exactly_that(lab, index):
    prefix = lab.path / "usr"
    (prefix / "share/man/man1").mkdir(parents=True)
    (prefix / "share/man/man1/other.1").write_text("other")
    before = list_tree(lab.path / "usr")

    result = make("install", f"PREFIX={prefix}")
    assert result.returncode == 0, result.stderr

    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert lab.list() == []
    assert lab.run("--help").returncode == 0
    assert open(lab.script).readline().endswith("/lib/solo/bin/python -IS\n")
    assert run("strace", "-f", "-e", "trace=open,openat", lab.script, "--version").stderr.count("site-packages/solo/") == 0
    (prefix / "lib/solo/launcher").write_bytes(b"of another Python")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    for file in ("share/man/man1/solo.1", "share/man/man3/solo.3", "share/bash-completion/completions/solo",
                 "share/zsh/site-functions/_solo", "share/fish/vendor_completions.d/solo.fish"):
        assert (prefix / file).stat().st_size > 200
    assert make("install", f"PREFIX={prefix}").returncode == 0  # again, over itself
    assert make("uninstall", f"PREFIX={prefix}").returncode == 0
    assert list_tree(lab.path / "usr") == before


def test_destdir_stages_what_then_runs_from_prefix(lab, index):
    stage, prefix = lab.path / "stage", lab.path / "final"

    assert make("install", f"DESTDIR={stage}", f"PREFIX={prefix}").returncode == 0

    assert not prefix.exists()
    os.rename(f"{stage}{prefix}", prefix)
    lab.script = str(prefix / "bin/solo")
    assert lab.run("-n", "job", "--", "echo", "ran").stdout == b"ran\n"
    assert lab.run("list").returncode == 0
    found = run("grep", "-rlI", stage, prefix, "--include=pyvenv.cfg", "--include=solo")
    assert found.stdout == ""


def test_pip_install_works_in_a_clean_environment(lab, index):
    venv = lab.path / "venv"
    assert run(sys.executable, "-m", "venv", venv).returncode == 0

    result = run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", ROOT)

    assert result.returncode == 0, result.stderr
    lab.script = str(venv / "bin/solo")
    assert lab.run("-n", "job", "--", "sh", "-c", "exit 5").returncode == 5
    assert lab.list() == []
    assert (venv / "share/man/man1/solo.1").exists()
    assert run(venv / "bin/python", "-m", "solo", "--dir", lab.directory, "-n", "job", "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="the default prefix of root")
def test_the_default_prefix_follows_the_user():
    assert "/usr/local/bin/solo" in make("-n", "install").stdout
    user = run("make", "-C", ROOT, "-n", "install", "HOME=/somewhere", user=65534, env={"PATH": os.environ["PATH"]})
    assert "/somewhere/.local/bin/solo" in user.stdout
