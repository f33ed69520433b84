"""A program that closes every descriptor while it holds a name, as one that becomes a daemon does."""

import subprocess
import sys

import pytest
from conftest import ROOT, finish, read_line

HEAD = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport solo, os\n"
CLOSE_ALL = """
own = [name for name in os.listdir("/proc/self/fd") if int(name) > 2]
os.closerange(3, 1000)
files = []
while len(files) < 40:
    files.append(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))
def count():
    return sum(os.path.samestat(os.stat(sys.argv[1]), os.fstat(fd)) for fd in files if os.path.exists(f"/proc/self/fd/{fd}"))
"""


def start(lab, text):
    words = [sys.executable, "-IS", "-c", HEAD + text, lab.path / "file"]
    process = subprocess.Popen(
        words, env=lab.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lab.started.append(process)
    return process


@pytest.mark.parametrize("release", ["hold.release()", "lock.release()", "lock.__exit__(None, None, None)"])
def test_closed_descriptors_end_the_lock_and_release_says_so(lab, via, release):
    program = start(
        lab,
        f"""
lock = solo.Lock(["job", "other/inner"], flock=sys.argv[1] + ".lock")
hold = lock.acquire()
{CLOSE_ALL}
print(hold.locked, lock.locked, flush=True)
sys.stdin.readline()
try:
    {release}
except solo.SoloError as error:
    print("descriptors" in str(error), count(), hold.locked)
with lock:
    print(lock.locked, flush=True)
hold.release()
""",
    )

    assert read_line(program) == "False False"
    assert lab.run("-n", "job", "true").returncode == 0
    assert finish(program, b"\n")[:2] == (0, "True 40 False\nTrue\n")


def test_a_hold_that_was_lost_closes_nothing_when_it_is_dropped(lab, via):
    program = start(lab, f"hold = solo.Lock('job').acquire()\n{CLOSE_ALL}\ndel hold\nprint(count())")

    assert finish(program)[1] == "40\n"


def test_a_forked_child_closes_nothing_of_a_hold_that_was_lost(lab, via):
    program = start(
        lab,
        f"hold = solo.Lock('job').acquire()\n{CLOSE_ALL}\n"
        "if os.fork() == 0: print(count(), flush=True); os._exit(0)\nos.wait()",
    )

    assert finish(program)[1] == "40\n"


def test_a_lost_hold_can_be_acquired_again_by_a_reentrant_lock(lab, via):
    program = start(
        lab,
        f"lock = solo.Lock('job', reentrant=True)\nlock.acquire()\n{CLOSE_ALL}\n"
        "hold = lock.acquire()\nprint(hold.locked, hold.depth, count(), flush=True)\nsys.stdin.readline()",
    )

    assert read_line(program) == "True 1 40"
    assert lab.run("-n", "job", "true").returncode == 75
    finish(program)


def test_only_what_the_program_closed_is_lost(lab):
    """The descriptor of the name's directory keeps no lock."""
    program = start(
        lab,
        """
hold = solo.Lock("job").acquire()
os.close(hold._tickets[0].queue.place.fd)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(hold.locked, flush=True)
hold.release()
print(os.path.samestat(os.stat(sys.argv[1]), os.fstat(file)), flush=True)
sys.stdin.readline()
""",
    )

    assert (read_line(program), read_line(program)) == ("True", "True")
    assert lab.run("-n", "job", "true").returncode == 0
    finish(program)
