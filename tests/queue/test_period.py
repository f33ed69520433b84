"""The rule of --once-per over years of schedules, on a virtual clock: alone, then with files."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from solo import kernel
from solo.contention import period
from solo.contention.period import LastRun, LocalStore, PeriodGuard, find_due
from solo.errors import Busy, RanAlready
from solo.plan import Plan

pytestmark = pytest.mark.quick

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
FIRST = 20_454 * DAY  # 2026-01-01 in UTC
SUMMER = range(87, 298)  # days of a year in which clocks are set forward


def run_daily(at, days=730, step=1, jitter=0.0, forward=HOUR):
    """Return the starts of a cron line `at` a local time, in UTC, and a random delay of `jitter`.

    In summer the clocks are set `forward`.
    """
    rng, starts = random.Random(1), []
    for day in range(0, days, step):
        hour = at - forward if day % 365 in SUMMER else at
        starts.append(FIRST + day * DAY + hour + rng.random() * jitter)
    return starts


def run_each(seconds, days=400):
    return [FIRST + at * seconds for at in range(int(days * DAY / seconds))]


def run_at_random(seed, draw, days=400):
    rng, starts = random.Random(seed), [FIRST]
    while starts[-1] < FIRST + days * DAY:
        starts.append(starts[-1] + draw(rng))
    return starts


def delay(starts, at, seconds):
    """Return the starts, one of which comes so much later, and maybe after the next one."""
    return [start + seconds * (index == at) for index, start in enumerate(starts)]


def sleep_at_midnight():
    """Return the starts of a laptop, by Persistent= in the morning after 7 of 10 nights."""
    rng = random.Random(8)
    hours = [rng.uniform(6, 11) if rng.random() < 0.7 else 0 for _ in range(1000)]
    return [FIRST + day * DAY + hour * HOUR for day, hour in enumerate(hours)]


def find_runs(starts, length):
    """Return the starts that count."""
    due, ran = None, []
    for start in starts:
        found = find_due(due, start, length)
        if found is not None:
            due = period.make_unique(found)
            ran.append(start)
    return ran


def find_runs_by_grid(starts, length):
    """Return the starts that count for version 0.3.0, whose periods are a grid in UTC."""
    ran = []
    for start in starts:
        if not ran or is_over_by_grid(ran[-1], start, length):
            ran.append(start)
    return ran


def is_over_by_grid(before, now, length):
    def number(at):
        return int((at + length / 2) // length)

    return number(before) < number(now) and now - before >= length / 2


def run_twice_daily(jitter):
    return sorted(run_daily(6.5 * HOUR, jitter=jitter) + run_daily(18.5 * HOUR, jitter=jitter))


def run_each_local(hours):
    return sorted(sum([run_daily(at * HOUR, jitter=MINUTE) for at in range(0, 24, hours)], []))


def run_monthly():
    return [FIRST + DAY * (30.4375 * month // 1) for month in range(60)]


def set_back():
    """Return the starts of a host whose clock is set back two days for good."""
    starts = run_daily(0, 60, forward=0)
    return starts[:50] + [start - 2 * DAY for start in starts[50:]]


NEW_YORK = "7:30 in New York, delay of 60 min"
RANDOMIZED = "11:45 in UTC, delay of 30 min"
# The length of a period, the starts, how many of them at most may not count.
SCHEDULES = {
    "7:30 in New York": (DAY, run_daily(12.5 * HOUR), 0),
    NEW_YORK: (DAY, run_daily(12.5 * HOUR, jitter=HOUR), 0),
    "2:30 in Berlin": (DAY, run_daily(1.5 * HOUR, jitter=HOUR), 0),
    "half an hour of summer time": (DAY, run_daily(HOUR, forward=HOUR / 2), 0),
    RANDOMIZED: (DAY, run_daily(11.75 * HOUR, jitter=HOUR / 2, forward=0), 0),
    "Sunday 13:30 in Berlin": (7 * DAY, run_daily(3.5 * DAY + HOUR / 2, step=7), 0),
    "Sunday, delay of 6 h": (7 * DAY, run_daily(3.5 * DAY + HOUR / 2, step=7, jitter=6 * HOUR), 0),
    "twice a day": (DAY / 2, run_twice_daily(0), 0),
    "twice a day, delay of 20 min": (DAY / 2, run_twice_daily(20 * MINUTE), 0),
    "twice a day, delay of 30 min": (DAY / 2, run_twice_daily(30 * MINUTE), 0),
    "each 4 h": (4 * HOUR, run_each_local(4), 0),
    "each 6 h": (6 * HOUR, run_each_local(6), 0),
    "delay of a quarter": (DAY, run_daily(0, 7200, jitter=DAY / 4, forward=0), 0),
    "delay of a third": (DAY, run_daily(0, 7200, jitter=DAY / 3, forward=0), 0),
    "asleep": (DAY, sleep_at_midnight(), 0),
    "off for three days": (DAY, run_daily(0, 30) + run_daily(0, 100)[33:], 0),
    "first of the month": (30 * DAY, run_monthly(), 0),
    "one start 5 h late": (DAY, delay(run_daily(0, 60, forward=0), 20, 5 * HOUR), 0),
    "one start 7 h late": (DAY, delay(run_daily(0, 60, forward=0), 20, 7 * HOUR), 0),
    "a clock a year ahead once": (DAY, delay(run_daily(0, 60, forward=0), 5, 365 * DAY), 2),
    "a clock set back two days": (DAY, set_back(), 3),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_regular_start_counts(name):
    length, starts, lost = SCHEDULES[name]

    assert len(starts) - len(find_runs(starts, length)) <= lost


def test_grid_of_an_earlier_version_lost_runs():
    """So the schedules above can show a loss."""
    for name in ("7:30 in New York", RANDOMIZED, "Sunday 13:30 in Berlin", "twice a day"):
        length, starts, _ = SCHEDULES[name]
        assert len(find_runs_by_grid(starts, length)) < len(starts), name


@pytest.mark.parametrize("quarter", range(96))
def test_one_start_by_hand_costs_one_run_at_most(quarter):
    starts = run_daily(7.5 * HOUR, 400, jitter=HOUR / 2)
    for by_hand in (starts[0] - DAY + quarter * 900, starts[100 + quarter] + quarter * 900):
        ran = set(find_runs(sorted([*starts, by_hand]), DAY))
        assert len(ran & set(starts)) >= len(starts) - 1


DENSE = {
    **{f"each {hours} h": run_each(hours * HOUR) for hours in (0.25, 1, 5, 18, 20, 20.5, 23, 25)},
    "each minute": run_each(MINUTE),
    "at random, 3 h apart": run_at_random(5, lambda rng: rng.expovariate(1 / (3 * HOUR))),
    "at random, 0.5 to 36 h apart": run_at_random(6, lambda rng: rng.uniform(0.5, 36) * HOUR),
}


@pytest.mark.parametrize("name", DENSE)
def test_dense_starts_have_one_run_more_than_periods(name):
    assert len(find_runs(DENSE[name], DAY)) <= 401


@given(some.lists(some.integers(0, 3000), max_size=200))
def test_any_starts_have_no_more_runs_than_periods_and_a_half(gaps):
    starts = [sum(gaps[:end]) for end in range(len(gaps) + 1)]

    assert len(find_runs(starts, 1000)) <= (starts[-1] - starts[0]) / 1000 + 1.5 + 1e-6


@given(some.lists(some.lists(some.integers(0, 498), min_size=1, max_size=5), max_size=50))
def test_starts_within_half_a_period_have_one_run(delays):
    numbers = range(1, len(delays) + 1)
    starts = [1000 * number + late for number in numbers for late in sorted(delays[number - 1])]

    assert [start // 1000 for start in find_runs(starts, 1000)] == list(numbers)


@pytest.mark.parametrize("length, apart", [(DAY, 4), (DAY, 60), (DAY, 1800), (300, 4)])
def test_five_hosts_apart_have_one_run_in_each_period(length, apart):
    regular = run_daily(11 * HOUR, 400) if length == DAY else run_each(length, 1)
    starts = [start + host * apart for start in regular for host in range(5)]

    ran = find_runs(starts, length)

    assert [starts.index(one) // 5 for one in ran] == list(range(len(regular)))


# --- guards, with the files of two hosts and one that both share ----------------------------------


class World:
    """Hosts, each with a directory of names, and a store that they share, on a virtual clock."""

    def __init__(self, path, monkeypatch):
        self.path = path
        self.shared = LocalStore(self.make_place("shared"))
        self.now, self.host = 0.0, "a"
        monkeypatch.setattr(period, "time", lambda: self.now)
        monkeypatch.setattr(period, "read_origin", lambda: SimpleNamespace(host=self.host))
        monkeypatch.setattr(kernel, "blocker", None)  # as in a launcher

    def make_place(self, name):
        (self.path / name).mkdir(mode=0o700, exist_ok=True)
        return str(self.path / name)

    def make_guard(self, length, may_retry=False):
        place = self.make_place(self.host)
        typed = {"once_per": length, "once_retry": may_retry, "dir": place, "name": ["job"]}
        guard = PeriodGuard(Plan(typed))
        guard.add(self.shared)
        return guard

    def start(self, at, host="a", length=DAY, code=None):
        """Return whether a start runs its command, which ends with `code`, if any, under retry."""
        self.now, self.host = at, host
        try:
            guard = self.make_guard(length, may_retry=code is not None)
            guard.claim()
        except RanAlready:
            return False
        if code:
            guard.undo_failed(False)
        return True

    def start_old(self, at, length=DAY):
        """As start, on a host of version 0.3.0, which stores the start's time."""
        stored = self.shared.read_once("job")
        if stored and stored.due <= at + length and not is_over_by_grid(stored.due, at, length):
            return False
        return self.shared.write_once("job", stored, LastRun("old", at))


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [NEW_YORK, "delay of a third", RANDOMIZED])
def test_two_hosts_have_one_run_in_each_period(world, name):
    """Their clocks are half an hour apart. The first one is off each third day."""
    length, starts, _ = SCHEDULES[name]

    for day, start in enumerate(starts[50:120]):
        ran = day % 3 > 0 and world.start(start, "a", length)
        assert world.start(start + 1800, "b", length) != ran, day


@pytest.mark.parametrize("early", [0, HOUR])
def test_two_slots_have_one_run_in_each_period(world, monkeypatch, early):
    """One claims while the other does. If they are early, both are due at the same time."""
    for day in range(5):
        world.now = FIRST + day * (DAY - early)
        one, other = world.make_guard(DAY), world.make_guard(DAY)
        read_once = world.shared.read_once

        def read_before_claim(name, one=one, read_once=read_once):
            stored = read_once(name)
            if one.start is None:
                one.claim()
            return stored

        with monkeypatch.context() as patch:
            patch.setattr(world.shared, "read_once", read_before_claim)
            other.stores = [world.shared]
            with pytest.raises(RanAlready):
                other.claim()

        assert read_once("job") in one.written


@pytest.mark.parametrize("claims", [3, None])
def test_contender_looks_again_for_the_claim_of_a_holder_at_an_engine(world, monkeypatch, claims):
    world.now = FIRST
    holder, other = world.make_guard(DAY), world.make_guard(DAY)
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == claims:
            holder.claim()

    monkeypatch.setattr(period, "sleep", sleep)
    error = other.undo_claim(Busy("job: busy"))

    assert isinstance(error, RanAlready) == (claims is not None)
    assert len(pauses) == (claims or period.CLAIM_LOOKS - 1)


def test_two_claims_due_at_one_time_differ():
    times = [period.make_unique(FIRST) for _ in range(100)]

    assert len(set(times)) > 90 and all(0 <= one - FIRST <= 0.001 for one in times)


def test_stored_time_does_not_drift(world):
    """A job each second would lose a run in a thousand by half a millisecond in each period."""
    due = FIRST
    for _ in range(100_000):
        due = period.make_unique(due + 1)

    assert abs(due - FIRST - 100_000) < 0.1


def test_retry_after_failures_loses_no_day(world):
    """Cron starts the job each hour of the day until one succeeds, after none to eight failures."""
    rng = random.Random(3)
    for day in range(20):
        codes = [1] * rng.randrange(8) + [0] * 2
        for hour, code in enumerate(codes):
            ran = world.start(FIRST + day * DAY + hour * HOUR, "ab"[hour % 2], code=code)
            assert ran == (hour < len(codes) - 1), day


def test_failed_run_with_retry_restores_what_each_store_kept(world):
    world.start(FIRST)
    world.shared.write_once("job", world.shared.read_once("job"), LastRun("b", FIRST + HOUR))
    local = LocalStore(str(world.path / "a"))
    before = local.read_once("job"), world.shared.read_once("job")

    assert world.start(FIRST + DAY, code=1)

    assert (local.read_once("job"), world.shared.read_once("job")) == before


def test_each_store_keeps_a_time_of_its_own(world):
    """A host that ran seldom must not set the time of all back, nor that of all set its own one."""
    world.start(FIRST, "a")
    world.start(FIRST + 0.6 * DAY, "b")
    world.start(FIRST + 1.7 * DAY, "a")

    assert round((world.shared.read_once("job").due - FIRST) / DAY, 3) == 2.0
    assert round((LocalStore(str(world.path / "a")).read_once("job").due - FIRST) / DAY, 3) == 1.7


def test_repeated_claim_counts_one_run(world):
    """As after a lost lease: the run is due where its first claim was, by the last start."""
    world.start(FIRST)
    world.now = FIRST + 0.9 * DAY
    guard = world.make_guard(DAY)
    for world.now in (FIRST + 0.9 * DAY, FIRST + 0.95 * DAY, FIRST + 1.1 * DAY):
        guard.claim()

    assert abs(world.shared.read_once("job").due - FIRST - 1.1 * DAY) < 1
    guard.undo()
    assert abs(world.shared.read_once("job").due - FIRST) < 1


# --- with a host of version 0.3.0 ----------------------------------------------------------------


@pytest.mark.parametrize("name", [NEW_YORK, RANDOMIZED])
def test_old_and_new_host_have_one_run_in_each_period(world, name):
    length, starts, _ = SCHEDULES[name]

    for day, start in enumerate(starts[50:120]):
        late = 1800 if day % 2 else -1800
        new, old = (start, world.start), (start + late, world.start_old)
        assert sum(run(at) for at, run in sorted([new, old], key=lambda one: one[0])) == 1, day


def test_upgrade_and_downgrade_neither_lose_nor_repeat_a_run(world):
    """At an hour of which the old version loses no run itself."""
    for day, start in enumerate(run_daily(7.5 * HOUR, 60, jitter=HOUR / 2)):
        versions = [world.start, world.start_old][:: 1 if day // 10 % 2 else -1]
        assert versions[0](start), day
        assert not versions[1](start + HOUR), day
