"""The lock from Python: the same names, queue and records as the command line; threads, tasks, forks, Ctrl-C and SIGKILL.

What filelock, portalocker and fasteners test of theirs is asked of ours: re-entrance, time limits, forks, threads, dropped locks.
"""

import asyncio
import doctest
import gc
import json
import math
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import tally
from conftest import PATIENCE, ROOT, finish, read_line, read_state, until

import solo
from solo.api import blocking

PROGRAM = [sys.executable, "-IS", "-c"]
HEAD = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport solo, os, time, math, signal\n"


@pytest.fixture
def files(lab, monkeypatch):
    """By files only."""
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))
    for variable in ("SOLO_VIA", "SOLO_NAME", "SOLO_TOKEN", "SOLO_SLOT"):
        monkeypatch.delenv(variable, raising=False)
    return lab


def start_program(lab, text):
    """A Python program of its own."""
    process = subprocess.Popen(
        [*PROGRAM, HEAD + text],
        env=lab.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lab.started.append(process)
    return process


# --- one holder --------------------------------------------------------------------------------------------------


def test_a_program_is_a_holder_as_a_launcher_is(lab, kind):
    with solo.Lock("job") as hold:
        [row] = lab.list("job")
        turned_away = lab.run("-n", "job", "true")
        assert row["launcher"] == os.getpid() and row["state"] == "held" and row["child"] is None
        assert hold.locked and hold.token == row["ticket"]

    assert turned_away.returncode == 75 and f"s by pid {os.getpid()} (".encode() in turned_away.stderr
    assert lab.list("job") == [] and lab.run("-n", "job", "true").returncode == 0


def test_busy_says_who_as_objects(lab, kind):
    holder = lab.hold("job")

    with pytest.raises(solo.Busy) as caught:
        solo.Lock("job").acquire()

    [who] = caught.value.holders
    assert (who.name, who.state, who.launcher, who.child, who.mode) == (
        "job",
        "held",
        holder.pid,
        holder.child,
        "exclusive",
    )
    assert (
        re.match(rf"job: busy: held for \d+s by pid {holder.pid} \(", str(caught.value)) and caught.value.status == 75
    )
    assert solo.holders("job") == [who]
    finish(holder)
    assert solo.holders("job") == []


def test_it_waits_and_gives_up_in_time(lab, kind):
    holder = lab.hold("job")
    for wait in (0, 0.2):
        begin = time.monotonic()
        with pytest.raises(solo.Busy):
            solo.Lock("job", wait=wait).acquire()
        assert time.monotonic() - begin >= wait
    with pytest.raises(solo.Busy):
        solo.Lock("job", wait=math.inf).acquire(timeout=0.1)
    assert lab.list("job")[1:] == []

    threading.Timer(0.2, holder.stdin.close).start()
    with solo.Lock("job", wait=math.inf) as hold:
        assert hold.locked
    holder.stdin = None


def test_the_token_grows_and_slots_are_the_lowest_that_are_free(lab, kind):
    lock = solo.Lock("pool", slots=3, take=2)
    with lock:
        assert (lock.slot, solo.Lock("pool", slots=3).acquire().slot) == (0, 2)
        first = lock.token
    gc.collect()

    with lock:
        assert lock.token > first
    assert lock.token is None and lock.slot is None and not lock.locked


def test_shared_with_the_command_line(lab, kind):
    with solo.Lock("data", shared=True):
        assert lab.run("-n", "data", "--shared", "true").returncode == 0
        assert lab.run("-n", "data", "true").returncode == 75


def test_several_names_and_nested_ones(lab, kind):
    with solo.Lock(["b", "a/x"]) as hold:
        assert list(hold.tokens) == ["b", "a/x"] and hold.token == hold.tokens["b"]
        assert [lab.run("-n", name, "true").returncode for name in ("a", "a/x", "a/y", "b")] == [75, 75, 0, 75]
    assert lab.list() == [] or kind == "socket"


def test_max_waiting(lab, files):
    holder = lab.hold("job")
    lab.start_waiter("job")

    with pytest.raises(solo.Busy):
        solo.Lock("job", wait=math.inf, max_waiting=1).acquire()
    finish(holder)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": ""},
        {"name": "a//b"},
        {"name": ".x"},
        {"name": []},
        {"name": 3},
        {"name": [None]},
        {"wait": -1},
        {"wait": "1"},
        {"wait": math.nan},
        {"slots": 0},
        {"slots": 2, "take": 3},
        {"take": 2},
        {"slots": 1, "shared": True},
        {"via": "etcd"},
        {"via": "socket", "directory": "/x"},
        {"max_waiting": -1},
        {"slots": "2"},
    ],
)
def test_arguments_that_make_no_sense_are_value_errors_of_one_line(files, arguments):
    with pytest.raises((ValueError, TypeError)) as caught:
        solo.Lock(**{"name": "job", **arguments})

    assert "\n" not in str(caught.value) and str(caught.value)


def test_errors_have_the_status_of_the_command_line(files, monkeypatch):
    monkeypatch.setenv("SOLO_DIR", "/proc/nowhere")

    with pytest.raises(solo.SoloError) as caught:
        solo.Lock("job").acquire()

    assert caught.value.status == 125 and "cannot create" in str(caught.value)


def test_no_descriptor_is_left_on_any_path(lab, kind):
    def count():
        return len(os.listdir("/proc/self/fd"))

    lock, holder = solo.Lock("free"), lab.hold("job")
    lock.acquire().release()
    before = count()
    for _ in range(20):
        with lock:
            pass
        for name, wait in (("job", None), ("job", 0.01), ("job/nested/name", None), (["free", "job"], 0.01)):
            with pytest.raises(solo.Busy):
                solo.Lock(name, wait=wait).acquire()
    with pytest.raises(solo.SoloError):
        solo.Lock("job", directory="/proc/nowhere", via="file").acquire()
    gc.collect()

    # The one that watches the ticket of `job` has its file until that is gone.
    assert before <= count() <= before + 2
    finish(holder)
    until(lambda: count() == before - len((holder.stdin, holder.stdout, holder.stderr)))


def test_many_attempts_on_one_holder_make_one_thread(lab, files):
    holder = lab.hold("job")
    for _ in range(30):
        with pytest.raises(solo.Busy):
            solo.Lock("job", wait=0.01).acquire()

    assert len(blocking.watched) == 1 and sum("watches a file" in thread.name for thread in threading.enumerate()) == 1
    finish(holder)
    until(lambda: not blocking.watched)


def test_it_excludes_and_is_excluded_by_flock(lab, files):
    file = files.path / "file"
    lock = solo.Lock("job", flock=file)
    with lock:
        assert subprocess.run(["flock", "-n", file, "true"]).returncode == 1
        with solo.Lock("other", shared=True, flock=[str(files.path / "second")]):
            assert subprocess.run(["flock", "-n", "-s", files.path / "second", "true"]).returncode == 0
    assert subprocess.run(["flock", "-n", file, "true"]).returncode == 0

    locker = subprocess.Popen(
        ["flock", file, "sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    locker.stdout.readline()
    for wait in (None, 0.05, 0.05, 0.05):
        with pytest.raises(solo.Busy, match="locked by pid"):
            lock.acquire(wait)
    assert len(blocking.watched) == 1 and lab.list("job") == []
    threading.Timer(0.1, locker.communicate).start()
    with solo.Lock("job", flock=file, wait=math.inf):
        assert subprocess.run(["flock", "-n", file, "true"]).returncode == 1
    until(lambda: not blocking.watched)
    assert subprocess.run(["flock", "-n", file, "true"]).returncode == 0


def test_a_program_makes_what_others_can_use_in_a_shared_directory(files):
    files.directory.mkdir()
    files.directory.chmod(0o1777)
    umask = os.umask(0o022)
    try:
        with solo.Lock("a/b", directory=files.directory):
            modes = {path.name.split("0")[0]: path.stat().st_mode & 0o7777 for path in files.directory.rglob("*")}
    finally:
        os.umask(umask)

    assert modes == {"a": 0o1777, "b": 0o1777, ".gate": 0o666, ".hold.": 0o644}


# --- again, dropped, released by others --------------------------------------------------------------------------


def test_it_is_not_reentrant_unless_asked(lab, kind):
    lock = solo.Lock("job", wait=math.inf)
    with lock, pytest.raises(solo.SoloError, match="wait for itself"):
        lock.acquire()

    lock = solo.Lock("job", reentrant=True)
    with lock as outer:
        with lock as inner:
            assert inner is outer and inner.depth == 2
        assert lock.locked and lab.run("-n", "job", "true").returncode == 75
    assert not lock.locked and lab.run("-n", "job", "true").returncode == 0


def test_another_lock_on_the_same_name_in_the_same_program_is_busy(kind):
    with solo.Lock("job"), pytest.raises(solo.Busy) as caught:
        solo.Lock("job").acquire()

    assert caught.value.holders[0].launcher == os.getpid()


def test_release_without_a_hold_is_an_error_and_of_a_hold_twice_is_not(kind):
    lock = solo.Lock("job")
    with pytest.raises(solo.SoloError, match="is not held"):
        lock.release()

    hold = lock.acquire()
    hold.release()
    hold.release()
    assert not lock.locked and lock.acquire().locked
    lock.release()


def test_a_hold_can_be_released_by_another_thread(lab, kind):
    hold = solo.Lock("job").acquire()

    thread = threading.Thread(target=hold.release)
    thread.start()
    thread.join()

    assert lab.run("-n", "job", "true").returncode == 0


def test_a_dropped_lock_warns_and_lets_go(lab, kind):
    with pytest.warns(ResourceWarning, match="job was still held"):
        solo.Lock("job").acquire()
        gc.collect()

    assert lab.run("-n", "job", "true").returncode == 0


def test_a_thread_that_ends_with_its_hold_lets_go(lab, kind):
    lock = solo.Lock("job")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        thread = threading.Thread(target=lambda: lock.acquire() and None)
        thread.start()
        thread.join()
        del thread
        gc.collect()

    assert lab.run("-n", "job", "true").returncode == 0


def test_a_lock_can_be_pickled_and_what_it_holds_can_not(kind):
    lock = solo.Lock("job", wait=3)
    with lock:
        copy = pickle.loads(pickle.dumps(lock))
        assert lock.locked and not copy.locked and (copy.names, copy.wait) == (["job"], 3)


def test_a_reentrant_hold_is_let_go_at_the_last_end(lab, kind):
    lock = solo.Lock("job", reentrant=True)
    with lock.acquire():
        with lock.acquire(), lock:
            pass
        assert lock.locked and lab.run("-n", "job", "true").returncode == 75
    assert not lock.locked and lab.run("-n", "job", "true").returncode == 0
    hold = lock.acquire()
    hold.release()
    with pytest.raises(solo.SoloError):
        lock.release()


def test_a_generator_that_another_thread_closes_takes_nothing_of_that_thread(lab, kind):
    lock = solo.Lock("pool", slots=2)

    @lock
    def generate():
        yield 1

    running = generate()
    next(running)
    found = []

    def close():
        with lock as hold:
            running.close()
            found.extend([hold.locked, len(solo.holders("pool"))])

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()

    assert found == [True, 1] and solo.holders("pool") == []


def test_a_block_that_another_task_leaves_is_left(kind):
    lock = solo.Lock("job")

    async def generate():
        async with lock:
            yield 1

    async def main():
        running = generate()
        await running.__anext__()
        await asyncio.create_task(running.aclose())

    asyncio.run(main())

    assert solo.holders("job") == []


def test_a_dropped_lock_lets_go_where_warnings_are_errors(lab, kind):
    code = "import gc; gc.disable(); solo.Lock('job').acquire(); print(solo.holders('job'))"  # no cycle keeps it
    words = [sys.executable, "-W", "error", "-c", HEAD + code]
    program = subprocess.run(words, env=lab.environment, capture_output=True, text=True)

    assert program.stdout == "[]\n" and "ResourceWarning" in program.stderr


def test_a_lock_in_a_del_is_refused_and_harms_nobody(lab, kind):
    program = start_program(
        lab,
        """
import gc
class Evil:
    def __del__(self):
        try:
            with solo.Lock("evil"): pass
        except solo.SoloError as error:
            assert "within another" in str(error), error
solo.Lock, solo.SoloError  # imported before a __del__ may be within the import
gc.set_threshold(20)
for number in range(200):
    evil = Evil(); evil.itself = evil; evil = None
    with solo.Lock("job"): pass
print("fine")
""",
    )
    assert finish(program) == (0, "fine\n", "")


def test_very_long_waits_are_waits(lab, kind):
    for wait in (30 * 86400, 1e300, 10**400, math.inf):
        holder = lab.hold("job")
        threading.Timer(0.1, holder.stdin.close).start()
        with solo.Lock("job", wait=wait):
            pass
        holder.stdin = None


def test_two_threads_take_turns_at_a_file(files):
    file, order = files.path / "file", []

    def work(number):
        with solo.Lock(f"name{number}", flock=file, wait=math.inf):
            order.append(number)
            time.sleep(0.05)
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert order[0::2] == order[1::2] and sorted(order) == [0, 0, 1, 1, 2, 2]


# --- decorators --------------------------------------------------------------------------------------------------


def test_it_decorates_functions_generators_and_coroutines(kind):
    lock = solo.Lock("job")

    @lock
    def plain(value):
        """Doc."""
        return value, lock.locked

    @lock
    def generate():
        yield lock.locked
        return 7

    @lock
    async def later(value):
        await asyncio.sleep(0)
        return value, lock.locked

    async def generate_later():
        yield lock.locked

    assert plain(3) == (3, True) and (plain.__name__, plain.__doc__) == ("plain", "Doc.")
    assert list(generate()) == [True] and asyncio.run(later(4)) == (4, True)
    assert not lock.locked
    with pytest.raises(solo.UsageError):
        lock(generate_later)


def test_what_is_raised_inside_lets_go_and_comes_through(lab, kind):
    with pytest.raises(KeyError):
        with solo.Lock("job"):
            raise KeyError

    assert lab.run("-n", "job", "true").returncode == 0


# --- threads and tasks -------------------------------------------------------------------------------------------


def test_threads_contend_and_never_overlap(kind):
    lock, inside, most, done = solo.Lock("job", wait=math.inf), [], [], []

    def work():
        for _ in range(5):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()
        done.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert len(done) == 8 and max(most) == 1 and len(most) == 40


def test_tasks_contend_and_the_event_loop_goes_on(lab, kind):
    holder = lab.hold("job")
    ticks, order = [], []

    async def tick():
        while len(order) < 3:
            ticks.append(1)
            if len(ticks) == 20:
                holder.stdin.close()
            await asyncio.sleep(0.01)

    async def work(number):
        async with solo.Lock("job", wait=math.inf) as hold:
            order.append((hold.token, number))
            await asyncio.sleep(0.01)

    async def main():
        await asyncio.gather(tick(), *map(work, range(3)))

    asyncio.run(main())
    holder.stdin = None

    assert len(ticks) >= 20 and sorted(number for _, number in order) == [0, 1, 2] and order == sorted(order)


def test_one_lock_has_a_hold_for_each_task(kind):
    lock = solo.Lock("pool", slots=2)

    async def work():
        async with lock as hold:
            await asyncio.sleep(0.05)
            return hold.slot, lock.slot

    async def main():
        return await asyncio.gather(work(), work())

    assert sorted(asyncio.run(main())) == [(0, 0), (1, 1)]


def test_a_cancelled_task_leaves_the_line(lab, kind):
    holder = lab.hold("job")

    async def main():
        task = asyncio.create_task(solo.Lock("job", wait=math.inf).acquire_async())
        while not any(row["state"] == "waiting" for row in await asyncio.to_thread(lab.list, "job")):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    until(lambda: len(lab.list("job")) == 1)
    finish(holder)
    assert lab.run("-n", "job", "true").returncode == 0


def test_wait_for_gives_up_and_leaves_nothing(lab, kind):
    holder = lab.hold("job")

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(solo.Lock("job", wait=math.inf).acquire_async(), 0.1)

    asyncio.run(main())
    until(lambda: len(lab.list("job")) == 1)
    finish(holder)


def test_a_task_that_is_cancelled_at_any_moment_never_keeps_it(kind):
    async def main():
        for number in range(200):
            task = asyncio.create_task(solo.Lock("job").acquire_async())
            await asyncio.sleep(number * 1e-5)
            task.cancel()
            try:
                (await task).release()
            except (asyncio.CancelledError, solo.Busy):
                pass

    asyncio.run(main())
    until(lambda: solo.holders("job") == [])


# --- order, between processes ------------------------------------------------------------------------------------


def test_programs_and_launchers_stand_in_one_line(lab, kind):
    holder = lab.hold("job")
    waiters = []
    for number in range(6):
        before = len(lab.list("job"))
        if number % 2:
            waiters.append(lab.start("-n", "job", "-w", "forever", "--", "sh", "-c", f"echo {number} >>$LAB/log"))
        else:
            write = f"open({str(lab.log)!r}, 'a').write('{number}\\n')"
            waiters.append(start_program(lab, f"with solo.Lock('job', wait=math.inf): {write}"))
        until(lambda before=before: len(lab.list("job")) > before)
    finish(holder)
    for waiter in waiters:
        assert finish(waiter)[0] == 0

    assert lab.read_log() == [str(number) for number in range(6)]


CROWD = """
import asyncio, threading
directory = sys.argv[1]

def mark(kind, hold):
    path = os.path.join(directory, f"{kind}.{hold.slot}")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))   # fails if another has the same slot
    time.sleep(0.001)
    os.unlink(path)

def count_shared(hold):
    assert not os.path.exists(os.path.join(directory, "exclusive"))

def work(number):
    for turn in range(3):
        with solo.Lock("pool", slots=3, wait=math.inf) as hold:
            mark("slot", hold)
        if (number + turn) % 4:
            with solo.Lock("data", shared=True, wait=math.inf) as hold:
                count_shared(hold)
        else:
            with solo.Lock("data", wait=math.inf) as hold:
                path = os.path.join(directory, "exclusive")
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                time.sleep(0.001)
                os.unlink(path)

async def tasks():
    async def one():
        async with solo.Lock("pool", slots=3, wait=math.inf) as hold:
            mark("slot", hold)
    await asyncio.gather(*(one() for _ in range(4)))

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
threads.append(threading.Thread(target=asyncio.run, args=(tasks(),)))
failed = []
threading.excepthook = lambda error: failed.append(error.exc_value)
for thread in threads: thread.start()
for thread in threads: thread.join()
print("failed", failed) if failed else print("fine")
"""


def test_eight_programs_of_eight_threads_and_tasks_never_overlap(lab, kind):
    marks = lab.path / "marks"
    marks.mkdir()
    programs = [
        subprocess.Popen(
            [*PROGRAM, HEAD + CROWD, str(marks)], env=lab.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    results = [program.communicate(timeout=PATIENCE * 3) for program in programs]

    assert {result for result in results} == {(b"fine\n", b"")}
    assert list(marks.iterdir()) == [] and solo.holders("pool") == solo.holders("data") == []


# --- forks, kills, Ctrl-C, the end of the interpreter ------------------------------------------------------------


def test_a_forked_child_holds_nothing_and_takes_nothing_away(lab, kind):
    lock = solo.Lock("job")
    hold = lock.acquire()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            found = [lock.locked, hold.locked, lock.token]
            hold.release()
            del hold
            lock = None
            gc.collect()
            os.write(write, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert json.loads(os.read(read, 100)) == [False, False, None]
    assert lock.locked and lab.run("-n", "job", "true").returncode == 75
    lock.release()
    assert lab.run("-n", "job", "true").returncode == 0


def test_a_fork_in_a_block_that_nobody_named_leaves_the_lock_with_the_parent(lab, kind):
    lock = solo.Lock("job")
    with lock:
        if (child := os.fork()) == 0:
            gc.collect()
            os._exit(lab.run("-n", "job", "true").returncode)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        assert status == 75 and lab.run("-n", "job", "true").returncode == 75


def test_a_forked_child_that_lives_on_does_not_keep_it(lab, kind):
    program = start_program(
        lab,
        """
hold = solo.Lock("job").acquire()
pid = os.fork()
if pid == 0:
    os.close(1)
    time.sleep(999)
print(pid, flush=True)
sys.stdin.read()
""",
    )
    child = int(read_line(program))
    program.kill()
    program.wait()

    assert lab.run("-n", "job", "-w", "10", "true").returncode == 0 and read_state(child) != "gone"
    os.kill(child, signal.SIGKILL)


def test_a_child_that_leaves_its_parents_block_releases_nothing(lab, kind):
    program = start_program(
        lab,
        """
with solo.Lock("job"):
    pid = os.fork()
if pid == 0:
    os._exit(7)
status = os.waitpid(pid, 0)[1]
print(os.waitstatus_to_exitcode(status), flush=True)
""",
    )
    assert finish(program)[:2] == (0, "7\n")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_contends_with_its_parent(files, method):
    context = multiprocessing.get_context(method)
    lock = solo.Lock("job", wait=math.inf)
    with lock:
        child = context.Process(target=hold_shortly, args=(lock,))
        child.start()
        seats = (files.directory / "job").glob
        until(lambda: child.exitcode is not None or list(seats(".seat.*")))
        assert child.exitcode is None
    child.join(PATIENCE)

    assert child.exitcode == 0


def hold_shortly(lock):
    with lock:
        pass


def test_what_is_executed_does_not_keep_it(lab, kind):
    program = start_program(lab, "solo.Lock('job').acquire(); os.execvp('sleep', ['sleep', '999'])")
    until(lambda: open(f"/proc/{program.pid}/comm").read() == "sleep\n")

    assert lab.run("-n", "job", "-w", "10", "true").returncode == 0


def test_a_child_process_of_a_program_does_not_keep_it(lab, kind):
    program = start_program(
        lab,
        """
import subprocess
lock = solo.Lock("job"); lock.acquire()
child = subprocess.Popen(["sleep", "999"], close_fds=False)
print(child.pid, flush=True); sys.stdin.readline()
""",
    )
    child = int(read_line(program))
    program.kill()
    program.wait()

    assert lab.run("-n", "job", "-w", "10", "true").returncode == 0 and read_state(child) != "gone"
    os.kill(child, signal.SIGKILL)


def test_the_end_of_the_interpreter_lets_go_and_leaves_nothing(lab, files):
    for text in (
        "lock = solo.Lock('job'); lock.acquire()",
        "lock = solo.Lock('job'); hold = lock.acquire(); sys.exit(3)",
        "lock = solo.Lock('job'); lock.acquire(); raise KeyError",
    ):
        finish(start_program(lab, text))
        assert os.listdir(lab.directory / "job") == [".gate"]


def test_it_can_be_taken_while_the_interpreter_ends(lab, kind):
    status, out, err = finish(
        start_program(
            lab,
            """
import atexit
@atexit.register
def last():
    with solo.Lock("job", wait=5): print("held", flush=True)
""",
        )
    )
    assert (status, out) == (0, "held\n"), err


def test_a_program_killed_at_random_points_leaves_nothing_in_the_way(lab, kind):
    chance = tally.make_random("kills")
    text = "print(flush=True)\nwhile True:\n  with solo.Lock('job', wait=math.inf): pass\n  with solo.Lock('job', slots=2): pass"
    for _ in tally.rounds(60, 500):
        program = start_program(lab, text)
        read_line(program)
        time.sleep(chance.random() * 0.02)
        program.kill()
        tally.add(kills=1)
        program.wait()
        for stream in (program.stdin, program.stdout, program.stderr):
            stream.close()

        with solo.Lock("job"):
            pass
    assert solo.holders("job") == []
    if kind == "file":
        assert os.listdir(lab.directory / "job") == [".gate"]


CTRL_C = """
import threading, random, gc, traceback, warnings
warnings.simplefilter("ignore")
GLOBAL = solo.Lock("job", wait=5)
stop = False
def pester():
    while not stop:
        time.sleep(random.random() * 0.002)
        os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=pester, daemon=True)
hits = rounds = 0
armed = False
def interrupt(_, frame):
    if armed:
        names = [code.f_code.co_name for code, _ in traceback.walk_stack(frame)]
        if "__del__" not in names:  # what is raised there Python itself prints and forgets
            raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
thread.start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end or min(hits, rounds) <= 10 and time.monotonic() < end + 40:  # a busy machine hits less
    rounds += 1
    lock = GLOBAL if sys.argv[2] == "global" else solo.Lock("job", wait=5)
    try:
        armed = True
        with lock:
            pass
        armed = False
    except KeyboardInterrupt:
        armed = False
        hits += 1
    gc.collect() if sys.argv[2] == "global" else None
    lock = None
    deadline = time.monotonic() + 5
    while solo.holders("job"):
        if time.monotonic() > deadline:
            print("still held", solo.holders("job")); os._exit(1)
        time.sleep(0.001)
stop = True
print("fine" if hits > 10 and rounds > 10 else "idle", hits)
"""


@pytest.mark.parametrize("which", ["global", "own"])
def test_ctrl_c_at_any_moment_lets_go(lab, kind, which):
    program = subprocess.Popen(
        [*PROGRAM, HEAD + CTRL_C, "4", which],
        env=lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    out, err = program.communicate(timeout=PATIENCE)

    assert (out[:5], err) == ("fine ", "")
    tally.add(interrupts=int(out[5:]))


AT_EACH_STEP = """
import dis, gc, warnings
warnings.simplefilter("ignore")
GLOBAL = solo.Lock("job", wait=5)
first, step, which = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def attempt(last, lock):
    count = 0
    def trace(frame, event, _):
        nonlocal count
        # Python cannot protect the entry of __del__, and lets nothing come between a return and its caller.
        name = frame.f_code.co_name
        if not frame.f_code.co_filename.endswith("/solo/api/lock.py") or name == "__del__":
            return None
        frame.f_trace_opcodes = True
        if event == "return" or dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN"):
            return trace
        count += 1
        if count == last:
            sys.settrace(None)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # as the interpreter would between any two bytecodes
        return trace
    sys.settrace(trace)
    try:
        with lock:
            pass
        sys.settrace(None)
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)

last, stuck, goes_on = first, [], True
while goes_on:
    lock = GLOBAL if which == "global" else solo.Lock("job", wait=5)
    goes_on = attempt(last, lock)
    del lock
    gc.collect()
    if solo.holders("job"):
        stuck.append(last)
        for hold in list(solo.api.lock.all_holds):
            hold.release()
    last += step
print(len(stuck), last)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", ["global", "own"])
def test_an_interrupt_at_each_step_of_the_interpreter_lets_go(lab, kind, which):
    """Each bytecode that the main thread executes of ours; a sample of them, all in `make torture`."""
    first, step = (1, 1) if tally.WHOLE else (tally.make_random("first").randrange(1, 20), 19)
    words = [*PROGRAM, HEAD + AT_EACH_STEP, str(first), str(step), which]

    done = subprocess.run(words, env=lab.environment, capture_output=True, text=True)

    stuck, last = map(int, done.stdout.split())
    tally.add(stuck=stuck, interrupts=last // step)
    assert (stuck, done.stderr) == (0, "") and last > 100


FORKS = """
import random, threading, select
lock, stop, bad = solo.Lock("job", wait=5), False, []
signal.signal(signal.SIGUSR1, lambda *_: None)
def work(number):
    while not stop:
        try:
            with solo.Lock(f"job{random.randrange(3)}", wait=random.choice([None, 0.001, 5])): pass
        except solo.Busy:
            pass
threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
for thread in threads: thread.start()
def fork():
    for turn in range(int(sys.argv[1])):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                fine = signal.getsignal(signal.SIGUSR1).__name__ == "<lambda>" and signal.getsignal(signal.SIGINT) is not None
                fine = fine and "Deferred" not in repr(signal.getsignal(signal.SIGINT))
                with solo.Lock("child", wait=30): pass
                os.write(write, b"y" if fine else b"n")
            finally:
                os._exit(0)
        os.close(write)
        if not select.select([read], [], [], 30)[0] or os.read(read, 1) != b"y":
            bad.append(turn)
        os.close(read)
        os.waitpid(pid, 0)
thread = threading.Thread(target=fork)
thread.start()
while thread.is_alive():
    with lock: pass
stop = True
for each in threads: each.join(10)
print(bad, [each.is_alive() for each in threads], [solo.holders(f"job{number}") for number in range(3)])
"""


def test_forks_in_the_middle_of_other_threads_acquires_break_nothing(lab, kind):
    # Since 3.12 Python warns of any fork beside threads.
    words = [*PROGRAM[:-1], "-W", "ignore::DeprecationWarning", "-c", HEAD + FORKS, "60"]

    done = subprocess.run(words, env=lab.environment, capture_output=True, text=True, timeout=PATIENCE * 2)

    assert (done.stdout, done.stderr) == ("[] [False, False, False] [[], [], []]\n", "")


def test_children_that_live_on_keep_no_gate(lab, kind):
    program = start_program(
        lab,
        """
import threading
lock = solo.Lock("job", wait=5)
def work():
    while True:
        with lock: pass
threading.Thread(target=work, daemon=True).start()
children = []
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        os.close(0); os.close(1); os.close(2)
        time.sleep(999)
    children.append(pid)
print(*children, flush=True)
sys.stdin.read()
""",
    )
    children = list(map(int, read_line(program).split()))
    program.kill()
    program.wait()

    assert lab.run("-n", "job", "-w", "10", "true").returncode == 0
    for child in children:
        os.kill(child, signal.SIGKILL)


def test_a_signal_is_handled_once_and_none_is_lost(lab, kind):
    program = start_program(
        lab,
        """
import asyncio, threading
seen = []
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: seen.append(1))
    def send():
        for _ in range(50):
            before = len(seen)
            os.kill(os.getpid(), signal.SIGUSR1)
            while len(seen) == before: time.sleep(0.0005)
    thread = threading.Thread(target=send)
    thread.start()
    lock = solo.Lock("job")
    while thread.is_alive():
        async with lock: pass
        await asyncio.sleep(0)
asyncio.run(main())
print(len(seen))
""",
    )
    assert finish(program) == (0, "50\n", "")


def test_handlers_that_raise_do_not_lose_each_other():
    """And each gets the frame that its signal interrupted."""
    ran = []

    def raise_error(number, frame):
        ran.append(number)
        assert frame.f_code.co_name == "test_handlers_that_raise_do_not_lose_each_other"
        raise KeyError

    old = [signal.signal(number, raise_error) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    try:
        with pytest.raises(KeyError), blocking.Deferred():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
        assert ran == [signal.SIGUSR1, signal.SIGUSR2] and signal.getsignal(signal.SIGUSR1) is raise_error
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), old):
            signal.signal(number, handler)


def test_an_error_of_flock_is_told_and_gives_nothing(lab, files, monkeypatch):
    lab.run("-n", "job", "true")
    gate = subprocess.Popen(
        ["flock", files.directory / "job/.gate", "sh", "-c", "echo; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    gate.stdout.readline()

    def fail(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(blocking, "flock", fail)
    with pytest.raises(solo.SoloError, match="No locks available"):
        solo.Lock("job", wait=5).acquire()
    gate.communicate()


# --- solo.run ----------------------------------------------------------------------------------------------------


def test_run_gives_what_subprocess_run_would(files):
    done = solo.run(
        ["sh", "-c", "cat; echo err >&2; exit 75"], name="job", input="text", capture_output=True, text=True
    )

    assert (done.args[0], done.returncode, done.stdout, done.stderr) == ("sh", 75, "text", "err\n")
    with pytest.raises(subprocess.CalledProcessError):
        solo.run(["false"], name="job", check=True)


def test_run_raises_what_the_launcher_says(lab, files):
    holder = lab.hold("job")

    with pytest.raises(solo.Busy) as busy:
        solo.run(["true"], name="job", wait=0.1)
    with pytest.raises(solo.NotFound):
        solo.run(["/no/such"], name="other")
    with pytest.raises(solo.NotExecutable):
        solo.run(["/etc/passwd"], name="other")
    with pytest.raises(solo.UsageError):
        solo.run(["true"], name="other", shared=True, slots=3)
    with pytest.raises(subprocess.TimeoutExpired):
        solo.run(["sleep", "99"], name="other", timeout=0.2)

    with pytest.raises(solo.Busy) as elsewhere:
        solo.run(["true"], name="job", directory=lab.directory.name, cwd=lab.path)

    assert busy.value.holders[0].launcher == holder.pid and busy.value.name == "job"
    assert elsewhere.value.holders == busy.value.holders
    finish(holder)


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_run_raises_what_nobody_thought_of_in_its_launcher_too(lab):
    """As test_what_nobody_thought_of_is_one_line_and_125 has it."""
    lab.run("-n", "job", "true")
    (lab.directory / "job/.hold.00000000000000000001").write_bytes(b"\0" * 200)
    hide = ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /proc/uptime && exec "$@"', "sh"]

    program = subprocess.run(
        [*hide, *PROGRAM, HEAD + "solo.run(['true'], name='job')"], env=lab.environment, capture_output=True
    )

    assert (
        program.stderr.splitlines()[-1]
        == b"solo.errors.SoloError: this is a bug in solo: IndexError: list index out of range"
    )


def test_run_tells_long_reasons_signals_before_the_start_and_flags_apart(lab, files):
    with pytest.raises(solo.NotExecutable):
        solo.run(["x" * 100_000], name="job")
    assert solo.run(["true"], name="job", shared=0, latest=None, tree=1).returncode == 0
    with pytest.raises(solo.UsageError):
        solo.run(["true"], name="job", wait=True)
    with pytest.raises(solo.UsageError):
        solo.run(["true"], name=b"job")

    holder = lab.hold("job")
    program = start_program(
        lab,
        """
try: solo.run(["true"], name="job", wait=math.inf)
except solo.SoloError as error: print(error)
""",
    )
    until(lambda: lab.count_waiting("job"))
    [waiting] = [row["launcher"] for row in lab.list("job") if row["state"] == "waiting"]
    os.kill(waiting, signal.SIGTERM)

    assert finish(program)[1] == "solo ended with status -15 before the command was started\n"
    finish(holder)


def test_run_gives_the_command_nothing_of_its_own(files):
    code = "import os; print(sorted(os.environ), sorted(os.listdir('/proc/self/fd')))"
    words = [sys.executable, "-IS", "-c", code]

    guarded = solo.run(words, name="job", capture_output=True, text=True).stdout
    plain = subprocess.run(words, capture_output=True, text=True).stdout

    assert guarded.replace("'SOLO_NAME', ", "").replace("'SOLO_TOKEN', ", "").replace(", 'SOLO_TOKEN'", "") == plain


def test_run_by_all_its_options(files, monkeypatch):
    monkeypatch.chdir(files.path)
    done = solo.run(
        ["sh", "-c", "echo $SOLO_NAME $SOLO_SLOT"],
        name=["a", "b/c"],
        slots=2,
        take=1,
        wait=math.inf,
        timeout=60,
        kill_after=1.5,
        tree=True,
        no_orphan=True,
        flock=["x.lock", files.path / "y.lock"],
        directory=files.directory,
        capture_output=True,
    )

    assert done.stdout == b"a b/c 0 0\n" and {"x.lock", "y.lock"} <= set(os.listdir(files.path))


def test_run_that_is_interrupted_ends_its_command(files, lab):
    program = start_program(lab, "solo.run(['sh', '-c', 'echo $$; exec sleep 999'], name='job')")
    child = int(read_line(program))

    program.send_signal(signal.SIGINT)

    assert program.wait(PATIENCE) == -signal.SIGINT or program.returncode == 1
    until(lambda: read_state(child) in ("gone", "Z"))


# --- from a user's side ------------------------------------------------------------------------------------------


def test_the_examples_in_the_docstrings_work(files, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    from solo.api import lock, run

    results = [doctest.testmod(module, extraglobs={"os": os}) for module in (lock, run)]

    assert [result.failed for result in results] == [0, 0] and sum(result.attempted for result in results) >= 5


def test_import_solo_loads_nothing():
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); old = set(sys.modules); import solo; print(*set(sys.modules) - old)"

    assert subprocess.run([*PROGRAM, code], capture_output=True, text=True).stdout == "solo\n"
    assert set(solo.__all__) <= set(dir(solo))
    with pytest.raises(AttributeError):
        solo.nothing


USER = """
import asyncio
import math
import solo

lock = solo.Lock("job", wait=math.inf, slots=3, take=2)

@lock
def plain(value: int) -> str:
    return str(value)

@lock
async def later(value: int) -> str:
    return str(value)

def use() -> None:
    with lock as hold:
        token: int = hold.token
        slot: "int | None" = lock.slot
        print(token, slot, plain(3).upper())
    try:
        lock.acquire(timeout=3).release()
    except solo.Busy as busy:
        for holder in busy.holders:
            pid: "int | None" = holder.launcher
            print(holder.since, pid)
    done = solo.run(["true"], name="job", check=True)
    print(done.returncode, [holder.command for holder in solo.holders("job")])

async def use_later() -> None:
    async with lock as hold:
        print(hold.tokens, (await later(3)).upper())
"""
WRONG = (
    "import solo\nsolo.Lock(3)\nsolo.Lock('x', wiat=3)\nsolo.holders('x')[0].pid\n"
    "solo.Busy('x').holders[0].pid\nsolo.Lock('x').acquire(timeout='3')\n"
)


@pytest.mark.full  # pyright downloads what it runs on
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]], ids=lambda words: words[0])
def test_types_are_right_from_a_users_side(tmp_path, checker):
    if subprocess.run([sys.executable, "-m", checker[0], "--version"], capture_output=True).returncode:
        pytest.skip(f"needs {checker[0]}: pip cannot get all of it")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(USER)
    bad.write_text(WRONG)
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}

    def check(file):
        words = [sys.executable, "-m", *checker, str(file)]
        return subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path)

    assert check(good).returncode == 0, check(good).stdout
    found = check(bad)
    assert found.returncode == 1 and found.stdout.count(": error") + found.stdout.count(" - error") >= 5, found.stdout


@pytest.mark.tool("strace")
def test_a_program_that_waits_takes_one_place_in_line(lab):
    """One that is given up for a later one would let others past."""
    holder, trace = lab.hold("job"), lab.path / "trace"
    words = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=rename,renameat,renameat2", *PROGRAM]
    program = subprocess.Popen(
        [*words, HEAD + "with solo.Lock('job', wait=60): print('in', flush=True)"],
        env=lab.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lab.started.append(program)
    until(lambda: lab.count_waiting("job") == 1)

    holder.communicate()

    assert finish(program)[:2] == (0, "in\n")
    assert trace.read_text().count('".seat.') == 1


# --- what a hostile reader found ---------------------------------------------------------------------------------


def test_a_lock_is_held_while_the_program_ends(lab, kind):
    """Handlers of its end run before that is over, and what they write may be what the lock is for."""
    program = start_program(
        lab,
        "import atexit\n@atexit.register\ndef finish():\n    print(hold.locked, flush=True)\n"
        "    sys.stdin.readline()\nhold = solo.Lock('job').acquire()\n",
    )

    assert read_line(program) == "True" and lab.run("-n", "job", "true").returncode == 75
    assert finish(program)[::2] == (0, "")
    assert lab.run("-n", "job", "true").returncode == 0 and lab.list() == []


@pytest.mark.parametrize("held", ["hold = solo.Lock('held').acquire()", "block = held(); next(block)"])
def test_a_program_ends_though_a_thread_of_it_is_frozen_in_the_middle_of_an_acquire(lab, held):
    text = f"""
import threading
def work():
    while True:
        with solo.Lock('job'): pass
def held():
    with solo.Lock('held'): yield
{held}
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""
    for program in [start_program(lab, text) for _ in range(4)]:
        assert program.wait(PATIENCE) == 0 or b"Busy" in program.stderr.read()
    assert lab.list() == []


class Odd(blocking.Deferred):
    """Handlers run where Python may run them: as they are taken away, and as they are put back."""

    def put_off(self, number):
        super().put_off(number)
        if number == signal.SIGUSR1 and self.fails_early:
            raise ValueError

    def put_back(self):
        if not self.raised:
            self.raised = True
            raise KeyError
        super().put_back()


@pytest.mark.parametrize("fails_early, error", [(True, ValueError), (False, KeyError)])
def test_a_handler_that_raises_as_others_are_put_back_loses_none(fails_early, error):
    ran = []

    def note(number, _):
        ran.append(number)

    old, deferred = signal.signal(signal.SIGUSR1, note), Odd()
    deferred.fails_early, deferred.raised = fails_early, fails_early
    try:
        with pytest.raises(error), deferred:
            signal.raise_signal(signal.SIGUSR1)
        assert (ran, signal.getsignal(signal.SIGUSR1)) == ([] if fails_early else [signal.SIGUSR1], note)
        assert blocking.acting.acquire(blocking=False)
        blocking.acting.release()
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_handler_that_raises_leaves_no_lock_within_taken(lab):
    """Python may run one as soon as an acquire() has returned, before anybody knows that it has."""
    text = """
from solo.api import blocking
import random, threading
class Over(Exception): pass
def handler(*_): raise Over
def look(): free.append(blocking.acting.acquire(timeout=5) and not blocking.acting.release())
signal.signal(signal.SIGALRM, handler)
lock, free = solo.Lock('job', reentrant=True), []
lock.acquire()
for _ in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 3e-4))
        while True: lock.acquire().release()
    except Over:
        pass
    looker = threading.Thread(target=look)
    looker.start(), looker.join()
print(len(free), all(free))
"""
    program = start_program(lab, text)

    assert finish(program)[:2] == (0, "400 True\n")


def test_what_a_child_inherits_of_one_who_waits_is_closed(lab):
    """The gate, and what is taken already: else it kept them from others when the program is gone."""
    lab.hold("job")
    taken, wanted = sorted((lab.path / "one", lab.path / "two"), key=lambda path: path.touch() or path.stat().st_ino)
    outsider = subprocess.Popen(["flock", wanted, "cat"], stdin=subprocess.PIPE)
    until(lambda: is_locked(wanted))
    text = f"""
import threading
def take(lock): threading.Thread(target=lock.acquire, daemon=True).start()
take(solo.Lock('job', wait=60))
take(solo.Lock('other', wait=60, flock=[{str(taken)!r}, {str(wanted)!r}]))
sys.stdin.readline()
if os.fork() == 0:
    print(*[os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 99
            and os.path.exists('/proc/self/fd/' + fd)], flush=True)
    os._exit(0)
os.wait()
os._exit(0)
"""
    program = start_program(lab, text)
    until(lambda: lab.count_waiting("job") == 1 and is_locked(taken) and has_open(program.pid, wanted))
    program.stdin.write(b"\n")
    program.stdin.flush()

    inherited = read_line(program)

    assert "pipe:" in inherited  # and what is not locked by us, and so inert
    assert str(taken) not in inherited and "/.gate" not in inherited
    outsider.communicate()


def has_open(pid, path):
    return str(path) in [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]


def is_locked(path):
    return subprocess.run(["flock", "-n", path, "true"]).returncode != 0


def test_a_descriptor_that_came_too_late_is_closed():
    ours, theirs = os.pipe()
    waiter = blocking.Waiter()
    waiter.answer(ours)

    waiter.close()

    with pytest.raises(OSError):
        os.fstat(ours)
    os.close(theirs)


def test_a_lock_taken_by_wait_for_is_the_callers(lab, files):
    """Before Python 3.12 wait_for() awaits in a task of its own, which then is over."""

    async def main():
        lock = solo.Lock("job", wait=5)
        await asyncio.wait_for(lock.acquire_async(), 5)
        assert lock.locked and lab.run("-n", "job", "true").returncode == 75
        lock.release()

    asyncio.run(main())
    assert lab.list() == []


def test_what_is_gathered_contends_as_tasks_do(files):
    """Whoever made the coroutines, and none of them waits for itself."""
    inside = []

    async def use(asked):
        hold = await asked
        inside.append(hold)
        assert len(inside) <= most
        await asyncio.sleep(0.05)
        inside.remove(hold)
        hold.release()

    async def main():
        await asyncio.gather(*(use(lock.acquire_async()) for _ in range(3)))
        asked = []
        asyncio.get_running_loop().call_soon(lambda: asked.extend(use(lock.acquire_async()) for _ in range(3)))
        await asyncio.sleep(0.05)
        await asyncio.gather(*asked)
        async with lock:
            if lock.reentrant:
                (await asyncio.wait_for(lock.acquire_async(), 5)).release()
            else:
                with pytest.raises(solo.SoloError, match="wait for itself"):
                    await asyncio.wait_for(lock.acquire_async(), 5)

    for most, lock in (
        (1, solo.Lock("job", wait=5)),
        (1, solo.Lock("job", wait=5, reentrant=True)),
        (3, solo.Lock("p", slots=3, wait=5)),
    ):
        asyncio.run(main())


def test_that_asyncio_is_just_being_imported_does_no_harm(lab, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncio", type(sys)("asyncio"))

    with solo.Lock("job"):
        assert lab.run("-n", "job", "true").returncode == 75
    assert lab.list() == []


@pytest.mark.parametrize("closed", [(0, 1), (1, 2), (0, 1, 2)])
def test_run_tells_what_ran_though_the_program_has_closed_its_streams(lab, closed):
    text = (
        "told = os.dup(1)\n"
        + "".join(f"os.close({stream})\n" for stream in closed)
        + "done = solo.run(['sh', '-c', 'echo ran; exit 7'], name='job', capture_output=True)\n"
        "os.write(told, b'%d %b' % (done.returncode, done.stdout))\n"
    )

    assert finish(start_program(lab, text))[1] == "7 ran\n"
