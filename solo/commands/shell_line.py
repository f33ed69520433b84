"""Split a line for the shell into commands without running it, for `solo doctor --crontab`.

Words keep their place in the line, so that a part of it can be replaced. A line with other grammar than lists, pipes and
redirections raises Unclear: no advice is better than a wrong one.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

LONGEST = 10_000  # characters; cron refuses far shorter lines
BLANKS = " \t"
ENDS = BLANKS + "|&;()<>\n"  # of a word
RESERVED = frozenset("if then else elif fi for while until do done case esac { } ! function [[ select coproc".split())
JOINS = ("&&", "||", ";", "&")
REDIRECTION = re.compile(r"\d*(?:>>|>&|<&|>\||<>|>|<)|&>>?")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
EXPANDS = frozenset("*?[{~")  # outside of quotes


class Unclear(Exception):
    """The line has a grammar, or a tool has an option, that solo does not know."""


class Unclosed(Unclear):
    """The line ends within a quote or a bracket."""


class Word(NamedTuple):
    """A word of the line: its place, itself as typed, and its value, None if the shell would compute it."""

    start: int
    end: int
    raw: str
    text: str | None

    @property
    def known(self) -> str:
        """Its value, or the word as typed."""
        return self.raw if self.text is None else self.text


class Redirection(NamedTuple):
    sign: str
    target: Word
    start: int


class Command(NamedTuple):
    """A simple command: its words, assignments included, and its redirections."""

    words: list[Word]
    redirections: list[Redirection]

    @property
    def start(self) -> int:
        return min([word.start for word in self.words[:1]] + [one.start for one in self.redirections])

    @property
    def end(self) -> int:
        return max([word.end for word in self.words] + [one.target.end for one in self.redirections])

    @property
    def plain(self) -> list[Word]:
        """The words after the assignments."""
        at = 0
        while at < len(self.words) and ASSIGNMENT.match(self.words[at].raw):
            at += 1
        return self.words[at:]

    @property
    def program(self) -> str:
        """The last part of the path of the program, "" without one."""
        return get_program(self.plain[0]) if self.plain else ""


class Step(NamedTuple):
    """A pipe of commands, and the sign before it: "", &&, ||, ; or &."""

    join: str
    commands: list[Command]

    @property
    def start(self) -> int:
        return self.commands[0].start

    @property
    def end(self) -> int:
        return self.commands[-1].end


def get_program(word: Word) -> str:
    return word.known.rpartition("/")[2]


def split_line(line: str) -> tuple[list[Step], bool]:
    """Return (the steps of the line, whether it ends with &). Raises Unclear."""
    if len(line) > LONGEST:
        raise Unclear(f"more than {LONGEST} characters")
    try:
        return split_steps(line)
    except RecursionError:
        raise Unclear("too many brackets") from None


def split_steps(line: str) -> tuple[list[Step], bool]:
    steps: list[Step] = []
    commands: list[Command] = []
    command = Command([], [])
    join, at, is_background = "", 0, False
    while (at := skip_blanks(line, at)) < len(line) and line[at] != "#":
        sign = next((one for one in JOINS if line.startswith(one, at)), "")
        redirection = REDIRECTION.match(line, at)
        if redirection:
            at = add_redirection(command, redirection, line)
        elif sign or line[at] == "|":
            end_command(command, commands)
            command = Command([], [])
            at += len(sign) or (2 if line.startswith("|&", at) else 1)
            if sign:
                steps.append(Step(join, commands))
                commands, join = [], sign
        else:
            word = read_word(line, at)
            command.words.append(word)
            at = word.end
    if command.words or command.redirections or join not in (";", "&"):
        end_command(command, commands)
        steps.append(Step(join, commands))
    elif commands:
        raise Unclear("a pipe without an end")
    else:
        is_background = join == "&"
    if any(step.join == "&" for step in steps):
        raise Unclear("a background command before others")
    return steps, is_background


def flatten_condition(line: str) -> str | None:
    """Return `if CONDITION; then BODY; fi` as `CONDITION && BODY`, with ! as `CONDITION || BODY`; None for other lines.

    A body that is only `exit` may be followed by more commands. Raises Unclear.
    """
    words = find_keywords(line)
    names = [word.raw for word in words]
    if names == ["!"] and not line[: words[0].start].strip():
        return negate(line[words[0].end :])
    if names not in (["if", "then", "fi"], ["if", "!", "then", "fi"]) or line[: words[0].start].strip():
        return None
    condition = line[words[-3].end : words[-2].start].strip().rstrip(";")
    body = line[words[-2].end : words[-1].start].strip().rstrip(";").rstrip()
    rest = line[words[-1].end :].strip()
    if rest[:1] not in ("", "#") and not (rest[0] == ";" and re.fullmatch(r"exit( \d+)?", body)):
        return None
    flat = f"{condition} && {body}{'' if rest[:1] in ('', '#') else rest}"
    return negate(flat) if names[1] == "!" else flat


def negate(line: str) -> str | None:
    """Return `A && REST` as `A || REST`, which runs REST if A fails; None if && does not follow the first step."""
    steps = split_steps(line)[0]
    if len(steps) < 2 or steps[1].join != "&&":
        return None
    sign = line[steps[0].end : steps[1].start].replace("&&", "||")
    return line[: steps[0].end].lstrip() + sign + line[steps[1].start :]


def find_keywords(line: str) -> list[Word]:
    """Return the reserved words at the start of commands. Raises Unclear."""
    words: list[Word] = []
    at, is_start = 0, True
    while (at := skip_blanks(line, at)) < len(line) and line[at] != "#":
        if redirection := REDIRECTION.match(line, at):
            at = add_redirection(Command([], []), redirection, line)
        elif line[at] in "|&;":
            at, is_start = at + 1, True
        else:
            word = read_word(line, at)
            at = word.end
            if is_start and word.raw in RESERVED:
                words.append(word)
            is_start = is_start and word.raw in RESERVED and word.raw != "fi"
    return words


def end_command(command: Command, commands: list[Command]) -> None:
    """Append the command. Raises Unclear if it is empty, or a keyword of the shell."""
    if not command.words:
        raise Unclear("no command")
    if command.plain and command.plain[0].raw in RESERVED:
        raise Unclear(command.plain[0].raw)
    commands.append(command)


def add_redirection(command: Command, sign: re.Match[str], line: str) -> int:
    """Append the redirection to the command. Return the place after it. Raises Unclear."""
    at = skip_blanks(line, sign.end())
    if line[at : at + 1] == "" or line[at] in ENDS:
        raise Unclear("a here-document, or a redirection without a file")
    target = read_word(line, at)
    command.redirections.append(Redirection(sign[0].lstrip("0123456789"), target, sign.start()))
    return target.end


def skip_blanks(line: str, at: int) -> int:
    while at < len(line) and line[at] in BLANKS:
        at += 1
    return at


def read_word(line: str, start: int) -> Word:
    """Return the word that starts there. Raises Unclear."""
    at, is_known = start, True
    while at < len(line) and line[at] not in ENDS:
        if line[at] in "\\'":
            at = skip_quoted(line, at)
        elif line[at] == '"':
            at, is_plain = skip_double(line, at)
            is_known = is_known and is_plain
        elif line[at] in "$`":
            at, is_known = skip_expansion(line, at), False
        else:
            is_known = is_known and line[at] not in EXPANDS
            at += 1
    if at == start:
        raise Unclear(f"{line[at]} at this place")
    raw = line[start:at]
    return Word(start, at, raw, "".join(shlex.split(raw)) if is_known else None)


def skip_quoted(line: str, at: int) -> int:
    """Return the place after a backslash and its character, or after a string in single quotes. Raises Unclear."""
    end = at + 1 if line[at] == "\\" else line.find("'", at + 1)
    if not at < end < len(line):
        raise Unclosed("a quote without an end")
    return end + 1


def skip_double(line: str, at: int) -> tuple[int, bool]:
    """Return (the place after a string in double quotes, whether nothing in it is expanded). Raises Unclear."""
    is_plain = True
    at += 1
    while at < len(line) and line[at] != '"':
        if line[at] == "\\":
            at += 2
        elif line[at] in "$`":
            at, is_plain = skip_expansion(line, at), False
        else:
            at += 1
    if at >= len(line):
        raise Unclosed("a quote without an end")
    return at + 1, is_plain


def skip_expansion(line: str, at: int) -> int:
    """Return the place after $(...), ${...}, `...`, or after the $ of a variable. Raises Unclear."""
    if line[at] == "`":
        return skip_to(line, at + 1, "`")
    if line.startswith("$(", at):
        return skip_to(line, at + 2, ")")
    return skip_to(line, at + 2, "}") if line.startswith("${", at) else at + 1


def skip_to(line: str, at: int, end: str) -> int:
    """Return the place after the sign `end`, past quotes and pairs of brackets. Raises Unclear."""
    depth = 0
    while at < len(line):
        if line[at] == end and not depth:
            return at + 1
        if line[at] in "\\'":
            at = skip_quoted(line, at)
            continue
        depth += (end == ")") * ((line[at] == "(") - (line[at] == ")"))
        at = skip_double(line, at)[0] if line[at] == '"' else at + 1
    raise Unclosed("a bracket without an end")
