"""The libraries that not every run needs, and what to say where they are missing. Cold."""

import importlib.util
import os
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
    """The command that gives this Python the libraries that are the keys: by Debian's packages, or by pip and the values."""
    if (sys.executable or "").startswith("/usr/bin/") and os.path.exists("/usr/bin/apt"):
        return "apt install " + " ".join(f"python3-{library}" for library in requirements)
    # `make install` leaves no pip behind.
    pip = f"{sys.executable} -m pip" if importlib.util.find_spec("pip") else f"python3 -m pip --python {sys.executable}"
    return f"{pip} install " + " ".join(f"'{requirement}'" for requirement in requirements.values())
