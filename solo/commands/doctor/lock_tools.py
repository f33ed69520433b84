"""Tools that run a command under a lock, and the same options of solo. tests/doctor/test_oracle.py
runs them.
"""

import re
from getopt import GetoptError, getopt
from typing import NamedTuple

from solo.argv import parse
from solo.command import make_name
from solo.commands.doctor.shell_line import ASSIGNMENT, Command, Unclear, Word
from solo.errors import UsageError

SAFE = re.compile(
    r"[\w.:+@,/=-]+", re.ASCII
)  # words that are the same in a shell, a unit and a crontab
BACKGROUND = re.compile(r"(?=.* ).*[^&>|]&\s*(?:$|[^&>\s])")  # in a string for a shell
STARTERS = frozenset(
    "start-stop-daemon daemonize daemon".split()
)  # they return, and leave a process
CHRONIC = "chronic"  # of moreutils: prints the output of its command only if that failed
# Programs that execute another one: their options as for getopt(3), and how many words come before
# the command.
WRAPPERS = {
    **dict.fromkeys(("env", "exec", "nohup", "setsid", CHRONIC), ("", 0)),
    "nice": ("0123456789n: adjustment=", 0),
    "ionice": ("c:n:t class= classdata= ignore", 0),
    "time": ("apvqo:f:", 0),
    "timeout": ("k:s:v kill-after= signal= foreground preserve-status verbose", 1),
}


class Tool(NamedTuple):
    """`options` are as for getopt(3), `rules` solo's for each set of them. A child `keeps` the lock
    of some tools.
    """

    call: "str | None"  # flock or fcntl: the system call by which it locks the file
    options: str
    rules: "dict[str, str]"
    keeps: bool = False
    lock: str = ""  # the options that have the file; else it is the first operand


LONG = {
    "wait": "w",
    "timeout": "w",
    "conflict-exit-code": "E",
    "nonblock": "n",
    "nb": "n",
    "shared": "s",
    "exclusive": "x",
    "close": "o",
    "no-fork": "F",
    "fcntl": "f",
    "port": "p",
    "silent": "s",
}
LONG_FLOCK = " wait= timeout= conflict-exit-code= nonblock nb shared exclusive close no-fork fcntl"
FOREVER, EXIT_0 = "--wait forever", "-q -E 0"
# fmt: off
FLOCK = {"": FOREVER, "E": FOREVER, "n": "-q -E 1", "En": "-q -E {E}", "w": "-q -E 1 --wait {w}", "Ew": "-q -E {E} --wait {w}"}
TOOLS = {
    "flock": Tool("flock", f"nw:E:xeoFfs{LONG_FLOCK}", FLOCK, keeps=True),
    "lckdo": Tool("fcntl", "qwW:exs", {"": "", "q": "-q", "w": FOREVER, "W": "--wait {W}", "Wq": "-q --wait {W}"}),
    "setlock": Tool("flock", "nNxX", {"": FOREVER, "n": "-E 111", "nx": EXIT_0}, keeps=True),
    "s6-setlock": Tool("fcntl", "nNrw", {"": FOREVER, "n": "-E 1"}),
    "chpst": Tool("flock", "l:L:", {"l": FOREVER, "L": "-E 111"}, keeps=True, lock="lL"),
    "with-lock-ex": Tool("fcntl", "wfq", {"w": FOREVER, "f": "-E 255", "q": EXIT_0}),
    "runlock": Tool("fcntl", "f:t:", {"f": "-q -E 73 --wait 5", "ft": "-q -E 73 --wait {t}"}, lock="f"),
    "run-one": Tool(None, "", {"": "-q -E 1"}, keeps=True),
    # of Timothy Kay: binds a port of a loopback address that has the uid in it
    "solo": Tool(None, " port= silent", {"p": "-E 98", "ps": EXIT_0}, keeps=True),
}
# fmt: on
OTHERS = ("run-this-one", "run-one-constantly", "keep-one-running", "lockrun", "sem")
NAMES = "|".join(map(re.escape, sorted({*TOOLS, *OTHERS} - {"solo"})))
MENTION = re.compile(rf"(?:^|[\s/|&;(`'\"])({NAMES}|solo(?=\s+-(?:port|silent)\b))\s+\S")


class Guard(NamedTuple):
    """A tool that guards a command: from `start` to `end` it becomes solo. `key` names a lock that
    has no file.
    """

    tool: str
    call: "str | None"
    lock: "Word | None"
    options: str
    start: int
    end: int
    key: str = ""
    shell: str = ""  # before the rest of the line, if the tool itself calls a shell
    keeps: bool = False  # processes that the command leaves keep the lock
    leaves: bool = False  # the command certainly leaves one
    is_lost: bool = False  # the lock ends with the tool, if the tool is killed


def find_guard(command: Command, shell: str) -> "Guard | None":
    """Return the guard of the command, None if it has none. Raises Unclear."""
    words = skip_wrappers(command.plain)
    name = words[0].program if words and words[0].text else ""
    is_ours = name == "solo" and not re.match(
        r"-port=\d+$|-silent$", "".join(word.raw for word in words[1:2])
    )
    if (
        name not in TOOLS
        or is_ours
        or name == "chpst"
        and not any(word.raw[:2] in ("-l", "-L") for word in words)
    ):
        return None if is_ours else find_chronic(command.plain)
    found, at = take_options(words, TOOLS[name].options)
    guard = make_guard(
        words, at, {LONG.get(key, key): value for key, value in found.items()}, TOOLS[name]
    )
    if name == "flock" and words[at + 1].raw in ("-c", "--command"):
        if len(words) != at + 3 or not SAFE.fullmatch(shell) or "SHELL=" in str(command.words):
            raise Unclear("-c")
        guard = guard._replace(shell=f"{shell} -c ", end=words[at + 2].start)
    elif name == "flock" and (words[at + 1].raw[:1] == "-" or words[at].raw.isdigit()):
        raise Unclear("a descriptor, or a word that it would execute")
    if any(guard.start < place < guard.end for place in command.redirections):
        raise Unclear("a redirection between its words")
    return guard


def find_chronic(words: "list[Word]") -> "Guard | None":
    """Return chronic(1) as a guard without a lock, if the command begins with it and is a fixed
    text. With -e or -v it does what solo does not.
    """
    if len(words) < 2 or words[0].program != CHRONIC or not SAFE.fullmatch(words[1].known):
        return None
    if words[1].known[:1] == "-" or any(word.text is None for word in words):
        return None
    first, *rest = [word.known for word in words[1:]]
    return Guard(
        CHRONIC, None, None, "--capture failed", words[0].start, words[1].start,
        make_name(first, rest),
    )  # fmt: skip


def make_guard(words: "list[Word]", at: int, given: "dict[str, str]", tool: Tool) -> Guard:
    """Return the guard by a tool with options, whose operands begin at word `at`. Raises
    Unclear.
    """
    name = words[0].program
    key = ""
    lock = None
    letters = "".join(sorted(given.keys() & set("".join(tool.rules))))
    if letters not in tool.rules:
        raise Unclear(f"its options {letters}" if letters else "no option")
    typed = tool.rules[letters].format(**given) + " --shared" * bool(
        {"r", "s"} & given.keys() - set(letters)
    )
    typed = typed.replace("--wait 0", FOREVER) if given.get("t") == "0" else typed
    if name == "run-one":  # it locks a file of the user that is called by a hash of the words
        texts = [word.text or "" for word in words[1:]]
        if not all(texts) or not SAFE.fullmatch("".join(texts[:1])):
            raise Unclear("a word that the shell computes")
        key = f"run-one:{make_name(texts[0], texts[1:])}"
    elif name == "solo":
        key = f"port-{given['p']}"
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
    leaves = keeps and any(
        word.program in STARTERS or BACKGROUND.search(word.known) for word in words[at:]
    )
    return Guard(
        name,
        call,
        lock,
        typed.strip(),
        words[0].start,
        words[at].start,
        key,
        "",
        keeps,
        leaves,
        is_lost,
    )


def take_options(words: "list[Word]", options: str) -> "tuple[dict[str, str], int]":
    """Return ({option without its hyphens: value}, the number of the first word after them). Raises
    Unclear.
    """
    short, *long = options.split(" ")
    try:
        found, rest = getopt(
            [re.sub("^-(?=port=|silent$)", "--", word.known) for word in words[1:]], short, long
        )
    except GetoptError as error:
        raise Unclear(error.msg) from None
    at = len(words) - len(rest)
    if not all(SAFE.fullmatch(word.known) for word in words[1:at]):
        raise Unclear("a word that the shell computes")
    return {name.lstrip("-"): value for name, value in found}, at


def skip_wrappers(words: "list[Word]") -> "list[Word]":
    """Return the words from the first program on that is no wrapper; those of a wrapper used in an
    unknown way.
    """
    while words and words[0].program in WRAPPERS:
        options, more = WRAPPERS[words[0].program]
        try:
            at = take_options(words, options)[1] + more
        except Unclear:
            break
        while words[0].program == "env" and at < len(words) and ASSIGNMENT.match(words[at].raw):
            at += 1
        words = words[at:]
    return words
