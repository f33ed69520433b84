"""Kernels, seccomp filters and Pythons without pidfds: stop, --replace, --latest and --tree verify
a pid and use kill(2).
"""

import os
import signal
import sys

import pytest
from conftest import (
    PATIENCE,
    ROOT,
    TESTS,
    finish,
    inject,
    read_line,
    read_state,
    until,
    wait_dead,
    write_program,
)
from test_owners import forge  # noqa: F401
from test_sockets import DEAD, kill_launcher_of_large_command

STUBBORN = 'trap "" TERM; echo $$; exec sleep 99'
FORGET = "import posix, _signal\nvars(posix).pop('pidfd_open', 0), vars(_signal).pop('pidfd_send_signal', 0)\n"


def make_old(lab, kind):
    """Make each solo of the lab run without pidfds, from now on."""
    text = f'#!/bin/sh\nexec {sys.executable} {TESTS}/old_kernel.py {kind} {lab.script} "$@"\n'
    if kind == "python":  # built for an old kernel
        first, _, rest = open(lab.script).read().partition("\n")
        text = f"{first}\n{FORGET}{rest}"
    lab.script = lab.environment["SOLO"] = str(write_program(lab.path / "old", text))


@pytest.fixture(params=["kernel", "filter", "python"])
def old(request, lab):
    make_old(lab, request.param)
    return lab


def test_doctor_says_that_pidfds_are_missing(lab):
    before = lab.run("doctor").stdout
    make_old(lab, "kernel")

    after = lab.run("doctor").stdout

    assert b"without polling (pidfd)" in before and b"no pidfd: solo polls orphans" in after


def test_stop_ends_holder_and_waiter(old):
    holder = old.hold("job")
    waiter = old.start_waiter("job", tag="waiter")

    result = old.run("stop", "--waiting", "job")

    assert (result.returncode, result.stdout.count(b"job: ended "), result.stderr) == (0, 2, b"")
    assert [holder.wait(PATIENCE), waiter.wait(PATIENCE)] == [-signal.SIGTERM] * 2
    assert old.read_log() == []


def test_stop_ends_stopped_orphan(old):
    child = old.orphan("job").child
    os.kill(child, signal.SIGSTOP)
    until(lambda: read_state(child) == "T")

    assert old.run("stop", "-k", "1h", "job").returncode == 0

    assert read_state(child) in ("gone", "Z")


@pytest.mark.root
def test_stop_ends_command_in_nested_pid_namespace(old):
    nested = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    holder = old.start("-n", "job", "--", "sh", "-c", "echo $$; exec sleep 99", prefix=nested)
    assert read_line(holder) == "3"

    result = old.run("stop", "job")

    assert (result.returncode, result.stdout[:11], result.stderr) == (0, b"job: ended ", b"")
    assert holder.wait(PATIENCE) != 0


def test_replace_ends_holder_and_waiter(old, via):
    holder = old.hold("job")
    waiter = old.start_waiter("job", tag="waiter")

    assert old.run("--replace", "-n", "job", "true").returncode == 0

    assert [holder.wait(PATIENCE), waiter.wait(PATIENCE)] == [-signal.SIGTERM] * 2
    wait_dead(holder.child)


def test_waiter_behind_orphan_polls(old):
    child = old.orphan("job").child
    waiter = old.start_waiter("job", tag="waiter")
    assert (
        old.run("-w", "500ms", "-n", "job", "true").returncode == 75
    )  # meanwhile the waiter has looked, too
    assert waiter.poll() is None and old.read_log() == []

    os.kill(child, signal.SIGTERM)

    assert finish(waiter)[0] == 0 and old.read_log() == ["waiter"]


@pytest.mark.tool("strace")
@pytest.mark.parametrize("held", ["kept", "orphan"])
def test_wait_behind_a_process_that_it_polls_ends_in_time(old, held):
    """It looks at the ticket once at its start, every 0.2 s, and once at its end, however long its
    timeout is.
    """
    process = start_kept(old) if held == "kept" else old.orphan("job")
    trace = ("strace", "-o", old.path / "trace", "-e", "trace=openat")
    wanted = ["job --timeout 500ms", "job -t 0", "job/part -t 100ms", "free job -t 0"]
    traced, *others = [["wait", "--allow-unknown", *words.split()] for words in wanted]
    waits = [old.start(*traced, prefix=trace), *(old.start(*words) for words in others)]
    late = old.start("wait", "job", "--timeout", "1h")

    ends = [finish(each) for each in waits]

    assert [(status, err.count("job: busy: held for ")) for status, _, err in ends] == [
        (75, 1)
    ] * len(wanted)
    assert 2 <= (old.path / "trace").read_text().count('".hold.') <= 6 and late.poll() is None
    os.kill(process.child, signal.SIGTERM)
    if held == "kept":
        process.wait()
    assert finish(late) == (0, "", "")


def start_kept(lab):
    """Keep `job` for a process that has nothing of solo; return it. `child`: its pid."""
    process = lab.start_words("sleep", "99")
    process.child = process.pid
    assert lab.run("hold", "--pid", str(process.pid), "job").returncode == 0
    return process


def test_socket_waiter_of_killed_launcher_waits_until_its_command_is_dead(old):
    old.use_sockets()
    assert kill_launcher_of_large_command(old) in DEAD


def test_timeout_ends_tree(old):
    words = ("--tree", "-t", "300ms", "-k", "100ms", "-n", "job")
    process = old.start(*words, "--", "sh", "-c", f"setsid sh -c '{STUBBORN}' & exec sleep 99")

    status, inner, _ = finish(
        process
    )  # the end of its stdout: a busy machine may not have started the inner shell in time
    assert status == 124
    assert inner == "" or read_state(int(inner)) in ("gone", "Z")


@pytest.mark.root
def test_ticket_of_a_user_that_could_not_signal_gives_no_power(common, forge):  # noqa: F811
    pids = forge(launcher="self", child="foreign")
    make_old(common, "kernel")

    result = common.run("--replace", "-k", "100ms", "-n", "job", "true")

    assert result.returncode == 125 and read_state(pids["foreign"]) == "S"
    assert b"a user that could not have signalled it" in result.stderr


# In a pid namespace of its own: `reuse` forks a process that gets the pid of one that has ended.
REUSE = """
import os, signal, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from solo.identity import read_origin, read_stat

def reuse(pid, start):
    while True:
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(pid - 1))
        child = os.fork()
        if not child:
            time.sleep(99)
        if child == pid and read_stat(pid).start != start:
            return
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def run_in_namespace(lab, code, *words):
    """Run REUSE and `code` as the first process of a new pid namespace; return its stdout."""
    command = (
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-IS",
        "-c",
        REUSE + code,
    )
    status, out, err = finish(lab.start_words(*command, ROOT, *map(str, words)))
    assert status == 0, err
    return out.splitlines()


@pytest.mark.root
def test_reused_pid_gets_no_signal(lab):
    code = """
del os.pidfd_open
import posix
vars(posix).pop("pidfd_open", None)
from solo.process.recipient import Recipient
child = os.fork()
if not child:
    time.sleep(99)
start, origin = read_stat(child).start, read_origin()
target = Recipient((child, start), origin, origin)
print(target.pidfd, target.is_gone())
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
reuse(child, start)
try:
    target.send(signal.SIGKILL)
except ProcessLookupError:
    print("gone", target.is_gone(), os.waitpid(child, os.WNOHANG)[0])
os.kill(child, signal.SIGKILL)
"""
    assert run_in_namespace(lab, code) == ["None False", "gone True 0"]


@pytest.mark.root
@pytest.mark.tool("strace")
def test_pid_reused_while_it_was_signaled_is_reported(lab):
    """kill(2) returns seconds after its signal: the command has ended meanwhile, and its pid is
    another process's.
    """
    make_old(lab, "python")
    slow = inject(lab, "kill:delay_exit=3s:when=1")
    code = """
solo, slow = os.environ["SOLO"], sys.argv[2:]
launcher = subprocess.Popen([solo, "-n", "job", "--", "sh", "-c", "echo $$; exec sleep 99"], stdout=subprocess.PIPE)
child = int(launcher.stdout.readline())
start = read_stat(child).start
for holder in open(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read().split():
    if int(holder) != child:
        os.kill(int(holder), signal.SIGKILL)  # it would see the end
launcher.kill()
launcher.wait()
stop = subprocess.Popen([*slow, solo, "stop", "job"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
os.waitpid(child, 0)
reuse(child, start)
print(stop.communicate()[0].replace(str(child), "PID"), stop.returncode, os.waitpid(child, os.WNOHANG)[0])
"""
    error = "solo: job: cannot end pid PID: another process got its pid, and perhaps the signal"

    assert run_in_namespace(lab, code, *slow) == [error, " 125 0"]
    assert "(DELAYED)" in (lab.path / "injected").read_text()
