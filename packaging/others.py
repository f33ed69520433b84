"""Fail unless all users who can enter FOLDER, or its nearest existing parent, can run this Python.

For `make install` by root.
"""

import os
import subprocess
import sys

NOBODY = {"user": 65534, "group": 65534, "extra_groups": [], "stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def can_run(*words) -> bool:
    try:
        return subprocess.run(words, **NOBODY).returncode == 0
    except OSError:
        return False  # not executable; or a container in which root cannot become that user


def main():
    folder = os.path.abspath(sys.argv[1])
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    if can_run("/bin/sh", "-c", 'test -x "$1"', "sh", folder) and not can_run(sys.executable, "-IS", "-c", ""):
        python = os.path.realpath(sys.executable)
        sys.exit(
            f"solo: make install: other users cannot run {python} (make install PYTHON=/usr/bin/python3; "
            "or make install PREFIX=$HOME/.local, for root alone)"
        )


main()
