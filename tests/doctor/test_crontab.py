"""doctor --crontab and --unit: what is wrong with a line, and the line to use instead if solo has
the same effect there.

test_oracle.py runs the lines and their suggestions under cron and systemd.
"""

import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from conftest import ROOT, open_to_all, write_program
from written import HOUR, MINUTE, Written

from solo.argv import parse
from solo.commands.doctor import cron_rules, crontab, jobs, place, sandbox, unit_files, units
from solo.commands.doctor.crontab import Source
from solo.commands.doctor.guards import make_name
from solo.commands.doctor.shell_line import Unclear, split_line
from solo.errors import SoloError
from solo.text.tables import format_json

DAILY = "30 2 * * * "
LOCK = "/run/lock/job"
ME = pwd.getpwuid(os.geteuid()).pw_name
FLOCK = "solo -n run:lock:job -q -E 1"
PROGRAMS = ["/usr/bin/solo", "/usr/bin/python3", "/usr/lib/python3", "/usr/lib/solo", "/proc"]
# Of each line: what is found (! before a failure), and the command to use.
REWRITTEN = [
    (f"flock -n {LOCK} job.sh", "callers", f"{FLOCK} -- job.sh"),
    (
        f"flock {LOCK} job.sh --full",
        "callers",
        "solo -n run:lock:job --wait forever -- job.sh --full",
    ),
    (f"flock -w 60 {LOCK} job.sh", "callers", f"{FLOCK} --wait 60 -- job.sh"),
    (f"flock --wait=2.5 {LOCK} job.sh", "callers", f"{FLOCK} --wait 2.5 -- job.sh"),
    (f"flock --nonblock --exclusive {LOCK} job.sh", "callers", f"{FLOCK} -- job.sh"),
    (
        f"flock -s {LOCK} job.sh",
        "callers",
        "solo -n run:lock:job --wait forever --shared -- job.sh",
    ),
    (f"flock -n -E 0 {LOCK} job.sh", "callers", "solo -n run:lock:job -q -E 0 -- job.sh"),
    (f"flock -nE 9 {LOCK} job.sh", "callers", "solo -n run:lock:job -q -E 9 -- job.sh"),
    (f"flock -n {LOCK} -c 'a.sh && b.sh'", "callers", f"{FLOCK} -- /bin/sh -c 'a.sh && b.sh'"),
    (f'flock -n {LOCK} -c "job.sh --x"', "callers", f'{FLOCK} -- /bin/sh -c "job.sh --x"'),
    (f"flock -n -o {LOCK} job.sh", "!overlap callers", f"{FLOCK} -- job.sh"),
    (f"flock --fcntl -n {LOCK} job.sh", "callers", f"{FLOCK} -- job.sh"),
    ("flock -n '/var/lock/job' job.sh", "callers", f"{FLOCK} -- job.sh"),
    (
        "flock -n /var/x/../lock/a-b.lck job.sh",
        "callers",
        "solo -n run:lock:a-b.lck -q -E 1 -- job.sh",
    ),
    ("flock -n /tmp/job.lock job.sh", "!tmp callers", "solo -n tmp:job.lock -q -E 1 -- job.sh"),
    # the words around the guard stay
    (f"cd / && flock -n {LOCK} job.sh", "callers", f"cd / && {FLOCK} -- job.sh"),
    (f"LANG=C A='x y' flock -n {LOCK} job.sh", "callers", f"LANG=C A='x y' {FLOCK} -- job.sh"),
    (
        f"ionice -c2 -n7 nice flock -n {LOCK} job.sh",
        "callers",
        f"ionice -c2 -n7 nice {FLOCK} -- job.sh",
    ),
    (f"timeout -k 5 1h flock -n {LOCK} job.sh", "callers", f"timeout -k 5 1h {FLOCK} -- job.sh"),
    (f"env A=b flock -n {LOCK} nice job.sh", "callers", f"env A=b {FLOCK} -- nice job.sh"),
    (
        f"flock -n {LOCK} job.sh 'a b' \"c\" d\\ e",
        "callers",
        f"{FLOCK} -- job.sh 'a b' \"c\" d\\ e",
    ),
    (f"flock -n {LOCK} job.sh & # nightly", "callers", f"{FLOCK} -- job.sh & # nightly"),
    (
        rf"flock -n {LOCK} job.sh $(date +\%F) %in",
        "callers",
        rf"{FLOCK} -- job.sh $(date +\%F) %in",
    ),
    (f"flock -n {LOCK} a.sh | logger -t a", "callers", f"{FLOCK} -- a.sh | logger -t a"),
    (f"flock -n {LOCK} a.sh && b.sh", "partial callers", f"{FLOCK} -- a.sh && b.sh"),
    (f"flock -n {LOCK} a.sh; b.sh | c.sh", "partial callers", f"{FLOCK} -- a.sh; b.sh | c.sh"),
    (f"(cd / && flock -n {LOCK} job.sh) 2>&1", "callers", f"(cd / && {FLOCK} -- job.sh) 2>&1"),
    (f"sh -c 'flock -n {LOCK} job.sh'", "callers", f"sh -c '{FLOCK} -- job.sh'"),
    (
        f"if flock -n {LOCK} true; then job.sh; fi",
        "partial callers",
        f"if {FLOCK} -- true; then job.sh; fi",
    ),
    (f"{{ flock -n {LOCK} a.sh; }} & ", "callers", f"{{ {FLOCK} -- a.sh; }} &"),
    # other tools
    (f"lckdo -e -q -W 60 {LOCK} job.sh", "callers", "solo -n run:lock:job -q --wait 60 -- job.sh"),
    (f"setlock -n {LOCK} job.sh", "callers", "solo -n run:lock:job -E 111 -- job.sh"),
    (f"setlock -nx {LOCK} job.sh", "callers", "solo -n run:lock:job -q -E 0 -- job.sh"),
    (f"s6-setlock -n -r {LOCK} job.sh", "callers", None),
    (f"chpst -l {LOCK} job.sh", "callers", "solo -n run:lock:job --wait forever -- job.sh"),
    (f"with-lock-ex -q {LOCK} job.sh", "callers", "solo -n run:lock:job -q -E 0 -- job.sh"),
    (
        f"runlock -t 0 -f {LOCK} -- job.sh",
        "callers",
        "solo -n run:lock:job -q -E 73 --wait forever -- job.sh",
    ),
    (
        "run-one job.sh --full",
        "callers",
        "solo -n run-one:job.sh-b14aa7e6 -q -E 1 -- job.sh --full",
    ),
    ("solo -silent -port=2037 job.sh", "callers", "solo -n port-2037 -q -E 0 -- job.sh"),
]
# What is found in lines that are not rewritten.
KEPT = [
    # the same effect is not certain
    ("flock -n /a/x a.sh; flock -n /b/x b.sh", "unclear"),
    (f"flock -n {LOCK} -- job.sh", "unclear"),
    (f"flock -n --verbose {LOCK} job.sh", "unclear"),
    (f"flock -u {LOCK} job.sh", "unclear"),
    (f"flock $OPTIONS {LOCK} job.sh", "none"),
    ("flock -n lock job.sh", "none"),
    ("flock -n /run/x-$A.lock job.sh", "none"),
    ("flock -n /run/a:b job.sh", "none"),
    (r"flock -n /run/job.$(date +\%F) job.sh", "none"),
    ("flock -n /run/job.$$ job.sh", "!changing none"),
    (f"flock -n {LOCK} -c 'job.sh &'", "none"),
    (f"flock -n {LOCK} start-stop-daemon -S -b -x job.sh", "none"),
    (f"(flock -n 9 || exit 1; job.sh) 9>{LOCK}", "unclear"),
    (f"sudo flock -n {LOCK} job.sh", "unclear"),
    (f"su - alice -c 'flock -n {LOCK} job.sh'", "unclear"),
    (f'sh -c "flock -n {LOCK} job.sh"', "unclear"),
    (f"SOLO_DIR=/x flock -n {LOCK} job.sh", "none"),
    ("run-one job.sh $HOME", "unclear"),
    ("run-this-one job.sh", "unclear"),
    ("sem --fg --id job -j 4 job.sh", "unclear"),
    (f"lockrun --lockfile={LOCK} -- job.sh", "unclear"),
    ("solo -silent -port=$P job.sh", "unclear"),
    ('solo -n "job -- job.sh', "unclear"),
    ("for name in a b; do solo -n $name -- job.sh; done", "unclear"),
    ("cronic solo -silent -port=2037 job.sh", "unclear"),
    (f"flock -n {LOCK} job.sh $(date +%F)", "!percent unclear"),
    ('job.sh "$(date +%F)"', "!percent"),
    (f"SHELL=/x flock -n {LOCK} -c job.sh", "unclear"),
    # locks made by hand, and searches for processes
    ("pgrep -x myd || /x/myd/start.sh", "race"),
    ("pgrep X || (cd D && job)", "race"),
    ("if ! pgrep -f job.sh >/dev/null; then job.sh --x; fi", "race"),
    ("ps ax | grep -q '[j]ob.sh' || job.sh", "race"),
    ("pidof dropd || /usr/sbin/dropd", "race"),
    ("kill -0 $(cat /run/x.pid) || job.sh", "race"),
    ("mkdir /run/x.lock && job.sh; rmdir /run/x.lock", "stale"),
    ("mkdir D && (job; rmdir D)", "stale"),
    ("if mkdir /run/x.lock; then job.sh; rmdir /run/x.lock; fi", "stale"),
    ("ln -s $$ /run/x.lock && job.sh", "stale"),
    ("[ -f /run/x.lock ] || job.sh", "stale"),
    ("test -e /run/x.lock && exit; echo $$ > /run/x.lock; job.sh; rm /run/x.lock", "stale"),
    ("if [ ! -x /var/lock/x ]; then job.sh; fi", "stale"),
    # nothing is started
    ("ps aux | grep '[X]' && echo gone | mail -s x root", ""),
    ("pgrep x || echo 'not running'", ""),
    ("pgrep x >/dev/null || { echo no | logger; exit 1; }", ""),
    ("pidof x 2>&1 >/dev/null || ( export D=/x && x & )", "race"),
    # programs found through a variable
    ('"$TOOLS/bin/run-with-lockfile.sh" -n LOCK job', "wrapper"),
    ("$TOOLS/run-with-lockfile.sh -n LOCK job", "wrapper"),
    ('"$HOME/bin/solo" -n x', "!usage"),
    ("~/bin/solo -n x -- job.sh", ""),
    ('"$HOME/bin/solo" --slots 2 --take 1 -n x -- job.sh', "option"),
    # wrappers that are not known
    ("cronlock job.sh", "wrapper"),
    ("/opt/lock-wrapper -t 5 job.sh", "wrapper"),
    # solo
    ("solo -- job.sh", ""),
    ("solo -n job -- job.sh && echo done", ""),
    ("solo a.sh && b.sh", "partial"),
    (r"solo -- job.sh $(date +\%F)", "!changing"),
    (r"solo -n job -- job.sh $(date +\%F)", ""),
    ("solo --wiat 3 job.sh", "!usage"),
    ("solo --flock /tmp/x -n job -- job.sh", "!tmp"),
    # nothing to say
    ("job.sh", ""),
    ("pidof sshd || service ssh start", ""),
    ("pgrep x && pkill x", ""),
    ("mkdir -p /run/lock/x && job.sh", ""),
    ("mkdir /srv/x && job.sh", ""),
    ("[ -x /usr/sbin/anacron ] || job.sh", ""),
    ("mail -s x alice %hello", ""),
    ("test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, solo_script):
    """A directory for PATH with solo."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "solo").symlink_to(solo_script)
    for job in ("job.sh", "a.sh", "b.sh"):
        (folder / job).symlink_to("/bin/true")
    return folder


@pytest.fixture(autouse=True)
def ours(folder, monkeypatch):
    """This solo is that of the directory, its program that of a package; users are tried afresh."""
    monkeypatch.setattr(place.sys, "argv", [str(folder / "solo")])
    monkeypatch.setattr(sandbox, "list_programs", lambda: PROGRAMS)
    monkeypatch.setattr(jobs, "UNIT_PATH", f"{jobs.UNIT_PATH}:{folder}")
    place.find_place.cache_clear()
    yield
    place.find_place.cache_clear()


def describe(lines):
    """Return the rows as --json prints them."""
    return json.loads(format_json(list(jobs.describe(lines))))


def examine(text, folder="/nowhere", is_unit=False, has_user=None, file="tab", user=ME):
    source = Source(str(file), text.replace("BIN", str(folder)), has_user, user)
    lines = units.parse_unit([source]) if is_unit else crontab.parse_crontab(source)
    return describe(list(lines))


def list_found(row):
    return " ".join(
        ("!" if one["state"] == "fails" else "") + one["check"] for one in row["findings"]
    )


def find_text(row):
    return row["findings"][-1]["text"]


@pytest.mark.parametrize("command, found, use", REWRITTEN)
def test_only_the_words_of_the_guard_are_replaced(folder, command, found, use):
    [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}{command}\n", folder)

    assert list_found(row) == found
    assert use is None or row["use"] == DAILY + use
    assert parse(row["use"].partition("solo ")[2].split())[2]


@pytest.mark.parametrize("command, found", KEPT)
def test_other_lines_get_a_note_or_nothing(folder, command, found):
    [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}{command}\n", folder)

    assert (list_found(row), row["use"]) == (found, None)


def test_two_lock_files_never_have_one_name():
    """In one run or in two: the name depends on nothing but the path, and tells its parts apart."""
    rng = Random(5)
    paths = {
        "".join(
            f"/{rng.choice(('a', 'b', '-', 'a-b', 'a.lock', '_'))}"
            for _ in range(rng.randrange(1, 5))
        )
        for _ in range(4000)
    }
    names = [name for path in paths if (name := make_name(path))]

    assert len(set(names)) == len(names) > 200 and all(
        parse(["-n", name, "--", "x"]) for name in names
    )
    assert (
        make_name("/srv/app1/import.lock")
        == "srv:app1:import.lock"
        != make_name("/srv/app2/import.lock")
    )


def test_words_of_run_one_make_different_names(folder):
    lines = "".join(
        f"@daily run-one {words}\n" for words in ("a/job x", "b/job x", "a/job y", "a/job x")
    )
    first, second, third, again = (row["use"] for row in examine("PATH=BIN\n" + lines, folder))

    assert len({one.split(" -- ")[0] for one in (first, second, third)}) == 3 and first == again


# --- the user-------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_user_who_cannot_keep_names_gets_no_line_to_use_but_the_error_of_a_run(common):
    """The same user whose line has solo already gets a failure. With a place the line to use is
    printed.
    """
    lines = "@daily nobody flock -n /run/x a.sh\n@daily nobody solo -- a.sh\n"
    (common.path / "tab").write_text(
        f"PATH={common.path}\n{lines}SOLO_DIR={common.path}/own\n{lines}"
    )
    solo = common.path / "solo"
    solo.symlink_to(common.script)
    (common.path / "a.sh").symlink_to("/bin/true")
    open_to_all(common.path)
    (common.path / "own").mkdir()
    shutil.chown(common.path / "own", "nobody")
    del common.environment["SOLO_DIR"]
    common.script = str(solo)

    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    error = common.run("--", "true", prefix=become).stderr.decode()
    doctor = [
        sys.executable,
        solo,
        "doctor",
        "--crontab",
        "--json",
        common.path / "tab",
    ]  # Debian's may lack typer
    rows = json.loads(subprocess.run(doctor, env=common.environment, capture_output=True).stdout)

    reason = error.partition(": cannot create /nonexistent/.local: ")[2].strip()
    why = f"solo cannot run as nobody: cannot create /nonexistent/.local: {reason}"
    assert reason and [find_text(row) for row in rows[:2]] == [f"no line to use: {why}", why]
    assert [(row["use"], row["state"]) for row in rows[:2]] == [(None, "note"), (None, "fails")]
    assert rows[2]["use"] == "@daily nobody solo -n run:x -q -E 1 -- a.sh" and len(rows) == 3


@pytest.mark.root
@pytest.mark.parametrize("words", ["--dir $DIR", "--via redis://h", "--dir /tmp"])
def test_a_line_whose_names_are_elsewhere_is_not_judged_by_the_home_of_its_user(
    common, words, monkeypatch
):
    monkeypatch.setattr(place.sys, "argv", [common.script])
    rows = examine(
        f"@daily nobody SOLO_DIR=/x solo job\n@daily nobody solo {words} job\n", has_user=True
    )

    assert all("/nonexistent" not in str(row) for row in rows)


@pytest.mark.root
def test_a_user_who_is_missing_or_cannot_execute_solo_gets_no_line_to_use(
    tmp_path, monkeypatch, solo_script
):
    (tmp_path / "solo").symlink_to(solo_script)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(place.sys, "argv", [str(tmp_path / "solo")])
    first, second = examine(
        "@daily nobody flock -n /run/x a\n@daily nobody-here flock -n /run/y b", has_user=True
    )

    assert find_text(first).startswith(
        f"no line to use: solo cannot run as nobody: cannot execute {tmp_path}/solo"
    )
    assert (find_text(second), second["use"]) == (
        "no line to use: this machine has no user nobody-here",
        None,
    )


def test_lines_of_two_users_who_lock_one_file_are_not_rewritten(folder):
    lines = (
        f"{ME} flock -n /run/lock/x a.sh",
        "bin lckdo -e /var/lock/x b.sh",
        f"{ME} flock -n /run/y c.sh",
    )
    rows = examine("".join(f"@daily {line}\n" for line in lines), has_user=True)

    assert find_text(rows[0]).startswith("no line to use: lines of several users lock /run/lock/x")
    assert rows[2]["use"]


def test_one_lock_file_by_two_paths_makes_one_name(folder, tmp_path):
    """The name of a line alone is that of its path as typed: where the link leads later makes no
    other name.
    """
    (tmp_path / "releases/5").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/5")
    current, release = f"{tmp_path}/current/cron.lock", f"{tmp_path}/releases/5/cron.lock"
    lines = f"@daily flock -n {current} a\n@daily flock -n {release} b\n@daily flock -n {tmp_path}/cron.lock c\n"

    for _ in ("no file", "a file"):
        uses = [row["use"] for row in examine(lines)]
        assert [
            f" -n {make_name(path)} -q" in use
            for path, use in zip((release, release, f"{tmp_path}/cron.lock"), uses)
        ]
        assert [f" -n {make_name(release)} -q" in use for use in uses] == [True, True, False]
        Path(release).touch()
    assert f" -n {make_name(current)} -q" in examine(lines.splitlines()[0])[0]["use"]


def test_home_is_that_of_the_user_unless_the_crontab_sets_it():
    home = pwd.getpwnam(ME).pw_dir
    name = make_name(f"{home}/x.lock")
    text = "@daily flock -n {} a\n"
    locks = ("~/x.lock", "$HOME/x.lock", '"${HOME}/x.lock"', '"$HOME/x.lock"')
    uses = [examine(text.format(lock))[0]["use"] for lock in locks]

    assert [f"-n {name} " in str(use) for use in uses] == [True, True, False, True]
    assert [row["use"] for row in examine("HOME=/x\n" + text.format("~/x.lock"))] == [None]


OTHER = "nobody" if ME == "root" else ME
SAME = [
    # Of root and of alice: the options of solo, and the note that they do not exclude each other.
    ("-n x", "-n x", "users"),
    ("-n x", "-n y", ""),
    ("-n x -n y", "-ny", "users"),
    ("-n x", "", ""),
    ("--dir /srv/names -n x", "-n x --dir=/srv/names/", ""),
    ("--dir /srv/names -n x", "-n x", "directories"),
    ("--dir $DIR -n x", "-n x", ""),
    ("--flock /run/lock/x -n x", "--flock /var/lock/x -n x", ""),
    ("--flock /run/lock/x -n x", "--fcntl /run/lock/x -n x", "users"),
    ("--flock /run/a -n x", "--flock /run/b -n x", "users"),
    ("--shared -n x", "--shared -n x", ""),
    ("--shared -n x", "-n x", "users"),
    ("--via redis://h -n x", "--via redis://h -n x", ""),
    ("$OPTIONS -n x", "-n x", ""),
    ("-n x-$A", "-n x-$A", ""),
    ("-n x-\\%i", "-n x-\\%i", ""),
]


@pytest.mark.parametrize(
    "first, second, checks",
    [
        ("cd /srv/a && solo -- php artisan run", "cd /srv/b && solo -- php artisan run", {"twins"}),
        ("solo -- /x/job a", "solo -q -- /x/job a", {"twins"}),
        ("solo -- /x/job a", "solo -- /x/job b", set()),
        (
            "cd /srv/a && solo -n a -- php artisan run",
            "cd /srv/b && solo -n b -- php artisan run",
            set(),
        ),
        ("cd /srv/a && solo -- ./run", "cd /srv/b && solo -- ./run", set()),
    ],
)
def test_lines_without_a_name_that_skip_each_other_get_a_note(folder, first, second, checks):
    (folder / "crontab").write_text(f"PATH={os.environ['PATH']}\n{DAILY}{first}\n{DAILY}{second}\n")

    rows = describe(jobs.list_lines([str(folder / "crontab")], False))

    for row in rows:
        assert {finding["check"] for finding in row["findings"]} & {"twins"} == checks


@pytest.mark.parametrize("first, second, check", SAME)
def test_the_same_name_of_two_users_gets_a_note_unless_they_share_the_lock(
    folder, first, second, check
):
    lines = [
        f"@daily {user} solo {words} -- job.sh"
        for user, words in (("root", first), (OTHER, second))
    ]
    rows = examine("\n".join(["PATH=BIN", *lines]), folder, has_user=True)

    checks = [[one["check"] for one in row["findings"]] for row in rows]
    assert [{"users", "directories"} & {*one} for one in checks] == [{check} - {""}] * 2
    assert all(
        (f"{OTHER} (tab:3)" in find_text(row)) == (row["line"] == 2)
        for row in rows
        if check == "users"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SOLO_DIR=/srv/$NAMES\n@daily root solo -n x -- job.sh",
        "@daily root SOLO_DIR=/srv/names solo -n x -- job.sh",
        "@daily root sudo -u nobody solo -n x -- job.sh",
        "@daily nobody solo -n x -- job.sh",
    ],
)
def test_a_name_whose_user_or_directory_is_not_certain_gets_no_note(folder, text):
    rows = examine(f"PATH=BIN\n@daily nobody solo -n x -- job.sh\n{text}\n", folder, has_user=True)

    assert list_found(rows[-1]) not in ("users", "directories")


ONE_NAME = {
    # A variable before the second line, the options of the first one, and the note.
    "one directory": ("SOLO_DIR=/srv/names", "--dir /srv/names/ -n x", ""),
    "the default directory": ("SOLO_DIR=/run/solo", "-n x", ""),
    "two directories": ("SOLO_DIR=/srv/names", "--dir /srv/other -n x", "directories"),
    "a link": ("SOLO_DIR=LINK", "--dir REAL -n x", ""),
    "another shared lock file": (
        "SOLO_DIR=/srv/names",
        "--dir /srv/other -n x --shared",
        "directories",
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("case", ONE_NAME)
def test_one_name_in_two_directories_gets_a_note(folder, tmp_path, case):
    variable, options, check = ONE_NAME[case]
    (tmp_path / "link").symlink_to(tmp_path)
    text = f"PATH=BIN\n@daily root solo {options} -- job.sh\n{variable}\n@daily root solo -n x -- job.sh\n"
    rows = examine(
        text.replace("LINK", f"{tmp_path}/link").replace("REAL", str(tmp_path)),
        folder,
        has_user=True,
    )

    assert [[one["check"] for one in row["findings"]] for row in rows] == [
        [check] * bool(check)
    ] * 2
    if check:
        assert rows[0]["findings"][-1]["text"].startswith(
            "-n x does not exclude that of tab:4 (/srv/names, of root): "
        )


def test_a_long_file_is_read_in_a_time_that_grows_with_its_length(folder):
    """A line has the variables that are read, and names three of the lines with its words."""
    variables = "".join(f"A{number}=1\n" for number in range(10_000))
    rows = examine(f"{variables}PATH=BIN\n" + "@daily solo /bin/true\n" * 100, folder)
    [line] = crontab.parse_crontab(Source("tab", variables + "@daily job", False, ME))

    assert not line.variables and {list_found(row) for row in rows} == {"twins"}
    assert "that of tab:10002, tab:10003, tab:10004 and 96 more: " in find_text(rows[-1])
    assert "that of tab:10003, tab:10004, tab:10005 and 96 more: " in find_text(rows[0])


@pytest.mark.root
def test_a_long_list_of_one_name_is_compared_once_for_each_place(folder):
    """Not each line with each other one."""
    lines = list(
        crontab.parse_crontab(Source("tab", "@daily root solo -n x -- a\n" * 3000, True, "root"))
    )
    lines += crontab.parse_crontab(
        Source("tab", "@daily nobody solo -n x -- a\n" * 3000, True, "root")
    )
    groups = {}
    for line in lines:
        for key, difference in jobs.list_keys(line):
            groups.setdefault(key, {}).setdefault(difference, line)

    assert [len(group) for key, group in groups.items() if key[0] == "name"] == [2]


# --- crontabs-------------------------------------------------------------------------------------


def test_both_formats_schedules_variables_and_comments_are_read(folder):
    text = f"""# a comment
MAILTO=""
SHELL=/bin/bash
PATH=BIN:/usr/bin
* * * * * {ME} flock -n {LOCK} -c a.sh
@reboot\t{ME}\tflock -n /run/x job.sh
*/5 1-7 * jan,FEB mon-fri {ME} nice flock -n /run/y job.sh

"""
    rows = examine(text, folder, has_user=True)

    assert [(row["line"], row["use"]) for row in rows] == [
        (5, f"* * * * * {ME} {FLOCK} -- /bin/bash -c a.sh"),
        (6, f"@reboot {ME} solo -n run:x -q -E 1 -- job.sh"),
        (7, f"*/5 1-7 * jan,FEB mon-fri {ME} nice solo -n run:y -q -E 1 -- job.sh"),
    ]


OTHER_CRONS = "H * * * * j|@every 5m j|@every_minute j|%%daily * 3 j|&bootrun 5 * * * * j|0 */5 * * * * flock -n x j"


@pytest.mark.parametrize("line", OTHER_CRONS.split("|"))
def test_a_line_of_another_cron_is_said_to_be_not_read(line):
    row, _ = examine(f"{line}\n@daily job\n")

    assert (list_found(row), row["line"]) == ("unread", 1)


def test_a_carriage_return_reaches_the_command():
    rows = examine("@daily flock -n /run/x job\r\n@daily job\r\n")

    assert [(list_found(row), row["use"]) for row in rows] == [("!cr callers", None), ("!cr", None)]


def test_busybox_takes_a_percent_sign_as_itself(tmp_path, monkeypatch):
    text = '@daily job.sh "$(date +%F)"\n'
    before = examine(text)
    (tmp_path / "busybox").touch(0o755)
    (tmp_path / "crond").symlink_to(tmp_path / "busybox")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert [list_found(row) for row in before + examine(text)] == ["!percent", ""]


WORDS = "* */0 */5 5 05 5-10 5-10/3 5-1 5/10 61 0 7 8 12 13 24 31 32 59 60 jan DEC january mon sun sat-sun moon 1-jan 5- 5/".split()
WORDS += "1,2 1,,2 1, ,1 *5 *-5 5L 1.5 mon#1 5~7 -5 ? 1-5/0 1-5/99 */61 0-8 0-8/9 x 1-5-7 */5/2 a,b 1,60 61-5 5-61/99 70-65 9-8".split()


@pytest.mark.tool("crontab")
def test_a_field_is_refused_as_crontab_of_debian_refuses_it(tmp_path):
    check = ["crontab", "-n", tmp_path / "tab"]
    (tmp_path / "tab").write_text("* * * * * true\n")
    if subprocess.run(check, capture_output=True).returncode:
        pytest.skip("needs the crontab of Debian 12 or later")
    found, expected = {}, {}
    for at, (_, lowest, highest, names) in enumerate(cron_rules.FIELDS):
        for word in WORDS:
            times = " ".join([*["*"] * at, word, *["*"] * (4 - at)])
            (tmp_path / "tab").write_text(f"{times} true\n")
            expected[times] = subprocess.run(check, capture_output=True).returncode != 0
            found[times] = cron_rules.is_refused(word, lowest, highest, list(names))

    assert found == expected and {*found.values()} == {True, False}


@pytest.mark.tool("crontab")
def test_a_field_is_refused_as_cronie_refuses_it(tmp_path):
    version = subprocess.run(["crontab", "-V"], capture_output=True, text=True)
    if not (version.stdout + version.stderr).startswith("cronie"):
        pytest.skip("needs the crontab of cronie")
    words = {*WORDS, "5~", "~5", "~", "9~5", "5~7/2", "fri-sun", "fri-sun/2", "1-2-3", "a~b", "*/"}
    found, expected = {}, {}
    for times in [
        " ".join([*["*"] * at, word, *["*"] * (4 - at)]) for at in range(5) for word in words
    ]:
        (tmp_path / "tab").write_text(f"{times} true\n")
        check = subprocess.run(["crontab", "-T", tmp_path / "tab"], capture_output=True)
        expected[times] = check.returncode != 0
        found[times] = bool(cron_rules.refuse_times(times, cron_rules.CRONIE))

    assert found == expected and {*found.values()} == {True, False}


@pytest.mark.root  # the file would have another owner than cron wants
def test_cronie_skips_the_line_and_debian_the_file(tmp_path, monkeypatch):
    text, file = (
        "61 * * * * root job\n@every_minute root job\n@daily nobody-here job\n@daily root a",
        tmp_path / "a.b",
    )
    file.write_text(text)
    monkeypatch.setattr(crontab, "SYSTEM_DIRECTORY", str(tmp_path))
    found = {}
    for cron in (cron_rules.DEBIAN, cron_rules.CRONIE, cron_rules.BUSYBOX):
        monkeypatch.setattr(crontab, "find_cron", lambda: cron)
        rows = describe(list(crontab.parse_crontab(Source(str(file), text, True, ME, True))))
        found[cron] = [
            one["text"] for row in rows for one in row["findings"] if one["state"] == "fails"
        ]

    debian, cronie = found[cron_rules.DEBIAN], found[cron_rules.CRONIE]
    assert [" ignores " in text for text in debian] == [True] * 4 and " characters " in debian[3]
    assert [" skips this line" in text for text in cronie[:3]] == [True] * 3
    assert cronie[3:] == ["cron ignores this line, the last one, has no newline (add one)"]
    assert found[cron_rules.BUSYBOX] == ["cron refuses 61 as minute"]


@pytest.mark.root
@pytest.mark.parametrize("mode, reason", [(0o755, "its mode"), (0o646, "other users"), (0o600, "")])
def test_a_file_is_refused_as_cronie_refuses_it(tmp_path, mode, reason):
    (tmp_path / "a.b").touch()
    (tmp_path / "a.b").chmod(mode)
    os.link(tmp_path / "a.b", tmp_path / "c")

    said = cron_rules.refuse_file(str(tmp_path / "a.b"), True, cron_rules.CRONIE)

    assert said.startswith(reason) and bool(said) == bool(reason)


def test_a_crontab_in_the_place_of_busybox_is_that_of_a_user_without_percent_signs(tmp_path):
    place = tmp_path / "etc/crontabs"
    place.mkdir(parents=True)
    (place / "root").write_text('@daily job.sh "$(date +%F)"\n')
    (tmp_path / "root").write_text('@daily job.sh "$(date +%F)"\n')
    [[own], [copy]] = [
        list(crontab.parse_crontab(crontab.read_source(str(folder / "root"))))
        for folder in (place, tmp_path)
    ]

    assert (own.user, own.advice.findings) == ("root", ()) and copy.advice.findings


REFUSED_BY_CRON = {
    # Of a line, in a copy and where Debian's cron reads it: what is found.
    "61 * * * * job": ("!time", "!time"),
    "* * * 1-13 * job": ("!time", "!time"),
    "*/0 * * * * job": ("!time", "!time"),
    "5/10 * * * * job": ("", "!time"),
    "0 0 5L * * job": ("", "!time"),
    "@every_minute job": ("unread", "!unread"),
    "@quarterly job": ("unread", "!unread"),
    "@dayly job": ("!unread", "!unread"),
    "* * * *": ("unread", "!unread"),
    "* * * * =4 job": ("unread", "!unread"),
    "{% if a == 'b' %}": ("unread", "!unread"),
    "* * * * * * job": ("unread", "!unread"),
    "* * * * * 1 job": ("unread", "unread"),
    "@Daily job": ("!unread", "!unread"),
    "@ 30 job": ("unread", "!unread"),
    "H * * * * job": ("unread", "!unread"),
    "A.B=c": ("unread", "unread"),
    "MAILTO= ": (None, "!unread"),
    'MAILTO=""': (None, None),
    "* * * * *": ("unread", "unread"),
    f"* * * * * job {'x' * 995}": ("", "!time"),
    f"* * * * * job {'x' * 994}": ("", ""),
    "* * * * * root job": ("!user", "!user"),
    "* * * * * root": ("", ""),
    "* * * * * rooted job": ("", ""),
    "* * * * * sync x": ("", ""),
}


@pytest.mark.parametrize("line", REFUSED_BY_CRON)
def test_a_line_that_cron_refuses_fails(monkeypatch, line):
    """A copy may be for another cron. Debian's cron ignores the whole file."""
    for module in (crontab, cron_rules):
        monkeypatch.setattr(module, "find_cron", lambda: cron_rules.DEBIAN)
    sources = [
        Source("tab", f"@daily job\n{line}\n", False, ME, is_read) for is_read in (False, True)
    ]
    rows = [
        row
        for source in sources
        for row in describe(list(crontab.parse_crontab(source)))
        if row["line"] == 2
    ]

    assert tuple(map(list_found, rows)) == tuple(
        one for one in REFUSED_BY_CRON[line] if one is not None
    )


@pytest.mark.root  # other users' lines are judged by root only
def test_a_column_of_users_is_recognized(folder):
    with_users = examine(
        f"* * * * * root flock -n /run/x job.sh\n@daily {ME} flock -n /run/y job.sh"
    )
    without = examine("* * * * * root flock -n /run/x job.sh\n@daily flock -n /run/y job.sh")
    *_, unknown = examine(
        f"@daily root job\n@daily {ME} job\n@daily nobody-here flock -n /run/y job.sh"
    )

    *_, foreign = examine(
        "@daily game /srv/a\n@daily game /srv/b\n@daily game c\n@daily root flock -n /run/x d"
    )

    assert foreign["use"].startswith("@daily root ") and list_found(foreign) == "callers"
    assert find_text(unknown) == "no line to use: this machine has no user nobody-here"
    assert list(map(list_found, with_users))[1] == list_found(without[1]) == "callers"
    assert list_found(without[0]) == "!user unclear"


def test_a_path_without_solo_fails_and_the_suggestion_has_its_path(folder):
    text = "PATH=/nowhere:$PATH\n@daily solo job.sh\n@daily flock -n /run/x job.sh\n@daily PATH=/x solo other.sh\n"
    first, second, third = examine(text, folder)
    [fourth] = examine("PATH=BIN\n@daily . /etc/profile; flock -n /run/x job.sh", folder)

    assert (list_found(first), first["use"]) == ("!path path command", None)
    assert (
        first["findings"][0]["text"]
        == f"cron does not find solo in the PATH of this line (write {folder}/solo)"
    )
    assert second["use"] == f"@daily {folder}/solo -n run:x -q -E 1 -- job.sh"
    assert list_found(third) == "path"
    assert fourth["use"] == f"@daily . /etc/profile; {folder}/solo -n run:x -q -E 1 -- job.sh"


REFUSED = {
    "-n a --loud-after 3 -- date": "--loud-after needs --quiet, --busy-exit or --notify",
    "-n a && echo b": "no command given: a is the value of -n (see solo --help)",
    "-q -n a": "no command given: a is the value of -n (see solo --help)",
    "-n a --latest true": "--latest needs --wait",
    "-n a --latest --replace -w 5 true": "--latest and --replace exclude each other",
    "-n a -s --slots 2 true": "--shared and --slots exclude each other",
    "-n a --slots 2,3 true": "K of --slots must be at least 1 and at most N",
    "-n a --timeout 0 true": "--timeout must be more than 0",
    "-n a -n b --once-per 1d true": "--once-per: give one name",
    "-n /a true": "/a: a name is not a path (is a variable unset? to lock a file use --flock /a)",
    "-n .x true": ".x: a part of a name may not be empty or start with a dot",
    "--via redis://h true": "a name made from the command can differ between hosts (choose one with -n NAME)",
    "-n a --timout 5 true": "--timout: no such option (did you mean --timeout?)",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_line_that_each_run_refuses_fails(folder, words, lab):
    [row] = examine(f"PATH=BIN:/usr/bin:/bin\n{DAILY}solo {words}\n", folder)
    run = lab.run(*shlex.split(words.partition(" &&")[0]))

    assert [one["text"] for one in row["findings"] if one["state"] == "fails"] == [
        f"solo refuses this line: {REFUSED[words]}"
    ]
    assert (run.returncode, run.stderr.decode()) == (125, f"solo: {REFUSED[words]}\n")


def test_variables_and_programs_of_a_line_count(folder):
    tab = "PATH=BIN:/usr/bin:/bin\n@daily solo -n a no-such-job\n@daily solo -w 10 minutes -n a -- true\nSOLO_DIR=names\n@daily solo -n b true\n"
    missing, minutes, relative = examine(tab, folder)
    [other] = examine("PATH=BIN\n@daily solo -n a job.sh\n", folder)
    [quoted] = examine("PATH=BIN\n@daily solo -n a -- 'job.sh && date'\n", folder)
    [unknown] = examine("PATH=BIN\n@daily solo -n a $JOB\n", folder)

    assert (
        find_text(missing) == f"no-such-job: command not found (in the PATH {folder}:/usr/bin:/bin)"
    )
    assert missing["state"] == "note" and find_text(minutes).startswith(
        "minutes: command not found (it was taken as COMMAND; "
    )
    assert find_text(relative).startswith(
        "solo refuses this line: SOLO_DIR must be an absolute path"
    )
    assert find_text(quoted).endswith("(it is a line for the shell: use sh -c)")
    assert other["findings"] == unknown["findings"] == []


def test_a_relative_directory_gets_a_note(folder):
    [row] = examine("PATH=BIN\n@daily solo --dir locks -n a job.sh\n", folder)

    assert list_found(row) == "dir" and find_text(row).startswith("--dir locks is relative: ")


def test_a_line_ends_at_a_nul():
    """No path with a NUL is asked for: that is no error of the system, but one of Python."""
    [entry] = examine("SOLO_DIR=/\0d\n@daily solo -n a\0b -- job.sh")
    [unit] = examine(
        "[Service]\nEnvironment=SOLO_DIR=/\0d\nExecStart=solo -n a -- /x\0y", is_unit=True
    )

    assert "usage" in list_found(entry)  # no command
    assert (entry["line"], unit["line"]) == (2, 3)


def test_backend_that_a_line_or_a_unit_sets_elsewhere_is_not_guessed(folder):
    """--ttl needs an engine."""
    entry = "PATH=BIN:/bin\n{}@daily {}solo -n a --ttl 9s true"
    where = "SOLO_VIA=redis://h"
    refused, named, beside = [
        examine(entry.format(*more), folder)[0]
        for more in (("", ""), (f"{where}\n", ""), ("", f"{where} "))
    ]
    [unit] = examine(
        f"[Service]\nEnvironment={where}\nExecStart=solo -n a -E 0 --ttl 9s true", is_unit=True
    )

    assert "usage" in list_found(refused)
    assert not any("usage" in list_found(row) for row in (named, beside, unit))


def test_earlier_spelling_gets_a_note_with_its_successor(folder):
    [row] = examine(
        "PATH=BIN:/bin\n@daily solo --slots 4 --take 2 -w 5 --max-waiting=1 -n a true", folder
    )

    assert [one["text"] for one in row["findings"]] == [
        "--take is K of --slots now: --slots N[,K]",
        "--max-waiting is N of --wait now: --wait DURATION[,N]",
    ]


def test_another_solo_in_the_path_is_not_called(folder, tmp_path):
    (tmp_path / "solo").touch(0o755)
    line, guarded = examine(f"PATH={tmp_path}\n@daily solo -port=1 job.sh\n@daily solo -n x job.sh")

    assert line["use"] == f"@daily {folder}/solo -n port-1 -E 98 -- job.sh"
    assert (guarded["state"], guarded["findings"][0]["text"]) == (
        "note",
        f"cron finds another solo in the PATH of this line: {tmp_path}/solo (this is {folder}/solo)",
    )


def test_a_path_of_solo_that_needs_quotes_gives_no_line_to_use(folder, tmp_path, monkeypatch):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/solo").symlink_to(folder / "solo")
    monkeypatch.setattr(place.sys, "argv", [str(tmp_path / "a b/solo")])
    [row] = examine("@daily flock -n /run/x job.sh")

    assert find_text(row) == f"no line to use: {tmp_path}/a b/solo needs quotes"


@pytest.mark.root
def test_a_path_of_solo_that_is_gone_fails(folder):
    lines = "@daily /nowhere/solo -n x true\n@daily BIN/solo -n x -- true\n"
    first, second = examine(lines, folder)

    assert (
        find_text(first) == f"/nowhere/solo is not there (solo is {folder}/solo)"
        and second["findings"] == []
    )


def test_a_line_that_the_judge_calls_outgrown_gets_a_note(lab):
    """A third of its starts is skipped by its own runs, of which most are still shorter than the
    hour.
    """
    job, now = Written(), time.time()
    for hour in range(90, 30, -1):
        job.run(now - hour * HOUR, 50 * MINUTE, "index.sh")
    for hour in range(30, 0, -2):
        job.run(now - hour * HOUR, 62 * MINUTE, "index.sh")
        job.skip(now - (hour - 1) * HOUR, "index.sh")
    job.save(lab, "index")
    text = f"SOLO_DIR={lab.directory}\n@hourly solo -n index -- index.sh\n@daily solo -n index -- b.sh\n"
    first, second = crontab.parse_crontab(Source("tab", text, False, ME))

    [found] = jobs.check_schedule(first)

    text = "@hourly: skipped 10 of its last 20 times, as its own run went on (start it less often)"
    assert found.text == text
    assert list(jobs.check_schedule(second)) == []


@pytest.mark.parametrize("option, what", [("--crontab", "cron's"), ("--unit", "a unit's")])
def test_a_file_without_a_command_is_said_to_be_one(lab, option, what):
    text = "# [Service]\n[Service]\n" if option == "--unit" else "# a comment\nSHELL=/bin/sh\n"
    (lab.path / "empty").write_text(text)

    empty, passwd = (
        lab.run("doctor", option, file) for file in (lab.path / "empty", "/etc/passwd")
    )

    assert (empty.returncode, empty.stdout) == (0, b"no command found\n") and passwd.returncode == 1
    assert (
        passwd.stdout.decode()
        == f"fails  /etc/passwd:1: no line there looks like {what}\nno command found\n"
    )


def test_a_control_character_prevents_a_suggestion():
    tab, control = examine(
        "@daily\tflock\t-n /run/x job.sh\n@daily flock -n /run/x job.sh '\x1b[2J'\n"
    )

    assert tab["use"].endswith(" -n run:x -q -E 1 -- job.sh") and control["use"] is None


# --- units----------------------------------------------------------------------------------------

UNIT = "[Service]\n"
PLACE = "Environment=SOLO_DIR=/run/own\nRuntimeDirectory=own\n"
ROOTS = "/root/no-names"
ASKED, FIRST = f"Environment=SOLO_DIR={ROOTS}\n", f"first: mkdir -p -m 700 {ROOTS}"
TEMPORARY = "Environment='SOLO_DIR=/var/tmp/no-names'\n"
# Settings, and the beginning of why there is no line to use; "" if there is one. ! if a line with
# solo fails too.
SETTINGS = [
    ("", ""),
    ("User=nobody-here", "this machine has no user"),
    ("User=%i", "it is not certain"),
    ("DynamicUser=yes", "!the user of DynamicUser= has no home directory (add User=solo-"),
    ("DynamicUser=yes\n" + PLACE, "it is not certain"),
    (
        "ProtectSystem=strict",
        "!ProtectSystem=strict makes /run/solo read-only (add RuntimeDirectory=solo, ",
    ),
    ("ProtectSystem=strict\n" + PLACE, ""),
    ("ProtectSystem=strict\nReadWritePaths=/run/solo", ""),
    (
        "RuntimeDirectory=solo\nRuntimeDirectoryPreserve=restart",
        "!RuntimeDirectory= removes /run/solo, with the locks of others, when the unit stops",
    ),
    ("RuntimeDirectory=x solo\nRuntimeDirectoryPreserve=yes", ""),
    ("RuntimeDirectory=solo-web", ""),
    ("ProtectSystem=full\nProtectHome=yes\nPrivateTmp=yes", ""),
    ("ReadOnlyPaths=/run", "!ReadOnlyPaths=/run makes /run/solo read-only (add RuntimeDirectory="),
    ("ReadOnlyPaths=/run/solo\nReadWritePaths=/run", "!ReadOnlyPaths=/run/solo makes /run/solo r"),
    ("ReadOnlyPaths=/\nReadWritePaths=/run /etc", ""),
    ("ReadOnlyPaths=/run/solo/a", ""),
    ("ReadOnlyPaths=/etc", ""),
    ("InaccessiblePaths=-/run/solo", "!InaccessiblePaths=/run/solo hides /run/solo (remove it)"),
    ("InaccessiblePaths=/run\nBindPaths=/run/solo", "!InaccessiblePaths=/run hides /run/solo"),
    (
        "TemporaryFileSystem=/run/solo:ro",
        "!TemporaryFileSystem=/run/solo hides /run/solo (add BindPaths=/run/solo",
    ),
    ("TemporaryFileSystem=/run/solo:mode=700", "TemporaryFileSystem=/run/solo covers /run/solo"),
    (
        "TemporaryFileSystem=/:ro\nBindReadOnlyPaths=/usr\nBindPaths=/run",
        "!TemporaryFileSystem=/ hides /proc (add BindReadOnlyPaths=/proc)",
    ),
    ("TemporaryFileSystem=/:ro\nBindReadOnlyPaths=/usr /proc\nBindPaths=/run", ""),
    ("InaccessiblePaths=/usr/bin", "!InaccessiblePaths=/usr/bin hides /usr/bin/solo /usr/bin/pyt"),
    (
        "NoExecPaths=/\nExecPaths=/usr/bin/job /usr/lib",
        "!NoExecPaths=/ forbids to execute /usr/bin/solo /usr/bin/python3 (add ExecPaths=/usr/bin/s",
    ),
    ("NoExecPaths=/\nExecPaths=/usr", ""),
    ("NoExecPaths=/\nReadOnlyPaths=/usr", ""),
    ("ReadOnlyPaths=/\nNoExecPaths=/run /etc", ""),
    ("ProcSubset=pid\nBindReadOnlyPaths=/proc", ""),
    ("SystemCallFilter=~uname", "!SystemCallFilter= refuses system calls of solo (add SystemCallF"),
    ("SystemCallFilter=~uname @mount\nSystemCallFilter=uname", ""),
    ("SystemCallFilter=~unlinkat\nSystemCallErrorNumber=EPERM", ""),
    ("SystemCallFilter=~unlinkat:EPERM", ""),
    ("SystemCallFilter=~@network-io @timer", ""),
    ("SystemCallFilter=~sysinfo", "SystemCallFilter= may refuse system calls of solo (add System"),
    ("SystemCallFilter=~sysinfo\nReadOnlyPaths=/run", "!ReadOnlyPaths=/run makes /run/solo"),
    ("LimitFSIZE=0", "LimitFSIZE=0 changes what solo sees or can use"),
    ("LimitDATA=2M:1G", "LimitDATA=2M:1G changes what"),
    ("LimitDATA=200M\nLimitFSIZE=1G\nLimitNOFILE=64\nTasksMax=infinity", ""),
    ("InaccessiblePaths=/etc", ""),
    (
        "SystemCallFilter=~@ipc:EPERM @clock",
        "!SystemCallFilter= refuses system calls of solo (add SystemCallFilter=pipe2)",
    ),
    ("SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources", ""),
    (
        "SystemCallFilter=@basic-io @file-system @process @signal @ipc flock ioctl uname",
        "!SystemCallFilter= refuses system calls of solo (add SystemCallFilter=sysinfo umask)",
    ),
    ("TemporaryFileSystem=/run/solo\nBindPaths=/run/solo:/run/solo:rbind", ""),
    ("BindPaths=/srv/x:/run/solo", "BindPaths=/srv/x covers /run/solo"),
    ("BindPaths=/srv/x:/srv/y", ""),
    (
        "BindReadOnlyPaths=/run/solo",
        "!BindReadOnlyPaths=/run/solo makes /run/solo read-only (remove it)",
    ),
    ("BindReadOnlyPaths=/etc/x -/etc/y:/etc/y", ""),
    (ASKED + "PrivateTmp=yes\nPrivateNetwork=yes", ""),
    (ASKED + "ProtectSystem=strict", ""),
    (
        ASKED + "ProtectHome=read-only",
        f"!ProtectHome=read-only makes {ROOTS} read-only (add ReadWritePaths={ROOTS}; {FIRST})",
    ),
    (
        ASKED + "ProtectHome=read-only\nReadWritePaths=/root",
        f"!ProtectHome=read-only makes {ROOTS} ",
    ),
    (
        ASKED + f"ProtectHome=read-only\nReadWritePaths=-{ROOTS}",
        f"!ReadWritePaths= has {ROOTS}, which does not exist ({FIRST})",
    ),
    ("ProtectHome=read-only\nReadWritePaths=-/root/else", ""),
    (
        ASKED + "ProtectHome=tmpfs\nReadWritePaths=/root/else",
        f"!ProtectHome=tmpfs hides {ROOTS} (add BindPaths={ROOTS}; {FIRST})",
    ),
    (ASKED + "ProtectHome=tmpfs\nReadWritePaths=/root", f"!ProtectHome=tmpfs makes {ROOTS} read-"),
    (
        ASKED + f"ProtectHome=tmpfs\nBindPaths={ROOTS}",
        f"!BindPaths= has {ROOTS}, which does not exist ({FIRST})",
    ),
    ("ProtectHome=tmpfs\nBindPaths=/root", ""),
    (
        ASKED + f"ProtectHome=yes\nBindPaths={ROOTS}",
        f"!ProtectHome=yes hides {ROOTS} (set ProtectHome=tmpfs and add BindPaths=",
    ),
    (
        TEMPORARY + "PrivateTmp=yes",
        "PrivateTmp=yes covers /var/tmp/no-names, so the unit would exclude no run elsewhere",
    ),
    (ASKED + "DynamicUser=1\nProtectHome=tmpfs\nReadWritePaths=-/root", "!DynamicUser=yes makes"),
    (TEMPORARY + "DynamicUser=yes", "DynamicUser=yes covers /var/tmp/no-names"),
    (TEMPORARY + "PrivateTmp=disconnected\nBindPaths=/var/tmp", ""),
    (TEMPORARY + "PrivateTmp=No", ""),
    (
        'Environment="SOLO_DIR=%h/no-names" A=b\nProtectHome=read-only\nReadWritePaths="-/root/no-names" "/a b"',
        f"!ReadWritePaths= has {ROOTS}, which does not exist ({FIRST})",
    ),
    ("Environment=SOLO_DIR=/var/%i/names", ""),
    (
        "Environment=SOLO_DIR=/var/no-names\nProtectSystem=strict",
        "!ProtectSystem=strict makes /var/no-names read-only (add ReadW",
    ),
    (
        "Environment=SOLO_DIR=/var/no-names\nDynamicUser=yes",
        "!DynamicUser=yes makes /var/no-names read-only (add ReadW",
    ),
    ("ProcSubset=pid", "!ProcSubset=pid hides"),
    ("RootDirectory=/srv", "RootDirectory=/srv changes"),
    ("Type=forking", "with Type=forking the lock ends"),
    ("Type=notify", "!Type=notify is not heard"),
    ("Type=notify\nNotifyAccess=all", ""),
    ("WatchdogSec=5", "!WatchdogSec= is not heard"),
]


@pytest.mark.root
@pytest.mark.parametrize("settings, reason", SETTINGS)
def test_settings_that_stand_in_the_way_prevent_a_suggestion(folder, tmp_path, settings, reason):
    """A line that has solo already is judged by the same rules."""
    file = tmp_path / "system/a.service"
    exec_start = (
        "ExecStart=/usr/bin/flock -n /run/x /usr/bin/job\n",
        "ExecStart=BIN/solo -n x -E 0 -- /usr/bin/env\n",
    )
    [tool], [solo] = (
        examine(f"{UNIT}{settings}\n{line}", folder, True, file=file) for line in exec_start
    )

    use = f"ExecStart={folder}/solo -n run:x -q -E 1 -- /usr/bin/job"
    assert tool["use"] == (None if reason else use)
    assert find_text(tool).startswith(
        f"no line to use: {reason.lstrip('!')}" if reason else "a skip prints nothing"
    )
    assert solo["state"] == ("fails" if reason[:1] == "!" else "note")
    assert reason[:1] != "!" or find_text(solo).startswith(reason[1:])


# Of a dynamic user: the words of solo, User= of the unit, and the user and the directory to set.
MADE_UP = [
    ("-n import", "", "solo-import", "solo-import"),
    ("-n import", "etl", "etl", "solo-etl"),
    ("-n import", "solo-etl", "solo-etl", "solo-etl"),
    ("-n import/eu", "", "solo-import", "solo-import"),
    ("-n import -n import/eu", "", "solo-import", "solo-import"),
    ("-n a.b:c", "", "solo-a-b-c", "solo-a-b-c"),
    (f"-n {'x' * 99}", "", f"solo-{'x' * 26}", f"solo-{'x' * 26}"),
    ("-n %i", "", "solo-%i", "solo-%i"),
    ("-n %p", "", "solo-NAME", "solo-NAME"),
    ("-n a -n b", "", "solo-NAME", "solo-NAME"),
]


@pytest.mark.parametrize("words, given, user, directory", MADE_UP)
def test_the_directory_of_a_dynamic_user_follows_from_name_and_user(
    tmp_path, words, given, user, directory
):
    """Two units of one name get one directory."""
    text = f"{UNIT}DynamicUser=yes\nUser={given}\nExecStart=solo {words} -- /usr/bin/job\n"
    rows = [
        examine(text, is_unit=True, file=tmp_path / f"{file}.service")[0] for file in ("a", "b@")
    ]

    first, second = (row["findings"][0]["text"] for row in rows)
    assert first == second and f"(add User={user}, RuntimeDirectory={directory}, Ru" in first
    assert f" Environment=SOLO_DIR=/run/{directory}, the same in each unit of the name)" in first


PASTED = "DynamicUser=yes\nRuntimeDirectory={0}\nEnvironment=SOLO_DIR=%t/{0}\n"
PRIVATE = "Environment=SOLO_DIR=/tmp/names\nPrivateTmp=yes\n"
UNITS_OF_ONE_NAME = {
    "one directory": ("User=u\n" + PASTED.format("d"), "User=u\n" + PASTED.format("d"), ""),
    "two directories": (
        "User=u\n" + PASTED.format("d"),
        "User=u\n" + PASTED.format("e"),
        "(/run/e, of u)",
    ),
    "two users": (
        "User=u\n" + PASTED.format("d"),
        "User=v\n" + PASTED.format("d"),
        "(/run/d, of v)",
    ),
    "users of units": (PASTED.format("d"), PASTED.format("d"), "(/run/d, of b)"),
    "private directories": (PRIVATE, PRIVATE, "(/tmp/names, of root, PrivateTmp=yes of {})"),
    "private sockets": (
        "Environment=SOLO_VIA=socket\n",
        "Environment=SOLO_VIA=socket\nPrivateNetwork=yes\n",
        "PrivateNetwork=",
    ),
    "sockets": ("Environment=SOLO_VIA=socket\n", "Environment=SOLO_VIA=socket\n", ""),
    "an engine": ("Environment=SOLO_VIA=redis://h\n", "", ""),
    "no directory yet": ("DynamicUser=yes\n", "DynamicUser=yes\n", ""),
    "not certain": ("Environment=SOLO_DIR=/x\nEnvironmentFile=/x\n", "", ""),
}


@pytest.mark.root
@pytest.mark.parametrize("case", UNITS_OF_ONE_NAME)
def test_units_of_one_name_are_compared(tmp_path, case):
    *settings, place = UNITS_OF_ONE_NAME[case]
    files = [tmp_path / "a.service", tmp_path / "b.service"]
    for file, text in zip(files, settings):
        file.write_text(f"{UNIT}{text}SuccessExitStatus=75\nExecStart=solo -n x -- true\n")
    first, _ = describe(jobs.list_lines(list(map(str, files)), True))

    found = [one["text"] for one in first["findings"] if one["check"] == "directories"]
    assert len(found) == bool(place)
    assert (
        not place
        or f"-n x does not exclude that of {files[1]}:" in found[0]
        and place.format(files[1]) in found[0]
    )


@pytest.mark.root
@pytest.mark.parametrize(
    "setting, found",
    [("PrivateTmp=yes", "none unit"), ("DynamicUser=1", "none unit"), ("", "!tmp !tmp")],
)
def test_a_lock_file_that_a_unit_has_alone_makes_no_name(folder, setting, found):
    """Units that never excluded each other would then, and nobody else can lock the file."""
    text = f"{UNIT}{setting}\nSuccessExitStatus=75\nType=oneshot\n" + PASTED.format("d") * (
        "Dynamic" in setting
    )
    lines = "ExecStart=/usr/bin/flock -n '/tmp/x' /usr/bin/job\nExecStart=solo -n x --flock /tmp/x -- true\n"
    tool, solo = examine(text + lines, folder, is_unit=True)

    assert f"{list_found(tool).split()[0]} {list_found(solo).split()[0]}" == found
    assert not setting or all(
        " makes /tmp/x a file of this unit alone" in find_text(row) for row in (tool, solo)
    )


@pytest.mark.root
def test_the_sockets_of_a_unit_with_a_network_of_its_own_get_a_note(folder):
    text = "PrivateNetwork=yes\nType=oneshot\nExecStart=solo -n x --via socket -E 0 -- true\nExecStart=solo -n y -E 0 -- true"
    socket, file = examine(UNIT + text, folder, is_unit=True)

    assert (list_found(socket), list_found(file)) == ("unit", "")
    assert find_text(socket).startswith("PrivateNetwork= hides the sockets of the machine")


@pytest.mark.root
def test_the_templates_of_the_project_fail_in_nothing():
    rows = describe(jobs.list_lines([str(ROOT / "examples/systemd")], True))

    found = [list_found(row) for row in rows]
    assert len(found) > 3 and not re.search("!|unread|unclear|wrapper", " ".join(found)), rows


# Of each file, in what order, systemd 257 reads for job-nightly@eu.service; - for those that it
# does not.
PLACES = {
    "etc/job-nightly@.service": 0,
    "lib/job-nightly@.service": None,
    "lib/job-.service.d/10.conf": 1,
    "etc/service.d/20.conf": 2,
    "lib/job-nightly@.service.d/30.conf": None,
    "etc/job-nightly@eu.service.d/30.conf": 3,
    "etc/job-@.service.d/40.conf": None,
    "etc/job-.service.d/40.conf": 4,
    "lib/job-nightly@eu.service.d/40.conf": None,
    "lib/job-@eu.service.d/50.conf": 5,
    "etc/job.service.d/60.conf": None,
    "etc/job-nightly.service.d/60.conf": None,
    "etc/job-nightly@eu.service.d/.70.conf": None,
    "etc/job-nightly@eu.service.d/70": None,
    "etc/job-nightly.timer": None,
    "etc/job-nightly.timer.d/80.conf": None,
}


def test_the_files_of_a_unit_are_those_of_systemd(tmp_path, monkeypatch):
    """test_systemd.py compares them with those of a running systemd."""
    for file in PLACES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("[Service]\n")
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", f"{tmp_path}/etc:{tmp_path}/lib")
    expected = [str(tmp_path / file) for file in sorted(filter(PLACES.get, PLACES), key=PLACES.get)]
    template = str(tmp_path / "etc/job-nightly@.service")

    [by_name] = unit_files.read_services(["job-nightly@eu"])
    [by_drop_in] = unit_files.read_services([expected[2]])
    by_folder = [files[0].file for files in unit_files.read_services([str(tmp_path / "etc")])]
    [timer] = unit_files.read_services([str(tmp_path / "etc/job-nightly.timer")])

    assert (
        [source.file for source in by_name]
        == [template, *expected]
        == [source.file for source in by_drop_in]
    )
    assert by_folder.count(template) == 2 and not [
        file for file in by_folder if "-.service" in file or "-@" in file
    ]
    assert [source.file for source in timer] == [
        f"{tmp_path}/etc/job-nightly.timer{end}" for end in ("", ".d/80.conf")
    ]
    with pytest.raises(SoloError, match="cannot find the unit nobody-here.service"):
        list(unit_files.read_services(["nobody-here"]))


DROP_INS = {
    # Of a.service, and a drop-in for it: what is found, in which file.
    "a setting": ("ExecStart=solo -n x -E 0 -- true", "ProtectSystem=strict", ["!place a.service"]),
    "a reset": ("ExecStart=/usr/bin/flock -n /tmp/x a", "ExecStart=\nExecStart=/usr/bin/a", []),
    "a tool": (
        "ExecStart=/usr/bin/a",
        "ExecStart=\nExecStart=/usr/bin/flock -n /tmp/x a",
        ["!tmp callers b.conf"],
    ),
    "a second command": ("ExecStart=/usr/bin/a", "ExecStart=/usr/bin/b", ["!unit b.conf"]),
    "a second of a oneshot": ("Type=oneshot\nExecStart=/usr/bin/a", "ExecStart=/usr/bin/b", []),
    "a list": (
        "ProtectSystem=strict\nReadWritePaths=/run\nExecStart=solo -n x -E 0 -- true",
        "ReadWritePaths=/etc",
        [],
    ),
    "a reset list": (
        "ProtectSystem=strict\nReadWritePaths=/run\nExecStart=solo -n x -E 0 -- true",
        "ReadWritePaths=",
        ["!place a.service"],
    ),
    "a default": ("ProtectSystem=strict\nExecStart=solo -n x -E 0 -- true", "ProtectSystem=", []),
    "a condition": (
        "ExecStart=solo -n x -E 0 -- true",
        "ExecCondition=flock -n /run/x true",
        ["unread b.conf"],
    ),
    "a removed condition": (
        "ExecStart=a\nExecCondition=flock -n /run/x true",
        "ExecCondition=",
        [],
    ),
    "no section": ("ExecStart=solo -n x -E 0 -- true", "[Unit]\nProtectSystem=strict", []),
    "no service": (None, "ExecStart=\nExecStart=solo -n x -E 0 -- true", ["unread b.conf"]),
}


@pytest.mark.root
@pytest.mark.parametrize("case", DROP_INS)
def test_a_drop_in_is_judged_with_its_unit(tmp_path, monkeypatch, case):
    unit, drop_in, expected = DROP_INS[case]
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", str(tmp_path / "lib"))
    for file, text in (("lib/a.service", unit), ("etc/a.service.d/b.conf", drop_in)):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(f"{UNIT}{text}\n") if text else None
    rows = describe(jobs.list_lines([str(tmp_path / "etc/a.service.d/b.conf")], True))

    assert [
        f"{list_found(row)} {Path(row['file']).name}" for row in rows if row["findings"]
    ] == expected


TEXTS = [
    (" [Unit] \r\n[Service]\t\r\n User = alice \r\nExecStart = solo -n x -E 0 -- a\r\n", ["alice"]),
    (
        "User=bob\n[Service]\nExecStart=solo -n x -E 0 -- true\n[Install]\nUser=alice\n[Service]\nUser=carol\n",
        ["carol"],
    ),
    (
        "[Service]\nExecStart=solo \\\n# no end \\\n; no end\n -n x -E 0 \\\n -- a\nUser=alice\n",
        ["alice"],
    ),
    (
        "[Service]\nExecStart=+solo -n x -E 0 -- true\nUser=alice\nProtectSystem=strict\nType=oneshot\n",
        ["root"],
    ),
    ("[Service]\nExecStart=!solo -n x -E 0 -- true\nUser=alice\n", ["root"]),
    ("[Service]\nExecStart=!!solo -n x -E 0 -- true\nUser=alice\n", ["alice"]),
    ("", []),
]


@pytest.mark.parametrize("text, users", TEXTS)
def test_a_unit_is_read_as_systemd_reads_it(tmp_path, text, users):
    lines = list(units.parse_unit([Source(str(tmp_path / "a.service"), text, None, "")]))

    assert [line.user for line in lines] == users
    assert all(
        line.advice.runs and not (line.place.problem or line.advice.findings) for line in lines
    )


def test_a_semicolon_between_blanks_separates_commands_of_a_unit(folder):
    """After ; without blanks, &&, or a redirection, systemd passes a word to the command."""
    calls = ["a ; /usr/bin/b", "a ; b ; c", "a; b", "a ;b", "a && b", "a >b", "a \\; b"]
    text = "".join(f"ExecStart=/usr/bin/flock -n /run/x {call}\n" for call in calls)
    rows = examine(f"{UNIT}Type=oneshot\nUser=%i\n{text}", folder, is_unit=True)

    found = ["partial none"] * 2 + ["!shell"] * 4 + ["none"]
    assert [list_found(row) for row in rows] == found


@pytest.mark.root
def test_the_line_of_a_unit_keeps_its_prefix_and_continues(folder):
    text = "ExecStart=-/usr/bin/flock -n /run/x \\\n# a comment\n  /usr/bin/job %i\nExecStartPre=flock -n /run/y a\n"
    row, pre = examine(UNIT + text, folder, is_unit=True)

    assert (row["line"], row["use"]) == (
        2,
        f"ExecStart=-{folder}/solo -n run:x -q -E 1 -- /usr/bin/job %i",
    )
    assert find_text(pre) == "ExecStartPre= is not read"


def test_a_unit_with_signs_of_a_shell_fails():
    [row] = examine(UNIT + "ExecStart=/usr/bin/flock -n /run/x a && b\n", is_unit=True)

    assert (list_found(row), row["use"]) == ("!shell", None)


@pytest.mark.root
def test_a_shell_in_a_unit_is_read(folder):
    [row] = examine(
        UNIT + "ExecStart=/bin/sh -c 'flock -n /run/x a.sh && echo done'\n", folder, is_unit=True
    )

    assert (
        row["use"] == f"ExecStart=/bin/sh -c '{folder}/solo -n run:x -q -E 1 -- a.sh && echo done'"
    )


@pytest.mark.root
def test_a_unit_with_solo_gets_a_hint_unless_it_cannot_skip_or_a_skip_is_a_success(folder):
    calls = [
        "-E 0 -- true",
        "-n x -- true",
        "clean --generated",
        "--dir /x wait x",
        "hold --pid 1 x",
    ]
    text = UNIT + "Type=oneshot\n" + "".join(f"ExecStart=BIN/solo {call}\n" for call in calls)

    assert [list_found(row) for row in examine(text, folder, is_unit=True)] == [
        "",
        "status",
        "",
        "",
        "status",
    ]


AFTER_A_SKIP = [
    # Of a unit: settings, options of solo, and what is found; a.socket is beside it.
    ("", "", "status"),
    ("SuccessExitStatus=75", "", ""),
    ("SuccessExitStatus=TEMPFAIL", "", ""),
    ("", "-E 9", "status"),
    ("", "-E 0", ""),
    ("", "--wait forever", ""),
    ("", "-w 9", "status"),
    ("Restart=always", "", "status restart"),
    ("Restart=always\nSuccessExitStatus=75\nRestartPreventExitStatus=75", "", ""),
    ("Restart=on-success\nSuccessExitStatus=75", "", "restart"),
    ("Restart=on-success", "", "status"),
    ("Restart=on-failure", "", "status"),
    ("Restart=on-failure\nSuccessExitStatus=75", "", ""),
    ("Restart=on-success", "-E 0", "restart"),
    ("Restart=on-abort", "-E 0", ""),
    ("Sockets=b.socket", "-E 0", "socket"),
    ("Sockets=b.socket", "--wait forever", ""),
    ("Sockets=each.socket", "-E 0", ""),
    ("Type=exec", "-E 0 -- nosuch", "command"),
]


@pytest.mark.root
@pytest.mark.parametrize("settings, words, found", AFTER_A_SKIP)
def test_what_a_skip_does_to_a_unit_is_said(tmp_path, settings, words, found):
    (tmp_path / "b.socket").write_text("[Socket]\nListenStream=/run/x\n")
    (tmp_path / "each.socket").write_text("[Socket]\nListenStream=/run/x\nAccept=yes\n")
    text = (
        f"{UNIT}{settings}\nExecStart=solo -n x {words if '--' in words else words + ' --'} true\n"
    )
    text = text.replace("forever true", "forever -- true")
    [row] = examine(text, is_unit=True, file=tmp_path / "a.service")

    assert list_found(row) == found


@pytest.mark.root
def test_a_socket_of_the_name_of_a_unit_counts(tmp_path):
    (tmp_path / "a.socket").write_text("[Socket]\nListenStream=/run/x\n")
    for name, found in (("a", "socket"), ("b", "")):
        file = tmp_path / f"{name}.service"
        [row] = examine(f"{UNIT}ExecStart=solo -n x -E 0 -- true\n", is_unit=True, file=file)

        assert list_found(row) == found


@pytest.mark.root
def test_a_condition_that_tests_the_lock_file_still_sees_the_lock(folder):
    text = f"{UNIT}ExecCondition=/usr/bin/flock -n {{}} true\nExecStart=/usr/bin/flock -n /run/x a.sh\n"
    [row] = examine(text.format("/run/x"), folder, is_unit=True)
    other, _ = examine(text.format("/run/y"), folder, is_unit=True)

    assert row["use"] == f"ExecStart={folder}/solo -n run:x --flock /run/x -q -E 1 -- a.sh"
    assert list_found(row) == "condition" and "--flock" not in other["use"]


OWNERS = [
    ("system/a.service", "", "root"),
    ("system/a.service", "User=alice\n", "alice"),
    ("system/a.service", "User=alice\nUser=\n# User=bob\n", "root"),
    ("system/a.service", "User=%i\n", ""),
    ("system/a.service", "User=0\n", "root"),
    ("system/a.service", f"User={'9' * 5000}\n", "9" * 5000),
    ("user/a.service", "", ""),
]


@pytest.mark.parametrize("file, text, user", OWNERS)
def test_the_user_of_a_unit_is_certain_or_empty(tmp_path, file, text, user):
    text = f"[Service]\n{text}ExecStart=solo -- job\nExecStart=+solo -- job\n"

    lines = units.parse_unit([Source(str(tmp_path / file), text, None, "")])

    assert [line.user for line in lines] == [user, "root" if "system" in file else ""]


# --- the command----------------------------------------------------------------------------------


def test_doctor_prints_findings_and_the_line_to_use(lab):
    tab = lab.path / "tab"
    tab.write_text("*/5 * * * * flock -n /tmp/x a.sh && b.sh\n@daily job.sh\nH * * * * job\n")
    before = tab.read_bytes(), tab.stat().st_mtime_ns

    result = lab.run("doctor", "--crontab", tab)

    *findings, use, unread, end = result.stdout.decode().splitlines()
    assert (result.returncode, result.stderr, end) == (
        1,
        b"",
        "1 of 2 commands to change, 1 not understood",
    )
    assert [line.split(":")[0] for line in findings] == [
        f"{state:<5}  {tab}" for state in ("fails", "note", "note")
    ]
    assert use.startswith("use    */5 * * * * ") and use.endswith(
        " -n tmp:x -q -E 1 -- a.sh && b.sh"
    )
    assert (tab.read_bytes(), tab.stat().st_mtime_ns) == before and not Path(lab.directory).exists()


def test_doctor_exits_with_0_if_nothing_is_wrong(lab):
    with (lab.path / "tab").open("w+") as file:
        file.write("@daily flock -n /run/x job.sh\n")
        file.seek(0)
        result = lab.run("doctor", "--crontab", "-", stdin=file)

    assert result.returncode == 0 and result.stdout.endswith(b"\nnothing wrong in 1 command\n")
    assert result.stdout.startswith(b"note   -:1: ")


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


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return a function that makes files, {path: text}. Those in crontab, cron.d, spool and system
    are all of this machine.
    """
    monkeypatch.setattr(crontab, "SYSTEM", str(tmp_path / "crontab"))
    monkeypatch.setattr(crontab, "SYSTEM_DIRECTORY", str(tmp_path / "cron.d"))
    monkeypatch.setattr(crontab, "SPOOLS", (str(tmp_path / "spool"),))
    monkeypatch.setattr(unit_files, "UNITS", str(tmp_path / "system"))
    monkeypatch.setattr(jobs, "CRON_PATH", f"{tmp_path}/bin")
    monkeypatch.setattr(crontab.os, "geteuid", lambda: 0)

    def put(files):
        for file, text in files.items():
            (tmp_path / file).parent.mkdir(exist_ok=True)
            write_program(tmp_path / file, text)

    return put


def test_the_default_is_every_crontab_that_cron_reads(tmp_path, monkeypatch, capsys, put):
    put(
        {
            "crontab": "@daily root flock -n /run/1 job.sh\n",
            "cron.d/good": "@daily root flock -n /run/2 job.sh\n",
        }
    )
    put(
        {
            "cron.d/bad~": "@daily root flock -n /run/3 job.sh\n",
            "spool/alice": "@daily flock -n /run/4 job.sh\n",
        }
    )
    put({"bin/crontab": "#!/bin/sh\necho '@daily flock -n /run/5 job.sh'\n"})
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    assert [list(one)[3] for one in crontab.find_crontabs()] == ["root", "root", "alice"]
    monkeypatch.setattr(crontab.os, "geteuid", lambda: 65534)
    files = [str(tmp_path / "crontab"), str(tmp_path / "cron.d/good"), "crontab -l"]
    assert [one.file for one in crontab.find_crontabs()] == files
    jobs.run(jobs.Asked(crontab=True, dir=str(tmp_path)), [])
    assert "crontab -l:1: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "option, place", [("crontab", "spool/nobody:1"), ("unit", "system/a.service:2")]
)
def test_without_files_crontabs_and_units_are_compared(tmp_path, capsys, put, option, place):
    """Only the findings about the kind that was asked for are printed."""
    put({"spool/nobody": "@daily /bin/sh -c 'solo -n backup -- job.sh'\n", "bin/solo": ""})
    put({"system/a.service": "[Service]\nExecStart=solo -n backup -E 0 -- job.sh\n"})

    jobs.run(jobs.Asked(**{option: True}, dir=str(tmp_path)), [])

    *_, found, end = capsys.readouterr().out.splitlines()
    other = {
        "crontab": f"root ({tmp_path}/system/a.service:2)",
        "unit": f"nobody ({tmp_path}/spool/nobody:1)",
    }[option]
    assert found.startswith(
        f"note   {tmp_path}/{place}: -n backup does not exclude that of {other}: "
    )
    assert "1 command" in end


def test_lines_of_the_spool_are_numbered_as_the_editor_of_crontab_shows_them(tmp_path, put):
    """The file of this cron has a header that crontab -l does not print. In a copy elsewhere the
    header counts.
    """
    text = "# my jobs\n@daily flock -n /run/x job.sh\n"
    header = (
        "# DO NOT EDIT THIS FILE - edit the master and reinstall.\n"
        "# (/tmp/crontab.V (a) installed on Mon Nov 23 09:00:00 2026)\n"
        "# (Cron version -- $Id: crontab.c,v 2.13 1994/01/17 03:20:37 vixie Exp $)\n"
    )
    put({"spool/alice": header + text, "spool/bob": text, "copy": header + text})

    found = [
        *crontab.find_crontabs(),
        *crontab.read_all([str(tmp_path / "spool/alice"), str(tmp_path / "copy")]),
    ]

    assert [line.number for source in found for line in crontab.parse_crontab(source)] == [
        2,
        2,
        2,
        5,
    ]


# --- garbage--------------------------------------------------------------------------------------


def test_a_line_of_a_megabyte_is_unclear():
    for long in (
        "a " * 500_000,
        "a" * 1_000_000,
        "&& a " * 200_000,
        "9" * 1_000_000,
        "$(" * 500_000,
    ):
        assert list(map(list_found, examine(f"@daily flock -n /run/x {long}"))) == ["unclear"]


STARTS = "if x; |pgrep |ps & |mkdir a (|mkdir a; |[ -f x; |;a/|if/|`|killall  |test ! -x &".split(
    "|"
)


@pytest.mark.parametrize("start", STARTS)
def test_a_long_line_is_searched_for_locks_made_by_hand_in_one_pass(start):
    """A search that begins anew at each sign takes minutes."""
    long = start * (200_000 // len(start))

    assert [list_found(row) for row in examine(f"@daily job {long}")] == [""]
    assert [list_found(row) for row in examine(f"@daily job {long}; mkdir /run/x.lock && job")] == [
        "stale"
    ]


def test_many_brackets_are_unclear():
    for line in ('"$(' * 20000, "$(" * 20000, "`" * 20001):
        with pytest.raises(Unclear):
            split_line(line)


# --- what never starts---------------------------------------------------------------------------


NEVER = {
    "a percent sign in quotes": (
        f"{DAILY}BIN/solo -n d -- sh -c 'dump > /b/$(date +%F)'",
        "!percent unclear",
    ),
    "a user and a solo that PATH lacks": (f"PATH=/bin\n{DAILY}daemon solo -n d -- true", "!user"),
    "a shell that is none": (f"SHELL=/nonexistent\n{DAILY}BIN/solo -n d -- true", "!shell"),
}


@pytest.mark.parametrize("case", NEVER)
def test_a_line_that_never_runs_fails(folder, case):
    text, found = NEVER[case]
    source = Source("tab", text.replace("BIN", str(folder)) + "\n", False, ME, is_read=True)

    [row] = describe(list(crontab.parse_crontab(source)))

    assert list_found(row) == found


def test_a_line_of_the_system_without_a_user_fails(tmp_path):
    """Cron takes the program for the user."""
    file = tmp_path / "cron.d" / "backup"
    file.parent.mkdir()
    file.write_text(f"{DAILY}solo -n d -- true\n")

    [row] = describe(list(crontab.parse_crontab(crontab.read_source(str(file)))))

    assert list_found(row) == "!user" and "takes solo for the user" in find_text(row)


@pytest.mark.parametrize("folder_of", [os.curdir, "../cron.d", "./"])
def test_a_file_that_cron_reads_is_known_by_any_path(tmp_path, monkeypatch, folder_of):
    """By its own name cron ignores it; solo said so only of /etc/cron.d/NAME."""
    folder = tmp_path / "cron.d"
    folder.mkdir()
    (folder / "a.b").write_text(f"{DAILY}{ME} true\n")
    monkeypatch.setattr(crontab, "SYSTEM_DIRECTORY", str(folder))
    monkeypatch.setattr(crontab, "find_cron", lambda: crontab.DEBIAN)
    monkeypatch.chdir(folder)

    source = crontab.read_source(os.path.join(folder_of, "a.b"))

    assert source.is_read and "rename it" in find_text(
        describe(list(crontab.parse_crontab(source)))[-1]
    )


def test_a_unit_that_systemd_cannot_start_fails(folder, monkeypatch):
    monkeypatch.setattr(jobs, "UNIT_PATH", "/nonexistent")
    bare, path, user = (
        examine(f"{UNIT}{text} -n x -E 0 -- /bin/true\n", folder, is_unit=True)[0]
        for text in (
            "ExecStart=solo",
            "ExecStart=BIN/solo",
            "User=no-such-user\nExecStart=BIN/solo",
        )
    )

    assert list_found(bare) == "!path"
    assert "systemd does not find solo" in bare["findings"][0]["text"]
    assert list_found(path) == "" and list_found(user) == "user"
