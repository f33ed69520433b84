"""The tests themselves: a result depends on nothing else that runs on the machine."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, TESTS

from solo.commands.list import collect
from solo.text.tables import format_json

pytestmark = pytest.mark.full

NAMES = {"job", "busy"}  # also names of those tests
TESTS_OF_VIEWS = (
    "tests/views/test_cli.py::test_list_in_a_pipe_is_plain_aligned_text",
    "tests/api/test_api_run.py::test_busy_has_the_holders_in_any_directory",
    "tests/api/test_api_run.py::test_busy_has_the_holders_of_its_backend_only",
    "tests/queue/test_hold.py::test_export_sets_the_variables_of_the_hold_alone",
    "tests/queue/test_queue.py::test_contender_is_skipped_while_held[socket]",
)


def test_no_socket_of_another_process_is_seen_without_a_network_namespace(lab, tmp_path):
    """An ordinary user cannot leave the network namespace. Here root cannot either."""
    ordinary = (
        () if os.geteuid() else ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    )
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path}/inner",
    ]
    solo = [sys.executable, "-m", "solo"]  # with the addresses of everybody
    words = ["--via", "socket", "--", "sh", "-c", "echo; read line"]
    for name in NAMES:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        holder = subprocess.Popen([*solo, "-n", name, *words], cwd=ROOT, **pipes)
        lab.started.append(holder)
        assert holder.stdout.readline() == b"\n"

    view = subprocess.run([*solo, "list", "-0"], cwd=ROOT, capture_output=True, text=True)
    result = subprocess.run(
        [*ordinary, *run, *TESTS_OF_VIEWS], cwd=ROOT, capture_output=True, text=True
    )

    assert NAMES <= set(view.stdout.split("\0"))
    assert result.returncode == 0 and "passed" in result.stdout, result.stdout


def test_collect_returns_the_rows_that_list_prints(lab):
    lab.hold("a/b", "-s")
    rows, complete = collect(str(lab.directory), "file", [])

    assert complete and lab.list("--via", "file") == json.loads(format_json(rows))


FAILING_ONCE = """
import pathlib
def test_once():
    seen = pathlib.Path("seen")
    assert seen.exists() or seen.touch(), "the first failure"
"""
FAILING_TWICE = "def test_wrong():\n    assert False\n"


@pytest.mark.parametrize("text, status", [(FAILING_ONCE, 0), (FAILING_ONCE + FAILING_TWICE, 1)])
def test_only_what_fails_once_passes_and_is_printed(tmp_path, text, status):
    (tmp_path / "conftest.py").write_text("from loops import pytest_addoption, pytest_configure\n")
    (tmp_path / "test_it.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--again", "flaky", "test_it.py"]

    result = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True
    )

    flaky = (tmp_path / "flaky").read_text()
    assert (result.returncode, re.findall("FLAKY.*", flaky)) == (
        status,
        ["FLAKY test_it.py::test_once"],
    )
    assert "the first failure" in flaky
