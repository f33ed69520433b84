"""README and the pages of docs/: links lead somewhere, records have their places, and the picture
shows what solo prints.
"""

import ast
import io
import json
import re
import time
from pathlib import Path

import pytest
from conftest import ROOT, until, write_program
from rich.console import Console
from rich.text import Text
from tmux import Tmux
from written import HOUR, MINUTE, Written

from solo.api.holder import Holder
from solo.options import LAUNCHER_OPTIONS

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def find_broken(page: Path) -> list:
    """Return the links of a page to files, or to headings of them, that are not there."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        if "://" not in link and not (
            target.exists() and (not heading or heading in list_anchors(target))
        ):
            broken.append(link)
    return broken


def list_anchors(page: Path) -> list:
    """Return the anchors that a forge gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    assert find_broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        "# One: two\n[x](#one-two) [x](a.md#one-two) [x](https://h/y) [x](b.md) [x](#three)\n![x](c.svg)\n"
    )

    assert find_broken(page) == ["b.md", "#three", "c.svg"]


MAN = sorted((ROOT / "man").iterdir())


def test_pages_stay_short():
    assert sum(len(page.read_text().split()) for page in MAN) <= 18_000
    for page, most in ("README.md", 950), ("CONTRIBUTING.md", 1_200):
        assert len((ROOT / page).read_text().split()) <= most


OUTSIDE = ("solo", "ulimit", "TasksMax")  # quoted in the section, and no part of a line


def read_diagnostics():
    """Return the section of solo(1), and the lines of solo that it explains."""
    section = (ROOT / "man/solo.1").read_text().split(".Sh DIAGNOSTICS")[1].split("\n.Sh ")[0]
    lines = re.findall(r'(?m)^\.It Li "(.*)"$', section)
    quoted = re.findall(r"(?m)^\.Ql (.*?)(?: [.,:])?$", section)
    return section, lines + [text for text in quoted if not text.startswith(OUTSIDE)]


def list_strings(path):
    """Yield the strings of a source file, an f-string with T in the place of each value."""
    tree = ast.parse(path.read_text())
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "T" for part in node.values
            )
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def test_diagnostics_are_lines_of_the_source():
    source = "\n".join(text for path in SOURCES for text in list_strings(path))
    _, lines = read_diagnostics()
    missing = [
        fragment
        for line in lines
        for fragment in re.split(r"busy: |: |(?:\bpid )?\b[A-Z]+\b", line)
        if fragment.strip(" :(),") not in source
    ]

    assert len(lines) > 30
    assert missing == []


SOURCES = sorted((ROOT / "solo").rglob("*.py"))
RUN = [path for path in SOURCES if path.parent.name in ("solo", "contention", "process")]
NOT_OF_A_RUN = {  # "cannot VERB", where a line that is right does not meet it
    "cannot bind": "the address of a gate: the line ends as that of a locked gate",
    "cannot hold": "of solo hold",
}


def test_diagnostics_have_each_failure_of_a_run():
    section, _ = read_diagnostics()
    failures = {
        failure
        for path in RUN
        for text in list_strings(path)
        for failure in re.findall(r"^(?:T: )?(cannot \w+)", text)
    }

    assert {failure for failure in failures if failure not in section} == set(NOT_OF_A_RUN)


def test_section_that_make_install_names_says_what_solo_guesses():
    message = (ROOT / "packaging/install.py").read_text()
    signal, section = re.search(r"to ignore (\w+), see ([A-Z ]+) in solo\(7\)", message).groups()
    page = (ROOT / "man/solo.7").read_text()

    assert signal in page.partition(f".Sh {section}\n")[2].partition("\n.Sh ")[0]


def test_page_of_the_api_names_what_only_the_command_line_has():
    page = (ROOT / "man/solo.3").read_text()
    [options] = re.findall(r"The options of\n\.Xr solo 1\nbut\n(.*?)\nare keyword", page, re.S)
    [keys] = re.findall(r"solo list --json\nbut (.*?)\.\n", page)
    row = json.loads((ROOT / "docs/solo.schema.json").read_text())["$defs"]["ticket"]["properties"]

    assert set(re.findall(r"-([a-z-]+)", options)) == {
        option.flag for option in LAUNCHER_OPTIONS if not option.keyword
    } - {"help", "version"}
    assert set(re.findall(r"\w+", keys)) - {"and"} == {*row} - {*Holder.__dataclass_fields__}


WIDTH, HEIGHT = 100, 26
REFUSED = "pg_dump: error: connection to server at 10.0.0.7 failed: Connection refused"
JOBS = {
    "backup.sh": "exec sleep 600",
    "deploy.sh": "exec sleep 600",
    "dump.sh": f"echo 'dumping shop'; sleep 2; echo '{REFUSED}' >&2; exit 1",
    "mail": 'exec cat "$LAB/inbox"',  # what cron would have sent
}
MAIL = "Subject: Cron <root@web1> solo -n dump --capture failed -- dump.sh\n\n"
TYPED = [  # (what is typed, tickets that there are afterwards)
    ("mail                                          # at seven in the morning", 0),
    ("solo list --all                               # did the others run?", 0),
    ("solo -n backup -- backup.sh --full &", 1),
    ("solo -n backup -- backup.sh --full            # the next start, too early", 1),
    ("solo -q -n backup --wait 10m -- deploy.sh &", 2),
    ("solo list", 2),
]
# rich's own format loads a font from the network.
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>solo in a terminal: a failed job, all jobs, a skip, a queue</title>
<style>.{unique_id}-title{{font:bold 18px sans-serif}}.{unique_id}-matrix{{font:20px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}}
{styles}</style><defs>{lines}</defs>{chrome}
<g transform="translate({terminal_x},{terminal_y})">{backgrounds}<g class="{unique_id}-matrix">
{matrix}</g></g></svg>
"""


def record(lab):
    """Type the commands of TYPED in a shell on a terminal; return its last screen, with its SGR
    sequences.
    """
    for name, text in JOBS.items():
        write_program(lab.path / name, f"#!/bin/sh\n{text}\n")
    path = f"{lab.path}:{Path(lab.script).parent}:/usr/bin:/bin"
    environment = {
        **lab.environment,
        "PATH": path,
        "LAB": str(lab.path),
        "LC_ALL": "C.UTF-8",
        "PS1": "$ ",
        "ENV": "/dev/null",
    }
    for name, command, ran in (
        ("dump", "dump.sh", 4 * MINUTE),
        ("backup", "backup.sh --full", 48 * MINUTE),
        ("report", "report.sh", 9 * MINUTE),
    ):
        written = Written()
        written.daily(20, time.time() + 20 * HOUR, ran=ran, command=command)
        written.save(lab, name)
    failed = lab.run("-n", "dump", "--capture", "failed", "--", "dump.sh", env=environment)
    (lab.path / "inbox").write_text(MAIL + failed.stderr.decode())
    screen = Tmux(["sh", "-i", "+m"], environment, WIDTH, HEIGHT)
    try:
        for typed, (words, tickets) in enumerate(TYPED):
            until(lambda: [row[:1] for row in screen.read()].count("$") > typed)
            time.sleep(1)  # so that the ages differ
            screen.type("-l", words)
            screen.type("Enter")
            until(lambda: len(lab.list()) == tickets)
        until(lambda: [row[:1] for row in screen.read()].count("$") > len(TYPED))
        return screen.call("capture-pane", "-p", "-e").rstrip().rpartition("\n")[0]
    finally:
        lab.run("stop", "--waiting", "backup")
        screen.close()


def draw(screen):
    """Return the screen as an SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    return console.export_svg(title="solo", code_format=PICTURE, unique_id="solo")


def read_words(picture: Path) -> list:
    """Return the words of a picture, without those that depend on the day."""
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)", picture.read_text()))
    return re.findall(r"(?!(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b)\b[A-Za-z-]{3,}", text)


@pytest.mark.full
@pytest.mark.root  # the user in the tables
@pytest.mark.tool("tmux")
def test_picture_of_a_terminal_shows_what_solo_prints(lab):
    now, shown = lab.path / "now.svg", ROOT / "docs/recording.svg"
    now.write_text(draw(record(lab)))

    assert read_words(now) == read_words(shown), f"renew the picture in README: cp {now} {shown}"
