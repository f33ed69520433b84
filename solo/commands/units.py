"""Units of systemd: their ExecStart lines, and the settings under which solo cannot do its part. Reads only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from solo import directories
from solo.commands.crontab import Line, Source, make_unread, read_all
from solo.commands.guards import FAILS, NOTE, examine
from solo.commands.lock_tools import MENTION
from solo.commands.place import Place, find_uid
from solo.commands.shell_line import Unclear, split_line
from solo.errors import SoloError
from solo.options import USERS_PLACE
from solo.text.remedies import IN_A_UNIT, ROOTS_JOURNALS
from solo.text.users import find_user

UNITS = "/etc/systemd/system"  # those of the administrator
PREFIX = re.compile(r"([-:+!|]*)([^-:+!|@\s].*)")
SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s*(.*)")
LISTS = "ReadOnlyPaths ReadWritePaths InaccessiblePaths TemporaryFileSystem Environment EnvironmentFile".split()
MADE = {"RuntimeDirectory": "/run/", "StateDirectory": "/var/lib/"}  # by systemd, for the unit
MADE |= {"CacheDirectory": "/var/cache/", "LogsDirectory": "/var/log/"}
CANNOT_FAIL = re.compile(r" (?:-q?E|--busy-exit|--wait forever)\b")  # by a skip
NO, YES = ("", "no", "false", "off", "0"), ("yes", "true", "on", "1")
HOMES = ("/home", "/root", "/run/user")
NO_SHELL = "systemd runs no shell: it passes signs like && and > to the command as words (use sh -c)"


def parse_unit(source: Source) -> Iterator[Line]:
    """Yield the ExecStart lines of a unit, and others with a lock tool as lines without a command."""
    found = list(read_settings(source.text))
    settings = dict[str, str]()
    more = [one for one in read_all([f"{source.file}.d"], must_exist=False) if one.file.endswith(".conf")]
    for _, key, value in [*found, *(setting for one in more for setting in read_settings(one.text))]:
        settings[key] = f"{settings.get(key, '')} {value}".strip() if key in LISTS and value else value
    if not re.search(r"^\[\w+\]$", source.text, re.MULTILINE):
        yield make_unread(source, 1, "no line there looks like a unit's", FAILS)
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


def make_line(source: Source, number: int, settings: dict[str, str], prefix: str, command: str) -> Line:
    user = "" if set("+!") & set(prefix) else find_owner(source, settings)
    advice = examine(command, "/bin/sh" if user == "root" else "")._replace(is_bare=False)
    if advice.tool and has_signs(command):
        advice = advice._replace(tool="shell", findings=(), edit=None, reason="").add(FAILS, "shell", NO_SHELL)
    asked = ([""] + re.findall(r"""SOLO_DIR=([^\s"']+)""", settings.get("Environment", "")))[-1]
    asked = str(advice.options.get("dir", asked)).replace("%t/", "/run/").replace("%S/", "/var/lib/")
    place = check_unit(source, settings, user, asked)
    if advice.runs and "75" not in settings.get("SuccessExitStatus", "") and not CANNOT_FAIL.search(command):
        advice = advice.add(NOTE, "status", "a skip has status 75: add SuccessExitStatus=75, else the unit fails")
    if advice.tool == "solo" and not advice.edit and place.unknown:
        advice = advice.add(NOTE, "unit", place.unknown)
    variables = {"SOLO_VIA": ""} if "SOLO_VIA" in str(settings) or settings.get("EnvironmentFile") else {}
    is_made = list_covering(settings, asked, "ReadWritePaths", *MADE)
    head = f"ExecStart={prefix}"
    return Line(source.file, number, head, command, "", user, variables, advice, place, None if is_made else asked)


def has_signs(command: str) -> bool:
    """Return whether a shell would see more than one command there, or a redirection."""
    try:
        return sum(1 + len(one.redirections) for one in split_line(command)) > 1
    except Unclear:
        return False


def find_owner(source: Source, settings: dict[str, str]) -> str:
    """Return the user of a unit, "" if it is not certain."""
    user = settings.get("User", "")
    if "%" in user or settings.get("DynamicUser", "") in YES:
        return ""
    if not user:
        return "root" * (os.path.basename(os.path.dirname(os.path.abspath(source.file))) != "user")
    return find_user(int(user)) if re.fullmatch(r"[0-9]{1,10}", user) else user


def list_covering(settings: dict[str, str], path: str, *keys: str) -> list[str]:
    """Return those of the directories in the settings `keys` that have the path in them."""
    found = [MADE.get(key, "") + one.lstrip("-+") for key in keys for one in settings.get(key, "").split()]
    return [one for one in [one.partition(":")[0].rstrip("/") for one in found] if f"{path}/".startswith(f"{one}/")]


def check_unit(source: Source, settings: dict[str, str], user: str, asked: str) -> Place:
    """Return what keeps solo from its part in the unit: a problem, or a setting whose effect is not known."""
    stem = os.path.basename(source.file).partition(".")[0].rstrip("@") or "NAME"
    names = asked or find_names(user)
    own = f"add {IN_A_UNIT.format(f'solo-{stem}')} Environment=SOLO_DIR=/run/solo-{stem}"
    remedy = f"add ReadWritePaths={names}" if names.startswith(USERS_PLACE) else own
    if user == "root" and not asked:
        remedy = f"add {IN_A_UNIT.format('solo')} {ROOTS_JOURNALS}"
    is_made = list_covering(settings, names, "ReadWritePaths", *MADE)
    if settings.get("ProcSubset") == "pid":
        return Place("ProcSubset=pid hides what solo reads in /proc (remove it)")
    if settings.get("DynamicUser", "") in YES and not is_made:
        return Place(f"the user of DynamicUser= has no home directory ({own})")
    if settings.get("ProtectSystem") == "strict" and names and not is_made and not names.startswith(HOMES):
        return Place(f"ProtectSystem=strict makes {names} read-only ({remedy})")
    if settings.get("ProtectHome", "") not in NO and names.startswith(HOMES) and not is_made:
        return Place(f"ProtectHome= hides {names} ({own})")
    for key, may in (("InaccessiblePaths", "remove it"), ("ReadOnlyPaths", remedy), ("TemporaryFileSystem", "")):
        covering = list_covering(settings, names, key)
        if covering and names and not (is_made and key == "ReadOnlyPaths"):
            text = f"{key}={covering[0]} covers {names}"
            elsewhere = f"{text}, so the unit would exclude no run elsewhere"
            return Place(f"{text} ({may})") if may else Place(unknown=elsewhere)
    return check_type(settings)


def find_names(user: str) -> str:
    """Return the path of the default directory of a user's names, "" if there is none."""
    uid = find_uid(user)
    try:
        return "" if uid is None else directories.find_place(uid)
    except SoloError:
        return ""


def check_type(settings: dict[str, str]) -> Place:
    """Return whether systemd understands a command that is not the main process."""
    for key in ("RootDirectory", "RootImage", "PrivatePIDs", "BindPaths", "BindReadOnlyPaths"):
        if settings.get(key, "") not in NO:
            return Place(unknown=f"{key}= changes the files or processes that solo sees")
    kind = settings.get("Type", "simple")
    if kind == "forking":
        return Place(unknown="with Type=forking the lock ends with the process that starts the daemon (use Type=exec)")
    needs = "WatchdogSec=" * (settings.get("WatchdogSec", "") not in NO)
    needs = f"Type={kind}" if kind.startswith("notify") else needs
    if not needs or settings.get("NotifyAccess") == "all":
        return Place()
    return Place(f"{needs} is not heard from a command under a launcher (add NotifyAccess=all)")
