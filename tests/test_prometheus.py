"""Prometheus's own tool accepts the metrics, and the alerts of packaging/prometheus fire at their limits."""

import re
import shutil
import subprocess

import pytest
import yaml
from conftest import ROOT, finish

from solo.commands.metrics import FAMILIES, SUFFIXES

RULES = ROOT / "packaging/prometheus/solo.rules.yml"
TESTS = RULES.with_name("solo.rules.test.yml")
LIMIT = re.compile(r"(?<![\w.])[1-9]\d*(?!\w)")

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


def list_rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_promtool_accepts_the_alerts_and_their_tests():
    checked, tested = promtool("check", "rules", RULES), promtool("test", "rules", TESTS)

    assert checked.returncode == 0 and f"{len(list_rules())} rules found" in checked.stdout
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_alerts_use_metrics_that_exist():
    known = {family + suffix for family, kind, _ in FAMILIES for suffix in SUFFIXES[kind]}

    used = set(re.findall(r"\bsolo_\w+", " ".join(rule["expr"] for rule in list_rules())))

    assert used and used <= known


def test_every_limit_of_an_alert_has_a_test(tmp_path):
    """With a limit halved or doubled, the tests of the alerts fail."""
    shutil.copy(TESTS, tmp_path)
    text, survivors = RULES.read_text(), []
    limits = [
        (line.start() + limit.start(), limit[0])
        for line in re.finditer(r"(?m)^ +(?!#|for:|summary:|description:).*[<>].*$", text)
        for limit in LIMIT.finditer(line[0])
    ]
    for at, limit in limits:
        for other in (int(limit) * 2, int(limit) // 2):
            (tmp_path / RULES.name).write_text(f"{text[:at]}{other}{text[at + len(limit) :]}")
            if promtool("test", "rules", tmp_path / TESTS.name).returncode == 0:
                survivors.append((limit, other, text[:at].count("\n") + 1))

    assert (len(limits), survivors) == (11, [])
