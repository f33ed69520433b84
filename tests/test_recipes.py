"""Every code block of README and manuals is run: its programs are small scripts that log, its options say what must happen.

A block of an unknown kind fails. test_ci.py runs the blocks for CI runners.
"""

import os
import re
import shlex
import shutil
import sqlite3
import string
import subprocess
import sys

import pytest
from conftest import PATIENCE, ROOT, need_tools, until
from machine import ETCD, count_most_at_once, finish
from pages import Block, read_blocks

from solo.argv import parse
from solo.engines.targets import read_configuration

pytestmark = pytest.mark.tool("flock")

BLOCKS = read_blocks()
CI = ("github", "gitlab", "jenkins", "makefile")
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
    word = shlex.split(line)[1]
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
        assert status in (0, 1) and str(machine.directory) in out
    else:
        assert ("backup" in out) == (word in ("list", "show", "history"))


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
    runner = machine.type("exec sleep 1000")
    wait = (
        f"\necho start:held:$CUDA_VISIBLE_DEVICES >>{machine.path}/log; exec 9<{machine.path}/gate; flock -s 9; exit 0"
    )
    process = machine.type(script + wait, {**machine.environment, "RUNNER_PID": str(runner.pid)})
    machine.wait_for_starts(1)
    rows = machine.list()
    if "solo release" in script:
        assert rows == []
    else:
        keeper = runner.pid if "RUNNER_PID" in script else process.pid if "--pid" in script else rows[0]["child"]
        assert {(row["state"], row["launcher"], row["child"]) for row in rows} == {("held", None, keeper)}
        assert ("start:held:0" in machine.read_log()) == ("CUDA" in script)
    machine.release()
    assert finish(process)[0] == 0
    for row in machine.list():
        assert row["child"] != process.pid
        assert finish(machine.type(f"solo release {row['name']}"))[0] == 0
    runner.kill()


def run_hold(new, block):
    check_hold(new(), block.text)


CHECKS = {"flock": check_beside, "lckdo": check_beside, "(crontab": check_crontab}


def run_shell(new, block):
    for line in block.lines:
        if line.startswith("solo hold"):
            check_hold(new(), line)
        elif line not in RUN_ELSEWHERE:
            CHECKS.get(line.split()[0], check_guard)(new(), line)


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


def run_debian(new, block):
    """Run the crontab line. test_packages.py runs the other lines in a clean root, with a crontab line of its own."""
    *lines, write = block.lines
    assert lines[1:] == ["make deb", "apt install ./dist/solo-run_*.deb"]
    *fields, user, command = re.fullmatch(r"echo '(.*)' >/etc/cron.d/\w+", write)[1].split(None, 6)
    assert (len(fields), user) == (5, "root")
    check_guard(new(), command.replace("/usr/local/bin/", ""))


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
    "shell": run_shell,
    "crontab": run_crontab,
    "unit": run_unit,
    "table": run_table,
    "python": run_python,
    "sql": run_sql,
    "debian": run_debian,
    "toml": run_toml,
}


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.full] * (ETCD in block.text)) for block in BLOCKS],
    ids=lambda block: block.id,
)
def test_code_block_does_what_its_page_says(new, block):
    assert block.kind in RUN or block.kind in CI, f"no function runs {block.text!r}"
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
    assert {block.kind for block in BLOCKS} == {*RUN, *CI}


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
