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
    """`data` is the content of docs/lab.json."""

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

    def legend(self) -> str:
        return ", ".join(f"{verdict.sign} {verdict.meaning}" for verdict in self.list_used())

    def list_used(self) -> list:
        """Return the verdicts that occur, best first."""
        return [verdict for verdict in VERDICTS.values() if any(self.find(scene, verdict) for scene in self.scenes)]

    def conclusion(self) -> str:
        faultless = self.find_faultless()
        only = len(faultless) == 1
        text = (
            f"{faultless[0]} is the only one that fails in no scene"
            if only
            else f"{', '.join(faultless) or 'None'} fail in no scene"
        )
        notes = [
            self.scenes[scene]["title"] for scene in self.scenes if set(self.find(scene, NOTE)).intersection(faultless)
        ]
        return f"{text}. It has a note (~) in: {', '.join(notes)}." if notes else f"{text}."

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
        return (
            "\n".join(
                [
                    "# How the alternatives fail",
                    "",
                    f"`make lab` makes this table ({self.measured}).",
                    "",
                    self.matrix(),
                    "",
                    f"{self.legend()}. {self.conclusion()}",
                    "",
                    "## Each scene",
                    *(line for scene in self.scenes for line in self.describe(scene)),
                    "",
                    "## Command lines",
                    "",
                    "`{lock}` is the path of the lock file, `{name}` a name; the job follows.",
                    "",
                    "| | version | skip | wait |",
                    "|---|---|---|---|",
                    *(
                        f"| {name} | {peer['version']} | {quote(peer['skip'])} | {quote(peer['wait'])} |"
                        for name, peer in self.data["peers"].items()
                    ),
                ]
            )
            + "\n"
        )

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
        summary = (
            f"`make lab` runs Debian's wrappers through {len(self.scenes)} scenes with real processes "
            f"({self.measured}; it takes some minutes). {self.conclusion()} [lab.md](lab.md) describes each cell, the good outcome "
            "and its reason, the command line of each wrapper, and the versions. A wrapper that replaces itself with the job "
            "by exec, like chpst, passes every scene that signals or kills the wrapper. But newcomers overtake its waiters, a job "
            "that closes its descriptors loses the lock, and such a wrapper cannot enforce a time limit, keep a history or report the holder."
        )
        picture = f"![{len(self.scenes)} scenes with {len(self.peers)} wrappers: how the alternatives fail](lab.svg)"
        return "\n".join([*lines, "", picture, "", *textwrap.wrap(summary, 132, break_on_hyphens=False)])

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
            parts.append(
                f'<text transform="translate({x:.0f} {HEAD - 8}) rotate(-55)"{bold(peer == "solo")}>{escape(peer)}</text>'
            )
        for row, (scene, details) in enumerate(self.scenes.items()):
            y = HEAD + CELL[1] * row
            parts.append(f'<text x="{LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(details["title"])}</text>')
            for column, peer in enumerate(self.peers):
                verdict, words = self.get(scene, peer)
                parts += draw(LABEL + CELL[0] * column, y, verdict, f"{peer}: {details['title']}: {words}")
        x, y = 24, HEAD + CELL[1] * len(self.scenes) + 20
        for verdict in self.list_used():
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


def bold(is_bold):
    return ' font-weight="bold"' if is_bold else ""


def draw(x, y, verdict, tooltip):
    """Yield the SVG of a cell: colour, sign and tooltip."""
    wide, high = CELL
    ink = "#ffffff" if verdict is TWO else INK
    yield f'<rect x="{x + 1:.0f}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" rx="3" fill="{verdict.colour}">'
    yield f"<title>{escape(tooltip)}</title></rect>"
    yield (
        f'<text x="{x + wide / 2:.0f}" y="{y + 17}" text-anchor="middle" fill="{ink}"{bold(verdict in (BAD, TWO))} '
        f'pointer-events="none">{verdict.sign}</text>'
    )
