"""Policies about other contenders: N of --wait, --latest, --replace, --replace-after, --loud-after,
count of skips.
"""

import os
import re
import signal
import subprocess
import time
from datetime import datetime

import pytest
from conftest import (
    LIVE,
    NOBODY,
    PATIENCE,
    finish,
    has_pending_signal,
    inject,
    is_blocked,
    kill,
    read_line,
    read_state,
    until,
    wait_dead,
)

from solo.identity import read_stat

IGNORE_TERM = 'trap "" TERM; echo $$; exec sleep 99'


# --- N of --wait----------------------------------------------------------------------------------


def test_max_waiting_skips_contender_of_full_queue(lab, via):
    holder = lab.hold("job")
    first = lab.start_waiter("job", "-w", "forever,2", tag="first")
    second = lab.start_waiter("job", "-w", "forever,2", tag="second")

    third = lab.run("-w", "forever,2", "-n", "job", "true")

    assert (third.returncode, third.stderr.count(b"\n")) == (75, 1)
    finish(holder)
    assert (finish(first)[0], finish(second)[0]) == (0, 0)


def test_dead_waiters_do_not_count(lab):
    lab.hold("job")
    kill(lab.start_waiter("job"))

    lab.start("-w", "forever,1", "-n", "job", "true")

    until(lambda: [row["state"] for row in lab.list()] == ["held", "waiting"])


def test_max_waiting_0_does_not_wait(lab, via):
    assert lab.run("-w", "1h,0", "-n", "job", "true").returncode == 0
    lab.hold("job")

    assert lab.run("-w", "1h,0", "-n", "job", "true").returncode == 75


def test_waiters_of_sibling_name_do_not_count(lab):
    lab.hold("a")
    lab.start("-w", "forever", "-n", "a/b", "true")
    until(lambda: lab.count_waiting("a") == 1)

    other = lab.start("-w", "forever,1", "-n", "a/c", "true")

    until(lambda: lab.count_waiting("a") == 2)
    assert lab.run("-w", "forever,1", "-n", "a/c", "true").returncode == 75
    assert other.poll() is None


# --- --latest-------------------------------------------------------------------------------------


def test_latest_supersedes_all_waiters(lab, via):
    """Each says in one line which process superseded it."""
    holder = lab.hold("job")
    old = [lab.start_waiter("job", tag=number) for number in range(10)]
    new = lab.start(
        "-w", "forever", "--latest", "-n", "job", "--", "sh", "-c", "echo new >>$LAB/log"
    )

    ends = [finish(process) for process in old]
    finish(holder)

    assert finish(new)[0] == 0 and lab.read_log() == ["new"]
    assert [status for status, _, _ in ends] == [75] * 10
    assert re.fullmatch(rf"solo: job: superseded by pid {new.pid} \(sh -c .*\)\n", ends[-1][2])


def test_latest_wakes_a_waiter_that_missed_its_signal(lab):
    """As one that the kernel delivered after Python's last check, before the system call."""
    holder, script = lab.hold("job"), lab.script
    lab.hasten(
        "solo.kernel.wait",
        "(lambda wait, missed: lambda *words: [missed and __import__('_signal').sigtimedwait([missed.pop()], 99),"
        " wait(*words)][1])(solo.kernel.wait, [solo.kernel.WAKE_SIGNAL])",
    )
    old = lab.start("-w", "forever", "-n", "job", "true")
    until(lambda: lab.count_waiting("job") == 1)
    lab.script = script

    new = lab.start("-w", "forever", "--latest", "-n", "job", "true")

    assert finish(old)[0] == 75 and [row["state"] for row in lab.list()] == ["held", "waiting"]
    finish(holder)
    assert finish(new)[0] == 0


@pytest.mark.parametrize("blocked", ["set()", "{signal.SIGURG}"])
def test_latest_never_supersedes_a_program(lab, via, blocked):
    """Its SIGURG is its own: no signal is discarded, and a pending one has no effect."""
    code = f"""
got = []
signal.signal(signal.SIGURG, lambda *_: got.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, {blocked})
with solo.Lock("job", wait=math.inf):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGURG}})
    print(len(got) > 0)
"""
    holder = lab.hold("job")
    program = lab.start_code(code)
    until(lambda: lab.count_waiting("job") == 1)
    new = lab.start("-w", "forever", "--latest", "-n", "job", "true")
    until(lambda: lab.count_waiting("job") == 2)

    finish(holder)

    assert finish(new)[0] == 0
    assert finish(program) == (0, "True\n", "")


@pytest.mark.tool("strace")
def test_latest_wakes_a_stopped_waiter_a_few_times(lab):
    """Then it sleeps without a timer, and it has printed the holder once."""
    holder, trace = lab.hold("job"), lab.path / "trace"
    old = lab.start_waiter("job", tag="old")
    old.send_signal(signal.SIGSTOP)
    until(lambda: read_state(old.pid) == "T")
    strace = ("strace", "-qq", "-o", trace, "-e", "trace=kill,pidfd_send_signal,setitimer,flock")
    new = lab.start("-v", "-w", "forever", "--latest", "-n", "job", "true", prefix=strace)

    until(lambda: trace.exists() and trace.read_text().count("SIGURG") == 5)
    until(
        lambda: re.search(
            r"SIGURG(?!.*setitimer).*flock\(\d+, LOCK_SH$", trace.read_text(), re.DOTALL
        )
    )
    finish(holder)

    _, _, stderr = finish(new)
    assert stderr.count("solo: job: waiting: held for ") == 1
    old.send_signal(signal.SIGCONT)
    assert finish(old)[0] == 75


def test_last_of_several_latest_acquires_past_stopped_waiter(lab, via):
    """A SIGURG that comes while its receiver notifies others is not lost."""
    holder = lab.hold("job")
    stopped = lab.start_waiter("job", tag="stopped")
    stopped.send_signal(signal.SIGSTOP)
    until(lambda: read_state(stopped.pid) == "T")
    contenders = []
    for number in range(4):
        words = (
            "-w",
            "forever",
            "--latest",
            "-n",
            "job",
            "--",
            "sh",
            "-c",
            f"echo {number} >>$LAB/log",
        )
        contenders.append(lab.start(*words))
        until(lambda: any(row["launcher"] == contenders[-1].pid for row in lab.list()))

    assert [process.wait(PATIENCE) for process in contenders[:-1]] == [75] * 3
    finish(holder)
    assert contenders[-1].wait(PATIENCE) == 0
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(PATIENCE) == 75 and lab.read_log() == ["3"]


@pytest.mark.parametrize("loud", [(), ("--loud-after", "1"), ("--loud-after", "0s")], ids=" ".join)
def test_superseded_obeys_quiet_and_busy_exit(lab, loud):
    """Superseded is no skip: --loud-after does not change it."""
    lab.hold("job")
    lab.run("-n", "job", "true")
    old = lab.start_waiter("job", "-q", "-E", "3", *loud, tag="old")
    lab.start("-w", "forever", "--latest", "-n", "job", "true")

    assert finish(old) == (3, "", "")


@pytest.mark.tool("strace")
def test_waiter_is_superseded_while_it_looks(lab):
    """The holder has ended. The waiter has joined, looked again, and waits for the gate: SIGURG
    must not be lost.
    """
    holder, injected = lab.hold("job"), lab.path / "injected"
    slow = inject(lab, "flock:delay_enter=99s:when=5", paths=[lab.directory / "job/.gate"])
    tracer = lab.start("-w", "forever", "-n", "job", "true", prefix=slow)
    until(lambda: injected.exists() and injected.read_text().count("flock(") == 4)
    finish(holder)
    until(lambda: injected.read_text().count("flock(") == 5)

    newest = lab.run("-w", "forever", "--latest", "-n", "job", "true")
    tracer.kill()  # the waiter goes on

    assert newest.returncode == 0 and "superseded by" in finish(tracer)[2]


# --- --replace------------------------------------------------------------------------------------


def test_replace_ends_waiters_and_earlier_replacer(lab, via):
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag=number) for number in range(3)]
    first = lab.start("--replace", "-n", "job", "--", "sh", "-c", "echo first; exec sleep 99")
    assert read_line(first) == "first"
    second = lab.start("--replace", "-n", "job", "--", "sh", "-c", "echo second")

    assert read_line(second) == "second"

    statuses = [process.wait(PATIENCE) for process in (holder, *waiters, first)]
    assert statuses == [-signal.SIGTERM] * 5 and lab.read_log() == []


@pytest.mark.parametrize("words", ["--replace -k 200ms", "--wait 50ms --replace-after 0s -k 300ms"])
def test_stubborn_holder_is_killed_after_grace(lab, via, words):
    """With --replace-after it has run for so long when the wait is over: then it is ended, however
    long that takes.
    """
    holder = lab.hold("job", script=IGNORE_TERM)

    assert lab.run(*words.split(), "-n", "job", "true").returncode == 0
    assert holder.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize("which", ["launcher", "command", "both"])
def test_replace_ends_stopped_process(lab, via, which):
    holder = lab.hold("job", script="echo $$; exec sleep 99")
    pids = {
        "launcher": [holder.pid],
        "command": [holder.child],
        "both": [holder.pid, holder.child],
    }[which]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: read_state(pid) == "T")
    lab.hasten("solo.contention.evict.GRACE", 0.3)

    assert lab.run("--replace", "-k", "300ms", "-n", "job", "true").returncode == 0

    wait_dead(holder.child)
    assert holder.wait(PATIENCE) in (-signal.SIGTERM, -signal.SIGKILL)


def test_replace_ends_launcher_waiting_for_second_name(lab, via):
    lab.hold("b")
    first = lab.start("-w", "forever", "-n", "a", "-n", "b", "true")
    until(lambda: lab.count_waiting("b") == 1)

    assert lab.run("--replace", "-n", "a", "true").returncode == 0
    assert first.wait(PATIENCE) == -signal.SIGTERM


def test_replace_ends_one_slot_only(lab, via):
    holders = [lab.hold("job", "--slots", "3") for _ in range(3)]

    assert lab.run("--replace", "--slots", "3", "-n", "job", "true").returncode == 0

    until(lambda: holders[0].poll() is not None)
    assert [holder.poll() for holder in holders[1:]] == [None, None]


def test_replace_spares_compatible_waiters(lab):
    holder = lab.hold("a")
    for child in ("a/b", "a/c"):
        lab.start("-w", "forever", "-n", child, "--", "sh", "-c", f"echo {child} >>$LAB/log")
    until(lambda: lab.count_waiting("a") == 2)

    assert (
        lab.run("--replace", "-n", "a/c", "--", "sh", "-c", "echo new >>$LAB/log").returncode == 0
    )

    assert holder.wait(PATIENCE) == -signal.SIGTERM
    until(lambda: lab.list() == [])
    assert sorted(lab.read_log()) == ["a/b", "new"]


def start_tree_of_one_tick(lab):
    """Start a holder that kills no descendant for an hour. Return (it, a stubborn descendant).

    The descendant starts in the same clock tick as the command, which forks it first of all; the
    launcher adopts it once the command has ended.
    """
    fork = (
        f"solo.start.posix.fork() or solo.start.posix.execv('/bin/sh', {['sh', '-c', IGNORE_TERM]})"
    )
    script = lab.script
    lab.hasten(
        "solo.start.wait_go",
        f"(lambda wait: lambda *words: [{fork}, wait(*words)][1])(solo.start.wait_go)",
    )
    forking, lab.script = lab.script, script
    command = ("sh", "-c", "echo $$; exec sleep 99")
    while True:
        holder = lab.start_words(forking, "--tree", "-k", "1h", "-n", "job", "--", *command)
        pids = sorted(int(read_line(holder)) for _ in range(2))
        if len({read_stat(pid).start for pid in pids}) == 1:
            return holder, pids[1]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        holder.wait(PATIENCE)


def test_replace_kills_descendant_of_the_same_tick_as_the_command(lab):
    holder, descendant = start_tree_of_one_tick(lab)

    assert lab.run("--replace", "-k", "100ms", "-n", "job", "true").returncode == 0

    assert read_state(descendant) in ("gone", "Z")
    assert holder.wait(PATIENCE) in (
        -signal.SIGTERM,
        -signal.SIGKILL,
    )  # a busy launcher may be late too


@pytest.mark.parametrize("words", ["--replace", "--replace-after 0"])
def test_replace_refuses_ancestor(lab, words):
    result = lab.run("-n", "job", lab.script, *words.split(), "-n", "job", "true")

    assert result.returncode == 125 and b"an ancestor of this process" in result.stderr


@pytest.mark.parametrize("words", ["-n job --replace -w 5 true", "stop --waiting job"])
def test_program_with_a_thread_that_waits_is_not_ended_by_its_own_child(lab, words):
    holder = lab.hold("job")
    code = f"""
import subprocess
def wait():
    with solo.Lock("job", wait=50): pass
thread = threading.Thread(target=wait)
thread.start()
while len(solo.holders("job")) < 1: pass
print(flush=True)
input()
print(subprocess.run([{lab.script!r}, *{words.split()!r}]).returncode)
thread.join()
"""
    program = lab.start_code(code)
    read_line(program)
    until(lambda: lab.count_waiting("job") == 1)

    status, out, _ = finish(program, b"\n")

    assert (status, out) == (0, "0\n" if words[0] == "-" else "125\n")
    assert holder.wait(PATIENCE) == -signal.SIGTERM if words[0] == "-" else finish(holder)[0] == 0


def test_replace_fails_on_holder_of_other_user(shared):
    shared.hold("job")

    result = shared.run("--replace", "-n", "job", "true", user=NOBODY)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert b"cannot end pid" in result.stderr and b"Operation not permitted" in result.stderr


@pytest.mark.parametrize("words", ["--replace", "--replace-after 0"])
def test_replace_ends_other_slot_than_ancestor(lab, words):
    """An ancestor's slot may not be had, but the other may become free: without --replace the name
    is busy.
    """
    other = lab.hold("job", "--slots", "2")
    script = (
        f"$SOLO --slots 2 -n job true; echo $?; $SOLO {words} --slots 2 -n job echo ran; echo $?"
    )

    result = lab.run("--slots", "2", "-n", "job", "--", "sh", "-c", script)

    assert result.stdout == b"75\nran\n0\n" and other.wait(PATIENCE) == -signal.SIGTERM


def test_replace_with_tree_spares_earlier_children(lab):
    shell = lab.start_shell(
        f"sleep 99 & echo $!; exec $SOLO --tree -n job -- sh -c '{IGNORE_TERM}'"
    )
    earlier, child = int(read_line(shell)), int(read_line(shell))

    assert lab.run("--replace", "-k", "100ms", "-n", "job", "true").returncode == 0

    wait_dead(child)
    assert read_state(earlier) == "S"
    os.kill(earlier, signal.SIGKILL)


# A launcher that forks one more child before it looks for those from before it was executed, at the
# start of a clock tick.
LATE_CHILD = """
import ctypes, solo.main, solo.process.limits as limits
become_subreaper = limits.become_subreaper
read_tick = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**7

def fork_and_become_subreaper():
    become_subreaper()
    tick = read_tick()
    while read_tick() == tick:
        pass
    pid = os.fork()
    if not pid:
        os.execv("/bin/sleep", ["sleep", "99"])
    print(pid, flush=True)

limits.become_subreaper = fork_and_become_subreaper
sys.argv[1:] = ["--tree", "-n", "job", "--", "sh", "-c", "echo $$; read line"]
solo.main.main()
"""


def test_command_of_a_tree_starts_in_a_later_tick_than_earlier_children(lab):
    """So other processes can tell its descendants from those children."""
    launcher = lab.start_code(LATE_CHILD)
    *earlier, command = [
        int(read_line(launcher)) for _ in range(3)
    ]  # the first one is of the upper process

    assert max(read_stat(pid).start for pid in earlier) < read_stat(command).start
    for pid in earlier:
        os.kill(pid, signal.SIGKILL)
    assert finish(launcher)[0] == 1  # that of read


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_replace_ignores_equal_pid_of_other_namespace(lab):
    """Inside, the launcher is pid 1; outside, pid 1 is an ancestor of every process. An outer
    namespace keeps the test safe.
    """
    inside = f"unshare -p -f --mount-proc $SOLO --tree -k 200ms -n job -- sh -c '{IGNORE_TERM}'"
    script = f"""
        sleep 99 & witness=$!
        {inside} | {{ read -r _; $SOLO --replace -k 200ms -n job -- echo replaced; kill -0 $witness && echo spared; }}
    """
    outside = ("unshare", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", script)
    _, out, err = finish(lab.start_words(*outside))

    assert out == "replaced\nspared\n", err


def test_wait_limits_replace(lab):
    lab.hold("job", script=IGNORE_TERM)

    assert lab.run("--replace", "-w", "200ms", "-n", "job", "true").returncode == 75


@pytest.mark.tool("strace")
@pytest.mark.parametrize("line", ["--replace -k 3 -n job true", "stop --waiting -k 3 job"])
def test_new_holder_gets_one_sigterm(lab, line):
    """Its waiter's ticket outlives the start of its command. To some programs a second SIGTERM
    means at once.
    """
    holder = lab.hold("job")
    count = f"trap 'echo term' TERM; echo $PPID; {LIVE}"
    slow = inject(lab, "unlink,unlinkat:delay_enter=99s:when=1")
    waiter = lab.start("-w", "forever", "-n", "job", "--", "sh", "-c", count, prefix=slow)
    until(lambda: lab.count_waiting("job") == 1)
    holder.communicate()
    launcher = int(read_line(waiter))
    assert lab.count_waiting("job") == 1

    ender = lab.start(*line.split())
    until(lambda: has_pending_signal(launcher))
    waiter.kill()  # strace, which lets the launcher go on
    output, _ = ender.communicate()

    assert (ender.returncode, finish(waiter)[1], output.count(b"ended") == 1) == (
        0,
        "term\n",
        line[:4] == "stop",
    )


def test_replacer_keeps_one_descriptor_of_each_holder(lab):
    lab.hold("job", script="trap '' TERM; echo $$; read line")
    replacer = lab.start("--replace", "-k", "1h", "-n", "job", "true")
    until(lambda: lab.count_waiting("job") == 1 and is_blocked(replacer.pid))

    folder = f"/proc/{replacer.pid}/fd"
    open_files = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)]

    assert [path for path in open_files if "/.hold." in path] == [str(lab.find_hold("job"))]


# --- --replace-after------------------------------------------------------------------------------


def test_replace_after_ends_a_holder_that_has_run_for_so_long(lab, via):
    holder = lab.hold("job")

    skipped = lab.run("--replace-after", "1h", "-n", "job", "true")
    replacing, free = (lab.run("--replace-after", "0s", "-n", "job", "true") for _ in range(2))

    assert (skipped.returncode, replacing.returncode) == (
        75,
        0,
    ) and b"busy: held for" in skipped.stderr
    assert holder.wait(PATIENCE) == -signal.SIGTERM and free.returncode == 0


def test_replace_after_ends_a_holder_after_so_many_skips_in_a_row(lab):
    first = lab.hold("job")
    lab.run("-n", "job", "true")
    finish(first)
    holder = lab.hold("job")
    words = ("--replace-after", "2", "-n", "job", "true")

    assert [lab.run(*words).returncode for _ in range(2)] == [
        75,
        75,
    ]  # the skip before this run does not count
    assert holder.poll() is None
    assert lab.run(*words).returncode == 0
    assert holder.wait(PATIENCE) == -signal.SIGTERM


def test_replace_after_counts_the_skips_of_its_own_mode(lab):
    holder = lab.hold("job")
    lab.run("--shared", "-n", "job", "true")

    assert lab.run("--replace-after", "1", "-n", "job", "true").returncode == 75
    assert lab.run("--shared", "--replace-after", "1", "-n", "job", "true").returncode == 0
    assert holder.wait(PATIENCE) == -signal.SIGTERM


def test_waiter_with_replace_after_acquires_before_if_the_holder_ends(lab, via):
    holder = lab.hold("job")
    waiter = lab.start(
        "--wait", "forever", "--replace-after", "1h", "-n", "job", "--", "echo", "ran"
    )
    until(lambda: lab.count_waiting("job") == 1)

    late = lab.run("--wait", "200ms", "--replace-after", "1h", "-n", "job", "true")

    assert (late.returncode, late.stderr.endswith(b"; waited 200ms\n")) == (75, True)
    assert finish(holder)[0] == 0
    assert finish(waiter)[:2] == (0, "ran\n")


def test_replace_after_ends_the_waiters_in_its_way_too(lab, via):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")

    assert lab.run("--replace-after", "0s", "-n", "job", "true").returncode == 0
    assert [process.wait(PATIENCE) for process in (holder, waiter)] == [-signal.SIGTERM] * 2
    assert lab.read_log() == []


def test_replace_after_counts_the_time_of_the_oldest_holder_in_the_way(lab):
    """The limit is between the ages of the two holders, and the hold of a sibling name is in
    nobody's way.
    """
    lab.hold("up/other")
    old = lab.hold("up/job", "--shared")
    until(lambda: find_age(lab, old) > 1.5)
    lab.hold("up/job", "--shared")

    assert lab.run("--replace-after", "1s", "-n", "up/third", "true").returncode == 0
    assert lab.run("--replace-after", "1h", "-n", "up/job", "true").returncode == 75
    assert lab.run("--replace-after", "1s", "-n", "up/job", "true").returncode == 0
    assert [row["name"] for row in lab.list()] == ["up/other"]


@pytest.mark.tool("faketime")
@pytest.mark.parametrize("step", ["+2d", "-2d"])
def test_age_of_a_holder_ignores_a_step_of_the_wall_clock(lab, via, step):
    """A board without a clock battery steps at its first answer of a time server. faketime has no
    boot clock to set.
    """
    lab.hold("job")
    stepped = {"prefix": ("env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", step)}

    day = lab.run("--replace-after", "1d", "-n", "job", "true", **stepped)
    loud = lab.run("-q", "-E", "0", "--loud-after", "1d", "-n", "job", "true", **stepped)
    until(lambda: lab.run("--replace-after", "1s", "-n", "job", "true", **stepped).returncode == 0)

    assert re.search(rb"busy: held for \d+s by pid ", day.stderr) and day.returncode == 75
    assert (loud.returncode, loud.stderr) == (0, b"")


def find_age(lab, holder):
    [since] = [row["since"] for row in lab.collect() if row["launcher"] == holder.pid]
    return time.time() - datetime.fromisoformat(since).timestamp()


ASK = """
import subprocess
def ask(*words):
    print(subprocess.run([os.environ["SOLO"], *words, "-n", "job", "true"]).returncode)
with solo.Lock("job"):
    {}
"""


REFUSED = ("125\n", "an ancestor of this process: it would wait for itself")
IN_A_THREAD = "other = threading.Thread(target=ask); other.start(); other.join()"


@pytest.mark.parametrize(
    "code, end",
    [
        *[
            (f"ask({words})", REFUSED)
            for words in ("", "'-w', 'forever'", "'--replace'", "'--replace-after', '0'")
        ],
        (
            IN_A_THREAD,
            ("75\n", "busy: held for"),
        ),  # the other thread may release the name meanwhile
    ],
)
def test_run_below_a_program_that_holds_its_name_is_refused(lab, code, end):
    """The program waits for it, so it must neither wait for the program nor end it."""
    status, out, err = lab.run_code(ASK.format(code))

    assert (status, out) == (0, end[0]) and end[1] in err


@pytest.mark.tool("strace")
def test_waiter_with_replace_after_sleeps(lab):
    """It blocks until it is time, and then until the holder has ended."""
    lab.hold("job")
    trace = lab.path / "trace"

    result = lab.run(
        "--wait",
        "forever",
        "--replace-after",
        "2s",
        "-n",
        "job",
        "true",
        prefix=("strace", "-o", trace),
    )

    waits = re.findall(r"flock\(\d+, LOCK_SH\)|nanosleep|poll\(|select\(", trace.read_text())
    assert result.returncode == 0 and 1 <= len(waits) <= 2


@pytest.mark.parametrize("value, status", [("1", 0), ("0.0", 0), ("3600.0", 75), ("3600", 75)])
def test_solo_run_takes_skips_or_seconds(lab, value, status):
    """An int is a number of skips, a float is seconds."""
    lab.hold("job")
    lab.run("-n", "job", "true")
    code = f"""
try:
    print(solo.run(["true"], name="job", replace_after={value}).returncode)
except solo.Busy:
    print(75)
"""

    assert lab.run_code(code)[1:] == (f"{status}\n", "")


# --- skips----------------------------------------------------------------------------------------


def test_busy_line_has_skips_since_last_run(lab):
    holder = lab.hold("job")
    texts = [lab.run("-n", "job", "true").stderr for _ in range(3)]
    finish(holder)
    lab.hold("job")
    texts.append(lab.run("-n", "job", "true").stderr)

    assert [text.partition(b"), ")[2] for text in texts] == [
        b"",
        b"1 skip since\n",
        b"2 skips since\n",
        b"",
    ]


LIMIT = ("sh", "-c", 'ulimit -n 90; exec "$@"', "sh")


def test_loud_after_count_reports_skips(lab):
    holder = lab.hold("job")
    words = ("-q", "-E", "0", "--loud-after", "2", "-n", "job", "true")
    ends = [lab.run(*words) for _ in range(4)]

    assert [(end.returncode, bool(end.stderr)) for end in ends] == [
        (0, False),
        (0, False),
        (75, True),
        (75, True),
    ]
    finish(holder)
    assert lab.run(*words).returncode == 0
    lab.hold("job")
    assert (lab.run(*words).returncode, lab.run(*words).stderr) == (0, b"")


def test_loud_after_duration_reports_long_holder(lab, via):
    holder = lab.hold("job")
    assert lab.run("-q", "-E", "0", "--loud-after", "1h", "-n", "job", "true").returncode == 0

    assert lab.run("-q", "-E", "0", "--loud-after", "0s", "-n", "job", "true").returncode == 75
    assert finish(holder)[0] == 0


def test_weaker_holds_do_not_reset_skips(lab):
    """A contender skipped again and again becomes loud, whatever runs beside the holder
    meanwhile.
    """
    lab.hold("job", "-s")
    lab.hold("up/a")
    ends, loud = [], ("-q", "-E", "0", "--loud-after", "2")
    for _ in range(4):
        ends.append([lab.run(*loud, "-n", name, "true").returncode for name in ("job", "up")])
        assert (
            lab.run("-s", "-n", "job", "true").returncode
            == lab.run("-n", "up/b", "true").returncode
            == 0
        )

    assert ends == [[0, 0], [0, 0], [75, 75], [75, 75]]


def test_hold_without_run_does_not_reset_skips(lab):
    """The name was acquired, but another one was busy."""
    lab.hold("b")
    words = ("-q", "-E", "0", "--loud-after", "1", "-n", "a", "true")
    holder = lab.hold("a")
    assert lab.run(*words).returncode == 0
    finish(holder)
    assert lab.run("-n", "a", "-n", "b", "true").returncode == 75

    assert int((lab.directory / "a/.gate").read_text().split()[1]) == 1


def test_hold_without_run_does_not_undo_the_reset_by_a_run_beside_it(lab):
    lab.hold("b")
    holder = lab.hold("a")
    assert lab.run("-s", "-n", "a", "true").returncode == 75
    finish(holder)
    waiter = lab.start("-w", "forever", "-s", "-n", "a", "-n", "b", "true")
    until(lambda: lab.count_waiting("b") == 1)
    assert lab.run("-s", "-n", "a", "true").returncode == 0

    lab.start("-w", "forever", "--latest", "-n", "b", "true")
    assert waiter.wait(PATIENCE) == 75

    assert (
        int((lab.directory / "a/.gate").read_text().split()[2]) == 0
    )  # the skips of shared contenders


def test_timeout_and_full_queue_count_as_skips(lab):
    lab.hold("job")
    lab.run("-w", "50ms", "-n", "job", "true")
    lab.run("-w", "1h,0", "-n", "job", "true")

    assert b"2 skips since" in lab.run("-n", "job", "true").stderr


# --- all policies---------------------------------------------------------------------------------


POLICIES = [
    ("stop --waiting job", 0),
    ("--replace -k 1 -n job true", 0),
    ("--latest -w 0.1 -n job true", 75),
]


@pytest.mark.full
@pytest.mark.parametrize("line, status", POLICIES)
def test_policies_and_stop_see_more_waiters_than_descriptors(lab, line, status):
    lab.hold("job")
    waiting, silent = (
        ("-w", "forever", "-n", "job", "true"),
        dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL),
    )
    many = [lab.start(*waiting, **silent) for _ in range(100)]
    until(lambda: lab.count_waiting("job") == len(many))

    limited = lab.run("-w", "0.1,99", "-n", "job", "true", prefix=LIMIT)
    result = lab.run(*line.split(), prefix=LIMIT)

    assert (limited.returncode, result.returncode) == (75, status), result.stderr
    assert line[:4] != "stop" or (result.stdout.count(b"ended"), lab.list()) == (101, [])
