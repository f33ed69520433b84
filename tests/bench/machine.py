"""Describe the machine, the date, the commit and the versions of a measurement, without the host name."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from measured import describe

PACKAGES = (
    "util-linux",
    "moreutils",
    "daemontools",
    "runit",
    "s6",
    "parallel",
    "etcd-server",
    "zookeeper",
    "redis-server",
    "postgresql",
)
LIBRARIES = ("filelock", "fasteners", "kazoo", "psycopg")


def describe_machine() -> dict:
    model = re.search(r"^(?:model name|CPU part)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        **describe(),
        "architecture": platform.machine(),
        "cpu": model[1] if model else "",
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "versions": find_versions(),
    }


def find_versions() -> dict:
    try:
        words = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
        lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        lines = []
    versions = dict(line.split(" ", 1) for line in lines if not line.endswith(" "))
    for library in LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            pass
    return versions
