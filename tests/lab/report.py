"""Render the outcomes as Markdown, as a part of docs/evidence.md, and as an SVG picture, without libraries."""

import shlex
import textwrap
from html import escape
from itertools import groupby

from measured import format_measured

from .verdicts import BAD, GOOD, NOTE, TWO, UNKNOWN, VERDICTS

CELL, LABEL, HEAD, SIZE = (36, 24), 330, 122, 14  # pixels
INK = "#1b1f23"


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

    def list_used(self) -> list:
        """Return the verdicts that occur, best first."""
        return [verdict for verdict in VERDICTS.values() if any(self.find(scene, verdict) for scene in self.scenes)]

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        text = f"{', '.join(faultless) or 'None'} {'is the only one that fails' if len(faultless) == 1 else 'fail'} in no scene."
        notes = [
            one["title"] for scene, one in self.scenes.items() if set(self.find(scene, NOTE)).intersection(faultless)
        ]
        return f"{text} It has a note (~) in: {', '.join(notes)}." if notes else text

    # --- Markdown ---------------------------------------------------------------------------------------------------

    def matrix(self) -> str:
        lines = [f"| | {' | '.join(self.peers)} |", "|---|" + ":-:|" * len(self.peers)]
        for scene, details in self.scenes.items():
            signs = [self.get(scene, peer)[0].sign for peer in self.peers]
            lines.append(
                f"| {details['title']} | {' | '.join(f'**{sign}**' if sign == TWO.sign else sign for sign in signs)} |"
            )
        return "\n".join(lines)

    def to_markdown(self) -> str:
        legend = ", ".join(f"{verdict.sign} {verdict.meaning}" for verdict in self.list_used())
        lines = [
            "# How the alternatives fail",
            "",
            f"`make lab` makes this table ({self.measured}).",
            "",
            self.matrix(),
            "",
        ]
        lines += [f"{legend}. {self.conclusion()}", "", "## Each scene"]
        lines += [line for scene in self.scenes for line in self.describe(scene)]
        lines += [
            "",
            "## Command lines",
            "",
            "`{lock}` is the path of the lock file, `{name}` a name; the job follows.",
            "",
        ]
        lines += ["| | version | skip | wait |", "|---|---|---|---|"]
        for name, peer in self.data["peers"].items():
            lines.append(f"| {name} | {peer['version']} | {quote(peer['skip'])} | {quote(peer['wait'])} |")
        return "\n".join(lines) + "\n"

    def describe(self, scene):
        """Yield lines: the good outcome and its reason, then every outcome with its peers."""
        details = self.scenes[scene]
        order = list(VERDICTS.values())
        outcomes = sorted(
            (order.index(self.get(scene, peer)[0]), self.get(scene, peer)[1], peer) for peer in self.peers
        )
        yield from ("", f"### {details['title']}", "", f"Good: {details['good']}", "")
        for (place, words), cells in groupby(outcomes, lambda cell: cell[:2]):
            yield f"- {order[place].sign} {words}: {', '.join(peer for _, _, peer in cells)}"

    def to_evidence(self) -> str:
        """Return the scenes in which two jobs ran at once, the picture, and a summary."""
        lines = ["| scene in which two jobs ran at once | command lines |", "|---|---|"]
        for scene, details in self.scenes.items():
            if self.find(scene, TWO):
                lines.append(f"| {details['title']} | {', '.join(self.find(scene, TWO))} |")
        counts = (
            f"{len(self.scenes)} scenes with {len(self.peers)} command lines of {len(self.list_versions())} programs"
        )
        summary = (
            f"`make lab` plays {counts}, with real processes ({self.measured}; it takes some minutes). {self.conclusion()} Its output "
            "describes each cell, the good outcome and its reason, each command line, and the versions. Only solo has the report of "
            "silent skips. A wrapper that replaces itself with the job by exec, like chpst, passes every scene that signals or kills "
            "the wrapper. But newcomers overtake its waiters, a job that closes its descriptors loses the lock, and such a wrapper "
            "cannot enforce a time limit, keep a history or report the holder."
        )
        picture = f"![{counts}: how the alternatives fail](lab.svg)"
        return "\n".join([*lines, "", picture, "", *textwrap.wrap(summary, 132, break_on_hyphens=False)])

    def list_versions(self) -> list:
        return list(dict.fromkeys(peer["version"] for peer in self.data["peers"].values()))

    # --- Picture ----------------------------------------------------------------------------------------------------

    def to_svg(self) -> str:
        wide = LABEL + CELL[0] * len(self.peers) + 50
        versions = f"make lab, {self.measured}: {', '.join(self.list_versions())}"
        footer = textwrap.wrap(versions, wide // 8, break_on_hyphens=False)
        high = HEAD + CELL[1] * len(self.scenes) + 70 + 18 * len(footer)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="DejaVu Sans, Verdana, sans-serif" '
            f'font-size="{SIZE}" fill="{INK}">\n<rect width="{wide}" height="{high}" rx="8" fill="#ffffff"/>'
        ]
        for column, peer in enumerate(self.peers):
            at = f"translate({LABEL + CELL[0] * (column + 0.5) + SIZE / 3:.0f} {HEAD - 8}) rotate(-55)"
            parts.append(f'<text transform="{at}"{bold(peer == "solo")}>{escape(peer)}</text>')
        for row, (scene, details) in enumerate(self.scenes.items()):
            y = HEAD + CELL[1] * row
            parts.append(f'<text x="{LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(details["title"])}</text>')
            for column, peer in enumerate(self.peers):
                parts.append(draw(LABEL + CELL[0] * column, y, self.get(scene, peer)[0]))
        x, y = 24, HEAD + CELL[1] * len(self.scenes) + 20
        for verdict in self.list_used():
            parts.append(draw(x, y, verdict))
            parts.append(f'<text x="{x + CELL[0] + 6}" y="{y + 17}">{verdict.meaning}</text>')
            x += CELL[0] + 32 + 8 * len(verdict.meaning)
        for line, text in enumerate(footer):
            parts.append(f'<text x="24" y="{y + 52 + 18 * line}" font-size="12">{escape(text)}</text>')
        return "\n".join([*parts, "</svg>\n"])


def quote(words):
    return f"`{shlex.join(words)}`".replace("|", "\\|") if words else "cannot"


def bold(is_bold):
    return ' font-weight="bold"' if is_bold else ""


def draw(x, y, verdict):
    """Return the SVG of a cell: colour and sign."""
    wide, high = CELL
    ink = ' fill="#ffffff"' if verdict is TWO else ""
    return (
        f'<rect x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" rx="3" fill="{verdict.colour}"/>'
        f'<text x="{x + wide // 2}" y="{y + 17}" text-anchor="middle"{ink}{bold(verdict in (BAD, TWO))}>{verdict.sign}</text>'
    )
