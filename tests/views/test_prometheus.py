"""Prometheus's own tool accepts the metrics, the alerts of packaging/prometheus fire at their
limits, and each query of packaging/grafana has an answer.
"""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import test_health
import yaml
from conftest import ROOT, copy_libraries, finish, until
from pages import read_cron_lines, read_example
from prometheus_client import parser
from servers import Server, is_answered, serve
from test_health import BEGIN, BROKEN_JOBS, DAYS, FOLLOWING, judge_month, live_a_month
from written import HOUR

from solo.commands.check import judge as judge_job
from solo.commands.metrics import FAMILIES, SUFFIXES
from solo.commands.states import Job
from solo.history import reader
from solo.history.health import Clock
from solo.text.users import find_user

RULES = ROOT / "packaging/prometheus/solo.rules.yml"
TESTS = RULES.with_name("solo.rules.test.yml")
LIMIT = re.compile(r"(?<![\w.])[1-9]\d*(?!\w)")

METRICS = {family + suffix for family, kind, _ in FAMILIES for suffix in SUFFIXES[kind]} | {
    "solo_build_info"
}
DASHBOARD = json.loads((ROOT / "packaging/grafana/solo.json").read_text())
QUERIES = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]
# What Grafana puts into a query: here all instances and names, and times that suit some scrapes.
VARIABLES = {"$instance": ".*", "$name": ".*", "$__rate_interval": "15s", "$__range": "2m"}
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: node, static_configs: [{{targets: ["127.0.0.1:{}"]}}]}}]
"""

pytestmark = [pytest.mark.full, pytest.mark.tool("promtool")]


def promtool(*words, text=None):
    return subprocess.run(["promtool", *words], input=text, capture_output=True, text=True)


def test_promtool_accepts_the_metrics(lab):
    for words in (
        ["-n", "job", "true"],
        ["-n", "job", "false"],
        ["-n", 'strange "\\\n\xe9', "true"],
    ):
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


class NodeExporter(Server):
    """It reads the files of metrics in `path`/metrics."""

    scheme, tools = "http", ("prometheus-node-exporter",)

    def prepare(self):
        (self.path / "metrics").mkdir()
        self.file = self.path / "metrics/solo.prom"

    def make_words(self):
        collector = ["--collector.disable-defaults", "--collector.textfile"]
        place = [
            f"--collector.textfile.directory={self.file.parent}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        return [self.tools[0], *collector, *place]

    def is_ready(self):
        return is_answered(f"{self.url}/metrics")


exporter = serve(NodeExporter, scope="function")


def scrape(exporter, metric):
    """Return {(directory, user): value} of the job."""
    with urllib.request.urlopen(f"{exporter.url}/metrics", timeout=30) as answer:
        families = parser.text_string_to_metric_families(answer.read().decode())
    return {
        (sample.labels["dir"], sample.labels["user"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == metric and sample.labels.get("name", "job") == "job"
    }


@pytest.mark.tool("prometheus-node-exporter")
def test_a_scrape_has_the_samples_of_two_directories(lab, exporter):
    directories = [str(lab.path / "one"), str(lab.path / 'the "other"')]
    for directory, command in zip(directories, ("true", "false")):
        lab.run("--dir", directory, "-n", "job", command)
        file = exporter.file.with_name(f"solo-{command}.prom")
        relative = os.path.relpath(directory)
        assert lab.run("metrics", "--dir", relative, "--output", file).returncode == 0

    failures, infos = scrape(exporter, "solo_failures_total"), scrape(exporter, "solo_build_info")

    user = find_user(os.geteuid())
    assert failures == {(directories[0], user): 0, (directories[1], user): 1}
    assert infos.keys() == failures.keys()


@pytest.fixture(name="common")
def add_libraries(common):
    copy_libraries(Path(common.script).parent)
    return common


@pytest.mark.root
@pytest.mark.tool("prometheus-node-exporter", "runuser")
def test_line_of_the_manual_writes_the_metrics_of_a_user(common, exporter):
    """If solo fails, the old file stays."""
    [typed] = [typed for typed in read_cron_lines(read_example("crontab"))[1] if "runuser" in typed]
    line = typed.replace("alice", "nobody")
    line = line.replace("/var/lib/prometheus/node-exporter", str(exporter.file.parent))
    common.directory.mkdir(mode=0o700)
    os.chown(common.directory, 65534, 65534)
    programs = common.directory.parent / "bin"
    programs.mkdir(mode=0o755)
    (programs / "solo").symlink_to(common.script)
    environment = {**common.environment, "PATH": f"{programs}:/usr/bin:/bin"}

    first = [
        subprocess.run(["sh", "-c", words], env=environment, capture_output=True)
        for words in ("/sbin/runuser -u nobody -- solo -n job true", line)
    ]
    os.chown(common.directory, 65533, 65533)
    refused = subprocess.run(["sh", "-c", line], env=environment, capture_output=True)

    assert [done.stderr for done in first] == [b"", b""] and refused.returncode == 125
    assert scrape(exporter, "solo_runs_total") == {(str(common.directory), "nobody"): 1}


def list_rules():
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def test_promtool_accepts_the_alerts_and_their_tests():
    checked, tested = promtool("check", "rules", RULES), promtool("test", "rules", TESTS)

    assert checked.returncode == 0 and f"{len(list_rules())} rules found" in checked.stdout
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_missing_metrics_are_reported_for_a_week(tmp_path):
    """The tests of the alerts would take minutes with a week in steps of one minute."""
    shutil.copy(RULES, tmp_path)
    series = [("up", "1+0x170"), ('solo_build_info{dir="/run/solo", user="root"}', "1")]
    labels = {"severity": "warning", "dir": "/run/solo", "user": "root"}
    notes = {
        "summary": " has no metrics of solo for root in /run/solo any more",
        "description": "Is the file there, and can node_exporter read it (node_textfile_scrape_error)?",
    }
    alert = {"exp_labels": labels, "exp_annotations": notes}
    test = {
        "interval": "1h",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": [
            {"eval_time": time, "alertname": "SoloMetricsMissing", "exp_alerts": alerts}
            for time, alerts in (("0h", []), ("167h", [alert]), ("169h", []))
        ],
    }
    path = tmp_path / TESTS.name
    path.write_text(
        yaml.safe_dump({"rule_files": [RULES.name], "evaluation_interval": "1h", "tests": [test]})
    )

    tested = promtool("test", "rules", path)

    assert tested.returncode == 0, tested.stdout + tested.stderr


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

    assert (len(limits), survivors) == (1, [])


# --- a month--------------------------------------------------------------------------------------

berlin = test_health.berlin
HOURS = 24 * DAYS
ALERTS = {
    "failing": "SoloFailing",
    "lost": "SoloFailing",
    "late": "SoloLate",
    "long": "SoloHeldTooLong",
    "starving": "SoloSkipped",
    "outgrown": "SoloSkipped",
}
FIRED = re.compile(r"alertname: (\w+), time: (\w+),.*?got:\[(.*?)\n\s*\]", re.DOTALL)


def see_month(seed):
    """Return ({name: [its states at each hour]}, {name: [the status of `solo check`]}) of a month
    of ten jobs; None while the machine is off.
    """
    states, statuses = {}, {}
    for name, (written, spans) in sorted(live_a_month(seed).items()):
        hours = [BEGIN + hour * HOUR for hour in range(HOURS)]
        states[name], statuses[name] = [None] * HOURS, [None] * HOURS
        for now, found, runs in judge_month(written, spans, hours):
            at = round((now - BEGIN) / HOUR)
            totals = reader.add_up(None, runs)
            job = Job(name, found, {}, reader.History(runs, totals), [])
            states[name][at] = found.states
            statuses[name][at] = judge_job(job, Clock(now), (None, None), False).status
    return states, statuses


def fire(tmp_path, states):
    """Return {(alert, name): [the hours at which it fires]}, by promtool."""
    shutil.copy(RULES, tmp_path)
    series = [
        {
            "series": f'solo_job_state{{name="{name}", state="{state}"}}',
            "values": " ".join("_" if true is None else str(int(state in true)) for true in mine),
        }
        for name, mine in states.items()
        for state in ALERTS
    ]
    wanted = [
        {"eval_time": f"{hour}h", "alertname": alert, "exp_alerts": []}
        for hour in range(HOURS)
        for alert in sorted({*ALERTS.values()})
    ]
    test = {"interval": "1h", "input_series": series, "alert_rule_test": wanted}
    path = tmp_path / TESTS.name
    path.write_text(
        yaml.safe_dump({"rule_files": [RULES.name], "evaluation_interval": "1h", "tests": [test]})
    )
    output = promtool("test", "rules", path)
    found = {}
    for alert, time, got in FIRED.findall(output.stdout + output.stderr):
        hour = find_hours(time)
        for name in re.findall(r'\bname="(\w+)"', got):
            found.setdefault((alert, name), []).append(hour)
    return found


def find_hours(text):
    """Return the hours of `1d2h` or `26h`."""
    sizes = {"w": 168, "d": 24, "h": 1}
    return sum(int(number) * sizes[unit] for number, unit in re.findall(r"(\d+)([wdh])", text))


@pytest.mark.rare
def test_month_of_ten_jobs_alerts_as_the_judge_and_check_do(tmp_path, berlin):
    """Each broken job alerts within its period or a day, the others do not, as on Sundays."""
    states, statuses = see_month(1)
    fired, told = fire(tmp_path, states), {}
    bad = {(ALERTS[state], name): since for (name, state), (since, _) in BROKEN_JOBS.items()}
    expected = {(ALERTS[state], name) for name, state in FOLLOWING}

    false = {key: hours for key, hours in fired.items() if key not in {*bad, *expected}}
    for key, since in bad.items():
        early = [hour for hour in fired[key] if hour < since * 24]
        false.update({key: early} if early and key not in expected else {})
        name = key[1]
        worst = [at for at in range(since * 24, HOURS) if statuses[name][at] not in ("OK", None)]
        told[key] = (since * 24, min(at for at in fired[key] if at >= since * 24), worst[0])
    quiet = {
        name: sum(status not in ("OK", None) for status in mine)
        for name, mine in statuses.items()
        if name not in {name for _, name in bad}
    }

    print(
        "broken, alert, check at hour:",
        told,
        "false alarms at hours:",
        false,
        "bad hours of",
        quiet,
    )
    within = {name: period for (name, _), (_, period) in BROKEN_JOBS.items()}
    for (_, name), (since, alert, status) in told.items():
        assert alert - since <= max(within[name] * 24, 1) + 1 and status <= alert
    assert {alert for alert, _ in false} <= {"SoloHeldTooLong"}
    assert sum(map(len, false.values())) <= 5


# --- the dashboard--------------------------------------------------------------------------------


class Prometheus(Server):
    """It scrapes a node_exporter each second."""

    scheme, tools = "http", ("prometheus",)

    def prepare(self):
        self.exporter = NodeExporter(self.path / "exporter")
        self.exporter.start()
        (self.path / "prometheus.yml").write_text(CONFIGURATION.format(self.exporter.port))

    def make_words(self):
        data = f"--storage.tsdb.path={self.path}/data"
        return [
            "prometheus",
            "--config.file=prometheus.yml",
            data,
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_ready(self):
        return is_answered(f"{self.url}/-/ready")

    def stop(self, *number):
        super().stop(*number)
        self.exporter.stop(*number)

    def query(self, expression: str) -> list:
        """Return the series that answer a query of the dashboard."""
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]


prometheus = serve(Prometheus, scope="function")


def test_alerts_and_queries_use_metrics_and_variables_that_exist():
    texts = [
        " ".join(rule["expr"] for rule in list_rules()),
        " ".join(query for _, query in QUERIES),
    ]
    in_alerts, in_queries = (set(re.findall(r"\bsolo_\w+", text)) for text in texts)

    for_alerts = (
        "last_failure_timestamp_seconds killed_runs usual_seconds overdue_after_seconds engine_up"
    )
    assert in_alerts and in_alerts <= METRICS
    assert in_queries == METRICS - {f"solo_{key}" for key in for_alerts.split()}
    assert set(re.findall(r"\$\w+", texts[1])) == set(VARIABLES)
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == [
        "datasource",
        "instance",
        "name",
    ]


@pytest.mark.tool("prometheus", "prometheus-node-exporter")
def test_prometheus_answers_every_query_about_real_runs(lab, prometheus):
    holder, slots = lab.hold("held"), lab.hold("pool", "--slots", "3")
    waiter = lab.start_waiter("held")
    for _ in range(2):
        assert lab.run("-n", "held", "true").returncode == 75
    unanswered = dict.fromkeys(QUERIES)

    def run_some_more():
        for words in (
            ["-n", "job", "true"],
            ["-n", "job", "false"],
            ["-n", "queued", "--wait", "1", "true"],
        ):
            lab.run(*words)
        assert lab.run("metrics", "--output", prometheus.exporter.file).returncode == 0
        for title, query in list(unanswered):
            answer = prometheus.query(query)
            if any(series["value"][1] != "NaN" for series in answer):
                del unanswered[title, query]
        return not unanswered

    try:
        until(run_some_more)
    finally:
        unanswered and print("no data:", *unanswered, sep="\n")

    assert (
        find_value(prometheus, 'solo_skips_in_a_row{instance=~"$instance", name=~"$name"}', "held")
        == 2
    )
    assert find_value(prometheus, 'solo_waiting{instance=~"$instance", name=~"$name"}', "held") == 1
    assert find_value(prometheus, 'solo_slots{instance=~"$instance", name=~"$name"}', "pool") == 3
    assert find_value(prometheus, dict(QUERIES)["Runs"], "job") > 0
    assert prometheus.query('solo_helt{instance=~"$instance"}') == []
    for variable in DASHBOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(
            r"label_values\((.*), (\w+)\)", variable["query"]["query"]
        ).groups()
        assert all(
            label in series["metric"] for series in prometheus.query(metric)
        ) and prometheus.query(metric)
    for process in (holder, waiter, slots):
        finish(process)


def find_value(server, query, name):
    [value] = [
        float(one["value"][1]) for one in server.query(query) if one["metric"]["name"] == name
    ]
    return value
