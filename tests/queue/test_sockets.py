"""--via socket: the same queue without files. Tests with the fixtures `via` and `kind` cover both
kinds of ticket.
"""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
from conftest import NOBODY, PATIENCE, finish, read_line, until

from solo.contention.addresses import PREFIX


@pytest.fixture(autouse=True)
def sockets(lab):
    lab.use_sockets()


def test_run_without_a_name_returns_status_of_command(lab):
    result = lab.run("sh", "-c", "echo ran; exit 7")

    assert (result.returncode, result.stdout, result.stderr) == (7, b"ran\n", b"")


def test_directory_of_names_is_not_created(lab):
    lab.hold("a/b", "-n", "c")

    assert not lab.directory.exists()


@pytest.mark.tool("strace")
def test_no_file_is_created_or_opened_for_writing(lab):
    trace = lab.path / "trace"
    lab.run("-n", "job", "true", prefix=("strace", "-o", trace, "-e", "trace=%file"))

    changing = re.compile(
        r"(?!.*(?:readlink|/dev/)).*(?:O_WRONLY|O_RDWR|O_CREAT|mkdir|rename|link\()"
    )
    assert list(filter(changing.match, trace.read_text().splitlines())) == []


def test_file_and_socket_of_one_name_are_two_locks(lab):
    lab.hold("job")
    del lab.environment["SOLO_VIA"]
    lab.hold("job")

    both = [
        (row["name"], row["via"], row["state"])
        for row in json.loads(lab.run("list", "--json").stdout)
    ]
    assert both == [("job", "file", "held"), ("job", "socket", "held")]
    assert [row["via"] for row in lab.list("--via", "socket")] == ["socket"]
    assert [row["via"] for row in lab.list("--via", "file")] == ["file"]


def test_list_shows_all_fields_of_a_record(lab):
    holder = lab.hold("a/b", "--slots", "3,2")
    [row] = lab.list()

    seen = row["name"], row["launcher"], row["child"], row["mode"], row["slot"]
    assert seen == ("a/b", holder.pid, holder.child, "slots", 0)
    assert row["command"] == ["sh", "-c", "echo $$; read line; exit 0"] and row["via"] == "socket"


def kill_launcher_of_large_command(lab):
    """Return a waiter's output after SIGKILL to the launcher. The command's death takes a while: it
    frees much memory.
    """
    large = "import os, sys; memory = b'x' * (1 << 28); print(os.getpid(), flush=True); sys.stdin.read()"
    holder = lab.start("-n", "job", "--", sys.executable, "-IS", "-c", large)
    child = int(read_line(holder))
    waiter = lab.start(
        "-w",
        "forever",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f"grep -s State: /proc/{child}/status; echo ran",
    )
    until(lambda: lab.count_waiting("job"))
    holder.kill()
    return finish(waiter)[1]


DEAD = ("ran\n", "State:\tZ (zombie)\nran\n", "State:\tX (dead)\nran\n")


def test_waiter_of_killed_launcher_waits_until_its_command_is_dead(lab):
    assert kill_launcher_of_large_command(lab) in DEAD


def start_as_nobody(code):
    """Start a Python program of another user; return it once it has printed a line."""
    words = ["/usr/bin/python3", "-c", code]
    process = subprocess.Popen(words, user=NOBODY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def test_address_bound_by_another_user_is_an_error(common):
    common.use_sockets()
    address = f"\\x00{PREFIX}/0/job/hold.1.X..0.0"
    bind = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind('{address}'); s.listen()"
    squatter = start_as_nobody(f"{bind}; print(flush=True); input()")

    result = common.run("-n", "job", "true")
    squatter.communicate()

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert (
        f"pid {squatter.pid} of uid {NOBODY} has bound an address of this user".encode()
        in result.stderr
    )
    assert common.run("-n", "job", "true").returncode == 0


INJECTION = f"""
import socket, sys
one, two = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
one.bind(b"\\0z\\n0: 00000002 00000000 00010000 0001 01 1 @{PREFIX}/0/job/seat.9999999999999999999.X...0")
two.bind("\\0z\\n0: 00000002 00000000 00010000 0001 01 1 @{PREFIX}/0/job/hold.\u00b2".encode())
one.listen(), two.listen()
print(flush=True)
sys.stdin.read()
"""


def test_forged_lines_in_proc_net_unix_are_harmless(common):
    """An abstract address may contain a newline, and so imitate any line."""
    common.use_sockets()
    forger = start_as_nobody(INJECTION)

    holder = common.hold("job")
    result = common.run("-n", "job", "true")
    finish(holder)
    after = common.run("-n", "job", "true")
    forger.communicate()

    assert (result.returncode, after.returncode) == (75, 0), result.stderr + after.stderr


def test_users_do_not_see_each_others_sockets(common):
    common.use_sockets()
    common.hold("job")

    assert common.run("-n", "job", "true", user=NOBODY).returncode == 0


def test_stuck_gate_names_its_owner(lab):
    lab.hasten("solo.contention.sockets.GATE_PATIENCE", 1.5)
    gate = socket.socket(socket.AF_UNIX)
    gate.bind(f"\0{PREFIX}/{os.geteuid()}/job/gate")
    gate.listen()

    result = lab.run("-n", "job", "true")
    short = lab.run("-n", "job", "--wait", "1ms", "true")
    gate.close()

    assert result.returncode == 125 and result.stderr.startswith(
        f"solo: job: --via socket: cannot bind the gate's address: pid {os.getpid()} (".encode()
    )
    assert result.stderr.endswith(
        f") has kept it locked for 2 seconds (end it: kill {os.getpid()})\n".encode()
    )
    assert (short.returncode, short.stderr[:47]) == (
        75,
        b"solo: job: busy: another process has its gate l",
    )


def test_name_too_long_for_an_address_is_refused(lab):
    result = lab.run("-n", "n" * 100, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and b"too long" in result.stderr


def test_odd_names_are_different_locks(lab):
    names = ["a b", "a%20b", "ä", "a@b"]
    for name in names:
        lab.hold(name)

    assert sorted(row["name"] for row in lab.list()) == sorted(names)
    assert [lab.run("-n", name, "true").returncode for name in names] == [75] * 4


def test_full_backlog_still_counts_as_held(lab):
    """The owner never accepts, so closed connections fill its backlog until the kernel refuses
    more.
    """
    holder = lab.hold("job")
    [address] = re.findall(r"(?m) 00010000 .* (\S+/job/hold\.\S*)$", open("/proc/net/unix").read())
    connections = 0
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect("\0" + address[1:])
        except BlockingIOError:
            break
        finally:
            client.close()
        connections += 1

    assert connections > 100
    assert lab.run("-n", "job", "true").returncode == 75
    refused = (125, b"solo: job: cannot end the holder: it cannot be seen from here\n")
    for words in (["stop", "job"], ["--replace", "-n", "job", "true"]):
        result = lab.run(*words)
        assert (result.returncode, result.stderr) == refused
    waiter = lab.start("-w", "forever", "-n", "job", "true")
    until(lambda: lab.count_waiting("job") == 1)
    finish(holder)
    assert waiter.wait(PATIENCE) == 0


def test_command_inherits_no_socket(lab):
    result = lab.run("-n", "a/b", "--", "sh", "-c", "ls -l /proc/self/fd")

    assert b"socket:" not in result.stdout


def test_dir_excludes_sockets_but_solo_dir_does_not(lab):
    assert lab.run("-n", "job", "true").returncode == 0  # SOLO_DIR is set
    result = lab.run("--dir", lab.path, "-n", "job", "true")

    assert result.returncode == 125 and b"--dir exclude each other" in result.stderr


@pytest.mark.parametrize("words", [("--via", "pigeon", "true"), ("list", "--via", "pigeon")])
def test_unknown_backend_is_refused(lab, words):
    result = lab.run(*words)

    assert result.returncode == 125 and result.stderr.startswith(
        b"solo: --via pigeon: neither file nor socket, "
    )
