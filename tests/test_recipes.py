"""Every code block of README and manuals is run: its programs are small scripts that log, its options say what must happen.

A block of an unknown kind fails. test_ci.py runs the blocks for CI runners, test_containers.py those that need a real runtime, and
test_prometheus.py that for node_exporter.
"""

import http.server
import json
import os
import queue
import re
import shlex
import shutil
import signal
import sqlite3
import string
import subprocess
import sys
import threading

import pytest
from conftest import PATIENCE, ROOT, need_tools, until
from containers import Image, find_first
from machine import ETCD, count_most_at_once, finish
from pages import Block, read_blocks

from solo.argv import parse
from solo.engines.targets import read_configuration
from solo.journal_files import ENDED, SKIPPED
from solo.text import syslog

pytestmark = pytest.mark.tool("flock")

BLOCKS = read_blocks()
CI = ("github", "later steps", "gitlab", "component", "jenkins", "makefile")
RUNTIME = ("rights",)
EXPORTER = ("user's metrics",)
# Not run here: .ci/run and test_install.py install; the tests run small parts of the long ones.
RUN_ELSEWHERE = [
    "make install && solo -- date",
    "make quick",
    "make test",
    "make test-full",
    "make test-deps",
    "make test-all",
    "make torture",
    "make fuzz",
    "make coverage",
    "make lab",
    "make bench",
]


# --- command lines ---------------------------------------------------------------------------------------------------


def check_guard(machine, line, environment=None):
    """Verify that the line runs as many jobs at once as its options allow, and treats one more as they say."""
    options, subcommand, _ = parse(shlex.split(line)[1:])
    if subcommand:
        return check_subcommand(machine, line, environment)
    together = 2 if "shared" in options else options.get("slots", 1) // options.get("take", 1)
    running = []
    for number in range(1, together + 1):
        running.append(machine.type(line, environment))
        machine.wait_for_starts(number)
    for path in options.get("flock", ()):
        assert subprocess.run(["flock", "-n", machine.replace_places(path), "true"]).returncode == 1

    if "replace" in options:
        running.append(machine.type(line, environment))
        until(lambda: machine.count("start") == 2)
        assert finish(running.pop(0))[0] in (-15, 128 + 15)
        assert [row["state"] for row in machine.list()] == ["held"]
    elif "shared" not in options:
        running += (check_queue if "wait" in options else check_skip)(machine, line, options, environment)
    machine.release()

    assert [finish(process)[0] for process in running] == [0] * len(running)
    assert "replace" in options or count_most_at_once(machine.read_log()) == together
    if re.search(r"\bDB=", line):
        assert {event.split(":")[2] for event in machine.read_log()} == {f"test{slot}" for slot in range(together)}
    if re.search(r"\bCUDA_VISIBLE_DEVICES=", line):
        assert {event.split(":")[2] for event in machine.read_log()} == {str(slot) for slot in range(together)}


def check_skip(machine, line, options, environment):
    """Verify the status and message of further contenders, which are skipped. Return the waiters: none."""
    status = options.get("busy_exit", 0 if "once_per" in options else 75)
    messages = 0 if "quiet" in options or "once_per" in options else 1
    limit = options.get("loud_after")
    for _ in range(limit or 1):
        found = finish(machine.type(line, environment))
        assert (found[0], found[2].count("\n")) == (status, messages), found
    if limit:
        found = finish(machine.type(line, environment))
        assert (found[0], found[2].count("\n")) == (75, 1), found
    return []


def check_queue(machine, line, options, environment):
    """Verify that further contenders wait, up to --max-waiting. Return the waiters."""
    waiting = [machine.start_waiter(line, environment)]
    if "latest" in options:
        newest = machine.type(line, environment)
        assert finish(waiting.pop())[0] == 75
        waiting.append(newest)
    if "max_waiting" in options:
        waiting += [machine.start_waiter(line, environment) for _ in range(1, options["max_waiting"])]
        assert finish(machine.type(line, environment))[0] == 75
    return waiting


def check_subcommand(machine, line, environment=None):
    """Verify what a subcommand does while a backup runs."""
    holder = machine.type("solo -n backup -- backup.sh")
    machine.wait_for_starts(1)
    words = shlex.split(line)
    word = words[1]
    process = machine.type(line, environment)
    if word == "wait":
        until(lambda: open(f"/proc/{process.pid}/task/{process.pid}/children").read())
        assert machine.count("start:reboot") == 0
        machine.release()
    status, out, err = finish(process)

    assert status == 0 or word == "doctor", err
    if word == "wait":
        assert machine.read_log()[1:3] == ["end:backup.sh:", "start:reboot:"]
    elif word == "stop":
        assert finish(holder)[0] in (-15, 128 + 15)
    elif word == "metrics":
        assert 'solo_held{name="backup"' in (machine.path / "solo.prom").read_text()
    elif word == "doctor":
        assert status in (0, 1) and ("command" if "crontab" in shlex.split(line)[-1] else str(machine.directory)) in out
    else:
        assert ("backup" in out) == (word in ("list", "show", "history") and "--via" not in words)


def check_beside(machine, line):
    """Verify that a line of another tool and the recipe before it exclude each other."""
    tool = shlex.split(line)[0]
    need_tools(tool)
    recipe = f"solo --{'flock' if tool == 'flock' else 'fcntl'} /var/lock/backup -- backup.sh"
    holder = machine.type(recipe)
    machine.wait_for_starts(1)
    assert finish(machine.type(line))[0] == (1 if tool == "flock" else 75)
    machine.release()
    assert finish(holder)[0] == 0

    machine.hold_all()
    holder = machine.type(line)
    machine.wait_for_starts(2)
    assert finish(machine.type(recipe))[0] == 75
    machine.release()
    assert finish(holder)[0] == 0


def check_crontab(machine, line):
    """Verify that the line adds a line to the user's crontab and keeps the others."""
    need_tools("unshare", "crontab")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    line = machine.replace_places(line)
    script = f"mount -t tmpfs tmpfs /var/spool/cron/crontabs && {line} && {line} && crontab -l"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], env=machine.environment, capture_output=True, text=True
    )
    variables, commands = read_crontab("".join(row for row in done.stdout.splitlines(True) if row[:1] != "#"))
    assert len(commands) == 2 and not variables, done.stderr
    check_guard(machine, commands[1], make_cron_environment(machine, "/usr/bin:/bin"))


def check_hold(machine, script):
    """Verify that the script holds its names while its shell lives, or for a time, unless it releases them."""
    wait = (
        f"\necho start:held:$CUDA_VISIBLE_DEVICES >>{machine.path}/log; exec 9<{machine.path}/gate; flock -s 9; exit 0"
    )
    process = machine.type(script + wait)
    machine.wait_for_starts(1)
    rows = machine.list()
    if "solo release" in script:
        assert rows == []
    else:
        keeper = os.getpid() if "$PPID" in script else process.pid if "--pid" in script else rows[0]["child"]
        assert {(row["state"], row["launcher"], row["child"]) for row in rows} == {("held", None, keeper)}
        assert ("start:held:0" in machine.read_log()) == ("CUDA" in script)
    machine.release()
    assert finish(process)[0] == 0
    for row in machine.list():
        assert row["child"] != process.pid
        assert finish(machine.type(f"solo release {row['name']}"))[0] == 0


def run_hold(new, block):
    check_hold(new(), block.text)
    if block.text.startswith("#!"):
        run_script(new, block)


SHELLS = ("sh", "dash", "bash", "ksh", "zsh", "busybox sh")


def run_block(new, block):
    """Verify that the block excludes itself while a program that it has started lives, though its shell was killed."""
    program = re.search(r"^  (\w+\.sh)$", block.text, re.M)[1]
    name = re.search(r"(\w+) \|\| exit", block.text)[1]
    for shell in [shell for shell in (*SHELLS, "mksh") if shutil.which(shell.split()[0])]:
        machine = new()
        (machine.bin / "night.sh").write_text(re.sub("9>>(.*)", f"9>>{machine.path}/opened", block.text))
        holder = machine.type(f"exec {shell} night.sh")
        machine.wait_for_starts(1)
        [row] = machine.list()
        for pid in {holder.pid, row["child"]}:
            os.kill(pid, signal.SIGKILL)
        holder.wait(PATIENCE)

        assert (
            finish(machine.type(f"{shell} night.sh" if "wait" not in block.text else f"solo -n {name} true"))[0] == 75
        )
        assert machine.count(f"start:{program}") == 1
        machine.release()
        assert finish(machine.type(f"{shell} night.sh"))[0] == 0, shell


CHECKS = {"flock": check_beside, "lckdo": check_beside, "solo=$(command": check_crontab}


def run_shell(new, block):
    for line in block.lines:
        if line.startswith("solo hold"):
            check_hold(new(), line)
        elif line not in RUN_ELSEWHERE:
            CHECKS.get(line.split()[0], check_guard)(new(), line)


# --- scripts -------------------------------------------------------------------------------------------------------------


def write_script(machine, block):
    """Write the script, which also prints its arguments and ends with status 7, to a file."""
    text = block.text if "backup.sh" in block.text else f"{block.text}backup.sh\n"
    (machine.bin / "night.sh").write_text(text + "printf '<%s>' \"$@\"; exit 7\n")
    (machine.bin / "night.sh").chmod(0o755)


def run_script(new, block):
    """Verify that the script, run in each way, excludes itself, and gets its arguments and status.

    A script that only its first line guards runs without a guard if a shell reads it.
    """
    shells = [f"{shell} night.sh" for shell in SHELLS if shutil.which(shell.split()[0])]
    by_kernel = ["./night.sh", "PATH=.:$PATH night.sh", "solo -n other -- ./night.sh"]
    unguarded = shells if block.text.startswith("#!/usr/bin/env") else []
    for line in by_kernel if unguarded else by_kernel + shells:
        machine = new()
        write_script(machine, block)
        holder = machine.type(f"{line} a 'b  c' ''")
        machine.wait_for_starts(1)
        for other in (*by_kernel[:2], *(() if unguarded else shells)):
            status, out, err = finish(machine.type(other))
            assert (status, out, err.count("\n")) == (75, "", 1), (line, other, err)
        assert machine.count("start") == 1
        if unguarded:
            machine.type(unguarded[0])
            machine.wait_for_starts(2)
        machine.release()
        assert finish(holder) == (7, "<a><b  c><>", ""), line


GUARDED = next(block for block in BLOCKS if "GUARD=" in block.text)


def test_guard_line_ignores_a_variable_that_was_only_inherited(new):
    """The variable of another run, of another name with the same parent, and of the shell's own parent's parent."""
    machine = new()
    write_script(machine, GUARDED)
    holder = machine.type("./night.sh")
    machine.wait_for_starts(1)

    for line in (
        'GUARD="nightly 1" ./night.sh',
        'GUARD="other $$" exec ./night.sh',
        'GUARD="nightly $PPID" ./night.sh',
    ):
        assert finish(machine.type(line))[0] == 75
    machine.release()
    assert finish(holder)[0] == 7


def test_guard_line_below_its_own_name_is_refused_once(new):
    machine = new()
    write_script(machine, GUARDED)

    status, _, err = finish(machine.type("solo -n nightly -- ./night.sh"))

    assert (status, err.count("\n"), machine.count("start")) == (125, 1, 0)
    assert "an ancestor of this process" in err


def test_guard_line_does_not_loop_when_the_launcher_is_killed(new):
    """The launcher is killed before the second shell reads the line: the shell finds its own hold."""
    machine = new()
    (machine.bin / "night.sh").write_text(GUARDED.text.replace("[ ", "kill -KILL $PPID; [ ", 1))

    process = machine.type("exec 3>&1; GUARD=x solo -n nightly -- sh night.sh; echo $?")

    out, err = finish(process)[1:]
    assert (out, machine.count("start")) == ("137\n", 0), err


class Inbox:
    """Where the notifications and pings of recipes arrive: a web server, and a stand-in for mail(1) that posts to it."""

    def __init__(self, machine):
        self.received = queue.Queue()
        inbox = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                inbox.received.put((self.path, body))
                self.send_response(200)
                self.end_headers()

            def do_GET(self):
                inbox.received.put((self.path, ""))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"OK")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        mail = machine.bin / "mail"
        mail.write_text(f'#!/bin/sh\n(echo "$1 $2 $3"; cat) | curl -fsS --data-binary @- {self.url}/mail\n')
        mail.chmod(0o755)

    def replace_hosts(self, line):
        return re.sub(r"https://[a-z]+\.example\.com", self.url, line)

    def get(self):
        return self.received.get(timeout=PATIENCE)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def run_notify(new, block):
    """Verify that a bad end is sent, and of the skips those that the options select; a success is not sent."""
    need_tools("curl", "jq")
    [command] = read_crontab(block.text)[1] if re.match(r"[*\d]", block.text) else block.lines
    *_, job = re.search(r" -- (\./)?([\w.]+)", command).groups()
    options = parse(shlex.split(command)[1:])[0]
    machine = new()
    program = (machine.bin / job).read_text()
    inbox = Inbox(machine)
    line = inbox.replace_hosts(command)
    environment = make_cron_environment(machine, machine.environment["PATH"])
    for text, status in (("exit 0", 0), ("exit 7", 7)):
        (machine.bin / job).write_text(f"#!/bin/sh\n{text}\n")
        assert finish(machine.type(line, environment))[0] == status
    sent = [inbox.get()]

    (machine.bin / job).write_text(program)
    holder = machine.type(line, environment)
    machine.wait_for_starts(1)
    for _ in range(options.get("loud_after", 0) + 1):
        finish(machine.type(line, environment))
    if "loud_after" in options or "quiet" not in options:
        sent.append(inbox.get())
        assert "busy" in sent[1][1]
    machine.release()
    assert finish(holder)[0] == 0
    inbox.close()
    assert inbox.received.empty() and "ended with exit status 7 after 0s" in sent[0][1]
    for (path, body), status, outcome in zip(sent, (7, 75), ("failed", "skipped")):
        if path == "/hook":
            assert list(json.loads(body)) == ["text"]
        elif path == "/mail":
            assert body.startswith(f"-s backup: {outcome} ops@example.com\n")
        else:
            assert path == f"/sync/{status}"


def run_ping(new, block):
    """Verify that each success is sent, but no failure and no skip, and that cron has nothing to mail."""
    need_tools("curl")
    [command] = read_crontab(block.text)[1]
    machine = new()
    inbox = Inbox(machine)
    line = inbox.replace_hosts(command)
    environment = make_cron_environment(machine, machine.environment["PATH"])

    holder = machine.type(line, environment)
    machine.wait_for_starts(1)
    skipped = finish(machine.type(line, environment))
    machine.release()
    succeeded = finish(holder)
    (machine.bin / "sync.sh").write_text("#!/bin/sh\nexit 7\n")
    failed = finish(machine.type(line, environment))

    inbox.close()
    assert (skipped, succeeded, failed) == ((75, "", ""), (0, "", ""), (7, "", ""))
    assert inbox.get() == ("/sync", "") and inbox.received.empty()


def run_journalctl(new, block):
    """Verify that the lines name fields that --syslog sends. test_systemd.py has a journal of systemd."""
    known = {
        f"{name}={value}"
        for name, values in (
            ("SOLO_NAME", ["backup"]),
            ("PRIORITY", ["4"]),
            ("MESSAGE_ID", [syslog.MESSAGE_IDS[event] for event in (ENDED, SKIPPED)]),
        )
        for value in values
    }
    assert {word for word in block.text.split() if "=" in word} == known


def run_worktree(new, block):
    """Verify that the worktrees of a repository exclude each other, and those of another one run at the same time."""
    need_tools("git")
    [line] = block.lines
    machine = new()
    git = "git -c user.name=x -c user.email=x@example.com"
    for repository in ("one", "two"):
        make = f"git init -q {repository} && cd {repository} && {git} commit -q --allow-empty -m x && git worktree add -q ../{repository}-b && mkdir sub"
        assert finish(machine.type(make))[0] == 0
    line = line.replace("./test.sh", str(machine.bin / "test.sh"))
    running = [machine.type(f"cd {folder} && {line}") for folder in ("one/sub", "two-b")]
    machine.wait_for_starts(2)

    running += [machine.start_waiter(f"cd {folder} && {line}") for folder in ("one", "one-b", "two")]

    outside = finish(machine.type(f"cd / && {line}"))
    assert outside[0] == 125, outside
    machine.release()
    assert [finish(process)[0] for process in running] == [0] * 5
    assert count_most_at_once(machine.read_log()) == 2


# --- containers and groups -------------------------------------------------------------------------------------------


def make_image(machine):
    need_tools("unshare", "mount", "chroot")
    if os.geteuid() != 0 or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("needs root and /usr/bin/python3")
    return Image(machine, next(block.text for block in BLOCKS if block.kind == "image"))


def run_image(new, block):
    """Verify that solo as process 1 passes on signals and statuses, reaps, and that nothing outlives it."""
    machine = new()
    image = make_image(machine)
    process = image.start()
    machine.wait_for_starts(1)
    first = find_first(process)
    assert open(f"/proc/{first}/cmdline").read().split("\0")[2:-1] == [
        f"/app/bin/{image.entrypoint[0]}",
        *image.entrypoint[1:],
        *image.command,
    ]
    os.kill(first, signal.SIGTERM)
    assert finish(process)[0] == 128 + 15

    stranger = "(sh -c 'sleep 0.1; echo x' | cat &); sleep 0.3; grep -l '^State:.Z' /proc/[0-9]*/status; exit 8"
    assert finish(image.start(*image.entrypoint, "sh", "-c", stranger)) == (8, "x\n", "")
    assert finish(image.start(*image.entrypoint, "sh", "-c", "kill -KILL $$"))[0] == 128 + 9
    trap = "trap 'echo term; exit 6' TERM; echo >/tmp/ready; while :; do sleep 0.05; done"
    process = image.start(*image.entrypoint, "sh", "-c", trap)
    until((image.root / "tmp/ready").exists)
    os.kill(find_first(process), signal.SIGTERM)
    assert finish(process)[:2] == (6, "term\n")


def run_docker(new, block):
    """Verify that containers and the host exclude each other, in order of arrival. Without Docker: see containers.py."""
    docker, host = block.lines
    machine = new()
    image = make_image(machine)
    inside = image.docker(docker)
    machine.wait_for_starts(1)
    running = [machine.start_waiter(host)]
    for number in (2, 3):
        running.append(image.docker(docker))
        until(lambda number=number: machine.count_waiters() == number)
    assert finish(machine.type("solo -n report true"))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true", volumes=["/run/solo:/run/solo"]))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true"))[0] == 0  # not mounted: a name of its own
    machine.release()
    assert [finish(process)[0] for process in (inside, *running)] == [0] * 4
    assert count_most_at_once(machine.read_log()) == 1 and machine.count("end") == 4


def make_group_directory(machine):
    [line] = [line for block in BLOCKS if block.kind == "group" for line in block.lines if line.startswith("install")]
    assert finish(machine.type(line.replace("staff", "4242")))[0] == 0
    machine.directory = machine.bin / "locks"
    machine.environment["SOLO_DIR"] = str(machine.directory)


def run_compose(new, block):
    """Verify that a container with any uid of the group runs, and excludes another such container and root of the host."""
    machine = new()
    image = make_image(machine)
    make_group_directory(machine)
    process = image.compose(block.text)
    machine.wait_for_starts(1)
    first = find_first(process)
    assert os.stat(f"/proc/{first}").st_uid == 1234

    volume = {"volumes": ["/srv/locks:/srv/locks"], "environment": ["SOLO_DIR=/srv/locks"]}
    assert finish(image.compose(block.text))[0] == 0  # a skip: no restart
    assert finish(image.start("solo", "-n", "report", "true", user="999:4242", **volume))[0] == 75
    assert finish(machine.type("solo --dir /srv/locks -n report true"))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true", user="1234:999", **volume))[0] == 125
    assert "no home directory" in finish(image.start("solo", "-n", "report", "true", user="1234:4242"))[2]
    machine.release()
    assert finish(process)[0] == 0
    assert finish(machine.type("solo --dir /srv/locks -n report true"))[0] == 0
    assert finish(image.start("solo", "-n", "report", "true", user="999:4242", **volume))[0] == 0


def run_group(new, block):
    """Verify that members of the group exclude each other, and that other users are refused."""
    machine = new()
    image = make_image(machine)
    _, line = block.lines
    make_group_directory(machine)
    assert machine.directory.stat().st_mode & 0o7777 == 0o2770

    def start(user, words):
        return image.start(*shlex.split(words), volumes=["/srv/locks:/srv/locks"], user=user, pid_host=True)

    line = line.replace("./release.sh", "report.sh")
    running = [start("1001:4242", line)]
    machine.wait_for_starts(1)
    running.append(start("1002:4242", line))
    until(lambda: machine.count_waiters() == 1)
    assert finish(start("1003:4242", "solo --dir /srv/locks -n release true"))[0] == 75
    assert finish(start("1003:1003", "solo --dir /srv/locks -n release true"))[0] == 125
    machine.release()
    assert [finish(process)[0] for process in running] == [0, 0]
    check_guard(new(), line.replace("--dir /srv/locks ", ""))


SHARED_COMMAND = ("solo", "-n", "report", "report.sh")
SHARED = {"volumes": ["/run/solo:/run/solo"]}


def test_kill_of_process_1_leaves_nothing_and_the_host_waits_for_it(new):
    machine = new()
    image = make_image(machine)
    process = image.start(*SHARED_COMMAND, **SHARED)
    machine.wait_for_starts(1)
    waiter = machine.start_waiter("solo -n report --wait forever report.sh")

    os.kill(find_first(process), signal.SIGKILL)

    assert finish(process)[0] != 0
    until(lambda: machine.count("start") == 2)
    machine.release()
    assert finish(waiter)[0] == 0
    assert machine.count("end") == 1  # the first was killed


def test_container_excludes_but_cannot_end_a_holder_in_another_one(new):
    """The host can."""
    machine = new()
    image = make_image(machine)
    process = image.start(*SHARED_COMMAND, **SHARED)
    machine.wait_for_starts(1)

    for words in (["stop", "report"], ["--replace", "-k", "100ms", "-n", "report", "true"]):
        status, _, err = finish(image.start("solo", *words, **SHARED))
        assert status == 125 and "seen from here" in err, err
    assert process.poll() is None
    assert finish(image.start("solo", "-n", "report", "true", **SHARED))[0] == 75
    assert finish(machine.type("solo stop report"))[0] == 0
    assert finish(process)[0] == 128 + 15


@pytest.mark.host
@pytest.mark.parametrize("where", ["container", "pid host", "host"])
def test_every_contender_waits_for_an_orphan_in_a_container(new, where):
    """A shell is process 1, so that the command outlives its launcher."""
    machine = new()
    image = make_image(machine)
    shell = "solo -n report report.sh & wait; exec sleep 1000"
    process = image.start("sh", "-c", shell, **SHARED)
    machine.wait_for_starts(1)
    [launcher] = [
        int(child)
        for child in open(f"/proc/{find_first(process)}/task/{find_first(process)}/children").read().split()
        if "solo" in open(f"/proc/{child}/cmdline").read()
    ]
    os.kill(launcher, signal.SIGKILL)
    until(lambda: machine.list()[0]["state"] == "orphaned")

    if where == "host":
        found = finish(machine.type("solo -n report true"))
    else:
        found = finish(image.start("solo", "-n", "report", "true", pid_host=where == "pid host", **SHARED))

    assert found[0] == 75, found
    os.kill(find_first(process), signal.SIGKILL)


@pytest.mark.host
@pytest.mark.parametrize("pid_host, status", [(False, 0), (True, 75)])
def test_only_a_container_that_sees_the_host_waits_for_an_orphan_there(new, pid_host, status):
    machine = new()
    image = make_image(machine)
    launcher = machine.type("exec solo -n report report.sh")
    machine.wait_for_starts(1)
    launcher.kill()
    launcher.wait()

    found = finish(image.start("solo", "-n", "report", "true", pid_host=pid_host, **SHARED))

    assert (found[0], "taking over" in found[2]) == (status, not status), found
    machine.release()


@pytest.mark.root
@pytest.mark.tool("unshare", "setpriv")
def test_root_of_a_rootless_container_excludes_the_user_who_started_it(common):
    """In a directory of that user. A directory of the host's root is refused, whatever its mode."""
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    rootless = (*user, "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*rootless, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces")
    for owner, mode, statuses in ((65534, 0o700, (75, 0)), (0, 0o1777, (125, 125))):
        base = common.directory.parent / f"of-{owner}"
        base.mkdir()
        os.chown(base, owner, owner)
        base.chmod(mode)
        words = ("--dir", base, "-n", "job", "--")
        holder = common.start(*words, "sh", "-c", "echo; read line; exit 0", prefix=user)
        holder.stdout.readline()

        busy = common.run(*words, "true", prefix=rootless).returncode
        holder.communicate(b"\n")

        assert (busy, common.run(*words, "true", prefix=rootless).returncode) == statuses


# --- cron ------------------------------------------------------------------------------------------------------------


def read_crontab(text):
    """Return (variables, commands). As in crontab(5), a line has five fields, and the first unescaped % ends its command."""
    variables, commands = {}, []
    for line in text.splitlines():
        if found := re.fullmatch(r"(\w+)=(.*)", line):
            variables[found[1]] = found[2]
            continue
        *fields, command = line.split(None, 5)
        for field, last in zip(fields, (59, 23, 31, 12, 7)):
            assert re.fullmatch(r"\*(/\d+)?|\d+", field) and all(
                int(number) <= last for number in re.findall(r"\d+", field)
            ), field
        assert not re.search(r"(?<!\\)%", command), "cron would cut it here"
        commands.append(command.replace("\\%", "%"))
    return variables, commands


def run_crontab(new, block):
    variables, commands = read_crontab("\n".join(block.lines))
    assert commands
    for command in commands:
        machine = new()
        path = machine.replace_places(variables.get("PATH", "/usr/local/bin:/usr/bin:/bin"))
        check_guard(machine, command, make_cron_environment(machine, path))


def make_cron_environment(machine, path):
    return {"SHELL": "/bin/sh", "HOME": "/root", "LOGNAME": "root", "PATH": path, "SOLO_DIR": str(machine.directory)}


def test_crontab_of_the_manual_sets_a_path_that_finds_solo(new):
    variables, _ = read_crontab(
        next(block.text for block in BLOCKS if block.kind == "crontab" and "PATH=" in block.text)
    )

    assert variables["PATH"].split(":") == ["/usr/local/bin", "/usr/bin", "/bin"]
    if not shutil.which("solo", path="/usr/bin:/bin"):
        assert finish(new().type("solo -- backup.sh", {"PATH": "/usr/bin:/bin"}))[0] == 127


# --- units, tables, Python -------------------------------------------------------------------------------------------


def run_unit(new, block):
    machine = new()
    if shutil.which("systemd-analyze"):
        unit = machine.path / "recipe.service"
        for change, found in (("", 0), ("Nonsense=1\n", 1)):
            unit.write_text(machine.replace_places(block.text) + change)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
            assert done.stderr.count("recipe.service:") == found, done.stderr
    commands = dict(re.findall(r"^(Exec\w+)=(.*)$", block.text, re.M))
    check_guard(machine, commands["ExecStart"])
    if condition := commands.get("ExecCondition"):
        machine = new()
        assert finish(machine.type(condition))[0] == 0
        machine.type("solo -n backup -- backup.sh")
        machine.wait_for_starts(1)
        assert finish(machine.type(condition))[0] == 75  # 1 to 254: not met, and no failure


def run_table(new, block):
    """Verify that the line of solo does the same as that of the other tool: skip or wait, shared or not, and the status."""
    for line in block.lines:
        other, own = re.split(r" {3,}", line)
        if shutil.which(other.split()[0]):
            check_other_tool(new(), other, parse(shlex.split(own)[1:])[0])
        check_guard(new(), own)


def check_other_tool(machine, line, options):
    """Verify that a line of another tool does what these options of solo say."""
    together = "shared" in options or "slots" in options
    first = machine.type(line)
    machine.wait_for_starts(1)
    second = machine.type(line)
    if together:
        machine.wait_for_starts(2)
    elif "wait" not in options:
        assert (finish(second)[0] == 0) == ("busy_exit" in options), line
        assert machine.count("start") == 1
    machine.release()
    assert finish(first)[0] == 0
    assert second.wait(PATIENCE) == 0 or "wait" not in options
    assert count_most_at_once(machine.read_log()) == 1 + together, line


def run_python(new, block):
    parts = [block]
    if block.page == "README.md":  # one program, in parts
        parts = [other for other in BLOCKS if (other.page, other.kind) == (block.page, block.kind)]
    if parts[0] is not block:
        return
    text = "".join(part.text for part in parts)
    machine = new()
    machine.release()
    environment = {**machine.environment, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-W", "error", "-c", text]
    guard = [machine.script, "-n", "fenced", "--"] if "SOLO_TOKEN" in text else []

    def run(*prefix, **variables):
        return subprocess.run(
            [*prefix, *words], env={**environment, **variables}, capture_output=True, text=True, cwd=machine.bin
        )

    done = run(*guard)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    if guard:
        assert run(*guard).returncode == 0
        late = run(SOLO_TOKEN="1")
        assert (late.returncode, late.stderr) == (1, "someone with a newer token was here\n")


def run_install(new, block):
    """test_packages.py runs the package's lines in a clean root, test_install.py and .ci/run the other line."""


def run_sql(new, block):
    """Verify that a write with an older token changes nothing."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE report (id, body, token)")
    database.execute("INSERT INTO report VALUES (7, NULL, 0)")

    changed = [
        database.execute(string.Template(block.text).substitute(SOLO_TOKEN=token)).rowcount for token in (3, 2, 3)
    ]

    assert changed == [1, 0, 1]


def run_toml(new, block):
    path = new().bin / "solo.toml"
    path.write_text(block.text)
    path.chmod(0o600)

    [target] = read_configuration(str(path)).values()

    assert target.password and target.password not in target.shown


RUN = {
    "hold": run_hold,
    "block": run_block,
    "shell": run_shell,
    "script": run_script,
    "notify": run_notify,
    "ping": run_ping,
    "journalctl": run_journalctl,
    "worktree": run_worktree,
    "image": run_image,
    "docker": run_docker,
    "compose": run_compose,
    "group": run_group,
    "crontab": run_crontab,
    "unit": run_unit,
    "table": run_table,
    "python": run_python,
    "sql": run_sql,
    "debian": run_install,
    "install": run_install,
    "toml": run_toml,
}


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.full] * (ETCD in block.text)) for block in BLOCKS],
    ids=lambda block: block.id,
)
def test_code_block_does_what_its_page_says(new, block):
    assert block.kind in {*RUN, *CI, *RUNTIME, *EXPORTER}, f"no function runs {block.text!r}"
    if block.kind in RUN:
        RUN[block.kind](new, block)


def find_line(words):
    """Return the words; fails if they are no line of the manual."""
    return next(line for block in BLOCKS if block.page == "man/solo.7" for line in block.lines if line == words)


def test_no_deploy_runs_during_the_migration(new):
    machine = new()
    migration = machine.type(find_line("solo -n deploy --wait forever --note 'migration until noon' -- ./migrate.sh"))
    machine.wait_for_starts(1)

    deploy = machine.start_waiter(find_line("solo -n deploy/prod --wait 10m -- ./deploy.sh prod"))

    machine.release()
    assert [finish(process)[0] for process in (migration, deploy)] == [0, 0]
    assert machine.read_log() == ["start:migrate.sh:", "end:migrate.sh:", "start:deploy.sh:", "end:deploy.sh:"]


def test_load_runs_alone_and_no_later_report_overtakes_it(new):
    machine = new()
    report, load = (
        find_line("solo -n data --shared --wait 1h -- report.sh"),
        find_line("solo -n data --wait 1h -- load.sh"),
    )
    first = machine.type(report)
    machine.wait_for_starts(1)

    others = [machine.start_waiter(load), machine.start_waiter(report)]

    machine.release()
    assert [finish(process)[0] for process in (first, *others)] == [0] * 3
    assert [line.split(":")[1] for line in machine.read_log()] == ["report.sh"] * 2 + ["load.sh"] * 2 + [
        "report.sh"
    ] * 2


def test_block_of_an_unknown_kind_is_detected():
    assert {Block("page", 1, text).kind for text in ("frobnicate --now\n", "$ solo list\n", "")} == {"unknown"}
    assert {block.kind for block in BLOCKS} == {*RUN, *CI, *RUNTIME, *EXPORTER}


@pytest.mark.parametrize(
    "line",
    [
        "solo -- job.sh",
        "solo --wait forever -- job.sh",
        "solo -n x --slots 2 --wait 1m -- job.sh",
        "solo -q -E 0 --loud-after 2 -- job.sh",
    ],
)
def test_launcher_without_locks_fails_the_check(new, line):
    machine = new()
    (machine.bin / "solo").unlink()
    (machine.bin / "solo").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    (machine.bin / "solo").chmod(0o755)
    machine.release()

    with pytest.raises(AssertionError):
        check_guard(machine, line)


@pytest.mark.tool("mandoc")
def test_rendered_page_shows_the_lines_that_are_run():
    page = subprocess.run(["mandoc", "-T", "utf8", ROOT / "man/solo.7"], capture_output=True, text=True).stdout
    shown = {line.strip() for line in re.sub(r".\x08", "", page).splitlines()}

    for block in BLOCKS:
        if block.page == "man/solo.7":
            assert {line.strip() for line in block.text.splitlines()} <= shown, block.id


@pytest.mark.tool("mandoc")
@pytest.mark.parametrize("page", ["solo-hold.1", "solo.3", "solo.7", "solo-engines.7"])  # solo.1: test_cli.py
def test_mandoc_finds_no_fault_in_the_manuals(page):
    result = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / "man" / page], capture_output=True, text=True
    )

    assert result.stdout == "", result.stdout
