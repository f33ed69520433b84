"""--once-per: at most one run per period, even if a short run ended before cron fired on the other host.

The period of a moment is the nearest multiple of its length, and a start less than half a period after the last run
belongs to the period of that run. So clocks that differ by less than half a period agree, whenever cron fires.
The last run is stored beside the journal and, with an engine, there too. The contender that replaces it runs.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX
from time import localtime, monotonic, strftime, time
from typing import Any, NamedTuple, Optional, Protocol

from solo.directories import open_file
from solo.errors import Busy, RanAlready, SoloError, UsageError
from solo.gate import GATE_PATIENCE
from solo.identity import read_origin
from solo.journal_files import make_place
from solo.kernel import FOREVER, close, wait_lock, write_whole
from solo.plan import Plan
from solo.process.watch import find_lock_owner, make_stuck_error, try_lead

FILE = ".once"
SIZE_LIMIT = 4096
SHORTEST = 0.001  # seconds


class LastRun(NamedTuple):
    """The last run of a name: its host, and its time in seconds since the epoch, by the clock of that host."""

    host: str
    time: float


class Store(Protocol):
    """Keeps the last run of a name: a LocalStore, or an EngineHold. The methods raise SoloError."""

    def read_once(self, name: str) -> Optional[LastRun]: ...

    # Replace the LastRun `before` by `ran`; None is for none. Return False if another one is stored by now.
    def write_once(self, name: str, before: Optional[LastRun], ran: Optional[LastRun]) -> bool: ...


class PeriodGuard:
    """The one run of `names` in a period of `length` seconds.

    `stores` keep the last run. `ran` is the LastRun that we write there, `written` all that we have written, `claims`
    lists (store, the LastRun before).
    """

    def __init__(self, plan: Plan) -> None:
        self.length: float = plan.once_per
        if not SHORTEST <= self.length < FOREVER:
            raise UsageError("--once-per must be at least 1ms, and not forever")
        if len(plan.names) > 1 and not plan.is_generated:
            raise UsageError("--once-per: give one name")
        self.name = plan.names[0]
        self.may_retry = plan.once_retry
        self.ran: LastRun | None = None
        self.written: list[LastRun] = []
        self.claims: list[tuple[Store, LastRun | None]] = []
        self.stores: list[Store] = []
        self.add(LocalStore(plan.dir))

    def add(self, store: Store) -> None:
        """Ask one more store, and add it unless that raises RanAlready or SoloError."""
        self.ask(store)
        self.stores.append(store)

    def ask(self, store: Store) -> Optional[LastRun]:
        """Return the LastRun that `store` keeps if it is our own or of an earlier period. Raises RanAlready."""
        before = store.read_once(self.name)
        now = self.ran.time if self.ran else time()  # judge by the time that we will write, however long that takes
        if before is None or before in self.written or is_over(before.time, now, self.length):
            return before
        if before.time > now + self.length:
            return before  # a broken clock wrote it
        when = strftime("%F %T", localtime(before.time))
        raise RanAlready(f"{self.name}: ran already in this period, on {before.host} at {when}")

    def claim(self) -> None:
        """Claim the present period for our run; the last call counts. Raises RanAlready, SoloError."""
        self.ran = LastRun(read_origin().host, time())
        self.written.append(self.ran)
        for store in self.stores:
            while True:
                before = self.ask(store)
                if before == self.ran:
                    break  # our earlier write was stored, although the store reported a failure
                if before not in self.written:
                    # Note it before the write: we may never know whether that succeeded.
                    self.claims = [*(claim for claim in self.claims if claim[0] is not store), (store, before)]
                if store.write_once(self.name, before, self.ran):
                    break

    def undo_claim(self, error: BaseException) -> BaseException:
        """Undo the claim: nothing runs. Return what to raise: `error`, or RanAlready if the holder runs in this period."""
        self.undo()
        if isinstance(error, Busy) and not isinstance(error, RanAlready):
            try:
                for store in self.stores:
                    self.ask(store)
            except RanAlready as other:
                return other
            except SoloError:
                pass
        return error

    def ended(self, run: Any) -> None:
        """Do not count a failed run with the word retry; before the names are released, as the next run may be this job."""
        if self.may_retry and (run.code or run.outcome):
            self.undo()

    def undo(self) -> None:
        """Restore what was stored before, where it is still ours. Ignores errors."""
        for store, before in self.claims:
            try:
                ran = store.read_once(self.name)
                if ran in self.written:
                    store.write_once(self.name, ran, before)
            except Exception:
                pass  # then it counts as a run: better no run than two
        self.claims = []


def is_over(before: float, now: float, length: float) -> bool:
    """Return whether the period of a run at `before` has ended: not before half of it has passed."""
    return find_period(before, length) < find_period(now, length) and now - before >= length / 2


def find_period(now: float, length: float) -> int:
    """Return the number of the period of `length` seconds to which a moment belongs.

    >>> find_period(299.0, 300.0), find_period(301.0, 300.0), find_period(451.0, 300.0)
    (1, 1, 2)
    """
    return int((now + length / 2) // length)


class LocalStore:
    """The store on this machine: a file beside the journal, which survives a boot. `directory` is --dir."""

    def __init__(self, directory: Optional[str]) -> None:
        self.directory = directory

    def read_once(self, name: str) -> Optional[LastRun]:
        with self.open(name) as fd:
            return parse_ran(os.pread(fd, SIZE_LIMIT, 0))

    def write_once(self, name: str, before: Optional[LastRun], ran: Optional[LastRun]) -> bool:
        with self.open(name) as fd:
            if parse_ran(os.pread(fd, SIZE_LIMIT, 0)) != before:
                return False
            data = format_ran(ran)
            write_whole(fd, data, 0)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
            return True

    @contextmanager
    def open(self, name: str) -> Iterator[int]:
        """Open and lock the file of a name. Raises SoloError."""
        try:
            place = make_place(self.directory, name)
            try:
                fd = open_file(place, FILE, os.O_RDWR)
                try:
                    if not wait_lock(fd, LOCK_EX, monotonic() + GATE_PATIENCE):
                        owner = find_lock_owner(fd) if try_lead(fd) else 0
                        raise make_stuck_error(f"{place.path}/{FILE}", owner, GATE_PATIENCE)
                    yield fd
                finally:
                    close(fd)
            finally:
                close(place.fd)
        except OSError as error:
            raise SoloError(f"{name}: cannot record the run: {error.strerror}") from None
        except SoloError as error:
            raise SoloError(f"{name}: {error}") from None


def format_ran(ran: Optional[LastRun]) -> bytes:
    return json.dumps(ran).encode() if ran else b""


def parse_ran(data: bytes) -> Optional[LastRun]:
    """Return the LastRun in `data`, or None if it is damaged."""
    try:
        host, when = json.loads(data)
        localtime(when)
        return LastRun(host, when) if isinstance(host, str) and isinstance(when, float) else None
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
