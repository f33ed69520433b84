"""A system call that blocks, and its time limit: SIGALRM as solo's, the caller's, or anybody's."""

import os
import signal

import pytest
from conftest import count_switches, finish, read_state, set_alarm, until


@pytest.mark.parametrize("how", ["--block-signal=ALRM", "--ignore-signal=ALRM"])
def test_wait_ends_in_time_with_inherited_sigalrm(lab, how):
    lab.hold("job")

    assert lab.run("-w", "100ms", "-n", "job", "true", prefix=("env", how)).returncode == 75


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

    assert (
        lab.run("-w", "60s", "-n", "job", "true", prefix=set_alarm()).returncode == -signal.SIGALRM
    )


def test_inherited_blocked_alarm_does_not_extend_wait(lab):
    lab.hold("job")
    alarm = set_alarm("_signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGALRM})")

    assert lab.run("-w", "1200ms", "-n", "job", "true", prefix=alarm).returncode == 75
