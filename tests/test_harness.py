"""The tests themselves: a result depends on nothing else that runs on the machine."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, TESTS
from loops import find_changed

NAMES = {"job", "busy"}  # also names of those tests
TESTS_OF_VIEWS = (
    "tests/test_cli.py::test_list_in_a_pipe_is_plain_aligned_text",
    "tests/test_api_run.py::test_busy_has_the_holders_in_any_directory",
    "tests/test_api_run.py::test_busy_has_the_holders_by_socket_with_any_env",
    "tests/test_hold.py::test_export_sets_variables_in_the_shell_and_below",
    "tests/test_sockets.py::test_skipped_contender_prints_the_holder",
)


def test_no_socket_of_another_process_is_seen_without_a_network_namespace(lab, tmp_path):
    """An ordinary user cannot leave the network namespace. Here root cannot either."""
    ordinary = () if os.geteuid() else ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/inner"]
    solo = [sys.executable, "-m", "solo"]  # with the addresses of everybody
    words = ["--via", "socket", "--", "sh", "-c", "echo; read line"]
    for name in NAMES:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        holder = subprocess.Popen([*solo, "-n", name, *words], cwd=ROOT, **pipes)
        lab.started.append(holder)
        assert holder.stdout.readline() == b"\n"

    view = subprocess.run([*solo, "list", "-0"], cwd=ROOT, capture_output=True, text=True)
    result = subprocess.run([*ordinary, *run, *TESTS_OF_VIEWS], cwd=ROOT, capture_output=True, text=True)

    assert NAMES <= set(view.stdout.split("\0"))
    assert result.returncode == 0 and "passed" in result.stdout, result.stdout


@pytest.mark.tool("git")
def test_a_changed_instrument_is_tested(tmp_path):
    instrument = tmp_path / "tests/fuzz.py"
    instrument.parent.mkdir()
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)

    states = [find_changed.__wrapped__(str(tmp_path))]
    instrument.touch()
    states.append(find_changed.__wrapped__(str(tmp_path)))
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    states.append(find_changed.__wrapped__(str(tmp_path)))

    assert states == [set(), {"test_fuzz"}, set()]


FAILING_ONCE = """
import pathlib
def test_once():
    seen = pathlib.Path("seen")
    assert seen.exists() or seen.touch(), "the first failure"
def test_right():
    pass
"""
FAILING_TWICE = "def test_wrong():\n    assert False\n"


def run_again(folder, text):
    """Run a file of tests with --again. Return (pytest's status, the text of the flaky ones)."""
    (folder / "conftest.py").write_text("from again import pytest_configure\nfrom loops import pytest_addoption\n")
    (folder / "test_it.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--again", "flaky", "test_it.py"]
    result = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True)
    return result.returncode, (folder / "flaky").read_text()


def test_what_fails_once_passes_and_is_printed(tmp_path):
    status, flaky = run_again(tmp_path, FAILING_ONCE)

    assert status == 0 and flaky.startswith("FLAKY test_it.py::test_once\n") and "the first failure" in flaky


def test_what_fails_twice_fails(tmp_path):
    status, flaky = run_again(tmp_path, FAILING_ONCE + FAILING_TWICE)

    assert status == 1 and re.findall("FLAKY.*", flaky) == ["FLAKY test_it.py::test_once"]


def find_wrong_rows(page):
    """Return why a page like flaky.md is refused."""
    rows = [row.split("|")[1].strip(" `") for row in page.partition("|---")[2].splitlines()[1:]]
    missing = [row for row in rows if not is_test(*row.partition("::")[::2])]
    return [f"no such test: {row}" for row in missing] + ["more than five rows"] * (len(rows) > 5)


def is_test(file, name):
    path = ROOT / file
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text()


def test_flaky_md_has_at_most_five_rows_and_each_names_a_test():
    page, row = (TESTS / "flaky.md").read_text(), f"| `{TESTS_OF_VIEWS[0]}` | today | unknown | none |\n"

    assert find_wrong_rows(page) == find_wrong_rows("|---|\n" + 5 * row) == []
    assert find_wrong_rows("|---|\n" + 6 * row) == ["more than five rows"]
    assert find_wrong_rows("|---|\n" + row.replace("list", "lost")) == [
        "no such test: " + TESTS_OF_VIEWS[0].replace("list", "lost")
    ]
