"""As test_parents.py, below the systemd of a booted container."""

import shutil

import pytest
from builds import install
from conftest import PATIENCE, TESTS, need_tools, until
from guest import booted
from home import read_facts

pytestmark = [
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.full,
    pytest.mark.tool("perl", "unshare", "nsenter"),
]

LAUNCHERS = {"source": "/lab/solo", "installed": "/lab/usr/bin/solo"}


def make_lines(parent):
    """Return {key: the line that writes its facts below this parent}."""
    probe = f"/usr/bin/perl /lab/probe.pl /lab/facts/{parent}."
    guarded = {
        key: f"{solo} --dir /lab/names/{parent}{key} -n job -- {probe}{key}"
        for key, solo in LAUNCHERS.items()
    }
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
def guest(lab):
    need_tools("debootstrap", "systemd-nspawn")
    with booted(lab) as guest:
        yield guest


@pytest.mark.network
@pytest.mark.parametrize("name, settings", [("systemd", ()), ("SIGPIPE", ("IgnoreSIGPIPE=no",))])
def test_command_inherits_the_same_below_systemd(lab, guest, name, settings):
    found = {}
    for key, line in make_lines(name).items():
        guest.run_unit("homes", *settings, *line.split())
        guest.do("systemctl", "reset-failed", "homes")
        path = lab / f"facts/{name}.{key}"
        until(path.exists, patience=2 * PATIENCE)
        found[key] = read_facts(path.read_text(), key != "plain")

    assert found["installed"] == found["plain"]
    if name == "SIGPIPE":  # systemd ignores SIGPIPE, and hands it on by default
        assert [int(found[key].pop("SigIgn"), 16) & 0x1000 for key in ("plain", "source")] == [
            0,
            0x1000,
        ]
    assert found["source"] == found["plain"]
