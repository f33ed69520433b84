"""The contestants: the floor, an installed solo and the peers; and functions that run and time one of them.

The floor is the least that a launcher in Python can do: `python -IS` that forks, execs and waits with posix alone, then calls
_exit. In a queue it holds flock(2) too.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
SILENT = [(os.POSIX_SPAWN_OPEN, stream, "/dev/null", os.O_RDWR, 0) for stream in (0, 1, 2)]
TRUE = "/usr/bin/true"
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
    """State shared by all measures: a folder, `solo` with its `python`, and `small` for a smoke test's sizes.

    `pip_solo` and `pip_python` are those of a clean environment, None if this Bench installs nothing.
    """

    def __init__(self, folder: Path, launcher=None, small=False):
        self.folder, self.small, self.pip_solo, self.pip_python = folder, small, None, None
        self.solo, self.python = (str(Path(launcher).resolve()), sys.executable) if launcher else self.install()
        (folder / "floor.py").write_text(FLOOR)
        (folder / "floor-in-queue.py").write_text(FLOOR_IN_QUEUE)
        self.floor = [self.python, "-IS", str(folder / "floor.py")]
        self.floor_in_queue = [self.python, "-IS", str(folder / "floor-in-queue.py"), str(folder / "floor-lock")]
        os.environ["SOLO_DIR"] = str(folder / "names")

    def install(self):
        """Install solo by `make install`, and by pip into a clean environment. Return the paths of solo and its Python."""
        prefix, venv = self.folder / "usr", self.folder / "venv"
        subprocess.run(
            ["make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}", f"PYTHON={sys.executable}"], check=True, **QUIET
        )
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", ROOT], check=True, **QUIET)
        self.pip_solo, self.pip_python = str(venv / "bin/solo"), str(venv / "bin/python")
        return str(prefix / "bin/solo"), str(prefix / "lib/solo/bin/python")

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


class Holder:
    """`words` in front of a `cat`, which runs once the constructor returns and ends on release()."""

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
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
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
