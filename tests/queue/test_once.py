"""--once-per on one machine: at most one run in each period."""

import json
import os
import re
import time
from datetime import datetime

import pytest
from conftest import finish, until, write_program

from solo import kernel
from solo.contention import period
from solo.errors import RanAlready
from solo.plan import Plan

pytestmark = pytest.mark.quick

DAY = ("-n", "job", "--once-per", "1d")
APPEND = ("sh", "-c", "echo ran >>$LAB/log")


def test_second_run_in_a_period_is_a_silent_success(lab):
    results = [lab.run(*DAY, "--", *APPEND) for _ in range(3)]

    assert [(result.returncode, result.stderr) for result in results] == [
        (0, b"")
    ] * 3 and lab.read_log() == ["ran"]
    assert [row["outcome"] for row in lab.history()] == ["ok", "skipped", "skipped"]


def test_verbose_says_until_when_the_period_lasts(lab):
    """Half a period from the run."""
    begin = time.time()
    first, second = (lab.run("-v", "-E", "3", *DAY, "true") for _ in range(2))

    [until] = re.findall(r"(?m)^solo: job: this period lasts until (.*)$", first.stderr.decode())
    refusal = rf"solo: job: ran already on \S+ in this period, which lasts until {until}\n"
    assert re.fullmatch(refusal, second.stderr.decode())
    assert (first.returncode, second.returncode) == (0, 3)
    end = datetime.strptime(until, "%Y-%m-%d %H:%M:%S").timestamp()
    assert begin - 1 <= end - 12 * 3600 <= time.time()


@pytest.mark.tool("faketime")
def test_next_period_runs_again(lab):
    for later in ((), ("faketime", "-f", "+1h"), ("faketime", "-f", "+1d")):
        lab.run(*DAY, *APPEND, prefix=later)

    assert lab.read_log() == ["ran", "ran"]


NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"  # its summer time begins on 14 March 2027


@pytest.mark.tool("faketime")
@pytest.mark.parametrize(
    "zone, clocks",
    [
        pytest.param(NEW_YORK, ("07:29:58", "07:30:02"), id="summer time"),
        pytest.param("UTC", ("11:59:58", "12:00:02"), id="noon"),
    ],
)
def test_daily_job_of_two_hosts_runs_once_a_day(lab, zone, clocks):
    for day in range(12, 17):
        for clock in clocks:
            prefix = ("env", f"TZ={zone}", "faketime", f"2027-03-{day} {clock}")
            lab.run(*DAY, "--", "sh", "-c", f"echo {day} >>$LAB/log", prefix=prefix)

    assert lab.read_log() == ["12", "13", "14", "15", "16"]


def test_changed_period_counts_the_earlier_run(lab):
    for span in ("1d", "2d", "1d", "300d"):
        assert lab.run("-n", "job", "--once-per", span, "--", *APPEND).returncode == 0
    assert lab.read_log() == ["ran"]


def test_wait_into_the_next_period_runs_in_that_period(lab):
    """The start of the command decides the period, so that no other contender runs in it."""
    holder = lab.hold("job")
    waiting = lab.start("-n", "job", "--once-per", "1s", "--wait", "1m", "--", *APPEND)
    until(lambda: lab.count_waiting("job") == 1)
    os.waitpid(os.posix_spawn("/bin/sleep", ["sleep", "1.5"], os.environ), 0)
    finish(holder)

    assert finish(waiting)[0] == 0
    host, when = json.loads(lab.find_journal("job").with_name(".once").read_text())
    assert time.time() - when < 60 and lab.read_log() == ["ran"]
    [run] = [row for row in lab.history() if row["command"][-1] == APPEND[-1]]
    assert abs(when - datetime.fromisoformat(run["time"]).timestamp()) < 1


def test_failed_run_counts_unless_once_retry(lab):
    fail = ("sh", "-c", "echo ran >>$LAB/log; exit 4")

    assert [lab.run(*DAY, "--", *fail).returncode for _ in range(2)] == [4, 0]
    again = ("-n", "other", "--once-per", "1d,retry", "--")
    assert [lab.run(*again, *words).returncode for words in (fail, fail, APPEND, APPEND)] == [
        4,
        4,
        0,
        0,
    ]
    assert lab.read_log() == ["ran"] * 4


def test_command_that_could_not_start_does_not_count(lab):
    write_program(lab.path / "bad", "#!/nowhere\n")

    for word in ("missing", "bad"):
        assert lab.run(*DAY, "--", lab.path / word).returncode == 127
    assert lab.run(*DAY, "--", *APPEND).returncode == 0 and lab.read_log() == ["ran"]


def test_running_job_satisfies_the_period(lab):
    """A second contender with --once-per succeeds; one without it is busy. Neither does a skip
    count as a run.
    """
    holder = lab.hold("job")
    assert lab.run(*DAY, "true").returncode == 75
    finish(holder)
    holder = lab.hold("job", "--once-per", "1d")

    assert (lab.run(*DAY, "true").returncode, lab.run("-n", "job", "true").returncode) == (0, 75)
    assert finish(holder)[0] == 0


@pytest.mark.parametrize("words", [("--wait", "1m"), ("--shared",)], ids=["waiters", "shared"])
def test_one_of_many_contenders_runs(lab, words):
    started = [lab.start(*DAY, *words, "--", *APPEND) for _ in range(15)]

    assert [finish(one)[0] for one in started] == [0] * 15 and lab.read_log() == ["ran"]


def test_run_that_cannot_be_marked_does_not_start(lab):
    (lab.directory).mkdir(mode=0o700)
    (lab.directory / ".journals").write_text("in the way")

    result = lab.run(*DAY, "--", *APPEND)

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (125, 1, [])


def test_garbage_in_the_marker_is_ignored(lab):
    lab.run(*DAY, "--", *APPEND)
    marker = lab.find_journal("job").with_name(".once")
    before = json.loads(marker.read_text())
    ahead = json.dumps([before[0], before[1] + 1e6]).encode()
    for garbage in (
        b"\xff",
        b"[1, 2, 3]",
        b"null",
        b"[" * 5000,
        b'["h", NaN]',
        b'["h", 1e300]',
        ahead,
    ):
        marker.write_bytes(garbage)
        assert lab.run(*DAY, "--", *APPEND).returncode == 0
        assert json.loads(marker.read_text())[1] > before[1]
    assert lab.read_log() == ["ran"] * 8


def test_two_names_or_invalid_period_are_refused(lab):
    for words in (
        "-n b --once-per 1h",
        "--once-per 0",
        f"--once-per 0.{'0' * 50}1",
        "--once-per forever",
    ):
        result = lab.run("-n", "a", *words.split(), "true")
        assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_delay_over_the_end_of_a_period_refuses_the_run(lab, monkeypatch):
    """Else it would be marked in a period that already had a run, and the next period could have
    two.
    """
    now = [1000.0]
    monkeypatch.setattr(period, "time", lambda: now[0])
    monkeypatch.setattr(kernel, "blocker", None)  # as in a launcher
    one = period.PeriodGuard(Plan({"once_per": 20.0, "dir": str(lab.directory), "name": ["job"]}))
    Late = type(
        "Late",
        (),
        {
            "read_once": lambda self, name: (
                now.__setitem__(0, 1012.0) or period.LastRun("elsewhere", 1001.0)
            )
        },
    )
    one.stores.append(Late())

    with pytest.raises(RanAlready):
        one.claim()
