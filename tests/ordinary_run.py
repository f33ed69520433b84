"""Record which names an ordinary run uses, into solo/generate/ordinary_run.list: the bundle of `make install` has these at hand.

First a profiler finds the functions that are called, then bundles that report what they load find the rest, as classes
that are only compared with and methods that are only passed on.
"""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from solo.generate import bundle
from solo.generate.merge import Merger

ROOT = Path(__file__).resolve().parent.parent

CALLED = """
import sys, posix
called, exit = {{}}, posix._exit

def note(frame, event, _):
    module = frame.f_globals.get("__name__", "")
    if event == "call" and module.startswith("solo.") and frame.f_code.co_filename.endswith(".py"):
        called.setdefault(module, set()).add(frame.f_code.co_firstlineno)

def write_and_exit(status):
    sys.setprofile(None)
    fd = posix.open({output!r} + ("" if posix.getpid() == launcher else ".child"), posix.O_WRONLY | posix.O_CREAT)
    posix.write(fd, repr(called).encode())
    exit(status)

def write_and_execute(*words):
    sys.setprofile(None)
    fd = posix.open({output!r} + ".child", posix.O_WRONLY | posix.O_CREAT)
    posix.write(fd, repr(called).encode())
    execve(*words)

launcher, execve = posix.getpid(), posix.execve
posix._exit, posix.execve = write_and_exit, write_and_execute
sys.path.insert(0, {root!r})
sys.setprofile(note)
import solo.main
sys.argv = ["solo", "-n", "job", "--", "true"]
solo.main.main()
"""

# In the code that loads a part: print what is loaded, `name` or `Class.method`.
REPORTS = {
    "    return globals()[name]": "    posix.write(2, b'%b\\n' % name.encode())\n",
    "            return getattr(self, name)": "            posix.write(2, b'%b.%b\\n' % (key.encode(), name.encode()))\n",
}


def record(environment: dict, folder: Path) -> dict:
    """{module: the names that a run of true uses} in its launcher and child. Writes below `folder`."""
    subprocess.run(
        [sys.executable, "-m", "solo", "-n", "job", "true"], env=environment, cwd=ROOT, check=True
    )  # makes its directories
    used = find_called(environment, folder)
    while found := find_loaded(used, environment, folder):
        for module, name in found:
            used.setdefault(module, set()).add(name)
    return used


def find_called(environment: dict, folder: Path) -> dict:
    """{module: the functions, and methods as Class.method, that are called}"""
    output = folder / "called"
    code = CALLED.format(output=str(output), root=str(ROOT))
    subprocess.run([sys.executable, "-IS", "-c", code], env=environment, check=True)
    called = {}
    for part in (output, folder / "called.child"):
        for module, lines in ast.literal_eval(part.read_text()).items():
            defined = list_functions(module)
            called.setdefault(module, set()).update(name for line, name in defined.items() if line in lines)
    return {module: names for module, names in called.items() if names}


def list_functions(module: str) -> dict:
    """{the line where its code begins: the function, or Class.method}"""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    owned = [(part, f"{node.name}.") for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body]
    return {
        min(one.lineno for one in (node, *node.decorator_list)): prefix + node.name
        for node, prefix in [*((node, "") for node in tree.body), *owned]
        if isinstance(node, ast.FunctionDef)
    }


def find_loaded(used: dict, environment: dict, folder: Path) -> set:
    """{(module, name) that a bundle with the names `used` at hand loads in an ordinary run}"""
    index = bundle.INDEX
    for line, report in REPORTS.items():
        assert index.count(line) == 1
        index = index.replace(line, report + line)
    names = Merger(bundle.read_sources(), used).names
    origins = {merged: (target.module, target.name) for target, merged in names.items()}
    script = bundle.make(sys.executable, str(ROOT), str(folder / "bundle-"), used, index=index)
    (folder / "reporting").write_text(script)
    run = subprocess.run(
        [sys.executable, "-IS", folder / "reporting", "-n", "job", "true"],
        env=environment,
        check=True,
        capture_output=True,
    )
    loaded = (line.partition(".") for line in run.stderr.decode().splitlines())
    return {(origins[owner][0], origins[owner][1] + dot + method) for owner, dot, method in loaded}


def main():
    with tempfile.TemporaryDirectory() as folder:
        used = record({**os.environ, "SOLO_DIR": f"{folder}/names"}, Path(folder))
    lines = [f"{module.removeprefix('solo.')}: {' '.join(sorted(names))}\n" for module, names in sorted(used.items())]
    (ROOT / "solo/generate/ordinary_run.list").write_text("".join(lines))


if __name__ == "__main__":
    main()
