"""README and the pages of docs/: links lead somewhere, records have their places, and the picture shows what solo prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def find_broken(page: Path) -> list:
    """Return the links of a page to files, or to headings of them, that are not there."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        if "://" not in link and not (target.exists() and (not heading or heading in list_anchors(target))):
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
    page.write_text("# One: two\n[x](#one-two) [x](a.md#one-two) [x](https://h/y) [x](b.md) [x](#three)\n![x](c.svg)\n")

    assert find_broken(page) == ["b.md", "#three", "c.svg"]


def read_words(picture: Path) -> list:
    return re.findall(r"[A-Za-z-]{3,}", " ".join(re.findall(r"<text[^>]*>([^<]*)", picture.read_text())))


@pytest.mark.full
@pytest.mark.root  # the user in the tables
@pytest.mark.tool("tmux")
def test_picture_of_a_terminal_shows_what_solo_prints(tmp_path):
    subprocess.run([sys.executable, ROOT / "tests/recording.py", tmp_path / "now.svg"], check=True)

    assert read_words(tmp_path / "now.svg") == read_words(ROOT / "docs/recording.svg")  # python tests/recording.py
