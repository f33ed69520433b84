"""Make the program of an installation: every module of solo, compiled, in one file; and the script
that opens it.

    python -m solo.generate.bundle program SOURCE OUTPUT
    python -m solo.generate.bundle script PYTHON STUB SITE... PROGRAM

`STUB` is the path of the stub in front of the script, or empty. `SOURCE` is the directory of solo's
modules when it is installed: tracebacks name the files there. The script is printed. If the program
is missing, or made by another Python or from another source, the script imports solo from a SITE.

The program begins with HEAD bytes: the magic number of Python's bytecode, the tag of the source,
and the size of what every run needs, which follows. Then come the modules that some runs need.
"""

import ast
import marshal
import os
import sys
from hashlib import sha256
from importlib.util import MAGIC_NUMBER
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "solo.main"
LOADER = "solo.generate.loader"
TAG_SIZE = 8
HEAD = len(MAGIC_NUMBER) + TAG_SIZE + 4

# of the garbage collector: a start makes many objects, and none of them is garbage
THRESHOLD = 100_000

FROM_STUB = "sys._xoptions['solo_ignored'] = sys.argv.pop(1)\nsys.argv[0] = {stub!r}\n"
# Kept short: Python compiles a script anew at each start.
SCRIPT = """#!{python} -IS
import _signal
if _signal.getsignal(2) is _signal.default_int_handler: _signal.signal(2, _signal.SIG_DFL)
import gc, marshal, posix, sys
from _frozen_importlib_external import MAGIC_NUMBER
sys.path += {sites!r}
sys.dont_write_bytecode = True
{inherited}gc.set_threshold({threshold})
last_words = b"solo: cannot continue: Cannot allocate memory\\n"
try:
    try:
        head = posix.read(fd := posix.open({program!r}, posix.O_CLOEXEC), {head})
        if head[:-4] != MAGIC_NUMBER + {tag!r}: raise EOFError
        loader, *rest = marshal.loads(posix.read(fd, size := int.from_bytes(head[-4:], "little")))
        exec(loader)
        start(fd, {head} + size, *rest)
    except (OSError, EOFError): pass
    from solo.main import main
    main()
except Exception as error:
    if reason := getattr(error, "strerror", "") or str(error):
        text = f"solo: cannot continue: {{reason}}\\n"
        last_words = text.encode("ascii", "backslashreplace")
finally:
    try: posix.write(2, last_words)
    finally: posix._exit(125)
"""


def list_modules() -> "dict[str, Path]":
    """Return the modules of solo: {name: path of its source}."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def list_hot(modules: "dict[str, Path]") -> "list[str]":
    """Return what every run executes: FIRST and all that it imports at its top, each module after
    those it imports.
    """
    ordered: list[str] = []

    def add(name: str) -> None:
        for node in ast.parse(modules[name].read_bytes()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for found in (
                    node.module,
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                ):
                    if found in modules and found not in ordered:
                        add(found)
        ordered.append(name)

    add(FIRST)
    return ordered


def make_tag(modules: "dict[str, Path]") -> bytes:
    """Return what tells one source of solo from another."""
    return sha256(b"".join([path.read_bytes() for path in modules.values()])).digest()[:TAG_SIZE]


def make_program(source: str) -> bytes:
    """Return the program, for solo's modules in the directory `source`; without docstrings, which
    no run shows.
    """
    modules = list_modules()
    places = {name: f"{source}/{path.relative_to(ROOT)}" for name, path in modules.items()}
    codes = {
        name: compile(path.read_bytes(), places[name], "exec", dont_inherit=True, optimize=2)
        for name, path in modules.items()
    }
    hot = list_hot(modules)
    index, later = {}, b""
    for name in sorted(modules.keys() - {*hot, LOADER}):
        data = marshal.dumps(codes[name])
        index[name] = len(later), len(data), places[name]
        later += data
    first = marshal.dumps(
        (codes[LOADER], index, [(name, places[name], codes[name]) for name in hot])
    )
    return MAGIC_NUMBER + make_tag(modules) + len(first).to_bytes(4, "little") + first + later


def make_script(python: str, sites: "list[str]", program: str, stub: str) -> str:
    """Return the script. Behind a `stub` (packaging/stub.c) its first word is a mask of ignored
    signals.
    """
    return SCRIPT.format(
        python=python,
        sites=sites,
        program=program,
        inherited=FROM_STUB.format(stub=stub) if stub else "",
        threshold=THRESHOLD,
        head=HEAD,
        tag=make_tag(list_modules()),
    )


def main(what: str, *words: str) -> None:
    if what == "program":
        source, output = words
        staged = f"{output}.{os.getpid()}"
        with open(staged, "wb") as file:
            file.write(make_program(source))
        os.replace(staged, output)
    else:
        python, stub, *sites, program = words
        sys.stdout.write(make_script(python, sites, program, stub))


if __name__ == "__main__":
    main(*sys.argv[1:])
