"""`make lab`: measure every installed wrapper. --record writes build/records and the lab's part of
docs/evidence.md.

With names of wrappers or scenes, measure only these.
"""

import platform
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

from measured import describe, format_measured, write_record

from .cell import measure
from .peers import PEERS
from .scenes import SCENES
from .trial import GOOD, NOTE, TWO, UNKNOWN, VERDICTS

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
        result = (
            f"{VERDICTS[outcome.verdict][0]} {peer.name}: {SCENES[scene].title}: {outcome.words}"
        )
        print(f"{done}/{len(cells)} {result}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, cells))
    return {
        **describe(),
        "distribution": platform.freedesktop_os_release()["PRETTY_NAME"],
        "peers": {
            peer.name: {"version": peer.find_version(), "skip": peer.skip, "wait": peer.wait}
            for peer in peers
        },
        "scenes": {
            scene: {"title": SCENES[scene].title, "good": SCENES[scene].good} for scene in scenes
        },
        "outcomes": outcomes,
    }


class Report:
    """`data` is the content of lab.json."""

    def __init__(self, data):
        self.data = data
        self.peers = list(data["peers"])
        self.scenes = data["scenes"]
        self.measured = f"{format_measured(data)}, {data['distribution']}"

    def get(self, scene, peer):
        return self.data["outcomes"][scene][peer].verdict

    def find(self, scene, *verdicts) -> list:
        """Return the peers for which the scene ended in one of these verdicts."""
        return [peer for peer in self.peers if self.get(scene, peer) in verdicts]

    def find_faultless(self) -> list:
        return [
            peer
            for peer in self.peers
            if all(self.get(scene, peer) in (GOOD, NOTE) for scene in self.scenes)
        ]

    def has_gaps(self) -> bool:
        return any(self.find(scene, UNKNOWN) for scene in self.scenes)

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        fails = "is the only one that fails" if len(faultless) == 1 else "fail"
        noted = [
            scene for scene in self.scenes if set(self.find(scene, NOTE)).intersection(faultless)
        ]
        titles = ", ".join(self.scenes[scene]["title"] for scene in noted)
        note = f" It has a note (~) in: {titles}." if noted else ""
        return f"{', '.join(faultless) or 'None'} {fails} in no scene.{note}"

    def matrix(self) -> str:
        """Return the table of all signs, and their meaning."""
        lines = [f"| | {' | '.join(self.peers)} |", "|---|" + ":-:|" * len(self.peers)]
        for scene, details in self.scenes.items():
            signs = (VERDICTS[self.get(scene, peer)][0] for peer in self.peers)
            lines.append(f"| {details['title']} | {' | '.join(signs)} |")
        used = [
            VERDICTS[one] for one in VERDICTS if any(self.find(scene, one) for scene in self.scenes)
        ]
        return "\n".join([*lines, "", ", ".join(map(" ".join, used)) + "."])

    def to_evidence(self) -> str:
        """Return the scenes in which two jobs ran at once, the table of all, and a summary."""
        lines = ["| scene in which two jobs ran at once | command lines |", "|---|---|"]
        for scene, details in self.scenes.items():
            if self.find(scene, TWO):
                lines.append(f"| {details['title']} | {', '.join(self.find(scene, TWO))} |")
        programs = len({peer["version"] for peer in self.data["peers"].values()})
        summary = (
            f"`make lab` plays {len(self.scenes)} scenes with {len(self.peers)} command lines of {programs} programs, with real "
            f"processes ({self.measured}; it takes some minutes). {self.conclusion()} Its output describes each cell, "
            "build/records/lab.json has the good outcomes, the command lines and the versions. Only solo has the report of silent "
            "skips. A wrapper that replaces itself with the job by exec, like chpst, passes every scene that signals or kills the "
            "wrapper. But newcomers overtake its waiters, a job that closes its descriptors loses the lock, and such a wrapper cannot "
            "enforce a time limit, keep a history or report the holder."
        )
        return "\n".join(
            [*lines, "", self.matrix(), "", *textwrap.wrap(summary, 132, break_on_hyphens=False)]
        )


if __name__ == "__main__":
    main()
