"""The end of a program, and of its descriptors: a hold lasts until then, and nothing of it remains,
even after SIGKILL.
"""

import os
import time

import pytest
import tally
from conftest import SOCKET_IN_FULL, find_holders, finish, read_line, until

import solo


def test_hold_lasts_through_exit_handlers(lab, via):
    """They may write the file that the lock protects."""
    holder = lab.hold("other")
    code = """
import atexit
@atexit.register
def finish():
    print(hold.locked, flush=True)
    with solo.Lock("other", wait=60): print("acquired")
hold = solo.Lock("job").acquire()
"""
    program = lab.start_code(code)
    assert read_line(program) == "True" and lab.run("-n", "job", "true").returncode == 75

    until(lambda: lab.count_waiting("other"))
    finish(holder)

    assert finish(program) == (0, "acquired\n", "")
    assert lab.run("-n", "job", "true").returncode == 0 and lab.list("job") == []


ENDS = {
    "lock = solo.Lock('job'); lock.acquire()": (0, ""),
    "hold = solo.Lock('job').acquire(); sys.exit(3)": (3, ""),
    "lock = solo.Lock('job'); lock.acquire(); raise KeyError": (1, ""),
    "import atexit; atexit.register(lambda: print(solo.Lock('job').acquire().locked))": (
        0,
        "True\n",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_end_of_python_leaves_no_ticket(lab, via, end):
    assert lab.run_code(end)[:2] == ENDS[end]
    assert lab.list("job") == [] and (
        via == "socket" or os.listdir(lab.directory / "job") == [".gate"]
    )


@pytest.mark.parametrize(
    "held", ["hold = solo.Lock('held').acquire()", "block = enter(); next(block)"]
)
def test_python_ends_though_a_thread_is_frozen_inside_an_acquire(lab, via, held):
    code = f"""
from solo.api import blocking
begun = threading.Event()
def work():
    with blocking.acting: begun.set(), time.sleep(999)  # as an acquire does
sys.modules["user"] = type(sys)("user")  # Python drops its variables while it ends
exec('''
import solo
def enter():
    with solo.Lock("held"): yield
{held}''', sys.modules["user"].__dict__)
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
    assert lab.run_code(code) == (0, "", "")
    assert lab.list("held") == []


@pytest.mark.parametrize("kind", SOCKET_IN_FULL, indirect=True)
def test_program_killed_at_any_moment_leaves_the_name_free(lab, kind):
    chance = tally.make_random("kills")
    code = "print(flush=True)\nwhile True:\n  with solo.Lock('job', wait=math.inf): pass\n  with solo.Lock('job', slots=2): pass"
    for _ in tally.rounds(25, 500):
        program = lab.start_code(code)
        read_line(program)
        time.sleep(chance.random() * 0.02)  # the moment
        program.kill()
        tally.add(kills=1)
        finish(program)

        with solo.Lock("job"):
            pass
    assert find_holders("job") == []
    if kind == "file":
        assert os.listdir(lab.directory / "job") == [".gate"]


def test_hold_whose_descriptor_another_hold_has_got_releases_nothing(lab):
    """The inode of a removed ticket may be that of the next one, as on ext4."""
    code = """
import os
hold = solo.Lock("job").acquire()
os.closerange(3, 1000)
later = solo.Lock("job").acquire()
[ticket], [other] = hold._tickets, later._tickets
assert ticket.fd == other.fd
hold._files.update(later._files)
print(hold.locked, later.locked)
try: hold.release()
except solo.SoloError as error: print("descriptors" in str(error))
print(later.locked)
"""

    assert lab.run_code(code) == (0, "False True\nTrue\nTrue\n", "")


@pytest.mark.root
def test_hold_is_released_in_a_root_without_proc(lab):
    code = """
import os
hold = solo.Lock("job").acquire()
os.chroot(os.environ["LAB"])
print(hold.locked)
hold.release()
print(hold.locked)
"""

    assert lab.run_code(code) == (0, "True\nFalse\n", "")
    assert lab.list("job") == []


# A program that closes every descriptor while it holds a name, as a daemon does when it starts.
CLOSE_ALL = """
os.closerange(3, 1000)
files = [os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(40)]
def is_file(fd): return os.path.exists(f"/proc/self/fd/{fd}") and os.path.samestat(os.stat(sys.argv[1]), os.fstat(fd))
def count(): return sum(map(is_file, files))
"""
ACQUIRE_AND_CLOSE_ALL = f"hold = solo.Lock('job').acquire()\n{CLOSE_ALL}"


@pytest.mark.parametrize(
    "release", ["hold.release()", "lock.release()", "lock.__exit__(None, None, None)"]
)
def test_closed_descriptors_end_the_lock_and_release_reports_it(lab, via, release):
    code = f"""
lock = solo.Lock(["job", "other/inner"], flock=sys.argv[1] + ".lock")
hold = lock.acquire()
{CLOSE_ALL}
print(hold.locked, lock.locked, flush=True)
sys.stdin.readline()
try: {release}
except solo.SoloError as error: print("descriptors" in str(error), count(), hold.locked)
with lock: print(lock.locked)
hold.release()
"""
    program = lab.start_code(code, lab.path / "file")

    assert read_line(program) == "False False"
    assert lab.run("-n", "job", "true").returncode == 0
    assert finish(program, b"\n")[:2] == (0, "True 40 False\nTrue\n")


@pytest.mark.parametrize(
    "drop", ["del hold", "if os.fork() == 0: print(count(), flush=True); os._exit(0)\nos.wait()"]
)
def test_lost_hold_closes_nothing_when_dropped_or_forked(lab, via, drop):
    _, out, _ = lab.run_code(f"{ACQUIRE_AND_CLOSE_ALL}\n{drop}\nprint(count())", lab.path / "file")

    assert set(out.split()) == {"40"}


def test_reentrant_lock_acquires_a_lost_hold_again(lab, via):
    code = f"""
lock = solo.Lock("job", reentrant=True)
lock.acquire()
{CLOSE_ALL}
hold = lock.acquire()
print(hold.locked, hold.depth, count(), flush=True)
sys.stdin.readline()
"""
    program = lab.start_code(code, lab.path / "file")

    assert read_line(program) == "True 1 40"
    assert lab.run("-n", "job", "true").returncode == 75


def test_closed_descriptor_of_the_directory_ends_no_lock(lab):
    code = """
hold = solo.Lock("job").acquire()
os.close(hold._tickets[0].queue.place.fd)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(hold.locked, flush=True)
hold.release()
print(os.path.samestat(os.stat(sys.argv[1]), os.fstat(file)), flush=True)
sys.stdin.readline()
"""
    program = lab.start_code(code, lab.path / "file")

    assert (read_line(program), read_line(program)) == ("True", "True")
    assert lab.run("-n", "job", "true").returncode == 0
