"""A crontab line under the real cron daemon, in a mount namespace of its own, so that no other crontab runs."""

import os
import subprocess

import pytest
from conftest import PATIENCE, until

pytestmark = [pytest.mark.root, pytest.mark.tool("cron", "unshare", "mount")]


def test_a_crontab_line_runs_its_job_once_at_a_time(lab):
    """Two lines of the same minute, the same job: one runs, the other is skipped, and cron sees its one line of stderr."""
    crontabs = lab.path / "crontabs"
    etc = lab.path / "etc"
    for folder in (crontabs, etc):
        folder.mkdir()
    job = lab.path / "job.sh"
    job.write_text(
        f"#!/bin/sh\necho \"$SOLO_NAME:${{HOME:-none}}:${{XDG_RUNTIME_DIR:-none}}\" >>{lab.log}\n"
        f"while ! [ -e {lab.path}/go ]; do sleep 0.1; done\n"
    )
    job.chmod(0o755)
    line = f"* * * * * {lab.script} --dir {lab.directory} -- {job} 2>>{lab.path}/stderr; echo $? >>{lab.path}/status\n"
    (crontabs / "root").write_text("SHELL=/bin/sh\nMAILTO=\"\"\n" + line * 2)
    (crontabs / "root").chmod(0o600)
    script = f"mount --bind {crontabs} /var/spool/cron/crontabs && mount --bind {etc} /etc/cron.d && " \
             "mount -t tmpfs tmpfs /run && exec cron -f"
    # cron looks at the clock once a minute, so this takes up to one.
    daemon = subprocess.Popen(["unshare", "--mount", "sh", "-c", script],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    lab.started.append(daemon)
    daemon.stdin = daemon.stdout = None

    until(lambda: (lab.path / "status").exists(), patience=2 * PATIENCE)
    daemon.terminate()
    (lab.path / "go").touch()
    until(lambda: len((lab.path / "status").read_text().split()) >= 2)

    assert sorted((lab.path / "status").read_text().split())[:2] == ["0", "75"]
    [ran] = lab.read_log()
    name, home, runtime = ran.split(":")
    assert name.startswith("job.sh-") and (home, runtime) == ("/root", "none")
    stderr = (lab.path / "stderr").read_text()
    assert stderr.count("\n") == 1 and f"solo: {name}: busy: held for " in stderr
    assert sorted(os.listdir(lab.directory)) == [".journals", name]
