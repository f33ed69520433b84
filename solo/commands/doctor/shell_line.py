"""Split a line for the shell into simple commands without running it, for `solo doctor --crontab`.

Words keep their place in the line, so that a part of it can be replaced. Signs and keywords between
commands only end a command: replacing words of one command does not touch them. Other grammar
raises Unclear: no advice is better than a wrong one.

No parser of the shell fits. bashlex is GPL, loads for 160 ms, and refuses $((1)), case, [[ and
time; tree-sitter-bash is 3.6 MB of machine code and needs Python 3.10. python-crontab drops the
lines of a crontab that it does not understand.
"""

import re
import shlex
from itertools import dropwhile
from typing import NamedTuple

LONGEST = 10_000  # characters; cron refuses far shorter lines
BETWEEN = frozenset(
    "if then else elif fi while until do done { } !".split()
)  # a command follows, or ends before
RESERVED = frozenset("for case esac in function [[ select coproc".split())
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
# The parts of a word. Brackets in $(...) may be five deep.
FIXED = r"""\\.|'[^']*'|"(?:[^"\\$`]|\\.)*\""""
INNER = ""
for _ in range(5):
    INNER = rf"""(?:[^()'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\({INNER}\))*"""
EXPANDED = rf"""\$\({INNER}\)|\$\{{(?:[^}}'"\\]|{FIXED})*\}}|\$(?![({{'])|`(?:[^`\\]|\\.)*`"""
WORD = rf"""(?:[^ \t\n|&;()<>'"\\$`]|{FIXED}|"(?:[^"\\$`]|\\.|{EXPANDED})*"|{EXPANDED})+"""
KNOWN = re.compile(
    rf"""(?:[^'"\\$`*?[{{~]|{FIXED})+""", re.DOTALL
)  # a word that the shell does not expand
TOKEN = re.compile(
    rf"(?:(?P<redirection>\d*(?:>>|>&|<&|>\||<>|>|<)|&>>?)[ \t]*{WORD}"
    rf"|(?P<sign>&&|\|\||\|&|[|;&()])|(?P<word>{WORD}))[ \t]*",
    re.DOTALL,
)


class Unclear(Exception):
    """The line has a grammar, or a tool has an option, that solo does not know."""


class Unclosed(Unclear):
    """The line ends within a quote or a bracket."""


class Word(NamedTuple):
    """A word of the line: its place, itself as typed, and its value, None if the shell would
    compute it.
    """

    start: int
    end: int
    raw: str
    text: "str | None"

    @property
    def known(self) -> str:
        return self.raw if self.text is None else self.text

    @property
    def program(self) -> str:
        return self.known.rpartition("/")[2].strip("\"'")


class Command(NamedTuple):
    """A simple command: its words, assignments included, the places of its redirections, and the
    sign before it.
    """

    words: "list[Word]"
    redirections: "list[int]"
    sign: str

    @property
    def plain(self) -> "list[Word]":
        """The words after the assignments."""
        return list(dropwhile(lambda word: ASSIGNMENT.match(word.raw), self.words))

    @property
    def program(self) -> str:
        """The last part of the path of the program, "" without one."""
        return self.plain[0].program if self.plain else ""


def split_line(line: str) -> "list[Command]":
    """Return the commands of the line. Raises Unclear."""
    if len(line) > LONGEST:
        raise Unclear(f"more than {LONGEST} characters")
    commands, at = [Command([], [], "")], len(line) - len(line.lstrip(" \t"))
    while at < len(line) and line[at] != "#":
        token, command = TOKEN.match(line, at), commands[-1]
        if not token:
            if re.match(r"[<>&|\d \t]*(?:['\"`\\]|\$[({])", line[at:]):
                raise Unclosed("a quote or a bracket without an end")
            raise Unclear(f"{line[at : at + 2]} at this place")
        if token["redirection"]:
            command.redirections.append(at)
        elif token["sign"] == "(" and command.words:
            raise Unclear("a function")
        elif token["sign"]:
            commands.append(Command([], [], token["sign"]))
        elif not command.words and token["word"] in RESERVED:
            raise Unclear(token["word"])
        elif command.words or token["word"] not in BETWEEN:
            raw = token["word"]
            text = "".join(shlex.split(raw)) if KNOWN.fullmatch(raw) else None
            command.words.append(Word(at, token.end("word"), raw, text))
        at = token.end()
    return [command for command in commands if command.words]
