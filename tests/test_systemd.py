"""Under a real systemd, pid 1 of a container of our own: Debian's, made by debootstrap once and kept in /var/cache."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import ROOT, TESTS, until
from roots import get_root

pytestmark = [pytest.mark.root, pytest.mark.tool("debootstrap", "systemd-nspawn")]

PACKAGES = "systemd,systemd-sysv,dbus,python3-minimal,libpython3-stdlib,procps"


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    """What guest.sh left behind: a file per case."""
    root = get_root("bookworm", PACKAGES)
    lab = tmp_path_factory.mktemp("guest")
    shutil.copytree(ROOT / "solo", lab / "source/solo", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("guest.sh", "guest.py"):
        shutil.copy(TESTS / file, lab)
    script = (ROOT / "solo/__main__.py").read_text()
    (lab / "solo").write_text("#!/usr/bin/python3 -IS\nimport sys\nsys.path.insert(0, '/lab/source')\n" + script)
    (lab / "solo").chmod(0o755)
    (lab / "test.service").write_text("[Service]\nType=exec\nExecStart=sh /lab/guest.sh\n")
    units = lab / "units"
    units.mkdir()
    shutil.copy(lab / "test.service", units)
    (units / "multi-user.target.wants").mkdir()
    (units / "multi-user.target.wants/test.service").symlink_to("../test.service")
    container = subprocess.Popen(
        ["systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--volatile=overlay", f"--bind={lab}:/lab",
         f"--bind-ro={units}:/etc/systemd/system", "-b", "systemd.unit=multi-user.target"],
        stdin=subprocess.DEVNULL, stdout=open(lab / "console", "w"), stderr=subprocess.STDOUT,
    )
    try:
        until(lambda: (lab / "booted").exists() or container.poll() is not None, patience=120)
        if not (lab / "booted").exists():
            pytest.skip(f"systemd does not boot here: {(lab / 'console').read_text()[-300:]}")
        until(lambda: (lab / "done").exists(), patience=120)
        container.wait(60)
    finally:
        if container.poll() is None:
            container.kill()
            container.wait()
    return lab


@pytest.mark.parametrize("mode", ["control-group", "mixed", "process"])
def test_systemctl_stop_reaches_the_command_exactly_once(guest, mode):
    assert (guest / f"stop-{mode}").read_text() == "1"
    assert (guest / f"stop-{mode}.result").read_text().strip() == "success"


def test_the_command_ignores_sigpipe_as_services_do(guest):
    assert int((guest / "pipe-default").read_text().split()[1], 16) & (1 << 31) - 1 == 1 << 12


def test_a_killed_main_process_leaves_nothing_that_holds_the_name(guest):
    assert (guest / "killed.next").read_text() == "0\n"


def test_a_signal_to_the_main_process_alone_reaches_the_command(guest):
    assert (guest / "hup").read_text() == "caught\n"


def test_syslog_is_read_back_from_journald(guest):
    entries = [json.loads(line) for line in (guest / "journald").read_text().splitlines()]

    texts = [re.sub(r"\d+", "N", entry["MESSAGE"]) for entry in entries]
    assert texts == [
        "logged: started sh -c exit N as pid N", "logged: pid N ended with exit status N after Ns",
        "not started: logged: held by pid N, an ancestor of this process: it would wait for itself",
        "logged: started sleep N as pid N", "logged: pid N timed out and ended by signal N after Ns",
    ]
    assert [entry["PRIORITY"] for entry in entries] == ["6", "4", "4", "6", "4"]
    assert {(entry["SYSLOG_IDENTIFIER"], entry["SYSLOG_FACILITY"]) for entry in entries} == {("solo", "9")}
    assert all(entry["SYSLOG_PID"] == entry["_PID"] for entry in entries)
