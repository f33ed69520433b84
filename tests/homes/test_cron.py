"""Crontab lines under the real cron, in a separate machine: this root below a temporary layer, in
new namespaces.

cron reads its tables once a minute, so all lines run in one minute. Their jobs hold until the tests
end, and each mail of cron is a file. Contenders started by su and sudo find the names held;
homes/test_users.py has other starts of a user.
"""

import email
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import PATIENCE, TESTS, read_state, until
from fleet import find_children
from guest import ENVIRONMENT, Inside, find_leader, find_libraries, put_solo
from homes.home import read_facts

pytestmark = [
    pytest.mark.long,
    pytest.mark.full,
    pytest.mark.root,
    pytest.mark.tool("cron", "perl", "unshare", "nsenter", "mount", "setpriv"),
]

HOLD = """#!/bin/sh
echo "$1:$(id -un):$$:$SOLO_NAME" >>/lab/ran
until [ -e /lab/go ]; do sleep 0.1; done
"""

SENDMAIL = """#!/bin/sh
mail=$(mktemp /lab/mails/.XXXXXX) && cat >"$mail" && mv "$mail" "/lab/mails/${mail##*/.}"
"""

ROOTS = r"""
SHELL=/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
* * * * * solo -- hold.sh plain; echo $? >>/lab/plain
* * * * * solo -- hold.sh plain; echo $? >>/lab/plain
* * * * * solo -q -E 0 -- hold.sh quiet; echo $? >>/lab/quiet
* * * * * solo -q -E 0 -- hold.sh quiet; echo $? >>/lab/quiet
* * * * * solo -q -E 0 --loud-after 2 -- hold.sh loud; echo $? >>/lab/loud
* * * * * solo -q -E 0 --loud-after 2 -- hold.sh loud; echo $? >>/lab/loud
* * * * * solo -q -E 0 --loud-after 2 -- hold.sh loud; echo $? >>/lab/loud
* * * * * solo -q -E 0 --loud-after 2 -- hold.sh loud; echo $? >>/lab/loud
* * * * * solo -q -E 0 --loud-after 12 --capture failed -- hold.sh captured; echo $? >>/lab/captured
* * * * * solo -q -E 0 --loud-after 12 --capture failed -- hold.sh captured; echo $? >>/lab/captured
* * * * * solo -n fine -q -E 0 --loud-after 12 --capture failed -- sh -c 'echo silent; echo silent >&2'; echo $? >/lab/fine
* * * * * solo -n broken -q -E 0 --loud-after 12 --capture failed -- sh -c 'echo half; echo lost >&2; exit 3'
* * * * * solo -n percent -- sh -c 'cat; date +year:\%Y' %first line%second line
* * * * * /usr/bin/perl /lab/probe.pl /lab/plain.facts
* * * * * solo -n facts -- /usr/bin/perl /lab/probe.pl /lab/guarded.facts
* * * * * solo -n bad --notify 'until grep -qs failing /lab/mails/*; do sleep 0.1; done; echo "$SOLO_MESSAGE" >/lab/note' -- sh -c 'echo failing; exit 3'
"""

ALICES = """
PATH=/usr/local/bin:/usr/bin:/bin
* * * * * solo -- hold.sh shared
"""

SYSTEMS = """
PATH=/usr/local/bin:/usr/bin:/bin
* * * * * alice solo -- hold.sh shared
* * * * * root solo -- hold.sh shared
"""

BARE = """
* * * * * root /usr/local/bin/solo -n bare -- /usr/bin/printenv PATH
* * * * * root solo -n bare -- true
* * * * * root touch /lab/end
"""

LINE = "* * * * * root touch /lab/table.NAME\n"
# Files of /etc/cron.d: the text, and the mode, owner or change of each that differ.
TABLES = {
    "good-1_A": (LINE, 0o644),
    "executable": (LINE, 0o755),
    "private": (LINE, 0o400),
    "names": ("0-59/1 * 1-31 jan-dec Sun-sat root touch /lab/table.NAME\n", 0o644),
    "empty-range": ("5-1 * * * * root true\n" + LINE, 0o644),
    "last-comment": (LINE + "# no newline is needed at the end of a comment", 0o644),
    "dot.cron": (LINE, 0o644),
    "plus+": (LINE, 0o644),
    "group-writable": (LINE, 0o664),
    "others-writable": (LINE, 0o646),
    "of-alice": (LINE, 0o644),
    "hard-link": (LINE, 0o644),
    "link": (LINE, 0o644),
    "link-to-alices": (LINE, 0o644),
    "no-newline": (LINE.rstrip(), 0o644),
    "no-user": (LINE + "@daily nobody-here true\n", 0o644),
    "minute": (LINE + "61 * * * * root true\n", 0o644),
    "month": (LINE + "* * * 13 * root true\n", 0o644),
    "step": (LINE + "5/10 * * * * root true\n", 0o644),
    "nickname": (LINE + "@every_minute root true\n", 0o644),
    "jenkins": (LINE + "H * * * * root true\n", 0o644),
    "empty-variable": ("MAILTO=\n" + LINE, 0o644),
    "quoted-variable": ('MAILTO=""\n' + LINE, 0o644),
    "no-command": (LINE + "5 * * * * root\n", 0o644),
    "six-fields": (LINE + "5 * * * * * root true\n", 0o644),
    "text": (LINE + "run the backup at five\n", 0o644),
    "long": (LINE + f"* * * * * root true {'x' * 1100}\n", 0o644),
    "nul": (LINE + "# \0\n", 0o644),
}

CHANGE_TABLES = """
cd /etc/cron.d && chown alice of-alice && ln hard-link /etc/hard-link && mv link link-to-alices /etc &&
ln -s /etc/link /etc/link-to-alices . && chown alice /etc/link-to-alices
"""
HOLDERS = 6  # plain, quiet, loud, captured, shared of alice, shared of root


LAYER = """
mount -t tmpfs tmpfs "$LAB/layer" && mkdir "$LAB/layer/upper" "$LAB/layer/work" "$LAB/layer/root" && cd "$LAB/layer" &&
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root && mkdir -p root/lab root/home &&
mount --bind "$LAB" root/lab && mount -t proc proc root/proc && mount -t tmpfs tmpfs root/dev &&
for node in null zero full random urandom tty; do touch root/dev/$node && mount --bind /dev/$node root/dev/$node || exit; done &&
mount -t tmpfs tmpfs root/run && mount -t tmpfs tmpfs root/home && mkdir root/run/lock &&
exec chroot root sleep infinity
"""


class Minute(Inside):
    """This root below a temporary layer, in new namespaces and with an own /dev, after cron ran
    each line once.
    """

    def start(self, *words):
        """Start a command inside."""
        null = subprocess.DEVNULL
        return subprocess.Popen(
            self.enter(*words), env=ENVIRONMENT, stdin=null, stdout=null, stderr=null
        )

    def write(self, path: str, text: str, mode: int = 0o755):
        file = Path(f"/proc/{self.leader}/root/{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def read_mails(self):
        """Return [(the command in the subject, the lines of the body)]."""
        mails = [
            email.message_from_string(path.read_text())
            for path in (self.lab / "mails").glob("[!.]*")
        ]
        return [
            (mail["Subject"].partition("> ")[2], mail.get_payload().splitlines()) for mail in mails
        ]

    def find_mails(self, word):
        return [lines for command, lines in self.read_mails() if word in command]

    def read_ran(self):
        """Return [(job, user, pid, name)] of the commands that run."""
        return [line.split(":") for line in (self.lab / "ran").read_text().splitlines()]

    def count_jobs(self):
        """Count the jobs that run, of a cron that has ended: each has a process of cron, which
        sends its mail.
        """
        running = [pid for pid in find_children(self.leader) if read_state(pid) != "Z"]
        return sum(Path(f"/proc/{pid}/comm").read_text() == "cron\n" for pid in running)

    def find_holder(self, job, user):
        """Return (pid of the command, name) of the only one that runs."""
        [(pid, name)] = [(pid, name) for *ran, pid, name in self.read_ran() if ran == [job, user]]
        return pid, name


@pytest.fixture(scope="module")
def minute(tmp_path_factory):
    lab = tmp_path_factory.mktemp("cron")
    lab.chmod(0o777)
    (lab / "mails").mkdir()
    (lab / "mails").chmod(0o1777)
    (lab / "ran").touch()
    (lab / "ran").chmod(0o666)
    (lab / "layer").mkdir()
    put_solo(lab)
    shutil.copy(TESTS / "homes/probe.pl", lab)
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", LAYER]
    with open(lab / "errors", "w") as errors:
        streams = {"stdin": subprocess.DEVNULL, "stdout": errors, "stderr": errors}
        outside = subprocess.Popen(isolated, env={**os.environ, "LAB": str(lab)}, **streams)
    try:
        until(lambda: find_leader(outside.pid, "sleep") or outside.poll() is not None)
        if outside.poll() is not None:
            pytest.skip(
                f"cannot mount a layer over this root: {(lab / 'errors').read_text()[-200:]}"
            )
        minute = Minute(find_leader(outside.pid, "sleep"), lab)
        set_up(minute)
        with minute.start("cron", "-f") as cron:
            until((lab / "end").exists, patience=2 * PATIENCE)
            [daemon] = find_children(cron.pid)
            until(lambda: read_state(daemon) == "S")  # it has started the jobs of this minute
            os.kill(daemon, signal.SIGTERM)  # before its next minute; the jobs keep running
        until(lambda: minute.count_jobs() <= HOLDERS and len(minute.read_ran()) == HOLDERS)
        yield minute
    finally:
        outside.kill()
        outside.wait()


def set_up(machine):
    """Install solo; create users, programs and the only tables."""
    root = f"/proc/{machine.leader}/root"
    for folder in ("/etc/cron.d", "/var/spool/cron/crontabs"):
        for table in Path(root + folder).iterdir():
            table.unlink()
    machine.write("etc/crontab", "")
    Path(f"{root}/libraries").symlink_to(find_libraries())
    shutil.copy(machine.lab / "solo", f"{root}/usr/local/bin/solo")
    machine.do("useradd", "--create-home", "--shell=/bin/sh", "--password=*", "alice")
    machine.write("usr/local/bin/hold.sh", HOLD)
    machine.write("usr/sbin/sendmail", SENDMAIL)
    machine.write("etc/cron.d/shared", SYSTEMS, 0o644)
    machine.write("etc/cron.d/bare", BARE, 0o644)
    for name, (text, mode) in TABLES.items():
        machine.write(f"etc/cron.d/{name}", text.replace("NAME", name), mode)
    machine.do("sh", "-c", CHANGE_TABLES)
    for user, table in (("root", ROOTS), ("alice", ALICES)):
        machine.write(f"lab/{user}.tab", table)
        machine.do("crontab", "-u", user, f"/lab/{user}.tab")


def test_one_of_two_equal_lines_runs_and_the_other_mails_one_line(minute):
    pid, name = minute.find_holder("plain", "root")

    [[line]] = minute.find_mails("plain")

    assert line.startswith(f"solo: {name}: busy: held for ") and line.endswith("(hold.sh plain)")
    assert name.startswith("hold.sh-") and (minute.lab / "plain").read_text() == "75\n"


def test_quiet_skip_mails_nothing_and_succeeds(minute):
    minute.find_holder("quiet", "root")

    assert minute.find_mails("quiet") == [] and (minute.lab / "quiet").read_text() == "0\n"


def test_loud_after_mails_and_fails_the_next_skip(minute):
    minute.find_holder("loud", "root")

    mails = minute.find_mails("hold.sh loud")

    # Three skip at the same time: the first two may find the others, which were faster, in the
    # journal, and be loud too. Each says how many were before it.
    said = [re.search(r"(?:, (\d) skips? since)?$", text)[1] for [text] in mails]
    assert "2" in said and len(said) == len(set(said))
    assert sorted((minute.lab / "loud").read_text().split()) == (
        ["0"] * (3 - len(mails)) + ["75"] * len(mails)
    )


def test_captured_output_is_mailed_of_a_failure_only(minute):
    minute.find_holder("captured", "root")

    [mail] = minute.find_mails("broken")

    assert re.fullmatch(r"solo: broken: exit 3 after \S+, output:", mail[0])
    assert mail[1:] == ["half", "lost"]
    assert minute.find_mails("captured") == [] and (minute.lab / "captured").read_text() == "0\n"
    assert minute.find_mails("fine") == [] and (minute.lab / "fine").read_text() == "0\n"


def test_text_after_a_percent_sign_is_stdin_and_an_escaped_one_reaches_the_command(minute):
    [lines] = minute.find_mails("percent")

    assert lines[:2] == ["first line", "second line"] and lines[2].startswith("year:2")


def test_cron_neither_waits_for_a_notification_nor_ends_it(minute):
    """It waits for the mail."""
    [lines] = minute.find_mails("failing")
    until(lambda: (minute.lab / "note").exists() and (minute.lab / "note").read_text())

    assert lines == ["failing"] and "ended with exit status 3" in (minute.lab / "note").read_text()


def test_default_path_of_cron_lacks_usr_local_bin(minute):
    mails = {
        command.partition(" ")[0]: output
        for command, output in minute.read_mails()
        if "bare" in command
    }

    assert mails["/usr/local/bin/solo"] == ["/usr/bin:/bin"] and "not found" in mails["solo"][0]


def test_crontabs_of_user_and_system_share_the_names_of_a_uid(minute):
    pid, name = minute.find_holder("shared", "alice")
    roots = minute.find_holder("shared", "root")

    [[mail]] = minute.find_mails("shared")

    assert roots == (roots[0], name) and roots[0] != pid
    assert (
        mail.startswith(f"solo: {name}: busy: held for ")
        and f"by pid {find_parent(minute, pid)} (" in mail
    )


def test_command_inherits_the_same_as_without_solo(minute):
    paths = [minute.lab / f"{key}.facts" for key in ("plain", "guarded")]
    until(lambda: all(path.exists() for path in paths))

    plain, guarded = (read_facts(path.read_text(), path.stem == "guarded") for path in paths)

    assert guarded == plain


ELSEWHERE = "env HOME=/tmp XDG_RUNTIME_DIR=/tmp/run XDG_STATE_HOME=/tmp/state TMPDIR=/var/tmp"
WAYS = {
    "su": ["su", "-", "alice", "-c", "solo -- hold.sh shared"],
    "su-elsewhere": [
        "su",
        "alice",
        "-c",
        f"{ELSEWHERE} solo -- /usr/local/bin/../bin/hold.sh shared",
    ],
    "sudo": ["sudo", "-u", "alice", "solo", "--", "hold.sh", "shared"],
}


@pytest.mark.parametrize("way", WAYS)
def test_su_and_sudo_find_the_name_held_by_cron(minute, way):
    tool = WAYS[way][0]
    if minute.run("which", tool).returncode:
        pytest.skip(f"needs {tool}: make test-deps")
    pid, _ = minute.find_holder("shared", "alice")

    result = minute.run(*WAYS[way])

    assert result.returncode == 75 and result.stderr.count("\n") == 1, result.stderr
    assert re.match(r"solo: hold\.sh-[0-9a-f]{8}: busy: held for ", result.stderr)
    assert f"by pid {find_parent(minute, pid)} (" in result.stderr


def find_parent(machine, pid):
    return machine.do("cut", "-d ", "-f4", f"/proc/{pid}/stat")


def test_doctor_finds_each_table_that_cron_ignores(minute):
    """And blames no other one."""
    ran = {path.name.partition(".")[2] for path in minute.lab.glob("table.*")}
    rows = json.loads(minute.run("solo", "doctor", "--crontab", "--json").stdout)

    found = {Path(row["file"]).name for row in rows if row["state"] == "fails"} & {*TABLES}
    assert found == {*TABLES} - ran and len(ran) > 6
