"""doctor --crontab and --unit: what is wrong with a line, and the line to use instead, which runs guarded."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from random import Random

import psutil
import pytest
from conftest import PATIENCE

from solo.argv import parse
from solo.commands import cron_log, crontab
from solo.commands.crontab import Source
from solo.commands.shell_line import Unclear, split_line

DAILY = "30 2 * * * "
LOCK = "/run/lock/job"
# Of each line: the command, what is found (! before a failure), and the command to use, "" for none.
TABLE = [
    # flock
    (f"flock -n {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"flock {LOCK} job.sh --full", "callers", "solo -n job --wait forever -- job.sh --full"),
    (f"/usr/bin/flock -n {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"flock -w 60 {LOCK} job.sh", "callers", "solo -n job --wait 60 -- job.sh"),
    (f"flock --wait=2.5 {LOCK} job.sh", "callers", "solo -n job --wait 2.5 -- job.sh"),
    (f"flock --timeout 5 {LOCK} job.sh", "callers", "solo -n job --wait 5 -- job.sh"),
    (f"flock -xn {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"flock --nonblock --exclusive {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"flock -s {LOCK} job.sh", "callers", "solo -n job --shared --wait forever -- job.sh"),
    (f"flock -n -E 0 {LOCK} job.sh", "callers", "solo -n job -q -E 0 -- job.sh"),
    (f"flock -nE 9 {LOCK} job.sh", "callers", "solo -n job -E 9 -- job.sh"),
    (f"flock -n {LOCK} -c 'a.sh && b.sh'", "callers", "solo -n job -- sh -c 'a.sh && b.sh'"),
    (f'flock -n {LOCK} -c "job.sh --x"', "callers", 'solo -n job -- sh -c "job.sh --x"'),
    (f"flock -n {LOCK} --command 'job.sh'", "callers", "solo -n job -- sh -c 'job.sh'"),
    (f"flock -n -o {LOCK} job.sh", "!overlap callers", "solo -n job -- job.sh"),
    (f"flock -n --verbose {LOCK} job.sh", "callers", "solo -n job -v -- job.sh"),
    (f"flock -n -F {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"flock -n {LOCK} -- job.sh", "unclear", ""),
    (f"flock -w 0 {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    ("flock -n /usr/bin/python3 job.sh", "!program callers", ""),
    ("flock -n /bin/sh job.sh", "!program callers", ""),
    ("flock -n /a/lock python3 -u /srv/job.py x", "callers", "solo -n job.py -- python3 -u /srv/job.py x"),
    ("flock -n /a/lock -c 'job.sh /srv/x'", "callers", "solo -n job.sh -- sh -c 'job.sh /srv/x'"),
    ("flock -n /run/x-$A.lock job.sh", "callers", "solo -n x -- job.sh"),
    (rf"flock -n {LOCK} job.sh >log.$(date +\%s)", "callers", r"solo -n job -- job.sh >log.$(date +\%s)"),
    (f"flock --fcntl -n {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    ("flock -n /tmp/job.lock job.sh", "!tmp callers", "solo -n job -- job.sh"),
    ("flock -n /var/tmp/job.lock job.sh", "!tmp callers", "solo -n job -- job.sh"),
    ("flock -n '/tmp/my job' job.sh", "!tmp callers", "solo -n job.sh -- job.sh"),
    ("flock -n /run/a.lck job.sh", "callers", "solo -n a -- job.sh"),
    ("flock -n $HOME/.job.lock job.sh", "callers", "solo -n job -- job.sh"),
    ("flock -n ~/lock job.sh", "callers", "solo -n job.sh -- job.sh"),
    (r"flock -n /run/job.$(date +\%F) job.sh", "!changing callers", "solo -n job -- job.sh"),
    ("flock -n /run/job.$$ job.sh", "!changing callers", "solo -n job -- job.sh"),
    # around it
    (f"cd / && flock -n {LOCK} job.sh", "callers", "cd / && solo -n job -- job.sh"),
    (f"cd /; flock -n {LOCK} job.sh", "callers", "cd /; solo -n job -- job.sh"),
    (f"LANG=C A='x y' flock -n {LOCK} job.sh", "callers", "LANG=C A='x y' solo -n job -- job.sh"),
    (f"env A=b flock -n {LOCK} job.sh", "callers", "env A=b solo -n job -- job.sh"),
    (f"nice -n 10 flock -n {LOCK} job.sh", "callers", "nice -n 10 solo -n job -- job.sh"),
    (f"ionice -c2 -n7 nice flock -n {LOCK} job.sh", "callers", "ionice -c2 -n7 nice solo -n job -- job.sh"),
    (f"timeout -k 5 1h flock -n {LOCK} job.sh", "callers", "timeout -k 5 1h solo -n job -- job.sh"),
    (f"flock -n {LOCK} nice job.sh", "callers", "solo -n job -- nice job.sh"),
    (f"flock -n {LOCK} job.sh >/dev/null 2>&1", "callers", "solo -n job -- job.sh >/dev/null 2>&1"),
    (f"flock -n {LOCK} job.sh >>log 2>&1", "callers", "solo -n job -- job.sh >>log 2>&1"),
    (f"flock -n {LOCK} job.sh >log 2>&1", "truncates callers", "solo -n job -- job.sh >log 2>&1"),
    (f"flock -n {LOCK} job.sh 'a b' \"c\" d\\ e", "callers", "solo -n job -- job.sh 'a b' \"c\" d\\ e"),
    (f"flock -n {LOCK} job.sh & ", "callers", "solo -n job -- job.sh &"),
    (f"flock -n {LOCK} job.sh # every night", "callers", "solo -n job -- job.sh # every night"),
    (f"sh -c 'flock -n {LOCK} job.sh'", "callers", "sh -c 'solo -n job -- job.sh'"),
    (f"sh -c 'flock -n {LOCK} a.sh && b.sh'", "!partial callers", None),
    # the guard covers only the first
    (f"flock -n {LOCK} a.sh && b.sh", "!partial callers", "solo -n job -- sh -c 'a.sh && b.sh'"),
    (f"flock -n {LOCK} a.sh; b.sh", "!partial callers", "solo -n job -- sh -c 'a.sh; b.sh'"),
    (f"flock -n {LOCK} a.sh x | b.sh >>log", "!partial callers", "solo -n job -- sh -c 'a.sh x | b.sh >>log'"),
    (f"flock -n {LOCK} a.sh | logger -t a", "callers", "solo -n job -- a.sh | logger -t a"),
    (f"flock -n {LOCK} a.sh | sort >log", "!partial callers", "solo -n job -- sh -c 'a.sh | sort >log'"),
    (f"flock -n {LOCK} a.sh || echo busy", "callers", "solo -n job -- a.sh || echo busy"),
    (f"flock -n {LOCK} a.sh && b.sh || echo no", "!partial callers", "solo -n job -- sh -c 'a.sh && b.sh' || echo no"),
    (f"flock -n {LOCK} a.sh && echo done", "callers", "solo -n job -- a.sh && echo done"),
    (f"flock -n {LOCK} a.sh && curl -fsS http://[::1]:1/", "partial callers", None),
    (f"nice flock -n {LOCK} a.sh && b.sh", "!partial callers", "nice solo -n job -- sh -c 'a.sh && b.sh'"),
    (f"sudo flock -n {LOCK} a.sh && b.sh", "!partial callers", ""),
    (f"flock -n {LOCK} a.sh || b.sh && c.sh", "!partial callers", ""),
    (f"flock -n {LOCK} job.sh; rm -f {LOCK}", "!removed callers", "solo -n job -- job.sh"),
    (
        f"flock -n {LOCK} -c 'a.sh' && b.sh",
        "!partial callers",
        "solo -n job -- sh -c 'sh -c '\"'\"'a.sh'\"'\"' && b.sh'",
    ),
    # daemons
    (f"flock -n {LOCK} -c 'job.sh &'", "daemon callers", "solo -n job --tree -- sh -c 'job.sh &'"),
    (f"flock -n {LOCK} start-stop-daemon -S -b -x job.sh", "!daemon callers", None),
    # other tools
    (f"lckdo {LOCK} job.sh", "!overlap callers", "solo -n job -- job.sh"),
    (f"lckdo -e -W 60 {LOCK} job.sh", "callers", "solo -n job --wait 60 -- job.sh"),
    (f"lckdo -w {LOCK} job.sh", "!overlap callers", "solo -n job --wait forever -- job.sh"),
    (f"setlock -n {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"setlock -nx {LOCK} job.sh", "callers", "solo -n job -q -E 0 -- job.sh"),
    (f"setlock {LOCK} job.sh", "callers", "solo -n job --wait forever -- job.sh"),
    (f"s6-setlock -t 500 {LOCK} job.sh", "callers", "solo -n job --wait 500ms -- job.sh"),
    (f"chpst -l {LOCK} job.sh", "callers", "solo -n job --wait forever -- job.sh"),
    (f"chpst -L {LOCK} job.sh", "callers", "solo -n job -- job.sh"),
    (f"chpst -u alice -L {LOCK} job.sh", "unclear", ""),
    (f"with-lock-ex -w {LOCK} job.sh", "callers", "solo -n job --wait forever -- job.sh"),
    (f"lockrun --lockfile={LOCK} -- job.sh", "callers", "solo -n job -- job.sh"),
    ("run-one job.sh --full", "callers", "solo -q -- job.sh --full"),
    (r"run-one job.sh $(date +\%F)", "!changing callers", r"solo -n job.sh -q -- job.sh $(date +\%F)"),
    ("run-this-one job.sh", "callers", "solo --replace -- job.sh"),
    ("sem --fg --id job -j 4 job.sh", "callers", "solo -n job --slots 4 --wait forever -- job.sh"),
    ("sem --id job job.sh", "callers", "solo -n job --wait forever -- job.sh"),
    ("sem -j 4 job.sh", "unclear", ""),
    ("sem --fg --id job 'job.sh --x'", "callers", "solo -n job --wait forever -- sh -c 'job.sh --x'"),
    ("sem --fg --id job job.sh '$HOME'", "unclear", ""),
    (f"lockrun --idempotent --lockfile={LOCK} -- job.sh", "callers", "solo -n job -q -E 0 -- job.sh"),
    ("cronlock job.sh", "unclear", ""),
    ("run-one job.sh $HOME", "callers", "solo -q -- job.sh $HOME"),
    # mkdir, pid files, searches for processes
    ("mkdir /run/x.lock && job.sh; rmdir /run/x.lock", "!stale", "solo -n x -- job.sh"),
    ("mkdir /tmp/x && a.sh && b.sh; rm -rf /tmp/x", "!stale", "solo -n x -- sh -c 'a.sh && b.sh'"),
    ("mkdir /run/x 2>/dev/null || exit 0; job.sh; rmdir /run/x", "!stale", "solo -n x -- job.sh"),
    ("lockfile -r 0 /run/x.lock && job.sh; rm -f /run/x.lock", "!stale", "solo -n x -- job.sh"),
    ("[ -f /run/x.lock ] || job.sh", "!stale", ""),
    ("[ ! -f /run/x.pid ] && touch /run/x.pid && job.sh; rm /run/x.pid", "!stale", "solo -n x -- job.sh"),
    ("test -e /run/x.lock && exit; echo $$ > /run/x.lock; job.sh; rm /run/x.lock", "!stale", "solo -n x -- job.sh"),
    ("pgrep -f job.sh >/dev/null || job.sh", "!race", "solo -n job.sh -- job.sh"),
    ("ps ax | grep -q '[j]ob.sh' || job.sh", "!race", "solo -n job.sh -- job.sh"),
    ("pidof sshd || service ssh start", "", ""),
    ("pidof dropd || /usr/sbin/dropd", "race", ""),
    ("pgrep -f 'tunnel run' || job.sh", "", ""),
    ("pgrep -x job || $STARTER", "", ""),
    ("pgrep -f job.sh || setsid job.sh", "race", ""),
    ("pgrep -f job.sh || nohup job.sh >/dev/null 2>&1 &", "!race", "solo -n job.sh -- nohup job.sh >/dev/null 2>&1 &"),
    ("! pgrep -f job.sh >/dev/null && job.sh", "!race", "solo -n job.sh -- job.sh"),
    ("if ! pgrep -f job.sh >/dev/null; then job.sh --x; fi", "!race", "solo -n job.sh -- job.sh --x"),
    ("if ! pgrep -f job.sh; then cd / && job.sh; fi # or not", "!race", "solo -n job.sh -- sh -c 'cd / && job.sh'"),
    ("if ! pgrep -f job.sh; then echo gone | logger; fi", "", ""),
    ("ps ax | grep -v grep | grep job.sh >/dev/null || job.sh", "!race", "solo -n job.sh -- job.sh"),
    ("if mkdir /run/x.lock; then job.sh; rmdir /run/x.lock; fi", "!stale", "solo -n x -- job.sh"),
    ("if mkdir /run/x 2>/dev/null; then a.sh && b.sh; rm -r /run/x; fi", "!stale", "solo -n x -- sh -c 'a.sh && b.sh'"),
    ("if [ -e /run/x.pid ]; then exit 0; fi; touch /run/x.pid; job.sh; rm /run/x.pid", "!stale", "solo -n x -- job.sh"),
    ("if [ ! -e /run/x.lock ]; then job.sh; fi", "!stale", ""),
    ("if [ -f /etc/stop ]; then exit; fi; job.sh", "", ""),
    ("if mkdir /run/x.lock; then job.sh; else echo busy; fi", "", ""),
    ("if true; then if false; then job.sh; fi; fi", "", ""),
    # groups
    (f"(flock -n {LOCK} job.sh)", "callers", "(solo -n job -- job.sh)"),
    (
        f"(cd / && flock -n {LOCK} job.sh) 2>&1 | logger -t x",
        "callers",
        "(cd / && solo -n job -- job.sh) 2>&1 | logger -t x",
    ),
    (f"(flock -n 9 || exit 1; job.sh) 9>{LOCK}", "callers", "solo -n job -- job.sh"),
    (
        f"( flock -n 200 || exit 0; cd / && job.sh x ) 200>{LOCK} >>log",
        "callers",
        "solo -n job -q -E 0 -- sh -c 'cd / && job.sh x' >>log",
    ),
    (
        f"(flock -w 5 -x 9 || exit 3; a.sh; b.sh) 9>>{LOCK}",
        "callers",
        "solo -n job -E 3 --wait 5 -- sh -c 'a.sh; b.sh'",
    ),
    (f"(flock -s 9; job.sh) 9<{LOCK}", "callers", "solo -n job --shared --wait forever -- job.sh"),
    (f"(flock -n 9 && job.sh) 9>{LOCK}", "callers", "solo -n job -- job.sh"),
    (f"(flock -n 9; job.sh) 9>{LOCK}", "unclear", ""),
    (f"(flock -n 8 || exit 1; job.sh) 9>{LOCK}", "unclear", ""),
    (f"(flock -n 9 || exit 1; job.sh &) 9>{LOCK}", "unclear", ""),
    (f"(flock -n {LOCK} a.sh) && b.sh", "unclear", ""),
    ("(sleep 30; job.sh)", "", ""),
    # percent signs
    (f"flock -n {LOCK} job.sh $(date +%F)", "!percent callers", r"solo -n job -- job.sh $(date +\%F)"),
    (rf"flock -n {LOCK} job.sh $(date +\%F)", "callers", r"solo -n job -- job.sh $(date +\%F)"),
    ('job.sh "$(date +%F)"', "!percent", r'job.sh "$(date +\%F)"'),
    (f"flock -n {LOCK} job.sh %first%second", "callers", "solo -n job -- job.sh %first%second"),
    ("mail -s x alice %hello", "", ""),
    # solo
    ("solo -- job.sh", "", ""),
    ("solo -n job -- job.sh && echo done", "", ""),
    ("solo a.sh && b.sh", "!partial", "solo -- sh -c 'a.sh && b.sh'"),
    ("solo -n x --wait 5m -- a.sh; b.sh", "!partial", "solo -n x --wait 5m -- sh -c 'a.sh; b.sh'"),
    (r"solo -- job.sh $(date +\%F)", "!changing", r"solo -n job.sh -- job.sh $(date +\%F)"),
    (r"solo -n job -- job.sh $(date +\%F)", "", ""),
    ("solo --wiat 3 job.sh", "!usage", ""),
    ("solo list", "", ""),
    ("solo --flock /tmp/x -n job -- job.sh", "!tmp", None),
    # not understood, or nothing to say
    (f"if flock -n {LOCK} true; then job.sh; fi", "unclear", ""),
    (f"flock -u {LOCK} job.sh", "unclear", ""),
    (f"flock -n {LOCK} a.sh; flock -n {LOCK} b.sh", "unclear", ""),
    (f"flock $OPTIONS {LOCK} job.sh", "unclear", ""),
    ("lockf -t 0 /run/x job.sh", "unclear", ""),
    (f"su - alice -c 'flock -n {LOCK} job.sh'", "unclear", ""),
    ("job.sh", "", ""),
    ("a.sh && b.sh | sort > log", "", ""),
    ("mkdir -p /run/lock/x && job.sh", "", ""),
    ("mkdir /srv/x && job.sh", "", ""),
    ("[ -x /usr/sbin/anacron ] || job.sh", "", ""),
    ("[ -f /etc/x.lock ] && job.sh", "", ""),
    ("test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", "", ""),
]
STUBS = "a.sh b.sh c.sh job.sh sudo"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, solo_script):
    """A directory for PATH with solo, and programs that log the name that they are guarded by."""
    folder = tmp_path_factory.mktemp("bin")
    for name in STUBS.split():
        (folder / name).write_text('#!/bin/sh\necho "${0##*/}=${SOLO_NAME-}" >>"$RAN"\n')
        (folder / name).chmod(0o755)
    (folder / "solo").symlink_to(solo_script)
    return folder


def examine(text, folder="/nowhere", is_unit=False, has_user=None):
    source = Source("tab", text.replace("BIN", str(folder)), has_user, "alice")
    lines = crontab.parse_unit(source) if is_unit else crontab.parse_crontab(source)
    return list(crontab.describe(list(lines), {}, {}))


def list_found(row):
    return " ".join(("!" if one["state"] == "fails" else "") + one["check"] for one in row["findings"])


def test_the_table_has_enough_different_lines():
    assert len({command for command, _, _ in TABLE}) == len(TABLE) >= 140


def test_each_line_gets_its_findings_and_suggestion(folder):
    wrong = []
    for command, found, use in TABLE:
        [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}{command}\n", folder)
        if (list_found(row), row["use"]) != (found, row["use"] if use is None else use and DAILY + use or None):
            wrong.append((command, list_found(row), row["use"]))

    assert wrong == []


GUARDED = [command for command, _, use in TABLE if use and not re.search("start-stop-daemon|python3", command)]


def suggest(folder, command):
    """Return (the suggested line as the shell gets it, its standard input)."""
    [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}{command}\n", folder)
    line, *given = re.split(r"(?<!\\)%", row["use"].removeprefix(DAILY))
    return line.replace("\\%", "%"), "\n".join(given)


def run_all(folder, tmp_path, lab, lines):
    """Run each line in a directory of its own. Yield (the jobs that ran, with their names; stderr) of each."""
    environment = {**lab.environment, "PATH": f"{folder}:{os.environ['PATH']}"}
    for number, (line, given) in enumerate(lines):
        place = tmp_path / str(number)
        place.mkdir()
        ran = place / "ran"
        words, options = ["sh", "-c", f"{line}\nwait"], {"cwd": place, "env": {**environment, "RAN": str(ran)}}
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=PATIENCE, **options)
        yield [row.split("=") for row in ran.read_text().splitlines()] if ran.exists() else [], done.stderr


def test_every_job_of_a_suggested_line_runs_guarded(folder, tmp_path, lab):
    lines = [suggest(folder, command) for command in GUARDED]

    for command, (line, _), (ran, err) in zip(GUARDED, lines, run_all(folder, tmp_path, lab, lines)):
        jobs = re.findall(r"\b(?:job|a|b)\.sh\b", re.sub(r"p?grep (-\S+ )*\S+|solo -n \S+|/run/job\.", "", command))
        if command[:1] != "j":
            assert ran and all(name for _, name in ran), (line, ran, err)
        assert {job for job, _ in ran} == set(jobs), (command, line, ran, err)
        assert line.count("-v") or "solo:" not in err, (line, err)


LOCKER = """
import fcntl, sys
files = [(call, open(path, "w")) for call, path in (line.split() for line in sys.argv[1:])]
for call, file in files:
    {"--flock": fcntl.flock, "--fcntl": fcntl.lockf}[call](file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_suggested_line_with_the_option_for_other_callers_excludes_the_old_line(folder, tmp_path, lab):
    """Another process locks the file of each old line, by the system call of its tool."""
    lines, locks = [], []
    for number, command in enumerate(GUARDED):
        [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}{command}\n", folder)
        line, given = suggest(folder, command)
        if row["call"] is None or line.count("--shared") or "$" in row["lock"]:
            continue
        option = re.search(r"add (--flock|--fcntl) (.+)$", row["findings"][-1]["text"])
        assert option and option[2].strip("'\"") == row["lock"], row
        locks.append(f"{option[1]} {tmp_path}/lock.{number}")
        lines.append((re.sub(r"--wait \S+ ", "", line).replace("solo ", f"solo {locks[-1]} ", 1), given))

    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, *locks], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as locker:
        assert locker.stdout.readline() == b"locked\n"
        results = list(run_all(folder, tmp_path, lab, lines))

    assert len(lines) > 40
    assert [(line, ran) for (line, _), (ran, _) in zip(lines, results) if ran] == []
    silent = [(line, err) for (line, _), (_, err) in zip(lines, results) if "busy" not in err]
    assert [line for line, _ in silent if not re.search(r" -q |2>&1", line)] == []


# --- crontabs ------------------------------------------------------------------------------------------------------


def test_both_formats_schedules_variables_and_comments_are_read(folder):
    text = f"""# a comment
MAILTO=""
SHELL=/bin/bash
PATH=BIN:/usr/bin
* * * * * root flock -n {LOCK} a.sh; b.sh
@reboot\talice\tflock -n /run/x job.sh
*/5 1-7 * jan,FEB mon-fri root nice flock -n /run/y job.sh

garbage
"""
    rows = examine(text, folder, has_user=True)

    assert [(row["line"], row["use"]) for row in rows] == [
        (5, "* * * * * root solo -n job -- /bin/bash -c 'a.sh; b.sh'"),
        (6, "@reboot alice solo -n x -- job.sh"),
        (7, "*/5 1-7 * jan,FEB mon-fri root nice solo -n y -- job.sh"),
    ]


def test_a_column_of_users_is_recognized(folder):
    with_users = examine("* * * * * root flock -n /run/x job.sh\n@daily nobody flock -n /run/y job.sh")
    without = examine("* * * * * root flock -n /run/x job.sh\n@daily flock -n /run/y job.sh")

    assert list(map(list_found, with_users)) == ["callers", "callers"]
    assert list(map(list_found, without)) == ["unclear", "callers"]


def test_lines_of_one_lock_file_share_a_name_and_those_of_two_do_not():
    text = "@daily flock -n /a/x.lock a.sh\n@daily flock -n /b/x.lock b.sh\n@daily flock -n '/a/x.lock' c.sh"

    assert [re.search(r"-n (\S+)", row["use"])[1] for row in examine(text)] == ["x", "x-2", "x"]


def test_lines_of_two_users_keep_the_lock_file():
    text = "@daily root flock -n /run/lock/x a.sh\n@daily nobody lckdo /var/lock/x b.sh"
    rows = examine(text, has_user=True)

    assert "-n x --flock /run/lock/x -- a.sh" in rows[0]["use"]
    assert "-n x --fcntl /var/lock/x -- b.sh" in rows[1]["use"]
    assert "users" in list_found(rows[0])


SAME = [
    # Of root and of alice: the options of solo, and whether only a note can say that they do not exclude each other.
    ("-n x", "-n x", True),
    ("-n x", "-n y", False),
    ("-n x -n y", "-ny", True),
    ("-n x", "", False),
    ("--dir /srv/names -n x", "-n x --dir=/srv/names/", False),
    ("--dir /srv/names -n x", "-n x", True),
    ("--dir $DIR -n x", "-n x", False),
    ("--flock /run/lock/x -n x", "--flock /var/lock/x -n x", False),
    ("--flock /run/lock/x -n x", "--fcntl /run/lock/x -n x", True),
    ("--flock /run/a -n x", "--flock /run/b -n x", True),
    ("--shared -n x", "--shared -n x", False),
    ("--shared -n x", "-n x", True),
    ("--via redis://h -n x", "--via redis://h -n x", False),
    ("$OPTIONS -n x", "-n x", False),
    ("-n x-$A", "-n x-$A", False),
    ("-n x-\\%i", "-n x-\\%i", False),
]


@pytest.mark.parametrize("first, second, is_noted", SAME)
def test_the_same_name_of_two_users_gets_a_note_unless_they_share_the_lock(folder, first, second, is_noted):
    lines = [f"@daily {user} solo {words} -- job.sh" for user, words in (("root", first), ("nobody", second))]
    rows = examine("\n".join(["PATH=BIN", *lines]), folder, has_user=True)

    assert [list_found(row) for row in rows] == ["users" * is_noted] * 2
    assert all(("nobody (tab:3)" in row["findings"][0]["text"]) == (row["line"] == 2) for row in rows if is_noted)


@pytest.mark.parametrize(
    "text",
    [
        "SOLO_DIR=/srv/names\n@daily root solo -n x -- job.sh",
        "@daily root SOLO_DIR=/srv/names solo -n x -- job.sh",
        "@daily root sudo -u nobody solo -n x -- job.sh",
        "@daily nobody solo -n x -- job.sh",
    ],
)
def test_a_name_whose_user_or_directory_is_not_certain_gets_no_note(folder, text):
    rows = examine(f"PATH=BIN\n@daily nobody solo -n x -- job.sh\n{text}\n", folder, has_user=True)

    assert "users" not in [list_found(row) for row in rows][-1]


def test_jobs_without_a_lock_file_have_names_of_their_own():
    first, second, third = examine(
        "@daily run-one job.sh a $(date)\n@daily run-one job.sh b $(date)\n@daily pgrep -f x.sh || bash x.sh"
    )

    assert [re.search(r"-n (\S+)", row["use"])[1] for row in (first, second, third)] == ["job.sh", "job.sh-2", "x.sh"]


def test_a_lock_file_with_a_variable_is_another_one_in_each_file():
    tabs = [Source(name, "@daily flock -n /run/x-$A.lock a.sh\n" * 2, None, "alice") for name in ("one", "two")]
    rows = crontab.describe([line for tab in tabs for line in crontab.parse_crontab(tab)], {}, {})

    assert [re.search(r"-n (\S+)", row["use"])[1] for row in rows] == ["x", "x", "x-2", "x-2"]


def test_a_path_without_solo_fails_and_the_suggestion_has_its_path(folder, monkeypatch):
    monkeypatch.setattr(crontab.sys, "argv", [str(folder / "solo")])
    text = "PATH=/nowhere:$PATH\n@daily solo job.sh\n@daily flock -n /run/x job.sh\n@daily PATH=/x solo job.sh"
    first, second, third, fourth = examine(text + "\n@daily solo metrics >/run/solo.prom")

    assert (list_found(first), first["use"]) == ("!path", f"@daily {folder}/solo -- job.sh")
    assert second["use"] == f"@daily {folder}/solo -n x -- job.sh"
    assert list_found(third) == "path"
    assert (list_found(fourth), fourth["use"]) == ("!path", f"@daily {folder}/solo metrics >/run/solo.prom")


def test_a_path_of_solo_that_is_gone_fails_and_the_suggestion_has_the_right_one(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(crontab.sys, "argv", [str(folder / "solo")])
    (tmp_path / "solo").write_text("#!/bin/sh\n")
    gone, other = "/nowhere/solo", tmp_path / "solo"
    lines = f"@daily {gone} -n x job.sh\n@daily nice {other} list\n@daily BIN/solo -n x -- job.sh\n"
    [first, second] = [row for row in examine(lines, folder) if row["findings"]]
    units = examine(f"ExecStart={gone} clean\nExecStart=/opt/%i/solo list\nExecStart=BIN/solo list", folder, True)

    assert first["findings"][0]["text"] == f"{gone} is not there (solo is {folder}/solo)"
    assert second["findings"][0]["text"] == f"{other} is not executable (solo is {folder}/solo)"
    assert [first["use"], second["use"]] == [f"@daily {folder}/solo -n x -- job.sh", f"@daily nice {folder}/solo list"]
    assert [list_found(row) for row in units] == ["!path", "", ""]
    assert units[0]["use"] == f"ExecStart={folder}/solo clean"


def test_a_tab_becomes_a_blank_and_a_control_character_prevents_a_suggestion():
    tab, control, quoted = examine(
        "@daily\tflock\t-n /run/x job.sh\n@daily flock -n /run/x job.sh '\x1b[2J'\n@daily flock -n /run/x job.sh '\t'"
    )

    assert tab["use"].endswith(" -n x -- job.sh")
    assert (control["use"], quoted["use"]) == (None, None)


PERIODS = [
    ("* * * * *", 60),
    ("*/5 * * * *", 300),
    ("0 * * * *", 3600),
    ("0 3 * * *", 86400),
    ("0,10 3 * * *", 600),
    ("55 1,3 * * *", 7200),
    ("0 3 * * 1", None),
    ("@hourly", 3600),
    ("@reboot", None),
    ("*/0 * * * *", None),
    ("99 * * * *", None),
    ("~ * * * *", None),
]


@pytest.mark.parametrize("schedule, seconds", PERIODS)
def test_the_period_of_a_schedule(schedule, seconds):
    assert crontab.find_period(schedule) == seconds


# --- units -----------------------------------------------------------------------------------------------------------

UNIT = "[Service]\nType=exec\n"


def test_an_exec_start_line_gets_a_suggestion_and_a_hint_about_the_status(monkeypatch, folder):
    monkeypatch.setattr(crontab.sys, "argv", [str(folder / "solo")])
    [row] = examine(UNIT + "ExecStart=-/usr/bin/flock -n /run/x \\\n  /usr/bin/job %i\n", is_unit=True)
    [quiet] = examine(UNIT + "ExecStart=/usr/bin/flock -n /run/x job\nSuccessExitStatus=75\n", is_unit=True)

    assert (row["line"], row["use"]) == (3, f"ExecStart=-{folder}/solo -n x -- /usr/bin/job %i")
    assert (list_found(row), list_found(quiet)) == ("callers status", "callers")


def test_a_unit_with_signs_of_a_shell_fails():
    [row] = examine(UNIT + "ExecStart=/usr/bin/flock -n /run/x a && b\n", is_unit=True)

    assert (list_found(row), row["use"]) == ("!shell", None)


def test_a_unit_with_solo_gets_a_hint_unless_it_cannot_skip_or_a_skip_is_a_success(folder):
    calls = ["-E 0 -- /usr/bin/job", "-n x -- /usr/bin/job", "clean --generated", "--dir /x wait x", "hold --pid 1 x"]
    text = UNIT + "".join(f"ExecStart=BIN/solo {call}\n" for call in calls)

    assert [list_found(row) for row in examine(text, folder, is_unit=True)] == ["", "status", "", "", "status"]


def test_a_shell_in_a_unit_is_read():
    [row] = examine(UNIT + "ExecStart=/bin/sh -c 'flock -n /run/x a.sh && echo done'\n", is_unit=True)

    assert row["use"].startswith("ExecStart=/bin/sh -c '") and " -n x -- a.sh && echo done'" in row["use"]


OWNERS = [
    ("system/a.service", "", "root"),
    ("system/a.service", "User=alice\n", "alice"),
    ("system/a.service", "User=alice\nUser=\n# User=bob\n", "root"),
    ("system/a.service", "User=%i\n", ""),
    ("system/a.service", "User=0\n", "root"),
    ("system/a.service", f"User={'9' * 5000}\n", "9" * 5000),
    ("system/with.service", "", ""),
    ("user/a.service", "", ""),
]


@pytest.mark.parametrize("file, text, user", OWNERS)
def test_the_user_of_a_unit_is_certain_or_empty(tmp_path, file, text, user):
    (tmp_path / "system/with.service.d").mkdir(parents=True)
    text = f"[Service]\n{text}ExecStart=solo -- job\nExecStart=+solo -- job\n"

    lines = crontab.parse_unit(Source(str(tmp_path / file), text, None, ""))

    assert [line.user for line in lines] == [user, ""]


# --- the command -----------------------------------------------------------------------------------------------------


def test_doctor_prints_findings_and_the_line_to_use(lab):
    tab = lab.path / "tab"
    tab.write_text("*/5 * * * * flock -n /tmp/x a.sh && b.sh\n@daily job.sh\n")
    before = tab.read_bytes(), tab.stat().st_mtime_ns

    result = lab.run("doctor", "--crontab", tab)

    *findings, use, end = result.stdout.decode().splitlines()
    assert (result.returncode, result.stderr, end) == (1, b"", "1 of 2 commands to change")
    assert [line.split(":")[0] for line in findings] == [f"{state:<5}  {tab}" for state in ("fails", "fails", "note")]
    assert use.startswith("use    */5 * * * * ") and use.endswith(" -n x -- sh -c 'a.sh && b.sh'")
    assert (tab.read_bytes(), tab.stat().st_mtime_ns) == before and not Path(lab.directory).exists()


def test_doctor_exits_with_0_if_nothing_is_wrong(lab):
    with (lab.path / "tab").open("w+") as file:
        file.write("@daily flock -n /run/x job.sh\n")
        file.seek(0)
        result = lab.run("doctor", "--crontab", "-", stdin=file)

    assert result.returncode == 0 and result.stdout.endswith(b"\nnothing wrong in 1 command\n")
    assert result.stdout.startswith(b"note   -:1: ")


def test_json_has_an_object_for_each_line_with_a_finding(lab):
    (lab.path / "tab").write_text("@daily job.sh\n@daily flock -n /tmp/x job.sh\n")

    [row] = json.loads(lab.run("doctor", "--crontab", "--json", lab.path).stdout)

    assert list(row) == ["file", "line", "state", "tool", "call", "lock", "findings", "use"]
    assert (row["line"], row["state"], row["tool"], row["call"], row["lock"]) == (
        2,
        "fails",
        "flock",
        "flock",
        "/tmp/x",
    )
    assert list(row["findings"][0]) == ["state", "check", "text"]


@pytest.mark.parametrize(
    "words, message",
    [
        ("doctor tab", "solo: doctor tab: a FILE needs --crontab or --unit"),
        ("doctor --crontab /nowhere", "solo: cannot read /nowhere: No such file or directory"),
        ("doctor --crontab --unit tab", "solo: --crontab and --unit exclude each other"),
    ],
)
def test_a_wrong_use_is_one_line_and_status_125(lab, words, message):
    result = lab.run(*words.split())

    assert (result.returncode, result.stdout, result.stderr.decode()) == (125, b"", message + "\n")


def test_the_default_is_every_crontab_that_cron_reads(tmp_path, monkeypatch, capsys):
    for place, text in {
        "crontab": "@daily root flock -n /run/1 job.sh\n",
        "cron.d/good": "@daily root flock -n /run/2 job.sh\n",
        "cron.d/bad~": "@daily root flock -n /run/3 job.sh\n",
        "spool/alice": "@daily flock -n /run/4 job.sh\n",
        "bin/crontab": "#!/bin/sh\necho '@daily flock -n /run/5 job.sh'\n",
    }.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)
    (tmp_path / "bin/crontab").chmod(0o755)
    monkeypatch.setattr(crontab, "SYSTEM", str(tmp_path / "crontab"))
    monkeypatch.setattr(crontab, "SYSTEM_DIRECTORY", str(tmp_path / "cron.d"))
    monkeypatch.setattr(crontab, "SPOOLS", (str(tmp_path / "spool"),))
    monkeypatch.setattr(crontab, "UNITS", str(tmp_path / "missing"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    monkeypatch.setattr(crontab.os, "geteuid", lambda: 0)
    assert [list(one)[3] for one in crontab.find_crontabs()] == ["", "", "alice"]
    monkeypatch.setattr(crontab.os, "geteuid", lambda: 65534)
    assert [one.file for one in crontab.find_crontabs()] == [
        str(tmp_path / "crontab"),
        str(tmp_path / "cron.d/good"),
        "crontab -l",
    ]
    assert crontab.run({"crontab": True, "dir": str(tmp_path)}, []) == 0
    assert "crontab -l:1: " in capsys.readouterr().out


@pytest.mark.parametrize("option, place", [("crontab", "spool/nobody:1"), ("unit", "system/a.service:2")])
def test_without_files_crontabs_and_units_are_compared(tmp_path, monkeypatch, capsys, option, place):
    """Only the findings about the kind that was asked for are printed."""
    for file, text in {
        "spool/nobody": "@daily /bin/sh -c 'solo -n backup -- job.sh'\n",
        "system/a.service": "[Service]\nExecStart=solo -n backup -E 0 -- job.sh\n",
        "bin/solo": "",
    }.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    (tmp_path / "bin/solo").chmod(0o755)
    for name in ("SYSTEM", "SYSTEM_DIRECTORY"):
        monkeypatch.setattr(crontab, name, str(tmp_path / "missing"))
    monkeypatch.setattr(crontab, "SPOOLS", (str(tmp_path / "spool"),))
    monkeypatch.setattr(crontab, "UNITS", str(tmp_path / "system"))
    monkeypatch.setattr(crontab, "CRON_PATH", f"{tmp_path}/bin")
    monkeypatch.setattr(crontab.os, "geteuid", lambda: 0)

    assert crontab.run({option: True, "dir": str(tmp_path)}, []) == 0

    found, end = capsys.readouterr().out.splitlines()
    other = {"crontab": f"root ({tmp_path}/system/a.service:2)", "unit": f"nobody ({tmp_path}/spool/nobody:1)"}[option]
    assert found.startswith(f"note   {tmp_path}/{place}: -n backup does not exclude that of {other}: ")
    assert end == "nothing wrong in 1 command"


def test_lines_of_the_spool_are_numbered_as_the_editor_of_crontab_shows_them(tmp_path, monkeypatch):
    """The file of this cron has a header that crontab -l does not print. In a copy elsewhere the header counts."""
    text = "# my jobs\n@daily flock -n /run/x job.sh\n"
    header = (
        "# DO NOT EDIT THIS FILE - edit the master and reinstall.\n"
        "# (/tmp/crontab.V (a) installed on Mon Nov 23 09:00:00 2026)\n"
        "# (Cron version -- $Id: crontab.c,v 2.13 1994/01/17 03:20:37 vixie Exp $)\n"
    )
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/alice").write_text(header + text)
    (tmp_path / "spool/bob").write_text(text)
    (tmp_path / "copy").write_text(header + text)
    monkeypatch.setattr(crontab, "SPOOLS", (str(tmp_path / "spool"),))
    monkeypatch.setattr(crontab, "SYSTEM", str(tmp_path / "missing"))
    monkeypatch.setattr(crontab, "SYSTEM_DIRECTORY", str(tmp_path / "missing"))
    monkeypatch.setattr(crontab.os, "geteuid", lambda: 0)

    found = [*crontab.find_crontabs(), *crontab.read_all([str(tmp_path / "spool/alice"), str(tmp_path / "copy")])]

    assert [line.number for source in found for line in crontab.parse_crontab(source)] == [2, 2, 2, 5]


def test_an_unguarded_line_that_overran_by_the_journal_fails(lab):
    lab.run("-n", "x", "--", "sleep", "0.05")
    lab.run("--", "sleep", "0.05")
    lab.run("-n", "pool", "--slots", "2", "--", "sleep", "0.05")
    (lab.path / "tab").write_text("PATH=/nowhere\n* * * * * A=b /bin/sleep 0.05 >>x\\%y\n")

    quiet = lab.run("doctor", "--crontab", lab.path / "tab")
    journal = lab.find_journal("x")
    journal.write_bytes(re.sub(rb" ran=[\d.]+", b" ran=90.000", journal.read_bytes()))
    loud = lab.run("doctor", "--crontab", lab.path / "tab")

    assert (quiet.returncode, loud.returncode) == (0, 1)
    found, use = loud.stdout.decode().splitlines()[:2]
    text = "/bin/sleep ran for 1m30s, and this line starts it each 1m (put solo -n x -- before the job)"
    assert found == f"fails  {lab.path}/tab:2: {text}"
    assert re.fullmatch(r"use    \* \* \* \* \* A=b (/\S+/)?solo -n x -- /bin/sleep 0\.05 >>x\\%y", use)


def test_an_unguarded_line_gets_the_name_of_the_guarded_one(lab):
    """The line to use is skipped while the other one runs. A pipe gets no such line, as solo would guard only its start."""
    script = lab.path / "report.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    lab.hold("report")
    lab.run("-n", "report", "--", script)
    (lab.path / "tab").write_text(f"@reboot {script}\n@daily {script} | b.sh\n")

    result = lab.run("doctor", "--crontab", "--json", lab.path / "tab")

    first, second = json.loads(result.stdout)
    text = "under solo found another run, but this line is not guarded (put solo -n report -- before the job)"
    assert [row["findings"][0]["text"].endswith(text) for row in (first, second)] == [True, True]
    assert first["use"].endswith(f"solo -n report -- {script}") and second["use"] is None
    assert lab.run(*first["use"].partition("solo ")[2].split()).returncode == 75


NOON = datetime(2026, 11, 23, 12).timestamp()
DEBIAN = """
Nov 23 11:00:01 host CRON[31]: pam_unix(cron:session): session opened for user alice(uid=1000) by (uid=0)
Nov 23 11:00:01 host CRON[32]: (alice) CMD (long.sh % \\303\\251)
Nov 23 11:05:01 host CRON[41]: pam_unix(cron:session): session opened for user alice(uid=1000) by (uid=0)
Nov 23 11:05:01 host CRON[42]: (alice) CMD (long.sh % \\303\\251)
Nov 23 11:07:31 host CRON[31]: pam_unix(cron:session): session closed for user alice
Nov 23 11:08:31 host CRON[41]: pam_unix(cron:session): session closed for user alice
Nov 23 11:09:00 host cron[1]: (CRON) INFO (Running @reboot jobs)
"""


def find_logged(text, user="alice", command="long.sh % é", now=NOON):
    return cron_log.find_logged(cron_log.find_runs(text.split("\n"), now), user, command)


def list_times(runs):
    return [(int(run.start - NOON) // 60, int(run.end - run.start)) for run in runs]


def test_a_session_gives_the_end_of_a_run():
    assert list_times(find_logged(DEBIAN)) == [(-60, 450), (-55, 210)]
    assert find_logged(DEBIAN, user="bob") == find_logged(DEBIAN, command="long.sh") == []


def test_dates_of_rsyslog_and_journalctl_are_read():
    for zone in ("+0000", "+00:00", ".123456+00:00"):
        text = re.sub(r"Nov 23 (\S+)", rf"2026-11-23T\1{zone}", DEBIAN)
        now = datetime(2026, 11, 23, 12, tzinfo=timezone.utc).timestamp()
        assert [round(run.end - run.start) for run in find_logged(text, now=now)] == [450, 210]


def test_a_date_without_a_year_lies_in_the_past():
    runs = find_logged(DEBIAN, now=datetime(2027, 1, 2).timestamp())

    assert list_times(runs) == [(-60, 450), (-55, 210)]


def test_among_several_sessions_the_shortest_counts():
    """The log does not say which of two sessions that began together is that of the command."""
    other = DEBIAN.replace("[31]: pam", "[33]: pam").replace("11:07:31", "11:00:04").split("\n")
    text = "\n".join(sorted(DEBIAN.split("\n") + other, key=lambda line: line[:15]))

    assert [one for _, one in list_times(find_logged(text))][0] == 3


def test_cron_with_pids_and_cronie_log_the_end():
    text = """
Nov 23 11:00:01 host CRON[31]: (alice) CMD ([32] long.sh % \\303\\251)
Nov 23 11:06:01 host CRON[31]: (alice) END ([32] long.sh % \\303\\251)
Nov 23 11:10:01 host CROND[51]: (alice) CMD (long.sh % \\303\\251)
Nov 23 11:11:01 host CROND[51]: (alice) CMDEND (long.sh % \\303\\251)
"""
    assert list_times(find_logged(text)) == [(-60, 360), (-50, 60)]


def test_only_runs_that_certainly_overlapped_count():
    one, two, three = cron_log.LoggedRun(0, 100), cron_log.LoggedRun(60, 90), cron_log.LoggedRun(99, 200)

    assert cron_log.find_overlap([one, two]) == (one, two)
    assert cron_log.find_overlap([one, three]) is None  # for a second: entries have whole seconds
    assert cron_log.find_overlap([one, two, three]) == (one, two)
    assert cron_log.find_overlap([one, cron_log.LoggedRun(0, 80)]) is None  # two equal lines
    assert cron_log.find_overlap([]) is None


def test_running_command_is_found_without_psutil(monkeypatch):
    started = psutil.Process().create_time()
    monkeypatch.setitem(sys.modules, "psutil", None)

    assert cron_log.is_running(cron_log.Entry(started, os.getpid(), "CMD", "alice"))
    assert not cron_log.is_running(cron_log.Entry(started - 60, os.getpid(), "CMD", "alice"))


def test_an_unguarded_line_that_overlapped_by_the_log_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "syslog").write_text(DEBIAN)
    (tmp_path / "tab").write_text("*/5 * * * * long.sh \\% é%input\n@daily solo -- long.sh\n@daily other.sh\n")
    monkeypatch.setattr(cron_log, "LOGS", (str(tmp_path / "syslog"), str(tmp_path / "missing")))
    monkeypatch.setattr(crontab, "find_user", lambda uid: "alice")

    assert crontab.run({"crontab": True, "dir": str(tmp_path)}, [str(tmp_path / "tab")]) == 1

    [found] = [text for text in capsys.readouterr().out.split("\n") if "overlapped" in text]
    assert re.search(
        r"^fails .*tab:1: the runs of Nov 23 11:00:01 and Nov 23 11:05:01 overlapped for 2m30s by cron's log", found
    )


def test_the_journal_of_systemd_is_read_if_no_file_has_entries(tmp_path, monkeypatch):
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncat <<'END'\n{DEBIAN}\nEND\n")
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(cron_log, "LOGS", (str(tmp_path / "missing"),))

    assert "\n".join(cron_log.read_log()).strip() == DEBIAN.strip()
    monkeypatch.setenv("PATH", str(tmp_path / "missing"))
    assert cron_log.read_log() == []


# --- garbage -----------------------------------------------------------------------------------------------------------

PIECES = [
    "flock",
    "lckdo",
    "-n",
    "/run/x",
    "job",
    "&&",
    ";",
    "|",
    ">",
    "'",
    '"',
    "$(",
    ")",
    "`",
    "%",
    "\\",
    "* * * * * ",
]
PIECES += [
    "solo",
    "--",
    "-c",
    "mkdir",
    "[",
    "]",
    "\t",
    "\0",
    "\n",
    "\udcff",
    "é",
    "-",
    "=",
    "sem",
    "--id",
    "#",
    "@daily ",
    "${",
    "&",
]


def test_no_garbage_causes_a_traceback_or_a_line_that_solo_refuses():
    rng, suggested = Random(7), 0
    for _ in range(3000):
        text = "".join(rng.choice(PIECES) + rng.choice(("", " ")) for _ in range(rng.randrange(25)))
        for is_unit in (False, True):
            for row in examine(("ExecStart=" if is_unit else "@daily ") + text, is_unit=is_unit):
                suggested += row["use"] is not None
                assert row["use"] is None or row["use"].isprintable()
    assert suggested > 10


def test_random_bytes_cause_no_traceback(lab):
    rng = Random(8)
    (lab.path / "tab").write_bytes(b"".join(b"* * * * * flock " + rng.randbytes(60) + b"\n" for _ in range(200)))

    result = lab.run("doctor", "--crontab", lab.path / "tab")

    assert result.returncode in (0, 1) and result.stderr == b""


def test_a_line_of_a_megabyte_is_unclear():
    for long in ("a " * 500_000, "a" * 1_000_000, "&& a " * 200_000, "9" * 1_000_000, "$(" * 500_000):
        assert list(map(list_found, examine(f"@daily flock -n /run/x {long}"))) == ["unclear"]


def test_many_brackets_are_unclear():
    for line in ('"$(' * 20000, "$(" * 20000, "`" * 20001):
        with pytest.raises(Unclear):
            split_line(line)


def test_a_suggested_line_is_parsed_by_solo():
    for command in GUARDED:
        [row] = examine(DAILY + command)
        words = row["use"].partition("solo ")[2].split()
        assert not words or parse(words)[2]
