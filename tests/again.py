"""Run each failed test once more, alone, for CI: `--again FILE`.

A test that passes then fails nothing, but is added to FILE with its first failure; it needs a row in tests/flaky.md. No test repeats
itself, and none gets a longer time-out instead.
"""

import os
import subprocess
import sys

import pytest

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
