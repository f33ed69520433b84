"""Print the CPythons of this machine that solo supports, one `3.X:PATH` for each minor version.
Skip versions named as words.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

PROBE = "import sys, venv, ensurepip; print(sys.implementation.name, *sys.version_info[:2])"


def find_pythons() -> dict:
    """Return {minor version: path} of the pythons that can make a venv. For its own version, the
    running Python is used.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [
        Path(folder)
        for folder in (*os.environ["PATH"].split(os.pathsep), "/usr/local/bin", "/usr/bin")
    ]
    folders += sorted(pyenv.glob("versions/*/bin"))
    paths = [path for folder in folders for path in sorted(folder.glob("python3*"))]
    paths = [path for path in paths if re.fullmatch(r"python3(\.\d+)?", path.name)]
    found = {}
    for path in [sys.executable, *(path for path in paths if os.access(path, os.X_OK))]:
        tried = subprocess.run(
            [path, "-c", PROBE], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        kind, *version = tried.stdout.split() or [""]
        if kind == "cpython" and int(version[1]) >= 9:
            found.setdefault(int(version[1]), str(path))
    return found


for minor, path in sorted(find_pythons().items()):
    if f"3.{minor}" not in sys.argv[1:]:
        print(f"3.{minor}:{path}")
