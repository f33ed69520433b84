"""Advice about a line that something guards: findings, the line to use instead, and the name to give.

Pure functions over text, for `solo doctor --crontab`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from solo.commands.shell_line import Word

FAILS, NOTE = "fails", "note"
CHANGES = re.compile(r"""(?:\$\(|`)\s*(?:/bin/|/usr/bin/)?(?:date|mktemp|uuidgen)\b|\$\$|\$\{?RANDOM""")
EXPANSION = re.compile(r"\$\{[^}]*\}|\$\(.*?\)|`.*?`|\$\w+|\$\$")
SHELLS = frozenset("sh bash dash ksh zsh ash".split())
INTERPRETER = re.compile(r"(?:ba|da|k|z|a)?sh|(?:php|python|perl|ruby|node)(?:js)?[\d.]*")
BUILTINS = frozenset(". source : cd export set unset eval exec ulimit umask trap read [ test command".split())
DAEMONS = frozenset("start-stop-daemon daemonize daemon service systemctl initctl supervisorctl setsid".split())
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}")
SUFFIX = re.compile(r"[._-]?(?:lock|lck|pid|flock|lockfile|lockrun)$", re.IGNORECASE)
TOO_GENERAL = frozenset("lock lck pid cron run tmp sh bash lockfile".split())


class Finding(NamedTuple):
    """`state` is fails or note, `check` a word for programs, `text` the message."""

    state: str
    check: str
    text: str


class Guard(NamedTuple):
    """A tool that guards a command. The part of the line from `start` to `end` becomes solo and its `options`."""

    tool: str
    call: str | None  # flock or fcntl: the system call by which it locks the file
    lock: Word | None
    options: str
    start: int
    end: int
    command: str = ""  # before the rest of the line, if the tool itself calls a shell
    findings: tuple[Finding, ...] = ()


class Advice(NamedTuple):
    """The guard of a line, what was found, and the line to use instead, if there is one."""

    tool: str | None = None
    call: str | None = None
    lock: str | None = None
    findings: tuple[Finding, ...] = ()
    use: str | None = None
    can_skip: bool = True  # if solo guards the line
    names: tuple[str, ...] = ()  # that the line types for solo, if they are certain
    shared: frozenset[str] = frozenset()  # options by which lines of several users have one lock


class Setting(NamedTuple):
    """Settings of the lines around a line: the shell that runs it, how solo is called there, and names of locks."""

    shell: str = "sh"
    solo: str = "solo"
    has_solo: bool = True  # in the PATH of the line
    path: str = "solo"  # of solo
    find_fault: Callable[[str], str] = lambda path: ""  # of the path of a program
    find_name: Callable[[str, str, str], str] = lambda lock, job, program: make_name(lock, program)
    is_shared: Callable[[str], bool] = lambda lock: False  # with lines of other users


def make_name(path: str, program: str) -> str:
    """Return a name for the lock file: its last part without its suffix, else the program."""
    file = EXPANSION.sub("", path).strip("\"'").rpartition("/")[2]
    for part in (file.lstrip("."), program.lstrip(".")):
        name = SUFFIX.sub("", part.strip("-")).rstrip("-.")
        if NAME.fullmatch(name) and name.lower() not in TOO_GENERAL:
            return name
    return "job"


def normalize(path: str) -> str:
    """Return the path of a lock file without quotes, and without a link that every system has."""
    path = path.strip("\"'")
    for link, target in (("/var/run/", "/run/"), ("/var/lock/", "/run/lock/")):
        if path.startswith(link):
            return target + path[len(link) :]
    return path


def find_job(words: list[Word]) -> str:
    """Return the program of a command, or the script that an interpreter runs."""
    typed = [word.known for word in words]
    if len(typed) == 1 and " " in typed[0].strip():
        typed = typed[0].split()  # the string of sh -c
    programs = [word.rpartition("/")[2] for word in typed if word[:1] != "-"] or [typed[0]]
    is_script = INTERPRETER.fullmatch(programs[0]) and len(programs) > 1 and NAME.fullmatch(programs[1])
    return programs[1] if is_script else programs[0]
