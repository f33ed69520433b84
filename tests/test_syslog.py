"""--syslog: the lines that a real reader of /dev/log gets from syslog(3)."""

import os
import re
import socket
import time

import pytest
from conftest import PATIENCE, finish, until


@pytest.fixture
def log():
    """Listen at /dev/log, if no reader exists and this user may: it reads the lines of the C library."""
    if os.path.exists("/dev/log") or os.geteuid() != 0:
        pytest.skip("a syslog exists here, or this user may not create one")
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.bind("/dev/log")
    reader.settimeout(PATIENCE)
    yield reader
    reader.close()
    os.unlink("/dev/log")


def read(log):
    """Return (priority, text after the tag) of solo's next line. Fails if its date is wrong.

    Other programs of this machine may write here as well: tmux, in another test, through utempter.
    """
    while True:
        line = log.recv(65536).decode()
        if match := re.fullmatch(r"<(\d+)>([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) solo\[\d+\]: (.*?)\x00?", line):
            time.strptime(f"2000 {match[2]}", "%Y %b %d %H:%M:%S")
            return int(match[1]), match[3]


CRON, INFO, WARNING = 9 << 3, 6, 4


def test_start_and_end_are_logged(lab, log):
    lab.run("--syslog", "-n", "job", "--", "sh", "-c", "exit 3")
    start, end = read(log), read(log)

    pid = re.fullmatch(r"job: started sh -c exit 3 as pid (\d+)", start[1])[1]
    assert start[0] == CRON | INFO
    assert end == (CRON | WARNING, f"job: pid {pid} ended with exit status 3 after 0s")


def test_death_by_signal_and_timeout_are_logged(lab, log):
    lab.run("--syslog", "-n", "job", "--", "sh", "-c", "kill -9 $$")
    lab.run("--syslog", "-t", "100ms", "-n", "job", "--", "sleep", "99")
    lines = [read(log)[1] for _ in range(4)]

    assert re.fullmatch(r"job: pid \d+ ended by SIGKILL after 0s", lines[1])
    assert re.fullmatch(r"job: pid \d+ timed out and ended by SIGTERM after 0s", lines[3])


def test_quiet_skip_is_logged(lab, log):
    holder = lab.hold("job")

    assert lab.run("--syslog", "-q", "-E", "0", "-n", "job", "true").returncode == 0

    priority, text = read(log)
    assert priority == CRON | INFO and re.match(rf"skipped: job: busy: held for \d+s by pid {holder.pid} \(", text)


def test_command_that_could_not_start_is_logged(lab, log):
    assert lab.run("--syslog", "-n", "job", "nosuchcommand").returncode == 127

    assert read(log) == (CRON | WARNING, "not started: nosuchcommand: command not found")


def test_control_characters_are_escaped(lab, log):
    lab.run("--syslog", "-n", "job", "--", "true", "a\nb\x1b[31m")

    assert r"true a\nb\x1b[31m as pid" in read(log)[1]


def test_hanging_reader_blocks_nothing(lab, log):
    stuffing = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stuffing.setblocking(False)
    try:
        while True:
            stuffing.sendto(b"x", "/dev/log")
    except BlockingIOError:
        pass

    assert lab.run("--syslog", "-n", "job", "--", "sh", "-c", "exit 3").returncode == 3
    stuffing.close()


def test_missing_syslog_fails_nothing(lab):
    if os.path.exists("/dev/log"):
        pytest.skip("a syslog exists here")

    assert lab.run("--syslog", "-n", "job", "--", "sh", "-c", "exit 3").returncode == 3


def has_socket(pid):
    folder = f"/proc/{pid}/fd"
    try:
        return any("socket:[" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))
    except FileNotFoundError:
        return True  # a descriptor was just closed


def test_log_socket_is_closed_while_the_command_runs(lab, log):
    """Neither the command nor, once the start is logged, the launcher has it."""
    process = lab.start("--syslog", "-n", "job", "--", "sh", "-c", "read line; ls -l /proc/self/fd /proc/$PPID/fd")
    assert "started" in read(log)[1]
    until(lambda: not has_socket(process.pid))

    assert "socket:[" not in finish(process, b"\n")[1]
