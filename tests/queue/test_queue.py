"""Exclusion and order: join, wait, acquire and release one name; orphans; time limits of waiting."""

import os
import re
import shutil
import signal
import sys

import pytest
from conftest import count_injected, count_switches, finish, inject, kill, read_line, read_state, set_alarm, until


def test_contender_is_skipped_while_held(lab, via):
    holder = lab.hold("job")

    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, lab.read_log()) == (75, [])
    line = rf"solo: job: busy: held for \d+s by pid {holder.pid} \(sh -c echo \$\$; read line; exit 0\)\n"
    assert re.fullmatch(line, result.stderr.decode())


def test_busy_line_says_that_the_holder_is_stopped(lab):
    holder = lab.hold("job")
    os.kill(holder.child, signal.SIGSTOP)
    until(lambda: read_state(holder.child) == "T")

    assert f"by stopped pid {holder.pid} (".encode() in lab.run("-n", "job", "true").stderr


def test_busy_name_releases_the_others(lab):
    holder = lab.hold("b")

    assert lab.run("-n", "a", "-n", "b", "true").returncode == 75
    assert [ticket["name"] for ticket in lab.list()] == ["b"]
    finish(holder)


@pytest.mark.parametrize("how", ["--block-signal=ALRM", "--ignore-signal=ALRM"])
def test_wait_ends_in_time_with_inherited_sigalrm(lab, how):
    lab.hold("job")

    assert lab.run("-w", "100ms", "-n", "job", "true", prefix=("env", how)).returncode == 75


def test_waiters_acquire_in_order_of_arrival(lab, via):
    """Killed and terminated waiters do not disturb the order of the others."""
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag=number) for number in range(40)]
    killed, ended = {3, 4, 17, 39}, {8, 20, 21}
    for number in killed:
        waiters[number].kill()
    for number in ended:
        waiters[number].terminate()
    for number in killed | ended:
        waiters[number].wait()

    finish(holder)
    statuses = [finish(process)[0] for process in waiters]

    expected = [number for number in range(40) if number not in killed | ended]
    assert lab.read_log() == list(map(str, expected))
    assert [number for number in range(40) if statuses[number] == 0] == expected
    assert lab.list() == []


def test_nested_use_of_own_name_is_refused_behind_waiter(lab, via):
    script = f"echo ready; read line; {lab.script} $0 -n job true; echo $?; read line; exit 0"
    holder = lab.start("-n", "job", "--", "sh", "-c", script, "-wforever")
    read_line(holder)
    waiter = lab.start_waiter("job", tag="waiter")

    holder.stdin.write(b"\n")
    holder.stdin.flush()

    assert read_line(holder) == "125"
    assert finish(holder)[2].count("ancestor") == 1
    assert finish(waiter)[0] == 0


def test_invalid_name_is_refused_before_any_wait(lab):
    lab.hold("job")

    assert lab.run("-w", "forever", "-n", "job", "-n", "z/.bad", "true").returncode == 125


def test_orphan_is_named_and_waited_for(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    kill(holder)

    busy = lab.run("-n", "job", "true")

    assert busy.returncode == 75
    assert f"orphan pid {holder.child}" in busy.stderr.decode()
    assert [ticket["state"] for ticket in lab.list()] == ["orphaned", "waiting"]
    holder.stdin.close()  # the orphan's read ends
    assert finish(waiter)[0] == 0
    assert lab.list() == []


def test_zombie_orphan_holds_nothing(lab):
    """A zombie keeps its pid and start time; REAPER never waits for it."""
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; read line", prefix=(sys.executable, "-c", REAPER))
    child = int(read_line(holder))
    launcher = lab.list()[0]["launcher"]
    os.kill(launcher, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    until(lambda: (read_state(launcher), read_state(child)) == ("Z", "Z"))

    assert lab.run("-n", "job", "true").returncode == 0


REAPER = """
import ctypes, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
subprocess.Popen(sys.argv[1:])
signal.pause()
"""


def test_daemon_of_command_does_not_hold(lab):
    result = lab.run("-n", "job", "--", "sh", "-c", "setsid sleep 30 >/dev/null 2>&1 & echo $!")

    assert lab.run("-n", "job", "true").returncode == 0
    os.kill(int(result.stdout), signal.SIGKILL)


def test_orphan_holds_after_its_main_thread_ended(lab):
    code = "import ctypes, threading, sys; threading.Thread(target=sys.stdin.read).start(); print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    holder = lab.start("-n", "job", "--", sys.executable, "-c", code)
    read_line(holder)
    child = lab.list()[0]["child"]
    until(lambda: read_state(child) == "Z")
    kill(holder)

    assert lab.run("-n", "job", "true").returncode == 75
    holder.stdin.close()
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare")
def test_proc_of_other_pid_namespace_is_refused(lab):
    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log", prefix=("unshare", "--fork", "--pid"))

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])


@pytest.mark.tool("strace")
def test_holder_may_end_between_two_looks(lab):
    """Of more holders than a contender keeps open, the one in the way vanishes at the second look and is back at the third."""
    hold = "held = [solo.Lock(f'job/{number}', shared=True).acquire() for number in range(64)]"
    others = lab.start_code(f"{hold}; print(flush=True); input()")
    read_line(others)
    lab.hold("job", "--shared")
    newest = max((lab.directory / "job").glob(".hold.*")).name

    result = lab.run("-n", "job/other", "true", prefix=inject(lab, "openat:error=ENOENT:when=2", paths=[newest]))

    assert result.returncode == 75 and count_injected(lab) == 1
    finish(others)


@pytest.mark.parametrize("duration", ["0.001ms", "0.01ms", "0.1ms", "1ms", "2ms"])
def test_shortest_wait_ends_busy(lab, duration):
    lab.hold("job")

    assert {lab.run("-w", duration, "-n", "job", "true").returncode for _ in range(5)} == {75}


def test_sigalrm_of_other_process_does_not_end_wait(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", "-w", "1h", tag="waiter")
    waits = count_switches(waiter.pid)

    os.kill(waiter.pid, signal.SIGALRM)

    until(lambda: count_switches(waiter.pid) > waits and read_state(waiter.pid) == "S")
    assert lab.count_waiting("job") == 1
    finish(holder)
    assert finish(waiter)[0] == 0


def test_inherited_alarm_ends_wait(lab):
    lab.hold("job")

    assert lab.run("-w", "60s", "-n", "job", "true", prefix=set_alarm()).returncode == -signal.SIGALRM


def test_inherited_blocked_alarm_does_not_extend_wait(lab):
    lab.hold("job")
    alarm = set_alarm("_signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGALRM})")

    assert lab.run("-w", "1200ms", "-n", "job", "true", prefix=alarm).returncode == 75


def test_removed_name_ends_wait_with_error(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    shutil.rmtree(lab.directory / "job")
    finish(holder)

    status, _, stderr = finish(waiter)

    assert (status, lab.read_log()) == (125, [])
    assert stderr == f"solo: job: cannot use {lab.directory}/job: another process removed it\n"


def test_waiter_refuses_to_run_in_a_directory_that_was_replaced(lab):
    """Newcomers hold the name in the new one."""
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")
    lab.directory.rename(lab.path / "old")
    newcomer = lab.hold("job")
    finish(holder)

    status, _, stderr = finish(waiter)

    assert (status, lab.read_log(), finish(newcomer)[0]) == (125, [], 0)
    reason = "it was replaced or unmounted during the wait (start again)"
    assert stderr == f"solo: job: cannot use {lab.directory}/job: {reason}\n"
