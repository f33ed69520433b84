"""/proc of the simulated kernel: what a process of some pid namespace sees of others there."""

import posix as real
from errno import ENOENT, ENXIO, ESRCH

FIRST_PID_NAMESPACE, FIRST_TIME_NAMESPACE = "4026531836", "4026531834"
ALIVE = "RT"


def fail(number):
    raise OSError(number, real.strerror(number))


def find(kernel, process, text, error=ENOENT):
    """Return the process that /proc/`text` is. Raises OSError if there is none, or it is of a
    namespace that is not seen from ours.
    """
    if text == "self":
        return process
    other = kernel.processes.get(int(text)) if text.isdigit() else None
    if other is not None and other is not process and other.left_early:
        kernel.violate(f"pid {process.pid} looks at pid {text}: is_end_independent is wrong")
    if (
        other is None
        or other.is_reaped
        or process.namespace not in (FIRST_PID_NAMESPACE, other.namespace)
    ):
        fail(error)
    return other


def is_own(process, path):
    return path.startswith(
        ("/proc/self", f"/proc/{process.pid}/", "/proc/uptime", "/proc/sys/", "/proc/1/")
    )


def is_of_pair(process):
    """Return whether it is one of the two processes of --tree, or their child before its exec."""
    return any(file.kind == "socket" for file, _ in process.descriptors.values())


def find_file(kernel, process, path):
    """Return `path` if it can be opened."""
    if path == "/dev/tty":
        fail(ENXIO)
    part = path.split("/")[2]
    if path not in GENERAL and part != "1":
        find(kernel, process, part)
    return path


def read_file(kernel, process, path):
    if path in GENERAL:
        return GENERAL[path](kernel)
    _, _, pid, *rest = path.split("/")
    if pid == "1":
        return b"1 (init) S 0 " + b"0 " * 15 + b"1 0 1 0" if rest == ["stat"] else b"init\n"
    return READERS[rest[-1]](kernel, find(kernel, process, pid, ESRCH)).encode()


def read_stat(kernel, other):
    flags = 0 if other.has_executed else 0x40
    return f"{other.pid} ({other.name}) {other.state} {other.parent} 0 0 0 0 {flags} {'0 ' * 10}1 0 {other.start} 0"


def read_status(kernel, other):
    lines = f"Name:\t{other.name}", "Umask:\t0000", f"Tgid:\t{other.pid}", f"NSpid:\t{other.pid}"
    return "\n".join([*lines, "Uid:\t0\t0\t0\t0", f"SigIgn:\t{0:016x}", ""])


GENERAL = {
    "/proc/uptime": lambda kernel: b"%.2f 1.00\n" % kernel.now,
    "/proc/sys/kernel/random/boot_id": lambda kernel: b"5f0e4a56-0000-4000-8000-000000000001\n",
    "/proc/loadavg": lambda kernel: b"0.00 0.00 0.00 1/1 1\n",
}
READERS = {
    "stat": read_stat,
    "status": read_status,
    "children": lambda kernel, other: "".join(
        [f"{child.pid} " for child in kernel.find_children(other, -1)]
    ),
    "comm": lambda kernel, other: f"{other.name}\n",
    "cmdline": lambda kernel, other: f"{other.name}\0",
}


def find_alive(kernel, process, pid):
    other = find(kernel, process, pid)
    return other if other.is_alive else fail(ENOENT)


def list_folder(kernel, process, path):
    _, _, *rest = path.split("/")
    if rest:
        other = find_alive(kernel, process, rest[0])
        return list(map(str, other.descriptors if rest[1] == "fd" else [other.pid]))
    seen = [each for each in kernel.processes.values() if not each.is_reaped]
    is_seen = process.namespace == FIRST_PID_NAMESPACE
    return [str(each.pid) for each in seen if is_seen or each.namespace == process.namespace] + [
        "self",
        "uptime",
    ]


def forget_strangers(kernel, process, result):
    """Return what a process of --tree keeps of what it has read in /proc, or of a file: all but
    other processes than its children.
    """
    if not is_of_pair(process):
        return result
    children = [str(child.pid) for child in kernel.find_children(process, -1)]
    if isinstance(result, bytes):
        pid, is_stat, _ = result.partition(b" (")
        is_strange = is_stat and pid.isdigit() and pid.decode() not in children
        return None if is_strange and int(pid) != process.pid else result
    return tuple([name for name in result if not name.isdigit() or name in children])


def stat_file(kernel, process, path):
    if path.startswith("/proc/1/"):  # of every pid namespace
        return kernel.make_stat(kernel.root)
    other = find(kernel, process, path.split("/")[2])
    return (
        kernel.fstat(other, int(path.rpartition("/")[2]))
        if "/fd/" in path
        else kernel.make_stat(kernel.root)
    )


def read_link(kernel, process, path):
    _, _, pid, kind, *rest = path.split("/")
    if kind == "ns":
        number = find(kernel, process, pid).namespace if rest == ["pid"] else FIRST_TIME_NAMESPACE
        return f"{rest[0]}:[{number}]"
    other = find_alive(kernel, process, pid)
    return (
        find_path(kernel, other, int(rest[0]))
        if kind == "fd"
        else {"cwd": "/", "exe": f"/bin/{other.name}"}[kind]
    )


def find_path(kernel, other, fd):
    """Return the path of an open file; that of one without a name ends in (deleted)."""
    file = other.descriptors[fd][0] if fd in other.descriptors else fail(ENOENT)
    if file.kind != "file":
        return f"{file.kind}:[1]"
    paths = (path for path, inode in walk(kernel.root, "") if inode is file.target)
    return next(paths, f"/{file.target.name} (deleted)")


def walk(folder, path):
    yield path or "/", folder
    for name, inode in folder.entries.items():
        yield from walk(inode, f"{path}/{name}") if inode.is_folder else [(f"{path}/{name}", inode)]
