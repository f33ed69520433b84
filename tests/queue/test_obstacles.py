"""The tickets in the way of a contender: holders, orphans, waiters ahead, its own ancestors."""

import os
import resource
import signal

import pytest
from conftest import count_injected, finish, inject, kill, read_line, read_state, until


def test_busy_line_says_that_the_holder_is_stopped(lab):
    holder = lab.hold("job")
    os.kill(holder.child, signal.SIGSTOP)
    until(lambda: read_state(holder.child) == "T")

    assert f"by stopped pid {holder.pid} (".encode() in lab.run("-n", "job", "true").stderr


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


@pytest.mark.tool("strace")
def test_holder_may_end_between_two_looks(lab):
    """Of more holders than a contender keeps open, the one in the way vanishes at the second look
    and is back at the third.
    """
    hold = "held = [solo.Lock(f'job/{number}', shared=True).acquire() for number in range(64)]"
    others = lab.start_code(f"{hold}; print(flush=True); input()")
    read_line(others)
    lab.hold("job", "--shared")
    newest = max((lab.directory / "job").glob(".hold.*")).name

    result = lab.run(
        "-n", "job/other", "true", prefix=inject(lab, "openat:error=ENOENT:when=2", paths=[newest])
    )

    assert result.returncode == 75 and count_injected(lab) == 1
    finish(others)


def test_hundred_holders_need_few_descriptors(lab):
    """A contender looks at all holders, and keeps open only the tickets that it waits for."""
    code = "holds = [solo.Lock('job', shared=True).acquire() for _ in range(100)]; print(flush=True); input()"
    program = lab.start_code(code)
    read_line(program)

    shared = lab.run("-s", "-n", "job", "true", preexec_fn=limit_descriptors)
    busy = lab.run("-n", "job", "true", preexec_fn=limit_descriptors)

    assert (shared.returncode, busy.returncode) == (0, 75), shared.stderr + busy.stderr
    assert b"and 99 more" in busy.stderr
    assert program.poll() is None


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))


def test_nested_shared_use_runs_unless_others_wait(lab):
    script = "read line; $SOLO -s -w forever -n job true; echo $?; read line"
    holder = lab.start("-s", "-n", "job", "--", "sh", "-c", script)
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
