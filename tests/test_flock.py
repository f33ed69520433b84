"""--flock: solo and flock(1) exclude each other on a file of the user's, which is only ever locked."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import PATIENCE, finish, inject, need_tools, read_line, read_state, until

pytestmark = pytest.mark.tool("flock")


def hold_by_flock(lab, path, *words):
    process = subprocess.Popen(
        ["flock", *words, path, "sh", "-c", "echo; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=lab.environment,
    )
    lab.started.append(process)
    read_line(process)
    return process


@pytest.fixture(params=["file", "directory"])
def path(request, lab):
    path = lab.path / "theirs"
    path.write_text("precious") if request.param == "file" else path.mkdir()
    return path


def try_flock(path, *words):
    return subprocess.run(["flock", "-n", *words, path, "true"]).returncode


def test_flock_keeps_solo_out(lab, path):
    hold_by_flock(lab, path)

    result = lab.run("--flock", path, "-n", "up/job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)
    assert f"solo: up/job: {path}: busy: locked by pid ".encode() in result.stderr


def test_solo_keeps_flock_out(lab, path):
    holder = lab.hold("job", "--flock", path)
    assert try_flock(path) == 1

    finish(holder)

    assert try_flock(path) == 0


def test_two_solos_with_different_names_exclude_each_other_by_the_file(lab, path):
    lab.hold("one", "--flock", path)

    assert lab.run("--flock", path, "-n", "two", "true").returncode == 75


@pytest.mark.parametrize("words", [("-s",), ("--slots", "3")])
def test_shared_use_is_shared_for_flock_too(lab, path, words):
    lab.hold("job", *words, "--flock", path)

    assert (try_flock(path, "-s"), try_flock(path, "-x")) == (0, 1)
    assert lab.run(*words, "--flock", path, "-n", "job", "true").returncode == 0


def test_one_wait_is_for_both(lab, path):
    holder, outsider = lab.hold("job"), hold_by_flock(lab, path)
    waiter = lab.start("-w", "forever", "--flock", path, "-n", "job", "--", "sh", "-c", "echo in")
    until(lambda: lab.count_waiting("job"))
    finish(holder)
    until(lambda: len(lab.list()) == 1 and lab.list()[0]["state"] == "held" and lab.list()[0]["child"] is None)

    outsider.stdin.close()

    assert finish(waiter)[:2] == (0, "in\n")


def test_the_wait_ends_in_time(lab, path):
    hold_by_flock(lab, path)

    assert lab.run("-w", "100ms", "--flock", path, "-n", "job", "true").returncode == 75


@pytest.mark.tool("strace")
def test_the_wait_ends_also_where_its_time_was_over_before(lab, path):
    """To show who is waited for takes long."""
    lab.hold("other", "--flock", path)
    slow = inject(lab, "openat:delay_enter=500000", paths=["/proc/locks"])

    result = lab.run("-v", "-w", "700ms", "--flock", path, "-n", "job", "true", prefix=slow)

    assert result.returncode == 75 and lab.run("-n", "job", "true").returncode == 0


def test_a_file_that_is_missing_is_made_empty_with_the_callers_umask(lab):
    path = lab.path / "new"

    assert lab.run("--flock", path, "-n", "job", "true", preexec_fn=lambda: os.umask(0o027) and None).returncode == 0

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o640)


def test_what_is_there_is_never_changed(lab):
    path = lab.path / "theirs"
    path.write_text("precious")
    before = path.stat()

    lab.run("--flock", path, "-n", "job", "true")

    after = path.stat()
    assert path.read_text() == "precious"
    assert [
        getattr(before, key) == getattr(after, key) for key in ("st_ino", "st_mtime_ns", "st_ctime_ns", "st_mode")
    ] == [True] * 4


@pytest.mark.root
def test_a_file_that_may_only_be_read_is_enough(common):
    path = common.directory.parent / "theirs"
    path.write_text("precious")
    path.chmod(0o444)
    common.directory.mkdir()
    common.directory.chmod(0o1777)

    assert common.run("--flock", path, "-n", "job", "true", user=65534).returncode == 0


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda path: os.mkfifo(path), "neither a file nor a directory"),
        (lambda path: path.symlink_to("/nonexistent/file"), "points to nothing"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_what_can_not_be_locked_is_refused_in_one_line(lab, make, text):
    path = lab.path / "odd"
    make(path)
    path = path if os.path.lexists(path) else lab.path / "missing/directory/file"

    result = lab.run("--flock", path, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and text in result.stderr.decode()
    assert lab.run("-n", "job", "true").returncode == 0


def test_the_same_file_twice_is_one_lock(lab):
    path = lab.path / "theirs"
    path.touch()
    os.link(path, lab.path / "link")

    assert lab.run("--flock", path, "--flock", lab.path / "link", "--flock", path, "-n", "job", "true").returncode == 0


def test_several_are_taken_in_one_order(lab):
    """Two with the same files the other way round would lock each other out for ever, one of them holding each."""
    one, two = lab.path / "one", lab.path / "two"
    both = [
        lab.start("-w", "forever", "--flock", first, "--flock", second, "-n", f"{name}", "--", "sleep", "0.01")
        for name in range(20)
        for first, second in ([(one, two), (two, one)][name % 2],)
    ]

    assert [process.wait(PATIENCE) for process in both] == [0] * 20


def test_a_file_replaced_while_waiting_is_not_the_one_that_is_held(lab):
    path = lab.path / "theirs"
    path.touch()
    outsider = hold_by_flock(lab, path)
    waiter = lab.start("-v", "-w", "forever", "--flock", path, "-n", "job", "--", "sh", "-c", "echo; read line")
    until(
        lambda: (
            os.readlink(f"/proc/{waiter.pid}/exe")
            and lab.list()
            and "flock" in open(f"/proc/{waiter.pid}/wchan").read()
            or read_state(waiter.pid) == "S"
            and lab.list()
        )
    )
    path.unlink()
    path.touch()

    outsider.stdin.close()

    read_line(waiter)
    assert try_flock(path) == 1


def test_the_command_dies_with_its_launcher_as_nothing_would_remember_it(lab, path):
    holder = lab.start("--flock", path, "-n", "job", "--", "sh", "-c", "echo $$; read line")
    child = int(read_line(holder))
    holder.kill()
    holder.wait()

    until(lambda: read_state(child) in ("gone", "Z"))
    assert try_flock(path) == 0


def test_the_command_never_has_the_descriptor_of_the_file(lab, path):
    result = lab.run("--flock", path, "-n", "job", "--", "sh", "-c", "ls -l /proc/self/fd")

    assert str(path).encode() not in result.stdout


def test_locking_under_ones_own_lock_is_refused(lab, path):
    need_tools("setsid")
    result = subprocess.run(
        ["flock", path, lab.script, "-w", "forever", "--flock", path, "-n", "job", "true"],
        env=lab.environment,
        capture_output=True,
        timeout=PATIENCE,
    )

    assert result.returncode == 125 and b"an ancestor of this process" in result.stderr


def test_a_skip_by_the_file_counts_as_a_skip_of_the_name(lab, path):
    outsider = hold_by_flock(lab, path)
    words = ("-q", "-E", "0", "--loud-after", "1", "--flock", path, "-n", "job", "true")
    ends = [lab.run(*words) for _ in range(3)]

    assert [end.returncode for end in ends] == [0, 75, 75] and b", 2 skips since" in ends[2].stderr
    outsider.send_signal(signal.SIGKILL)


def test_a_script_may_be_locked_while_it_runs(lab):
    """`flock job.sh job.sh` is how many do it: nobody may have it open for writing."""
    script = lab.path / "job.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    assert lab.run("--flock", script, script).stdout == b"ran\n"


def test_a_lock_on_a_descriptor_that_solo_was_given_is_its_own(lab, path):
    shell = lab.start_shell(f"exec 9<{path}; flock -n 9; exec $SOLO -w forever --flock {path} -n job true")

    _, stderr = shell.communicate(timeout=PATIENCE)
    assert shell.returncode == 125 and b"through the inherited descriptor 9" in stderr


def test_who_holds_the_file_is_not_replaced_nor_waited_for(lab, path):
    hold_by_flock(lab, path)

    assert lab.run("--replace", "--flock", path, "-n", "job", "true").returncode == 75


def test_a_holder_of_the_file_becomes_loud_too(lab, path):
    hold_by_flock(lab, path)
    words = ("--flock", path, "-n", "job", "true")

    assert lab.run("-q", "-E", "0", "--loud-after", "1h", *words).returncode == 0
    assert lab.run("-q", "-E", "0", "--loud-after", "0s", *words).returncode == 75


@pytest.mark.parametrize("words", [(), ("--flock", "theirs"), ("--flock", "theirs", "--flock", "./theirs")], ids=len)
def test_a_posix_lock_from_before_is_kept_while_the_command_runs(lab, words):
    """To close any descriptor of the file would give it up."""
    path = lab.path / "theirs"
    path.touch()
    code = (
        "import fcntl, os, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); os.set_inheritable(f.fileno(), True); "
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", code, path, lab.script, *words, "-n", "job", "--", "sh", "-c", "echo; read line"],
        env=lab.environment,
        cwd=lab.path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    lab.started.append(process)
    read_line(process)
    until(lambda: read_state(process.pid) == "S")
    probe = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    assert subprocess.run([sys.executable, "-IS", "-c", probe, path], stderr=subprocess.DEVNULL).returncode == 1
