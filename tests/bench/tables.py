"""Make the tables of docs/evidence.md from the recorded results, between `<!-- bench: NAME -->` and `<!-- end -->`."""

import re

from bench.launch import OPTIONS
from measured import format_measured


def list_blocks(results: dict) -> dict:
    """Return {name: text} of every block. Leave out rows, and a table, that were not measured."""
    measures, machine = results["measures"], results["machine"]

    def show(title, row):
        median = measures[title]["rows"][row]["quartiles"][1]
        return f"{median:,.0f}" if median >= 100 else f"{median:.3g}"

    def show_ratio(title, row, other):
        first, median, last = measures[title]["rows"][row]["ratios"].get(other, (1, 1, 1))
        return f"{median:.2f} ({first:.2f} to {last:.2f})" if first < last else f"{median:.2f}"

    def compare(title, other, labels):
        rows = measures.get(title, {}).get("rows", {})
        return [
            (label, show(title, row), show_ratio(title, row, other)) for row, label in labels.items() if row in rows
        ]

    return {
        "launch": make_table(
            ("a run of `true`", "ms", "/ floor"),
            compare(
                "launch",
                "floor",
                {
                    "flock(1)": "flock(1)",
                    "floor": "the floor",
                    "solo, make install": "solo from `make install`",
                    "solo, default name": "the same, with a generated name",
                    "solo, pip": "solo from pip, in a clean environment",
                    "floor, pip": "the floor in that environment, with `site`",
                },
            ),
        ),
        "options": make_table(
            ("a run of `true` with an option", "ms", "/ floor"),
            compare("options", "floor", {f"solo {option}": f"`{option}`" for option in OPTIONS}),
        ),
        "descriptors": make_table(
            ("a run of `true`", "ms", "/ without the files"),
            [
                *compare(
                    "descriptors", "floor", {"floor": "the floor", "floor, 1000 files": "with 1,000 inherited files"}
                ),
                *compare("descriptors", "solo", {"solo": "solo", "solo, 1000 files": "with 1,000 inherited files"}),
            ],
        ),
        "busy": make_table(
            ("skipped", "ms", "/ `python -IS -c pass`"),
            compare(
                "busy", "python -IS", {"flock(1)": "flock -n", "solo": "solo, with its message", "solo -q": "solo -q"}
            ),
        ),
        "handoff": make_table(
            ("a handoff", "ms", "/ flock(1)"),
            [
                *compare(
                    "handoff in a queue of 40",
                    "flock(1)",
                    {
                        "flock(1)": "flock(1), in a queue of 40",
                        "floor": "the floor, in a queue of 40",
                        "solo": "solo, in a queue of 40",
                    },
                ),
                *compare(
                    "latency",
                    "flock(1)",
                    {
                        "flock(1)": "flock(1), to the first word of `echo`",
                        "floor": "the floor, to the first word of `echo`",
                        "solo": "solo, to the first word of `echo`",
                        "solo, after an orphan": "solo, after an orphan",
                        "solo, after SIGKILL in a slot": "solo, after SIGKILL in one of three slots",
                    },
                ),
            ],
        ),
        "waiting": f"A thousand waiters used {show('queue: waiting, CPU', 'solo, 1000')} ms of CPU in one second.",
        "queue": make_table(
            ("waiters", "a handoff, ms", "flock(1)", "CPU, ms", "flock(1)", "wake-ups", "flock(1)"),
            [
                (
                    f"{count:,}",
                    *(
                        show(f"queue: handoff{what}", f"{name}, {count}")
                        for what in ("", ", CPU", ", wake-ups")
                        for name in ("solo", "flock(1)")
                    ),
                )
                for count in (1, 10, 100, 1000)
            ],
        ),
        "list": make_table(
            ("names", "`solo list`, ms", "`--json`, ms"),
            [
                (
                    f"{int(count):,} {kind}",
                    *(show("list", f"{view}, {count} {kind}") for view in ("solo list", "solo list --json")),
                )
                for count, kind in (
                    row.rpartition(", ")[2].split() for row in measures["list"]["rows"] if "--json" in row
                )
            ],
        ),
        "memory": make_table(
            ("MB", "resident", "proportional (PSS)", "private (USS)"),
            [
                (label, *(show(f"memory: {what}", row) for what in ("RSS", "PSS", "USS")))
                for row, label in {
                    "solo": "a launcher whose command runs",
                    "solo, waiting": "a waiter",
                    "solo, one of 50": "one of 50 waiters",
                    "python -IS": "`python -IS`, nothing loaded",
                    "flock(1)": "flock(1)",
                }.items()
            ],
        ),
        "python": make_table(
            ("acquire and release from Python", "µs"),
            [
                (f"{row}, bare" if row == "fcntl.flock" else row, show("python", row))
                for row in measures["python"]["rows"]
            ],
        ),
        "threads": make_table(
            ("a handoff between 20 threads", "µs", "/ filelock"),
            compare("python: 20 threads", "filelock", {"filelock": "filelock", "solo.Lock": "solo.Lock"}),
        ),
        "engines": make_table(
            ("at an engine on loopback, ms", "a run of `true`", "acquire", "renew", "release"),
            [
                (
                    row.removeprefix("solo via "),
                    show("engines: launch", row),
                    *(
                        show("engines: steps", f"{row}, {step}") if row.startswith("solo") else ""
                        for step in ("acquire", "renew", "release")
                    ),
                )
                for row in measures["engines: launch"]["rows"]
                if row != "floor"
            ],
        ),
        "etcd": make_table(
            ("CPU of a run of `true` at etcd", "ms", "/ etcdctl lock"),
            compare("engines: CPU", "etcdctl lock", {"etcdctl lock": "etcdctl lock", "solo via etcd": "solo via etcd"}),
        ),
        "crowd": make_table(
            ("a queue at PostgreSQL's table", "a handoff, ms"),
            [
                (f"{row.rpartition(', ')[2]}, each as on a host of its own", show("engines: crowd", row))
                for row in measures.get("engines: crowd", {}).get("rows", ())
            ],
        ),
        "machine": f"({format_measured(machine)}, {machine['cores']} cores of "
        f"{machine['cpu']}, load {machine['load'][0]} at the start; turns and versions: "
        "[bench.json](bench.json).)",
    }


def make_table(header, rows) -> str:
    if not rows:
        return "(not measured)"
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill_page(page: str, results: dict) -> str:
    """Return the page with every block replaced. Fails if a block has no marker."""
    for name, text in list_blocks(results).items():
        block = f"<!-- bench: {name} -->\n{text}\n<!-- end -->"
        page, count = re.subn(rf"<!-- bench: {name} -->.*?<!-- end -->", lambda _, block=block: block, page, flags=re.S)
        assert count == 1, f"docs/evidence.md has no marker for {name}"
    return page
