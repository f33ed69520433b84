"""As test_parents.py, below cron, atd and systemd, in machines of their own: a layer over this root, and a booted container."""

import shutil

import pytest
from builds import install
from conftest import PATIENCE, TESTS, need_tools, until
from guest import Layer, booted, start_layer
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
    install("/lab/usr", f"DESTDIR={lab}/stage", python="/usr/bin/python3")
    (lab / "stage/lab/usr").rename(lab / "usr")


def read_all(lab, patience=PATIENCE):
    paths = {key: lab / "facts" / key for key in make_lines()}
    until(lambda: all(path.exists() for path in paths.values()), patience=patience)
    return {key: read_facts(path.read_text(), key != "plain") for key, path in paths.items()}


def start_cron(lab):
    def put(machine):
        table = "".join(f"* * * * * root {line}\n" for line in make_lines().values())
        machine.write("etc/cron.d/homes", table, 0o644)

    return start_in_layer(lab, "cron", put)


def start_at(lab):
    def put(machine):
        for line in make_lines().values():
            machine.do("sh", "-c", f"echo '{line}' | at now")

    return start_in_layer(lab, "atd", put)


def start_in_layer(lab, daemon, put):
    """Let the daemon do once what `put(machine)` put there."""
    need_tools(daemon, "at" if daemon == "atd" else daemon)
    with start_layer(lab) as leader:
        machine = Layer(leader, lab)
        machine.clear_tables()
        machine.write("usr/sbin/sendmail", "#!/bin/sh\ncat >/dev/null\n")
        put(machine)
        with machine.start(daemon, "-f") as process:
            try:
                return read_all(lab, 2 * PATIENCE)
            finally:
                process.terminate()


def start_systemd(lab, *properties):
    need_tools("debootstrap", "systemd-nspawn")
    with booted(lab) as guest:
        for line in make_lines().values():
            guest.run_unit("homes", *properties, *line.split())
            guest.do("systemctl", "reset-failed", "homes")
        return read_all(lab)


PARENTS = {
    "cron": start_cron,
    "at": start_at,
    "systemd": start_systemd,
    "systemd IgnoreSIGPIPE=no": lambda lab: start_systemd(lab, "IgnoreSIGPIPE=no"),
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
    if (name, launcher) == ("systemd IgnoreSIGPIPE=no", "source"):  # systemd hands it on by default
        assert [int(facts.pop("SigIgn"), 16) & 0x1000 for facts in (plain, guarded)] == [0, 0x1000]

    assert guarded == plain
