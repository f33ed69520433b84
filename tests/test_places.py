"""Where names live, whom solo trusts with them, and what an unnamed job is called."""

import json
import os
import subprocess
import sys

import pytest
from conftest import BLOCKING, NOBODY, ROOT, count_injected, finish, inject, kill_both, until

from solo.contention.handoff import Handoff, make_hold
from solo.directories import open_base, open_name
from solo.errors import SoloError
from solo.identity import read_origin, read_self
from solo.modes import EXCLUSIVE, Claim
from solo.record import Record
from solo.tickets import HOLD, MOST_OPEN, Queue


def test_the_same_job_has_the_same_name_from_everywhere(lab):
    tool = lab.path / "backup.sh"
    tool.write_text('#!/bin/sh\necho "$SOLO_NAME"\n')
    tool.chmod(0o755)
    (lab.path / "link").symlink_to(tool)
    path = {**lab.environment, "PATH": f"{lab.path}:{os.environ['PATH']}"}

    names = [
        lab.run(tool, "--full").stdout,
        lab.run(lab.path / "link", "--full").stdout,
        lab.run("./backup.sh", "--full", cwd=lab.path).stdout,
        lab.run("backup.sh", "--full", env=path).stdout,
        lab.run("--", "backup.sh", "--full", env=path, cwd="/").stdout,
    ]
    other = lab.run(tool, "--half").stdout

    assert len(set(names)) == 1 and names[0].startswith(b"backup.sh-") and len(names[0]) == len("backup.sh-1f0c2a9e\n")
    assert other.startswith(b"backup.sh-") and other != names[0]


def test_a_long_name_is_cut_to_what_a_directory_can_have(lab):
    tool = lab.path / ("漢" * 84)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)

    assert lab.run(tool).returncode == 0


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_name_that_others_can_write_to_is_refused_in_a_directory_that_is_ours(lab, mode):
    lab.run("-n", "job", "true")
    (lab.directory / "job").chmod(mode)

    result = lab.run("-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


@pytest.mark.root
@pytest.mark.tool("unshare", "umount")
@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C.UTF-8"}])
def test_without_proc_nothing_runs_and_that_is_said(lab, environment):
    script = f"umount -l /proc; {lab.script} --dir {lab.directory} -n job -- echo ran"

    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], env={"PATH": os.environ["PATH"], **environment}, capture_output=True
    )

    assert (result.returncode, result.stdout) == (125, b"")
    assert result.stderr == b"solo: cannot read /proc: No such file or directory\n"


def test_arguments_that_only_join_alike_make_other_names(lab):
    first = lab.run("--", "sh", "-c", "echo $SOLO_NAME", "a b", "c").stdout
    second = lab.run("--", "sh", "-c", "echo $SOLO_NAME", "a", "b c").stdout

    assert first != second


@pytest.mark.tool("strace")
def test_a_program_that_is_gone_before_it_was_named_is_no_name(lab):
    result = lab.run("/usr/bin/true", prefix=inject(lab, "openat:error=ENOENT", paths=["/usr/bin/true"]))

    assert (result.returncode, result.stderr) == (126, b"solo: /usr/bin/true: No such file or directory\n")


# --- what others remove or make meanwhile --------------------------------------------------------------------------


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "missing, status", [("2", 0), ("2..3", 0), ("2+", 125)], ids=["made", "removed", "removed always"]
)
def test_a_name_that_comes_and_goes_is_made_again_until_it_can_be_used(lab, missing, status):
    """`when` counts what is opened in the directory of all names, after that itself."""
    lab.run("-n", "job", "true")
    gone = inject(lab, f"openat:error=ENOENT:when={missing}", paths=[lab.directory])

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=gone)

    assert (result.returncode, result.stdout) == (status, b"" if status else b"ran\n") and count_injected(lab)
    assert result.stderr.decode() == (f"solo: job: {lab.directory}/job: someone removed it\n" if status else "")


@pytest.mark.tool("strace")
def test_a_directory_of_names_that_is_removed_at_once_is_one_line_and_125(lab):
    lab.directory.mkdir(mode=0o700)

    result = lab.run("-n", "job", "--", "echo", "ran", prefix=inject(lab, "openat:error=ENOENT", paths=[lab.directory]))

    assert (result.returncode, result.stdout, result.stderr.decode()) == (
        125,
        b"",
        f"solo: {lab.directory}: someone removed it\n",
    )


@pytest.mark.tool("strace")
def test_a_directory_that_can_be_opened_and_not_looked_at_is_one_line_and_125(lab):
    lab.run("-n", "job", "true")

    result = lab.run("-n", "job", "true", prefix=inject(lab, "fstat,newfstatat:error=EIO", paths=[lab.directory]))

    assert (result.returncode, result.stderr.decode()) == (
        125,
        f"solo: cannot open {lab.directory}: Input/output error\n",
    )


@pytest.mark.tool("strace")
def test_a_name_that_can_not_be_listed_is_one_line_and_125(lab):
    lab.run("-n", "job", "true")

    path = lab.directory / "job"

    result = lab.run("-n", "job", "true", prefix=inject(lab, "getdents64:error=EIO", paths=[path]))

    assert (result.returncode, result.stderr.decode()) == (125, f"solo: job: cannot list {path}: Input/output error\n")


@pytest.mark.tool("strace")
@pytest.mark.parametrize("call", ["openat", "newfstatat"])
def test_a_name_that_goes_while_names_are_listed_is_not_listed(lab, call):
    lab.run("-n", "job", "true")
    lab.hold("other")
    gone = inject(lab, f"{call}:error=ENOENT:when={count_calls(lab, call, 'job')}", paths=[lab.directory])

    result = lab.run("list", prefix=gone)

    assert (result.returncode, result.stderr, count_injected(lab)) == (0, b"", 1) and b"other" in result.stdout


def count_calls(lab, call, word):
    """The how-manieth `call` on the directory of all names that `solo list` makes is about `word`."""
    trace = lab.path / "trace"
    lab.run("list", prefix=("strace", "-qq", "-o", trace, "-P", lab.directory, "-e", f"trace={call}"))
    return 1 + next(at for at, line in enumerate(trace.read_text().splitlines()) if f'"{word}"' in line)


def test_a_directory_that_was_asked_for_is_made_but_its_parents_are_not(lab):
    assert lab.run("--dir", lab.path / "new", "-n", "job", "true").returncode == 0
    assert (lab.path / "new").stat().st_mode & 0o777 == 0o700
    result = lab.run("--dir", lab.path / "typo/new", "-n", "job", "true")
    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_the_option_wins_over_the_variable(lab):
    lab.run("--dir", lab.path / "new", "-n", "job", "true")

    assert (lab.path / "new/job").is_dir() and not lab.directory.exists()


@pytest.mark.parametrize(
    "mode, accepted", [(0o700, True), (0o755, True), (0o1777, True), (0o770, True), (0o777, False), (0o707, False)]
)
def test_a_directory_that_anyone_can_empty_is_refused(lab, mode, accepted):
    lab.directory.mkdir()
    lab.directory.chmod(mode)

    result = lab.run("-n", "job", "true")

    assert (result.returncode == 0, result.stderr.count(b"\n")) == (accepted, not accepted)


@pytest.mark.parametrize("umask", [0o777, 0o077, 0])
def test_the_callers_umask_changes_no_mode_of_ours(lab, umask):
    assert lab.run("-n", "job", "true", umask=umask).returncode == 0
    assert (lab.directory / "job").stat().st_mode & 0o777 == 0o700
    assert (lab.directory / "job/.gate").stat().st_mode & 0o777 == 0o600


@pytest.mark.root
def test_list_says_which_name_it_could_not_look_into(lab):
    lab.run("-n", "job", "true")
    os.chown(lab.directory / "job", NOBODY, NOBODY)
    (lab.directory / "README").write_text("no name")

    result = lab.run("list")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


@pytest.mark.root
def test_a_directory_of_another_user_is_refused(lab):
    lab.directory.mkdir()
    os.chown(lab.directory, NOBODY, NOBODY)
    assert lab.run("-n", "job", "true").returncode == 125
    os.chown(lab.directory, 0, 0)
    lab.run("-n", "job", "true")
    os.chown(lab.directory / "job", NOBODY, NOBODY)

    result = lab.run("-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


@pytest.mark.parametrize("first, second", [(0, NOBODY), (NOBODY, 0)])
def test_two_users_share_a_name_that_root_made_in_a_sticky_directory(common, first, second):
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    assert common.run("-n", "job", "true").returncode == 0
    holder = common.start("-n", "job", "--", "sh", "-c", "echo; read line; exit 0", user=first)
    holder.stdout.readline()

    (common.directory / "job/.new.00000000000000000001").touch()  # of root: what a killed launcher was writing
    result = common.run("-n", "job", "true", user=second)

    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)
    assert finish(holder)[0] == 0
    assert common.run("-n", "job", "true", user=second).returncode == 0


def test_another_users_directory_can_not_be_entered(common):
    common.run("-n", "job", "true")

    result = common.run("-n", "job", "true", user=NOBODY)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_a_user_without_a_home_is_told_what_to_do(common):
    environment = {key: value for key, value in common.environment.items() if key not in ("SOLO_DIR", "HOME")}
    for user in (NOBODY, 54321):
        result = common.run("-n", "job", "true", user=user, env=environment)
        assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
        assert b"SOLO_DIR" in result.stderr


def test_root_uses_run_and_others_the_home_of_the_password_database(monkeypatch):
    from solo import directories

    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    monkeypatch.setattr(directories.posix, "geteuid", lambda: 0)
    assert directories.find_base(None) == "/run/solo"
    monkeypatch.setattr(directories.posix, "geteuid", lambda: 1)  # daemon
    import pwd

    assert directories.find_base(None) == pwd.getpwuid(1).pw_dir + "/.local/state/solo"


def test_the_default_place_of_a_user_is_made_with_its_parents(tmp_path):
    from solo import directories

    path = f"{tmp_path}/home{directories.HOME_PLACE}"
    with pytest.raises(SoloError):
        directories.make_home_directories(path)  # not the home itself
    (tmp_path / "home").mkdir()
    directories.make_home_directories(path)

    assert os.stat(path).st_mode & 0o777 == 0o700


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("groups", [0, 900])  # /proc/PID/status lists them before what we look for
def test_an_orphan_in_a_pid_namespace_below_ours_is_seen(lab, groups):
    script = f"{lab.script} -n job -- sleep 60 & echo $!; wait; sleep 60"
    inner = subprocess.Popen(
        ["unshare", "--fork", "--pid", "--mount-proc", "sh", "-c", script],
        env=lab.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.setgroups(range(10000, 10000 + groups)),
    )
    lab.started.append(inner)
    inner.stderr = None
    launcher_inside = int(inner.stdout.readline())
    until(lambda: lab.list() and lab.list()[0]["child"])
    assert lab.list()[0]["launcher"] == launcher_inside  # as it is called in there
    child = lab.list()[0]["child"]
    os.kill(find_inner(inner, launcher_inside), 9)

    until(lambda: lab.list()[0]["state"] == "orphaned")
    assert lab.run("-n", "job", "true").returncode == 75
    os.kill(find_inner(inner, child), 9)
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_an_orphan_of_this_boot_is_seen_where_proc_gives_another_boot_id(lab):
    """As systemd-nspawn does, for all but those of its units that have a /proc of their own."""
    holder = lab.hold("job")
    holder.kill()
    holder.wait()
    (lab.path / "id").write_text("00000000-1111-2222-3333-444444444444\n")
    script = f"mount --bind {lab.path}/id /proc/sys/kernel/random/boot_id && exec {lab.script} -n job true"

    other = subprocess.run(["unshare", "--mount", "sh", "-c", script], env=lab.environment, capture_output=True)

    assert other.returncode == 75 and f"orphan pid {holder.child} ".encode() in other.stderr
    os.kill(holder.child, 9)
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare")
@pytest.mark.parametrize("inside", ["holder", "contender"])
def test_an_orphan_is_seen_from_another_time_namespace(lab, inside):
    """Where start times are shifted by a day."""
    shifted = ("unshare", "--time", "--boottime", "86400", "--fork")
    if subprocess.run([*shifted, "true"], capture_output=True).returncode:
        pytest.skip("no time namespaces")
    holder = lab.start(
        "-n", "job", "--", "sh", "-c", "echo $$; read line", prefix=shifted if inside == "holder" else ()
    )
    child = int(holder.stdout.readline())
    os.kill(lab.list()[0]["launcher"], 9)
    until(lambda: lab.list()[0]["state"] == "orphaned")
    words = ("-n", "job", "true")

    assert lab.run(*words, prefix=shifted if inside == "contender" else ()).returncode == 75
    os.kill(child, 9)
    assert lab.run("-w", "forever", *words, prefix=shifted if inside == "contender" else ()).returncode == 0


@pytest.mark.tool("strace")
def test_on_a_kernel_without_time_namespaces_orphans_are_seen(lab):
    old = inject(lab, "readlink,readlinkat:error=ENOENT", paths=["/proc/self/ns/time"])
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo $$; read line; exit 0", prefix=old)
    holder.child = int(holder.stdout.readline())
    os.kill(lab.list()[0]["launcher"], 9)
    holder.wait()

    assert lab.run("-n", "job", "true", prefix=old).returncode == 75 and count_injected(lab)
    kill_both(holder)
    assert lab.run("-w", "forever", "-n", "job", "true", prefix=old).returncode == 0


@pytest.mark.tool("strace")
def test_an_orphan_that_proc_does_not_show_counts_as_long_as_a_signal_would_reach_it(lab):
    holder = lab.hold("job")
    holder.kill()
    holder.wait()
    hidden = inject(lab, "openat:error=ENOENT", paths=[f"/proc/{holder.child}/stat"])

    assert lab.run("-n", "job", "true", prefix=hidden).returncode == 75 and count_injected(lab)
    kill_both(holder)
    assert lab.run("-w", "forever", "-n", "job", "true", prefix=hidden).returncode == 0


@pytest.mark.tool("unshare", "mount", "setpriv")
def test_another_users_orphan_counts_where_proc_is_mounted_to_hide_it(common):
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    holder = common.hold("job")
    holder.kill()
    holder.wait()
    become = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
    hide = ("unshare", "--mount", "sh", "-c", f'mount -t proc -o hidepid=2 proc /proc && exec {become} "$@"', "sh")

    assert common.run("-n", "job", "true", prefix=hide).returncode == 75
    kill_both(holder)
    assert common.run("-w", "forever", "-n", "job", "true", prefix=hide).returncode == 0


def orphan_elsewhere(lab, holder, name="job"):
    """The hold of `holder`, which was killed on another host that shares the directory; its command lives."""
    holder.kill()
    holder.wait()
    for waiter in lab.started[1:]:
        until(
            lambda: open(f"/proc/{waiter.pid}/syscall").read().split()[0] == BLOCKING[1]
        )  # until the command has ended
    ticket = lab.find_hold(name)
    boot = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
    record = ticket.read_bytes().replace(b"boot " + boot, b"boot x")
    ticket.write_bytes(record.replace(b"host " + os.uname().nodename.encode(), b"host elsewhere"))
    return ticket


def test_an_orphan_of_another_host_can_not_be_seen_and_that_is_said(lab):
    ticket = orphan_elsewhere(lab, lab.hold("job"))

    result = lab.run("-n", "job", "true")

    assert (result.returncode, result.stderr.count(b"\n"), ticket.exists()) == (0, 1, False)
    assert b"taking over from elsewhere, whose processes cannot be seen from here" in result.stderr


def test_who_takes_nothing_does_not_forget_an_orphan_that_it_can_not_see(lab):
    """Those who can see it wait for it."""
    holder = lab.hold("job")
    lab.start_waiter("job")
    ticket = orphan_elsewhere(lab, holder)

    turned_away = lab.run("-n", "job", "true")
    cleaned = lab.run("clean")

    assert (turned_away.returncode, turned_away.stderr.count(b"\n")) == (
        75,
        1,
    ) and b"has waited for" in turned_away.stderr
    assert (cleaned.returncode, cleaned.stdout, cleaned.stderr, ticket.exists()) == (0, b"", b"", True)


def test_who_gets_one_name_of_two_does_not_forget_an_orphan_of_it_that_it_can_not_see(lab):
    ticket = orphan_elsewhere(lab, lab.hold("a"), "a")
    lab.hold("b")

    result = lab.run("-n", "a", "-n", "b", "true")

    assert (result.returncode, result.stderr.count(b"\n"), ticket.exists()) == (75, 1, True)
    lock = f"solo.Lock(['a', 'b'], directory={str(lab.directory)!r})"
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import solo\ntry: {lock}.acquire()\nexcept solo.Busy: print('busy')"
    assert (
        subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True).stdout == b"busy\n"
        and ticket.exists()
    )
    assert (
        subprocess.run([sys.executable, "-IS", "-c", program.replace(", 'b'", "")], capture_output=True).returncode == 0
    )
    assert not ticket.exists()


def test_what_goes_beside_an_orphan_that_it_can_not_see_does_not_forget_it(lab):
    ticket = orphan_elsewhere(lab, lab.hold("job", "-s"))

    assert lab.run("-n", "job", "-s", "true").stderr == b"" and ticket.exists()
    assert b"taking over" in lab.run("-n", "job", "true").stderr and not ticket.exists()


def test_with_the_orphan_of_a_nested_name_goes_what_it_had_of_the_parents(lab):
    holder = lab.hold("up/job")
    tickets = [lab.find_hold("up"), orphan_elsewhere(lab, holder, "up/job")]
    tickets[0].write_bytes(tickets[0].read_bytes().replace(b"boot ", b"boot x").replace(b"host ", b"host elsewhere-"))
    tickets[1].write_bytes(tickets[0].read_bytes().replace(b"mode IX", b"mode X"))

    assert lab.run("-n", "up/job", "true").stderr.count(b"taking over") == 1
    assert not any(ticket.exists() for ticket in tickets)


def test_of_orphans_that_can_not_be_seen_and_are_in_nobodys_way_only_some_are_kept(lab):
    ticket = orphan_elsewhere(lab, lab.hold("job", "-s"))
    for number in range(MOST_OPEN + 3):
        (ticket.parent / f".hold.{number + 1:020d}").write_bytes(ticket.read_bytes())

    lab.run("-n", "job", "-s", "true")

    assert len(list(ticket.parent.glob(".hold.*"))) == MOST_OPEN


def find_inner(outer, inside):
    """Our pid of the one that is called `inside` in the namespace that `outer` made; others have pids like that in theirs."""
    namespace = os.readlink(f"/proc/{outer.pid}/ns/pid_for_children")
    return next(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_called(pid, namespace, inside))


def is_called(pid, namespace, inside):
    try:
        lines = open(f"/proc/{pid}/status").read().splitlines()
        [names] = [line.split()[1:] for line in lines if line.startswith("NSpid:")]
        return os.readlink(f"/proc/{pid}/ns/pid") == namespace and names[-1] == str(inside)
    except OSError:
        return False


# --- other users ---------------------------------------------------------------------------------------------------
# Each attack is tried as a real user, in a directory of each kind.

BASES = [(0o755, 0o700, 0o600, 0o600), (0o2775, 0o2770, 0o660, 0o640), (0o1777, 0o1777, 0o666, 0o644)]


def act_as_nobody(*words, **options):
    return subprocess.run(
        [*map(str, words)], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, **options
    )


def make_base_of(lab, mode):
    lab.directory.mkdir()
    lab.directory.chmod(mode)


def read_mode(path):
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("base, directory, gate, ticket", BASES)
def test_only_users_who_can_write_in_the_base_get_rights_below_it(lab, base, directory, gate, ticket):
    make_base_of(lab, base)
    lab.run("-n", "job", "true")  # makes the journal
    lab.hold("job")
    lab.start_waiter("job")
    seat = next((lab.directory / "job").glob(".seat.*"))

    modes = [
        read_mode(path) for path in (lab.directory / "job", lab.directory / "job/.gate", lab.find_hold("job"), seat)
    ]

    assert modes == [directory, gate, ticket, ticket]
    journals = lab.directory / (".journals.%d" % os.geteuid() if base & 0o1000 else ".journals")
    assert read_mode(journals / "job/.journal") & 0o666 == (0o600 if base & 0o1000 else gate)


@pytest.mark.root
@pytest.mark.tool("flock")
def test_another_user_cannot_lock_a_gate_or_a_ticket_where_it_can_only_read_the_base(common):
    make_base_of(common, 0o755)
    holder = common.hold("job")

    for file in (common.directory / "job/.gate", common.find_hold("job")):
        attack = act_as_nobody("flock", "--nonblock", file, "true")
        assert attack.returncode != 0 and b"Permission denied" in attack.stderr
    assert act_as_nobody("flock", "--nonblock", common.directory, "true").returncode == 0  # the base itself it can lock
    assert common.run("-n", "job", "true").returncode == 75 and finish(holder)[0] == 0


@pytest.mark.root
@pytest.mark.tool("flock")
def test_the_tree_of_an_earlier_version_is_tightened_at_its_first_use(common):
    make_base_of(common, 0o755)
    common.run("-n", "job", "true")
    gate, journal = common.directory / "job/.gate", common.find_journal("job")
    for path in (gate.parent, journal.parent, journal.parent.parent):
        path.chmod(0o755)
    for path in (gate, journal):
        path.chmod(0o644)
    before = act_as_nobody("flock", "--nonblock", gate, "true")

    assert common.run("-n", "job", "true").returncode == 0

    assert before.returncode == 0 and act_as_nobody("flock", "--nonblock", gate, "true").returncode != 0
    assert [read_mode(path) for path in (gate.parent, gate, journal.parent, journal)] == [0o700, 0o600, 0o700, 0o600]


def test_a_directory_that_solo_did_not_make_keeps_its_mode(lab):
    make_base_of(lab, 0o755)
    (lab.directory / "www").mkdir()
    (lab.directory / "www").chmod(0o755)

    assert [lab.run(*words).returncode for words in (("-n", "www", "true"), ("-n", "www", "true"), ("list",))] == [
        0,
        0,
        0,
    ]

    assert read_mode(lab.directory / "www") == 0o755 and read_mode(lab.directory / "www/.gate") == 0o600


@pytest.mark.root
def test_clean_tightens_the_tickets_and_the_journals_of_an_earlier_version(lab):
    make_base_of(lab, 0o1777)
    lab.hold("job")
    ticket = lab.find_hold("job")
    ticket.chmod(0o666)
    journal = lab.directory / ".journals.0/job/.journal"
    until(journal.exists)
    journal.chmod(0o644)

    assert lab.run("clean").returncode == 0

    assert (read_mode(ticket), read_mode(journal)) == (0o644, 0o600)


@pytest.mark.root
def test_another_user_cannot_change_a_ticket_in_a_sticky_directory(common):
    make_base_of(common, 0o1777)
    holder = common.hold("job")
    ticket = common.find_hold("job")

    for attack in (
        f": >>{ticket}",
        f"rm -f {ticket}",
        f"mv {ticket} {ticket}1",
        f"mv {ticket.parent} {ticket.parent}1",
    ):
        assert act_as_nobody("sh", "-c", attack).returncode != 0, attack
    assert act_as_nobody("cat", ticket).returncode == 0  # it may read it, as contenders do
    assert common.run("-n", "job", "true", user=NOBODY).returncode == 75 and finish(holder)[0] == 0


@pytest.mark.root
def test_a_name_that_another_user_made_in_a_sticky_directory_is_refused(common):
    make_base_of(common, 0o1777)
    assert common.run("-n", "up/job", "true", user=NOBODY).returncode == 0

    for name in ("up", "up/job", "up/other"):
        result = common.run("-n", name, "true")
        assert result.returncode == 125
        assert result.stderr.decode() == (
            f"solo: up: cannot use {common.directory}/up: it belongs to uid {NOBODY}, who could remove it while others use it "
            f"(as root: chown -h root {common.directory}/up)\n"
        )
    assert common.run("-n", "up/job", "true", user=NOBODY).returncode == 0


@pytest.mark.root
def test_a_gate_that_another_user_made_in_a_sticky_directory_is_refused(common):
    """Its owner could swap it for another one between two contenders."""
    make_base_of(common, 0o1777)
    (common.directory / "job").mkdir()
    (common.directory / "job").chmod(0o1777)
    assert common.run("-n", "job", "true", user=NOBODY).returncode == 0

    result = common.run("-n", "job", "true")
    os.chown(common.directory / "job/.gate", 0, 0)  # as the message says

    assert (
        result.returncode == 125
        and f"{common.directory}/job/.gate: it belongs to uid {NOBODY}".encode() in result.stderr
    )
    assert [common.run("-n", "job", "true", user=user).returncode for user in (0, NOBODY)] == [0, 0]


@pytest.mark.root
def test_a_second_link_to_a_gate_does_not_hide_that_it_was_removed(common):
    make_base_of(common, 0o1777)
    common.run("-n", "job", "true")
    gate = common.directory / "job/.gate"
    queue = Queue(open_name(open_base(str(common.directory), True), "job"), read_origin())
    with queue.gate:
        pass  # it has the gate open

    os.link(gate, common.directory / "link")
    gate.unlink()
    common.run("-n", "job", "true")

    with queue.gate:
        assert os.fstat(queue.gate.fd).st_ino == gate.stat().st_ino
    queue.leave()


@pytest.mark.root
def test_clean_leaves_what_root_made_for_others_in_a_sticky_directory(common):
    make_base_of(common, 0o1777)
    common.run("-n", "job", "true")
    common.run("-n", "own", "true", user=NOBODY)
    from solo.commands import prune

    queue = Queue(open_name(open_base(str(common.directory), True), "job"), read_origin())
    base = open_base(str(common.directory), True)
    with queue.gate:
        assert not prune.remove_name("job", queue, base)
    queue.leave()
    os.close(base.fd)
    assert common.run("-n", "job", "true", user=NOBODY).returncode == 0


@pytest.mark.root
def test_in_a_sticky_directory_each_user_counts_its_own_runs_for_once_per(common):
    """Else a user who is first could keep root's job from ever running."""
    make_base_of(common, 0o1777)
    (common.directory / "job").mkdir()
    (common.directory / "job").chmod(0o1777)
    common.run("-n", "job", "true")  # the gate is root's
    day = ("-n", "job", "--once-per", "1d", "--", "echo", "ran")

    told = [common.run(*day, user=user).stdout for user in (NOBODY, NOBODY, 0, 0)]

    assert told == [b"ran\n", b"", b"ran\n", b""]
    assert read_mode(common.directory / f".journals.{NOBODY}") == 0o700


@pytest.mark.root
def test_a_journal_directory_that_another_user_planted_is_not_used(common):
    make_base_of(common, 0o1777)
    act_as_nobody(
        "mkdir", "-m", "777", common.directory / ".journals.0", common.directory / ".journals.0/job", check=True
    )

    assert common.run("-n", "job", "--once-per", "1d", "--", "echo", "ran").returncode == 125
    told = common.run("-v", "-n", "job", "--", "echo", "ran")
    assert (
        told.stdout == b"ran\n" and b"journal is not written" in told.stderr and b"belongs to uid 65534" in told.stderr
    )
    assert os.listdir(common.directory / ".journals.0/job") == []


@pytest.mark.root
@pytest.mark.parametrize("text", [b"0" + b"9" * 19 + b"\n", b"00" + b"9" * 18 + b"\n", b"9" * 2000, b""])
def test_nothing_that_another_user_writes_into_a_gate_lasts(common, text):
    make_base_of(common, 0o1777)
    common.run("-n", "job", "true")
    gate = common.directory / "job/.gate"
    act_as_nobody("sh", "-c", f"cat >{gate}", input=text, check=True)

    tokens = [int(common.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN").stdout) for _ in range(3)]

    assert len(set(tokens)) == 3 and tokens[-1] < 10**17


@pytest.mark.root
def test_a_counter_that_another_user_set_back_hides_nobody(common):
    """A waiter whose holder has gone takes no short cut past a shared holder that came meanwhile."""
    make_base_of(common, 0o1777)
    common.run("-n", "job", "true")
    for is_shared in (True, False):
        queue = Queue(open_name(open_base(str(common.directory), True), "job"), read_origin())
        queue.place.shared = is_shared
        handoff = Handoff(queue, None)
        record = Record(read_self(), queue.origin, 0, Claim(EXCLUSIVE), ["job"], None, [b"true"])
        with queue.gate:
            holder = queue.publish(HOLD, record)
            obstacle = queue.open_ticket(holder.file)
            handoff.hold = make_hold(queue, record)
            assert not handoff.is_free([obstacle])
            holder.release()

            assert handoff.is_free([obstacle]) is not is_shared
        handoff.finish()
        obstacle.close()
        queue.leave()


@pytest.mark.root
@pytest.mark.parametrize("number", ["0" + "9" * 19, "00" + "9" * 18, "001" + "0" * 17])
def test_a_ticket_name_that_another_user_planted_uses_up_no_numbers(common, number):
    make_base_of(common, 0o1777)
    common.run("-n", "job", "true")
    act_as_nobody("touch", common.directory / f"job/.seat.{number}", check=True)

    results = [common.run("-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN", user=NOBODY) for _ in range(3)]

    assert [result.returncode for result in results] == [0, 0, 0]
    tokens = [int(result.stdout) for result in results]
    assert len(set(tokens)) == 3 and (tokens == sorted(tokens) or number == "001" + "0" * 17)


@pytest.mark.root
@pytest.mark.parametrize(
    "base, state, text",
    [
        (0o700, "ok", "no other user can read, block or change the locks in"),
        (0o755, "note", "other users can see which names there are in"),
        (0o2770, "note", "is shared: the members of group root can read, block and remove each lock in it"),
        (
            0o1777,
            "note",
            "is shared: all users can read and block each name in it, and use each name that root made first",
        ),
    ],
)
def test_doctor_says_what_other_users_can_do_in_each_kind_of_directory(lab, base, state, text):
    make_base_of(lab, base)
    lab.run("-n", "job", "true")

    result = lab.run("doctor", "--json")

    findings = [row for row in json.loads(result.stdout) if row["check"] == "trust"]
    assert result.returncode == 0 and any(row["state"] == state and text in row["text"] for row in findings), findings


@pytest.mark.root
def test_doctor_finds_what_other_users_can_lock_and_what_only_they_can_use(lab):
    make_base_of(lab, 0o755)
    lab.run("-n", "job", "true")
    (lab.directory / "job").chmod(0o755)
    (lab.directory / "job/.gate").chmod(0o644)

    wide = lab.run("doctor")
    cleaned = lab.run("clean")
    after = lab.run("doctor")

    assert wide.returncode == 1 and f"fails  {lab.directory}/job/.gate: other users can open it".encode() in wide.stdout
    assert (cleaned.returncode, after.returncode) == (0, 0)
    lab.directory.chmod(0o1777)
    lab.run("-n", "own", "true")
    os.chown(lab.directory / "own", NOBODY, NOBODY)
    foreign = lab.run("doctor")
    assert foreign.returncode == 0 and f"note   {lab.directory}/own belongs to uid {NOBODY}".encode() in foreign.stdout
    os.chown(lab.directory / "own", 0, 0)
    os.chown(lab.directory / "own/.gate", NOBODY, NOBODY)
    broken = lab.run("doctor")
    assert (
        broken.returncode == 1 and f"fails  {lab.directory}/own/.gate belongs to uid {NOBODY}".encode() in broken.stdout
    )


@pytest.mark.root
def test_doctor_names_who_can_move_the_directory_away(lab):
    make_base_of(lab, 0o700)
    os.chown(lab.path, NOBODY, NOBODY)

    assert (
        f"note   {lab.path} belongs to uid {NOBODY}, who can put another directory in the place of".encode()
        in lab.run("doctor").stdout
    )


@pytest.mark.root
@pytest.mark.parametrize("base, group", [(0o1777, 0), (0o2770, NOBODY)])
@pytest.mark.parametrize("first, second", [(0, NOBODY), (NOBODY, 0)])
def test_a_waiter_acquires_after_the_holder_of_another_user(common, base, group, first, second):
    """It can open the ticket for reading only."""
    make_base_of(common, base)
    os.chown(common.directory, 0, group)
    common.directory.chmod(base)
    common.run("-n", "job", "true")
    holder = common.start("-n", "job", "--", "sh", "-c", "echo; read line; exit 0", user=first, group=NOBODY)
    holder.stdout.readline()
    waiter = common.start("--wait", "1m", "-n", "job", "--", "echo", "ran", user=second, group=NOBODY)
    until(lambda: common.count_waiting("job"))

    assert finish(holder)[0] == 0

    assert finish(waiter)[:2] == (0, "ran\n")


PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import solo; lock = solo.Lock('job', wait=60, directory=sys.argv[2]); lock.acquire(); print('ran')"


@pytest.mark.root
def test_a_program_acquires_after_the_holder_of_another_user(common):
    make_base_of(common, 0o1777)
    holder = common.hold("job")
    program = subprocess.Popen(
        ["/usr/bin/python3", "-IS", "-c", PROGRAM, os.path.dirname(common.script), common.directory],
        user=NOBODY,
        stdout=subprocess.PIPE,
    )
    until(lambda: common.count_waiting("job"))

    assert finish(holder)[0] == 0

    assert program.communicate(timeout=60)[0] == b"ran\n"
