"""Build the manual pages, README.md and docs/ as a static site: `python packaging/site/build.py FOLDER` (`make docs`).

mandoc converts the manual pages, markdown-it-py the rest. All links are relative and all scripts plain files, so that a
browser can read the site, and search it, from a disk as well as from a server. The same sources give the same bytes.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import string
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.anchors.index import slugify, unique_slug

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GROUPS = {  # {heading in the navigation: patterns of its sources, in order}
    "Start": ["README.md"],
    "Manual": ["man/solo.[0-9]", "man/*.[0-9]"],
    "Documents": ["docs/views.md", "docs/evidence.md", "docs/lab.md", "docs/*.md"],
    "Project": ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"],
}
STATIC = ["style.css", "search.js"]
OTHER_MANUALS = "https://manpages.debian.org/"
REFERENCE = re.compile(r"\b(?P<name>[a-z][\w.-]*)\((?P<section>\d)\)")  # solo(1)
COMMAND = re.compile(r"\bman (?P<section>\d) (?P<name>[\w-]+)")  # man 7 solo
UNBROKEN = 40  # characters of an option or path in a line of a phone
SEARCH = """<h1>Search</h1>
<noscript><p>Searching needs JavaScript. The pages are listed below.</p></noscript>
<p id="found" role="status"></p>
<ol id="results"></ol>
<script src="search-index.js"></script>
<script src="search.js"></script>"""


class BrokenLink(Exception):
    """A page refers to a file that is neither a page nor beside it."""


@dataclass
class Section:
    """The text between two anchors. Level 1 to 3 is a heading; None is an entry of a list, such as an option."""

    level: int | None
    anchor: str | None
    heading: str = ""
    text: str = ""

    @property
    def fragment(self) -> str:
        return f"#{self.anchor}" if self.anchor else ""


class SectionReader(HTMLParser):
    """Split a page at its headings and at the entries of its lists that have an anchor."""

    def __init__(self, page: str):
        super().__init__()
        self.sections = [Section(1, None)]
        self.heading_tag = None  # of the heading or entry that is being read
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        anchor = dict(attributes).get("id")
        if tag in ("h1", "h2", "h3", "dt") and anchor:
            self.sections.append(Section(None if tag == "dt" else int(tag[1]), anchor))
            self.heading_tag = tag

    def handle_endtag(self, tag):
        if tag == self.heading_tag:
            self.heading_tag = None
        if tag == "dl":  # what follows a list belongs to the section around it
            around = next(section for section in reversed(self.sections) if section.level)
            self.sections.append(Section(around.level, around.anchor, around.heading))

    def handle_data(self, data):
        if self.heading_tag:
            self.sections[-1].heading += data
        else:
            self.sections[-1].text += data


def split_page(page: str) -> list:
    """Return the sections of a page in order, each anchor once, with blanks and line breaks as single blanks."""
    sections = {}
    for part in SectionReader(page).sections:
        section = sections.setdefault(part.anchor, Section(part.level, part.anchor, part.heading))
        section.text += f" {part.text}"
    for section in sections.values():
        section.heading, section.text = (" ".join(text.split()) for text in (section.heading, section.text))
    return list(sections.values())


class Site:
    def __init__(self, root: Path):
        self.root = root
        self.groups = {
            group: list(dict.fromkeys(path for pattern in patterns for path in sorted(root.glob(pattern))))
            for group, patterns in GROUPS.items()
        }
        self.addresses = {path: find_address(path) for paths in self.groups.values() for path in paths}
        self.files = {}  # {address: path} of the images and data that pages refer to
        self.markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        self.markdown.use(anchors_plugin, max_level=3, permalink=True, permalinkSymbol="")

    def write(self, folder: Path):
        """Write the site to `folder`, which must not exist.

        Raises BrokenLink, OSError, CalledProcessError.
        """
        contents = {path: self.render(path) for path in self.addresses}
        sections = {path: split_page(contents[path]) for path in contents}
        titles = {path: find_title(sections[path]) for path in contents}
        template = string.Template((HERE / "page.html").read_text("utf-8"))
        folder.mkdir(parents=True)

        def write_page(address, title, content, path=None):
            navigation = self.render_navigation(titles, path, sections.get(path, []))
            page = template.substitute(title=html.escape(title), content=content, navigation=navigation)
            (folder / address).write_text(page, "utf-8")

        for path, address in self.addresses.items():
            write_page(address, titles[path], contents[path], path)
        write_page("search.html", "Search", SEARCH)
        entries = [
            [titles[path], section.heading or titles[path], self.addresses[path] + section.fragment, section.text]
            for path in contents
            for section in sections[path]
            if section.heading or section.text
        ]
        (folder / "search-index.js").write_text(f"const INDEX = {json.dumps(entries, indent=0)};\n")
        for name in STATIC:
            shutil.copyfile(HERE / name, folder / name)
        for address, path in self.files.items():
            shutil.copyfile(path, folder / address)

    def render(self, path: Path) -> str:
        return self.render_markdown(path) if path.suffix == ".md" else self.render_manual(path)

    def render_manual(self, path: Path) -> str:
        """Return a manual page as HTML, with its sections as headings below one of its own."""
        made = subprocess.run(
            ["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", path], capture_output=True, text=True, check=True
        )
        text = re.search(r'<(div|main) class="manual-text"[^>]*>(.*)</\1>', made.stdout, re.S)[2]
        for kind, tag in [("Sh", "h2"), ("Ss", "h3")]:  # the tags differ between versions of mandoc
            text = re.sub(rf'<h\d class="{kind}"(.*?)</h\d>', rf'<{tag} class="{kind}"\1</{tag}>', text, flags=re.S)
        text = re.sub(r'href="([^"/#]+\.\d)\.html"', self.replace_reference, text)
        text = anchor_entries(text)
        return f'<h1 id="{path.name}">{path.stem}({path.suffix[1:]})</h1>\n<div class="manual-text">{text}</div>'

    def replace_reference(self, found: re.Match) -> str:
        """Return mandoc's link to a manual page, or one to Debian's if the page is not in this site."""
        return found[0] if f"{found[1]}.html" in self.addresses.values() else f'href="{OTHER_MANUALS}{found[1]}"'

    def render_markdown(self, path: Path) -> str:
        tokens = self.markdown.parse(path.read_text("utf-8"))
        for before, token in zip(tokens, tokens[1:]):
            if token.type == "inline":
                token.children = list(self.link(path, token.children, before.type in ("heading_open", "th_open")))
        return self.markdown.renderer.render(tokens, self.markdown.options, {})

    def link(self, path: Path, tokens: list, heading: bool):
        """Yield the tokens of a paragraph with links of the site, and outside headings with our manual pages as links."""
        depth = int(heading)  # of links
        for token in tokens:
            depth += (token.type == "link_open") - (token.type == "link_close")
            for attribute in ("href", "src"):
                if attribute in token.attrs:
                    token.attrs[attribute] = self.find_target(path, token.attrs[attribute])
            if token.type == "text" and not depth:
                yield html_token(REFERENCE.sub(self.link_manual, html.escape(token.content)))
            elif token.type == "code_inline" and not depth:
                if " " not in token.content and len(token.content) <= UNBROKEN:
                    token.attrSet("class", "word")
                code = self.markdown.renderer.render([token], self.markdown.options, {})
                yield html_token(COMMAND.sub(self.link_manual, code))
            elif token.type == "image":  # a wide one is shown whole on a click
                picture = token.attrs["src"]
                yield html_token(f'<a class="image" href="{picture}">')
                yield token
                yield html_token("</a>")
            else:
                yield token

    def link_manual(self, found: re.Match) -> str:
        """Return the text that was found, as a link if it names one of our manual pages."""
        address = f"{found['name']}.{found['section']}.html"
        return f'<a href="{address}">{found[0]}</a>' if address in self.addresses.values() else found[0]

    def find_target(self, path: Path, target: str) -> str:
        """Return the address of what a page refers to, and note files that are not pages.

        Raises BrokenLink.
        """
        if re.match(r"[a-z]+:|#", target):
            return target
        name, mark, fragment = target.partition("#")
        file = Path(os.path.normpath(path.parent / name))
        if file in self.addresses:
            return self.addresses[file] + mark + fragment
        if not file.is_file():
            raise BrokenLink(f"{path.relative_to(self.root)} refers to {target}: no such file")
        if self.files.setdefault(file.name, file) != file:
            raise BrokenLink(f"{path.relative_to(self.root)} refers to {target}: another file has its name")
        return file.name

    def render_navigation(self, titles: dict, current: Path | None, sections: list) -> str:
        """Return the lists of all pages, with the headings of the current one below it."""
        lines = []
        for group, paths in self.groups.items():
            lines.append(f"<h2>{group}</h2>\n<ul>")
            for path in paths:
                mark = ' aria-current="page"' if path == current else ""
                lines.append(f'<li><a href="{self.addresses[path]}"{mark}>{html.escape(titles[path])}</a>')
                if path == current:
                    lines.append(render_headings(sections))
                lines.append("</li>")
            lines.append("</ul>")
        return "\n".join(lines)


def find_address(path: Path) -> str:
    """Return the file name of a page."""
    if path.suffix != ".md":
        return f"{path.name}.html"
    return "index.html" if path.stem == "README" else f"{path.stem.lower()}.html"


def find_title(sections: list) -> str:
    return next(section.heading for section in sections if section.heading)


def anchor_entries(text: str) -> str:
    """Give each entry of a list an anchor, so that the search can lead to it; mandoc does so for options only."""
    anchors = set(re.findall(r' id="([^"]*)"', text))

    def add_anchor(found):
        text = html.unescape(re.sub(r"<[^>]*>", "", found[1]))
        words = " ".join(text.partition("[")[0].split())  # of a subcommand without its options
        return f'<dt id="{unique_slug(slugify(words), anchors)}">{found[1]}</dt>'

    return re.sub(r"<dt>(.*?)</dt>", add_anchor, text, flags=re.S)


def html_token(content: str) -> Token:
    return Token("html_inline", "", 0, content=content)


def render_headings(sections: list) -> str:
    items = [
        f'<li class="level{section.level}"><a href="{section.fragment}">{html.escape(section.heading)}</a></li>'
        for section in sections
        if section.level in (2, 3)
    ]
    return "<ul>\n{}\n</ul>".format("\n".join(items)) if items else ""


def main():
    if not shutil.which("mandoc"):
        sys.exit("solo: make docs needs mandoc (apt install mandoc)")
    try:
        Site(ROOT).write(Path(sys.argv[1]))
    except (BrokenLink, OSError) as error:
        sys.exit(f"solo: cannot build the site: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"solo: cannot build the site: mandoc: {error.stderr.strip()}")


if __name__ == "__main__":
    main()
