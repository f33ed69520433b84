"""Exclusion and order: join, wait, acquire and release one name; a directory that changes during
the wait.
"""

import re
import shutil

from conftest import finish


def test_contender_is_skipped_while_held(lab, via):
    holder = lab.hold("job")

    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, lab.read_log()) == (75, [])
    line = rf"solo: job: busy: held for \d+s by pid {holder.pid} \(sh -c echo \$\$; read line; exit 0\)\n"
    assert re.fullmatch(line, result.stderr.decode())


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
