"""The lines and files that cron refuses. tests/homes/test_cron.py compares them with Debian's cron,
the strictest.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from functools import cache

from solo.options import OVERFLOW
from solo.text.remedies import quote_path

DEBIAN, BUSYBOX = "cron", "busybox"
NICKNAMES = {
    f"@{word}" for word in "reboot yearly annually monthly weekly daily midnight hourly".split()
}
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec".split()),
    ("day of the week", 0, 7, "sun mon tue wed thu fri sat".split()),
)
ELEMENT = re.compile(r"(?:\*|([^\W_]+)(?:(-)([^\W_]*))?)(?:(/)([^\W_]*))?", re.ASCII)
# The syntax that each cron knows; only Debian's refuses 5/10.
COMMON = re.compile(
    r"(?:(?:\*|\d+-\d+)(?:/\d+)?|\d+)(?:,(?:(?:\*|\d+-\d+)(?:/\d+)?|\d+))*", re.ASCII
)
NAME = re.compile("[A-Za-z0-9_-]+")  # of a file in /etc/cron.d
LONGEST = 998  # bytes of a command


def find_cron() -> str:
    """Return the cron of this machine: Debian's, busybox's, another one, or "" if there is none."""
    return find_cron_in(f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@cache
def find_cron_in(path: str) -> str:
    """Return the cron in the directories of a PATH."""
    if crond := shutil.which("crond", path=path):
        return os.path.basename(os.path.realpath(crond))
    return DEBIAN if shutil.which("cron", path=path) else ""


def refuse_times(times: str, is_read: bool) -> str:
    """Return why cron refuses the words before a command, "" if it does not. `is_read`: by the cron
    of this machine.
    """
    is_strict = is_read and find_cron() == DEBIAN
    words = times.split()
    whole = " and ignores the whole file" * is_strict
    if words[:1] and words[0][0] == "@":
        is_known = words[0] in NICKNAMES or not is_strict
        return "" if is_known else f"cron does not know {words[0]}{whole}"
    for word, (name, lowest, highest, names) in zip(words, FIELDS):
        if (is_strict or COMMON.fullmatch(word)) and is_refused(word, lowest, highest, list(names)):
            return f"cron refuses {word} as {name}{whole}"
    return ""


def is_refused(field: str, lowest: int, highest: int, names: list[str]) -> bool:
    """Return whether Debian's cron refuses a field. Like cron, ignore what follows an element
    without a comma.
    """
    at = 0
    while True:
        found = ELEMENT.match(field, at)
        if not found:
            return True
        first, hyphen, last, slash, step = found.groups()
        values = [find_value(word, lowest, names) for word in (first, last) if word]
        is_step = step and step.isdigit() and step.strip("0") and not (first and not hyphen)
        if slash and not is_step or hyphen and not last:
            return True
        if any(value is None or not lowest <= value <= highest for value in values):
            return True
        if field[found.end() : found.end() + 1] != ",":
            return False
        at = found.end() + 1


def find_value(word: str, lowest: int, names: list[str]) -> int | None:
    """Return the number that a word means in a field, None if it means none."""
    if word.isdigit():
        return int(word) if len(word) < 10 else None
    return names.index(word.lower()) + lowest if word.lower() in names else None


def refuse_text(text: str) -> str:
    """Return why the cron of this machine ignores a file with that text, "" if it does not."""
    last = text.rpartition("\n")[2].strip()
    is_cut = last and last[0] != "#" and find_cron() == DEBIAN
    return "its last line has no newline (add one)" if is_cut else ""


def refuse_file(path: str, in_directory: bool) -> str:
    """Return why the cron of this machine ignores a file of the system, which may be one of
    /etc/cron.d; "" if it does not.
    """
    is_strict = find_cron() == DEBIAN
    if is_strict and in_directory and not NAME.fullmatch(os.path.basename(path)):
        return "its name has other characters than letters, digits, - and _ (rename it)"
    with suppress(OSError):
        link, status = os.lstat(path), os.stat(path)
        if (owner := link.st_uid or status.st_uid) not in (0, OVERFLOW):
            return f"it belongs to uid {owner} (chown -h root {quote_path(path)})"
        if status.st_mode & 0o022:
            return f"other users can write in it (chmod go-w {quote_path(path)})"
        if is_strict and status.st_nlink > 1:
            return "it has another hard link (copy it)"
    return ""
