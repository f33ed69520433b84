"""A container with a real systemd as pid 1: Debian, built once by debootstrap, booted by nspawn,
entered by nsenter.

Changes to its root are discarded; /lab is a directory of the test. /usr/local/bin/solo runs on
Debian's Python.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from conftest import CAPTURED, PATIENCE, ROOT, TESTS, copy_package, until, use_network, write_solo

PACKAGES = "systemd,systemd-sysv,dbus,libpam-systemd,python3-minimal,libpython3-stdlib,procps"
TEMPLATES = sorted(ROOT.glob("*/systemd/solo*"))
UNITS = TESTS / "units"
ROOTS = ROOT / "build/roots"  # minimal Debians, built once by debootstrap
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


class Inside:
    """The namespaces and the root of a process. `leader` is its pid in the namespace of the test,
    `lab` the /lab inside.
    """

    def __init__(self, leader: int, lab: Path):
        self.leader, self.lab = leader, lab

    def enter(self, *words) -> list:
        """Return words that run a command inside."""
        return ["nsenter", f"--target={self.leader}", "--all", "--root", "--wd", *map(str, words)]

    def run(self, *words, user=None):
        """Run a command inside to its end, optionally as another user."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.run(self.enter(*become, *words), env=ENVIRONMENT, text=True, **CAPTURED)

    def do(self, *words):
        """Run a command that must succeed; return its stdout."""
        result = self.run(*words)
        assert result.returncode == 0, (words, result.stdout, result.stderr)
        return result.stdout.strip()


class Guest(Inside):
    """The booted machine; `leader` is its pid 1."""

    def start(self, unit: str, *words, wait=()):
        """Start a command, after settings like User=alice and options of systemd-run, as
        `unit`.service.

        Return once systemd reports it as started.
        """
        words = [f"--property={word}" if re.match(r"[A-Z]\w+=", word) else word for word in words]
        return self.run("systemd-run", "--quiet", *wait, f"--unit={unit}", *words)

    def run_unit(self, unit: str, *words):
        """Run the unit to its end; return (exit status, messages)."""
        return self.start(unit, *words, wait=["--wait"]).returncode, self.read_messages(unit)

    def show(self, unit: str, name: str) -> str:
        return self.do("systemctl", "show", "--value", f"--property={name}", unit)

    def read_messages(self, unit: str) -> list:
        """Return the lines that the unit's processes wrote."""
        self.do("journalctl", "--sync")
        return self.do(
            "journalctl", "--no-pager", "--output=cat", f"_SYSTEMD_UNIT={unit}.service"
        ).splitlines()

    def make_log(self, log: str):
        """Create the log files of a service.py, writable for every user."""
        for file in (log, f"{log}.running"):
            (self.lab / file).touch()
            (self.lab / file).chmod(0o666)

    def read(self, log: str) -> list:
        """Return the lines that a service.py has written to `log` so far."""
        path = self.lab / log
        return path.read_text().splitlines() if path.exists() else []

    def wait_line(self, log: str, line: str, count: int = 1):
        """Wait until `log` has `count` lines that start with `line`."""
        until(lambda: sum(written.startswith(line) for written in self.read(log)) >= count)

    def wait_state(self, unit: str, *states):
        until(lambda: self.show(unit, "ActiveState") in states)


@contextmanager
def booted(lab: Path):
    """Boot with the test's and the package's units in /etc/systemd/system; yield the Guest. Skips
    if it does not boot.
    """
    root = get_root("trixie", PACKAGES)
    put_solo(lab)
    shutil.copy(TESTS / "service.py", lab)
    units = lab / "units"
    units.mkdir()
    for unit in [*UNITS.iterdir(), *TEMPLATES]:
        shutil.copy(unit, units)
    places = {
        units: "/etc/systemd/system",
        lab / "solo": "/usr/local/bin/solo",
        find_libraries(): "/libraries",
    }
    binds = [f"--bind-ro={outside}:{inside}" for outside, inside in places.items()]
    container = start_container(root, lab, *binds, "-b", "systemd.unit=multi-user.target")
    guest = Guest(0, lab)

    def is_up():
        guest.leader = guest.leader or find_leader(container.pid)
        if (
            guest.leader
            and guest.run("systemctl", "is-active", "multi-user.target").returncode == 0
        ):
            return True
        return container.poll() is not None

    until(is_up, patience=2 * PATIENCE)
    if container.poll() is not None:
        pytest.skip(f"systemd does not boot here: {(lab / 'console').read_text()[-300:]}")
    try:
        yield guest
    finally:
        os.kill(guest.leader, 9)
        container.wait()


def put_solo(lab: Path):
    """Copy solo from the tree, for the system's Python."""
    copy_package(lab / "source")
    write_solo(lab / "solo", "/lab/source", "/libraries", "/usr/bin/python3")


def find_libraries() -> str:
    return next(path for path in sys.path if path.endswith("site-packages"))


def find_leader(container: int, program: str = "systemd") -> int:
    """Return pid 1 of the `container` once it runs `program`, and 0 until then."""
    try:
        for child in Path(f"/proc/{container}/task/{container}/children").read_text().split():
            if os.readlink(f"/proc/{child}/exe").rpartition("/")[2] == program:
                return int(child)
    except OSError:
        pass
    return 0


def get_root(suite: str, packages: str) -> Path:
    """Return a minimal `suite` (bookworm, trixie) with `packages`, separated by commas. Skips if it
    cannot be built.

    Never write to it: mount an overlay over it.
    """
    root = ROOTS / f"{suite}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    ROOTS.mkdir(parents=True, exist_ok=True)
    with open(f"{root}.lock", "w") as lock:
        flock(lock, LOCK_EX)  # several workers may need the same root
        make_root(root, suite, packages)
    return root


def make_root(root: Path, suite: str, packages: str):
    if not (root / "ready").exists():
        shutil.rmtree(root, ignore_errors=True)
        words = [
            "unshare",
            "--mount",
            "debootstrap",
            "--variant=minbase",
            f"--include={packages}",
            suite,
            root,
        ]
        with (
            use_network()
        ):  # what debootstrap mounts ends with it, even if it is killed: the root can be removed
            made = subprocess.run(
                [*words, *find_mirror()], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
        if made.returncode:
            pytest.skip(f"debootstrap failed: {made.stdout[-200:]}")
        (root / "ready").touch()


def start_container(root: Path, lab: Path, *words) -> subprocess.Popen:
    """Start systemd-nspawn in a layer over `root`, with `lab` at /lab, where its output goes to
    `console`. Words: the rest.
    """
    streams = {
        "stdin": subprocess.DEVNULL,
        "stdout": open(lab / "console", "w"),
        "stderr": subprocess.STDOUT,
    }
    options = ["--register=no", "--keep-unit", "--volatile=overlay", f"--bind={lab}:/lab"]
    return subprocess.Popen(["systemd-nspawn", "-q", "-D", root, *options, *words], **streams)


def find_mirror() -> list:
    """Return [the mirror of this machine's apt], or [] if it is unknown."""
    for source in Path("/etc/apt").rglob("*.sources"):
        for line in source.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1:2]
    return []
