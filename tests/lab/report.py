"""The outcomes as JSON, as Markdown, as a part of docs/evidence.md, and as a picture that needs no library."""

import shlex
import textwrap
from html import escape
from itertools import groupby

from .verdicts import BAD, GOOD, NOTE, TWO, UNKNOWN, VERDICTS

CELL, LABEL, HEAD, SIZE = (36, 24), 330, 122, 14  # pixels
INK = "#1b1f23"


class Report:
    """`data` is what docs/lab.json holds."""

    def __init__(self, data):
        self.data = data
        self.peers = list(data["peers"])
        self.scenes = data["scenes"]
        self.measured = f"{data['date']}, {data['kernel']}, {data['distribution']}"

    def get(self, scene, peer):
        """(verdict, words)"""
        outcome = self.data["outcomes"][scene][peer]
        return VERDICTS[outcome["verdict"]], outcome["words"]

    def find(self, scene, *verdicts) -> list:
        """The peers with which the scene came to one of these."""
        return [peer for peer in self.peers if self.get(scene, peer)[0] in verdicts]

    def find_faultless(self) -> list:
        return [peer for peer in self.peers if all(self.get(scene, peer)[0] in (GOOD, NOTE) for scene in self.scenes)]

    def has_gaps(self) -> bool:
        return any(self.find(scene, UNKNOWN) for scene in self.scenes)

    def legend(self) -> str:
        return ", ".join(f"{verdict.sign} {verdict.meaning}" for verdict in self.used())

    def used(self) -> list:
        """The verdicts there are, best first."""
        return [verdict for verdict in VERDICTS.values() if any(self.find(scene, verdict) for scene in self.scenes)]

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        told = f"No row goes wrong with {', '.join(faultless) or 'none'}{' alone' * (len(faultless) == 1)}"
        notes = [self.scenes[scene]["title"] for scene in self.scenes if set(self.find(scene, NOTE)).intersection(faultless)]
        return f"{told}; rows with a note: {', '.join(notes)}." if notes else f"{told}."

    # --- Markdown ---------------------------------------------------------------------------------------------------

    def matrix(self) -> str:
        lines = [f"| | {' | '.join(self.peers)} |", "|---|" + ":-:|" * len(self.peers)]
        for scene, told in self.scenes.items():
            signs = [self.get(scene, peer)[0].sign for peer in self.peers]
            lines.append(f"| {told['title']} | {' | '.join(f'**{sign}**' if sign == TWO.sign else sign for sign in signs)} |")
        return "\n".join(lines)

    def to_markdown(self) -> str:
        return "\n".join([
            "# How the alternatives fail", "",
            f"`make lab` measured all of this, and does it again: {self.measured}, Python {self.data['python']}.", "",
            self.matrix(), "", f"{self.legend()}. {self.conclusion()}", "",
            "## Each scene", *(line for scene in self.scenes for line in self.tell(scene)), "",
            "## How each is called", "", "| | version | skip | wait |", "|---|---|---|---|",
            *(f"| {name} | {told['version']} | {quote(told['skip'])} | {quote(told['wait'])} |"
              for name, told in self.data["peers"].items()),
        ]) + "\n"

    def tell(self, scene):
        """What is good, and by outcome who did that."""
        told = self.scenes[scene]
        order = list(VERDICTS.values())
        outcomes = sorted((order.index(self.get(scene, peer)[0]), self.get(scene, peer)[1], peer) for peer in self.peers)
        yield from ("", f"### {told['title']}", "", f"Good: {told['good']}", "")
        for (place, words), cells in groupby(outcomes, lambda cell: cell[:2]):
            yield f"- {order[place].sign} {words}: {', '.join(peer for _, _, peer in cells)}"

    def to_evidence(self) -> str:
        """What lets two run at once, with whom, and the picture of all."""
        lines = ["| what lets two run at once | with |", "|---|---|"]
        for scene, told in self.scenes.items():
            if self.find(scene, TWO):
                lines.append(f"| {told['title']} | {', '.join(self.find(scene, TWO))} |")
        told = (
            f"`make lab` runs the wrappers that Debian has through {len(self.scenes)} scenes with real processes "
            f"({self.measured}; it takes some minutes). {self.conclusion()} [lab.md](lab.md) describes each cell, what is good and "
            "why, how each wrapper is called, and the versions. Wrappers that replace themselves with the job by exec, as chpst does, "
            "pass whatever is done to the wrapper. But newcomers overtake waiters, a job that closes its descriptors loses the lock, "
            "and such a wrapper cannot end a job in time, record it or report it."
        )
        picture = f"![{len(self.scenes)} scenes with {len(self.peers)} wrappers: how the alternatives fail](lab.svg)"
        return "\n".join([*lines, "", picture, "", *textwrap.wrap(told, 132, break_on_hyphens=False)])

    # --- Picture ----------------------------------------------------------------------------------------------------

    def to_svg(self) -> str:
        wide = LABEL + CELL[0] * len(self.peers) + 50
        footer = textwrap.wrap(f"make lab, {self.measured}: {self.versions()}", wide // 8, break_on_hyphens=False)
        high = HEAD + CELL[1] * len(self.scenes) + 70 + 18 * len(footer)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="DejaVu Sans, Verdana, sans-serif" '
            f'font-size="{SIZE}" fill="{INK}">',
            f'<rect width="{wide}" height="{high}" rx="8" fill="#ffffff"/>',
        ]
        for column, peer in enumerate(self.peers):
            x = LABEL + CELL[0] * (column + 0.5) + SIZE / 3
            parts.append(f'<text transform="translate({x:.0f} {HEAD - 8}) rotate(-55)"{bold(peer == "solo")}>{escape(peer)}</text>')
        for row, (scene, told) in enumerate(self.scenes.items()):
            y = HEAD + CELL[1] * row
            parts.append(f'<text x="{LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(told["title"])}</text>')
            for column, peer in enumerate(self.peers):
                verdict, words = self.get(scene, peer)
                parts += draw(LABEL + CELL[0] * column, y, verdict, f"{peer}: {told['title']}: {words}")
        x, y = 24, HEAD + CELL[1] * len(self.scenes) + 20
        for verdict in self.used():
            parts += draw(x, y, verdict, verdict.meaning)
            parts.append(f'<text x="{x + CELL[0] + 6:.0f}" y="{y + 17}">{verdict.meaning}</text>')
            x += CELL[0] + 32 + 8 * len(verdict.meaning)
        for line, text in enumerate(footer):
            parts.append(f'<text x="24" y="{y + 52 + 18 * line}" font-size="12">{escape(text)}</text>')
        return "\n".join([*parts, "</svg>\n"])

    def versions(self) -> str:
        return ", ".join(dict.fromkeys(peer["version"] for peer in self.data["peers"].values()))


def quote(words):
    return f"`{shlex.join(words)}`".replace("|", "\\|") if words else "cannot"


def bold(is_so):
    return ' font-weight="bold"' if is_so else ""


def draw(x, y, verdict, told):
    """A cell: colour and sign; what it tells is shown when pointed at."""
    wide, high = CELL
    ink = "#ffffff" if verdict is TWO else INK
    yield f'<rect x="{x + 1:.0f}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" rx="3" fill="{verdict.colour}">'
    yield f"<title>{escape(told)}</title></rect>"
    yield (f'<text x="{x + wide / 2:.0f}" y="{y + 17}" text-anchor="middle" fill="{ink}"{bold(verdict in (BAD, TWO))} '
           f'pointer-events="none">{verdict.sign}</text>')
