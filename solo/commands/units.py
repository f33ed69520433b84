"""Units of systemd: the commands in their ExecStart lines, for `solo doctor --unit`. Reads only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import compress

from solo.commands.crontab import Line, Source, find_asked, make_unread, read_all
from solo.commands.guards import FAILS, NOTE, Advice, examine
from solo.commands.lock_tools import MENTION
from solo.commands.place import find_uid
from solo.commands.sandbox import BOUND, MADE, Unit, check_unit, expand
from solo.commands.shell_line import Unclear, split_line
from solo.text.users import find_user

UNITS = "/etc/systemd/system"  # those of the administrator
PREFIX = re.compile(r"([-:+!|]*)([^-:+!|@\s].*)")
SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s*(.*)")
LISTS = {
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "TemporaryFileSystem",
    "Environment",
    "EnvironmentFile",
}
LISTS |= {"SuccessExitStatus", *MADE, *BOUND}
CANNOT_FAIL = re.compile(r" (?:-q?E|--busy-exit|--wait forever)\b")  # by a skip
NO_SHELL = "systemd runs no shell: it passes signs like && and > to the command as words (use sh -c)"


def parse_unit(source: Source) -> Iterator[Line]:
    """Yield the ExecStart lines of a unit, and others with a lock tool as lines without a command."""
    found = list(read_settings(source.text))
    settings = dict[str, str]()
    more = [one for one in read_all([f"{source.file}.d"], must_exist=False) if one.file.endswith(".conf")]
    for _, key, value in [*found, *(setting for one in more for setting in read_settings(one.text))]:
        settings[key] = f"{settings.get(key, '')} {value}".strip() if key in LISTS and value else value
    if not any(re.fullmatch(r"\s*\[\w+\]\s*", line) for line in source.text.split("\n")):
        yield make_unread(source, 1, "no line there looks like a unit's", FAILS)
    for number, key, value in found:
        prefix = PREFIX.fullmatch(value)
        if key == "ExecStart" and prefix:
            yield make_line(source, number, settings, prefix[1], prefix[2])
        elif key.startswith("Exec") and MENTION.search(value):
            yield make_unread(source, number, f"{key}={value[:1] if not prefix else ''} is not read")


def read_settings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, key, value) in the section Service. A line that ends with a backslash goes on in the next one."""
    parts, start, section = list[str](), 0, "[Service]"
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line[:1] in ("#", ";"):
            continue
        start = start if parts else number
        if line.endswith("\\"):
            parts.append(line[:-1].rstrip())
            continue
        whole = " ".join(filter(None, [*parts, line]))
        parts.clear()
        section = whole if whole[:1] == "[" else section
        if section == "[Service]" and (found := SETTING.fullmatch(whole)):
            yield start, found[1], found[2]


def make_line(source: Source, number: int, settings: dict[str, str], prefix: str, command: str) -> Line:
    user = "" if set("+!") & set(prefix) else find_owner(source, settings)
    unit = Unit(source.file, settings, user)
    advice = examine(command, "/bin/sh" if user == "root" else "")._replace(is_bare=False)
    if advice.tool and has_signs(command):
        advice = advice._replace(tool="shell", findings=(), edit=None, reason="").add(FAILS, "shell", NO_SHELL)
    variables = {name: value for name, value in unit.environment.items() if name in ("SOLO_DIR", "SOLO_VIA")}
    if unit.has("EnvironmentFile"):
        variables.setdefault("SOLO_VIA", "")
    asked = expand(find_asked(advice, variables))
    via = str(advice.options.get("via") or variables.get("SOLO_VIA", ""))
    place = check_unit(unit, asked, via, advice.names)
    if advice.runs and "75" not in settings.get("SuccessExitStatus", "") and not CANNOT_FAIL.search(command):
        advice = advice.add(NOTE, "status", "a skip has status 75: add SuccessExitStatus=75, else the unit fails")
    if advice.tool == "solo" and not advice.edit and place.unknown:
        advice = advice.add(NOTE, "unit", place.unknown)
    advice = check_lock_files(unit, advice)
    head = f"ExecStart={prefix}"
    return Line(source.file, number, head, command, "", user, variables, advice, place, unit, asked)


def check_lock_files(unit: Unit, advice: Advice) -> Advice:
    """Return the advice for a unit in which a lock file may be one that no other unit sees."""
    guarded = [advice.lock] if advice.lock and advice.tool != "solo" else []
    paths = [*guarded, *(path for _, path in advice.lock_files)]
    private = {path: setting for path in paths if (setting := unit.find_private(path))}
    if not private:
        return advice
    # Other users can neither see nor lock it.
    is_true = [one.check != "tmp" or not any(path in one.text for path in private) for one in advice.findings]
    advice = advice._replace(findings=tuple(compress(advice.findings, is_true)))
    for path, setting in private.items():
        text = f"{setting} makes {path} a file of this unit alone, which excludes no other"
        advice = advice._replace(edit=None, reason=text) if path in guarded else advice.add(NOTE, "unit", text)
    return advice


def has_signs(command: str) -> bool:
    """Return whether a shell would see more than one command there, or a redirection."""
    try:
        return sum(1 + len(one.redirections) for one in split_line(command)) > 1
    except Unclear:
        return False


def find_owner(source: Source, settings: dict[str, str]) -> str:
    """Return the user of a unit, "" if it is not certain or systemd makes it up."""
    user = settings.get("User", "")
    is_dynamic = Unit(source.file, settings, "").has("DynamicUser")
    if "%" in user or is_dynamic and find_uid(user) is None:
        return ""
    if not user:
        return "root" * (os.path.basename(os.path.dirname(os.path.abspath(source.file))) != "user")
    return find_user(int(user)) if re.fullmatch(r"[0-9]{1,10}", user) else user
