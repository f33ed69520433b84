"""`make docs`: every page is in the site, every link leads somewhere, and a browser needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import ROOT, need_tools

from solo.options import LAUNCHER_OPTIONS

BUILD = "packaging/site/build.py"
LOADING = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
SOURCES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("man/*.[0-9]")]
PAGES = sorted(
    {f"{path.stem.lower() if path.suffix == '.md' else path.name}.html" for path in SOURCES} - {"readme.html"}
)
PAGES.append("index.html")


class Page(HTMLParser):
    """The anchors of a page, its links and navigation, and what a browser loads with it."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.loaded, self.navigation = [], [], [], []
        self.in_navigation = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.in_navigation |= tag == "nav"
        for name, value in attributes:
            if name == "id":
                self.anchors.append(value)
            elif (tag, name) in LOADING:
                self.loaded.append(value)
            elif name in ("href", "action"):
                (self.navigation if self.in_navigation else self.links).append(value)

    def handle_endtag(self, tag):
        self.in_navigation &= tag != "nav"


def read_pages(folder: Path) -> dict:
    return {path.name: Page(path.read_text("utf-8")) for path in folder.glob("*.html")}


def find_broken(folder: Path) -> list:
    """Return (page, address) of all that pages refer to or load inside their folder, and that is not there."""
    pages, broken = read_pages(folder), []
    for name, page in pages.items():
        for address in page.links + page.navigation + page.loaded:
            parts = urlsplit(address)
            target = parts.path or name
            there = target in pages if parts.fragment else (folder / target).is_file()
            if not parts.scheme and not (there and is_anchor(pages.get(target), unquote(parts.fragment))):
                broken.append((name, address))
    return broken


def is_anchor(page: Page | None, fragment: str) -> bool:
    return not fragment or fragment in page.anchors


def find_external(folder: Path) -> list:
    """Return (file, address) of what a browser would fetch from elsewhere, or from the root of a server."""
    external = []
    for path in folder.iterdir():
        text = path.read_text("utf-8")
        if path.suffix == ".html":
            loaded = Page(text).loaded
        elif path.suffix == ".svg":
            loaded = re.findall(r"<(?:image|use|script)\b[^>]*href=\"([^\"]*)|url\(([^)]*)|@import (\S+)", text)
            loaded = ["".join(words) for words in loaded]
        elif path.suffix == ".css":
            loaded = re.findall(r"url\(([^)]*)|@import (\S+)", text)
            loaded = ["".join(words) for words in loaded]
        else:
            loaded = re.findall(r"\b(?:fetch|import|importScripts|XMLHttpRequest|WebSocket)\(.*", text)
        external += [
            (path.name, address) for address in loaded if re.match(r"(?!data:)[a-z]+[:(]|/", address.strip("\"' "))
        ]
    return external


def read_index(folder: Path) -> list:
    """Return the [title of the page, heading, address, text] of every section that the search knows."""
    return json.loads(
        (folder / "search-index.js").read_text("utf-8").removeprefix("const INDEX = ").removesuffix(";\n")
    )


@pytest.fixture(scope="module")
def pages(site):
    return read_pages(site)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    need_tools("mandoc", "make")
    pytest.importorskip("mdit_py_plugins", reason="needs the dependency group docs: make docs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    made = ["make", "-s", "-C", ROOT, "-o", ".venv/docs", "docs", f"SITE={folder}", f"VENV_PYTHON={sys.executable}"]
    subprocess.run(made, check=True)
    return folder


def test_every_source_has_a_page(site):
    assert {path.name for path in site.glob("*.html")} == {*PAGES, "search.html"}


def test_every_navigation_names_every_page(pages):
    for page in pages.values():
        assert {address for address in page.navigation if address[0] != "#"} == set(PAGES)


def test_every_link_and_fragment_leads_somewhere(site):
    assert find_broken(site) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="#here"></a><a href="b.html#there"></a><img src="none.svg">')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#here"></a><a href="c.html"></a><a href="https://example.com/x"></a>'
    )

    assert sorted(find_broken(tmp_path)) == [("a.html", "b.html#there"), ("a.html", "none.svg"), ("b.html", "c.html")]


def test_every_anchor_is_unique(pages):
    for name, page in pages.items():
        assert len(page.anchors) == len(set(page.anchors)), name


def test_a_browser_fetches_nothing_from_elsewhere(site):
    assert find_external(site) == []


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.html", '<script src="https://example.com/a.js"></script>'),
        ("a.html", '<link rel="stylesheet" href="//example.com/a.css">'),
        ("a.css", "@import 'https://example.com/a.css';"),
        ("a.css", "body { background: url(https://example.com/a.png) }"),
        ("a.svg", '<image xlink:href="https://example.com/a.png"/>'),
        ("a.js", 'fetch("a.json")'),
    ],
)
def test_a_file_from_elsewhere_is_found(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    assert len(find_external(tmp_path)) == 1


@pytest.mark.parametrize(
    "name, reference, address",
    [
        ("index.html", "`man 7 solo`", "solo.7.html"),
        ("security.html", "solo(1)", "solo.1.html"),
        ("solo.1.html", ".Xr solo-engines 7", "solo-engines.7.html"),
        ("solo.1.html", ".Xr flock 1", "https://manpages.debian.org/flock.1"),
    ],
)
def test_a_reference_to_a_manual_page_is_a_link(pages, name, reference, address):
    assert address in pages[name].links


@pytest.mark.parametrize("option", LAUNCHER_OPTIONS, ids=lambda option: option.flag)
def test_the_search_index_has_every_option_at_its_place(site, option):
    found = [
        address for _, heading, address, _ in read_index(site) if f"--{option.flag}" in re.split(r"[ ,]+", heading)
    ]

    assert f"solo.1.html#{option.short or option.flag}" in found


@pytest.mark.tool("node")
@pytest.mark.parametrize(
    "query, address",
    [
        ("--once-per", "solo.1.html#once-per"),
        ("ORPHAN", "solo.7.html#orphan"),
        ("make torture", "evidence.html#faults-make-torture-minutes60"),
    ],
)
def test_the_search_shows_first_what_a_heading_names(site, query, address):
    script = "".join((site / name).read_text("utf-8") for name in ("search-index.js", "search.js"))
    script += f"\nconsole.log(JSON.stringify(findSections({json.dumps(query)}, INDEX).map((found) => found.address)));"

    shown = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True).stdout

    assert json.loads(shown)[0] == address


def test_a_link_to_a_missing_file_fails_the_build(site, tmp_path):
    shutil.copytree(ROOT / "packaging/site", tmp_path / "packaging/site")
    (tmp_path / "README.md").write_text("# solo\n\n[Design](docs/design.md)\n")

    result = subprocess.run([sys.executable, tmp_path / BUILD, tmp_path / "site"], capture_output=True, text=True)

    assert result.returncode == 1
    assert result.stderr == "solo: cannot build the site: README.md refers to docs/design.md: no such file\n"
    assert not (tmp_path / "site").exists()


@pytest.mark.root
@pytest.mark.tool("tmux", "unshare")
def test_recording_is_that_of_a_run_now(tmp_path):
    made = subprocess.run(
        [sys.executable, ROOT / "tests/recording.py", tmp_path / "made.svg"], capture_output=True, text=True
    )

    assert made.returncode == 0, made.stderr
    assert (tmp_path / "made.svg").read_bytes() == (ROOT / "docs/recording.svg").read_bytes()  # make recording
    assert (tmp_path / "made.svg").stat().st_size < 60_000
