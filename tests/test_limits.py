"""Time limits, trees and orphans: --timeout, --kill-after, --tree, --no-orphan."""

import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from conftest import (
    PATIENCE,
    ROOT,
    count_injected,
    finish,
    inject,
    make_full_pipe,
    read_line,
    read_state,
    until,
    wait_dead,
)

STUBBORN = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
DAEMON = (
    "import os, sys, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
    "print(os.getpid(), flush=True); os.close(1); os.close(2); sys.stdin.readline()"
)


# --- --timeout ---------------------------------------------------------------------------------------------------


def test_a_command_within_its_time_is_left_alone(lab, via):
    assert lab.run("-t", "1h", "-n", "job", "--", "sh", "-c", "exit 3").returncode == 3


def test_a_command_over_its_time_gets_sigterm_and_the_status_is_124(lab, via):
    result = lab.run(
        "-t", "300ms", "-n", "job", "--", "sh", "-c", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"
    )

    assert (result.returncode, result.stdout) == (124, b"bye\n")
    assert re.fullmatch(rb"solo: job: timed out after 300ms: ending pid \d+\n", result.stderr)


def test_a_command_that_does_not_heed_it_is_killed(lab, via):
    process = lab.start("-t", "300ms", "-k", "200ms", "-n", "job", "--", "sh", "-c", STUBBORN)
    child = int(read_line(process))

    assert process.wait(PATIENCE) == 124
    assert read_state(child) in ("gone", "Z")


def test_a_stopped_command_hears_of_the_end_of_its_time(lab):
    process = lab.start("-t", "300ms", "-n", "job", "--", "sh", "-c", "echo $$; kill -STOP $$; exit 0")
    read_line(process)

    assert process.wait(PATIENCE) == 124


def test_signals_are_forwarded_while_a_limit_runs(lab):
    process = lab.start(
        "-t", "1h", "-n", "job", "--", "sh", "-c", "trap 'exit 9' USR1; echo; while :; do sleep 0.05; done"
    )
    read_line(process)
    process.send_signal(signal.SIGUSR1)

    assert process.wait(PATIENCE) == 9


def test_waiting_does_not_count(lab):
    holder = lab.hold("job")
    waiter = lab.start("-w", "forever", "-t", "700ms", "-n", "job", "--", "sh", "-c", "echo in")
    until(lambda: lab.count_waiting("job"))
    subprocess.run(["sleep", "0.8"])

    finish(holder)

    assert finish(waiter)[:2] == (0, "in\n")


def test_a_limit_keeps_the_launcher_asleep(lab):
    from conftest import count_switches

    process = lab.start("-t", "1h", "-n", "job", "--", "sh", "-c", "echo; read line; exit 0")
    read_line(process)
    until(lambda: read_state(process.pid) == "S")
    before = count_switches(process.pid)
    subprocess.run(["sleep", "2"])  # the claim is about a span of time

    assert count_switches(process.pid) == before


@pytest.mark.parametrize(
    "words, text",
    [(("-t", "0"), "must be more than 0"), (("-t", "x"), "not a duration"), (("-k", "5s"), "needs --timeout")],
)
def test_a_limit_that_makes_no_sense_is_refused(lab, words, text):
    result = lab.run(*words, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and text in result.stderr.decode()


def test_for_ever_is_no_limit(lab):
    assert lab.run("-t", "forever", "-n", "job", "true").returncode == 0


def test_a_full_stderr_stops_neither_the_limit_nor_a_signal(lab):
    """A log reader that hangs is a reason for jobs to hang."""
    ready, full = make_full_pipe()

    process = lab.start("-t", "200ms", "-n", "job", "--", "sleep", "99", stderr=full)
    verbose = lab.start("-t", "200ms", "-n", "other", "--", "sleep", "99", stderr=full)

    assert (process.wait(PATIENCE), verbose.wait(PATIENCE)) == (124, 124)
    os.close(ready)
    os.close(full)


# --- --tree ------------------------------------------------------------------------------------------------------


def start_daemon(lab, *words, then="exit 3"):
    """A command that leaves a daemon behind, in a session of its own; `daemon` is its pid."""
    process = lab.start(*words, "-n", "job", "--", "sh", "-c", f"{sys.executable} -IS -c '{DAEMON}' <&0; {then}")
    process.daemon = int(read_line(process))
    return process


def test_without_a_tree_a_daemon_left_behind_does_not_hold_the_name(lab, via):
    process = start_daemon(lab)

    assert process.wait(PATIENCE) == 3
    assert lab.run("-n", "job", "true").returncode == 0


def test_a_tree_holds_until_the_last_descendant_is_gone(lab, via):
    process = start_daemon(lab, "--tree")
    until(lambda: read_state(lab.list()[0]["child"]) == "gone")
    assert lab.run("-n", "job", "true").returncode == 75

    process.stdin.close()

    assert process.wait(PATIENCE) == 3
    wait_dead(process.daemon)
    assert lab.run("-n", "job", "true").returncode == 0


def test_a_tree_that_is_told_to_end_ends_all_of_it(lab, via):
    process = start_daemon(lab, "--tree", then="exec sleep 99")
    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == -signal.SIGTERM
    assert read_state(process.daemon) == "gone"


def test_a_tree_that_is_told_to_end_after_its_command_did_ends_too(lab):
    process = start_daemon(lab, "--tree")
    until(lambda: read_state(lab.list()[0]["child"]) == "gone")
    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == 3
    assert read_state(process.daemon) == "gone"


def test_what_does_not_heed_it_in_a_tree_is_killed(lab):
    process = lab.start(
        "--tree", "-k", "300ms", "-n", "job", "--", "sh", "-c", f'setsid sh -c "{STUBBORN}" & exec sleep 99'
    )
    inner = int(read_line(process))
    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == -signal.SIGTERM
    assert read_state(inner) == "gone"


def test_a_tree_over_its_time_ends_whole(lab, via):
    process = lab.start(
        "--tree", "-t", "400ms", "-k", "300ms", "-n", "job", "--", "sh", "-c", f'setsid sh -c "{STUBBORN}" & exit 0'
    )
    inner = int(read_line(process))

    assert process.wait(PATIENCE) == 124
    assert read_state(inner) == "gone"


def test_a_tree_that_forks_all_the_time_ends_whole(lab):
    forker = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True)\nwhile True:\n"
        " if os.fork():\n  os._exit(0)\n os.setsid()\n time.sleep(0.001)\n"
    )
    process = lab.start("--tree", "-t", "300ms", "-k", "100ms", "-n", "job", "--", sys.executable, "-IS", "-c", forker)

    assert process.wait(PATIENCE) == 124
    assert lab.run("-n", "job", "true").returncode == 0


def test_only_the_command_hears_of_other_signals(lab):
    process = lab.start(
        "--tree", "-n", "job", "--", "sh", "-c", "trap 'kill $!; exit 4' USR1; sleep 99 & echo $!; wait"
    )
    inner = int(read_line(process))
    process.send_signal(signal.SIGUSR1)

    assert process.wait(PATIENCE) == 4
    wait_dead(inner)


def test_children_from_before_are_not_part_of_the_tree(lab):
    """A shell that starts something in the background and then becomes solo: that is its business."""
    script = f"sleep 99 & echo $!; exec {lab.script} --tree -n job -- sh -c 'setsid sleep 0.2 & exit 5'"
    shell = subprocess.Popen(["sh", "-c", script], env=lab.environment, stdout=subprocess.PIPE)
    stranger = int(read_line(shell))

    assert shell.wait(PATIENCE) == 5
    assert read_state(stranger) == "S"
    os.kill(stranger, signal.SIGKILL)
    shell.stdout.close()


def test_a_tree_with_a_stranger_holds_over_a_chain_of_forks(lab):
    """Each link lives for a moment: no look at /proc sees them all."""
    hopper = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nend = time.time() + 1.5\n"
        "while time.time() < end:\n if os.fork(): os._exit(0)\nopen(sys.argv[1], 'a').write('hopped')\n"
    )
    shell = lab.start_shell(
        f'sleep 99 & echo $!; exec $SOLO --tree -n job -- {sys.executable} -IS -c "{hopper}" $LAB/log'
    )
    stranger = int(read_line(shell))

    assert shell.wait(PATIENCE) == 0
    assert lab.read_log() == ["hopped"]
    os.kill(stranger, signal.SIGKILL)


@pytest.mark.tool("strace")
def test_a_tree_is_not_given_up_where_processes_can_not_be_listed(lab):
    blind = "strace -D -qq -o $LAB/trace -P /proc -e trace=openat -e inject=openat:error=ENFILE:when=2..4"
    tree = "setsid sh -c 'sleep 1; echo over >>$LAB/log' & exit 3"
    shell = lab.start_shell(f'sleep 99 & echo $!; exec {blind} $SOLO --tree -n job -- sh -c "{tree}"')
    stranger = int(read_line(shell))

    assert shell.wait(PATIENCE) == 3
    assert lab.read_log() == ["over"] and (lab.path / "trace").read_text().count("(INJECTED)") == 3
    os.kill(stranger, signal.SIGKILL)


@pytest.mark.tool("strace")
def test_a_tree_is_not_given_up_where_signals_can_not_be_taken(lab):
    tree = "setsid sh -c 'sleep 1; echo over >>$LAB/log' & exit 3"

    result = lab.run(
        "--tree", "-n", "job", "--", "sh", "-c", tree, prefix=inject(lab, "rt_sigtimedwait:error=EINVAL:when=2..4")
    )

    assert (result.returncode, lab.read_log(), count_injected(lab)) == (3, ["over"], 3)


def test_nobody_in_a_tree_gets_sigterm_twice(lab):
    # Who has got the first waits a second for another.
    helper = (
        "import signal, sys, time\ngot = []\nsignal.signal(signal.SIGTERM, lambda *_: got.append(1))\nprint(flush=True)\n"
        "while not got: time.sleep(0.05)\nend = time.time() + 1\nwhile time.time() < end: time.sleep(0.05)\nprint(*got)\n"
    )
    process = lab.start("--tree", "-n", "job", "--", "sh", "-c", f'{sys.executable} -IS -c "{helper}" & exec sleep 99')
    read_line(process)
    process.terminate()

    assert finish(process)[:2] == (-signal.SIGTERM, "1\n")


def test_a_hang_up_from_a_process_is_for_the_command_alone(lab):
    """Mostly it means: read your configuration again."""
    script = "sleep 99 & trap 'echo reloading; kill $!; exit 0' HUP; echo $!; wait"
    process = lab.start("--tree", "-n", "job", "--", "sh", "-c", f"setsid sleep 0.3 & {script}")
    read_line(process)
    process.send_signal(signal.SIGHUP)

    assert finish(process)[:2] == (0, "reloading\n")


def test_what_a_descendant_sends_to_its_group_is_no_order_to_end(lab):
    script = "trap '' TERM; setsid sh -c 'echo; exec >&-; sleep 0.3; echo stayed >>$LAB/log' | { read -r _; kill -TERM 0; }; exit 0"

    assert lab.run("--tree", "-n", "job", "--", "sh", "-c", script, start_new_session=True).returncode == 0
    assert lab.read_log() == ["stayed"]


def test_an_order_that_was_ignored_from_the_start_is_none(lab):
    process = lab.start(
        "--tree",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        "sh -c 'sleep 0.4; echo stayed >>$LAB/log' & echo $$; exit 0",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    )
    child = int(read_line(process))
    until(lambda: read_state(child) == "gone")
    process.send_signal(signal.SIGINT)

    assert process.wait(PATIENCE) == 0 and lab.read_log() == ["stayed"]


# --- --no-orphan -------------------------------------------------------------------------------------------------


def test_an_orphan_lives_on(lab):
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; read line")
    child = int(read_line(holder))
    holder.kill()
    holder.wait()

    until(lambda: read_state(child) == "S")
    assert lab.list()[0]["state"] == "orphaned"


@pytest.mark.parametrize(
    "words", [("--no-orphan",), ("--via", "socket"), ("--flock", "file"), ("--no-orphan", "--tree")]
)
def test_no_orphan_dies_with_its_launcher(lab, words):
    words = [str(lab.path / word) if word == "file" else word for word in words]
    holder = lab.start(*words, "-n", "job", "--", "sh", "-c", "echo $$; read line")
    child = int(read_line(holder))
    holder.kill()
    holder.wait()

    wait_dead(child)
    assert lab.run("-w", "10s", "-n", "job", "true").returncode == 0


def test_a_launcher_killed_before_the_command_started_leaves_none(lab):
    """The parent may die before PR_SET_PDEATHSIG is set: then the child ends by itself."""
    for delay in range(12):
        holder = lab.start("--no-orphan", "-n", "job", "--", "sh", "-c", "echo $$ >>$LAB/log; exec sleep 99")
        subprocess.run(["sleep", f"{0.008 + delay * 0.001}"])
        holder.kill()
        holder.wait()
        until(lambda: all(read_state(int(pid)) in ("gone", "Z") for pid in lab.read_log()))
    assert lab.run("-w", "10s", "-n", "job", "true").returncode == 0


# --- little memory, and prctl(2) denied --------------------------------------------------------------------------

DENY_PRCTL = """
import ctypes, os, struct, sys
load, jump, give = 0x20, 0x15, 0x06  # BPF_LD+W+ABS, BPF_JMP+JEQ+K, BPF_RET+K
number = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
rules = [(load, 0, 0, 0), (jump, 0, 1, number), (give, 0, 0, 0x00050000 | 1), (give, 0, 0, 0x7fff0000)]  # EPERM, else allowed
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("word", ["--no-orphan", "--tree"])
@pytest.mark.parametrize("waits", [False, True])
def test_denied_prctl_is_one_line_and_125(lab, word, waits):
    holder = lab.hold("job") if waits else None
    words = ["--wait", "forever"] if waits else []

    result = lab.run(word, *words, "-n", "job", "--", "echo", "ran", prefix=(sys.executable, "-IS", "-c", DENY_PRCTL))

    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (125, b"", 1)
    assert b"solo: cannot " in result.stderr and b"prctl: Operation not permitted" in result.stderr
    if holder:
        finish(holder)


def test_launcher_without_memory_says_so_in_one_line(lab):
    """From where Python itself can start up to where all goes well. Python's own last words end in no line of a script."""
    lab.run("-n", "job", "true")
    statuses = set()
    for limit in range(3_000_000, 5_400_000, 50_000):
        result = lab.run(
            "-n", "job", "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        )
        statuses.add(result.returncode)
        if result.returncode in (0, 125):
            assert result.stderr.count(b"\n") == (result.returncode == 125), (limit, result.stderr)
        assert os.fsencode(ROOT / "solo") not in result.stderr and b"bug" not in result.stderr, (limit, result.stderr)

    assert {0, 125} <= statuses


@pytest.mark.tool("strace")
def test_part_of_python_that_cannot_be_loaded_is_one_line_and_125(lab):
    """It waits for an orphan, and memory ends while select loads."""
    import select

    path = getattr(select, "__file__", None) or pytest.skip("select is built in")
    holder = lab.hold("job")
    holder.kill()
    holder.wait()

    result = lab.run("--wait", "forever", "-n", "job", "true", prefix=inject(lab, "mmap:error=ENOMEM", paths=(path,)))

    assert count_injected(lab)
    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert result.stderr.startswith(b"solo: cannot load a part of Python: ") and b"select" in result.stderr
    holder.stdin.close()
