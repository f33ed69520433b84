"""Threads that contend for a name: they never overlap, and cost no further threads or
descriptors.
"""

import math
import os
import subprocess
import threading

import pytest
from conftest import (
    PATIENCE,
    SOCKET_IN_FULL,
    do_when,
    find_holders,
    finish,
    read_line,
    run_threads,
    until,
)

import solo
from solo import kernel
from solo.api import blocking


@pytest.mark.parametrize("locked", ["name", "flock", "fcntl", "shared"])
def test_threads_overlap_only_if_shared(lab, kind, locked):
    """The names of their own lock one file."""
    inside, most, everyone = [], [], threading.Barrier(8)

    def work(number):
        lock = locks[number]
        for _ in range(5):
            with lock:
                inside.append(1)
                everyone.wait(PATIENCE) if locked == "shared" else os.sched_yield()
                most.append(len(inside))
                inside.pop()

    options = {"name": {}, "shared": {"shared": True}}.get(locked, {locked: lab.path / "file"})
    names = (
        [f"job{number}" for number in range(8)]
        if "flock" in options or "fcntl" in options
        else ["job"]
    )
    locks = [solo.Lock(name, wait=math.inf, **options) for name in names] * (8 // len(names))
    run_threads(work, range(8))

    assert len(most) == 40 and max(most) == (8 if locked == "shared" else 1)


CROWD = """
import asyncio
exclusive = os.path.join(sys.argv[1], "exclusive")
def mark(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))  # fails if another holder has made it
    for _ in range(500): os.stat(path)  # makes an overlap more likely
    os.unlink(path)
def mark_slot(hold):
    mark(os.path.join(sys.argv[1], f"slot{hold.slot}"))
def work(number):
    for turn in range(3):
        with solo.Lock("pool", slots=3, wait=math.inf) as hold: mark_slot(hold)
        if (number + turn) % 4:
            with solo.Lock("data", shared=True, wait=math.inf): assert not os.path.exists(exclusive)
        else:
            with solo.Lock("data", wait=math.inf): mark(exclusive)
async def use_slot():
    async with solo.Lock("pool", slots=3, wait=math.inf) as hold: mark_slot(hold)
async def run_tasks():
    await asyncio.gather(*(use_slot() for _ in range(4)))
failed = []
threading.excepthook = lambda error: failed.append(error.exc_value)
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
threads.append(threading.Thread(target=lambda: asyncio.run(run_tasks())))
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failed)
"""


@pytest.mark.parametrize("kind", SOCKET_IN_FULL, indirect=True)
def test_programs_of_threads_and_tasks_never_overlap(lab, kind):
    marks = lab.path / "marks"
    marks.mkdir()
    programs = [lab.start_code(CROWD, marks) for _ in range(4)]

    assert {finish(program) for program in programs} == {(0, "[]\n", "")}
    assert list(marks.iterdir()) == find_holders("pool") == find_holders("data") == []


def is_waited_for(count):
    """Whether `count` threads of this process wait."""
    return sum(len(watch.waiters) for watch in list(blocking.watched.values())) == count


def test_waiter_behind_a_refused_attempt_acquires(files):
    """It waits for the hold of that attempt, which then gives up."""
    first, second = solo.Lock("first").acquire(), solo.Lock("second").acquire()
    ended = []

    def work(number):
        if number:
            until(lambda: is_waited_for(1))
        try:
            with solo.Lock(
                "first" if number else ["first", "second"], wait=math.inf if number else 1
            ):
                ended.append("acquired")
        except solo.Busy:
            ended.append("busy")

    do_when(lambda: is_waited_for(2), first.release)
    run_threads(work, range(2))

    second.release()
    assert sorted(ended) == ["acquired", "busy"]
    until(lambda: not blocking.watched)


def test_time_limit_ends_a_wait_for_a_later_hold(files):
    lock, holds = solo.Lock("job"), [solo.Lock("job").acquire()]
    released = threading.Event()

    def work(number):
        if not number:
            holds.append(lock.acquire(math.inf))
            released.wait(PATIENCE)
            holds[1].release()
            return
        until(lambda: is_waited_for(1))
        with pytest.raises(solo.Busy):
            lock.acquire(1)
        released.set()

    do_when(lambda: is_waited_for(2), holds[0].release)
    run_threads(work, range(2))

    assert blocking.watched == {} and find_holders("job") == []


def test_error_of_flock_is_raised_and_acquires_nothing(lab, files, monkeypatch):
    def fail(*_):
        raise OSError(37, "No locks available")

    lab.run("-n", "job", "true")
    words = ["flock", lab.directory / "job/.gate", "sh", "-c", "echo; cat"]
    gate = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    read_line(gate)
    monkeypatch.setattr(kernel.wait_lock, "__defaults__", (fail,))

    with pytest.raises(solo.SoloError, match="No locks available"):
        solo.Lock("job", wait=5).acquire()
    gate.communicate()
    assert lab.list("job") == []


def test_descriptor_that_arrives_after_the_wait_is_closed():
    own, other = os.pipe()
    waiter = blocking.Waiter()
    waiter.give(own)

    waiter.close()

    with pytest.raises(OSError):
        os.fstat(own)
    os.close(other)
