"""The two processes of --tree: SIGKILL of either, and of the caller's process group, never starts a
second tree.
"""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from fcntl import LOCK_NB, LOCK_SH, flock

import pytest
import tally
from conftest import (
    NOBODY,
    PATIENCE,
    TESTS,
    finish,
    has_pending_signal,
    inject,
    kill,
    read_line,
    read_state,
    until,
    wait_dead,
    write_program,
)
from fleet import find_children
from test_process_1 import INNER

UPPER, LOWER, GROUP = "upper", "lower", "group"
WITNESS = str(TESTS / "witness.sh")
PROBE = (sys.executable, "-IS", TESTS / "probe.py", "signals")
# A process in a session of its own, which ends once its stdin is closed; then the command ends, or
# goes on.
DAEMON = 'setsid sh -c "echo \\$\\$; exec >&- 2>&-; read line" <&3 &'
ENDS, STAYS = "exit 3", "read line; exit 3"


@pytest.fixture
def trees():
    """Return pidfds: which of these processes still live after the test is killed. Another one may
    have the pid then.
    """
    made = []
    yield made
    for pidfd in made:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


@pytest.fixture
def plant(lab, trees):
    """Return a function that starts a tree, as leader of a process group, with the pids `lower` and
    `daemon`.
    """

    def start(*words, then=ENDS, **options):
        script = f"exec 3<&0; {DAEMON} {then}"
        options = {"start_new_session": True, **options}
        process = lab.start("--tree", *words, "-n", "job", "--", "sh", "-c", script, **options)
        process.daemon = int(read_line(process))
        [process.lower] = find_children(process.pid)
        trees.extend(map(os.pidfd_open, (process.daemon, process.lower)))
        return process

    return start


def hit(process, victim):
    """SIGKILL one of the two processes, or the whole group; return once it is dead."""
    if victim == LOWER:
        os.kill(process.lower, signal.SIGKILL)
        wait_dead(process.lower)
    elif victim == UPPER:
        kill(process)
    else:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def has_ended(lab, process):
    """Return whether the command, of which descendants are left, has ended, and the lower process
    has said so: a SIGKILL between its wait and its message would lose the status.
    """
    return read_state(lab.list()[0]["child"]) == "gone" and read_state(process.lower) == "S"


def find_ends(lab):
    return [row["outcome"] for row in lab.history() if row["outcome"] != "skipped"]


# --- the name, the status, the history------------------------------------------------------------


@pytest.mark.parametrize("then", [ENDS, STAYS], ids=["command ended", "command runs"])
@pytest.mark.parametrize(
    "words", [(), ("--flock", "file"), ("--fcntl", "file")], ids=["plain", "flock", "fcntl"]
)
@pytest.mark.parametrize("victim", [UPPER, LOWER, GROUP])
def test_name_is_held_until_the_last_descendant_has_ended(lab, plant, victim, words, then):
    process = plant(*words, then=then, cwd=lab.path)
    if then is ENDS:
        until(lambda: has_ended(lab, process))

    hit(process, victim)

    assert lab.run("-n", "job", *words, "true", cwd=lab.path).returncode == 75
    assert not words or lab.run("-n", "other", *words, "true", cwd=lab.path).returncode == 75
    waiter = lab.start("-w", "forever", "-n", "job", *words, "echo", "ran", cwd=lab.path)
    until(lambda: lab.count_waiting("job") == 1)
    assert read_state(process.daemon) == "S"
    process.stdin.close()
    assert finish(waiter)[:2] == (0, "ran\n")
    assert process.wait(PATIENCE) == (3 if victim == LOWER else -signal.SIGKILL)
    until(
        lambda: {"running", "unknown"}.isdisjoint(find_ends(lab))
    )  # the journal is written after the release
    assert find_ends(lab) == ["signaled" if victim == GROUP and then is STAYS else "failed", "ok"]


@pytest.mark.parametrize("victim", [UPPER, LOWER])
def test_nothing_is_left_in_the_queue(lab, plant, victim):
    process = plant()
    hit(process, victim)
    process.stdin.close()
    wait_dead(process.lower)
    process.wait(PATIENCE)

    assert os.listdir(lab.directory / "job") == [".gate"]


@pytest.mark.parametrize(
    "script, status", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -SEGV $$", -11)]
)
@pytest.mark.parametrize("victim", [None, LOWER])
def test_status_is_that_of_the_command(lab, victim, script, status):
    process = lab.hold("job", "--tree", script=f"echo $$; read line; {script}")
    if victim:
        [lower] = find_children(process.pid)
        os.kill(lower, signal.SIGKILL)
        wait_dead(lower)

    _, _, err = finish(process)

    assert process.returncode == status
    assert err == (
        f"solo: job: its launcher, pid {lower}, was killed: waiting for pid {process.child}\n"
        if victim
        else ""
    )


@pytest.mark.parametrize("command, status", [("nosuchcommand", 127), ("/", 126)])
def test_status_of_a_command_that_cannot_start(lab, command, status):
    result = lab.run("--tree", "-n", "job", command)

    assert (result.returncode, result.stderr.count(b"\n")) == (status, 1)


@pytest.mark.parametrize("victim", [UPPER, LOWER, GROUP])
@pytest.mark.parametrize("then", ["exit 3", "kill -KILL $$"])
def test_end_is_notified_and_journalled_once(lab, plant, victim, then):
    note = lab.path / "note"
    line = f"echo $SOLO_OUTCOME >>{note}"
    process = plant("--notify", line, then=f"read line; {then}")
    hit(process, victim)

    process.stdin.close()

    wait_dead(process.lower)
    until(note.exists)
    outcome = "failed" if victim != GROUP and then == "exit 3" else "signaled"
    until(lambda: note.read_text() == f"{outcome}\n")
    assert find_ends(lab) == [outcome] and lab.list() == []


def test_solo_run_returns_the_status_after_a_kill(lab):
    code = "print(solo.run(['sh', '-c', 'kill -KILL $PPID; exit 6'], name='job', tree=True).returncode)"
    for _ in range(5):  # often before the launcher has reported the start
        assert lab.run_code(code)[:2] == (0, "6\n")


# --- what people see------------------------------------------------------------------------------


def test_launcher_that_people_see_is_the_process_they_started(lab, plant, via):
    process = plant(then=STAYS)

    [row] = lab.list()
    busy = lab.run("-n", "job", "true").stderr.decode()
    shown = lab.run("show", "--via", via, "job").stdout.decode()

    assert row["launcher"] == process.pid and row["state"] == "held"
    assert f"by pid {process.pid} (sh " in busy and f" by pid {process.pid} (" in shown
    assert f" {process.lower} " not in shown
    hit(process, UPPER)
    assert [(row["launcher"], row["state"]) for row in lab.list()] == [(process.lower, "held")]


def test_killed_lower_process_leaves_the_other_as_launcher(lab, plant):
    process = plant(then=STAYS)
    hit(process, LOWER)

    [row] = lab.list()
    [run] = lab.history()

    assert (row["launcher"], row["state"], run["launcher"], run["outcome"]) == (
        process.pid,
        "held",
        process.pid,
        "running",
    )


def test_descendant_is_refused_the_name_of_its_tree(lab, plant):
    inner = "$SOLO -w forever -n job true 2>&1; echo $?"
    for victim in (None, LOWER, UPPER):
        process = plant(then=f"read line; {{ {inner}; }} >$LAB/{victim}; exit 3")
        if victim:
            hit(process, victim)
        process.stdin.close()
        process.wait(PATIENCE)
        said = lab.path / str(victim)
        until(lambda said=said: said.exists() and said.read_text().endswith("\n125\n"))
        assert ": it would wait for itself\n" in said.read_text()
        until(lambda: lab.list() == [])


# --- signals--------------------------------------------------------------------------------------


@pytest.fixture
def probed(lab):
    """Return a tree whose command prints the signals that it gets."""
    process = lab.start("--tree", "-n", "job", "--", *PROBE)
    read_line(process)
    [process.lower] = find_children(process.pid)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("to", [UPPER, LOWER])
def test_signal_to_either_reaches_the_command_once(probed, to, number):
    pid = probed.pid if to == UPPER else probed.lower
    for _ in range(2):
        os.kill(pid, number)
        assert read_line(probed) == str(int(number))
    os.kill(pid, signal.SIGTERM)

    assert finish(probed)[:2] == (0, "15\n")


def test_end_is_recorded_once_though_a_stopped_process_hears_nothing(lab):
    """As of a command that cpulimit(1) stops and continues for hours: the socket is full."""
    notes = lab.path / "notes"
    words = ("--tree", "--notify", f"echo $SOLO_OUTCOME >>{notes}", "--notify-on", "ended")
    process = lab.start(*words, "-n", "job", "--", "sh", "-c", "echo $$; read line; exit 5")
    command = int(read_line(process))
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: read_state(process.pid) == "T")
    for _ in range(600):
        for number, state in (signal.SIGSTOP, "T"), (signal.SIGCONT, "S"):
            os.kill(command, number)
            until(lambda state=state: read_state(command) == state)
    [lower] = find_children(process.pid)
    process.stdin.close()
    until(lambda: read_state(command) == "gone")
    until(lambda: read_state(lower) in "Zgone")
    os.kill(process.pid, signal.SIGCONT)

    assert (process.wait(PATIENCE), process.stderr.read()) == (5, b"")
    until(notes.exists)
    assert notes.read_text() == "failed\n" and len(lab.history("job")) == 1


def test_signal_to_both_from_one_sender_reaches_the_command_once(probed):
    for _ in range(2):
        os.kill(probed.pid, signal.SIGUSR1)
        os.kill(probed.lower, signal.SIGUSR1)
        assert read_line(probed) == "10"
        subprocess.run(
            ["sh", "-c", f"kill -WINCH {probed.pid}"]
        )  # another sender; it comes after both
        assert read_line(probed) == "28"
    os.kill(probed.pid, signal.SIGTERM)

    assert finish(probed)[:2] == (0, "15\n")


def test_signal_that_a_killed_launcher_had_not_acted_on_is_not_lost(probed):
    os.kill(probed.lower, signal.SIGSTOP)
    until(lambda: read_state(probed.lower) == "T")
    os.kill(probed.pid, signal.SIGUSR1)
    until(lambda: not has_pending_signal(probed.pid))
    until(lambda: read_state(probed.pid) == "S")

    os.kill(probed.lower, signal.SIGKILL)

    assert read_line(probed) == "10"
    probed.terminate()
    assert finish(probed)[:2] == (0, "15\n")


@pytest.mark.parametrize("victim", [None, UPPER, LOWER])
def test_sigterm_ends_the_tree_whoever_is_left(lab, plant, victim):
    process = plant(then="exec sleep 99")
    if victim:
        hit(process, victim)

    os.kill(process.lower if victim == UPPER else process.pid, signal.SIGTERM)

    wait_dead(process.daemon)
    assert process.wait(PATIENCE) == (-signal.SIGKILL if victim == UPPER else -signal.SIGTERM)
    until(lambda: lab.list() == [])


@pytest.mark.parametrize("stopped", [(UPPER,), (LOWER,), (UPPER, LOWER)])
def test_stop_ends_a_tree_of_stopped_launchers(lab, plant, via, stopped):
    process = plant(then="exec sleep 99")
    for each in stopped:
        pid = process.pid if each == UPPER else process.lower
        os.kill(pid, signal.SIGSTOP)
        until(lambda pid=pid: read_state(pid) == "T")

    ended = lab.run("stop", "--via", via, "job")

    assert ended.returncode == 0 and f"job: ended pid {process.pid} ".encode() in ended.stdout
    assert read_state(process.daemon) in ("gone", "Z")


@pytest.mark.parametrize("victim", [UPPER, LOWER])
@pytest.mark.parametrize("then", ["exec sleep 99", ENDS])
def test_stop_and_timeout_end_the_tree_after_a_kill(lab, plant, victim, then):
    process = plant(then=then)
    hit(process, victim)
    assert lab.run("stop", "job").returncode == 0
    wait_dead(process.daemon)

    process = plant("--timeout", "1s", then=then)
    hit(process, victim)
    wait_dead(process.daemon)
    assert process.wait(PATIENCE) == (124 if victim == LOWER else -signal.SIGKILL)
    until(lambda: find_ends(lab)[-1] == "timed out")


# --- the tree ends with its launcher--------------------------------------------------------------

DIES = [
    *(("--no-orphan", victim, "file") for victim in (UPPER, LOWER, GROUP)),
    *((words, LOWER, "socket") for words in ("--via socket", "--via socket --no-orphan")),
]


@pytest.mark.parametrize("line, victim, via", DIES)
def test_tree_ends_before_the_next_run_starts(lab, plant, line, victim, via):
    process = plant(*line.split(), then="exec sleep 99")
    waiter = lab.start(
        "-w",
        "forever",
        "--via",
        via,
        "-n",
        "job",
        "sh",
        "-c",
        f"kill -0 {process.daemon} && echo beside",
    )

    hit(process, victim)

    assert finish(waiter)[:2] == (1, "")


def test_other_trees_live_on(lab, plant):
    """A witness of the test before."""
    process = plant("--via", "socket", then="exec sleep 99")

    hit(process, UPPER)

    assert lab.run("--via", "socket", "-n", "job", "true").returncode == 75
    assert read_state(process.daemon) == "S"


@pytest.mark.tool("strace")
def test_fork_that_fails_is_one_line_with_the_name(lab):
    result = lab.run("-n", "job", "--tree", "true", prefix=inject(lab, "clone:error=EAGAIN:when=1"))

    reason = b"cannot prepare the run: Resource temporarily unavailable\n"
    assert (result.returncode, result.stderr) == (125, b"solo: job: " + reason)
    assert lab.run("history", "job").stdout.endswith(reason)


@pytest.mark.parametrize("victim", [UPPER, LOWER])
def test_killed_waiter_leaves_the_queue(lab, victim, via):
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "--tree", "-n", "job", "sh", "-c", "echo ran >>$LAB/log")
    until(lambda: lab.count_waiting("job") == 1)
    [waiter.lower] = find_children(waiter.pid)
    until(lambda: find_children(waiter.lower))
    [early] = find_children(waiter.lower)

    hit(waiter, victim)

    wait_dead(waiter.lower)
    assert waiter.wait(PATIENCE) == -signal.SIGKILL
    finish(holder)
    wait_dead(early)  # it may live a moment longer, and has the descriptors
    assert lab.run("-n", "job", "true").returncode == 0 and lab.read_log() == []


# --- places---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "then", ["exit 3", 'trap "" TERM; echo; read line'], ids=["ends", "is killed"]
)
def test_holder_of_a_descriptor_from_outside_is_not_of_the_tree(lab, then):
    """The tree does not wait for it, and it outlives a tree that is killed."""
    tree = f"$SOLO hold --fd 9 other; {then}"
    caller = lab.start_shell(
        f"exec 9>>$LAB/opened; $SOLO -n job --tree -- sh -c {shlex.quote(tree)}; echo $?; exec cat"
    )
    if "trap" in then:
        read_line(caller)
        assert lab.run("stop", "job", "-k", "0.1").returncode == 0

    assert read_line(caller) == ("137" if "trap" in then else "3")
    [row] = lab.list()
    assert row["name"] == "other"
    with open(lab.find_hold("other")) as ticket, pytest.raises(BlockingIOError):
        flock(ticket, LOCK_SH | LOCK_NB)
    finish(caller)
    until(lambda: not lab.list())


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_process_1_goes_on_after_its_launcher_was_killed(lab):
    process = lab.start(
        "--tree", "-n", "job", "--", "sh", "-c", "echo; read line; exit 7", prefix=INNER
    )
    read_line(process)
    [first] = find_children(process.pid)
    [lower] = find_children(first)

    os.kill(lower, signal.SIGKILL)
    wait_dead(lower)

    assert lab.run("-n", "job", "true").returncode == 75
    assert lab.run("-n", "job", "true", prefix=INNER).returncode == 75
    assert finish(process)[0] == 7
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("victim", [UPPER, LOWER])
def test_tree_in_a_container_keeps_the_name_from_another_container(lab, victim):
    inside = (*INNER, "sh", "-c", '"$@"; cat', "sh")
    process = lab.start("--tree", "-n", "job", "--", "sh", "-c", "echo; read line", prefix=inside)
    read_line(process)
    [first] = find_children(process.pid)
    [upper] = find_children(first)
    [lower] = find_children(upper)
    [command] = find_children(lower)

    os.kill(upper if victim == UPPER else lower, signal.SIGKILL)
    wait_dead(upper if victim == UPPER else lower)

    assert lab.run("-n", "job", "true", prefix=INNER).returncode == 75
    os.kill(command, signal.SIGKILL)
    wait_dead(lower if victim == UPPER else upper)
    result = lab.run("-n", "job", "true", prefix=INNER)
    assert (result.returncode, result.stderr) == (0, b"")
    process.stdin.close()
    process.wait(PATIENCE)


@pytest.mark.root
@pytest.mark.tool("setpriv", "prlimit")
def test_descriptors_on_their_way_are_no_obstacle(common):
    """Descriptors in flight of one user, all together, may not be more than RLIMIT_NOFILE of the
    sender.
    """
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    limited = (
        "setpriv",
        "--reuid",
        str(NOBODY),
        "--regid",
        str(NOBODY),
        "--clear-groups",
        "prlimit",
        "--nofile=24",
    )
    started = [common.start("--tree", "-n", f"job{at}", "true", prefix=limited) for at in range(12)]

    assert [finish(process)[::2] for process in started] == [(0, "")] * 12


def test_more_holds_than_one_message_takes(lab):
    names = [word for at in range(300) for word in ("-n", f"job{at}")]

    assert lab.run("--tree", *names, "true").returncode == 0


def test_alarm_from_before_the_exec_ends_waiter_and_command(lab):
    code = "import posix, sys, _signal; _signal.alarm(1); posix.execv(sys.argv[1], sys.argv[1:])"
    alarm = (sys.executable, "-IS", "-c", code)
    holder = lab.hold("job")

    waiter = lab.start("-w", "1h", "--tree", "-n", "job", "true", prefix=alarm)
    command = lab.start("--tree", "-n", "other", "sleep", "99", prefix=alarm)

    assert waiter.wait(PATIENCE) == command.wait(PATIENCE) == -signal.SIGALRM
    finish(holder)


@pytest.mark.parametrize("variable", ["LISTEN_PID", "WATCHDOG_PID"])
def test_pid_in_the_environment_becomes_that_of_the_command(lab, variable):
    script = f'export {variable}=$$; exec "$@"'
    result = lab.run(
        "--tree", "-n", "job", "sh", "-c", f"echo $$ ${variable}", prefix=("sh", "-c", script, "sh")
    )

    one, other = result.stdout.split()
    assert one == other


def test_caller_may_ignore_or_block_signals_of_children(lab):
    change = "signal.signal(17, signal.SIG_IGN); signal.pthread_sigmask(0, {17, 15})"
    code = f"import os, signal, sys; {change}; os.execv(sys.argv[1], sys.argv[1:])"
    words = ("-n", "job", "grep", "-E", "SigBlk|SigIgn", "/proc/self/status")

    tree, plain = [
        lab.run(*more, *words, prefix=(sys.executable, "-IS", "-c", code))
        for more in (["--tree"], [])
    ]

    assert tree.returncode == 0 and tree.stdout == plain.stdout


def test_command_stays_in_the_session_and_group_of_the_caller(lab):
    process = lab.start(
        "--tree", "-n", "job", "sh", "-c", "echo $$; read line", start_new_session=True
    )
    command = int(read_line(process))
    [lower] = find_children(process.pid)

    assert (os.getsid(command), os.getpgid(command)) == (process.pid, process.pid)
    assert os.getsid(lower) == lower


def test_idle_pair_makes_no_system_call(lab):
    process = lab.hold("job", "--tree")
    [lower] = find_children(process.pid)
    pids = process.pid, lower
    until(lambda: all(read_state(pid) == "S" for pid in pids))

    def count():
        rows = [
            row for pid in pids for row in open(f"/proc/{pid}/status") if "ctxt_switches" in row
        ]
        return [row.split()[1] for row in rows]

    before = count()
    assert lab.run("-n", "job", "true").returncode == 75  # a span of time

    assert count() == before


# --- SIGKILL at each step, and at random----------------------------------------------------------

# A launcher that counts the calls of Python functions in one of its two processes, and kills that
# at one of them. Without a number it writes their count into a file.
STEPS = """
import posix, sys
from solo.process import pair, upper
whose, number = {whose!r}, {number}
steps = 0

def trace(frame, event, argument):
    global steps
    steps += 1
    if steps == number:
        posix.kill(posix.getpid(), 9)
    if not number:
        with open({path!r}, "w") as file:
            file.write(str(steps))
    return trace

def begin(call):
    def traced(*words):
        if whose == "upper":
            sys.settrace(trace)
        result = call(*words)
        sys.settrace(trace)
        return result
    return traced

if whose == "upper":
    upper.Upper.stand_by = begin(upper.Upper.stand_by)
else:
    pair.go_on_below = begin(pair.go_on_below)
"""


def count_steps(lab, whose):
    path = lab.path / f"steps-{whose}"
    start_traced(lab, whose, 0, "counted").wait(PATIENCE)
    return int(path.read_text())


def start_traced(lab, whose, number, tag):
    """Start a tree whose command ends before its daemon, which is the witness."""
    steps = STEPS.format(whose=whose, number=number, path=str(lab.path / f"steps-{whose}"))
    script = write_program(lab.path / "traced", lab.put_in(steps))
    leave = f"setsid {WITNESS} {tag} 0.05 >/dev/null 2>&1 & exit 3"
    words = ("--tree", "-n", "job", "sh", "-c", leave)
    return lab.start_words(script, *words, stdin=subprocess.DEVNULL)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("whose", [UPPER, LOWER])
def test_sigkill_at_any_step_of_either_starts_no_second_tree(lab, whose):
    steps = count_steps(lab, whose)
    assert steps > 100
    killed = 0
    for point in tally.choose([f"step {number}" for number in range(1, steps + 1)], 12):
        process = start_traced(lab, whose, int(point.split()[1]), "traced")
        status = process.wait(PATIENCE)
        successor = lab.start(
            "-w", "forever", "-n", "job", WITNESS, "successor", "0", stdin=subprocess.DEVNULL
        )
        assert successor.wait(PATIENCE) == 0, point
        killed += status == -signal.SIGKILL or b"was killed" in process.stderr.read()
        assert not [line for line in lab.read_log() if line.startswith("overlap")], point
    until(lambda: lab.list() == [])
    assert killed or tally.POINT


@pytest.mark.timeout(3600)
@pytest.mark.full  # what no simulation has: two processes of a run, at random moments
def test_killed_pairs_never_overlap(lab):
    """Trees are killed at random moments: the upper process, the lower one, or the group."""
    chance = tally.make_random("pairs")
    kills = number = 0
    for number in tally.rounds(60, 1500):
        leave = f"setsid {WITNESS} {number} 0.03 >/dev/null 2>&1 & {chance.choice(['exit 3', 'wait; exit 3'])}"
        options = {"start_new_session": True, "stdin": subprocess.DEVNULL}
        more = chance.choice(["", "--capture failed", "--timeout 9s", "--notify :"]).split()
        words = ("-w", "forever", "--tree", *more, "-n", "job", "sh", "-c", leave)
        process = lab.start(*words, **options)
        lab.started.remove(process)
        victim = chance.choice([UPPER, LOWER, GROUP])
        subprocess.run(["sleep", f"{chance.uniform(0, 0.08):.3f}"])
        with suppress(ProcessLookupError):
            if victim == LOWER:
                for pid in find_children(process.pid):
                    os.kill(pid, signal.SIGKILL)
            else:
                (os.killpg if victim == GROUP else os.kill)(process.pid, signal.SIGKILL)
            kills += 1
        successor = ("-w", "forever", "-n", "job", WITNESS, f"{number}s", "0")
        assert lab.run(*successor).returncode == 0, f"SOLO_SEED={tally.SEED}"
        finish(process)
    log = lab.read_log()
    overlaps = [line for line in log if line.startswith("overlap")]
    tally.add(
        launchers=2 * number + 2,
        commands=sum(line.startswith("start:") for line in log),
        kills=kills,
    )
    tally.add(overlaps=len(overlaps))
    assert not overlaps, f"SOLO_SEED={tally.SEED}"
    assert lab.list() == []
