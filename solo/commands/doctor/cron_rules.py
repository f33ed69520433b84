"""The lines and files that cron refuses: Debian's ignores the whole file then, cronie the line.
tests/homes/test_cron.py and tests/doctor/test_crontab.py compare them with both.
"""

import os
import re
import shutil
from contextlib import suppress
from functools import cache

from solo.kernel import OVERFLOW
from solo.text.remedies import quote_path

DEBIAN, CRONIE, BUSYBOX = "cron", "cronie", "busybox"
IGNORES = {DEBIAN: " and ignores the whole file", CRONIE: " and skips this line"}
NICKNAMES = "@reboot @yearly @annually @monthly @weekly @daily @midnight @hourly".split()
# Of systemd-cron, FreeBSD's cron, dcron, supercronic.
OTHER_NICKNAMES = (
    "@minutely @quarterly @biannually @bi-annually @semiannually @semi-annually @every_minute "
    "@every_second @noauto @every"
).split()
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec".split()),
    ("day of the week", 0, 7, "sun mon tue wed thu fri sat".split()),
)
ELEMENT = re.compile(r"(?:\*|([^\W_]+)(?:(-)([^\W_]*))?)(?:(/)([^\W_]*))?", re.ASCII)
CRONIES = re.compile(
    r"(?P<one>[^\W_]+)|(?:\*|(?P<first>[^\W_]*)[-~](?P<last>[^\W_]*))(?:/(?P<step>.*))?", re.ASCII
)
# The syntax that each cron knows; only Debian's refuses 5/10.
COMMON = re.compile(
    r"(?:(?:\*|\d+-\d+)(?:/\d+)?|\d+)(?:,(?:(?:\*|\d+-\d+)(?:/\d+)?|\d+))*", re.ASCII
)
NAME = re.compile("[A-Za-z0-9_-]+")  # of a file in /etc/cron.d
LONGEST = 998  # bytes of a command


def find_cron() -> str:
    """Return the cron of this machine: DEBIAN, CRONIE, BUSYBOX, another one, or "" if there is
    none.
    """
    return find_cron_in(f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@cache
def find_cron_in(path: str) -> str:
    """Return the cron in the directories of a PATH."""
    if crond := shutil.which("crond", path=path):
        is_cronie = shutil.which("cronnext", path=path)
        return CRONIE if is_cronie else os.path.basename(os.path.realpath(crond))
    return DEBIAN if shutil.which("cron", path=path) else ""


def refuse_times(times: str, cron: str) -> str:
    """Return why a cron refuses the words before a command, "" if it does not, or if that is not
    known of it.
    """
    if cron == CRONIE:
        times = times.removeprefix("-")  # not to be logged
    words, ignores = times.split(), IGNORES.get(cron, "")
    if words[:1] and words[0][0] == "@":
        known = NICKNAMES if ignores else NICKNAMES + OTHER_NICKNAMES
        is_word = ignores or words[0][1:].replace("-", "").isalpha()
        is_known = words[0] in known or not is_word
        return "" if is_known else f"cron does not know {words[0]}{ignores}"
    if ignores and len(words) < len(FIELDS):
        return f"cron refuses {len(words)} of five fields of time{ignores}"
    refuses = is_refused_by_cronie if cron == CRONIE else is_refused
    for word, (name, lowest, highest, names) in zip(words, FIELDS):
        if (ignores or COMMON.fullmatch(word)) and refuses(word, lowest, highest, list(names)):
            return f"cron refuses {word} as {name}{ignores}"
    return ""


def is_refused(field: str, lowest: int, highest: int, names: "list[str]") -> bool:
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


def is_refused_by_cronie(field: str, lowest: int, highest: int, names: "list[str]") -> bool:
    """Return whether cronie refuses a field, or could: of a ~ it chooses a number."""
    for part in field.split(","):
        found, is_random = CRONIES.fullmatch(part), "~" in part
        if not found:
            return True
        step = found["step"]
        if step is not None and (is_random or not (step.isdigit() and step.strip("0"))):
            return True
        first, last = [found["one"] or found[key] for key in ("first", "last")]
        start = find_value(first, lowest, names) if first else lowest
        end = find_value(last, lowest, names) if last else highest
        if "" in (first, last) and not is_random or start is None or end is None:
            return True
        end = 7 if start > end == 0 and not step else end  # as in fri-sun
        taken = range(start, end + 1, int(step or 1))
        if is_random and not taken or taken and not lowest <= taken[0] <= taken[-1] <= highest:
            return True
    return False


def find_value(word: str, lowest: int, names: "list[str]") -> "int | None":
    """Return the number that a word means in a field, None if it means none."""
    if word.isdigit():
        return int(word) if len(word) < 10 else None
    return names.index(word.lower()) + lowest if word.lower() in names else None


def refuse_text(text: str, cron: str) -> str:
    """Return why a cron ignores a file with that text, or its last line, "" if it does not."""
    last = text.rpartition("\n")[2].strip()
    is_cut = last and last[0] != "#" and cron in IGNORES
    what = "this line, the last one," if cron == CRONIE else "this file: its last line"
    return f"cron ignores {what} has no newline (add one)" if is_cut else ""


def refuse_file(path: str, in_directory: bool, cron: str) -> str:
    """Return why a cron ignores a file of the system, which may be one of /etc/cron.d; "" if it
    does not.
    """
    is_strict = cron == DEBIAN
    if is_strict and in_directory and not NAME.fullmatch(os.path.basename(path)):
        return "its name has other characters than letters, digits, - and _ (rename it)"
    with suppress(OSError):
        link, status = os.lstat(path), os.stat(path)
        if (owner := link.st_uid * is_strict or status.st_uid) not in (0, OVERFLOW):
            return f"it belongs to uid {owner} (chown -h root {quote_path(path)})"
        if status.st_mode & 0o022:
            return f"other users can write in it (chmod go-w {quote_path(path)})"
        if cron == CRONIE and status.st_mode & 0o7533 != 0o400:
            return f"its mode is not that of a plain file (chmod 644 {quote_path(path)})"
        if is_strict and status.st_nlink > 1:
            return "it has another hard link (copy it)"
    return ""
