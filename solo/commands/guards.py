"""Guards of a line against a second run: the tools, mistakes in their use, and the same line with solo.

Pure functions over the text of one line, for `solo doctor --crontab`. They run nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from solo.argv import is_number, parse
from solo.commands.shell_line import Command, Step, Unclear, Word, get_program, split_line
from solo.errors import UsageError

FAILS, NOTE = "fails", "note"
CLEANED = re.compile(r"""["']?(?:/(?:var/)?tmp/|/dev/shm/|\$\{?TMPDIR)""")
CHANGES = re.compile(r"""(?:\$\(|`)\s*(?:/bin/|/usr/bin/)?(?:date|mktemp|uuidgen)\b|\$\$|\$\{?RANDOM""")
LOCK_LIKE = re.compile(r"lock|lck|mutex|running|\.pid\b", re.IGNORECASE)
SHELLS = frozenset("sh bash dash ksh zsh ash".split())
BUILTINS = frozenset(". source : cd export set unset eval exec ulimit umask trap read [ test command".split())
# Commands after the guarded one that need no guard: they report.
REPORTERS = frozenset("echo printf logger mail mailx sendmail date true false : exit test [ touch sleep".split())
PINGS = frozenset(["curl", "wget"])
FILTERS = frozenset("logger systemd-cat ts cat grep egrep fgrep sed awk head tail tr cut sort uniq mail mailx".split())
DAEMONS = frozenset("start-stop-daemon daemonize daemon service systemctl initctl supervisorctl nohup setsid".split())
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
SAME_FOR_ALL = frozenset(["nice", "ionice", "chrt", "exec", "chronic"])  # may also precede the commands that follow
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}")
SUFFIX = re.compile(r"[._-]?(?:lock|lck|pid|flock|lockfile)$", re.IGNORECASE)
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


class Setting(NamedTuple):
    """Settings of the lines around a line: the shell that runs it, how solo is called there, and names of locks."""

    shell: str = "sh"
    solo: str = "solo"
    has_solo: bool = True  # in the PATH of the line
    find_name: Callable[[Word, str], str] = lambda lock, program: make_name(lock.raw, program)
    is_shared: Callable[[str], bool] = lambda lock: False  # with lines of other users


def make_name(path: str, program: str) -> str:
    """Return a name for the lock file: its last part without its suffix, else the program."""
    for part in (path.strip("\"'").rpartition("/")[2].lstrip("."), program.lstrip(".")):
        name = SUFFIX.sub("", part)
        if NAME.fullmatch(name) and name.lower() not in TOO_GENERAL:
            return name
    return "job"


# --- tools -----------------------------------------------------------------------------------------------------------


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
    """Return the option with a number of seconds. Raises Unclear."""
    if not is_number(value):
        raise Unclear(value)
    return f"{option} {value}"


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
        findings.append(Finding(FAILS, "daemon", describe_daemon(lock)))
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


def describe_daemon(lock: Word) -> str:
    return f"a process that the command leaves in the background keeps {lock.known} locked until it ends"


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
    findings = [Finding(FAILS, "daemon", describe_daemon(lock))] if tool == "setlock" and has_daemon(words[at:]) else []
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


def find_sem(words: list[Word], shell: str) -> Guard:
    options, at = take_options(words, "ij", {"id": "i", "fg": "f", "jobs": "j"})
    given = dict(options)
    if given.keys() - set("ijf") or "i" not in given or not NAME.fullmatch(given["i"]):
        raise Unclear("sem")
    count = given.get("j", "1")
    if not count.isdigit() or count == "0":
        raise Unclear(count)
    slots = "" if count == "1" else f"--slots {count}"
    return make_guard("sem", None, None, words, at, (f"-n {given['i']}", slots, "--wait forever"))


def find_lockrun(words: list[Word], shell: str) -> Guard:
    long = {"lockfile": "l", "wait": "w", "verbose": "v", "quiet": "q", "maxtime": "m"}
    options, at = take_options(words, "lm", long)
    given = dict(options)
    if given.keys() - set("lwvqm") or "l" not in given:
        raise Unclear("lockrun")
    word = next(word for word in words if given["l"] in word.known)
    lock = word._replace(raw=shlex.quote(given["l"]), text=given["l"])
    busy = "--wait forever" if "w" in given else ""
    return make_guard("lockrun", "flock", lock, words, at, ("-q" if "q" in given else "", busy))


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
UNKNOWN_TOOLS = ("run-one-constantly", "keep-one-running", "runlock", "lockf", "dotlockfile", "lockfile")
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


# --- a line ----------------------------------------------------------------------------------------------------------


def examine(line: str, setting: Setting) -> Advice:
    """Return the advice for a line of a shell. Never raises: an unclear line with the name of a tool gets a note."""
    reason = ""
    try:
        advice = examine_steps(line, setting)
        if advice.tool is not None:
            return advice
    except Unclear as error:
        reason = f" ({error})" if str(error) else ""
    found = MENTION.search(line)
    if found is None:
        return Advice()
    text = f"no advice: solo does not understand this use of {found[1]}{reason}"
    return Advice(found[1], findings=(Finding(NOTE, "unclear", text),))


def examine_steps(line: str, setting: Setting) -> Advice:
    """Return the advice for a line of a shell. Raises Unclear."""
    steps, _ = split_line(line)
    inner = find_inner(steps)
    if inner is not None:
        return examine_inner(line, inner, setting)
    guards = [
        (number, at, guard)
        for number, step in enumerate(steps)
        for at, command in enumerate(step.commands)
        if (guard := find_guard(command, setting.shell)) is not None
    ]
    if len(guards) > 1:
        raise Unclear("it is there more than once")
    if guards:
        return advise(line, steps, *guards[0], setting)
    for number, step in enumerate(steps):
        for at, command in enumerate(step.commands):
            if (words := skip_wrappers(command.plain)) and get_program(words[0]) == "solo":
                return examine_solo(line, steps, number, at, words, setting)
    return find_idiom(line, steps, setting) or Advice()


def find_inner(steps: list[Step]) -> Word | None:
    """Return the string of `sh -c 'STRING'`, if the line is only that and the string is in single quotes."""
    if len(steps) != 1 or len(steps[0].commands) != 1:
        return None
    words = skip_wrappers(steps[0].commands[0].plain)
    if len(words) != 3 or get_program(words[0]) not in SHELLS or not re.fullmatch("-[a-z]*c", words[1].raw):
        return None
    raw = words[2].raw
    return words[2] if raw[:1] == raw[-1:] == "'" and "'" not in raw[1:-1] else None


def examine_inner(line: str, inner: Word, setting: Setting) -> Advice:
    """Return the advice for the string, with the whole line in its suggestion."""
    advice = examine_steps(inner.raw[1:-1], setting)
    if advice.use is None:
        return advice
    return advice._replace(use=line[: inner.start] + shlex.quote(advice.use) + line[inner.end :])


def advise(line: str, steps: list[Step], number: int, at: int, guard: Guard, setting: Setting) -> Advice:
    """Return the advice for a line that another tool guards."""
    command = steps[number].commands[at]
    kept, findings = list(steps), list(guard.findings)
    lock = guard.lock
    words = line[guard.end : command.end]
    guarded = skip_wrappers([word for word in command.words if word.start >= guard.end])
    if not guarded and not guard.command:
        raise Unclear("no command")
    program = get_program((guarded or command.plain)[0])
    if lock is not None:
        findings += check_lock(lock)
        kept = drop_removals(kept, number, lock, findings)
    covered, tail_findings = find_tail(kept, number, at)
    findings += tail_findings
    findings += check_truncation(command)
    names = "" if re.match(r"-n ", guard.options) else make_names(guard, words, program, setting)
    files = ""
    if lock is not None and guard.call and setting.is_shared(lock.raw):
        files = f"--{guard.call} {lock.raw}"
        findings.append(
            Finding(
                NOTE, "users", f"lines of several users lock {lock.known}: names are separate, so keep --{guard.call}"
            )
        )
    elif lock is not None and guard.call:
        text = f"while other callers lock {lock.known} by {guard.tool}, add --{guard.call} {lock.raw}"
        findings.append(Finding(NOTE, "callers", text))
    elif guard.lock is None:
        findings.append(Finding(NOTE, "callers", f"change all callers of {guard.tool} for this job at the same time"))
    options = " ".join(filter(None, (names, files, guard.options)))
    use = rewrite(line, kept, number, at, guard, f"{setting.solo} {options} -- ".replace("  ", " "), covered, setting)
    path = lock.known if lock else None
    return Advice(guard.tool, guard.call, path, tuple(findings), use)


def make_names(guard: Guard, words: str, program: str, setting: Setting) -> str:
    """Return -n NAME; "" if the name can come from the command."""
    if guard.lock is not None:
        return f"-n {setting.find_name(guard.lock, program)}"
    return f"-n {make_name('', program)}" if "$" in words or "`" in words else ""


def check_lock(lock: Word) -> list[Finding]:
    """Return what is wrong with the place or the name of a lock file."""
    findings = []
    if CLEANED.match(lock.raw):
        text = f"{lock.known}: any user can lock a file there first, and cleaners remove it (solo needs no lock file)"
        findings.append(Finding(FAILS, "tmp", text))
    if CHANGES.search(lock.raw):
        findings.append(
            Finding(FAILS, "changing", f"{lock.raw} is a new lock file in each run, so no run excludes another")
        )
    return findings


def drop_removals(steps: list[Step], number: int, lock: Word, findings: list[Finding]) -> list[Step]:
    """Return the steps without one at the end that removes the lock file, with a finding."""
    last = steps[-1]
    if number < len(steps) - 1 and is_removal(last, lock.raw):
        text = f"removing {lock.known} lets two runs lock two files of that name"
        findings.append(Finding(FAILS, "removed", text))
        return steps[:-1]
    return steps


def is_removal(step: Step, path: str) -> bool:
    """Does the step only remove the file or the directory?"""
    if len(step.commands) != 1 or step.commands[0].program not in ("rm", "rmdir", "unlink"):
        return False
    return [word.raw for word in step.commands[0].plain[1:] if word.raw[:1] != "-"] == [path]


def find_tail(steps: list[Step], number: int, at: int) -> tuple[int, list[Finding]]:
    """Return (how many steps the guard should cover, what it does not cover today); -1 if it cannot be extended."""
    step, findings = steps[number], []
    rest = [command for command in step.commands[at + 1 :] if not is_filter(command)]
    if rest:
        findings.append(Finding(FAILS, "partial", describe_partial(step.commands[at], rest, "|")))
    after = steps[number + 1 :]
    while after and after[-1].join == "||":
        after.pop()  # what runs if the guarded steps fail
    open_ones = [one for one in after if not is_report(one)]
    loud = [one for one in open_ones if not is_ping(one)]
    commands = [command for one in loud for command in one.commands[:1]]
    if commands:
        findings.append(Finding(FAILS, "partial", describe_partial(step.commands[at], commands, loud[0].join)))
    elif open_ones:
        name = open_ones[0].commands[0].program
        findings.append(Finding(NOTE, "partial", f"{name} after {open_ones[0].join} is not guarded"))
    if not rest and not commands:
        return 0, findings
    if any(one.join == "||" for one in after):
        return -1, findings
    last = max([index for index, one in enumerate(after) if one in loud], default=-1)
    return last + 2, findings


def describe_partial(guarded: Command, others: list[Command], sign: str) -> str:
    names = " and ".join(dict.fromkeys(command.program or command.words[0].raw for command in others))
    return f"the guard ends before {sign}: {names} {'run' if ' and ' in names else 'runs'} unguarded"


def is_filter(command: Command) -> bool:
    """Does the command only pass on, or report, what it reads?"""
    writes = any(one.sign in (">", ">|", "&>") and not is_device(one.target) for one in command.redirections)
    return command.program in FILTERS and not writes


def is_device(word: Word) -> bool:
    return word.known.startswith("/dev/") or word.known.isdigit() or word.known == "-"


def is_report(step: Step) -> bool:
    return all(command.program in REPORTERS or is_filter(command) for command in step.commands)


def is_ping(step: Step) -> bool:
    return step.join == "&&" and all(command.program in PINGS for command in step.commands[:1])


def check_truncation(command: Command) -> list[Finding]:
    """Return a note if the shell empties a file although the run is skipped."""
    for one in command.redirections:
        if one.sign in (">", "&>", ">|") and not is_device(one.target):
            text = f"a skipped run empties {one.target.known}, while another run writes it (use >>)"
            return [Finding(NOTE, "truncates", text)]
    return []


def rewrite(
    line: str, steps: list[Step], number: int, at: int, guard: Guard, solo: str, covered: int, setting: Setting
) -> str | None:
    """Return the line with solo in the place of the tool, and if `covered`, with more of it guarded. None if unsure."""
    end = steps[-1].end if steps else 0
    tail = line[end:] if steps[-1].end == split_line(line)[0][-1].end else ""
    command = steps[number].commands[at]
    if not covered:
        return line[: guard.start] + solo + guard.command + line[guard.end : end] + tail
    before = [word for word in command.words if word.start < guard.start]
    if covered < 0 or any(get_program(word) in WRAPPERS and get_program(word) not in SAME_FOR_ALL for word in before):
        return None
    if (
        any(re.match(r"[A-Za-z_]\w*=", word.raw) for word in before)
        or at
        or any(one.start < guard.start for one in command.redirections)
    ):
        return None
    stop = steps[number + covered - 1].end
    body = shlex.quote(guard.command + line[guard.end : stop])
    return f"{line[: guard.start]}{solo}{setting.shell} -c {body}{line[stop:end]}{tail}"


# --- lines with solo ---------------------------------------------------------------------------------------------------


def examine_solo(line: str, steps: list[Step], number: int, at: int, words: list[Word], setting: Setting) -> Advice:
    """Return the advice for a line that solo guards already."""
    typed = [word.known for word in words[1:]]
    try:
        options, subcommand, rest = parse(typed)
    except UsageError as error:
        if any(word.text is None for word in words):
            return Advice("solo")
        return Advice("solo", findings=(Finding(FAILS, "usage", f"solo refuses this line: {error}"),))
    if subcommand is not None or not rest:
        return Advice("solo")
    first = len(words) - len(rest)
    guard = Guard("solo", None, None, "", words[0].start, words[first].start)
    program = get_program(words[first])
    findings = [found for path in options.get("flock", []) + options.get("fcntl", []) for found in check_shared(path)]
    covered, tail_findings = find_tail(steps, number, at)
    findings += tail_findings
    command = steps[number].commands[at]
    solo = line[words[0].start : words[first].start].rstrip()
    if "name" not in options and any(CHANGES.search(word.raw) for word in words[first:]):
        word = next(word.raw for word in words[first:] if CHANGES.search(word.raw))
        findings.append(Finding(FAILS, "changing", f"{word} gives each run a name of its own (add -n NAME)"))
        solo = solo.replace(words[0].raw, f"{words[0].raw} -n {make_name('', program)}", 1)
    if not setting.has_solo and "/" not in words[0].raw and is_start(line, steps, number, command, words[0]):
        findings.append(Finding(FAILS, "path", "cron does not find solo in the PATH of this line"))
        solo = solo.replace(words[0].raw, setting.solo, 1)
    if not findings:
        return Advice("solo")
    solo += " " if solo.endswith(" --") else " -- "
    use = rewrite(line, steps, number, at, guard, solo, covered, setting)
    return Advice("solo", findings=tuple(findings), use=use if use != line else None)


def check_shared(path: str) -> list[Finding]:
    return check_lock(Word(0, 0, path, path))[:1] if CLEANED.match(path) else []


def is_start(text: str, steps: list[Step], number: int, command: Command, word: Word) -> bool:
    """Is the PATH of the line still the one that cron sets, where solo is called?"""
    before = [one.program for step in steps[:number] for one in step.commands]
    return set(before) <= {"cd"} and command.words[0].start == word.start and "PATH=" not in text


# --- idioms ----------------------------------------------------------------------------------------------------------


MAKERS = ("mkdir", "lockfile", "dotlockfile", "ln")
ASKERS = ("pgrep", "pidof", "killall", "ps")


def find_idiom(line: str, steps: list[Step], setting: Setting) -> Advice | None:
    """Return the advice for a lock made by mkdir, a pid file or a search for processes, None if there is none."""
    number = 0
    while number < len(steps) - 1 and steps[number].commands[0].program == "cd":
        number += 1
    first = steps[number]
    tool = first.commands[0].program
    if tool in MAKERS and len(first.commands) == 1:
        path = find_operand(first.commands[0])
        removed = path is not None and any(is_removal(step, path.raw) for step in steps[number + 1 :])
        if path is None or not (removed or LOCK_LIKE.search(path.raw)):
            return None
        text = f"{path.known} made by {tool} stays after a kill, a crash or a reboot: then no run starts"
        return suggest(line, steps, number, path, tool, Finding(FAILS, "stale", text), setting, removed)
    if tool in ("[", "test"):
        path = find_tested(first.commands[0])
        if path is None or len(first.commands) > 1 or not LOCK_LIKE.search(path.raw) or not is_lock_test(steps, number):
            return None
        text = f"two runs can both test {path.known} before one makes it, and after a kill it stays"
        made = any(touches(step, path.raw) for step in steps[number + 1 :])
        return suggest(line, steps, number, path, "pid file", Finding(FAILS, "stale", text), setting, made)
    if tool in ASKERS and len(steps) > number + 1 and steps[number + 1].join == "||":
        if tool == "ps" and len(first.commands) == 1:
            return None
        text = f"{tool} and the start are two steps, so two runs can both start; {tool} can also match other processes"
        safe = not any(is_daemon(step) for step in steps[number + 1 :])
        path = Word(0, 0, "", "")
        return suggest(line, steps, number, path, tool, Finding(FAILS, "race", text), setting, safe)
    return None


def find_operand(command: Command) -> Word | None:
    """Return the only operand of mkdir and so on; None if there are several, or with mkdir -p."""
    words = command.plain[1:]
    if command.program == "mkdir" and any(re.match("-[a-zA-Z]*p|--parents", word.raw) for word in words):
        return None
    if command.program == "ln":
        return words[-1] if len(words) == 3 and words[0].raw == "-s" else None
    operands = [word for word in words if word.raw[:1] != "-" and not word.raw.isdigit()]
    return operands[0] if len(operands) == 1 else None


def find_tested(command: Command) -> Word | None:
    """Return the file that `[ -f FILE ]` or `[ ! -f FILE ]` tests."""
    words = command.plain[1:]
    if command.program == "[":
        if not words or words[-1].raw != "]":
            return None
        words = words[:-1]
    if words and words[0].raw == "!":
        words = words[1:]
    return words[1] if len(words) == 2 and words[0].raw in ("-f", "-e", "-d", "-s", "-L") else None


def is_lock_test(steps: list[Step], number: int) -> bool:
    """Does the line go on only if the file is missing?"""
    if number + 1 == len(steps):
        return False
    after = steps[number + 1]
    is_negated = any(word.raw == "!" for word in steps[number].commands[0].plain)
    ends = after.commands[0].program == "exit"
    return (after.join == "&&") == (is_negated != ends) and after.join in ("&&", "||")


def touches(step: Step, path: str) -> bool:
    """Does the step only make, or only remove, the file?"""
    if is_removal(step, path):
        return True
    command = step.commands[0]
    if len(step.commands) > 1:
        return False
    if command.program in ("touch", "mkdir"):
        return [word.raw for word in command.plain[1:]] == [path]
    writes = [one.target.raw for one in command.redirections if one.sign in (">", ">|")]
    return command.program == "echo" and writes == [path]


def is_daemon(step: Step) -> bool:
    """Does a command of the step probably start a daemon?"""
    words = [word for command in step.commands for word in command.plain]
    return any(
        get_program(word) in DAEMONS or word.known in ("start", "restart", "--daemon") or "/init.d/" in word.known
        for word in words
    )


def suggest(
    line: str, steps: list[Step], number: int, path: Word, tool: str, finding: Finding, setting: Setting, is_sure: bool
) -> Advice:
    """Return the finding, with the line with solo if every step is understood."""
    kept = [step for step in steps[number + 1 :] if not path.raw or not touches(step, path.raw)]
    kept = kept[1:] if kept and kept[0].commands[0].program == "exit" else kept
    advice = Advice(tool, None, path.known or None, (finding,))
    parts = [line[step.start : step.end] for step in kept]
    joins = {step.join for step in kept[1:]}
    wrong = (
        finding.check == "stale"
        and tool in MAKERS
        and steps[number + 1 : number + 2]
        and (steps[number + 1].join == "||" and steps[number + 1].commands[0].program != "exit")
    )
    if (
        not is_sure
        or not kept
        or joins - {"&&", ";"}
        or wrong
        or "&" == line.rstrip()[-1:]
        or any(map(is_daemon, kept))
    ):
        return advice
    command = kept[0].commands[0]
    is_simple = len(kept) == len(kept[0].commands) == 1 and command.words == command.plain
    body = parts[0] + "".join(
        f"{';' if step.join == ';' else f' {step.join}'} {part}" for step, part in zip(kept[1:], parts[1:])
    )
    if not is_simple or command.program in BUILTINS:
        body = f"{setting.shell} -c {shlex.quote(body)}"
    name = setting.find_name(path, command.program)
    return advice._replace(use=f"{line[: steps[number].start]}{setting.solo} -n {name} -- {body}")
