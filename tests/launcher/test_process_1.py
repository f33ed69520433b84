"""solo as process 1 of a pid namespace, as in a container: signals and statuses."""

import os
import signal

import pytest
from conftest import PATIENCE, Terminal, finish, inject, read_line, until, wait_dead
from observed import HEARING, INNER, find_chain

pytestmark = [pytest.mark.root, pytest.mark.tool("unshare")]

CONTAINER = (*INNER, *HEARING)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_waiter_ends_by_a_signal(lab, number):
    lab.hold("job")
    waiter = lab.start("-w", "forever", "-n", "job", "true", prefix=CONTAINER)
    until(lambda: lab.count_waiting("job") == 1)

    os.kill(find_chain(waiter)[0], number)

    assert finish(waiter) == (128 + number, "", "")


WAIT = ("-w", "forever", "-n", "job", "true")


@pytest.mark.parametrize("words, screen", [(WAIT, "waiting"), (("sleep", "1000"), "")])
def test_control_c_ends_a_waiter_and_a_command(lab, words, screen):
    lab.hold("job")
    terminal = Terminal((*CONTAINER, lab.script, *words), {**lab.environment, "TERM": "xterm"})
    try:
        terminal.wait_for(screen)
        until(lambda: len(find_chain(terminal)) >= (2 if screen else 3))
        terminal.type("\x03")
        assert terminal.wait() == 128 + signal.SIGINT
    finally:
        terminal.close()


def test_launcher_that_ends_at_once_is_reaped(lab):
    """Its SIGCHLD may come before process 1 waits for it."""
    for _ in range(20):
        assert (
            lab.run(
                "-n", "job", "--", "nosuchcommand", prefix=CONTAINER, timeout=PATIENCE
            ).returncode
            == 127
        )


def test_signal_reaches_the_command_once(lab):
    code = """
import os, signal, time
signal.signal(15, lambda *_: os.write(1, b"TERM\\n"))
os.write(1, b"1\\n")
while True:
    time.sleep(1)
"""
    process = lab.start("-n", "job", "--", "/usr/bin/python3", "-c", code, prefix=CONTAINER)
    assert read_line(process) == "1"
    chain = find_chain(process)

    os.kill(chain[0], signal.SIGTERM)
    assert read_line(process) == "TERM"
    os.kill(chain[0], signal.SIGUSR1)  # if it came twice, the second SIGTERM would come before

    assert finish(process)[:2] == (128 + signal.SIGUSR1, "")


def test_killed_launcher_ends_the_container(lab):
    process = lab.start("-n", "job", "--", "sleep", "1000", prefix=CONTAINER)
    until(lambda: len(find_chain(process)) == 3)
    chain = find_chain(process)

    os.kill(chain[1], signal.SIGKILL)

    assert finish(process)[0] == 128 + signal.SIGKILL
    wait_dead(chain[2])
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.tool("strace")
def test_fork_that_fails_is_one_line_and_125(lab):
    """With -D strace is no parent of its tracee, which keeps the pid 1."""
    result = lab.run("-n", "job", "true", prefix=(*INNER, *inject(lab, "clone:error=EAGAIN"), "-D"))

    assert (result.returncode, result.stderr) == (
        125,
        b"solo: cannot fork: Resource temporarily unavailable\n",
    )
