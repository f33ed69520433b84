"""The oracle of `solo doctor --crontab` and `--unit`: a line and the line to use instead have the same effect.

Both run in a real shell, under the real cron and under the real systemd. Their jobs are stubs that record their words, directory,
environment and input; a run that finds another one records how many run at once, its status and whether it prints.
"""

import email
import json
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import tally
from conftest import PATIENCE, is_blocked, until
from guest import Layer, boot, start_layer
from tools import find_tool

from solo.commands import jobs, place
from solo.commands.crontab import Source, parse_crontab

pytestmark = pytest.mark.tool("perl")

# perl changes nothing in its environment; shells do.
STUB = r"""#!/usr/bin/perl
use Cwd; use Fcntl;
sub note { sysopen(my $log, "$ENV{RAN}/log", O_WRONLY | O_APPEND | O_CREAT); syswrite($log, "@_\n"); }
my @variables = map { "$_=$ENV{$_}" } grep { !/^(SOLO_.*|_|RAN)$/ } sort keys %ENV;
my $given = -t STDIN ? "" : join("", <STDIN>);
note("start", unpack("H*", join("\0", $0, @ARGV, "in", getcwd(), @variables, $given)));
if (-p "$ENV{RAN}/go" && $0 =~ /job$/) { open(my $go, "<", "$ENV{RAN}/go"); <$go>; }
note("end", unpack("H*", $0));
print "out\n" if $0 =~ /job$/;
exit($1) if "@ARGV" =~ /exit=(\d+)/;
"""
# fmt: off
TOOLS = {
    "flock": ["-n LOCK", "LOCK", "-w 50 LOCK", "-nE 7 LOCK", "-n -E 0 LOCK", "-xo -w 0 LOCK", "-nF 'LOCK'"],
    "lckdo": ["LOCK", "-e -q LOCK", "-W 50 LOCK", "-e -w LOCK"],
    "setlock": ["-n LOCK", "-nx LOCK", "LOCK"],
    "s6-setlock": ["-n LOCK", "LOCK"],
    "chpst": ["-L LOCK", "-l LOCK"],
    "with-lock-ex": ["-w LOCK", "-f LOCK", "-q LOCK"],
    "runlock": ["-t 50 -f LOCK", "-t 0 -f LOCK"],
    "run-one": [""],
}
TOOLS = {tool: [f"{tool} {options}".strip() for options in forms] for tool, forms in TOOLS.items()}
STRINGS = ["-c 'job a; after'", '-c "job \\"$HOME\\" exit=4"', "--command 'job <given | cat'"]  # only of flock
BEFORE = [
    "", "", "nice ", "cd sub && ", "cd sub; ", "A='b c' ", "env A=b nice -n 3 ", "timeout 90 ", "exec ", "( ", "{ ", "if ", "! ",
    "after exit=1 || ", "after $(echo 1) | ", "sh -c '",
]
AFTER = ["", "", " && after", " || after $?", "; after $?", " | cat", " 2>&1", " >out", " <given", " # note"]
CLOSES = {"( ": " )", "{ ": "; }", "if ": "; then after; else after $?; fi", "sh -c '": "'"}
JOBS = [
    "job", "job 'a  b' c\\ d", 'job "$HOME" $((1+2)) ~', "job *", "job exit=3", "nice job $A", "job \"a;b\" '|&' --x=y",
    "job '' -n -- x", "env B=c job", "job $(echo x y) `echo z`",
]
# fmt: on


def make_line(rng, tools):
    """Return a line of a crontab in which a tool guards the job; LOCK is its file."""
    tool = rng.choice(sorted(tools))
    guard, before, after, job = rng.choice(TOOLS[tool]), rng.choice(BEFORE), rng.choice(AFTER), rng.choice(JOBS)
    if tool == "run-one" and re.search(r"[$*~`']", job):
        job = "job a b"
    if tool == "flock" and rng.randrange(4) == 0:
        job = rng.choice(STRINGS)
    if before == "sh -c '":
        guard, job = guard.replace("'", ""), job if "'" not in job else "job"
    if before == "exec " or before == "sh -c '" and "#" in after:
        after = ""
    closes = CLOSES.get(before, "")
    return f"{before}{guard} {job}{'' if '#' in after and closes else after}{closes}"


ME = pwd.getpwuid(os.geteuid())
CRONS = {"SHELL": "/bin/sh", "HOME": ME.pw_dir, "LOGNAME": ME.pw_name, "A": "1  2"}  # the environment of cron


@dataclass(frozen=True)
class Effect:
    """The effect of a line alone, and while the job of the same line ran. `most` is how many jobs ran at once."""

    alone: tuple
    status: int
    printed: tuple
    busy_status: int
    is_silent: bool
    runs: int
    most: int


class Shell:
    """Runs lines by /bin/sh as cron does, each below a directory of its own, with a limit of its own."""

    def __init__(self, path, environment):
        self.path = path
        self.environment = environment
        (path / "bin").mkdir()
        for name in ("job", "after"):
            (path / "bin" / name).write_text(STUB)
            (path / "bin" / name).chmod(0o755)

    def prepare(self, place):
        (place / "sub").mkdir(parents=True)
        for folder in (place, place / "sub"):
            (folder / "given").write_text("one\ntwo\n")
            (folder / "x y").touch()

    def start(self, line, place):
        files = [open(place / name, "wb") for name in ("stdout", "stderr")]
        with open(place / "given") as given:
            process = subprocess.Popen(
                ["/bin/sh", "-c", line],
                cwd=place,
                env={**self.environment, "RAN": str(place)},
                stdin=given,
                stdout=files[0],
                stderr=files[1],
            )
        for file in files:
            file.close()
        return process

    def run(self, line, place):
        """Return what the line does alone, then beside itself."""
        log = place / "log"
        alone = self.start(line, place)
        status = alone.wait(PATIENCE)
        started = [bytes.fromhex(text.split()[1]) for text in log.read_text().splitlines() if text.startswith("start ")]
        printed = tuple((place / name).read_bytes() for name in ("stdout", "stderr"))
        log.unlink()
        os.mkfifo(place / "go")
        first = self.start(line, place)
        until(lambda: has_started(log, 1))
        second = self.start(line, place)
        until(lambda: second.poll() is not None or any(map(is_blocked, list_tree(second.pid))) or has_started(log, 2))
        is_silent = not (place / "stderr").read_bytes()
        writer = os.open(place / "go", os.O_WRONLY)
        (place / "go").unlink()  # a waiter does not stop there
        os.close(writer)
        first.wait(PATIENCE)
        return Effect(
            tuple(sorted(started)),
            status,
            printed,
            second.wait(PATIENCE),
            is_silent,
            *count(log.read_text().splitlines()),
        )


def list_tree(pid):
    """Return the pid and those of its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return [pid, *(one for child in children for one in list_tree(int(child)))]


def has_started(log, number):
    return log.exists() and log.read_text().count(b"/job\0".hex()) >= number


def count(log):
    """Return (how many jobs ran, how many of them at once)."""
    runs = most = now = 0
    for word, program in [(line.split()[0], bytes.fromhex(line.split()[1]).split(b"\0")[0]) for line in log]:
        change = (1 if word == "start" else -1) * program.endswith(b"/job")
        runs, now = runs + (change > 0), now + change
        most = max(most, now)
    return runs, most


def suggest(line, variables):
    """Return the line to use, None if there is none."""
    head = "".join(f"{name}={value}\n" for name, value in variables.items())
    [row] = jobs.describe(list(parse_crontab(Source("tab", f"{head}* * * * * {line}\n", False, ME.pw_name))))
    return row["use"] and row["use"].removeprefix("* * * * * ")


@pytest.fixture
def shell(lab, monkeypatch):
    (lab.path / "solo").symlink_to(lab.script)
    monkeypatch.setattr(place.sys, "argv", [str(lab.path / "solo")])
    place.find_place.cache_clear()
    path = f"{lab.path}/bin:{lab.path}:{os.environ['PATH']}"
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    yield Shell(lab.path, {**CRONS, **kept, "PATH": path, "SOLO_DIR": str(lab.directory)})
    place.find_place.cache_clear()


def compare(shell, number, line):
    """Compare a line with the line to use instead."""
    lock = f"{shell.path}/lock.{number}"
    typed = line.replace("LOCK", lock)
    variables = {"PATH": shell.environment["PATH"], "SOLO_DIR": shell.environment["SOLO_DIR"]}
    use = suggest(typed, variables)
    assert use is not None, typed
    effects = []
    for text in (typed, use):
        place = shell.path / "place"
        shell.prepare(place)
        effects.append(shell.run(text, place))
        shutil.rmtree(place)
    assert effects[0] == effects[1], (typed, use)
    assert effects[0].most == 1
    return effects[0]


def test_each_form_of_each_tool_has_the_effect_of_its_suggestion(shell):
    found = [tool for tool in TOOLS if find_tool(tool)]
    forms = [f"{guard} job x" for tool in found for guard in TOOLS[tool]] + [
        f"flock -n LOCK {string}" for string in STRINGS
    ]
    effects = [compare(shell, number, line) for number, line in enumerate(forms)]

    assert {effect.runs for effect in effects} == {1, 2} and {effect.busy_status for effect in effects} >= {0, 1, 7}


def pytest_generate_tests(metafunc):
    """Thirty lines in `make test`, a thousand in `make test-full`, in CI some of these."""
    if "tenth" in metafunc.fixturenames:
        is_whole = metafunc.config.getoption("loop") == "full"
        marked = [pytest.param(number, marks=pytest.mark.full) for number in range(3, 100 if is_whole else 20)]
        metafunc.parametrize("tenth", [*range(3), *marked])


def test_ten_lines_have_the_effect_of_their_suggestions(shell, request, tenth):
    is_drawn = tenth >= 3 and request.config.getoption("loop") != "full"
    rng = Random(3 + (tally.SEED + tenth) % 97 if is_drawn else tenth)
    tools = [tool for tool in TOOLS if find_tool(tool)]
    for at in range(10):
        compare(shell, at, make_line(rng, tools))


def test_the_oracle_notices_another_effect(shell):
    """The witness: words, status, output and number of runs of a wrong line differ."""
    lines = [
        "flock -n LOCK job a",
        "flock -n LOCK job b",
        "job a",
        "flock -n -E 3 LOCK job a",
        "flock -n LOCK job a >&2",
        "flock LOCK job a",
    ]
    effects = []
    for number, line in enumerate(lines):
        place = shell.path / f"place.{number}"
        shell.prepare(place)
        effects.append(shell.run(line.replace("LOCK", f"{place}/lock"), place))

    first, words, unguarded, status, _, waits = effects
    assert (first.runs, first.most, first.busy_status, first.is_silent) == (1, 1, 1, True)
    assert first.alone != words.alone and unguarded.most == 2 and status.busy_status == 3 and waits.runs == 2


# --- under cron ------------------------------------------------------------------------------------------------------

SENDMAIL = """#!/bin/sh
mail=$(mktemp /lab/mails/.XXXXXX) && cat >"$mail" && mv "$mail" "/lab/mails/${mail##*/.}"
"""
CRON_LINES = [
    r"flock -n LOCK job $(date +year:\%Y)",
    "flock -n LOCK job 'a b' %first%second",
    "flock -w 1 LOCK -c 'job a; job b' >/dev/null",
    "cd /lab/sub && nice flock -w 5 LOCK job * 2>&1 | cat",
    "timeout 60 flock -n -E 0 LOCK job exit=3; after $?",
    "if flock -n LOCK job; then after yes; else after no; fi",
    "sh -c 'flock -n LOCK job x && after'",
]


@pytest.fixture(scope="module")
def minute(tmp_path_factory):
    """The machine after cron ran each line and its suggestion once: with a free lock, and (number + 100) with a held one."""
    lab = tmp_path_factory.mktemp("oracle")
    for folder in ("", "mails", "sub"):
        (lab / folder).mkdir(exist_ok=True)
        (lab / folder).chmod(0o777)
    (lab / "sub/x y").touch()
    with start_layer(lab) as leader:
        machine = Layer(leader, lab)
        machine.clear_tables()
        machine.write("usr/sbin/sendmail", SENDMAIL)
        for name in ("job", "after"):
            machine.write(f"usr/local/bin/{name}", STUB)
        head = "PATH=/usr/local/bin:/usr/bin:/bin\n"
        cases = [(number, line) for number, line in enumerate(CRON_LINES)]
        cases += [(number + 100, line) for number, line in cases]
        lines = [f"* * * * * {line.replace('LOCK', f'/run/{number}.lock')}" for number, line in cases]
        machine.write("lab/tab", head + "\n".join(lines) + "\n", 0o644)
        rows = json.loads(machine.run("solo", "doctor", "--crontab", "--json", "/lab/tab").stdout)
        assert all(row["use"] for row in rows), rows
        table = head
        for (number, _), line, row in zip(cases, lines, rows):
            for kind, text in (("old", line), ("new", row["use"])):
                (lab / f"{number}.{kind}").mkdir()
                table += f"RAN=/lab/{number}.{kind}\n{text}\n"
            if number >= 100:
                name = re.search(r"solo -n (\S+)", row["use"])[1]
                machine.start("flock", row["lock"], "sleep", "infinity")
                machine.start("solo", "-n", name, "--", "sleep", "infinity")
                until(lambda: not machine.run("solo", "list", "--json", name).stdout.startswith("[]"))
                until(lambda: machine.run("flock", "-n", row["lock"], "true").returncode)
        machine.write("lab/all", f"{table}* * * * * touch /lab/end\n")
        machine.do("crontab", "/lab/all")
        with machine.start("cron", "-f") as cron:
            until(lambda: (lab / "end").exists() and list_tree(cron.pid)[2:] == [], patience=3 * PATIENCE)
            cron.terminate()
        yield machine


def read_effect(machine, number, kind):
    """Return (the jobs as they started, the mails) of a line, without what differs by intention."""
    log = machine.lab / f"{number}.{kind}/log"
    lines = log.read_text().splitlines() if log.exists() else []
    started = sorted(bytes.fromhex(line.split()[1]) for line in lines if line.startswith("start "))
    mails = [email.message_from_string(path.read_text()) for path in (machine.lab / "mails").iterdir()]
    return started, sorted(mail.get_payload() for mail in mails if f"/{number}.{kind}\n" in mail.as_string())


@pytest.mark.full
@pytest.mark.root
@pytest.mark.tool("cron", "unshare", "nsenter", "mount")
@pytest.mark.parametrize("number", [*range(len(CRON_LINES)), *range(100, 100 + len(CRON_LINES))])
def test_cron_runs_a_line_and_its_suggestion_alike(minute, number):
    """Words, directory, environment, input and mails. If the lock is held, neither runs the job, nor prints a line."""
    old, new = (read_effect(minute, number, kind) for kind in ("old", "new"))

    assert old == new
    assert any(b"/job\0" in one for one in new[0]) == (number < 100) and (number < 100 or not new[1])


# --- under systemd ---------------------------------------------------------------------------------------------------

OWN = "RuntimeDirectory=own\nRuntimeDirectoryMode=0700\nRuntimeDirectoryPreserve=yes\nEnvironment=SOLO_DIR=/run/own"
RUNS = [
    "",
    "User=alice",
    "User=alice\nProtectSystem=strict",
    "ProtectSystem=full\nProtectHome=yes\nPrivateTmp=yes\nNoNewPrivileges=yes",
    f"ProtectSystem=strict\n{OWN}",
    "ReadOnlyPaths=/etc",
    f"User=alice\nProtectHome=tmpfs\n{OWN}",
    "WorkingDirectory=/lab\nUMask=0077\nStandardInput=null",
]
FAILS = [
    "User=www-data",
    "DynamicUser=yes",
    "ProtectSystem=strict",
    "ReadOnlyPaths=/run",
    "InaccessiblePaths=/run/solo",
    "User=alice\nProtectHome=yes",
    "User=alice\nProtectHome=read-only",
    "ProcSubset=pid",
]
WORDS = "/lab/bin/job %n 'a  b' $HOME ${HOME}/x \"c;d\""


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    lab = tmp_path_factory.mktemp("units")
    lab.chmod(0o777)
    container, guest = boot(lab)
    try:
        guest.do("useradd", "--create-home", "--uid=1000", "alice")
        guest.do("mkdir", "-p", "/run/solo", "/run/systemd/system", "/lab/bin")
        (lab / "bin/job").write_text(STUB)
        (lab / "bin/job").chmod(0o755)
        yield guest
    finally:
        os.kill(guest.leader, 9)
        container.wait()


def start_unit(guest, name, settings, exec_start):
    """Start the unit once; return (its result, its status, the jobs as they started, whether it printed)."""
    place = guest.lab / name
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    lines = f"[Service]\nType=oneshot\nReadWritePaths=/lab\nEnvironment=RAN=/lab/{name}\n{settings}\n{exec_start}\n"
    (guest.lab / "a.service").write_text(lines)
    guest.do("cp", "/lab/a.service", f"/run/systemd/system/{name}.service")
    guest.do("systemctl", "daemon-reload")
    guest.run("systemctl", "start", name)
    log = place / "log"
    started = (
        [line.split()[1] for line in log.read_text().splitlines() if line.startswith("start")] if log.exists() else []
    )
    started = [
        re.sub(rb"(INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|RAN)=[^\0]+", b"", bytes.fromhex(one))
        for one in started
    ]
    messages = [line for line in guest.read_messages(name) if not line.startswith(("Finished", "Start"))]
    return guest.show(name, "Result"), guest.show(name, "ExecMainStatus"), started, bool(messages)


def give_advice(guest, name):
    [row] = json.loads(guest.run("solo", "doctor", "--unit", "--json", f"/run/systemd/system/{name}.service").stdout)
    return row


@pytest.mark.full
@pytest.mark.root
@pytest.mark.network
@pytest.mark.tool("debootstrap", "systemd-nspawn", "nsenter")
@pytest.mark.parametrize("number, settings", list(enumerate(RUNS)))
def test_systemd_runs_a_unit_and_its_suggestion_alike(guest, number, settings):
    name, lock = f"runs-{number}", f"/lab/runs-{number}.lock"
    line = f"ExecStart=/usr/bin/flock -n {lock} {WORDS}"
    old = start_unit(guest, name, settings, line)
    row = give_advice(guest, name)
    for path in (guest.lab / name).iterdir():
        path.unlink()
    new = start_unit(guest, name, settings, row["use"])
    user, place = ("alice", "/run/own") if "alice" in settings else ("root", "/run/own")
    where = ["--dir", place] if "SOLO_DIR" in settings else []
    busy = re.search(r"-n \S+", row["use"])[0].split()
    guest.do("systemd-run", "-q", f"--uid={user}", "solo", "--wait=1h", *where, *busy, "--", "sleep", "infinity")
    until(
        lambda: (
            guest.run("setpriv", f"--reuid={user}", "--clear-groups", "solo", *where, *busy, "true").returncode == 75
        )
    )
    guest.do("systemd-run", "-q", "flock", lock, "sleep", "infinity")
    until(lambda: guest.run("flock", "-n", lock, "true").returncode == 1)
    skips = [start_unit(guest, f"{name}-{kind}", settings, text) for kind, text in (("old", line), ("new", row["use"]))]

    assert old == new and (old[0], len(old[2])) == ("success", 1)
    assert skips[0] == skips[1] and skips[0][:3] == ("exit-code", "1", [])


@pytest.mark.full
@pytest.mark.root
@pytest.mark.network
@pytest.mark.tool("debootstrap", "systemd-nspawn", "nsenter")
@pytest.mark.parametrize("number, settings", list(enumerate(FAILS)))
def test_a_unit_without_a_line_to_use_fails_with_solo(guest, number, settings):
    """The tool runs there; with solo in its place nothing runs, and doctor says so of that line too."""
    name = f"fails-{number}"
    old = start_unit(guest, name, settings, f"ExecStart=/usr/bin/flock -n /lab/{name}.lock {WORDS}")
    advice = give_advice(guest, name)
    new = start_unit(guest, f"{name}-new", settings, f"ExecStart=/usr/local/bin/solo -n {name} -- {WORDS}")
    judged = give_advice(guest, f"{name}-new")

    assert (old[0], advice["use"]) == ("success", None), advice
    assert new[:3] == ("exit-code", "125", []) and judged["state"] == "fails", judged
    text = judged["findings"][0]["text"]
    if found := re.search(r"as root: (install .*?)[;)]", text):
        guest.do("sh", "-c", found[1])
    elif found := re.search(r"\(add (.*)\)$", text):
        settings = "\n".join([settings, *found[1].split()])
    else:
        assert text.endswith("(remove it)")
        settings = ""
    repaired = start_unit(guest, f"{name}-repaired", settings, f"ExecStart=/usr/local/bin/solo -n {name} -- {WORDS}")
    assert (repaired[0], len(repaired[2])) == ("success", 1), (text, repaired)
    assert give_advice(guest, f"{name}-repaired")["state"] == "note"
