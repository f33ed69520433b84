"""Reports of the results: regressions against the record, and tables, which docs/evidence.md has too."""

from measured import format_measured

FEWEST = 3  # turns; fewer show no spread
NOISE = 1.05  # a smaller ratio of medians is no change, however small their spread


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


def make_tables(results: dict) -> dict:
    """Return {marker: table}. Measures whose titles begin with one word are the columns of one table."""
    machine, groups = results["machine"], {}
    for title, measure in results["measures"].items():
        group, _, column = title.partition(": ")
        heading = f"{column or group}, {measure['unit'].replace('us', 'µs')}".removesuffix(", ")
        groups.setdefault(group, {})[heading] = measure["rows"]
    where = f"{machine['cores']} cores of {machine['cpu']}, load {machine['load']} at the start"
    tables = {f"bench: {group}": make_table(columns) for group, columns in groups.items()}
    return {**tables, "bench: machine": f"({format_measured(machine)}, {where}.)"}


def make_table(columns: dict) -> str:
    rows = dict.fromkeys(row for cells in columns.values() for row in cells)
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    lines += [[row, *(show(cells.get(row)) for cells in columns.values())] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(found) -> str:
    """Return the median of a row, and its first ratio with the quartiles."""
    if found is None:
        return ""
    median = found["quartiles"][1]
    text = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
    for other, (first, ratio, last) in list(found["ratios"].items())[:1]:
        text += f" = {ratio:.2f} x {other}" + f" ({first:.2f} to {last:.2f})" * (first < last)
    return text
