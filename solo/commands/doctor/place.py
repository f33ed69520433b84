"""How a user can call solo, and whether the user can keep names: tried as that user, in a child
process.
"""

import json
import os
import pwd
import shutil
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from solo import directories
from solo.commands.doctor.checks import check_directory
from solo.commands.doctor.lock_tools import SAFE
from solo.errors import SoloError
from solo.text import remedies  # noqa: F401 - before the child, which may not be able to read it
from solo.text.rows import BAD

NO_USER = "this machine has no user {}"


class Place(NamedTuple):
    """`problem` is why solo cannot run there, `unknown` why that was not found out, `solo` the word
    by which a line calls it, `other` a program that it finds by the bare word.
    """

    problem: str = ""
    unknown: str = ""
    solo: str = "solo"
    other: str = ""


@cache
def find_place(user: str, path: "str | None", asked: "str | None") -> Place:
    """Return how a line of `user` whose PATH is `path` can call solo, and keep names where it
    `asked` for.

    `asked` is "" for the default, None for a directory that a unit will make.
    """
    ours, uid = find_solo(), find_uid(user)
    if not SAFE.fullmatch(ours):
        return Place(unknown=f"{ours} needs quotes")
    if uid is None:
        return Place(
            unknown=NO_USER.format(user) if user else "it is not certain which user runs it"
        )
    if os.geteuid() not in (0, uid):
        return Place(unknown=f"only root can try solo as {user}")
    answer = call_as(user, lambda: try_place(ours, path, asked))
    if answer is None:
        return Place(unknown=f"solo could not be tried as {user}")
    problem, word, other = answer
    return Place(problem and f"solo cannot run as {user}: {problem}", solo=word, other=other)


def call_as(user: str, ask: "Callable[[], Any]") -> Any:
    """Return what `ask` returns in a child process of that user, in the form of JSON; None if it
    fails there, or if this process cannot become that user.
    """
    uid = find_uid(user)
    if uid is None or os.geteuid() not in (0, uid):
        return None
    entry = pwd.getpwnam(user)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() != uid:
                os.initgroups(user, entry.pw_gid)
                os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
                os.setresuid(uid, uid, uid)
            os.write(writer, json.dumps(ask()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def try_place(ours: str, path: "str | None", asked: "str | None") -> "tuple[str, str, str]":
    """Return (why this user cannot run solo, the word that calls it, another solo in the PATH)."""
    found = shutil.which("solo", path=path) if path is not None else None
    is_ours = found is not None and os.path.realpath(found) == os.path.realpath(ours)
    if not is_ours and not os.access(ours, os.X_OK):
        return f"cannot execute {ours}: Permission denied (install solo for all users)", ours, ""
    problems = (
        [text for state, text in check_directory(asked) if state == BAD]
        if asked is not None
        else []
    )
    return "".join(problems[:1]), *(("solo", "") if is_ours else (ours, found or ""))


def find_solo() -> str:
    """Return the path of this solo."""
    typed = os.path.abspath(sys.argv[0])
    if (
        os.path.basename(typed) in ("solo", "solo-run")
        and os.access(typed, os.X_OK)
        and os.path.isfile(typed)
    ):
        return typed
    return shutil.which("solo") or shutil.which("solo-run") or "solo"


def find_uid(name: str) -> "int | None":
    """Return the uid of a user, None if this machine lacks the user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError, UnicodeError):
        return None


def find_names(user: str) -> str:
    """Return the path of the default directory of a user's names, "" if there is none."""
    uid = find_uid(user)
    try:
        return "" if uid is None else directories.find_place(uid)
    except SoloError:
        return ""
