"""The journal has every run and every skip, however their launchers end. A broken journal fails no
job.
"""

import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import conftest
import pytest
import tally
from conftest import (
    ROOT,
    finish,
    in_mounts,
    inject,
    kill,
    kill_both,
    list_open,
    read_line,
    until,
    write_program,
)
from written import DAY, MINUTE, Written

from solo import directories, journal, journal_files
from solo.history import files, reader
from solo.history.health import Clock, judge
from solo.history.reader import Totals, find_histories


def pick(rows, *keys):
    return [tuple(row[key] for key in keys) for row in rows]


def read_totals(lab, name="job"):
    return dict(find_histories(str(lab.directory), []))[name].totals


# --- contents-------------------------------------------------------------------------------------


def test_each_run_is_recorded_with_its_outcome(lab):
    lab.run("-n", "job", "true")
    lab.run("-n", "job", "--", "sh", "-c", "exit 3")
    lab.run("-n", "job", "--", "sh", "-c", "kill -TERM $$")
    lab.run("-n", "job", "-t", "200ms", "sleep", "99")
    lab.run("-n", "job", "--", "/dev/null/missing")

    *rows, missing = lab.history()

    assert pick(rows, "name", "outcome", "code", "signal") == [
        ("job", "ok", 0, None),
        ("job", "failed", 3, None),
        ("job", "signaled", None, 15),
        ("job", "timed out", None, 15),
    ]
    assert (missing["outcome"], missing["reason"]) == ("refused", "/dev/null/missing: no such file")
    assert read_totals(lab).failures == 4
    assert all(
        row["ran"] >= 0 and row["waited"] >= 0 and row["token"] and row["child"] for row in rows
    )
    assert rows[0]["command"] == ["true"] and rows[1]["command"] == ["sh", "-c", "exit 3"]
    assert rows[3]["ran"] >= 0.1


def test_a_command_that_was_never_executed_is_refused(lab):
    """An exit with the same status by the command is a run."""
    script = write_program(lab.path / "script", "#!/no/such\n")

    assert lab.run("-n", "job", "--", script).returncode == 127
    assert lab.run("-n", "job", "--", "sh", "-c", "exit 127").returncode == 127

    refused, failed = lab.history()
    assert (refused["outcome"], refused["code"], refused["reason"]) == (
        "refused",
        None,
        f"{script}: not executed",
    )
    assert (failed["outcome"], failed["code"]) == ("failed", 127)
    assert read_totals(lab).failures == 2


def test_each_skip_is_recorded_with_its_reason(lab):
    holder = lab.hold("job")
    lab.run("-n", "job", "true")
    lab.run("-n", "job", "-w", "200ms", "-q", "true")

    running, skipped, waited = lab.history("job")

    assert pick([running, skipped, waited], "outcome") == [("running",), ("skipped",), ("skipped",)]
    assert skipped["ran"] is waited["ran"] is None
    assert running["child"] == holder.child and running["end"] is None
    assert (
        re.match(rf"job: busy: held for \d+s by pid {holder.pid} \(", skipped["reason"])
        and waited["waited"] >= 0.1
    )
    finish(holder)
    assert lab.history("job")[0]["outcome"] == "ok"


def test_killed_launcher_is_orphaned_then_unknown(lab):
    holder = lab.hold("job")
    until(lambda: lab.history())  # it is written a moment after the command has started
    kill(holder)
    orphaned = lab.history()
    kill_both(holder)

    assert pick(orphaned + lab.history(), "outcome", "end") == [
        ("orphaned", None),
        ("unknown", None),
    ]


def test_run_of_several_names_is_in_each_journal(lab):
    lab.run("-n", "b", "-n", "a/x", "--slots", "3,2", "true")

    rows = lab.history()

    assert {row["name"] for row in rows} == {"b", "a/x"}
    assert (
        pick(rows, "names", "mode", "slot", "slots", "take")
        == [(["b", "a/x"], "slots", 0, 3, 2)] * 2
    )
    assert rows[0]["token"] != rows[1]["token"]


def test_history_of_a_name_includes_nested_names_only(lab):
    for name in ("a", "a/b", "ab"):
        lab.run("-n", name, "true")

    assert [row["name"] for row in lab.history("a")] == ["a", "a/b"]


def test_since_keeps_runs_that_have_not_ended(lab):
    lab.hold("long")
    lab.run("-n", "short", "true")

    assert [row["name"] for row in lab.history("--since", "0")] == ["long"]
    assert [row["name"] for row in lab.history("--since", "1h")] == ["long", "short"]


def test_history_of_failed_runs_and_of_the_last_ones(lab):
    for code in (0, 3, 0, 4, 0):
        lab.run("-n", "job", "--", "sh", "-c", f"exit {code}")

    def read(*words):
        return [row["code"] for row in lab.history(*words)]

    assert (read("--failed"), read("--limit", "2"), read("--failed", "--limit", "1")) == (
        [3, 4],
        [4, 0],
        [4],
    )
    assert read("--limit", "9") == [0, 3, 0, 4, 0]


def test_history_since_a_day(lab):
    """Where it is about noon: no day ends meanwhile. The name of a zone has three letters."""
    job, now = Written(), time.time()
    west = time.gmtime(now).tm_hour - 12
    lab.environment["TZ"] = f"<XXX>{west}"
    midnight = now - (now - west * 3600) % DAY
    for number, start in enumerate((midnight - 2 * DAY, midnight - DAY / 2, midnight), 1):
        job.run(start, 0.001 * number)
    job.save(lab, "job")
    day = time.strftime("%F", time.gmtime(midnight - DAY / 2 - west * 3600))

    found = [
        len(lab.history("--since", since))
        for since in ("today", "yesterday", day, f"{day} 23:59", "9d")
    ]

    assert found == [1, 2, 2, 1, 3]


def test_history_is_empty_where_nothing_ran(lab):
    assert lab.history() == [] and lab.run("history").stdout == b"" and not lab.directory.exists()


def test_strange_bytes_are_unchanged_in_history(lab):
    words = [b"true", b"\xff\xfe", b"a=b command=c", b"", b"new\nline", "ö %".encode()]
    subprocess.run(
        [lab.script, "-n", b"n\xe4me = x%", "--", *words], env=lab.environment, check=True
    )

    [row] = lab.history()

    name, *words = (word.decode(errors="backslashreplace") for word in (b"n\xe4me = x%", *words))
    assert (row["name"], row["command"]) == (name, words)
    assert lab.run("history").stdout.count(b"\n") == 2


@pytest.mark.tool("localedef")
def test_reason_is_escaped_if_locale_cannot_encode_it(lab):
    """The reason contains an ellipsis, because the holder's long command is cut."""
    subprocess.run(
        ["localedef", "-i", "en_US", "-f", "ISO-8859-1", lab.path / "en_US.ISO-8859-1"],
        capture_output=True,
    )
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo; read line", *["x" * 100] * 10)
    read_line(holder)
    environment = {**lab.environment, "LOCPATH": str(lab.path), "LC_ALL": "en_US.ISO-8859-1"}
    if (
        subprocess.run(["locale", "charmap"], env=environment, capture_output=True).stdout
        != b"ISO-8859-1\n"
    ):
        finish(holder)
        pytest.skip("needs the sources of locales, with character maps: make test-deps")

    assert lab.run("-n", "job", "true", env=environment).returncode == 75

    finish(holder)
    assert b"\\u2026" in lab.find_journal("job").read_bytes()


def test_long_command_is_cut_in_the_journal(lab):
    lab.run("-n", "job", "true", *["x" * 100] * 1000)

    assert lab.find_journal("job").stat().st_size < 4096 and lab.history()[0]["command"][-1] == "…"


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.tool("strace")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["openat", "write", "pread64", "fstat", "newfstatat", "close"])
def test_unwritable_journal_fails_no_job(lab, call, error):
    lab.run("-n", "job", "true")
    prefix = inject(lab, f"{call}:error={error}", paths=[lab.find_journal("job")])

    result = lab.run("-n", "job", "--", "sh", "-c", "exit 3", prefix=prefix)

    assert (result.returncode, result.stderr) == (3, b"")


def test_torn_and_strange_lines_hide_no_other(lab):
    lab.run("-n", "job", "true")
    whole = lab.find_journal("job").read_bytes()
    with lab.find_journal("job").open("ab") as file:
        file.write(b"\n\nended\nended x y\nnews 1 a=b command=x\n" + b"\0" * 4096 + b"\n\xff\xfe\n")
        file.write(whole[: len(whole) // 3])

    lab.run("-n", "job", "false")

    assert pick(lab.history(), "outcome") == [("ok",), ("failed",)]
    assert read_totals(lab).runs == 2


def test_journal_cut_anywhere_can_be_read(lab):
    lab.run("-n", "job", "--slots", "2", "true")
    lab.run("-n", "job", "false")
    whole = lab.find_journal("job").read_bytes()

    for size in range(len(whole) + 1):
        totals, events = reader.parse("job", whole[:size])
        assert totals is None and len(events) == whole[:size].count(b"\n")


# --- rotation-------------------------------------------------------------------------------------


SAMPLE = 10  # kills, of all in a whole torture


def fill(lab, file=None, size=None):
    """Fill a journal with whole runs; return their number."""
    lab.run("-n", "job", "true")
    run = b"".join(lab.find_journal("job").read_bytes().splitlines(keepends=True)[-2:])
    count = (size or journal_files.SIZE_LIMIT) // len(run) + 1
    (file or lab.find_journal("job")).write_bytes(run * count)
    return count


def test_full_journal_is_rotated_and_totals_continue(lab):
    first = fill(lab)
    lab.run("-n", "job", "false")
    second = fill(lab)  # overwrites the false; .journal.past is one full journal now
    lab.run("-n", "job", "false")
    sizes = {file.name: file.stat().st_size for file in lab.find_journal("job").parent.iterdir()}

    lab.run("-n", "job", "false")

    assert sizes.keys() == {".journal", ".journal.past"} and sizes[".journal"] < 4096
    assert sizes[".journal.past"] < 1.01 * journal_files.SIZE_LIMIT
    totals = read_totals(lab)
    assert (totals.runs, totals.failures) == (
        first + second + 3,
        2,
    )  # the second fill overwrote the first false
    assert totals.waits == totals.runs == totals.ends + 1 and totals.ran_ms > totals.last_ran_ms
    assert totals.last_success < totals.last_failure


def test_journal_that_cannot_be_renamed_stops_at_twice_its_size(lab):
    fill(lab, size=2 * journal_files.SIZE_LIMIT)
    before = lab.find_journal("job").stat().st_size
    lab.find_journal("job").with_name(".journal.past").mkdir()

    result = lab.run("-v", "-n", "job", "true")

    assert result.returncode == 0 and b"the journal is not written: it is full" in result.stderr
    assert before <= lab.find_journal("job").stat().st_size < before + 1024


def test_locked_full_journal_blocks_no_run(lab):
    fill(lab)
    locker = lab.start_words("flock", lab.find_journal("job"), "sh", "-c", "echo; read line")
    locker.stdout.readline()
    before = read_totals(lab).runs

    assert lab.run("-n", "job", "true").returncode == 0
    assert read_totals(lab).runs == before + 1
    locker.communicate()


# Bytes, 1300 lines; a writer that sleeps longer than these take between open and write may lose its
# line.
SMALL = 1 << 17


def write_many(directory, number, count):
    journal_files.SIZE_LIMIT = SMALL
    journal_files.JOURNAL_LIMIT = files.READ_LIMIT = (
        SMALL * 1000
    )  # seven writers may go on while one rotates
    for at in range(count):
        line = f"skipped {at}.000 uid=0 host=h launcher={number} mode=X slots=1 take=1 waited=0.0 code=75 command=x\n"
        journal.append(journal.make_place(directory, "job"), line.encode())


def test_eight_writers_lose_no_line_in_the_totals(lab):
    """The journal is renamed meanwhile; of single lines only the last ones are kept."""
    lab.directory.mkdir(mode=0o700)
    fork = multiprocessing.get_context("fork")
    writers = [
        fork.Process(target=write_many, args=(str(lab.directory), number, 500))
        for number in range(1, 9)
    ]
    for writer in writers:
        writer.start()
    seen = []
    while any(writer.is_alive() for writer in writers):
        if seen or lab.find_journal("job").exists():  # absent for a moment at the first rename
            seen.append(read_totals(lab).skips)
    for writer in writers:
        writer.join()

    assert read_totals(lab).skips == 8 * 500 and [writer.exitcode for writer in writers] == [0] * 8
    assert seen == sorted(seen)
    assert (
        sum(file.stat().st_size for file in lab.find_journal("job").parent.iterdir()) < 20 * SMALL
    )


APPEND = f"""
import sys; sys.path.insert(0, {str(ROOT)!r}); from solo import journal, journal_files; from solo.history import reader
journal_files.SIZE_LIMIT = 2048
line = b"skipped 1.0 uid=0 host=h launcher=1 mode=X slots=1 take=1 code=75 command=x\\n"
journal.append(journal.make_place(sys.argv[1], "job"), line)
"""


@pytest.mark.full
def test_totals_survive_sigkill_at_every_call_of_a_rotation(lab):
    """A process only appends a line. After each kill the totals have counted nothing twice and lost
    nothing.
    """
    lab.directory.mkdir(mode=0o700)
    trace, file = lab.path / "trace", lab.find_journal("job")
    words = [sys.executable, "-IS", "-c", APPEND, str(lab.directory)]
    strace = ["strace", "-qq", "-o", trace, "-e"]
    calls, before = [], {}
    while ".journal.past" not in before or not any(call.startswith("rename") for call in calls):
        before = {path.name: path.read_bytes() for path in file.parent.iterdir()} if calls else {}
        subprocess.run([*strace, "trace=file,desc", *words], check=True)
        calls = trace.read_text().splitlines()
    start = next(at for at, call in enumerate(calls) if ".journals" in call)
    names = [call.partition("(")[0] for call in calls]

    killed = []
    for at in map(int, tally.choose(range(start, len(calls)), SAMPLE)):
        for path in file.parent.iterdir():
            path.unlink()
        for name, text in before.items():
            (file.parent / name).write_bytes(text)
        skips, nth = read_totals(lab).skips, names[: at + 1].count(names[at])
        kill = f"inject={names[at]}:signal=KILL:when={nth}"
        killed.append(
            subprocess.run([*strace, f"trace={names[at]}", "-e", kill, *words]).returncode != 0
        )
        after = read_totals(lab).skips
        assert after in (skips, skips + 1), (names[at], nth)
        subprocess.run(words, check=True)
        assert read_totals(lab).skips == after + 1, (names[at], nth)

    assert sum(killed) >= 0.8 * len(killed)


def test_totals_are_read_as_they_were_written(lab):
    counts = "runs skips failures lost waits waited_ms ends ran_ms last_ran_ms".split()
    totals = Totals(last_success=4.0, last_failure=5.5, **dict(zip(counts, range(1, 10))))

    assert reader.parse("job", totals.format()) == (totals, [])


def fill_month(lab, days=40, every=MINUTE):
    """Let a job run each minute for days, the last one yesterday, with a rotation each second day.
    Return its last start.
    """
    lab.run("-n", "job", "true")
    file = lab.find_journal("job")
    today = time.time() // DAY * DAY
    for day in range(days, 0, -1):
        job = Written()
        job.number = (days - day) * DAY  # of tokens
        for start in range(0, DAY, every):
            job.run(today - day * DAY + start, 5 + (day == 20), code=int(start == 0))
        job.skip(today - day * DAY + DAY / 2 + 1)
        with file.open("w" if day % 2 == 0 else "a") as journal:
            journal.writelines(line for _, line in job.lines)
        if day % 2 and day > 1:
            assert rotate(file.parent)
    return today - every


def rotate(folder):
    place = directories.Directory(os.open(folder, os.O_RDONLY), str(folder), 0o700, False)
    journal = os.open(folder / ".journal", os.O_RDWR | os.O_APPEND)
    try:
        return reader.rotate(place, journal)
    finally:
        os.close(journal)
        os.close(place.fd)


@pytest.mark.full
def test_job_of_each_minute_keeps_a_month_of_its_figures(lab):
    """A line a day, in the two files that it had before; they say when the job no longer starts."""
    last = fill_month(lab)

    history = dict(find_histories(str(lab.directory), []))["job"]

    assert len(history.days) == 35 and len(history.events) < 4 * 2 * DAY / MINUTE + 9
    figures = "runs skips failures ends ran_ms longest_ms gap_ms".split()
    each = [tuple(getattr(day, figure) for figure in figures) for day in history.days]
    assert set(each) == {
        (1440, 1, 1, 1440, 7_200_000, 5000, MINUTE * 1000),
        (1440, 1, 1, 1440, 8_640_000, 6000, MINUTE * 1000),
    }
    found = [
        judge(history.list_runs(), [], Clock(last + late), history.days).state
        for late in (6 * MINUTE, 7 * MINUTE)
    ]
    assert found == ["ok", "late"]
    assert re.search(
        rb"\nearlier, since \S+: 50400 runs, 35 failed, 35 skips, at most 6.0s\n",
        lab.run("show", "job").stdout,
    )
    assert (
        sum(
            line.count(b"\nday 0 ")
            for line in map(Path.read_bytes, lab.find_journal("job").parent.iterdir())
        )
        <= 2 * 35
    )


def test_day_that_two_rotations_cut_is_one(lab):
    def write(*starts):
        job = Written()
        for start in starts:
            job.run(start, 1)
        file.write_text("".join(line for _, line in job.lines))

    lab.run("-n", "job", "true")
    file = lab.find_journal("job")
    for starts in ((10, 20), (100, 130), (200,)):
        write(*starts)
        assert rotate(file.parent)

    [day] = dict(find_histories(str(lab.directory), []))["job"].days

    assert (day.first, day.last, day.runs, day.gap_ms) == (10, 130, 4, 80_000)


def test_totals_of_earlier_versions_are_read():
    line = b"totals 0 runs=1 skips=2 failures=3 last-success=4.000 last-failure=5.500\n"

    assert reader.parse("job", line) == (
        Totals(runs=1, skips=2, failures=3, last_success=4.0, last_failure=5.5),
        [],
    )


EVENT = b"started %.3f uid=0 host=h launcher=1 mode=X slots=1 take=1 start=%.3f waited=0 child=1 token=%d command=x\n"
HOSTILE_PASTS = [
    EVENT % (1, 1, 1)
    + b"totals 1.0 runs="
    + b"9" * 4300
    + b" skips=0 failures=0 last-success=0 last-failure=0\n",
    b"totals 1.0 runs=-1 skips=0 failures=0 last-success=nan last-failure=1e400\n",
    b"\n" * (1 << 18),
    b"\0" * (3 << 20),
    (EVENT % (1, 1, 1)).replace(b"token=1", b"token=" + b"9" * 300),
]


@pytest.mark.parametrize("past", HOSTILE_PASTS, ids=range(len(HOSTILE_PASTS)))
def test_hostile_past_fails_no_job_and_no_view(lab, past):
    fill(lab)
    lab.find_journal("job").with_name(".journal.past").write_bytes(past)

    result = lab.run("-n", "job", "--", "sh", "-c", "exit 3")

    assert (result.returncode, result.stderr) == (3, b"")
    assert lab.history()[-1]["outcome"] == "failed" and lab.run("metrics").returncode == 0


@pytest.mark.root
@pytest.mark.tool("unshare", "mount")
def test_any_exception_in_the_journal_fails_no_job(lab):
    """The reader is loaded late, for a full journal: an upgrade may be replacing the package at
    that time.
    """
    fill(lab)
    lab.use_modules()
    hide = in_mounts(f"mount --bind /dev/null {conftest.source}/solo/history/reader.py")

    result = lab.run("-v", "-n", "job", "--", "sh", "-c", "exit 3", prefix=hide)

    assert (
        result.returncode == 3 and b"the journal is not written: No module named" in result.stderr
    )


def test_totals_never_decrease_if_they_cannot_be_written(lab):
    lab.hasten("solo.journal_files.SIZE_LIMIT", SMALL)
    fill(lab, size=SMALL)
    lab.run("-n", "job", "true")
    count = fill(lab, size=SMALL)
    before, size = read_totals(lab).runs, lab.find_journal("job").stat().st_size
    assert before > 2 * count

    for room in (1, 30, 60, 200, 300):
        lab.run("-n", "job", "true", prefix=("prlimit", f"--fsize={size + room}"))
        assert read_totals(lab).runs >= before
    lab.run("-n", "job", "true")

    assert before < read_totals(lab).runs <= before + 6


def test_unreadable_past_keeps_its_totals(lab):
    fill(lab)
    lab.run("-n", "job", "true")
    fill(lab)
    past = lab.find_journal("job").with_name(".journal.past")
    before = read_totals(lab).runs

    lab.run("-n", "job", "true", prefix=inject(lab, "openat,pread64:error=EIO", paths=[past]))

    assert read_totals(lab).runs == before + 1


def test_run_of_many_names_writes_short_lines(lab):
    words = [word for number in range(300) for word in ("-n", f"{'x' * 50}{number}")]

    assert lab.run(*words, "true").returncode == 0

    assert (
        max(file.stat().st_size for file in (lab.directory / ".journals").rglob(".journal")) < 6000
    )
    assert lab.history()[0]["names"][-1] == "…"


def test_damaged_ticket_or_journal_hides_no_other(lab):
    for name in ("good", "torn", "unreadable"):
        lab.run("-n", name, "true")
    journal = lab.find_journal("torn")
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    [run] = lab.history("torn")
    (lab.directory / "torn" / f".hold.{run['token']:020d}").touch()
    lab.find_journal("unreadable").unlink()
    lab.find_journal("unreadable").mkdir()

    result = lab.run("history", "--json")

    assert b'"good"' in result.stdout and b'"torn"' in result.stdout
    assert result.returncode == 125 and result.stderr.startswith(
        b"solo: unreadable: cannot read the journal in "
    )
    metrics = lab.run("metrics")
    assert (
        metrics.returncode == 125
        and b'runs_total{name="good"' in metrics.stdout
        and result.stderr in metrics.stderr
    )


def test_history_is_in_order_over_the_end_of_summer_time(lab):
    lab.environment["TZ"] = "Europe/Berlin"
    lab.run("-n", "job", "true")
    first, second = (
        1761438600,
        1761441000,
    )  # 2025-10-26 00:30 and 01:10 UTC: 02:30 and then 02:10 there
    lab.find_journal("job").write_bytes(EVENT % (second, second, 2) + EVENT % (first, first, 1))

    assert [row["token"] for row in lab.history()] == [1, 2]


def test_since_needs_a_unit(lab):
    refused = lab.run("history", "--since", "5")

    assert refused.returncode == 125 and b"--since 5: not a duration or a date" in refused.stderr
    assert lab.run("history", "--since", "0").returncode == 0


# --- clean --history------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["job", "--history 0s", "--history 0s job"])
def test_clean_prints_a_damaged_ticket_once(lab, words):
    lab.run("-n", "job", "true")
    (lab.directory / "job/.hold.00001795489659118146").write_bytes(b"x")

    result = lab.run("clean", *words.split())

    assert result.returncode == 125 and result.stderr.count(b"it is damaged") == 1
    assert len(result.stderr.splitlines()) == 1 and lab.find_journal("job").exists()


@pytest.mark.parametrize("age", ["30", "0.5"])
def test_clean_refuses_an_age_without_unit(lab, age):
    """30 for 30 days would remove what is older than 30 seconds. 0 needs no unit."""
    lab.run("-n", "job", "true")

    refused = lab.run("clean", "--history", age)

    error = f"solo: --history {age}: needs a unit (like {age}h, {age}d or {age}s)\n"
    assert (refused.returncode, refused.stdout, refused.stderr.decode()) == (125, b"", error)
    assert lab.find_journal("job").exists()


def test_clean_removes_history_only_with_its_option(lab):
    for name in ("old", "a/b"):
        lab.run("-n", name, "true")
    holder = lab.hold("used")
    lab.run("clean")
    kept = lab.history()

    assert lab.run("clean", "--history", "1h").stdout == b""
    assert lab.run("clean", "--history", "0").stdout.splitlines() == [
        b"old: history removed",
        b"a/b: history removed",
    ]
    assert pick(kept, "name") == [("old",), ("a/b",), ("used",)] and pick(
        lab.history(), "name"
    ) == [("used",)]
    finish(holder)
    assert lab.history()[0]["outcome"] == "ok"


# --- users, descriptors, places-------------------------------------------------------------------


def test_journal_is_closed_while_the_command_runs(lab):
    holder = lab.start("-n", "job", "--", "sh", "-c", "echo; read line; exit 0")
    read_line(holder)
    until(lambda: lab.find_journal("job").exists() and lab.find_journal("job").stat().st_size > 0)

    until(lambda: not [path for path in list_open(holder.pid) if "/.journals/" in path])
