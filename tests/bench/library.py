"""Measure acquire and release in a running Python program: uncontended, and by twenty threads.

Uncontended locks are timed twenty at a time: a single one takes only microseconds.
"""

import json
import subprocess
import sys

from bench.contestants import ROOT, Bench, Series

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
# A handoff is the time from the common start of 20 threads to the end of the last one, divided by their 500 acquires. All threads
# use one lock object, whose name or file no other process locks. Each acquires and releases 25 times: filelock polls every 50 ms,
# so a single time would measure mostly the moment of its poll. Neither library promises that the threads alternate.
THREADS = """
import json, math, sys, threading, time
folder, rounds, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.path.insert(0, source)
import filelock, solo

COUNT, EACH = 20, 25
locks = {"filelock": filelock.FileLock(folder + "/threads"), "solo.Lock": solo.Lock("threads", wait=math.inf)}

def contend(lock, start):
    start.wait()
    for _ in range(EACH):
        with lock:
            pass

for turn in range(rounds):
    times = {}
    for name, lock in locks.items():
        start = threading.Barrier(COUNT + 1)
        threads = [threading.Thread(target=contend, args=(lock, start)) for _ in range(COUNT)]
        for thread in threads:
            thread.start()
        start.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        times[name] = 1e6 * (time.perf_counter() - begin) / (COUNT * EACH)
    print(json.dumps(times))
"""


def run_program(text: str, place, rounds: int) -> list:
    """Run the program; return the JSON object that each of its turns prints."""
    words = [sys.executable, "-c", text, place, str(rounds), ROOT]
    return list(map(json.loads, subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.splitlines()))


def measure_python(bench: Bench, rounds: int) -> dict:
    series = Series("us", lambda row: ["fcntl.flock", *(["filelock"] if row == "solo.Lock" else [])])
    for turn in run_program(UNCONTENDED, bench.folder, rounds + 1)[1:]:
        series.add(turn)
    return {"python": series}


def measure_threads(bench: Bench, rounds: int) -> dict:
    """Measure the handoff of one lock between 20 threads of a program."""
    series = Series("us", lambda row: ["filelock"])
    for turn in run_program(THREADS, bench.folder, rounds + 1)[1:]:
        series.add(turn)
    return {"python: 20 threads": series}
