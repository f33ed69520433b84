"""The blocks of README and the files of examples/ are run: their programs are small scripts that log, their options say what must happen.

The manual quotes these files. test_ci.py runs those for CI runners, test_containers.py and test_systemd.py those that need a real
runtime or systemd, and test_prometheus.py the metrics of a user.
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
import subprocess
import sys
import threading

import pytest
from conftest import PATIENCE, ROOT, need_tools, until
from containers import Image, find_first
from machine import ETCD, count_most_at_once, finish
from pages import EXAMPLES, read_cron_lines, read_example, read_jobs, read_quotes, read_readme

from solo.argv import parse
from solo.engines.targets import read_configuration

pytestmark = pytest.mark.tool("flock")

README = {block.id.partition(":")[2]: block for block in read_readme() if block.text[:7] != "install"}
CRON_PATH = "/usr/local/bin:/usr/bin:/bin"
SHELLS = ("sh", "dash", "bash", "ksh", "zsh", "busybox sh")


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


def check_beside(machine, recipe, line):
    """Verify that a line of flock(1) and the recipe exclude each other."""
    holder = machine.type(recipe)
    machine.wait_for_starts(1)
    assert finish(machine.type(line))[0] == 1
    machine.release()
    assert finish(holder)[0] == 0

    machine.hold_all()
    holder = machine.type(line)
    machine.wait_for_starts(2)
    assert finish(machine.type(recipe))[0] == 75
    machine.release()
    assert finish(holder)[0] == 0


def check_hold(machine, typed):
    """Verify that the typed holds a name while its shell lives, or for a time."""
    wait = f"\necho start:held: >>{machine.path}/log; exec 9<{machine.path}/gate; flock -s 9; exit 0"
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


def check_notify(machine, line, environment):
    """Verify that a bad end is sent, and of the skips those that the options select; a success is not sent."""
    need_tools("curl", "jq")
    job = re.search(r" -- ([\w.]+)", line)[1]
    options = parse(shlex.split(line)[1:])[0]
    program = (machine.bin / job).read_text()
    inbox = Inbox(machine)
    line = inbox.replace_hosts(line)
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
            assert body.startswith(f"-s upload: {outcome} ops@example.com\n")
        else:
            assert path == f"/run/{status}"


def check_ping(machine, line, environment):
    """Verify that each success is sent, but no failure and no skip, and that cron has nothing to mail."""
    need_tools("curl")
    inbox = Inbox(machine)
    line = inbox.replace_hosts(line)

    holder = machine.type(line, environment)
    machine.wait_for_starts(1)
    skipped = finish(machine.type(line, environment))
    machine.release()
    succeeded = finish(holder)
    (machine.bin / "worker.sh").write_text("#!/bin/sh\nexit 7\n")
    failed = finish(machine.type(line, environment))

    inbox.close()
    assert (skipped, succeeded, failed) == ((75, "", ""), (0, "", ""), (7, "", ""))
    assert inbox.get() == ("/worker", "") and inbox.received.empty()


# --- README ----------------------------------------------------------------------------------------------------------


def test_readme_has_no_other_blocks():
    blocks = ["solo", "Install", "cron", "systemd", "CI", "Containers", "Shell", "Python", "Beyond one machine"]
    assert list(README) == blocks and README["Install"].text.startswith("make deb ")  # test_packages.py runs it


def test_first_block_skips_waits_lists_and_stops(new):
    first, second, third, listed, stop = README["solo"].lines
    machine = new()
    (machine.bin / "sleep").write_text((machine.bin / "job.sh").read_text())
    (machine.bin / "sleep").chmod(0o755)
    holder = machine.type(first.partition(" & ")[0])
    machine.wait_for_starts(1)

    busy = finish(machine.type(second))
    waiter = machine.start_waiter(third.replace("--wait 2s", "--wait 10m"))

    assert (busy[0], busy[2].count("\n")) == (75, 1) and "demo: busy: held for" in busy[2]
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


def test_unit_of_readme_guards(new):
    check_guard(new(), re.search(r"^ExecStart=(.*)", README["systemd"].text, re.M)[1])


def test_python_of_readme_runs(new):
    done = run_python(new(), README["Python"].text)

    assert (done.returncode, done.stderr) == (0, "") and {"alone,", "hello"} <= set(done.stdout.split())


# --- examples --------------------------------------------------------------------------------------------------------


def read_lines(*names) -> list:
    """Return a parameter for each command of crontabs. Those with an engine are of `make test-full`."""
    found = []
    for name in names:
        for typed in read_cron_lines(read_example(name))[1]:
            marks = [pytest.mark.full] * (ETCD in typed)
            found.append(pytest.param(typed, marks=marks, id=f"{name}-{len(found)}"))
    return found


@pytest.mark.parametrize("typed", read_lines("crontab", "two-hosts"))
def test_line_of_a_crontab_does_what_it_says(new, typed):
    machine = new()
    environment = make_cron_environment(machine, machine.replace_places(CRON_PATH))
    if "--notify" in typed:
        check_notify(machine, typed, environment)
    elif "&& curl" in typed:
        check_ping(machine, typed, environment)
    elif "runuser" not in typed:  # test_prometheus.py
        check_guard(machine, typed, environment)


def make_cron_environment(machine, path):
    return {"SHELL": "/bin/sh", "HOME": "/root", "LOGNAME": "root", "PATH": path, "SOLO_DIR": str(machine.directory)}


@pytest.mark.parametrize("name", ["crontab", "two-hosts"])
def test_path_of_a_crontab_finds_solo(name):
    assert read_cron_lines(read_example(name))[0]["PATH"] == CRON_PATH


MAKEFILE = re.findall(r"^(\w+): # .*\n\texec (.*)", read_example("Makefile"), re.M)


@pytest.mark.parametrize("target", [target for target, _ in MAKEFILE])
def test_target_of_the_makefile_does_what_it_says(new, target):
    line = dict(MAKEFILE)[target].replace("$$", "$")
    check_guard(new(), line)


@pytest.mark.tool("make")
def test_no_deploy_runs_during_the_migration(new):
    machine = new()
    shutil.copy(EXAMPLES / "Makefile", machine.bin)
    migration = machine.type("exec make migrate")
    machine.wait_for_starts(1)

    deploy = machine.start_waiter("exec make deploy")

    machine.release()
    assert [finish(process)[0] for process in (migration, deploy)] == [0, 0]
    assert machine.read_log() == ["start:migrate.sh:", "end:migrate.sh:", "start:deploy.sh:", "end:deploy.sh:"]


def test_load_runs_alone_and_no_later_report_overtakes_it(new):
    machine = new()
    shutil.copy(EXAMPLES / "Makefile", machine.bin)
    first = machine.type("exec make report")
    machine.wait_for_starts(1)

    others = [machine.start_waiter("exec make load"), machine.start_waiter("exec make report")]

    machine.release()
    assert [finish(process)[0] for process in (first, *others)] == [0] * 3
    order = ["report.sh"] * 2 + ["load.sh"] * 2 + ["report.sh"] * 2
    assert [line.split(":")[1] for line in machine.read_log()] == order


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


@pytest.mark.parametrize("text", [read_example("nightly.sh"), FIRST_LINE + "backup.sh --full\n"], ids=["hold", "env"])
def test_script_excludes_itself_and_gets_arguments_and_status(new, text):
    """However it is started; but a first line with env guards only a script that the kernel starts."""
    shells = [f"{shell} night.sh" for shell in SHELLS if shutil.which(shell.split()[0])]
    by_kernel = ["./night.sh", "PATH=.:$PATH night.sh", "solo -n other -- ./night.sh"]
    for line in by_kernel if text.startswith(FIRST_LINE) else by_kernel + shells:
        machine = new()
        (machine.bin / "night.sh").write_text(text + "printf '<%s>' \"$@\"; exit 7\n")
        (machine.bin / "night.sh").chmod(0o755)
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
        text = read_example("step.sh").replace("/tmp/deploy", f"{machine.path}/opened")
        (machine.bin / "step.sh").write_text(text.replace("--wait 10m ", ""))
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
        assert finish(machine.type(f"{make} && git worktree add -q ../{repository}-b && mkdir sub"))[0] == 0
    line = f"exec {EXAMPLES}/worktree.sh {machine.bin}/test.sh"
    running = [machine.type(f"cd {folder} && {line}") for folder in ("one/sub", "two-b")]
    machine.wait_for_starts(2)

    running += [machine.start_waiter(f"cd {folder} && {line}") for folder in ("one", "one-b", "two")]

    assert finish(machine.type(f"cd / && {line}"))[0] == 125  # the name would be test/
    machine.release()
    assert [finish(process)[0] for process in running] == [0] * 5
    assert count_most_at_once(machine.read_log()) == 2


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


UNITS = sorted(path for path in EXAMPLES.glob("systemd/**/*") if path.suffix in (".service", ".timer"))


@pytest.mark.tool("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_in_a_unit(new, unit):
    """backup.service with its drop-in. test_systemd.py runs the others."""
    machine = new()
    folder = machine.path / "units"
    shutil.copytree(EXAMPLES / "systemd", folder)
    for path in (path for path in folder.rglob("*") if path.is_file()):
        text = re.sub(r"/etc/solo/%i|/usr/local/bin/\w+\.sh", str(machine.bin / "backup.sh"), path.read_text())
        path.write_text(re.sub(r"^(Exec\w+=)solo", rf"\1{machine.bin}/solo", text, flags=re.M))

    for change, faults in (("", 0), ("\n[Service]\nNonsense=1\n", 1)):
        (folder / unit.name).write_text((folder / unit.name).read_text() + change)
        words = ["systemd-analyze", "verify", "--man=no", folder / unit.name.replace("@", "@example")]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.stderr.count(f"{unit.name}:") == faults, done.stderr


def test_drop_in_guards(new):
    lines = re.findall(r"^ExecStart=(.*)", read_example("systemd/backup.service.d/solo.conf"), re.M)

    assert lines[0] == ""
    check_guard(new(), lines[1])


# --- the manual ------------------------------------------------------------------------------------------------------


def read_sources() -> list:
    """Return the lines that a page may quote: those of README and of the examples, without their indent."""
    texts = [block.text for block in README.values()]
    folders = (EXAMPLES, ROOT / "packaging/container", ROOT / "packaging/gitlab")
    texts += [path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()]
    lines = [re.sub(r" {2,}# .*", "", line) for text in texts for line in text.splitlines()]
    return [re.sub(r"^(exec |- )", "", line.strip()).replace("$$SOLO", "$SOLO") for line in lines]


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
@pytest.mark.parametrize("page", ["solo-hold.1", "solo.3", "solo.7", "solo-engines.7"])  # solo.1: test_cli.py
def test_mandoc_finds_no_fault_in_the_manuals(page):
    result = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / "man" / page], capture_output=True, text=True
    )

    assert result.stdout == "", result.stdout


# --- containers and groups -------------------------------------------------------------------------------------------


def make_image(machine):
    need_tools("unshare", "mount", "chroot")
    if os.geteuid() != 0 or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("needs root and /usr/bin/python3")
    text = (ROOT / "packaging/container/Containerfile").read_text()
    return Image(machine, text.replace('CMD ["date"]', 'CMD ["report.sh"]'))


def test_process_1_passes_on_signals_and_statuses_and_reaps(new):
    machine = new()
    image = make_image(machine)
    process = image.start()
    machine.wait_for_starts(1)
    first = find_first(process)
    assert open(f"/proc/{first}/cmdline").read().split("\0")[2:-1] == [
        f"/app/bin/{image.entrypoint[0]}",
        *image.entrypoint[1:],
        "report.sh",
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


def test_containers_and_the_host_wait_in_one_queue(new):
    """The lines of README. Without Docker: see containers.py."""
    docker, host = README["Containers"].lines
    machine = new()
    image = make_image(machine)
    inside = image.docker(docker)
    machine.wait_for_starts(1)
    running = [machine.start_waiter(host)]
    for number in (2, 3):
        running.append(image.docker(docker))
        until(lambda number=number: machine.count_waiters() == number)
    assert finish(machine.type("solo -n report true"))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true", **SHARED))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true"))[0] == 0  # not mounted: a name of its own
    machine.release()
    assert [finish(process)[0] for process in (inside, *running)] == [0] * 4
    assert count_most_at_once(machine.read_log()) == 1 and machine.count("end") == 4


def make_group_directory(machine):
    """Run the line in the head of compose.yaml."""
    line = re.search(r"`(install -d -m 2770 .*)`", read_example("compose.yaml"))[1]
    assert finish(machine.type(line))[0] == 0
    machine.directory = machine.bin / "locks"
    machine.environment["SOLO_DIR"] = str(machine.directory)


def test_services_of_any_uid_of_a_group_exclude_each_other_and_the_host(new):
    machine = new()
    image = make_image(machine)
    make_group_directory(machine)
    report = {**pytest.importorskip("yaml").safe_load(read_example("compose.yaml"))["services"]["report"]}
    process = image.compose(report)
    machine.wait_for_starts(1)
    assert os.stat(f"/proc/{find_first(process)}").st_uid == 1234

    volume = {"volumes": ["/srv/locks:/srv/locks"], "environment": ["SOLO_DIR=/srv/locks"]}
    assert finish(image.compose(report))[0] == 0  # a skip: no restart
    assert finish(image.start("solo", "-n", "report", "true", user="999:4242", **volume))[0] == 75
    assert finish(machine.type("solo --dir /srv/locks -n report true"))[0] == 75
    assert finish(image.start("solo", "-n", "report", "true", user="1234:999", **volume))[0] == 125
    assert "no home directory" in finish(image.start("solo", "-n", "report", "true", user="1234:4242"))[2]
    turn = image.compose({**report, "entrypoint": ["solo", "-n", "report", "--wait", "forever", "--"]})
    until(lambda: machine.count_waiters() == 1)
    machine.release()
    assert [finish(one)[0] for one in (process, turn)] == [0, 0]
    assert finish(machine.type("solo --dir /srv/locks -n report true"))[0] == 0


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

    status, _, err = finish(image.start("solo", "--replace", "-k", "100ms", "-n", "report", "true", **SHARED))
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
