"""psutil, or without it the part of it that the views use, read from /proc: a single file of solo cannot hold a library in C."""

import posix
import sys
from contextlib import nullcontext
from types import SimpleNamespace

from solo.identity import parse_stat
from solo.kernel import decode, read_file
from solo.tickets import read_boot_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

Error = OSError
STATES = {  # the words of psutil
    "R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "tracing-stop", "Z": "zombie", "X": "dead",
    "I": "idle",
}  # fmt: skip
TICKS, PAGE = posix.sysconf("SC_CLK_TCK"), posix.sysconf("SC_PAGE_SIZE")


def find_psutil() -> "Any":
    """Return the module psutil, or this one if it is not installed."""
    try:
        import psutil
    except ModuleNotFoundError:
        return sys.modules[__name__]
    return psutil


class Process:
    """A process as it was when it was looked at. Raises OSError if it is gone or hidden."""

    def __init__(self, pid: int) -> None:
        data = read_file(f"/proc/{pid}/stat")
        stat = parse_stat(data)
        fields = data[data.rindex(b")") + 2 :].split()
        self.pid, self.state = pid, stat.state
        user, system = int(fields[11]), int(fields[12])
        self.times = SimpleNamespace(user=user / TICKS, system=system / TICKS)
        self.memory = SimpleNamespace(
            rss=int(read_file(f"/proc/{pid}/statm").split()[1]) * PAGE
        )  # exact: that in stat lags
        self.started = read_boot_time() + stat.start / TICKS
        self.info = {  # for process_iter
            "ppid": stat.parent, "cpu_times": self.times, "memory_info": self.memory, "create_time": self.started
        }  # fmt: skip
        self.title = decode(data[data.index(b"(") + 1 : data.rindex(b")")])

    def oneshot(self) -> "nullcontext[None]":
        return nullcontext()

    def cpu_times(self) -> SimpleNamespace:
        return self.times

    def memory_info(self) -> SimpleNamespace:
        return self.memory

    def create_time(self) -> float:
        return self.started

    def status(self) -> str:
        return STATES.get(self.state, self.state)

    def name(self) -> str:
        return self.title

    def cmdline(self) -> "list[str]":
        return [decode(word) for word in read_file(f"/proc/{self.pid}/cmdline", 1 << 20).split(b"\0")[:-1]]

    def children(self) -> "list[Process]":
        return [process for process in process_iter() if process.info["ppid"] == self.pid]


def process_iter(_: "list[str] | None" = None) -> "Iterator[Process]":
    """Yield a Process for each process that can be seen."""
    for entry in posix.listdir("/proc"):
        if entry.isdigit():
            try:
                yield Process(int(entry))
            except OSError:
                continue  # it has ended, or is hidden
