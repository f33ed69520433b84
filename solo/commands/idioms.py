"""Locks that a line makes without a lock tool: a directory, a pid file, or a search for processes.

Pure functions over the text of one line, for `solo doctor --crontab`. They run nothing.
"""

from __future__ import annotations

import re
import shlex

from solo.commands.advice import BUILTINS, DAEMONS, FAILS, INTERPRETER, NOTE, Advice, Finding, Setting, find_job
from solo.commands.lock_tools import skip_wrappers
from solo.commands.shell_line import Command, Step, Word, get_program

LOCK_LIKE = re.compile(r"lock|lck|mutex|running|\.pid\b", re.IGNORECASE)
SCRIPT = re.compile(r".*\.(?:sh|bash|py|pl|rb|php|js)")
BESIDE_WORDS = re.compile(r"[\[\]\\^$]")  # in a pattern, around the word that is searched for
MAKERS = ("mkdir", "lockfile", "dotlockfile", "ln")
ASKERS = ("pgrep", "pidof", "killall", "ps")
FINDERS = ("pgrep", "pidof", "killall", "grep", "egrep", "fgrep")
MANAGERS = frozenset("service systemctl initctl supervisorctl".split())  # they start no second instance


def find_idiom(line: str, steps: list[Step], setting: Setting) -> Advice | None:
    """Return the advice for a lock made by mkdir, a pid file or a search for processes, None if there is none."""
    number = 0
    while number < len(steps) - 1 and steps[number].commands[0].program == "cd":
        number += 1
    tool = steps[number].commands[0].program
    if tool in MAKERS:
        return find_made(line, steps, number, setting)
    if tool in ("[", "test"):
        return find_pid_file(line, steps, number, setting)
    return find_search(line, steps, number, setting) if tool in ASKERS else None


def find_made(line: str, steps: list[Step], number: int, setting: Setting) -> Advice | None:
    """Return the advice for `mkdir LOCK && ...; rmdir LOCK` and `mkdir LOCK || exit; ...`."""
    command, rest = steps[number].commands[0], steps[number + 1 :]
    path = find_operand(command) if len(steps[number].commands) == 1 else None
    if path is None or not (is_sure := any(is_removal(step, path.raw) for step in rest)) and not is_lock(path):
        return None
    text = f"{path.known} made by {command.program} stays after a kill, a crash or a reboot: then no run starts"
    if rest and rest[0].join == "||":
        is_sure = is_sure and rest[0].commands[0].program == "exit"
    advice = Advice(command.program, None, path.known, (Finding(FAILS, "stale", text),))
    return suggest(line, steps, number, path, advice, setting) if is_sure else advice


def find_pid_file(line: str, steps: list[Step], number: int, setting: Setting) -> Advice | None:
    """Return the advice for `[ -f LOCK ] && exit; touch LOCK; ...; rm LOCK` and the like."""
    path = find_tested(steps[number].commands[0]) if len(steps[number].commands) == 1 else None
    if path is None or not is_lock(path) or not is_lock_test(steps, number):
        return None
    text = f"two runs can both test {path.known} before one makes it, and after a kill it stays"
    advice = Advice("pid file", None, path.known, (Finding(FAILS, "stale", text),))
    is_sure = any(touches(step, path.raw) for step in steps[number + 1 :])
    return suggest(line, steps, number, path, advice, setting) if is_sure else advice


def find_search(line: str, steps: list[Step], number: int, setting: Setting) -> Advice | None:
    """Return the advice for `pgrep -f JOB || JOB`. What starts a daemon is left to the daemon's own guard."""
    first, after = steps[number], steps[number + 1 : number + 2]
    tool = first.commands[0].program
    if not after or after[0].join != "||" or tool == "ps" and len(first.commands) == 1:
        return None
    if any(command.program in MANAGERS for step in steps[number + 1 :] for command in step.commands):
        return None
    patterns = list_patterns(first)
    typed = " ".join(word.known for step in steps[number + 1 :] for command in step.commands for word in command.plain)
    if not patterns or not all(pattern in typed for pattern in patterns):
        return None
    race = f"{tool} and the start are two steps, so two runs can both start; {tool} can also match other processes"
    if is_script(find_main(steps[number + 1 :])):
        advice = Advice(tool, findings=(Finding(FAILS, "race", race),))
        advice = suggest(line, steps, number, None, advice, setting)
        if advice.use is not None:
            return advice
    return Advice(
        tool, findings=(Finding(NOTE, "race", f"{race} (a unit with Restart=always keeps a daemon running)"),)
    )


def list_patterns(search: Step) -> list[str]:
    """Return the texts that `pgrep PATTERN` or `ps | grep PATTERN` looks for."""
    return [
        BESIDE_WORDS.sub("", word.known)
        for command in search.commands
        if command.program in FINDERS and "v" not in get_letters(command)
        for word in command.plain[1:]
        if word.raw[:1] != "-"
    ]


def is_script(step: Step) -> bool:
    """Does the step run a script? A program could become a daemon under its own name."""
    words = skip_wrappers(step.commands[0].plain)
    if len(step.commands) > 1 or not words:
        return False
    return bool(SCRIPT.fullmatch(words[0].known) or len(words) > 1 and INTERPRETER.fullmatch(get_program(words[0])))


def get_letters(command: Command) -> str:
    return "".join(word.raw[1:] for word in command.plain[1:] if re.fullmatch("-[a-zA-Z]+", word.raw))


def is_lock(path: Word) -> bool:
    return LOCK_LIKE.search(path.raw) is not None


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


def is_removal(step: Step, path: str) -> bool:
    """Does the step only remove the file or the directory?"""
    if len(step.commands) != 1 or step.commands[0].program not in ("rm", "rmdir", "unlink"):
        return False
    return [word.raw for word in step.commands[0].plain[1:] if word.raw[:1] != "-"] == [path]


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
        get_program(word) in DAEMONS or word.known in ("start", "restart", "--daemon", "-d") or "/init.d/" in word.known
        for word in words
    )


def suggest(line: str, steps: list[Step], number: int, path: Word | None, advice: Advice, setting: Setting) -> Advice:
    """Return the advice, with the line with solo if every step is understood."""
    kept = [step for step in steps[number + 1 :] if path is None or not touches(step, path.raw)]
    kept = kept[1:] if kept and kept[0].commands[0].program == "exit" else kept
    joins = {step.join for step in kept[1:]}
    is_background = line.rstrip()[-1:] == "&"
    if not kept or joins - {"&&", ";"} or is_background and (path or joins) or any(map(is_daemon, kept)):
        return advice
    job = format_job(line, kept, setting)
    name = setting.find_name(path.raw if path else "", job, name_job(kept))
    return advice._replace(use=f"{line[: steps[number].start]}{setting.solo} -n {name} -- {job}{' &' * is_background}")


def find_main(steps: list[Step]) -> Step:
    """Return the first step that does not only change the directory."""
    return next((step for step in steps if step.commands[0].program != "cd"), steps[0])


def name_job(steps: list[Step]) -> str:
    words = find_main(steps).commands[0].plain
    return find_job(skip_wrappers(words) or words) if words else ""


def format_job(line: str, steps: list[Step], setting: Setting) -> str:
    """Return the steps as one command: the only one, else a shell with all of them."""
    parts = [line[step.start : step.end] for step in steps]
    job = parts[0] + "".join(
        f"{';' if step.join == ';' else f' {step.join}'} {part}" for step, part in zip(steps[1:], parts[1:])
    )
    command = steps[0].commands[0]
    is_simple = len(steps) == len(steps[0].commands) == 1 and command.words == command.plain
    return job if is_simple and command.program not in BUILTINS else f"{setting.shell} -c {shlex.quote(job)}"
