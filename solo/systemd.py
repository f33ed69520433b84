"""What a service manager does to the processes of a unit. Cold: asked only when one sent us a signal."""

from solo.kernel import decode, read_file


def tells_all(manager: int, pid: int) -> bool:
    """Is `pid` in our control group, in a unit whose every process `manager` signals (KillMode=control-group)?"""
    try:
        group = read_file("/proc/self/cgroup", 65536)
        if group != read_file(f"/proc/{pid}/cgroup", 65536):
            return False
    except OSError:
        return False
    which = "--system" if manager == 1 else "--user"
    return read_kill_mode(which, find_unit(decode(group))) in ("control-group", "")


def find_unit(group: str) -> str:
    """The unit that a /proc/PID/cgroup names: the last part of the path of systemd's own hierarchy."""
    for line in group.splitlines():
        if line.startswith("0::") or ":name=systemd:" in line:
            for part in reversed(line.split(":", 2)[2].split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return ""


def read_kill_mode(which: str, unit: str) -> str:
    """KillMode of a unit, as systemctl tells; empty if it can not be told."""
    import subprocess

    try:
        answer = subprocess.run(
            ["systemctl", which, "show", "--value", "--property=KillMode", "--", unit],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=2, text=True,
        )
        return answer.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
