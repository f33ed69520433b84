"""A soak: many launchers of one name at once, some killed at random. All others run once.

Sockets are in no simulation, and sixty real processes are scheduled as no scene has them; files
show that the soak can pass.
"""

import fcntl
import os
import subprocess
import sys
from collections import Counter

import pytest
import tally
from conftest import PATIENCE, TESTS, until

pytestmark = pytest.mark.full

SOAK = {"file": 90, "socket": 150}  # launchers
WITNESS = (sys.executable, "-IS", str(TESTS / "witness.py"))


def add_to_tally(log, launchers, kills, **others):
    starts = {"commands": "start:", "overlaps": "overlap", "unrecorded": "unrecorded"}
    count = {what: sum(line.startswith(start) for line in log) for what, start in starts.items()}
    tally.add(launchers=launchers, kills=kills, **count, **others)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("via", SOAK)
def test_soak_over_slots_keeps_limit_and_loses_no_command(lab, via):
    """Sixty launchers at a time over three slots, some killed at random with their commands. The
    commands count each other.
    """
    if via == "socket":
        lab.use_sockets()
    chance = tally.make_random("soak")
    running, killed, statuses = {}, set(), {}
    for number in tally.rounds(SOAK[via], 3000):
        words = [
            lab.script,
            "-w",
            "forever",
            "-n",
            "pool",
            "--slots",
            "3",
            "--",
            *WITNESS,
            "3",
            str(number),
        ]
        running[number] = subprocess.Popen(words, env=lab.environment)
        while len(running) >= 60:
            for other, process in list(running.items()):
                if process.poll() is not None:
                    statuses[other] = running.pop(other).wait()
            if chance.random() < 0.1:
                victim = chance.choice(list(running))
                killed.add(victim)
                running[victim].kill()
            subprocess.run(["sleep", "0.005"])
    for number, process in running.items():
        statuses[number] = process.wait(PATIENCE)

    message = f"SOLO_SEED={tally.SEED}"
    until(lambda: lab.list() == [])
    log = lab.read_log()
    add_to_tally(log, len(statuses), len(killed))
    assert not [line for line in log if line.startswith("overlap")], message
    if len(statuses) >= SOAK[via]:  # the torture's time may end before two run at once
        assert {line for line in log if line.startswith("together")} & {
            "together:2",
            "together:3",
        }, message
    spared = statuses.keys() - killed
    assert {statuses[number] for number in spared} == {0}, message
    count = Counter(log)
    assert all(count[f"start:{number}"] == count[f"end:{number}"] == 1 for number in spared), (
        message
    )
    if via == "file":
        assert lab.run("-n", "pool", "true").returncode == 0  # removes dead tickets
        assert os.listdir(lab.directory / "pool") == [".gate"], message
    print(
        f"\n{len(statuses)} launchers over 3 slots, {len(killed)} killed, never more than 3 at once ({message})"
    )


def test_witness_finds_overlaps(lab):
    """Without solo: in a slot that is taken, a free one, and one too many."""
    with open(lab.path / "slots", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
        for slot in "012":
            subprocess.run(
                [*WITNESS, "2", f"in{slot}"], env={**lab.environment, "SOLO_SLOT": slot}, check=True
            )

    log = lab.read_log()
    assert [line for line in log if line.startswith("overlap")] == [
        "overlap:in0:0",
        "overlap:in2:2_of_2",
    ]
    assert log.count("together:2") == 3
