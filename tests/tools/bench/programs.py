"""Measure solo in running programs: locks of its library, and each step at an engine.

Locks are timed twenty at a time: a single one takes only microseconds.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack

from bench.contestants import ROOT, TRUE, Bench, Series, run_in_turn, spawn

UNCONTENDED = """
import fcntl, json, os, sys, time
folder, rounds, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.path.insert(0, source)
import fasteners, filelock, solo

class Raw:
    file = os.open(folder + "/raw", os.O_CREAT | os.O_RDWR)
    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)

locks = {
    "fcntl.flock": Raw(), "fasteners": fasteners.InterProcessLock(folder + "/fasteners"),
    "filelock": filelock.FileLock(folder + "/filelock"), "solo.Lock": solo.Lock("job"),
}
for turn in range(rounds):
    times = {}
    for name, lock in locks.items():
        begin = time.perf_counter()
        for _ in range(20):
            with lock:
                pass
        times[name] = 1e6 * (time.perf_counter() - begin) / 20
    print(json.dumps(times))
"""
ENGINE = """
import json, sys, time
url, rounds, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.path.insert(0, source)
from solo.engines.engine import EntryRecord
from solo.engines.lease import Terms
from solo.engines.queue import Wait
from solo.engines.targets import open_engine
from solo.queue import wait_silently
from solo.modes import EXCLUSIVE, Claim

engine = open_engine(url, Terms(15.0))
for turn in range(rounds):
    engine.connect()
    times = {}
    for step in ("acquire", "renew", "release"):
        begin = time.perf_counter()
        engine.acquire("warm", EntryRecord(Claim(EXCLUSIVE)), Wait(None, wait_silently)) if step == "acquire" else getattr(engine, step)()
        times[step] = 1000 * (time.perf_counter() - begin)
    print(json.dumps(times))
"""


def run_program(text: str, place, rounds: int) -> list:
    """Run the program; return the JSON object that each of its turns prints."""
    words = [sys.executable, "-c", text, place, str(rounds), ROOT]
    return list(
        map(
            json.loads,
            subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.splitlines(),
        )
    )


def measure_python(bench: Bench, rounds: int) -> dict:
    series = Series(
        "us", lambda row: ["fcntl.flock", *(["filelock"] if row == "solo.Lock" else [])]
    )
    for turn in run_program(UNCONTENDED, bench.folder, rounds + 1)[1:]:
        series.add(turn)
    return {"python": series}


def measure_engines(bench: Bench, rounds: int) -> dict:
    """Measure a run of `true`, which loads the library from this environment, its CPU at etcd, and
    the steps in a process.
    """
    with ExitStack() as stack:
        urls = start_servers(bench, stack)
        solo = write_script(bench)
        contestants = {
            f"solo via {name}": ([solo, "--via", url, "-n", "cold", TRUE], 0)
            for name, url in urls.items()
        }
        if "etcd" in urls:
            os.environ["ETCDCTL_API"] = "3"
            words = [
                "etcdctl",
                "--endpoints",
                urls["etcd"].partition("//")[2],
                "lock",
                "cold",
                TRUE,
            ]
            contestants["etcdctl lock"] = (words, 0)
        launches = run_in_turn(
            {"floor": (bench.floor, 0), **contestants}, rounds, lambda row: ["floor"]
        )
        at_etcd = {
            name: contestants[name][:1]
            for name in ("solo via etcd", "etcdctl lock")
            if name in contestants
        }
        cpu = run_in_turn(at_etcd, rounds, lambda row: ["etcdctl lock"], read_cpu)
        steps = {step: Series("ms") for step in ("acquire", "renew", "release")}
        for turns in zip(*(run_program(ENGINE, url, rounds) for url in urls.values())):
            for step, series in steps.items():
                series.add({f"solo via {name}": turn[step] for name, turn in zip(urls, turns)})
    found = {"launch": launches, **({"CPU": cpu} if at_etcd else {}), **steps}
    return {f"engines: {title}": series for title, series in found.items()} if urls else {}


def read_cpu(words) -> float:
    """Run `words` to their end; return the milliseconds of CPU, user and system, of that process
    and its dead children.
    """
    _, status, usage = os.wait4(spawn(words), 0)
    assert status == 0, f"{words} ended with {status}"
    return 1000 * (usage.ru_utime + usage.ru_stime)


def start_servers(bench: Bench, stack: ExitStack) -> dict:
    """Start every installed engine; return {engine: URL}."""
    import pytest
    from servers import SERVERS

    urls = {}
    for name in list(SERVERS)[:1] if bench.small else SERVERS:
        try:
            server = SERVERS[name](bench.folder / name)
        except pytest.skip.Exception:
            continue
        stack.callback(server.stop)
        urls[name] = server.start().url
    return urls


def write_script(bench: Bench) -> str:
    """Write a solo over this source whose engines find their libraries; return its path."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    source = (ROOT / "solo/__main__.py").read_text().partition("\n")[2]
    script = bench.folder / "solo-engines"
    script.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path[:0] = [{str(ROOT)!r}, {site!r}]\n{source}"
    )
    script.chmod(0o755)
    return str(script)
