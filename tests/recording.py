"""Renew docs/recording.svg: `make recording`, or `python tests/recording.py FILE`. Needs root and tmux.

Type the commands of TYPED in a real shell and terminal, in new namespaces, and write its last screen as an SVG in which the lines
appear one after the other; without animation all of them are shown. Pids, times and durations are replaced: a run that differs in
nothing else gives the same bytes.
"""

import json
import os
import re
import subprocess
import sys
import time
from html import escape
from itertools import groupby
from pathlib import Path

from captures import JOBS, PREPARE, ROOT
from conftest import until
from tmux import Tmux

WIDTH, HEIGHT = 100, 40
CELL, LINE, MARGIN = 8, 19, 14  # pixels
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
MOMENTS = ("2026-11-23 02:30", "2026-11-23 02:30:07", "2026-11-23 02:30:08", "2026-11-23 02:30:13")
DURATIONS = "1s 4s 1s 0s 1s 6.1s 6.1s 6.1s 4ms 6.1s 3ms 1s 3.4s 3.7s".split()  # in the order of the screen
PIDS = ("4711", "4713", "4729", "4731", "4720")
TOKEN = re.compile(
    r"(?P<moment>\b20\d\d-\d\d-\d\d \d\d:\d\d(?::\d\d)?)|(?P<duration>(?<![\w.-])\d+(?:\.\d+)?m?s\b)|(?P<pid>\b4[78]\d\d\b)"
)
PICTURE, FULL = re.compile(r"[━○✗][━○✗ ]*"), 47  # with the blanks after it
# Classes of SGR sequences; other numbers are the default color.
WEIGHTS = {"1": "b", "2": "d", "22": ""}
COLORS = {"31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
STYLE = """text{font:13.3px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d5d9e0;white-space:pre}
.b{font-weight:bold}.d{opacity:.6}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.u{fill:#79c0ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}
@media(prefers-reduced-motion:reduce){g{animation:none!important}}
"""


def record(environment: dict) -> list:
    """Type the commands; return the lines of the screen, with their SGR sequences."""
    screen = Tmux(["sh", "-i", "+m"], {**environment, "PS1": "$ ", "ENV": "/dev/null"}, WIDTH, HEIGHT)
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
        screen.close()


def count_tickets(environment: dict) -> int:
    listed = subprocess.run(["/srv/solo", "list", "--json"], env=environment, capture_output=True)
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


def normalize(lines: list) -> list:
    """Return the lines of cells with the pids, times and durations of a fixed run, and the picture of `history` stretched evenly."""
    values = {"moment": iter(MOMENTS), "pid": iter(PIDS)}
    known, durations = {}, iter(DURATIONS)

    def choose(found):
        if found.lastgroup == "duration":
            return next(durations)
        if found[0] not in known:
            known[found[0]] = next(values[found.lastgroup])
        return known[found[0]]

    return [stretch(replace_tokens(cells, choose)) for cells in map(split_cells, lines)]


def replace_tokens(cells: list, choose) -> list:
    """Replace each token by `choose(match)`, and keep the columns where they are."""
    text = "".join(character for character, _ in cells)
    for found in reversed([(one.span(), one[0], choose(one)) for one in TOKEN.finditer(text)]):
        (start, end), old, new = found
        if text[end : end + 2] == "  ":
            blanks = len(text[end:]) - len(text[end:].lstrip(" "))
            new, end = new.ljust(len(old) + blanks), end + blanks
        cells[start:end] = [(character, cells[start][1]) for character in new]
    return cells


def stretch(cells: list) -> list:
    """Give all bars of a picture the same length, and the picture its full width."""
    found = PICTURE.search("".join(character for character, _ in cells))
    if not found:
        return cells
    start, end = found.span()
    marks = [cell for cell, _ in groupby(cell for cell in cells[start:end] if cell[0] != " ")]
    bars = sum(cell[0] == "━" for cell in marks)
    length = (FULL - len(marks) + bars) // bars
    drawn = [cell for mark in marks for cell in [mark] * (length if mark[0] == "━" else 1)]
    cells[start:end] = drawn + [(" ", "")] * (end - start - len(drawn))
    return cells


def draw(lines: list) -> str:
    """Return the SVG. A command and its output are two groups, which become visible one after the other."""
    groups, drawn, keys, at = [], [], [], 0.0
    for row, cells in enumerate(lines):
        if not groups or is_typed(cells) or is_typed(lines[row - 1]):
            at = at + (SECONDS - ANSWER if is_typed(cells) else ANSWER) if groups else 0.0
            groups.append((at, []))
        groups[-1][1].append(draw_line(row, cells))
    whole = at + END
    for number, (at, texts) in enumerate(groups):
        share = f"{100 * at / whole:.1f}"
        keys.append(f"@keyframes k{number}{{0%{{opacity:0}}{share}%{{opacity:1}}}}" if at else "")
        motion = f' style="animation:k{number} {whole:.1f}s step-end infinite"' if at else ""
        drawn.append(f"<g{motion}>\n" + "\n".join(filter(None, texts)) + "\n</g>\n")
    width, height = WIDTH * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" xml:space="preserve">\n'
        f"<title>solo in a terminal: busy, list, queue, stop, history</title>\n<style>{STYLE}{''.join(keys)}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#16191f"/>\n{"".join(drawn)}</svg>\n'
    )


def is_typed(cells: list) -> bool:
    """Is this line a prompt with a command?"""
    return cells[:1] == split_cells("$")


def draw_line(row: int, cells: list) -> str:
    """Return one text element per run of cells of the same classes, each in its columns."""
    texts, column = [], 0
    for classes, run in groupby(cells, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in run)
        shown = text.strip(" ")
        if shown:
            x = MARGIN + CELL * (column + len(text) - len(text.lstrip(" ")))
            attribute = f' class="{classes}"' if classes else ""
            texts.append(
                f'<text x="{x}" y="{MARGIN + LINE * row + 14}" textLength="{CELL * len(shown)}"{attribute}>{escape(shown)}</text>'
            )
        column += len(text)
    return "".join(texts)


def main(target: Path):
    for name, text in JOBS.items():
        (Path("/srv") / name).write_text(f"#!/bin/sh\n{text}\n")
        (Path("/srv") / name).chmod(0o755)
    Path("/srv/solo").symlink_to(Path(sys.executable).parent / "solo")
    Path("/proc/sys/kernel/ns_last_pid").write_text("4700")
    environment = {
        **os.environ,
        "PATH": "/srv:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "xterm-256color",
    }
    for variable in ("SOLO_DIR", "SOLO_VIA", "COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(variable, None)
    target.write_text(draw(normalize(record(environment))))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/recording.svg").resolve()
    if os.environ.get("SOLO_CAPTURES") != "inside":
        os.environ["SOLO_CAPTURES"] = "inside"
        words = "unshare --mount --uts --pid --fork --mount-proc --kill-child sh -c".split()
        os.execvp("unshare", [*words, PREPARE, "sh", sys.executable, __file__, str(target)])
    main(target)
