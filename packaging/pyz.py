"""Make solo in one file: `python packaging/pyz.py OUTPUT`. The same source and the same rich always give the same bytes.

The file has sources, compiled at each start, since bytecode depends on the version of Python. Those of solo are stored, so that
no start has to unpack them. It contains rich, which draws the tables, for where none is installed: that of this Python, or else the
one of requirements.txt, by pip. It needs neither typer, as solo can print its help without, nor psutil, which is compiled
(process/proc.py).
"""

import os
import sys
import tempfile
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

sys.dont_write_bytecode = True  # packages have every folder of packaging/
from install import Python, run_pip  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
START = """import sys
sys.version_info >= (3, 9) or sys.exit("solo: needs Python 3.9 or newer")
sys.path.append(sys.path[0] + "/vendor")
"""


def read_rich() -> dict:
    """Return the files of rich. Without it, only tables on a terminal are missing: say so and return none."""
    with tempfile.TemporaryDirectory() as folder:
        if PathFinder.find_spec("rich") is None:
            reason = run_pip(Python(sys.executable, [], False), folder)
            if reason:
                print(f"solo: solo.pyz lacks rich, which draws tables on a terminal: {reason}", file=sys.stderr)
                return {}
        rich = Path(PathFinder.find_spec("rich", [folder, *sys.path]).origin).parent
        files = {f"vendor/rich/{path.relative_to(rich)}": path.read_bytes() for path in rich.rglob("*.py")}
        [licence] = rich.parent.glob("rich-*.dist-info/**/LICENSE")
        return {**files, "vendor/rich/LICENSE": licence.read_bytes()}


def main():
    output = Path(sys.argv[1])
    paths = [path for path in (ROOT / "solo").rglob("*") if path.suffix in (".py", ".typed")]
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["__main__.py"] = START.encode() + files["solo/__main__.py"]
    vendored = read_rich()
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(output, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), files[name])
            for name in sorted(vendored):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), vendored[name], zipfile.ZIP_DEFLATED)
    os.chmod(output, 0o755)


main()
