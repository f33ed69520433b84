"""`make lint`: fail if tracked text has a word of idiom.txt, and name the better one."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKED = ("*.py", "*.md", "*.sh", "man/*", "Makefile", "packaging/*", ".ci/*")
# They list such words, or quote messages of older versions.
QUOTING = {"tests/tools/idiom.py", "CHANGELOG.md"}


def read_words() -> list:
    """Return [(pattern, better words)]."""
    lines = [
        line
        for line in (ROOT / "tests/tools/idiom.txt").read_text().splitlines()
        if line and line[0] != "#"
    ]
    return [
        (re.compile(words), better)
        for words, better in (re.split(r" {2,}", line, maxsplit=1) for line in lines)
    ]


def find_idioms(text: str, words: list):
    """Yield (line number, words found, better words)."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in words:
            for found in pattern.finditer(line):
                yield number, found[0], better


def main():
    words, is_clean = read_words(), True
    tracked = subprocess.run(
        ["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for file in sorted({*tracked.split()} - QUOTING):
        for number, found, better in find_idioms((ROOT / file).read_text(), words):
            print(f"{file}:{number}: {found!r}: {better}")
            is_clean = False
    sys.exit(0 if is_clean else "solo: retired words (tests/tools/idiom.txt says why)")


if __name__ == "__main__":
    if not (ROOT / ".git").exists():
        sys.exit(0)  # not a clone: nothing says which files are ours
    main()
