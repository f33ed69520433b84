"""A signal handler that raises, at the moments where Python runs one before a function of ours can have a `try`."""

import subprocess
import sys

import pytest
from conftest import ROOT, finish

HEAD = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport solo, os, signal, time, warnings\n"
HANDLER = """
class Over(Exception): pass
def handler(*_): raise Over
signal.signal(signal.SIGALRM, handler)
one, other = bytes(64_000_000), bytes(bytearray(64_000_000))
"""
# Python looks for signals after a call and at the entry of a function, not within a comparison: this one takes 5 ms.
BLOCKS = {
    "with": "with lock:\n            signal.setitimer(signal.ITIMER_REAL, 0.001); one == other",
    "raising": "with lock:\n            signal.setitimer(signal.ITIMER_REAL, 0.001); one == other; raise KeyError",
    "hold": "with lock.acquire():\n            signal.setitimer(signal.ITIMER_REAL, 0.001); one == other",
    "async": "asyncio.run(main())",
}
AT_THE_EXIT = """
import asyncio
lock, caught = solo.Lock("job"), 0
async def main():
    async with lock:
        signal.setitimer(signal.ITIMER_REAL, 0.001); one == other
for _ in range(20):
    try:
        {block}
    except Over:
        caught += 1
    if solo.holders("job") or lock.locked:
        print("still held"); break
print(caught)
"""
AT_RANDOM = """
import random
warnings.simplefilter("ignore")
# In a __del__ or a weak reference's callback Python reports what is raised, and goes on.
sys.unraisablehook = lambda _: signal.setitimer(signal.ITIMER_REAL, 5e-4, 2)
lock, caught, stuck = solo.Lock("job", reentrant=True), 0, 0
@lock
def decorated(): pass
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 5e-4), 2)
        while True:
            with lock: pass
            with lock, lock: pass
            decorated()
    except Over:
        signal.setitimer(signal.ITIMER_REAL, 0)
        caught += 1
    if lock.locked:
        stuck += 1
        lock.hold.depth = 1
        lock.release()
print("fine" if caught > 20 and not stuck else (caught, stuck))
"""


def run_program(lab, text, *words):
    words = [sys.executable, "-IS", "-c", HEAD + HANDLER + text, *words]
    process = subprocess.Popen(
        words, env=lab.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lab.started.append(process)
    return finish(process)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_exception_at_the_exit_of_a_block_leaves_nothing_locked(lab, block):
    if block == "raising" and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 may run a handler before it calls the __exit__ of a block that raises")

    status, out, err = run_program(lab, AT_THE_EXIT.format(block=BLOCKS[block]))

    assert (status, out) == (0, "20\n"), err


def test_an_exception_at_any_moment_of_a_block_leaves_nothing_locked(lab):
    status, out, err = run_program(lab, AT_RANDOM, "2")

    assert (status, out) == (0, "fine\n"), err
