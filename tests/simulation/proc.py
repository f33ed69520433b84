"""/proc of the simulated kernel: what a process of some pid namespace sees of others there."""

import posix as real
from errno import ENOENT, ENXIO, ESRCH

FIRST_PID_NAMESPACE, FIRST_TIME_NAMESPACE = "4026531836", "4026531834"
BOOT_ID = b"5f0e4a56-0000-4000-8000-000000000001"
ALIVE = "RT"


def fail(number):
    raise OSError(number, real.strerror(number))


def find(kernel, process, text):
    """Return the process that /proc/`text` is; None if there is none, or it is of a namespace that is not seen from ours."""
    if text == "self":
        return process
    other = kernel.processes.get(int(text)) if text.isdigit() else None
    if other is None or other.is_reaped:
        return None
    return other if process.namespace in (FIRST_PID_NAMESPACE, other.namespace) else None


def is_own(process, path):
    return path.startswith(("/proc/self", f"/proc/{process.pid}/", "/proc/uptime", "/proc/sys/", "/proc/1/"))


def open_file(kernel, process, path, flags):
    from simulation.files import OpenFile

    part = path.split("/")[2] if path.startswith("/proc/") else ""
    if path == "/dev/tty":
        fail(ENXIO)
    if part == "1" or not part[:1].isdigit() and part != "self":
        if path not in GENERAL and part != "1":
            fail(ENOENT)
    elif find(kernel, process, part) is None:
        fail(ENOENT)
    return kernel.install(process, OpenFile(kernel.make_number(process), "proc", path), flags)


def read_file(kernel, process, path):
    if path in GENERAL:
        return GENERAL[path](kernel)
    _, _, pid, *rest = path.split("/")
    if pid == "1":
        return b"1 (init) S 0 " + b"0 " * 15 + b"1 0 1 0" if rest == ["stat"] else b"init\n"
    other = find(kernel, process, pid)
    if other is None:
        fail(ESRCH)
    return READERS[rest[-1]](kernel, other)


def read_stat(kernel, other):
    fields = b"0 " * 4 + b"%d " % (0 if other.has_executed else 0x40) + b"0 " * 8
    return b"%d (%b) %b %d %b1 0 %d 0" % (
        other.pid,
        other.name.encode(),
        other.state.encode(),
        other.parent,
        fields + b"0 0 ",
        other.start,
    )


def read_status(kernel, other):
    lines = ("Name:\t%s", "Umask:\t%04o", "Tgid:\t%d", "NSpid:\t%d", "Uid:\t0\t0\t0\t0", "SigIgn:\t%016x", "")
    return "\n".join(lines).replace("%s", other.name).encode() % (other.umask, other.pid, other.pid, 0)


def read_children(kernel, other):
    return b"".join(
        [b"%d " % each.pid for each in kernel.processes.values() if each.parent == other.pid and not each.is_reaped]
    )


GENERAL = {
    "/proc/uptime": lambda kernel: b"%.2f 1.00\n" % kernel.now,
    "/proc/sys/kernel/random/boot_id": lambda kernel: BOOT_ID + b"\n",
    "/proc/loadavg": lambda kernel: b"0.00 0.00 0.00 1/1 1\n",
}
READERS = {
    "stat": read_stat,
    "status": read_status,
    "children": read_children,
    "comm": lambda kernel, other: other.name.encode() + b"\n",
    "cmdline": lambda kernel, other: other.name.encode() + b"\0",
    "environ": lambda kernel, other: b"",
}


def list_folder(kernel, process, path):
    _, _, *rest = path.split("/")
    if not rest:
        return [str(pid) for pid in kernel.processes if find(kernel, process, str(pid))] + ["self", "uptime"]
    other = find(kernel, process, rest[0])
    if other is None or other.state not in ALIVE:
        fail(ENOENT)
    return [str(fd) for fd in other.descriptors] if rest[1] == "fd" else [str(other.pid)]


def stat_file(kernel, process, path):
    other = find(kernel, process, path.split("/")[2])
    if other is None:
        fail(ENOENT)
    if "/fd/" in path:
        return kernel.fstat(other, int(path.rpartition("/")[2]))
    return kernel.make_stat(kernel.root)


def read_link(kernel, process, path):
    _, _, pid, *rest = path.split("/")
    other = find(kernel, process, pid)
    if other is None or other.state not in ALIVE and rest[0] != "ns":
        fail(ENOENT)
    if rest[0] == "ns":
        number = other.namespace if rest[1] == "pid" else FIRST_TIME_NAMESPACE
        return f"{rest[1]}:[{number}]"
    if rest[0] == "fd":
        return find_path(kernel, other, int(rest[1]))
    return {"cwd": "/", "exe": f"/bin/{other.name}"}[rest[0]]


def find_path(kernel, other, fd):
    """Return the path of an open file; that of an unnamed one ends in (deleted)."""
    if fd not in other.descriptors:
        fail(ENOENT)
    file = other.descriptors[fd][0]
    if file.kind != "file":
        return f"{file.kind}:[1]"
    found = [path for path, inode in walk(kernel.root, "") if inode is file.target]
    return found[0] if found else f"/{file.target.name} (deleted)"


def walk(folder, path):
    yield path or "/", folder
    for name, inode in folder.entries.items():
        if inode.is_folder:
            yield from walk(inode, f"{path}/{name}")
        else:
            yield f"{path}/{name}", inode
