"""--notify: a shell command that runs in the background after a skip or a bad end."""

import os
import re
import signal
import subprocess

import pytest
from conftest import PATIENCE, count_injected, finish, inject, read_state, until, wait_dead
from test_views import parse_metrics

import solo
from solo.history.usual import FEWEST

WRITE = 'printf "%s|%s|%s|%s\\n" "$SOLO_NAME" "$SOLO_OUTCOME" "$SOLO_STATUS" "$SOLO_MESSAGE" >>$LAB/notes'
FAIL = ("-n", "job", "--", "sh", "-c", "exit 3")


@pytest.fixture
def notes(lab):
    """Return a function that waits for a number of lines in the file `notes`, and returns all of them."""
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
        (("sh", "-c", "exit 3"), 3, "job|failed|3|job: pid N ended with exit status 3 after Ns"),
        (("sh", "-c", "kill -KILL $$"), -9, "job|signaled|137|job: pid N ended by SIGKILL after Ns"),
        (("-t", "100ms", "sleep", "99"), 124, "job|timed out|124|job: pid N timed out and ended by SIGTERM after Ns"),
        (("nosuchprogram",), 127, "job|refused|127|not started: job: nosuchprogram: command not found (in the PATH N)"),
        (("--slots", "0", "true"), 125, "job|refused|125|not started: job: --slots must be at least 1"),
    ],
)
def test_bad_end_is_notified(lab, notes, words, status, note):
    assert lab.run("--notify", WRITE, "-n", "job", *words).returncode == status

    assert re.sub(r"pid \d+", "pid N", re.sub(r"(after|PATH) [^)\s]+", r"\1 N", notes(1)[0])) == note.replace(
        "after Ns", "after N"
    )


def test_notification_reads_an_empty_stdin(lab, notes):
    lab.run("--notify", "cat && echo read >>$LAB/notes", "-n", "job", "false")

    assert notes(1) == ["read"]


def test_skip_is_notified_with_its_holder(lab, notes):
    holder = lab.hold("job", "--note", "until noon")
    write = 'printf "%s\\n" "$SOLO_OUTCOME $SOLO_STATUS $SOLO_HOLDER_PID" "$SOLO_HOLDER_NOTE" "$SOLO_HOLDER_SINCE" "$SOLO_HOLDER_COMMAND" >>$LAB/notes'

    assert lab.run("--notify", write, "-n", "job", "true").returncode == 75

    [row] = lab.list()
    assert notes(4) == [f"skipped 75 {holder.pid}", "until noon", row["since"], " ".join(row["command"])]


def test_seconds_of_the_run_are_passed(lab, notes):
    lab.run("--notify", 'echo "$SOLO_RAN" >>$LAB/notes', "-t", "200ms", "-n", "job", "sleep", "99")

    assert 0.2 <= float(notes(1)[0]) < PATIENCE


def test_command_that_was_not_found_is_notified_without_a_name(lab, notes):
    lab.run("--notify", WRITE, "nosuchprogram")

    assert notes(1)[0].startswith("|refused|127|not started: nosuchprogram: command not found (in the PATH /")


def test_success_and_a_run_of_this_period_are_not_notified(lab, notes):
    for words in (("true",), ("--once-per", "1h", "true"), ("--once-per", "1h", "true")):
        assert lab.run("--notify", WRITE, "-n", "job", *words).returncode == 0
    lab.run("--notify", WRITE, *FAIL)

    assert [note.split("|")[1] for note in notes(1)] == ["failed"]


def test_quiet_skip_is_notified_only_once_it_is_loud(lab, notes):
    lab.hold("job")
    for words in (("-q",), ("--loud-after", "3"), ("-q", "--loud-after", "3"), ("-q", "--loud-after", "3")):
        lab.run(*words, "-E", "0", "--notify", WRITE, "-n", "job", "true")

    assert [note.split("|")[1:3] for note in notes(1)] == [["skipped", "75"]]


def test_no_notification_if_the_launcher_is_killed(lab, notes):
    process = lab.start("--notify", WRITE, "-n", "job", "--no-orphan", "--", "sh", "-c", "echo; read line")
    process.stdout.readline()
    process.kill()
    process.wait()

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

    assert (result.returncode, lab.run("-n", "job", "true").returncode) == (75 if is_skipped else 3, 0)
    watcher = int(open(f"/proc/{ended[0]}/stat").read().split()[3])
    for pid in (watcher, *ended):
        folder = f"/proc/{pid}/fd"
        assert {os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)} == {"/dev/null"}
    assert os.getsid(int(ended[0])) == watcher
    status = open(f"/proc/{ended[0]}/status").read()
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    ours = sum(
        1 << number - 1 for number in signal.valid_signals()
    )  # posix_spawn(3), as in make, ignores one of libc's
    assert (int(masks["SigBlk"], 16) & ours, int(masks["SigIgn"], 16) & ours) == (0, 0)
    assert find_unnotified(lab) == []


def test_name_is_free_when_the_notification_runs(lab, notes):
    lab.run("--notify", "$SOLO -n job true; echo $? >>$LAB/notes", *FAIL)

    assert notes(1) == ["0"]


@pytest.mark.parametrize("is_skipped", [False, True])
def test_notification_has_the_directory_and_umask_of_solo(lab, notes, is_skipped):
    if is_skipped:
        lab.hold("job")
    (lab.path / "here").mkdir()

    lab.run("--notify", "(pwd -P; umask) >>$LAB/notes", *FAIL, cwd=lab.path / "here", umask=0o027)

    assert notes(2) == [f"{lab.path}/here", "0027"]


def test_notification_runs_in_the_root_if_the_directory_is_gone(lab, notes):
    (lab.path / "here").mkdir()

    lab.run(
        "--notify",
        "pwd >>$LAB/notes",
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        f"rmdir {lab.path}/here; false",
        cwd=lab.path / "here",
    )

    assert notes(1) == ["/"]


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
    assert [row["outcome"] for row in lab.history()] == ["failed", "unnotified"]
    metrics = parse_metrics(lab.run("metrics").stdout.decode())
    assert metrics["solo_failures_total", "job", "file"] == metrics["solo_runs_total", "job", "file"] == 1


def test_notification_of_a_skip_that_fails_is_in_the_history(lab):
    lab.hold("job")
    lab.run("--notify", "exit 4", "-n", "job", "true")

    until(lambda: find_unnotified(lab))
    assert [row["outcome"] for row in lab.history()] == ["running", "skipped", "unnotified"]


def test_hanging_notification_is_killed_with_its_group(lab, notes, ended):
    lab.hasten("solo.process.notify.LIMIT", 1)
    lab.run("--notify", "trap '' TERM; sleep 600 & echo $$ >>$LAB/notes; echo $! >>$LAB/notes; wait", *FAIL)
    ended += notes(2)

    for pid in ended:
        wait_dead(int(pid))
    until(lambda: find_unnotified(lab))
    assert find_unnotified(lab)[0]["reason"] == "--notify was killed: it ran for more than 1s"


def test_output_of_a_notification_is_discarded(lab, notes):
    result = lab.run("--notify", "head -c 100000000 /dev/zero; echo x >&2; echo done >>$LAB/notes", *FAIL)

    assert notes(1) == ["done"] and (result.stdout, result.stderr) == (b"", b"")


def test_daemon_of_a_notification_lives_on(lab, notes, ended):
    lab.run("--notify", "sleep 600 & echo $! >>$LAB/notes", *FAIL)
    ended += notes(1)
    lab.run("--notify", "exit 4", *FAIL)
    until(lambda: find_unnotified(lab))

    assert read_state(int(ended[0])) == "S" and len(find_unnotified(lab)) == 1
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
    """Start a run whose notification waits for a line in a FIFO. Return it once the notification runs."""
    os.mkfifo(lab.path / "fifo")
    line = "echo start >>$LAB/notes; read line <$LAB/fifo; echo end >>$LAB/notes"
    process = lab.start("--notify", line, *FAIL, prefix=prefix)
    until(lambda: (lab.path / "notes").exists())
    return process


MAIN = ("sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh")
FIRST = ("unshare", "--fork", "--pid", "--mount-proc", "--")
OLD_MAIN = (*FIRST, "sh", "-c", 'INVOCATION_ID=x "$@"; exit $?', "sh")


@pytest.mark.parametrize("prefix", [MAIN, OLD_MAIN, FIRST], ids=["unit", "unit-of-old-systemd", "process-1"])
def test_main_process_waits_for_the_notification(lab, notes, prefix):
    if prefix is not MAIN and subprocess.run([*FIRST, "true"]).returncode:
        pytest.skip("no pid namespace")
    process = start_with_fifo(lab, prefix)
    next_one = lab.run("-n", "job", "true").returncode
    is_running = process.poll() is None
    (lab.path / "fifo").write_text("\n")

    assert finish(process)[0] == 3
    assert (is_running, next_one, (lab.path / "notes").read_text()) == (True, 0, "start\nend\n")


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


# --- elsewhere


def test_solo_run_has_notify(lab, files, notes, monkeypatch):
    monkeypatch.setenv("LAB", str(lab.path))

    assert solo.run(["sh", "-c", "exit 3"], name="job", notify=WRITE).returncode == 3

    assert notes(1)[0].startswith("job|failed|3|")


def test_hold_refuses_notify(lab):
    result = lab.run("hold", "--notify", "true", "--for", "1h", "job")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert b"no such option of solo hold (the script gets the status" in result.stderr


def test_skip_by_sockets_is_notified(lab, notes):
    lab.use_sockets()
    lab.environment.pop("SOLO_DIR")
    holder = lab.hold("job")

    lab.run("--notify", 'echo "$SOLO_OUTCOME $SOLO_HOLDER_PID" >>$LAB/notes', "-n", "job", "true")

    assert notes(1) == [f"skipped {holder.pid}"]


# --- a run that takes longer than usual --------------------------------------------------------------------------

# As the program solo, but a run is overdue after fewer seconds than a minute.
HASTY = """
from solo.history import usual
from solo.main import main
usual.LEAST_OVERDUE = float(sys.argv.pop(1))
main()
"""


@pytest.mark.parametrize("options", [(), ("--tree",), ("-t", "1m")], ids=str)
def test_overdue_run_is_notified_once(lab, notes, options):
    words = ("-n", "job", *options, "--", "sh", "-c", "read line; exit 0")
    for _ in range(FEWEST):
        lab.run(*words)

    run = lab.start_code(HASTY, 0.01, "--notify", WRITE, *words)
    [note] = notes(1)
    lab.run("-n", "job", "--notify", WRITE, "true")  # the run goes on, and is not notified again
    skipped = notes(2)[1]
    run.stdin.close()

    assert re.fullmatch(r"job\|overdue\|\|job: pid \d+ is overdue: it has run for 0s, usually \d+ms", note)
    assert skipped.startswith("job|skipped|75|") and run.wait(PATIENCE) == 0 and len(notes(2)) == 2


def test_run_without_a_usual_duration_is_never_overdue(lab, notes):
    run = lab.start_code(HASTY, 0.01, "--notify", WRITE, "-n", "job", "--", "sh", "-c", "read line; exit 3")
    until(lambda: lab.find_journal("job").exists())
    run.stdin.close()

    assert run.wait(PATIENCE) == 3 and re.match(r"job\|failed\|3\|", notes(1)[0])
