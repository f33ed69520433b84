"""Measure the views, written into a pipe, for growing numbers of names, beside the same view of an empty directory."""

from contextlib import ExitStack

from bench.contestants import Bench, Holder
from bench.launch import run_in_turn
from bench.quartiles import Series

EACH = 500  # names per launcher, which keeps a descriptor open for each


def measure_list(bench: Bench, rounds: int) -> dict:
    stocks = (
        ("0 held", "1 held", "10 held", "5 idle")
        if bench.small
        else ("0 held", "1 held", "10 held", "100 held", "1000 held", "10000 held", "1000 idle")
    )
    references = {"python -IS": ([bench.python, "-IS", "-c", "pass"], 0)}
    return {"list": time_views(bench, rounds, (["list"], ["list", "--json"]), stocks, references)}


def measure_views(bench: Bench, rounds: int) -> dict:
    views = (["show", "name00000"], ["history"], ["metrics"], ["top"])
    return {"views": time_views(bench, rounds, views, ("0 held", "3 held" if bench.small else "300 held"))}


def time_views(bench: Bench, rounds: int, views, stocks, references=()) -> Series:
    """Time each view with each stock. Compare it with the first stock, and that with the references."""
    contestants = dict(references)
    with ExitStack() as stack:
        for stock in stocks:
            place = ["--dir", str(bench.folder / stock)]
            for holder in hold_names(bench, place, int(stock.split()[0])):
                stack.enter_context(holder)
                if stock.endswith("idle"):
                    holder.release()
            for view in views:
                is_unknown = view[0] == "show" and stock.startswith("0 ")  # a name that was never used: status 125
                contestants[f"solo {' '.join(view)}, {stock}"] = [bench.solo, *view, *place], 125 if is_unknown else 0

        def list_references(row):
            view, _, stock = row.rpartition(", ")
            return list(references) if stock == stocks[0] else [f"{view}, {stocks[0]}"]

        return run_in_turn(contestants, rounds, list_references)


def hold_names(bench: Bench, place: list, count: int) -> list:
    names = [f"name{number:05d}" for number in range(count)]
    parts = [names[at : at + EACH] for at in range(0, count, EACH)]
    return [Holder([bench.solo, *place, *(word for name in part for word in ("-n", name)), "--"]) for part in parts]
