"""`solo doctor --crontab` and `--unit`: read crontabs or systemd units, and print what to change.

Reads only: never writes a file and never runs a command of a line.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import localtime, strftime, time
from typing import Any, NamedTuple

from solo.commands.advice import FAILS, NOTE, Advice, Finding, Setting, make_name
from solo.commands.cron_log import Run, find_logged, find_overlap, find_runs, read_log
from solo.commands.doctor import CRON_PATH
from solo.commands.guards import examine
from solo.commands.shell_line import Step, Unclear, Unclosed, split_line
from solo.errors import SoloError
from solo.history.reader import History, find_histories
from solo.journal_files import SKIPPED
from solo.kernel import decode
from solo.text.describe import format_duration
from solo.text.tables import format_json
from solo.text.users import find_user
from solo.text.width import print_clean

SYSTEM, SYSTEM_DIRECTORY = "/etc/crontab", "/etc/cron.d"
SPOOLS = ("/var/spool/cron/crontabs", "/var/spool/cron")  # of Debian, of Fedora: a file per user
UNITS = "/etc/systemd/system"
OWN = "crontab -l"
UNUSED = re.compile(r"^\.|~$|\.(?:swp|bak|disabled|rpm\w+|dpkg-\w+|ucf-\w+)$")  # files that cron does not read
LARGEST = 1 << 20  # bytes that are read of a file
VARIABLE = re.compile(r"""\s*(["']?)([A-Za-z_]\w*)\1\s*=\s*(.*)""")
FIELD = r"-?[\d*][\w*/,~#?-]*"
DAY = r"(?:[\d*][\w*/,~#?-]*|[A-Za-z]{3}[\w,/-]*)"
ENTRY = re.compile(rf"\s*(@[a-z]+|{FIELD}\s+{FIELD}\s+{DAY}\s+{DAY}\s+{DAY})\s+(.*)")
USER = re.compile(r"([A-Za-z_][\w.-]*\$?)(?::[\w.-]+)?(?:/[\w.-]+)?\s+(\S.*)")
Runs = dict[tuple[str, str], list[Run]]
COMMON_USERS = frozenset("root www-data nobody".split())
NAMED_PERIODS = {"@hourly": 3600, "@daily": 86400, "@midnight": 86400}
EXEC = re.compile(r"(ExecStart\s*=\s*[-:+!|]*)([^-:+!|@\s].*)")
PERCENT = re.compile(r"(?<!\\)%")


class Line(NamedTuple):
    """A command of a crontab or a unit: `head` is the text before it, `shell` and `path` are what its file sets."""

    file: str
    number: int
    head: str
    command: str
    user: str
    shell: str = "sh"
    path: str | None = CRON_PATH
    period: int | None = None  # seconds between two starts, None if unknown
    is_unit: bool = False
    findings: tuple[Finding, ...] = ()


class Source(NamedTuple):
    """A crontab or a unit. `has_user` says whether the lines name their user; None: look at them."""

    file: str
    text: str
    has_user: bool | None
    user: str


def run(options: dict[str, Any], names: list[str]) -> int:
    """Print the findings as text, or with --json as an array with an object per line.

    Return 1 if something is wrong, else 0. Raises SoloError if a named file cannot be read.
    """
    is_unit = "unit" in options
    sources = read_all(names) if names else find_units() if is_unit else find_crontabs()
    lines = [line for source in sources for line in (parse_unit(source) if is_unit else parse_crontab(source))]
    runs = {} if is_unit else find_runs(read_log(), time())
    rows = [row for row in describe(lines, load_histories(options.get("dir")), runs) if row["findings"]]
    if options.get("json"):
        print(format_json(rows))
    else:
        for row in rows:
            print_row(row)
        wrong = sum(row["state"] == FAILS for row in rows)
        read = f"{len(lines)} command{'s' * (len(lines) != 1)}"
        text = f"{wrong} of {read} to change" if wrong else f"nothing wrong in {read}"
        print_clean(text)
    return int(any(row["state"] == FAILS for row in rows))


def print_row(row: dict[str, Any]) -> None:
    """Print a line for each finding about a command, and the line to use instead."""
    for finding in row["findings"]:
        print_clean(f"{finding['state']:<5}  {row['file']}:{row['line']}: {finding['text']}")
    if row["use"] is not None:
        print_clean(f"use    {row['use']}")


# --- files -----------------------------------------------------------------------------------------------------------


def find_crontabs() -> Iterator[Source]:
    """Yield the crontabs of the system, and the user's own; as root those of all users."""
    for path in [SYSTEM, *list_files(SYSTEM_DIRECTORY)]:
        if os.path.isfile(path) and (text := try_read(path)) is not None:
            yield Source(path, text, True, "")
    paths = [path for spool in SPOOLS for path in list_files(spool)] if os.geteuid() == 0 else []
    for path in paths:
        if (text := try_read(path)) is not None:
            yield Source(path, text, False, os.path.basename(path))
    if not paths and shutil.which("crontab"):
        result = subprocess.run(["crontab", "-l"], stdin=subprocess.DEVNULL, capture_output=True)
        if not result.returncode:
            yield Source(OWN, decode(result.stdout[:LARGEST]), False, find_user(os.geteuid()))


def find_units() -> Iterator[Source]:
    """Yield the services that this machine's administrator wrote."""
    for path in list_files(UNITS):
        if path.endswith(".service") and (text := try_read(path)) is not None:
            yield Source(path, text, None, "")


def list_files(folder: str) -> list[str]:
    """Return the regular files in a directory that cron or systemd would read, in order; none if it cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [path for name in names if not UNUSED.search(name) and os.path.isfile(path := os.path.join(folder, name))]


def try_read(path: str) -> str | None:
    """Return the text of a file, None if it cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return None


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input for -. Raises OSError."""
    if path == "-":
        return decode(sys.stdin.buffer.read(LARGEST))
    with open(path, "rb") as file:
        return decode(file.read(LARGEST))


def read_all(paths: list[str]) -> Iterator[Source]:
    """Yield the named files and the files in the named directories. Raises SoloError."""
    for path in paths:
        files = list_files(path) if os.path.isdir(path) else [path]
        for file in files:
            try:
                text = read_text(file)
            except OSError as error:
                raise SoloError(f"cannot read {file}: {error.strerror}") from None
            real = os.path.realpath(file)
            is_system = real == SYSTEM or os.path.basename(os.path.dirname(real)) == "cron.d"
            is_own = os.path.dirname(real) in SPOOLS
            user = os.path.basename(real) if is_own else find_user(os.geteuid())
            yield Source(file, text, True if is_system else False if is_own else None, user)


# --- crontabs --------------------------------------------------------------------------------------------------------


def parse_crontab(source: Source) -> Iterator[Line]:
    """Yield the commands of a crontab. Comments and text that is no entry are left out."""
    has_user = guess_has_user(source.text) if source.has_user is None else source.has_user
    shell, path, findings = "sh", CRON_PATH, tuple[Finding, ...]()
    for number, text in enumerate(source.text.split("\n"), 1):
        entry, variable = ENTRY.fullmatch(text), VARIABLE.fullmatch(text)
        if variable:
            value = variable[3].strip().strip("\"'")
            if variable[2] == "SHELL":
                shell = value if value not in ("/bin/sh", "/usr/bin/sh") and " " not in value else "sh"
            elif variable[2] == "PATH":
                path = value
                findings = check_path(value)
        elif entry:
            head, command, user = f"{' '.join(entry[1].split())} ", entry[2].strip(), source.user
            if has_user:
                with_user = USER.fullmatch(command)
                if not with_user:
                    continue
                user, command = with_user[1], with_user[2]
                head += f"{entry[2].strip()[: -len(command)].strip()} "
            yield Line(source.file, number, head, command, user, shell, path, find_period(entry[1]), False, findings)


def check_path(value: str) -> tuple[Finding, ...]:
    if "$" not in value:
        return ()
    return (Finding(NOTE, "path", f"cron does not expand PATH={value}: it searches a directory of that name"),)


def guess_has_user(text: str) -> bool:
    """Does every entry have the name of a user before its command?"""
    found = [entry for line in text.split("\n") if (entry := ENTRY.fullmatch(line))]
    users = [match[1] if (match := USER.fullmatch(entry[2].strip())) else "" for entry in found]
    return bool(users) and all(user in COMMON_USERS or is_user(user) for user in users)


def is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError, UnicodeError):
        return False
    return True


def find_period(schedule: str) -> int | None:
    """Return the shortest time between two starts, in seconds; None if it is not certain."""
    if schedule[0] == "@":
        return NAMED_PERIODS.get(schedule)
    minute, hour, *days = schedule.lstrip("-").split()
    minutes, hours = expand(minute, 60), expand(hour, 24)
    if minutes is None or hours is None:
        return None
    starts = [60 * one + other for one in hours for other in minutes]
    if days != ["*"] * 3 and len(starts) == 1:
        return None
    return 60 * min(after - before for before, after in zip(starts, [*starts[1:], starts[0] + 1440]))


def expand(field: str, size: int) -> list[int] | None:
    """Return the values of a field of numbers, in order; None if it has anything else."""
    values: set[int] = set()
    for part in field.split(","):
        match = re.fullmatch(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?", part, re.ASCII)
        if not match or match[3] and not int(match[3]):
            return None
        first = int(match[1] or 0)
        last = int(match[2]) if match[2] else size - 1 if match[1] is None or match[3] else first
        values.update(range(first, min(last, size - 1) + 1, int(match[3] or 1)))
    return sorted(values) or None


# --- units -----------------------------------------------------------------------------------------------------------


def parse_unit(source: Source) -> Iterator[Line]:
    """Yield the ExecStart lines of a unit. A line that ends with a backslash goes on in the next one."""
    whole, start = "", 0
    for number, text in enumerate(source.text.split("\n"), 1):
        start = start if whole else number
        if whole and text.lstrip()[:1] in ("#", ";"):
            continue
        whole = f"{whole} {text.strip()}" if whole else text.strip()
        if whole.endswith("\\"):
            whole = whole[:-1].rstrip()
            continue
        found = EXEC.fullmatch(whole)
        if found:
            has_status = "SuccessExitStatus=" in source.text
            note = Finding(NOTE, "status", "a skip has status 75: add SuccessExitStatus=75, else the unit fails")
            findings = () if has_status else (note,)
            yield Line(source.file, start, found[1], found[2], "", "/bin/sh", None, None, True, findings)
        whole = ""


# --- advice ----------------------------------------------------------------------------------------------------------


def describe(lines: list[Line], histories: dict[tuple[str, ...], float], runs: Runs) -> Iterator[dict[str, Any]]:
    """Yield a row for each line.

    `histories` has the longest run of each command, in seconds; `runs` are those in cron's log.
    """
    users: dict[str, set[str]] = {}
    for line in lines:
        lock = advise(line, Setting()).lock
        users.setdefault(normalize(lock or ""), set()).add(line.user)
    find_name = make_namer()
    solo = find_solo()
    for line in lines:
        is_found = line.path is not None and shutil.which("solo", path=line.path) is not None
        setting = Setting(
            line.shell,
            "solo" if is_found else solo,
            is_found or line.path is None,
            partial(find_name, line.file),
            lambda lock: len(users.get(normalize(lock), ())) > 1,
        )
        advice = advise(line, setting)
        findings = [*advice.findings, *find_overrun(line, advice, histories)]
        if advice.tool is None and not findings:
            findings += find_overlapped(line, runs)
        if not findings and advice.tool == "solo" and line.path is not None:
            findings += line.findings
        state = FAILS if any(finding.state == FAILS for finding in findings) else NOTE
        yield {
            "file": line.file,
            "line": line.number,
            "state": state,
            "tool": advice.tool,
            "call": advice.call,
            "lock": advice.lock,
            "findings": [finding._asdict() for finding in findings],
            "use": advice.use,
        }


def normalize(path: str) -> str:
    """Return the path of a lock file without quotes, and without a link that every system has."""
    path = path.strip("\"'")
    for link, target in (("/var/run/", "/run/"), ("/var/lock/", "/run/lock/")):
        if path.startswith(link):
            return target + path[len(link) :]
    return path


def make_namer() -> Callable[[str, str, str, str], str]:
    """Return a function that gives each lock file, or job without one, a name of its own, the same in every line.

    A lock whose path has a variable is another one in each file.
    """
    names: dict[tuple[str, str], str] = {}

    def find_name(file: str, lock: str, job: str, program: str) -> str:
        key = (file if "$" in lock else "", normalize(lock) or f"\0{job}")
        if key not in names:
            name = base = make_name(lock, program)
            count = 1
            while name in names.values():
                count += 1
                name = f"{base}-{count}"
            names[key] = name
        return names[key]

    return find_name


def find_solo() -> str:
    """Return the path of this solo, for a line whose PATH does not have it."""
    typed = os.path.abspath(sys.argv[0])
    if os.path.basename(typed) == "solo" and os.access(typed, os.X_OK) and os.path.isfile(typed):
        return typed
    return shutil.which("solo") or "solo"


def advise(line: Line, setting: Setting) -> Advice:
    """Return the advice for a line. Its suggestion is the whole line, None if it could not be pasted."""
    advice = advise_unit(line, setting) if line.is_unit else advise_entry(line, setting)
    if advice.use is None:
        return advice
    use = advice.use if advice.use.isprintable() or set("\"'") & set(advice.use) else advice.use.replace("\t", " ")
    whole = line.head + use
    return advice._replace(use=whole if whole.isprintable() else None)


def advise_unit(line: Line, setting: Setting) -> Advice:
    """Return the advice for an ExecStart line, which no shell reads."""
    advice = examine(line.command, setting)
    if advice.tool is None or advice.findings and advice.findings[0].check == "unclear":
        return advice
    steps, _ = split_line(line.command)
    if len(steps) > 1 or len(steps[0].commands) > 1 or steps[0].commands[0].redirections:
        text = "systemd runs no shell: it passes signs like && and > to the command as words (use sh -c)"
        return advice._replace(findings=(Finding(FAILS, "shell", text),), use=None)
    findings = [finding for finding in advice.findings if finding.check != "changing"]
    if (advice.use or advice.tool == "solo") and not re.search(
        r" (?:-q?E|--busy-exit|--wait forever)\b", advice.use or line.command
    ):
        findings += line.findings
    return advice._replace(findings=tuple(findings), use=advice.use if findings else None)


def advise_entry(line: Line, setting: Setting) -> Advice:
    """Return the advice for a command of a crontab, which cron cuts at a percent sign without a backslash."""
    sign = PERCENT.search(line.command)
    if sign is None:
        advice = examine(line.command.replace("\\%", "%"), setting)
        return advice._replace(use=escape_percent(advice.use))
    before, after = line.command[: sign.start()].replace("\\%", "%"), line.command[sign.start() :]
    if not is_torn(before):
        advice = examine(before, setting)
        return advice if advice.use is None else advice._replace(use=f"{escape_percent(advice.use)}{after}")
    whole = line.command.replace("\\%", "%")
    advice = examine(whole, setting)
    finding = Finding(FAILS, "percent", "cron ends the command at the first % (write \\%)")
    use = advice.use or (whole if try_split(whole) else None)
    return advice._replace(findings=(finding, *advice.findings), use=escape_percent(use))


def escape_percent(text: str | None) -> str | None:
    return None if text is None else text.replace("%", "\\%")


def is_torn(command: str) -> bool:
    """Is the text before a percent sign no whole command, so that the sign was meant as itself?"""
    if re.search(r"""\+["']?$""", command):
        return True
    try:
        split_line(command)
    except Unclosed:
        return True
    except Unclear:
        pass
    return False


def try_split(command: str) -> list[Step]:
    """Return the steps of a command, none if it is unclear."""
    try:
        return split_line(command)[0]
    except Unclear:
        return []


# --- the journal -----------------------------------------------------------------------------------------------------


def load_histories(directory: str | None) -> dict[tuple[str, ...], float]:
    """Return the longest run of each command in the journals, in seconds; forever if a run of it was skipped."""
    longest: dict[tuple[str, ...], float] = {}
    try:
        histories = [history for _, history in find_histories(directory, []) if isinstance(history, History)]
    except SoloError:
        return {}
    for run in [run for history in histories for run in history.events if run.command]:
        key = make_key([decode(word) for word in run.command])
        ran = float("inf") if run.event == SKIPPED else run.ran or 0.0
        longest[key] = max(longest.get(key, 0.0), ran)
    return longest


def make_key(words: list[str]) -> tuple[str, ...]:
    """Return the words of a command with its program without a path."""
    return (words[0].rpartition("/")[2], *words[1:])


def find_overrun(line: Line, advice: Advice, histories: dict[tuple[str, ...], float]) -> list[Finding]:
    """Return a finding if the line has no guard, and its command ran for longer than the time between two starts."""
    if advice.tool is not None or not histories:
        return []
    steps = try_split(line.command.replace("\\%", "%"))
    words = [word.known for step in steps[-1:] for word in step.commands[0].plain]
    if len(steps) != 1 or not words:
        return []
    ran = histories.get(make_key(words), 0.0)
    if ran == float("inf"):
        text = f"runs of {words[0]} under solo found another run, but this line is not guarded"
    elif line.period is not None and ran > line.period:
        text = f"{words[0]} ran for {format_duration(ran)}, and this line starts it each {format_duration(line.period)}"
    else:
        return []
    return [Finding(FAILS, "overran", f"{text} (put solo -- before it)")]


def find_overlapped(line: Line, runs: Runs) -> list[Finding]:
    """Return a finding if two runs of the line overlapped, by cron's log."""
    command = line.command[: sign.start()] if (sign := PERCENT.search(line.command)) else line.command
    overlap = find_overlap(find_logged(runs, line.user, command.replace("\\%", "%")))
    if overlap is None:
        return []
    first, second = overlap
    length = format_duration(min(first.end, second.end) - second.start)
    times = " and ".join(strftime("%b %d %H:%M:%S", localtime(one.start)) for one in overlap)
    text = f"the runs of {times} overlapped for {length} by cron's log (put solo -- before the job)"
    return [Finding(FAILS, "overran", text)]
