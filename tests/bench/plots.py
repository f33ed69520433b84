"""Draw the plots of docs/evidence.md: readable on white and on black, the same bytes for the same numbers."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter

SOLO, PEER, GROUND, INK = "#d1495b", "#8d99ae", "#fafafa", "#333333"
FAR = ("sem",)  # in the title only: its bar would dwarf the others
STYLE = {
    "svg.hashsalt": "solo",
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#bbbbbb",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "axes.titlesize": 11,
}


def draw(measures: dict, folder: Path):
    """Write a file for each plot whose measures were taken."""
    for needed, plot in (("launch", plot_launch), ("queue: handoff", plot_queue), ("list", plot_list)):
        if needed in measures:
            with pyplot.rc_context(STYLE):
                save(plot(measures), folder / f"bench-{plot.__name__.removeprefix('plot_')}.svg")


def save(figure, path: Path):
    width, height = figure.get_size_inches()
    figure.patch.set_visible(False)
    figure.add_artist(
        FancyBboxPatch(
            (0.005, 0.005),
            0.99,
            0.99,
            boxstyle="round,pad=0,rounding_size=0.015",
            mutation_aspect=width / height,
            transform=figure.transFigure,
            facecolor=GROUND,
            edgecolor="#d5d5d5",
            zorder=-1,
        )
    )
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12, wspace=0.04)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def plot_launch(measures):
    rows = {row: found["ratios"].get("floor", [1, 1, 1]) for row, found in measures["launch"]["rows"].items()}
    ordered = sorted((row for row in rows if row not in FAR), key=lambda row: -rows[row][1])
    figure, axes = pyplot.subplots(figsize=(8, 0.3 * len(rows) + 0.9), layout="constrained")
    medians = [rows[row][1] for row in ordered]
    spreads = list(zip(*((median - rows[row][0], rows[row][2] - median) for row, median in zip(ordered, medians))))
    colours = [SOLO if row.startswith("solo") else PEER for row in ordered]
    axes.barh(ordered, medians, xerr=spreads, color=colours, error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2})
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.grid(axis="y", visible=False)
    far = "".join(f"; {row}: {rows[row][1]:.1f}" for row in FAR if row in rows)
    axes.set(title=f"a run of true: median and quartiles, in multiples of the floor{far}", xlim=0)
    return figure


def plot_queue(measures):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    right.set_yscale("log")
    for name, colour in (("solo", SOLO), ("flock(1)", PEER)):
        plot_rows(left, measures["queue: handoff, CPU"], name, colour, lambda median, count: median)
        plot_rows(right, measures["queue: handoff"], name, colour, lambda median, count: median * count / 1000)
    left.set(title="CPU of a handoff, ms", xlabel="waiters", ylim=0)
    right.set(title="until the queue is empty, s", xlabel="waiters")
    left.legend()
    return figure


def plot_list(measures):
    figure, axes = pyplot.subplots(figsize=(8, 3), layout="constrained")
    axes.set_yscale("log")
    for view, colour in (("solo list", SOLO), ("solo list --json", PEER)):
        plot_rows(axes, measures["list"], view, colour, lambda median, count: median / 1000)
    axes.set(title="solo list, s", xlabel="names held")
    axes.legend()
    return figure


def plot_rows(axes, measure, name, colour, scale):
    """Plot the rows `name, COUNT` over their counts. Leave out idle rows and a count of 0."""
    points = {}
    for row, found in measure["rows"].items():
        prefix, _, stock = row.rpartition(", ")
        count = int(stock.split()[0]) if prefix == name and not stock.endswith("idle") else 0
        if count:
            points[count] = [scale(value, count) for value in found["quartiles"]]
    firsts, medians, lasts = zip(*points.values())
    axes.plot(list(points), medians, color=colour, marker="o", markersize=4, label=name)
    axes.fill_between(list(points), firsts, lasts, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
