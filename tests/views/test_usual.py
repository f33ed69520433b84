"""The usual run of a job, read from the tail of its journal, and where it shows."""

import collections
import random
import re
import subprocess

import pytest
from conftest import finish

from solo.history.usual import FEWEST, MOST, SIZES, Usual, estimate_wait, find_usual
from solo.modes import EXCLUSIVE, SHARED, SLOTS, Claim
from solo.record import quote_words
from solo.text.describe import format_usual

MINUTE, HOUR, DAY = 60, 3600, 86400
ALONE = Claim(EXCLUSIVE)
HOLDER = ("sh", "-c", "echo $$; read line; exit 0")  # as lab.hold starts it
HELD = quote_words([word.encode() for word in HOLDER]).decode()


def write_runs(lab, spans, name="job", command="backup.sh --full", **changed):
    """Append runs to the journal of `name`, with lines like those of a real one that has just been
    written.
    """
    journal = lab.directory / ".journals" / name / ".journal"
    if not journal.exists():
        lab.run("-n", name, "true")
    start, end = lab.template = getattr(lab, "template", None) or journal.read_text().splitlines(
        True
    )
    end = end.replace("command=true", f"command={command}").replace(
        "code=0", f"code={changed.get('code', 0)}"
    )
    end = end.replace(
        "timed-out=0", f"timed-out={changed.get('timed_out', 0)}{changed.get('mark', '')}"
    )
    head, _, tail = end.partition(" ran=")
    with journal.open("a") as file:
        file.writelines(f"{start}{head} ran={span:.3f} {tail.partition(' ')[2]}" for span in spans)


def test_last_hundred_runs_count(lab):
    write_runs(lab, range(1, 151))

    usual = find_usual(str(lab.directory), "job")

    assert (usual.median, usual.spans[0]) == (100.5, 51)


@pytest.mark.parametrize("changed", [{"code": 1}, {"timed_out": 1}, {"mark": " lost=1"}], ids=str)
def test_runs_that_failed_do_not_count(lab, changed):
    write_runs(lab, [7] * FEWEST)
    write_runs(lab, [1] * 50, **changed)

    assert find_usual(str(lab.directory), "job").median == 7


def test_jobs_of_one_name_have_their_own_usual(lab):
    write_runs(lab, [300] * 20, command="backup.sh --full")
    write_runs(lab, [2] * 60, command="backup.sh --delta")
    write_runs(lab, [1] * 3, command="vacuum.sh --day=1")
    write_runs(lab, [9] * 2, command="vacuum.sh --day=12")

    def find_median(*command):
        usual = find_usual(str(lab.directory), "job", list(command))
        return usual and usual.median

    assert find_median(b"backup.sh", b"--full") == 300
    assert find_median(b"vacuum.sh", b"--day=31") == 1  # a new date
    assert find_median(b"vacuum.sh", b"--all") is None
    assert find_median(b"rotate.sh") is None


def test_small_tail_of_a_large_journal_is_read(lab):
    """The witness: skips that fill the tail make it read more."""
    write_runs(lab, [60] * 6000)
    journal = lab.directory / ".journals/job/.journal"

    def count_bytes_read():
        with open("/proc/thread-self/io") as io:
            return int(io.readline().split()[1])

    begin = count_bytes_read()
    assert find_usual(str(lab.directory), "job").median == 60
    assert journal.stat().st_size > SIZES[1] and count_bytes_read() - begin < 2 * SIZES[0]

    with journal.open("a") as file:
        file.write("skipped 1.000 x\n" * 6000)
    begin = count_bytes_read()
    assert (
        find_usual(str(lab.directory), "job").median == 60 and count_bytes_read() - begin > SIZES[1]
    )


def test_runs_before_a_rotation_count(lab):
    write_runs(lab, [60] * 10)
    journal = lab.directory / ".journals/job/.journal"
    journal.rename(journal.with_name(".journal.past"))

    assert find_usual(str(lab.directory), "job").median == 60


@pytest.mark.parametrize(
    "spans, limit",
    [
        ([4 * MINUTE] * 99 + [20 * MINUTE], 25 * MINUTE),
        ([10 * MINUTE] * 100, 20 * MINUTE),
        ([1] * 100, 5 * MINUTE),
    ],
    ids=["longest", "median", "least"],
)
def test_run_beyond_its_longest_and_twice_its_median_is_long(lab, spans, limit):
    write_runs(lab, spans)

    assert find_usual(str(lab.directory), "job").long_after == limit


@pytest.mark.parametrize(
    "spans, words",
    [
        ([240] * 9 + [2400], "4m"),
        ([180] * 8 + [2400] * 2, "3m to 40m"),
        ([180] * 4 + [2400] * 6, "3m to 40m"),
    ],
    ids=str,
)
def test_runs_that_spread_are_usual_from_low_to_high(lab, spans, words):
    write_runs(lab, spans)
    usual = find_usual(str(lab.directory), "job")

    assert format_usual(usual.median, usual.range) == words


def test_what_is_left_of_a_run_comes_from_the_longer_runs(lab):
    write_runs(lab, [60, 100, 120, 600, 700])
    usual = find_usual(str(lab.directory), "job")

    assert (usual.find_left(0), usual.find_left(110), usual.find_left(650)) == (110.0, 490, 50)
    assert usual.find_left(700) is None


# --- a wait's forecast----------------------------------------------------------------------------


def every(period, offset=0):
    return [offset + at for at in range(0, 30 * DAY, period)]


# Names, each with the jobs that wait for it: when they start, and how long they take.
MONTH = (
    (
        ("backup", every(DAY, 3 * HOUR), 40),
        ("vacuum", every(HOUR), 4),
        ("report", every(15 * MINUTE), 2),
    ),
    (
        ("dump", every(DAY, 2 * HOUR), 25),
        ("upload", every(DAY, 2 * HOUR), 50),
        ("check", every(HOUR), 6),
    ),
    (("sync", every(5 * MINUTE), 4),),
    (
        (
            "deploy",
            [
                day * DAY + 9 * HOUR + at * 7919 % (8 * HOUR)
                for day in range(30)
                for at in range(20)
            ],
            6,
        ),
    ),
    (("import", every(10 * MINUTE), 7), ("export", every(30 * MINUTE), 5)),
)


def simulate_waits(jobs, rng):
    """Yield (forecast, actual seconds) of each wait for one name. Durations vary by 10 %, and every
    100th is three times as long.
    """
    starts = sorted(
        (start + rng.random(), job, 60 * minutes) for job, times, minutes in jobs for start in times
    )
    recorded = {job: collections.deque(maxlen=MOST) for job, _, _ in jobs}
    queue, free = [], 0.0
    for now, job, seconds in starts:
        while queue and queue[0][1] <= now:
            begin, end, ended = queue.pop(0)
            recorded[ended].append(end - begin)
        if queue and all(len(recorded[ahead]) >= FEWEST for _, _, ahead in queue):
            usual = [Usual(recorded[ahead]) for _, _, ahead in queue]
            left = usual[0].find_left(now - queue[0][0])
            ahead = [(each.median, ALONE) for each in usual[1:]]
            yield left and estimate_wait([(left, ALONE)], ahead, ALONE), free - now
        begin = max(now, free)
        free = begin + seconds * rng.lognormvariate(0, 0.1) * (3 if rng.random() < 0.01 else 1)
        queue.append((begin, free, job))


def test_forecast_of_nine_waits_in_ten_is_within_a_factor_of_two():
    rng = random.Random(37)

    waits = [wait for jobs in MONTH for wait in simulate_waits(jobs, rng)]

    known = [(forecast, wait) for forecast, wait in waits if forecast is not None]
    assert len(known) > 3000 and len(known) > 0.97 * len(waits)
    assert sum(wait / 2 <= forecast <= 2 * wait for forecast, wait in known) >= 0.9 * len(known)
    assert sum(wait / 2 <= 4 * MINUTE <= 2 * wait for _, wait in known) < 0.7 * len(
        known
    )  # the witness: a guess


def test_forecast_follows_the_rule_of_slots_and_shared_holds():
    def slots(take):
        return Claim(SLOTS, 3, take)

    assert estimate_wait([(5, slots(1)), (9, slots(2))], [], slots(1)) == 5
    assert estimate_wait([(5, slots(1)), (9, slots(2))], [(30, slots(2))], slots(1)) == 9
    assert (
        estimate_wait([(5, Claim(SHARED)), (9, Claim(SHARED))], [(20, ALONE)], Claim(SHARED)) == 29
    )
    assert estimate_wait([(9, ALONE)], [(20, Claim(SHARED))], Claim(SHARED)) == 9


# --- where it shows-------------------------------------------------------------------------------


def test_busy_line_says_what_is_usual(lab):
    write_runs(lab, [4 * MINUTE] * FEWEST, command=HELD)
    holder = lab.hold("job")

    lines = [lab.run("-n", "job", "true").stderr.decode() for _ in range(2)]

    known = rf"solo: job: busy: held for \d+s by pid {holder.pid} \(.*\), usually 4m"
    assert re.fullmatch(known + "\n", lines[0]) and re.fullmatch(
        known + ", 1 skip since\n", lines[1]
    )


def test_busy_line_says_that_the_holder_runs_long(lab):
    lab.hasten("solo.history.usual.LEAST_LONG", 0)
    write_runs(lab, [0] * FEWEST, command=HELD)
    lab.hold("job")

    assert re.search(rb"\), usually 0ms, running long\n", lab.run("-n", "job", "true").stderr)


def skip(lab, *words):
    """Let a job be skipped with these words; return (its status, what it says)."""
    done = lab.run("-n", "job", "-q", "-E", "0", *words)
    return done.returncode, done.stderr.decode()


def test_loud_after_counts_the_skips_of_the_command_line(lab):
    """A start of a neighbour ends the skips of the name, as `12 skips since` says, and not those of
    the line.
    """
    starved = ("--loud-after", "3", "true", "x")
    for _ in range(3):
        holder = lab.hold("job")
        assert skip(lab, *starved) == (0, "")
        finish(holder)
    holder = lab.hold("job")

    own = skip(lab, *starved)
    neighbour = skip(lab, "--loud-after", "3", "false")

    assert own[0] == 75 and own[1].endswith(")\n") and neighbour == (0, "")
    for _ in range(2):
        own = skip(lab, *starved)
    assert re.fullmatch(
        r"solo: job: busy: held .*, \d skips since; this command line was skipped 6 times in a row\n",
        own[1],
    )
    finish(holder)


def test_start_of_the_line_ends_its_skips_and_a_date_does_not_begin_a_line(lab):
    def be_skipped(day):
        holder = lab.hold("job")
        found = skip(lab, "--loud-after", "2", "true", f"--day={day}")
        finish(holder)
        return found[0]

    before = [be_skipped(day) for day in range(10, 13)]
    assert lab.run("-n", "job", "true", "--day=13").returncode == 0

    assert before == [0, 0, 75] and [be_skipped(day) for day in range(14, 17)] == [0, 0, 75]


def test_waiter_says_when_its_turn_is(lab):
    write_runs(lab, [4 * MINUTE] * FEWEST, command=HELD)
    lab.hold("job")
    log = {**lab.environment, "CI": "1"}

    first = lab.start("-n", "job", "-w", "1h", "--", *HOLDER, env=log, stderr=subprocess.PIPE)
    line = first.stderr.readline().decode()
    assert re.search(
        r"1st in the queue; usually 4m: about 4m; held for \d+s by pid \d+ \(.*\)\n", line
    )

    second = lab.start("-n", "job", "-w", "1h", "--", "true", env=log, stderr=subprocess.PIPE)
    line = second.stderr.readline().decode()
    assert re.search(
        r"2nd in the queue; usually 4m each: about 8m; held for \d+s by pid \d+ \(.*\)\n", line
    )
