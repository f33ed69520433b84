"""Many at once: a crowd in one line, all of whom run, once, in order of arrival."""

import os
import resource
import signal
import subprocess

import pytest
from conftest import finish, until

CROWD = 1000 if os.environ.get("SOLO_TORTURE") == "whole" else 150


@pytest.mark.timeout(900)
def test_a_crowd_runs_once_each_and_in_order(lab):
    holder = lab.hold("job")
    started, crowd = resource.getrusage(resource.RUSAGE_CHILDREN), []
    for number in range(CROWD):
        crowd.append(subprocess.Popen(
            [lab.script, "-w", "forever", "-n", "job", "--", "sh", "-c", f"echo {number} >>$LAB/log"], env=lab.environment,
            stdin=subprocess.DEVNULL,
        ))
        if number % 10 == 9:  # ten at a time arrive in any order; who arrived when is in the tickets
            until(lambda: lab.count_waiting("job") == number + 1)
    arrived = [record["launcher"] for record in lab.list() if record["state"] == "waiting"]
    memory = max(read_kilobytes(process.pid, "VmHWM:") for process in crowd)

    finish(holder)
    statuses = [process.wait(600) for process in crowd]

    number_of = {process.pid: str(number) for number, process in enumerate(crowd)}
    assert lab.read_log() == [number_of[pid] for pid in arrived]
    assert statuses == [0] * CROWD
    assert lab.list() == []
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime) / CROWD
    print(f"\n{CROWD} in line: {1000 * cpu:.1f} ms of CPU each, peak of one launcher {memory} kB")


def read_kilobytes(pid, key):
    return next((int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith(key)), 0)


def test_a_crowd_that_does_not_wait_lets_exactly_one_in(lab):
    lab.run("-n", "job", "true")
    crowd = [
        subprocess.Popen([lab.script, "-q", "-n", "job", "--", "sh", "-c", "echo in >>$LAB/log; read line"], env=lab.environment,
                         stdin=subprocess.PIPE)
        for _ in range(40)
    ]
    until(lambda: sum(process.poll() is not None for process in crowd) == 39)

    assert lab.read_log() == ["in"]
    for process in crowd:
        process.communicate()
    assert sorted(process.returncode for process in crowd) == [1] + [75] * 39


def test_churn_with_kills_never_overlaps_and_leaves_nothing(lab):
    """Launchers come and are killed at random moments; the commands themselves say if two of them ran at once."""
    from conftest import TESTS

    witness = str(TESTS / "witness.sh")
    import random

    chance = random.Random(int(os.environ.get("SOLO_SEED", "1")))
    running = []
    for number in range(120):
        running.append(subprocess.Popen([lab.script, "-w", "forever", "-n", "job", witness, str(number), "0.01"], env=lab.environment))
        if chance.random() < 0.3:
            chance.choice(running).send_signal(signal.SIGKILL)
        if len(running) > 20:
            running.pop(0).wait(60)
    for process in running:
        process.wait(60)

    assert lab.run("-w", "forever", "-n", "job", witness, "last", "0").returncode == 0
    log = lab.read_log()
    assert not [line for line in log if line.startswith(("overlap", "unrecorded"))]
    assert log.count("end:last") == 1 and len(log) == len(set(log))
    assert lab.list() == []
