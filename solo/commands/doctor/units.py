"""Units of systemd: the commands in their ExecStart lines, for `solo doctor --unit`. Reads only."""

import os
import re
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from solo.commands.doctor.crontab import Line, Source, find_asked, make_unread, read_all
from solo.commands.doctor.guards import Advice, examine
from solo.commands.doctor.lock_tools import MENTION
from solo.commands.doctor.place import find_uid
from solo.commands.doctor.sandbox import EFFECTS, MADE, Unit, check_unit, expand
from solo.commands.doctor.shell_line import Unclear, split_line
from solo.commands.doctor.unit_files import SERVICE, find_file, find_folders
from solo.text.rows import BAD, NOTE
from solo.text.users import find_user

PREFIX = re.compile(r"([-:+!|]*)([^-:+!|@\s].*)")
HEADER = re.compile(r"\s*\[[^\]]+\]\s*")
SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s*(.*)")
LISTS = {
    *EFFECTS,
    *MADE,
    "Environment",
    "EnvironmentFile",
    "SystemCallFilter",
    "SuccessExitStatus",
    "RestartPreventExitStatus",
    "Sockets",
}
# The settings that systemd applies to a command with the prefix +.
OF_ALL = frozenset(
    "Type NotifyAccess WatchdogSec Environment EnvironmentFile SuccessExitStatus Restart "
    "RestartPreventExitStatus Sockets".split()
)
FOREVER = re.compile(r" (?:--wait|-w)[ =]?forever(?=\s|$)")  # such a run is never skipped
BUSY_EXIT = re.compile(r" (?:-q?E|--busy-exit)[ =]?(\d+)")
ACCEPTS = re.compile(r"^\s*Accept\s*=\s*(?:yes|y|true|t|on|1)\s*$", re.IGNORECASE | re.MULTILINE)
NO_SHELL = (
    "systemd runs no shell: it passes signs like && and > to the command as words (use sh -c)"
)
SECOND = (
    "systemd refuses a second ExecStart= unless Type=oneshot is set (put an empty ExecStart= "
    "before this one)"
)


class Setting(NamedTuple):
    """An assignment in a file of a unit."""

    file: str
    number: int
    key: str
    value: str


def parse_unit(sources: "list[Source]") -> "Iterator[Line]":
    """Yield the ExecStart lines of a unit, and others with a lock tool as lines without a command.

    `sources` are its own file and its drop-ins, as by read_services.
    """
    own, *drop_ins = sources
    if not own.text and drop_ins:
        text = f"only its drop-ins are read: this machine has no {os.path.basename(own.file)}"
        yield make_unread(drop_ins[0].file, 1, text)
    elif own.text.strip() and not any(map(HEADER.fullmatch, own.text.split("\n"))):
        yield make_unread(own.file, 1, "no line there looks like a unit's", BAD)
    settings = merge([one for source in sources for one in read_settings(source)])
    values = {key: "\n".join(one.value for one in found) for key, found in settings.items()}
    conditions = {one: examine(one.value, "").lock for one in settings.get("ExecCondition", ())}
    kept: set[str | None] = set()
    assigned = [one for found in settings.values() for one in found]
    for one in sorted(assigned, key=lambda one: one.key != "ExecStart"):
        prefix = PREFIX.fullmatch(one.value)
        if one.key == "ExecStart" and prefix:
            line = make_line(own.file, one, values, prefix[1], prefix[2])
            if line.advice.edit and line.advice.lock in conditions.values():
                line = line._replace(advice=keep_condition(line.advice))
                kept.add(line.advice.lock)
            if one is not settings[one.key][0] and values.get("Type", "simple") != "oneshot":
                line = line._replace(advice=line.advice.add(BAD, "unit", SECOND))
            yield line
        elif one.key.startswith("Exec") and MENTION.search(one.value):
            if conditions.get(one) in kept:
                continue
            yield make_unread(
                one.file, one.number, f"{one.key}={one.value[:1] * (not prefix)} is not read"
            )


def merge(assignments: "list[Setting]") -> "dict[str, list[Setting]]":
    """Return the settings that count, by their keys: all of a list, the last one of others. An
    empty one resets the key.
    """
    settings = dict[str, list[Setting]]()
    for one in assignments:
        if not one.value:
            settings.pop(one.key, None)
        elif one.key in LISTS or one.key.startswith("Exec"):
            settings.setdefault(one.key, []).append(one)
        else:
            settings[one.key] = [one]
    return settings


def read_settings(source: Source) -> "Iterator[Setting]":
    """Yield those in the section Service. A line that ends with a backslash goes on in the next
    one.
    """
    parts = list[str]()
    start = 0
    section = ""
    for number, line in enumerate(source.list_lines(), 1):
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
            yield Setting(source.file, start, found[1], found[2])


def make_line(
    file: str, one: Setting, settings: "dict[str, str]", prefix: str, command: str
) -> Line:
    """Return the line of an ExecStart= of the unit of that file."""
    if "+" in prefix:
        settings = {key: value for key, value in settings.items() if key in OF_ALL}
    elif "!" in prefix and "!!" not in prefix:
        settings = {**settings, "User": ""}
    user = find_owner(file, settings)
    unit = Unit(file, settings, user)
    advice = examine(command, "/bin/sh" if user == "root" else "")
    if advice.tool and has_signs(command):
        advice = advice._replace(tool="shell", findings=(), edit=None, reason="").add(
            BAD, "shell", NO_SHELL
        )
    variables = unit.environment
    if unit.has("EnvironmentFile"):
        variables.setdefault("SOLO_VIA", "")
    asked = expand(find_asked(advice, variables))
    via = str(advice.options.get("via") or variables.get("SOLO_VIA", ""))
    place = check_unit(unit, asked, via, advice)
    if advice.runs and not FOREVER.search(command):
        advice = advise_skip(advice, unit, command)
    if advice.tool == "solo" and not advice.edit and place.unknown:
        advice = advice.add(NOTE, "unit", place.unknown)
    advice = check_lock_files(unit, advice)
    return Line(
        one.file,
        one.number,
        f"ExecStart={prefix}",
        command,
        "",
        user,
        variables,
        advice,
        place,
        unit,
        asked,
    )


def keep_condition(advice: Advice) -> Advice:
    """Return the advice for a line whose lock file an ExecCondition= tests, to skip in silence: it
    still sees the lock.
    """
    assert advice.edit
    start, end, words = advice.edit
    text = f"--{advice.call} {advice.lock} lets ExecCondition= skip in silence, as before"
    findings = tuple(one for one in advice.findings if one.check != "callers")
    edit = start, end, f"--{advice.call} {advice.lock} {words}"
    return advice._replace(findings=findings, edit=edit).add(NOTE, "condition", text)


def advise_skip(advice: Advice, unit: Unit, command: str) -> Advice:
    """Return the advice with what a skip does to the unit, to its restarts and to its socket."""
    found, restart = BUSY_EXIT.search(command), unit.settings.get("Restart", "no")
    status = found[1] if found else "75"
    words = {status, "TEMPFAIL"} if status == "75" else {status}
    is_success = status == "0" or not words.isdisjoint(unit.list_words("SuccessExitStatus"))
    is_again = restart in ("always", "on-success" if is_success else "on-failure")
    is_again = is_again and words.isdisjoint(unit.list_words("RestartPreventExitStatus"))
    if not is_success:
        again = ", and Restart= starts it again" * is_again
        text = f"a skip has status {status}, so the unit fails{again}"
        remedy = f"(add SuccessExitStatus={status}, unless OnFailure= or people shall hear of it)"
        advice = advice.add(NOTE, "status", f"{text} {remedy}")
    if is_again and restart != "on-failure":
        remedy = f"(add RestartPreventExitStatus={status})"
        if status == "0":
            remedy = "(instead of -E 0: SuccessExitStatus=75 and RestartPreventExitStatus=75)"
        text = f"Restart={restart} starts the unit again after each skip"
        advice = advice.add(NOTE, "restart", f"{text} {remedy}")
    if not advice.options.get("wait") and (socket := find_socket(unit)):
        text = f"a skip leaves the connection pending: systemd starts the unit until {socket} fails"
        advice = advice.add(NOTE, "socket", f"{text} (add --wait forever)")
    return advice


def find_socket(unit: Unit) -> str:
    """Return the socket that starts the service and waits for it to take the connection, "" if
    there is none.
    """
    own = os.path.basename(unit.file)
    named = [own.replace(SERVICE, ".socket")] if own.endswith(SERVICE) else []
    for name in [*unit.list_words("Sockets"), *named]:
        path = find_file(name, find_folders(os.path.dirname(unit.file)))
        text = "".join(one.text for one in read_all([path] if path else [], must_exist=False))
        if text and not ACCEPTS.search(text):
            return name
    return ""


def check_lock_files(unit: Unit, advice: Advice) -> Advice:
    """Return the advice for a unit in which a lock file may be one that no other unit sees."""
    guarded = [advice.lock] if advice.lock and advice.tool != "solo" else []
    paths = [*guarded, *(path for _, path in advice.lock_files)]
    private = {path: setting for path in paths if (setting := unit.find_private(path))}
    if not private:
        return advice
    # Other users can neither see nor lock it.
    is_true = [
        one.check != "tmp" or not any(path in one.text for path in private)
        for one in advice.findings
    ]
    advice = advice._replace(findings=tuple(compress(advice.findings, is_true)))
    for path, setting in private.items():
        text = f"{setting} makes {path} a file of this unit alone, which excludes no other"
        advice = (
            advice._replace(edit=None, reason=text)
            if path in guarded
            else advice.add(NOTE, "unit", text)
        )
    return advice


def has_signs(command: str) -> bool:
    """Return whether a shell would see a sign there that systemd does not know: it knows a ;
    between blanks.
    """
    try:
        found = split_line(command)
    except Unclear:
        return False
    between = [
        command[one.words[-1].end : after.words[0].start] for one, after in zip(found, found[1:])
    ]
    return any(one.redirections for one in found) or not all(
        map(re.compile(r"\s+;\s+").fullmatch, between)
    )


def find_owner(file: str, settings: "dict[str, str]") -> str:
    """Return the user of a unit, "" if it is not certain or systemd makes it up."""
    user = settings.get("User", "")
    if "%" in user or Unit(file, settings, "").has("DynamicUser") and find_uid(user) is None:
        return ""
    if not user:
        return "root" * (os.path.basename(os.path.dirname(os.path.abspath(file))) != "user")
    return find_user(int(user)) if re.fullmatch(r"[0-9]{1,10}", user) else user
