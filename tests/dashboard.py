"""The dashboard of packaging/grafana over a real Prometheus: `make dashboard` draws its panels into docs/dashboard.svg.

Jobs of solo run for two minutes, `solo metrics` writes a file for node_exporter's textfile collector, and Prometheus scrapes that.
Grafana has no part in the picture: matplotlib draws what Prometheus answers to the queries of the panels.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from servers import Server

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "packaging/grafana/solo.json"
PICTURE = ROOT / "docs/dashboard.svg"
# What Grafana puts into a query: here all instances and names, and times that suit some scrapes.
VARIABLES = {"$instance": ".*", "$name": ".*", "$__rate_interval": "15s", "$__range": "2m"}
STEP = 3  # seconds between two points of a line
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

    def ask(self, kind: str, **parameters) -> list:
        """Return the series that answer a query."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}", timeout=30
        ) as answer:
            return json.load(answer)["data"]["result"]

    def query(self, expression: str) -> list:
        return self.ask("query", query=expand(expression))

    def query_range(self, expression: str, start: float, end: float) -> list:
        return self.ask("query_range", query=expand(expression), start=start, end=end, step=STEP)


def is_answered(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


# --- the picture -----------------------------------------------------------------------------------------------------

# Each: the second of its starts, the words of solo, the script.
JOBS = [
    (range(0, 120, 5), ["-n", "sync"], "sleep 0.$((RANDOM % 9 + 1))"),
    (range(3, 120, 11), ["-n", "report"], "sleep 1; [ $((RANDOM % 3)) != 0 ]"),
    ([2], ["-n", "backup"], "sleep 60"),
    (range(10, 110, 10), ["-n", "backup"], "sleep 12"),
    (range(5, 120, 7), ["-n", "deploy", "--wait", "1m"], "sleep 9"),
    (range(1, 120, 4), ["-n", "gpu", "--slots", "3", "-q"], "sleep 9"),
]


def run_jobs(environment, metrics: Path, seconds: int):
    """Run the jobs, and write the metrics each second."""
    running = []
    for second in range(seconds):
        began = time.monotonic()
        for starts, words, script in JOBS:
            if second in starts:
                words = ["solo", *words, "--", "bash", "-c", script]
                running.append(subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL))
        subprocess.run(["solo", "metrics", "--output", metrics], env=environment, check=True)
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))
    for process in running:
        process.terminate()
        process.wait()


def name_series(legend: str, labels: dict) -> str:
    """Return the legend of a series. All have one user and instance."""
    legend = legend.replace(" of {{user}}", "").replace(" on {{instance}}", "")
    for label, value in labels.items():
        legend = legend.replace(f"{{{{{label}}}}}", value)
    return legend


def draw(server: Prometheus, start: float, end: float):
    """Draw each panel where the dashboard has it."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "solo", "font.size": 7, "axes.grid": True, "grid.alpha": 0.3}
    )
    panels = load_panels()
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(12, height * 0.32))
    for panel in panels:
        at = panel["gridPos"]
        left, bottom = at["x"] / 24 + 0.04, 1 - (at["y"] + at["h"] - 2) / height
        axes = figure.add_axes([left, bottom, at["w"] / 24 - 0.05, (at["h"] - 2.9) / height])
        axes.set_title(panel["title"], fontsize=8, fontweight="bold", loc="left")
        {"timeseries": draw_lines, "bargauge": draw_bars, "stat": draw_value}[panel["type"]](
            server, panel, axes, start, end
        )
    figure.savefig(PICTURE, metadata={"Date": None})
    text = re.sub(r"(\d\.\d)\d+|\s*<!--.*?-->", r"\1", PICTURE.read_text())  # half the size
    PICTURE.write_text(text)


def draw_lines(server, panel, axes, start, end):
    for target in panel["targets"]:
        for series in server.query_range(target["expr"], start, end):
            times = [at - start for at, _ in series["values"]]
            values = [float(value) for _, value in series["values"]]
            if any(values):
                axes.plot(times, values, linewidth=0.9, label=name_series(target["legendFormat"], series["metric"]))
    axes.set_xlim(0, end - start)
    axes.set_ylim(bottom=0)
    at_most = 5 if panel["gridPos"]["w"] > 6 else 3
    axes.legend(fontsize=5.5, ncols=at_most, loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)


def draw_bars(server, panel, axes, start, end):
    target = panel["targets"][0]
    rows = {
        name_series(target["legendFormat"], one["metric"]): float(one["value"][1])
        for one in server.query(target["expr"])
    }
    axes.barh(list(rows), list(rows.values()), height=0.6)
    axes.bar_label(axes.containers[0], fmt="%.0f", fontsize=6, padding=2)


def draw_value(server, panel, axes, start, end):
    [one] = server.query(panel["targets"][0]["expr"])
    text = one["metric"]["version"] if "version" in one["metric"] else f"{float(one['value'][1]):.0f}"
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=16)
    axes.set(xticks=[], yticks=[])


def main():
    seconds = 120
    with tempfile.TemporaryDirectory() as place:
        environment = {
            **os.environ,
            "SOLO_DIR": f"{place}/names",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        server = Prometheus(Path(place))
        server.start()
        try:
            start = time.time()
            run_jobs(environment, server.exporter.file, seconds)
            draw(server, start, time.time())
        finally:
            server.stop()
    print(f"wrote {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
