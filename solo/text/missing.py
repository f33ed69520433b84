"""The libraries that not every run needs, and what to say where they are missing. Cold."""

import importlib.util
import os
import shlex
import sys

LIBRARIES = {"typer": "typer>=0.15.4,<0.29", "rich": "rich>=13.3.1", "psutil": "psutil>=5.9.4"}  # as in pyproject.toml


def describe_missing(name) -> str:
    """What to do after module `name` was not found."""
    missing = [library for library in LIBRARIES if not importlib.util.find_spec(library)]
    if not missing:
        return f"module {name} is missing: Python, or solo, is not wholly installed"
    command = describe_install({library: LIBRARIES[library] for library in missing})
    return f"this Python has no {', '.join(missing)}, which only a guarded run does without: {command}"


def describe_install(requirements: dict) -> str:
    """Return a command, to be typed as it is, that installs the libraries that are the keys: by apt, or by pip and the values."""
    if (sys.executable or "").startswith("/usr/bin/") and os.path.exists("/usr/bin/apt"):
        return "apt install " + " ".join(f"python3-{library}" for library in requirements)
    python = shlex.quote(sys.executable or "python3")
    wanted = " ".join(f"'{requirement}'" for requirement in requirements.values())
    if importlib.util.find_spec("pip"):
        return f"{python} -m pip install {wanted}"
    if importlib.util.find_spec("ensurepip"):
        # `make install` leaves no pip behind, and no other Python here need have one.
        return f"{python} -m ensurepip && {python} -m pip install {wanted}"
    return f"uv pip install --python {python} {wanted}"  # the one installer that needs neither
