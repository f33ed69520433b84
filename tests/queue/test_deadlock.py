"""A contender that would wait for a run that waits for it is refused at once, with the circle in words.

Each run holds its name, waits for a line on its stdin, and then waits for another name in a nested run.
"""

import re
import signal

import pytest
from conftest import finish, kill, read_line, until

NESTED = "read go; $SOLO -w forever -n {wanted} -- echo ran; echo $?"


def start(lab, held, wanted, *words):
    """Start a run that holds `held`; told to go, it waits for `wanted` and prints `ran` and the nested status."""
    run = lab.start(*words, "-n", held, "--", "sh", "-c", f"echo; {NESTED.format(wanted=wanted)}")
    read_line(run)
    return run


def go(run, lab=None, wanted=None):
    """Let the run wait for its second name; return once it is in the queue of `wanted`, if that is given."""
    before = lab.count_waiting(wanted) if lab else 0
    run.stdin.write(b"go\n")
    run.stdin.flush()
    if lab:
        until(lambda: lab.count_waiting(wanted) > before)


def refusal(name, *steps):
    """Return the pattern of a message about a circle, from the holder of `name` over the names `steps` to us."""
    waits = "".join(rf"held by pid \d+ \(.*\), which waits for {step}, " for step in steps)
    return rf"solo: {name}: a deadlock: {waits}held by us \(pid \d+\)\n"


@pytest.mark.parametrize("size", [2, 5])
def test_circle_of_any_number_of_runs_is_refused(lab, size):
    names = [f"d{number}" for number in range(size)]
    *others, last = [start(lab, name, wanted) for name, wanted in zip(names, [*names[1:], names[0]])]
    for run, wanted in zip(others, names[1:]):
        go(run, lab, wanted)

    go(last)

    _, out, err = finish(last)
    assert out == "125\n" and re.fullmatch(refusal("d0", *names[1:]), err), err
    assert f"held by pid {others[0].pid} " in err and err.endswith(f"held by us (pid {last.pid})\n")
    assert [finish(run)[1] for run in reversed(others)] == ["ran\n0\n"] * len(others)


def test_circle_through_several_names_and_depths_is_refused(lab):
    """One run holds two names; the other one waits two levels further down, for the parent of a nested name."""
    first = start(lab, "a/x", "b", "-n", "c/y")
    nested = "$SOLO -n e -- sh -c '$SOLO -n f -- sh -c \"echo; " + NESTED.format(wanted="c") + "\"; :'; :"
    second = lab.start("-n", "b", "--", "sh", "-c", nested)
    read_line(second)
    go(first, lab, "b")

    second.stdin.write(b"go\n")
    second.stdin.flush()

    _, out, err = finish(second)
    assert re.fullmatch(refusal("c", "b"), err), (out, err)
    assert finish(first)[1] == "ran\n0\n"


def test_circle_through_kept_holds_is_refused(lab):
    """A script guards itself by `solo hold`, and waits in `solo hold`."""
    script = "$SOLO hold --pid $$ {held} && echo && read go; $SOLO hold -w forever --pid $$ {wanted}; echo $?"
    pairs = [("da", "db"), ("db", "da")]
    first, second = [lab.start_shell(script.format(held=held, wanted=wanted)) for held, wanted in pairs]
    read_line(first), read_line(second)
    go(first, lab, "db")

    go(second)

    _, out, err = finish(second)
    assert out == "125\n" and re.fullmatch(refusal("da", "db"), err), err
    assert finish(first)[1] == "0\n"


@pytest.mark.host
def test_circle_through_an_orphan_is_refused(lab):
    first, second = start(lab, "da", "db"), start(lab, "db", "da")
    kill(first)
    go(first, lab, "db")

    go(second)

    _, out, err = finish(second)
    assert out == "125\n" and "held by orphan pid " in err and err.count("\n") == 1, err
    assert first.stdout.read() == b"ran\n0\n"


def test_waiter_behind_others_is_refused(lab):
    """The holder shares the name with us, but a waiter ahead of us waits for it."""
    first = start(lab, "da", "db", "-s")
    go_second = NESTED.format(wanted="da").replace("-w forever", "-w forever -s")
    second = lab.start("-n", "db", "--", "sh", "-c", f"echo; {go_second}")
    read_line(second)
    between = lab.start_waiter("da", tag="between")
    go(first, lab, "db")

    go(second)

    _, out, err = finish(second)
    assert out == "125\n" and re.fullmatch(refusal("da", "db"), err), err
    assert (finish(first)[1], finish(between)[0]) == ("ran\n0\n", 0)


def test_chain_without_a_circle_is_not_refused(lab):
    """The last one holds nothing that another waits for, though it is in the way of one that waits for nothing of it."""
    first, second = start(lab, "da", "db"), start(lab, "db", "dc")
    holder = lab.hold("dc")
    go(first, lab, "db")
    go(second, lab, "dc")
    last = lab.start_waiter("da", tag="last")

    finish(holder)

    assert [finish(run)[1] for run in (second, first)] == ["ran\n0\n"] * 2
    assert finish(last)[0] == 0 and lab.read_log() == ["last"]


def test_replace_is_not_refused(lab):
    first = start(lab, "da", "db")
    nested = NESTED.format(wanted="da").replace("-w forever", "--replace")
    second = lab.start("-n", "db", "--", "sh", "-c", f"echo; {nested}")
    read_line(second)
    go(first, lab, "db")

    go(second)

    assert finish(second)[1] == "ran\n0\n" and finish(first)[0] == -signal.SIGTERM


def test_contender_that_does_not_wait_is_busy(lab):
    first = start(lab, "da", "db")
    second = lab.start("-n", "db", "--", "sh", "-c", "echo; read go; $SOLO -n da -- true; echo $?")
    read_line(second)
    go(first, lab, "db")

    go(second)

    assert finish(second)[1] == "75\n"


LOCKS = """
held, wanted, mode = sys.argv[1:]
with solo.Lock(held) as hold:
    print(flush=True)
    sys.stdin.readline()
    def wait():
        try:
            with solo.Lock(wanted, wait=math.inf):
                print("ran", flush=True)
        except solo.SoloError as error:
            print(error, flush=True)
    if mode == "thread":
        waiter = threading.Thread(target=wait)
        waiter.start()
        sys.stdin.readline()
        hold.release()
        waiter.join()
    else:
        wait()
"""


def start_locks(lab, held, wanted, mode="here"):
    program = lab.start_code(LOCKS, held, wanted, mode)
    read_line(program)
    return program


@pytest.mark.parametrize("kind", ["program", "run"])
def test_programs_that_wait_for_each_other_are_refused(lab, kind):
    first = start_locks(lab, "da", "db")
    second = start_locks(lab, "db", "da") if kind == "program" else start(lab, "db", "da")
    go(first, lab, "db")

    go(second)

    _, out, err = finish(second)
    words = out if kind == "program" else err
    assert re.search(r"da: a deadlock: held by pid \d+ \(.*\), which waits for db, held by us \(pid \d+\)\n", words)
    assert finish(first)[1] == "ran\n"


def test_program_whose_other_thread_waits_is_not_in_a_circle(lab):
    """Its main thread releases the hold meanwhile."""
    first, second = start_locks(lab, "da", "db", "thread"), start_locks(lab, "db", "da")
    go(first, lab, "db")
    go(second, lab, "da")

    go(first)

    assert (finish(second)[1], finish(first)[1]) == ("ran\n", "ran\n")


def test_threads_of_one_program_that_wait_for_each_other_are_refused(lab):
    """One of them, or both if they join at once."""
    code = """
meeting = threading.Barrier(2)
def work(held, wanted):
    with solo.Lock(held):
        meeting.wait()
        try:
            with solo.Lock(wanted, wait=math.inf):
                print("ran", flush=True)
        except solo.SoloError as error:
            print(str(error).partition(": held")[0], flush=True)
threads = [threading.Thread(target=work, args=names) for names in (("da", "db"), ("db", "da"))]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    status, out, err = lab.run_code(code)

    assert (status, err, out.count("\n")) == (0, "", 2)
    assert re.search("d[ab]: a deadlock\n", out), out


@pytest.mark.parametrize("loser", ["waits", "limit"])
def test_tasks_that_wait_for_each_other_are_refused(lab, loser):
    """A wait with a limit is not refused: another task may release the hold meanwhile."""
    wait = {"waits": "math.inf", "limit": "1"}[loser]
    code = f"""
import asyncio
async def work(held, wanted, met, other):
    async with solo.Lock(held):
        met.set()
        await other.wait()
        try:
            async with solo.Lock(wanted, wait={wait}):
                print("ran", flush=True)
        except solo.SoloError as error:
            print(type(error).__name__, flush=True)
async def main():
    one, two = asyncio.Event(), asyncio.Event()
    await asyncio.gather(work("da", "db", one, two), work("db", "da", two, one))
asyncio.run(main())
"""
    status, out, err = lab.run_code(code)

    assert (status, err) == (0, "") and {"waits": "SoloError", "limit": "Busy"}[loser] in out.split()
