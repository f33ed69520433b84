"""solo.Lock where gevent or eventlet has replaced Python's threads: one waiting greenlet must not
stop the others.
"""

import importlib.util

import pytest
from conftest import finish

needs_gevent = pytest.mark.skipif(
    not importlib.util.find_spec("gevent"), reason="pip install gevent"
)
needs_eventlet = pytest.mark.skipif(
    not importlib.util.find_spec("eventlet"), reason="pip install eventlet"
)

EARLY = "import gevent.monkey; gevent.monkey.patch_all()\nimport gevent\n"
LATE = "solo.Lock; import gevent.monkey; gevent.monkey.patch_all()\nimport gevent\n"
CROWD = """
inside, most, done, lock = 0, 0, 0, solo.Lock("job", wait=60)
def work(own):
    global inside, most, done
    for _ in range(6):
        with solo.Lock("job", wait=60) if own else lock:
            inside += 1
            most = max(most, inside)
            os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))  # fails if another holder has made it
            gevent.sleep(0.002)
            os.unlink(sys.argv[1])
            inside, done = inside - 1, done + 1
gevent.joinall([gevent.spawn(work, number % 2) for number in range(4)], raise_error=True)
print(done, most)
"""


@needs_gevent
@pytest.mark.parametrize("patch", [EARLY, LATE], ids=["early", "late"])
def test_greenlets_of_two_programs_never_overlap(lab, kind, patch):
    programs = [lab.start_code(patch + CROWD, lab.path / "mark", flags=("-I",)) for _ in range(2)]

    assert [finish(program)[:2] for program in programs] == [(0, "24 1\n")] * 2


@needs_gevent
def test_other_greenlets_run_while_one_waits(lab, kind):
    lab.hold("job")
    code = """
waiting = gevent.spawn(solo.Lock("job").acquire, 60)
while len(os.listdir("/proc/self/task")) == 1: gevent.sleep(0.001)
for _ in range(100): gevent.sleep(0.001)
print(waiting.ready(), flush=True)
gevent.kill(waiting)
try:
    with gevent.Timeout(0.1): solo.Lock("job").acquire(60)
except gevent.Timeout:
    print("timeout")
try: solo.Lock("job").acquire(0.1)
except solo.Busy: print("busy")
"""

    assert lab.run_code(EARLY + code, flags=("-I",))[:2] == (0, "False\ntimeout\nbusy\n")
    assert lab.list("job")[1:] == []


@needs_gevent
def test_wait_of_gevent_leaves_no_thread(lab, files):
    code = """
holder = solo.Lock("job").acquire()
gevent.spawn_later(0.1, holder.release)
with solo.Lock("job", wait=60): pass
while len(os.listdir("/proc/self/task")) > 1: gevent.sleep(0.001)
print("alone")
"""

    assert lab.run_code(EARLY + code, flags=("-I",))[:2] == (0, "alone\n")


@needs_eventlet
def test_wait_below_eventlet_is_refused_in_words(lab, files):
    code = """
import eventlet; eventlet.monkey_patch()
with solo.Lock("job", wait=5): pass
hold = solo.Lock("job").acquire()
for wait in (None, 5):
    try: solo.Lock("job").acquire(wait)
    except solo.SoloError as error: print(type(error).__name__, error)
"""

    status, out, _ = lab.run_code(code, flags=("-I", "-W", "ignore"))

    busy, refused = out.splitlines()
    assert status == 0 and busy.startswith("Busy job: busy: held")
    assert refused.startswith(
        "SoloError job: cannot wait: eventlet would run no other greenlet meanwhile ("
    )
