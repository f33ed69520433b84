"""Renew docs/recording.svg, the picture in README: `python tests/recording.py [FILE]`. Needs tmux.

Type the commands of TYPED in a real shell and terminal, and let rich draw its last screen as an SVG.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conftest import ROOT, until
from rich.console import Console
from rich.text import Text
from tmux import Tmux

WIDTH, HEIGHT = 100, 40
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
# rich's own format loads a font from the network.
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>solo in a terminal: busy, list, queue, stop, history</title>
<style>.{unique_id}-title{{font:bold 18px sans-serif}}.{unique_id}-matrix{{font:20px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}}
{styles}</style><defs>{lines}</defs>{chrome}
<g transform="translate({terminal_x},{terminal_y})">{backgrounds}<g class="{unique_id}-matrix">
{matrix}</g></g></svg>
"""


def record(folder: Path) -> str:
    """Type the commands; return the screen, with its SGR sequences."""
    for name, text in JOBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "solo").symlink_to(Path(sys.executable).parent / "solo")
    hidden = ("COLUMNS", "LINES", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOLO_") and name not in hidden}
    environment = {**kept, "PATH": f"{folder}:/usr/bin:/bin", "SOLO_DIR": str(folder / "names"), "LC_ALL": "C.UTF-8"}
    environment |= {"PS1": "$ ", "ENV": "/dev/null", "TERM": "xterm-256color"}
    screen = Tmux(["sh", "-i", "+m"], environment, WIDTH, HEIGHT)
    try:
        for words, tickets in TYPED:
            until(lambda: screen.read()[-1] == "$")
            time.sleep(1)  # so that the ages differ
            screen.type("-l", words)
            screen.type("Enter")
            until(lambda tickets=tickets: count_tickets(environment) == tickets)
        until(lambda: screen.read()[-1] == "$")
        return screen.call("capture-pane", "-p", "-e").rstrip().rpartition("\n")[0]
    finally:
        subprocess.run(["solo", "stop", "nightly"], env=environment, capture_output=True)
        screen.close()


def count_tickets(environment: dict) -> int:
    listed = subprocess.run(["solo", "list", "--json"], env=environment, capture_output=True)
    return len(json.loads(listed.stdout))


def draw(screen: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    return console.export_svg(title="solo", code_format=PICTURE, unique_id="solo")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/recording.svg").write_text(draw(record(Path(place))))
