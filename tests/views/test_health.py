"""The judge of a job's health: a test for each row of its table, simulated schedules, and a month
of ten jobs.
"""

import json
import random
import re
import shutil
import time
from datetime import datetime, timedelta

import pytest
from conftest import finish, read_line, until
from tmux import Tmux
from written import DAY, HOUR, MINUTE, NOW, WEEK, Written

from solo.history import health
from solo.history.health import BAD, FEWEST, STATES, Clock, Held, find_late, judge


@pytest.fixture
def job():
    return Written()


# --- the table------------------------------------------------------------------------------------


def test_states_stand_in_the_docstring_in_their_order():
    rows = [
        line.split("|")[1].strip() for line in health.__doc__.splitlines() if line.startswith("| ")
    ]

    assert rows == ["state", *STATES] and BAD == STATES[:6]


def test_job_whose_end_was_never_recorded_is_lost_until_a_success(job):
    job.daily(9)
    job.run(NOW - HOUR, is_ended=False)
    assert job.judge().state == "lost"

    job.run(NOW - MINUTE, ran=1)
    assert job.judge().states == ["ok"]


def test_run_that_goes_on_is_not_lost(job):
    job.daily(9)
    job.run(NOW - MINUTE, is_ended=False, is_held=True)

    assert job.judge().states == ["running"]


@pytest.mark.parametrize("event", ["ended", "refused"])
def test_job_whose_last_run_failed_is_failing_until_a_success(job, event):
    job.daily(9)
    if event == "ended":
        job.run(NOW - HOUR, code=3)
    else:
        job.skip(NOW - HOUR, event="refused", code=127, why="a.sh: no such file")
    assert job.judge().state == "failing"

    job.run(NOW - MINUTE, is_ended=False, is_held=True)
    assert job.judge().states == ["failing", "running"]
    job.run(NOW - 5 * MINUTE)
    assert job.judge().states == ["running"]


def share(job, days=12, now=NOW, **skip):
    """Let b.sh hold the name when a.sh comes, each night."""
    for day in range(days, 0, -1):
        job.run(now - day * DAY, 2 * HOUR, "b.sh")
        job.skip(now - day * DAY + HOUR, **skip)


def test_line_skipped_in_its_last_five_starts_is_starving(job):
    share(job, days=4)
    assert job.judge().states == ["ok"]

    share(job, days=6)
    found = job.judge()
    assert (found.states, found.last, found.skipped) == (["starving"], None, (10, 10))
    assert {run.words for run in found.line.runs} == {b"a.sh"}


def test_line_that_starts_no_more_starves_no_more(job):
    share(job)
    for day in range(3):
        job.run(NOW + day * DAY, 2 * HOUR, "b.sh")

    assert job.judge(NOW + 2 * DAY + 3 * HOUR).states == ["ok"]


@pytest.mark.parametrize(
    "skip",
    [
        {"why": "job: superseded by pid 3 (x)"},
        {"why": "job: ran already on h in this period", "code": 0},
    ],
)
def test_skips_by_latest_and_once_per_do_not_count(job, skip):
    share(job, **skip)

    found = job.judge()

    assert (found.states, found.skipped) == (["ok"], (0, 12))


def test_line_skipped_by_a_kept_hold_is_starving(job):
    job.daily(9)
    job.run(NOW - HOUR, command="migrate", is_ended=False, is_held=True, mark=" kept=1")
    for minute in range(50, 0, -10):
        job.skip(NOW - minute * MINUTE)

    assert job.judge().states == ["starving", "running"]


def outgrow(job, hours, ran, now=NOW):
    """Start each hour: run for `ran` seconds, or be skipped by the run before."""
    end = 0
    for hour in range(hours, 0, -1):
        start = now - hour * HOUR
        if start < end:
            job.skip(start)
        else:
            end = start + ran
            job.run(start, ran, is_held=end > now)


@pytest.mark.parametrize("ran", [62 * MINUTE, 5 * HOUR])
def test_line_of_which_its_own_runs_skip_a_third_is_outgrown(job, ran):
    outgrow(job, 30, ran)

    assert job.judge(NOW - 1).states == ["outgrown", *["running"] * bool(job.held)]


def test_line_that_its_own_runs_skip_seldom_is_ok(job):
    job.daily(30)
    for hour in (8, 7, 4, 3):
        job.run(NOW - hour * HOUR, 70 * MINUTE)
        job.skip(NOW - hour * HOUR + HOUR)

    assert job.judge().states == ["ok"] and job.judge().skipped == (4, 20)


def test_skips_by_a_hang_are_not_those_of_an_outgrown_line(job):
    for hour in range(60, 30, -1):
        job.run(NOW - hour * HOUR, 2 * MINUTE)
    job.run(NOW - 30 * HOUR, 26 * HOUR, code=-15)
    for hour in range(29, 4, -1):
        job.skip(NOW - hour * HOUR)
    during = job.judge(NOW - 5 * HOUR)
    job.run(NOW - 4 * HOUR, 2 * MINUTE)

    assert job.judge(NOW - 4 * HOUR + 3 * MINUTE).states == ["ok"] and during.skipped == (20, 20)


def test_start_that_came_in_both_weeks_before_is_late(job):
    job.daily(16)
    assert job.judge(NOW + 30 * MINUTE).states == ["ok"]

    found = job.judge(NOW + 61 * MINUTE)

    assert (found.states, found.due, found.missed) == (["late"], NOW, None)


def test_late_needs_two_weeks_and_regular_starts(job):
    job.daily(14)
    assert job.judge(NOW + DAY).states == ["ok"]

    rng = random.Random(5)
    for _ in range(60):
        job.run(NOW - rng.random() * 30 * DAY)
    assert job.judge(NOW + DAY).states == ["ok"]


def test_job_is_not_late_at_its_weekend(job):
    for day in range(40, 0, -1):
        if time.localtime(NOW - day * DAY).tm_wday < 5:
            job.run(NOW - day * DAY)
    friday = NOW + 4 * DAY
    for day in range(5):
        job.run(NOW + day * DAY)

    states = [job.judge(friday + hours * HOUR).state for hours in (12, 36, 60, 72.9, 73.1)]

    assert states == ["ok", "ok", "ok", "ok", "late"]


def test_weekly_job_is_late_after_the_longest_distance_and_a_quarter(job):
    for week in range(6, 0, -1):
        job.run(NOW - week * WEEK)

    assert [job.judge(NOW + days * DAY).state for days in (1.7, 1.8)] == ["ok", "late"]


def test_moved_job_is_late_once(job):
    job.daily(20)
    job.run(NOW + 4 * HOUR)

    assert job.judge(NOW + 3 * HOUR).state == "late"
    assert job.judge(NOW + DAY + 3 * HOUR).state == "ok"


def test_line_with_new_words_replaces_the_old_one(job):
    job.daily(20, command="backup.sh")
    job.run(NOW + 30 * MINUTE, command="backup.sh --verbose")

    assert job.judge(NOW + 3 * HOUR).states == ["ok"]


def test_line_that_is_gone_is_late_beside_another_that_runs(job):
    job.daily(20, command="backup.sh")
    for hour in range(20 * 24, -20, -1):
        job.run(NOW - hour * HOUR + 30 * MINUTE, command="sync.sh")

    found = job.judge(NOW + 12 * HOUR)

    assert (found.states, {run.words for run in found.line.runs}) == (["late"], {b"backup.sh"})


def test_start_for_which_the_machine_was_off_is_missed(job):
    job.daily(20)
    now, boot = NOW + 12 * HOUR, NOW + 10 * HOUR

    found = job.judge(now, up_since=boot)

    assert (found.states, found.due, found.missed) == (["ok"], None, NOW)
    assert (
        job.judge(NOW + DAY + 2 * HOUR, up_since=boot).state == "late"
    )  # the next one does not come either


def test_waiters_are_due_when_they_came(job):
    for day in range(20, 0, -1):
        job.run(NOW - day * DAY + day % 3 * HOUR, waited=day % 3 * HOUR)

    assert (
        job.judge(NOW + 30 * MINUTE).state == "ok" and job.judge(NOW + 61 * MINUTE).state == "late"
    )


@pytest.mark.parametrize(
    "spans, limit",
    [
        ([10] * 99 + [4000], 5000),
        ([1000] * 100, 2000),
        ([1] * 100, 300),
        ([10] * 4 + [9999] + [10] * 100, 300),
    ],
    ids=["longest", "median", "least", "last-hundred"],
)
def test_hold_beyond_the_limit_is_long(job, spans, limit):
    for at, span in enumerate(spans):
        job.run(NOW - (len(spans) - at + 1) * 10_000, span)
    job.run(NOW, is_ended=False, is_held=True)

    assert [job.judge(NOW + age).state for age in (limit - 1, limit + 1)] == ["running", "long"]


def test_job_of_fewer_than_five_starts_is_new(job):
    job.daily(4)
    assert job.judge().states == ["new"]

    job.run(NOW - HOUR)
    assert job.judge().states == ["ok"]


def test_nothing_is_new():
    found = judge([], [], Clock(NOW))

    assert (found.states, found.last, found.usual, found.skipped) == (["new"], None, None, (0, 0))


def test_dates_in_arguments_make_one_line(job):
    for day in range(20, 0, -1):
        job.run(NOW - day * DAY, command=f"backup --day={day}")

    assert job.judge().usual.median == MINUTE and job.judge(NOW + 61 * MINUTE).state == "late"


# --- schedules------------------------------------------------------------------------------------


def is_office_hour(when):
    return when.weekday() < 5 and 9 <= when.hour < 18


# (minutes between two ticks, whether the job starts at a tick), false alarms of a year
SCHEDULES = {
    "Mon-Fri 3:00": (60, lambda when, _: when.weekday() < 5 and when.hour == 3, 0),
    "the same, 5 holidays": (
        60,
        lambda when, holidays: (
            when.weekday() < 5 and when.hour == 3 and when.date() not in holidays
        ),
        5,
    ),
    "*/30 9-17 Mon-Fri": (30, lambda when, _: is_office_hour(when), 1),
    "*/15 6-23": (15, lambda when, _: when.hour >= 6, 1),
    "daily": (60, lambda when, _: when.hour == 3, 1),
    "weekly": (60, lambda when, _: when.weekday() == 6 and when.hour == 3, 0),
}


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def make_year(minutes, is_start, rng):
    """Return the starts of a year by the wall clock, each up to a minute after its time."""
    day = datetime(2025, 1, 1)
    holidays = {day.date() + timedelta(rng.randrange(365)) for _ in range(5)}
    ticks = [
        day + timedelta(minutes=minutes * tick) for tick in range(365 * DAY // MINUTE // minutes)
    ]
    return sorted(
        when.timestamp() + rng.random() * MINUTE for when in ticks if is_start(when, holidays)
    )


@pytest.mark.parametrize("kind", SCHEDULES)
def test_regular_job_is_seldom_late_and_a_deleted_one_soon(kind, berlin):
    """Just before a start a job is as late as it ever gets."""
    minutes, is_start, most = SCHEDULES[kind]
    times = make_year(minutes, is_start, random.Random(7))
    longest = sorted(range(FEWEST, len(times)), key=lambda at: times[at - 1] - times[at])[:400]

    false = [
        at
        for at in longest
        if find_late(times[max(0, at - 3000) : at], Clock(times[at] - 1)) is not None
    ]

    assert len(false) <= most
    at = next(
        at
        for at in range(len(times) // 2, len(times))
        if time.localtime(times[at]).tm_wday == 2 or kind == "weekly"
    )
    noticed = 2 * DAY if kind == "weekly" else 2 * HOUR
    assert find_late(times[max(0, at - 3000) : at], Clock(times[at] + noticed)) is not None


def test_nights_of_a_laptop_are_not_late(berlin):
    rng, times = random.Random(11), []
    for day in range(365):
        midnight = datetime(2025, 1, 1) + timedelta(day)
        wakes, sleeps = rng.uniform(7, 9), rng.uniform(21, 24)
        times += [
            (midnight + timedelta(hours=hour)).timestamp()
            for hour in range(24)
            if wakes <= hour < sleeps
        ]

    mornings = [at for at in range(500, len(times)) if times[at] - times[at - 1] > 2 * HOUR]

    def count(sleeps):
        return sum(
            find_late(times[:at], Clock(times[at] - 1, 0, sleeps)) is not None for at in mornings
        )

    assert len(mornings) > 300 and count(True) <= 1 and count(False) > 50


# --- a month--------------------------------------------------------------------------------------

BEGIN = time.mktime((2025, 9, 29, 0, 0, 0, 0, 0, -1))  # a Monday; summer time ends on the 27th day
DAYS = 34
ADDED, HANG, DELETED, BROKEN, OFF = 10, 18, 22, 24, (26, 28)  # days
SPANS = {  # minutes of a run on that day
    "sync.sh": lambda rng, day: 3 * rng.lognormvariate(0, 0.35),
    "fetch.sh": lambda rng, day: 2 * rng.lognormvariate(0, 0.2),
    "index.sh": lambda rng, day: 35 * 1.02**day * rng.lognormvariate(0, 0.02),
    "crawl.sh": lambda rng, day: rng.choice((3, 40)) * rng.lognormvariate(0, 0.1),
    "backup.sh": lambda rng, day: (420 if int(day) % 7 == 6 else 110) * rng.lognormvariate(0, 0.05),
    "reindex.sh": lambda rng, day: 10,
    "prune.sh": lambda rng, day: 5 * rng.lognormvariate(0, 0.2),
    "etl.sh": lambda rng, day: 45 * rng.lognormvariate(0, 0.1),
    "report.sh": lambda rng, day: 8 * rng.lognormvariate(0, 0.1),
    "vacuum.sh": lambda rng, day: 60 * rng.lognormvariate(0, 0.1),
}


def find_jobs(day, when, minute):
    """Yield (name, command) of each job that starts at that minute of the day."""
    if minute % 30 == 0:
        yield "sync", "sync.sh"
    if minute % 60 == 0:
        yield "fetch", "fetch.sh"
        yield "index", "index.sh"
    if minute % 120 == 0:
        yield "crawl", "crawl.sh"
    if minute == 150:
        yield "backup", "backup.sh"
    if minute == 180 and day >= ADDED:
        yield "backup", "reindex.sh"
    if minute == 240 and day < DELETED:
        yield "prune", "prune.sh"
    if minute == 300:
        yield "etl", "etl.sh"
    if minute == 480 and when.weekday() < 5:
        yield "report", "report.sh"
    if minute == 60 and when.weekday() == 6:
        yield "vacuum", "vacuum.sh"


def live_a_month(seed):
    """Return {name: (its Written, [(start, end, command) of each run])} of a month of ten jobs."""
    rng, lived, starts = random.Random(seed), {}, []
    for day in range(DAYS):
        midnight = datetime.fromtimestamp(BEGIN) + timedelta(day)
        for minute in range(0, 1440, 10):
            when = midnight + timedelta(minutes=minute)
            starts += [
                (when.timestamp() + rng.random(), *job) for job in find_jobs(day, when, minute)
            ]
    off, on = [BEGIN + day * DAY for day in OFF]
    for start, name, command in sorted(starts):
        if off <= start < on:
            continue
        written, spans = lived.setdefault(name, (Written(), []))
        day = (start - BEGIN) / DAY
        ran, code = MINUTE * SPANS[command](rng, day), 0
        if spans and start < spans[-1][1]:
            written.skip(start, command)
            continue
        if name == "fetch" and day >= HANG and all(end - begin < DAY for begin, end, _ in spans):
            ran, code = 26 * HOUR, -15
        if name == "etl" and day >= BROKEN:
            ran, code = 1, 1
        is_cut = start < off < start + ran
        spans.append((start, off if is_cut else start + ran, command))
        written.run(start, ran, command, code, not is_cut)
    return lived


def choose_moments(runs, spans):
    """Return times just before starts and ends: a job is then as bad as it gets."""
    moments = {run.time - 1 for run in runs[:: 1 + len(runs) // 60]}
    moments |= {end - 1 for start, end, _ in spans if end - start > 300}
    return moments | {
        BEGIN + day * DAY + hours * HOUR for day in range(DAYS) for hours in (0.15, 12)
    }


def judge_month(written, spans, moments=()):
    """Yield (when, Health, the runs until then), as a view would say it, while the machine is
    on.
    """
    runs = written.read()
    moments = moments or choose_moments(runs, spans)
    off, on = [BEGIN + day * DAY for day in OFF]
    for now in sorted(moment for moment in moments if not off <= moment < on):
        known = []
        for run in runs:
            if (run.start or run.time) <= now:
                known.append(run if run.time <= now else begin_again(run))
        ends = {round(start, 3): end for start, end, _ in spans}
        going = [
            run for run in known if run.event == b"started" and now < ends[round(run.start, 3)]
        ]
        held = [Held(run.start, run.words, (run.launcher, run.child)) for run in going]
        yield now, judge(known, held, Clock(now, on if now >= on else 0.0)), known


def begin_again(run):
    """Return an ended run as it was before its end."""
    return run._replace(event=b"started", time=run.start)


# What was broken: its name and the state that says so; from which day on, and within how many days
# it must be said.
BROKEN_JOBS = {
    ("fetch", "long"): (HANG, 0.01),
    ("backup", "starving"): (ADDED + 4, 0.6),  # the fifth skip
    ("index", "outgrown"): (26, 6),
    ("prune", "late"): (DELETED, 0.5),
    ("etl", "failing"): (BROKEN, 0.5),
}


# What follows from that: the hang is ended by a signal, and what ran when the machine went off is
# lost.
FOLLOWING = {
    ("fetch", "failing"),
    *((name, "lost") for name in "backup index crawl fetch sync".split()),
}


@pytest.mark.full
def test_month_of_ten_jobs(berlin):
    """Each thing that broke is said in time, and stays; the only false alarms are of runs longer
    than ever before.
    """
    said, false = {}, set()
    for name, (written, spans) in sorted(live_a_month(1).items()):
        for now, found, _ in judge_month(written, spans):
            day = (now - BEGIN) / DAY
            for state in set(found.states) & set(BAD):
                since = BROKEN_JOBS.get((name, state), (DAYS,))[0]
                if day >= since:
                    said.setdefault((name, state), day)
                elif (name, state) not in FOLLOWING:
                    false.add((name, state, found.last.token))
        lasting = [state for job, state in BROKEN_JOBS if job == name and state != "long"]
        assert [state for state in found.states if state in BAD] == lasting

    print(
        "broken on day, said on day:",
        {job: (since, said.get(job)) for job, (since, _) in BROKEN_JOBS.items()},
    )
    assert all(said[job] - since <= within for job, (since, within) in BROKEN_JOBS.items())
    assert {state for _, state, _ in false} == {"long"} and len(false) <= 5, false


# --- solo list --all------------------------------------------------------------------------------


def write_names(lab):
    """Write the journals of forty names, of which five are bad. Return these in the order of their
    states.
    """
    lab.hasten(
        "solo.commands.states.read_boot_clock", "lambda: 1e9"
    )  # else nothing is late that the boot can explain
    now = time.time()
    jobs = {f"job{number:02d}": Written() for number in range(33)}
    for number, job in enumerate(jobs.values()):
        # The last start is half an hour ago: whenever this machine came up, none is missed.
        job.daily(20, now + DAY - HOUR / 2, ran=10 * number, command=f"/srv/jobs/job{number}.sh")
    bad = {name: Written() for name in ("cut", "etl", "reindex", "index", "prune")}
    bad["cut"].daily(20, now)
    bad["cut"].run(now - HOUR, is_ended=False)
    bad["etl"].daily(20, now)
    bad["etl"].run(now - HOUR, code=3)
    share(bad["reindex"], 20, now)
    outgrow(bad["index"], 98, 62 * MINUTE, now + HOUR / 2)
    for week in range(10, 2, -1):
        bad["prune"].run(now - week * WEEK)
    fine = {"once": Written(), "crawl": Written()}
    fine["once"].run(now - HOUR)
    for number in range(200, 0, -1):
        fine["crawl"].run(
            now - number * 2 * HOUR, 40 * MINUTE if number % 2 else 3 * MINUTE, "crawl.sh"
        )
    for name, job in {**jobs, **bad, **fine}.items():
        job.save(lab, name)
    return list(bad)


def test_list_all_shows_bad_states_first_and_why(lab):
    bad = write_names(lab)

    head, *lines = [line.split() for line in lab.run("list", "--all").stdout.decode().splitlines()]
    rows = {row["name"]: row for row in json.loads(lab.run("list", "--all", "--json").stdout)}

    assert (
        head == ["NAME", "STATE", "LAST", "AGO", "OUTCOME", "USUAL", "SKIPPED", "COMMAND"]
        and len(lines) == 40
    )
    states = ["lost", "failing", "starving", "outgrown", "late"]
    assert [line[:2] for line in lines[:6]] == [*map(list, zip(bad, states)), ["once", "new"]]
    assert {line[1] for line in lines[6:]} == {"ok"}
    assert (rows["etl"]["code"], rows["etl"]["outcome"]) == (3, "failed")
    assert (rows["reindex"]["last"], rows["reindex"]["skipped"], rows["reindex"]["command"]) == (
        None,
        20,
        ["a.sh"],
    )
    assert rows["crawl"]["usual_range"] == [180, 2400] and rows["prune"]["due"]
    assert all((row["reason"] is not None) == (row["name"] in bad) for row in rows.values())


def read_screen(lab, text):
    """Return what `solo list --all` shows on a terminal of the usual size, with that text."""
    screen = Tmux([lab.script, "list", "--all"], {**lab.environment, "LC_ALL": "C.UTF-8"}, 80, 24)
    try:
        return screen.wait_for(text)
    finally:
        screen.close()


@pytest.mark.tool("tmux")
def test_list_all_fits_80_columns_and_ends_with_what_to_look_at(lab):
    bad = write_names(lab)
    lines = read_screen(lab, "5 of 40 need a look (solo show NAME)")

    at = next(at for at, line in enumerate(lines) if line.startswith("5 of 40"))
    assert [line.split(":")[0] for line in lines[at - 5 : at]] == bad
    assert lines[at - 1].startswith("prune: late: a start was due: ")
    rows = [line for line in lines[: at - 5] if line.startswith("job")]
    assert rows and all(re.search(r" /srv/\S+", line) for line in rows)


def test_show_and_doctor_say_what_the_judge_says(lab):
    bad = write_names(lab)

    shown = lab.run("show", "reindex", "job00").stdout.decode()
    [note] = re.findall(r".*need a look.*", lab.run("doctor").stdout.decode())

    assert "\nstarving: skipped 20 of its last 20 times, as others held the name\n" in shown
    assert shown.count(": ") and "\nok" not in shown
    assert note.startswith("note   5 of 40 jobs need a look: ") and all(
        f"{name} (" in note for name in bad
    )


def test_row_of_list_all_is_that_of_the_last_run(lab):
    """A newer skip of another command has no part in it."""
    job = Written()
    for hour in range(FEWEST, 0, -1):
        job.run(time.time() - hour * HOUR, ran=60, command="slow.sh")
        job.run(time.time() - hour * HOUR + 900, ran=2, command="quick.sh")
    job.skip(time.time() - 60, command="slow.sh")
    job.save(lab, "job")

    [row] = json.loads(lab.run("list", "--all", "--json").stdout)

    assert (row["command"], row["outcome"], row["usual"], row["skipped"]) == (
        ["quick.sh"],
        "ok",
        2,
        1,
    )


def test_names_made_from_commands_are_judged_once_they_are_used_again(lab):
    for number in range(3):
        lab.run("true", str(number))
    for _ in range(FEWEST):
        lab.run("true")

    [row] = json.loads(lab.run("list", "--all", "--json").stdout)
    [new] = [name for name in {row["name"] for row in lab.history()} if name != row["name"]][:1]
    [typed] = json.loads(lab.run("list", "--all", "--json", new).stdout)

    assert (row["state"], typed["name"], typed["state"]) == ("ok", new, "new")


@pytest.mark.tool("tmux")
def test_list_all_shows_a_hold_once_under_its_own_name(lab):
    """A nested name is held at the names above too, a command without -n by two names."""
    lab.run("-n", "a", "true")
    holders = [lab.hold("a/b"), lab.start("sh", "-c", "echo; read line"), lab.hold("cleaned")]
    read_line(holders[1])
    until(lab.find_journal("cleaned").exists)
    shutil.rmtree(lab.find_journal("cleaned").parent)

    rows = json.loads(lab.run("list", "--all", "--json").stdout)

    [made] = [row["name"] for row in rows if row["name"].startswith("sh-")]
    states = {"a": ["new"], **dict.fromkeys(["a/b", "cleaned", made], ["running", "new"])}
    assert {row["name"]: row["states"] for row in rows} == states
    for holder in holders:
        finish(holder)


def test_list_all_of_nothing_says_whose_names_it_shows(lab):
    shown = "".join(read_screen(lab, "ended:0"))

    assert (
        f"no names known: names in {lab.directory}, which does not exist (each user has separate names)"
        in shown
    )
    assert lab.run("list", "--all").stdout == b""


def test_list_all_counts_the_names_that_it_leaves_out(lab, terminal):
    lab.run("--", "true")

    shown = terminal(lab.script, "list", "--all").read_to_end()

    expected = "not shown: 1 name made from a command (solo history shows the runs)\r\n"
    assert shown.decode() == expected and b"true" in lab.run("history").stdout


@pytest.mark.parametrize("via", ["socket", "etcd://127.0.0.1:1/x"])
def test_list_all_refuses_names_without_a_history(lab, via):
    refused = lab.run("list", "--all", "--via", via)

    assert (refused.returncode, refused.stdout) == (125, b"") and refused.stderr.startswith(
        b"solo: list --all shows "
    )
