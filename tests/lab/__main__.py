"""`make lab`: measure every installed wrapper. --record writes build/records and the lab's part of docs/evidence.md.

With names of wrappers or scenes, measure only these.
"""

import platform
import sys
from concurrent.futures import ThreadPoolExecutor

from measured import describe, write_record

from .cell import measure
from .peers import PEERS
from .report import Report
from .scenes import SCENES
from .verdicts import UNKNOWN, VERDICTS

AT_ONCE = 4  # most of a cell's time is waiting
WORDS = [word for word in sys.argv[1:] if word != "--record"]


def main():
    names = [peer.name for peer in PEERS]
    if unknown := set(WORDS) - {*names, *SCENES}:
        known = f"wrappers: {', '.join(names)}; scenes: {', '.join(SCENES)}"
        sys.exit(f"lab: neither a wrapper nor a scene: {', '.join(unknown)} ({known})")
    absent = [peer.name for peer in PEERS if not peer.is_installed()]
    print(f"lab: not installed: {', '.join(absent) or 'none'}", file=sys.stderr)
    peers = [peer for peer in PEERS if peer.name not in absent and is_chosen(peer.name, names)]
    report = Report(measure_all(peers, [scene for scene in SCENES if is_chosen(scene, SCENES)]))

    print(f"{report.matrix()}\n\n{report.conclusion()} ({report.measured})")
    if WORDS:
        return
    if "--record" in sys.argv:
        write_record("lab", report.data, {"lab": report.to_evidence()})
    if report.has_gaps() or "solo" not in report.find_faultless():
        sys.exit("lab: solo fails in a scene, or a scene could not be measured")


def is_chosen(name, kind):
    """Whether the command line names it, or names none of its kind."""
    return name in WORDS or not set(WORDS) & set(kind)


def measure_all(peers, scenes) -> dict:
    outcomes = {scene: {} for scene in scenes}
    cells = [(scene, peer) for scene in scenes for peer in peers]

    def run(cell):
        scene, peer = cell
        outcome = measure(peer, scene)
        if outcome.verdict == UNKNOWN:  # a busy machine: try once more
            outcome = measure(peer, scene)
        outcomes[scene][peer.name] = outcome
        done = sum(map(len, outcomes.values()))
        result = f"{VERDICTS[outcome.verdict][0]} {peer.name}: {SCENES[scene].title}: {outcome.words}"
        print(f"{done}/{len(cells)} {result}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, cells))
    return {
        **describe(),
        "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
        "peers": {peer.name: {"version": peer.find_version(), "skip": peer.skip, "wait": peer.wait} for peer in peers},
        "scenes": {scene: {"title": SCENES[scene].title, "good": SCENES[scene].good} for scene in scenes},
        "outcomes": outcomes,
    }


if __name__ == "__main__":
    main()
