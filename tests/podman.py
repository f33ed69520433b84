"""Containers of podman and crun, with their default seccomp profile, from an image that
packaging/container/Containerfile makes.

The base image, which a registry would have, is a Debian with Python. podman keeps everything in its
own directory.
"""

import shutil
import subprocess

import pytest
from builds import make_pyz
from conftest import ROOT, need_tools
from guest import PACKAGES, get_root

BASE = "docker.io/library/python:3.13-slim"  # of the Containerfile
# A machine that is a container itself can neither delegate cgroups nor raise limits.
CONFIGURATION = """\
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
log_driver = "none"
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
"""
# crun knows cgroup2 alone; podman refuses long paths, and its cache is always below /var/lib.
SETUP = """
umount -R /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit
mkdir -p /var/lib/containers && mount --bind "$STORE" /var/lib/containers || exit
exec "$@"
"""


class Podman:
    """A store of images and containers below `path`. The image is `report`."""

    def __init__(self, path):
        need_tools("podman", "crun", "debootstrap", "unshare")
        self.path = path
        self.configuration = path / "containers.conf"
        self.configuration.write_text(CONFIGURATION)
        self.prefix = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            SETUP,
            "sh",
            "podman",
            "--storage-driver=overlay",
        ]
        self.prefix += [
            f"--{place}=/var/lib/containers/{place}" for place in ("root", "runroot", "tmpdir")
        ]
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "STORE": str(path),
            "CONTAINERS_CONF": str(self.configuration),
            "BUILDAH_ISOLATION": "chroot",
        }
        found = subprocess.run(
            [*self.prefix, "info"], env=self.environment, capture_output=True, text=True
        )
        if found.returncode:
            pytest.skip(f"podman does not work on this machine: {found.stderr[-200:]}")

    def build(self):
        """Import the base image and build `report` from it."""
        pyz = make_pyz(self.path / "context/dist/solo.pyz")
        with open(self.path / "base.tar", "wb") as tar:
            root = get_root("trixie", PACKAGES)  # that of the tests of systemd
            subprocess.run(
                ["tar", "-C", root, "--exclude=./var/cache", "-c", "."], stdout=tar, check=True
            )
        self.check("import", "--quiet", self.path / "base.tar", BASE)
        recipe = ROOT / "packaging/container/Containerfile"
        self.check("build", "--pull=never", "-f", recipe, "-t", "report", pyz.parent.parent)
        return self

    def check(self, *words):
        """Run podman with these words; fails if it does."""
        done = subprocess.run(
            [*self.prefix, *words], env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words):
        """Start `podman run` with these words. Return its process."""
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen(
            [*self.prefix, "run", "--rm", *words], env=self.environment, **streams
        )

    def close(self):
        subprocess.run(
            [*self.prefix, "rm", "--all", "--force", "--time=0"],
            env=self.environment,
            capture_output=True,
        )
        shutil.rmtree(self.path, ignore_errors=True)
