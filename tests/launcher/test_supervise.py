"""Transparency: the command inherits what it would without solo, its status passes through, signals are forwarded."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, count_injected, finish, inject, read_line, read_state, set_alarm, until, write_program
from fleet import find_children

PROBE = [sys.executable, "-IS", str(ROOT / "tests/probe.py")]
CATCHABLE = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


def read_signals(text, key="SigIgn"):
    """Return the signals in a line of /proc/PID/status, without 32 and 33: posix_spawn(3) leaves those of glibc ignored."""
    text = text.decode() if isinstance(text, bytes) else text
    bits = int(re.search(rf"{key}:\s*(\w+)", text)[1], 16)
    return {number for number in range(1, 65) if bits >> number - 1 & 1} - {32, 33}


# --- exit status -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 75, 255])
def test_exit_status_passes_through(lab, status):
    result = lab.run("-n", "job", "--", "sh", "-c", f"exit {status}")

    assert (result.returncode, result.stdout, result.stderr) == (status, b"", b"")


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 13, 14, 15, signal.SIGXFSZ, signal.SIGRTMIN, signal.SIGRTMAX])
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

    assert (status.si_code, status.si_status) == (os.CLD_KILLED, signal.SIGSEGV)  # and not CLD_DUMPED


@pytest.mark.parametrize(
    "status, command",
    [(126, "plain"), (126, "."), (126, "/etc/passwd"), (127, "absent"), (127, "./absent"), (127, "/etc/passwd/x")],
)
def test_unusable_command_is_one_line_and_126_or_127(lab, status, command):
    (lab.path / "plain").write_text("true\n")

    result = lab.run("-n", "job", "--", lab.path / command if command in ("plain", ".") else command, cwd=lab.path)

    assert (result.returncode, result.stderr.count(b"\n")) == (status, 1)


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


# --- what the command inherits; tests/homes/ has more -------------------------------------------------------------------------------------


def test_launchers_pid_in_environment_becomes_the_commands(lab):
    rename = ("sh", "-c", 'LISTEN_PID=$$ LISTEN_PIDFDID=9 WATCHDOG_PID=$$ SYSTEMD_EXEC_PID=$$ exec "$@"', "sh")
    show = ("-n", "job", "--", "sh", "-c", "echo $$ $LISTEN_PID $LISTEN_PIDFDID $WATCHDOG_PID $SYSTEMD_EXEC_PID")

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


@pytest.mark.parametrize("words", [(), ("--dir", "names")])
def test_launcher_leaves_working_directory(lab, words):
    """Else it would keep the file system busy. A relative --dir is still found at the end."""
    environment = {key: value for key, value in lab.environment.items() if key != "SOLO_DIR" or not words}
    holder = lab.start(*words, "-n", "job", "--", "sh", "-c", "pwd; read line; exit 0", cwd=lab.path, env=environment)

    assert read_line(holder) == str(lab.path)
    until(lambda: os.readlink(f"/proc/{holder.pid}/cwd") == "/")
    finish(holder)
    assert [run["outcome"] for run in lab.history()] == ["ok"] and lab.list() == []


@pytest.mark.tool("strace")
def test_launcher_that_cannot_leave_working_directory_stays(lab):
    """As in a chroot whose root directory it cannot search."""
    result = lab.run("-n", "job", "--", "echo", "ran", prefix=inject(lab, "chdir:error=EACCES"))

    assert (result.returncode, result.stdout, result.stderr, count_injected(lab)) == (0, b"ran\n", b"", 1)


def test_launcher_stays_where_it_finds_its_library_by_a_relative_path(lab):
    """It may load more of it at the end."""
    head = f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {os.path.relpath(ROOT, lab.path)!r})\n"
    lab.script = write_program(lab.path / "relative", head + (ROOT / "solo/__main__.py").read_text())
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo; read line; exit 0", cwd=lab.path)
    read_line(holder)
    until(lambda: re.match(SIGNAL_WAIT, open(f"/proc/{holder.pid}/syscall").read()))

    assert os.readlink(f"/proc/{holder.pid}/cwd") == str(lab.path)
    finish(holder)


def test_unwritable_stderr_changes_no_status(lab):
    lab.hold("job")
    script = "($SOLO -n job true; echo $? >$LAB/log) 2>&1 | true; ulimit -f 0; $SOLO -n other true; echo $?"

    status, out, err = finish(lab.start_shell(script))
    until(lambda: lab.read_log())

    assert (lab.read_log(), out) == (["75"], "125\n")
    assert err.startswith("solo: other: cannot write in ") and err.count("\n") == 1


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

    result = lab.run("-n", "job", "--", "grep", "SigIgn", "/proc/self/status", "/missing", preexec_fn=prepare)

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


def test_launcher_keeps_no_pipe_of_its_caller(lab):
    process = lab.start("-n", "job", "--", "sh", "-c", "exec >/dev/null 2>&1; read line")

    assert process.stdout.read() == b""  # the end, while the command still runs
    assert process.poll() is None
    finish(process)


# --- when the launcher's own calls fail ------------------------------------------------------------------------------


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "failure", ["pwrite64:error=ENOSPC:when=3+", "clone,clone3,fork:error=EAGAIN"], ids=["record", "fork"]
)
def test_command_that_cannot_be_forked_or_recorded_never_starts(lab, failure):
    """The third write puts the command's process into the place that was reserved for it in the record."""
    lab.run("-n", "job", "true")

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=inject(lab, failure))

    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (125, b"", 1)
    assert result.stderr.startswith(b"solo: job: cannot start echo: ")
    assert os.listdir(lab.directory / "job") == [".gate"] and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "failure, paths",
    [("openat:error=EMFILE", ["/proc/self/fd"]), ("flock:error=EIO:when=4+", []), ("rt_sigtimedwait:error=EINVAL", [])],
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
    process = lab.start("-n", "job", "--", "sh", "-c", "echo $$; kill -STOP $$; read line; exit 4", prefix=prefix)
    child = int(read_line(process))
    until(lambda: read_state(child) == "T" and count_injected(lab))

    os.kill(child, signal.SIGCONT)

    assert finish(process)[0] == 4


@pytest.mark.tool("strace")
def test_denied_forwarding_ends_nothing(lab):
    """As with a command that sudo runs as another user."""
    process = lab.hold("job", script="echo $$; read line; exit 4", prefix=inject(lab, "kill:error=EPERM"))

    os.kill(find_children(process.pid)[0], signal.SIGTERM)
    until(lambda: count_injected(lab))

    assert finish(process)[0] == 4


# --- signals -----------------------------------------------------------------------------------------------------


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
    # In a subshell of bash, $PPID and $$ are still the pids of the launcher and the command. The subshell lives until
    # its signal was taken: of a dead sender nothing shows the parent.
    taken = "while grep -q 'ShdPnd:.*200$' /proc/$PPID/status; do :; done; sleep 0.2"
    script = f"trap 'echo caught' USR1; echo ready; kill -USR1 $PPID; (kill -USR1 $PPID; {taken}; kill -USR1 $$); read line; echo done"
    process = lab.start("-n", "job", "--", "bash", "-c", script)
    assert read_line(process) == "ready"
    assert read_line(process) == "caught"  # once: the subshell signaled the command directly

    assert finish(process)[:2] == (0, "done\n")


def test_signal_of_sibling_in_process_group_is_forwarded(lab):
    script = (
        "$SOLO -n job -- sh -c 'trap \"echo caught; exit 3\" USR1; echo ready; while :; do sleep 0.05; done' & "
        "solo=$!; read line; kill -USR1 $solo; wait $solo; echo $?"
    )
    process = lab.start_shell(script)
    assert read_line(process) == "ready"

    assert finish(process, b"\n")[1] == "caught\n3\n"


@pytest.fixture
def catcher(lab):
    """A function that starts a run whose command catches SIGUSR1, and that asserts at the end that it did."""
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


# In /proc/PID/syscall: the number of the call, and for the pause before the launcher stops a timeout as third argument.
SIGNAL_WAIT = r"%d " % {"x86_64": 128, "aarch64": 137}[os.uname().machine]
PAUSE = SIGNAL_WAIT + r"(0x[0-9a-f]+ ){2}0x[1-9a-f]"
KILL = r"%d " % {"x86_64": 62, "aarch64": 129}[os.uname().machine]


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "delay, call, receivers",
    [
        ("rt_sigtimedwait:delay_exit=1500000:when=3", PAUSE, ["launcher"]),  # after SIGTSTP and SIGCHLD
        ("rt_sigtimedwait:delay_exit=1500000:when=3", PAUSE, ["child", "launcher"]),
        ("kill:delay_enter=1500000:when=2", KILL, ["child", "launcher"]),  # the first one forwards
    ],
)
def test_launchers_own_stop_discards_no_sigcont(lab, delay, call, receivers):
    """SIGCONT comes after the launcher has seen that its command stopped, and before it stops itself."""
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
    """Both come after the launcher has seen that its command stopped, and before it stops itself."""
    process = lab.hold("job", prefix=inject(lab, "kill:delay_enter=1500000:when=2"), **STOPPABLE)
    child, [launcher] = process.child, find_children(process.pid)
    os.kill(launcher, signal.SIGTSTP)
    until(lambda: read_state(child) == "T" and re.match(KILL, open(f"/proc/{launcher}/syscall").read()))

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
    words = ["unshare", "--fork", "--pid", "--mount-proc"]
    script = "$SOLO -n job -- sh -c 'trap \"exit 6\" TERM; echo ready; while :; do sleep 0.05; done' & wait $!; echo $?"
    process = lab.start_words(*words, "sh", "-c", script)
    assert read_line(process) == "ready"

    [shell] = find_children(process.pid)
    os.kill(find_children(shell)[0], signal.SIGTERM)

    assert finish(process)[1] == "6\n"
    assert lab.run("-n", "job", "--", "sh", "-c", "(sleep 0.1 &) ; exit 8", prefix=words).returncode == 8
    assert lab.run("-n", "job", "--", "sh", "-c", "kill -KILL $$", prefix=words).returncode == 128 + 9


@pytest.mark.host
@pytest.mark.tool("strace")
@pytest.mark.parametrize("library, option", [("select", "-v"), ("syslog", "--syslog")])
def test_failed_import_for_a_message_does_not_end_launcher(lab, library, option):
    """The command runs: the launcher must keep the name and return the status."""
    path = getattr(__import__(library), "__file__", None) or pytest.skip(f"{library} is built in")
    fail = inject(lab, "openat:error=EMFILE", paths=(path,))

    result = lab.run(option, "-n", "job", "--", "sh", "-c", "exit 3", prefix=fail)

    assert (result.returncode, result.stderr.count(b"bug")) == (3, 0) and count_injected(lab)


def test_variables_of_an_outer_run_do_not_reach_a_run_without_their_options(lab):
    """Also if the outer run is of another host or an engine: only the options of a run say which of them apply."""
    lab.environment.update(SOLO_TTL="15", SOLO_VIA_KEY="solo/a", SOLO_MINE="kept")
    inner = "echo $SOLO_NAME-$SOLO_SLOT-$SOLO_TTL-$SOLO_VIA_KEY-$SOLO_MINE"

    result = lab.run("-n", "a", "--slots", "2", "--", "sh", "-c", f"echo $SOLO_SLOT; $SOLO -n b -- sh -c '{inner}'")

    assert result.stdout == b"0\nb----kept\n"
