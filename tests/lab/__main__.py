"""`make lab`: measure every installed wrapper; write docs/lab.* and the lab's part of docs/evidence.md.

With names of wrappers or scenes, measure only these, print the outcomes and write nothing.
"""

import json
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measured import describe

from .cell import measure
from .peers import PEERS
from .report import Report
from .scenes import SCENES
from .verdicts import UNKNOWN

ROOT = Path(__file__).resolve().parent.parent.parent
AT_ONCE = 4  # most of a cell's time is waiting
EVIDENCE = re.compile(r"(<!-- lab -->\n).*?(?=<!-- end -->)", re.S)


def main():
    unknown = set(sys.argv[1:]) - {peer.name for peer in PEERS} - set(SCENES)
    if unknown:
        sys.exit(
            f"lab: neither a wrapper nor a scene: {', '.join(unknown)} "
            f"(wrappers: {', '.join(peer.name for peer in PEERS)}; scenes: {', '.join(SCENES)})"
        )
    peers = [peer for peer in PEERS if peer.is_installed() and is_chosen(peer.name, [peer.name for peer in PEERS])]
    scenes = [scene for scene in SCENES if is_chosen(scene, SCENES)]

    print(
        f"lab: not installed: {', '.join(peer.name for peer in PEERS if not peer.is_installed()) or 'none'}",
        file=sys.stderr,
    )
    report = Report(measure_all(peers, scenes))

    if sys.argv[1:]:
        print(report.matrix(), *(line for scene in scenes for line in report.describe(scene)), sep="\n", flush=True)
        return
    print(report.to_markdown(), end="")
    write(report)
    if report.has_gaps() or "solo" not in report.find_faultless():
        sys.exit("lab: solo fails in a scene, or a scene could not be measured")


def is_chosen(name, kind):
    """Whether the command line names it, or names none of its kind."""
    return name in sys.argv[1:] or not set(sys.argv[1:]) & set(kind)


def measure_all(peers, scenes) -> dict:
    outcomes = {scene: {} for scene in scenes}
    cells = [(scene, peer) for scene in scenes for peer in peers]

    def run(cell):
        scene, peer = cell
        outcome = measure(peer, scene)
        if outcome.verdict is UNKNOWN:  # a busy machine: try once more
            outcome = measure(peer, scene)
        outcomes[scene][peer.name] = outcome
        done = sum(map(len, outcomes.values()))
        result = f"{outcome.verdict.sign} {peer.name}: {SCENES[scene].title}: {outcome.words}"
        print(f"{done}/{len(cells)} {result}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, cells))
    return {
        **describe(),
        "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
        "peers": {peer.name: {"version": peer.find_version(), "skip": peer.skip, "wait": peer.wait} for peer in peers},
        "scenes": {scene: {"title": SCENES[scene].title, "good": SCENES[scene].good} for scene in scenes},
        "outcomes": {
            scene: {
                name: {"verdict": outcome.verdict.name, "words": outcome.words}
                for name, outcome in outcomes[scene].items()
            }
            for scene in scenes
        },
    }


def write(report):
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "lab.json").write_text(json.dumps(report.data, indent=1, ensure_ascii=False) + "\n")
    (docs / "lab.md").write_text(report.to_markdown())
    (docs / "lab.svg").write_text(report.to_svg())
    evidence = ROOT / "docs/evidence.md"
    evidence.write_text(EVIDENCE.sub(lambda found: found[1] + report.to_evidence() + "\n", evidence.read_text()))


if __name__ == "__main__":
    main()
