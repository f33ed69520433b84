"""solo.run: subprocess.run under a lock. Its results, errors and options, and signals to the
launcher.
"""

import math
import os
import re
import select
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from conftest import PATIENCE, do_when, finish, read_line, read_state, until, wait_dead

import solo
from solo.api.status_pipe import REPORT_LIMIT, Report, read_last
from solo.directories import LONGEST_NAME


def test_result_is_that_of_subprocess_run(files):
    done = solo.run(
        ["sh", "-c", "cat; echo err >&2; exit 75"],
        name="job",
        input="in",
        capture_output=True,
        text=True,
    )

    assert (done.args[0], done.returncode, done.stdout, done.stderr) == ("sh", 75, "in", "err\n")
    with pytest.raises(subprocess.CalledProcessError):
        solo.run(["false"], name="job", check=True)


@pytest.mark.parametrize(
    "error, argv, options",
    [
        (solo.NotFound, ["/no/such"], {}),
        (solo.NotExecutable, ["/etc/passwd"], {}),
        (solo.NotExecutable, ["x" * 100_000], {}),  # a message longer than the launcher may report
        (solo.UsageError, ["true"], {"shared": True, "slots": 3}),
        (solo.UsageError, ["true"], {"wait": True}),
        (solo.UsageError, ["true"], {"name": b"job"}),
        (solo.UsageError, ["true"], {"directory": ""}),
        (TypeError, ["true"], {"directory": 5}),
        (TypeError, ["true"], {"flock": 5}),
        (solo.UsageError, ["true"], {"shell": True}),
        (solo.UsageError, ["true"], {"executable": "/bin/true"}),
        (subprocess.TimeoutExpired, ["sleep", "99"], {"timeout": 0.2}),
        (subprocess.TimeoutExpired, ["sleep", "99"], {"timeout": 1e-6}),
    ],
)
def test_error_of_the_launcher_is_raised(files, error, argv, options):
    with pytest.raises(error):
        solo.run(argv, **{"name": "job", **options})


def test_status_is_that_of_the_command_though_sigchld_is_ignored(lab):
    """No program can wait for a child then: subprocess.run returns 0."""
    code = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print([solo.run(["sh", "-c", line], name="job").returncode for line in ("exit 3", "kill -9 $$", "")])
"""

    assert lab.run_code(code) == (0, "[3, -9, 0]\n", "")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"latest": True}, "latest needs wait"),
        ({"shared": True, "slots": 3}, "shared and slots exclude each other"),
        ({"latest": True, "wait": 9, "max_waiting": 2}, "max_waiting and latest exclude"),
        ({"wait": 9, "max_waiting": 2, "replace_after": 3}, "replace_after and max_waiting excl"),
        ({"slots": 2, "take": 3}, "take must be at least 1"),
        ({"kill_after": 3}, "kill_after needs timeout, replace, replace_after, tree or an engine"),
        ({"once_per": math.inf}, "once_per must be at least 1ms"),
        ({"quiet": True}, "solo.run cannot use quiet="),
        ({"busy_exit": 3}, "solo.run cannot use busy_exit="),
        ({"capture": "failed"}, "solo.run cannot use capture="),
        ({"replace_after": True}, "replace_after=True: not a number"),
        ({"name": []}, "a name may not be empty"),
    ],
)
def test_usage_error_speaks_of_keywords(files, options, message):
    with pytest.raises(solo.UsageError, match=f"^{re.escape(message)}"):
        solo.run(["true"], **{"name": "job", **options})


@pytest.mark.parametrize(
    "text, out, err", [(False, b"out\xff\n", b"err\n"), (True, "out\ufffd\n", "err\n")]
)
@pytest.mark.parametrize("end", ["exec sleep 999", "exit 7"])
def test_timeout_does_not_wait_for_a_descendant_that_keeps_the_output(
    lab, files, end, text, out, err
):
    """The descendant ends after a while, so that a run that waits for it fails and does not
    hang.
    """
    pid = lab.path / "pid"
    words = ["sh", "-c", f"printf 'out\\377\\n'; echo err >&2; sleep 20 & echo $! >{pid}; {end}"]
    options = {"capture_output": True, "text": text, "encoding": text and "utf-8" or None}

    with pytest.raises(subprocess.TimeoutExpired) as expired:
        solo.run(words, name="job", timeout=1, **options)

    descendant = int(pid.read_text())
    assert read_state(descendant) == "S"
    assert expired.value.stdout == out and expired.value.stderr.startswith(err)
    os.kill(descendant, signal.SIGKILL)
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.parametrize("timeout", [60, 3e6, 1e300, math.inf])
def test_input_is_sent_after_a_wait_with_a_timeout(lab, files, timeout):
    holder, data = lab.hold("job"), os.urandom(1 << 20)
    do_when(lambda: lab.count_waiting("job"), holder.stdin.close)

    done = solo.run(
        ["cat"], name="job", wait=math.inf, timeout=timeout, input=data, capture_output=True
    )

    assert done.stdout == data


def test_busy_has_the_holders_in_any_directory(lab, files, monkeypatch):
    holder = lab.hold("job")
    by_bytes = {b"SOLO_DIR": os.fsencode(lab.directory)}
    relative = {"directory": lab.directory.name, "cwd": lab.path}
    for options in (
        {"wait": 0.1},
        relative,
        {"env": os.environ},
        {"env": os.environb},
        {"env": by_bytes},
    ):
        if options == {"env": by_bytes}:
            monkeypatch.setenv("SOLO_DIR", str(lab.path / "others"))
        with pytest.raises(solo.Busy) as busy:
            solo.run(["true"], name="job", **options)
        assert (busy.value.name, [row.launcher for row in busy.value.holders]) == (
            "job",
            [holder.pid],
        )


def test_busy_of_the_longest_name_is_whole(lab, files):
    name = "/".join(["x" * 240] * 8 + ["y" * 120])
    assert len(name) == LONGEST_NAME
    holder = lab.hold(name)

    with pytest.raises(solo.Busy) as busy:
        solo.run(["true"], name=name)

    assert busy.value.name == name and [row.launcher for row in busy.value.holders] == [holder.pid]


@pytest.mark.parametrize("error", [solo.NotExecutable, solo.Unreachable])
def test_longest_message_is_sent_by_one_write(error):
    refusal = error("t" * 100_000)
    refusal.name = "n" * LONGEST_NAME
    reader, writer = os.pipe()

    Report(writer).refused(refusal)

    message = os.read(reader, 1 << 20)
    assert len(message) <= select.PIPE_BUF and read_last(message) == (
        error.__name__,
        refusal.name,
        "t" * REPORT_LIMIT,
    )
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    "options",
    [
        *({"via": "socket", "wait": -0.0, "env": env} for env in (None, {}, os.environ)),
        {"env": {"SOLO_VIA": "socket"}},
        {},
    ],
    ids=["socket", "no variables", "all variables", "variable", "file"],
)
def test_busy_has_the_holders_of_its_backend_only(lab, files, options):
    by_file, by_socket = lab.hold("job"), lab.hold("job", "--via", "socket")

    with pytest.raises(solo.Busy) as busy:
        solo.run(["true"], name="job", **options)

    assert [row.launcher for row in busy.value.holders] == [(by_socket if options else by_file).pid]


def test_launcher_that_was_killed_is_no_end_of_the_command(lab, files):
    """Its command runs on, and keeps the name."""
    script = "trap 'echo forwarded' USR1; echo; while sleep 0.05; do :; done"
    program = lab.start_code(
        f"try: solo.run(['sh', '-c', {script!r}], name='job')\n"
        "except solo.SoloError as error: print(error)"
    )
    read_line(program)
    [row] = lab.list("job")
    os.kill(row["launcher"], signal.SIGUSR1)
    assert read_line(program) == "forwarded"  # so it has reported the start

    os.kill(row["launcher"], signal.SIGKILL)

    said = "'sh': its launcher was killed, and it may still run (solo list shows it)"
    assert read_line(program) == said
    assert [row["state"] for row in lab.list("job")] == ["orphaned"]
    os.kill(row["child"], signal.SIGKILL)


def test_sys_path_may_have_what_python_ignores(files, monkeypatch):
    monkeypatch.syspath_prepend("/nowhere")
    monkeypatch.setattr(sys, "path", [Path("/tmp"), None, *sys.path])

    assert solo.run(iter(["echo", "ran"]), capture_output=True).args == ["echo", "ran"]


def test_signal_before_the_start_is_reported(lab, files):
    lab.hold("job")
    code = "try: solo.run(['true'], name='job', wait=math.inf)\nexcept solo.SoloError as error: print(error)"
    program = lab.start_code(code)
    until(lambda: lab.count_waiting("job"))
    [launcher] = [row["launcher"] for row in lab.list("job") if row["state"] == "waiting"]

    os.kill(launcher, signal.SIGTERM)

    assert finish(program)[1] == "solo ended with status -15 before the command was started\n"


def test_interrupt_ends_the_command(lab):
    program = lab.start_code("solo.run(['sh', '-c', 'echo $$; exec sleep 999'], name='job')")
    child = int(read_line(program))

    program.send_signal(signal.SIGINT)

    assert program.wait(PATIENCE) in (-signal.SIGINT, 1)
    wait_dead(child)


@pytest.mark.parametrize(
    "event, at", [("c_return", "fork_exec"), ("return", "__init__"), ("call", "communicate")]
)
def test_interrupt_while_the_launcher_starts_ends_it(lab, event, at):
    """Popen raises KeyboardInterrupt and has forked already. The launcher has the pipe that
    finish() reads to its end.
    """
    program = lab.start_code(f"""
def interrupt(frame, event, called):
    name = called.__name__ if event == "c_return" else frame.f_code.co_name
    if (event, name) == ({event!r}, {at!r}) and "subprocess" in frame.f_code.co_filename:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(interrupt)
solo.run(["sleep", "999"], name="job")""")

    status, _, error = finish(program)

    assert status in (-signal.SIGINT, 1) and "\nKeyboardInterrupt" in error


def test_command_gets_only_the_environment_of_its_hold(files):
    code = "import os; print(sorted(os.environ), sorted(os.listdir('/proc/self/fd')))"
    words = [sys.executable, "-IS", "-c", code]

    guarded = solo.run(words, name="job", capture_output=True, text=True).stdout
    plain = subprocess.run(words, capture_output=True, text=True).stdout

    assert (
        guarded.replace("'SOLO_NAME', ", "")
        .replace("'SOLO_TOKEN', ", "")
        .replace(", 'SOLO_TOKEN'", "")
        == plain
    )


@pytest.mark.parametrize(
    "options",
    [
        {"input": b"a", "stdin": subprocess.DEVNULL},
        {"capture_output": True, "stdout": 1},
        {"capture_output": True, "stderr": subprocess.STDOUT},
    ],
    ids=str,
)
def test_arguments_that_exclude_each_other_are_refused_as_by_subprocess_run(files, options):
    with pytest.raises(ValueError):
        solo.run(["true"], name="job", **options)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("options", [{}, {"close_fds": True}, {"close_fds": False}], ids=str)
def test_command_inherits_the_descriptors_of_subprocess_run(files, options, named):
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    words = [sys.executable, "-IS", "-c", "import os; print(*sorted(os.listdir('/proc/self/fd')))"]
    options = {**options, "pass_fds": [reader]} if named else options

    def run(call, **more):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            done = call(words, stdout=subprocess.PIPE, **options, **more)
        return done.stdout, [str(warning.message) for warning in caught]

    assert run(solo.run, name="job") == run(subprocess.run)
    os.close(reader)
    os.close(writer)


def test_options_reach_the_launcher(lab, files, monkeypatch):
    monkeypatch.chdir(lab.path)
    lab.directory.mkdir(mode=0o700)
    options = {
        "slots": 2,
        "take": 1,
        "wait": math.inf,
        "timeout": 60,
        "kill_after": 1.5,
        "no_orphan": True,
    }
    options.update({"signal": signal.SIGUSR1, "notify": "true", "note": "n"})
    flags = {"tree": 1, "shared": 0, "latest": None}  # true and false of any type
    paths = {
        "flock": ["x.lock", lab.path / "y.lock"],
        "fcntl": "z.lock",
        "directory": lab.directory,
    }
    paths["chdir"] = lab.directory
    words = ["sh", "-c", "echo $SOLO_NAME $SOLO_SLOT in $(pwd -P)"]

    done = solo.run(words, name=["a", "b/c"], capture_output=True, **options, **flags, **paths)

    assert done.stdout.decode() == f"a b/c 0 0 in {lab.directory}\n"
    assert [row["note"] for row in lab.history()] == ["n", "n"]
    assert {"x.lock", "y.lock", "z.lock"} <= set(os.listdir(lab.path))


@pytest.mark.parametrize("closed", [(0, 1), (1, 2), (0, 1, 2)])
def test_result_arrives_with_closed_standard_streams(lab, closed):
    code = f"""
output = os.dup(1)
for stream in {closed}: os.close(stream)
done = solo.run(['sh', '-c', 'echo ran; exit 7'], name='job', capture_output=True)
os.write(output, b'%d %b' % (done.returncode, done.stdout))
"""
    assert lab.run_code(code)[1] == "7 ran\n"
