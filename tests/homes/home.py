"""A solo that every user can run, by the launcher of the source tree or installed, and what a
command inherits with and without it.

SOLO_INSTALLED names an installed solo to test instead of one from `make install`.
"""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from builds import install
from conftest import (
    PATIENCE,
    PIPES,
    copy_libraries,
    copy_package,
    in_mounts,
    need_namespaces,
    open_to_all,
    until,
    write_script,
)

PERL = ["/usr/bin/perl", str(Path(__file__).with_name("probe.pl"))]
VOLATILE = {
    "_",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "TMUX",
    "TMUX_PANE",
    "SUDO_COMMAND",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
}


def make_once(factory, name, make):
    """Let one of the workers `make(path)` a directory with this name; return its path to all."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            place.mkdir()
            make(place)
            (place / "made").touch()
    return place


def install_source(place):
    copy_package(place)
    copy_libraries(place)
    write_script(place)


def install_by_make(place):
    install(f"{place}/usr", python="/usr/bin/python3")


LAUNCHERS = {"source": (install_source, "run"), "installed": (install_by_make, "usr/bin/solo")}


@pytest.fixture(
    name="launcher",
    scope="session",
    params=["source", pytest.param("installed", marks=pytest.mark.full)],
)
def install_launcher(request, tmp_path_factory):
    """Return a solo that every user can run."""
    if request.param == "installed" and "SOLO_INSTALLED" in os.environ:
        return os.environ["SOLO_INSTALLED"]
    make, script = LAUNCHERS[request.param]
    place = make_once(tmp_path_factory, request.param, make)
    open_to_all(place)
    return place / script


@pytest.fixture(name="home")
def make_home(launcher, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts").chmod(0o1777)
    return Home(launcher, tmp_path)


class Home:
    """One directory with the facts of two commands, one `guarded`, and a directory of names."""

    def __init__(self, launcher, path):
        self.launcher = str(launcher)
        self.path = path
        # a stub reads the dispositions before Python does
        self.is_exact = not self.launcher.endswith("/run") and shutil.which("cc") is not None

    def make_words(self, guarded):
        probe = [*PERL, self.find_facts(guarded)]
        return (
            [self.launcher, "--dir", f"{self.path}/names", "-n", "job", "--", *probe]
            if guarded
            else probe
        )

    def find_facts(self, guarded):
        return f"{self.path}/facts/{'guarded' if guarded else 'plain'}"

    def compare(self, start):
        """Let `start(words)` run both commands below a parent; return (what it returned, facts) of
        each.
        """
        found = []
        for guarded in (False, True):
            status = start(self.make_words(guarded))
            path = Path(self.find_facts(guarded))
            until(path.exists)
            found.append((status, read_facts(path.read_text(), guarded)))
        return found


def read_facts(text, guarded):
    """Return the facts as {key: value}, with pids as roles: the launcher has that of the command
    without solo.
    """
    facts = {"variables": {}}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "variable":
            variable, _, value = bytes.fromhex(value).partition(b"=")
            facts["variables"][os.fsdecode(variable)] = value
        elif key == "ids":
            pid, parent, grandparent, *ids = value.split()
            roles = {pid: "self", parent: "parent"}
            if guarded:
                roles = {pid: "self", parent: "self", grandparent: "parent"}
            if (named := facts["variables"].get("SYSTEMD_EXEC_PID")) is not None:
                facts["variables"]["SYSTEMD_EXEC_PID"] = named == pid.encode()
            facts[key] = [roles.get(number, "other") for number in (ids[0], ids[1], ids[3])] + [
                ids[2] != "0"
            ]
        elif key == "link":
            path, _, target = value.partition(" ")
            facts[path] = re.sub(r"\d[\da-f]*", "N", target) if "/fd/" in path else target
        else:
            facts[f"{key} {value.rpartition(' ')[0]}" if key in ("limit", "value") else key] = value
    for variable in list(facts["variables"]):
        if variable in VOLATILE or variable in ("SOLO_NAME", "SOLO_TOKEN"):
            del facts["variables"][variable]
    return facts


def run(*words, **options):
    """Run a parent to its end; return its status."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, timeout=PATIENCE, **options).returncode


SETUP = """
set -e
for place in /run /var/lib /home; do mount -t tmpfs -o mode=755 tmpfs $place; done
grep -v ^www-data: /etc/passwd >/run/passwd
chmod 644 /run/passwd
mount --bind /run/passwd /etc/passwd
echo 'www-data:x:33:33::/home/www:/bin/sh' >>/etc/passwd
echo 'alice:x:3001:3001::/home/alice:/bin/sh' >>/etc/passwd
echo 'rootless:x:3002:3002::/:/bin/sh' >>/etc/passwd
mkdir /home/www && install -d -m 700 -o 3001 -g 3001 /home/alice && exec sleep infinity
"""


class Machine:
    """This machine with an empty /run, /var/lib and /home, and the users alice, whose home is 0700,
    and www-data, whose home is root's.
    """

    def __init__(self, launcher):
        self.launcher = str(launcher)
        need_namespaces(in_mounts(SETUP))
        self.process = subprocess.Popen(in_mounts(SETUP)[:-1], stdin=subprocess.DEVNULL)
        comm = Path(f"/proc/{self.process.pid}/comm")
        until(lambda: self.process.poll() is not None or comm.read_text() == "sleep\n")
        if self.process.poll() is not None:
            pytest.skip("cannot mount")
        self.started = []

    def start(self, uid, *words, **environment):
        """Start a command as a user, as cron would: with an environment of its own."""
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid else []
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--root", *become, *words]
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment}
        self.started.append(subprocess.Popen(enter, env=clean, cwd="/", text=True, **PIPES))
        return self.started[-1]

    def run(self, uid, *words, **environment):
        """Run it to its end; return (status, stdout, stderr)."""
        process = self.start(uid, *words, **environment)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def solo(self, uid, *words, **environment):
        return self.run(uid, self.launcher, *words, **environment)

    def type(self, line):
        """Let root type a line."""
        status, out, err = self.run(0, "sh", "-c", f'solo() {{ {self.launcher} "$@"; }}; {line}')
        assert status == 0, (line, err)
        return out

    def close(self):
        for process in (*self.started, self.process):
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                stream.close()


@pytest.fixture(name="machine")
def make_machine(launcher):
    made = Machine(launcher)
    yield made
    made.close()


def find_remedy(message):
    """Return the line that root is to type, the end of a message of one line."""
    assert message.count("\n") == 1, message
    return re.search(r"[( ]as root: (.*?)(?:; or .*)?\)\n", message)[1]
