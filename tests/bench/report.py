"""Reports of the results: tables for people, targets, and regressions against the recorded results."""

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

    def take_ratio(title, row, other):
        found = measures.get(title, {}).get("rows", {}).get(row)
        return found and found["ratios"].get(other, (None, None))[1]

    empty = read_median(measures, "list", "solo list, 0 held")
    targets = [
        ("launch, / floor", take_ratio("launch", "solo, make install", "floor"), 1.2),
        ("handoff, / flock(1)", take_ratio("handoff in a queue of 40", "solo", "flock(1)"), 1.2),
        ("CPU of a handoff, 1,000 waiters / 10", take_ratio("queue: handoff, CPU", "solo, 1000", "solo, 10"), 1.0),
        ("CPU of 1,000 waiters, ms", read_median(measures, "queue: waiting, CPU", "solo, 1000"), 0),
        (
            "list of 1,000 names, ms; 2 x empty + 100",
            read_median(measures, "list", "solo list, 1000 held"),
            2 * (empty or 0) + 100,
        ),
        ("resident, MB", read_median(measures, "memory: RSS", "solo"), 9),
    ]
    return [target for target in targets if target[1] is not None]


def print_targets(measures: dict):
    targets = list_targets(measures)
    if targets:
        print(f"\n{'TARGETS':<46}{'measured':>9}{'most':>9}")
    for title, value, most in targets:
        missed = f"missed by {value - most:.3g}" + (f" ({100 * (value / most - 1):.0f} %)" if most else "")
        print(f"{title:<46}{value:>9.3g}{most:>9.3g}  {'met' if value <= most else missed}")
    print()


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
        for row, found in measure["rows"].items() if measure["turns"] >= FEWEST else ():
            if row.startswith("solo"):
                for other, cuts in found["ratios"].items():
                    yield title, row, other, cuts
