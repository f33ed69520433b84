"""`solo metrics`: OpenMetrics text of every name, for example for the textfile collector of node_exporter.

https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import sys
from time import time

from solo.commands.list import collect
from solo.errors import SoloError
from solo.history.reader import Totals, find_histories
from solo.kernel import say
from solo.options import FILE
from solo.text.width import clean

MODE = 0o644  # of a new file: its reader is another user
FAMILIES = (
    ("solo_held", "gauge", "", "Number of holders."),
    ("solo_held_seconds", "gauge", "seconds", "Seconds for which the oldest holder has held the name."),
    ("solo_waiting", "gauge", "", "Number of waiters."),
    ("solo_runs", "counter", "", "Commands that were started."),
    ("solo_skips", "counter", "", "Contenders that found the name busy and did not run."),
    ("solo_failures", "counter", "", "Commands that failed or could not be started."),
    ("solo_last_success_timestamp_seconds", "gauge", "seconds", "When a command last ended with status 0."),
    ("solo_last_failure_timestamp_seconds", "gauge", "seconds", "When a command last failed."),
)


def run(options: dict, names: list) -> int:
    """Print the metrics, or replace the file of --output with them.

    Return 125 if a name cannot be read; the others are there.
    """
    samples, complete = collect_samples(options, names)
    text = format_metrics(samples)
    if "output" in options:
        write_atomically(options["output"], text)
    elif sys.stdout.isatty():
        print("\n".join(map(clean, text.splitlines())))
    else:
        sys.stdout.write(text)
    return 0 if complete else SoloError.status


def collect_samples(options: dict, names: list) -> tuple:
    """Return ({(name, via): {family: value}}, whether all could be read)."""
    samples, readable = {}, True
    for name, history in find_histories(options.get("dir"), names):
        if isinstance(history, SoloError):
            say(f"{name}: {history}")
            readable = False
            continue
        totals = history.totals
        if totals == Totals():
            continue
        samples[name, FILE] = {
            "solo_held": 0,
            "solo_waiting": 0,
            "solo_runs": totals.runs,
            "solo_skips": totals.skips,
            "solo_failures": totals.failures,
        }
        if totals.last_success:
            samples[name, FILE]["solo_last_success_timestamp_seconds"] = totals.last_success
        if totals.last_failure:
            samples[name, FILE]["solo_last_failure_timestamp_seconds"] = totals.last_failure
    rows, complete = collect(options.get("dir"), options.get("via"), names)
    now = time()
    for row in rows:
        mine = samples.setdefault((row["name"], row["via"]), {"solo_held": 0, "solo_waiting": 0})
        if row["state"] == "waiting":
            mine["solo_waiting"] += 1
            continue
        mine["solo_held"] += 1
        if row["since"] is not None:
            age = round(max(0.0, now - row["since"]), 3)
            mine["solo_held_seconds"] = max(age, mine.get("solo_held_seconds", 0.0))
    return samples, complete and readable


def format_metrics(samples: dict) -> str:
    lines = []
    for family, kind, unit, help in FAMILIES:
        lines.append(f"# TYPE {family} {kind}")
        if unit:
            lines.append(f"# UNIT {family} {unit}")
        lines.append(f"# HELP {family} {help}")
        sample = f"{family}_total" if kind == "counter" else family
        for (name, via), values in sorted(samples.items()):
            if family in values:
                value = values[family]
                number = value if isinstance(value, int) else f"{value:.3f}"
                lines.append(f"{sample}{format_labels(name=name, via=via)} {number}")
    return "\n".join([*lines, "# EOF\n"])


def format_labels(**labels) -> str:
    return "{" + ",".join(f'{label}="{quote_label(text)}"' for label, text in labels.items()) + "}"


def quote_label(text: str) -> str:
    """Return the text as the value of a label, which must be UTF-8.

    Other bytes become \\xNN. No two texts have one label.
    """
    data = text.encode(errors="surrogateescape")
    if "\\x" in text or data != text.encode(errors="replace"):
        data = data.replace(b"\\", b"\\\\")
    text = data.decode(errors="backslashreplace")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_atomically(path: str, text: str):
    """Replace the contents of `path` by `text`: a reader finds the old or the new ones. Raise SoloError.

    A device or pipe is written to instead.
    """
    import os
    import stat
    import tempfile

    path, new = os.path.realpath(path), None
    try:
        old = os.stat(path) if os.path.exists(path) else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            with open(path, "w", encoding="utf-8") as output:
                output.write(text)
            return
        folder, file = os.path.split(path)
        fd, new = tempfile.mkstemp(prefix=f".{file}.", dir=folder)  # not *.prom, which would be collected
        with open(fd, "w", encoding="utf-8") as output:
            output.write(text)
            os.fchmod(fd, MODE if old is None else stat.S_IMODE(old.st_mode))
        os.replace(new, path)
        new = None
    except OSError as error:
        raise SoloError(f"cannot write {path}: {error.strerror}") from None
    finally:
        if new is not None:
            os.unlink(new)
