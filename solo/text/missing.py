"""The libraries that only subcommands need, and the message if one is missing: with how to get all
that are.
"""

import importlib.util
import os
import sys

# as in pyproject.toml
LIBRARIES = {"typer": "typer>=0.15.4", "rich": "rich>=13.3.1", "psutil": "psutil>=5.9.4"}


def describe_missing(name: "str | None") -> str:
    """Return the message for a module `name` that was not found, with a remedy."""
    library = str(name).partition(".")[0]
    if library not in LIBRARIES:
        remedy = (
            " (apt install python3: python3-minimal is not enough)"
            if os.path.exists("/usr/bin/apt")
            else ""
        )
        return f"module {name} is missing: Python, or solo, is not wholly installed{remedy}"
    lacking = {
        f"python3-{key}": LIBRARIES[key]
        for key in LIBRARIES
        if key == library or not importlib.util.find_spec(key)
    }
    return f"this subcommand needs {library} (install: {describe_install(lacking)})"


def describe_install(requirements: "dict[str, str]") -> str:
    """Return a command that installs libraries: the keys, Debian's packages, with apt, or the
    values with pip.
    """
    if (sys.executable or "").startswith("/usr/bin/") and os.path.exists("/usr/bin/apt"):
        return "apt install " + " ".join(requirements)
    import shlex  # python3-minimal lacks it

    python = shlex.quote(sys.executable or "python3")
    wanted = " ".join(f"'{requirement}'" for requirement in requirements.values())
    if importlib.util.find_spec("pip"):
        return f"{python} -m pip install {wanted}"
    if importlib.util.find_spec("ensurepip"):
        # `make install` leaves no pip behind, and no other Python on this machine may have one.
        return f"{python} -m ensurepip && {python} -m pip install {wanted}"
    return f"uv pip install --python {python} {wanted}"  # uv needs neither
