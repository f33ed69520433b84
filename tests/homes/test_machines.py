"""As test_parents.py, below cron, atd and systemd, in machines of their own: a layer over this root, and a booted container."""

import os
import shutil
import subprocess

import pytest
from conftest import PATIENCE, ROOT, TESTS, need_tools, until
from guest import Layer, boot, start_layer
from home import read_facts

pytestmark = [pytest.mark.root, pytest.mark.full, pytest.mark.tool("perl", "unshare", "nsenter")]

LAUNCHERS = {"source": "/lab/solo", "installed": "/lab/usr/bin/solo"}
PROBE = "/usr/bin/perl /lab/probe.pl /lab/facts"


def make_lines():
    """Return {key: the line that writes its facts}."""
    guarded = {key: f"{solo} --dir /lab/names/{key} -n job -- {PROBE}/{key}" for key, solo in LAUNCHERS.items()}
    return {"plain": f"{PROBE}/plain", **guarded}


def prepare(lab):
    """Put the probe and an installed solo into a /lab to be."""
    lab.chmod(0o755)
    for folder in ("facts", "names", "stage"):
        (lab / folder).mkdir()
        (lab / folder).chmod(0o777 if folder == "facts" else 0o700)
    shutil.copy(TESTS / "homes/probe.pl", lab)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    words = ["make", "-C", ROOT, "install", "PREFIX=/lab/usr", f"DESTDIR={lab}/stage", "PYTHON=/usr/bin/python3"]
    subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    (lab / "stage/lab/usr").rename(lab / "usr")


def read_all(lab, patience=PATIENCE):
    paths = {key: lab / "facts" / key for key in make_lines()}
    until(lambda: all(path.exists() for path in paths.values()), patience=patience)
    return {key: read_facts(path.read_text(), key != "plain") for key, path in paths.items()}


def start_cron(lab):
    need_tools("cron")
    with start_layer(lab) as leader:
        machine = make_layer(leader, lab)
        table = "".join(f"* * * * * root {line}\n" for line in make_lines().values())
        machine.write("etc/cron.d/homes", table, 0o644)
        with machine.start("cron", "-f") as cron:
            try:
                return read_all(lab, 2 * PATIENCE)
            finally:
                cron.terminate()


def start_at(lab):
    need_tools("at", "atd")
    with start_layer(lab) as leader:
        machine = make_layer(leader, lab)
        for line in make_lines().values():
            machine.do("sh", "-c", f"echo '{line}' | at now")
        with machine.start("atd", "-f") as atd:
            try:
                return read_all(lab)
            finally:
                atd.terminate()


def make_layer(leader, lab):
    machine = Layer(leader, lab)
    machine.clear_tables()
    machine.write("usr/sbin/sendmail", "#!/bin/sh\ncat >/dev/null\n")
    return machine


def start_systemd(lab, *properties):
    need_tools("debootstrap", "systemd-nspawn")
    container, guest = boot(lab)
    try:
        for line in make_lines().values():
            guest.run_unit("homes", *properties, *line.split())
            guest.do("systemctl", "reset-failed", "homes")
        return read_all(lab)
    finally:
        os.kill(guest.leader, 9)
        container.wait()


PARENTS = {
    "cron": start_cron,
    "at": start_at,
    "systemd": start_systemd,
    "systemd IgnoreSIGPIPE=no": lambda lab: start_systemd(lab, "--property=IgnoreSIGPIPE=no"),
}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.network) for name in PARENTS])
def facts(request, tmp_path_factory):
    lab = tmp_path_factory.mktemp("lab")
    prepare(lab)
    return request.param, PARENTS[request.param](lab)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_command_inherits_the_same_below_a_service_manager(facts, launcher):
    name, found = facts
    plain, guarded = dict(found["plain"]), dict(found[launcher])
    if (name, launcher) == (
        "systemd IgnoreSIGPIPE=no",
        "source",
    ):  # systemd ignores SIGPIPE, and hands it on by default
        assert [int(facts.pop("SigIgn"), 16) & 0x1000 for facts in (plain, guarded)] == [0, 0x1000]

    assert guarded == plain
