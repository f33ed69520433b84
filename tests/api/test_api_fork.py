"""Holds and child processes: a hold belongs to the process that acquired it, and no child keeps or
releases it.
"""

import gc
import json
import math
import multiprocessing
import os
import signal
import subprocess

import pytest
from conftest import PATIENCE, SOCKET_IN_FULL, is_locked, list_open, read_line, read_state, until

import solo


@pytest.mark.parametrize("is_referenced", [True, False])
def test_forked_child_holds_and_releases_nothing(lab, kind, is_referenced):
    lock = solo.Lock("job")
    hold = lock.acquire() if is_referenced else lock.acquire() and None
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            found = [
                lock.locked,
                bool(hold and hold.locked),
                lock.token,
                lab.run("-n", "job", "true").returncode,
            ]
            hold and hold.release()
            del hold
            lock = None
            gc.collect()
            os.write(write, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert json.loads(os.read(read, 100)) == [False, False, None, 75]
    assert lock.locked and lab.run("-n", "job", "true").returncode == 75
    lock.release()
    assert lab.run("-n", "job", "true").returncode == 0


IN_CHILD = {  # the child exits with 0 if all is well
    "leaves the block of its parent": "with lock: pid = os.fork()\nif not pid: os._exit(0)",
    "keeps its own hold at the end of the block of its parent": """
with lock:
    pid = os.fork()
    hold = None if pid else lock.acquire()
if not pid:
    os._exit(not hold.locked)""",
    "ends in a thread what it entered by hand": """
pid = os.fork()
if not pid:
    lock.__enter__()
    thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    os._exit(len(find_holders('job')))""",
}


@pytest.mark.parametrize("case", IN_CHILD)
def test_forked_child_holds_for_itself(lab, via, case):
    code = f"lock = solo.Lock('job', shared=True)\n{IN_CHILD[case]}\nprint(os.waitpid(pid, 0)[1])"

    assert lab.run_code(code) == (0, "0\n", "")


ASK = """
import subprocess
def ask():
    try:
        solo.Lock('job', wait={}).acquire()
    except solo.SoloError as error:
        print(type(error).__name__, flush=True)
"""
BELOW = {  # the holder is a program, which asks in a child
    "forked": """
with solo.Lock('job'):
    if not os.fork():
        ask()
        os._exit(0)
    os.wait()""",
    "executed": """
if sys.argv[1:]:
    ask()
else:
    with solo.Lock('job'):
        subprocess.run([*open('/proc/self/cmdline').read().split('\\0')[:-1], 'child'])""",
}


@pytest.mark.parametrize(
    "wait, error", [("None", "Busy"), ("0.05", "Busy"), ("math.inf", "SoloError")]
)
@pytest.mark.parametrize("how", BELOW)
def test_child_of_the_holder_is_busy_unless_it_would_wait_for_ever(lab, via, how, wait, error):
    """So a reloader, or a prefork server, asks whether it is the leader."""
    assert lab.run_code(ASK.format(wait) + BELOW[how]) == (0, f"{error}\n", "")


@pytest.mark.parametrize("wait, error", [("None", "Busy"), ("math.inf", "SoloError")])
def test_program_below_a_command_that_holds_its_name_is_busy(lab, wait, error):
    words = (lab.script, "-n", "job", "--")

    assert lab.run_code(ASK.format(wait) + "ask()", prefix=words) == (0, f"{error}\n", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_contends_with_its_parent(lab, files, method):
    lock = solo.Lock("job", wait=math.inf)
    child = multiprocessing.get_context(method).Process(target=enter, args=(lock,))
    with lock:
        child.start()
        until(lambda: child.exitcode is not None or lab.count_waiting("job"))
        assert child.exitcode is None

    child.join(PATIENCE)
    assert child.exitcode == 0


def enter(lock):
    with lock:
        pass


SURVIVORS = {  # each prints the pids of processes that outlive the program
    "exec": "os.execvp('sh', ['sh', '-c', 'echo $$; exec sleep 999'])",
    "subprocess": "import subprocess; print(subprocess.Popen(['sleep', '999'], close_fds=False).pid, flush=True)",
    "fork": "if pid := os.fork(): print(pid, flush=True)\nelse: os.close(1), signal.pause()",
    "forks beside a thread": """
hold.release()
def work():
    while True:
        with solo.Lock('job', wait=5): pass
threading.Thread(target=work, daemon=True).start()
children = []
for _ in range(30):
    if (pid := os.fork()) == 0: os.close(1), signal.pause()
    children.append(pid)
print(*children, flush=True)""",
}


@pytest.mark.parametrize("survivors", SURVIVORS)
def test_children_of_a_killed_program_keep_neither_name_nor_gate(lab, via, survivors):
    program = lab.start_code(
        f"hold = solo.Lock('job').acquire()\n{SURVIVORS[survivors]}\nsignal.pause()"
    )
    children = list(map(int, read_line(program).split()))
    if survivors != "exec":
        program.kill()
        program.wait()

    assert lab.run("-n", "job", "-w", "10", "true").returncode == 0
    assert "gone" not in map(read_state, children)
    for child in children:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("via", SOCKET_IN_FULL, indirect=True)
def test_forks_in_the_middle_of_acquires_break_nothing(lab, via):
    code = """
import random, select
lock, stop, bad = solo.Lock("job", wait=5), False, []
signal.signal(signal.SIGUSR1, lambda *_: None)
def work():
    while not stop:
        try:
            with solo.Lock(f"job{random.randrange(3)}", wait=random.choice([None, 0.001, 5])): pass
        except solo.Busy:
            pass
def check(write):
    try:
        fine = signal.getsignal(signal.SIGUSR1).__name__ == "<lambda>" and signal.getsignal(signal.SIGINT) is not None
        fine = fine and "Deferred" not in repr(signal.getsignal(signal.SIGINT))
        with solo.Lock("child", wait=30): pass
        os.write(write, b"y" if fine else b"n")
    finally:
        os._exit(0)
def fork():
    for turn in range(60):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0: check(write)
        os.close(write)
        if not select.select([read], [], [], 30)[0] or os.read(read, 1) != b"y":
            bad.append(turn)
        os.close(read)
        os.waitpid(pid, 0)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
forker = threading.Thread(target=fork)
for thread in (*threads, forker): thread.start()
while forker.is_alive():
    with lock: pass
stop = True
for thread in threads: thread.join(10)
print(bad, [thread.is_alive() for thread in threads], [find_holders(f"job{number}") for number in range(3)])
"""
    flags = (
        "-IS",
        "-W",
        "ignore::DeprecationWarning",
    )  # since 3.12 Python warns of any fork beside threads

    assert lab.run_code(code, flags=flags) == (0, "[] [False, False, False] [[], [], []]\n", "")


def test_child_of_a_waiter_inherits_neither_gate_nor_locked_file(lab):
    """A copy of either would keep it locked when the program is gone."""
    lab.hold("job")
    taken, wanted = sorted(
        (lab.path / "one", lab.path / "two"), key=lambda path: path.touch() or path.stat().st_ino
    )
    locker = subprocess.Popen(["flock", wanted, "cat"], stdin=subprocess.PIPE)
    until(lambda: is_locked(wanted))
    code = """
for lock in solo.Lock('job', wait=60), solo.Lock('other', wait=60, flock=sys.argv[1:]):
    threading.Thread(target=lock.acquire, daemon=True).start()
sys.stdin.readline()
if os.fork() == 0:
    paths = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]
    print(*[os.readlink(path) for path in paths if os.path.exists(path)], flush=True)
    os._exit(0)
os.wait()
os._exit(0)
"""
    program = lab.start_code(code, taken, wanted)
    until(
        lambda: (
            lab.count_waiting("job") == 1
            and is_locked(taken)
            and str(wanted) in list_open(program.pid)
        )
    )
    program.stdin.write(b"\n")
    program.stdin.flush()

    inherited = read_line(program)

    assert "pipe:" in inherited  # unlocked files may remain, as they keep nothing
    assert str(taken) not in inherited and "/.gate" not in inherited
    locker.communicate()
