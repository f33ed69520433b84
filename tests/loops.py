"""The three loops: `make quick` while typing, `make test` before a commit, `make test-full` in CI.

A file belongs to one loop; the marker `full` moves a single test to `make test-full`. A file named on pytest's command line runs
completely in every loop.

With `--again FILE`, for CI, each failed test runs once more, alone. A test that passes then fails nothing, but is added to FILE with
its first failure; it needs a row in tests/flaky.md. No test repeats itself, and none gets a longer time-out instead.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

# At most 15 seconds on two cores: pure functions, imports, the bundle, some real launches.
QUICK = set(
    "test_argv test_compatibility test_engine_parts test_layers test_lease test_once test_options test_record test_weight".split()
)

# These need servers, packages, another root directory, a booted systemd, or minutes.
FULL = (
    "test_packages test_lost_messages test_engines test_install test_torture test_faults test_s3 test_systemd test_bench"
    " test_hostile_etcd test_lab test_upgrade test_zookeeper test_containers test_postgresql test_cron"
    " test_prometheus test_model test_harness test_etcd test_redis test_ansible test_fuzz"
).split()

# The longest files of `make test-full`, some by their tests with the marker `full`, start first: at the end, the other workers
# would wait for them.
LONGEST = (
    "test_simulation test_packages test_engines test_faults test_install test_torture test_lost_messages test_machines"
    " test_s3 test_oracle test_ansible test_cron test_systemd test_parents"
).split()

LOOPS = {  # which files and tests run: is it in QUICK, is it in FULL
    "quick": lambda quick, full: quick and not full,
    "test": lambda quick, full: not full,
    "rest": lambda quick, full: full,
    "full": lambda quick, full: True,
}


def pytest_addoption(parser):
    parser.addoption("--loop", choices=LOOPS, default="full", help="the tests to run; rest is full without test")
    again = "run failed tests once more, alone; add those that pass then to FILE"
    parser.addoption("--again", metavar="FILE", help=again)
    parser.addoption("--bundle", action="store_true", help="run the bundle that `make install` makes")


def is_in_loop(config, path, full=False):
    return LOOPS[config.getoption("loop")](path.stem in QUICK, full or path.stem in FULL)


def pytest_ignore_collect(collection_path, config):
    """Ignore files of other loops. pytest does not ask about named files; "rest" looks for single tests in every file."""
    if collection_path.name.startswith("test_") and config.getoption("loop") != "rest":
        return None if is_in_loop(config, collection_path) else True


def pytest_collection_modifyitems(config, items):
    def is_chosen(item):
        if item.session.isinitpath(item.path):
            return True
        if item.get_closest_marker("rare") and config.getoption("loop") != "full":
            return False
        return is_in_loop(config, item.path, item.get_closest_marker("full") is not None)

    left_out = [item for item in items if not is_chosen(item)]
    items[:] = filter(is_chosen, items)
    if config.getoption("loop") in ("rest", "full"):
        order = {name: place for place, name in enumerate(dict.fromkeys([*LONGEST, *FULL]))}
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (order.get(item.path.stem, len(order)), -sizes[item.path], item.path))
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
    return not subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", test], cwd=config.rootpath).returncode
