"""As test_parents.py, below cron, atd and systemd, in machines of their own: a layer over this root, and a booted container."""

import shutil

import pytest
from builds import install
from conftest import PATIENCE, TESTS, need_tools, until
from guest import Layer, booted, start_layer
from home import read_facts

pytestmark = [pytest.mark.root, pytest.mark.full, pytest.mark.tool("perl", "unshare", "nsenter")]

LAUNCHERS = {"source": "/lab/solo", "installed": "/lab/usr/bin/solo"}


def make_lines(parent):
    """Return {key: the line that writes its facts below this parent}."""
    probe = f"/usr/bin/perl /lab/probe.pl /lab/facts/{parent}."
    guarded = {key: f"{solo} --dir /lab/names/{parent}{key} -n job -- {probe}{key}" for key, solo in LAUNCHERS.items()}
    return {"plain": f"{probe}plain", **guarded}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Put the probe and an installed solo into a /lab to be."""
    lab = tmp_path_factory.mktemp("lab")
    lab.chmod(0o755)
    for folder in ("facts", "names", "stage"):
        (lab / folder).mkdir()
        (lab / folder).chmod(0o777 if folder == "facts" else 0o700)
    shutil.copy(TESTS / "homes/probe.pl", lab)
    install("/lab/usr", f"DESTDIR={lab}/stage", python="/usr/bin/python3")
    (lab / "stage/lab/usr").rename(lab / "usr")
    return lab


@pytest.fixture(scope="module")
def layer(lab):
    with start_layer(lab) as leader:
        machine = Layer(leader, lab)
        machine.clear_tables()
        machine.write("usr/sbin/sendmail", "#!/bin/sh\ncat >/dev/null\n")
        yield machine


@pytest.fixture(scope="module")
def guest(lab):
    need_tools("debootstrap", "systemd-nspawn")
    with booted(lab) as guest:
        yield guest


def start_by_cron(layer):
    need_tools("cron")
    table = "".join(f"* * * * * root {line}\n" for line in make_lines("cron").values())
    layer.write("etc/cron.d/homes", table, 0o644)
    return layer.start("cron", "-f")


def start_by_at(layer):
    need_tools("at", "atd")
    for line in make_lines("at").values():
        layer.do("sh", "-c", f"echo '{line}' | at now")
    return layer.start("atd", "-f")


def start_by_systemd(guest, parent="systemd", *settings):
    for line in make_lines(parent).values():
        guest.run_unit("homes", *settings, *line.split())
        guest.do("systemctl", "reset-failed", "homes")


PARENTS = {
    "cron": ("layer", start_by_cron),
    "at": ("layer", start_by_at),
    "systemd": ("guest", start_by_systemd),
    "SIGPIPE": ("guest", lambda guest: start_by_systemd(guest, "SIGPIPE", "IgnoreSIGPIPE=no")),
}


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.network) for name in PARENTS])
def facts(request, lab):
    machine, start = PARENTS[request.param]
    daemon = start(request.getfixturevalue(machine))
    paths = {key: lab / f"facts/{request.param}.{key}" for key in make_lines(request.param)}
    try:
        until(lambda: all(path.exists() for path in paths.values()), patience=2 * PATIENCE)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()
    return request.param, {key: read_facts(path.read_text(), key != "plain") for key, path in paths.items()}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_command_inherits_the_same_below_a_service_manager(facts, launcher):
    name, found = facts
    plain, guarded = dict(found["plain"]), dict(found[launcher])
    if (name, launcher) == ("SIGPIPE", "source"):  # systemd ignores SIGPIPE, and hands it on by default
        assert [int(facts.pop("SigIgn"), 16) & 0x1000 for facts in (plain, guarded)] == [0, 0x1000]

    assert guarded == plain
