"""--notify: a shell command that runs in the background after a skip or a bad end."""

import os
import re
import shlex
import signal

import pytest
from conftest import (
    PATIENCE,
    count_injected,
    finish,
    inject,
    kill,
    list_open,
    read_state,
    until,
    wait_dead,
)
from observed import parse_metrics

from solo.history.usual import FEWEST

WRITE = 'printf "%s|%s|%s|%s\\n" "$SOLO_NAME" "$SOLO_OUTCOME" "$SOLO_STATUS" "$SOLO_MESSAGE" >>$LAB/notes'
FAIL = ("-n", "job", "--", "sh", "-c", "exit 3")


@pytest.fixture
def notes(lab):
    """Return a function that waits for a number of lines in the file `notes`, and returns all of
    them.
    """
    path = lab.path / "notes"

    def read(count):
        until(lambda: path.exists() and path.read_text().count("\n") >= count)
        return path.read_text().splitlines()

    return read


@pytest.fixture
def ended(lab):
    """Return a list of pids: those that live are killed after the test."""
    pids = []
    yield pids
    for pid in pids:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def find_unnotified(lab):
    return [row for row in lab.history() if row["outcome"] == "unnotified"]


# --- when, and what it gets


@pytest.mark.parametrize(
    "words, status, note",
    [
        ("-n job sh -c 'exit 3'", 3, "job|failed|3|job: pid N ended with exit status 3 after N"),
        (
            "-n job sh -c 'kill -KILL $$'",
            -9,
            "job|signaled|137|job: pid N ended by SIGKILL after N",
        ),
        (
            "-n job -t 100ms sleep 99",
            124,
            "job|timed out|124|job: pid N timed out and ended by SIGTERM after N",
        ),
        (
            "-n job nosuch",
            127,
            "job|refused|127|not started: job: nosuch: command not found (in the PATH N)",
        ),
        ("nosuch", 127, "|refused|127|not started: nosuch: command not found (in the PATH N)"),
        (
            "-n job --slots 0 true",
            125,
            "job|refused|125|not started: job: --slots must be at least 1",
        ),
    ],
)
def test_bad_end_is_notified(lab, notes, words, status, note):
    command = f'{WRITE}; echo "${{SOLO_RAN:-0}}" >>$LAB/notes'
    assert lab.run("--notify", command, *shlex.split(words)).returncode == status

    line, seconds = notes(2)
    assert re.sub(r"pid \d+", "pid N", re.sub(r"(after|PATH) [^)\s]+", r"\1 N", line)) == note
    least = 0.001 if "-t" in words else 0  # the limit begins before exec, the time after it
    assert least <= float(seconds) < PATIENCE


def test_notification_reads_an_empty_stdin_and_its_output_is_discarded(lab, notes):
    line = "cat && head -c 100000000 /dev/zero; echo x >&2; $SOLO -n job true; echo $? >>$LAB/notes"
    result = lab.run("--notify", line, *FAIL)

    assert notes(1) == ["0"] and (result.stdout, result.stderr) == (
        b"",
        b"",
    )  # and the name was free


def test_skip_is_notified_with_its_holder(lab, via, notes):
    holder = lab.hold("job", "--note", "until noon")
    variables = ("OUTCOME", "STATUS", "HOLDER_PID", "HOLDER_NOTE", "HOLDER_SINCE", "HOLDER_COMMAND")
    write = "".join(f'printf "%s\\n" "$SOLO_{variable}" >>$LAB/notes; ' for variable in variables)

    assert lab.run("--notify", write, "-n", "job", "true").returncode == 75

    [row] = lab.list()
    command = " ".join(row["command"])
    assert notes(6) == ["skipped", "75", str(holder.pid), "until noon", row["since"], command]


def test_success_and_a_run_of_this_period_are_not_notified(lab, notes):
    for words in (("true",), ("--once-per", "1h", "true"), ("--once-per", "1h", "true")):
        assert lab.run("--notify", WRITE, "-n", "job", *words).returncode == 0
    lab.run("--notify", WRITE, *FAIL)

    assert [note.split("|")[1] for note in notes(1)] == ["failed"]


def test_quiet_skip_is_notified_only_once_it_is_loud(lab, notes):
    lab.hold("job")
    for words in (
        ("-q",),
        ("--loud-after", "3"),
        ("-q", "--loud-after", "3"),
        ("-q", "--loud-after", "3"),
    ):
        lab.run(*words, "-E", "0", "--notify", WRITE, "-n", "job", "true")

    assert [note.split("|")[1:3] for note in notes(1)] == [["skipped", "75"]]


def test_no_notification_if_the_launcher_is_killed(lab, notes):
    kill(lab.hold("job", "--notify", WRITE, "--no-orphan"))

    assert lab.run("-w", "1h", "--notify", WRITE, *FAIL).returncode == 3

    assert len(notes(1)) == 1


# --- what it inherits


@pytest.mark.parametrize("is_skipped", [False, True])
def test_notification_keeps_nothing_of_its_caller(lab, notes, ended, is_skipped):
    """Nor does the status change, nor the next holder wait. lab.run reads the output to its end."""
    holder = lab.hold("job") if is_skipped else None
    line = "echo $$ >>$LAB/notes; exec sleep 600"
    with open(lab.path / "kept", "w") as kept:
        result = lab.run("--notify", line, "--tree", *FAIL, pass_fds=[kept.fileno()])
    ended += notes(1)
    if holder:
        finish(holder)

    assert (result.returncode, lab.run("-n", "job", "true").returncode) == (
        75 if is_skipped else 3,
        0,
    )
    watcher = int(open(f"/proc/{ended[0]}/stat").read().split()[3])
    for pid in (watcher, *ended):
        assert set(list_open(pid)) == {"/dev/null"}
    assert os.getsid(int(ended[0])) == watcher
    status = open(f"/proc/{ended[0]}/status").read()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    ours = sum(
        1 << number - 1 for number in signal.valid_signals()
    )  # posix_spawn(3) ignores one of libc's
    assert (int(masks["SigBlk"], 16) & ours, int(masks["SigIgn"], 16) & ours) == (0, 0)
    assert find_unnotified(lab) == []


@pytest.mark.parametrize("is_skipped", [False, True])
def test_notification_has_the_directory_and_umask_of_solo(lab, notes, is_skipped):
    here = lab.path / "here"
    here.mkdir()
    if is_skipped:
        lab.hold("job")

    lab.run("--notify", "(pwd -P; umask) >>$LAB/notes", *FAIL, cwd=here, umask=0o027)

    assert notes(2) == [str(here), "0027"]
    lab.run(
        "--notify",
        "pwd >>$LAB/notes",
        "-n",
        "other",
        "--",
        "sh",
        "-c",
        f"rmdir {here}; false",
        cwd=here,
    )
    assert notes(3)[2] == "/"  # as that directory is gone


def test_words_of_a_holder_are_never_run(lab, notes):
    lab.start("-n", "job", "--", "sh", "-c", "sleep 600", "$(touch $LAB/ran)\n`touch $LAB/ran`")
    until(lambda: lab.directory.exists() and lab.list())

    lab.run("--notify", 'printf "%s\\n" "$SOLO_HOLDER_COMMAND" >>$LAB/notes', "-n", "job", "true")

    assert notes(1) == ["sh -c sleep 600 $(touch $LAB/ran)\\n`touch $LAB/ran`"]
    assert not (lab.path / "ran").exists()


# --- how it can fail


@pytest.mark.parametrize(
    "line, reason",
    [
        ("exit 4", "ended with exit status 4 after 0s"),
        ("/no/such/program", "ended with exit status 127 after 0s"),
        ("kill -TERM $$", "ended by SIGTERM after 0s"),
    ],
)
def test_failed_notification_is_in_the_history_only(lab, line, reason):
    result = lab.run("--notify", line, *FAIL)
    until(lambda: find_unnotified(lab))

    [row] = find_unnotified(lab)
    assert (result.returncode, result.stderr, row["reason"]) == (3, b"", f"--notify {reason}")
    metrics = parse_metrics(lab.run("metrics").stdout.decode())
    assert (
        metrics["solo_failures_total", "job", "file"]
        == metrics["solo_runs_total", "job", "file"]
        == 1
    )
    lab.hold("job")
    lab.run("--notify", line, "-n", "job", "true")
    until(lambda: len(find_unnotified(lab)) == 2)
    outcomes = [row["outcome"] for row in lab.history()]
    assert outcomes == ["failed", "unnotified", "running", "skipped", "unnotified"]


def test_hanging_notification_is_killed_with_its_group(lab, notes, ended):
    lab.hasten("solo.process.notify.NOTIFY_LIMIT", 1)
    lab.run(
        "--notify",
        "trap '' TERM; sleep 600 & echo $$ >>$LAB/notes; echo $! >>$LAB/notes; wait",
        *FAIL,
    )
    ended += notes(2)

    for pid in ended:
        wait_dead(int(pid))
    until(lambda: find_unnotified(lab))
    assert find_unnotified(lab)[0]["reason"] == "--notify was killed: it ran for more than 1s"


def test_daemon_of_a_notification_lives_on(lab, notes, ended):
    lab.run("--notify", "sleep 600 & echo $! >>$LAB/notes", *FAIL)
    ended += notes(1)
    lab.run("--notify", "exit 4", *FAIL)
    until(
        lambda: find_unnotified(lab) and read_state(int(ended[0])) == "S"
    )  # its pid is known before it sleeps

    assert len(find_unnotified(lab)) == 1
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.host
@pytest.mark.tool("strace")
def test_failed_fork_is_in_the_history_only(lab):
    """The second fork of the launcher: the first is that of the command."""
    prefix = inject(lab, "clone,clone3,fork,vfork:error=EAGAIN:when=2", follow=False)

    result = lab.run("--notify", "true", *FAIL, prefix=prefix)

    assert result.returncode == 3 and count_injected(lab)
    [row] = find_unnotified(lab)
    assert row["reason"] == "--notify cannot start: Resource temporarily unavailable"


# --- where the notification would end with the launcher


def start_with_fifo(lab, prefix=()):
    """Start a run whose notification waits for a line in a FIFO. Return it once the notification
    runs.
    """
    os.mkfifo(lab.path / "fifo")
    line = "echo start >>$LAB/notes; read line <$LAB/fifo; echo end >>$LAB/notes"
    process = lab.start("--notify", line, *FAIL, prefix=prefix)
    until(lambda: (lab.path / "notes").exists())
    return process


MAIN = ("sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh")
FIRST = ("unshare", "--fork", "--pid", "--mount-proc", "--")
OLD_MAIN = (*FIRST, "sh", "-c", 'INVOCATION_ID=x "$@"; exit $?', "sh")


@pytest.mark.parametrize("prefix", [MAIN, OLD_MAIN], ids=["unit", "unit-of-old-systemd"])
def test_main_process_waits_for_the_notification(lab, notes, prefix):
    process = start_with_fifo(lab, prefix)
    next_one = lab.run("-n", "job", "true").returncode
    is_running = process.poll() is None
    (lab.path / "fifo").write_text("\n")

    assert finish(process)[0] == 3
    assert (is_running, next_one, notes(2)) == (True, 0, ["start", "end"])


def test_other_process_of_a_unit_does_not_wait(lab, notes):
    process = start_with_fifo(lab, ("env", "SYSTEMD_EXEC_PID=1", "INVOCATION_ID=x"))

    assert finish(process)[0] == 3
    assert notes(1) == ["start"]
    (lab.path / "fifo").write_text("\n")
    notes(2)


def test_sigterm_ends_the_wait_for_the_notification(lab, ended):
    process = start_with_fifo(lab, MAIN)

    process.terminate()

    assert finish(process)[0] == 3
    (lab.path / "fifo").write_text("\n")


@pytest.mark.parametrize("options", [(), ("--tree",), ("-t", "1m")], ids=str)
def test_overdue_run_is_notified_once(lab, notes, options):
    words = ("-n", "job", *options, "--", "sh", "-c", "read line; exit 0")
    for _ in range(FEWEST):
        lab.run(*words)
    lab.hasten("solo.history.usual.LEAST_LONG", 0.01)

    run = lab.start("--notify", WRITE, *words)
    [note] = notes(1)
    lab.run("-n", "job", "--notify", WRITE, "true")  # the run goes on, and is not notified again
    skipped = notes(2)[1]
    run.stdin.close()

    assert re.fullmatch(
        r"job\|overdue\|\|job: pid \d+ is overdue: it has run for \d+s, usually ([\d.]+m?s to )?[\d.]+m?s",
        note,
    )
    assert skipped.startswith("job|skipped|75|") and run.wait(PATIENCE) == 0 and len(notes(2)) == 2


# --- --notify-on and the output ------------------------------------------------------------------

EVENT = 'echo "$SOLO_OUTCOME ${SOLO_STATUS:-start}" >>$LAB/notes; '


@pytest.mark.parametrize(
    "on, script, wanted",
    [
        ("ended", "exit 0", ["ok 0"]),
        ("ended", "exit 3", ["failed 3"]),
        ("started,ended", "exit 0", ["running start", "ok 0"]),
        ("started,failed", "exit 3", ["running start", "failed 3"]),
    ],
)
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_line_runs_at_the_chosen_events_in_their_order(lab, notes, words, on, script, wanted):
    """Each event begins once the line of the one before has ended."""
    line = 'test "$SOLO_STATUS" || sleep 0.2; ' + EVENT
    run = ("--notify", line, "--notify-on", on, *words, "-n", "job", "--", "sh", "-c", script)
    lab.run(*run)

    assert notes(len(wanted)) == wanted


def test_line_does_not_run_at_other_events(lab, notes):
    lab.hold("busy")
    for on, name in (("failed,started", "busy"), ("skipped,ended", "new"), ("started", "new")):
        script = "/nonexistent" if name == "new" else "true"
        lab.run("--notify", EVENT, "--notify-on", on, "-n", name, script)
    lab.run("--notify", EVENT, "--notify-on", "skipped", *FAIL)
    lab.run("--notify", EVENT, "--notify-on", "failed", *FAIL)

    assert notes(1) == ["failed 3"]


def test_line_gets_the_output_by_a_path_that_lives_until_it_has_ended(lab, notes):
    line = 'cat "$SOLO_CAPTURED" >>$LAB/notes; echo "$SOLO_CAPTURED" >>$LAB/notes'
    lab.run(
        "--notify", line, "--capture", "keep", "-n", "job", "--", "sh", "-c", "echo out; exit 3"
    )

    text, path = notes(2)
    assert text == "out"
    until(lambda: not os.path.exists(path))


def test_skip_and_run_without_capture_have_no_output(lab, notes):
    lab.hold("job")
    line = 'echo "[$SOLO_CAPTURED]" >>$LAB/notes'
    lab.run("--notify", line, "--capture", "failed", "-n", "job", "true")
    lab.run("--notify", line, "-n", "other", "false")

    assert notes(2) == ["[]", "[]"]
