"""Median and quartiles over many turns, of values and of ratios.

On a shared machine the same work may take twice as long a second later, so medians from different seconds cannot be compared.
Contestants therefore run in turn. A ratio is computed within one turn, whose parts are milliseconds apart; median and quartiles are
taken of these ratios. A neighbour that slows a whole turn cancels out. One that slows a part of a turn makes an outlier, which a
median ignores. The quartiles of the ratios show how far to trust their median.
"""

import statistics


class Series:
    """The turns of one measure, each {row: value in `unit`}. `against(row)` returns the rows to compare a row with."""

    def __init__(self, unit: str, against=lambda row: ()):
        self.unit, self.against, self.turns = unit, against, []

    def add(self, turn: dict):
        self.turns.append(turn)

    def summarize(self) -> dict:
        rows = list(dict.fromkeys(row for turn in self.turns for row in turn))
        return {"unit": self.unit, "turns": len(self.turns), "rows": {row: self.summarize_row(row) for row in rows}}

    def summarize_row(self, row) -> dict:
        values = [turn[row] for turn in self.turns if row in turn]
        ratios = {other: self.take_ratios(row, other) for other in self.against(row) if other != row}
        return {
            "turns": len(values),
            "quartiles": cut(values),
            "ratios": {other: cut(values) for other, values in ratios.items() if values},
        }

    def take_ratios(self, row, other) -> list:
        return [turn[row] / turn[other] for turn in self.turns if row in turn and turn.get(other)]


def cut(values: list) -> list:
    """Return [first quartile, median, third quartile]. Fewer than five values have no quarters: take the extremes."""
    median = statistics.median(values)
    first, last = (
        (min(values), max(values)) if len(values) < 5 else statistics.quantiles(values, n=4, method="inclusive")[::2]
    )
    return [float(f"{value:.4g}") for value in (first, median, last)]
