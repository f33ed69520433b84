"""What a service manager does to the processes of a unit. Cold: asked only when one sent us a signal."""

from solo.kernel import decode, read_file


def stops_all(manager: int, pid: int) -> bool:
    """Is `manager` stopping our unit, `pid` a process of it, and the signal one for all of them (KillMode=control-group)?

    `systemctl kill` can be for the main process alone, so what comes while the unit is not being stopped is not for all.
    """
    try:
        group = read_file("/proc/self/cgroup", 65536)
        if group != read_file(f"/proc/{pid}/cgroup", 65536):
            return False
    except OSError:
        return False
    answer = ask("--system" if manager == 1 else "--user", find_unit(decode(group)))
    return "KillMode=control-group" in answer and "ActiveState=deactivating" in answer


def find_unit(group: str) -> str:
    """The unit that a /proc/PID/cgroup names: the last part of the path of systemd's own hierarchy."""
    for line in group.splitlines():
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
