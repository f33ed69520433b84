"""--capture: the output of a run, printed if it failed, and kept; what SIGKILL of the launcher or of
its reader loses.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest
import tally
from conftest import (
    LIVE,
    PATIENCE,
    count_injected,
    finish,
    in_mounts,
    inject,
    kill,
    list_open,
    make_full_pipe,
    read_call,
    read_state,
    until,
    wait_dead,
)
from fleet import find_children
from hypothesis import given
from hypothesis import strategies as st
from observed import INNER

from solo.history import captured
from solo.kinds import read_capture
from solo.process.capture import Capture
from solo.process.tree import is_holder

WRITE = {"x86_64": "1", "aarch64": "64"}[os.uname().machine]  # in /proc/PID/syscall
FAILS = "echo out; echo err >&2; exit 3"
SAMPLE = 60  # of the points at which a process is killed
# Lines on stdout, and the last of them in a file once all are written.
LINES = "for n in 1 2 3 4 5 6; do echo line $n; echo error $n >&2; done; echo done >>$LAB/log; "
TEXT = "".join(f"line {n}\nerror {n}\n" for n in range(1, 7))


@pytest.fixture
def daemons():
    """Return a list of pids: those that live are killed after the test."""
    pids = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def capture(lab, script, *words, when="failed", name="job", **options):
    """Run a script of the shell to its end; return (status, stderr). Nothing else is printed."""
    words = ("-n", name, "--capture", when, *words, "--", "sh", "-c", script)
    result = lab.run(*words, **options)
    assert result.stdout == b""
    return result.returncode, re.sub(r"after \S+[sm]\b", "after N", result.stderr.decode())


READY = "echo ready >>$LAB/log; "


def start(lab, script, *words, **options):
    """Start a script; return once it is READY, with its `readers`."""
    words = ("-n", "job", "--capture", "failed", *words, "--", "sh", "-c", script)
    process = lab.start(*words, **options)
    until(lambda: "ready" in lab.read_log())
    lab.log.write_text("")
    # a new holder of a container has all descriptors for a moment
    until(lambda: len(find_readers(process.pid)) < 2)
    process.readers = find_readers(process.pid)
    return process


def find_readers(pid):
    """Return the children of a process that read output; in a container another one holds."""
    return [
        child
        for child in find_children(pid)
        if is_holder(child) and any("memfd:solo" in path for path in list_open(child))
    ]


def list_kept(lab, name="job"):
    """Return [(whether it failed, text)] of the kept outputs, oldest first."""
    folder = lab.find_journal(name).parent
    try:
        found = sorted(folder.glob(".captured.*"), key=lambda path: path.stat().st_mtime_ns)
        return [(path.suffix == ".failed", path.read_bytes().decode()) for path in found]
    except FileNotFoundError:  # a process of solo is writing it anew
        return list_kept(lab, name)


# --- what is printed and kept --------------------------------------------------------------------


@pytest.mark.parametrize(
    "script, status, head",
    [
        (FAILS, 3, "exit 3"),
        ("echo out; echo err >&2; kill -TERM $$", -15, "SIGTERM"),
        ("echo out; echo err >&2; kill -KILL $$", -9, "SIGKILL"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_output_of_a_failed_run_is_printed_after_a_line(lab, words, script, status, head):
    text = f"solo: job: {head} after N, output:\nout\nerr\n"

    assert capture(lab, script, *words) == (status, text)
    assert list_kept(lab) == [(True, "out\nerr\n")]


def test_output_of_a_success_is_kept_and_not_printed(lab):
    assert capture(lab, "echo out; echo err >&2") == (0, "")
    assert list_kept(lab) == [(False, "out\nerr\n")]


def test_keep_prints_nothing(lab):
    assert capture(lab, FAILS, when="keep") == (3, "")
    assert list_kept(lab) == [(True, "out\nerr\n")]


def test_failed_run_without_output_is_one_line(lab):
    assert capture(lab, "exit 4") == (4, "solo: job: exit 4 after N, no output\n")
    assert list_kept(lab) == [(True, "")]


def test_head_names_what_is_usual(lab):
    for _ in range(5):
        lab.run("-n", "job", "--", "sh", "-c", "exit $(cat $LAB/log)")
    lab.log.write_text("3")

    status, text = capture(lab, "exit $(cat $LAB/log)")

    assert status == 3 and re.match(
        r"solo: job: exit 3 after N \(usually [^)]+\), no output\n", text
    )


def test_timeout_prints_the_output(lab):
    status, text = capture(lab, "echo out; exec sleep 99", "--timeout", "200ms")

    assert status == 124
    assert text.endswith("solo: job: timed out after N, output:\nout\n")


@pytest.mark.parametrize("script, status", [("exec /nonexistent", 127), ("exec /etc/passwd", 126)])
def test_command_that_the_shell_cannot_execute_keeps_its_status(lab, script, status):
    assert capture(lab, script)[0] == status


def test_command_that_cannot_be_executed_is_an_error_and_no_run(lab):
    script = lab.path / "script"
    script.write_text("#!/nonexistent\n")
    script.chmod(0o755)
    result = lab.run("-n", "job", "--capture", "keep", "--", script)

    assert result.returncode == 127
    assert result.stderr.decode() == f"solo: {script}: its interpreter /nonexistent was not found\n"
    assert list_kept(lab) == []


def test_signal_to_the_launcher_reaches_the_command_and_the_output_is_printed(lab):
    process = start(lab, f"trap 'echo trapped; exit 5' TERM; echo out; {READY} {LIVE}")
    process.terminate()

    status, _, err = finish(process)

    assert status == 5 and err.endswith("output:\nout\ntrapped\n")


@pytest.mark.parametrize("again", ["echo b >/dev/stderr", "echo b | tee /dev/stderr >/dev/null"])
def test_stderr_opened_again_keeps_what_came_before(lab, again):
    _, text = capture(lab, f"echo a; {again}; echo c; exit 1")

    assert text.endswith("output:\na\nb\nc\n")


def test_command_that_closes_its_output_and_goes_on_is_waited_for(lab):
    status, text = capture(lab, "echo out; exec >&- 2>&-; echo went on >>$LAB/log; exit 6")

    assert (status, lab.log.read_text()) == (6, "went on\n") and text.endswith("output:\nout\n")


AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'echo b >/dev/stderr'"


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(AS_NOBODY, marks=[pytest.mark.root, pytest.mark.tool("setpriv")]),
        pytest.param("curl -so /dev/stdout file://$LAB/data", marks=pytest.mark.tool("curl")),
    ],
    ids=["of another user", "curl"],
)
def test_stream_opened_again_is_that_of_a_pipe_below_cron(lab, again):
    """Another user may not open it, as with sudo -u."""
    (lab.path / "data").write_text("b\n")
    script = f"echo a; {again}; echo $?; echo c"
    plain = lab.start_words("sh", "-c", script, stderr=subprocess.STDOUT).communicate()[0].decode()
    capture(lab, script)

    assert list_kept(lab) == [(False, plain)]
    assert plain.startswith("a\n") and plain.endswith("\nc\n")


def test_output_without_a_last_newline_is_printed_as_it_is(lab):
    assert capture(lab, "printf out; exit 1")[1].endswith("output:\nout")


def test_binary_output_is_printed_and_kept_byte_by_byte(lab):
    data = bytes(range(256)) * 3
    (lab.path / "data").write_bytes(data)
    result = lab.run("-n", "job", "--capture", "failed", "--", "sh", "-c", "cat $LAB/data; exit 1")

    assert result.stderr.partition(b"output:\n")[2] == data
    [file] = lab.find_journal("job").parent.glob(".captured.*")
    assert file.read_bytes() == data and file.stat().st_mode & 0o777 == 0o600


def test_of_a_longer_output_both_ends_are_kept_and_the_middle_is_counted(lab):
    _, text = capture(lab, "echo first; seq 300000; echo last; exit 1", when="failed,1k")

    head, _, tail = text.partition("[... 2.0 MB left out ...]\n")
    assert "output:\nfirst\n1\n2\n3\n" in head and tail.endswith("\n299999\n300000\nlast\n")


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 30), max_size=12),
    st.sampled_from([1, 7, captured.LARGEST_READ]),
)
def test_memory_has_the_first_and_the_last_half(limit, sizes, largest):
    output = Capture(SimpleNamespace(plan=SimpleNamespace(dir=None)), True, limit)
    data, wrote = bytes(i % 251 for i in range(sum(sizes))), 0
    for size in sizes:
        wrote += os.write(output.sink, data[wrote : wrote + size])
        while output.take(largest) > 0:
            pass

    try:
        head, tail = limit - limit // 2, limit // 2
        left = len(data) - limit
        text = captured.join(output.memory)
        if left <= 0:
            assert text == data
        else:
            assert text == b"%b%b[... %d bytes left out ...]\n%b" % (
                data[:head],
                b"\n" * (data[head - 1] != 10),
                left,
                data[len(data) - tail :],
            )
    finally:
        for fd in (*output.descriptors[1:], output.sink):
            os.close(fd)


def test_ring_of_the_tail_is_written_over(tmp_path):
    output = Capture(SimpleNamespace(plan=SimpleNamespace(dir=None)), True, 100)
    data = b"".join(b"%08d\n" % number for number in range(50000))
    for at in range(0, len(data), 5000):
        os.write(output.sink, data[at : at + 5000])
        while output.take(captured.LARGEST_READ) > 0:
            pass

    assert (
        captured.join(output.memory) == data[:50] + b"\n[... 449.9 kB left out ...]\n" + data[-50:]
    )


@pytest.mark.parametrize(
    "text, value",
    [
        ("failed", (True, 65536)),
        ("keep", (False, 65536)),
        ("failed,1k", (True, 1024)),
        ("failed,4096", (True, 4096)),
        ("keep,64k", (False, 65536)),
        ("keep,2M", (False, 2097152)),
        ("failed,1G", (True, 1 << 30)),
    ],
)
def test_value_is_read(text, value):
    assert read_capture("--capture", text) == value


@pytest.mark.parametrize("value", ["no", "failed,", "failed,64", "keep,2G", "keep,k", "failed,-1"])
def test_wrong_value_is_refused(lab, value):
    result = lab.run("--capture", value, "-n", "job", "true")

    assert result.returncode == 125 and b"--capture" in result.stderr


# --- the files -----------------------------------------------------------------------------------


def test_last_output_and_that_of_the_last_failed_run_stay(lab):
    for status in (1, 2, 0, 3, 0, 0):
        capture(lab, f"echo {status}; exit {status}")
    capture(lab, "echo last")

    assert list_kept(lab) == [(True, "3\n"), (False, "last\n")]


def test_output_of_the_run_that_ended_last_stays(lab):
    first = start(lab, f"{READY} read line; echo ended last; exit 1", "--slots", "2")
    capture(lab, "echo began last; exit 2", "--slots", "2")

    assert finish(first)[0] == 1
    assert list_kept(lab) == [(True, "ended last\n")]
    assert lab.run("history", "--captured", "job").stdout == b"ended last\n"
    assert b"\nended last\n" in lab.run("show", "job").stdout


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_older_output_replaces_no_newer_one(lab, words):
    """It is printed late, and so kept late."""
    read, older = start_unread(lab, "--slots", "2", *words)
    capture(lab, "echo newer; exit 2", "--slots", "2")
    os.close(read)

    assert older.wait(PATIENCE) == 3
    assert list_kept(lab) == [(True, "newer\n")]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.rename(path.with_name(".captured.9" + "0" * 18)),
        lambda path: os.utime(path, (4e9, 4e9)),
    ],
    ids=["token", "clock"],
)
def test_output_before_whose_clock_or_token_was_ahead_is_replaced(lab, change):
    capture(lab, "echo before")
    [path] = lab.find_journal("job").parent.glob(".captured.*")
    change(path)
    capture(lab, "echo after")

    assert list_kept(lab) == [(False, "after\n")]


def test_part_that_a_killed_launcher_wrote_is_removed_by_the_next_run(lab):
    capture(lab, "true")
    part = lab.find_journal("job").parent / ".captured.5.new"
    part.write_text("half")
    capture(lab, "echo next")

    assert list_kept(lab) == [(False, "next\n")]


def test_output_is_kept_with_each_name(lab):
    capture(lab, "echo out", "-n", "a/b")

    assert list_kept(lab, "job") == list_kept(lab, "a/b") == [(False, "out\n")]
    assert list_kept(lab, "a") == []


def test_skip_keeps_no_file_and_prints_what_it_did(lab):
    lab.hold("job")

    assert lab.run("-n", "job", "--capture", "keep", "true").stderr.startswith(b"solo: job: busy: ")
    assert list_kept(lab) == []


def test_socket_prints_and_keeps_nothing(lab):
    assert capture(lab, FAILS, "--via", "socket", env={**lab.environment, "SOLO_DIR": ""}) == (
        3,
        "solo: job: exit 3 after N, output:\nout\nerr\n",
    )
    assert not lab.directory.exists()


@pytest.mark.root
def test_full_disk_loses_the_file_and_neither_the_print_nor_the_run(lab):
    lab.directory.mkdir(mode=0o700)
    mount = f"mount -t tmpfs -o size=128k,mode=700 tmpfs {lab.directory}"
    script = "head -c 300000 /dev/zero | tr '\\0' x; exit 3"

    status, text = capture(lab, script, when="failed,1M", prefix=in_mounts(mount))

    assert status == 3
    assert text == (
        "solo: job: exit 3 after N, output:\n"
        + "x" * 300000
        + "\nsolo: job: the output is not kept: No space left on device\n"
    )


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_nobody_reads_stderr_and_the_status_stays(lab, words):
    read, write = os.pipe()
    os.close(read)
    result = lab.run(
        "-n",
        "job",
        "--capture",
        "failed",
        *words,
        "--",
        "sh",
        "-c",
        FAILS,
        capture_output=False,
        stderr=write,
    )
    os.close(write)

    assert result.returncode == 3 and list_kept(lab) == [(True, "out\nerr\n")]


def start_unread(lab, *words):
    """Start a run that FAILS; return (the read end of its full stderr, the process), once that is
    waiting for a reader.
    """
    read, write = make_full_pipe()
    run = ("-n", "job", "--capture", "failed", *words, "--", "sh", "-c", FAILS)
    process = lab.start(*run, stderr=write)
    os.close(write)
    until(lambda: read_call(process.pid).split()[0] == WRITE)
    return read, process


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_name_is_free_and_all_have_heard_while_nobody_reads_the_output(lab, words):
    notify = 'cp "$SOLO_CAPTURED" $LAB/copy; mv $LAB/copy $LAB/output'
    read, process = start_unread(lab, "--notify", notify, *words)

    until((lab.path / "output").exists)
    assert (lab.path / "output").read_text() == "out\nerr\n"
    assert [run["outcome"] for run in lab.history()] == ["failed"]
    assert lab.run("-n", "job", "true").returncode == 0
    process.terminate()
    assert process.wait(PATIENCE) == 3
    assert list_kept(lab) == [(True, "out\nerr\n")]
    assert find_children(process.pid) == []
    os.close(read)


def test_killed_launcher_that_prints_has_kept_the_output(lab):
    read, process = start_unread(lab)
    kill(process)

    until(lambda: list_kept(lab) == [(True, "out\nerr\n")])
    os.close(read)


@pytest.mark.tool("prlimit")
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_limit_of_file_size_that_forbids_to_capture_is_a_refusal(lab, words):
    run = ("-n", "job", "--capture", "failed", *words, "--", "sh", "-c", "echo ran >$LAB/log")
    result = lab.run(*run, prefix=("prlimit", "--fsize=100000"))

    assert result.returncode == 125
    assert result.stderr == b"solo: job: cannot prepare the run: File too large\n"
    assert [run["outcome"] for run in lab.history()] == ["refused"]
    assert lab.log.read_text() == ""


@pytest.mark.tool("prlimit")
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_too_few_descriptors_are_a_refusal_of_the_name(lab, words):
    lab.use_modules()  # the descriptor of the bundle leaves Python too few to get so far
    refusals = 0
    for limit in range(7, 16):
        run = ("-n", "job", "--capture", "failed", *words, "--", "sh", "-c", "exit 3")
        result = lab.run(*run, prefix=("prlimit", f"--nofile={limit}"))

        assert result.returncode in (125, 3)
        assert result.stderr.startswith((b"solo: job: ", b"solo: cannot load "))
        assert result.returncode == 3 or b" Too many open files" in result.stderr
        refusals += b"cannot prepare the run" in result.stderr
    assert refusals > 1


# --- the processes -------------------------------------------------------------------------------


def test_reader_has_nothing_of_the_caller_and_blocks_every_signal(lab):
    process = start(lab, f"{READY} read line")
    [reader] = process.readers

    def list_kinds():
        return sorted(re.sub(r"[:\d]+", "", path).split(" ")[0] for path in list_open(reader))

    ours = ["/memfdsolo", "pipe[]", "pipe[]"]
    until(lambda: list_kinds() == ours)
    blocked = re.search(r"SigBlk:\s(\w+)", open(f"/proc/{reader}/status").read())[1]
    assert int(blocked, 16) & 0x7FFFFFFF == 0x7FFFFFFF & ~(1 << 8) & ~(1 << 18)
    assert os.getsid(reader) == reader
    until(lambda: os.path.samefile(f"/proc/{reader}/cwd", "/"))  # the last step before it reads
    finish(process)
    wait_dead(reader)


def test_output_of_a_waiter_is_captured(lab):
    """Its command was forked before its turn."""
    holder = lab.hold("job")
    waiter = lab.start_waiter("job", "--capture", "failed", script=FAILS)
    finish(holder)

    status, out, err = finish(waiter)

    assert (status, out) == (3, "") and err.endswith("output:\nout\nerr\n")


def test_nested_runs_have_each_its_own_output(lab):
    inner = '"$SOLO" -n inner --capture failed -- sh -c "echo inner; exit 2"; echo outer; exit 1'
    _, text = capture(lab, inner)

    assert text == (
        "solo: job: exit 1 after N, output:\nsolo: inner: exit 2 after N, output:\ninner\nouter\n"
    )
    assert list_kept(lab, "inner") == [(True, "inner\n")]


def test_tar_of_the_directory_that_keeps_the_output_succeeds(lab):
    capture(lab, "echo before")

    assert capture(lab, f"tar -cvf $LAB/tar {lab.directory}") == (0, "")


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_process_1_of_a_container_ends_once_the_output_is_kept(lab, words):
    script = "trap '' TERM; (sleep 60 >/dev/null 2>&1 </dev/null) & echo out; exit 3"
    script = FAILS if words else script

    assert capture(lab, script, *words, prefix=INNER)[0] == 3
    assert list_kept(lab) in ([(True, "out\n")], [(True, "out\nerr\n")])


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_reader_is_no_descendant_where_proc_is_read_only(lab, words):
    """Then it cannot get its name. With --tree solo waited for it without end."""
    prefix = in_mounts("mount -o bind,remount,ro /proc")

    assert capture(lab, FAILS, *words, prefix=prefix)[0] == 3
    assert list_kept(lab) == [(True, "out\nerr\n")]


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_launcher_leaves_no_process(lab, words):
    process = start(lab, f"{READY} read line", *words)
    readers = process.readers or [
        one for child in find_children(process.pid) for one in find_readers(child)
    ]
    finish(process)

    assert [read_state(reader) for reader in readers] == ["gone"]


@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_idle_launcher_and_reader_make_no_system_call(lab, words):
    from conftest import count_switches

    process = start(lab, f"{READY} read line", *words)
    pids = [process.pid, *find_children(process.pid)]
    until(lambda: all(read_state(pid) == "S" for pid in pids))
    before = [count_switches(pid, ("voluntary",)) for pid in pids]
    select.select([], [], [], 0.2)

    assert [count_switches(pid, ("voluntary",)) for pid in pids] == before
    finish(process)


def test_daemon_left_behind_keeps_only_the_reader(lab, daemons):
    fifo = lab.path / "fifo"
    os.mkfifo(fifo)
    script = "sh -c 'echo $$ >>$LAB/log; read line <$LAB/fifo; echo later; exec >&- 2>&-' & echo out; exit 3"
    process = lab.start("-n", "job", "--capture", "failed", "--", "sh", "-c", script, stdout=None)

    assert process.wait(PATIENCE) == 3
    assert process.stderr.read().decode().endswith("output:\nout\n")
    assert list_kept(lab) == [(True, "out\n")]
    daemons.extend(map(int, lab.read_log()))
    with open(fifo, "w") as file:
        file.write("go\n")
    until(lambda: list_kept(lab) == [(True, "out\nlater\n")])


def test_constant_memory_holds_any_output(lab):
    process = start(lab, f"head -c 100M /dev/zero; {READY} read line; exit 1")
    [reader] = process.readers
    peak = re.search(r"VmHWM:\s+(\d+) kB", open(f"/proc/{reader}/status").read())

    assert int(peak[1]) < 40000
    assert b"[... 104.8 MB left out ...]" in finish(process)[2].encode()


# --- SIGKILL -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--no-orphan",)], ids=["orphan", "no orphan"])
def test_killed_launcher_loses_no_output_and_ends_nothing(lab, words):
    process = start(lab, f"echo out; {READY} read line; echo later; exit 0", *words)
    kill(process)
    if not words:
        process.stdin.close()

    until(lambda: list_kept(lab) == [(True, "out\n" + "later\n" * (not words))])


def test_output_of_a_killed_launcher_is_collected_by_the_next_runs(lab):
    process = start(lab, f"echo out; {READY} read line")
    kill(process)
    process.stdin.close()
    until(lambda: list_kept(lab))
    capture(lab, "echo next; exit 1")

    assert list_kept(lab) == [(True, "next\n")]


def test_killed_reader_loses_no_output_and_ends_nothing(lab):
    process = start(lab, f"echo out; {READY} read line; echo later; exit 3")
    for _ in range(2):
        [reader] = find_readers(process.pid)
        os.kill(reader, signal.SIGKILL)
        until(lambda reader=reader: reader not in find_readers(process.pid))
        until(lambda: find_readers(process.pid))

    status, _, err = finish(process)

    assert status == 3 and err.endswith("output:\nout\nlater\n")


@pytest.mark.parametrize("also_reader", [False, True])
def test_killed_lower_process_of_tree_loses_no_output(lab, also_reader):
    process = start(lab, f"echo out; {READY} read line; echo later; exit 3", "--tree")
    [lower] = find_children(process.pid)
    [reader] = find_readers(lower)
    os.kill(lower, signal.SIGKILL)
    wait_dead(lower)
    if also_reader:
        os.kill(reader, signal.SIGKILL)

    status, _, err = finish(process)

    assert status == 3 and err.endswith("output:\nout\nlater\n")
    assert list_kept(lab) == [(True, "out\nlater\n")]


@pytest.mark.tool("strace")
def test_reader_killed_after_a_read_loses_no_line(lab):
    """It has read the line and could not count it."""
    process = start(lab, f"{READY} read line; echo out; echo ready >>$LAB/log; read line; exit 3")
    [reader] = process.readers
    tracer = lab.start_words(
        *inject(lab, "readv:delay_exit=60000000:when=1"), "-p", str(reader), stdin=None
    )
    until(lambda: "strace" in open(f"/proc/{tracer.pid}/comm").read())
    until(lambda: re.search(r"TracerPid:\s+[1-9]", open(f"/proc/{reader}/status").read()))
    process.stdin.write(b"\n")
    process.stdin.flush()
    until(lambda: lab.read_log() == ["ready"])
    pipe = os.open(f"/proc/{reader}/fd/{find_source(reader)}", os.O_RDONLY | os.O_NONBLOCK)
    until(lambda: not struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
    os.close(pipe)
    os.kill(reader, signal.SIGKILL)
    kill(tracer)
    until(lambda: find_readers(process.pid) not in ([], [reader]))

    assert finish(process)[2].endswith("output:\nout\n")


def find_source(reader):
    """Return the descriptor of the output's pipe, the lower one of two."""
    return min(
        int(fd)
        for fd in os.listdir(f"/proc/{reader}/fd")
        if os.readlink(f"/proc/{reader}/fd/{fd}").startswith("pipe:")
    )


def list_calls(trace, has_forked=False):
    """Return a kill, as `inject` takes it, at each system call of a launcher from its first
    fork on.
    """
    counts, points = {}, []
    for row in trace.read_text().splitlines():
        if match := re.match(r"(\w+)\(", row):
            counts[match[1]] = counts.get(match[1], 0) + 1
            has_forked = has_forked or match[1] in ("clone", "fork", "clone3")
            if has_forked:
                points.append(f"{match[1]}:signal=KILL:when={counts[match[1]]}")
    return points


@pytest.mark.full
@pytest.mark.tool("strace")
@pytest.mark.parametrize("words", [(), ("--tree",)], ids=["plain", "tree"])
def test_sigkill_at_every_system_call_of_the_launcher_loses_no_line(lab, words):
    run = ("--capture", "failed", *words, "--", "sh", "-c", f"{LINES} exit 3")
    trace = lab.path / "trace"
    lab.run("-n", "job", *run, prefix=("strace", "-qq", "-o", trace))
    for number, point in enumerate(tally.choose(list_calls(trace), SAMPLE)):
        name = f"job{number}"  # a reader may outlive its launcher, and keep the output later
        lab.log.write_text("")
        result = lab.run("-n", name, *run, prefix=inject(lab, point))
        assert result.returncode in (3, -signal.SIGKILL), point
        assert lab.run("-w", "1m", "-n", name, "true").returncode == 0
        if lab.read_log():
            until(lambda name=name: list_kept(lab, name) == [(True, TEXT)])
        else:
            assert list_kept(lab, name) == [] and result.returncode != 3, point
        tally.add(kills=1, launchers=1)


@pytest.mark.full
@pytest.mark.tool("strace")
def test_sigkill_at_every_system_call_of_the_lower_process_prints_and_logs_once(lab):
    def run(*what):
        process = start(lab, f"{READY} read line; {LINES} exit 3", "--tree")
        [lower] = find_children(process.pid)
        with trace(lab, lower, *what):
            status, _, err = finish(process)
        return status, err

    run()
    points = list_calls(lab.path / "injected", True)[-SAMPLE:]  # before: a search of descendants
    unknown = []  # between waitpid(2) and its report nobody knows the command's status
    for number, point in enumerate(tally.choose(points, SAMPLE), 2):
        status, err = run(point)
        unknown += [point] if status == -signal.SIGKILL else []
        assert (status == 3 or unknown == [point]) and err.endswith(f"output:\n{TEXT}"), point
        assert err.count("output:\n") == 1, point
        assert (
            re.findall("^ended", lab.find_journal("job").read_text(), re.M) == ["ended"] * number
        ), point
        tally.add(kills=count_injected(lab), launchers=1)


@contextlib.contextmanager
def trace(lab, pid, *what):
    """Trace a process, with faults as `inject` takes them."""
    tracer = lab.start_words(*inject(lab, *what), "-p", str(pid), stdin=None)
    until(lambda: re.search(r"TracerPid:\s+[1-9]", open(f"/proc/{pid}/status").read()))
    yield tracer
    tracer.wait(PATIENCE)


@pytest.mark.tool("strace")
def test_reader_that_was_stopped_while_it_reads_holds_nothing_back(lab):
    process = start(lab, f"{READY} read line; echo out; read line; exit 3")
    [reader] = process.readers
    with trace(lab, reader, "readv:signal=STOP:when=1"):
        process.stdin.write(b"\n")
        process.stdin.flush()
        until(lambda: "stopped by SIGSTOP" in (lab.path / "injected").read_text())
        status, _, err = finish(process)

    assert status == 3 and err.endswith("output:\nout\n")


@pytest.mark.tool("strace")
def test_output_that_cannot_be_replaced_stays(lab, daemons):
    fifo = lab.path / "fifo"
    os.mkfifo(fifo)
    script = "sh -c 'echo $$ >>$LAB/log; read line <$LAB/fifo; echo later; exec >&- 2>&-' & echo out; exit 3"
    process = start(lab, f"{READY} read line; {script}", stdout=None)
    [reader] = process.readers
    with trace(lab, reader, "pwrite64:error=ENOSPC:when=1+"):
        assert finish(process)[0] == 3
        daemons.extend(map(int, lab.read_log()))
        with open(fifo, "w") as file:
            file.write("go\n")

    assert list_kept(lab) == [(True, "out\n")]
    assert count_injected(lab) == 1


@pytest.mark.full
@pytest.mark.tool("strace")
def test_sigkill_at_every_system_call_of_the_reader_loses_no_line(lab):
    calls = ("poll", "fcntl", "readv")
    for call in calls:
        for when in range(1, 14):
            process = start(lab, f"{READY} read line; {LINES} read line; exit 3")
            [reader] = process.readers
            prefix = inject(lab, f"{call}:signal=KILL:when={when}")
            tracer = lab.start_words(*prefix, "-p", str(reader), stdin=None)
            until(lambda: re.search(r"TracerPid:\s+[1-9]", open(f"/proc/{reader}/status").read()))
            process.stdin.write(b"\n")
            process.stdin.flush()
            until(lambda: "done" in lab.read_log())
            lab.log.write_text("")
            status, _, err = finish(process)
            assert status == 3 and err.endswith(f"output:\n{TEXT}"), (call, when)
            tracer.wait(PATIENCE)
            tally.add(kills=count_injected(lab), launchers=1)


# --- on a terminal -------------------------------------------------------------------------------


def test_terminal_is_warned_and_not_controlled(lab, terminal):
    screen = terminal(
        lab.script,
        "-n",
        "job",
        "--capture",
        "failed",
        "--",
        "sh",
        "-c",
        "test -t 1; printf 'a\\tb\\033[31m\\n'; exit 3",
    ).read_to_end()

    head, _, text = screen.decode().replace("\r", "").partition("output:\n")
    assert head.startswith(
        "solo: job: --capture gives the command a pipe instead of the terminal\n"
    )
    assert text == "a       b\\x1b[31m\n"


def test_python_program_can_be_told_not_to_buffer(lab):
    """As below cron: what a killed program has buffered is lost."""
    code = "import os; print('out'); os.kill(os.getpid(), 9)"
    for value, text in (("", ""), ("1", "out\n")):
        environment = {**lab.environment, "PYTHONUNBUFFERED": value}
        words = ("-n", "job", "--capture", "failed", "--", sys.executable, "-S", "-c", code)
        lab.run(*words, env=environment)
        assert list_kept(lab) == [(True, text)]


@pytest.mark.tool("prlimit")
def test_status_is_the_commands_if_memory_runs_out_at_the_end(lab):
    words = ("--capture", "failed,100M", "--", "sh", "-c", "head -c 110000000 /dev/zero; exit 3")

    result = lab.run("-n", "job", *words, prefix=("prlimit", "--as=300000000"))

    assert result.returncode == 3
    assert result.stderr.endswith(b"solo: job: the output is not kept: Cannot allocate memory\n")
