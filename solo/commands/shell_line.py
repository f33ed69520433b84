"""Split a line for the shell into simple commands without running it, for `solo doctor --crontab`.

Words keep their place in the line, so that a part of it can be replaced. Signs and keywords between commands only end a
command: replacing words of one command does not touch them. Other grammar raises Unclear: no advice is better than a wrong one.

No parser of the shell fits. bashlex is GPL, loads for 160 ms, and refuses $((1)), case, [[ and time; tree-sitter-bash is
3.6 MB of machine code and needs Python 3.10. python-crontab drops the lines of a crontab that it does not understand.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

LONGEST = 10_000  # characters; cron refuses far shorter lines
BLANKS = " \t"
ENDS = BLANKS + "|&;()<>\n"  # of a word
BETWEEN = frozenset("if then else elif fi while until do done { } !".split())  # a command follows, or ends before
RESERVED = frozenset("for case esac in function [[ select coproc".split())
SIGN = re.compile(r"&&|\|\||\|&|[|;&()]")
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

    @property
    def program(self) -> str:
        """The last part of its path."""
        return self.known.rpartition("/")[2]


class Command(NamedTuple):
    """A simple command: its words, assignments included, the places of its redirections, and the sign before it."""

    words: list[Word]
    redirections: list[int]
    sign: str

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
        return self.plain[0].program if self.plain else ""


def split_line(line: str) -> list[Command]:
    """Return the commands of the line. Raises Unclear."""
    if len(line) > LONGEST:
        raise Unclear(f"more than {LONGEST} characters")
    try:
        return [command for command in split_commands(line) if command.words]
    except RecursionError:
        raise Unclear("too many brackets") from None


def split_commands(line: str) -> list[Command]:
    commands = [Command([], [], "")]
    at = 0
    while (at := skip_blanks(line, at)) < len(line) and line[at] != "#":
        command = commands[-1]
        if redirection := REDIRECTION.match(line, at):
            command.redirections.append(at)
            at = skip_target(line, redirection.end())
        elif sign := SIGN.match(line, at):
            if sign[0] == "(" and command.words:
                raise Unclear("a function")
            commands.append(Command([], [], sign[0]))
            at = sign.end()
        else:
            word = read_word(line, at)
            at = word.end
            if not command.words and word.raw in RESERVED:
                raise Unclear(word.raw)
            if command.words or word.raw not in BETWEEN:
                command.words.append(word)
    return commands


def skip_target(line: str, at: int) -> int:
    """Return the place after the file of a redirection. Raises Unclear."""
    at = skip_blanks(line, at)
    if line[at : at + 1] == "" or line[at] in ENDS:
        raise Unclear("a here-document, or a redirection without a file")
    return read_word(line, at).end


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
    if line.startswith("$'", at):
        raise Unclear("$'")  # a string of its own in bash, not in sh
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
