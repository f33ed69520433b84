"""`solo doctor --crontab` and `--unit`: read crontabs or systemd units, and print what to change.

Never writes a file and never runs a command of a line. A line to use is printed only if solo was
tried there, as that user or with the settings of that unit, and has the effect of the tool that it
replaces; tests/doctor/test_oracle.py compares both.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from time import time
from typing import Any, NamedTuple

from solo.argv import read_variables
from solo.command import find_command
from solo.commands.doctor.crontab import Line, find_crontabs, parse_crontab, read_all
from solo.commands.doctor.daemon import CRON_PATH, UNIT_PATH
from solo.commands.doctor.guards import make_name
from solo.commands.doctor.lock_tools import SAFE
from solo.commands.doctor.place import (
    NO_USER,
    Place,
    call_as,
    find_names,
    find_place,
    find_solo,
    find_uid,
)
from solo.commands.doctor.sandbox import Unit
from solo.commands.doctor.unit_files import read_services
from solo.commands.doctor.units import parse_unit
from solo.commands.lookup import Asked
from solo.contention import period
from solo.engines import acquire
from solo.errors import SoloError
from solo.history import health
from solo.history.reader import find_history
from solo.kernel import encode
from solo.plan import Plan
from solo.process import limits
from solo.text.rows import BAD, NOTE, Finding, LineRow
from solo.text.tables import format_json
from solo.text.width import print_clean


class Where(NamedTuple):
    """Where a line has its names."""

    names: str  # the directory, or --via socket
    owner: str
    is_own: bool  # another user would be refused there
    private: str  # the unit, if it sees a directory or sockets of its own there
    shared: "frozenset[str]"  # the lock files; and --shared, which excludes no other

    def excludes(self, other: "Where") -> bool:
        """Return whether a line elsewhere of the same name is excluded."""
        is_same_user = self.owner == other.owner or not (self.is_own or other.is_own)
        is_same = is_same_user and self.names == other.names and self.private == other.private
        return is_same or bool(self.shared & other.shared)


# The lines that have one lock file, one name or the same words: one for each way in which they can
# differ.
Groups = dict[tuple[object, ...], dict[Any, Line]]


def run(options: Asked, names: "list[str]") -> int:
    """Print the findings. Return 1 if something is wrong, else 0. Raises SoloError if a named file
    cannot be read.
    """
    is_unit = options.unit
    lines = list_lines(names, is_unit)
    rows = [
        row for row in describe(lines, [] if names else list_lines([], not is_unit)) if row.findings
    ]
    if options.json:
        print(format_json(rows))
    else:
        for row in rows:
            for finding in row.findings:
                print_clean(f"{finding.state:<5}  {row.file}:{row.line}: {finding.text}")
            if row.use is not None:
                print_clean(f"use    {row.use}")
        print_clean(summarize(sum(bool(line.command) for line in lines), rows))
    return int(any(row.state == BAD for row in rows))


def summarize(count: int, rows: "list[LineRow]") -> str:
    if not count:
        return "no command found"
    wrong = sum(row.state == BAD for row in rows)
    unread = sum(row.findings[0].check in ("unread", "unclear", "wrapper") for row in rows)
    read = f"{count} command{'s' * (count != 1)}"
    text = f"{wrong} of {read} to change" if wrong else f"nothing wrong in {read}"
    return text + f", {unread} not understood" * bool(unread)


def list_lines(names: "list[str]", is_unit: bool) -> "list[Line]":
    """Return the commands in the named files, or in all of the machine. Raises SoloError."""
    if is_unit:
        return [line for sources in read_services(names) for line in parse_unit(sources)]
    return [
        line
        for source in (read_all(names) if names else find_crontabs())
        for line in parse_crontab(source)
    ]


def describe(lines: "list[Line]", others: "Iterable[Line]" = ()) -> "Iterator[LineRow]":
    """Yield a row for each line. `others` are lines that may have the same lock files and names."""
    groups: Groups = {}
    for line in [*lines, *others]:
        for key, difference in list_keys(line):
            groups.setdefault(key, {}).setdefault(difference, line)
    for line in lines:
        advice, use = line.advice, None
        findings = list(advice.findings)
        if advice.tool == "solo" and not advice.edit:
            findings += [*check_plan(line), *judge(line), *check_program(line)]
            findings += [*compare(line, groups), *check_schedule(line)]
        elif advice.edit or advice.reason:
            reason = advice.reason or find_reason(line, groups)
            use = None if reason else rewrite(line, groups)
            if use is None:
                findings = [one for one in findings if one.check != "callers"]
                findings.append(
                    Finding(
                        NOTE, "none", f"no line to use: {reason or 'it has control characters'}"
                    )
                )
        findings.sort(key=lambda finding: finding.state != BAD)
        state = findings[0].state if findings else NOTE
        guard = advice.tool, advice.call, advice.lock
        yield LineRow(line.file, line.number, state, *guard, findings, use)


def list_keys(line: Line) -> "Iterator[tuple[tuple[object, ...], Any]]":
    """Yield what other lines may have too, and in what these differ: the lock file, the names, the
    words of a name.
    """
    advice, where = line.advice, find_where(line)
    if line.user and advice.lock and not (line.unit and line.unit.find_private(advice.lock)):
        yield ("lock", find_file(advice.lock)), (line.user, advice.lock)
    for name in advice.options.get("name", ()):
        if where and "%" not in name:
            yield ("name", name), where
    if advice.unnamed:
        asked = line.variables.get("SOLO_DIR"), advice.options.get("dir")
        yield ("words", advice.unnamed, line.user, asked), (line.file, line.number)


def find_where(line: Line) -> "Where | None":
    """Return where the line has its names, None if that is not certain."""
    unit = line.unit
    advice = line.advice
    command = line.command
    names = line.asked or find_names(line.user)
    via = str(advice.options.get("via", line.variables.get("SOLO_VIA", "file")))
    owner = unit.owner if unit else line.user
    if not owner or "SOLO_" in command or set("$%") & set(names) or via not in ("file", "socket"):
        return None
    seen = [
        (key, find_file(path))
        for key, path in advice.lock_files
        if not (unit and unit.find_private(path))
    ]
    shared = frozenset(map(str, seen)) | {"shared"} & advice.options.keys()
    if via == "socket":
        place = "--via socket"
        is_own = True
        private = unit.find_private_network() if unit else ""
    elif unit and unit.has_made_up_user and not names:
        return None
    else:
        place = names and os.path.realpath(names)
        is_own = not names or unit is not None and (unit.has_made_up_user or unit.is_made(names))
        private = unit.find_private(names) if unit else ""
    return Where(place, owner, is_own, private and f"{private} of {line.file}", shared)


def find_file(path: str) -> object:
    """Return what is the same for each path of a file, if there is a file or a link."""
    if path[:1] != "/":
        return path
    try:
        status = os.stat(path)
        return status.st_dev, status.st_ino
    except (OSError, ValueError):
        return os.path.realpath(path)


def compare(line: Line, groups: Groups) -> "Iterator[Finding]":
    """Yield a note for each name, or words without -n, that another line has too and that will
    surprise the user.
    """
    for key, own in list_keys(line):
        others = groups[key]
        if key[0] == "name":
            yield from compare_names(str(key[1]), line, own, others)
        elif key[0] == "words" and len(others) > 1:
            first = [one for other, one in islice(others.items(), 4) if other != own][:3]
            places = ", ".join([f"{one.file}:{one.number}" for one in first])
            places += f" and {len(others) - 1 - len(first)} more" * (len(others) > 4)
            text = (
                f"without -n its name is that of {places}: they skip each other (add another -n "
                "NAME to each)"
            )
            yield Finding(NOTE, "twins", text)


def compare_names(
    name: str, line: Line, own: Where, others: "dict[Where, Line]"
) -> "Iterator[Finding]":
    """Yield a note for the lines that have the name of this one elsewhere: as another user, or in
    another directory.
    """
    users, places = dict[str, str](), dict[str, str]()
    for where, one in others.items():
        at = f"{one.file}:{one.number}"
        if where.excludes(own):
            continue
        if where.owner == own.owner or line.asked or one.asked or where.private or own.private:
            place = ", ".join(filter(None, [where.names, f"of {where.owner}", where.private]))
            places.setdefault(place, f"{at} ({place})")
        else:
            users.setdefault(one.user, f"{one.user} ({at})")
    if users:
        text = (
            f"-n {name} does not exclude that of {', '.join(users.values())}: each user has "
            "separate names"
        )
        yield Finding(NOTE, "users", f"{text} (add the same --dir to these lines)")
    if places:
        text = (
            f"-n {name} does not exclude that of {', '.join(places.values())}: each place has "
            "separate names"
        )
        yield Finding(NOTE, "directories", f"{text} (give these lines one directory of one user)")


def find_reason(line: Line, groups: Groups) -> str:
    """Return why solo would not run there as the tool does, "" if it was tried."""
    if line.is_set_apart:
        return "SOLO_VIA or SOLO_DIR is set"
    place, lock = find_line_place(line), line.advice.lock
    if place.problem or place.unknown:
        return place.problem or place.unknown
    if len({user for user, _ in list_lockers(line, groups)}) > 1:
        return f"lines of several users lock {lock}, and each user has separate names"
    return (
        ""
        if find_lock_name(line, groups)
        else f"other lines lock {lock} by another path (use one path)"
    )


def list_lockers(line: Line, groups: Groups) -> "set[tuple[str, str]]":
    """Return the user and path of each line that locks the lock file of this one."""
    return {*groups.get(("lock", find_file(line.advice.lock)), {})} if line.advice.lock else set()


def find_lock_name(line: Line, groups: Groups) -> str:
    """Return the name for a line: that of its lock file as typed, unless other lines reach the file
    by another path.

    As typed, so that a link of a deployment that leads elsewhere tomorrow makes no other name.
    """
    paths = {path for _, path in list_lockers(line, groups)}
    return line.advice.name if len(paths) < 2 else make_name(min(map(os.path.realpath, paths)))


def find_line_place(line: Line) -> Place:
    """Return how the line can call solo and keep names."""
    if line.unit is None or line.place is None:
        return find_place(line.user, line.variables.get("PATH", CRON_PATH), line.asked)
    # The directory of a unit that systemd makes or names, or that no other process sees, cannot be
    # tried.
    asked = line.asked
    is_own = "%" in asked or line.unit.is_made(asked) or line.unit.find_private(asked)
    tried = find_place(line.user, None, None if is_own else asked)
    return line.place if (line.place.problem or line.place.unknown) and not tried.problem else tried


def rewrite(line: Line, groups: Groups) -> "str | None":
    """Return the whole line with solo, None if it could not be pasted."""
    place = find_line_place(line)
    edit = line.advice.edit
    text = line.command
    solo = place.solo if line.advice.is_bare and line.unit is None else find_solo()
    if edit is not None:
        text = (
            f"{text[: edit[0]]}{solo} -n {find_lock_name(line, groups)} {edit[2]}{text[edit[1] :]}"
        )
    whole = line.head + text + line.tail
    whole = whole if set("\"'\\%") & set(whole) else whole.replace("\t", " ")
    return whole if whole.isprintable() else None


def judge(line: Line) -> "Iterator[Finding]":
    """Yield what prevents that a line with solo runs: its call, its user, or the settings of its
    unit.
    """
    advice, ours = line.advice, find_solo()
    if "via" in advice.options or {"SOLO_VIA"} & line.variables.keys():
        return
    place = find_line_place(line)
    is_word = advice.is_bare and "/" not in (advice.solo or "/")
    if (
        advice.solo[:1] == "/"
        and not os.path.exists(advice.solo)
        and "%" not in advice.solo
        and os.geteuid() == 0
    ):
        yield Finding(BAD, "path", f"{advice.solo} is not there (solo is {ours})")
    elif line.unit is not None:
        yield from judge_unit(line.unit, is_word and not (line.place and line.place.unknown))
    elif is_word and place.solo != "solo":
        text = f"cron does not find solo in the PATH of this line (write {ours})"
        other = f"cron finds another solo in the PATH of this line: {place.other} (this is {ours})"
        yield Finding(NOTE, "path", other) if place.other else Finding(BAD, "path", text)
    if advice.runs and place.problem and not line.is_set_apart:
        yield Finding(BAD, "place", place.problem)


def judge_unit(unit: Unit, is_word: bool) -> "Iterator[Finding]":
    """Yield why systemd would not start solo, which is called by the bare word or its path."""
    path = f"{UNIT_PATH}:{unit.environment.get('PATH', '')}"
    if is_word and not unit.has("ExecSearchPath") and not shutil.which("solo", path=path):
        text = f"systemd does not find solo in {UNIT_PATH} (write {find_solo()})"
        yield Finding(BAD, "path", text)
    user = unit.user
    is_name = SAFE.fullmatch(user) and not user.isdigit() and not unit.has("DynamicUser")
    if user and is_name and find_uid(user) is None:
        yield Finding(NOTE, "user", f"{NO_USER.format(user)}: systemd starts nothing")


def check_plan(line: Line) -> "Iterator[Finding]":
    """Yield why solo refuses the options of a run: makes its plan as a run does."""
    options, variables = dict(line.advice.options), line.variables
    if line.is_set_apart and not variables.get("SOLO_VIA"):
        return  # it sets the backend elsewhere
    try:
        read_variables(options, dict(zip(map(encode, variables), map(encode, variables.values()))))
        plan = Plan(options)
        limits.check_limits(plan)
        if plan.once_per is not None:
            period.check_plan(plan)
        if plan.is_remote:
            acquire.check_plan(plan)
    except SoloError as error:
        yield Finding(BAD, "usage", f"solo refuses this line: {error}")


def check_program(line: Line) -> "Iterator[Finding]":
    """Yield a note if the user of a line would not find its command in the PATH of the line."""
    advice, unit = line.advice, line.unit
    word, *rest = advice.words or [""]
    plain = word.translate(dict.fromkeys(map(ord, " ;|&")))  # in quotes: a line for the shell
    is_known = advice.is_bare and SAFE.fullmatch(plain) and word.find("/") < 1
    is_known = is_known and not (line.place and line.place.unknown)
    path = line.variables.get("PATH", UNIT_PATH if unit else CRON_PATH)

    def search() -> "str | None":
        try:
            find_command(word, encode(path), *rest[:1])
        except SoloError as error:
            return str(error)
        return None

    if is_known and (missing := call_as(line.user, search)):
        is_hidden = unit is not None and unit.settings.get("Type") == "exec"
        more = "; systemd takes the start as a success, as solo was found" * is_hidden
        yield Finding(NOTE, "command", missing + more)


def check_schedule(line: Line) -> "Iterator[Finding]":
    """Yield a note if the judge of health calls a line with solo outgrown."""
    name, *_ = line.advice.names or [""]
    if line.is_set_apart or not line.times or not name or set("%$") & set(name):
        return  # it is not certain under which name its runs are in the history
    words = list(map(encode, line.advice.words))
    text = call_as(line.user, lambda: describe_outgrown(line.asked or None, name, words))
    if text:
        yield Finding(NOTE, "outgrown", f"{line.times}: {text} (start it less often)")


def describe_outgrown(asked: "str | None", name: str, words: "list[bytes]") -> str:
    """Return what the judge says of an outgrown command, "" of any other."""
    mine = [run for run in find_history(asked, name).list_runs() if run.command[0] == words[0]]
    found = health.judge(mine, [], health.Clock(time()))
    if health.OUTGROWN not in found.states:
        return ""
    skipped, starts = found.skipped
    return f"skipped {skipped} of its last {starts} times, as its own run went on"
