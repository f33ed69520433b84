"""Renew docs/recording.svg, the picture in README: `python tests/recording.py [FILE]`. Needs tmux.

Type the commands of TYPED in a real shell and terminal, and draw its last screen as an SVG. It begins with all lines, for viewers
without animation; then they appear one after the other.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from html import escape
from itertools import groupby
from pathlib import Path

from conftest import ROOT, until
from tmux import Tmux

WIDTH, HEIGHT = 100, 40
CELL, LINE, MARGIN = 8, 19, 14  # pixels
JOBS = {
    "backup.sh": "while :; do tar cf - /usr/lib /usr/bin 2>/dev/null | gzip -9 >/dev/null; done",
    "deploy.sh": "exec sleep 60",
}
TYPED = [  # (what is typed, tickets that there are afterwards)
    ("solo -n nightly -- backup.sh --full &", 1),
    ("solo -n nightly -- backup.sh --full    # the next start, too early", 1),
    ("solo -q -n nightly --wait 10m -- deploy.sh prod &", 2),
    ("solo list", 2),
    ("solo stop nightly    # ends the backup; then the waiter runs", 1),
    ("solo list", 1),
    ("solo history nightly", 1),
]
SECONDS, ANSWER, END = 2.4, 0.7, 6  # between two commands, from a command to its output, and after the last
# Classes of SGR sequences; other numbers are the default color.
WEIGHTS = {"1": "b", "2": "d", "22": ""}
COLORS = {"31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
STYLE = """text{font:13.3px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d5d9e0;white-space:pre}
.b{font-weight:bold}.d{opacity:.6}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.u{fill:#79c0ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}
@media(prefers-reduced-motion:reduce){g{animation:none!important}}
"""


def record(folder: Path) -> list:
    """Type the commands; return the lines of the screen, with their SGR sequences."""
    for name, text in JOBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "solo").symlink_to(Path(sys.executable).parent / "solo")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOLO_")}
    environment = {**kept, "PATH": f"{folder}:/usr/bin:/bin", "SOLO_DIR": str(folder / "names"), "LC_ALL": "C.UTF-8"}
    environment |= {"PS1": "$ ", "ENV": "/dev/null", "TERM": "xterm-256color"}
    for variable in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(variable, None)
    screen = Tmux(["sh", "-i", "+m"], environment, WIDTH, HEIGHT)
    try:
        for words, tickets in TYPED:
            until(lambda: screen.read()[-1] == "$")
            time.sleep(1)  # so that the ages differ
            screen.type("-l", words)
            screen.type("Enter")
            until(lambda tickets=tickets: count_tickets(environment) == tickets)
        until(lambda: screen.read()[-1] == "$")
        return screen.call("capture-pane", "-p", "-e").rstrip().split("\n")[:-1]
    finally:
        subprocess.run(["solo", "stop", "nightly"], env=environment, capture_output=True)
        screen.close()


def count_tickets(environment: dict) -> int:
    listed = subprocess.run(["solo", "list", "--json"], env=environment, capture_output=True)
    return len(json.loads(listed.stdout))


def split_cells(line: str) -> list:
    """Return [(character, classes)] of a line with SGR sequences."""
    cells, weight, color = [], "", ""
    for numbers, character in re.findall(r"\x1b\[([\d;]*)m|(.)", line):
        if character:
            cells.append((character, f"{weight} {color}".strip()))
            continue
        for number in numbers.split(";"):
            if number in ("", "0"):
                weight = color = ""
            elif number in WEIGHTS:
                weight = WEIGHTS[number]
            else:
                color = COLORS.get(number, "")
    return cells


def draw(lines: list) -> str:
    """Return the SVG. A command and its output are two groups, which become visible one after the other."""
    groups, drawn, keys, at = [], [], [], 0.0
    for row, line in enumerate(lines):
        is_typed = line.startswith("$ ")
        if not groups or is_typed or lines[row - 1].startswith("$ "):
            at = at + (SECONDS - ANSWER if is_typed else ANSWER) if groups else 0.0
            groups.append((at, []))
        groups[-1][1].append(draw_line(row, split_cells(line)))
    whole = at + END
    for number, (at, texts) in enumerate(groups):
        share = f"{100 * at / whole:.1f}"
        keys.append(f"@keyframes k{number}{{0%{{opacity:0}}{share}%{{opacity:1}}}}" if at else "")
        motion = (
            f' style="animation:k{number} {whole:.1f}s step-end {END}s infinite"' if at else ""
        )  # until END: all lines
        drawn.append(f"<g{motion}>\n" + "\n".join(filter(None, texts)) + "\n</g>\n")
    width, height = WIDTH * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" xml:space="preserve">\n'
        f"<title>solo in a terminal: busy, list, queue, stop, history</title>\n<style>{STYLE}{''.join(keys)}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#16191f"/>\n{"".join(drawn)}</svg>\n'
    )


def draw_line(row: int, cells: list) -> str:
    """Return one text element per run of cells of the same classes, each in its columns."""
    texts, column = [], 0
    for classes, run in groupby(cells, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in run)
        shown = text.strip(" ")
        if shown:
            x = MARGIN + CELL * (column + len(text) - len(text.lstrip(" ")))
            attribute = f' class="{classes}"' if classes else ""
            place = f'x="{x}" y="{MARGIN + LINE * row + 14}" textLength="{CELL * len(shown)}"'
            texts.append(f"<text {place}{attribute}>{escape(shown)}</text>")
        column += len(text)
    return "".join(texts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/recording.svg").write_text(draw(record(Path(place))))
