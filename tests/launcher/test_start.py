"""Fork and exec: the command inherits what it would without solo, and starts only once it is
recorded; tests/homes/ has more.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import count_injected, finish, inject, write_program


def read_signals(text, key="SigIgn"):
    """Return the signals in a line of /proc/PID/status, without 32 and 33: posix_spawn(3) leaves
    those of glibc ignored.
    """
    text = text.decode() if isinstance(text, bytes) else text
    bits = int(re.search(rf"{key}:\s*(\w+)", text)[1], 16)
    return {number for number in range(1, 65) if bits >> number - 1 & 1} - {32, 33}


def test_script_without_interpreter_line_runs_in_sh(lab):
    script = write_program(lab.path / "script", 'echo "$1"; exit 9\n')

    result = lab.run("-n", "job", script, "word with blanks")

    assert (result.returncode, result.stdout) == (9, b"word with blanks\n")


@pytest.mark.tool("strace")
@pytest.mark.parametrize("error, status", [("E2BIG", 126), ("EACCES", 126), ("ENOENT", 127)])
def test_failed_exec_is_one_line_and_126_or_127(lab, error, status):
    fail = inject(lab, f"execve:error={error}", paths=["/usr/bin/true"], follow=True)

    result = lab.run("-n", "job", "--", "/usr/bin/true", prefix=fail)

    assert result.returncode == status
    assert result.stderr.startswith(b"solo: /usr/bin/true: ") and result.stderr.count(b"\n") == 1


@pytest.mark.host
@pytest.mark.tool("strace")
def test_failure_between_fork_and_exec_is_one_line_and_125(lab):
    """Of all calls of fchdir(2), the only one is the child's."""
    fail = inject(lab, "fchdir:error=EIO", follow=True)

    result = lab.run("-n", "job", "--chdir", lab.path, "--", "echo", "ran", prefix=fail)

    assert (result.returncode, result.stdout, count_injected(lab)) == (125, b"", 1)
    assert result.stderr == b"solo: job: cannot start echo: Input/output error\n"
    assert lab.run("-n", "job", "true").returncode == 0


def test_launchers_pid_in_environment_becomes_the_commands(lab):
    rename = (
        "sh",
        "-c",
        'LISTEN_PID=$$ LISTEN_PIDFDID=9 WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=$$ exec "$@"',
        "sh",
    )
    show = (
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        "echo $$ $LISTEN_PID $LISTEN_PIDFDID $WATCHDOG_PID $SYSTEMD_EXEC_PID",
    )

    output = lab.run(*show, prefix=rename).stdout.split()
    other = lab.run(*show, env={**lab.environment, "LISTEN_PID": "1"}).stdout.split()

    assert len(output) == 4 and len(set(output)) == 1 and other[1:] == [b"1"]


@pytest.mark.parametrize(
    "sender", ["posix.getpid()", "posix.fork() or (posix.kill(posix.getppid(), s), posix._exit(0))"]
)
def test_pending_signal_reaches_command(lab, sender):
    """A blocked signal is still blocked and pending after the exec, as it would be without solo."""
    code = f"""
import posix, sys, _signal
s = _signal.SIGUSR1
_signal.pthread_sigmask(_signal.SIG_BLOCK, {{s}})
sender = {sender}
posix.kill(sender, s) if sender == posix.getpid() else posix.waitpid(sender, 0)
posix.execv(sys.argv[1], sys.argv[1:])
"""
    prefix = (sys.executable, "-IS", "-c", code)

    show = [shutil.which("grep"), "ShdPnd:", "/proc/self/status"]
    bare = subprocess.run([*prefix, *show], capture_output=True, check=True).stdout
    guarded = lab.run("-n", "job", "--", *show, prefix=prefix).stdout

    assert read_signals(guarded, "ShdPnd") == read_signals(bare, "ShdPnd") == {signal.SIGUSR1}


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_descriptors_stay_closed(lab, closed):
    """And no ticket gets their numbers: a message would be written into it."""
    seen, hold = lab.path / "seen", f"{lab.directory}/job/.hold.*"
    script = f"ls /proc/$$/fd >{seen}; exec 2>/dev/null; cat {hold} >{lab.log}"
    streams = dict.fromkeys(("stdin", "stdout", "stderr"))
    words = ("-v", "-n", "job", "--", "sh", "-c", script)
    process = lab.start(*words, **streams, preexec_fn=lambda: [os.close(fd) for fd in closed])

    assert finish(process)[0] == 0
    inherited = {int(fd) for fd in seen.read_text().split()}
    assert not inherited & (set(closed) - {1})  # sh opened 1 itself, for `ls >seen`
    assert not closed == (1,) or inherited >= {0, 2}
    assert lab.log.read_text().endswith("\nend\n") and "solo:" not in lab.log.read_text()


def test_ignored_sigchld_is_inherited_and_hides_no_status(lab):
    def prepare():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    result = lab.run(
        "-n", "job", "--", "grep", "SigIgn", "/proc/self/status", "/missing", preexec_fn=prepare
    )

    assert (result.returncode, read_signals(result.stdout)) == (2, {signal.SIGCHLD})


def test_names_and_arguments_may_be_any_bytes(lab):
    word, name = b"\xff\xfe\x80 \n", b"n\xe4me"

    show = ("--", "sh", "-c", 'printf "%s|%s" "$SOLO_NAME" "$1"', "sh", word)
    result = lab.run("-n", name, *show, env={**lab.environment, "LC_ALL": "C"})

    assert result.stdout == name + b"|" + word


def test_ten_thousand_arguments_arrive_and_are_recorded(lab):
    words = list(map(str, range(10000)))

    result = lab.run("-n", "job", "--", "sh", "-c", 'echo $#; "$0" list --json', lab.script, *words)

    count, _, listed = result.stdout.decode().partition("\n")
    assert count == "10000"
    assert json.loads(listed)[0]["command"][-10000:] == words


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "failure",
    ["pwrite64:error=ENOSPC:when=3+", "clone,clone3,fork:error=EAGAIN"],
    ids=["record", "fork"],
)
def test_command_that_cannot_be_forked_or_recorded_never_starts(lab, failure):
    """The third write puts the command's process into the place that was reserved for it in the
    record.
    """
    lab.run("-n", "job", "true")

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=inject(lab, failure))

    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (125, b"", 1)
    assert result.stderr.startswith(b"solo: job: cannot start echo: ")
    assert (
        os.listdir(lab.directory / "job") == [".gate"]
        and lab.run("-n", "job", "true").returncode == 0
    )


@pytest.mark.parametrize(
    "line, reason",
    [
        ("#!{0}/other", "its loader was not found"),
        ("#!/no/such\0x", "its interpreter /no/such was not found"),
        ("#!/no/such\r", "its interpreter /no/such\\r was not found"),
        ("#! /no/such -x", "its interpreter /no/such was not found"),
    ],
)
def test_missing_interpreter_is_named(lab, line, reason):
    script = write_program(lab.path / "script", f"{line.format(lab.path)}\ntrue\n")
    write_program(lab.path / "other", "#!/no/such\n")

    result = lab.run("-n", "job", script)

    assert (result.returncode, result.stderr.decode()) == (127, f"solo: {script}: {reason}\n")


@pytest.mark.tool("strace")
def test_script_removed_before_exec_is_not_found(lab):
    script = write_program(lab.path / "script", "#!/bin/sh\n")
    gone = inject(lab, "execve:error=ENOENT", "openat:error=ENOENT", paths=[script], follow=True)

    result = lab.run("-n", "job", script, prefix=gone)

    assert (result.returncode, result.stderr.decode()) == (
        127,
        f"solo: {script}: No such file or directory\n",
    )
