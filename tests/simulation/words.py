"""A step of a schedule in words, for a person who reads how a promise was broken."""

import errno
import fcntl
import os
import posix

FLAGS = [(fcntl.LOCK_EX, "exclusive"), (fcntl.LOCK_SH, "shared"), (fcntl.LOCK_UN, "unlock"), (fcntl.LOCK_NB, "at once")]
VERBS = {"_exit": "exits", "begin": "begins", "execve": "executes", "pread": "reads", "pwrite": "writes"}


def describe_step(kernel, kind, rest, call):
    who = f"pid {rest[0]} ({kernel.processes[rest[0]].name})" if rest else "the clock"
    if kind == "time":
        return "nothing else can happen: time passes until the next timer"
    if kind in ("kill", "stop", "continue"):
        return f"{who} gets SIG{kind.upper()[:4]}, before {describe_call(kernel, rest[0], call)}"
    failed = f" and fails with {errno.errorcode[rest[1]]}" if kind == "fail" else ""
    return f"{who} {describe_call(kernel, rest[0], call)}{failed}"


def describe_call(kernel, pid, call):
    name, *words = call
    if name == "flock":
        flags = ", ".join(text for bit, text in FLAGS if words[1] & bit)
        return f"flock({words[0]}, {flags})"
    if name == "open":
        created = (
            " to create it"
            if words[1] & posix.O_CREAT
            else " unnamed"
            if words[1] & os.O_TMPFILE == os.O_TMPFILE
            else ""
        )
        return f"opens {words[0]}{created}"
    shown = ", ".join(repr(word)[:60] for word in words)
    return f"{VERBS.get(name, name)}({shown})"
