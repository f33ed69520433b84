"""What many turns come to: median and quartiles, of values and of ratios.

On a machine with other tenants the same work may take twice as long a second later, so medians of different seconds can not be
compared. What is compared is therefore run in turn; a ratio is taken within each turn, whose parts are milliseconds apart, and the
median and the quartiles are those of the ratios. A neighbour who slows a whole turn cancels out; one who hits a part of it makes an
outlier, which a median does not see. The quartiles of the ratios say how far to trust their median.
"""

import statistics


class Series:
    """The turns of one measure, each {row: value in `unit`}. `against` gives the rows that a row is compared with."""

    def __init__(self, unit: str, against=lambda row: ()):
        self.unit, self.against, self.turns = unit, against, []

    def add(self, turn: dict):
        self.turns.append(turn)

    def summarize(self) -> dict:
        rows = list(dict.fromkeys(row for turn in self.turns for row in turn))
        return {"unit": self.unit, "turns": len(self.turns), "rows": {row: self.summarize_row(row) for row in rows}}

    def summarize_row(self, row) -> dict:
        ratios = {other: self.take_ratios(row, other) for other in self.against(row) if other != row}
        return {
            "quartiles": cut([turn[row] for turn in self.turns if row in turn]),
            "ratios": {other: cut(values) for other, values in ratios.items() if values},
        }

    def take_ratios(self, row, other) -> list:
        return [turn[row] / turn[other] for turn in self.turns if row in turn and turn.get(other)]


def cut(values: list) -> list:
    """[first quartile, median, third quartile]; of fewer than five values the extremes, as they have no quarters."""
    median = statistics.median(values)
    first, last = (min(values), max(values)) if len(values) < 5 else statistics.quantiles(values, n=4, method="inclusive")[::2]
    return [float(f"{value:.4g}") for value in (first, median, last)]
