"""Render the outcomes as Markdown: every one of them, and the part of docs/evidence.md."""

import shlex
import textwrap
from itertools import groupby

from measured import format_measured

from .verdicts import GOOD, NOTE, TWO, UNKNOWN, VERDICTS

COMMAND_LINES = """
## Command lines

`{lock}` is the path of the lock file, `{name}` a name; the job follows.

| | version | skip | wait |
|---|---|---|---|
"""


class Report:
    """`data` is the content of lab.json."""

    def __init__(self, data):
        self.data = data
        self.peers = list(data["peers"])
        self.scenes = data["scenes"]
        self.measured = f"{format_measured(data)}, {data['distribution']}"

    def get(self, scene, peer):
        """Return (verdict, words)."""
        outcome = self.data["outcomes"][scene][peer]
        return VERDICTS[outcome["verdict"]], outcome["words"]

    def find(self, scene, *verdicts) -> list:
        """Return the peers for which the scene ended in one of these verdicts."""
        return [peer for peer in self.peers if self.get(scene, peer)[0] in verdicts]

    def find_faultless(self) -> list:
        return [peer for peer in self.peers if all(self.get(scene, peer)[0] in (GOOD, NOTE) for scene in self.scenes)]

    def has_gaps(self) -> bool:
        return any(self.find(scene, UNKNOWN) for scene in self.scenes)

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        fails = "is the only one that fails" if len(faultless) == 1 else "fail"
        noted = [scene for scene in self.scenes if set(self.find(scene, NOTE)).intersection(faultless)]
        titles = ", ".join(self.scenes[scene]["title"] for scene in noted)
        return f"{', '.join(faultless) or 'None'} {fails} in no scene." + f" It has a note (~) in: {titles}." * bool(
            noted
        )

    def matrix(self) -> str:
        """Return the table of all signs, and their meaning."""
        lines = [f"| | {' | '.join(self.peers)} |", "|---|" + ":-:|" * len(self.peers)]
        for scene, details in self.scenes.items():
            signs = (self.get(scene, peer)[0].sign for peer in self.peers)
            lines.append(f"| {details['title']} | {' | '.join(signs)} |")
        used = [verdict for verdict in VERDICTS.values() if any(self.find(scene, verdict) for scene in self.scenes)]
        return "\n".join([*lines, "", ", ".join(f"{verdict.sign} {verdict.meaning}" for verdict in used) + "."])

    def to_markdown(self) -> str:
        head = f"# How the alternatives fail\n\n`make lab` makes this table ({self.measured}).\n"
        scenes = "\n".join(self.describe(scene) for scene in self.scenes)
        rows = [
            f"| {name} | {peer['version']} | {quote(peer['skip'])} | {quote(peer['wait'])} |"
            for name, peer in self.data["peers"].items()
        ]
        parts = [head, self.matrix(), f"\n{self.conclusion()}\n\n## Each scene\n", scenes + COMMAND_LINES]
        return "\n".join(parts) + "\n".join(rows) + "\n"

    def describe(self, scene) -> str:
        """Return the good outcome and its reason, and every outcome with its peers, the best first."""
        order = list(VERDICTS.values())
        cells = [(*self.get(scene, peer), peer) for peer in self.peers]
        cells.sort(key=lambda cell: (order.index(cell[0]), *cell[1:]))
        lines = [f"### {self.scenes[scene]['title']}", "", f"Good: {self.scenes[scene]['good']}", ""]
        for (verdict, words), group in groupby(cells, lambda cell: cell[:2]):
            lines.append(f"- {verdict.sign} {words}: {', '.join(peer for _, _, peer in group)}")
        return "\n".join([*lines, ""])

    def to_evidence(self) -> str:
        """Return the scenes in which two jobs ran at once, the table of all, and a summary."""
        lines = ["| scene in which two jobs ran at once | command lines |", "|---|---|"]
        for scene, details in self.scenes.items():
            if self.find(scene, TWO):
                lines.append(f"| {details['title']} | {', '.join(self.find(scene, TWO))} |")
        programs = len({peer["version"] for peer in self.data["peers"].values()})
        summary = (
            f"`make lab` plays {len(self.scenes)} scenes with {len(self.peers)} command lines of {programs} programs, with real "
            f"processes ({self.measured}; it takes some minutes). {self.conclusion()} Its output describes each cell, the good outcome "
            "and its reason, each command line, and the versions. Only solo has the report of silent skips. A wrapper that replaces "
            "itself with the job by exec, like chpst, passes every scene that signals or kills the wrapper. But newcomers overtake its "
            "waiters, a job that closes its descriptors loses the lock, and such a wrapper cannot enforce a time limit, keep a history "
            "or report the holder."
        )
        return "\n".join([*lines, "", self.matrix(), "", *textwrap.wrap(summary, 132, break_on_hyphens=False)])


def quote(words):
    return f"`{shlex.join(words)}`".replace("|", "\\|") if words else "cannot"
