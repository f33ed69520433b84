"""solo.Lock in an event loop of asyncio: owners of holds, cancelled tasks, a loop that keeps
running.
"""

import asyncio
import contextlib
import math
import sys

import pytest
from conftest import PATIENCE, find_holders, finish, until

import solo


def test_event_loop_runs_while_tasks_wait_in_order(lab, kind):
    holder, ticks, order = lab.hold("job"), [], []

    async def tick():
        while len(order) < 3:
            ticks.append(1)
            if len(ticks) == 20:
                holder.stdin.close()
            await asyncio.sleep(0)

    async def work(number):
        async with solo.Lock("job", wait=math.inf) as hold:
            order.append((hold.token, number))
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(tick(), *map(work, range(3)))

    asyncio.run(main())

    assert (
        len(ticks) >= 20 and order == sorted(order) and {number for _, number in order} == {0, 1, 2}
    )


def test_acquire_of_a_free_lock_lets_other_tasks_run(kind):
    turns = []

    async def main():
        other = asyncio.create_task(take_turns())
        for _ in range(20):
            async with solo.Lock("job"):
                pass
        other.cancel()

    async def take_turns():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    asyncio.run(main())

    assert len(turns) >= 20 and find_holders("job") == []


@pytest.mark.parametrize("end", ["cancel", "wait_for"])
def test_cancelled_task_leaves_the_queue(lab, kind, end):
    holder = lab.hold("job")

    async def main():
        task = asyncio.create_task(solo.Lock("job", wait=math.inf).acquire_async())
        while not await asyncio.to_thread(lab.count_waiting, "job"):
            pass
        if end == "cancel":
            task.cancel()
        with pytest.raises((asyncio.CancelledError, asyncio.TimeoutError)):
            await (task if end == "cancel" else asyncio.wait_for(task, 0.01))

    asyncio.run(main())

    until(lambda: len(lab.list("job")) == 1)
    finish(holder)
    assert lab.run("-n", "job", "true").returncode == 0


def test_task_cancelled_at_any_moment_of_a_handoff_keeps_no_lock(kind):
    lock, acquired = solo.Lock("job", wait=PATIENCE), []

    async def acquire():
        return await lock.acquire_async()

    async def main():
        while len(acquired) < 200 or len(set(acquired)) < 2:
            hold = await acquire()
            task = asyncio.create_task(acquire())
            await asyncio.sleep(0)  # it waits now
            hold.release()
            await asyncio.sleep(len(acquired) * 1e-5)
            task.cancel()
            try:
                (await task).release()
                acquired.append(True)
            except asyncio.CancelledError:
                acquired.append(False)

    asyncio.run(main())
    until(lambda: find_holders("job") == [])


def test_another_task_can_leave_a_block(kind):
    async def generate():
        async with solo.Lock("job"):
            yield 1

    async def main():
        running = generate()
        await running.__anext__()
        await asyncio.create_task(running.aclose())

    asyncio.run(main())

    assert find_holders("job") == []


@pytest.mark.parametrize("reentrant", [False, True])
def test_wait_for_acquires_for_its_caller(files, reentrant):
    """Before Python 3.12 wait_for() awaits in a task of its own, which has ended when it
    returns.
    """
    lock = solo.Lock("job", wait=PATIENCE, reentrant=reentrant)

    async def main():
        await asyncio.wait_for(lock.acquire_async(), PATIENCE)
        assert lock.locked and len(find_holders("job")) == 1
        with (
            contextlib.nullcontext()
            if reentrant
            else pytest.raises(solo.SoloError, match="wait for itself")
        ):
            (await asyncio.wait_for(lock.acquire_async(), PATIENCE)).release()
        lock.release()

    asyncio.run(main())
    assert find_holders("job") == []


@pytest.mark.parametrize(
    "most, options", [(1, {}), (1, {"reentrant": True}), (3, {"slots": 3})], ids=str
)
def test_tasks_have_holds_of_their_own(kind, most, options):
    """The coroutines of their acquires may all come from one task, or from a callback. None waits
    for itself.
    """
    lock, inside, slots = solo.Lock("job", wait=PATIENCE, **options), [], []

    async def stay(hold):
        inside.append(hold)
        for _ in range(10):
            await asyncio.sleep(0)
        slots.append([hold.slot for hold in inside])
        inside.remove(hold)

    async def enter():
        async with lock as hold:
            await stay(hold)
            assert lock.hold is hold and lock.slot == hold.slot

    async def use(acquire):
        hold = await acquire
        await stay(hold)
        hold.release()

    async def main():
        await asyncio.gather(enter(), enter(), enter())
        await asyncio.gather(*(use(lock.acquire_async()) for _ in range(3)))
        made = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(
            lambda: made.set_result([use(lock.acquire_async()) for _ in range(3)])
        )
        await asyncio.gather(*await made)

    asyncio.run(main())

    assert max(map(len, slots)) == most and all(len(set(each)) == len(each) for each in slots)


def test_lock_works_while_asyncio_is_being_imported(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncio", type(sys)("asyncio"))

    with solo.Lock("job") as hold:
        assert [row.ticket for row in find_holders("job")] == [hold.token]
    assert find_holders("job") == []
