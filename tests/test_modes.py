"""Shared and counted use, several and nested names: who runs beside whom, in real processes."""

import os
import random
import resource
import signal
import subprocess
import time

import pytest
from conftest import PATIENCE, count_switches, finish, kill_both, make_witness, read_line, until


def test_shared_run_together_and_exclude_the_others(lab, via):
    lab.hold("job", "-s")

    assert [lab.run("-n", "job", *words, "true").returncode for words in (("-s",), (), ("--slots", "9"))] == [0, 75, 75]


@pytest.mark.parametrize(
    "held, wanted, status",
    [("a", "a/b", 75), ("a/b", "a", 75), ("a/b", "a/c", 0), ("a/b/c", "a", 75), ("a/b/c", "a/d", 0)],
)
def test_names_nest(lab, via, held, wanted, status):
    lab.hold(held)

    assert lab.run("-n", wanted, "true").returncode == status


@pytest.mark.parametrize("mine, theirs, status", [((), ("-s",), 75), (("-s",), (), 75), (("-s",), ("-s",), 0)])
def test_a_shared_parent_goes_with_shared_children_only(lab, via, mine, theirs, status):
    lab.hold("a/b", *theirs)

    assert lab.run("-n", "a", *mine, "true").returncode == status


def test_a_waiting_exclusive_stops_later_shared_ones(lab, via):
    holder = lab.hold("job", "-s")
    writer = lab.start_waiter("job", tag="writer")
    reader = lab.start_waiter("job", "-s", tag="reader")

    assert lab.run("-s", "-n", "job", "true").returncode == 75
    finish(holder)

    assert (finish(writer)[0], finish(reader)[0]) == (0, 0)
    assert lab.read_log() == ["writer", "reader"]


def test_slots_are_numbered_from_the_lowest_free_one(lab, via):
    first, second, third = (hold_slot(lab, "--slots", "3") for _ in range(3))
    assert (first.slot, second.slot, third.slot) == ("0", "1", "2")
    assert lab.run("--slots", "3", "-n", "job", "true").returncode == 75

    finish(second)

    assert hold_slot(lab, "--slots", "3").slot == "1"


def hold_slot(lab, *words):
    process = lab.start(*words, "-n", "job", "--", "sh", "-c", "echo $SOLO_SLOT; read line")
    process.slot = read_line(process)
    return process


def test_take_counts_as_several(lab, via):
    hold_slot(lab, "--slots", "5", "--take", "3")

    assert lab.run("--slots", "5", "--take", "3", "-n", "job", "true").returncode == 75
    assert hold_slot(lab, "--slots", "5", "--take", "2").slot == "3"
    assert [(row["mode"], row["slot"], row["slots"], row["take"]) for row in lab.list()] == [
        ("slots", 0, 5, 3),
        ("slots", 3, 5, 2),
    ]


def test_the_smallest_number_of_slots_is_the_limit_for_all(lab, via):
    hold_slot(lab, "--slots", "2")
    hold_slot(lab, "--slots", "9")

    assert [lab.run("--slots", number, "-n", "job", "true").returncode for number in ("2", "9", "100")] == [75, 75, 75]


def test_a_large_take_is_not_starved_by_small_ones(lab, via):
    one, two = hold_slot(lab, "--slots", "2"), hold_slot(lab, "--slots", "2")
    large = lab.start_waiter("job", "--slots", "2", "--take", "2", tag="large")
    small = lab.start_waiter("job", "--slots", "2", tag="small")

    finish(one)
    assert lab.run("--slots", "2", "-n", "job", "true").returncode == 75
    finish(two)

    assert (finish(large)[0], finish(small)[0]) == (0, 0)
    assert lab.read_log() == ["large", "small"]


def test_the_head_gets_the_slot_that_is_free_first_whichever_it_is(lab, via):
    holders = [hold_slot(lab, "--slots", "3") for _ in range(3)]
    waiter = lab.start_waiter("job", "--slots", "3", tag="waiter")

    finish(holders[1])

    assert finish(waiter)[0] == 0
    assert [holder.poll() is None for holder in holders] == [True, False, True]


def test_a_slot_is_handed_over_when_its_launcher_and_command_were_killed(lab, via):
    holders = [hold_orphanable(lab) for _ in range(3)]
    waiter = lab.start_waiter("job", "--slots", "3", tag="waiter")

    kill_both(holders[2]) if via == "file" else holders[2].kill()

    assert waiter.wait(PATIENCE) == 0
    assert lab.read_log() == ["waiter"]


def hold_orphanable(lab):
    process = lab.start("--slots", "3", "-n", "job", "--", "sh", "-c", "echo $$; read line")
    process.child = int(read_line(process))
    return process


def test_a_slot_of_an_orphan_is_free_when_the_orphan_ends(lab):
    holders = [hold_orphanable(lab) for _ in range(3)]
    waiter = lab.start_waiter("job", "--slots", "3", tag="waiter")
    holders[0].kill()
    holders[0].wait()
    until(lambda: [row["state"] for row in lab.list()].count("orphaned") == 1)
    assert lab.read_log() == []

    holders[0].stdin.close()

    assert waiter.wait(PATIENCE) == 0


def test_a_head_that_waits_for_slots_wakes_seldom_and_the_others_never(lab, via):
    for _ in range(3):
        hold_slot(lab, "--slots", "3")
    line = [lab.start_waiter("job", "--slots", "3", tag=number) for number in range(4)]
    until(
        lambda: all(open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()[0] == "S" for process in line)
    )
    subprocess.run(["sleep", "0.5"])
    before = [count_switches(process.pid) for process in line]
    begin = time.monotonic()
    subprocess.run(["sleep", "3"])  # the claim is about a span of time

    woken = [count_switches(process.pid) - start for process, start in zip(line, before)]
    assert woken[0] <= 6 * (time.monotonic() - begin) + 2 and woken[1:] == [0, 0, 0]


@pytest.mark.tool("strace")
def test_a_slot_is_handed_over_though_the_launcher_that_gave_it_back_has_not_exited(lab, via):
    """It may be stopped just then, or be a program that lives on."""
    slow = (
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=exit_group",
        "-e",
        "inject=exit_group:delay_enter=20000000",
    )
    lab.hold("job", "--slots", "2")
    first = lab.start("--slots", "2", "-n", "job", "--", "sh", "-c", "echo; read line", prefix=slow)
    read_line(first)
    waiter = lab.start_waiter("job", "--slots", "2", tag="waiter")

    first.stdin.close()

    assert waiter.wait(PATIENCE) == 0 and first.poll() is None


@pytest.mark.tool("strace")
def test_waiting_for_one_whose_launcher_was_killed_just_before_its_exec_is_no_busy_loop(lab):
    """Until the exec its child has the descriptor, and with it the lock."""
    lab.hold("job", "--slots", "2")
    tool = lab.path / "tool"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    slow = (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        tool,
        "-e",
        "trace=execve",
        "-e",
        "inject=execve:delay_enter=4000000",
    )
    lab.start("--slots", "2", "-n", "job", tool, prefix=slow)
    until(lambda: len(lab.list()) == 2 and all(row["child"] for row in lab.list()))
    os.kill(lab.list()[1]["launcher"], signal.SIGKILL)
    waiter = lab.start_waiter("job", "--slots", "2", tag="waiter")
    subprocess.run(["sleep", "0.5"])
    before = count_switches(waiter.pid), read_ticks(waiter.pid)
    subprocess.run(["sleep", "1"])  # the claim is about a span of time

    assert count_switches(waiter.pid) - before[0] < 40 and read_ticks(waiter.pid) - before[1] < 20
    assert waiter.wait(PATIENCE) == 0


def read_ticks(pid):
    """Its CPU time, in hundredths of a second."""
    return sum(map(int, open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[11:13]))


def test_a_hundred_holders_need_no_more_descriptors_than_a_few(lab):
    """One who waits looks at all of them, and keeps open what it waits for."""
    holders = [lab.hold("job", "-s") for _ in range(100)]

    shared = lab.run("-s", "-n", "job", "true", preexec_fn=limit_descriptors)
    busy = lab.run("-n", "job", "true", preexec_fn=limit_descriptors)

    assert (shared.returncode, busy.returncode) == (0, 75), shared.stderr + busy.stderr
    assert b"and 99 more" in busy.stderr
    assert all(holder.poll() is None for holder in holders)


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))


def test_no_slots_is_no_number(lab):
    for words, text in [
        (("--slots", "0"), "at least 1"),
        (("--slots", "2", "--take", "3"), "at most --slots"),
        (("--slots", "2", "--take", "0"), "at least 1"),
        (("--slots", "-1"), "not a number"),
        (("--slots", "x"), "not a number"),
        (("--slots", "9999999999"), "not a number"),
    ]:
        result = lab.run(*words, "-n", "job", "true")
        assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and text in result.stderr.decode()


def test_each_name_has_its_own_token_and_slot_in_the_order_they_were_typed(lab, via):
    process = lab.start(
        "-n", "b", "-n", "a", "--slots", "2", "--", "sh", "-c", "echo $SOLO_NAME,$SOLO_TOKEN,$SOLO_SLOT; read line"
    )
    names, tokens, slots = read_line(process).split(",")
    first = tokens.split()
    again = lab.start(
        "-n", "a", "-n", "b", "--slots", "2", "--", "sh", "-c", "echo $SOLO_NAME,$SOLO_TOKEN,$SOLO_SLOT; read line"
    )
    _, tokens, more = read_line(again).split(",")

    assert (names, slots, more) == ("b a", "0 0", "1 1")
    assert int(tokens.split()[0]) > int(first[1]) and int(tokens.split()[1]) > int(first[0])


def test_the_token_grows_with_each_hold_over_crashes(lab, via):
    tokens = []
    for _ in range(3):
        tokens.append(int(lab.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout))
        holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$ $SOLO_TOKEN; read line")
        holder.child, token = map(int, read_line(holder).split())
        tokens.append(token)
        kill_both(holder) if via == "file" else holder.kill()
        until(lambda: lab.list() == [])

    assert tokens == sorted(set(tokens))


def test_a_shared_hold_within_a_shared_hold_is_fine_until_others_stand_between(lab):
    holder = lab.start(
        "-s", "-n", "job", "--", "sh", "-c", "read line; $SOLO -s -w forever -n job true; echo $?; read line"
    )
    inner = lab.run("-s", "-n", "job", lab.script, "-s", "-n", "job", "echo", "in")
    assert inner.stdout == b"in\n"
    until(lambda: lab.list())
    writer = lab.start_waiter("job", tag="writer")

    holder.stdin.write(b"\n")
    holder.stdin.flush()

    assert read_line(holder) == "125"
    _, _, stderr = finish(holder)
    assert "an ancestor of this process, and waiters ahead wait for it" in stderr
    assert finish(writer)[0] == 0


def name_words(mode, names, slots):
    words = [word for name in names for word in ("-n", name)]
    return [*words, *{"X": [], "S": ["-s"], "C": ["--slots", str(slots)]}[mode], "--"]


def test_two_hundred_random_sets_of_names_never_lock_each_other_out(lab, via):
    """Nested and several names, in random order and modes, all waiting for ever: all end, and none overlaps."""
    chance = random.Random(7)
    names = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "g"]
    running, started = [], 0
    while started < 200 or running:
        if started < 200 and len(running) < 12:
            wanted, mode = chance.sample(names, chance.randint(1, 3)), chance.choice("XXSC")
            command = make_witness(mode, wanted, 2, 1, started, 0.005)
            running.append(lab.start("-w", "forever", *name_words(mode, wanted, 2), *command))
            started += 1
        else:
            status, _, stderr = finish(running.pop(0))
            assert (status, stderr) == (0, "")

    log = lab.read_log()
    assert not [line for line in log if line.startswith("overlap")]
    assert sum(line.startswith("end:") for line in log) == 200 and lab.list() == []


def test_the_witness_can_tell_an_overlap(lab):
    """The meter: each is started beside the first without solo."""
    for at, (first, second, conflict) in enumerate(
        [
            (("X", ["a"]), ("X", ["a"]), True),
            (("S", ["a"]), ("X", ["b", "a/b"]), True),
            (("S", ["a"]), ("S", ["a/b"]), False),
            (("C", ["a"]), ("C", ["a"]), True),
            (("X", ["a/b"]), ("C", ["a"]), True),
            (("X", ["a/b"]), ("X", ["a/c"]), False),
        ]
    ):
        environment = {**lab.environment, "SOLO_SLOT": "0"}
        holder = subprocess.Popen(
            make_witness(*first, 2, 1, "one", "line"), env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        read_line(holder)
        subprocess.run(make_witness(*second, 2, 1, at, 0), env=environment, check=True)
        holder.communicate()
        assert any(line.startswith(f"overlap:{at}:") for line in lab.read_log()) == conflict
