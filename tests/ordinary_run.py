"""Record which functions an ordinary run calls, into solo/generate/ordinary_run.list: the bundle of `make install` loads these at once."""

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CALLED = """
import sys, posix
called, exit = {{}}, posix._exit

def note(frame, event, _):
    module = frame.f_globals.get("__name__", "")
    if event == "call" and module.startswith("solo.") and frame.f_code.co_filename.endswith(".py"):
        called.setdefault(module[5:], set()).add(frame.f_code.co_name)

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


def record(environment: dict, folder: Path) -> dict:
    """{module: the names of its functions that a run of true calls} in its launcher and child. Writes below `folder`."""
    subprocess.run(
        [sys.executable, "-m", "solo", "-n", "job", "true"], env=environment, cwd=ROOT, check=True
    )  # makes its directories
    output = folder / "called"
    code = CALLED.format(output=str(output), root=str(ROOT))
    subprocess.run([sys.executable, "-IS", "-c", code], env=environment, check=True)
    called = {}
    for part in (output, folder / "called.child"):
        for module, names in ast.literal_eval(part.read_text()).items():
            called.setdefault(module, set()).update(names & list_functions(module))
    return {module: names for module, names in called.items() if names}


def list_functions(module: str) -> set:
    tree = ast.parse((ROOT / "solo" / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def main():
    with tempfile.TemporaryDirectory() as folder:
        called = record({**os.environ, "SOLO_DIR": f"{folder}/names"}, Path(folder))
    lines = [f"{module}: {' '.join(sorted(names))}\n" for module, names in sorted(called.items())]
    (ROOT / "solo/generate/ordinary_run.list").write_text("".join(lines))


if __name__ == "__main__":
    main()
