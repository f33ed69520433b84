"""Make solo in one file: `python packaging/pyz.py OUTPUT`. The same source and the same libraries always give the same bytes.

The file has sources, compiled at each start, since bytecode depends on the version of Python. Those of solo are stored, so that
no start has to unpack them. It contains typer and rich with all that they need, for where they are not installed: those of this
Python, or else those of requirements.txt, by pip. Nothing that is compiled for one Python: not psutil, without which `show` and
`top` lack the processes, and no typer that needs pydantic.
"""

import os
import re
import sys
import tempfile
import zipfile
from importlib.metadata import distributions
from pathlib import Path

sys.dont_write_bytecode = True  # packages have every folder of packaging/
from install import Python, run_pip  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
START = """import sys
sys.version_info >= (3, 9) or sys.exit("solo: needs Python 3.9 or newer")
sys.version_info >= (3, 10) and sys.path.append(sys.path[0] + "/vendor")  # as typer needs
"""
LEXER = re.compile(r"pygments/lexers/(?!__init__|_mapping)")  # 9 MB, to highlight programs


def read_libraries() -> dict:
    """Return the files of typer and of what it needs. Without it, `top` on a terminal is not there: say so and return none."""
    found: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        read_library("typer", sys.path, found)
        if "typer" not in found or "pydantic" in found:
            found.clear()
            reason = run_pip(Python(sys.executable, [], False), folder)
            if reason:
                print(
                    f"solo: solo.pyz lacks typer and rich, for `top` and for help on a terminal: {reason}",
                    file=sys.stderr,
                )
            read_library("typer", [folder], found)
    return {path: data for files in found.values() for path, data in files.items()}


def find_library(name: str, places: list):
    return next(iter(distributions(name=name, path=places)), None)


def read_library(name: str, places: list, found: dict):
    """Add the files of a library in `places`, and of those that it needs, to `found`: {library: {path: bytes}}."""
    library = find_library(name, places)
    if library is None:
        return  # only other machines need it
    found[name] = {
        f"vendor/{path}": path.locate().read_bytes()
        for path in library.files or []
        if (path.suffix == ".py" and not LEXER.match(str(path))) or path.name.startswith("LICENSE")
    }
    for requirement in library.requires or []:
        needed = re.match(r"[\w.-]+", requirement)[0]
        if needed not in found and "extra ==" not in requirement:
            read_library(needed, places, found)


def main():
    output = Path(sys.argv[1])
    paths = [path for path in (ROOT / "solo").rglob("*") if path.suffix in (".py", ".typed")]
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["__main__.py"] = START.encode() + files["solo/__main__.py"]
    output.parent.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(
        output.parent.resolve()
    )  # a container may have no other place to write
    vendored = read_libraries()
    with open(output, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), files[name])
            for name in sorted(vendored):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), vendored[name], zipfile.ZIP_DEFLATED)
    os.chmod(output, 0o755)


main()
