"""--once-per: at most one run per period, even if a short run ended before cron fired on the other
host.

A token bucket of one (GCRA, ITU-T I.371): a run has a time at which it was due, and the next start
counts from half a period after that. The first run was due when it started, each later one a period
after the run before, or when it started if that is later. No hour of the clock begins a period:
below half a period, jitter and clocks apart lose no run, and N periods have at most N + 1 runs.

A run's due time is stored beside the journal and, with an engine, there too. The contender that
replaces it runs.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX
from time import localtime, monotonic, sleep, strftime, time
from typing import NamedTuple, Protocol

from solo.directories import open_file
from solo.errors import Busy, RanAlready, SoloError, UsageError
from solo.gate import GATE_PATIENCE
from solo.identity import read_origin
from solo.journal_files import make_place, open_place
from solo.kernel import FOREVER, close, wait_lock, write_whole
from solo.plan import Plan
from solo.process.watch import find_lock_owner, make_stuck_error, try_lead
from solo.record import LATEST

ONCE_FILE = ".once"
ONCE_LIMIT = 4096
SHORTEST = 0.001  # seconds
CLAIM_LOOKS, CLAIM_PAUSE = 10, 0.1  # for what a holder at an engine stores once it has acquired


class LastRun(NamedTuple):
    """The last run of a name, as stored: its host, and when it was due, in seconds since the epoch.

    It started up to half a period before that. Version 0.3.0 has the start's time in that place.
    """

    host: str
    due: float


class Store(Protocol):
    """Keeps the last run of a name: a LocalStore, or an EngineHold. The methods raise SoloError."""

    def read_once(self, name: str) -> "LastRun | None": ...

    # Replace the LastRun `before` by `ran`; None is for none. Return False if another one is stored
    # by now.
    def write_once(self, name: str, before: "LastRun | None", ran: "LastRun | None") -> bool: ...


class PeriodGuard:
    """The one run of `names` in a period of `length` seconds.

    `stores` keep the last run. `due` is when our run is due by what they kept at first. `start` is
    when it starts, None until its period is claimed; `written` has each LastRun that we have
    written for it, `before` what a store kept before these.
    """

    def __init__(self, plan: Plan) -> None:
        self.length = check_plan(plan)
        self.name = plan.names[0]
        self.may_retry = plan.once_retry
        self.start: float | None = None
        self.due = 0.0
        self.written: list[LastRun] = []
        self.before: dict[Store, LastRun | None] = {}
        self.stores: list[Store] = []
        self.add(LocalStore(plan.dir))

    def add(self, store: Store) -> None:
        """Ask one more store, and add it unless that raises RanAlready or SoloError."""
        self.due = max(self.due, self.ask(store)[1])
        self.stores.append(store)

    def ask(self, store: Store) -> "tuple[LastRun | None, float]":
        """Return what `store` keeps, and when our run is due by that. Raises RanAlready."""
        stored = store.read_once(self.name)
        last = self.before.get(store) if stored in self.written else stored
        # Judge by the start that we claim, however long the writes take.
        start = time() if self.start is None else self.start
        due = find_due(None if last is None else last.due, start, self.length)
        if due is not None:
            return stored, due
        assert last  # without one each start is due
        end = self.describe_end([last.due])
        raise RanAlready(f"{self.name}: ran already on {last.host} in this period, which {end}")

    def claim(self) -> None:
        """Claim the present period for our run; the last call counts. Raises RanAlready,
        SoloError.
        """
        self.start = time()
        for store in self.stores:
            ran = None
            while True:
                stored, due = self.ask(store)
                if ran is not None and ran == stored:
                    break  # our write was stored, although the store reported a failure
                # Note both before the write: we may never know whether that succeeded.
                if stored not in self.written:
                    self.before[store] = stored
                ran = LastRun(read_origin().host, make_unique(due))
                self.written.append(ran)
                if store.write_once(self.name, stored, ran):
                    break

    def undo_claim(self, error: BaseException) -> BaseException:
        """Undo the claim: nothing runs. Return what to raise: `error`, or RanAlready if the holder
        runs in this period. At an engine a holder claims its period by a later request: look again.
        """
        self.undo()
        if not isinstance(error, Busy) or isinstance(error, RanAlready):
            return error
        for left in reversed(range(CLAIM_LOOKS if len(self.stores) > 1 else 1)):
            try:
                for store in self.stores:
                    self.ask(store)
            except RanAlready as other:
                return other
            except SoloError:
                break
            if left:
                sleep(CLAIM_PAUSE)
        return error

    def describe(self) -> str:
        return f"{self.name}: this period {self.describe_end([ran.due for ran in self.written])}"

    def describe_end(self, due: "list[float]") -> str:
        """Return `lasts until TIME` of the period of a run that the stores say was `due` then."""
        return f"lasts until {format_time(find_end(max(due), self.length))}"

    def undo_failed(self, is_refused: bool) -> None:
        """Do not count a failed run with the word retry, nor one whose command was not executed;
        before the names are released, as the next run may be this job.
        """
        if self.may_retry or is_refused:
            self.undo()

    def undo(self) -> None:
        """Restore what was stored before, where it is still ours. Ignores errors."""
        for store, before in self.before.items():
            try:
                ran = store.read_once(self.name)
                if ran in self.written:
                    store.write_once(self.name, ran, before)
            except Exception:
                pass  # then it counts as a run: better no run than two
        self.before = {}


def check_plan(plan: Plan) -> float:
    """Return the seconds of the period. Raises UsageError if it cannot be kept."""
    length = plan.once_per
    if length is None or not SHORTEST <= length < FOREVER:
        raise UsageError("--once-per must be at least 1ms, and not forever")
    if len(plan.names) > 1 and not plan.is_generated:
        raise UsageError("--once-per: give one name")
    return length


def find_due(before: "float | None", start: float, length: float) -> "float | None":
    """Return when the run of a `start` is due, after a run that was due at `before`, None for none.

    Return None if the start is in the period of that run.

    >>> [find_due(1000.0, start, 300.0) for start in (1149.0, 1151.0, 1400.0)]
    [None, 1300.0, 1400.0]
    """
    if before is None or before > start + length:
        return start  # the first run, or a broken clock wrote `before`
    return max(start, before + length) if start >= find_end(before, length) else None


def find_end(due: float, length: float) -> float:
    """Return when the period of a run ends that was due then."""
    return due + length / 2


def make_unique(due: float) -> float:
    """Return a time of the same millisecond that nobody else has: two may be due at once."""
    return (int(due * 1000) + int.from_bytes(os.urandom(4), "big") / (1 << 32)) / 1000


def format_time(seconds: float) -> str:
    return strftime("%F %T", localtime(min(seconds, LATEST)))


class LocalStore:
    """The store on this machine: a file beside the journal, which survives a boot. `directory` is
    --dir.
    """

    def __init__(self, directory: "str | None") -> None:
        self.directory = directory

    def read_once(self, name: str) -> "LastRun | None":
        if not self.exists(name):
            return None  # to look makes nothing
        with self.open(name) as fd:
            return parse_ran(os.pread(fd, ONCE_LIMIT, 0))

    def write_once(self, name: str, before: "LastRun | None", ran: "LastRun | None") -> bool:
        with self.open(name) as fd:
            if parse_ran(os.pread(fd, ONCE_LIMIT, 0)) != before:
                return False
            data = format_ran(ran)
            write_whole(fd, data, 0)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
            return True

    def exists(self, name: str) -> bool:
        """Return whether there is a file of the name, or something that `open` refuses."""
        try:
            place = open_place(self.directory, name)
        except FileNotFoundError:
            return False
        except SoloError:
            return True
        with place:
            return os.access(ONCE_FILE, os.F_OK, dir_fd=place.fd)

    @contextmanager
    def open(self, name: str) -> "Iterator[int]":
        """Open and lock the file of a name. Raises SoloError."""
        try:
            with make_place(self.directory, name) as place:
                fd = open_file(place, ONCE_FILE, os.O_RDWR)
                try:
                    if not wait_lock(fd, LOCK_EX, monotonic() + GATE_PATIENCE):
                        owner = find_lock_owner(fd) if try_lead(fd) else 0
                        raise make_stuck_error(f"{place.path}/{ONCE_FILE}", owner, GATE_PATIENCE)
                    yield fd
                finally:
                    close(fd)
        except OSError as error:
            raise SoloError(f"{name}: cannot record the run: {error.strerror}") from None
        except SoloError as error:
            raise SoloError(f"{name}: {error}") from None


def format_ran(ran: "LastRun | None") -> bytes:
    return json.dumps(ran).encode() if ran else b""


def parse_ran(data: bytes) -> "LastRun | None":
    """Return the LastRun in `data`, or None if it is damaged."""
    try:
        host, when = json.loads(data)
        localtime(when)
        return LastRun(host, when) if isinstance(host, str) and isinstance(when, float) else None
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
