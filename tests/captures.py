"""Renew the captures in README.md and docs/views.md: `make captures`, or `python tests/captures.py FILE...`. Needs root and tmux.

Run real jobs for some seconds in new namespaces, with names in their usual directories, and read each view from a real terminal.
Replace the text between `<!-- captured: VIEW -->` and `<!-- end -->`.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tmux import Tmux

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 100, 26
PREPARE = """
    set -e
    hostname db1
    mount -t tmpfs tmpfs /run; mkdir -p /var/lib/solo; mount -t tmpfs -o mode=755 tmpfs /var/lib/solo; mount -t tmpfs tmpfs /srv
    exec "$@"
"""
JOBS = {
    "backup.sh": "while :; do tar cf - /usr/lib /usr/bin 2>/dev/null | gzip -9 >/dev/null; done",
    "sync.sh": "sleep 1.7",
    "report.sh": "sleep 0.4; [ $1 != tuesday ]",
    "deploy.sh": "sleep 60",
}
VIEWS = {"list": ["list"], "show": ["show", "backup"], "history": ["history", "--since", "1h"], "top": ["top"]}


def run_jobs(environment):
    """Run jobs for some seconds; return the launchers that still run."""

    def start(*words):
        return subprocess.Popen(["solo", *words], env=environment, stderr=subprocess.DEVNULL)

    running = [start("-n", "backup", "--", "backup.sh", "--full")]
    for second in range(6):
        running.append(start("-n", "sync", "-q", "--", "sync.sh"))
        if second % 3 == 0:
            start("-n", "reports", "report.sh", "monday" if second else "tuesday").wait()
        if second == 4:
            start("-n", "backup", "--", "backup.sh", "--full").wait()
        time.sleep(1)
    running.append(start("-n", "deploy/prod", "--", "deploy.sh", "prod"))
    for stage in ("prod", "prod"):
        time.sleep(0.3)
        running.append(start("-n", "deploy/prod", "--wait", "10m", "--", "deploy.sh", stage))
    time.sleep(1)
    return running


def capture(words, environment) -> str:
    screen = Tmux(["solo", *words], environment, WIDTH, HEIGHT if words == ["top"] else 60)
    try:
        if words == ["top"]:
            time.sleep(3)  # so that top has a CPU percentage to show
            lines = screen.read()
            lines = [*(line for line in lines[:-1] if line), "", lines[-1]]
        else:
            lines = screen.wait_for("ended:0")
            lines = lines[: lines.index("ended:0")]
        return "\n".join(lines)
    finally:
        screen.close()


def main(paths: list):
    jobs = Path("/srv")
    for name, text in JOBS.items():
        (jobs / name).write_text(f"#!/bin/sh\n{text}\n")
        (jobs / name).chmod(0o755)
    (jobs / "solo").symlink_to(Path(sys.executable).parent / "solo")
    environment = {**os.environ, "PATH": f"{jobs}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "NO_COLOR": "1"}
    for variable in ("SOLO_DIR", "SOLO_VIA", "COLUMNS", "LINES"):
        environment.pop(variable, None)
    run_jobs(environment)
    pages = {path: path.read_text() for path in paths}
    for view, words in VIEWS.items():
        block = f"<!-- captured: {view} -->\n```\n$ solo {' '.join(words)}\n{capture(words, environment)}\n```\n<!-- end -->"
        marked = re.compile(rf"<!-- captured: {view} -->.*?<!-- end -->", re.S)
        assert any(map(marked.search, pages.values())), f"no page has a marker for {view}"
        pages = {path: marked.sub(lambda _, block=block: block, page) for path, page in pages.items()}
    for path, page in pages.items():
        path.write_text(page)


if __name__ == "__main__":
    targets = [Path(word).resolve() for word in sys.argv[1:] or (ROOT / "README.md", ROOT / "docs/views.md")]
    if os.environ.get("SOLO_CAPTURES") != "inside":
        inside = [
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            PREPARE,
            "sh",
        ]
        os.environ["SOLO_CAPTURES"] = "inside"
        os.execvp("unshare", [*inside, sys.executable, __file__, *map(str, targets)])
    main(targets)
