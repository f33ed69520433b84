"""Directories: where names are, which other users are trusted with them, the names of commands
without --name, and which orphans can be seen.
"""

import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest
from conftest import (
    BLOCKING,
    NOBODY,
    copy_libraries,
    count_injected,
    finish,
    in_mounts,
    inject,
    kill,
    kill_both,
    until,
)
from observed import find_chain

from solo.directories import open_base, open_parts
from solo.identity import read_origin
from solo.tickets import MOST_OPEN, FileQueue


@pytest.mark.host
@pytest.mark.root
@pytest.mark.tool("unshare", "umount")
@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C.UTF-8"}])
def test_missing_proc_is_refused(lab, environment):
    environment = {"PATH": os.environ["PATH"], "SOLO_DIR": str(lab.directory), **environment}
    result = lab.run(
        "-n", "job", "--", "echo", "ran", prefix=in_mounts("umount -l /proc"), env=environment
    )

    assert (result.returncode, result.stdout) == (125, b"")
    assert result.stderr == b"solo: cannot read /proc: No such file or directory\n"


@pytest.mark.tool("strace")
def test_program_removed_before_naming_is_126(lab):
    result = lab.run(
        "/usr/bin/true", prefix=inject(lab, "openat:error=ENOENT", paths=["/usr/bin/true"])
    )

    assert (result.returncode, result.stderr) == (
        126,
        b"solo: /usr/bin/true: No such file or directory\n",
    )


def test_typing_error_in_dir_makes_one_directory_and_verbose_says_so(lab):
    """Its locks are others: a run with -v and doctor say that the directory is new. The option wins
    over SOLO_DIR.
    """
    new, deep = lab.path / "typo", lab.path / "missing/typo"
    doctor = lab.run("--dir", new, "doctor").stdout.decode()

    first, second, refused = (
        lab.run("-v", "--dir", path, "-n", "job", "true") for path in (new, new, deep)
    )

    created = f"solo: created {new}, a new directory of names\n"
    assert (
        f"{new} does not exist: the first run makes it, and its locks exclude no run that uses another"
        in doctor
    )
    assert created in first.stderr.decode() and b"created" not in second.stderr
    assert (refused.returncode, deep.parent.exists()) == (125, False)
    assert (read_mode(new), (new / "job").is_dir(), lab.directory.exists()) == (0o700, True, False)
    assert lab.run("--dir", lab.path / "silent", "-n", "job", "true").stderr == b""


# --- removed, created or failing meanwhile--------------------------------------------------------


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "missing, status",
    [("2", 0), ("2..3", 0), ("2+", 125)],
    ids=["made", "removed", "removed always"],
)
def test_removed_name_is_created_again(lab, missing, status):
    """`when` counts the calls of openat(2) on and in the base; the first one opens the base."""
    lab.run("-n", "job", "true")
    gone = inject(lab, f"openat:error=ENOENT:when={missing}", paths=[lab.directory])

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=gone)

    assert (result.returncode, result.stdout) == (
        status,
        b"" if status else b"ran\n",
    ) and count_injected(lab)
    reason = f"solo: job: cannot use {lab.directory}/job: another process removed it\n"
    assert result.stderr.decode() == (reason if status else "")


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "fault, name, message",
    [
        ("openat:error=ENOENT", "", "job: cannot use {base}: another process removed it"),
        ("fstat,newfstatat:error=EIO", "", "job: cannot open {base}: Input/output error"),
        ("getdents64:error=EIO", "job", "job: cannot list {base}/job: Input/output error"),
    ],
    ids=["base removed", "base not examined", "name not listed"],
)
def test_directory_failure_is_refused_in_one_line(lab, fault, name, message):
    lab.run("-n", "job", "true")

    result = lab.run(
        "-n", "job", "--", "echo", "ran", prefix=inject(lab, fault, paths=[lab.directory / name])
    )

    expected = f"solo: {message.format(base=lab.directory)}\n"
    assert (result.returncode, result.stdout, result.stderr.decode()) == (125, b"", expected)


@pytest.mark.tool("strace")
def test_list_omits_name_removed_meanwhile(lab):
    lab.run("-n", "job", "true")
    lab.hold("other")
    gone = inject(
        lab, f"openat:error=ENOENT:when={count_calls(lab, 'openat', 'job')}", paths=[lab.directory]
    )

    result = lab.run("list", prefix=gone)

    assert (result.returncode, result.stderr, count_injected(lab)) == (
        0,
        b"",
        1,
    ) and b"other" in result.stdout


def count_calls(lab, call, word):
    """Return how many times `solo list` makes `call` in the base until it is about `word`."""
    trace = lab.path / "trace"
    lab.run(
        "list", prefix=("strace", "-qq", "-o", trace, "-P", lab.directory, "-e", f"trace={call}")
    )
    return 1 + next(
        at for at, made in enumerate(trace.read_text().splitlines()) if f'"{word}"' in made
    )


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "verb, reason", [("list", "Input/output error"), ("open", "Too many open files")]
)
def test_list_reports_a_name_that_it_cannot_list_or_open(lab, verb, reason):
    lab.run("-n", "job", "true")
    lab.hold("other")
    if verb == "list":
        fault = inject(lab, "getdents64:error=EIO", paths=[lab.directory / "job"])
    else:
        fault = inject(
            lab,
            f"openat:error=EMFILE:when={count_calls(lab, 'openat', 'job')}",
            paths=[lab.directory],
        )

    result = lab.run("list", prefix=fault)

    assert result.stderr.decode() == f"solo: job: cannot {verb} {lab.directory}/job: {reason}\n"
    assert (result.returncode, count_injected(lab)) == (125, 1)
    assert (
        b"other" in result.stdout or verb == "open"
    )  # it may have no descriptor for others either


def test_list_omits_what_is_no_directory(lab):
    lab.hold("job")
    (lab.directory / "file").write_text("")
    (lab.directory / "link").symlink_to(lab.directory / "job")
    os.mkfifo(lab.directory / "pipe")

    result = lab.run("list", "--null")

    assert (result.returncode, result.stdout, result.stderr) == (0, b"job\0", b"")


@pytest.mark.root
def test_list_names_unreadable_name(lab):
    lab.run("-n", "job", "true")
    os.chown(lab.directory / "job", NOBODY, NOBODY)
    (lab.directory / "README").write_text("no name")

    result = lab.run("list")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


@pytest.mark.host
@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("groups", [0, 900])  # /proc/PID/status lists them before NSpid
def test_orphan_in_nested_pid_namespace_holds(lab, groups):
    script = f"{lab.script} -n job -- sleep 60 & echo $!; wait; sleep 60"
    nested = ("unshare", "--fork", "--pid", "--mount-proc", "sh", "-c", script)
    inner = lab.start_words(*nested, preexec_fn=lambda: os.setgroups(range(10000, 10000 + groups)))
    inner.stdout.readline()
    until(lab.history)  # the launcher has let the child go on
    [row] = lab.list()
    assert row["launcher"] == find_chain(inner)[1]
    os.kill(row["launcher"], 9)

    until(lambda: lab.list()[0]["state"] == "orphaned")
    assert lab.run("-n", "job", "true").returncode == 75
    os.kill(row["child"], 9)
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0


BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOOT = f"echo 00000000-1111-2222-3333-444444444444 >$LAB/id; mount --bind $LAB/id {BOOT_ID}"
SHIFTED = ("unshare", "--time", "--boottime", "86400", "--fork")  # start times are shifted by a day
NO_TIME = "strace -qq -o /dev/null -P /proc/self/ns/time -e inject=readlink,readlinkat:error=ENOENT".split()
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
HIDDEN = {  # prefixes of the holder and of the contender
    "other boot id": ((), in_mounts(BOOT)),  # systemd-nspawn does so
    "time namespace of the holder": (SHIFTED, ()),
    "time namespace of the contender": ((), SHIFTED),
    "no time namespaces": (NO_TIME, NO_TIME),
    "hidepid": ((), (*in_mounts("mount -t proc -o hidepid=2 proc /proc"), *AS_NOBODY)),
}


@pytest.mark.root
@pytest.mark.tool("unshare", "mount", "strace", "setpriv")
@pytest.mark.parametrize("here, there", HIDDEN.values(), ids=HIDDEN)
def test_orphan_holds_where_it_looks_like_another_process(shared, here, there):
    if (
        SHIFTED in (here, there)
        and subprocess.run([*SHIFTED, "true"], capture_output=True).returncode
    ):
        pytest.skip("no time namespaces")
    copy_libraries(Path(shared.script).parent)
    shared.run("-n", "job", "true")  # the name is root's
    holder = shared.start("-n", "job", "--", "sh", "-c", "echo $$; read line", prefix=here)
    child = int(holder.stdout.readline())
    until(lambda: shared.collect())
    os.kill(shared.collect()[0]["launcher"], 9)
    until(lambda: shared.collect()[0]["state"] == "orphaned")

    assert shared.run("-n", "job", "true", prefix=there).returncode == 75
    assert shared.run("wait", "--timeout", "100ms", "job", prefix=there).returncode == 75
    waiting = shared.start("wait", "job", prefix=there)
    os.kill(child, 9)
    assert shared.run("-w", "forever", "-n", "job", "true", prefix=there).returncode == 0
    assert finish(waiting) == (0, "", "")


@pytest.mark.tool("strace")
def test_orphan_missing_in_proc_holds_while_signals_reach_it(lab):
    holder = lab.orphan("job")
    hidden = inject(lab, "openat:error=ENOENT", paths=[f"/proc/{holder.child}/stat"])

    assert lab.run("-n", "job", "true", prefix=hidden).returncode == 75 and count_injected(lab)
    kill_both(holder)
    assert lab.run("-w", "forever", "-n", "job", "true", prefix=hidden).returncode == 0


def orphan_elsewhere(lab, holder, name="job"):
    """Kill the launcher, and move its ticket to another host; return the ticket.

    The command lives, but cannot be seen from here.
    """
    kill(holder)
    for waiter in lab.started[1:]:
        until(lambda: is_polling(waiter.pid))  # for the end of the command
    return move_elsewhere(lab, name)


def move_elsewhere(lab, name="job"):
    """Change the ticket to one of another host that shares the base; return it."""
    ticket = lab.find_hold(name)
    boot = open(BOOT_ID, "rb").read().strip()
    record = ticket.read_bytes().replace(b"boot " + boot, b"boot x")
    # A pid namespace of another machine: with ours, the living command would be found.
    record = record.replace(b"pid-namespace ", b"pid-namespace 7")
    ticket.write_bytes(record.replace(b"host " + os.uname().nodename.encode(), b"host elsewhere"))
    return ticket


def is_polling(pid):
    return open(f"/proc/{pid}/syscall").read().split()[0] == BLOCKING[1]


def test_kept_hold_of_another_host_holds_and_is_named_with_it(lab):
    keeper = lab.start_words("sleep", "60")
    lab.run("hold", "--pid", str(keeper.pid), "job")
    ticket = move_elsewhere(lab)

    busy = lab.run("-n", "job", "true")

    assert (busy.returncode, ticket.exists()) == (75, True)
    assert f" by pid {keeper.pid} on elsewhere (".encode() in busy.stderr


@pytest.mark.host
@pytest.mark.parametrize("gate", [None, b"garbage"])
def test_unseen_orphan_is_taken_over_with_one_warning(lab, gate):
    """Its ticket stays for contenders that can see it."""
    ticket = orphan_elsewhere(lab, lab.hold("job"))
    if gate:
        (lab.directory / "job/.gate").write_bytes(gate)

    first, second = lab.run("-n", "job", "true"), lab.run("-n", "job", "true")

    warning = f"solo: {lab.directory}/job: taking over from elsewhere, whose processes cannot be seen from here\n"
    assert (first.returncode, first.stderr.decode()) == (0, warning)
    assert (second.returncode, second.stderr, ticket.exists()) == (0, b"", True)


@pytest.mark.host
def test_skipped_contender_and_clean_keep_unseen_orphan(lab):
    """Contenders that can see it still wait for it."""
    holder = lab.hold("job")
    lab.start_waiter("job")
    ticket = orphan_elsewhere(lab, holder)

    skipped = lab.run("-n", "job", "true")
    cleaned = lab.run("clean")

    assert (skipped.returncode, skipped.stderr.count(b"\n")) == (
        75,
        1,
    ) and b"has waited for" in skipped.stderr
    assert (cleaned.returncode, cleaned.stdout, cleaned.stderr, ticket.exists()) == (
        0,
        b"",
        b"",
        True,
    )


@pytest.mark.host
def test_contender_of_busy_second_name_keeps_unseen_orphan(lab):
    ticket = orphan_elsewhere(lab, lab.hold("a"), "a")
    lab.hold("b")

    result = lab.run("-n", "a", "-n", "b", "true")

    assert (result.returncode, result.stderr.count(b"\n"), ticket.exists()) == (75, 1, True)
    program = "try: solo.Lock(sys.argv[1:]).acquire()\nexcept solo.Busy: print('busy')"
    assert lab.run_code(program, "a", "b") == (0, "busy\n", "")
    _, out, err = lab.run_code(program, "a")
    assert (out, err.count("taking over")) == ("", 1)


@pytest.mark.host
def test_compatible_holder_says_nothing_of_an_unseen_orphan(lab):
    ticket = orphan_elsewhere(lab, lab.hold("job", "-s"))

    assert lab.run("-n", "job", "-s", "true").stderr == b""
    assert b"taking over" in lab.run("-n", "job", "true").stderr and ticket.exists()


@pytest.mark.host
def test_unseen_orphan_of_a_nested_name_is_reported_once(lab):
    holder = lab.hold("up/job")
    tickets = [lab.find_hold("up"), orphan_elsewhere(lab, holder, "up/job")]
    move_elsewhere(lab, "up")
    tickets[1].write_bytes(tickets[0].read_bytes().replace(b"mode IX", b"mode X"))

    assert lab.run("-n", "up/job", "true").stderr.count(b"taking over") == 1
    assert (
        lab.run("-n", "up", "true").stderr.count(b"taking over") == 1
    )  # that conflicts with its ticket of the parent
    assert lab.run("-n", "up", "-n", "up/job", "true").stderr == b""


@pytest.mark.host
@pytest.mark.parametrize("words", [(), ("-s",)], ids=["conflicting", "compatible"])
def test_number_of_unseen_orphans_is_limited(lab, words):
    ticket = orphan_elsewhere(lab, lab.hold("job", "-s"))
    for number in range(MOST_OPEN + 3):
        (ticket.parent / f".hold.{number + 1:020d}").write_bytes(ticket.read_bytes())

    lab.run("-n", "job", *words, "true")

    assert len(list(ticket.parent.glob(".hold.*"))) == MOST_OPEN and ticket.exists()


# --- other users----------------------------------------------------------------------------------
# Real users attack a base of each kind.

BASES = [
    (0o755, 0o700, 0o600, 0o600),
    (0o2775, 0o2770, 0o660, 0o640),
    (0o1777, 0o1777, 0o666, 0o644),
    (0o1757, 0o1707, 0o606, 0o604),
]


def act_as_nobody(*words, **options):
    return subprocess.run(
        words, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, **options
    )


def make_base(lab, mode):
    lab.directory.mkdir()
    lab.directory.chmod(mode)


def make_open_name(common):
    """Make a sticky base, and in it a directory of `job` that belongs to root and in which every
    user can write.
    """
    make_base(common, 0o1777)
    (common.directory / "job").mkdir()
    (common.directory / "job").chmod(0o1777)


def read_mode(path):
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("base, directory, gate, ticket", BASES)
def test_only_users_who_can_write_base_get_rights_below_it(lab, base, directory, gate, ticket):
    make_base(lab, base)
    lab.run("-n", "job", "true")  # creates the journal
    lab.hold("job")
    lab.start_waiter("job")
    seat = next((lab.directory / "job").glob(".seat.*"))

    paths = (lab.directory / "job", lab.directory / "job/.gate", lab.find_hold("job"), seat)
    assert [read_mode(path) for path in paths] == [directory, gate, ticket, ticket]
    journals = lab.directory / (".journals.%d" % os.geteuid() if base & 0o1000 else ".journals")
    assert read_mode(journals / "job/.journal") & 0o666 == (0o600 if base & 0o1000 else gate)


@pytest.mark.root
@pytest.mark.tool("flock")
def test_other_user_who_can_read_base_cannot_lock_gate_or_ticket(common):
    make_base(common, 0o755)
    holder = common.hold("job")

    for file in (common.directory / "job/.gate", common.find_hold("job")):
        attack = act_as_nobody("flock", "--nonblock", file, "true")
        assert attack.returncode != 0 and b"Permission denied" in attack.stderr
    assert (
        act_as_nobody("flock", "--nonblock", common.directory, "true").returncode == 0
    )  # it can lock the base itself
    assert common.run("-n", "job", "true").returncode == 75 and finish(holder)[0] == 0


@pytest.mark.root
@pytest.mark.tool("flock")
def test_first_use_tightens_modes_of_earlier_version(common):
    make_base(common, 0o755)
    common.run("-n", "job", "true")
    gate, journal = common.directory / "job/.gate", common.find_journal("job")
    for path in (gate.parent, journal.parent, journal.parent.parent):
        path.chmod(0o755)
    for path in (gate, journal):
        path.chmod(0o644)
    before = act_as_nobody("flock", "--nonblock", gate, "true")

    assert common.run("-n", "job", "true").returncode == 0

    assert (
        before.returncode == 0
        and act_as_nobody("flock", "--nonblock", gate, "true").returncode != 0
    )
    assert [read_mode(path) for path in (gate.parent, gate, journal.parent, journal)] == [
        0o700,
        0o600,
        0o700,
        0o600,
    ]


def test_directory_of_user_keeps_its_mode(lab):
    make_base(lab, 0o755)
    (lab.directory / "www").mkdir()
    (lab.directory / "www").chmod(0o755)

    for words in (("-n", "www", "true"), ("-n", "www", "true"), ("list",)):
        assert lab.run(*words).returncode == 0

    assert (
        read_mode(lab.directory / "www") == 0o755
        and read_mode(lab.directory / "www/.gate") == 0o600
    )


@pytest.mark.root
def test_other_user_cannot_change_ticket_in_sticky_base(shared):
    holder = shared.hold("job")
    ticket = shared.find_hold("job")

    for attack in (": >>{0}", "rm -f {0}", "mv {0} {0}1", "mv ${{0%/*}} ${{0%/*}}1"):
        assert act_as_nobody("sh", "-c", attack.format("$0"), ticket).returncode != 0, attack
    assert act_as_nobody("cat", ticket).returncode == 0  # it may read it, as contenders do
    assert shared.run("-n", "job", "true", user=NOBODY).returncode == 75 and finish(holder)[0] == 0


@pytest.mark.root
def test_error_tells_root_to_run_as_the_user_of_a_base(common):
    common.directory.mkdir(mode=0o700)
    os.chown(common.directory, NOBODY, NOBODY)
    user = pwd.getpwuid(NOBODY).pw_name

    for words in (("list",), ("-n", "job", "true")):
        result = common.run(*words)
        assert result.returncode == 125
        assert (
            f"uid {NOBODY} (as that user: runuser -u {user} -- solo ...)" in result.stderr.decode()
        )


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("place", ["/run/solo", "/var/lib/solo"])
def test_default_place_of_root_with_another_owner_has_a_remedy(lab, place):
    """The journal's place does not keep the command from running."""
    prepare = f"for at in /run /var/lib; do mount -t tmpfs none $at; done; install -d -m 700 -o {NOBODY} {place}"
    remedy = f"cannot use {place}: it belongs to uid {NOBODY} (chown root {place})"
    del lab.environment["SOLO_DIR"]

    result = lab.run("-v", "-n", "job", "true", prefix=in_mounts(prepare))

    assert remedy in result.stderr.decode()
    assert result.returncode == (125 if place == "/run/solo" else 0)


@pytest.mark.root
def test_name_of_other_user_does_not_fail_views_of_all_names(shared):
    """Else anyone could end `solo list --json | push` of all users of the directory."""
    shared.run("-n", "ours", "true")
    shared.run("-n", "theirs", "true", user=NOBODY)
    (shared.directory / "closed").mkdir(0o700)
    os.chown(shared.directory / "closed", NOBODY, NOBODY)

    for view in (("list",), ("list", "--json")):
        everything, one = shared.run(*view), shared.run(*view, "theirs")

        warning = f"solo: theirs: cannot use {shared.directory}/theirs: it belongs to uid {NOBODY}"
        assert (everything.returncode, one.returncode) == (0, 125)
        assert warning in everything.stderr.decode() and warning in one.stderr.decode()


@pytest.mark.root
def test_clean_keeps_names_of_root_in_sticky_base(shared):
    shared.run("-n", "job", "true")
    shared.run("-n", "own", "true", user=NOBODY)
    from solo.commands import clean

    queue = FileQueue(open_parts(open_base(str(shared.directory), True), ["job"]), read_origin())
    base = open_base(str(shared.directory), True)
    with queue.gate:
        assert not clean.remove_name("job", queue, base)
    queue.leave()
    os.close(base.fd)
    assert shared.run("-n", "job", "true", user=NOBODY).returncode == 0


@pytest.mark.root
def test_once_per_counts_runs_per_user_in_sticky_base(common):
    """A user who runs it first must not keep root's job from running."""
    make_open_name(common)
    common.run("-n", "job", "true")  # the gate is root's
    day = ("-n", "job", "--once-per", "1d", "--", "echo", "ran")

    printed = [common.run(*day, user=user).stdout for user in (NOBODY, NOBODY, 0, 0)]

    assert printed == [b"ran\n", b"", b"ran\n", b""]
    assert read_mode(common.directory / f".journals.{NOBODY}") == 0o700


@pytest.mark.root
def test_journal_directory_of_other_user_is_not_used(shared):
    made = shared.directory / ".journals.0"
    act_as_nobody("mkdir", "-m", "777", made, made / "job", check=True)

    assert shared.run("-n", "job", "--once-per", "1d", "--", "echo", "ran").returncode == 125
    result = shared.run("-v", "-n", "job", "--", "echo", "ran")
    assert result.stdout == b"ran\n"
    assert b"journal is not written" in result.stderr and b"belongs to uid 65534" in result.stderr
    assert os.listdir(made / "job") == []


@pytest.mark.root
@pytest.mark.parametrize(
    "text", [b"0" + b"9" * 19 + b"\n", b"00" + b"9" * 18 + b"\n", b"9" * 2000, b""]
)
def test_garbage_of_other_user_in_gate_does_not_last(shared, text):
    shared.run("-n", "job", "true")
    gate = shared.directory / "job/.gate"
    act_as_nobody("sh", "-c", f"cat >{gate}", input=text, check=True)

    tokens = [
        int(shared.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout) for _ in range(3)
    ]

    assert len(set(tokens)) == 3 and tokens[-1] < 10**17


@pytest.mark.root
@pytest.mark.parametrize("number", ["0" + "9" * 19, "00" + "9" * 18, "001" + "0" * 17])
def test_ticket_of_other_user_does_not_use_up_numbers(shared, number):
    shared.run("-n", "job", "true")
    act_as_nobody("touch", shared.directory / f"job/.seat.{number}", check=True)

    results = [
        shared.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN", user=NOBODY) for _ in range(3)
    ]

    assert [result.returncode for result in results] == [0, 0, 0]
    tokens = [int(result.stdout) for result in results]
    assert len(set(tokens)) == 3 and (tokens == sorted(tokens) or number == "001" + "0" * 17)


SHARED = "is shared: all users can read and block each name in it, and use each name that root made first"
TRUST = [
    (0o700, "ok", "no other user can read, block or change the locks in"),
    (0o755, "note", "other users can see which names there are in"),
    (
        0o2770,
        "note",
        "is shared: the members of group root can read, block and remove each lock in it",
    ),
    (0o1777, "note", SHARED),
]


@pytest.mark.root
@pytest.mark.parametrize("base, state, text", TRUST)
def test_doctor_says_what_other_users_can_do(lab, base, state, text):
    make_base(lab, base)
    lab.run("-n", "job", "true")

    result = lab.run("doctor", "--json")

    findings = [row for row in json.loads(result.stdout) if row["check"] == "trust"]
    assert result.returncode == 0 and any(
        row["state"] == state and text in row["text"] for row in findings
    ), findings


@pytest.mark.root
def test_doctor_names_user_who_can_move_base_away(lab):
    make_base(lab, 0o700)
    os.chown(lab.path, NOBODY, NOBODY)

    note = (
        f"note   {lab.path} belongs to uid {NOBODY}, who can put another directory in the place of"
    )
    assert note.encode() in lab.run("doctor").stdout


@pytest.mark.root
@pytest.mark.parametrize("base, group", [(0o1777, 0), (0o2770, NOBODY)])
@pytest.mark.parametrize("first, second", [(0, NOBODY), (NOBODY, 0)])
def test_waiter_acquires_after_holder_of_other_user(common, base, group, first, second):
    """It can open the ticket for reading only."""
    make_base(common, base)
    os.chown(common.directory, 0, group)
    common.directory.chmod(base)
    common.run("-n", "job", "true")
    holder = common.start(
        "-n", "job", "--", "sh", "-c", "echo; read line; exit 0", user=first, group=NOBODY
    )
    holder.stdout.readline()
    waiter = common.start(
        "--wait", "1m", "-n", "job", "--", "echo", "ran", user=second, group=NOBODY
    )
    until(lambda: common.count_waiting("job"))

    assert finish(holder)[0] == 0

    assert finish(waiter)[:2] == (0, "ran\n")
