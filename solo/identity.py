"""Is a pid still that process? It identifies a process only together with its start time, boot and
pid namespace.

A wrong "dead" lets two commands run at once: a process is "dead" only if this process would see it
alive.
"""

import posix

from solo.errors import SoloError
from solo.kernel import ENOENT, STATUS_SIZE, decode, read_boot_clock, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

Process = tuple[int, int]  # pid, start
FIRST_TIME_NAMESPACE = "4026531834"  # PROC_TIME_INIT_INO of the kernel
FIRST_PID_NAMESPACE = "4026531836"  # PROC_PID_INIT_INO
DEAD_STATES = ("Z", "X", "x")
HOLDER = b"solo-holder"  # the name of a process of process/holder.py, in /proc/PID/comm


class Stat:
    """From /proc/PID/stat: `pid`, `state` (a letter), `parent` (pid), `threads`, `start` (clock
    ticks since boot).
    """

    def __init__(self, pid: int, state: str, parent: int, threads: int, start: int) -> None:
        self.pid = pid
        self.state = state
        self.parent = parent
        self.threads = threads
        self.start = start

    def is_dead(self) -> bool:
        """Return whether the process has ended. If only its main thread has, the state is Z too,
        but others live.
        """
        return self.state in DEAD_STATES and self.threads <= 1

    def is_same(self, start: int, theirs: "Origin", mine: "Origin") -> bool:
        """Return whether it lives, and started at `start` as seen in the origin `theirs`: time
        namespaces shift that.
        """
        apart = abs((self.start - mine.shift) - (start - theirs.shift))
        # rounding loses a tick
        return not self.is_dead() and apart <= (theirs.time_namespace != mine.time_namespace)


class Origin:
    """The origin of an identity: boot, pid and time namespaces, `shift` of start times in clock
    ticks, host.
    """

    def __init__(
        self, boot: str, pid_namespace: str, time_namespace: str, host: str, shift: int = 0
    ) -> None:
        self.boot = boot
        self.pid_namespace = pid_namespace
        self.time_namespace = time_namespace
        self.host = host
        self.shift = shift


def parse_stat(data: bytes) -> Stat:
    """Return the Stat in a /proc/PID/stat. Raises ValueError, IndexError if it is torn."""
    # The process's name may contain spaces, newlines and ")": split only after the last ")".
    name_end = data.rindex(b")")
    # no further: right after fork(2) each new object copies a page
    fields = data[name_end + 2 :].split(None, 20)
    return Stat(
        int(data[: data.index(b" ")]),
        decode(fields[0]),
        int(fields[1]),
        int(fields[17]),
        int(fields[19]),
    )


def read_stat(pid: "int | str") -> Stat:
    """Return the Stat of a process. Raises OSError if it is gone or hidden."""
    return parse_stat(read_file(f"/proc/{pid}/stat"))


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process. False if it cannot be seen."""
    try:
        return read_stat(pid).state == "T"
    except OSError:
        return False


def read_self() -> "Process":
    """Return (pid, start) of this process. Raises SoloError if /proc shows another pid namespace,
    with other pids.
    """
    stat = read_stat("self")
    if stat.pid != posix.getpid():
        raise SoloError(
            "/proc is of another pid namespace (unshare --mount-proc mounts the right one)"
        )
    return stat.pid, stat.start


def read_origin() -> Origin:
    """Return the origin of this process. Raises SoloError if /proc cannot be used: identities could
    not be verified.
    """
    try:
        boot = decode(read_file("/proc/sys/kernel/random/boot_id")).strip()
        time_namespace = read_namespace("self", "time")
        shift = 0 if time_namespace in (FIRST_TIME_NAMESPACE, "-") else read_shift()
        return Origin(
            boot, read_namespace("self", "pid"), time_namespace, posix.uname().nodename, shift
        )
    except OSError as error:
        is_part = error.errno == ENOENT and posix.access("/proc/self/stat", posix.F_OK)
        remedy = " (in a unit: ProcSubset=all)" if is_part else ""
        raise SoloError(
            f"cannot read {error.filename if is_part else '/proc'}: {error.strerror}{remedy}"
        ) from None


def read_shift() -> int:
    """Return the clock ticks by which this time namespace shifts the time since boot."""
    seconds, nanoseconds = read_file("/proc/self/timens_offsets").partition(b"boottime")[2].split()
    return round((int(seconds) + int(nanoseconds) / 1e9) * posix.sysconf("SC_CLK_TCK"))


def read_uptime(origin: Origin) -> float:
    """Return the seconds since boot, as the first time namespace has them."""
    return read_boot_clock() - (origin.shift / posix.sysconf("SC_CLK_TCK") if origin.shift else 0)


def read_namespace(pid: "int | str", kind: str) -> str:
    """Return the inode number of a process's namespace, or - on a kernel without that kind. Raises
    OSError.
    """
    try:
        return posix.readlink(f"/proc/{pid}/ns/{kind}").rstrip("]").rpartition("[")[2]
    except FileNotFoundError:
        return "-"


def is_alive(pid: int, start: int, theirs: Origin, mine: Origin) -> "bool | None":
    """Return whether the process lives, None if it cannot be seen: on another host, or in a pid
    namespace that is not below ours. Raises ValueError, IndexError if its /proc/PID/stat is torn.
    """
    if theirs.boot != mine.boot:
        return False if theirs.host == mine.host else None
    if theirs.pid_namespace != mine.pid_namespace:
        return search_everywhere(pid, start, theirs, mine)
    try:
        return read_stat(pid).is_same(start, theirs, mine)
    except OSError:
        return is_hidden(pid)


def search_everywhere(pid: int, start: int, theirs: Origin, mine: Origin) -> "bool | None":
    """Return whether the process lives in a pid namespace that /proc shows; None if it may be in
    one that it does not.
    """
    is_unsure = False
    for _, is_same in match_processes(pid, start, theirs, mine):
        if is_same:
            return True
        is_unsure = True
    # In the first pid namespace /proc shows the processes of all others, unless hidepid hides some.
    sees_all = mine.pid_namespace == FIRST_PID_NAMESPACE and posix.access(
        "/proc/1/stat", posix.R_OK
    )
    return False if sees_all and not is_unsure else None


def is_hidden(pid: int) -> bool:
    """Return whether a process exists that /proc does not show, because of hidepid or an error of
    reading.
    """
    try:
        posix.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False
    except OSError:
        return True


def walk_parents(pid: int) -> "Iterator[Process]":
    """Yield (pid, start) of a process and of each of its ancestors, as far as they can be seen."""
    while pid > 0:
        try:
            stat = read_stat(pid)
        except OSError:
            return
        yield pid, stat.start
        pid = stat.parent


def descends_from(pid: int, ancestor: int) -> bool:
    """Return whether a process is `ancestor` or one of its descendants, as far as that can be
    seen.
    """
    return any(process[0] == ancestor for process in walk_parents(pid))


def find_pid(process: "Process", theirs: Origin, mine: Origin) -> int:
    """Return our pid of (pid, start) in `theirs`, in our own pid namespace dead or alive; 0 if it
    cannot be seen from here.
    """
    if theirs.boot != mine.boot:
        return 0
    if theirs.pid_namespace == mine.pid_namespace:
        return process[0]
    return next((found for found, is_same in match_processes(*process, theirs, mine) if is_same), 0)


def match_processes(
    pid: int, start: int, theirs: Origin, mine: Origin
) -> "Iterator[tuple[int, bool | None]]":
    """Yield (our pid, True) of each live process that is `pid` there, (our pid, None) of each that
    could be.
    """
    for entry in posix.listdir("/proc"):
        if (
            entry.isdigit()
            and (is_same := match_process(entry, pid, start, theirs, mine)) is not False
        ):
            yield int(entry), is_same


def match_process(entry: str, pid: int, start: int, theirs: Origin, mine: Origin) -> "bool | None":
    """Return whether /proc/`entry` is that process; None if its namespace or its pid there cannot
    be read.
    """
    try:
        namespace = read_namespace(entry, "pid")
    except OSError:
        namespace = ""
    try:
        if namespace not in ("", theirs.pid_namespace) or (inner := read_inner_pid(entry)) not in (
            0,
            pid,
        ):
            return False
        is_same = read_stat(entry).is_same(start, theirs, mine)
    except OSError:
        return False
    return None if is_same and not (namespace and inner) else is_same


def read_inner_pid(entry: str) -> int:
    """Return the pid of /proc/`entry` in its own pid namespace; 0 if the kernel does not say."""
    return int((read_status(entry, b"NSpid:") or [b"0"])[-1])


def read_status(pid: "int | str", key: bytes) -> "list[bytes]":
    """Return the values of the line `key` of /proc/PID/status, none if it is missing. Raises
    OSError.
    """
    # Split at newlines only: the kernel escapes them in the process's name, and no other line
    # break.
    lines = read_file(f"/proc/{pid}/status", STATUS_SIZE).split(b"\n")
    return next((line.split()[1:] for line in lines if line.startswith(key)), [])
