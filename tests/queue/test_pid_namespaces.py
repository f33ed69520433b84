"""A holder in another pid namespace: every view has the pids that its reader can use, or says where
a pid is valid.
"""

import json
import os
import re
import shlex
import signal

import pytest
from conftest import NOBODY, finish, in_mounts, read_line, read_state, until, wait_dead
from fleet import find_children
from observed import INNER, find_chain
from test_directories import BOOT, BOOT_ID

pytestmark = [pytest.mark.root, pytest.mark.tool("unshare")]

COMMAND = ("sh", "-c", "echo $$ $PPID; read line")


class Container:
    """A holder of `job` whose launcher is process 2 of a pid namespace: `launcher` and `child` are
    its pids outside, `inner_child` and `inner_launcher` are those inside.
    """

    def __init__(self, lab, *words, host=None):
        rename = ("--uts", "sh", "-c", f'hostname {host} && exec "$@"', "sh") if host else ()
        self.process = lab.start(*words, "-n", "job", "--", *COMMAND, prefix=(*INNER, *rename))
        self.inner_child, self.inner_launcher = map(int, read_line(self.process).split())
        _, self.launcher, self.child = find_chain(self.process)


@pytest.fixture(params=["web3", None], ids=["host", "same host"])
def container(lab, request):
    boots = {lab.start_words(*prefix, "cat", BOOT_ID).stdout.read() for prefix in ((), INNER)}
    if request.param and len(boots) > 1:
        pytest.skip("needs one boot id in all /proc: with another, another host is another machine")
    made = Container(lab, host=request.param)
    made.place = "on web3" if request.param else "in another pid namespace"
    return made


def find_notified(lab, *prefix):
    """Return the pid that --notify gets, in the words of a test: `<4711>`."""
    note = lab.path / "note"
    line = f'printf "<%s>" "$SOLO_HOLDER_PID" >{note}.new; mv {note}.new {note}'
    assert lab.run("--notify", line, "-n", "job", "true", prefix=prefix).returncode == 75
    until(note.exists)
    return note.read_text()


def test_reader_outside_gets_its_own_pids(lab, container):
    known = f"pid {container.launcher} (sh -c echo $$ $PPID; read line)"

    busy = lab.run("-n", "job", "true").stderr.decode()
    [row] = lab.list()
    table, shown, top = (
        lab.run(*words).stdout.decode() for words in (("list",), ("show", "job"), ("top",))
    )

    assert re.fullmatch(rf"solo: job: busy: held for \d+s by {re.escape(known)}\n", busy)
    assert (row["launcher"], row["child"], row["claims"]) == (
        container.launcher,
        container.child,
        {},
    )
    assert table.splitlines()[1].split()[3:5] == [str(container.launcher), str(container.child)]
    assert f" by pid {container.launcher} (" in shown and top.splitlines()[1].split()[2] == str(
        container.launcher
    )
    assert find_notified(lab) == f"<{container.launcher}>"
    assert f"job: ended {known} after " in lab.run("stop", "job").stdout.decode()


def test_reader_in_a_third_namespace_learns_where_the_pid_is_valid(lab, container):
    pids = {"launcher": container.inner_launcher, "child": container.inner_child}

    def view(*words):
        return lab.run(*words, prefix=INNER).stdout.decode()

    busy = lab.run("-n", "job", "true", prefix=INNER).stderr.decode()
    [row] = json.loads(view("list", "--json"))
    stop = lab.run("stop", "job", prefix=INNER)

    assert f" by pid {container.inner_launcher} {container.place} (sh " in busy
    assert (row["launcher"], row["child"], row["claims"]) == (None, None, pids)
    assert view("list").splitlines()[1].split()[3:5] == [
        f"{container.inner_launcher}?",
        f"{container.inner_child}?",
    ]
    assert f" by pid {container.inner_launcher}? (" in view("show", "job")
    assert view("top").splitlines()[1].split()[2] == f"{container.inner_launcher}?"
    assert find_notified(lab, *INNER) == "<>"
    refused = f"solo: job: cannot end pid {container.inner_child} {container.place}: it cannot be seen from here\n"
    assert (stop.returncode, stop.stderr.decode()) == (125, refused)


@pytest.mark.tool("mount")
def test_reader_with_another_id_of_this_boot_gets_its_own_pids(lab):
    """systemd-nspawn mounts a boot_id, but not into the /proc of a namespace inside."""
    container, apart = Container(lab), in_mounts(BOOT)

    [row] = json.loads(lab.run("list", "--json", prefix=apart).stdout)
    busy = lab.run("-n", "job", "true", prefix=apart).stderr.decode()
    stopped = lab.run("stop", "job", prefix=apart).stdout.decode()

    assert (row["state"], row["launcher"], row["child"]) == (
        "held",
        container.launcher,
        container.child,
    )
    assert f" by pid {container.launcher} (sh " in busy
    assert f"job: ended pid {container.launcher} (" in stopped


def test_tables_name_the_host_only_if_it_is_another(lab, container):
    tables = [lab.run(*words).stdout.decode() for words in (("list",), ("history",))]

    assert [("  HOST  " in table, "  web3  " in table) for table in tables] == [
        (container.place == "on web3",) * 2
    ] * 2


def test_release_chooses_by_the_pid_of_its_caller(lab):
    script = f"{shlex.quote(lab.script)} hold --shared --pid $$ job && echo; read line"
    outer = []
    for _ in range(2):
        outer.append(lab.start_words(*INNER, "sh", "-c", script))
        read_line(outer[-1])
    pids = [find_chain(process)[0] for process in outer]

    refused = lab.run("release", "job")
    released = lab.run("release", "--pid", str(pids[1]), "job")

    assert f": pids {pids[0]}, {pids[1]} (choose " in refused.stderr.decode()
    assert released.returncode == 0 and [row["child"] for row in lab.list()] == pids[:1]
    for process in outer:
        finish(process)


def test_wait_for_a_hold_of_another_container_ends_in_time(lab):
    holder = lab.start_words(
        *INNER, "sh", "-c", f"{shlex.quote(lab.script)} hold --pid $$ a/b && echo; read line"
    )
    read_line(holder)
    busy = [lab.run("wait", name, "--timeout", "100ms", prefix=INNER) for name in ("a", "a/b")]
    waiting = lab.start("wait", "a/b", prefix=INNER)

    assert [result.returncode for result in busy] == [75, 75]
    assert lab.run("release", "a/b").returncode == 0 and finish(waiting) == (0, "", "")


def test_socket_of_a_process_that_cannot_be_seen_has_no_pid(lab):
    holder = Container(lab, "--via", "socket")

    [seen] = lab.list("--via", "socket")
    [unseen] = json.loads(lab.run("list", "--via", "socket", "--json", prefix=INNER).stdout)

    assert (seen["launcher"], seen["claims"]) == (holder.launcher, {})
    assert (unseen["launcher"], unseen["child"], unseen["claims"]) == (None, None, {})


# --- a launcher that is killed in a container: a holder keeps the name until the command has ended


class Killed:
    """A launcher in a pid namespace, killed: `child` and `holder` are the pids, here, of its
    children.
    """

    def __init__(self, lab, *words, command=COMMAND):
        self.process = lab.start(
            *words, "-n", "job", "--", *command, prefix=(*INNER, "sh", "-c", '"$@"; cat', "sh")
        )
        read_line(self.process)
        _, self.launcher, *_ = find_chain(self.process)
        self.child, self.holder = find_children(self.launcher)
        os.kill(self.launcher, signal.SIGKILL)
        wait_dead(self.launcher)


@pytest.mark.host
def test_stop_ends_an_orphan_and_its_holder(lab):
    killed = Killed(lab)

    ended = lab.run("stop", "job").stdout.decode()

    assert f"job: ended orphan pid {killed.child} " in ended and lab.list() == []
    wait_dead(killed.holder)


def test_holder_keeps_nothing_of_its_caller(lab):
    """It blocks all signals but SIGKILL, and is in a session of its own."""
    process = lab.start("-n", "job", "--", *COMMAND, prefix=(*INNER, "sh", "-c", '"$@"; cat', "sh"))
    read_line(process)
    _, launcher, _ = find_chain(process)
    _, holder = find_children(launcher)
    until(
        lambda: os.path.samefile(f"/proc/{holder}/cwd", "/")
    )  # it has closed what it does not need
    assert open(f"/proc/{holder}/comm").read() == "solo-holder\n"

    links = [f"/proc/{holder}/fd/{fd}" for fd in os.listdir(f"/proc/{holder}/fd")]
    others = [
        link
        for link in links
        if os.readlink(link) not in ("anon_inode:[pidfd]", "anon_inode:[eventpoll]")
    ]
    own = [
        lab.find_hold("job"),
        lab.directory / "job",
        lab.program,
    ]  # by inode: in a chroot the links have other paths

    assert all(any(os.path.samefile(link, path) for path in own) for link in others)
    assert os.getsid(holder) != os.getsid(launcher)
    until(lambda: read_state(holder) == "S")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(holder, number)
    os.kill(launcher, signal.SIGKILL)
    wait_dead(launcher)
    assert lab.run("-n", "job", "true", prefix=INNER).returncode == 75


def test_holder_ends_with_a_launcher_that_ends(lab):
    """Process 1 of this container reaps nobody: a zombie would stay."""
    script = "import os, subprocess; subprocess.run([os.environ['SOLO'], '-n', 'job', 'true']); print(*os.listdir('/proc'))"

    _, seen, _ = finish(lab.start_words(*INNER, "/usr/bin/python3", "-c", script))

    assert [entry for entry in seen.split() if entry.isdigit()] == ["1"]


@pytest.mark.host
def test_first_pid_namespace_has_no_holder(lab):
    holder = lab.hold("job")

    assert find_children(holder.pid) == [holder.child]


@pytest.mark.host
def test_orphan_without_a_holder_stays_held_for_those_who_see_it(lab):
    """A container that does not takes over, and says so once."""
    killed = Killed(lab)
    os.kill(killed.holder, signal.SIGKILL)
    wait_dead(killed.holder)

    beside = [lab.run("-n", "job", "true", prefix=INNER) for _ in range(2)]
    busy = lab.run("-n", "job", "true")

    assert [result.returncode for result in beside] == [0, 0]
    assert [result.stderr.count(b"taking over from") for result in beside] == [1, 0]
    assert busy.returncode == 75 and f"orphan pid {killed.child} " in busy.stderr.decode()
    os.kill(killed.child, signal.SIGKILL)
    assert lab.run("-w", "forever", "-n", "job", "true").returncode == 0
    assert os.listdir(lab.directory / "job") == [".gate"]


# --- an orphan whose holder was killed too, and that cannot be identified: it blocks no contender,


@pytest.fixture
def orphan(common):
    """Return the pid, here, of an orphan of root in a pid namespace, in a base for all users."""
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    killed = Killed(common)
    os.kill(killed.holder, signal.SIGKILL)
    wait_dead(killed.holder)
    return killed.child


BECOME = f"exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
HIDE = {
    "namespace not read": BECOME,
    "listed and not shown": f"mount -t proc -o hidepid=1 proc /proc && {BECOME}",
    "no inner pid": "grep -v NSpid: /proc/$0/status >$LAB/status; mount --bind $LAB/status /proc/$0/status && exec",
}  # the last one as before Linux 4.1


@pytest.mark.tool("mount", "setpriv")
@pytest.mark.parametrize("hide", HIDE.values(), ids=HIDE)
def test_orphan_that_cannot_be_identified_is_unseen(common, orphan, hide):
    prefix = ("unshare", "--mount", "sh", "-c", f'{hide} "$@"', str(orphan))

    result = common.run("-n", "job", "true", prefix=prefix)

    assert result.returncode == 0 and b"/job: taking over from " in result.stderr
