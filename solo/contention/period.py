"""--once-per: at most one run a period, also when a fast one ended before the other host's cron fired. Cold.

The period that belongs to a moment is the nearest multiple of its length: so clocks that are less than half a period apart agree,
also at its beginning, which is when cron fires. Which one ran last is kept beside the journal and, with an engine, there as well;
whoever replaces that runs.
"""

import json
import posix
from contextlib import contextmanager
from fcntl import LOCK_EX
from time import localtime, monotonic, strftime, time
from typing import NamedTuple

from solo.errors import Busy, RanAlready, SoloError, UsageError
from solo.identity import read_world
from solo.journal_files import make_place
from solo.kernel import FOREVER, close, wait_lock, write_whole
from solo.directories import open_file

FILE = ".once"
SIZE_LIMIT = 4096
SHORTEST = 0.001  # seconds
PATIENCE = 5.0  # seconds, with who sits on the file


class Ran(NamedTuple):
    """The last run of a name: on which host, and when (seconds since the epoch), by the clock there."""

    host: str
    time: float


class Once:
    """The one run of `names` in a period of `length` seconds. `keepers` are where it is kept; `ran` is what we say there, `said`
    all that we have said so far, `claims` where we have said it, and what was there before.
    """

    def __init__(self, options: dict, names: list):
        self.length = options["once_per"]
        if not SHORTEST <= self.length < FOREVER:
            raise UsageError("--once-per: that is no period")
        if len(names) > 1:
            raise UsageError("--once-per: give one name")
        self.name = names[0]
        self.may_retry = "once_retry" in options
        self.ran = None
        self.said = []
        self.claims = []
        self.keepers = []
        self.add(Marker(options.get("dir")))

    def add(self, keeper):
        """One more place to ask: an EngineHold, or a Marker. Raises RanAlready, SoloError; then it is not added."""
        self.ask(keeper)
        self.keepers.append(keeper)

    def ask(self, keeper):
        """What it keeps, if that is of an earlier period, or our own. Raises RanAlready."""
        before = keeper.read_once(self.name)
        now = self.ran.time if self.ran else time()  # what will be said is what counts, however long that takes
        if before is None or before in self.said or find_period(before.time, self.length) < find_period(now, self.length):
            return before
        if before.time > now + self.length:
            return before  # the word of a broken clock
        when = strftime("%F %T", localtime(before.time))
        raise RanAlready(f"{self.name}: ran already in this period, on {before.host} at {when}")

    def claim(self):
        """The period in which we are now is ours to run in. May be called again, after any error too: the last call counts.
        Raises RanAlready, SoloError.
        """
        self.ran = Ran(read_world().host, time())
        self.said.append(self.ran)
        for keeper in self.keepers:
            while True:
                before = self.ask(keeper)
                if before == self.ran:
                    break  # what answered no had taken our word all the same
                if before not in self.said:
                    # Before it is said: whether it was heard we may never know.
                    self.claims = [*(claim for claim in self.claims if claim[0] is not keeper), (keeper, before)]
                if keeper.write_once(self.name, before, self.ran):
                    break

    def judge(self, error: BaseException) -> BaseException:
        """Nothing runs, because of `error`: undo the claim. What to raise instead: who is busy may be at it in this very period."""
        self.undo()
        if isinstance(error, Busy) and not isinstance(error, RanAlready):
            try:
                for keeper in self.keepers:
                    self.ask(keeper)
            except RanAlready as other:
                return other
            except SoloError:
                pass
        return error

    def fail(self):
        """The command failed."""
        if self.may_retry:
            self.undo()

    def undo(self):
        for keeper, before in self.claims:
            try:
                known = keeper.read_once(self.name)
                if known in self.said:
                    keeper.write_once(self.name, known, before)
            except Exception:
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
            posix.fsync(fd)
            return True

    @contextmanager
    def open(self, name: str):
        try:
            place = make_place(self.directory, name)
            try:
                fd = open_file(place, FILE, posix.O_RDWR)
                try:
                    if not wait_lock(fd, LOCK_EX, monotonic() + PATIENCE):
                        raise SoloError(f"{name}: {place.path}/{FILE}: a process has been sitting on it for 5 seconds")
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
        host, when = json.loads(data)
        localtime(when)
        return Ran(host, when) if isinstance(host, str) and isinstance(when, float) else None
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
