"""Finds out to which processes of a unit systemd sends a signal. Loaded only when a service manager
signals the launcher, and to ask systemctl.
"""

import _signal

from solo.identity import read_status
from solo.kernel import decode, read_file

NOT_TWICE = {_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT}  # a second one often means "at once"


def signals_whole_unit(signal: int, manager: int, pid: int) -> bool:
    """Return whether `manager` has sent `signal` not only to us, the main process of our unit, but
    also to `pid` of it.

    While a unit is being stopped, its KillMode tells. Otherwise `systemctl kill` may have sent it,
    by default to all processes: assume so if `pid` notices a second signal to end, which may mean
    "at once". Others do no harm twice.
    """
    try:
        group = read_file("/proc/self/cgroup", 65536)
        if group != read_file(f"/proc/{pid}/cgroup", 65536):
            return False
    except OSError:
        return False
    unit = find_unit(decode(group))
    scope = "--user" if manager > 1 else "--system"
    shown = "show", "--property=KillMode,ActiveState", "--", unit
    answer = ask(scope, *shown).split() if unit else []
    if "ActiveState=deactivating" in answer:
        return "KillMode=control-group" in answer
    # to a process without it, two are one
    masks = read_status(pid, b"SigCgt:") + read_status(pid, b"SigBlk:")
    return (
        bool(answer)
        and signal in NOT_TWICE
        and any(int(mask, 16) >> signal - 1 & 1 for mask in masks)
    )


def find_unit(group: str) -> str:
    """Return the unit in a /proc/PID/cgroup: the last part of its path in systemd's hierarchy, or
    "".
    """
    for membership in group.split("\n"):
        if membership.startswith("0::") or ":name=systemd:" in membership:
            for part in reversed(membership.split(":", 2)[2].split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return ""


def ask(*words: str) -> str:
    """Return what systemctl prints, "" if it does not answer."""
    import subprocess

    command = ["systemctl", *words]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2, text=True
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
