"""The oracle of `solo doctor --crontab`: a line and the line to use instead have the same effect.

Both run in a real shell; test_systemd.py runs some under the real systemd. Their jobs are stubs
that record their words, directory, environment and input; a run that finds another one records how
many run at once, its status and whether it prints.
"""

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from random import Random

import pytest
import tally
from conftest import PATIENCE, is_blocked, until, write_program
from fleet import find_children
from needed import find_tool

from solo.commands.doctor import jobs, place
from solo.commands.doctor.crontab import Source, parse_crontab

pytestmark = [pytest.mark.long, pytest.mark.tool("perl")]

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
# only of flock
STRINGS = ["-c 'job a; after'", '-c "job \\"$HOME\\" exit=4"', "--command 'job <given | cat'"]
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
    guard, before, after, job = (
        rng.choice(TOOLS[tool]),
        rng.choice(BEFORE),
        rng.choice(AFTER),
        rng.choice(JOBS),
    )
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
CRONS = {
    "SHELL": "/bin/sh",
    "HOME": ME.pw_dir,
    "LOGNAME": ME.pw_name,
    "A": "1  2",
}  # the environment of cron


@dataclass(frozen=True)
class Effect:
    """The effect of a line alone, and while the job of the same line ran. `most` is how many jobs
    ran at once.
    """

    alone: tuple
    status: int
    printed: tuple
    busy_status: int
    is_silent: bool
    runs: int
    most: int


class Shell:
    """Runs lines by /bin/sh as cron does, each below a directory of its own, with a limit of its
    own.
    """

    def __init__(self, path, environment):
        self.path = path
        self.environment = environment
        (path / "bin").mkdir()
        for name in ("job", "after"):
            write_program(path / "bin" / name, STUB)

    def prepare(self, place):
        (place / "sub").mkdir(parents=True)
        for folder in (place, place / "sub"):
            (folder / "given").write_text("one\ntwo\n")
            (folder / "x y").touch()

    def start(self, line, place):
        environment = {**self.environment, "RAN": str(place)}
        with (
            open(place / "given") as given,
            open(place / "stdout", "wb") as out,
            open(place / "stderr", "wb") as err,
        ):
            streams = {"stdin": given, "stdout": out, "stderr": err}
            return subprocess.Popen(["/bin/sh", "-c", line], cwd=place, env=environment, **streams)

    def run(self, line, place):
        """Return what the line does alone, then beside itself."""
        log = place / "log"
        alone = self.start(line, place)
        status = alone.wait(PATIENCE)
        started = [
            bytes.fromhex(text.split()[1])
            for text in log.read_text().splitlines()
            if text.startswith("start ")
        ]
        printed = tuple((place / name).read_bytes() for name in ("stdout", "stderr"))
        log.unlink()
        os.mkfifo(place / "go")
        first = self.start(line, place)
        until(lambda: has_started(log, 1))
        second = self.start(line, place)
        until(
            lambda: (
                second.poll() is not None
                or any(map(is_blocked, list_tree(second.pid)))
                or has_started(log, 2)
            )
        )
        is_silent = not (place / "stderr").read_bytes()
        writer = os.open(place / "go", os.O_WRONLY)
        (place / "go").unlink()  # a waiter does not stop there
        os.close(writer)
        first.wait(PATIENCE)
        busy_status = second.wait(PATIENCE)
        counted = count(log.read_text().splitlines())
        return Effect(tuple(sorted(started)), status, printed, busy_status, is_silent, *counted)


def list_tree(pid):
    """Return the pid and those of its descendants."""
    return [pid, *(one for child in find_children(pid) for one in list_tree(child))]


def has_started(log, number):
    return log.exists() and log.read_text().count(b"/job\0".hex()) >= number


def count(log):
    """Return (how many jobs ran, how many of them at once)."""
    runs = most = now = 0
    for word, program in [
        (line.split()[0], bytes.fromhex(line.split()[1]).split(b"\0")[0]) for line in log
    ]:
        change = (1 if word == "start" else -1) * program.endswith(b"/job")
        runs, now = runs + (change > 0), now + change
        most = max(most, now)
    return runs, most


def suggest(line, variables):
    """Return the line to use, None if there is none."""
    head = "".join(f"{name}={value}\n" for name, value in variables.items())
    [row] = jobs.describe(
        list(parse_crontab(Source("tab", f"{head}* * * * * {line}\n", False, ME.pw_name)))
    )
    return row.use and row.use.removeprefix("* * * * * ")


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


@pytest.mark.full
def test_each_form_of_each_tool_has_the_effect_of_its_suggestion(shell):
    found = [tool for tool in TOOLS if find_tool(tool)]
    forms = [f"{guard} job x" for tool in found for guard in TOOLS[tool]]
    forms += [f"flock -n LOCK {string}" for string in STRINGS]
    effects = [compare(shell, number, line) for number, line in enumerate(forms)]

    assert {effect.runs for effect in effects} == {1, 2} and {
        effect.busy_status for effect in effects
    } >= {0, 1, 7}


@pytest.mark.parametrize(
    "tenth", [0, *(pytest.param(at, marks=pytest.mark.full) for at in range(1, 20))]
)
def test_ten_lines_have_the_effect_of_their_suggestions(shell, tenth):
    """The same lines in `make test`, others in each run of `make test-full`."""
    rng = Random(tenth if tenth < 3 else f"{tally.SEED} {tenth}")
    tools = [tool for tool in TOOLS if find_tool(tool)]
    for at in range(10):
        compare(shell, at, make_line(rng, tools))


@pytest.mark.tool("chronic")
@pytest.mark.parametrize(
    "line, status",
    [
        ("chronic talk 0", 0),
        ("chronic talk 3", 3),
        ("cd sub && chronic talk 4 || talk 0", 0),
        ("A='b c' chronic talk 5; after $?", 0),
        ("chronic talk 2 'a  b' | cat", 0),
    ],
)
def test_chronic_has_the_effect_of_its_suggestion(shell, line, status):
    """It prints the same lines only after a failure; solo a line before them."""
    talk = '#!/bin/sh\necho "out $A $*"; echo err >&2; exit $1\n'
    write_program(shell.path / "bin/talk", talk)
    variables = {key: shell.environment[key] for key in ("PATH", "SOLO_DIR")}
    use = suggest(line, variables)
    assert "chronic" not in use
    printed = []
    for number, text in enumerate((line, use)):
        place = shell.path / f"place.{number}"
        shell.prepare(place)
        assert shell.start(text, place).wait(PATIENCE) == status
        lines = (place / "stdout").read_text() + (place / "stderr").read_text()
        found = [one for one in lines.splitlines() if not one.startswith("solo: talk-")]
        assert len(found) - lines.count("\n") == -(number and "exit" in lines)
        printed.append(sorted(found))

    assert printed[0] == printed[1]


@pytest.mark.parametrize("line", ["chronic -e talk", "chronic -v talk", "chronic $JOB"])
def test_chronic_with_an_option_or_a_computed_word_has_no_suggestion(line):
    assert not list(
        row["use"]
        for row in jobs.describe(
            parse_crontab(Source("tab", f"* * * * * {line}\n", False, ME.pw_name))
        )
        if row["use"]
    )


def test_the_oracle_notices_another_effect(shell):
    """The witness: words, status, output and number of runs of a wrong line differ."""
    lines = [
        "flock -n LOCK job a",
        "flock -n LOCK job b",
        "job a",
        "flock -n -E 3 LOCK job a",
        "flock LOCK job a",
    ]
    effects = []
    for number, line in enumerate(lines):
        place = shell.path / f"place.{number}"
        shell.prepare(place)
        effects.append(shell.run(line.replace("LOCK", f"{place}/lock"), place))

    first, words, unguarded, status, waits = effects
    assert (first.runs, first.most, first.busy_status, first.is_silent) == (1, 1, 1, True)
    assert (
        first.alone != words.alone
        and unguarded.most == 2
        and status.busy_status == 3
        and waits.runs == 2
    )
