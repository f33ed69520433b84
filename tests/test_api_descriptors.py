"""A program that closes every descriptor while it holds a name, as a daemon does when it starts."""

import pytest
from conftest import finish, read_line

CLOSE_ALL = """
os.closerange(3, 1000)
files = [os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(40)]
def is_file(fd): return os.path.exists(f"/proc/self/fd/{fd}") and os.path.samestat(os.stat(sys.argv[1]), os.fstat(fd))
def count(): return sum(map(is_file, files))
"""
ACQUIRE_AND_CLOSE_ALL = f"hold = solo.Lock('job').acquire()\n{CLOSE_ALL}"


@pytest.mark.parametrize("release", ["hold.release()", "lock.release()", "lock.__exit__(None, None, None)"])
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


@pytest.mark.parametrize("drop", ["del hold", "if os.fork() == 0: print(count(), flush=True); os._exit(0)\nos.wait()"])
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
