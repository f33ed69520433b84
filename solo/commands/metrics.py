"""`solo metrics`: OpenMetrics text of every name, for node_exporter's textfile collector among others.

https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

import os
import stat
import sys
import tempfile
from datetime import datetime
from time import time

from solo.text.width import clean
from solo.commands.list import collect
from solo.errors import SoloError
from solo.history.reader import Totals, find_histories
from solo.kernel import say
from solo.options import FILE

MODE = 0o644  # of a new file: its reader is another user
FAMILIES = (
    ("solo_held", "gauge", "", "How many hold the name."),
    ("solo_held_seconds", "gauge", "seconds", "For how long the oldest holder has held it."),
    ("solo_waiting", "gauge", "", "How many stand in line."),
    ("solo_runs", "counter", "", "Commands that were started."),
    ("solo_skips", "counter", "", "Contenders that found it busy and left."),
    ("solo_failures", "counter", "", "Commands that ended badly or could not be started."),
    ("solo_last_success_timestamp_seconds", "gauge", "seconds", "When a command last ended with status 0."),
    ("solo_last_failure_timestamp_seconds", "gauge", "seconds", "When a command last ended badly."),
)


def run(options: dict, names: list) -> int:
    """Print the metrics, or put them into the file --output at one go. 125 if some can not be read; the rest is there."""
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
    """({(name, via): {family: value}}, whether all could be read)."""
    samples, readable = {}, True
    for name, history in find_histories(options.get("dir"), names):
        if isinstance(history, SoloError):
            say(f"{name}: {history}")
            readable = False
            continue
        totals = history.totals
        if totals == Totals():
            continue
        samples[name, FILE] = {"solo_held": 0, "solo_waiting": 0, "solo_runs": totals.runs, "solo_skips": totals.skips,
                               "solo_failures": totals.failures}
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
        if row["since"]:
            age = round(max(0.0, now - datetime.fromisoformat(row["since"]).timestamp()), 3)
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
    """A label's value must be UTF-8, and what is quoted may be any bytes: others are shown as \\xNN. No two texts look the same."""
    data = text.encode(errors="surrogateescape")
    if "\\x" in text or data != text.encode(errors="replace"):
        data = data.replace(b"\\", b"\\\\")
    text = data.decode(errors="backslashreplace")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_atomically(path: str, text: str):
    """Who reads the file at `path` finds what was there or all of `text`; what is no file is written to. Raises SoloError."""
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
        raise SoloError(f"can not write {path}: {error.strerror}") from None
    finally:
        if new is not None:
            os.unlink(new)
