"""packaging/grafana/solo.json: the form that Grafana reads, and queries that a real Prometheus answers about real runs."""

import json
import re

import pytest
from conftest import finish, until
from dashboard import DASHBOARD, VARIABLES, Prometheus, expand, load_panels

from solo.commands.metrics import FAMILIES, SUFFIXES


def list_queries():
    return [(panel["title"], target["expr"]) for panel in load_panels() for target in panel["targets"]]


def test_grafanas_own_library_reads_every_key():
    """Its types come from Grafana's schemas. A key that they do not know is lost on the way."""
    plugins = pytest.importorskip(
        "grafana_foundation_sdk.cog.plugins", reason="needs grafana-foundation-sdk: make test-full"
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    plugins.register_default_plugins()
    board = json.loads(DASHBOARD.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))

    assert list(find_lost(board, read)) == []
    assert list(find_lost({**board, "no_key": "x"}, read)) == [".no_key"]


def find_lost(mine, theirs, path=""):
    """Yield the path of each value that the second object does not have."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key, value in mine.items():
            yield from find_lost(value, theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"]
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs)):
            yield from find_lost(one, other, f"{path}[{index}]")
    elif mine != theirs:
        yield path


def test_panels_do_not_overlap_and_have_numbers_of_their_own():
    taken = [
        (x, y)
        for at in (panel["gridPos"] for panel in load_panels())
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in load_panels()}) == len(load_panels())


def test_queries_use_metrics_and_variables_that_exist():
    known = {family + suffix for family, kind, _ in FAMILIES for suffix in SUFFIXES[kind]} | {"solo_build_info"}
    board = json.loads(DASHBOARD.read_text())
    queries = " ".join(query for _, query in list_queries())

    used = set(re.findall(r"\bsolo_\w+", queries))

    assert used <= known
    for_alerts = {
        f"solo_{key}"
        for key in ("last_failure_timestamp_seconds", "killed_runs", "usual_seconds", "overdue_after_seconds")
    }
    assert known - used == for_alerts
    assert set(re.findall(r"\$\w+", queries)) == set(VARIABLES)
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "instance", "name"]


@pytest.fixture
def prometheus(tmp_path):
    server = Prometheus(tmp_path / "prometheus")
    server.start()
    yield server
    server.stop()


@pytest.mark.tool("prometheus", "prometheus-node-exporter")
def test_prometheus_answers_every_query_about_real_runs(lab, prometheus):
    holder, slots = lab.hold("held"), lab.hold("pool", "--slots", "3")
    waiter = lab.start_waiter("held")
    for _ in range(2):
        assert lab.run("-n", "held", "true").returncode == 75
    unanswered = dict.fromkeys(list_queries())

    def run_some_more():
        for words in (["-n", "job", "true"], ["-n", "job", "false"], ["-n", "queued", "--wait", "1", "true"]):
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

    assert find_value(prometheus, 'solo_skips_in_a_row{instance=~"$instance", name=~"$name"}', "held") == 2
    assert find_value(prometheus, 'solo_waiting{instance=~"$instance", name=~"$name"}', "held") == 1
    assert find_value(prometheus, 'solo_slots{instance=~"$instance", name=~"$name"}', "pool") == 3
    assert find_value(prometheus, dict(list_queries())["Runs"], "job") > 0
    assert prometheus.query('solo_helt{instance=~"$instance"}') == []
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        assert all(label in series["metric"] for series in prometheus.query(metric)) and prometheus.query(metric)
    for process in (holder, waiter, slots):
        finish(process)


def find_value(server, query, name):
    [value] = [float(one["value"][1]) for one in server.query(query) if one["metric"]["name"] == name]
    return value


def test_variables_are_expanded():
    assert expand('rate(x{name=~"$name"}[$__rate_interval])') == 'rate(x{name=~".*"}[15s])'
