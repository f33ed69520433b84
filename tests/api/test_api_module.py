"""The module solo from a user's side: what its import loads, the examples in docstrings, the
types.
"""

import doctest
import os
import subprocess
import sys

import pytest
from conftest import ROOT

import solo


def test_import_solo_loads_nothing():
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); old = set(sys.modules); import solo; print(*set(sys.modules) - old)"

    assert (
        subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True).stdout
        == "solo\n"
    )
    assert set(solo.__all__) <= set(dir(solo))
    with pytest.raises(AttributeError):
        solo.nothing


@pytest.mark.parametrize(
    "start",
    ["import solo; solo.Lock", "import runpy; runpy.run_module('solo', run_name='__main__')"],
)
def test_other_pythons_are_refused_in_words(start):
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.implementation.name = 'pypy'; {start}"
    )

    result = subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True)

    assert result.returncode == (1 if "Lock" in start else 125)
    assert "solo needs CPython, not pypy" in result.stderr.splitlines()[-1]
    assert "Lock" in start or result.stderr.count("\n") == 1


def test_examples_in_docstrings_work(files, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    from solo.api import holder, lock, run

    globs = {"os": os, "Lock": solo.Lock}
    results = [doctest.testmod(module, extraglobs=globs) for module in (holder, lock, run)]

    assert [result.failed for result in results] == [0, 0, 0] and sum(
        result.attempted for result in results
    ) >= 5


RIGHT = """
import math
import solo

lock = solo.Lock("job", wait=math.inf, slots=3, take=2)

@lock
def plain(value: int) -> str: return str(value)

@lock
async def later(value: int) -> str: return str(value)

try:
    with lock as hold:
        token: int = hold.token
        slot: "int | None" = lock.slot
        plain(3).upper()
    lock.acquire(timeout=3).release()
except solo.Busy as busy:
    pid: "int | None" = busy.holders[0].launcher
    busy.holders[0].since
solo.run(["true"], name="job", check=True).returncode + len(solo.holders("job")[0].command)

async def use() -> None:
    async with lock as hold:
        print(hold.tokens, (await later(3)).upper())
"""
WRONG = (
    "import solo\nsolo.Lock(3)\nsolo.Lock('x', wiat=3)\nsolo.holders('x')[0].pid\n"
    "solo.Busy('x').holders[0].pid\nsolo.Lock('x').acquire(timeout='3')\n"
)


@pytest.mark.full  # pyright downloads what it runs on
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=lambda words: words[0])
def test_type_checkers_accept_right_code_and_find_each_mistake(tmp_path, checker):
    if subprocess.run(
        [sys.executable, "-m", checker[0], "--version"], capture_output=True
    ).returncode:
        pytest.skip(f"needs {checker[0]}: pip cannot get all of it")
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}

    def check(code):
        (tmp_path / "user.py").write_text(code)
        words = [sys.executable, "-m", *checker, "user.py"]
        return subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path)

    right, wrong = check(RIGHT), check(WRONG)

    assert right.returncode == 0, right.stdout
    assert (
        wrong.returncode == 1
        and wrong.stdout.count(": error") + wrong.stdout.count(" - error") >= 5
    ), wrong.stdout
