"""The guards of a line, what is wrong with them, and the parts of the line to replace by solo.

Pure functions over the text of one line, for `solo doctor --crontab`. They run nothing.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Any, NamedTuple

from solo.argv import parse
from solo.commands.lock_tools import MENTION, Guard, find_guard, skip_wrappers
from solo.commands.shell_line import Command, Unclear, Word, split_line
from solo.errors import UsageError

FAILS, NOTE = "fails", "note"
NEW_EACH_RUN = re.compile(r"(?:\$\(|`)\s*(?:\S*/)?(?:mktemp|uuidgen)\b|\$\$|\$\{?RANDOM|date \S*%[sN]")
CHANGES = re.compile(rf"(?:\$\(|`)\s*(?:\S*/)?date\b|{NEW_EACH_RUN.pattern}")
CLEANED = re.compile(r"(?:/(?:var/)?tmp|/dev/shm)/")
NAMABLE = re.compile(r"(?:/[\w+@,=-][\w.+@,=-]*)+", re.ASCII)
HOME = re.compile(r"""(?:~|\$HOME|\$\{HOME\}|"\$HOME(?=/[^"]*"$))(/[^"]+)"?""")
SHELLS = frozenset("sh bash dash ksh zsh ash".split())
REPORTERS = frozenset(
    "echo printf logger mail mailx sendmail date true false : exit test [ touch sleep curl wget systemd-cat ts cat grep egrep "
    "fgrep sed awk head tail tr cut sort uniq rm".split()
)
# A lock made by hand, or a search for processes, before a job.
SEARCH = re.compile(r"(?:^|[;&|(`!]|\bif)\s*(?:\S*/)?(pgrep|pidof|killall\s+-0|kill\s+-0|ps)\b(.*)")
MADE = re.compile(r"(?:^|[;&|(!]|\bif)\s*(?:\S*/)?(mkdir(?!\s+-\S*p)|lockfile|dotlockfile|shlock|ln)\s+([^;&|]*)[;&|]")
TESTED = re.compile(r"(?:^|[;&|(!]|\bif)\s*(\[|test)\s+([^;&|]*)[;&|]")
GOES_ON = re.compile(r"\|\||&&|\bthen\b|\bexit\b")
MANAGED = re.compile(r"\b(?:service|systemctl|initctl|supervisorctl|pkill|kill -(?!0)\S+)\s|/init\.d/")
SETS = re.compile(r"(?:^|[;&|({'])\s*(?:\.|source|eval|export|read)\s")
LOCK_LIKE = re.compile(r"lock|lck|mutex|running|\.pid\b", re.IGNORECASE)
WRAPPER = re.compile(r"(?<![bc])lock|once|single", re.IGNORECASE)


class Finding(NamedTuple):
    """`state` is fails or note, `check` a word for programs, `text` the message."""

    state: str
    check: str
    text: str


class Edit(NamedTuple):
    """From `start` to `end` the line becomes solo, `words`, --, and `command`."""

    start: int
    end: int
    words: str
    command: str


class Advice(NamedTuple):
    """The guard of a line, what was found, and what to replace: nothing if `reason` says why not."""

    tool: str | None = None
    call: str | None = None
    lock: str | None = None
    findings: tuple[Finding, ...] = ()
    edits: tuple[Edit, ...] = ()
    reason: str = ""
    is_bare: bool = True  # the PATH of the line is still that of its file where the guard is
    solo: str = ""  # the word by which the line calls solo
    options: dict[str, Any] = {}
    runs: bool = False  # the line runs a command under solo
    unnamed: tuple[str, ...] = ()  # the words that solo makes a name from, if it is the same in every directory


def examine(line: str, shell: str, home: str = "") -> Advice:
    """Return the advice for a line of a shell. Never raises: an unclear line with the name of a tool gets a note."""
    error, commands = "", list[Command]()
    try:
        commands = split_line(line)
        advice = examine_commands(line, commands, shell, home)
        if advice.tool is not None:
            return advice
    except Unclear as reason:
        error = f" ({reason})" if str(reason) else ""
    if found := MENTION.search(line):
        return give_note(found[1], "unclear", f"no advice: solo does not understand this use of {found[1]}{error}")
    return find_idiom(line) or find_wrapper(commands)


def give_note(tool: str | None, check: str, text: str) -> Advice:
    return Advice(tool, findings=(Finding(NOTE, check, text),))


def examine_commands(line: str, commands: list[Command], shell: str, home: str) -> Advice:
    """Return the advice for the commands of a line. Raises Unclear."""
    if inner := find_inner(commands):
        text = inner.raw[1:-1]
        advice = examine_commands(text, split_line(text), shell, home)
        shift = inner.start + 1
        edits = [edit._replace(start=edit.start + shift, end=edit.end + shift) for edit in advice.edits]
        return advice._replace(edits=tuple(edits))
    guards = [(at, guard) for at, command in enumerate(commands) if (guard := find_guard(command, shell))]
    if guards:
        return advise(line, commands, guards, home)
    for at, command in enumerate(commands):
        words = skip_wrappers(command.plain)
        if words and words[0].program == "solo":
            return examine_solo(line, commands, at, words)
    return Advice()


def find_inner(commands: list[Command]) -> Word | None:
    """Return the string of `sh -c 'STRING'`, if the line is only that and the string is in single quotes."""
    words = skip_wrappers(commands[0].plain) if len(commands) == 1 else []
    if len(words) != 3 or words[0].program not in SHELLS or words[1].raw != "-c":
        return None
    raw = words[2].raw
    return words[2] if len(raw) > 1 and raw[0] == raw[-1] == "'" and "'" not in raw[1:-1] else None


def advise(line: str, commands: list[Command], guards: list[tuple[int, Guard]], home: str) -> Advice:
    """Return the advice for a line that other tools guard."""
    findings: list[Finding] = []
    edits, reason = [], ""
    for _, guard in guards:
        path = resolve(guard.lock, home) if guard.lock else ""
        name = guard.key or make_name(path)
        findings += check_lock(guard, path)
        reason = reason or find_reason(guard, name)
        edits.append(Edit(guard.start, guard.end, f"-n {name} {guard.options}".rstrip(), guard.command))
    first = guards[0][1]
    findings += check_tail(commands, guards[-1][0])
    if not reason:
        findings += dict.fromkeys(describe_change(guard) for _, guard in guards)
    lock = resolve(first.lock, home) or first.lock.known if first.lock else None
    is_bare = keeps_path(line)
    return Advice(first.tool, first.call, lock, tuple(findings), () if reason else tuple(edits), reason, is_bare)


def resolve(lock: Word, home: str) -> str:
    """Return the path of a lock file, "" if it depends on the environment or the working directory."""
    text = lock.text
    if text is None and home and (found := HOME.fullmatch(lock.raw)):
        text = home + found[1]
    return normalize(text) if text and NAMABLE.fullmatch(normpath(text)) else ""


def normalize(path: str) -> str:
    """Return the path without a link that every system has."""
    path = normpath(path)
    for link, target in (("/var/run/", "/run/"), ("/var/lock/", "/run/lock/")):
        if path.startswith(link):
            return target + path[len(link) :]
    return path


def make_name(path: str) -> str:
    """Return the path as a name, "" if it cannot be one. No path has a colon: two paths are two names."""
    return path[1:].replace("/", ":") if len(path) < 200 and path[1:2].isalnum() else ""


def find_reason(guard: Guard, name: str) -> str:
    """Return why solo in place of the tool might not have the same effect, "" if it has."""
    if not name and guard.lock:
        return f"{guard.lock.raw} is no fixed path of plain characters, so it makes no name"
    if guard.leaves:
        return f"a process that the command leaves keeps the lock of {guard.tool}, not that of solo (see --tree)"
    return ""


def check_lock(guard: Guard, path: str) -> list[Finding]:
    """Return what is wrong with the lock file, or with the tool's use of it."""
    findings = []
    typed = guard.lock.raw if guard.lock else ""
    if CLEANED.match(path or typed.strip("\"'")):
        findings.append(Finding(FAILS, "tmp", f"{typed}: any user can lock a file there first, and cleaners remove it"))
    if NEW_EACH_RUN.search(typed):
        text = f"{typed} is a new lock file in each run, so no run excludes another"
        findings.append(Finding(FAILS, "changing", text))
    if guard.is_lost:
        text = f"if {guard.tool} is killed, the next run starts beside the command"
        findings.append(Finding(FAILS, "overlap", text))
    return findings


def check_tail(commands: list[Command], at: int) -> list[Finding]:
    """Return a note about the commands after the guarded one."""
    after = [one for one in commands[at + 1 :] if one.sign in ("&&", ";", "|") and one.program not in REPORTERS]
    if not after:
        return []
    names = " and ".join(dict.fromkeys(one.program for one in after))
    return [Finding(NOTE, "partial", f"the guard ends before {after[0].sign}, and does not cover {names}")]


def describe_change(guard: Guard) -> Finding:
    """Return what is the same, and what is different, once solo is in the place of the tool."""
    tool, same = guard.tool, ""
    others = [f"other callers of {tool} (change all at the same time)"]
    if found := re.search(r"-q(?: -E (\d+))?", guard.options):
        same = f"a skip prints nothing and has status {found[1] or 75}, as with {tool}; "
    if guard.lock:
        others = [f"programs that lock {guard.lock.known} (add --{guard.call} {guard.lock.raw})"]
    if guard.keeps:
        others.append("processes that the command leaves in the background (add --tree)")
    return Finding(NOTE, "callers", f"{same}solo does not exclude {', nor '.join(others)}")


def keeps_path(text: str) -> bool:
    """Is the PATH of the line certainly that of its file?"""
    return "PATH=" not in text and not SETS.search(text)


def find_idiom(line: str) -> Advice | None:
    """Return a note about a lock made by mkdir, a pid file or a search for processes. The line is not rewritten."""
    found = SEARCH.search(line)
    if found and GOES_ON.search(found[2]) and not MANAGED.search(line) and (found[1] != "ps" or "grep" in found[2]):
        tool = " ".join(found[1].split())
        text = f"{tool} and the start are two steps: two runs can both start, and {tool} can match other processes"
        return give_note(tool, "race", text)
    made = MADE.search(line)
    if made and (LOCK_LIKE.search(made[0]) or re.search(r"\brm(?:dir)?\b", line)):
        return give_note(
            made[1], "stale", f"a lock made by {made[1]} stays after a kill or a crash: then no run starts"
        )
    tested = TESTED.search(line)
    if tested and LOCK_LIKE.search(tested[2]):
        text = "two runs can both test that file before one of them makes it, and it stays after a kill"
        return give_note("pid file", "stale", text)
    return None


def find_wrapper(commands: list[Command]) -> Advice:
    """Return a note about a program whose name says that it locks."""
    for words in [skip_wrappers(command.plain) for command in commands]:
        if len(words) > 1 and words[0].text and WRAPPER.search(words[0].program):
            text = f"no advice: {words[0].program} may be a lock wrapper, which solo does not know"
            return give_note(words[0].program, "wrapper", text)
    return Advice()


# --- lines with solo ---------------------------------------------------------------------------------------------------


def examine_solo(line: str, commands: list[Command], at: int, words: list[Word]) -> Advice:
    """Return the advice for a line that solo guards already."""
    is_bare = keeps_path(line) and words[0].start == commands[at].words[0].start
    advice = Advice("solo", is_bare=is_bare, solo=words[0].known)
    try:
        options, subcommand, rest = parse([word.known for word in words[1:]])
    except UsageError as error:
        if any(word.text is None for word in words):
            return advice
        return advice._replace(findings=(Finding(FAILS, "usage", f"solo refuses this line: {error}"),))
    if subcommand is not None or not rest:
        return advice._replace(runs=subcommand == "hold")
    first = len(words) - len(rest)
    findings = check_tail(commands, at)
    changing = [word.raw for word in words[first:] if CHANGES.search(word.raw)]
    if changing and "name" not in options:
        findings.append(Finding(FAILS, "changing", f"{changing[0]} gives each run a name of its own (add -n NAME)"))
    for path in options.get("flock", []) + options.get("fcntl", []):
        if CLEANED.match(path):
            text = f"{path}: any user can lock a file there first, and cleaners remove it"
            findings.append(Finding(FAILS, "tmp", text))
    is_certain = all(word.text is not None for word in words[:first])
    unnamed: tuple[str, ...] = ()
    if is_certain and "name" not in options and (rest[0][:1] == "/" or "/" not in rest[0]):
        unnamed = tuple(rest)
        if any(command.plain and command.plain[0].raw == "cd" for command in commands[:at]):
            text = "the same words in another directory make the same name (add -n NAME)"
            findings.append(Finding(NOTE, "directory", text))
    return advice._replace(
        findings=tuple(findings), options=options if is_certain else {}, runs=is_certain, unnamed=unnamed
    )


def list_shared(options: dict[str, Any]) -> frozenset[str]:
    """Return the options by which two lines of one name, of several users, have one lock; or --shared: they need none."""
    paths = [(key, path) for key in ("flock", "fcntl") for path in options.get(key, ())]
    paths += [("dir", options["dir"])] if "dir" in options else []
    return frozenset([f"{key} {normalize(path)}" for key, path in paths] + ["shared"] * ("shared" in options))
