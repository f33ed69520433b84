"""What a service manager does to the processes of a unit. Cold: asked only when one sent us a signal."""

import _signal

from solo.kernel import STATUS_SIZE, decode, read_file

ENDING = {_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT}  # a second one often means "at once"


def tells_all(signal: int, manager: int, pid: int) -> bool:
    """Has `manager` sent `signal` not only to us, the main process of our unit, but also to `pid`, another process of it?

    While the unit is stopped KillMode says so. `systemctl kill` does not: without --kill-whom it is for all. To be told
    twice to end is then worse for `pid` than to miss what was for us alone, unless it can not notice; the rest is harmless twice.
    """
    try:
        group = read_file("/proc/self/cgroup", 65536)
        if group != read_file(f"/proc/{pid}/cgroup", 65536):
            return False
    except OSError:
        return False
    unit = find_unit(decode(group))
    answer = ask("--user" if manager > 1 else "--system", unit) if unit else []
    if "ActiveState=deactivating" in answer:
        return "KillMode=control-group" in answer
    return bool(answer) and signal in ENDING and notices(pid, signal)


def notices(pid: int, signal: int) -> bool:
    """Does a process catch or block it? Who does neither dies of it, or ignores it, however often."""
    # By newlines alone, which are escaped in what a process calls itself.
    lines = read_file(f"/proc/{pid}/status", STATUS_SIZE).split(b"\n")
    caught, blocked = (int(line[7:], 16) for key in (b"SigCgt:", b"SigBlk:") for line in lines if line.startswith(key))
    return bool((caught | blocked) >> signal - 1 & 1)


def find_unit(group: str) -> str:
    """The unit that a /proc/PID/cgroup names: the last part of the path of systemd's own hierarchy."""
    for line in group.split("\n"):
        if line.startswith("0::") or ":name=systemd:" in line:
            for part in reversed(line.split(":", 2)[2].split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return ""


def ask(scope: str, unit: str) -> list:
    """What systemctl says of a unit, as lines of KEY=VALUE; nothing if it does not answer."""
    import subprocess

    try:
        answer = subprocess.run(
            ["systemctl", scope, "show", "--property=KillMode,ActiveState", "--", unit],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=2, text=True,
        )
        return answer.stdout.split()
    except (OSError, subprocess.SubprocessError):
        return []
