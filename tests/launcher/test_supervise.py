"""While the command runs: signals and stops are forwarded, once; its status is that of the
launcher, which keeps nothing.
"""

import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from conftest import (
    LIVE,
    ROOT,
    count_injected,
    finish,
    inject,
    read_line,
    read_state,
    set_alarm,
    until,
    write_program,
)
from fleet import find_children
from observed import HEARING

PROBE = [sys.executable, "-IS", str(ROOT / "tests/probe.py")]
CATCHABLE = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


# --- exit status----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 75, 255])
def test_exit_status_passes_through(lab, status):
    result = lab.run("-n", "job", "--", "sh", "-c", f"exit {status}")

    assert (result.returncode, result.stdout, result.stderr) == (status, b"", b"")


@pytest.mark.parametrize(
    "number", [1, 2, 3, 6, 9, 11, 13, 14, 15, signal.SIGXFSZ, signal.SIGRTMIN, signal.SIGRTMAX]
)
def test_death_by_signal_is_mirrored(lab, number):
    reset = "" if number == signal.SIGKILL else f"_signal.signal({number}, _signal.SIG_DFL)"
    code = f"import os, _signal\n{reset}\nos.kill(os.getpid(), {number})"

    words = ("-n", "job", "--", sys.executable, "-IS", "-c", code)
    result = lab.run(*words, cwd=lab.path, preexec_fn=allow_cores)

    assert result.returncode == -number


def allow_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)


def test_launcher_dumps_no_core(lab):
    command = ("-n", "job", "--", "sh", "-c", "ulimit -c 0; kill -SEGV $$")
    process = lab.start(*command, cwd=lab.path, preexec_fn=allow_cores)

    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert (status.si_code, status.si_status) == (
        os.CLD_KILLED,
        signal.SIGSEGV,
    )  # and not CLD_DUMPED


# --- what the launcher keeps----------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--dir", "names")])
def test_launcher_leaves_working_directory(lab, words):
    """Else it would keep the file system busy. A relative --dir is still found at the end."""
    environment = {
        key: value for key, value in lab.environment.items() if key != "SOLO_DIR" or not words
    }
    holder = lab.start(
        *words,
        "-n",
        "job",
        "--",
        "sh",
        "-c",
        "pwd; read line; exit 0",
        cwd=lab.path,
        env=environment,
    )

    assert read_line(holder) == str(lab.path)
    until(lambda: os.readlink(f"/proc/{holder.pid}/cwd") == "/")
    finish(holder)
    assert [run["outcome"] for run in lab.history()] == ["ok"] and lab.list() == []


@pytest.mark.tool("strace")
def test_launcher_that_cannot_leave_working_directory_stays(lab):
    """As in a chroot whose root directory it cannot search."""
    result = lab.run("-n", "job", "--", "echo", "ran", prefix=inject(lab, "chdir:error=EACCES"))

    assert (result.returncode, result.stdout, result.stderr, count_injected(lab)) == (
        0,
        b"ran\n",
        b"",
        1,
    )


def test_launcher_stays_where_it_finds_its_library_by_a_relative_path(lab):
    """It may load more of it at the end."""
    head = f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {os.path.relpath(ROOT, lab.path)!r})\n"
    lab.script = write_program(
        lab.path / "relative", head + (ROOT / "solo/__main__.py").read_text()
    )
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo; read line; exit 0", cwd=lab.path)
    read_line(holder)
    until(lambda: re.match(SIGNAL_WAIT, open(f"/proc/{holder.pid}/syscall").read()))

    assert os.readlink(f"/proc/{holder.pid}/cwd") == str(lab.path)
    finish(holder)


def test_launcher_keeps_no_pipe_of_its_caller(lab):
    process = lab.start("-n", "job", "--", "sh", "-c", "exec >/dev/null 2>&1; read line")

    assert process.stdout.read() == b""  # the end, while the command still runs
    assert process.poll() is None
    finish(process)


# --- when the launcher's own calls fail-----------------------------------------------------------


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "failure, paths",
    [
        ("openat:error=EMFILE", ["/proc/self/fd"]),
        ("flock:error=EIO:when=4+", []),
        ("rt_sigtimedwait:error=EINVAL", []),
    ],
    ids=["list descriptors", "unlock", "wait"],
)
def test_failure_around_the_command_changes_no_status(lab, failure, paths):
    lab.run("-n", "job", "true")

    for words in ((), ("--timeout", "1h")):
        fail = inject(lab, failure, paths=paths)
        result = lab.run(*words, "-n", "job", "--", "sh", "-c", "exit 4", prefix=fail)

        assert (result.returncode, result.stderr.count(b"solo: ")) == (4, 0) and count_injected(lab)
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.tool("strace")
def test_failed_reaction_loses_one_signal_only(lab):
    """waitpid(2) fails for the stop of the command, not for its end."""
    prefix = inject(lab, "wait4:error=EINVAL:when=1")
    process = lab.start(
        "-n", "job", "--", "sh", "-c", "echo $$; kill -STOP $$; read line; exit 4", prefix=prefix
    )
    child = int(read_line(process))
    until(lambda: read_state(child) == "T" and count_injected(lab))

    os.kill(child, signal.SIGCONT)

    assert finish(process)[0] == 4


@pytest.mark.tool("strace")
def test_denied_forwarding_ends_nothing(lab):
    """As with a command that sudo runs as another user."""
    process = lab.hold(
        "job", script="echo $$; read line; exit 4", prefix=inject(lab, "kill:error=EPERM")
    )

    os.kill(find_children(process.pid)[0], signal.SIGTERM)
    until(lambda: count_injected(lab))

    assert finish(process)[0] == 4


# --- signals--------------------------------------------------------------------------------------


def test_every_catchable_signal_is_forwarded_once_and_in_order(lab):
    process = lab.start("-n", "job", *PROBE)
    read_line(process)
    sent = [number for number in CATCHABLE if number != signal.SIGTERM] + [signal.SIGTERM]

    received = []
    for number in sent:
        os.kill(process.pid, number)
        received.append(int(read_line(process)))

    assert received == sent
    assert finish(process) == (0, "", "")


def test_alarm_set_before_solo_reaches_command(lab):
    assert lab.run("-n", "job", "sleep", "60", prefix=set_alarm()).returncode == -signal.SIGALRM


def test_inherited_ignored_signal_ends_nothing(lab):
    process = lab.hold("job", script="echo $$; read line; exit 5", prefix=("nohup",))

    os.kill(process.pid, signal.SIGHUP)

    assert finish(process)[0] == 5


def test_signal_ends_only_the_waiter(lab):
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", tag="waiter")

    waiter.terminate()

    assert finish(waiter) == (-signal.SIGTERM, "", "")
    finish(holder)
    assert (lab.read_log(), lab.list()) == ([], [])


def test_signal_of_command_or_descendant_is_not_forwarded(lab):
    # In a subshell of bash, $PPID and $$ are still the pids of the launcher and the command. The
    # subshell lives until the launcher has taken its signal and sleeps again: of a dead sender
    # nothing shows the parent.
    taken = "until grep -q 'State:.S' /proc/$PPID/status && grep -q 'ShdPnd:.0*$' /proc/$PPID/status; do :; done"
    traps = "trap 'echo own' USR1; trap 'echo of descendant' USR2; trap 'echo direct' HUP"
    script = f"{traps}; echo ready; kill -USR1 $PPID; (kill -USR2 $PPID; {taken}; kill -HUP $$); read line; echo done"
    process = lab.start("-n", "job", "--", "bash", "-c", script)
    assert read_line(process) == "ready"
    assert read_line(process) == "direct"

    assert finish(process)[:2] == (0, "done\n")


def test_signal_of_sibling_in_process_group_is_forwarded(lab):
    script = (
        f"$SOLO -n job -- sh -c 'trap \"echo caught; exit 3\" USR1; echo ready; {LIVE}' & "
        "solo=$!; read line; kill -USR1 $solo; wait $solo; echo $?"
    )
    process = lab.start_shell(script)
    assert read_line(process) == "ready"

    assert finish(process, b"\n")[1] == "caught\n3\n"


@pytest.fixture
def catcher(lab):
    """A function that starts a run whose command catches SIGUSR1, and that asserts at the end that
    it did.
    """
    started = []

    def start(**options):
        script = "trap 'echo caught' USR1; echo $$; while [ ! -e $LAB/over ]; do sleep 0.02; done"
        started.append(lab.hold("job", script=script, **options))
        return started[-1]

    yield start
    assert read_line(started[0]) == "caught"
    (lab.path / "over").touch()
    finish(started[0])


def test_signal_of_dead_sender_is_forwarded(catcher):
    process = catcher()
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: read_state(process.pid) == "T")
    subprocess.run(["sh", "-c", f"kill -USR1 {process.pid}"], check=True)

    os.kill(process.pid, signal.SIGCONT)


def test_signal_of_false_systemd_is_forwarded(lab, catcher):
    (lab.path / "systemd").symlink_to("/bin/sh")

    lab.start_words(lab.path / "systemd", "-c", f"kill -USR1 {catcher().pid}; read line")


@pytest.mark.tool("strace")
def test_signal_of_unreadable_sender_is_forwarded(lab, catcher):
    """/proc/PID/stat of the sender reads as empty."""
    process = catcher(prefix=inject(lab, "read:retval=0", paths=[f"/proc/{os.getpid()}/stat"]))

    os.kill(find_children(process.pid)[0], signal.SIGUSR1)

    until(lambda: count_injected(lab))


STOPPABLE = {"script": "echo $$; read line; exit 4", "preexec_fn": os.setpgrp}


# In /proc/PID/syscall: the number of the call, and for the pause before the launcher stops a
# timeout as third argument.
SIGNAL_WAIT = r"%d " % {"x86_64": 128, "aarch64": 137}[os.uname().machine]
PAUSE = SIGNAL_WAIT + r"(0x[0-9a-f]+ ){2}0x[1-9a-f]"
KILL = r"%d " % {"x86_64": 62, "aarch64": 129}[os.uname().machine]


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "delay, call, receivers",
    [
        (
            "rt_sigtimedwait:delay_exit=1500000:when=3",
            PAUSE,
            ["launcher"],
        ),  # after SIGTSTP and SIGCHLD
        ("rt_sigtimedwait:delay_exit=1500000:when=3", PAUSE, ["child", "launcher"]),
        ("kill:delay_enter=1500000:when=2", KILL, ["child", "launcher"]),  # the first one forwards
    ],
)
def test_launchers_own_stop_discards_no_sigcont(lab, delay, call, receivers):
    """SIGCONT comes after the launcher has seen that its command stopped, and before it stops
    itself.
    """
    process = lab.hold("job", prefix=inject(lab, delay), **STOPPABLE)
    pids = {"child": process.child, "launcher": find_children(process.pid)[0]}
    os.kill(pids["launcher"], signal.SIGTSTP)
    until(lambda: (read_state(pids["child"]), read_state(pids["launcher"])) == ("T", "t"))
    until(lambda: re.match(call, open(f"/proc/{pids['launcher']}/syscall").read()))

    for receiver in receivers:
        os.kill(pids[receiver], signal.SIGCONT)

    assert finish(process)[0] == 4


@pytest.mark.tool("strace")
def test_stop_after_sigcont_stops_again(lab):
    """Both come after the launcher has seen that its command stopped, and before it stops
    itself.
    """
    process = lab.hold("job", prefix=inject(lab, "kill:delay_enter=1500000:when=2"), **STOPPABLE)
    child, [launcher] = process.child, find_children(process.pid)
    os.kill(launcher, signal.SIGTSTP)
    until(
        lambda: (
            read_state(child) == "T" and re.match(KILL, open(f"/proc/{launcher}/syscall").read())
        )
    )

    os.kill(child, signal.SIGCONT)
    for number in (signal.SIGCONT, signal.SIGTSTP):
        os.kill(launcher, number)
    until(lambda: read_state(child) == "T")

    os.kill(launcher, signal.SIGCONT)
    assert finish(process)[0] == 4


@pytest.mark.parametrize("stop", [signal.SIGSTOP, signal.SIGTSTP])
def test_stop_of_command_alone_leaves_launcher_running(lab, stop):
    process = lab.hold("job", script="echo $$; read line; exit 4", start_new_session=True)
    child = process.child

    os.kill(child, stop)
    # The kernel drops SIGTSTP for an orphaned process group, so that nothing shows it.
    if stop == signal.SIGSTOP:
        until(lambda: read_state(child) == "T")
    os.kill(child, signal.SIGCONT)
    until(lambda: read_state(child) == "S")

    assert finish(process)[0] == 4


def test_stop_of_command_alone_is_mirrored_on_a_terminal(lab, terminal):
    """As `suspend` in a shell does it. The shell on the terminal must see the stop."""
    line = "$SOLO -n job -- sh -c 'kill -STOP $$; exit 6'; echo stopped $?; fg; echo end $?"

    screen = terminal("bash", "--norc", "-ic", line).read_to_end()

    assert b"stopped 147" in screen and b"end 6" in screen


def test_command_stops_and_continues_with_launcher(lab):
    # In its own process group below this one: the kernel drops SIGTSTP for an orphaned group.
    process = lab.hold("job", **STOPPABLE)

    os.kill(process.pid, signal.SIGTSTP)
    until(lambda: (read_state(process.pid), read_state(process.child)) == ("T", "T"))
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: read_state(process.child) != "T" != read_state(process.pid))

    assert finish(process)[0] == 4


@pytest.mark.parametrize("is_whole_group", [False, True])
def test_quick_stop_and_continue_leave_both_running(lab, is_whole_group):
    process = lab.hold("job", **STOPPABLE)
    send = os.killpg if is_whole_group else os.kill
    for number in range(150):
        send(process.pid, signal.SIGTSTP)
        for _ in range(number * 20):
            pass  # some microseconds, a few more each time
        send(process.pid, signal.SIGCONT)
        until(lambda: read_state(process.child) in "SR" and read_state(process.pid) in "SR")

    assert finish(process)[0] == 4


def test_stop_signal_caught_by_command_is_forgotten(lab):
    process = lab.start("-n", "job", *PROBE, preexec_fn=os.setpgrp)
    child = int(read_line(process).split()[1])
    for number in (signal.SIGTSTP, signal.SIGCONT):  # the probe only prints them
        os.kill(process.pid, number)
        assert int(read_line(process)) == number

    os.kill(child, signal.SIGSTOP)
    until(lambda: read_state(child) == "T")
    os.kill(child, signal.SIGCONT)
    assert int(read_line(process)) == signal.SIGCONT

    os.kill(process.pid, signal.SIGTERM)  # a stopped launcher would not forward it
    assert finish(process)[0] == 0


@pytest.mark.tool("unshare")
@pytest.mark.root
def test_signals_and_statuses_pass_in_a_pid_namespace(lab):
    """sh is process 1 there and solo its child. SIGTERM comes from outside, where si_pid is 0."""
    words = ["unshare", "--fork", "--pid", "--mount-proc", *HEARING]
    script = f"$SOLO -n job -- sh -c 'trap \"exit 6\" TERM; echo ready; {LIVE}' & wait $!; echo $?"
    process = lab.start_words(*words, "sh", "-c", script)
    assert read_line(process) == "ready"

    [shell] = find_children(process.pid)
    os.kill(find_children(shell)[0], signal.SIGTERM)

    assert finish(process)[1] == "6\n"
    assert (
        lab.run(
            "-n", "job", "--", "sh", "-c", "(sleep 9 >/dev/null 2>&1 &) ; exit 8", prefix=words
        ).returncode
        == 8
    )
    assert (
        lab.run("-n", "job", "--", "sh", "-c", "kill -KILL $$", prefix=words).returncode == 128 + 9
    )
