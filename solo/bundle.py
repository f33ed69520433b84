"""The launcher in one file, for `make install`: fourteen imports cost twice what loading their code at once does. Cold.

`python -m solo.bundle PYTHON SITE BUNDLE STAGED` writes the bundle to STAGED and prints the script that loads it from
BUNDLE. A Python of another version finds another magic number, and imports the modules one by one.
"""

import ast
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER

FIRST = "solo.main"

# As short as can be: Python compiles a script anew at each start.
SCRIPT = """#!{python} -IS
# Made by `make install`.
import _signal
if _signal.getsignal(2) is _signal.default_int_handler:
    _signal.signal(2, _signal.SIG_DFL)
import posix, sys
from _frozen_importlib_external import MAGIC_NUMBER
site = {site!r}
sys.path.insert(0, site)
try:
    fd = posix.open({bundle!r}, posix.O_RDONLY | posix.O_CLOEXEC)
    data = posix.read(fd, {size})
    posix.close(fd)
except OSError:
    data = b""
if data[:4] == MAGIC_NUMBER:
    import marshal
    loader, modules = marshal.loads(data[4:])
    exec(loader)
from solo.main import main
main()
"""

LOADER = """
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    if name == "solo":
        package = module
        package.__path__ = [site + "/solo"]
    else:
        setattr(package, name[len("solo."):], module)
    exec(code, module.__dict__)
"""


def find_path(module: str) -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(folder, "__init__.py" if module == "solo" else module.removeprefix("solo.") + ".py")


def order_modules(module: str, ordered: list) -> list:
    """What `module` imports of ours at its top, and what that imports, then itself: nothing before what it needs."""
    with open(find_path(module)) as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "solo":
            names = [f"solo.{alias.name}" for alias in node.names] if node.module == "solo" else [node.module]
            for name in names:
                if name not in ordered:
                    order_modules(name, ordered)
    ordered.append(module)
    return ordered


def strip(code):
    """Without its line numbers, a third of its size: no traceback is ever shown."""
    constants = tuple(strip(constant) if hasattr(constant, "co_code") else constant for constant in code.co_consts)
    return code.replace(co_consts=constants, co_linetable=b"")


def make_bundle() -> bytes:
    codes = []
    for module in ["solo", *order_modules(FIRST, [])]:
        with open(find_path(module)) as file:
            codes.append((module, strip(compile(file.read(), "", "exec", dont_inherit=True, optimize=2))))
    return MAGIC_NUMBER + marshal.dumps((compile(LOADER, "loader", "exec"), tuple(codes)))


def main():
    python, site, bundle, staged = sys.argv[1:]
    data = make_bundle()
    with open(staged, "wb") as file:
        file.write(data)
    sys.stdout.write(SCRIPT.format(python=python, site=site, bundle=bundle, size=len(data)))


if __name__ == "__main__":
    main()
