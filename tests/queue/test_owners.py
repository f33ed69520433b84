"""Tickets of another user: root signals only processes which that user could signal, and views mark
their claims.
"""

import json
import os
import re
import signal
import subprocess

import pytest
from conftest import NOBODY, PATIENCE, finish, read_line, read_state, until, wait_dead
from fleet import send
from observed import parse_metrics

from solo.identity import read_stat

pytestmark = pytest.mark.root

# Hold a ticket as user nobody, with three children: `elder` and then `mine` run as nobody and start
# in one clock tick, the younger `foreign` runs as root.
FORGER = """
import fcntl, json, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from solo.identity import read_self, read_stat, read_origin
from solo.record import RESERVED, Record, format_closing, format_record
from solo.modes import Claim
names, spec = sys.argv[2], json.loads(sys.argv[3])
own = {"self": read_self()}

def fork(role, uid):
    pid = os.fork()
    if not pid:
        os.setresuid(uid, uid, uid)
        os.execvp("sleep", ["sleep", "99"])
    own[role] = pid, read_stat(pid).start
    return own[role][1]

def end(*roles):
    for role in roles:
        os.kill(own[role][0], 9)
        os.waitpid(own[role][0], 0)

while fork("elder", 65534) < fork("mine", 65534):
    end("elder", "mine")
while fork("foreign", 0) == own["mine"][1]:
    end("foreign")
os.setresuid(65534, 65534, 65534)

def write(spec):
    launcher, child = (own.get(spec[key], spec[key]) if isinstance(spec[key], str) else spec[key] for key in ("launcher", "child"))
    origin = read_origin()
    origin.host = spec.get("host", origin.host)
    record = Record(launcher, origin, spec.get("uid", 65534), Claim("X"), ["job"],
                    [word.encode() for word in spec.get("command", ["job"])])
    record.tree, record.since, record.via = spec.get("tree"), time.time(), spec.get("via", "")
    text = format_record(record)
    file.truncate(0)
    os.pwrite(file.fileno(), text[:-RESERVED] + format_closing(child) if child else text, 0)

file = open(f"{names}/job/{spec.get('kind', '.hold.')}{int(time.time() * 1e6):020d}", "w+b", 0)
fcntl.flock(file, fcntl.LOCK_EX)
write(spec)
signal.signal(signal.SIGTERM, lambda *_: write(spec["then"]) if "then" in spec else None)
print(json.dumps(own), flush=True)
sys.stdin.read()
"""


class Forged:
    """A ticket of user nobody in a sticky directory; `pids` are its writer's processes."""

    def __init__(self, common, **spec):
        common.directory.mkdir()
        common.directory.chmod(0o1777)
        (common.directory / "job").mkdir()
        (common.directory / "job").chmod(0o1777)
        words = [
            "/usr/bin/python3",
            "-IS",
            "-c",
            FORGER,
            os.path.dirname(common.script),
            str(common.directory),
        ]
        self.process = subprocess.Popen(
            [*words, json.dumps(spec)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        common.started.append(self.process)
        self.pids = {role: pid for role, (pid, _) in json.loads(read_line(self.process)).items()}

    def end(self):
        for pid in self.pids.values():
            send(pid, signal.SIGKILL)


@pytest.fixture
def forge(common):
    made = []

    def make(**spec):
        made.append(Forged(common, **spec))
        return made[-1].pids

    yield make
    for each in made:
        each.end()


@pytest.fixture
def victim():
    """Start a process as root. `victim.grow()` makes it start a child, `victim.child`."""
    process = subprocess.Popen(
        ["sh", "-c", "read line; sleep 99 & echo $!; wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def grow():
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.child = int(read_line(process))

    process.grow = grow
    yield process
    os.kill(process.child, signal.SIGKILL) if read_state(process.child) != "gone" else None
    process.kill()
    process.communicate()


def identify(pid):
    return pid, read_stat(pid).start


# --- signals--------------------------------------------------------------------------------------


def test_replace_spares_in_a_foreign_tree_roots_process_and_an_elder_child_of_the_same_tick(
    common, forge
):
    """A launcher of version 0.1.0 did not wait for the next tick."""
    pids = forge(launcher="self", child="mine", tree=0.1)

    result = common.run("--replace", "-k", "100ms", "-n", "job", "true")

    assert result.returncode == 0, result.stderr
    wait_dead(pids["mine"])
    wait_dead(pids["self"])
    assert read_state(pids["foreign"]) == read_state(pids["elder"]) == "S"


@pytest.mark.parametrize("start", [1, None], ids=["wrong start", "right start"])
def test_changed_record_gives_no_power_over_its_launcher(common, forge, victim, start):
    """After its launcher was verified and got SIGTERM, the record names the victim, whose child is
    younger than the command.
    """
    pid, right = identify(victim.pid)
    pids = forge(
        launcher="self",
        child="mine",
        tree=0.1,
        then={"launcher": [pid, start or right], "child": "mine", "tree": 0.1},
    )
    victim.grow()

    result = common.run("--replace", "-w", "3s", "-k", "100ms", "-n", "job", "true")

    wait_dead(pids["mine"])
    assert result.returncode == (75 if start else 125)
    assert (read_state(victim.pid), read_state(victim.child)) == ("S", "S")


def test_command_of_another_user_than_its_ticket_gets_no_signal(common, forge):
    pids = forge(launcher="self", child="foreign")

    result = common.run("--replace", "-k", "100ms", "-n", "job", "true")

    assert result.returncode == 125 and read_state(pids["foreign"]) == "S"
    assert result.stderr.decode() == (
        f"solo: job: cannot end pid {pids['foreign']}: its record was written by nobody, a user that could not have signalled it\n"
    )


def test_latest_signals_no_process_that_the_waiter_could_not_signal(common, forge):
    program = "import signal; signal.signal(signal.SIGURG, lambda *_: print('got SIGURG', flush=True)); print(flush=True); input()"
    victim = subprocess.Popen(
        ["/usr/bin/python3", "-IS", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    read_line(victim)
    forge(kind=".seat.", launcher=identify(victim.pid), child=None)

    result = common.run("--latest", "-w", "100ms", "-n", "job", "true")

    victim.send_signal(signal.SIGURG)  # a witness: it would have printed an earlier one
    assert finish(victim, b"\n")[1] == "got SIGURG\n" and result.returncode in (0, 75)


# --- views----------------------------------------------------------------------------------------

EVIL = 'etcd"} 1\nsolo_last_success_timestamp_seconds{name="nightly",via="file'


@pytest.fixture
def view(common, solo_script):
    """Run a view as root, from the environment that has its libraries."""

    def run(*words):
        return subprocess.run(
            [solo_script, *words], env=common.environment, capture_output=True, timeout=PATIENCE
        )

    return run


def forge_roots(forge):
    claims = {"launcher": identify(1), "child": identify(1), "uid": 0, "via": EVIL, "tree": 0.1}
    return forge(**claims, host="h\x1b[2J\n", command=["a\x1b]0;b\x07\n"])


def test_views_show_the_owner_and_mark_claims_of_the_record(forge, view):
    forge_roots(forge)

    [row] = json.loads(view("list", "--via", "file", "--json").stdout)
    [shown] = json.loads(view("show", "--json", "job").stdout)
    table, text, top = (
        view(*words).stdout.decode()
        for words in (("list", "--via", "file"), ("show", "job"), ("top", "--via", "file"))
    )

    assert (row["user"], row["launcher"], row["child"]) == ("nobody", None, None)
    assert (
        row["claims"] == {"user": "root", "launcher": 1, "child": 1}
        and shown["holds"][0]["processes"] == []
    )
    assert (
        table.splitlines()[1].split()[3:5] == ["1?", "1?"] and "  nobody (claims root)  " in table
    )
    assert (
        "by pid 1? (nobody (claims root) on " in text
        and " 1?  " in top
        and "  nobody (claims root)  " in top
    )


def test_busy_line_names_the_owner_and_the_claim(common, forge):
    forge_roots(forge)

    line = common.run("-n", "job", "true").stderr.decode()

    assert re.fullmatch(
        r"solo: job: busy: held for \d+s by nobody, whose record claims pid 1 of root \((.*)\)\n",
        line,
    )[1] == (r"a\x1b]0;b\x07\n")


def test_notification_gets_no_pid_that_only_the_record_claims(common, forge):
    forge_roots(forge)
    note = common.path / "note"
    line = (
        f'printf "%s" "<$SOLO_HOLDER_PID> $SOLO_HOLDER_COMMAND" >{note}.new; mv {note}.new {note}'
    )

    common.run("--notify", line, "-n", "job", "true")

    until(note.exists)
    assert note.read_text() == r"<> a\x1b]0;b\x07\n"


def test_foreign_record_cannot_name_an_ancestor_as_holder(common, forge):
    forge_roots(forge)

    assert common.run("-w", "100ms", "-n", "job", "true").returncode == 75


def test_foreign_record_is_believed_about_its_owners_processes(common, view):
    common.directory.mkdir()
    common.directory.chmod(0o1777)
    common.run(
        "-n", "job", "true"
    )  # root creates the name: root could not use one that nobody created
    holder = common.start("-n", "job", "--", "sh", "-c", "echo; read line", user=NOBODY)
    read_line(holder)

    busy = common.run("-n", "job", "true").stderr.decode()
    [row] = json.loads(view("list", "--via", "file", "--json").stdout)

    assert f" by pid {holder.pid} of nobody (sh -c echo; read line)" in busy
    assert (row["user"], row["launcher"], row["claims"]) == ("nobody", holder.pid, {})
    finish(holder)


def test_fields_of_a_record_are_escaped_in_views(forge, view):
    forge_roots(forge)

    views = {
        words: view(*words).stdout
        for words in (
            ("list", "--via", "file"),
            ("show", "job"),
            ("top", "--via", "file"),
            ("metrics",),
        )
    }

    assert not [words for words, out in views.items() if b"\x1b" in out or b"\x07" in out]
    assert [
        views[words].count(b"\n") for words in (("list", "--via", "file"), ("top", "--via", "file"))
    ] == [2, 2]


def test_backend_of_a_record_is_one_label_of_the_metrics(forge, view):
    forge_roots(forge)

    samples = parse_metrics(view("metrics").stdout.decode())

    assert samples["solo_held", "job", EVIL] == 1
    assert {name for _, name, _ in samples} == {"job"}


def test_message_of_top_is_escaped():
    from solo.commands.top import View

    view = View({}, [])
    view.show_message("a\x1b[2J: refused")

    assert view.message == "a\\x1b[2J: refused"
