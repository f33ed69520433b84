"""A contender that would wait for a run that waits for it is refused at once, with the circle in
words.

Each run holds its name, waits for a line on its stdin, and then waits for another name in a nested
run.
"""

import os
import re
import signal

import pytest
from conftest import NOBODY, finish, is_blocked, kill, read_line, until
from observed import INNER, find_chain

from solo.identity import read_stat

NESTED = "read go; $SOLO {wait} -n {wanted} -- echo ran; echo $?"


def start(lab, held, wanted, *words, wait="-w forever", prefix=()):
    """Start a run that holds `held`; told to go, it waits for `wanted` and prints `ran` and the
    nested status.
    """
    nested = f"echo; {NESTED.format(wait=wait, wanted=wanted)}"
    run = lab.start(*words, "-n", held, "--", *prefix, "sh", "-c", nested)
    read_line(run)
    return run


def go(run, lab=None, wanted=None):
    """Let the run wait for its second name; return once it is in the queue of `wanted`, if that is
    given.
    """
    before = lab.count_waiting(wanted) if lab else 0
    run.stdin.write(b"go\n")
    run.stdin.flush()
    if lab:
        until(lambda: lab.count_waiting(wanted) > before)


def refusal(name, *steps):
    """Return the pattern of a message about a circle, from the holder of `name` over the names
    `steps` to us.
    """
    waits = "".join(
        rf"held by pid \d+ \(.*\), in which pid \d+ waits for {step}, " for step in steps
    )
    return rf"solo: {name}: a deadlock: {waits}held by us \(pid \d+\)\n"


@pytest.mark.parametrize("size", [2, 5])
def test_circle_of_any_number_of_runs_is_refused(lab, size):
    names = [f"d{number}" for number in range(size)]
    *others, last = [
        start(lab, name, wanted) for name, wanted in zip(names, [*names[1:], names[0]])
    ]
    for run, wanted in zip(others, names[1:]):
        go(run, lab, wanted)

    go(last)

    _, out, err = finish(last)
    assert out == "125\n" and re.fullmatch(refusal("d0", *names[1:]), err), err
    assert f"held by pid {others[0].pid} " in err and err.endswith(f"held by us (pid {last.pid})\n")
    assert [finish(run)[1] for run in reversed(others)] == ["ran\n0\n"] * len(others)


def test_circle_through_several_names_and_depths_is_refused(lab):
    """One run holds two names; the other one waits two levels further down, for the parent of a
    nested name.
    """
    first = start(lab, "a/x", "b", "-n", "c/y")
    inner = NESTED.format(wait="-w forever", wanted="c")
    nested = f"$SOLO -n e -- sh -c '$SOLO -n f -- sh -c \"echo; {inner}\"; :'; :"
    second = lab.start("-n", "b", "--", "sh", "-c", nested)
    read_line(second)
    go(first, lab, "b")

    second.stdin.write(b"go\n")
    second.stdin.flush()

    _, out, err = finish(second)
    assert re.fullmatch(refusal("c", "b"), err), (out, err)
    assert finish(first)[1] == "ran\n0\n"


@pytest.mark.parametrize("keep", ["--pid $$", "--fd 9"])
def test_circle_through_kept_holds_is_refused(lab, keep):
    """A script guards itself by `solo hold`, and waits in `solo hold`."""
    script = f"$SOLO hold {keep} {{held}} && echo && read go; $SOLO hold -w forever {keep} {{wanted}}; echo $?"
    script = f"exec 9>>$LAB/{{held}}.opened; {script}"
    pairs = [("da", "db"), ("db", "da")]
    first, second = [
        lab.start_shell(script.format(held=held, wanted=wanted)) for held, wanted in pairs
    ]
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


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_circle_through_a_container_is_refused(lab):
    """There the waiter has another pid than here."""
    nested = f"echo; {NESTED.format(wait='-w forever', wanted='db')}"
    inside = lab.start("-n", "da", "--", "sh", "-c", nested, prefix=INNER)
    read_line(inside)
    if os.readlink(f"/proc/{find_chain(inside)[-1]}/cwd") != os.getcwd():
        pytest.skip("needs paths that are the same in a container: they are not in a chroot")
    outside = start(lab, "db", "da")
    go(inside, lab, "db")

    go(outside)

    assert_refused(outside, inside)


def test_waiter_with_tree_is_named_by_the_pid_that_list_shows(lab):
    first, second = start(lab, "da", "db", wait="-w forever --tree"), start(lab, "db", "da")
    go(first, lab, "db")
    [waiter] = [row["launcher"] for row in lab.list("db") if row["state"] == "waiting"]

    go(second)

    assert f"in which pid {waiter} waits for db, " in finish(second)[2]
    assert finish(first)[1] == "ran\n0\n"


def test_waiter_behind_others_is_refused(lab):
    """The holder shares the name with us, but a waiter ahead of us waits for it."""
    first = start(lab, "da", "db", "-s")
    second = start(lab, "db", "da", wait="-w forever -s")
    between = lab.start_waiter("da", tag="between")
    go(first, lab, "db")

    go(second)

    _, out, err = finish(second)
    assert out == "125\n" and re.fullmatch(refusal("da", "db"), err), err
    assert (finish(first)[1], finish(between)[0]) == ("ran\n0\n", 0)


def test_chain_without_a_circle_is_not_refused(lab):
    """The last one holds nothing that another waits for, though it is in the way of one that waits
    for nothing of it.
    """
    first, second = start(lab, "da", "db"), start(lab, "db", "dc")
    holder = lab.hold("dc")
    go(first, lab, "db")
    go(second, lab, "dc")
    last = lab.start_waiter("da", tag="last")

    finish(holder)

    assert [finish(run)[1] for run in (second, first)] == ["ran\n0\n"] * 2
    assert finish(last)[0] == 0 and lab.read_log() == ["last"]


SLOTS = ("--slots", "2")


@pytest.mark.parametrize("last", ["holder", "waiter"])
def test_slot_that_another_run_frees_is_waited_for(lab, last):
    """One of two slots is of a run that waits for us; the other becomes free."""
    other = lab.hold("pool", *SLOTS)
    waiter, holder = start(lab, "pool", "db", *SLOTS), start_for_slot(lab)
    joins = [(waiter, "db"), (holder, "pool")]
    for run, wanted in joins if last == "holder" else reversed(joins):
        go(run, lab, wanted)
        [launcher] = [row["launcher"] for row in lab.list(wanted) if row["state"] == "waiting"]
        until(lambda launcher=launcher: is_blocked(launcher))  # it has looked

    finish(other)

    assert [finish(run)[1:] for run in (holder, waiter)] == [("ran\n0\n", "")] * 2


def start_for_slot(lab):
    return start(lab, "db", "pool", wait="-w forever --slots 2")


def test_slots_of_runs_that_all_wait_for_us_are_refused(lab):
    runs, holder = [start(lab, "pool", "db", *SLOTS) for _ in range(2)], start_for_slot(lab)
    for run in runs:
        go(run, lab, "db")

    go(holder)

    _, out, err = finish(holder)
    assert out == "125\n" and re.fullmatch(refusal("pool", "db"), err), err
    assert [finish(run)[1] for run in runs] == ["ran\n0\n"] * 2


def test_slot_behind_a_waiter_for_all_slots_is_refused(lab):
    """The waiter ahead waits for the run that waits for us."""
    lab.hold("pool", *SLOTS)
    waiter, holder = start(lab, "pool", "db", *SLOTS), start_for_slot(lab)
    ahead = lab.start_waiter("pool", "--slots", "2,2", tag="ahead")
    go(waiter, lab, "db")

    go(holder)

    assert finish(holder)[1] == "125\n" and finish(waiter)[1] == "ran\n0\n" and ahead.poll() is None


def test_waiter_that_latest_supersedes_is_not_waited_for(lab):
    first, second = (
        start(lab, "da", "db", "-s"),
        start(lab, "db", "da", wait="-w forever -s --latest"),
    )
    superseded = lab.start_waiter("da", tag="superseded")
    superseded.send_signal(signal.SIGSTOP)  # until then it would leave before or after we look
    go(first, lab, "db")

    go(second)

    assert [finish(run)[1] for run in (second, first)] == ["ran\n0\n"] * 2
    superseded.send_signal(signal.SIGCONT)
    assert finish(superseded)[0] == 75


# What ends one wait of the circle: words of the first run, of its waiter, of the second one's
# waiter.
ENDS = {
    "its time limit": ("--timeout 1m", "-w forever", "-w forever"),
    "its wait": ("", "-w 1m", "-w forever"),
    "our wait": ("", "-w forever", "-w 1m"),
    "our --replace-after": ("", "-w forever", "-w forever --replace-after 1m"),
}


@pytest.mark.parametrize("end", ENDS)
def test_circle_that_opens_only_by_a_failure_is_refused(lab, end):
    words, theirs, ours = ENDS[end]
    first, second = (
        start(lab, "da", "db", *words.split(), wait=theirs),
        start(lab, "db", "da", wait=ours),
    )
    go(first, lab, "db")

    go(second)

    assert_refused(second, first)


def assert_refused(second, first):
    """Assert that the second of two runs of `da` and `db` was refused, and the first acquires
    then.
    """
    _, out, err = finish(second)
    assert out == "125\n" and re.fullmatch(refusal("da", "db"), err), err
    assert finish(first)[1] == "ran\n0\n"


def test_waiter_in_the_background_counts_as_waited_for(lab):
    """Nobody can see that its parent does not wait for it; the message names it."""
    background = "echo; read go; $SOLO -w forever -n db -- true & echo $!; read end; exit 0"
    first, second = lab.start("-n", "da", "--", "sh", "-c", background), start(lab, "db", "da")
    read_line(first)
    go(first, lab, "db")
    pid = read_line(first)

    go(second)

    _, out, err = finish(second)
    assert out == "125\n" and f"in which pid {pid} waits for db, held by us" in err, err
    assert finish(first)[0] == 0


def test_circle_through_two_directories_is_refused(lab):
    words = ("--dir", str(lab.path / "elsewhere"))
    first, second = (
        start(lab, "da", "db", *words),
        start(lab, "db", "da", wait=f"-w forever {' '.join(words)}"),
    )
    go(first, lab, "db")

    go(second)

    assert_refused(second, first)


def test_replace_is_not_refused(lab):
    first, second = start(lab, "da", "db"), start(lab, "db", "da", wait="--replace")
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
    assert re.search(
        r"da: a deadlock: held by pid \d+ \(.*\), which waits for db, held by us \(pid \d+\)\n",
        words,
    )
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

    assert (status, err) == (0, "") and {"waits": "SoloError", "limit": "Busy"}[
        loser
    ] in out.split()


# --- other users----------------------------------------------------------------------------------

# In a directory, publish a waiting ticket; then for each line with a pid and its start a hold of
# that process.
FORGER = """
import fcntl, os, sys
sys.path.insert(0, sys.argv[1])
from solo.identity import read_origin, read_self
from solo.modes import Claim
from solo.record import Record, format_record
files = []
def publish(file, process):
    files.append(open(f"{sys.argv[2]}/{file}", "wb", 0))
    files[-1].write(format_record(Record(process, read_origin(), 0, Claim("X"), ["q"], [b"q"])))
    fcntl.flock(files[-1], fcntl.LOCK_EX)
    print(flush=True)
publish(f".seat.{2:020d}", read_self())
publish(f".hold.{1:020d}", tuple(map(int, sys.stdin.readline().split())))
sys.stdin.read()
"""
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.mark.root
@pytest.mark.tool("setpriv")
@pytest.mark.parametrize("place", ["its own directory", "a name of our base"])
def test_program_of_another_user_forges_no_circle(shared, place):
    folder = shared.directory / "q"
    if place == "its own directory":
        folder = shared.directory.parent / "forged"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    else:
        shared.run("-n", "q", "true")
    program = ("/usr/bin/python3", "-IS", "-c", FORGER, os.path.dirname(shared.script), folder)
    holder = shared.start("-n", "job", "--", *AS_NOBODY, *map(str, program))
    read_line(holder)
    script = 'echo; read go; exec "$SOLO" -w forever -n job -- echo ran'
    shared.environment["SOLO"] = shared.script
    waiter = shared.start_shell(script)
    read_line(waiter)

    holder.stdin.write(b"%d %d\n" % (waiter.pid, read_stat(waiter.pid).start))
    holder.stdin.flush()
    read_line(holder)
    go(waiter, shared, "job")
    until(lambda: waiter.poll() is not None or is_blocked(waiter.pid))

    assert waiter.poll() is None
    assert finish(holder)[0] == 0 and finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.root
@pytest.mark.tool("setpriv")
def test_circle_through_a_waiter_of_another_user_is_refused(shared):
    """It waits in a directory that all users share."""
    shared.environment["SOLO"] = shared.script
    first, second = start(shared, "da", "db", prefix=AS_NOBODY), start(shared, "db", "da")
    go(first, shared, "db")

    go(second)

    assert_refused(second, first)
