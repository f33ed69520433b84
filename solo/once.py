"""--once-per: at most one run a period, also when a fast one ended before the other host's cron fired. Cold.

The period that belongs to a moment is the nearest multiple of its length: so clocks that are less than half a period apart agree,
also at its beginning, which is when cron fires. Which one ran last is kept beside the journal and, with an engine, there as well;
whoever replaces that runs.
"""

import json
import posix
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from time import localtime, strftime, time
from typing import NamedTuple

from solo.errors import Busy, RanAlready, SoloError, UsageError
from solo.identity import read_world
from solo.journal import make_place
from solo.kernel import FOREVER, close, write_whole
from solo.places import open_file

FILE = ".once"
SIZE_LIMIT = 4096


class Ran(NamedTuple):
    """The last period in which a name ran: its number and length (seconds), on which host, and when (seconds since the epoch)."""

    period: int
    length: float
    host: str
    time: float


class Once:
    """The one run of `names` in this period. `keepers` are where it is kept; `claims` those where we have replaced what was
    there.
    """

    def __init__(self, options: dict, names: list):
        self.length = options["once_per"]
        if not 0 < self.length < FOREVER:
            raise UsageError("--once-per: that is no period")
        if len(names) > 1:
            raise UsageError("--once-per: give one name")
        self.name = names[0]
        self.may_retry = "once_retry" in options
        self.claims = []
        self.keepers = []
        now = time()
        self.ran = Ran(find_period(now, self.length), self.length, read_world().host, now)
        self.add(Marker(options.get("dir")))

    def add(self, keeper):
        """One more place to ask: an EngineHold, or a Marker. Raises RanAlready."""
        self.keepers.append(keeper)
        self.ask(keeper)

    def ask(self, keeper):
        """What it keeps, if that is an earlier period. Raises RanAlready."""
        before = keeper.read_once(self.name)
        # One that is a period ahead of us ran as well; what is further ahead is the word of a broken clock.
        if before and before.length == self.length and before.period in (self.ran.period, self.ran.period + 1):
            when = strftime("%F %T", localtime(before.time))
            raise RanAlready(f"{self.name}: ran already in this period, on {before.host} at {when}")
        return before

    def claim(self):
        """It is ours to run. Raises RanAlready, SoloError."""
        for keeper in self.keepers:
            before = self.ask(keeper)
            while not keeper.write_once(self.name, before, self.ran):
                before = self.ask(keeper)
            self.claims.append((keeper, before))

    def judge(self, error: BaseException) -> BaseException:
        """Nothing runs, because of `error`: undo the claim. What to raise instead: who is busy may be at it in this very period."""
        self.undo()
        if isinstance(error, Busy) and not isinstance(error, RanAlready):
            try:
                for keeper in self.keepers:
                    self.ask(keeper)
            except SoloError as other:
                return other
        return error

    def fail(self):
        """The command failed."""
        if self.may_retry:
            self.undo()

    def undo(self):
        for keeper, before in self.claims:
            try:
                keeper.write_once(self.name, self.ran, before)
            except SoloError:
                pass  # then it counts as run: rather never than twice
        self.claims = []


def find_period(now: float, length: float) -> int:
    """The number of the period of that length (seconds) to which a moment belongs.

    >>> find_period(299.0, 300.0), find_period(301.0, 300.0), find_period(451.0, 300.0)
    (1, 1, 2)
    """
    return int((now + length / 2) // length)


class Marker:
    """This machine's keeper: a file beside the journal, which outlives a boot. `directory` is --dir."""

    def __init__(self, directory):
        self.directory = directory

    def read_once(self, name: str):
        """The last period of `name`, or None. Raises SoloError."""
        with self.open(name) as fd:
            return parse_ran(posix.pread(fd, SIZE_LIMIT, 0))

    def write_once(self, name: str, before, ran) -> bool:
        """Replace what was read by `ran`, None: nothing; false if something else is there by now. Raises SoloError."""
        with self.open(name) as fd:
            if parse_ran(posix.pread(fd, SIZE_LIMIT, 0)) != before:
                return False
            data = format_ran(ran)
            write_whole(fd, data, 0)
            posix.ftruncate(fd, len(data))
            return True

    @contextmanager
    def open(self, name: str):
        try:
            place = make_place(self.directory, name)
            try:
                fd = open_file(place, FILE, posix.O_RDWR)
                try:
                    flock(fd, LOCK_EX)
                    yield fd
                finally:
                    close(fd)
            finally:
                close(place.fd)
        except OSError as error:
            raise SoloError(f"{name}: can not remember that it ran: {error.strerror}") from None


def format_ran(ran) -> bytes:
    return json.dumps(ran).encode() if ran else b""


def parse_ran(data: bytes):
    """The Ran in `data`, None if it is garbage."""
    try:
        period, length, host, when = json.loads(data)
        ran = Ran(int(period), float(length), str(host), float(when))
        localtime(ran.time)
        return ran
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
