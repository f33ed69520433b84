"""--signal: the signal that --timeout sends."""

import re
import subprocess

import pytest
from conftest import PATIENCE, read_line, read_state

import solo

TRAPS = (
    "trap 'echo INT; exit' INT; trap 'echo TERM; exit' TERM; trap 'echo USR1; exit' USR1; while :; do sleep 0.05; done"
)


@pytest.mark.parametrize(
    "typed, sent", [("INT", "INT"), ("SIGINT", "INT"), ("sigusr1", "USR1"), ("10", "USR1"), ("TERM", "TERM")]
)
def test_timeout_sends_the_signal_by_name_or_number(lab, typed, sent):
    result = lab.run("-t", "300ms", "--signal", typed, "-n", "job", "--", "sh", "-c", TRAPS)

    assert (result.returncode, result.stdout.decode()) == (124, f"{sent}\n")
    assert re.fullmatch(rb"solo: job: timed out after 300ms: ending pid \d+\n", result.stderr)


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(lab):
    process = lab.start(
        "-t", "200ms", "--signal", "INT", "-k", "200ms", "-n", "job", "--", "sh", "-c",
        "trap '' INT; echo $$; while :; do sleep 0.05; done",
    )  # fmt: skip
    child = int(read_line(process))

    assert process.wait(PATIENCE) == 124
    assert read_state(child) in ("gone", "Z")


def test_signal_kill_ends_the_command_at_once(lab):
    assert (
        lab.run(
            "-t", "200ms", "--signal", "KILL", "-k", "1h", "-n", "job", "--", "sh", "-c", "trap '' TERM; exec sleep 99"
        ).returncode
        == 124
    )


def test_signal_reaches_a_stopped_command_and_its_tree(lab):
    below = f'sh -c "{TRAPS}" & wait; kill -STOP $$; exit 0'
    process = lab.start(
        "-t", "400ms", "--tree", "--signal", "USR1", "-n", "job", "--", "sh", "-c", f"trap 'wait' USR1; echo; {below}"
    )

    assert read_line(process) == ""
    assert read_line(process) == "USR1"
    assert process.wait(PATIENCE) == 124


@pytest.mark.parametrize("typed", ["NOPE", "0", "32", "99", "", "SIG", "_DFL"])
def test_an_unknown_signal_is_refused(lab, typed):
    result = lab.run("-t", "1s", "--signal", typed, "-n", "job", "true")

    assert result.returncode == 125
    assert result.stderr.decode() == f"solo: --signal {typed}: not a signal (like INT, SIGHUP or 10)\n"


def test_signal_needs_timeout(lab):
    result = lab.run("--signal", "INT", "-n", "job", "true")

    assert (result.returncode, result.stderr) == (125, b"solo: --signal needs --timeout\n")


def test_solo_run_sends_the_signal(lab, monkeypatch):
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))

    with pytest.raises(subprocess.TimeoutExpired) as info:
        solo.run(["sh", "-c", TRAPS], name="job", timeout=0.3, signal=10, capture_output=True)

    assert info.value.stdout == b"USR1\n"
