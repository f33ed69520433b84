"""Makes the launcher in one file, for `make install`: importing its modules one by one takes twice the time.

`python -m solo.generate.bundle PYTHON SITE BUNDLE STAGED` writes the bundle to STAGED and prints the script that loads
it from BUNDLE, both with the cache tag of the Python added: `launcher-` to `launcher-cpython-311`. The script imports
the modules one by one if its Python has no bundle, or that is not the bundle that the script was made for, as in the
middle of an installation.

The bundle has all modules at the top of solo/ and those of the folders below, merged (merge.py): first what an ordinary
run uses, then, in the rest, the parts that are loaded when they are wanted.
"""

import ast
import fcntl
import marshal
import os
import sys
from hashlib import sha256
from itertools import accumulate

from solo.generate.merge import Merger, Untyped

FIRST = "solo.main"
FOLDERS = ("process", "contention", "text", "engines")  # the other modules are imported from their files

# Kept short: Python compiles a script anew at each start.
SCRIPT = """#!{python} -IS
# Made by `make install`.
import _signal
if _signal.getsignal(2) is _signal.default_int_handler: _signal.signal(2, _signal.SIG_DFL)
import marshal, posix, sys
sys.path.append({site!r})
last_words = b"solo: cannot continue: Cannot allocate memory\\n"
try:
    try: exec(marshal.loads(posix.read(fd := posix.open({path!r} + sys.implementation.cache_tag, posix.O_CLOEXEC), size := {size})))
    except Exception: from solo.main import main
    main()
except Exception as error:
    if str(error): last_words = f"solo: cannot continue: {{error}}\\n".encode("ascii", "backslashreplace")
finally:
    try: posix.write(2, last_words)
    finally: posix._exit(125)
"""

# Executed before what is at hand, which defines `main`. `_near` is the next piece of the bundle, up to its tag. The
# first use of a part replaces these functions by those of INDEX.
BEGIN = """
import gc
_near = posix.read(fd, {near})
posix.close(fd)
if _near[-8:] != {tag!r} or len(_near) != {near}:
    raise EOFError
gc.set_threshold({threshold})
if {fcntl!r}:
    import _imp
    try:
        sys.modules["fcntl"] = fcntl = _imp.create_dynamic(type(sys.implementation)(name="fcntl", origin={fcntl!r}))
        _imp.exec_dynamic(fcntl)
    except ImportError:
        pass

def _open():
    exec(marshal.loads(_near[{index}:]), globals())

def _late(name):
    _open()
    return _late(name)

def _find_method(self, name):
    _open()
    return _find_method(self, name)

def _late_method(self, name):
    if name in {methods!r}:
        return _find_method(self, name)
    raise AttributeError(name)

def _expose():
    _open()
    _expose()
"""
# A part has the name of its module or class. `_loading` keeps other threads from seeing half of a part. If another
# bundle was installed meanwhile, `_import` loads the module of the part from its file.
INDEX = """
from _thread import RLock

_near_slices, _far_slices, _owners, _methods, _renamed = {tables!r}
_loaded, _loading = set(), RLock()

def _load(key, finish=None):
    is_locked = _loading.acquire(True, 10)  # with a limit: after a fork, its thread may be gone
    try:
        if key not in _loaded:
            data = _read(key)
            if data:
                exec(marshal.loads(data), globals())
            else:
                _import(key)
            if finish is not None:
                finish()
            _loaded.add(key)
    finally:
        if is_locked:
            _loading.release()

def _read(key):
    if key in _near_slices:
        start, stop = _near_slices[key]
        return _near[start:stop]
    start, stop = _far_slices[key]
    try:
        fd = posix.open({path!r} + sys.implementation.cache_tag, posix.O_CLOEXEC)
    except OSError:
        return b""
    try:
        at = size + len(_near)
        return posix.pread(fd, stop - start, at + start) if posix.pread(fd, 8, at - 8) == {tag!r} else b""
    finally:
        posix.close(fd)

def _import(key):
    _expose()
    del sys.modules[key]
    module = __import__(key, None, None, ["*"])
    originals = {{merged: name for name, merged in _renamed[key].items()}}
    for name, owner in _owners.items():
        if owner == key:
            globals()[name] = getattr(module, originals.get(name, name), None)

def _late(name):
    key = _owners.get(name)
    if key is not None and key not in _loaded:
        _load(key)
    return globals()[name]

def _find_method(self, name):
    for found in type(self).__mro__:
        key = found.__name__
        if name in _methods.get(key, ()) and globals()[key] is found:
            _load(key, lambda: [setattr(found, one, vars(_Methods)[one]) for one in _methods[key]])
            return getattr(self, name)
    raise AttributeError(name)

def _expose():
    for module, renamed in _renamed.items():
        if module not in sys.modules and module != "solo":  # a package: its file is loaded
            sys.modules[module] = type(sys)(module)
            sys.modules[module].__getattr__ = _make_finder(renamed)

def _make_finder(renamed):
    def find(name):
        try:
            return _late(renamed.get(name, name))
        except KeyError:
            raise AttributeError(name) from None
    return find
"""

# Collect garbage rarely: a start makes many objects, and none of them is garbage.
THRESHOLD = 100_000

LINES = "co_linetable" if sys.version_info >= (3, 10) else "co_lnotab"

# A line a module: the names that an ordinary run uses (tests/ordinary_run.py).
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ordinary_run.list")


def read_recorded() -> dict:
    """{module: its names that an ordinary run uses, a method as `Class.method`}"""
    with open(RECORDED) as file:
        return {f"solo.{module}": set(names.split()) for module, _, names in (line.partition(":") for line in file)}


def find_path(module: str) -> str:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(folder, *(module.split(".")[1:] or ["__init__"])) + ".py"


def read_sources() -> dict:
    """{module: its source}: those that FIRST imports and the bundle has, a module after those that it imports at its
    top.
    """
    sources: dict = {}
    waiting = [FIRST]
    while waiting:
        waiting += add_source(waiting.pop(), sources)
    return sources


def add_source(module: str, sources: dict) -> list:
    """Add a module and those that it imports at its top. Return those that it imports elsewhere."""
    with open(find_path(module)) as file:
        source = file.read()
    tree = Untyped().visit(ast.parse(source))
    top = [name for node in tree.body for name in list_imported(node)]
    later = [name for node in ast.walk(tree) for name in list_imported(node) if name not in top]
    for name in top:
        if name not in sources:
            later += add_source(name, sources)
    sources.setdefault(module, source)
    return [name for name in later if name not in sources]


def list_imported(node) -> list:
    """Return the modules that an import statement names and the bundle has."""
    if not isinstance(node, ast.ImportFrom) or not node.module or node.module.partition(".")[0] != "solo":
        return []
    names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    places = [name.split(".") for name in names if os.path.isfile(find_path(name))]
    return [".".join(place) for place in places if len(place) < 3 or place[1] in FOLDERS]


def strip(code):
    """Return the code without its line numbers, a third of its size: solo never shows a traceback."""
    constants = tuple(strip(constant) if hasattr(constant, "co_code") else constant for constant in code.co_consts)
    return code.replace(co_consts=constants, **{LINES: b""})


def dump(tree) -> bytes:
    tree = ast.fix_missing_locations(tree if isinstance(tree, ast.AST) else ast.parse(tree))
    return marshal.dumps(strip(compile(tree, "", "exec", dont_inherit=True, optimize=2)))


def make_bundle(path: str, used: dict, index: str) -> tuple:
    """Return three bytes objects: what is at hand, with the names `used`; what is near; and what is far."""
    merged = Merger(read_sources(), used).merge()
    parts = {key: dump(tree) for key, tree in {**merged.parts, **merged.methods}.items()}
    near, far = (
        {key: data for key, data in parts.items() if (key.count(".") > 1) == is_far} for is_far in (False, True)
    )
    methods = {key: tuple(node.name for node in tree.body[-1].body) for key, tree in merged.methods.items()}
    tag = sha256(b"".join([ast.dump(merged.at_hand).encode(), *parts.values()])).digest()[:8]
    tables = slice_up(near), slice_up(far), merged.owners, methods, merged.renamed
    last = dump(index.format(tables=tables, path=path, tag=tag)) + tag
    values = {
        "tag": tag,
        "index": sum(map(len, near.values())),
        "near": sum(map(len, near.values())) + len(last),
        "threshold": THRESHOLD,
        "fcntl": getattr(fcntl, "__file__", None),
        "methods": {name for names in methods.values() for name in names},
    }
    merged.at_hand.body[:0] = ast.parse(BEGIN.format(**values)).body
    return dump(merged.at_hand), b"".join([*near.values(), last]), b"".join(far.values())


def slice_up(parts: dict) -> dict:
    """{key: (start, stop)} of the parts, one after the other"""
    stops = list(accumulate(map(len, parts.values())))
    return dict(zip(parts, zip([0, *stops], stops)))


def make(python: str, site: str, path: str, used: dict, staged: str = "", index: str = INDEX) -> str:
    """Write the bundle for `path` to `staged`, by default `path` itself. Return the script that loads it."""
    at_hand, near, far = make_bundle(path, used, index)
    with open((staged or path) + sys.implementation.cache_tag, "wb") as file:
        file.write(at_hand + near + far)
    return SCRIPT.format(python=python, site=site, path=path, size=len(at_hand))


def main():
    python, site, path, staged = sys.argv[1:]
    sys.stdout.write(make(python, site, path, read_recorded(), staged))


if __name__ == "__main__":
    main()
