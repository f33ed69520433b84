"""Reports of the results: rows for people, regressions against the record, and the tables of docs/evidence.md."""

from bench.launch import OPTIONS
from measured import format_measured

FEWEST = 3  # turns; fewer show no spread
NOISE = 1.05  # a smaller ratio of medians is no change, however small their spread


def print_rows(results: dict):
    machine = results["machine"]
    print(f"{format_measured(machine)}, {machine['cores']} cores of {machine['cpu']}, load {machine['load']}")
    for title, measure in results["measures"].items():
        heading = f"{title}, {measure['unit']}".removesuffix(", ")
        print(f"\n{heading:<46}{'median':>9}  {'quartiles':<20}({measure['turns']} turns)")
        for row, found in measure["rows"].items():
            first, median, last = found["quartiles"]
            ratios = "; ".join(
                f"{of:.2f} ({low:.2f} - {high:.2f}) x {other}" for other, (low, of, high) in found["ratios"].items()
            )
            print(f"{row:<46}{median:>9.4g}  {f'{first:.4g} - {last:.4g}':<20}{ratios}".rstrip())


def find_worse(measures: dict, recorded: dict) -> list:
    """Return a line for each ratio of solo to a floor or peer whose median exceeds the recorded one by more than the noise.

    The noise is the larger of the two spreads from first to third quartile, and at least 5 %. Only ratios count: a slower machine
    slows the floor too.
    """
    worse = []
    for title, row, other, (first, median, last) in list_ratios(measures):
        for *where, (old_first, old_median, old_last) in list_ratios(recorded):
            spread = max(last - first, old_last - old_first)
            if where == [title, row, other] and median > max(old_median + spread, old_median * NOISE):
                was = f"was {old_median:.2f}, noise {spread:.2f}"
                worse.append(f"worse than recorded: {title}: {row}: {median:.2f} x {other}, {was}")
    return worse


def list_ratios(measures: dict):
    """Yield (title, row, reference, quartiles) of the rows of solo with enough turns to compare."""
    for title, measure in measures.items():
        for row, found in measure["rows"].items():
            if row.startswith("solo") and found.get("turns", measure["turns"]) >= FEWEST:
                for other, cuts in found["ratios"].items():
                    yield title, row, other, cuts


# --- docs/evidence.md ------------------------------------------------------------------------------------------------

# {table: (head of its first column, its measure, the row to compare with, {row: label})}
# fmt: off
COMPARED = {
    "launch": ("a run of `true`", "launch", "floor", {
        "floor": "the floor", "solo, make install": "solo from `make install`", "solo, default name": "the same, with a generated name",
        "solo, package": "solo from a package", "solo, pip": "solo from pip, in a clean environment",
        "floor, pip": "the floor in that environment, with `site`",
        **{peer: peer for peer in ("flock(1)", "flock -o", "lckdo", "setlock", "chpst -L", "s6-setlock", "sem")},
    }),
    "options": ("a run of `true` with an option", "options", "floor", {f"solo {option}": f"`{option}`" for option in OPTIONS}),
    "busy": ("skipped", "busy", "python -IS", {"flock(1)": "flock -n", "solo": "solo, with its message", "solo -q": "solo -q"}),
    "latency": ("from the end of a holder to the first word of `echo`", "latency", "flock(1)", {
        "flock(1)": "flock(1)", "floor": "the floor", "solo": "solo", "solo, after an orphan": "solo, after an orphan",
    }),
    "threads": ("a handoff between 20 threads", "python: 20 threads", "filelock", {"filelock": "filelock", "solo.Lock": "solo.Lock"}),
    "etcd": ("CPU of a run of `true` at etcd", "engines: CPU", "etcdctl lock", {"etcdctl lock": "etcdctl lock", "solo via etcd": "solo via etcd"}),
}
# {table: (its heads, its measures, {row: label})}
SIDE_BY_SIDE = {
    "memory": (("MB", "resident", "proportional (PSS)", "private (USS)"), ("memory: RSS", "memory: PSS", "memory: USS"), {
        "solo": "a launcher whose command runs", "solo, waiting": "a waiter", "solo, one of 50": "one of 50 waiters",
        "python -IS": "`python -IS`, nothing loaded", "flock(1)": "flock(1)",
    }),
    "python": (("acquire and release from Python", "µs"), ("python",), {
        row: row for row in ("fcntl.flock", "fasteners", "filelock", "solo.Lock")
    }),
}
# fmt: on


def make_tables(results: dict) -> dict:
    """Return {marker: table} of all measures."""
    measures, machine = results["measures"], results["machine"]

    def show(title, row):
        median = measures[title]["rows"][row]["quartiles"][1] if row in measures[title]["rows"] else None
        return "" if median is None else f"{median:,.0f}" if median >= 100 else f"{median:.3g}"

    def show_ratio(title, row, other):
        first, median, last = measures[title]["rows"][row]["ratios"].get(other, (1, 1, 1))
        return f"{median:.2f} ({first:.2f} to {last:.2f})" if first < last else f"{median:.2f}"

    tables = {}
    for name, (head, title, other, labels) in COMPARED.items():
        known = {row: label for row, label in labels.items() if row in measures.get(title, {}).get("rows", ())}
        rows = [(label, show(title, row), show_ratio(title, row, other)) for row, label in known.items()]
        unit = measures.get(title, {}).get("unit", "ms").replace("us", "µs")
        tables[name] = make_table((head, unit, f"/ {other}"), rows)
    for name, (heads, titles, labels) in SIDE_BY_SIDE.items():
        tables[name] = make_table(
            heads, [(label, *(show(one, row) for one in titles)) for row, label in labels.items()]
        )
    queues = [(what, name) for what in ("", ", CPU", ", wake-ups") for name in ("solo", "flock(1)")]
    tables["queue"] = make_table(
        ("waiters", "a handoff, ms", "flock(1)", "CPU, ms", "flock(1)", "wake-ups", "flock(1)"),
        [
            (f"{at:,}", *(show(f"queue: handoff{what}", f"{name}, {at}") for what, name in queues))
            for at in (1, 10, 100, 1000)
        ],
    )
    tables["waiting"] = f"A thousand waiters used {show('queue: waiting, CPU', 'solo, 1000')} ms of CPU in one second."
    listed = [row for row in measures["list"]["rows"] if row.startswith("solo list")]
    tables["list"] = make_table(("names", "`solo list`, ms"), [(row[11:], show("list", row)) for row in listed])
    steps = [f", {step}" for step in ("acquire", "renew", "release")]
    engines = [row for row in measures.get("engines: launch", {}).get("rows", ()) if row != "floor"]
    tables["engines"] = make_table(
        ("at an engine on loopback, ms", "a run of `true`", "acquire", "renew", "release"),
        [
            (
                row.removeprefix("solo via "),
                show("engines: launch", row),
                *(show("engines: steps", row + step) for step in steps),
            )
            for row in engines
        ],
    )
    where = f"{machine['cores']} cores of {machine['cpu']}, load {machine['load']} at the start"
    tables["machine"] = f"({format_measured(machine)}, {where}.)"
    return {f"bench: {name}": text for name, text in tables.items()}


def make_table(header, rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else "(not measured)"
