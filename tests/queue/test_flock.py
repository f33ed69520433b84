"""--flock and --fcntl: solo and the programs that lock with flock(2) or fcntl(2) exclude each other
on a file of the user.

solo locks the file and never changes it. Each tool of TOOLS is the real one.
"""

import errno
import fcntl
import math
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import (
    NOBODY,
    PATIENCE,
    do_when,
    finish,
    inject,
    is_blocked,
    need_tools,
    read_line,
    read_state,
    until,
)
from fleet import find_children

import solo
from solo import kernel
from solo.api import blocking
from solo.contention import flocks

# Takes a classic lock, as fcntl.lockf does, and keeps it while the command runs.
LOCKF = """import fcntl, subprocess, sys
mode = fcntl.LOCK_SH if sys.argv[1] == "shared" else fcntl.LOCK_EX
file = open(sys.argv[2], "a+")
try: fcntl.lockf(file, mode | (fcntl.LOCK_NB if sys.argv[1] == "now" else 0))
except BlockingIOError: sys.exit(1)
sys.exit(subprocess.run(sys.argv[3:]).returncode)
"""
PYTHON = [sys.executable, "-IS", "-c", LOCKF]
# What the tool locks with; its words to skip, and to wait.
TOOLS = {
    "flock": ("--flock", ["flock", "-n"], ["flock"]),
    "setlock": ("--flock", ["setlock", "-n"], ["setlock"]),
    "chpst": ("--flock", ["chpst", "-L"], ["chpst", "-l"]),
    "lckdo": ("--fcntl", ["lckdo"], ["lckdo", "-w"]),
    "s6-setlock": ("--fcntl", ["s6-setlock", "-n"], ["s6-setlock"]),
    "with-lock-ex": ("--fcntl", ["with-lock-ex", "-f"], ["with-lock-ex", "-w"]),
    "runlock": ("--fcntl", ["runlock", "-t", "1", "-f"], ["runlock", "-t", "0", "-f"]),
    "lockf of Python": ("--fcntl", [*PYTHON, "now"], [*PYTHON, "later"]),
}
ONE_OF_EACH = pytest.mark.parametrize("tool", ["flock", "lockf of Python"], indirect=True)


@pytest.fixture(params=TOOLS)
def tool(request):
    if request.param in TOOLS and " " not in request.param:
        need_tools(request.param)
    return request.param


@pytest.fixture
def path(lab):
    path = lab.path / "theirs"
    path.write_text("precious")
    return path


def make_shared_file(shared, mode):
    """Make a file beside the directory that all users share."""
    path = shared.directory.parent / "theirs"
    path.write_text("precious")
    path.chmod(mode)
    return path


def hold_by(lab, tool, path, command=("sh", "-c", "echo; read line")):
    process = lab.start_words(*TOOLS[tool][1], path, *command)
    read_line(process)
    return process


def try_tool(tool, path):
    """Return whether the tool runs a command under its lock at once."""
    done = subprocess.run(
        [*TOOLS[tool][1], path, "echo", "ran"], capture_output=True, stdin=subprocess.DEVNULL
    )
    assert (done.stdout == b"ran\n") == (done.returncode == 0)
    return done.returncode == 0


@pytest.mark.parametrize("option", ["--flock", "--fcntl"])
def test_tool_and_solo_exclude_each_other_by_the_option_for_its_kind_of_lock(
    lab, tool, path, option
):
    holder = hold_by(lab, tool, path)

    result = lab.run(option, path, "-n", "job", "echo", "ran")
    finish(holder)
    own = lab.hold("job", option, path)
    is_excluded = not try_tool(tool, path)
    finish(own)

    if option == TOOLS[tool][0]:
        assert (result.returncode, result.stdout, result.stderr.count(b"\n"), is_excluded) == (
            75,
            b"",
            1,
            True,
        )
        assert f"solo: job: {path}: busy: locked by pid ".encode() in result.stderr
    else:
        assert (result.returncode, result.stdout, result.stderr, is_excluded) == (
            0,
            b"ran\n",
            b"",
            False,
        )
    assert try_tool(tool, path)


def test_lock_of_a_part_of_the_file_excludes_solo(lab, path):
    code = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 5); print(); input()"
    read_line(lab.start_words(sys.executable, "-IS", "-uc", code, path))

    assert lab.run("--fcntl", path, "-n", "job", "true").returncode == 75


@pytest.mark.parametrize(
    "words", [("-w", "100ms"), ("-v", "-w", "100ms"), ("-w", "0"), ("--replace",)], ids=" ".join
)
@ONE_OF_EACH
def test_wait_for_the_file_ends(lab, tool, path, words):
    holder = hold_by(lab, tool, path)

    assert lab.run(*words, TOOLS[tool][0], path, "-n", "job", "true").returncode == 75
    assert holder.poll() is None and lab.run("-n", "job", "true").returncode == 0


def test_waiter_sleeps_in_the_system_call(lab, path):
    hold_by(lab, "lockf of Python", path)
    waiter = lab.start("-w", "1h", "--fcntl", path, "-n", "job", "true")
    until(lambda: lab.list("job") and is_blocked(waiter.pid))
    before = open(f"/proc/{waiter.pid}/syscall").read().split()

    assert before[2] == hex(38)  # F_OFD_SETLKW
    waiter.send_signal(signal.SIGTERM)
    assert waiter.wait(PATIENCE) == -signal.SIGTERM


def test_existing_file_is_never_changed(lab, path):
    before = path.stat()

    assert lab.run("--fcntl", path, "--flock", path, "-n", "job", "true").returncode == 0

    after = path.stat()
    keys = ("st_ino", "st_mtime_ns", "st_ctime_ns", "st_mode")
    assert path.read_text() == "precious"
    assert [getattr(after, key) for key in keys] == [getattr(before, key) for key in keys]


@pytest.mark.tool("strace")
@pytest.mark.parametrize("words", [(), ("-w", "1h")], ids=["at once", "in the wait"])
def test_error_of_the_system_call_is_one_line_and_125(lab, path, words):
    if words:
        hold_by(lab, "lockf of Python", path)
    fail = inject(lab, f"fcntl:error=ENOLCK:when={3 if words else 1}", paths=[path])

    result = lab.run(*words, "--fcntl", path, "-n", "job", "true", prefix=fail)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
    assert f"{path}: cannot be locked: No locks available" in result.stderr.decode()


def test_several_files_are_locked_in_one_order(lab):
    """Else two launchers that name the files or the options in opposite order would deadlock."""
    one, two = lab.path / "one", lab.path / "two"
    wanted = [("--fcntl", one), ("--flock", two), ("--flock", one), ("--fcntl", two)]
    launchers = [
        lab.start(
            "-w", "forever", *sum(wanted[:: 1 - 2 * (number % 2)], ()), "-n", f"{number}", "true"
        )
        for number in range(12)
    ]

    assert [process.wait(PATIENCE) for process in launchers] == [0] * 12


@ONE_OF_EACH
def test_file_replaced_during_the_wait_is_opened_again(lab, tool, path):
    holder = hold_by(lab, tool, path)
    waiter = lab.start(
        "-w", "forever", TOOLS[tool][0], path, "-n", "job", "--", "sh", "-c", "echo; read line"
    )
    until(lambda: lab.list("job") and is_blocked(waiter.pid))
    path.unlink()
    path.touch()

    finish(holder)

    read_line(waiter)
    assert not try_tool(tool, path)


def test_socket_keeps_the_name_and_fcntl_the_file(lab, path):
    lab.use_sockets()
    holder = lab.hold("job", "--fcntl", path)

    assert not try_tool("lockf of Python", path)
    finish(holder)
    hold_by(lab, "lockf of Python", path)
    assert lab.run("--fcntl", path, "-n", "job", "true").returncode == 75


def test_each_waits_for_the_other(lab, tool, path):
    holder = hold_by(lab, tool, path)
    both = ("--flock", path, "--fcntl", path)
    waiter = lab.start("-w", "forever", *both, "-n", "job", "--", "sh", "-c", "echo $$; read line")
    until(lambda: lab.list("job") and is_blocked(waiter.pid))
    finish(holder)
    read_line(waiter)

    theirs = lab.start_words(*TOOLS[tool][2], path, "echo", "ran")
    until(lambda: any(map(is_blocked, (theirs.pid, *find_children(theirs.pid)))))
    assert not try_tool(tool, path)
    finish(waiter)

    assert finish(theirs)[:2] == (0, "ran\n")


def test_verbose_flock_is_silent_without_such_a_holder(lab, path):
    need_tools("lckdo", "s6-setlock")
    hold_by(lab, "lockf of Python", lab.path / "other")
    run = (lab.script, "-v", "--flock", path, "-n", "job", "true")

    for words in (
        [],
        [lab.script, "-n", "outer", "--fcntl", path],
        ["lckdo", path],
        ["s6-setlock", path],
    ):
        text = subprocess.run([*words, *run], env=lab.environment, capture_output=True).stderr
        assert b"started true" in text and b"holds a lock" not in text


def test_busy_line_names_the_holder(lab, path):
    """fcntl(2) has the pid of a classic lock only, so the holder of --fcntl is found by /proc."""
    theirs = hold_by(lab, "lockf of Python", path)
    assert (
        f"locked by pid {theirs.pid} (python".encode()
        in lab.run("--fcntl", path, "-n", "one", "true").stderr
    )
    finish(theirs)

    own = lab.hold("job", "--fcntl", path)
    assert (
        f"locked by pid {own.pid} (solo)".encode()
        in lab.run("--fcntl", path, "-n", "two", "true").stderr
    )
    assert lab.run("--flock", path, "-n", "two", "true").returncode == 0


@pytest.mark.host  # elsewhere the kernel calls each locker that is gone 0
def test_busy_line_names_the_process_that_inherited_the_lock(lab, path):
    """Two lockers are gone, and each has left the lock to another process: /proc/PID/fdinfo tells
    these apart.
    """
    script = f"exec 9<{path}; (flock -s 9 & echo $!; wait); exec cat"
    heirs = [lab.start_words("sh", "-c", script) for _ in range(2)]
    lockers = {int(read_line(heir)): heir for heir in heirs}
    until(lambda: all(os.readlink(f"/proc/{heir.pid}/exe").endswith("cat") for heir in heirs))

    while lockers:
        busy = lab.run("--flock", path, "-n", "job", "true").stderr.decode()
        heir, locker = map(
            int,
            re.search(r"pid (\d+) \(cat\), which inherited the lock of pid (\d+)", busy).groups(),
        )
        assert lockers[locker].pid == heir
        finish(lockers.pop(locker))
    assert lab.run("--flock", path, "-n", "job", "true").returncode == 0


@pytest.mark.root
def test_holder_that_cannot_be_seen_is_another_process(shared):
    path = make_shared_file(shared, 0o666)
    shared.hold("one", "--fcntl", path)

    result = shared.run("--fcntl", path, "-n", "two", "true", user=NOBODY)

    assert result.returncode == 75 and b"locked by another process" in result.stderr


@pytest.mark.parametrize("words", [("-s",), ("--slots", "3")], ids=" ".join)
@ONE_OF_EACH
def test_shared_and_slots_hold_a_shared_lock(lab, path, tool, words):
    option = TOOLS[tool][0]
    lab.hold("job", *words, option, path)

    assert lab.run(*words, option, path, "-n", "job", "true").returncode == 0
    share = ["flock", "-n", "-s"] if tool == "flock" else [*PYTHON, "shared"]
    assert subprocess.run([*share, path, "true"], timeout=PATIENCE).returncode == 0
    assert not try_tool(tool, path)


def test_directory_can_be_locked_by_flock(lab):
    need_tools("flock")
    holder = hold_by(lab, "flock", lab.path)

    busy = lab.run("--flock", lab.path, "-n", "up/job", "true")
    finish(holder)
    lab.hold("up/job", "--flock", lab.path)

    assert (
        f"solo: up/job: {lab.path}: busy: locked by pid ".encode() in busy.stderr
        and not try_tool("flock", lab.path)
    )


@pytest.mark.root
def test_read_permission_is_enough_but_for_an_exclusive_lock_of_fcntl(shared):
    path = make_shared_file(shared, 0o444)

    by_flock, shared_fcntl, exclusive = (
        shared.run(*words, path, "-n", "job", "true", user=NOBODY)
        for words in (["--flock"], ["-s", "--fcntl"], ["--fcntl"])
    )

    assert (by_flock.returncode, shared_fcntl.returncode, exclusive.returncode) == (0, 0, 125)
    assert (
        b"cannot be opened for writing, as an exclusive lock needs: Permission denied"
        in exclusive.stderr
    )


def test_same_file_by_several_paths_and_both_options_is_locked_once_per_kind(lab, path):
    os.link(path, link := lab.path / "link")
    holder = lab.hold(
        "job",
        *("--flock", path, "--fcntl", path, "--fcntl", path, "--flock", link, "--fcntl", link),
    )

    assert not try_tool("lockf of Python", path) and not try_tool("flock", path)
    finish(holder)
    assert try_tool("lockf of Python", path) and try_tool("flock", path)


@ONE_OF_EACH
def test_command_neither_inherits_nor_ends_the_lock(lab, tool, path):
    """A classic lock would end when its process closes any descriptor of the file."""
    script = f"cat {path}; echo; ls -l /proc/self/fd; read line"
    holder = lab.start(TOOLS[tool][0], path, "-n", "job", "--", "sh", "-c", script)
    assert read_line(holder) == "precious"

    assert not try_tool(tool, path)
    assert str(path) not in finish(holder)[1]


def test_command_may_be_the_locked_script_but_for_an_exclusive_lock_of_fcntl(lab):
    """As in `flock job.sh job.sh`. A descriptor open for writing prevents the exec."""
    script = lab.path / "job.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)

    busy = lab.run("--fcntl", script, script)

    assert (busy.returncode, busy.stdout) == (126, b"") and b"Text file busy" in busy.stderr
    assert (
        lab.run("-s", "--fcntl", script, script).stdout
        == lab.run("--flock", script, script).stdout
        == b"ran\n"
    )


INHERITED = (
    "import fcntl, os, sys, struct; f = open(sys.argv[1], 'r+'); os.set_inheritable(f.fileno(), True); "
    "{}; os.execv(sys.argv[2], sys.argv[2:])"
)
BY_FLOCK = INHERITED.format("fcntl.flock(f, fcntl.LOCK_EX)")
BY_FCNTL = INHERITED.format("fcntl.fcntl(f, 37, struct.pack('hhqqi', 1, 0, 0, 0, 0))")


@pytest.mark.parametrize(
    "option, outer, text",
    [
        ("--flock", ["flock"], "an ancestor of this process"),
        ("--fcntl", ["lckdo"], "an ancestor of this process"),
        ("--fcntl", ["s6-setlock"], "locked by the program that executed solo"),
        ("--fcntl", ["with-lock-ex", "-w"], "locked by the program that executed solo"),
        ("--fcntl", [*PYTHON, "now"], "an ancestor of this process"),
        ("--fcntl", ["$SOLO", "-n", "outer", "--fcntl"], "an ancestor of this process"),
        ("--flock", [sys.executable, "-ISc", BY_FLOCK], "through the inherited descriptor 3"),
        ("--fcntl", [sys.executable, "-ISc", BY_FCNTL], "through the inherited descriptor 3"),
    ],
    ids=lambda value: value[0].rpartition("/")[2] if isinstance(value, list) else "",
)
def test_lock_held_by_an_ancestor_or_inherited_is_refused(lab, path, option, outer, text):
    if outer[0] == "$SOLO":
        outer = [lab.script, *outer[1:]]
    elif outer[0] != sys.executable:
        need_tools(outer[0])
    words = (lab.script, "-w", "forever", option, path, "-n", "job", "true")
    result = subprocess.run(
        [*outer, path, *words], env=lab.environment, capture_output=True, timeout=PATIENCE
    )

    assert result.returncode == 125 and text.encode() in result.stderr


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
    fd = flocks.FileWait("X", 0o22, 0, None, True).lock_path(flocks.Flock, str(path))
    os.close(fd)

    assert os.listdir("/proc/self/fd") == before


def test_wait_covers_name_and_file(lab, path):
    holder, locker = lab.hold("job"), hold_by(lab, "flock", path)
    waiter = lab.start("-w", "forever", "--flock", path, "-n", "job", "--", "sh", "-c", "echo ran")
    until(lambda: lab.count_waiting("job"))
    finish(holder)
    until(
        lambda: (
            len(lab.list()) == 1
            and lab.list()[0]["state"] == "held"
            and lab.list()[0]["child"] is None
        )
    )

    locker.stdin.close()

    assert finish(waiter)[:2] == (0, "ran\n")


@pytest.mark.tool("strace", "flock")
def test_wait_ends_if_its_time_passed_before_the_file(lab, path):
    """Reading the holder in /proc/locks takes longer than the rest of the wait."""
    lab.hold("other", "--flock", path)
    slow = inject(lab, "openat:delay_enter=500000", paths=["/proc/locks"])

    result = lab.run("-v", "-w", "700ms", "--flock", path, "-n", "job", "true", prefix=slow)

    assert result.returncode == 75 and lab.run("-n", "job", "true").returncode == 0


@pytest.mark.parametrize("option", ["--flock", "--fcntl"])
def test_missing_file_is_created_with_the_callers_umask(lab, option):
    path = lab.path / "new"

    assert (
        lab.run(
            option, path, "-n", "job", "true", preexec_fn=lambda: os.umask(0o027) and None
        ).returncode
        == 0
    )

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o640)


UNLOCKABLE = [("--flock", os.mkfifo, "neither a file nor a directory")]
UNLOCKABLE += [
    ("--fcntl", make, "is not a file, so fcntl(2) cannot lock it") for make in (os.mkfifo, os.mkdir)
]
for option in ("--flock", "--fcntl"):
    UNLOCKABLE.append(
        (option, lambda path: path.symlink_to("/nonexistent/file"), "points to nothing")
    )
    UNLOCKABLE.append((option, lambda path: None, "No such file or directory"))


@pytest.mark.parametrize("option, make, text", UNLOCKABLE)
def test_unlockable_path_is_one_line_and_125(lab, option, make, text):
    path = lab.path / "odd"
    make(path)
    path = path if os.path.lexists(path) else lab.path / "missing/directory/file"

    result = lab.run(option, path, "-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (
        125,
        1,
    ) and text in result.stderr.decode()
    assert lab.run("-n", "job", "true").returncode == 0


def test_loud_after_counts_the_skips_and_the_hold_of_the_file(lab, path):
    hold_by(lab, "flock", path)
    quiet, words = ("-q", "-E", "0", "--loud-after"), ("--flock", path, "-n", "job", "true")
    ends = [lab.run(*quiet, limit, *words) for limit in ("1", "1", "1", "1h", "0s")]

    assert [end.returncode for end in ends] == [0, 75, 75, 0, 75] and b", 2 skips since" in ends[
        2
    ].stderr


@pytest.mark.parametrize(
    "words", [(), ("--flock", "theirs"), ("--flock", "theirs", "--flock", "./theirs")], ids=len
)
def test_inherited_posix_lock_is_kept_while_the_command_runs(lab, path, words):
    """Closing any descriptor of the file would release it."""
    outer = [sys.executable, "-ISc", INHERITED.format("fcntl.lockf(f, fcntl.LOCK_EX)"), path]
    command = ("-n", "job", "--", "sh", "-c", "echo; read line")
    launcher = lab.start(*words, *command, prefix=outer, cwd=lab.path)
    read_line(launcher)
    until(lambda: read_state(launcher.pid) == "S")

    assert not try_tool("lockf of Python", path)


# --- Python---------------------------------------------------------------------------------------


@ONE_OF_EACH
def test_lock_excludes_both_ways(lab, files, path, tool):
    keyword, second = TOOLS[tool][0].strip("-"), lab.path / "second"
    share = ["flock", "-n", "-s"] if tool == "flock" else [*PYTHON, "shared"]
    lock = solo.Lock("job", **{keyword: os.fsencode(path)})
    with lock, solo.Lock("other", shared=True, **{keyword: [str(second)]}):
        assert not try_tool(tool, path) and not try_tool(tool, second)
        assert subprocess.run([*share, second, "true"], timeout=PATIENCE).returncode == 0
    assert try_tool(tool, path)

    holder = hold_by(lab, tool, path)
    for wait in (None, 0.05, 0.05):
        with pytest.raises(solo.Busy, match=r"locked by pid \d+"):
            lock.acquire(wait)
    assert blocking.watched == {} and lab.list("job") == []
    do_when(
        lambda: any(watch.waiters for watch in list(blocking.watched.values())), holder.communicate
    )
    with solo.Lock("job", **{keyword: path}, wait=math.inf):
        assert not try_tool(tool, path)
    until(lambda: not blocking.watched)
    assert try_tool(tool, path)


def test_waits_for_both_kinds_of_one_file_are_separate(lab, files, path):
    """Each has a thread of its own: a wait for one kind must not end by the other."""
    need_tools("flock")
    first, second = hold_by(lab, "flock", path), hold_by(lab, "lockf of Python", path)
    code = "with solo.Lock('job', flock=sys.argv[1], fcntl=sys.argv[1], wait=60): print('in', flush=True); input()"
    program = lab.start_code(code, path)
    until(lambda: lab.list("job") and is_any_thread_blocked(program.pid, 0))
    finish(first)
    until(lambda: is_any_thread_blocked(program.pid, 2))
    finish(second)

    assert read_line(program) == "in"
    assert not try_tool("flock", path) and not try_tool("lockf of Python", path)
    finish(program, b"\n")


def is_any_thread_blocked(pid, at):
    """Whether a thread sleeps in that system call of BLOCKING."""
    from conftest import BLOCKING

    tasks = os.listdir(f"/proc/{pid}/task")
    try:
        return any(
            open(f"/proc/{pid}/task/{task}/syscall").read().split()[0] == BLOCKING[at]
            for task in tasks
        )
    except OSError:
        return False  # a thread has just ended


@pytest.mark.parametrize("keyword", ["flock", "fcntl"])
def test_lockf_of_the_program_is_refused_and_kept(lab, path, keyword):
    """Closing our descriptor of the file would release it."""
    code = f"""
import fcntl
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
try: solo.Lock("job", wait=0.1, {keyword}=sys.argv[1]).acquire()
except solo.SoloError as error: print(error, flush=True)
sys.stdin.readline()
fcntl.lockf(file, fcntl.LOCK_UN)
with solo.Lock("job", {keyword}=sys.argv[1]): print("in")
"""
    program = lab.start_code(code, path)

    assert read_line(program).startswith(
        f"{path}: cannot be locked: this program would lose its own fcntl(2) lock"
    )
    assert not try_tool("lockf of Python", path) and lab.list("job") == []
    assert finish(program, b"\n")[:2] == (0, "in\n")


def test_forked_child_does_not_end_the_lock(lab, path):
    code = """
with solo.Lock("job", fcntl=sys.argv[1]) as hold:
    if os.fork() == 0:
        hold.release()
        os._exit(0)
    os.wait()
    print(flush=True)
    sys.stdin.readline()
"""
    flags = ("-IS", "-W", "ignore::DeprecationWarning")
    program = lab.start_code(code, path, flags=flags)
    read_line(program)

    assert not try_tool("lockf of Python", path)
    finish(program, b"\n")
    assert try_tool("lockf of Python", path)
