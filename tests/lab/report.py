"""Render the outcomes as Markdown: their table, and the part of docs/evidence.md."""

import textwrap

from measured import format_measured

from .verdicts import GOOD, NOTE, TWO, UNKNOWN, VERDICTS


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
        return [peer for peer in self.peers if all(self.get(scene, peer) in (GOOD, NOTE) for scene in self.scenes)]

    def has_gaps(self) -> bool:
        return any(self.find(scene, UNKNOWN) for scene in self.scenes)

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        fails = "is the only one that fails" if len(faultless) == 1 else "fail"
        noted = [scene for scene in self.scenes if set(self.find(scene, NOTE)).intersection(faultless)]
        titles = ", ".join(self.scenes[scene]["title"] for scene in noted)
        note = f" It has a note (~) in: {titles}." if noted else ""
        return f"{', '.join(faultless) or 'None'} {fails} in no scene.{note}"

    def matrix(self) -> str:
        """Return the table of all signs, and their meaning."""
        lines = [f"| | {' | '.join(self.peers)} |", "|---|" + ":-:|" * len(self.peers)]
        for scene, details in self.scenes.items():
            signs = (VERDICTS[self.get(scene, peer)][0] for peer in self.peers)
            lines.append(f"| {details['title']} | {' | '.join(signs)} |")
        used = [VERDICTS[one] for one in VERDICTS if any(self.find(scene, one) for scene in self.scenes)]
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
        return "\n".join([*lines, "", self.matrix(), "", *textwrap.wrap(summary, 132, break_on_hyphens=False)])
