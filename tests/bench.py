"""`make bench`: what solo costs beside a floor and its peers, taken in turn in one run.

Compared are first quartiles: on a machine with other tenants half of all runs may wait for a core, and a median then tells of them.

The floor is the least that any launcher in Python can do: `python -IS` that forks, execs and waits, by posix alone, and
leaves by _exit. The first argument is the number of rounds (default 100).
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOOR = """import posix
pid = posix.fork()
if not pid:
    posix.execve("/usr/bin/true", ["true"], posix.environ)
posix._exit(posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1]))
"""
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
LINE = 40
FLOCK, POLL = {"x86_64": (73, 7), "aarch64": (32, 73)}[platform.machine()]  # their numbers, as /proc/PID/syscall tells them


def install(folder):
    """(solo of make install, its python, solo of pip in a clean venv)"""
    prefix, venv = folder / "usr", folder / "venv"
    subprocess.run(["make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}", f"PYTHON={sys.executable}"], check=True, **QUIET)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", ROOT], check=True, **QUIET)
    return str(prefix / "bin/solo"), str(prefix / "lib/solo/bin/python"), str(venv / "bin/solo")


def list_contestants(folder, solo, python, pip_solo):
    floor = folder / "floor.py"
    floor.write_text(FLOOR)
    lock = str(folder / "lock")
    peers = {
        "flock(1)": ["flock", "-n", lock], "flock -o": ["flock", "-n", "-o", lock], "lckdo": ["lckdo", "-w", lock],
        "setlock": ["setlock", "-n", lock], "chpst -L": ["chpst", "-L", lock], "s6-setlock": ["s6-setlock", "-n", lock],
        "sem": ["sem", "--fg", "--id", "bench"],
    }
    contestants = {
        "true alone": ["/usr/bin/true"], "floor": [python, "-IS", str(floor)],
        "solo, make install": [solo, "-n", "job", "--", "/usr/bin/true"],
        "solo, default name": [solo, "--", "/usr/bin/true"],
        "solo, pip": [pip_solo, "-n", "job", "--", "/usr/bin/true"],
    }
    return contestants | {name: [*words, "/usr/bin/true"] for name, words in peers.items() if shutil.which(words[0])}


def time_run(words):
    begin = time.perf_counter()
    status = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(shutil.which(words[0]), words, os.environ), 0)[1])
    assert status == 0, words
    return time.perf_counter() - begin


def time_line(hold, wait, is_waiting):
    """Seconds per hand-over: LINE of them stand in line, and each runs `true`."""
    holder = subprocess.Popen([*hold, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    time.sleep(0.1)
    line = [subprocess.Popen([*wait, "/usr/bin/true"], **QUIET) for _ in range(LINE)]
    while not all(is_waiting(process.pid) for process in line):
        time.sleep(0.02)
    begin = time.perf_counter()
    holder.stdin.close()
    for process in line:
        process.wait()
    seconds = time.perf_counter() - begin
    holder.wait()
    return seconds / LINE


def time_orphan(solo):
    """Seconds from the end of an orphan to the end of `true`, whose launcher stood in line for it."""
    holder = subprocess.Popen([solo, "-n", "orphan", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdin.write(b"\n")
    holder.stdin.flush()
    holder.stdout.read(1)
    holder.kill()
    waiter = subprocess.Popen([solo, "-n", "orphan", "-w", "forever", "/usr/bin/true"], **QUIET)
    while not is_in(POLL, waiter.pid):
        time.sleep(0.02)
    begin = time.perf_counter()
    holder.stdin.close()
    waiter.wait()
    seconds = time.perf_counter() - begin
    holder.wait()
    return seconds


def time_slots(solo):
    """Seconds from SIGKILL of one of three slots' launcher and command to the end of `true`, whose launcher stood in line."""
    holders = [subprocess.Popen([solo, "-n", "slots", "--slots", "3", "--no-orphan", "--", "cat"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE) for _ in range(3)]
    for holder in holders:
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        holder.stdout.read(1)
    waiter = subprocess.Popen([solo, "-n", "slots", "--slots", "3", "-w", "forever", "/usr/bin/true"], **QUIET)
    while not is_in(POLL, waiter.pid):
        time.sleep(0.02)
    begin = time.perf_counter()
    holders[1].kill()
    waiter.wait()
    seconds = time.perf_counter() - begin
    for holder in holders:
        holder.communicate()
    return seconds


def is_in_flock(pid):
    return is_in(FLOCK, pid)


def is_in(call, pid):
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith(f"{call} ")
    except OSError:
        return False


PYTHON = """
import json, os, statistics, sys, time
import fasteners, filelock, solo

os.environ["SOLO_DIR"] = sys.argv[1] + "/python"
locks = {
    "solo.Lock": solo.Lock("job"), "filelock": filelock.FileLock(sys.argv[1] + "/filelock"),
    "fasteners": fasteners.InterProcessLock(sys.argv[1] + "/fasteners"),
}
times = {name: [] for name in locks}
for turn in range(int(sys.argv[2])):
    for name, lock in locks.items():
        begin = time.perf_counter()
        with lock:
            pass
        times[name].append(time.perf_counter() - begin)
print(json.dumps({name: statistics.quantiles(values, n=4)[0] * 1e6 for name, values in times.items()}))
"""
VIEWS = (("list",), ("show", "name007"), ("history",), ("metrics",), ("top",))


def time_python(folder, pip_solo, rounds):
    """Microseconds, first quartile, of an uncontended acquire and release from Python, beside two well-known libraries."""
    python = Path(pip_solo).with_name("python")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "filelock", "fasteners"], check=True, **QUIET)
    return json.loads(subprocess.run([python, "-c", PYTHON, folder, str(rounds * 20)], check=True, stdout=subprocess.PIPE).stdout)


def time_views(folder, solo):
    """{view: (ms with nothing held, ms with 300 names held)}, into a pipe."""
    environment = {**os.environ, "SOLO_DIR": str(folder / "views")}
    times = {}
    for count in (0, 300):
        words = [word for number in range(count) for word in ("-n", f"name{number:03d}")]
        holder = subprocess.Popen([solo, *words, "--", "cat"], stdin=subprocess.PIPE, env=environment) if count else None
        time.sleep(1.5 if count else 0)
        for view in VIEWS:
            runs = []
            for _ in range(5):
                begin = time.perf_counter()
                subprocess.run([solo, *view], env=environment, check=True, **QUIET)
                runs.append(1000 * (time.perf_counter() - begin))
            times.setdefault(view[0], []).append(statistics.median(runs))
        if holder is not None:
            holder.communicate()
    return times


ENGINE = """
import json, statistics, sys, time
sys.path[:0] = [sys.argv[3]]
from solo.engines.engine import Note
from solo.engines.lease import Terms
from solo.engines.lines import Wait
from solo.engines.targets import open_engine
from solo.queue import wait_unseen
from solo.rule import EXCLUSIVE, Claim

times = {"take": [], "renew": [], "release": []}
engine = open_engine(sys.argv[1], Terms(15.0))
for turn in range(int(sys.argv[2])):
    engine.connect()
    for step in times:
        begin = time.perf_counter()
        engine.take("warm", Note(Claim(EXCLUSIVE)), Wait(None, wait_unseen)) if step == "take" else getattr(engine, step)()
        times[step].append(time.perf_counter() - begin)
print(json.dumps({step: 1000 * statistics.quantiles(values, n=4)[0] for step, values in times.items()}))
"""


def time_engines(folder, rounds):
    """{engine: {launch: ms of a whole run of `true`, take, renew, release: ms in a process that goes on}}, of real servers on
    loopback; first quartiles, in turn with etcdctl's own lock.
    """
    import pytest
    from servers import SERVERS

    script = folder / "solo-engines"
    site = next(path for path in sys.path if path.endswith("site-packages"))
    source = (ROOT / "solo/__main__.py").read_text().partition("\n")[2]
    script.write_text(f"#!{sys.executable} -IS\nimport sys\nsys.path[:0] = [{str(ROOT)!r}, {site!r}]\n{source}")
    script.chmod(0o755)
    results = {}
    for name, kind in SERVERS.items():
        try:
            server = kind(folder / name).start()
        except pytest.skip.Exception:
            continue
        contestants = {name: [str(script), "--via", server.url, "-n", "cold", "/usr/bin/true"]}
        if name == "etcd":
            os.environ["ETCDCTL_API"] = "3"
            contestants["etcdctl lock"] = ["etcdctl", "--endpoints", f"127.0.0.1:{server.port}", "lock", "cold", "/usr/bin/true"]
        times = {who: [] for who in contestants}
        for _ in range(rounds):
            for who, words in contestants.items():
                times[who].append(time_run(words))
        for who, values in times.items():
            results[who] = {"launch": 1000 * statistics.quantiles(values, n=4)[0]}
        words = [sys.executable, "-c", ENGINE, server.url, str(rounds), str(ROOT)]
        results[name] |= json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        server.stop()
    return results


def read_resident(solo):
    """kB of a launcher whose command runs: (resident, proportional)."""
    process = subprocess.Popen([solo, "-n", "resident", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.read(1)
    time.sleep(0.05)
    rollup = dict(line.split(":") for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:])
    process.communicate()
    return [int(rollup[key].split()[0]) for key in ("Rss", "Pss")]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        os.environ["SOLO_DIR"] = str(folder / "names")
        solo, python, pip_solo = install(folder)
        contestants = list_contestants(folder, solo, python, pip_solo)
        times = {name: [] for name in contestants}
        for turn in range(rounds + 5):
            for name, words in contestants.items():
                if name == "sem" and turn % 10:
                    continue  # 60 ms a time
                seconds = time_run(words)
                if turn >= 5:
                    times[name].append(seconds)
        lines = {"solo": [], "flock(1)": []}
        lock = str(folder / "line")
        for _ in range(max(3, rounds // 10)):
            lines["flock(1)"].append(time_line(["flock", lock], ["flock", lock], is_in_flock))
            lines["solo"].append(time_line([solo, "-n", "line"], [solo, "-n", "line", "-w", "forever"], is_in_flock))
        orphan = statistics.median(time_orphan(solo) for _ in range(10))
        slots = [time_slots(solo) for _ in range(10)]
        memory = read_resident(solo)
        views = time_views(folder, solo)
        engines = time_engines(folder, rounds)
        python_locks = time_python(folder, pip_solo, rounds)
    launch = {name: [1000 * cut for cut in statistics.quantiles(values, n=4)] for name, values in times.items()}
    handover = {name: statistics.quantiles(values, n=4)[0] * 1000 for name, values in lines.items()}
    floor = launch["floor"][0]
    print(f"{platform.platform()}, Python {platform.python_version()}, {time.strftime('%F')}, {rounds} rounds\n")
    print(f"{'launch, ms':<22}{'quartile':>9}{'median':>9}{'third':>9}{'/ floor':>9}")
    for name, (quartile, median, third) in sorted(launch.items(), key=lambda item: item[1]):
        print(f"{name:<22}{quartile:9.2f}{median:9.2f}{third:9.2f}{quartile / floor:9.2f}")
    print(f"\nhand-over in a line of {LINE}, ms: solo {handover['solo']:.2f}, flock(1) {handover['flock(1)']:.2f}, "
          f"ratio {handover['solo'] / handover['flock(1)']:.2f}")
    print(f"from an orphan's end to the end of a waiting `true`: {1000 * orphan:.1f} ms")
    print(f"from SIGKILL of one of three slots' holders to the end of a waiting `true`: {1000 * statistics.median(slots):.1f} ms, "
          f"at most {1000 * max(slots):.1f}")
    print(f"resident while the command runs: {memory[0]} kB, proportional {memory[1]} kB")
    print("acquire and release from Python, us: " + ", ".join(f"{name} {value:.0f}" for name, value in python_locks.items()))
    for view, (empty, full) in views.items():
        print(f"solo {view}: {empty:.0f} ms, with 300 names {full:.0f} ms")
    for name, steps in engines.items():
        print(f"{name}: " + ", ".join(f"{step} {value:.1f} ms" for step, value in steps.items()))
    results = {"engines": engines, "launch": launch, "handover": handover, "memory": memory, "python": python_locks, "views": views}
    (ROOT / "bench.json").write_text(json.dumps(results, indent=2))


main()
