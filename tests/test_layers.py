"""The house: a file directly in solo/ is loaded by every guarded run, a folder only when something asks for it.

Files import files below them; files import folders only inside functions; imports inside functions make no cycle either.
"""

import ast
import os
import subprocess
import sys

import pytest
from conftest import ROOT, count_switches, until

# What Python may load for a guarded run, besides itself (python -IS -c pass) and the hot floors.
ALLOWED = {"_signal", "errno", "fcntl", "posix", "sys", "time"}


def list_modules():
    for path in sorted((ROOT / "solo").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "solo").with_suffix("").parts)
        yield name.removesuffix(".__init__") if name != "__init__" else "", path


def read_imports(path):
    """[(module as written, whether at the top of the file)]"""
    tree = ast.parse(path.read_text())
    top = set(ast.iter_child_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.module == "solo":
                yield from ((f"solo.{alias.name}", node in top) for alias in node.names)
            else:
                yield node.module, node in top
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)


IMPORTS = {
    name: [(own.removeprefix("solo."), at_top) for own, at_top in read_imports(path) if own.startswith("solo.")]
    for name, path in list_modules()
    if name
}
HOT = {name for name in IMPORTS if (ROOT / "solo" / f"{name}.py").exists()}


def find_cycle(imports):
    """Names of modules that import each other in a circle, or nothing."""
    done = set()

    def visit(name, above):
        if name in above:
            return above[above.index(name) :]
        if name in done or name not in imports:
            return []
        for other in imports[name]:
            if found := visit(other, [*above, name]):
                return found
        done.add(name)
        return []

    return next((found for name in imports if (found := visit(name, []))), [])


@pytest.mark.parametrize("name", sorted(HOT))
def test_file_imports_only_files_and_cheap_modules_of_python_at_its_top(name):
    for imported, at_top in read_imports(ROOT / "solo" / f"{name}.py"):
        if at_top and imported != "solo.__version__":
            assert imported.removeprefix("solo.") in HOT | ALLOWED, f"{name} imports {imported}"


def test_no_module_imports_itself_through_others():
    assert find_cycle({name: [own for own, _ in imports] for name, imports in IMPORTS.items()}) == []


def test_a_cycle_is_found():
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]


def test_no_folder_imports_the_launcher():
    users = {
        name
        for name, imports in IMPORTS.items()
        if name not in HOT
        for own, _ in imports
        if own in ("launcher", "main", "start", "supervise")
    }

    assert users <= {"api.run", "contention.handoff"}  # the second is a part of it, which only waiters load


def test_the_bundle_of_make_install_is_all_files_in_their_order():
    from solo.generate.bundle import FIRST, order_modules

    ordered = [name.removeprefix("solo.") for name in order_modules(FIRST, [])]

    assert set(ordered) == HOT - {"__main__"} and len(ordered) == len(set(ordered))
    for at, name in enumerate(ordered):
        path = ROOT / "solo" / f"{name}.py"
        needed = {own.removeprefix("solo.") for own, at_top in read_imports(path) if at_top and own.startswith("solo.")}
        assert needed <= set(ordered[:at])


def list_loaded(lab, *words, before=""):
    """The modules that are loaded when the launcher of a guarded run exits, less those of the bare interpreter."""
    output = lab.path / "loaded"
    code = f"""
import sys, posix
start = set(sys.modules)
{before}
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ['solo', *{words!r}]
launcher, exit = posix.getpid(), posix._exit

def write_and_exit(status):
    if posix.getpid() == launcher:
        fd = posix.open({str(output)!r}, posix.O_WRONLY | posix.O_CREAT)
        posix.write(fd, '\\n'.join(set(sys.modules) - start).encode())
    exit(status)

posix._exit = write_and_exit
import solo.main
solo.main.main()
"""
    assert subprocess.run([sys.executable, "-IS", "-c", code], env=lab.environment).returncode == 0
    return set(output.read_text().split("\n"))


def test_a_guarded_run_loads_the_hot_floors_and_nothing_else(lab):
    loaded = list_loaded(lab, "-n", "job", "--", "true")

    own = {name for name in loaded if name.partition(".")[0] == "solo"}
    assert own == {"solo"} | {f"solo.{name}" for name in HOT - {"__main__"}}
    assert loaded - own <= ALLOWED


def test_the_list_of_loaded_modules_can_tell(lab):
    spy = (
        "import builtins\nreal = builtins.__import__\n"
        "builtins.__import__ = lambda name, *rest: (name == 'solo.record' and real('json'), real(name, *rest))[1]"
    )

    assert "json" in list_loaded(lab, "-n", "other", "--", "true", before=spy)


FLOOR = f"""
import {", ".join(sorted(ALLOWED))}
if not posix.fork():
    posix.execve("/bin/sh", ["sh", "-c", "echo; read line"], {{}})
posix.wait()
"""


def test_the_hot_path_fits_the_memory_budget(lab):
    """Beside a launcher that only imports, forks and waits: pages of Python's own files, which processes share, do not count."""
    assert lab.run("-n", "job", "true").returncode == 0  # compiles the modules
    floor = subprocess.Popen([sys.executable, "-IS", "-c", FLOOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    floor.stdout.readline()

    added = read_own_memory(lab.hold("job").pid) - read_own_memory(floor.pid)

    floor.communicate()
    assert 100 < added < 800


def read_own_memory(pid):
    """In kB, without pages of files."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon:"))


def test_quiet_while_the_command_runs_and_while_three_stand_in_line(lab):
    holder = lab.hold("job")
    line = [lab.start_waiter("job", tag=number) for number in range(3)]
    pids = [holder.pid, *(process.pid for process in line)]
    until(lambda: all(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "S" for pid in pids))
    before = [count_switches(pid) for pid in pids]
    busy = count_switches(os.getpid())
    subprocess.run(["sleep", "3"])  # the claim is about a span of time

    assert [count_switches(pid) for pid in pids] == before
    assert count_switches(os.getpid()) > busy  # the count can move
