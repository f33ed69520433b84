"""The Ansible role, run by ansible-core against this machine, with /etc and /usr/local in layers
that the test throws away.
"""

import os
import re
import shutil
import sys

import pytest
from builds import make_pyz, run
from conftest import ROOT, find_script
from machine import finish
from pages import read_cron_lines, read_example
from test_recipes import check_guard, make_cron_environment

pytestmark = [pytest.mark.long, pytest.mark.full]

yaml = pytest.importorskip("yaml")

PLACE = ROOT / "packaging/ansible"
LAYERS = """
for place in etc usr/local; do
    mkdir -p "$LAYER/$place" "$LAYER/work/$place"
    mount -t overlay overlay -o "lowerdir=/$place,upperdir=$LAYER/$place,workdir=$LAYER/work/$place" "/$place" || exit 125
done
rm -f /etc/cron.d/solo /usr/local/bin/solo
"$@" && "$@" && cp /etc/cron.d/solo "$LAYER/crontab" && cp /usr/local/bin/solo "$LAYER/solo" || exit
stat -c %a%U /etc/cron.d/solo /usr/local/bin/solo >"$LAYER/modes"
"$@" --extra-vars '{"solo_jobs": [{"name": "backup", "command": "", "state": "absent"}]}'
"""


@pytest.fixture
def playbook(tmp_path):
    """A copy of the example, with solo.pyz where its role looks for it."""
    shutil.copytree(PLACE, tmp_path / "ansible")
    make_pyz(tmp_path / "ansible/roles/solo/files/solo.pyz")
    return tmp_path / "ansible/solo.yml"


@pytest.mark.rare
@pytest.mark.root
@pytest.mark.tool("unshare", "crontab", "sudo", "flock")
def test_role_installs_solo_and_a_guarded_line_once(playbook, new, tmp_path):
    words = [
        find_script("ansible-playbook"),
        "--inventory=localhost,",
        "--connection=local",
        playbook,
    ]
    layer = tmp_path / "layer"
    layer.mkdir()
    python = {"ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3", "ANSIBLE_NOCOLOR": "1"}
    variables = {**os.environ, "LAYER": layer, "HOME": layer, **python}

    done = run("unshare", "--mount", "sh", "-c", LAYERS, "sh", *words, env=variables)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"changed=(\d)", done.stdout) == ["2", "0", "1"], done.stdout
    assert (layer / "modes").read_text().split() == ["644root", "755root"]
    assert not (layer / "etc/cron.d/solo").is_file()  # its last line is absent now
    check_line(new(), layer)


def check_line(machine, layer):
    """Verify that the line of the crontab guards both its commands, by the file that the role
    installed.
    """
    [row] = [row for row in (layer / "crontab").read_text().splitlines() if "dump.sh" in row]
    minute, *fields, user, command = row.split(None, 6)
    assert (minute, fields, user) == ("*/5", ["*"] * 4, "root")
    _, [command] = read_cron_lines(f"*/5 * * * * {command}")
    (machine.bin / "solo").unlink()
    shutil.copy(layer / "solo", machine.bin / "solo")
    check_guard(machine, command, make_cron_environment(machine, "/usr/bin:/bin"))
    assert {event.split(":")[1] for event in machine.read_log()} == {"dump.sh", "upload.sh"}
    (layer / "here").write_text(
        (layer / "crontab").read_text().replace("/usr/local/bin/solo", str(machine.script))
    )
    found = finish(machine.type(f"{machine.script} doctor --crontab --json {layer}/here"))
    assert found[:2] == (0, "[]\n"), found


def test_task_takes_a_skip_for_neither_failure_nor_change(new):
    machine = new()
    (machine.bin / "task.yml").write_text(
        read_example("task.yml").replace("./mig", f"{machine.bin}/mig")
    )
    line = (
        f"exec {find_script('ansible-playbook')} --inventory=localhost, --connection=local task.yml"
    )
    variables = {**machine.environment, "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    holder = machine.type("exec solo -n migrate -- migrate.sh")
    machine.wait_for_starts(1)

    skipped = finish(machine.type(line, variables))
    machine.release()
    finish(holder)
    ran = finish(machine.type(line, variables))
    (machine.bin / "migrate.sh").write_text("#!/bin/sh\nexit 1\n")
    failed = finish(machine.type(line, variables))

    counts = [re.findall(r"changed=(\d).*failed=(\d)", out) for _, out, _ in (skipped, ran, failed)]
    assert counts == [[("0", "0")], [("1", "0")], [("0", "1")]], (skipped, ran, failed)
