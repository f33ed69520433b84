"""A thread or task that would wait for itself forever is refused, whichever Lock object it holds the name by."""

import asyncio
import math
import os
import subprocess
import sys
import threading

import pytest
from conftest import PATIENCE, ROOT, finish, until

import solo


def lock(name, **options):
    return solo.Lock(name, wait=math.inf, **options)


@pytest.mark.parametrize(
    "held, wanted",
    [
        (("job", {}), ("job", {})),
        (("job", {"reentrant": True}), ("job", {"reentrant": True})),
        (("par/child", {}), ("par", {})),
        (("par", {}), ("par/child", {})),
        (("job", {"shared": True}), ("job", {})),
        (("pool", {"slots": 3, "take": 2}), ("pool", {"slots": 3, "take": 2})),
        (("b", {}), (["a", "b", "c"], {})),
    ],
    ids=str,
)
def test_a_second_lock_of_one_thread_is_refused(kind, held, wanted):
    with (
        lock(held[0], **held[1]) as hold,
        pytest.raises(solo.SoloError, match="would wait for itself.*another thread") as error,
    ):
        lock(wanted[0], **wanted[1]).acquire()

    assert not isinstance(error.value, solo.Busy) and not hold.locked and solo.holders("a") == []


def test_a_lock_that_needs_no_wait_is_not_refused(kind):
    with (
        lock("data", shared=True),
        lock("data", shared=True),
        lock("pool", slots=2),
        lock("pool", slots=2),
        lock("par/a"),
        lock("par/b"),
    ):
        pass


def test_a_wait_with_an_end_is_not_refused(kind):
    """Another thread may release the Hold meanwhile."""
    hold = solo.Lock("job").acquire()
    with pytest.raises(solo.Busy):
        solo.Lock("job", wait=0.05).acquire()
    threading.Timer(0.05, hold.release).start()

    with solo.Lock("job", wait=PATIENCE):
        pass


def test_another_thread_is_not_refused(kind):
    entered = []

    def work():
        with lock("job"):
            entered.append(1)

    thread = threading.Thread(target=work)
    with lock("job"):
        thread.start()
        while not entered and not any(holder for holder in all_rows("job") if holder["state"] == "waiting"):
            pass
    thread.join(PATIENCE)

    assert entered == [1]


def all_rows(name):
    from solo.commands.list import collect

    return collect(os.environ.get("SOLO_DIR"), os.environ.get("SOLO_VIA"), [name], report=print)[0]


def test_a_thread_behind_a_waiter_that_waits_for_it_is_refused(lab, kind):
    with lock("data", shared=True):
        waiter = lab.start("-n", "data", "-w", "forever", "--", "true")
        until(
            lambda: (
                lab.count_waiting("data")
                if kind == "file"
                else any(row["state"] == "waiting" for row in all_rows("data"))
            )
        )

        with pytest.raises(solo.SoloError, match="would wait for itself"):
            lock("data", shared=True).acquire()

    assert finish(waiter)[0] == 0


def test_a_decorated_function_within_another_is_refused(kind):
    @lock("job")
    def inner():
        raise AssertionError

    @lock("job")
    def outer():
        inner()

    with pytest.raises(solo.SoloError, match="would wait for itself"):
        outer()


def test_a_task_is_refused_and_another_task_is_not(kind):
    async def work():
        async with lock("job"):
            with pytest.raises(solo.SoloError, match="this task"):
                async with lock("job"):
                    pass
            with pytest.raises(solo.SoloError, match="this task"):
                lock("job").acquire()
            await asyncio.sleep(0.01)

    async def main():
        await asyncio.gather(work(), work())

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_task_that_would_stop_the_loop_of_the_holder_is_refused(kind):
    """An acquire that is not awaited blocks the thread, and with it the task that holds the name."""

    async def hold(ready):
        async with lock("job"):
            ready.set()
            await asyncio.sleep(PATIENCE)

    async def main():
        ready = asyncio.Event()
        task = asyncio.create_task(hold(ready))
        await ready.wait()
        with pytest.raises(solo.SoloError, match="would wait for itself"):
            lock("job").acquire()
        task.cancel()

    asyncio.run(main())


def test_a_task_under_a_hold_of_its_thread_is_refused(kind):
    async def main():
        async with lock("job"):
            pass

    with lock("job"), pytest.raises(solo.SoloError, match="would wait for itself"):
        asyncio.run(main())


def test_two_names_with_one_file_are_refused(lab, kind):
    file, alias = lab.path / "file", lab.path / "alias"
    alias.symlink_to(file)
    with lock("one", flock=file), pytest.raises(solo.SoloError, match="two: cannot wait.*alias.*would wait for itself"):
        lock("two", flock=alias).acquire()

    with lock("one", flock=file, shared=True), lock("two", flock=alias, shared=True):
        pass
    assert solo.holders("two") == []


def test_a_program_that_would_wait_for_itself_ends(lab):
    text = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport solo, math\n"
        "with solo.Lock('job'), solo.Lock('job', wait=math.inf): pass"
    )

    program = subprocess.run(
        [sys.executable, "-IS", "-c", text], env=lab.environment, capture_output=True, text=True, timeout=PATIENCE
    )

    assert program.returncode == 1 and "would wait for itself" in program.stderr.splitlines()[-1]
