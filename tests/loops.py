"""The three loops: `make quick` while typing, `make test` before a commit, `make test-full` in CI.

The marker `quick` or `full` in the line `pytestmark = ...` moves a file to another loop than `make
test`, and `full` at a single test moves that. A file named on pytest's command line runs completely
in every loop.

With `--again FILE`, for CI, each failed test runs once more, alone. A test that passes then fails
nothing, but is added to FILE with its first failure; it needs a row in tests/flaky.md. No test
repeats itself, and none gets a longer time-out instead.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

MARKERS = {
    "quick": "the file runs in `make quick`, in at most 10 seconds on two idle cores: pure functions, imports, the bundle, some real launches",
    "full": "only `make test-full` runs it: with servers, packages, another root directory, a booted systemd, or for minutes",
    "rare": "full, and slow and rarely wrong: CI leaves it out",
    "long": "the file starts first in `make test-full`: at the end, the other workers would wait for it",
}
LOOPS = {  # which files and tests run, by their markers
    "quick": lambda markers: "quick" in markers and "full" not in markers,
    "test": lambda markers: "full" not in markers,
    "rest": lambda markers: "full" in markers,
    "full": lambda markers: True,
}


@cache
def read_markers(path):
    """Return the markers of all tests of a file, without importing it."""
    line = re.search(r"^pytestmark = .*", path.read_text(), re.M)
    return re.findall(r"pytest\.mark\.(\w+)", line[0]) if line else []


def pytest_addoption(parser):
    parser.addoption(
        "--loop", choices=LOOPS, default="full", help="the tests to run; rest is full without test"
    )
    again = "run failed tests once more, alone; add those that pass then to FILE"
    parser.addoption("--again", metavar="FILE", help=again)


def pytest_ignore_collect(collection_path, config):
    """Ignore files of other loops. pytest does not ask about named files; "rest" looks for single
    tests in every file.
    """
    loop = config.getoption("loop")
    if (
        collection_path.name.startswith("test_")
        and collection_path.suffix == ".py"
        and loop != "rest"
    ):
        return None if LOOPS[loop](read_markers(collection_path)) else True


def pytest_collection_modifyitems(config, items):
    loop = config.getoption("loop")

    def is_chosen(item):
        if item.session.isinitpath(item.path):
            return True
        markers = [marker.name for marker in item.iter_markers()]
        return LOOPS[loop](markers) and (loop == "full" or "rare" not in markers)

    left_out = [item for item in items if not is_chosen(item)]
    items[:] = filter(is_chosen, items)
    if loop in ("rest", "full"):
        sizes = Counter(item.path for item in items)

        def find_place(item):
            markers = read_markers(item.path)
            return "long" not in markers, "full" not in markers, -sizes[item.path], item.path

        items.sort(key=find_place)
    config.hook.pytest_deselected(items=left_out)


MOST = 10  # more failures have a cause that does not go away


def pytest_configure(config):
    if config.option.again and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Again(config.option.again))
    os.environ.pop("PYTEST_ADDOPTS", None)  # not for the tests that run pytest


class Again:
    def __init__(self, path):
        self.path = path
        self.failures = {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failures.setdefault(report.nodeid, report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus != pytest.ExitCode.TESTS_FAILED or len(self.failures) > MOST:
            return
        flaky = [test for test in self.failures if passes_alone(session.config, test)]
        with open(self.path, "a") as file:
            for test in flaky:
                print(f"FLAKY {test}\n{self.failures[test]}\n", file=file)
        if flaky == list(self.failures):
            session.exitstatus = pytest.ExitCode.OK


def passes_alone(config, test):
    print(f"\nonce more, alone: {test}", flush=True)
    return not subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", test], cwd=config.rootpath
    ).returncode
