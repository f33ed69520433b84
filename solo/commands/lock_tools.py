"""Tools that run a command under a lock, and the options of solo that do the same.

Pure functions over the words of a command, for `solo doctor --crontab`. They run nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from solo.argv import is_number
from solo.commands.advice import FAILS, NAME, NOTE, Finding, Guard
from solo.commands.shell_line import Command, Unclear, Word, get_program

STARTERS = frozenset("start-stop-daemon daemonize".split())  # they return, and leave a process
# Programs before another one, which they execute: the options that have a value, and how many words come before it.
WRAPPERS = {
    "nice": ("n", 0),
    "ionice": ("cnpPu", 0),
    "chrt": ("TPD", 1),
    "env": ("uCS", 0),
    "exec": ("a", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "chronic": ("", 0),
    "time": ("of", 0),
    "timeout": ("ks", 1),
    "sudo": ("ugChpTrDR", 0),
    "stdbuf": ("ioe", 0),
}


def take_options(
    words: list[Word], valued: str, long: dict[str, str], at: int = 1
) -> tuple[list[tuple[str, str]], int]:
    """Return ([(letter, value)], the number of the first word after the options).

    `valued` are the letters with a value, `long` the letters of long options. Raises Unclear.
    """
    found: list[tuple[str, str]] = []
    while at < len(words) and words[at].raw[:1] in "-\"'$":
        word = words[at].text
        if word is None and "/" in words[at].raw and words[at].raw.lstrip("\"'")[:1] == "$":
            break  # $HOME/lock
        if word is None or word == "-":
            raise Unclear("an option that the shell computes")
        if word[:1] != "-":
            break
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word[:2] == "--":
            if name[2:] not in long:
                raise Unclear(word)
            letters = long[name[2:]]
        else:
            letters, equals, value = word[1:], "", ""
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued and not equals:
                value, letters = letters, ""
                if not value:
                    value, at = get_text(words, at), at + 1
            found.append((letter, value if letter in valued else ""))
    return found, at


def get_text(words: list[Word], at: int) -> str:
    """Return the value of a word. Raises Unclear."""
    text = words[at].text if at < len(words) else None
    if text is None:
        raise Unclear("a word that the shell computes")
    return text


def take_seconds(value: str, option: str) -> str:
    """Return the option with a number of seconds, "" for none. Raises Unclear."""
    if not is_number(value):
        raise Unclear(value)
    return f"{option} {value}" if float(value) else ""


FLOCK_LONG = {
    "nonblock": "n",
    "nb": "n",
    "wait": "w",
    "timeout": "w",
    "shared": "s",
    "exclusive": "x",
    "conflict-exit-code": "E",
    "close": "o",
    "no-fork": "F",
    "verbose": "v",
    "command": "c",
    "fcntl": "f",
}


def find_flock(words: list[Word], shell: str) -> Guard:
    options, at = take_options(words, "wE", FLOCK_LONG)
    given = dict(options)
    lock, at = take_lock(words, at)
    command = ""
    if words[at].text in ("-c", "--command"):
        if at + 2 != len(words):
            raise Unclear("flock -c")
        command, at = f"{shell} -c ", at + 1
    elif words[at].raw[:1] == "-":
        raise Unclear("a word that flock would execute")
    if lock.raw.isdigit() or given.keys() - set("nwsxeEoFvf"):
        raise Unclear("flock of a descriptor")
    busy = "" if "n" in given else take_seconds(given["w"], "--wait") if "w" in given else "--wait forever"
    if "E" in given and not given["E"].isdigit():
        raise Unclear(given["E"])
    status = (f"-q -E {given['E']}" if given["E"] == "0" else f"-E {given['E']}") if "E" in given else ""
    findings: list[Finding] = []
    if "o" in given:
        findings.append(
            Finding(FAILS, "overlap", "with flock -o the next run starts beside the command, if flock is killed")
        )
    elif has_daemon(words[at:]):
        findings.append(find_daemon(words[at:], lock))
    tree = "--tree" if "o" not in given and has_daemon(words[at:]) else ""
    shared, verbose = "--shared" if "s" in given else "", "-v" if "v" in given else ""
    return make_guard(
        "flock",
        "fcntl" if "f" in given else "flock",
        lock,
        words,
        at,
        (status, shared, busy, tree, verbose),
        command,
        findings,
    )


def find_descriptor(words: list[Word], number: str) -> list[str]:
    """Return the options of solo for `flock ... NUMBER`. Raises Unclear."""
    options, at = take_options(words, "wE", FLOCK_LONG)
    given = dict(options)
    if [word.raw for word in words[at:]] != [number] or given.keys() - set("nwsxev"):
        raise Unclear("flock of a descriptor")
    busy = "" if "n" in given else take_seconds(given["w"], "--wait") if "w" in given else "--wait forever"
    return ["--shared" if "s" in given else "", busy]


def make_guard(
    tool: str,
    call: str | None,
    lock: Word | None,
    words: list[Word],
    at: int,
    options: tuple[str, ...],
    command: str = "",
    findings: list[Finding] | None = None,
) -> Guard:
    """Return the guard of the command that starts at word `at`. Raises Unclear if there is none."""
    if at >= len(words):
        raise Unclear(f"{tool} without a command")
    typed = " ".join(filter(None, options))
    return Guard(tool, call, lock, typed, words[0].start, words[at].start, command, tuple(findings or ()))


def take_lock(words: list[Word], at: int) -> tuple[Word, int]:
    """Return (the lock file, the number of the word after it). Raises Unclear if no command follows."""
    if at + 1 >= len(words):
        raise Unclear("no command")
    return words[at], at + 1


def has_daemon(words: list[Word]) -> bool:
    """Does the command start a process in the background, which keeps an inherited descriptor?"""
    if any(get_program(word) in STARTERS for word in words):
        return True
    return any(re.search(r"[^&>|]&\s*(?:$|[^&>\s])", word.known) for word in words if " " in word.known)


def find_daemon(words: list[Word], lock: Word) -> Finding:
    """Return what happens to the lock: a process in the background inherits it, a starter of daemons closes it."""
    starter = next((program for program in map(get_program, words) if program in STARTERS), None)
    if starter:
        return Finding(FAILS, "daemon", f"{starter} closes {lock.known}: the guard ends while the daemon runs")
    text = f"a process that the command leaves in the background keeps {lock.known} locked until it ends"
    return Finding(NOTE, "daemon", text)


def find_lckdo(words: list[Word], shell: str) -> Guard:
    options, at = take_options(words, "WE", {})
    given = dict(options)
    if given.keys() - set("wWeEnqsx"):
        raise Unclear("lckdo")
    lock, at = take_lock(words, at)
    busy = take_seconds(given["W"], "--wait") if "W" in given else "--wait forever" if "w" in given else ""
    findings = []
    if not given.keys() & {"e", "E"}:
        findings.append(Finding(FAILS, "overlap", "if lckdo is killed, the next run starts beside the command"))
    shared = "--shared" if "s" in given else ""
    return make_guard(
        "lckdo", "fcntl", lock, words, at, ("-q" if "q" in given else "", shared, busy), findings=findings
    )


def find_setlock(words: list[Word], shell: str) -> Guard:
    tool = get_program(words[0])
    options, at = take_options(words, "t" if tool == "s6-setlock" else "", {})
    given = dict(options)
    if given.keys() - set("nNxXrwt" if tool == "s6-setlock" else "nNxX"):
        raise Unclear(tool)
    lock, at = take_lock(words, at)
    if "t" in given and not given["t"].isdigit():
        raise Unclear(given["t"])
    busy = f"--wait {given['t']}ms" if "t" in given else "" if "n" in given else "--wait forever"
    quiet, shared = "-q -E 0" if "x" in given else "", "--shared" if "r" in given else ""
    call = "flock" if tool == "setlock" else "fcntl"
    findings = [find_daemon(words[at:], lock)] if tool == "setlock" and has_daemon(words[at:]) else []
    return make_guard(
        tool, call, lock, words, at, (quiet, shared, busy, "--tree" if findings else ""), findings=findings
    )


def find_chpst(words: list[Word], shell: str) -> Guard | None:
    options, at = take_options(words, "uUbe/nlLmdofcrt", {})
    given = dict(options)
    if not given.keys() & {"l", "L"}:
        return None
    if len(given) > 1:
        raise Unclear("chpst with other options")
    path = given.get("l") or given["L"]
    lock = next((word for word in words[1:at] if word.known.endswith(path)), words[1])
    lock = lock._replace(raw=shlex.quote(path), text=path)
    return make_guard("chpst", "flock", lock, words, at, ("--wait forever" if "l" in given else "",))


def find_with_lock_ex(words: list[Word], shell: str) -> Guard:
    options, at = take_options(words, "", {})
    given = dict(options)
    if len(given) != 1 or given.keys() - set("wfqt"):
        raise Unclear("with-lock-ex")
    if "t" in given:
        raise Unclear("with-lock-ex -t")
    lock, at = take_lock(words, at)
    busy = "--wait forever" if "w" in given else "-q -E 0" if "q" in given else ""
    return make_guard("with-lock-ex", "fcntl", lock, words, at, (busy,))


def find_run_one(words: list[Word], shell: str) -> Guard:
    tool = get_program(words[0])
    return make_guard(tool, None, None, words, 1, ("-q" if tool == "run-one" else "--replace",))


SIGNS = re.compile(r"[^\w./:=@%+,-]")


def find_sem(words: list[Word], shell: str) -> Guard:
    options, at = take_options(words, "ij", {"id": "i", "fg": "f", "jobs": "j"})
    given = dict(options)
    if given.keys() - set("ijf") or "i" not in given or not NAME.fullmatch(given["i"]):
        raise Unclear("sem")
    count = given.get("j", "1")
    if not count.isdigit() or count == "0":
        raise Unclear(count)
    slots = "" if count == "1" else f"--slots {count}"
    is_string = len(words) == at + 1 and " " in words[at].known  # sem passes its words to a shell
    if not is_string and any(SIGNS.search(word.known) for word in words[at:]):
        raise Unclear("a word with signs of a shell")
    options_of_solo = f"-n {given['i']}", slots, "--wait forever"
    return make_guard("sem", None, None, words, at, options_of_solo, f"{shell} -c " if is_string else "")


def find_lockrun(words: list[Word], shell: str) -> Guard:
    long = {"lockfile": "l", "wait": "w", "verbose": "v", "quiet": "q", "maxtime": "m", "idempotent": "i"}
    options, at = take_options(words, "lm", long)
    given = dict(options)
    if given.keys() - set("lwvqmi") or "l" not in given:
        raise Unclear("lockrun")
    word = next(word for word in words if given["l"] in word.known)
    lock = word._replace(raw=shlex.quote(given["l"]), text=given["l"])
    busy = "--wait forever" if "w" in given else ""
    quiet = "-q -E 0" if "i" in given else "-q" if "q" in given else ""
    return make_guard("lockrun", "flock", lock, words, at, (quiet, busy))


TOOLS: dict[str, Callable[[list[Word], str], Guard | None]] = {
    "flock": find_flock,
    "lckdo": find_lckdo,
    "setlock": find_setlock,
    "s6-setlock": find_setlock,
    "chpst": find_chpst,
    "with-lock-ex": find_with_lock_ex,
    "run-one": find_run_one,
    "run-this-one": find_run_one,
    "sem": find_sem,
    "lockrun": find_lockrun,
}
UNKNOWN_TOOLS = ("cronlock", "run-one-constantly", "keep-one-running", "runlock", "lockf", "dotlockfile", "lockfile")
MENTION = re.compile(r"(?:^|[\s/|&;(`'\"])(" + "|".join(map(re.escape, (*TOOLS, *UNKNOWN_TOOLS))) + r")\s+\S")


def find_guard(command: Command, shell: str) -> Guard | None:
    """Return the guard of the command, None if it has none. Raises Unclear."""
    words = skip_wrappers(command.plain)
    if not words or get_program(words[0]) not in TOOLS:
        return None
    guard = TOOLS[get_program(words[0])](words, shell)
    if guard is not None and any(guard.start < one.start < guard.end for one in command.redirections):
        raise Unclear("a redirection between the words of a tool")
    return guard


def skip_wrappers(words: list[Word]) -> list[Word]:
    """Return the words from the first program on that is no wrapper. Raises Unclear."""
    while words and get_program(words[0]) in WRAPPERS:
        tool = get_program(words[0])
        valued, more = WRAPPERS[tool]
        at = 1
        while at < len(words) and words[at].raw[:1] == "-":
            raw = words[at].raw
            at += 1 + (raw[:2] != "--" and raw[-1:] in valued and len(raw) == 2)
        while tool in ("env", "sudo") and at < len(words) and re.match(r"[A-Za-z_]\w*=", words[at].raw):
            at += 1
        words = words[at + more :]
    return words
