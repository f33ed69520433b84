"""Reports of the results: tables for people, targets, and regressions against the recorded results."""

from bench.launch import OPTIONS

FEWEST = 3  # turns; fewer show no spread
NOISE = 1.05  # a smaller ratio of medians is no change, however small their spread


def read_median(measures: dict, title: str, row: str):
    """Return the median of a row, or None if it was not measured."""
    found = measures.get(title, {}).get("rows", {}).get(row)
    return found and found["quartiles"][1]


def print_rows(results: dict):
    machine = results["machine"]
    print(
        f"Linux {machine['kernel']}, {machine['cpu']}, {machine['cores']} cores, load {machine['load'][0]}, "
        f"Python {machine['python']}, {machine['date']}"
    )
    for title, measure in results["measures"].items():
        heading = f"{title}, {measure['unit']}".removesuffix(", ")
        print(f"\n{heading:<46}{'median':>9}  {'quartiles':<20}({measure['turns']} turns)")
        for row, found in measure["rows"].items():
            first, median, last = found["quartiles"]
            ratios = "; ".join(
                f"{of:.2f} ({low:.2f} - {high:.2f}) x {other}" for other, (low, of, high) in found["ratios"].items()
            )
            print(f"{row:<46}{median:>9.4g}  {f'{first:.4g} - {last:.4g}':<20}{ratios}".rstrip())


def list_targets(measures: dict) -> list:
    """Return [(title, measured, limit)] of the targets that were measured."""

    def take_median(title, row):
        return read_median(measures, title, row)

    def take_ratio(title, row, other):
        found = measures.get(title, {}).get("rows", {}).get(row)
        return found and found["ratios"].get(other, (None, None))[1]

    def subtract(title, row, other):
        medians = take_median(title, row), take_median(title, other)
        return None if None in medians else medians[0] - medians[1]

    options = [take_ratio("options", f"solo {option}", "floor") for option in OPTIONS if option != "--via socket"]
    threads = take_ratio("python: 20 threads", "solo.Lock", "filelock")
    crowd = take_median("engines: crowd", "solo via postgresql-table, 200 waiters")
    targets = [
        ("launch, / floor", take_ratio("launch", "solo, make install", "floor"), 1.22),
        ("launch from pip, / floor", take_ratio("launch", "solo, pip", "floor"), 1.45),
        ("largest of four options, / floor", None if None in options else max(options), 1.40),
        ("--via socket, / floor", take_ratio("options", "solo --via socket", "floor"), 1.45),
        ("first word after a handoff, / flock(1)", take_ratio("latency", "solo", "flock(1)"), 1.55),
        ("queue of 40, / floor", take_ratio("handoff in a queue of 40", "solo", "floor"), 1.3),
        ("resident, a waiter, MB", take_median("memory: RSS", "solo, waiting"), 9.0),
        ("list, nothing held, / python -IS", take_ratio("list", "solo list, 0 held", "python -IS"), 3.2),
        ("list --json, 1,000 held, ms", take_median("list", "solo list --json, 1000 held"), 130),
        ("list, 10,000 held, ms", take_median("list", "solo list, 10000 held"), 1000),
        ("uncontended solo.Lock, / filelock", take_ratio("python", "solo.Lock", "filelock"), 1.0),
        ("handoff between 20 threads, / filelock", threads, 2),
        ("1,000 inherited files, ms", subtract("descriptors", "solo, 1000 files", "solo"), 2),
        ("CPU at etcd, / etcdctl lock", take_ratio("engines: CPU", "solo via etcd", "etcdctl lock"), 1.5),
        ("a run at Redis, ms", take_median("engines: launch", "solo via redis"), 60),
        ("a run at PostgreSQL, ms", take_median("engines: launch", "solo via postgresql"), 60),
        ("handoff, 200 waiters at PostgreSQL, ms", crowd, 40),
    ]
    return [target for target in targets if target[1] is not None]


def print_targets(measures: dict, recorded: dict):
    """Print each target that was measured, beside its recorded value."""
    targets, before = list_targets(measures), {title: value for title, value, _ in list_targets(recorded)}
    if targets:
        print(f"\n{'TARGETS':<46}{'measured':>9}{'recorded':>9}{'most':>9}")
    for title, value, most in targets:
        was = format_number(before[title]) if title in before else "-"
        missed = f"missed by {format_number(value - most)} ({100 * (value / most - 1):.0f} %)"
        verdict = "met" if value <= most else missed
        print(f"{title:<46}{format_number(value):>9}{was:>9}{format_number(most):>9}  {verdict}")
    print()


def format_number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


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
