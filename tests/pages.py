"""The code blocks of README and manuals. The kind of a block decides how a test runs it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "man/solo.1", "man/solo-hold.1", "man/solo.3", "man/solo.7", "man/solo-engines.7"]
ESCAPES = {r"\(aq": "'", r"\e": "\\", r"\&": ""}
KINDS = {  # {kind: a pattern}; the first match decides
    "notify": r"--notify ",
    "ping": r" && curl ",
    "user's metrics": r"runuser .* solo metrics ",
    "journalctl": r"^journalctl ",
    "crontab": r"^[*\d/]+( [*\d/]+){4} ",
    "image": r"^ENTRYPOINT ",
    "compose": r"^services:$",
    "rights": r"^docker run .*--read-only",
    "docker": r"^docker run ",
    "group": r"^install -d ",
    "script": r"\A#!/usr/bin/env|GUARD=",
    "worktree": r"git rev-parse",
    "unit": r"^\[Service\]$",
    "later steps": r"^ +hold: true$",
    "github": r"^ +runs-on:",
    "gitlab": r"^ +script:$",
    "component": r"^ +- component: ",
    "jenkins": r"^pipeline \{$",
    "makefile": r"^[a-z]+:\n\t",
    "toml": r"^\[via\.\w+\]$",
    "sql": r"^UPDATE ",
    "python": r"^(import|with) ",
    "table": r"\S {3,}solo ",
    "debian": r"^apt install ",
    "install": r"\Amake install ",
    "block": r"^  solo hold --fd 9 ",
    "hold": r"\A(#!/bin/sh\n|eval .*)?solo hold ",
    "shell": r"\A(exec )?(solo|flock|make) ",
}


class Block:
    def __init__(self, page, line, text):
        self.page = page
        self.text = text
        self.id = f"{page}:{line}"
        self.kind = next((kind for kind, found in KINDS.items() if re.search(found, text, re.M)), "unknown")

    @property
    def lines(self):
        """The lines without trailing comments."""
        return [re.sub(r" {2,}# .*", "", line) for line in self.text.splitlines()]


def read_blocks() -> list:
    return [block for page in PAGES for block in read_page(page)]


def read_page(page):
    """Yield the fenced and indented blocks of Markdown except captures, and .Bd -literal and .Dl of mdoc."""
    text = (ROOT / page).read_text()
    if page.endswith(".md"):
        text = re.sub(r"<!-- captured: .*?<!-- end -->", lambda found: re.sub(r".+", "", found[0]), text, flags=re.S)
        pattern, indent = r"^```\w*\n((?s:.*?))^```$|((?:^ {4}.*\n)+)", 4
    else:
        pattern, indent = r"^\.Bd -literal.*\n((?s:.*?))^\.Ed$|((?:^\.Dl .*\n)+)", len(".Dl ")
    for found in re.finditer(pattern, text, re.M):
        block = found[1] or "".join(line[indent:] for line in found[2].splitlines(True))
        if not page.endswith(".md"):
            for escape, meaning in ESCAPES.items():
                block = block.replace(escape, meaning)
        yield Block(page, text.count("\n", 0, found.start()) + 1, block)
