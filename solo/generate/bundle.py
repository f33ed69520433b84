"""Makes the launcher in one file, for `make install`: importing its modules one by one takes twice the time.

`python -m solo.generate.bundle PYTHON SITE BUNDLE STAGED` writes the bundle to STAGED and prints the script that loads
it from BUNDLE. The script imports the modules one by one if the bundle has the magic number of another Python, or is
not the bundle that the script was made for, as in the middle of an installation.
"""

import ast
import fcntl
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER

FIRST = "solo.main"

# Kept short: Python compiles a script anew at each start.
SCRIPT = """#!{python} -IS
# Made by `make install`.
import _signal
if _signal.getsignal(2) is _signal.default_int_handler: _signal.signal(2, _signal.SIG_DFL)
import posix, sys
from _frozen_importlib_external import MAGIC_NUMBER
sys.path.append({site!r})
try:
    try:
        fd = posix.open({bundle!r}, posix.O_CLOEXEC)
        data = posix.read(fd, {size})
    except OSError: data = b""
    if data[-4:] == MAGIC_NUMBER:
        import marshal
        loader, modules = marshal.loads(data)
        del data
        exec(loader)
        del loader, modules
    from solo.main import main
    main()
except Exception as error:
    try: posix.write(2, f"solo: cannot go on: {{str(error) or 'Cannot allocate memory'}}\\n".encode("ascii", "backslashreplace"))
    finally: posix._exit(125)
"""

# `rest` reuses the memory of `data`: unused memory costs a system call per page.
LOADER = """
try:
    rest = posix.read(fd, {size} + 1)
except OSError:
    rest = b""
posix.close(fd)
if len(rest) != {size}:
    modules = ()
import gc
gc.set_threshold({threshold})
fcntl = {fcntl!r}
if fcntl:
    from _frozen_importlib import ModuleSpec, _load
    from _frozen_importlib_external import ExtensionFileLoader
    try:
        _load(ModuleSpec("fcntl", ExtensionFileLoader("fcntl", fcntl), origin=fcntl))
    except ImportError:
        pass
loads = marshal.loads

class Later:
    __slots__ = ("name", "space")
    def __init__(self, name, space):
        self.name = name
        self.space = space
    def __call__(self, *words, **options):
        if self.space[self.name] is self:
            exec(loads(rest[self.space["LATER"]]), self.space)
        return self.space[self.name](*words, **options)

package = None
for name, code, later, names in modules:
    module = sys.modules[name] = type(sys)(name)
    if package is None:
        package = module
        package.__path__ = [sys.path[-1] + "/solo"]
    else:
        setattr(package, name[5:], module)
    space = module.__dict__
    if names:
        space["LATER"] = slice(*later)
        for name in names:
            space[name] = Later(name, space)
    exec(code, space)
"""

# Collect garbage rarely: a start makes many objects, and none of them is garbage.
THRESHOLD = 100_000

LINES = "co_linetable" if sys.version_info >= (3, 10) else "co_lnotab"

# A line a module: the functions that an ordinary run calls (tests/ordinary_run.py). The rest is loaded at its first
# call.
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ordinary_run.list")


def read_recorded() -> dict:
    """{module: the names of its functions that an ordinary run calls}"""
    with open(RECORDED) as file:
        return {module: set(names.split()) for module, _, names in (line.partition(":") for line in file)}


def find_path(module: str) -> str:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(folder, "__init__.py" if module == "solo" else module.removeprefix("solo.") + ".py")


def order_modules(module: str, ordered: list) -> list:
    """Append to `ordered` the modules of solo that `module` imports at its top, then `module` itself."""
    with open(find_path(module)) as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "solo":
            names = [f"solo.{alias.name}" for alias in node.names] if node.module == "solo" else [node.module]
            for name in names:
                if name not in ordered:
                    order_modules(name, ordered)
    ordered.append(module)
    return ordered


def strip(code):
    """Return the code without its line numbers, a third of its size: solo never shows a traceback."""
    constants = tuple(strip(constant) if hasattr(constant, "co_code") else constant for constant in code.co_consts)
    return code.replace(co_consts=constants, **{LINES: b""})


class Untyped(ast.NodeTransformer):
    """Removes what only type checkers read: a start would load and evaluate it."""

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_If(self, node):
        if ast.unparse(node.test) != "TYPE_CHECKING":
            return self.generic_visit(node)
        return node.orelse


def split(source: str, at_hand: set) -> tuple:
    """Return (the tree that is executed at once, the tree of the functions that are loaded later, their names)."""
    tree = Untyped().visit(ast.parse(source))
    later = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name not in at_hand]
    tree.body = [node for node in tree.body if node not in later]
    return tree, ast.Module(later, []), tuple(node.name for node in later)


def make_bundle() -> tuple:
    """Return two bytes objects: the part that is read first, and the rest."""
    modules, rest, recorded = [], b"", read_recorded()
    for module in ["solo", *order_modules(FIRST, [])]:
        with open(find_path(module)) as file:
            now, later, names = split(file.read(), recorded.get(module.removeprefix("solo."), set()))
        now, later = (strip(compile(tree, "", "exec", dont_inherit=True, optimize=2)) for tree in (now, later))
        start, rest = len(rest), rest + marshal.dumps(later)
        modules.append((module, now, (start, len(rest)), names))
    path = getattr(fcntl, "__file__", None)
    loader = compile(LOADER.format(size=len(rest), threshold=THRESHOLD, fcntl=path), "loader", "exec", optimize=2)
    return marshal.dumps(
        (loader, tuple(modules))
    ) + MAGIC_NUMBER, rest  # last: removing it from the front would copy the data


def main():
    python, site, bundle, staged = sys.argv[1:]
    first, rest = make_bundle()
    with open(staged, "wb") as file:
        file.write(first + rest)
    sys.stdout.write(SCRIPT.format(python=python, site=site, bundle=bundle, size=len(first)))


if __name__ == "__main__":
    main()
