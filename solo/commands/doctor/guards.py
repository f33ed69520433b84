"""The guard of a line, what is wrong with it, and the part of the line to replace by solo. Pure
functions of text.
"""

import re
from posixpath import normpath
from typing import Any, NamedTuple

from solo.argv import check_command, parse
from solo.command import make_name as make_words_name
from solo.commands.doctor.lock_tools import CHRONIC, MENTION, SAFE, Guard, find_guard, skip_wrappers
from solo.commands.doctor.shell_line import Command, Unclear, Word, split_line
from solo.errors import UsageError
from solo.text.hints import find_earlier_spellings
from solo.text.rows import BAD, NOTE, Finding

IN_TMP = "{}: any user can lock a file there first, and cleaners remove it"
RELATIVE = (
    "--dir {} is relative: contenders in another working directory have other names (use an "
    "absolute path)"
)
NEW_EACH_RUN = re.compile(
    r"(?:\$\(|`)\s*(?:\S*/)?(?:mktemp|uuidgen)\b|\$\$|\$\{?RANDOM|date \S*%[sN]"
)
CHANGES = re.compile(rf"(?:\$\(|`)\s*(?:\S*/)?date\b|{NEW_EACH_RUN.pattern}")
CLEANED = re.compile(r"[\"']?(?:/(?:var/)?tmp|/dev/shm)/")
NAMABLE = re.compile(r"(?:/[\w.+@,=-]+)+", re.ASCII)
HOME = re.compile(r"""(?:~|\$HOME|\$\{HOME\}|"\$HOME(?=/[^"]*"$))(/[^"]+)"?""")
SHELLS = frozenset("sh bash dash ksh zsh ash".split())
REPORTERS = (
    "echo printf logger mail mailx sendmail date true false : exit test [ touch sleep curl wget "
    "systemd-cat ts cat grep egrep fgrep sed awk head tail tr cut sort uniq rm wc"
).split()
SEARCHERS = "pgrep pidof killall kill ps".split()
SETS = re.compile(
    r"PATH=|(?:^|[;&|({'])\s*(?:\.|source|eval|export|read)\s"
)  # or may set PATH in the line
WRAPPER = re.compile(r"(?<![bc])lock|once|single", re.IGNORECASE)
# A lock made by hand, or a search for processes, before a job. Each pattern reads a character a
# fixed number of times.
SEGMENT = re.compile(r"[^;&|]*[;&|]?")  # of a line, with the sign at its end
LOCK_LIKE = re.compile(r"lock|lck|mutex|running|\.pid\b", re.IGNORECASE)
MANAGED = re.compile(
    r"\b(?:service|systemctl|initctl|supervisorctl|pkill|kill -(?!0)\S+)\s|/init\.d/"
)
TOOL = re.compile(
    r"(?:^|[(`!]|\bif\s)\s*(?:[^\s(`!]*/)?"
    r"(?:(?P<search>pgrep|pidof|killall\s+-0|kill\s+-0|ps)\b"
    r"|(?P<made>mkdir(?!\s+-\S*p)|lockfile|dotlockfile|shlock|ln)\s|(?P<tested>\[|test)\s)"
)
CHOOSES = re.compile(r"\|\||&&|\bthen\b|\bexit\b")
REMOVES = re.compile(r"\brm(?:dir)?\b")
IDIOMS = {
    "search": (
        "race",
        "{0} and the start are two steps: two runs can both start, and {0} can match other "
        "processes",
    ),
    "made": ("stale", "a lock made by {0} stays after a kill or a crash: then no run starts"),
    "tested": (
        "stale",
        "two runs can both test that file before one of them makes it, and it stays after a kill",
    ),
}


class Advice(NamedTuple):
    """The guard of a line, what was found, and the `edit`: (start, end, words after the name); None
    if `reason` says why not.
    """

    tool: "str | None" = None
    call: "str | None" = None
    lock: "str | None" = None
    findings: "tuple[Finding, ...]" = ()
    edit: "tuple[int, int, str] | None" = None
    name: str = ""  # for solo in the place of the guard
    reason: str = ""
    is_bare: bool = True  # the PATH of the line is still that of its file where the guard is
    solo: str = ""  # the word by which the line calls solo
    options: "dict[str, Any]" = {}
    runs: bool = False  # the line runs a command under solo
    words: "tuple[str, ...]" = ()  # of the command under solo

    @property
    def unnamed(self) -> "tuple[str, ...]":
        """The words that solo makes a name from, if it is the same in every directory."""
        is_relative = not re.match("/|[^/]+$", "".join(self.words[:1]))
        return () if is_relative or "name" in self.options else self.words

    @property
    def names(self) -> "tuple[str, ...]":
        """The names of the line, with solo or with what replaces its guard; none if they are not
        certain.
        """
        first, *rest = self.unnamed or [""]
        made = self.name or make_words_name(first, rest) * bool(first)
        return tuple(self.options.get("name") or [made] * bool(made))

    @property
    def lock_files(self) -> "list[tuple[str, str]]":
        """The (option, path) of each file that solo locks for other tools."""
        return [(key, path) for key in ("flock", "fcntl") for path in self.options.get(key, ())]

    def add(self, state: str, check: str, text: str) -> "Advice":
        return self._replace(findings=(*self.findings, Finding(state, check, text)))


def examine(line: str, shell: str, home: str = "") -> Advice:
    """Return the advice for a line of a shell. Never raises: an unclear line with the name of a
    tool gets a note.
    """
    error, commands = "", list[Command]()
    try:
        commands = split_line(line)
        advice = examine_commands(line, commands, shell, home)
        if advice.tool is not None:
            return advice
    except Unclear as reason:
        error = f" ({reason})" if str(reason) else ""
    if found := MENTION.search(line) or (error and re.search(r"\b(solo)\s", line)):
        text = f"no advice: solo does not understand this use of {found[1]}{error}"
        return Advice(found[1]).add(NOTE, "unclear", text)
    tools = find_tools(line)
    if commands and all(one.program in (*REPORTERS, *SEARCHERS, "") for one in commands):
        tools.pop("search", None)  # it starts nothing
    for kind, (check, text) in IDIOMS.items():
        if kind in tools:
            tool = " ".join(tools[kind].split())
            return Advice(tool).add(NOTE, check, text.format(tool))
    for words in [skip_wrappers(command.plain) for command in commands]:
        if len(words) > 1 and WRAPPER.search(words[0].program) and SAFE.fullmatch(words[0].program):
            tool = words[0].program
            return Advice(tool).add(
                NOTE, "wrapper", f"no advice: {tool} may be a lock wrapper that solo does not know"
            )
    return Advice()


def find_tools(line: str) -> "dict[str, str]":
    """Return {kind of idiom: its first tool in the line}."""
    at, tools = 0, dict[str, str]()
    choice = find_last(CHOOSES, line)
    removal = find_last(REMOVES, line)
    grep = line.rfind("grep")
    is_managed = MANAGED.search(line)
    for segment in SEGMENT.findall(line):
        lock, is_followed = find_last(LOCK_LIKE, segment), segment[-1:] in (";", "&", "|")
        for found in TOOL.finditer(segment):
            kind = str(found.lastgroup)
            tool, end = found[kind], found.end(kind)
            if kind == "search":
                is_idiom = (
                    not is_managed and at + end <= choice and (tool != "ps" or at + end <= grep)
                )
            else:
                is_idiom = is_followed and (end <= lock or kind == "made" and at + end <= removal)
            if is_idiom:
                tools.setdefault(kind, tool)
        at += len(segment)
    return tools


def find_last(pattern: "re.Pattern[str]", text: str) -> int:
    """Return where the last match begins, -1 if there is none."""
    return max((found.start() for found in pattern.finditer(text)), default=-1)


def examine_commands(line: str, commands: "list[Command]", shell: str, home: str) -> Advice:
    """Return the advice for the commands of a line. Raises Unclear."""
    if inner := find_inner(commands):
        text, at = inner.raw[1:-1], inner.start + 1
        advice = examine_commands(text, split_line(text), shell, home)
        return advice._replace(
            edit=advice.edit and (advice.edit[0] + at, advice.edit[1] + at, advice.edit[2])
        )
    guards = [
        (at, guard) for at, command in enumerate(commands) if (guard := find_guard(command, shell))
    ]
    if len(guards) > 1:
        raise Unclear("two guards in one line")
    if guards:
        at, guard = guards[0]
        advice = Advice(guard.tool, guard.call, is_bare=not SETS.search(line))
        return advise(check_tail(advice, commands, at), guard, home)
    for at, command in enumerate(commands):
        words = skip_wrappers(command.plain)
        if words and words[0].program == "solo":
            is_bare = not SETS.search(line) and words[0].start == command.words[0].start
            return examine_solo(
                Advice("solo", is_bare=is_bare, solo=words[0].known), commands, at, words
            )
    return Advice()


def find_inner(commands: "list[Command]") -> "Word | None":
    """Return the string of `sh -c 'STRING'`, if the line is only that and the string is in single
    quotes.
    """
    words = skip_wrappers(commands[0].plain) if len(commands) == 1 else []
    if len(words) != 3 or words[0].program not in SHELLS or words[1].raw != "-c":
        return None
    return words[2] if re.fullmatch("'[^']*'", words[2].raw) else None


def check_tail(advice: Advice, commands: "list[Command]", at: int) -> Advice:
    """Return the advice with a note about the commands after the guarded one."""
    after = [
        one
        for one in commands[at + 1 :]
        if one.sign in ("&&", ";", "|") and one.program not in REPORTERS
    ]
    if not after:
        return advice
    names = " and ".join(dict.fromkeys(one.program for one in after))
    return advice.add(
        NOTE, "partial", f"the guard ends before {after[0].sign}, and does not cover {names}"
    )


def advise(advice: Advice, guard: Guard, home: str) -> Advice:
    """Return the advice for a line that another tool guards."""
    path = resolve(guard.lock, home) if guard.lock else ""
    name, typed = guard.key or make_name(path), guard.lock.raw if guard.lock else ""
    advice = advice._replace(lock=path or guard.lock and guard.lock.known)
    if CLEANED.match(path or typed):
        advice = advice.add(BAD, "tmp", IN_TMP.format(typed))
    if NEW_EACH_RUN.search(typed):
        advice = advice.add(
            BAD, "changing", f"{typed} is a new lock file in each run, so no run excludes another"
        )
    if guard.is_lost:
        advice = advice.add(
            BAD, "overlap", f"if {guard.tool} is killed, the next run starts beside the command"
        )
    if not name:
        return advice._replace(
            reason=f"{typed} is no fixed path of plain characters, so it makes no name"
        )
    if guard.leaves:
        text = (
            f"a process that the command leaves keeps the lock of {guard.tool}, not that of "
            "solo (see --tree)"
        )
        return advice._replace(reason=text)
    edit = guard.start, guard.end, f"{guard.options} -- {guard.shell}".lstrip()
    return advice.add(NOTE, "callers", describe_change(guard))._replace(edit=edit, name=name)


def resolve(lock: Word, home: str) -> str:
    """Return the path of a lock file, "" if it depends on the environment or the working
    directory.
    """
    text = lock.text
    if text is None and home and (found := HOME.fullmatch(lock.raw)):
        text = home + found[1]
    return normalize(text) if text and NAMABLE.fullmatch(normpath(text)) else ""


def normalize(path: str) -> str:
    """Return the path without a link that every system has."""
    return re.sub("^/var/(?:run/|(?=lock/))", "/run/", normpath(path))


def make_name(path: str) -> str:
    """Return the path as a name, "" if it cannot be one. No path has a colon: two paths are two
    names.
    """
    is_plain = len(path) < 200 and path[1:2].isalnum() and NAMABLE.fullmatch(path)
    return path[1:].replace("/", ":") if is_plain else ""


def describe_change(guard: Guard) -> str:
    """Return what is the same, and what is different, once solo is in the place of the tool."""
    tool, same = guard.tool, ""
    if tool == CHRONIC:
        return (
            "solo prints the output of a failed run to stderr, both streams in their order after a "
            "line with the status, keeps it, also if solo is killed, and skips a run beside another"
        )
    others = [f"other callers of {tool} (change all at the same time)"]
    if found := re.search(r"-q(?: -E (\d+))?", guard.options):
        same = f"a skip prints nothing and has status {found[1] or 75}, as with {tool}; "
    if guard.lock:
        others = [f"programs that lock {guard.lock.known} (add --{guard.call} {guard.lock.raw})"]
    if guard.keeps:
        others.append("processes that the command leaves in the background (add --tree)")
    return f"{same}solo does not exclude {', nor '.join(others)}"


def examine_solo(advice: Advice, commands: "list[Command]", at: int, words: "list[Word]") -> Advice:
    """Return the advice for the words of a command that solo guards already."""
    try:
        typed = [word.known for word in words[1:]]
        options, subcommand, rest = parse(typed)
        if subcommand is None and not {"help", "version"} & options.keys():
            check_command(rest, typed)
    except UsageError as error:
        is_certain = all(word.text is not None for word in words[1:])
        return (
            advice.add(BAD, "usage", f"solo refuses this line: {error}") if is_certain else advice
        )
    if subcommand is not None or not rest:
        return advice._replace(runs=subcommand == "hold")
    advice, first = check_tail(advice, commands, at), len(words) - len(rest)
    for text in find_earlier_spellings([word.raw for word in words[:first]]):
        advice = advice.add(NOTE, "option", text)
    changing = [word.raw for word in words[first:] if CHANGES.search(word.raw)]
    if changing and "name" not in options:
        advice = advice.add(
            BAD, "changing", f"{changing[0]} gives each run a name of its own (add -n NAME)"
        )
    for _, path in Advice(options=options).lock_files:
        if CLEANED.match(path):
            advice = advice.add(BAD, "tmp", IN_TMP.format(path))
    if not all(word.text is not None for word in words[1:first]):
        return advice
    if not options.get("dir", "/").startswith("/"):
        advice = advice.add(NOTE, "dir", RELATIVE.format(options["dir"]))
    return advice._replace(options=options, runs=True, words=tuple(rest))
