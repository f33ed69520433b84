"""--flock: solo and flock(1) exclude each other on a file of the user, which solo locks and never changes."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest
from conftest import PATIENCE, finish, inject, need_tools, read_line, read_state, until

from solo import kernel
from solo.contention import flocks

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


def test_lock_that_needs_a_writable_descriptor_leaves_none_behind(tmp_path, monkeypatch):
    """As an exclusive lock on NFS."""

    def try_lock(fd, lock, call):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return kernel.try_lock(fd, lock, call)

    path = tmp_path / "theirs"
    path.touch()
    monkeypatch.setattr(flocks, "try_lock", try_lock)
    before = os.listdir("/proc/self/fd")
    fd = flocks.lock_path(flocks.Flock, str(path), 0o22, fcntl.LOCK_EX, 0, None, True)
    os.close(fd)

    assert os.listdir("/proc/self/fd") == before


def test_flock_excludes_solo(lab, path):
    hold_by_flock(lab, path)

    result = lab.run("--flock", path, "-n", "up/job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)
    assert f"solo: up/job: {path}: busy: locked by pid ".encode() in result.stderr


def test_solo_excludes_flock(lab, path):
    holder = lab.hold("job", "--flock", path)
    assert try_flock(path) == 1

    finish(holder)

    assert try_flock(path) == 0


def test_file_excludes_runs_of_different_names(lab, path):
    lab.hold("one", "--flock", path)

    assert lab.run("--flock", path, "-n", "two", "true").returncode == 75


@pytest.mark.parametrize("words", [("-s",), ("--slots", "3")])
def test_shared_and_slots_hold_a_shared_flock(lab, path, words):
    lab.hold("job", *words, "--flock", path)

    assert (try_flock(path, "-s"), try_flock(path, "-x")) == (0, 1)
    assert lab.run(*words, "--flock", path, "-n", "job", "true").returncode == 0


def test_wait_covers_name_and_file(lab, path):
    holder, locker = lab.hold("job"), hold_by_flock(lab, path)
    waiter = lab.start("-w", "forever", "--flock", path, "-n", "job", "--", "sh", "-c", "echo ran")
    until(lambda: lab.count_waiting("job"))
    finish(holder)
    until(lambda: len(lab.list()) == 1 and lab.list()[0]["state"] == "held" and lab.list()[0]["child"] is None)

    locker.stdin.close()

    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace")
def test_wait_ends_if_its_time_passed_before_the_file(lab, path):
    """Reading the holder in /proc/locks takes longer than the rest of the wait."""
    lab.hold("other", "--flock", path)
    slow = inject(lab, "openat:delay_enter=500000", paths=["/proc/locks"])

    result = lab.run("-v", "-w", "700ms", "--flock", path, "-n", "job", "true", prefix=slow)

    assert result.returncode == 75 and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.parametrize("option", ["--flock", "--fcntl"])
def test_missing_file_is_created_with_the_callers_umask(lab, option):
    path = lab.path / "new"

    assert lab.run(option, path, "-n", "job", "true", preexec_fn=lambda: os.umask(0o027) and None).returncode == 0

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o640)


@pytest.mark.root
def test_read_permission_is_enough(common):
    path = common.directory.parent / "theirs"
    path.write_text("precious")
    path.chmod(0o444)
    common.directory.mkdir()
    common.directory.chmod(0o1777)

    assert common.run("--flock", path, "-n", "job", "true", user=65534).returncode == 0


@pytest.mark.parametrize(
    "option, make, text",
    [
        ("--flock", os.mkfifo, "neither a file nor a directory"),
        ("--fcntl", os.mkfifo, "is not a file, so fcntl(2) cannot lock it"),
        ("--fcntl", os.mkdir, "is not a file, so fcntl(2) cannot lock it"),
        *[
            (option, make, text)
            for option in ("--flock", "--fcntl")
            for make, text in (
                (lambda path: path.symlink_to("/nonexistent/file"), "points to nothing"),
                (lambda path: None, "No such file or directory"),
            )
        ],
    ],
)
def test_unlockable_path_is_one_line_and_125(lab, option, make, text):
    path = lab.path / "odd"
    make(path)
    path = path if os.path.lexists(path) else lab.path / "missing/directory/file"

    result = lab.run(option, path, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and text in result.stderr.decode()
    assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.host
def test_command_dies_with_its_launcher(lab, path):
    """The kernel releases the file's lock with the launcher; no record would show an orphan to flock(1)."""
    holder = lab.start("--flock", path, "-n", "job", "--", "sh", "-c", "echo $$; read line")
    child = int(read_line(holder))
    holder.kill()
    holder.wait()

    until(lambda: read_state(child) in ("gone", "Z"))
    assert try_flock(path) == 0


def test_command_does_not_inherit_the_file(lab, path):
    result = lab.run("--flock", path, "-n", "job", "--", "sh", "-c", "ls -l /proc/self/fd")

    assert str(path).encode() not in result.stdout


def test_lock_held_by_an_ancestor_is_refused(lab, path):
    need_tools("setsid")
    result = subprocess.run(
        ["flock", path, lab.script, "-w", "forever", "--flock", path, "-n", "job", "true"],
        env=lab.environment,
        capture_output=True,
        timeout=PATIENCE,
    )

    assert result.returncode == 125 and b"an ancestor of this process" in result.stderr


def test_skip_because_of_the_file_is_counted(lab, path):
    locker = hold_by_flock(lab, path)
    words = ("-q", "-E", "0", "--loud-after", "1", "--flock", path, "-n", "job", "true")
    ends = [lab.run(*words) for _ in range(3)]

    assert [end.returncode for end in ends] == [0, 75, 75] and b", 2 skips since" in ends[2].stderr
    locker.send_signal(signal.SIGKILL)


def test_command_may_be_the_locked_script(lab):
    """As in `flock job.sh job.sh`. A descriptor open for writing would prevent the exec."""
    script = lab.path / "job.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    assert lab.run("--flock", script, script).stdout == b"ran\n"


def test_lock_on_an_inherited_descriptor_is_refused(lab, path):
    shell = lab.start_shell(f"exec 9<{path}; flock -n 9; exec $SOLO -w forever --flock {path} -n job true")

    _, stderr = shell.communicate(timeout=PATIENCE)
    assert shell.returncode == 125 and b"through the inherited descriptor 9" in stderr


def test_loud_after_counts_the_hold_of_the_file(lab, path):
    hold_by_flock(lab, path)
    words = ("--flock", path, "-n", "job", "true")

    assert lab.run("-q", "-E", "0", "--loud-after", "1h", *words).returncode == 0
    assert lab.run("-q", "-E", "0", "--loud-after", "0s", *words).returncode == 75


@pytest.mark.parametrize("words", [(), ("--flock", "theirs"), ("--flock", "theirs", "--flock", "./theirs")], ids=len)
def test_inherited_posix_lock_is_kept_while_the_command_runs(lab, words):
    """Closing any descriptor of the file would release it."""
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
