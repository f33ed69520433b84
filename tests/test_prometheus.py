"""Prometheus's own tool accepts the metrics."""

import subprocess

import pytest
from conftest import finish

pytestmark = pytest.mark.tool("promtool")


def promtool(*words, text=None):
    return subprocess.run(["promtool", *words], input=text, capture_output=True, text=True)


def test_promtool_accepts_the_metrics(lab):
    for words in (["-n", "job", "true"], ["-n", "job", "false"], ["-n", 'strange "\\\n\xe9', "true"]):
        lab.run(*words)
    holder = lab.hold("job")
    slots = lab.hold("slots", "--slots", "3")
    lab.run("-n", "job", "true")

    text = lab.run("metrics").stdout.decode()
    finish(holder)
    finish(slots)

    accepted = promtool("check", "metrics", text=text)
    assert (accepted.returncode, accepted.stdout, accepted.stderr) == (0, "", "")
    bare = "".join(line for line in text.splitlines(True) if not line.startswith("# HELP"))
    refused = promtool("check", "metrics", text=bare)
    assert refused.returncode and "solo_runs_total no help text" in refused.stdout + refused.stderr
