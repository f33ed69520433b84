"""A thread or task that would wait for itself forever gets an error, whichever Lock object holds
the name.
"""

import asyncio
import contextlib
import math
import os
import resource

import pytest
from conftest import PATIENCE, do_when, find_holders, finish, in_thread

import solo


def lock(name, **options):
    return solo.Lock(name, wait=math.inf, **options)


REFUSED = pytest.raises(solo.SoloError, match="would wait for itself.*another thread")


@pytest.mark.parametrize(
    "held, wanted",
    [
        (lock("job"), lock("job")),
        (lock("job", reentrant=True), lock("job", reentrant=True)),
        (lock("par/child"), lock("par")),
        (lock("par"), lock("par/child")),
        (lock("job", shared=True), lock("job")),
        (lock("pool", slots=3, take=2), lock("pool", slots=3, take=2)),
        (lock("b"), lock(["a", "b", "c"])),
    ],
    ids=lambda lock: ",".join(lock.names),
)
def test_second_lock_of_a_thread_is_refused(lab, kind, held, wanted):
    refuse_second(held, wanted, held.name)


@pytest.mark.parametrize("option", ["flock", "fcntl"])
def test_second_lock_of_a_file_is_refused(lab, kind, monkeypatch, option):
    """A relative path is that of where its Lock was made."""
    (lab.path / "alias").symlink_to("file")
    monkeypatch.chdir(lab.path)
    held, wanted = lock("one", **{option: "file"}), lock("two", **{option: "alias"})
    monkeypatch.chdir("/")
    refuse_second(held, wanted, lab.path / "alias")


def refuse_second(held, wanted, shown):
    with held as hold, REFUSED as error:
        wanted.acquire()

    assert f" holds {shown} by another" in str(error.value)
    assert type(error.value) is solo.SoloError
    assert not hold.locked and find_holders("a") == find_holders("two") == []


def test_lock_without_a_wait_is_not_refused(lab, kind):
    file = lab.path / "file"
    file.touch()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(lock("data", shared=True))
            stack.enter_context(lock("pool", slots=2))
        for name in ("a", "b"):
            stack.enter_context(lock(f"par/{name}"))
            stack.enter_context(lock(name, shared=True, flock=file, fcntl=file))


def test_wait_with_a_limit_or_in_another_thread_is_not_refused(lab, kind):
    """Another thread may release the Hold meanwhile."""
    hold = solo.Lock("job").acquire()
    with pytest.raises(solo.Busy):
        solo.Lock("job", wait=0.05).acquire()

    for acquire in (
        solo.Lock("job", wait=PATIENCE).acquire,
        lambda: in_thread(lock("job").acquire),
    ):
        do_when(lambda: lab.count_waiting("job"), hold.release)
        hold = acquire()
    hold.release()


def test_thread_behind_a_waiter_for_itself_is_refused(lab, kind):
    with lock("data", shared=True):
        waiter = lab.start_waiter("data")
        with REFUSED:
            lock("data", shared=True).acquire()

    assert finish(waiter)[0] == 0


def test_thread_behind_more_waiters_than_descriptors_is_refused(lab, files):
    with lock("data", shared=True):
        for _ in range(20):
            lab.start_waiter("data")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard)
        )
        try:
            with REFUSED:
                lock("data", shared=True).acquire()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_task_is_refused_but_not_another_task(kind):
    async def work():
        async with lock("job"):
            with pytest.raises(solo.SoloError, match="this task"):
                async with lock("job"):
                    pass
            with pytest.raises(solo.SoloError, match="this task"):
                lock("job").acquire()
            await asyncio.sleep(0)  # the other task waits now

    async def main():
        await asyncio.gather(work(), work())

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_acquire_that_stops_the_event_loop_of_the_holder_is_refused(kind):
    """An acquire that is not awaited blocks the thread, and with it the task that holds the
    name.
    """

    async def main():
        hold = await asyncio.create_task(acquire())
        with REFUSED:
            lock("job").acquire()
        hold.release()

    async def acquire():
        return await lock("job").acquire_async()

    asyncio.run(main())


def test_task_is_refused_a_hold_of_its_thread(kind):
    async def main():
        async with lock("job"):
            pass

    with lock("job"), REFUSED:
        asyncio.run(main())
