"""--timeout DURATION,SIG: the signal that --timeout sends first. The journal says by which signal the command ended."""

import signal

import pytest

IGNORING_INT = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


def end_by_timeout(lab, signal, *words, command=("sleep", "99"), **options):
    """Run a command until its timeout; return (status, outcome and signal in the journal)."""
    result = lab.run("-t", f"100ms,{signal}", *words, "-n", "job", "--", *command, **options)
    [row] = lab.history()
    return result.returncode, row["outcome"], row["signal"]


@pytest.mark.parametrize("typed", ["USR1", "SIGUSR1", "sigusr1", "10"])
def test_timeout_sends_the_signal_by_name_or_number(lab, typed):
    assert end_by_timeout(lab, typed) == (124, "timed out", signal.SIGUSR1)


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(lab):
    ended = end_by_timeout(lab, "INT", "-k", "100ms", prefix=IGNORING_INT)

    assert ended == (124, "timed out", signal.SIGKILL)


def test_signal_may_be_kill(lab):
    assert end_by_timeout(lab, "KILL", "-k", "1h") == (124, "timed out", signal.SIGKILL)


@pytest.mark.parametrize("line", ["kill -STOP $$; exit 0", "sleep 99 & wait"], ids=["stopped", "tree"])
def test_signal_reaches_a_stopped_command_and_its_tree(lab, line):
    ended = end_by_timeout(lab, "USR1", "--tree", "-k", "1h", command=("sh", "-c", line))

    assert ended == (124, "timed out", signal.SIGUSR1)


@pytest.mark.parametrize("typed", ["NOPE", "0", "32", "99", "", "SIG", "_DFL"])
def test_an_unknown_signal_is_refused(lab, typed):
    result = lab.run("-t", f"1s,{typed}", "-n", "job", "true")

    assert result.returncode == 125
    assert result.stderr.decode() == f"solo: SIG of -t {typed}: not a signal (like INT, SIGHUP or 10)\n"
