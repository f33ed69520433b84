"""`solo check`: the line and the status that a monitoring system reads."""

import re
import subprocess
import time
from pathlib import Path

import pytest
from conftest import copy_libraries, finish, show_page, until
from test_health import write_names
from written import DAY, HOUR, Written

VALUE = r"(U|\d+(\.\d+)?s?)"
NUMBERS = re.compile(rf"[a-z]+={VALUE}(;[\d.]*){{2}};0( [a-z]+={VALUE}(;[\d.]*){{2}};0)*")


def check(lab, *words, **options):
    """Return (exit status, text, performance data) of `solo check WORDS`, and check its form."""
    done = lab.run("check", *words, **options)
    line, end, more = done.stdout.decode().partition("\n")
    assert (end, more, done.stderr) == ("\n", "", b"")
    text, _, numbers = line.partition(" | ")
    assert text.startswith("SOLO " + ("OK", "WARNING", "CRITICAL", "UNKNOWN")[done.returncode])
    assert "|" not in text + numbers and (not numbers or NUMBERS.fullmatch(numbers)), numbers
    return done.returncode, text, numbers


def save(lab, name, *ago, code=0, **kind):
    """Write a journal of runs that started so many seconds ago."""
    job = Written()
    for seconds in ago:
        job.run(time.time() - seconds, code=code, **kind)
    job.save(lab, name)


STATES = {
    "cut": (2, "lost"),
    "etl": (2, "failing"),
    "reindex": (1, "starving"),
    "index": (1, "outgrown"),
    "prune": (1, "late"),
    "once": (0, "success 59m"),
    "job10": (0, "success 28m"),
}


@pytest.mark.tool("mandoc")
def test_recipe_runs_a_job_that_had_no_success_today_whatever_its_state(lab):
    write_names(lab)
    recipe = re.search(r"‘0 \* \* \* \* (solo check .*?)’", show_page("solo.7"))[1]

    def runs(name):
        line = recipe.replace("dump.sh", "echo ran").replace("dump", name).replace("solo", "$SOLO")
        return finish(lab.start_shell(line))[1] == "ran\n"

    assert [runs(name) for name in ("index", "once", "job10")] == [False] * 3
    assert [runs(name) for name in ("etl", "prune", "cut", "unused")] == [True] * 4


def test_state_of_a_job_is_its_status(lab):
    write_names(lab)

    found = {name: check(lab, name) for name in STATES}

    assert {name: status for name, (status, _, _) in found.items()} == {
        name: status for name, (status, _) in STATES.items()
    }
    for name, (_, text, _) in found.items():
        assert f": {name}: {STATES[name][1]}" in text
    assert re.search(
        r"etl: failing: exit 3: .*\d\d:\d\d, success 23h59m ago, usually 1m$", found["etl"][1]
    )


def test_run_is_ok_until_it_runs_long(lab):
    lab.hasten("solo.history.usual.LEAST_LONG", 0)
    for _ in range(5):
        finish(lab.hold("job"))
    holder = lab.hold("job", script="echo $$; read line; exit 0")

    until(lambda: check(lab, "job")[0] == 1)

    status, text, _ = check(lab, "job")
    assert (status, text.partition("since")[0]) == (1, "SOLO WARNING: job: long: running ")
    finish(holder)
    assert check(lab, "job")[0] == 0


def test_first_run_of_a_typed_job_is_ok(lab):
    holder = lab.hold("job")

    status, text, _ = check(lab, "job")
    assert status == 0 and re.fullmatch(r"SOLO OK: job: running for \d+s, never succeeded", text)
    assert check(lab, "job", "--within", "1h")[0] == 3
    finish(holder)


@pytest.mark.parametrize(
    "within, status",
    [("26h", 0), ("25h,26h", 0), ("24h,26h", 1), ("26d", 0), ("24h", 2), ("1h,24h", 2)],
)
def test_within_is_the_age_of_the_end_of_the_last_success(lab, within, status):
    save(lab, "job", DAY + 1.5 * HOUR, ran=HOUR)  # half an hour more than a day since its end
    save(lab, "other", 60)

    found = check(lab, "job", "--within", within)

    late = "" if status == 0 else ", not within 1d"
    word = ("OK", "WARNING", "CRITICAL")[status]
    assert found[:2] == (status, f"SOLO {word}: job: success 1d ago{late}")
    limits = {
        "26h": ";93600",
        "25h,26h": "90000;93600",
        "24h,26h": "86400;93600",
        "26d": ";2246400",
    }
    limits |= {"24h": ";86400", "1h,24h": "3600;86400"}
    assert re.fullmatch(rf"age=8820\ds;{limits[within]};0 duration=3600s;;;0", found[2])
    assert check(lab, "--within", within)[0] == status


def test_run_that_goes_on_is_no_excuse(lab):
    save(lab, "job", 2 * DAY)
    holder = lab.hold("job")

    status, text, _ = check(lab, "job", "--within", "26h")

    assert status == 2 and text.endswith("success 1d23h ago, not within 1d2h")
    assert check(lab, "job")[0] == 0
    finish(holder)


def test_line_of_many_names_the_three_worst_and_counts_the_others(lab):
    write_names(lab)

    status, text, numbers = check(lab)

    named = [part.split(": ")[:2] for part in text.split(": ", 1)[1].split("; ")]
    assert named == [
        ["cut", "lost"],
        ["etl", "failing"],
        ["reindex", "starving"],
        ["2 more"],
        ["35 of 40 ok"],
    ]
    assert (status, numbers) == (2, "ok=35;;;0 warning=3;;;0 critical=2;;;0 unknown=0;;;0")
    assert check(lab, "job01", "once")[:2] == (0, "SOLO OK: 2 of 2 ok")


def test_nothing_found_is_unknown(lab):
    assert check(lab)[:2] == (
        3,
        f"SOLO UNKNOWN: no names known: names in {lab.directory}, which does not exist",
    )
    save(lab, "backup", 60)
    lab.run("-n", "backup", "--once-per", "1d", "true")

    status, text, _ = check(lab, "bakcup", "backup")
    assert status == 3 and "bakcup: cannot check it: " in text and "(did you mean backup?)" in text
    lab.run("clean", "--history", "0s")
    assert check(lab, "backup")[0] == 3


def test_job_that_never_succeeded_is_unknown_if_it_is_typed(lab):
    holder = lab.start("hold", "--for", "1h", "job")
    until(lambda: lab.list() != [])
    assert check(lab, "job")[0] == 0
    lab.run("release", "job")
    finish(holder)

    assert check(lab, "job")[:2] == (3, "SOLO UNKNOWN: job: never succeeded")
    assert check(lab, "--within", "1h")[0] == 3


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--foo"], "--foo: no such option"),
        (["--within", "soon"], "--within soon: not CRIT or WARN,CRIT"),
        (["--within", "2h,1h"], "--within 2h,1h: not CRIT or WARN,CRIT"),
        (["--within", "forever"], "--within forever: not CRIT or WARN,CRIT"),
        (["--within", "26"], "--within 26: not CRIT or WARN,CRIT"),
        (["--via", "socket"], "--via: no such option"),
        (["a//b"], "a//b: "),
        ([""], "a name may not be empty"),
        (["--", "backup.sh"], "backup.sh: cannot check it"),
    ],
    ids=str,
)
def test_usage_error_is_unknown(lab, words, reason):
    status, text, _ = check(lab, *words)

    assert status == 3 and reason in text


@pytest.mark.parametrize("words", ["--foo check", "--foo check job", "--within 1h check job"])
def test_wrong_option_before_check_is_unknown(lab, words):
    """A monitor reads the status: 125 is none of a plugin."""
    done = lab.run(*words.split())

    assert (done.returncode, done.stderr) == (3, b"")
    assert done.stdout.startswith(b"SOLO UNKNOWN: --") and b": no such option" in done.stdout


@pytest.mark.parametrize("words", ["--foo list check", "--foo -- check", "--foo true 1 check"])
def test_word_check_that_is_no_subcommand_changes_no_status(lab, words):
    done = lab.run(*words.split())

    assert (done.returncode, done.stdout) == (125, b"")


def test_output_that_cannot_be_written_is_unknown(lab):
    lab.run("-n", "job", "true")
    with open("/dev/full", "w") as full:
        done = subprocess.run([lab.script, "check"], stdout=full, stderr=-1, env=lab.environment)
    closed = lab.run("check", prefix=["sh", "-c", '"$@" >&-', "-"])

    assert [(done.returncode, done.stderr) for done in (done, closed)] == [(3, b"")] * 2


def test_unreadable_journal_is_unknown(lab):
    for name in ("job", "other"):
        lab.run("-n", name, "true")
    lab.find_journal("job").unlink()
    lab.find_journal("job").mkdir()

    status, text, numbers = check(lab)

    assert status == 3 and "SOLO UNKNOWN: job: cannot read the journal in " in text
    assert text.endswith("; 1 of 2 ok") and " unknown=1;" in numbers


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_job_whose_runs_cannot_be_recorded_is_unknown(lab):
    """A disk that is full: the last line that it has says success. `list --all` and `metrics` say
    so on stderr.
    """
    lab.run("-n", "job", "true")
    script = (
        "J=$SOLO_DIR/.journals; cp -a $J $J.kept; mount -t tmpfs -o size=64k,mode=700 tmpfs $J\n"
        "cp -a $J.kept/job $J; head -c 1M /dev/zero >$J/.full 2>/dev/null\n"
        "$SOLO check; echo $?; $SOLO list --all; $SOLO metrics >/dev/null; $SOLO doctor\n"
        "mount -o remount,ro $J; $SOLO check; mount --bind $SOLO_DIR $SOLO_DIR\n"
        "mount -o remount,ro,bind $SOLO_DIR; cd /; $SOLO check\n"
        "D=${LAB}/disk; mkdir $D; mount -t tmpfs -o mode=700 tmpfs $D; cp -a $SOLO_DIR/. $D\n"
        "export SOLO_DIR=$D; rm $D/.journals/.full; mount -o remount,ro $D\n"
        "$SOLO -n job true; $SOLO check; $SOLO list --all >/dev/null"
    )

    _, out, stderr = finish(lab.start_words("unshare", "-m", "sh", "-c", script))

    text = f"no run is recorded in {lab.directory}/.journals now: "
    assert out.startswith(f"SOLO UNKNOWN: {text}No space left on device | ")
    assert "\n3\n" in out and "know no runs: No space left on device" in out
    assert stderr.splitlines()[:2] == [f"solo: {text}No space left on device"] * 2
    assert f"SOLO UNKNOWN: {text}Read-only file system" in out
    *_, seen, broken = out.splitlines()
    assert seen.startswith("SOLO OK: job: ")  # mounted read-only, to be looked at
    text = f"no run is recorded in {lab.path}/disk/.journals now: Read-only file system"
    assert broken.startswith(f"SOLO UNKNOWN: {text}") and f"solo: {text}" in stderr


def test_journal_without_a_line_that_can_be_read_is_not_that_of_a_new_job(lab):
    for name in ("job", "new"):
        lab.run("-n", name, "true")
    lab.find_journal("job").write_bytes(b"\x00\xff\ngarbage 1 2\n" * 99)
    lab.find_journal("new").write_bytes(b"started 12")  # a full disk tore the first line

    status, text, _ = check(lab, "job")
    assert status == 3 and text.endswith(": no line can be read (solo clean job removes it)")
    assert check(lab, "new")[1] == "SOLO UNKNOWN: new: no run is recorded"
    assert lab.run("history", "job").returncode == 125
    assert lab.run("clean", "job").returncode == 0 and not lab.find_journal("job").exists()


@pytest.mark.root
def test_user_is_told_how_to_see_the_names_of_root(common):
    copy_libraries(Path(common.script).parent)
    common.environment.pop("SOLO_DIR")

    found = [
        common.run(
            "check", *names, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        )
        for names in ([], ["back up"])
    ]

    assert [done.returncode for done in found] == [3, 3]
    first, second = (done.stdout.decode() for done in found)
    assert first.startswith("SOLO UNKNOWN: ") and "; for root's: sudo -n solo check | " in first
    assert "; for root's: sudo -n solo check 'back up' | " in second


def test_name_is_no_performance_data(lab):
    name = "a|b ='x;1\\\xe9"
    lab.run("-n", name, "false")

    status, text, _ = check(lab, name)

    assert status == 2 and text.startswith("SOLO CRITICAL: a\\x7cb ='x;1\\")
    lab.environment["LC_ALL"] = "C"
    assert check(lab)[0] == 2


def test_job_made_from_changing_words_is_critical_for_a_day(lab):
    for day in (4, 0.5):
        save(lab, f"x-{day}", day * DAY, code=1, mark=" generated=1")

    assert check(lab)[1].startswith("SOLO CRITICAL: x-0.5: failing: ")
    assert check(lab)[2].startswith("ok=0;;;0 warning=0;;;0 critical=1;")
    assert check(lab, "x-4")[0] == 2


@pytest.mark.tool("strace")
@pytest.mark.parametrize(
    "line, most", [("check", 31), ("list --all", 31), ("metrics --via file", 31)]
)
def test_each_name_costs_the_same_few_system_calls(lab, line, most):
    """An idle one costs no look at its queue: a second one would be seen here."""
    counts = []
    for names in (range(10), range(10, 30)):
        for number in names:
            save(lab, f"job{number}", 2 * DAY, DAY)
            (lab.directory / f"job{number}").mkdir(mode=0o700)
        log = lab.path / "calls"
        lab.run(*line.split(), prefix=["strace", "-qq", "-o", log])
        counts.append(len(log.read_text().splitlines()))

    assert 0 < counts[1] - counts[0] <= 20 * most
