"""`make coverage` tells lines that ran from lines that did not, also in processes that were killed or called exec."""

import re
import sys

import pytest
from conftest import ROOT, finish
from coverage_explained import LEFT_OUT, TESTS
from coverage_run import analyse, compare, find_missed, make_copy, read_arcs

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the tracer needs Python 3.11 or newer")

MODULES = ["child", "main", "queue"]


@pytest.fixture
def traced(lab, tmp_path):
    """A lab whose solo is traced. Its find_missed() returns the lines and branches missed so far."""
    tree, arcs = make_copy(tmp_path, MODULES)
    script = (tree / "solo/__main__.py").read_text().partition("\n")[2]
    lab.script = tmp_path / "traced"
    lab.script.write_text(f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(tree)!r})\n{script}")
    lab.script.chmod(0o755)

    def find():
        reports = analyse(read_arcs(arcs, MODULES), ROOT / "solo", tmp_path)
        return [one for module in MODULES for one in find_missed(module, (ROOT / f"solo/{module}.py").read_text(), reports[module])]

    lab.find_missed = find
    return lab


def has(missed, module, text):
    return any(one.module == module and one.key[1].startswith(text) for one in missed)


def test_without_a_run_every_module_is_missed(traced):
    assert {one.module for one in traced.find_missed()} == set(MODULES)


def test_a_line_and_a_branch_are_missed_until_a_process_runs_them(traced):
    assert traced.run("-n", "job", "true").returncode == 0
    before = traced.find_missed()
    assert traced.run("--version").returncode == 0
    after = traced.find_missed()

    assert has(before, "main", "posix.write(1, ") and not has(after, "main", "posix.write(1, ")
    assert has(before, "main", 'if "version" in options:  ->  ') and not has(after, "main", 'if "version" in options:  ->  ')
    assert not has(before, "main", "guard.run(") and has(after, "main", 'status = say_error(f"this is a bug')


def test_lines_before_sigkill_or_exec_have_run(traced):
    holder = traced.hold("job")
    waiter = traced.wait_in_line("job", tag="waiter")
    waiter.kill()
    waiter.wait()
    missed = traced.find_missed()

    assert not has(missed, "child", "execute(path, ")  # in the forked child
    assert not has(missed, "queue", "seat = line.publish(")  # in the killed one
    assert has(missed, "child", "forbid_core()")
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
        assert re.search(rf"^def {name.partition('[')[0]}\(" if name else "", (ROOT / file).read_text(), re.MULTILINE), test
