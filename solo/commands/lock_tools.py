"""Tools that run a command under a lock, and the options by which solo does the same.

Pure functions over the words of a command, for `solo doctor --crontab`. tests/test_oracle.py runs the tools.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

from solo.argv import parse
from solo.commands.shell_line import Command, Unclear, Word
from solo.errors import UsageError

# Programs before another one, which they execute: the options that have a value, and how many words come before it.
WRAPPERS = dict.fromkeys(("env", "exec", "nohup", "setsid", "chronic"), ("", 0))
WRAPPERS.update(nice=("n", 0), ionice=("cn", 0), chrt=("TPD", 1), time=("of", 0), timeout=("ks", 1), stdbuf=("ioe", 0))
SAFE = re.compile(r"[\w.:+@,/=-]+", re.ASCII)  # words that are the same in a shell, a unit and a crontab
BACKGROUND = re.compile(r"[^&>|]&\s*(?:$|[^&>\s])")
STARTERS = frozenset("start-stop-daemon daemonize daemon".split())  # they return, and leave a process


class Tool(NamedTuple):
    """`valued` are the options with a value, `neutral` those that solo need not have.

    `rules` are the options of solo for each set of the other letters. A child `keeps` the lock of some tools.
    """

    call: str | None  # flock or fcntl: the system call by which it locks the file
    valued: str
    neutral: str
    rules: dict[str, str]
    keeps: bool = False
    lock: str = ""  # the option that has the file; else it is the first operand


FLOCK = {"n": "-q -E 1", "En": "-q -E {E}", "w": "-q -E 1 --wait {w}", "Ew": "-q -E {E} --wait {w}"}
LCKDO = {"": "", "q": "-q", "w": "--wait forever", "W": "--wait {W}", "Wq": "-q --wait {W}"}
EXIT_0 = "-q -E 0"
TOOLS = {
    "flock": Tool("flock", "wE", "xeoFfs", {**FLOCK, "": "--wait forever", "E": "--wait forever"}, keeps=True),
    "lckdo": Tool("fcntl", "W", "exs", LCKDO),
    "setlock": Tool("flock", "", "NX", {"": "--wait forever", "n": "-E 111", "nx": EXIT_0}, keeps=True),
    "s6-setlock": Tool("fcntl", "", "Nrw", {"": "--wait forever", "n": "-E 1"}),
    "chpst": Tool("flock", "lL", "", {"l": "--wait forever", "L": "-E 111"}, keeps=True, lock="lL"),
    "with-lock-ex": Tool("fcntl", "", "", {"w": "--wait forever", "f": "-E 255", "q": EXIT_0}),
    "runlock": Tool("fcntl", "ft", "", {"f": "-q -E 73 --wait 5", "ft": "-q -E 73 --wait {t}"}, lock="f"),
    "run-one": Tool(None, "", "", {"": "-q -E 1"}, keeps=True),
    # of Timothy Kay: binds a port of a loopback address that has the uid in it
    "solo": Tool(None, "p", "", {"p": "-E 98", "ps": EXIT_0}, keeps=True),
}
LONG = dict.fromkeys(("wait", "timeout"), "w") | dict.fromkeys(("nonblock", "nb"), "n")
LONG |= {"shared": "s", "exclusive": "x", "conflict-exit-code": "E", "close": "o", "no-fork": "F", "fcntl": "f"}
OTHERS = ("run-this-one", "run-one-constantly", "keep-one-running", "lockrun", "sem")
NAMES = "|".join(map(re.escape, sorted({*TOOLS, *OTHERS} - {"solo"})))
MENTION = re.compile(rf"(?:^|[\s/|&;(`'\"])({NAMES}|solo(?=\s+-(?:port|silent)\b))\s+\S")


class Guard(NamedTuple):
    """A tool that guards a command. The part of the line from `start` to `end` becomes solo and its `options`.

    `key` is the name of a lock that has no file.
    """

    tool: str
    call: str | None
    lock: Word | None
    options: str
    start: int
    end: int
    key: str = ""
    command: str = ""  # before the rest of the line, if the tool itself calls a shell
    keeps: bool = False  # processes that the command leaves keep the lock
    leaves: bool = False  # the command certainly leaves one
    is_lost: bool = False  # the lock ends with the tool, if the tool is killed


def find_guard(command: Command, shell: str) -> Guard | None:
    """Return the guard of the command, None if it has none. Raises Unclear."""
    words = skip_wrappers(command.plain)
    name = words[0].program if words and words[0].text else ""
    second = words[1].raw if len(words) > 1 else ""
    if name not in TOOLS or name == "solo" and not re.match("-(port=|silent$)", second):
        return None
    if name == "chpst" and not any(word.raw[:2] in ("-l", "-L") for word in words):
        return None
    given, at = take_options(words, TOOLS[name])
    guard = make_guard(words, at, given, TOOLS[name])
    if name == "flock" and words[at + 1].raw in ("-c", "--command"):
        if len(words) != at + 3 or not SAFE.fullmatch(shell) or "SHELL=" in str(command.words):
            raise Unclear("-c")
        guard = guard._replace(command=f"{shell} -c ", end=words[at + 2].start)
    elif name == "flock" and (words[at + 1].raw[:1] == "-" or words[at].raw.isdigit()):
        raise Unclear("a descriptor, or a word that it would execute")
    if any(guard.start < place < guard.end for place in command.redirections):
        raise Unclear("a redirection between its words")
    return guard


def make_guard(words: list[Word], at: int, given: dict[str, str], tool: Tool) -> Guard:
    """Return the guard by a tool with options, whose operands begin at word `at`. Raises Unclear."""
    name, key, lock = words[0].program, "", None
    letters = "".join(sorted(given.keys() - set(tool.neutral)))
    if letters not in tool.rules:
        raise Unclear(f"its options {letters}" if letters else "no option")
    typed = tool.rules[letters].format(**given) + " --shared" * bool({"r", "s"} & given.keys() & set(tool.neutral))
    typed = typed.replace("--wait 0", "--wait forever") if given.get("t") == "0" else typed
    if name == "run-one":
        key = find_key(words[1:])
    elif name == "solo":
        key = f"port-{given['p']}" * given["p"].isdigit()
    elif tool.lock:
        path = next(value for letter, value in given.items() if letter in tool.lock)
        lock = words[0]._replace(raw=path, text=path)
    else:
        lock, at = words[at] if words[at:] else None, at + 1
    if not words[at:]:
        raise Unclear("no command" if lock is None else "a descriptor, or no command")
    try:
        parse(typed.split())
    except UsageError:
        raise Unclear("a value") from None
    call = "fcntl" if name == "flock" and "f" in given else tool.call
    keeps = tool.keeps and "o" not in given
    is_lost = name == "flock" and "o" in given or name == "lckdo" and "e" not in given
    leaves = keeps and leaves_process(words[at:])
    return Guard(name, call, lock, typed.strip(), words[0].start, words[at].start, key, "", keeps, leaves, is_lost)


def take_options(words: list[Word], tool: Tool) -> tuple[dict[str, str], int]:
    """Return ({letter: value}, the number of the first word after the options). Raises Unclear."""
    found: dict[str, str] = {}
    at = 1
    while at < len(words) and words[at].raw[:1] == "-":
        word = words[at].raw
        at += 1
        if not SAFE.fullmatch(word) or word == "-":
            raise Unclear("an option that the shell computes")
        if word == "--":
            break
        letters = word[1:]
        if words[0].program == "solo":
            letters = word.replace("-port=", "p").replace("-silent", "s")
        elif word[:2] == "--":
            name, _, value = word[2:].partition("=")
            letters = LONG.get(name, "") + value if words[0].program == "flock" else ""
        if not letters:
            raise Unclear(word)
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in found or letter not in tool.valued + tool.neutral + "".join(tool.rules):
                raise Unclear(word)
            found[letter] = ""
            if letter in tool.valued:
                if not letters and at < len(words):
                    letters, at = words[at].known, at + 1
                if not SAFE.fullmatch(letters):
                    raise Unclear("a word that the shell computes")
                found[letter], letters = letters, ""
    return found, at


def find_key(words: list[Word]) -> str:
    """Return a name for run-one, which locks a file of the user that is called by a hash of the words. Raises Unclear."""
    typed = [word.text or "" for word in words]
    if not typed or "" in typed or not re.fullmatch(r"[\w.+-]+", words[0].program, re.ASCII):
        raise Unclear("a word that the shell computes")
    return f"run-one:{words[0].program}:{sha256(' '.join(typed).encode(errors='surrogateescape')).hexdigest()[:8]}"


def leaves_process(words: list[Word]) -> bool:
    """Does the command certainly leave a process, which keeps an inherited lock?"""
    if any(word.program in STARTERS for word in words):
        return True
    return any(BACKGROUND.search(word.known) for word in words if " " in word.known)


def skip_wrappers(words: list[Word]) -> list[Word]:
    """Return the words from the first program on that is no wrapper."""
    while words and words[0].program in WRAPPERS:
        name, at = words[0].program, 1
        valued, more = WRAPPERS[name]
        while at < len(words) and words[at].raw[:1] == "-" and name != "env":
            raw = words[at].raw
            at += 1 + (raw[:2] != "--" and raw[-1:] in valued and len(raw) == 2)
        while name == "env" and at < len(words) and re.match(r"[A-Za-z_]\w*=", words[at].raw):
            at += 1
        words = words[at + more :]
    return words
