"""The contestants: the floor, the installed solos and the peers; how to run, time and compare them.

The floor is the least that a launcher in Python can do: `python -IS` that forks, execs and waits
with posix alone, then calls _exit. In a queue it holds flock(2) too.

On a shared machine the same work may take twice as long a second later, so medians from different
seconds cannot be compared. Contestants therefore run in turn. A ratio is computed within one turn,
whose parts are milliseconds apart; median and quartiles are taken of these ratios. A neighbour that
slows a whole turn cancels out. One that slows a part of a turn makes an outlier, which a median
ignores. The quartiles of the ratios show how far to trust their median.
"""

import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measured import describe

ROOT = Path(__file__).resolve().parent.parent.parent.parent
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
SILENT = [(os.POSIX_SPAWN_OPEN, stream, "/dev/null", os.O_RDWR, 0) for stream in (0, 1, 2)]
TRUE = "/usr/bin/true"
SLOW = {"sem": 10, "solo list, 10000 held": 4}  # these run only in every tenth or fourth turn
FLOOR = f"""import posix
pid = posix.fork()
if not pid:
    posix.execve("{TRUE}", ["true"], posix.environ)
posix._exit(posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1]))
"""
FLOOR_IN_QUEUE = """import fcntl, posix, sys
lock = posix.open(sys.argv[1], posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC)
fcntl.flock(lock, fcntl.LOCK_EX)
pid = posix.fork()
if not pid:
    posix.execve(sys.argv[2], sys.argv[2:], posix.environ)
status = posix.waitpid(pid, 0)[1]
fcntl.flock(lock, fcntl.LOCK_UN)
posix._exit(posix.waitstatus_to_exitcode(status))
"""


class Bench:
    """State shared by all measures: a folder, `solo` with its `python`, and `small` for a smoke
    test's sizes.

    `pip` is the folder of programs of a clean environment with solo, None if `launcher` is
    measured.
    """

    def __init__(self, folder: Path, launcher=None, small=False):
        self.folder, self.small, self.pip = folder, small, None
        self.solo, self.python = (
            (str(Path(launcher).resolve()), sys.executable) if launcher else self.install()
        )
        (folder / "floor.py").write_text(FLOOR)
        (folder / "floor-in-queue.py").write_text(FLOOR_IN_QUEUE)
        self.floor = [self.python, "-IS", str(folder / "floor.py")]
        self.floor_in_queue = [
            self.python,
            "-IS",
            str(folder / "floor-in-queue.py"),
            str(folder / "floor-lock"),
        ]
        os.environ["SOLO_DIR"] = str(folder / "names")

    def install(self):
        """Install solo in each way; return the paths of that of `make install` and its Python."""
        prefix, venv = self.folder / "usr", self.folder / "venv"
        make = ["make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}", f"PYTHON={sys.executable}"]
        subprocess.run(make, check=True, **QUIET)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run(
            [venv / "bin/pip", "install", "-q", "--disable-pip-version-check", ROOT],
            check=True,
            **QUIET,
        )
        self.pip = str(venv / "bin")
        subprocess.run(
            [sys.executable, f"{ROOT}/packaging/pyz.py", self.folder / "solo.pyz"],
            check=True,
            **QUIET,
        )
        return str(prefix / "bin/solo"), sys.executable

    def list_peers(self) -> dict:
        lock = str(self.folder / "lock")
        peers = {
            "flock(1)": ["flock", "-n", lock],
            "flock -o": ["flock", "-n", "-o", lock],
            "lckdo": ["lckdo", "-w", lock],
            "setlock": ["setlock", "-n", lock],
            "chpst -L": ["chpst", "-L", lock],
            "s6-setlock": ["s6-setlock", "-n", lock],
            "sem": ["sem", "--fg", "--id", "bench"],
        }
        return {name: [*words, TRUE] for name, words in peers.items() if shutil.which(words[0])}


def spawn(words) -> int:
    """Start `words` with all streams on /dev/null; return the pid."""
    return os.posix_spawn(shutil.which(words[0]), words, os.environ, file_actions=SILENT)


def time_run(words, status=0) -> float:
    """Run `words` to its end; return the milliseconds."""
    begin = time.perf_counter()
    ended = os.waitstatus_to_exitcode(os.waitpid(spawn(words), 0)[1])
    milliseconds = 1000 * (time.perf_counter() - begin)
    assert ended == status, f"{words} ended with {ended}"
    return milliseconds


def run_in_turn(contestants: dict, rounds: int, against, run=time_run) -> "Series":
    """Call `run` for every contestant once a turn, in a random order, so that none always follows
    the same one.

    `contestants` are {name: arguments of `run`}. Discard a first turn.
    """
    series, dice = Series("ms", against), random.Random(0)
    for turn in range(-1, rounds):
        names = [name for name in contestants if turn % SLOW.get(name, 1) == 0 or turn < 0]
        dice.shuffle(names)
        times = {name: run(*contestants[name]) for name in names}
        if turn >= 0:
            series.add({name: times[name] for name in contestants if name in times})
    return series


class Series:
    """The turns of one measure, each {row: value in `unit`}. `against(row)` returns the rows to
    compare a row with.
    """

    def __init__(self, unit: str, against=lambda row: ()):
        self.unit, self.against, self.turns = unit, against, []

    def add(self, turn: dict):
        self.turns.append(turn)

    def summarize(self) -> dict:
        rows = list(dict.fromkeys(row for turn in self.turns for row in turn))
        return {
            "unit": self.unit,
            "turns": len(self.turns),
            "rows": {row: self.summarize_row(row) for row in rows},
        }

    def summarize_row(self, row) -> dict:
        values = [turn[row] for turn in self.turns if row in turn]
        ratios = {
            other: self.take_ratios(row, other) for other in self.against(row) if other != row
        }
        cuts = {other: cut(values) for other, values in ratios.items() if values}
        return {"turns": len(values), "quartiles": cut(values), "ratios": cuts}

    def take_ratios(self, row, other) -> list:
        return [turn[row] / turn[other] for turn in self.turns if row in turn and turn.get(other)]


def cut(values: list) -> list:
    """Return [first quartile, median, third quartile]. Fewer than five values have no quarters:
    take the extremes.
    """
    median, ends = statistics.median(values), (min(values), max(values))
    first, last = (
        ends if len(values) < 5 else statistics.quantiles(values, n=4, method="inclusive")[::2]
    )
    return [float(f"{value:.4g}") for value in (first, median, last)]


def describe_machine() -> dict:
    """Return what a number depends on, without the host name."""
    model = re.search(
        r"^(?:model name|CPU part)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M
    )
    load = round(os.getloadavg()[0], 1)
    return {**describe(), "cpu": model[1] if model else "", "cores": os.cpu_count(), "load": load}


class Holder:
    """`words` in front of a `cat`, which runs once the constructor returns and ends on
    release().
    """

    def __init__(self, words):
        self.process = subprocess.Popen(
            [*words, shutil.which("cat")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.process.stdin.write(b"\n")
        assert self.process.stdout.read(1) == b"\n", f"{words} did not run"
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.process.stdout.close()
        self.process.wait()

    def release(self):
        self.process.stdin.close()


def read_cost(pid: int) -> tuple:
    """Return (state, nanoseconds of CPU, number of sleeps) of a sleeping or dead process."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    nanoseconds = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return status["State"][0], nanoseconds, int(status["voluntary_ctxt_switches"])


def wait_asleep(pids: list) -> list:
    """Wait until all processes sleep and none ran between two looks; return their costs so far."""
    costs = None
    while True:
        before, costs = costs, [read_cost(pid) for pid in pids]
        assert not any(state == "Z" for state, _, _ in costs), "one of them has ended"
        if costs == before and all(state == "S" for state, _, _ in costs):
            return costs
        time.sleep(0.01)
