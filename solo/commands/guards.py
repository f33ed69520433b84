"""The guard of a line against a second run, mistakes in its use, and the same line with solo.

Pure functions over the text of one line, for `solo doctor --crontab`. They run nothing.
"""

from __future__ import annotations

import re
import shlex
from posixpath import normpath
from typing import Any

from solo.argv import parse
from solo.commands.advice import (
    CHANGES,
    FAILS,
    INTERPRETER,
    NOTE,
    SHELLS,
    Advice,
    Finding,
    Guard,
    Setting,
    find_job,
    make_name,
    normalize,
)
from solo.commands.idioms import find_idiom, format_job, is_removal, name_job
from solo.commands.lock_tools import MENTION, WRAPPERS, find_descriptor, find_guard, skip_wrappers
from solo.commands.shell_line import Command, Step, Unclear, Word, flatten_condition, get_program, skip_to, split_line
from solo.errors import UsageError

CLEANED = re.compile(r"""["']?(?:/(?:var/)?tmp/|/dev/shm/|\$\{?TMPDIR)""")
# Commands after the guarded one that need no guard: they report.
REPORTERS = frozenset("echo printf logger mail mailx sendmail date true false : exit test [ touch sleep".split())
PINGS = frozenset(["curl", "wget"])
FILTERS = frozenset("logger systemd-cat ts cat grep egrep fgrep sed awk head tail tr cut sort uniq mail mailx".split())
FIRST_KEYWORD = re.compile(r"\s*(?:if|!)\s")
SAME_FOR_ALL = frozenset(["nice", "ionice", "chrt", "exec", "chronic"])  # may also precede the commands that follow


def examine(line: str, setting: Setting) -> Advice:
    """Return the advice for a line of a shell. Never raises: an unclear line with the name of a tool gets a note."""
    reason = ""
    try:
        advice = examine_line(line, setting)
        if advice.tool is not None:
            return advice
    except Unclear as error:
        reason = f" ({error})" if str(error) else ""
    found = MENTION.search(line)
    if found is None:
        return Advice()
    text = f"no advice: solo does not understand this use of {found[1]}{reason}"
    return Advice(found[1], findings=(Finding(NOTE, "unclear", text),))


def examine_line(line: str, setting: Setting) -> Advice:
    """Return the advice for a line that may be a condition or a group. Raises Unclear."""
    if line.lstrip()[:1] == "(":
        return examine_group(line.lstrip(), setting)
    if FIRST_KEYWORD.match(line) and (flat := flatten_condition(line)) is not None:
        advice = find_idiom(flat, split_line(flat)[0], setting)
        if advice is not None:
            return advice
    return examine_steps(line, setting)


def examine_group(line: str, setting: Setting) -> Advice:
    """Return the advice for `( ... )`, which may lock a file by a descriptor: `( flock 9; ... ) 9>FILE`. Raises Unclear."""
    end = skip_to(line, 1, ")")
    inner, rest = line[1 : end - 1], line[end:]
    after, is_background = split_line(f":{rest}")
    commands = after[0].commands
    if len(after) > 1 or is_background or len(commands[0].words) > 1 or not all(map(is_filter, commands[1:])):
        raise Unclear("a group and more commands")
    for one in commands[0].redirections:
        sign = f":{rest}"[one.start :]
        if number := re.match(r"\d{2,}|[3-9]", sign):
            others = f"{rest[: one.start - 1].rstrip()}{rest[one.target.end - 1 :]}"
            return advise_descriptor(inner, number[0], one.target, others, setting)
    advice = examine_line(inner, setting)
    return advice if advice.use is None else advice._replace(use=f"({advice.use}){rest}")


def advise_descriptor(inner: str, number: str, lock: Word, rest: str, setting: Setting) -> Advice:
    """Return the advice for `flock NUMBER` and what follows it in a group. Raises Unclear."""
    steps, is_background = split_line(inner)
    first = steps[0].commands[0]
    options, kept = find_descriptor(first.plain, number), steps[1:]
    if first.program != "flock" or len(steps[0].commands) > 1 or is_background or not kept:
        raise Unclear("not flock first")
    if kept[0].join == "||" and kept[0].commands[0].program == "exit":
        status = kept[0].commands[0].plain[1].known if len(kept[0].commands[0].plain) > 1 else "1"
        options = [f"-q -E {status}" if status == "0" else f"-E {status}" if status != "1" else "", *options]
        kept = kept[1:]
    elif kept[0].join != "&&" and "--wait forever" not in options:
        raise Unclear("the job starts also if the file is locked")
    if not kept or any(step.join not in ("&&", ";") for step in kept):
        raise Unclear("a way on after the job failed")
    findings = check_lock(lock)
    name = setting.find_name(lock.raw, "", name_job(kept))
    files, finding = describe_callers(Guard("flock", "flock", lock, "", 0, 0), setting)
    typed = " ".join(
        filter(None, [setting.solo, f"-n {name}", files, *options, "--", format_job(inner, kept, setting)])
    )
    return Advice("flock", "flock", lock.known, (*findings, finding), typed + rest)


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
    program = find_job(guarded or command.plain)
    if lock is not None:
        findings += check_lock(lock)
        kept = drop_removals(kept, number, lock, findings)
    covered, tail_findings = find_tail(kept, number, at)
    findings += tail_findings
    findings += check_truncation(command)
    names = "" if re.match(r"-n ", guard.options) else make_names(guard, guarded, words, program, setting, findings)
    files, finding = describe_callers(guard, setting)
    findings.append(finding)
    options = " ".join(filter(None, (names, files, guard.options)))
    solo = f"{setting.solo} {options} -- ".replace("  ", " ")
    is_sure = not any(finding.check == "program" for finding in findings)
    use = rewrite(line, kept, number, at, guard, solo, covered, setting) if is_sure else None
    path = lock.known if lock else None
    return Advice(guard.tool, guard.call, path, tuple(findings), use)


def describe_callers(guard: Guard, setting: Setting) -> tuple[str, Finding]:
    """Return (the option that locks the file too, if other users' lines do, what to do about other callers)."""
    lock = guard.lock
    if lock is None or guard.call is None:
        return "", Finding(NOTE, "callers", f"change all callers of {guard.tool} for this job at the same time")
    option = f"--{guard.call} {lock.raw}"
    if setting.is_shared(lock.raw):
        text = f"lines of several users lock {lock.known}: names are separate, so keep --{guard.call}"
        return option, Finding(NOTE, "users", text)
    text = f"while other callers lock {lock.known} by {guard.tool}, add {option}"
    return "", Finding(NOTE, "callers", text)


def make_names(
    guard: Guard, guarded: list[Word], words: str, program: str, setting: Setting, findings: list[Finding]
) -> str:
    """Return -n NAME; "" if the name can come from the command, as its words do not change."""
    if guard.lock is not None:
        return f"-n {setting.find_name(guard.lock.raw, words, program)}"
    changing = [word.raw for word in guarded if CHANGES.search(word.raw)]
    if not changing:
        return ""
    text = f"{changing[0]} gives each run a lock of its own, so no run excludes another"
    findings.append(Finding(FAILS, "changing", text))
    return f"-n {setting.find_name('', words, program)}"


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
    if INTERPRETER.fullmatch(get_program(lock)):
        text = f"{lock.known} is a program, and becomes the lock file: a lock file is missing before it"
        findings.append(Finding(FAILS, "program", text))
    return findings


def drop_removals(steps: list[Step], number: int, lock: Word, findings: list[Finding]) -> list[Step]:
    """Return the steps without one at the end that removes the lock file, with a finding."""
    last = steps[-1]
    if number < len(steps) - 1 and is_removal(last, lock.raw):
        text = f"removing {lock.known} lets two runs lock two files of that name"
        findings.append(Finding(FAILS, "removed", text))
        return steps[:-1]
    return steps


def find_tail(steps: list[Step], number: int, at: int) -> tuple[int, list[Finding]]:
    """Return (how many steps the guard should cover, what it does not cover today); -1 if it cannot be extended."""
    step, findings = steps[number], []
    rest = [command for command in step.commands[at + 1 :] if not is_filter(command)]
    if rest:
        findings.append(Finding(FAILS, "partial", describe_partial(rest, "|")))
    after = steps[number + 1 :]
    while after and after[-1].join == "||":
        after.pop()  # what runs if the guarded steps fail
    open_ones = [one for one in after if not is_report(one)]
    loud = [one for one in open_ones if not is_ping(one)]
    commands = [command for one in loud for command in one.commands[:1]]
    if commands:
        findings.append(Finding(FAILS, "partial", describe_partial(commands, loud[0].join)))
    elif open_ones:
        name = open_ones[0].commands[0].program
        findings.append(Finding(NOTE, "partial", f"{name} after {open_ones[0].join} is not guarded"))
    if not rest and not commands:
        return 0, findings
    if any(one.join == "||" for one in after):
        return -1, findings
    last = max([index for index, one in enumerate(after) if one in loud], default=-1)
    return last + 2, findings


def describe_partial(others: list[Command], sign: str) -> str:
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
        if one.sign in (">", "&>", ">|") and not is_device(one.target) and not CHANGES.search(one.target.raw):
            text = f"a skipped run empties {one.target.known}, while another run writes it (use >>)"
            return [Finding(NOTE, "truncates", text)]
    return []


def rewrite(
    line: str, steps: list[Step], number: int, at: int, guard: Guard, solo: str, covered: int, setting: Setting
) -> str | None:
    """Return the line with solo in the place of the tool, and if `covered`, with more of it guarded. None if unsure."""
    end = steps[-1].end
    tail = line[end:] if end == split_line(line)[0][-1].end else ""
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
    command = steps[number].commands[at]
    called, findings = check_called(line, steps, number, command, words[0], setting)
    if subcommand is not None or not rest:
        whole = line[: words[0].start] + called + line[words[0].end :]
        return Advice(
            "solo", findings=tuple(findings), use=whole if whole != line else None, can_skip=subcommand == "hold"
        )
    first = len(words) - len(rest)
    advice = Advice("solo")
    if "via" not in options and all(word.text is not None for word in words[:first]):
        advice = advice._replace(names=tuple(options.get("name", ())), shared=list_shared(options))
    guard = Guard("solo", None, None, "", words[0].start, words[first].start)
    program = get_program(words[first])
    findings += [found for path in options.get("flock", []) + options.get("fcntl", []) for found in check_shared(path)]
    covered, tail_findings = find_tail(steps, number, at)
    findings += tail_findings
    if "name" not in options and any(CHANGES.search(word.raw) for word in words[first:]):
        word = next(word.raw for word in words[first:] if CHANGES.search(word.raw))
        findings.append(Finding(FAILS, "changing", f"{word} gives each run a name of its own (add -n NAME)"))
        called += f" -n {make_name('', program)}"
    if not findings:
        return advice
    solo = called + line[words[0].end : words[first].start].rstrip()
    solo += " " if solo.endswith(" --") else " -- "
    use = rewrite(line, steps, number, at, guard, solo, covered, setting)
    return advice._replace(findings=tuple(findings), use=use if use != line else None)


def list_shared(options: dict[str, Any]) -> frozenset[str]:
    """Return the options by which two lines of one name, of several users, have one lock; or --shared: they need none."""
    paths = [(key, path) for key in ("flock", "fcntl") for path in options.get(key, ())]
    paths += [("dir", options["dir"])] if "dir" in options else []
    return frozenset([f"{key} {normpath(normalize(path))}" for key, path in paths] + ["shared"] * ("shared" in options))


def check_called(
    line: str, steps: list[Step], number: int, command: Command, word: Word, setting: Setting
) -> tuple[str, list[Finding]]:
    """Return (how the line should call solo, what is wrong with its call)."""
    if word.known[:1] == "/":
        if fault := setting.find_fault(word.known):
            return setting.path, [Finding(FAILS, "path", f"{word.known} {fault} (solo is {setting.path})")]
    elif not setting.has_solo and "/" not in word.raw and is_start(line, steps, number, command, word):
        return setting.solo, [Finding(FAILS, "path", "cron does not find solo in the PATH of this line")]
    return word.raw, []


def check_shared(path: str) -> list[Finding]:
    return check_lock(Word(0, 0, path, path))[:1] if CLEANED.match(path) else []


def is_start(text: str, steps: list[Step], number: int, command: Command, word: Word) -> bool:
    """Is the PATH of the line still the one that cron sets, where solo is called?"""
    before = [one.program for step in steps[:number] for one in step.commands]
    return set(before) <= {"cd"} and command.words[0].start == word.start and "PATH=" not in text
