"""stdout of views and of shell code: with O_NONBLOCK, as node leaves it, all arrives; a failure
names it.
"""

import os
import re
import socket
import subprocess

import pytest
from conftest import PATIENCE, is_blocked, make_full_pipe, until

FILLING = b"x"  # of make_full_pipe
BIG = 400_000  # bytes: more than a pipe or a socket takes at once
WORDS = [
    "-h",
    "--help",
    "--version",
    "--explain -n other -- true",
    "hold --help",
    "wait --help",
    "list -0",
    "history past",
    "history past --json",
    "doctor --json --crontab /dev/null",
]


def make_full_socket():
    """Return the two ends of a socket: a write blocks."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    try:
        while True:
            theirs.send(FILLING)
    except BlockingIOError:
        return ours.detach(), theirs.detach()


def run_on_full(lab, make_full, *words):
    """Run `solo WORDS` on a full stdout with O_NONBLOCK, which is read once it waits; return
    (status, stdout, stderr).
    """
    reader, writer = make_full()
    os.set_blocking(writer, False)
    process = lab.start(*words, stdout=writer)
    os.close(writer)
    until(lambda: is_blocked(process.pid) or process.poll() is not None)
    with open(reader, "rb") as file:
        out = file.read().lstrip(FILLING)
    return process.wait(PATIENCE), out, process.stderr.read()


@pytest.fixture
def used(lab):
    """A lab whose `job` is held and whose `past` has run."""
    lab.hold("job")
    lab.run("-n", "past", "true")
    return lab


@pytest.fixture(params=[make_full_pipe, make_full_socket], ids=["pipe", "socket"])
def make_full(request):
    return request.param


@pytest.mark.parametrize("words", WORDS)
def test_all_arrives_on_a_stdout_that_does_not_block(used, words):
    whole = used.run(*words.split()).stdout

    assert whole and run_on_full(used, make_full_pipe, *words.split()) == (0, whole, b"")


def test_large_output_arrives_in_pieces(lab, make_full):
    lab.run("-n", "job", "true")
    journal = lab.find_journal("job")
    lines = journal.read_text()
    copies = [re.sub(r"child=\d+", f"child={number}", lines) for number in range(1000)]
    journal.write_text("".join(copies))

    whole = lab.run("history", "--json").stdout

    assert len(whole) > BIG and run_on_full(lab, make_full, "history", "--json") == (0, whole, b"")


def test_shell_code_of_hold_arrives(lab, make_full):
    status, out, err = run_on_full(lab, make_full, "hold", "--for", "1h", "--export", "job")

    assert (status, out.count(b"SOLO_TOKEN="), out[-1:]) == (0, 1, b"\n"), err
    assert lab.run("release", "job").returncode == 0


@pytest.mark.parametrize("words", WORDS)
def test_full_disk_names_stdout(used, words):
    with open("/dev/full", "w") as full:
        result = used.run(*words.split(), capture_output=False, stdout=full, stderr=subprocess.PIPE)

    verb = "write to" if words == "--version" else "continue:"
    error = f"solo: cannot {verb} stdout: No space left on device\n"
    assert (result.returncode, result.stderr.decode()) == (125, error)


@pytest.mark.parametrize("words", ["--help", "--version", "--explain -n job -- true", "list"])
def test_closed_stdout_is_refused(lab, words):
    result = lab.run(*words.split(), prefix=("sh", "-c", 'exec "$@" >&-', "sh"))

    assert (result.returncode, result.stderr) == (125, b"solo: stdout is closed\n")
