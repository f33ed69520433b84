"""--syslog: the lines that a real reader of /dev/log gets from syslog(3), and the fields that the
journal of systemd gets.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import tempfile
import time

import pytest
from conftest import PATIENCE, ROOT, finish, in_mounts, list_open, until, wait_dead
from fleet import find_children


@pytest.fixture
def log():
    """Listen at /dev/log, if no reader exists and this user may: it reads the lines of the C
    library. Two suites on one machine take turns.
    """
    dev = os.open("/dev", os.O_RDONLY)
    fcntl.flock(dev, fcntl.LOCK_EX)
    if os.path.exists("/dev/log") or os.geteuid() != 0:
        os.close(dev)
        pytest.skip("a syslog exists here, or this user may not create one")
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.bind("/dev/log")
    reader.settimeout(PATIENCE)
    yield reader
    reader.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/dev/log")
    os.close(dev)


def read(log):
    """Return (priority, text after the tag) of the next line for the name "logged". Fails if its
    date is wrong. Other programs of this machine may write here as well: tmux, in another test,
    through utempter, and solo.
    """
    while True:
        line = log.recv(65536).decode()
        if match := re.fullmatch(
            r"<(\d+)>([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) solo\[\d+\]: (.*\blogged: .*?)\x00?",
            line,
        ):
            time.strptime(f"2000 {match[2]}", "%Y %b %d %H:%M:%S")
            return int(match[1]), match[3]


CRON, INFO, WARNING = 9 << 3, 6, 4


def test_start_and_ends_are_logged(lab, log):
    lines = []
    for words in (
        ("--", "sh", "-c", "exit 3", "a\nb\x1b[31m"),
        ("--", "sh", "-c", "kill -9 $$"),
        ("-t", "100ms", "--", "sleep", "99"),
    ):
        lab.run("--syslog", "-n", "logged", *words)
        lines += [read(log), read(log)]  # at once: the buffer has ten lines, also of other programs
    start, *ends = lines

    pid = re.fullmatch(r"logged: started sh -c exit 3 a\\nb\\x1b\[31m as pid (\d+)", start[1])[1]
    assert start[0] == CRON | INFO
    assert ends[0][0] == CRON | WARNING
    assert re.fullmatch(rf"logged: pid {pid} ended with exit status 3 after \ds", ends[0][1])
    assert re.fullmatch(r"logged: pid \d+ ended by SIGKILL after \ds", ends[2][1])
    assert re.fullmatch(r"logged: pid \d+ timed out and ended by SIGTERM after \ds", ends[4][1])


def test_quiet_skip_is_logged(lab, log):
    holder = lab.hold("logged")

    assert lab.run("--syslog", "-q", "-E", "0", "-n", "logged", "true").returncode == 0

    priority, text = read(log)
    assert priority == CRON | INFO and re.match(
        rf"skipped: logged: busy: held for \d+s by pid {holder.pid} \(", text
    )


def test_command_that_could_not_start_is_logged(lab, log, journald):
    assert lab.run("--syslog", "-n", "logged", "nosuchcommand").returncode == 127
    lab.run("--syslog", "nosuchcommand", prefix=journald.prefix)

    (priority, text), fields = read(log), journald.read()
    missing = "not started: logged: nosuchcommand: command not found (in the PATH /"
    assert priority == CRON | WARNING and text.startswith(missing)
    assert (fields["MESSAGE_ID"], fields["SOLO_STATUS"]) == (
        [read_message_ids()["refused"]],
        ["127"],
    )
    assert "SOLO_NAME" not in fields


def stuff(address):
    """Fill the buffer of a reader."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stuffing,
        contextlib.suppress(BlockingIOError),
    ):
        stuffing.setblocking(False)
        while True:
            stuffing.sendto(b"x", address)


def test_hanging_or_missing_reader_blocks_nothing(lab, log, journald):
    words = ("--syslog", "-n", "logged", "--", "sh", "-c", "exit 3")
    stuff("/dev/log")
    stuff(journald.reader.getsockname())

    assert [lab.run(*words, prefix=prefix).returncode for prefix in ((), journald.prefix)] == [3, 3]
    os.unlink("/dev/log")
    assert lab.run(*words).returncode == 3


@pytest.mark.parametrize("victim", ["upper", "lower"])
def test_end_is_logged_after_a_process_of_a_tree_was_killed(lab, log, journald, victim):
    words = ("--syslog", "--tree", "-n", "logged", "--", "sh", "-c", "read line; exit 3")
    for prefix, read_text in (
        ((), lambda: read(log)[1]),
        (journald.prefix, lambda: journald.read()["MESSAGE"][0]),
    ):
        process = lab.start(*words, prefix=prefix)
        assert "started" in read_text()
        [pid] = [process.pid] if victim == "upper" else find_children(process.pid)
        os.kill(pid, signal.SIGKILL)
        wait_dead(pid)

        process.stdin.close()

        # the start is logged twice if it was not known to the other process
        until(lambda read_text=read_text: "ended with exit status 3 " in read_text())


def test_log_socket_is_closed_while_the_command_runs(lab, log):
    """Neither the command nor, once the start is logged, the launcher has it."""
    process = lab.start(
        "--syslog",
        "-n",
        "logged",
        "--",
        "sh",
        "-c",
        "read line; ls -l /proc/self/fd /proc/$PPID/fd",
    )
    assert "started" in read(log)[1]
    until(lambda: not any("socket:[" in path for path in list_open(process.pid)))

    assert "socket:[" not in finish(process, b"\n")[1]


# --- systemd's journal; test_systemd.py has the real one


class Journald:
    """A reader of the native protocol; `prefix` puts its socket where that of systemd's journal
    is.
    """

    def __init__(self, folder):
        self.reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.reader.bind(f"{folder}/socket")
        self.reader.settimeout(PATIENCE)
        place = "/run/systemd/journal"
        self.prefix = in_mounts(
            f"mount -t tmpfs tmpfs /run && mkdir -p {place} && mount --bind {folder} {place}"
        )

    def read(self):
        """Return the fields of the next entry, each as the list of its values."""
        data, fields = self.reader.recv(1 << 20), {}
        while data:
            name, end, data = re.fullmatch(rb"([A-Z_]+)(=|\n)(.*)", data, re.S).groups()
            if end == b"=":
                value, _, data = data.partition(b"\n")
            else:
                size = int.from_bytes(data[:8], "little")
                value, data = data[8 : 8 + size], data[9 + size :]
            fields.setdefault(name.decode(), []).append(value.decode())
        return fields


@pytest.fixture
def journald():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tempfile.mkdtemp()
    journald = Journald(folder)
    yield journald
    journald.reader.close()
    shutil.rmtree(folder)


def read_message_ids():
    """Return {the event: its MESSAGE_ID}, as the manual lists them."""
    return dict(
        re.findall(r"^\.It Li (\w+)\n([0-9a-f]{32})$", (ROOT / "man/solo.7").read_text(), re.M)
    )


def test_journald_gets_fields(lab, journald):
    result = lab.run(
        "--syslog", "-n", "job", "-n", "a b", "--", "sh", "-c", "exit 3", prefix=journald.prefix
    )
    start, end = journald.read(), journald.read()

    assert result.returncode == 3
    ids, pid = read_message_ids(), start.pop("SYSLOG_PID")
    child = re.fullmatch(r"job a b: started sh -c exit 3 as pid (\d+)", start.pop("MESSAGE")[0])[1]
    common = {"SYSLOG_FACILITY": ["9"], "SYSLOG_IDENTIFIER": ["solo"], "SOLO_NAME": ["job", "a b"]}
    assert start == {
        **common,
        "MESSAGE_ID": [ids["started"]],
        "PRIORITY": ["6"],
        "SOLO_OUTCOME": ["running"],
    }
    assert float(end.pop("SOLO_RAN")[0]) < PATIENCE
    assert end == {
        **common,
        "MESSAGE": [f"job a b: pid {child} ended with exit status 3 after 0s"],
        "MESSAGE_ID": [ids["ended"]],
        "PRIORITY": ["4"],
        "SYSLOG_PID": pid,
        "SOLO_OUTCOME": ["failed"],
        "SOLO_STATUS": ["3"],
    }


def test_journald_gets_the_holder_of_a_skip(lab, journald):
    holder = lab.hold("job", "--note", "until noon")

    lab.run("--syslog", "-q", "-E", "0", "-n", "job", "true", prefix=journald.prefix)

    fields, [row] = journald.read(), lab.list()
    assert fields["MESSAGE_ID"] == [read_message_ids()["skipped"]] and fields["SOLO_NAME"] == [
        "job"
    ]
    assert {
        name: fields[name] for name in fields if name.startswith("SOLO_") and name != "SOLO_NAME"
    } == {
        "SOLO_OUTCOME": ["skipped"],
        "SOLO_STATUS": ["0"],
        "SOLO_HOLDER_PID": [str(holder.pid)],
        "SOLO_HOLDER_COMMAND": [" ".join(row["command"]).replace("\n", "\\n")],
        "SOLO_HOLDER_SINCE": [row["since"]],
        "SOLO_HOLDER_NOTE": ["until noon"],
    }


def test_journald_gets_any_name_whole(lab, journald):
    names = "a SOLO_NAME=b", "c=\xff", "d e"

    for name in names:
        lab.run("--syslog", "-n", name, "true", prefix=journald.prefix)
        assert [journald.read()["SOLO_NAME"] for _ in range(2)] == [[name]] * 2


def test_journald_gets_long_values_cut(lab, journald):
    words = ["x" * 100_000] * 3
    above = "/".join(["n" * 255] * 7)
    names = [word for number in range(60) for word in ("-n", f"{above}/{number:0200d}")]

    lab.run("--syslog", *names, "--", "true", *words, prefix=journald.prefix)

    fields = journald.read()
    assert len(fields["MESSAGE"][0]) == 4096 and fields["MESSAGE"][0].startswith("nnnn")
    assert 30 < len(fields["SOLO_NAME"]) < 60 and {len(name) for name in fields["SOLO_NAME"]} == {
        len(above) + 201
    }


def test_syslog_gets_the_line_if_journald_is_gone(lab, log, journald):
    journald.reader.close()

    lab.run("--syslog", "-n", "logged", "true", prefix=journald.prefix)

    assert read(log)[1].startswith("logged: started true as pid ")
