"""Is a pid still that process? What of a killed launcher holds, and what only looks like it."""

import os
import signal
import sys

import pytest
from conftest import kill, read_line, read_state, until

from solo import identity


def test_zombie_orphan_holds_nothing(lab):
    """A zombie keeps its pid and start time; REAPER never waits for it."""
    holder = lab.start(
        "-n", "job", "--", "sh", "-c", "echo $$; read line", prefix=(sys.executable, "-c", REAPER)
    )
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
    result = lab.run(
        "-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log", prefix=("unshare", "--fork", "--pid")
    )

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])


def test_start_time_is_compared_across_time_namespaces():
    there, here = (
        identity.Origin("b", "1", "2", "h", 1000),
        identity.Origin("b", "1", "3", "h", -50),
    )
    stat = identity.Stat(5, "S", 1, 1, 7000 - 50)

    assert [stat.is_same(start, there, here) for start in (8000, 8001, 8005, 6950)] == [
        True,
        True,
        False,
        False,
    ]
    assert [stat.is_same(start, here, here) for start in (6950, 6951)] == [True, False]
