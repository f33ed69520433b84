"""solo.Lock and solo.Hold: acquire, wait, release, modes, reentrance, decorators, files of
flock(2).
"""

import asyncio
import contextlib
import copy
import fcntl
import gc
import math
import os
import pickle
import re
import signal
import threading
import time
import warnings

import pytest
from conftest import PATIENCE, do_when, find_holders, finish, in_thread, until

import solo
from solo.process import ofd


def test_holder_is_listed_and_others_are_busy(lab, kind):
    with solo.Lock("job") as hold:
        with pytest.raises(solo.Busy) as busy:
            solo.Lock("job").acquire()
        skipped = lab.run("-n", "job", "true")
        [row] = lab.list("job")
        assert (row["state"], row["launcher"], row["child"], row["ticket"]) == (
            "held",
            os.getpid(),
            None,
            hold.token,
        )
        assert hold.locked and busy.value.holders[0].launcher == os.getpid()

    assert skipped.returncode == 75 and f"s by pid {os.getpid()} (".encode() in skipped.stderr
    assert lab.list("job") == []
    with pytest.raises(KeyError), solo.Lock("job"):
        raise KeyError
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.parametrize(
    "options, timeout, least",
    [
        ({"wait": 0}, (), 0),
        ({"wait": 0.2}, (), 0.2),
        ({"wait": math.inf}, (0.1,), 0.1),
        ({"wait": math.inf, "max_waiting": 1}, (), 0),
    ],
    ids=str,
)
def test_wait_ends_with_busy(lab, kind, options, timeout, least):
    lab.hold("job")
    lab.start_waiter("job")
    begin = time.monotonic()

    with pytest.raises(solo.Busy):
        solo.Lock("job", **options).acquire(*timeout)

    assert time.monotonic() - begin >= least and len(lab.list("job")) == 2


def test_busy_has_the_holders_and_a_wait_of_any_length_ends_with_them(lab, kind):
    for wait in (60, 30 * 86400, 1e300, 10**400, math.inf):
        holder = lab.hold("job")
        with pytest.raises(
            solo.Busy, match=rf"^job: busy: held for \d+s by pid {holder.pid} \("
        ) as busy:
            solo.Lock("job").acquire()
        [row] = busy.value.holders
        assert (row.name, row.state, row.mode, row.launcher, row.child, busy.value.status) == (
            *("job", "held", "exclusive"),
            *(holder.pid, holder.child, 75),
        )
        assert find_holders("job") == [row]

        do_when(lambda: lab.count_waiting("job"), holder.stdin.close)
        with solo.Lock("job", wait=wait) as hold:
            assert hold.locked
        assert find_holders("job") == []


@pytest.mark.tool("strace")
def test_waiter_publishes_one_ticket(lab):
    """A waiter that gave its ticket up for a later one would let others overtake."""
    holder, trace = lab.hold("job"), lab.path / "trace"
    strace = ("strace", "-f", "-qq", "-o", trace, "-e", "trace=rename,renameat,renameat2")
    program = lab.start_code("with solo.Lock('job', wait=60): print('acquired')", prefix=strace)
    until(lambda: lab.count_waiting("job") == 1)

    finish(holder)

    assert finish(program)[:2] == (0, "acquired\n")
    assert trace.read_text().count('".seat.') == 1


UNCONTENDED = """
def work():
    with lock: pass
    os.getpgid(0)
    with lock: pass
    os.getpgid(0)
lock = solo.Lock("job")
if sys.argv[1] == "main": work()
else: (thread := threading.Thread(target=work)).start(); thread.join()
"""


@pytest.mark.tool("strace")
@pytest.mark.parametrize("thread", ["main", "another"])
def test_free_name_costs_few_system_calls(lab, thread):
    """It took 47, and the kernel 9 us to write /proc/self/status."""
    trace = lab.path / "trace"

    program = lab.start_code(UNCONTENDED, thread, prefix=("strace", "-f", "-qq", "-o", trace))

    assert finish(program) == (0, "", "")
    calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    begin, end = [at for at, call in enumerate(calls) if call.startswith("getpgid(")]
    between = [
        call
        for call in calls[begin + 1 : end]
        if not call.startswith(("mmap", "munmap", "brk", "futex"))
    ]
    opened = [call for call in between if call.startswith("openat(")]
    assert len(between) <= 44 and len(opened) <= 5, "\n".join(between)
    assert not any("/proc/self/status" in call or call.startswith("pipe") for call in between)


def test_programs_and_launchers_acquire_in_order_of_arrival(lab, kind):
    holder, waiters = lab.hold("job"), []
    for number in range(6):
        if number % 2:
            waiters.append(lab.start_waiter("job", tag=number))
        else:
            write = f"open({str(lab.log)!r}, 'a').write('{number}\\n')"
            waiters.append(lab.start_code(f"with solo.Lock('job', wait=math.inf): {write}"))
            until(lambda: lab.count_waiting("job") > number)

    finish(holder)

    assert [finish(waiter)[0] for waiter in waiters] == [0] * 6
    assert lab.read_log() == [str(number) for number in range(6)]


@pytest.mark.parametrize(
    "options, statuses",
    [
        ({"name": "data", "shared": True}, {"data --shared": 0, "data": 75}),
        ({"name": "pool", "slots": 2}, {"pool --slots 2": 0, "pool --slots 2,2": 75, "pool": 75}),
        ({"name": ["b", "a/x"]}, {"a": 75, "a/x": 75, "a/y": 0, "b": 75}),
    ],
    ids=("shared", "slots", "names"),
)
def test_modes_are_those_of_the_command_line(lab, kind, options, statuses):
    lock = solo.Lock(**options)
    with lock as hold:
        assert {
            words: lab.run("-n", *words.split(), "true").returncode for words in statuses
        } == statuses
        assert list(hold.tokens) == lock.names and hold.token == hold.tokens[lock.names[0]]

    assert [row for name in lock.names for row in lab.list(name)] == []


def test_token_grows_and_slot_is_the_lowest_free(kind):
    lock, other = solo.Lock("pool", slots=3, take=2), solo.Lock("pool", slots=3)
    with lock, other:
        assert (lock.slot, other.slot) == (0, 2)
        first = lock.token

    with lock:
        assert lock.token > first
    assert (lock.token, lock.slot, lock.locked) == (None, None, False)


@pytest.mark.parametrize(
    "options, reason",
    [
        ("via='nope'", "via nope: neither file nor socket"),
        ("via='nope://host'", "via nope://: no such engine"),
        ("via='etcd://host'", "a program cannot hold a lock at an engine"),
        ("flock=''", "flock is empty (is a variable unset?)"),
        ("fcntl=['x', b'']", "fcntl is empty (is a variable unset?)"),
        ("flock='a\\0b'", "flock may not contain NUL"),
        ("flock='\\ud800'", "flock has characters that cannot be in a path"),
        ("directory=b'\\0'", "directory may not contain NUL"),
        *(
            (options, "")
            for options in "name='' | name='a//b' | name='a\\x00' | name=[] | name=3 | name=b'x' | name=[None]".split(
                " | "
            )
        ),
        *(
            (options, "")
            for options in "wait=-1 | wait='1' | wait=math.nan | slots=0 | slots='2'".split(" | ")
        ),
        *(
            (options, "")
            for options in "slots=2, take=3 | take=2 | slots=1, shared=True | max_waiting=-1".split(
                " | "
            )
        ),
        *((options, "") for options in "directory='' | directory=b''".split(" | ")),
        ("via='socket', directory='/x'", "via socket and directory exclude each other"),
    ],
)
def test_invalid_options_raise_one_line(files, options, reason):
    with pytest.raises(solo.UsageError, match=f"^{re.escape(reason)}") as error:
        solo.Lock(**{"name": "job", **eval(f"dict({options})")})

    assert str(error.value) and "\n" not in str(error.value)


def test_no_failure_leaks_a_descriptor(lab, kind):
    def count():
        return len(os.listdir("/proc/self/fd"))

    lock, holder = solo.Lock("free"), lab.hold("job")
    lock.acquire().release()
    before = count()
    for _ in range(20):
        with lock:
            pass
        for name, wait in (
            ("job", None),
            ("job", 0.01),
            ("job/nested/name", None),
            (["free", "job"], 0.01),
        ):
            with pytest.raises(solo.Busy):
                solo.Lock(name, wait=wait).acquire()
    with pytest.raises(solo.SoloError, match="cannot create") as error:
        solo.Lock("job", directory="/proc/nowhere", via="file").acquire()
    assert error.value.status == 125
    del error
    gc.collect()

    assert count() <= before + 2  # the watch keeps its file until the holder ends
    finish(holder)
    until(lambda: count() == before - 3)  # the pipes to the holder


def test_first_acquire_without_descriptors_raises_one_line(lab):
    """The first acquire of a process reads who it is from /proc."""
    code = """
import resource, solo.api.lock
lock, limits = solo.Lock("job"), resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
try: lock.acquire()
except solo.SoloError as error: print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
with lock: print("acquired")
"""

    assert lab.run_code(code) == (
        0,
        "cannot read /proc/self/cmdline: Too many open files\nacquired\n",
        "",
    )


@pytest.mark.parametrize("kind_of_lock", ["flock", "fcntl"])
def test_a_wait_for_a_file_that_ended_does_not_lock_it_later(lab, files, kind_of_lock):
    """The thread that blocked in flock(2) stayed, and locked the file as soon as it was free."""
    path = lab.path / "file"
    lock, call = (
        solo.Lock("job", **{kind_of_lock: path}),
        fcntl.flock if kind_of_lock == "flock" else ofd.lock,
    )
    for _ in range(20):
        with open(path, "a") as file:
            call(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            with pytest.raises(solo.Busy):
                lock.acquire(0.01)

        with lock:
            pass


def test_holders_ignores_the_variable_of_the_backend(lab, files, monkeypatch):
    """And the directory may be bytes."""
    monkeypatch.setenv("SOLO_VIA", "socket")

    with solo.Lock("job", via="file", directory=os.fsencode(lab.directory)):
        for directory in (lab.directory, os.fsencode(lab.directory)):
            assert [holder.name for holder in solo.holders("job", directory=directory)] == ["job"]


def test_files_need_no_name(lab, files):
    """The name is that of the real path, so all who lock the file by solo wait in one queue."""
    path = lab.path / "app.lock"
    (lab.path / "link").symlink_to(lab.path)

    lock, other = solo.Lock(flock=path), solo.Lock(flock=[lab.path / "link/app.lock"])

    assert lock.names == other.names and lock.name.startswith("app.lock-")
    with lock, pytest.raises(solo.Busy):
        other.acquire()
    with pytest.raises(solo.UsageError, match=r"a Lock needs a name, or files \(flock, fcntl\)"):
        solo.Lock()


def test_shared_directory_gets_modes_for_others(lab, files):
    lab.directory.mkdir()
    lab.directory.chmod(0o1777)
    umask = os.umask(0o022)
    try:
        with solo.Lock("a/b", directory=lab.directory):
            modes = {
                path.name.split("0")[0]: path.stat().st_mode & 0o7777
                for path in lab.directory.rglob("*")
            }
    finally:
        os.umask(umask)

    assert modes == {"a": 0o1777, "b": 0o1777, ".gate": 0o666, ".hold.": 0o644}


def test_lock_is_reentrant_only_if_asked(lab, kind):
    lock = solo.Lock("job", wait=math.inf)
    with lock, pytest.raises(solo.SoloError, match="wait for itself"):
        lock.acquire()

    lock = solo.Lock("job", reentrant=True)
    with lock as outer:
        with lock as inner, lock.acquire():
            assert inner is outer and inner.depth == 3
        assert lock.locked and lab.run("-n", "job", "true").returncode == 75
    assert not lock.locked and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_hold_is_released_once_by_any_thread(kind, reentrant):
    lock = solo.Lock("job", reentrant=reentrant)
    for release in (solo.Hold.release, lambda hold: in_thread(hold.release)):
        with pytest.raises(solo.SoloError, match="is not held"):
            lock.release()
        hold = lock.acquire()
        release(hold)
        release(hold)  # does nothing
        assert not lock.locked and find_holders("job") == []
    assert lock.acquire().locked
    lock.release()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_hold_cannot_be_copied(lab, kind, duplicate):
    """The end of a copy released the lock."""
    with solo.Lock("job") as hold:
        with pytest.raises(TypeError, match="a Hold cannot be copied or pickled"):
            duplicate(hold)
        gc.collect()

        assert hold.locked and lab.run("-n", "job", "true").returncode == 75


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))]
)
def test_copy_of_a_lock_holds_nothing(kind, duplicate):
    lock = solo.Lock("pool", slots=2)
    with lock:
        other = duplicate(lock)
        assert not other.locked
        with other as hold:
            assert hold.slot == 1
        assert lock.locked


DROPS = {
    "hold": "gc.disable(); solo.Lock('job').acquire()",  # no cycle keeps it
    "thread": "lock = solo.Lock('job'); thread = threading.Thread(target=lock.acquire)\n"
    "thread.start(); thread.join(); del thread; gc.collect()",
}


@pytest.mark.parametrize("action", ["always", "error"])
@pytest.mark.parametrize("drop", DROPS)
def test_dropped_hold_is_released_with_a_warning(lab, via, drop, action):
    code = f"import gc\n{DROPS[drop]}\nprint(find_holders('job'))"

    status, out, err = lab.run_code(code, flags=("-IS", "-W", action))

    assert (status, out) == (0, "[]\n") and "ResourceWarning: solo: job was still held" in err


def test_lock_in_a_del_is_refused_inside_another_acquire(lab, via):
    """The garbage collector runs __del__ at any allocation, also in the middle of an acquire."""
    code = """
import gc
class Evil:
    def __del__(self):
        try:
            with solo.Lock("evil"): outcomes.add("acquired")
        except solo.SoloError as error:
            outcomes.add(str(error).split(" (")[0])
outcomes = set()
solo.Lock, solo.SoloError  # imported before a __del__ may be inside the import
for number in range(200):
    evil = Evil(); evil.itself = evil; evil = None
    gc.set_threshold(20 + number)
    with solo.Lock("job"): pass
gc.collect()
print(*sorted(outcomes), sep="\\n")
"""
    refusal = "evil: cannot acquire the lock inside another acquire"

    assert lab.run_code(code) == (0, f"acquired\n{refusal}\n", "")


def test_decorated_function_generator_and_coroutine_hold_the_lock(kind):
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


@pytest.mark.parametrize("option", ["flock", "directory"])
def test_relative_path_is_refused_once_the_working_directory_was_removed(
    tmp_path, monkeypatch, option
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(solo.UsageError, match=f"^{option} is relative, and the working directory"):
        solo.Lock("job", **{option: "names"})


async def wait_later():
    await asyncio.sleep(0)


def yield_one():
    yield 1


async def yield_later():
    yield 1


@pytest.mark.parametrize(
    "make",
    [
        wait_later,
        yield_one,
        yield_later,
        contextlib.contextmanager(yield_one),
        contextlib.asynccontextmanager(yield_later),
    ],
)
def test_decorated_function_that_returns_unfinished_work_is_refused(kind, make):
    lock = solo.Lock("job")
    guarded = lock(lambda: make())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(
            solo.UsageError, match="would run without the lock: decorate the function"
        ):
            guarded()
        gc.collect()

    assert not caught and not lock.locked


def enter_and_yield(lock):
    """Enter the block of a lock that the caller, or another thread, leaves by closing this
    generator.
    """
    with lock:
        yield 1
        yield len(find_holders(lock.name))


class Mine(solo.Lock):
    def __exit__(self, *error):
        return super().__exit__(*error)


@pytest.mark.parametrize("end", ["block", "release"])
def test_hold_of_a_lock_dies_where_no_signal_handler_can_raise(kind, end, monkeypatch):
    """Python ignores what a handler raises during a __del__: it would be lost."""
    lock, found, end_hold = solo.Lock("job"), {}, solo.Hold.__del__

    def note(hold):
        found[hold.token] = signal.getsignal(signal.SIGUSR1)
        end_hold(hold)

    monkeypatch.setattr(solo.Hold, "__del__", note)
    signal.signal(signal.SIGUSR1, handler := lambda *_: None)

    if end == "block":
        with lock:
            token = lock.token
    else:
        token = lock.acquire().token
        lock.release()
    gc.collect()

    assert found[token] is not handler


@pytest.mark.parametrize(
    "kind_of_lock, enter",
    [
        (solo.Lock, enter_and_yield),
        (Mine, enter_and_yield),
        (solo.Lock, lambda lock: lock(yield_one)()),
    ],
    ids=["block", "subclass", "decorated"],
)
def test_block_left_by_another_thread_ends_its_own_hold(kind, kind_of_lock, enter):
    """Also if that thread has another hold by `acquire`, and if a subclass has its own __exit__."""
    lock = kind_of_lock("pool", slots=2)
    running = enter(lock)
    next(running)

    def leave():
        hold = lock.acquire()
        running.close()
        was_locked = hold.locked
        hold.release()
        return was_locked

    assert in_thread(leave) and find_holders("pool") == []


def test_pushed_lock_is_not_taken_for_the_next_that_is_entered_by_hand(kind):
    pushed, other = solo.Lock("pushed"), solo.Lock("other")
    pushed.acquire()
    with contextlib.ExitStack() as stack:
        stack.push(pushed)
        other.__enter__()

    assert not pushed.locked and other.locked
    other.__exit__(None, None, None)
    assert not other.locked


def test_block_entered_by_a_thread_that_ended_is_still_locked(kind):
    running = enter_and_yield(solo.Lock("job"))
    in_thread(lambda: next(running))
    gc.collect()

    assert next(running) == 1
    running.close()
    assert find_holders("job") == []


def test_block_entered_again_while_another_thread_leaves_it_is_locked(kind, monkeypatch):
    lock, done = solo.Lock("job", reentrant=True), threading.Event()

    def close():
        running.close()
        done.set()

    def look(hold):
        if not closing:
            closing.append(threading.Thread(target=close))
            closing[0].start()
            done.wait(0.2)
        return bool(hold._tickets)

    running, closing = enter_and_yield(lock), []
    next(running)
    monkeypatch.setattr(solo.Hold, "locked", property(look))
    with lock:
        closing[0].join(PATIENCE)

        assert done.is_set() and len(find_holders("job")) == 1
    assert find_holders("job") == []
