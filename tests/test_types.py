"""The types: the list of files in pyproject.toml that are not strict only shrinks."""

import subprocess
import sys

import pytest
import test_layers as layers
from conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
LOOSE = SETTINGS["overrides"][0]["module"]
# All that every run loads, and what was strict before it.
STRICT_ONES = [name for name in layers.HOT if name not in ("__init__", "__main__")]
STRICT_ONES += [
    "contention.handoff",
    "contention.protocols",
    *(f"api.{name}" for name in ("lock", "hold", "attempt", "blocking", "run")),
]


def is_module(name):
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@pytest.mark.full
def test_every_loose_file_fails_strict(tmp_path):
    """A file that passes must leave the list in pyproject.toml. That mypy passes as configured is for `make lint`."""
    pytest.importorskip("mypy")
    text = (ROOT / "pyproject.toml").read_text()
    settings = tmp_path / "strict.toml"
    before, _, rest = text.partition("[[tool.mypy.overrides]]")
    settings.write_text(before + rest[rest.index("[[tool.mypy.overrides]]") :])

    words = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--config-file", settings]
    report = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout

    failing = {error.partition(":")[0] for error in report.splitlines() if ": error: " in error}
    found = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in failing}
    assert set(LOOSE) <= found
    assert found <= set(LOOSE)


def test_the_loose_list_names_modules_outside_the_core():
    assert all(map(is_module, LOOSE)) and not is_module("solo.nothing")
    assert not {f"solo.{name}" for name in STRICT_ONES} & set(LOOSE)
    assert all(is_module(f"solo.{name}") for name in STRICT_ONES)
