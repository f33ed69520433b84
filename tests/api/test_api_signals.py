"""Signal handlers that raise at any moment: nothing stays locked, no signal is lost."""

import math
import signal

import pytest
import tally
from conftest import SOCKET_IN_FULL

from solo.api import blocking

AT_ANY_MOMENT = """
import gc, random, warnings
warnings.simplefilter("ignore")
lock, reentrant = solo.Lock("job", wait=30), solo.Lock("job", wait=30, reentrant=True)
@reentrant
def decorated(): pass
def enter_own():
    with solo.Lock("job", wait=30): pass
def enter_global():
    with lock: pass
def enter_reentrant():
    with reentrant, reentrant: decorated()
def arm():
    signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 5e-4), 2)
def handler(*_):
    frame, names = sys._getframe(), set()
    while frame: names, frame = {*names, frame.f_code.co_name}, frame.f_back
    if enter.__name__ in names and "__del__" not in names: raise KeyboardInterrupt
    arm()  # Python reports what is raised in a __del__, and goes on; nothing expects it after the loop
def check():
    with solo.Lock("job", wait=30): checked.append(1)
enter = globals()["enter_" + sys.argv[1]]
sys.unraisablehook = lambda _: arm()  # raised in the callback of a weak reference
signal.signal(signal.SIGALRM, handler)
hits, checked = 0, []
while hits < int(sys.argv[2]) and time.monotonic() < float(sys.argv[3]):
    try:
        arm()
        while True: enter()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        hits += 1
        for left in lock, reentrant:  # raised as a block ended
            while left.locked: left.release()
    if enter is not enter_own: gc.collect()
    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    thread.join(60)
    if len(checked) < hits or lock.locked or reentrant.locked: break
print(hits, hits - len(checked), lock.locked, reentrant.locked)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("via", SOCKET_IN_FULL, indirect=True)
@pytest.mark.parametrize("lock", ["global", "own", "reentrant"])
def test_interrupt_at_any_moment_releases(lab, via, lock):
    """The name and the mutex of the module: else the thread that checks would wait."""
    program = lab.start_code(
        AT_ANY_MOMENT, lock, 3000 if tally.WHOLE else 100, tally.UNTIL or math.inf
    )
    out, err = program.communicate()  # it takes minutes on a busy machine

    assert (program.returncode, err) == (0, b"")
    hits, *stuck = out.split()
    assert stuck == [b"0", b"False", b"False"]
    tally.add(interrupts=int(hits))


def test_signal_is_kept_if_another_handler_raises_first(lab):
    """At the start of an acquire: the first signal was recorded, the handler of the second one was
    not yet replaced.
    """
    code = """
import solo.api.blocking
class Over(Exception): pass
def end(*_): raise Over
put_off, got = solo.api.blocking.Deferred.put_off, []
def put_off_and_send(self, number):
    put_off(self, number)
    if number == signal.SIGHUP:
        solo.api.blocking.Deferred.put_off = put_off
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGHUP, lambda *_: got.append("SIGHUP"))
signal.signal(signal.SIGTERM, end)
solo.api.blocking.Deferred.put_off = put_off_and_send
try:
    solo.Lock("job").acquire()
except Over:
    print(*got, signal.getsignal(signal.SIGTERM) is end, find_holders("job"))
"""
    assert lab.run_code(code) == (0, "SIGHUP True []\n", "")


IN_FORK = """
import functools
class Over(Exception): pass
def handler(*_): raise Over
signal.signal(signal.SIGALRM, handler)
os.register_at_fork(before=functools.partial(signal.setitimer, signal.ITIMER_REAL, 1e-4))  # arrives during fork(2)
caught, checked, lock = 0, [], solo.Lock("job", wait=5)
def check():
    with lock: checked.append(1)
for _ in range(20):
    try:
        if not os.fork(): os._exit(0)
        time.sleep(5)
    except Over:
        caught += 1
    os.wait()
thread = threading.Thread(target=check, daemon=True)
thread.start()
thread.join(30)
print(caught, len(checked))
"""


def test_exception_during_fork_is_not_lost(lab):
    """Nor the mutex of the module: else other threads could acquire nothing any more."""
    assert lab.run_code(IN_FORK) == (0, "20 1\n", "")


AT_EACH_BYTECODE = """
import dis, gc, warnings
warnings.simplefilter("ignore")
# Python cannot protect the first instructions of these, and runs no handler between a return and its caller.
UNPROTECTED = ("__del__", "__exit__", "perform")
last, step, lock = int(sys.argv[1]), int(sys.argv[2]), solo.Lock("job", wait=5)
def attempt(lock):
    count = 0
    def trace(frame, event, _):
        nonlocal count
        code = frame.f_code
        if not code.co_filename.endswith(("/lock.py", "/hold.py", "/attempt.py", "/blocking.py")) or code.co_name in UNPROTECTED: return None
        frame.f_trace_opcodes = True
        # Python 3.9 loses what is raised at a line, and each line begins with an opcode.
        if event not in ("line", "return") and not dis.opname[code.co_code[frame.f_lasti]].startswith("RETURN"):
            count += 1
            if count == last:
                sys.settrace(None)
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # as Python may between any two bytecodes
        return trace
    sys.settrace(trace)
    try:
        with lock: pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
stuck = 0
while attempt(lock if sys.argv[3] == "global" else solo.Lock("job", wait=5)):
    gc.collect()
    stuck += find_holders("job") != []
    for hold in list(solo.api.hold.all_holds): hold.release()
    last += step
print(stuck, last)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lock", ["global", "own"])
def test_interrupt_at_each_bytecode_releases(lab, via, lock):
    """A sample of the bytecodes of an acquire and a release in the main thread; a third of them in
    `make torture`.
    """
    interrupt_each(lab, AT_EACH_BYTECODE, 3 if tally.WHOLE else 19, lock)


def interrupt_each(lab, code, step, *words):
    """Run a program that interrupts itself at each step-th point, and prints how often it got
    stuck, and its last point.
    """
    first = tally.make_random("first").randrange(1, step + 1)
    program = lab.start_code(code, first, step, *words)
    out, err = program.communicate()

    stuck, last = map(int, out.split())
    tally.add(stuck=stuck, interrupts=last // step)
    assert (program.returncode, stuck, err) == (0, 0, b"") and last > 100


AT_EACH_LINE_OF_RUN = """
last, step = map(int, sys.argv[1:])
def attempt():
    count = 0
    def trace(frame, event, _):
        nonlocal count
        code = frame.f_code
        if not code.co_filename.endswith(("/subprocess.py", "/solo/api/run.py")): return None
        if code.co_name in ("__del__", "_internal_poll"): return None  # at the end of Popen, Python prints what is raised
        count += event == "line"
        if count == last:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGINT)
        return trace
    sys.settrace(trace)
    try:
        solo.run(["true"], name="job")
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
def has_child():
    try:
        return os.waitpid(-1, os.WNOHANG) is not None
    except ChildProcessError:
        return False
stuck = 0
while attempt():
    stuck += has_child()
    last += step
print(stuck, last)
"""


@pytest.mark.timeout(600)
def test_interrupt_at_each_line_of_run_ends_the_launcher(lab):
    """A sample of the lines of solo.run and Popen; all of them in `make torture`. No child is left,
    alive or dead.
    """
    interrupt_each(lab, AT_EACH_LINE_OF_RUN, 1 if tally.WHOLE else 11)


def test_each_signal_is_handled_once(lab, via):
    code = """
import asyncio
seen, handled = [], threading.Semaphore(0)
def send():
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)
        handled.acquire(timeout=30)
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: (seen.append(1), handled.release()))
    sender, lock = threading.Thread(target=send), solo.Lock("job")
    sender.start()
    while sender.is_alive():
        async with lock: pass
        await asyncio.sleep(0)
asyncio.run(main())
print(len(seen))
"""
    assert lab.run_code(code) == (0, "50\n", "")


@pytest.fixture
def set_handlers():
    """A function that sets the handler of SIGUSR1 and SIGUSR2."""
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    old = [signal.getsignal(number) for number in numbers]
    yield lambda handler: [signal.signal(number, handler) for number in numbers]
    for number, handler in zip(numbers, old):
        signal.signal(number, handler)


def test_handler_that_raises_does_not_suppress_the_next(set_handlers):
    """Each gets the frame that its signal interrupted."""
    ran = []

    def handler(number, frame):
        ran.append((number, frame.f_code.co_name))
        raise KeyError

    set_handlers(handler)
    with pytest.raises(KeyError), blocking.Deferred():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)

    name = "test_handler_that_raises_does_not_suppress_the_next"
    assert (
        ran == [(signal.SIGUSR1, name), (signal.SIGUSR2, name)]
        and signal.getsignal(signal.SIGUSR1) is handler
    )


class Interrupted(blocking.Deferred):
    """Raises where a handler may: after a handler was replaced, or before it is restored."""

    def put_off(self, number):
        super().put_off(number)
        if number == signal.SIGUSR1 and self.error is ValueError:
            raise self.error

    def put_back(self):
        error, self.error = self.error, None
        if error is KeyError:
            raise error
        super().put_back()


@pytest.mark.parametrize("error, seen", [(ValueError, []), (KeyError, [signal.SIGUSR1])])
def test_handlers_are_restored_after_an_exception(set_handlers, error, seen):
    ran, deferred = [], Interrupted()
    handler = lambda number, _: ran.append(number)
    set_handlers(handler)
    deferred.error = error

    with pytest.raises(error), deferred:
        signal.raise_signal(signal.SIGUSR1)

    assert (ran, signal.getsignal(signal.SIGUSR1)) == (seen, handler)
    assert blocking.acting.acquire(blocking=False)
    blocking.acting.release()
