"""Journals, their rotation, and the marker of --once-per."""

import math
import os
import re
import shutil
from copy import copy
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from readers import some
from readers.records import invent_record
from readers.target import NUMBERS, agree, expect, fuzzed, same, shelf, swapped
from solo import directories, journal, journal_files, record
from solo.contention import period
from solo.errors import SoloError
from solo.history import files, reader, usual
from solo.modes import MODES

OF_ENDS = "start child token".split()
NEEDED = {
    b"started": OF_ENDS,
    b"ended": [*OF_ENDS, "ran", "code"],
    b"skipped": ["code"],
    b"refused": ["code"],
    b"unnotified": ["why"],
}


def write_journal(rng) -> tuple:
    """Return (the lines of a run, or of a run that did not start, by the launcher's own code; the
    record they describe).
    """
    one = invent_record(rng)
    one.names = one.names[:1] if rng.random() < 0.7 else one.names
    lines = []

    def append(place, line, may_rotate=True):
        lines.append(line)

    with swapped(journal, make_place=lambda *_: None, open_place=lambda *_: None, append=append):
        written = journal.Journal(one, None, lambda problem: expect(False, problem))
        if rng.random() < 0.3:
            written.refused(SoloError(some.text(rng) + "…"))
        else:
            hold = SimpleNamespace(record=one, number=some.number(rng, 1 << 60))
            process = SimpleNamespace(is_refused=rng.random() < 0.2)
            run = SimpleNamespace(
                named={name: hold for name in one.names}, pid=some.pid(rng), process=process
            )
            run.command = ["true"]
            written.started(run)
            if rng.random() < 0.7:
                run.code, run.outcome = rng.choice((0, 1, -9, 255)), rng.choice((None, 123, 124))
                written.ended(run)
        if rng.random() < 0.2:
            written.unnotified(some.text(rng) + "…")
    return lines, one


def make_journal(rng) -> bytes:
    lines = [line for _ in range(rng.randrange(3)) for line in write_journal(rng)[0]]
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), make_day(rng).format())
    if rng.random() < 0.4:
        lines.insert(rng.randrange(len(lines) + 1), make_totals(rng).format())
    return b"".join(lines)


def make_day(rng):
    return reader.Day(
        **{field: read(b"%d" % some.number(rng)) for field, read in reader.Day.fields.items()}
    )


def make_totals(rng):
    counts = {field: read(b"%d" % some.number(rng)) for field, read in reader.Totals.fields.items()}
    return reader.Totals(**{field: count for field, count in counts.items() if rng.random() < 0.8})


def is_failure(run) -> bool:
    return (
        run.event == b"refused"
        or run.event == b"ended"
        and bool(run.code or run.is_timed_out or run.is_lost)
    )


@fuzzed(2, b"totals 0 | command=| name=|code=|started |\n|" + NUMBERS)
def check_journal(data: bytes):
    totals, events = reader.parse("job", data)
    lines = data.split(b"\n")[:-1]
    expect(len(events) <= len(lines), "events are invented")
    for run in events:
        expect(run.event in NEEDED and run.mode in MODES and 0 <= run.time < record.LATEST)
        expect(run.names and run.command)
        for key in NEEDED[run.event]:
            expect(getattr(run, key) is not None, key)
    start = copy(totals or reader.Totals())
    counted = reader.add_up(totals, events)
    events_of_runs = [
        run for run in events if not (run.is_kept and run.event in (b"started", b"ended"))
    ]
    same(counted.runs, start.runs + sum(run.event == b"started" for run in events_of_runs))
    same(counted.skips, start.skips + sum(run.event == b"skipped" for run in events_of_runs))
    same(counted.failures, start.failures + sum(map(is_failure, events_of_runs)))
    ran = [round(1000 * run.ran) for run in events_of_runs if run.event == b"ended"]
    same((counted.ends, counted.ran_ms), (start.ends + len(ran), start.ran_ms + sum(ran)))
    runs = reader.History(events, counted).list_runs()
    expect(len(runs) <= len(events) and all(run in events for run in runs[:3]))


def trip_journal(rng):
    lines, one = write_journal(rng)
    whole = b"".join(lines)
    totals, events = reader.parse(one.names[0], whole)
    same((totals, len(events)), (None, len(lines)))
    for line, run in zip(lines, events):
        if run.event == b"ended":
            same((usual.parse_run(line) or [None])[0], run.ran if run.is_success else None)
        if run.event == b"skipped":
            counted = usual.count_last_skips([line.rstrip(b"\n")], run.words, b"")
            same(
                counted,
                (int(usual.is_busy_skip(run.code, run.why or "") and not run.is_kept), False),
            )
    run, claim = events[-1], one.claim
    agree(run, one, "uid names command")
    same((run.host, run.launcher, run.note or ""), (one.origin.host, one.launcher[0], one.note))
    agree(run, claim, "mode slots take")
    # Torn at the end: only the last line is lost.
    cut = len(whole) - rng.randrange(1, len(lines[-1]))
    same(reader.parse(one.names[0], whole[:cut])[1], events[:-1])
    # Garbage between lines damages no other line.
    garbage = rng.randbytes(rng.randrange(30)).replace(b"\n", b"") + b"\n"
    same(reader.parse(one.names[0], lines[0] + garbage + whole)[1][-len(events) :], events)
    counts = make_totals(rng)
    line = counts.format()
    same(reader.parse("", whole + line + line[: rng.randrange(20)])[0], counts)


# --- files----------------------------------------------------------------------------------------


@cache
def get_folder():
    """Make the directory of one journal, in /dev/shm if there is one. Return (its path, its
    Directory).
    """
    path = Path(shelf.name, "journal")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(0o700)
    return path, directories.Directory(os.open(path, os.O_RDONLY), str(path), 0o700, False)


def fill_folder(past: bytes, now):
    """Write both files of the journal; `now` is None for no file. Return the Directory."""
    path, place = get_folder()
    (path / files.PAST).write_bytes(past)
    if now is None:
        (path / journal_files.JOURNAL).unlink(missing_ok=True)
    else:
        (path / journal_files.JOURNAL).write_bytes(now)
    return place


def rotate(place) -> bool:
    fd = os.open(journal_files.JOURNAL, os.O_RDWR | os.O_APPEND, dir_fd=place.fd)
    try:
        return reader.rotate(place, fd)
    finally:
        os.close(fd)


def make_journals(rng) -> bytes:
    return make_journal(rng) + b"===\n" + make_journal(rng)


@fuzzed(0.2, b"===\n|totals 0 runs=1|\n")
def check_journals(data: bytes):
    past, mark, now = data.partition(b"\n===\n")
    place = fill_folder(past + b"\n", now if mark else None)
    totals, events = reader.parse("job", past + b"\n")
    expected = events + reader.parse("job", now)[1]
    try:
        before = reader.read_history("job", place)
    except SoloError:
        return expect(totals is None and not expected)
    same(
        before,
        reader.History(
            expected, reader.add_up(totals, expected), (*reader.parse_days(past + b"\n"),)
        ),
    )
    if now.strip(b"\n"):
        expect_same_counts_after_rotation(place, before, now)


def expect_same_counts_after_rotation(place, before, now: bytes):
    """Rotate a full journal: no count changes, and only the events of PAST are forgotten."""
    ends_in_totals = now.rstrip(b"\n").rpartition(b"\n")[2].startswith(b"totals ")
    expect(rotate(place))
    after = reader.read_history("job", place)
    events = reader.parse("job", now + b"\n")[1]
    expect(len(after.events) in (len(events), len(events) - 1), "events are lost")
    if not ends_in_totals and now.endswith(b"\n"):
        same(after.totals.format(), before.totals.format())  # a time with more digits is rounded


def trip_journals(rng):
    """Fill the disk at any byte of the line of totals: the next rotation counts the missed
    events.
    """
    past, now = make_journal(rng), write_journal(rng)[0][0]
    place = fill_folder(past, now)
    before = reader.read_history("job", place).totals
    room = rng.randrange(1, 60)
    full = SimpleNamespace(**{**vars(os), "write": lambda fd, line: os.write(fd, line[:room])})
    with swapped(reader, os=full):
        expect(not rotate(place))
    same(reader.read_history("job", place).totals, before)
    expect(rotate(place))
    same(reader.read_history("job", place).totals, before)


# --- the last run of a period---------------------------------------------------------------------


def make_ran(rng) -> bytes:
    return period.format_ran(period.LastRun(some.text(rng), float(some.number(rng))))


@fuzzed(10, b'[|"|NaN|Infinity|null|' + NUMBERS)
def check_ran(data: bytes):
    ran = period.parse_ran(data)
    if ran is None:
        expect(not re.fullmatch(rb'\["[a-z]*", (?:0|[1-9]\d{0,8})\.\d\]', data))
        return
    expect(isinstance(ran.host, str) and isinstance(ran.due, float) and math.isfinite(ran.due))
    same(period.parse_ran(period.format_ran(ran)), ran)
    for length in (0.001, 60.0, 1e9):
        start = 1.8e9
        due = period.find_due(ran.due, start, length)
        if due is None:
            expect(start < period.find_end(ran.due, length), length)
        else:
            expect(start <= due <= period.find_end(start, length) + 1e-5, length, due)


def trip_ran(rng):
    ran = period.LastRun(some.text(rng), some.number(rng) + rng.random())
    data = period.format_ran(ran)
    same(period.parse_ran(data), ran)
    same(period.parse_ran(data[: rng.randrange(len(data))]), None)
