"""The section TRUST of solo(1): what other users can leave in a directory, doctor's verdict, and
remedies that work when typed.
"""

import ast
import os
import re
import shlex
import signal
import stat
import subprocess
from contextlib import contextmanager
from importlib.util import cache_from_source

import pytest
from conftest import (
    CAPTURED,
    LIBC,
    NOBODY,
    ROOT,
    count_injected,
    finish,
    inject,
    kill,
    read_call,
    read_state,
    until,
)

from solo.commands import doctor
from solo.commands.lookup import Asked
from solo.identity import read_origin
from solo.modes import Claim
from solo.process.tree import find_children
from solo.record import RESERVED, Record, format_closing, format_record

OTHER, GROUP = 65533, 4242  # another user without a name, and a group
TICKET = ".hold.00000000000000000001"
IN_OPEN = 32  # of inotify(7)
OPENAT = {"x86_64": "257", "aarch64": "56"}[os.uname().machine]  # in /proc/PID/syscall


def act_as_nobody(*words):
    subprocess.run([*map(str, words)], user=NOBODY, group=NOBODY, extra_groups=[], check=True)


def leave(*words):
    """Run words, the last of which is a path, and give the result to nobody, who cannot enter the
    place of a lab.
    """
    subprocess.run([*map(str, words)], check=True)
    subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", words[-1]], check=True)


def make_base(lab, mode, group=0):
    lab.directory.mkdir()
    os.chown(lab.directory, 0, group)
    lab.directory.chmod(mode)


def give_away(path):
    os.chown(path, NOBODY, NOBODY)


def share_with_group(job):
    os.chown(job, 0, NOBODY)
    job.chmod(0o770)


def open_to_all(job):
    subprocess.run(["chmod", "-R", "go+rwX", job], check=True)


def make_nested_of_nobody(job):
    leave("sh", "-c", 'mkdir -m 1777 "$0" "$0/sub" && touch "$0/.gate" "$0/sub/.gate"', job)


def replace_gate(job, *words):
    (job / ".gate").unlink()
    leave(*words, job / ".gate")


def link_gate(job):
    (job / ".gate").unlink()
    (job / ".gate").symlink_to("/etc/passwd")


def find_remedies(text):
    """Return the commands in parentheses at the end of a message; each alone must do."""
    remedy = re.search(
        r"\((?:as root: |as root, |once that has ended: |run )*((?:(?! \().)*)\)$", text
    )[1]
    return remedy.split(", or to share it with all users: ")


# The mode of the base, what goes wrong with the directory of `job`, and the state that doctor gives
# it.
SPOILED = {
    "group can write in name": (0o755, share_with_group, "fails"),
    "name of other user": (0o755, give_away, "fails"),
    "name open to all": (0o755, open_to_all, "fails"),
    "damaged ticket": (0o755, lambda job: (job / TICKET).touch(), "fails"),
    "fifo as ticket": (0o755, lambda job: os.mkfifo(job / TICKET), "fails"),
    "directory as ticket": (0o755, lambda job: (job / TICKET).mkdir(), "fails"),
    "link as gate": (0o755, link_gate, "fails"),
    "base open to all": (0o755, lambda job: job.parent.chmod(0o777), "fails"),
    "sticky: name of other user": (0o1777, give_away, "note"),
    "sticky: gate of other user": (0o1777, lambda job: replace_gate(job, "touch"), "fails"),
    "sticky: fifo as gate": (0o1777, lambda job: replace_gate(job, "mkfifo"), "fails"),
    "sticky: link as gate": (
        0o1777,
        lambda job: replace_gate(job, "ln", "-s", "/etc/passwd"),
        "fails",
    ),
    "sticky: no sticky bit": (0o1777, lambda job: job.chmod(0o777), "fails"),
    "sticky: damaged ticket of root": (0o1777, lambda job: (job / TICKET).touch(), "fails"),
    "group: name open to all": (0o2770, lambda job: job.chmod(0o2777), "fails"),
}


@pytest.fixture
def ask_doctor(lab, capsys):
    """A function that returns (status, lines) of doctor in this process: a start of it takes 200 ms
    of CPU.
    """

    def ask():
        return doctor.run(Asked(dir=str(lab.directory)), []), capsys.readouterr().out.splitlines()

    return ask


@pytest.mark.root
@pytest.mark.parametrize("case", SPOILED)
def test_remedy_works_when_typed_and_doctor_gives_the_same(lab, ask_doctor, case):
    base, spoil, state = SPOILED[case]
    count = 2 if case == "base open to all" else 1
    for at in range(count):
        subprocess.run(["rm", "-rf", lab.directory], check=True)
        make_base(lab, base)
        lab.run("-n", "job", "true")
        spoil(lab.directory / "job")

        (status, lines), result = ask_doctor(), lab.run("-n", "job", "true")  # both change nothing
        error = result.stderr.decode().strip()
        subprocess.run(["sh", "-c", find_remedies(error)[at]], check=True)

        assert result.returncode == 125 and "\n" not in error and len(find_remedies(error)) == count
        assert f"{state:<5}  {error.removeprefix('solo: job: ')}" in lines and status == (
            state == "fails"
        )
        assert lab.run("-n", "job", "true").returncode == 0 and ask_doctor()[0] == 0


@pytest.mark.root
@pytest.mark.parametrize(
    "make", [make_nested_of_nobody, lambda job: leave("touch", job)], ids=["nested name", "file"]
)
def test_remedy_for_what_other_user_made_first_works_when_typed(lab, make):
    make_base(lab, 0o1777)
    make(lab.directory / "job")

    error = lab.run("-n", "job/sub", "true").stderr.decode().strip()
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    assert error.startswith("solo: job: cannot ") and f"uid {NOBODY}" in error
    assert lab.run("-n", "job/sub", "true").returncode == 0


@pytest.mark.root
def test_remedy_for_wide_files_works_when_typed(lab):
    make_base(lab, 0o755)
    lab.run("-n", "job", "true")
    (lab.directory / "job").chmod(0o755)
    (lab.directory / "job/.gate").chmod(0o644)

    remedy = (
        lab.run("doctor").stdout.decode().splitlines()[-1].removeprefix("not ready; first: run ")
    )
    subprocess.run(["sh", "-c", remedy.replace("solo", lab.script, 1)], check=True)

    assert remedy == f"solo clean --dir {lab.directory}" and lab.run("doctor").returncode == 0


# --- a directory for all users--------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [
        "touch",
        "mkfifo",
        "mkdir",
        "ln -s /etc/passwd",
        "mkdir -m 0",
        "sh -c 'umask 777 && : >\"$0\"'",
    ],
)
@pytest.mark.parametrize("kind", [".hold.", ".seat."])
def test_file_of_other_user_that_is_no_ticket_blocks_nobody(common, words, kind):
    make_base(common, 0o1777)
    common.run("-n", "job", "true")
    junk = common.directory / f"job/{kind}{'1':>020}"
    act_as_nobody(*shlex.split(words), junk)

    results = [common.run("-n", "job", "--", "echo", "ran", user=user) for user in (OTHER, 0)]

    assert [(result.returncode, result.stdout, result.stderr) for result in results] == [
        (0, b"ran\n", b"")
    ] * 2


@pytest.mark.root
def test_doctor_notes_what_solo_ignores_and_views_show_the_holder(lab):
    make_base(lab, 0o1777)
    lab.run("-n", "job", "true")
    holder = lab.hold("job")
    leave("mkdir", lab.directory / "job" / TICKET)

    shown, doctor = lab.run("show", "job"), lab.run("doctor")

    assert (
        shown.returncode == 0
        and b"job: 1 held" in shown.stdout
        and lab.run("-n", "job", "true").returncode == 75
    )
    [note] = [
        text
        for text in doctor.stdout.decode().splitlines()
        if "is no ticket, and solo ignores it" in text
    ]
    subprocess.run(["sh", "-c", find_remedies(note)[0]], check=True)
    assert doctor.returncode == 0 and not (lab.directory / "job" / TICKET).exists()
    assert lab.run("stop", "job").returncode == 0 and holder.wait() is not None


@pytest.mark.root
def test_live_and_orphaned_tickets_of_other_user_hold(common):
    """They are tickets, unlike what is ignored."""
    make_base(common, 0o1777)
    common.run("-n", "job", "true")
    holder = common.start(
        "-n", "job", "--", "sh", "-c", "echo; read line; exit 0", user=NOBODY, group=NOBODY
    )
    holder.stdout.readline()

    assert common.run("-n", "job", "true", user=OTHER).returncode == 75
    kill(holder)
    assert common.run("-n", "job", "true", user=OTHER).returncode == 75
    holder.stdin.close()
    assert common.run("--wait", "1m", "-n", "job", "true", user=OTHER).returncode == 0


def make_fifo(path):
    os.mkfifo(path, 0o600)
    return path


def make_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        pytest.skip("needs a file system with devices, and CAP_MKNOD")
    return path


def make_link(path):
    path.symlink_to(make_fifo(path.with_name("target")))
    return path.with_name("target")


@contextmanager
def watch_opens(path):
    """Yield a function that returns whether a process has opened the file since it was last
    called.
    """
    watch = LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    assert LIBC.inotify_add_watch(watch, os.fsencode(path), IN_OPEN) >= 0

    def was_opened():
        try:
            return bool(os.read(watch, 4096))
        except BlockingIOError:
            return False

    yield was_opened
    os.close(watch)


def claim_descriptor(job, path, found):
    """Leave the hold of a descriptor by nobody, whose processes have ended: its record names
    `path`, and the inode `found`.
    """
    gone = (1 << 22) + 1  # no pid is greater than 1 << 22
    record = Record((gone, 1), read_origin(), NOBODY, Claim("X"), ["job"], [b"job"])
    record.keep, record.descriptor = (
        (gone, 1),
        (gone, 1, found.st_dev, found.st_ino, 0, os.fsencode(path)),
    )
    (job / TICKET).write_bytes(format_record(record)[:-RESERVED] + format_closing((gone, 1)))
    give_away(job / TICKET)


@pytest.mark.root
@pytest.mark.parametrize("make", [make_fifo, make_device, make_link])
@pytest.mark.parametrize("look", [os.stat, os.lstat])
def test_root_opens_no_file_but_a_regular_one_that_another_user_names(
    shared, solo_script, make, look
):
    shared.run("-n", "job", "true")
    path = shared.path / "file"
    target = make(path)
    claim_descriptor(shared.directory / "job", path, look(path))

    with watch_opens(target) as was_opened:
        subprocess.run([solo_script, "list"], env=shared.environment, check=True, **CAPTURED)
        result = shared.run("-n", "job", "true")
        opened = was_opened()
        os.close(os.open(target, os.O_RDONLY | os.O_NONBLOCK))

        assert (result.returncode, opened, was_opened()) == (0, False, True)


def is_opening(pid):
    return read_state(pid) == "S" and read_call(pid).split()[0] == OPENAT


@pytest.mark.root
def test_writer_of_a_fifo_that_another_user_names_stays_blocked(shared):
    shared.run("-n", "job", "true")
    fifo = make_fifo(shared.path / "fifo")
    claim_descriptor(shared.directory / "job", fifo, os.stat(fifo))
    writer = shared.start_words("sh", "-c", 'echo "$$" >"$0"', fifo)
    until(lambda: is_opening(writer.pid))

    assert shared.run("-n", "job", "true").returncode == 0 and is_opening(writer.pid)
    assert finish(shared.start_words("cat", fifo))[1] == f"{writer.pid}\n"


@pytest.mark.root
def test_journals_of_other_user_are_named_with_remedy(lab):
    make_base(lab, 0o1777)
    leave("mkdir", lab.directory / ".journals.0")
    day = ("-n", "job", "--once-per", "1d", "--", "echo", "ran")

    error, doctor = lab.run(*day).stderr.decode().strip(), lab.run("doctor")
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    assert error.startswith(
        f"solo: job: cannot use {lab.directory}/.journals.0: it belongs to uid {NOBODY}, who "
    )
    assert (
        doctor.returncode == 1
        and f"fails  {error.removeprefix('solo: job: ')}".encode() in doctor.stdout
    )
    assert lab.run(*day).stdout == b"ran\n" and lab.run("doctor").returncode == 0


def test_show_lists_tickets_beside_one_that_cannot_be_read(lab):
    holder = lab.hold("job", "-s")
    (lab.directory / "job" / TICKET).touch()

    result = lab.run("show", "job")

    assert result.returncode == 125 and b"job: 1 held" in result.stdout
    assert result.stderr.startswith(
        f"solo: job: cannot read {lab.directory}/job/{TICKET}: it is damaged".encode()
    )
    assert finish(holder)[0] == 0


# --- a directory for a group----------------------------------------------------------------------


def start_member(lab, user, *words):
    return lab.start(*words, user=user, group=user, extra_groups=[GROUP])


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o770, 0o775, 0o2770])
def test_members_with_other_primary_groups_share_names(common, mode):
    make_base(common, mode, GROUP)
    first = start_member(common, OTHER, "-n", "up/job", "--", "sh", "-c", "echo; read line; exit 0")
    first.stdout.readline()
    second = start_member(common, NOBODY, "--wait", "1m", "-n", "up/job", "--", "echo", "ran")
    until(lambda: common.count_waiting("up/job"))

    assert finish(first)[0] == 0 and finish(second) == (0, b"ran\n".decode(), "")
    places = [path for path in common.directory.rglob("*") if path.is_dir()]
    assert {(path.stat().st_gid, path.stat().st_mode & 0o7777) for path in places} == {
        (GROUP, 0o2770)
    }


@pytest.mark.root
def test_name_with_group_of_earlier_version_is_refused_with_remedy(common):
    make_base(common, 0o770, GROUP)
    start_member(common, OTHER, "-n", "job", "true").wait()
    for path in (common.directory / "job", common.directory / "job/.gate"):
        os.chown(path, OTHER, OTHER)
    (common.directory / "job").chmod(0o770)

    error = finish(start_member(common, NOBODY, "-n", "job", "true"))[2].strip()
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    reason = f"Permission denied (as root: chgrp -R {GROUP} "
    assert error.startswith(f"solo: job: cannot open {common.directory}/job: {reason}")
    assert [
        finish(start_member(common, user, "-n", "job", "true"))[0] for user in (NOBODY, OTHER)
    ] == [0, 0]


@pytest.mark.root
@pytest.mark.parametrize("file", ["job/{0}", "job/.gate", "job"])
@pytest.mark.parametrize("user", [0, NOBODY])
def test_what_lost_its_mode_is_refused_with_the_mode_as_remedy(common, user, file):
    """Another place would be another lock."""
    make_base(common, 0o1777, 0)
    holder = common.hold("job", user=user)
    path = common.directory / file.format(common.find_hold("job").name)
    mode = path.stat().st_mode & 0o7777
    path.chmod(0)

    error = common.run("-n", "job", "true", user=NOBODY).stderr.decode().strip()
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    who = "as root: " if user == 0 else ""
    assert error.endswith(f"{path}: Permission denied ({who}chmod {mode:o} {path})")
    assert common.run("-n", "job", "true", user=NOBODY).returncode == 75
    finish(holder)


@pytest.mark.root
def test_name_that_cannot_get_the_group_is_refused_with_remedy(common):
    """The user of the base is no member of its group, so that chown(2) fails."""
    make_base(common, 0o770, GROUP)
    os.chown(common.directory, OTHER, GROUP)

    refused = common.run("-n", "job", "true", user=OTHER, group=OTHER, extra_groups=[])
    error = refused.stderr.decode().strip()
    left = os.listdir(common.directory)
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    place = common.directory
    reason = f"it cannot get the group of {place} (as root: chmod g+s {place})"
    assert error == f"solo: job: cannot create {place}/job: {reason}"
    assert (refused.returncode, left) == (125, [])
    assert common.run("-n", "job", "true", user=OTHER, group=OTHER, extra_groups=[]).returncode == 0


@pytest.mark.root
@pytest.mark.tool("strace")
def test_full_file_system_keeps_no_unnamed_directory(lab):
    make_base(lab, 0o2770)

    result = lab.run("-n", "job", "true", prefix=inject(lab, "renameat:error=ENOSPC:when=1"))

    assert (result.returncode, count_injected(lab), os.listdir(lab.directory)) == (
        125,
        1,
        [".journals"],
    )
    assert result.stderr.decode().startswith(
        f"solo: job: cannot create {lab.directory}/job: No space left on device (free some space; "
    )


@pytest.mark.root
@pytest.mark.tool("strace")
def test_directory_that_another_contender_made_meanwhile_is_used(lab):
    make_base(lab, 0o2770)
    slow = lab.start(
        "-n", "job", "--", "echo", "ran", prefix=inject(lab, "fchmod:signal=STOP:when=1")
    )
    until(
        lambda: [
            path for path in lab.directory.glob(".new.*") if path.stat().st_mode & 0o7777 == 0o2770
        ]
    )

    assert lab.run("-n", "job", "true").returncode == 0
    [launcher] = [pid for pid, _ in find_children(slow.pid)]
    os.kill(launcher, signal.SIGCONT)

    assert finish(slow) == (0, "ran\n", "") and not list(lab.directory.glob(".new.*"))


# --- messages-------------------------------------------------------------------------------------


def test_doctor_creates_nothing(lab):
    lab.path.joinpath("place").mkdir()

    typo = lab.run("doctor", "--dir", lab.path / "place/typo")
    deep = lab.run("doctor", "--dir", lab.path / "place/deep/typo")

    assert (typo.returncode, deep.returncode, os.listdir(lab.path / "place")) == (0, 1, [])
    assert (
        f"note   {lab.path}/place/typo does not exist: the first run makes it".encode()
        in typo.stdout
    )
    assert (
        f"fails  cannot create {lab.path}/place/deep/typo: No such file or directory (".encode()
        in deep.stdout
    )


def test_relative_dir_in_removed_directory_is_named(lab):
    script = 'mkdir "$LAB/gone" && cd "$LAB/gone" && rmdir "$LAB/gone" && exec "$SOLO" --dir rel -n job true'

    status, _, text = finish(lab.start_shell(script))

    reason = "No such file or directory (give an absolute path)"
    assert (status, text) == (125, f"solo: cannot find rel from the working directory: {reason}\n")


@pytest.mark.tool("prlimit")
def test_lack_of_descriptors_is_reported_with_verb_and_without_remedy(lab):
    lab.run("-n", "job", "true")

    results = [
        lab.run("-n", "job", "--", "true", prefix=("prlimit", f"--nofile={limit}"))
        for limit in range(4, 12)
    ]

    errors = {result.stderr.decode() for result in results if result.returncode == 125}
    assert (
        len(errors) >= 4
        and f"solo: job: cannot lock {lab.directory}/job/.gate: Too many open files\n" in errors
    )
    assert all(
        re.fullmatch(r"solo: (job: )?cannot [^:]*: Too many open files\n", error)
        for error in errors
    ), errors


@pytest.mark.tool("strace")
def test_reason_is_reported_if_its_remedy_cannot_be_loaded(lab):
    lab.use_modules()
    lab.directory.touch()
    remedies = ROOT / "solo/text/remedies.py"

    fail = inject(lab, "openat:error=EMFILE", paths=[remedies, cache_from_source(remedies)])
    result = lab.run("-n", "job", "true", prefix=fail)

    reason = f"solo: job: cannot open {lab.directory}: Not a directory\n"
    assert (result.returncode, result.stderr.decode()) == (125, reason) and count_injected(lab)


def test_path_in_remedy_is_quoted(lab):
    lab.directory = lab.path / "it's a place"
    lab.environment["SOLO_DIR"] = str(lab.directory)
    lab.run("-n", "job", "true")
    (lab.directory / "job").chmod(0o770)

    error = lab.run("-n", "job", "true").stderr.decode().strip()
    subprocess.run(["sh", "-c", find_remedies(error)[0]], check=True)

    assert lab.run("-n", "job", "true").returncode == 0


# --- each place that follows what others say------------------------------------------------------

# The functions that read a process or a file of a record, or /proc/PID, or signal a process: why
# they do nothing for another user that this user could not do. A new one needs its place here.
ASKS, SAYS = (
    "it asks whether that user could have signalled the process",
    "it compares, shows or passes on",
)
SAFE = {
    ASKS: """
        contention/deadlock:Look.list_waiting contention/deadlock:list_processes
        contention/evict:ask_to_end contention/evict:kill_command contention/evict:kill_descendants
        contention/evict:kill_launcher contention/policies:wake obstacles:find_own_ancestors process/tree:find_roots
        text/describe:describe_owner text/describe:find_directory text/rows:find_claims
    """,
    SAYS: """
        commands/remote:select_own commands/remote:release_name commands/history:find_holds commands/states:make_row
        history/health:is_living commands/hold:Keeping.guard commands/list:show_slot process/boot:is_alive_after_boot process/owners:needs_release
        record:parse_record tickets:FileQueue.has_ended tickets:FileQueue.take_over tickets:follow_pair
        commands/history:list_rows commands/history:make_row commands/hold:run
        commands/release:KeptHold.__init__
        commands/remote:ask_to_end commands/stop:find_targets contention/deadlock:describe_circle
        contention/deadlock:is_kept_by contention/deadlock:list_holds_beside contention/evict:Eviction.act
        contention/evict:refuse contention/policies:Replace.meet contention/policies:ReplaceAfter.find_time_left
        contention/policies:find_waiters contention/policies:identify_launcher
        engines/postgresql/engine:PostgreSQL.rewrite engines/queue:describe_holders engines/queue:describe_owner history/reader:History.list_runs
        journal:Journal.append_lines process/owners:is_orphaned queue:Attempt.refuse_own_ancestors
        record:format_descriptor record:format_record text/describe:describe_state text/rows:make_row text/rows:make_entry_row
        tickets:FileQueue.judge
    """,
    "it reads what the kernel says of a pid, or watches it": """
        process/tree:is_holder contention/flocks:describe_program contention/sockets:find_outer
        contention/deadlock:list_below contention/deadlock:list_seats identity:is_hidden identity:read_namespace identity:read_stat
        identity:read_status process/ofd:has_locked process/systemd:signals_whole_unit process/watch:open_pidfd
        process/watch:watch_ticket queue:may_release supervise:has_executed supervise:has_systemd_signalled_all
    """,
    "the pid is of our child, our parent, or the kernel, or was typed": """
        engines/program:reap process/pair:Lower.wake process/pair:go_on_below process/upper:Upper.send
        process/capture:Capture.copy process/capture:Capture.drain process/limits:Termination.hear
        commands/hold:Timer.dismiss commands/hold:find_process commands/hold:read_words commands/hold:warn_of_fork
        contention/sockets:SocketQueue.see_command contention/sockets:make_record
        contention/sockets:read_command kernel:end_child
        process/limits:Termination.send_to_command process/notify:Notifier.watch process/watch:describe_process
        start:find_program start:read_parents_ignored
    """,
    "it opens only a regular file": "process/descriptor:is_locked",
    "the processes are holders of this user": "commands/captured:read_memory",
    "end() calls it once that user could have signalled the process": "contention/evict:announce_kept",
    "open_recipient() has asked, or the process was found below us": "process/recipient:Recipient.send",
}
FIELDS = {"launcher", "child", "keep", "holder", "descriptor"}  # of a record
SIGNALS = {"posix.kill", "posix.killpg", "posix.pidfd_open", "_signal.pidfd_send_signal"}
ACTS = re.compile(
    r"\b(open|stat|readlink|listdir|kill|send|read_file|Recipient)\((?!'/proc/self/)|/proc/(?!self/)"
)
QUESTIONS = re.compile(r"\b(vouches|open_recipient|end|find_here)\(")


def follows(node):
    """Return whether a node of a syntax tree is one for which its function has to be in SAFE."""
    if isinstance(node, ast.Attribute):
        is_read = isinstance(node.ctx, ast.Load) and node.attr in FIELDS
        return is_read and ast.unparse(node.value) not in ("self", "self.holder", "kept", "starter")
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in SIGNALS and ast.unparse(node.args[0]) != "posix.getpid()"
    if isinstance(node, ast.arg):
        return (
            node.annotation is not None and ast.unparse(node.annotation).strip("'") == "Descriptor"
        )
    return isinstance(node, (ast.JoinedStr, ast.Constant)) and bool(
        re.match(r"f?b?['\"]/proc/[{%]", ast.unparse(node))
    )


def list_followers():
    """Return {file:function: its source} of the functions that follow what a record or /proc/PID
    says.
    """
    found = {}

    def walk(node, name):
        for inner in ast.iter_child_nodes(node):
            is_named = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            place = f"{name}.{inner.name}" if is_named else name
            sources.update({place: ast.unparse(inner)} if is_named else {})
            if follows(inner):
                found[f"{file}:{place[1:]}"] = sources[place]
            walk(inner, place)

    for path in (ROOT / "solo").rglob("*.py"):
        file, sources = path.relative_to(ROOT / "solo").with_suffix(""), {}
        walk(ast.parse(path.read_text()), "")
    return found


@pytest.mark.parametrize(
    "line",
    [
        "use(hold.record.child)",
        "posix.kill(pid, 9)",
        "open(f'/proc/{pid}/fd/3')",
        "lambda: b'/proc/%d/exe' % pid",
    ]
    + ["def use(file: 'Descriptor'): pass", "def use(file: Descriptor): pass"],
)
def test_function_that_follows_is_seen(line):
    assert any(map(follows, ast.walk(ast.parse(line))))


def test_each_function_that_follows_what_a_record_or_a_process_says_is_known():
    found, listed = (
        list_followers(),
        [place for places in SAFE.values() for place in places.split()],
    )

    assert sorted(listed) == sorted(found)
    assert [place for place in SAFE[ASKS].split() if not QUESTIONS.search(found[place])] == []
    assert [place for place in SAFE[SAYS].split() if ACTS.search(found[place])] == []


@pytest.mark.root
@pytest.mark.tool("setpriv")
def test_remedy_in_a_directory_of_another_user_is_not_for_a_part_of_it(common):
    """Such a line removed the journals of root, or gave one name away."""
    common.directory.mkdir(mode=0o755)
    common.run("-n", "job", "false")
    user = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]

    said = [
        common.run(*words, prefix=user).stderr.decode()
        for words in (("list", "--all"), ("history",), ("-n", "job", "true"), ("-n", "new", "true"))
    ]

    remedy = f"(if it should be ours, as root: chown -R {OTHER} {common.directory})\n"
    assert all(text.endswith(remedy) for text in said), said
