"""On a terminal: Ctrl-C, Ctrl-Z and fg, job control, window changes and hang-ups. A real pty, a
real bash.
"""

import fcntl
import os
import signal
import struct
import sys
import termios

import pytest
from conftest import TESTS, read_state, until

PROBE = f"{sys.executable} -IS {TESTS / 'probe.py'}"


@pytest.fixture
def shell(terminal):
    return terminal()


@pytest.fixture(params=[(), ("--tree",)], ids=["plain", "tree"])
def words(request):
    return request.param


def test_control_c_reaches_command_once(terminal, lab, words):
    screen = terminal(lab.script, *words, "-n", "job", "--", *PROBE.split(), "signals")
    screen.wait_for("ready")

    screen.type("\x03")
    screen.wait_for("^C2\r")
    os.kill(screen.pid, signal.SIGUSR1)  # a witness: a second SIGINT would come before it
    screen.wait_for("\n10\r")

    assert screen.screen.split()[2:] == [b"^C2", b"10"]


def test_earlier_spelling_of_an_option_gets_a_line_on_a_terminal_only(terminal, lab):
    words = ("--slots", "2", "--take", "2", "-w", "1m", "-n", "job", "echo", "--take")
    screen = terminal(lab.script, *words)
    screen.wait_for("solo: --take is K of --slots now: --slots N[,K]\r\n--take\r\n")

    assert lab.run(*words).stderr == b""


def test_control_c_ends_a_shell_loop(shell, words):
    """The launcher mirrors the death by SIGINT; an exit status would let bash continue the loop."""
    solo = " ".join(("$SOLO", *words))
    shell.type(
        f"for i in 1 2 3; do {solo} -n job -- sh -c 'echo round $0; exec sleep 30' $i; done; echo left=$?\n"
    )
    shell.wait_for("\nround 1")

    shell.type("\x03")
    shell.wait_for("$ ", after=shell.screen.index(b"round 1\r"))

    assert b"\nround 2" not in shell.screen


def read_pid(screen):
    """Wait until the screen shows `pid N` in a line; return N."""
    screen.wait_for("\npid ")
    screen.wait_for("\r\n", after=screen.screen.index(b"\npid ") + 1)
    return int(screen.screen.rpartition(b"\npid ")[2].split()[0])


@pytest.mark.parametrize("killed", [False, True])
def test_control_z_stops_both_and_fg_continues_both(shell, words, killed):
    """With --tree also after the lower process was killed."""
    solo = " ".join(("$SOLO", *words))
    kill = "kill -KILL $PPID; " if killed and words else ""
    shell.type(f"{solo} -n job -- sh -c '{kill}echo pid $$; read line; echo got $line'\n")
    child = read_pid(shell)

    shell.type("\x1a")
    shell.wait_for("Stopped")
    assert read_state(child) == "T"
    shell.type("fg\n")
    until(lambda: read_state(child) != "T")
    shell.type("word\n")

    shell.wait_for("\ngot word")


def test_background_job_that_reads_stops_until_fg(shell, words):
    shell.type(f"{' '.join(('$SOLO', *words))} -n job -- sh -c 'read line; echo got $line' &\n")
    until(
        lambda: (
            shell.type("jobs\n"),
            shell.wait_for("$ ", len(shell.screen)),
            b"Stopped" in shell.screen,
        )[2]
    )
    seen = len(shell.screen)
    shell.type("fg\n")
    shell.wait_for("got $line'", after=seen)  # bash prints the command that it continues
    shell.type("word\n")

    shell.wait_for("\ngot word")


def test_window_change_reaches_command_once(terminal, lab, words):
    screen = terminal(lab.script, *words, "-n", "job", "--", *PROBE.split(), "signals")
    screen.wait_for("ready")

    fcntl.ioctl(screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    screen.wait_for(f"\n{signal.SIGWINCH:d}\r")
    os.kill(screen.pid, signal.SIGUSR1)
    screen.wait_for("\n10\r")

    assert screen.screen.count(b"\n%d\r" % signal.SIGWINCH) == 1


JOB_CONTROL = ("bash", "-m", "-c", "echo start; sleep 0.01 & wait; cat; echo end")


@pytest.mark.parametrize(
    "job, first, last", [(["tac"], "", "two\r\none"), (JOB_CONTROL, "start", "end")]
)
def test_filter_or_shell_with_job_control_reads_the_terminal_to_its_end(
    terminal, lab, words, job, first, last
):
    screen = terminal(lab.script, *words, "-n", "job", *job)
    screen.wait_for(first)
    screen.type("one\ntwo\n\x04")

    screen.wait_for(last)
    assert screen.wait() == 0


def test_hang_up_ends_command_and_frees_the_name(terminal, lab, words):
    """With --tree also a helper in a session of its own."""
    helper = "setsid sleep 60 & " if words else ""
    screen = terminal(
        lab.script,
        *words,
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f"{helper}echo pid $$; read line; sleep 60",
    )
    screen.wait_for("pid ")
    until(lambda: len(lab.list()) == 1)

    os.close(screen.fd)
    screen.fd = -1

    until(lambda: lab.list() == [])


@pytest.mark.parametrize("moment", ["waiting", "running"])
def test_control_c_leaves_no_traceback(terminal, lab, words, moment):
    if moment == "waiting":
        lab.hold("job")
    screen = terminal(lab.script, *words, "-n", "job", "-w", "forever", "sleep", "60")
    until(
        lambda: any(
            row["launcher"] == screen.pid and (row["child"] or moment == "waiting")
            for row in lab.list()
        )
    )

    screen.type("\x03")

    assert screen.wait() == -signal.SIGINT
    assert screen.screen.strip() in (b"", b"^C")


def test_control_z_stops_launcher_of_remaining_descendants(shell, lab):
    shell.type("$SOLO --tree -n job -- sh -c 'sleep 99 & echo pid $!; exit 3'; echo left $?\n")
    rest = read_pid(shell)
    until(lambda: read_state(lab.list()[0]["child"]) == "gone")

    shell.type("\x1a")
    shell.wait_for("Stopped")
    until(lambda: read_state(rest) == "T")
    shell.type("fg\n")
    until(lambda: read_state(rest) == "S")
    shell.type("\x03")

    until(lambda: read_state(rest) in ("gone", "Z") and lab.list() == [])


def test_control_c_is_not_forwarded_to_a_tree(terminal, lab):
    """A helper in a session of its own, which Ctrl-C must not end, lives on."""
    helper = "setsid sh -c 'trap \"echo helper >>$LAB/log\" INT; echo ready; sleep 1; echo stayed >>$LAB/log'"
    script = f"trap 'echo caught' INT; {helper} & wait; wait; exit 4"
    screen = terminal(lab.script, "--tree", "-n", "job", "--", "sh", "-c", script)
    screen.wait_for("ready")

    screen.type("\x03")
    screen.wait_for("caught")

    assert screen.wait() == 4
    assert lab.read_log() == ["stayed"]


@pytest.mark.parametrize("job", ["exec sleep 99", "trap '' CONT; exec sleep 99"])
@pytest.mark.parametrize("line", ["stop -k 1h job", "--replace -k 1h -n job true"])
def test_job_that_control_z_has_stopped_is_ended_at_once(shell, lab, words, line, job):
    shell.type(f"{' '.join(('$SOLO', *words))} -n job -- sh -c 'echo pid $$; {job}'\n")
    child = read_pid(shell)
    shell.type("\x1a")
    shell.wait_for("Stopped")

    assert lab.run(*line.split()).returncode == 0

    assert read_state(child) == "gone"
    until(
        lambda: (
            shell.type("jobs\n"),
            shell.wait_for("$ ", len(shell.screen)),
            b"Terminated" in shell.screen,
        )[2]
    )
