"""Layers: every guarded run loads the files directly in solo/, and a folder only for a feature that
needs it.

Files import files below them; files import folders only inside functions; imports inside functions
make no cycle either.
"""

import ast
import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
import weight
from conftest import ROOT, TESTS, count_switches, read_state, until
from observed import list_loaded

from solo.generate import bundle

pytestmark = pytest.mark.quick

# The modules of Python that a guarded run may load, besides those of `python -IS -c pass`.
ALLOWED = {"_signal", "errno", "fcntl", "posix", "sys", "time"}


def list_modules():
    for path in sorted((ROOT / "solo").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "solo").with_suffix("").parts)
        yield name.removesuffix(".__init__") if name != "__init__" else "", path


MODULES = dict(list_modules())
TOP, LATE, TYPES = "at the top of the file", "in a function", "for type checkers"


def is_for_types(node):
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def read_imports(source):
    """Yield (module, TOP, LATE or TYPES) of each import. `from solo.text import width` imports
    solo.text.width.
    """
    tree = ast.parse(source)
    places = dict.fromkeys(ast.iter_child_nodes(tree), TOP)
    for node in ast.walk(tree):
        if is_for_types(node):
            places.update((inner, TYPES) for kept in node.body for inner in ast.walk(kept))
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, (ast.Import, ast.ImportFrom))
            else []
        )
        if isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{name}" for name in names]
            names = [
                name if name.removeprefix("solo.") in MODULES else node.module for name in inner
            ]
        yield from ((name, places.get(node, LATE)) for name in names)


def find_unions(source):
    """Return the lines with a union `X | None` that Python evaluates, which 3.9 cannot. It evaluates
    no annotation of a variable in a function.
    """
    nodes, unseen = list(ast.walk(ast.parse(source))), set()
    for node in nodes:
        if is_for_types(node):
            unseen.update(ast.walk(node))
        elif isinstance(node, ast.FunctionDef):
            inner = [one for one in ast.walk(node) if isinstance(one, ast.AnnAssign)]
            unseen.update(part for one in inner for part in ast.walk(one.annotation))
    unions = [node for node in nodes if isinstance(node, ast.BinOp) and node not in unseen]
    return [node.lineno for node in unions if getattr(node.right, "value", "") is None]


def test_no_union_with_none_is_evaluated():
    found = {path: find_unions(path.read_text()) for path in (ROOT / "solo").rglob("*.py")}

    assert found and not any(found.values()), {path: found[path] for path in found if found[path]}
    assert find_unions("def f():\n    x: int | None = None\n    return set[str | None]()") == [3]


def list_own(path):
    """Return the imports of solo's own modules, named without `solo.`."""
    found = read_imports(path.read_text())
    return [
        (name.removeprefix("solo."), place) for name, place in found if name.startswith("solo.")
    ]


@cache
def list_imports():
    """Return the imports of each module at run time."""
    return {
        name: [own for own, place in list_own(path) if place != TYPES]
        for name, path in MODULES.items()
        if name
    }


HOT = {path.stem for path in (ROOT / "solo").glob("*.py")} - {"__init__"}


def find_cycle(imports):
    """Return the names of modules that import each other in a circle, or []."""
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
    for imported, place in read_imports(MODULES[name].read_text()):
        if place == TOP and imported != "solo":
            assert imported.removeprefix("solo.") in HOT | ALLOWED, f"{name} imports {imported}"


def test_imports_make_no_cycle():
    assert find_cycle(list_imports()) == []


def test_each_file_of_a_run_has_the_test_file_of_its_name():
    tested = {
        path.stem for room in ("launcher", "queue") for path in (TESTS / room).glob("test_*.py")
    }

    assert {f"test_{name}" for name in HOT - {"__main__"}} - tested == set()


def test_no_two_files_of_tests_have_one_name():
    """pytest imports each by its name alone."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []


def test_find_cycle_finds_a_cycle():
    imports = {"a": ["b"], "b": ["c"], "c": ["b"]}

    assert find_cycle(imports) == ["b", "c"]


def test_imports_are_read_in_every_form():
    source = """
import solo.text.width, os
from solo import kernel
if TYPE_CHECKING:
    from solo.commands import list
def late():
    from solo.text import width, users
    from solo.commands.list import run
    from solo import __version__
"""
    found = {
        place: {name for name, where in read_imports(source) if where == place}
        for place in (TOP, TYPES, LATE)
    }
    assert found[TOP] == {"solo.text.width", "os", "solo.kernel"} and found[TYPES] == {
        "solo.commands.list"
    }
    assert found[LATE] == {"solo.text.width", "solo.text.users", "solo.commands.list", "solo"}


def list_users(*wanted):
    return {
        name
        for name, imports in list_imports().items()
        for own in imports
        if own.startswith(wanted)
    } - HOT


def test_no_folder_imports_the_launcher():
    users = list_users("launcher", "main", "start", "supervise")

    assert users <= {
        "api.run",
        "contention.handoff",
        "process.pair",
        "process.upper",
    }  # the last three are parts of it, loaded on demand


def test_only_what_is_above_the_subcommands_imports_them():
    assert {name.partition(".")[0] for name in list_users("commands.")} == {"api", "commands"}


def test_run_executes_all_files_in_the_order_of_imports():
    modules = bundle.list_modules()
    ordered = bundle.list_hot(modules)

    assert {name.removeprefix("solo.") for name in ordered if name != "solo"} == HOT - {"__main__"}
    for at, name in enumerate(ordered):
        imports = read_imports(modules[name].read_text())
        assert {own for own, place in imports if place == TOP and own in modules} <= set(
            ordered[:at]
        )


@pytest.mark.host
def test_guarded_run_loads_all_files_and_no_folder(lab):
    loaded = list_loaded(lab, "-n", "job", "--", "true")

    own = {name for name in loaded if name.partition(".")[0] == "solo"}
    assert own == {"solo"} | {f"solo.{name}" for name in HOT - {"__main__"}}
    assert loaded - own <= ALLOWED


@pytest.mark.parametrize(
    "line, parts", [("--timeout 9s", "limits prctl"), ("--tree", "library limits pair prctl upper")]
)
def test_time_limit_and_tree_load_no_module_of_their_errors(lab, line, parts):
    plain = list_loaded(lab, "-n", "job", "--", "true")  # in a container it has a holder
    loaded = list_loaded(lab, *line.split(), "-n", "job", "--", "true")

    own = {name for name in loaded if name.count(".") == 2 and name.startswith("solo.")}
    assert own - set(plain) == {f"solo.process.{part}" for part in parts.split()}


def test_list_loaded_sees_an_additional_module(lab):
    spy = (
        "import builtins\nreal = builtins.__import__\n"
        "builtins.__import__ = lambda name, *rest: (name == 'solo.record' and real('json'), real(name, *rest))[1]"
    )

    assert "json" in list_loaded(lab, "-n", "other", "--", "true", before=spy)


LIBRARIES = {"typer", "rich", "psutil"}


@pytest.mark.parametrize("line", ["-h", "--help", "hold --help", "list -h", "-n job -- true"])
def test_help_in_a_pipe_and_a_run_load_no_library(lab, line):
    assert LIBRARIES.isdisjoint(list_loaded(lab, *line.split()))


@pytest.mark.parametrize("line", ["list job", "list --via file job"])
def test_a_view_in_a_pipe_loads_no_library(lab, line):
    lab.hold("job")  # all names would include those that this user holds by socket elsewhere
    found = {*list_loaded(lab, *line.split(), before=f"sys.path += {sys.path!r}")}

    assert LIBRARIES.isdisjoint(found)
    assert {"solo.contention.sockets", "solo.commands.show"}.isdisjoint(found)


def test_holder_and_waiters_never_wake(lab):
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag=number) for number in range(3)]
    pids = [holder.pid, *(process.pid for process in waiters)]
    until(lambda: all(read_state(pid) == "S" for pid in pids))
    before = [count_switches(pid) for pid in pids]
    busy = count_switches(os.getpid())
    subprocess.run(["sleep", "3"])  # the claim is about a span of time

    assert [count_switches(pid) for pid in pids] == before
    assert count_switches(os.getpid()) > busy  # the count can move


MOST_TOKENS = 440  # of a function; ruff counts its branches


def find_heavy_functions(source):
    """Return the names of functions whose body has too many tokens, without its docstring."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    lines = Counter(token.start[0] for token in weight.list_tokens(source))
    return [node.name for node in functions if weigh_body(node, lines) > MOST_TOKENS]


def weigh_body(function, lines):
    return sum(lines[line] for line in range(function.body[0].lineno, function.end_lineno + 1))


def test_no_function_has_more_tokens_than_a_reader_holds():
    found = {name: find_heavy_functions(path.read_text()) for name, path in list_modules()}

    assert {name: heavy for name, heavy in found.items() if heavy} == {}


def test_the_measure_of_functions_finds_a_heavy_one():
    docstring, line = '    """' + "a = 1\n" * 500 + '    """\n', "    a = 1\n"
    most = MOST_TOKENS // 3

    source = f"def light():\n{docstring}{most * line}def heavy():\n{(most + 1) * line}"
    assert find_heavy_functions(source) == ["heavy"]
