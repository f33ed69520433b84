"""`make lint`: the words of idiom.txt in tracked text. A file may have as many as idiom-left.txt grants it, which may only shrink.

`idiom.py --record` writes today's numbers into idiom-left.txt, if none of them grows.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LEFT = TESTS / "idiom-left.txt"
CHECKED = ("*.py", "*.md", "*.sh", "man/*", "Makefile", "packaging/*", ".ci/*")
QUOTED = (
    "tests/idiom.py",
    "tests/test_messages.py",
    "CHANGELOG.md",
)  # lists of such words; how a message read in an older version


def read_words() -> list:
    """[(pattern, what to write instead)]"""
    lines = [line for line in (TESTS / "idiom.txt").read_text().splitlines() if line and line[0] != "#"]
    return [(re.compile(words), better) for words, better in (re.split(r" {2,}", line, maxsplit=1) for line in lines)]


def find_idioms(text: str, words: list):
    """(line number, what was found, what to write instead). A generator."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in words:
            for found in pattern.finditer(line):
                yield number, found[0], better


def find_all() -> dict:
    """{file: its findings} of all tracked text."""
    words = read_words()
    listed = subprocess.run(
        ["git", "ls-files", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return {file: list(find_idioms((ROOT / file).read_text(), words)) for file in listed if file not in QUOTED}


def read_left() -> dict:
    lines = LEFT.read_text().splitlines() if LEFT.exists() else []
    return {file: int(count) for count, file in (line.split(maxsplit=1) for line in lines if line and line[0] != "#")}


def main():
    found, left = find_all(), read_left()
    more = {file for file, findings in found.items() if len(findings) > left.get(file, 0)}
    if sys.argv[1:] == ["--record"] and (not more or not left):
        head = (
            "# How many words of the old idiom each file still has. May only shrink: python tests/idiom.py --record\n"
        )
        LEFT.write_text(
            head + "".join(f"{len(findings)} {file}\n" for file, findings in sorted(found.items()) if findings)
        )
        return
    for file in sorted(more):
        for number, words, better in found[file]:
            print(f"{file}:{number}: {words!r}: {better}")
    if more:
        sys.exit(f"solo: words that STYLE retires, in {len(more)} files (tests/idiom.txt says why)")


if __name__ == "__main__":
    if not (ROOT / ".git").exists():
        sys.exit(0)  # not a clone: nothing says which files are ours
    main()
