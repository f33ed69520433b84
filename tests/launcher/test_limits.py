"""Time limits, trees and orphans: --timeout, --kill-after, --tree, --no-orphan."""

import os
import re
import signal
import subprocess
import sys
from resource import RLIMIT_DATA, setrlimit

import pytest
from conftest import (
    LIVE,
    PATIENCE,
    ROOT,
    count_injected,
    count_switches,
    finish,
    inject,
    kill,
    make_full_pipe,
    read_line,
    read_state,
    until,
    wait_dead,
)
from fleet import find_children

STUBBORN = 'trap "" TERM; echo $$; exec sleep 99'
STAYS = "sh -c 'read line; echo stayed >>$LAB/log' <&3"  # until the test closes its stdin
IGNORING_TERM = ("env", "--ignore-signal=TERM")
BLOCKING_TERM = (
    "env",
    "--block-signal=TERM",
)  # what comes before the command waits for it is pending
AWAIT_TERM = f"{sys.executable} -IS -c 'import signal; signal.sigwait([15]); print(\"term\")'"
DAEMON = (
    "import os, sys, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
    "print(os.getpid(), flush=True); os.close(1); os.close(2); sys.stdin.readline()"
)


# --- --timeout------------------------------------------------------------------------------------


def test_command_within_its_timeout_gets_signals_and_causes_no_wakeups(lab, via):
    process = lab.hold("job", "-t", "1h", script=f"trap 'exit 9' USR1; echo $$; {LIVE}")
    until(lambda: read_state(process.pid) == "S")
    before = count_switches(process.pid)
    subprocess.run(["sleep", "1"])  # the claim is about a span of time

    assert count_switches(process.pid) == before and process.poll() is None
    process.send_signal(signal.SIGUSR1)
    assert (
        process.wait(PATIENCE) == 9
        and lab.run("-t", "forever", "-n", "job", "true").returncode == 0
    )


def test_timeout_sends_sigterm_and_status_is_124(lab, via):
    result = lab.run(
        "-t", "1s", "-n", "job", "--", "sh", "-c", f"exec {AWAIT_TERM}", prefix=BLOCKING_TERM
    )

    assert (result.returncode, result.stdout) == (124, b"term\n")
    assert re.fullmatch(rb"solo: job: timed out after 1s: ending pid \d+\n", result.stderr)


def test_timeout_kills_after_grace(lab, via):
    result = lab.run("-t", "1s", "-k", "200ms", "-n", "job", "sleep", "99", prefix=IGNORING_TERM)

    assert result.returncode == 124 and lab.list() == []


def test_timeout_continues_a_stopped_command(lab):
    assert (
        lab.run("-t", "1s", "-n", "job", "--", "sh", "-c", "kill -STOP $$; exit 0").returncode
        == 124
    )


def test_timeout_does_not_include_the_wait(lab):
    holder = lab.hold("job")
    lab.use_clock()
    waiter = lab.start_waiter("job", "-t", "1h", script="echo ran")
    lab.leap()

    finish(holder)

    assert finish(waiter)[:2] == (0, "ran\n")


def test_full_stderr_does_not_delay_the_timeout(lab):
    """A hanging log reader often makes jobs hang."""
    reader, full = make_full_pipe()

    process = lab.start("-t", "200ms", "-n", "job", "--", "sleep", "99", stderr=full)
    verbose = lab.start("-v", "-t", "200ms", "-n", "other", "--", "sleep", "99", stderr=full)

    assert (process.wait(PATIENCE), verbose.wait(PATIENCE)) == (124, 124)
    os.close(reader)
    os.close(full)


# --- the SIG of --timeout, and the signal in the journal------------------------------------------

IGNORING_INT = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def end_by_timeout(lab, signal, *words, command=("sleep", "99"), **options):
    """Run a command until its timeout; return (status, outcome and signal in the journal)."""
    result = lab.run("-t", f"100ms,{signal}", *words, "-n", "job", "--", *command, **options)
    [row] = lab.history()
    return result.returncode, row["outcome"], row["signal"]


@pytest.mark.parametrize("typed", ["USR1", "SIGUSR1", "sigusr1", "10", "KILL"])
def test_timeout_sends_the_signal_by_name_or_number(lab, typed):
    number = signal.SIGKILL if typed == "KILL" else signal.SIGUSR1
    assert end_by_timeout(lab, typed, "-k", "1h") == (124, "timed out", number)


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(lab):
    ended = end_by_timeout(lab, "INT", "-k", "100ms", prefix=IGNORING_INT)

    assert ended == (124, "timed out", signal.SIGKILL)


@pytest.mark.parametrize(
    "line", ["kill -STOP $$; exit 0", "sleep 99 & wait"], ids=["stopped", "tree"]
)
def test_signal_reaches_a_stopped_command_and_its_tree(lab, line):
    ended = end_by_timeout(lab, "USR1", "--tree", "-k", "1h", command=("sh", "-c", line))

    assert ended == (124, "timed out", signal.SIGUSR1)


@pytest.mark.parametrize("typed", ["NOPE", "0", "32", "99", "SIG", "_DFL"])
def test_an_unknown_signal_is_refused(lab, typed):
    result = lab.run("-t", f"1s,{typed}", "-n", "job", "true")

    assert result.returncode == 125
    assert (
        result.stderr.decode()
        == f"solo: SIG of -t {typed}: not a signal (like INT, SIGHUP or 10)\n"
    )


# --- --tree---------------------------------------------------------------------------------------


def start_daemon(lab, *words, then="exit 3"):
    """Start a command that leaves a daemon in a session of its own, with the pid `daemon`."""
    process = lab.start(
        *words, "-n", "job", "--", "sh", "-c", f"{sys.executable} -IS -c '{DAEMON}' <&0; {then}"
    )
    process.daemon = int(read_line(process))
    return process


def test_tree_holds_until_last_descendant_is_dead(lab, via):
    process = start_daemon(lab, "--tree")
    until(lambda: read_state(lab.list()[0]["child"]) == "gone")
    assert lab.run("-n", "job", "true").returncode == 75

    process.stdin.close()

    assert process.wait(PATIENCE) == 3
    wait_dead(process.daemon)
    assert lab.run("-n", "job", "true").returncode == 0


def test_sigterm_ends_the_whole_tree_even_after_the_command(lab, via):
    process = start_daemon(lab, "--tree", then="exec sleep 99")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == -signal.SIGTERM
    assert read_state(process.daemon) == "gone"

    process = start_daemon(lab, "--tree")
    until(lambda: read_state(lab.list()[0]["child"]) == "gone")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 3
    assert read_state(process.daemon) == "gone"


@pytest.mark.parametrize("then", ["exit 0", "exec sleep 99"])
def test_timeout_or_sigterm_kills_the_whole_tree_after_grace(lab, via, then):
    limit, prefix = (("-t", "1s"), IGNORING_TERM) if then == "exit 0" else ((), ())
    words = (
        "--tree",
        *limit,
        "-k",
        "300ms",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f"setsid sh -c '{STUBBORN}' & {then}",
    )
    process = lab.start(*words, prefix=prefix)
    if not limit:
        read_line(process)
        process.terminate()

    assert finish(process)[0] == (
        124 if limit else -signal.SIGTERM
    )  # at the end of stdout: nobody has it open any more


@pytest.mark.tool("strace")
def test_refused_signal_to_the_command_leaves_out_no_other_step(lab):
    """As one to a command that runs as another user."""
    words, denied = ("--tree", "-t", "1s", "-k", "1h"), inject(lab, "kill:error=EPERM", follow=True)
    process = lab.start(
        *words,
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f"{AWAIT_TERM} & wait",
        prefix=(*BLOCKING_TERM, *denied),
    )

    status, out, err = finish(process)

    assert (status, out) == (124, "term\n")
    child = re.search(r"cannot end pid (\d+)", err)[1]
    assert [line for line in err.splitlines() if line.startswith("solo: ")] == [
        f"solo: job: cannot end pid {child}: Operation not permitted",
        f"solo: job: timed out after 1s: ending pid {child}",
    ]


def test_other_signals_go_to_the_command_only(lab):
    process = lab.hold(
        "job", "--tree", script="trap 'kill $!; exit 4' USR1; sleep 99 & echo $!; wait"
    )
    process.send_signal(signal.SIGUSR1)

    assert process.wait(PATIENCE) == 4
    wait_dead(process.child)


def test_tree_beside_earlier_child_outlives_a_chain_of_forks(lab):
    """Each process of the chain lives for a moment, so that no reading of /proc sees them all."""
    hopper = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nend = time.time() + 1.5\n"
        "while time.time() < end:\n if os.fork(): os._exit(0)\nopen(sys.argv[1], 'a').write('hopped')\n"
    )
    command = f'{sys.executable} -IS -c "{hopper}" $LAB/log'
    shell = lab.start_shell(f"sleep 99 & echo $!; exec $SOLO --tree -n job -- {command}")
    earlier = int(read_line(shell))

    assert shell.wait(PATIENCE) == 0
    assert lab.read_log() == ["hopped"]
    os.kill(earlier, signal.SIGKILL)


def test_tree_spares_an_earlier_child_that_sends_no_signal_at_its_end(lab):
    """By default no wait call of the kernel sees such a child of clone(2)."""
    code = (
        "import ctypes, os, sys, time\nclone = 56 if os.uname().machine == 'x86_64' else 220\n"
        "child = ctypes.CDLL(None).syscall(clone, 0, 0, 0, 0, 0)\nif not child:\n time.sleep(99)\n os._exit(0)\n"
        "print(child, flush=True)\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    words = "--tree", "-t", "200ms", "-k", "100ms", "-n", "job", "--", "sleep", "99"
    process = lab.start_words(sys.executable, "-IS", "-c", code, lab.script, *words)
    earlier = int(read_line(process))

    assert process.wait(PATIENCE) == 124
    assert read_state(earlier) == "S"
    os.kill(earlier, signal.SIGKILL)


@pytest.mark.tool("strace")
def test_tree_holds_while_proc_cannot_be_listed(lab):
    blind = "strace -D -qq -o $LAB/trace -P /proc -e trace=openat -e inject=openat:error=ENFILE:when=2..4"
    # the upper process lists it
    tree = "setsid sh -c 'sleep 1; echo over >>$LAB/log' & kill -KILL \\$PPID; exit 3"
    shell = lab.start_shell(
        f'sleep 99 & echo $!; exec {blind} $SOLO --tree -n job -- sh -c "{tree}"'
    )
    earlier = int(read_line(shell))

    assert shell.wait(PATIENCE) == 3
    assert lab.read_log() == ["over"] and (lab.path / "trace").read_text().count("(INJECTED)") == 3
    os.kill(earlier, signal.SIGKILL)


@pytest.mark.host
@pytest.mark.tool("strace")
@pytest.mark.parametrize("earlier, lists", [("", 0), ("sleep 99 & echo $!;", 1)])
def test_only_a_launcher_with_children_lists_all_processes(lab, earlier, lists):
    """exec keeps the children of the shell."""
    trace = "strace -D -qq -o $LAB/trace -P /proc -e trace=openat"
    shell = lab.start_shell(f"{earlier} exec {trace} $SOLO --tree -n job -- echo 7")
    pids = [int(read_line(shell)) for _ in range(1 + lists)]

    assert shell.wait(PATIENCE) == 0
    assert ('"/proc"' in (lab.path / "trace").read_text()) == bool(lists)
    for pid in pids[:lists]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.tool("strace")
def test_tree_holds_while_sigwaitinfo_fails(lab):
    tree = "setsid sh -c 'sleep 3; echo over >>$LAB/log' & exit 3"
    fail = inject(lab, "rt_sigtimedwait:error=EINVAL:when=2..4", follow=True)

    result = lab.run("--tree", "-n", "job", "--", "sh", "-c", tree, prefix=fail)

    assert (result.returncode, lab.read_log()) == (3, ["over"]) and count_injected(lab) >= 3


def test_descendant_gets_sigterm_once(lab):
    # After the first SIGTERM it waits a second for another.
    helper = (
        "import signal\nterm = {signal.SIGTERM}\nsignal.pthread_sigmask(signal.SIG_BLOCK, term)\nprint(flush=True)\n"
        "signal.sigwait(term)\nprint(signal.sigtimedwait(term, 1))\n"
    )
    process = lab.start(
        "--tree",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f'{sys.executable} -IS -c "{helper}" & exec sleep 99',
    )
    read_line(process)
    process.terminate()

    assert finish(process)[:2] == (-signal.SIGTERM, "None\n")


def test_hang_up_from_a_process_ends_no_tree(lab):
    """It usually means: reload the configuration."""
    script = "sleep 99 & trap 'echo reloading; kill $!; exit 0' HUP; echo $!; wait"
    process = lab.hold("job", "--tree", script=f"exec 3<&0; setsid {STAYS} & {script}")
    process.send_signal(signal.SIGHUP)
    assert read_line(process) == "reloading"

    assert finish(process)[0] == 0 and lab.read_log() == ["stayed"]


def until_taken(process):
    """Wait until both launchers of a tree have taken their signals and sleep again."""
    for pid in (process.pid, *find_children(process.pid)):
        until(
            lambda: re.search(r"State:\tS(.*\n)*ShdPnd:\t0+\n", open(f"/proc/{pid}/status").read())
        )


def test_signal_of_a_descendant_ends_no_tree(lab):
    stays = "setsid sh -c 'echo; exec >&-; read line; echo stayed >>$LAB/log' <&3"
    sends = "{ trap '' TERM; read line; sh -c 'kill -TERM 0; echo $$; exec cat' <&3; }"
    process = lab.hold(
        "job", "--tree", script=f"exec 3<&0; {stays} | {sends}", start_new_session=True
    )
    until_taken(process)

    assert finish(process)[0] == -signal.SIGTERM and lab.read_log() == ["stayed"]


def test_inherited_ignored_signal_ends_no_tree(lab):
    ignoring = ("env", "--ignore-signal=INT")
    process = lab.hold(
        "job", "--tree", script=f"exec 3<&0; {STAYS} & echo $$; exit 0", prefix=ignoring
    )
    until(lambda: read_state(process.child) == "gone")
    process.send_signal(signal.SIGINT)
    until_taken(process)

    assert finish(process)[0] == 0 and lab.read_log() == ["stayed"]


# --- --no-orphan----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["--no-orphan", "--via socket", "--no-orphan --tree", "--flock log", "--fcntl log"]
)
def test_command_dies_with_its_launcher(lab, line):
    """Without these options an orphan keeps running. None may have a lock that no record shows."""
    words = line.split()
    holder, orphan = lab.hold("job", *words, cwd=lab.path), lab.orphan("orphan")
    kill(holder)

    wait_dead(holder.child)
    assert lab.run(*words[:2], "-w", "10s", "-n", "job", "true", cwd=lab.path).returncode == 0
    assert read_state(orphan.child) == "S" and lab.list("orphan")[0]["state"] == "orphaned"


def test_launcher_killed_early_starts_no_command(lab):
    """If the launcher dies before the child has set PR_SET_PDEATHSIG, the child ends by itself."""
    for delay in range(12):
        holder = lab.start(
            "--no-orphan", "-n", "job", "--", "sh", "-c", "echo $$ >>$LAB/log; exec sleep 99"
        )
        subprocess.run(["sleep", f"{0.008 + delay * 0.001}"])
        kill(holder)
        until(lambda: all(read_state(int(pid)) in ("gone", "Z") for pid in lab.read_log()))
    assert lab.run("-w", "10s", "-n", "job", "true").returncode == 0


# --- little memory, and prctl(2) denied-----------------------------------------------------------


def deny(call):
    return (sys.executable, "-IS", ROOT / "tests/old_kernel.py", call)


@pytest.mark.parametrize("word", ["--no-orphan", "--tree"])
@pytest.mark.parametrize("waits", [False, True])
def test_denied_prctl_is_one_line_and_125(lab, word, waits):
    holder = lab.hold("job") if waits else None
    words = ["--wait", "forever"] if waits else []

    result = lab.run(word, *words, "-n", "job", "--", "echo", "ran", prefix=deny("prctl"))

    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (125, b"", 1)
    assert b"solo: cannot " in result.stderr and b"prctl: Operation not permitted" in result.stderr
    if holder:
        finish(holder)


@pytest.mark.parametrize("words", [(), ("--tree",), ("-t", "1h")], ids=str)
def test_denied_sched_yield_changes_nothing(lab, words):
    for _ in range(5):  # the child yields while it waits for the launcher, mostly
        result = lab.run(*words, "-n", "job", "--", "echo", "ran", prefix=deny("yield"))
        assert (result.returncode, result.stdout, result.stderr) == (0, b"ran\n", b"")


MORE = [
    pytest.param(words, marks=pytest.mark.full)
    for words in ((), ("--once-per", "1ms"), ("--slots", "2"))
]


@pytest.mark.parametrize("words", [("-w", "1"), *MORE])
def test_out_of_memory_is_one_line_and_125(lab, words):
    """The limits rise from where Python itself starts, perhaps with messages of its own, to where
    the run succeeds.
    """
    lab.run(*words, "-n", "job", "true")
    statuses = set()
    lowest = (
        3_800_000 if sys.version_info >= (3, 11) else 2_400_000
    )  # with less, Python 3.13 tries forever
    for limit in range(lowest, 12_000_000, 40_000):
        result = lab.run(
            *words, "-n", "job", "echo", preexec_fn=lambda: setrlimit(RLIMIT_DATA, (limit, limit))
        )
        if result.returncode == 125 and result.stdout:
            continue  # the launcher ended while its command ran, as if it was killed
        statuses.add(result.returncode)
        if result.returncode == -signal.SIGABRT:
            continue  # Python aborts: it takes many MemoryErrors at once for an endless recursion
        lines = result.stderr.replace(os.fsencode(sys.prefix), b"").splitlines()
        steps = filter(
            lambda text: text.startswith(b'  File "'), lines
        )  # of a traceback of Python's own modules
        assert not any(b"solo" in step for step in steps), (limit, result.stderr)
        if result.returncode in (0, 125):
            own = list(filter(lambda text: text.startswith(b"solo: "), lines))
            assert len(own) in ((1, 2) if result.returncode else (0,)), (
                limit,
                result.stderr,
            )  # one of each process
            assert not any(text.endswith(b": ") for text in own), (limit, result.stderr)
        assert os.fsencode(ROOT / "solo") not in result.stderr and b"bug" not in result.stderr, (
            limit,
            result.stderr,
        )
        if result.returncode == 0:
            break

    assert {0, 125} <= statuses


@pytest.mark.tool("strace")
def test_failed_import_is_one_line_and_125(lab):
    """The launcher waits for an orphan; there is no memory to load select."""
    import select

    path = getattr(select, "__file__", None) or pytest.skip("select is built in")
    lab.orphan("job")

    result = lab.run(
        "--wait",
        "forever",
        "-n",
        "job",
        "true",
        prefix=inject(lab, "mmap:error=ENOMEM", paths=(path,)),
    )

    assert count_injected(lab)
    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert (
        result.stderr.startswith(b"solo: cannot load a part of Python: ")
        and b"select" in result.stderr
    )
