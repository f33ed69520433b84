"""Units of systemd: their ExecStart lines, and the settings under which solo cannot do its part.

Reads only, for `solo doctor --unit`. tests/test_oracle.py runs units with these settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from solo.commands.crontab import Line, Source, list_files, make_unread, try_read
from solo.commands.guards import FAILS, NOTE, Advice, Finding, examine
from solo.commands.lock_tools import MENTION
from solo.commands.place import Place, find_names
from solo.commands.shell_line import Unclear, split_line
from solo.options import USERS_PLACE
from solo.text.remedies import IN_A_UNIT, ROOTS_JOURNALS
from solo.text.users import find_user

UNITS = "/etc/systemd/system"
PREFIX = re.compile(r"([-:+!|]*)([^-:+!|@\s].*)")
SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s*(.*)")
LISTS = frozenset(
    "ReadOnlyPaths ReadWritePaths InaccessiblePaths TemporaryFileSystem Environment EnvironmentFile".split()
)
MADE = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
}
NO, YES = ("", "no", "false", "off", "0"), ("yes", "true", "on", "1")
HOMES = ("/home", "/root", "/run/user")
Settings = dict[str, str]


def find_units() -> Iterator[Source]:
    """Yield the services that this machine's administrator wrote."""
    for path in list_files(UNITS):
        if path.endswith(".service") and (text := try_read(path)) is not None:
            yield Source(path, text, None, "")


def parse_unit(source: Source) -> Iterator[Line]:
    """Yield the ExecStart lines of a unit, and others with a lock tool as lines without a command."""
    found = list(read_settings(source.text))
    settings: Settings = {}
    more = [text for path in list_files(f"{source.file}.d") if path.endswith(".conf") and (text := try_read(path))]
    for _, key, value in [*found, *(one for text in more for one in read_settings(text))]:
        settings[key] = f"{settings.get(key, '')} {value}".strip() if key in LISTS and value else value
    if not re.search(r"^\[\w+\]$", source.text, re.MULTILINE):
        finding = Finding(FAILS, "unread", "no line there looks like a unit's")
        yield make_unread(source, 1, "")._replace(advice=Advice(findings=(finding,)))
    for number, key, value in found:
        prefix = PREFIX.fullmatch(value)
        if key == "ExecStart" and prefix:
            yield make_line(source, number, settings, prefix[1], prefix[2])
        elif key.startswith("Exec") and MENTION.search(value):
            yield make_unread(source, number, f"{key}={value[:1] if not prefix else ''} is not read")


def read_settings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, key, value) in the section Service. A line that ends with a backslash goes on in the next one."""
    whole, start, section = "", 0, "[Service]"
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip()[:1] in ("#", ";"):
            continue
        start = start if whole else number
        whole = f"{whole} {line.strip()}" if whole else line.strip()
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip()
            continue
        section = whole if whole[:1] == "[" else section
        if section == "[Service]" and (found := SETTING.fullmatch(whole)):
            yield start, found[1], found[2]
        whole = ""


def make_line(source: Source, number: int, settings: Settings, prefix: str, command: str) -> Line:
    user = find_owner(source, settings)
    user = "" if set("+!") & set(prefix) else user
    advice = examine(command, "/bin/sh" if user == "root" else "")
    findings = list(advice.findings)
    if advice.tool and len(list_commands(command)) > 1:
        text = "systemd runs no shell: it passes signs like && and > to the command as words (use sh -c)"
        advice = advice._replace(edits=(), reason="", tool="shell")
        findings = [Finding(FAILS, "shell", text)]
    asked = ([""] + re.findall(r"""SOLO_DIR=([^\s"']+)""", settings.get("Environment", "")))[-1]
    asked = str(advice.options.get("dir", asked)).replace("%t/", "/run/").replace("%S/", "/var/lib/")
    made = list_made(settings)
    is_made = any(f"{asked}/".startswith(f"{path}/") for path in made)
    place = check_unit(source, settings, user, asked, made)
    if advice.runs and not is_success(settings, command):
        findings.append(Finding(NOTE, "status", "a skip has status 75: add SuccessExitStatus=75, else the unit fails"))
    if advice.tool == "solo" and not advice.edits and place.unknown:
        findings.append(Finding(NOTE, "unit", place.unknown))
    variables = {"SOLO_VIA": ""} if "SOLO_VIA" in str(settings) or settings.get("EnvironmentFile") else {}
    advice = advice._replace(findings=tuple(findings), is_bare=False)
    head = f"ExecStart={prefix}"
    return Line(source.file, number, head, command, "", user, variables, advice, place, None if is_made else asked)


def list_commands(command: str) -> list[int]:
    """Return the places of the commands and redirections that a shell would see."""
    try:
        return [place for one in split_line(command) for place in (one.words[0].start, *one.redirections)]
    except Unclear:
        return []


def is_success(settings: Settings, command: str) -> bool:
    """Is a skip no failure of the unit?"""
    return "75" in settings.get("SuccessExitStatus", "") or bool(
        re.search(r" (?:-q?E|--busy-exit|--wait forever)\b", command)
    )


def find_owner(source: Source, settings: Settings) -> str:
    """Return the user of a unit, "" if it is not certain."""
    user = settings.get("User", "")
    if "%" in user or settings.get("DynamicUser", "") in YES:
        return ""
    if not user:
        folder = os.path.basename(os.path.dirname(os.path.abspath(source.file)))
        return "" if folder == "user" else "root"
    return find_user(int(user)) if re.fullmatch(r"[0-9]{1,10}", user) else user


def list_made(settings: Settings) -> list[str]:
    """Return the directories that systemd makes writable for the unit."""
    made = [f"{top}/{name}" for key, top in MADE.items() for name in settings.get(key, "").split()]
    return made + [path.lstrip("-+") for path in settings.get("ReadWritePaths", "").split()]


def check_unit(source: Source, settings: Settings, user: str, asked: str, made: list[str]) -> Place:
    """Return what keeps solo from its part in the unit: a problem, or a setting whose effect is not known."""
    stem = os.path.basename(source.file).partition(".")[0].rstrip("@") or "NAME"
    place = asked or find_names(user)
    own = f"add {IN_A_UNIT.format(f'solo-{stem}')} Environment=SOLO_DIR=/run/solo-{stem}"
    remedy = f"add ReadWritePaths={place}" if place.startswith(USERS_PLACE) else own
    if user == "root" and not asked:
        remedy = f"add {IN_A_UNIT.format('solo')} {ROOTS_JOURNALS}"
    is_made = any(f"{place}/".startswith(f"{path}/") for path in made)
    if settings.get("ProcSubset") == "pid":
        return Place("ProcSubset=pid hides what solo reads in /proc (remove it)")
    if not is_made:
        if settings.get("DynamicUser", "") in YES:
            return Place(f"the user of DynamicUser= has no home directory ({own})")
        if settings.get("ProtectSystem") == "strict" and not place.startswith(HOMES):  # these are left to ProtectHome=
            return Place(f"ProtectSystem=strict makes {place} read-only ({remedy})")
        if settings.get("ProtectHome", "") not in NO and place.startswith(HOMES):
            return Place(f"ProtectHome= hides {place} ({own})")
    for key in ("ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem"):
        for path in [one.lstrip("-+").partition(":")[0].rstrip("/") for one in settings.get(key, "").split()]:
            if not f"{place}/".startswith(f"{path}/") or is_made and key == "ReadOnlyPaths":
                continue
            text = f"{key}={path} covers {place}"
            if key == "TemporaryFileSystem":
                return Place(unknown=f"{text}, so the unit would exclude no run elsewhere")
            return Place(f"{text} ({remedy if key == 'ReadOnlyPaths' else 'remove it'})")
    return check_type(settings)


def check_type(settings: Settings) -> Place:
    """Return whether systemd understands a command that is not the main process."""
    for key in ("RootDirectory", "RootImage", "PrivatePIDs", "BindPaths", "BindReadOnlyPaths"):
        if settings.get(key, "") not in NO:
            return Place(unknown=f"{key}= changes the files or processes that solo sees")
    kind = settings.get("Type", "simple")
    if kind == "forking":
        return Place(unknown="with Type=forking the lock ends with the process that starts the daemon (use Type=exec)")
    needs = f"Type={kind}" if kind.startswith("notify") else "WatchdogSec="
    has_watchdog = settings.get("WatchdogSec", "") not in NO
    if (kind.startswith("notify") or has_watchdog) and settings.get("NotifyAccess") != "all":
        return Place(f"{needs} is not heard from a command under a launcher (add NotifyAccess=all)")
    return Place()
