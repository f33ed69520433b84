"""Which holders of shared names, slots, several and nested names run at once. In real processes."""

import os
import signal
import subprocess
import time

import pytest
from conftest import PATIENCE, count_switches, finish, read_line, until, write_program


def test_shared_holder_admits_only_shared(lab, via):
    lab.hold("job", "-s")

    assert [
        lab.run("-n", "job", *words, "true").returncode for words in (("-s",), (), ("--slots", "9"))
    ] == [0, 75, 75]


CONFLICTS = [  # (words of the holder, words of the contender, its status)
    *[("a", "a/b", 75), ("a/b", "a", 75), ("a/b", "a/b", 75), ("a/b", "a/c", 0)],
    *[("a/b/c", "a", 75), ("a/b/c", "a/d", 0)],
    *[("a/b -s", "a", 75), ("a/b", "a -s", 75), ("a/b -s", "a -s", 0)],
]


@pytest.mark.parametrize("held, wanted, status", CONFLICTS)
def test_nested_name_and_its_parents_conflict_unless_both_are_shared(
    lab, via, held, wanted, status
):
    lab.hold(*held.split())

    assert lab.run("-n", *wanted.split(), "true").returncode == status


def test_lowest_free_slot_is_acquired(lab, via):
    first, second, third = (hold_slot(lab, "--slots", "3") for _ in range(3))
    assert (first.slot, second.slot, third.slot) == ("0", "1", "2")
    assert lab.run("--slots", "3", "-n", "job", "true").returncode == 75

    finish(second)

    assert hold_slot(lab, "--slots", "3").slot == "1"


def hold_slot(lab, *words):
    process = lab.start(*words, "-n", "job", "--", "sh", "-c", "echo $SOLO_SLOT; read line")
    process.slot = read_line(process)
    return process


def test_take_acquires_several_slots(lab, via):
    hold_slot(lab, "--slots", "5,3")

    assert lab.run("--slots", "5,3", "-n", "job", "true").returncode == 75
    assert hold_slot(lab, "--slots", "5,2").slot == "3"
    rows = [(row["mode"], row["slot"], row["slots"], row["take"]) for row in lab.list()]
    assert rows == [("slots", 0, 5, 3), ("slots", 3, 5, 2)]


def test_only_head_waiting_for_slots_wakes_and_seldom(lab, via):
    for _ in range(3):
        hold_slot(lab, "--slots", "3")
    waiters = [lab.start_waiter("job", "--slots", "3", tag=number) for number in range(4)]
    kinds = ["voluntary", *[("voluntary", "nonvoluntary")] * 3]  # a busy machine preempts the head
    before = [count_switches(process.pid, kind) for process, kind in zip(waiters, kinds)]
    begin = time.monotonic()
    subprocess.run(["sleep", "1.5"])  # the claim is about a span of time

    woken = [
        count_switches(process.pid, kind) - start
        for process, kind, start in zip(waiters, kinds, before)
    ]
    assert woken[0] <= 6 * (time.monotonic() - begin) + 2 and woken[1:] == [0, 0, 0]


@pytest.mark.tool("strace")
def test_slot_is_free_before_its_launcher_exits(lab, via):
    """The launcher may be stopped after its release; a program may live on."""
    slow = "strace -qq -o /dev/null -e trace=exit_group -e inject=exit_group:delay_enter=20000000".split()
    lab.hold("job", "--slots", "2")
    first = lab.start("--slots", "2", "-n", "job", "--", "sh", "-c", "echo; read line", prefix=slow)
    read_line(first)
    waiter = lab.start_waiter("job", "--slots", "2", tag="waiter")

    first.stdin.close()

    assert waiter.wait(PATIENCE) == 0 and first.poll() is None


@pytest.mark.tool("strace")
def test_waiter_sleeps_while_unexecuted_child_keeps_slot(lab):
    """A launcher was killed just before its child's exec: until then the child has the descriptor,
    and with it the lock.
    """
    lab.hold("job", "--slots", "2")
    tool = write_program(lab.path / "tool", "#!/bin/sh\nexit 0\n")
    slow = f"strace -f -qq -o /dev/null -P {tool} -e trace=execve -e inject=execve:delay_enter=99000000".split()
    tracer = lab.start("--slots", "2", "-n", "job", tool, prefix=slow)
    until(lambda: len(lab.history()) == 2)  # the launcher has let the child go on
    os.kill(lab.list()[1]["launcher"], signal.SIGKILL)
    waiter = lab.start_waiter("job", "--slots", "2", tag="waiter")
    before = count_switches(waiter.pid), read_ticks(waiter.pid)
    subprocess.run(["sleep", "1"])  # the claim is about a span of time

    assert count_switches(waiter.pid) - before[0] < 40 and read_ticks(waiter.pid) - before[1] < 20
    tracer.kill()  # the child goes on
    assert waiter.wait(PATIENCE) == 0


def read_ticks(pid):
    """Return the CPU time of a process in hundredths of a second."""
    return sum(map(int, open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:13]))


def test_tokens_and_slots_are_in_order_of_names(lab, via):
    words = ("--slots", "2", "--", "sh", "-c", "echo $SOLO_NAME,$SOLO_TOKEN,$SOLO_SLOT; read line")
    process = lab.start("-n", "b", "-n", "a", *words)
    names, tokens, slots = read_line(process).split(",")
    first = tokens.split()
    again = lab.start("-n", "a", "-n", "b", *words)
    _, tokens, more = read_line(again).split(",")

    assert (names, slots, more) == ("b a", "0 0", "1 1")
    assert int(tokens.split()[0]) > int(first[1]) and int(tokens.split()[1]) > int(first[0])


def test_busy_name_releases_the_others(lab):
    holder = lab.hold("b")

    assert lab.run("-n", "a", "-n", "b", "true").returncode == 75
    assert [ticket["name"] for ticket in lab.list()] == ["b"]
    finish(holder)


def test_invalid_name_is_refused_before_any_wait(lab):
    lab.hold("job")

    assert lab.run("-w", "forever", "-n", "job", "-n", "z/.bad", "true").returncode == 125
