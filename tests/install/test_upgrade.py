"""Replacing the installation in the middle of a run: every run ends as the version that it started
with ends it.
"""

import shutil
import signal
import sys

import pytest
from builds import IGNORED, install, make, run
from conftest import PATIENCE, ROOT, finish, read_line, until
from servers import Redis

pytestmark = pytest.mark.full

# Modules that an end loads late; in the other version each of them fails when it is loaded.
LATE = ("text", "contention", "process", "history", "engines")


@pytest.fixture(scope="module")
def other_version(tmp_path_factory):
    """A source tree of a version with which nothing of this one works together."""
    tree = tmp_path_factory.mktemp("other") / "source"
    shutil.copytree(ROOT, tree, ignore=IGNORED)
    text = (ROOT / "solo/__init__.py").read_text()
    (tree / "solo/__init__.py").write_text(
        text.replace("__version__ = ", "__version__ = 'other ' + ")
    )
    show = "import sys, solo.generate.bundle, solo.text.missing; print(*sys.modules)"
    needed = run(sys.executable, "-c", show, cwd=ROOT).stdout.split()  # by make install
    for folder in LATE:
        for path in (tree / "solo" / folder).glob("*.py"):
            if path.stem != "__init__" and f"solo.{folder}.{path.stem}" not in needed:
                path.write_text("raise SystemError('a module of another version')\n")
    return tree


@pytest.fixture
def installed(lab):
    """A lab whose solo is installed. `lab.replace()` is what happens to the installation."""
    lab.prefix = lab.path / "usr"
    install(lab.prefix)
    lab.plain, lab.script = lab.script, str(lab.prefix / "bin/solo")
    return lab


def install_twice(lab, other):
    """The second one removes this version's files."""
    for _ in range(2):
        install(lab.prefix, source=other)
    assert run(lab.script, "list").returncode == 125  # it is another version


def uninstall(lab, other):
    assert make("uninstall", f"PREFIX={lab.prefix}").returncode == 0
    assert not lab.prefix.exists()


def fill_journal(lab):
    """Make the journal of `full` so large that the next event rotates it."""
    assert lab.run("-n", "full", "true").returncode == 0
    [journal] = lab.directory.rglob("full/.journal")
    lines = journal.read_bytes()
    journal.write_bytes(lines * ((1 << 20) // len(lines) + 1))
    return journal


@pytest.mark.parametrize("replace", [install_twice, uninstall])
def test_every_end_is_that_of_the_version_that_started(installed, other_version, replace):
    lab = installed
    journal = fill_journal(lab)
    blocks = "echo; read line; exit "
    busy = lab.hold("busy")
    skipped = lab.start("-n", "busy", "-w", "20", "true")
    served = lab.start_waiter("busy", tag="served")
    ended = lab.start(
        "-n", "evicted", "sh", "-c", "trap 'echo term' TERM; echo; while :; do read line; done"
    )
    read_line(ended)
    evicts = lab.start("-n", "evicted", "--replace", "--kill-after", "20", "sh", "-c", "exit 8")
    assert read_line(ended) == "term"
    hook = lab.start(
        "-n",
        "hook",
        "--notify",
        f"echo $SOLO_STATUS >{lab.path}/hook; exit 1",
        "sh",
        "-c",
        blocks + "3",
    )
    limited = lab.start("-n", "limited", "-t", "1h", "--tree", "sh", "-c", blocks + "4")
    rotates = lab.start("-n", "full", "sh", "-c", blocks + "5")
    locks = lab.start(
        "-n", "slots", "--slots", "2", "--flock", lab.path / "file", "sh", "-c", blocks + "6"
    )
    superseded = lab.start("-n", "queue", "-w", "1h", "true") if lab.hold("queue") else None
    until(lambda: lab.count_waiting("queue") == 1)

    replace(lab, other_version)

    newest = lab.start_words(lab.plain, "-n", "queue", "--latest", "-w", "1h", "true")
    status, _, reason = finish(superseded)
    assert (status, reason.partition(" (")[0]) == (
        75,
        f"solo: queue: superseded by pid {newest.pid}",
    )
    newest.terminate()
    assert [finish(one, b"\n")[0] for one in (hook, limited, rotates, locks)] == [3, 4, 5, 6]
    until(lambda: (lab.path / "hook").exists() and (lab.path / "hook").read_text() == "3\n")
    assert journal.stat().st_size < 1 << 20  # rotated
    status, _, reason = finish(skipped)
    assert (status, reason.endswith("; waited 20s\n")) == (75, True), reason
    finish(busy)
    assert served.wait(PATIENCE) == 0 and lab.read_log() == ["served"]
    assert evicts.wait(PATIENCE) == 8 and ended.wait(PATIENCE) == -signal.SIGKILL
    lab.script = lab.plain
    until(lambda: sorted(row["outcome"] for row in lab.history("hook")) == ["failed", "unnotified"])


@pytest.mark.tool("redis-server")
@pytest.mark.parametrize("replace", [install_twice, uninstall])
def test_lease_is_released_by_the_version_that_acquired_it(installed, other_version, replace):
    lab = installed
    server = Redis(lab.path / "server").start()
    try:
        holder = lab.hold("job", "--via", server.url)
        waiter = lab.start(
            "-n", "job", "--via", server.url, "-w", "1h", "sh", "-c", "echo; read line; exit 7"
        )

        replace(lab, other_version)

        assert finish(holder)[0] == 0
        read_line(waiter)
        assert finish(waiter, b"\n")[0] == 7
    finally:
        server.stop()
