"""Runs of commands in cron's log: which user ran which command, from when to when.

Debian's cron logs the start of a command with the pid of its shell, and PAM the end of the session with the pid of the
shell's parent. If several sessions of a user began in that second, the shortest of them counts: a run that took longer
than the log proves is never reported. With `cron -L 2`, and by cronie, the end of the command itself is logged.
"""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from datetime import datetime
from typing import NamedTuple

from solo.kernel import decode
from solo.process.proc import find_psutil

LOGS = ("/var/log/cron.log", "/var/log/cron", "/var/log/syslog", "/var/log/auth.log", "/var/log/secure")
JOURNAL = ("journalctl", "--quiet", "--no-pager", "--output=short-iso", "--since=-7days", "-t", "CRON", "-t", "CROND")
LARGEST = 2 << 20  # bytes that are read of the end of a log
DATE = r"(\d{4}-\d\d-\d\dT\S+|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
ENTRY = re.compile(rf"{DATE} \S+ (?:\S+\.\S+ )?CROND?\[(\d+)\]: (.*)")
COMMAND = re.compile(r"\(([^)]+)\) (CMD|END|CMDEND) \((?:\[(\d+)\] )?(.*)\)")
SESSION = re.compile(r"pam_unix\(\w+:session\): session (opened|closed) for user ([^\s(]+)")
SAME_TIME = 2  # seconds between the entries of one start
SHORTEST = 2  # seconds for which two runs overlap; entries have whole seconds


class LoggedRun(NamedTuple):
    start: float
    end: float  # that the log proves; the run may have taken longer


class Session(NamedTuple):
    start: float
    end: float  # its start, if the log has no end
    pid: int


class Entry(NamedTuple):
    """A line of the log. `kind` is CMD, END, opened or closed; `shell` is the pid of the command, 0 if unknown."""

    at: float
    pid: int
    kind: str
    user: str
    text: str = ""
    shell: int = 0


def read_log() -> list[str]:
    """Return the lines of cron's log that this user can read: of files, else of the systemd journal."""
    texts = [text for text in map(try_read_end, LOGS) if text]
    if not any("CRON" in text for text in texts):
        try:
            result = subprocess.run(JOURNAL, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return []
        texts = [decode(result.stdout[-LARGEST:])]
    return [line for text in texts for line in text.split("\n")]


def try_read_end(path: str) -> str:
    """Return the end of a file, "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LARGEST))
            return decode(file.read(LARGEST))
    except OSError:
        return ""


def find_runs(lines: list[str], now: float) -> dict[tuple[str, str], list[LoggedRun]]:
    """Return the runs of each (user, command as the log has it), in the order of their starts."""
    entries = sorted((entry for line in lines if (entry := parse_entry(line, now))), key=lambda entry: entry.at)
    sessions, ends = find_sessions(entries), find_ends(entries)
    runs: dict[tuple[str, str], list[LoggedRun]] = {}
    for index, entry in enumerate(entries):
        if entry.kind == "CMD":
            end = ends.get(index) or (now if is_running(entry) else find_proof(sessions.get(entry.user, []), entry))
            runs.setdefault((entry.user, entry.text.strip()), []).append(LoggedRun(entry.at, end))
    return runs


def find_ends(entries: list[Entry]) -> dict[int, float]:
    """Return when a command ended, by the number of the entry of its start, as far as cron itself logged it."""
    open_ones: dict[tuple[str, str, int], int] = {}
    ends: dict[int, float] = {}
    for index, entry in enumerate(entries):
        key = entry.user, entry.text, entry.shell or entry.pid
        if entry.kind == "CMD":
            open_ones[key] = index
        elif entry.kind == "END" and key in open_ones:
            ends[open_ones.pop(key)] = entry.at
    return ends


def find_sessions(entries: list[Entry]) -> dict[str, list[Session]]:
    """Return the sessions of each user, in the order of their starts."""
    open_ones: dict[int, Entry] = {}
    sessions: dict[str, list[Session]] = {}
    closed: dict[tuple[float, int], float] = {}
    for entry in entries:
        if entry.kind == "opened":
            open_ones[entry.pid] = entry
        elif entry.kind == "closed" and entry.pid in open_ones:
            closed[open_ones.pop(entry.pid).at, entry.pid] = entry.at
    for entry in entries:
        if entry.kind == "opened":
            end = closed.get((entry.at, entry.pid), entry.at)
            sessions.setdefault(entry.user, []).append(Session(entry.at, end, entry.pid))
    return sessions


def find_proof(sessions: list[Session], entry: Entry) -> float:
    """Return until when the run has certainly taken: the earliest end of a session that may be its own."""
    first = bisect_left(sessions, (entry.at - SAME_TIME,))
    near = [one for one in sessions[first : first + 100] if one.start <= entry.at + SAME_TIME]
    own = [one for one in near if one.pid == entry.pid]
    return min([one.end for one in own or near], default=entry.at)


def parse_entry(line: str, now: float) -> Entry | None:
    """Return the entry of a line, None if it is not about the start or end of a command of cron."""
    if not (found := ENTRY.match(line)):
        return None
    command, session = COMMAND.fullmatch(found[3]), SESSION.match(found[3])
    at = parse_date(found[1], now) if command or session else None
    if at is None:
        return None
    if command:
        kind = "CMD" if command[2] == "CMD" else "END"
        return Entry(at, int(found[2]), kind, command[1], command[4], int(command[3] or 0))
    return Entry(at, int(found[2]), session[1], session[2]) if session else None


def parse_date(text: str, now: float) -> float | None:
    """Return the seconds since 1970. A date without a year lies in the last twelve months."""
    try:
        if text[0].isdigit():
            return datetime.fromisoformat(re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text)).timestamp()
        year = datetime.fromtimestamp(now).year
        dates = [datetime.strptime(f"{one} {text}", "%Y %b %d %H:%M:%S").timestamp() for one in (year, year - 1)]
    except (ValueError, OverflowError):
        return None
    return next((date for date in dates if date <= now + 86400), None)


def is_running(entry: Entry) -> bool:
    """Does the shell of the command live still?"""
    psutil = find_psutil()
    try:
        started: float = psutil.Process(entry.shell or entry.pid).create_time()
    except (psutil.Error, OverflowError, ValueError):
        return False
    return abs(started - entry.at) <= SAME_TIME


def find_overlap(runs: list[LoggedRun]) -> tuple[LoggedRun, LoggedRun] | None:
    """Return the last two runs that overlapped, None if no two did."""
    found, longest = None, None
    for run in runs:
        if longest and min(longest.end, run.end) - run.start >= SHORTEST and run.start > longest.start:
            found = longest, run
        if longest is None or run.end > longest.end:
            longest = run
    return found


def find_logged(runs: dict[tuple[str, str], list[LoggedRun]], user: str, command: str) -> list[LoggedRun]:
    """Return the runs of a command, which is the text that the shell gets."""
    return runs.get((user, quote(command.strip())), [])


def quote(command: str) -> str:
    """Return a command as cron logs it: control characters and bytes beyond ASCII are escaped."""
    data = command.encode(errors="surrogateescape")
    return "".join(
        f"\\{byte:03o}" if byte > 127 else "^?" if byte == 127 else f"^{chr(byte + 64)}" if byte < 32 else chr(byte)
        for byte in data
    )
