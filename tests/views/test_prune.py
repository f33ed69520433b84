"""A run that creates a name from its command removes some such names that were idle for 30 days."""

import os
import time

import pytest
from conftest import count_injected, inject

LONG_AGO = time.time() - 40 * 86400


def age(place):
    """Set the times of `place` and of every file below it to 40 days ago."""
    for folder, _, files in os.walk(place, topdown=False):
        for file in files:
            os.utime(os.path.join(folder, file), (LONG_AGO, LONG_AGO))
        os.utime(folder, (LONG_AGO, LONG_AGO))


@pytest.fixture
def names(lab):
    def list_names():
        names = {path.name for path in lab.directory.iterdir() if path.name[0] != "."}
        return names, {path.name for path in (lab.directory / ".journals").iterdir()}

    return list_names


def test_only_a_new_generated_name_removes_idle_ones_with_their_journals(lab, names):
    """Names that were chosen, are held or were used recently stay."""
    chosen = {"job", "backup-20260930", "deploy-3f9a21c0"}
    for number in range(3):
        lab.run("echo", str(number))
    for name in chosen:
        lab.run("-n", name, "true")
    lab.hold("held-0123abcd")
    age(lab.directory)
    lab.run("echo", "0")
    lab.run("-n", "chosen", "true")
    assert [len(kept) for kept in names()] == [2 * 3 + 5, 3 + 5]

    lab.run("echo", "new")

    locks, journals = names()
    assert {*chosen, "held-0123abcd", "chosen"} <= locks & journals
    assert (len(locks), len(journals)) == (
        2 * 2 + 5,
        2 + 5,
    )  # of a pair only the first name has a journal


def test_a_run_removes_at_most_sixteen_names(lab, names):
    for number in range(20):
        lab.run("echo", str(number))
    age(lab.directory)

    lab.run("echo", "new")

    assert len(names()[0]) == 2 * 20 - 16 + 2


@pytest.mark.tool("strace")
def test_error_of_clean_is_not_written_to_the_gate(lab):
    """With stderr closed, the gate must not become descriptor 2."""
    lab.run("-n", "job", "true")
    (lab.directory / "job/.hold.00001795489659118146").write_bytes(b"x")
    before = (lab.directory / "job/.gate").read_bytes()

    assert lab.run("clean", prefix=("sh", "-c", 'exec "$@" <&- 2>&-', "sh")).returncode == 125
    assert (lab.directory / "job/.gate").read_bytes() == before


def test_a_failed_pruning_does_not_change_the_status(lab):
    lab.run("echo", "1")

    result = lab.run(
        "sh", "-c", "exit 7", prefix=inject(lab, "getdents64:error=EIO", paths=[lab.directory])
    )

    assert (result.returncode, result.stderr, count_injected(lab)) == (7, b"", 1)
