"""The results as tables, which docs/evidence.md has too."""

from measured import format_measured


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
