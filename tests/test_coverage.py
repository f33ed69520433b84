"""`make coverage` tells executed lines from missed ones, also in processes that were killed or called execve(2)."""

import re
import sys

import pytest
from conftest import ROOT, finish
from coverage_explained import LEFT_OUT, TESTS
from coverage_run import analyse, compare, find_missed, make_copy, read_arcs
from test_layers import HOT

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the tracer needs Python 3.11 or newer")

MODULES = sorted(HOT)
VERSION, PARSE, BUG = r"posix\.write\(1, encode\(f\"solo {__version__}", r".*parse\(sys\.argv", r".*this is a bug"
EXEC, WAIT, NO_CORE = r"posix\.execve\(path, words", r"[\w.]+ = .*publish\(SEAT, ", r"forbid_core\(\)"


@pytest.fixture
def traced(lab, tmp_path):
    """Return a lab whose solo is traced. Its find_missed() returns the lines and branches missed so far."""
    tree, arcs = make_copy(tmp_path, MODULES)
    script = (tree / "solo/__main__.py").read_text().partition("\n")[2]
    lab.script = tmp_path / "traced"
    lab.script.write_text(f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(tree)!r})\n{script}")
    lab.script.chmod(0o755)

    def find():
        reports = analyse(read_arcs(arcs, MODULES), ROOT / "solo", tmp_path)
        return [
            one
            for module in MODULES
            for one in find_missed(module, (ROOT / f"solo/{module}.py").read_text(), reports[module])
        ]

    lab.find_missed = find
    return lab


def has(missed, pattern):
    return any(re.match(pattern, one.key[1]) for one in missed)


def test_without_a_run_every_module_is_missed(traced):
    missed = traced.find_missed()

    assert {one.module for one in missed} == set(MODULES)
    assert all(has(missed, pattern) for pattern in (VERSION, PARSE, BUG, EXEC, WAIT, NO_CORE))


def test_line_and_branch_are_missed_until_a_process_runs_them(traced):
    assert traced.run("-n", "job", "true").returncode == 0
    before = traced.find_missed()
    assert traced.run("--version").returncode == 0
    after = traced.find_missed()

    branch = r'if "version" in .*  ->  '
    assert has(before, VERSION) and not has(after, VERSION)
    assert has(before, branch) and not has(after, branch)
    assert not has(before, PARSE) and has(after, BUG)


def test_lines_before_sigkill_or_exec_have_run(traced):
    holder = traced.hold("job")
    waiter = traced.start_waiter("job", tag="waiter")
    waiter.kill()
    waiter.wait()
    missed = traced.find_missed()

    assert not has(missed, EXEC)  # in the forked child
    assert not has(missed, WAIT)  # in the killed waiter
    assert has(missed, NO_CORE)
    finish(holder)


def test_unexplained_and_outdated_lines_are_reported(traced):
    traced.run("-n", "job", "true")
    missed = traced.find_missed()
    explained = {one.key: "why" for one in missed}
    unknown = ("main.main", "no such line")

    assert compare(missed, explained) == ([], [])
    assert compare(missed[1:], {**explained, unknown: "why"}) == ([], [missed[0].key, unknown])
    del explained[missed[0].key]
    assert compare(missed, explained)[0][0] is missed[0]


def test_every_named_test_exists():
    for test in [*TESTS, *(f"tests/{test}" for test in LEFT_OUT)]:
        file, _, name = test.partition("::")
        assert re.search(
            rf"^def {name.partition('[')[0]}\(" if name else "", (ROOT / file).read_text(), re.MULTILINE
        ), test
