"""A container with a real systemd as pid 1: Debian, built once by debootstrap, booted by nspawn, entered by nsenter.

Changes to its root are discarded; /lab is a directory of the test. /usr/local/bin/solo runs on Debian's Python.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT, TESTS, until
from roots import get_root, start_container

PACKAGES = "systemd,systemd-sysv,dbus,libpam-systemd,python3-minimal,libpython3-stdlib,procps"
TEMPLATES = ROOT / "packaging/systemd"
UNITS = TESTS / "units"
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Inside:
    """The namespaces and the root of a process. `leader` is its pid in the namespace of the test."""

    def __init__(self, leader: int):
        self.leader = leader

    def enter(self, *words) -> list:
        """Return words that run a command inside."""
        return ["nsenter", f"--target={self.leader}", "--all", "--root", "--wd", *map(str, words)]

    def run(self, *words, user=None):
        """Run a command inside to its end, optionally as another user."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.run(
            self.enter(*become, *words),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def do(self, *words):
        """Run a command that must succeed; return its stdout."""
        result = self.run(*words)
        assert result.returncode == 0, (words, result.stdout, result.stderr)
        return result.stdout.strip()


class Guest(Inside):
    """The booted machine. `lab` is its /lab as the test sees it, `leader` is its pid 1."""

    def __init__(self, lab: Path, leader: int):
        super().__init__(leader)
        self.lab = lab

    def start(self, unit: str, *words):
        """Start `systemd-run PROPERTY... COMMAND...` as `unit`.service; return once systemd reports it as started."""
        return self.run("systemd-run", "--quiet", f"--unit={unit}", *words)

    def run_unit(self, unit: str, *words):
        """Run the unit to its end; return (exit status, messages)."""
        result = self.run("systemd-run", "--quiet", "--wait", f"--unit={unit}", *words)
        return result.returncode, self.read_messages(unit)

    def show(self, unit: str, name: str) -> str:
        return self.do("systemctl", "show", "--value", f"--property={name}", unit)

    def read_messages(self, unit: str) -> list:
        """Return the lines that the unit's processes wrote."""
        self.do("journalctl", "--sync")
        return self.do("journalctl", "--no-pager", "--output=cat", f"_SYSTEMD_UNIT={unit}.service").splitlines()

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


def boot(lab: Path):
    """Boot with the test's and the package's units in /etc/systemd/system; return (process, Guest). Skips if it does not boot."""
    root = get_root("trixie", PACKAGES)
    write_solo(lab)
    shutil.copy(TESTS / "service.py", lab)
    units = lab / "units"
    units.mkdir()
    for unit in [*UNITS.iterdir(), *TEMPLATES.iterdir()]:
        shutil.copy(unit, units)
    container = start_container(
        root,
        lab,
        f"--bind-ro={units}:/etc/systemd/system",
        f"--bind-ro={lab}/solo:/usr/local/bin/solo",
        f"--bind-ro={find_libraries()}:/libraries",
        "-b",
        "systemd.unit=multi-user.target",
    )
    guest = Guest(lab, 0)

    def is_up():
        guest.leader = guest.leader or find_leader(container.pid)
        if guest.leader and guest.run("systemctl", "is-active", "multi-user.target").returncode == 0:
            return True
        return container.poll() is not None

    until(is_up, patience=2 * PATIENCE)
    if container.poll() is not None:
        pytest.skip(f"systemd does not boot here: {(lab / 'console').read_text()[-300:]}")
    return container, guest


def write_solo(lab: Path):
    """Copy solo from the tree, for the system's Python."""
    shutil.copytree(ROOT / "solo", lab / "source/solo", ignore=shutil.ignore_patterns("__pycache__"))
    paths = "import sys\nsys.path.insert(0, '/lab/source')\nsys.path.append('/libraries')\n"
    (lab / "solo").write_text(
        "#!/usr/bin/python3 -IS\n" + paths + (ROOT / "solo/__main__.py").read_text().partition("\n")[2]
    )
    (lab / "solo").chmod(0o755)


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
