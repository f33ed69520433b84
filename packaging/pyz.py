"""Make solo in one file: `python packaging/pyz.py OUTPUT`. The same source always gives the same bytes.

The file has sources, compiled at each start, since bytecode depends on the version of Python. They are stored, so that
no start has to unpack them.
"""

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
CHECK = 'import sys\nsys.version_info >= (3, 9) or sys.exit("solo: needs Python 3.9 or newer")\n'


def main():
    output = Path(sys.argv[1])
    paths = [path for path in (ROOT / "solo").rglob("*") if path.suffix in (".py", ".typed")]
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["__main__.py"] = CHECK.encode() + files["solo/__main__.py"]
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(output, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), files[name])
    os.chmod(output, 0o755)


main()
