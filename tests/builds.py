"""make and its products: installations, packages, one file, and copies of the source tree to make
them from.
"""

import os
import shutil
import subprocess
import sys

from conftest import CAPTURED, PATIENCE, PIPES, ROOT, need_namespaces

IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", "dist", "build", "__pycache__", ".*_cache", ".hypothesis"
)


def run(*words, **options):
    """Run a program to its end; its stdout and stderr are text."""
    need_namespaces(words)
    return subprocess.run(
        list(map(str, words)), **{**CAPTURED, "text": True, "timeout": 4 * PATIENCE, **options}
    )


def start(*words, **options):
    """Start a program in a new session."""
    options = {
        **PIPES,
        "stdin": subprocess.DEVNULL,
        "text": True,
        "start_new_session": True,
        **options,
    }
    return subprocess.Popen(list(map(str, words)), **options)


def make(
    *words, start=run, source=ROOT, python=sys.executable, prefix=(), options=None, **variables
):
    """Run make in a source tree, without what a make around the tests has set; `options` are those
    of Popen.
    """
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("MAKE", "MFLAGS")) and key != "PYTHON"
    }
    words = [
        *prefix,
        "make",
        "--no-print-directory",
        "-C",
        source,
        *([f"PYTHON={python}"] if python else []),
        *words,
    ]
    return start(*words, env={**environment, **variables}, **(options or {}))


def install(prefix, *words, **options):
    """Run `make install`, which must succeed; return its result."""
    result = make("install", f"PREFIX={prefix}", *words, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def make_bare_python(folder):
    """Make a Python without libraries and without pip."""
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    return folder / "bin/python"


def make_pyz(path):
    """Make the program in one file, any of whose users may be without libraries."""
    assert run(sys.executable, ROOT / "packaging/pyz.py", path).returncode == 0
    return path
