"""The dashboard of packaging/grafana, and a real Prometheus that scrapes a node_exporter with the files of `solo metrics`."""

import json
import urllib.parse
import urllib.request

from conftest import ROOT
from servers import Server

DASHBOARD = ROOT / "packaging/grafana/solo.json"
# What Grafana puts into a query: here all instances and names, and times that suit some scrapes.
VARIABLES = {"$instance": ".*", "$name": ".*", "$__rate_interval": "15s", "$__range": "2m"}
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: node, static_configs: [{{targets: ["127.0.0.1:{}"]}}]}}]
"""


def load_panels() -> list:
    return json.loads(DASHBOARD.read_text())["panels"]


def expand(expression: str) -> str:
    """Return the query that Grafana sends."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


class NodeExporter(Server):
    """It reads the files of metrics in `path`/metrics."""

    scheme, tools = "http", ("prometheus-node-exporter",)

    def prepare(self):
        (self.path / "metrics").mkdir()
        self.file = self.path / "metrics/solo.prom"

    def make_words(self):
        collector = ["--collector.disable-defaults", "--collector.textfile"]
        place = [f"--collector.textfile.directory={self.file.parent}", f"--web.listen-address=127.0.0.1:{self.port}"]
        return [self.tools[0], *collector, *place]

    def is_ready(self):
        return is_answered(f"{self.url}/metrics")


class Prometheus(Server):
    """It scrapes a node_exporter each second."""

    scheme, tools = "http", ("prometheus",)

    def prepare(self):
        self.exporter = NodeExporter(self.path / "exporter")
        self.exporter.start()
        (self.path / "prometheus.yml").write_text(CONFIGURATION.format(self.exporter.port))

    def make_words(self):
        data = f"--storage.tsdb.path={self.path}/data"
        return ["prometheus", "--config.file=prometheus.yml", data, f"--web.listen-address=127.0.0.1:{self.port}"]

    def is_ready(self):
        return is_answered(f"{self.url}/-/ready")

    def stop(self, *number):
        super().stop(*number)
        self.exporter.stop(*number)

    def query(self, expression: str) -> list:
        """Return the series that answer a query."""
        words = urllib.parse.urlencode({"query": expand(expression)})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]


def is_answered(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
