"""Exclusion and order: join, wait, acquire and release one name; a directory that changes during
the wait.
"""

import os
import re
import shutil
import signal

from conftest import finish, read_state, until


def test_contender_is_skipped_while_held(lab, via):
    holder = lab.hold("job")

    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, lab.read_log()) == (75, [])
    line = rf"solo: job: busy: held for \d+s by pid {holder.pid} \(sh -c echo \$\$; read line; exit 0\)\n"
    assert re.fullmatch(line, result.stderr.decode())


def test_busy_names_the_first_waiter_of_a_free_name(lab):
    """It may be stopped, and then those behind it wait for it."""
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag=tag) for tag in "ab"]
    os.kill(waiters[0].pid, signal.SIGSTOP)
    until(lambda: read_state(waiters[0].pid) == "T")
    finish(holder)
    until(lambda: not any(row["state"] == "held" for row in lab.list()))

    result = lab.run("-n", "job", "true")

    assert result.returncode == 75
    assert result.stderr.startswith(b"solo: job: busy: stopped pid %d (" % waiters[0].pid)
    os.kill(waiters[0].pid, signal.SIGCONT)


def test_waiters_acquire_in_order_of_arrival(lab, via):
    """Killed and terminated waiters do not disturb the order of the others."""
    holder = lab.hold("job")
    waiters = [lab.start_waiter("job", tag=number) for number in range(12)]
    killed, ended = {3, 4, 11}, {6, 8, 9}
    for number in killed:
        waiters[number].kill()
    for number in ended:
        waiters[number].terminate()
    for number in killed | ended:
        waiters[number].wait()

    finish(holder)
    statuses = [finish(process)[0] for process in waiters]

    expected = [number for number in range(12) if number not in killed | ended]
    assert lab.read_log() == list(map(str, expected))
    assert [number for number in range(12) if statuses[number] == 0] == expected
    assert lab.list() == []


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
