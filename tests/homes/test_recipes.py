"""The blocks of README and the files of examples/ are run: their programs are small scripts that
log, their options say what must happen.

The manual quotes these files. test_ci.py runs those for CI runners, test_containers.py and
test_systemd.py those that need a real runtime or systemd, also of README, and test_prometheus.py
the metrics of a user.
"""

import json
import os
import queue
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest
from conftest import PATIENCE, ROOT, find_script, need_tools, until, write_program
from machine import ETCD, count_most_at_once, finish
from pages import EXAMPLES, read_cron_lines, read_example, read_jobs, read_quotes, read_readme
from stub import Stub

from solo.argv import parse
from solo.engines.targets import read_configuration

pytestmark = pytest.mark.tool("flock")

README = {
    block.id.partition(":")[2]: block for block in read_readme() if block.text[:7] != "install"
}
CRON_PATH = "/usr/local/bin:/usr/bin:/bin"
SHELLS = ("sh", "dash", "bash", "ksh", "zsh", "busybox sh")


# --- command lines--------------------------------------------------------------------------------


def check_guard(machine, line, environment=None):
    """Verify that the line runs as many jobs at once as its options allow, and treats one more as
    they say.
    """
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
        until(
            lambda: [row["state"] for row in machine.list()] == ["held"]
        )  # its waiting ticket is gone
    elif "shared" not in options:
        running += (check_queue if "wait" in options else check_skip)(
            machine, line, options, environment
        )
    machine.release()

    assert [finish(process)[0] for process in running] == [0] * len(running)
    assert "replace" in options or count_most_at_once(machine.read_log()) == together
    if re.search(r"\bDB=", line):
        assert {event.split(":")[2] for event in machine.read_log()} == {
            f"test{slot}" for slot in range(together)
        }


def check_skip(machine, line, options, environment):
    """Verify the status and message of further contenders, which are skipped. Return the waiters:
    none.
    """
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
    """Verify that further contenders wait, up to N of --wait. Return the waiters."""
    waiting = [machine.start_waiter(line, environment)]
    if "latest" in options:
        newest = machine.type(line, environment)
        assert finish(waiting.pop())[0] == 75
        waiting.append(newest)
    if "max_waiting" in options:
        waiting += [
            machine.start_waiter(line, environment) for _ in range(1, options["max_waiting"])
        ]
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
        assert (
            status in (0, 1)
            and ("command" if "crontab" in shlex.split(line)[-1] else str(machine.directory)) in out
        )
    else:
        assert ("backup" in out) == (word in ("list", "show", "history") and "--via" not in words)


def check_beside(machine, recipe, line):
    """Verify that a line of flock(1) and the recipe exclude each other."""
    for first, second, status in ((recipe, line, 1), (line, recipe, 75)):
        machine.hold_all()
        before = machine.count("start")
        holder = machine.type(first)
        machine.wait_for_starts(before + 1)
        assert finish(machine.type(second))[0] == status
        machine.release()
        assert finish(holder)[0] == 0


def check_hold(machine, typed):
    """Verify that the typed holds a name while its shell lives, or for a time."""
    wait = (
        f"\necho start:held: >>{machine.path}/log; exec 9<{machine.path}/gate; flock -s 9; exit 0"
    )
    process = machine.type(typed + wait)
    machine.wait_for_starts(1)
    [row] = machine.list()
    keeper = process.pid if "--pid" in typed else row["child"]
    assert (row["state"], row["launcher"], row["child"]) == ("held", None, keeper)
    machine.release()
    assert finish(process)[0] == 0
    for row in machine.list():
        assert row["child"] != process.pid
        assert finish(machine.type(f"solo release {row['name']}"))[0] == 0


class Inbox(Stub):
    """A web server, where the notifications of recipes arrive."""

    def __init__(self):
        super().__init__()
        self.received = queue.Queue()

    def answer(self, request, data):
        self.received.put((request.path, data.decode()))
        return 200, b""

    def replace_hosts(self, line):
        return re.sub(r"https://([a-z]+\.example|hc-ping)\.com", self.url, line)

    def get(self):
        return self.received.get(timeout=PATIENCE)


def check_notify(machine, typed, environment):
    """Verify that a failure is sent, in the form of the receiver, and a success only where the line
    asks for it. test_notify.py has the skips.
    """
    need_tools("curl", "jq")
    job = re.search(r" -- ([\w.]+)", typed)[1]
    inbox = Inbox()
    typed = inbox.replace_hosts(typed)
    received = []
    for status in (0, 7):
        text = "".join(f"echo line {number}; " for number in range(12))
        (machine.bin / job).write_text(f"#!/bin/sh\n{text}exit {status}\n")
        process = machine.type(typed, environment)
        output = finish(process)
        assert output == (status, "" if "--capture" in typed else text_of(text), ""), typed
        received += [inbox.get() for _ in range(2 if "started" in typed else bool(status))]
    if "rmdir" in typed:
        check_changes(machine, typed, inbox)

    inbox.close()
    assert inbox.received.empty()
    if "started" in typed:
        paths, bodies = zip(*received)
        assert paths == ("/UUID/start", "/UUID/0", "/UUID/start", "/UUID/7")
        assert bodies[1] == bodies[3] == text_of(text)
        return
    [(path, body)] = received
    assert "ended with exit status 7 after 0s" in body and path in ("/hook", "/run/7", "/ops")
    if path == "/hook":
        [(key, value)] = json.loads(body).items()
        assert key == "text" and value.endswith(" " + text_of(text)[len("line 0\nline 1\n") : -1])


def check_changes(machine, typed, inbox):
    """Verify that of some runs only the first failure and the recovery are sent."""
    words = shlex.split(typed)
    line = words[words.index("--notify") + 1]
    for status in ("0", "7", "7", "0", "0"):
        event = {"SOLO_STATUS": status, "SOLO_MESSAGE": status}
        subprocess.run(line, shell=True, check=True, cwd=machine.path, env={**os.environ, **event})

    assert [inbox.get()[1], inbox.get()[1]] == ["7", "0"]


def text_of(script):
    return "".join(f"{words}\n" for words in re.findall("echo (.*?);", script))


# --- README---------------------------------------------------------------------------------------


def test_readme_has_no_other_blocks():
    blocks = [
        "solo",
        "Install",
        "cron",
        "systemd",
        "CI",
        "Containers",
        "Shell",
        "Python",
        "Beyond one machine",
    ]
    assert list(README) == blocks and README["Install"].text.startswith(
        "make deb "
    )  # test_packages.py runs it


def test_first_block_skips_waits_lists_and_stops(new):
    first, second, third, listed, stop = README["solo"].lines
    machine = new()
    write_program(machine.bin / "sleep", (machine.bin / "job.sh").read_text())
    holder = machine.type(first.partition(" & ")[0])
    machine.wait_for_starts(1)

    busy = finish(machine.type(second))
    waiter = machine.start_waiter(third.replace("--wait 2s", "--wait 10m"))

    assert (busy[0], busy[2].count("\n")) == (75, 1) and "demo: busy: held for" in busy[2]
    assert finish(machine.type(third))[0] == 75
    shown = finish(machine.type(listed))[1]
    assert "sleep 60" in shown and "waiting" in shown
    assert finish(machine.type(stop))[0] == 0
    assert finish(holder)[0] in (-15, 128 + 15) and finish(waiter)[0] == 0


@pytest.mark.parametrize("typed", README["Shell"].lines)
def test_line_of_readme_does_what_it_says(new, typed):
    if typed.startswith("solo hold"):
        check_hold(new(), typed)
    else:
        check_guard(new(), typed)
    if "--flock" in typed:
        check_beside(new(), typed, "flock -n /var/lock/backup backup.sh")


@pytest.mark.parametrize("block", ["cron", "Beyond one machine"])
def test_crontab_of_readme_is_of_the_examples(block):
    examples = (read_example("crontab") + read_example("two-hosts")).splitlines()

    assert set(README[block].text.splitlines()) <= set(examples)


def test_workflow_of_readme_is_of_the_examples():
    [step] = re.findall(r".*run: .*", README["CI"].text)

    assert step in read_jobs()["deploy"].splitlines()


@pytest.mark.parametrize(
    "unit", [README["systemd"].text, read_example("systemd/backup.service.d/solo.conf")]
)
def test_unit_of_readme_and_drop_in_guard(new, unit):
    *reset, line = re.findall(r"^ExecStart=(.*)", unit, re.M)

    assert not any(reset)
    check_guard(new(), line)


def test_python_of_readme_runs(new):
    done = run_python(new(), README["Python"].text)

    assert (done.returncode, done.stderr) == (0, "") and {"alone,", "hello"} <= set(
        done.stdout.split()
    )


# --- examples-------------------------------------------------------------------------------------


def read_lines(*names) -> list:
    """Return a parameter for each command of crontabs. Those with an engine are of `make
    test-full`.
    """
    found = []
    for name in names:
        for typed in read_cron_lines(read_example(name))[1]:
            marks = [pytest.mark.full] * (ETCD in typed)
            found.append(pytest.param(typed, marks=marks, id=f"{name}-{len(found)}"))
    return found


@pytest.mark.parametrize("typed", read_lines("crontab", "two-hosts"))
def test_line_of_a_crontab_does_what_it_says(new, typed):
    assert all(
        read_cron_lines(read_example(name))[0]["PATH"] == CRON_PATH
        for name in ("crontab", "two-hosts")
    )
    machine = new()
    environment = make_cron_environment(machine, machine.replace_places(CRON_PATH))
    if "--notify" in typed:
        check_notify(machine, typed, environment)
    elif "runuser" not in typed:  # test_prometheus.py
        check_guard(machine, typed, environment)


def make_cron_environment(machine, path):
    return {
        "SHELL": "/bin/sh",
        "HOME": "/root",
        "LOGNAME": "root",
        "PATH": path,
        "SOLO_DIR": str(machine.directory),
    }


MAKEFILE = re.findall(r"^(\w+): # .*\n\texec (.*)", read_example("Makefile"), re.M)


@pytest.mark.parametrize("target", [target for target, _ in MAKEFILE])
def test_target_of_the_makefile_does_what_it_says(new, target):
    line = dict(MAKEFILE)[target].replace("$$", "$")
    check_guard(new(), line)


@pytest.mark.tool("make")
@pytest.mark.parametrize("targets", ["migrate deploy", "report load report"])
def test_targets_of_the_makefile_run_one_by_one_in_order(new, targets):
    """No deploy runs during a migration, and no later report overtakes a load, which runs alone."""
    machine, (first, *others) = new(), targets.split()
    shutil.copy(EXAMPLES / "Makefile", machine.bin)
    running = [machine.type(f"exec make {first}")]
    machine.wait_for_starts(1)

    running += [machine.start_waiter(f"exec make {target}") for target in others]

    machine.release()
    assert [finish(process)[0] for process in running] == [0] * len(running)
    events = [f"{event}:{target}.sh:" for target in targets.split() for event in ("start", "end")]
    assert machine.read_log() == events


def test_each_of_four_commands_gets_a_gpu_and_the_fifth_waits(new):
    machine = new()
    running = []
    for number in range(1, 5):
        running.append(machine.type(f"exec {EXAMPLES}/gpus.sh train.sh"))
        machine.wait_for_starts(number)

    running.append(machine.start_waiter(f"exec {EXAMPLES}/gpus.sh train.sh"))

    assert {event.split(":")[2] for event in machine.read_log()} == {"0", "1", "2", "3"}
    machine.release()
    assert [finish(process)[0] for process in running] == [0] * 5
    assert count_most_at_once(machine.read_log()) == 4


FIRST_LINE = "#!/usr/bin/env -S solo -n nightly -- bash\n"  # of solo(7)


@pytest.mark.parametrize(
    "text", [read_example("nightly.sh"), FIRST_LINE + "backup.sh --full\n"], ids=["hold", "env"]
)
def test_script_excludes_itself_and_gets_arguments_and_status(new, text):
    """However it is started; but a first line with env guards only a script that the kernel
    starts.
    """
    shells = [f"{shell} night.sh" for shell in SHELLS if shutil.which(shell.split()[0])]
    by_kernel = ["./night.sh", "PATH=.:$PATH night.sh", "solo -n other -- ./night.sh"]
    for line in by_kernel if text.startswith(FIRST_LINE) else by_kernel + shells:
        machine = new()
        write_program(machine.bin / "night.sh", text + "printf '<%s>' \"$@\"; exit 7\n")
        holder = machine.type(f"{line} a 'b  c' ''")
        machine.wait_for_starts(1)
        status, out, err = finish(machine.type("./night.sh"))
        assert (status, out, err.count("\n")) == (75, "", 1), (line, err)
        machine.release()
        assert finish(holder) == (7, "<a><b  c><>", ""), line


def test_step_excludes_itself_while_a_program_of_its_block_lives(new):
    """Also once its shell and the holder's process are killed."""
    for shell in [shell for shell in (*SHELLS, "mksh") if shutil.which(shell.split()[0])]:
        machine = new()
        (machine.bin / "step.sh").write_text(read_example("step.sh").replace("--wait 10m ", ""))
        holder = machine.type(f"exec {shell} step.sh")
        machine.wait_for_starts(1)
        [row] = machine.list()
        for pid in {holder.pid, row["child"]}:
            os.kill(pid, signal.SIGKILL)
        holder.wait(PATIENCE)

        assert finish(machine.type(f"{shell} step.sh"))[0] == 75
        assert machine.count("start") == 1
        machine.release()
        assert finish(machine.type(f"{shell} step.sh"))[0] == 0, shell


@pytest.mark.tool("git")
def test_worktrees_of_a_repository_exclude_each_other_but_not_those_of_another(new):
    machine = new()
    git = "git -c user.name=x -c user.email=x@example.com"
    for repository in ("one", "two"):
        make = f"git init -q {repository} && cd {repository} && {git} commit -q --allow-empty -m x"
        assert (
            finish(machine.type(f"{make} && git worktree add -q ../{repository}-b && mkdir sub"))[0]
            == 0
        )
    line = f"exec {EXAMPLES}/worktree.sh {machine.bin}/test.sh"
    running = [machine.type(f"cd {folder} && {line}") for folder in ("one/sub", "two-b")]
    machine.wait_for_starts(2)

    running += [
        machine.start_waiter(f"cd {folder} && {line}") for folder in ("one", "one-b", "two")
    ]

    assert finish(machine.type(f"cd / && {line}"))[0] == 125  # the name would be test/
    machine.release()
    assert [finish(process)[0] for process in running] == [0] * 5
    assert count_most_at_once(machine.read_log()) == 2


@pytest.mark.tool("git")
def test_hook_deploys_one_push_at_a_time(new):
    machine = new()
    git = "git -c user.name=x -c user.email=x@example.com -C work"
    make = (
        f"git init -q --bare repository && git init -q work && {git} commit -q --allow-empty -m x"
    )
    assert finish(machine.type(make))[0] == 0
    shutil.copy(EXAMPLES / "post-receive", machine.bin / "repository/hooks")
    shutil.copy(machine.bin / "deploy.sh", machine.bin / "repository")
    push = f"exec {git} push -q ../repository HEAD:refs/heads/"

    pushes = [machine.type(f"{push}one")]
    machine.wait_for_starts(1)
    pushes.append(machine.start_waiter(f"{push}two"))

    machine.release()
    assert [finish(process)[0] for process in pushes] == [0, 0]
    assert machine.read_log() == ["start:deploy.sh:", "end:deploy.sh:"] * 2


def read_worker():
    [line] = re.findall(r"(?m)^command=(.*)", read_example("supervisord.conf"))
    return line


@pytest.mark.tool("runsv")
def test_worker_below_runit_waits_and_ends_with_it(new):
    machine = new()
    script = f"#!/bin/sh\ncd {machine.bin} || exit\nexec {read_worker()}\n"
    for place in ("one", "two"):
        (machine.bin / place).mkdir()
        write_program(machine.bin / place / "run", script)
    first = machine.type("exec runsv one")
    machine.wait_for_starts(1)
    second = machine.start_waiter("exec runsv two")

    first.terminate()  # runsv ends its service first

    machine.wait_for_starts(2)
    assert finish(first)[0] == 0
    second.terminate()
    assert finish(second)[0] == 0 and machine.list() == []


@pytest.mark.full
def test_worker_below_supervisord_waits_and_ends_with_it(new):
    machine = new()
    words = {}
    for place in ("one", "two"):
        (machine.bin / place).write_text(
            f"[supervisord]\npidfile={machine.path}/{place}.pid\nlogfile={machine.path}/{place}.log\n"
            + read_example("supervisord.conf")
        )
        words[place] = f"exec {find_script('supervisord')} -n -c {place}"
    first = machine.type(words["one"])
    machine.wait_for_starts(1)
    second = machine.start_waiter(words["two"])

    first.terminate()

    machine.wait_for_starts(2)
    assert finish(first)[0] == 0
    second.terminate()
    assert finish(second)[0] == 0 and machine.list() == []


def run_python(machine, text):
    machine.release()
    environment = {**machine.environment, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(words, env=environment, capture_output=True, text=True, cwd=machine.bin)


def test_report_of_python_refuses_an_older_token_and_a_held_name(new):
    machine = new()
    text = read_example("report.py")
    assert [run_python(machine, text).returncode for _ in range(2)] == [0, 0]
    assert machine.count("end:backup.sh") == 2
    with sqlite3.connect(machine.bin / "report.db") as database:
        database.execute("UPDATE report SET token = token * 2")

    late = run_python(machine, text)
    holder = machine.type("exec solo -n report -- sh -c 'echo start >>../log; exec sleep 600'")
    until(lambda: machine.count("start") == 3)
    busy = run_python(machine, text.replace("wait=600", "wait=0.1"))

    holder.kill()
    assert (late.returncode, late.stderr) == (1, "a newer report is there\n")
    assert (busy.returncode, busy.stderr) == (1, f"still held by [{holder.pid}]\n")


# --- the manual-----------------------------------------------------------------------------------


def read_sources() -> list:
    """Return the lines that a page may quote: those of README and of the examples, without their
    indent.
    """
    texts = [block.text for block in README.values()]
    folders = (EXAMPLES, ROOT / "packaging/container", ROOT / "packaging/gitlab")
    texts += [
        path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()
    ]
    lines = [re.sub(r" {2,}# .*", "", line) for text in texts for line in text.splitlines()]
    return [
        re.sub(r"^(exec |- |command=)", "", line.strip()).replace("$$SOLO", "$SOLO")
        for line in lines
    ]


QUOTES = read_quotes()


@pytest.mark.parametrize("block", QUOTES, ids=lambda block: block.id)
def test_block_of_the_manual_quotes_an_example(block):
    """An example of another page is a line of README, or of a file in examples/."""
    sources = set(read_sources())
    for line in block.lines:
        assert re.sub(r"^(exec |- )", "", line.strip()) in sources, line


def test_password_of_an_engine_is_read_and_not_shown(tmp_path):
    path = tmp_path / "solo.toml"
    path.write_text(read_example("solo.toml"))
    path.chmod(0o600)

    [target] = read_configuration(str(path)).values()

    assert target.password and target.password not in target.shown


@pytest.mark.parametrize("line", ["solo -- job.sh", "solo -n x --slots 2 --wait 1m -- job.sh"])
def test_launcher_without_locks_fails_the_check(new, line):
    machine = new()
    (machine.bin / "solo").unlink()
    write_program(
        machine.bin / "solo", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    machine.release()

    with pytest.raises(AssertionError):
        check_guard(machine, line)


@pytest.mark.tool("mandoc")
@pytest.mark.parametrize(
    "page", ["solo-hold.1", "solo.3", "solo.7", "solo-engines.7"]
)  # solo.1: test_cli.py
def test_mandoc_finds_no_fault_in_the_manuals(page):
    lint = ("mandoc", "-T", "lint", "-W", "warning", ROOT / "man" / page)
    assert subprocess.run(lint, capture_output=True).stdout == b""
