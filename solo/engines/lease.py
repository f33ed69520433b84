"""Guarantees that the command is dead before anyone else can get its lease.

The rule. A renewal that was sent at s and then acknowledged keeps the lease until s + T at least,
by the engine's clock. If its rate and that of our boot clock, which counts suspended time, differ
by RATE at most, nobody else has the lease before D = s + T (1 - RATE) - LATENCY by the boot clock.
So the command gets SIGTERM, after a grace G SIGKILL, and is dead a MARGIN before D. Three layers
enforce that, and none trusts the one before it: a thread that renews and knows s; the launcher,
which sleeps no longer than until SIGTERM is due; and the kernel, whose timer kills the launcher at
D, and with it the command, even if both are stopped or swapped out.

(After C. Gray, D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
Cache Consistency", 1989.)
"""

import posix
from _signal import SIGKILL, SIGURG
from _thread import LockType, RLock, allocate_lock, start_new_thread
from select import POLLIN, poll

from solo.engines.engine import RENEWALS, Gone
from solo.engines.queue import Engine
from solo.errors import SoloError, Unreachable, UsageError
from solo.kernel import read_boot_clock
from solo.process.wakeup import Wakeup
from solo.text.describe import format_duration

TTL, LONGEST_TTL = 15.0, 1e9  # seconds
LONGEST_TIMEOUT = 5.0  # seconds: a signal may be delayed that long
RATE = 0.1  # chrony may slew a clock by 8.3 %, the kernel by 10
LATENCY = 0.25  # seconds from SIGKILL to the command's last instruction
# seconds before the kernel's timer: the launcher kills, and exits with a status that says why
MARGIN = 0.25
TIMEOUTS, GRACES = 7.5, 5  # a ttl divided by a timeout, and by the default grace
RETRY = 0.25  # seconds
LONGEST_POLL = 1e6  # seconds
CLOCK_BOOTTIME, TIMER_ABSTIME, SIGEV_SIGNAL = 7, 1, 0
EVENT_SIZE = 64  # bytes: at least that of a sigevent


class Terms:
    """The times of a lease, in seconds: it lives for `ttl` and is renewed each `period`; a call
    takes at most `timeout`; from SIGTERM to SIGKILL is the `grace`. From sending an acknowledged
    renewal to SIGTERM is `calm`, to the death of the command `life`. The longest `outage` of the
    engine leaves the command undisturbed.
    """

    def __init__(self, ttl: float, grace: "float | None" = None) -> None:
        self.asked_grace = grace
        self.ttl = ttl
        self.period = ttl / RENEWALS
        self.timeout = min(ttl / TIMEOUTS, LONGEST_TIMEOUT)
        self.grace = ttl / GRACES if grace is None else grace
        self.life = ttl * (1 - RATE) - LATENCY
        self.calm = self.life - MARGIN - self.grace
        self.outage = self.calm - self.period - self.timeout

    def check(self) -> None:
        """Raise UsageError if the lease could not be renewed in time, or would never end."""
        if max(self.ttl, self.grace) > LONGEST_TTL:
            raise UsageError("--ttl, --kill-after: cannot accept a lease or a grace without end")
        if self.outage <= 0:
            remedy = f"--ttl {self.find_shortest():.0f}s would do, or a shorter --kill-after"
            raise UsageError(f"a lease of {self.ttl:.3g}s is too short ({remedy})")

    def find_shortest(self) -> float:
        """Return the shortest ttl for this grace, in whole seconds."""
        return int((LATENCY + MARGIN + self.grace) / (1 - RATE - 1 / RENEWALS - 1 / TIMEOUTS)) + 1


class Lease:
    """The lease of a connected Engine, kept from `begin` to `end`.

    `renewed` is when the last acknowledged renewal was sent (read_boot_clock). `lost` is the reason
    why the lease is certainly gone, `asked` the contender that asks us to end; both are None until
    then. `ordered` is the last signal that asked us to end, or 0. `problem` is why the last renewal
    failed.
    """

    def __init__(self, engine: Engine, terms: Terms) -> None:
        self.engine = engine
        self.terms = terms
        self.renewed = read_boot_clock()
        self.lost: str | None = None
        self.asked: str | None = None
        self.ordered = 0
        self.problem = ""
        self.stop = StopEvent()
        self.lock = RLock()  # held by the thread that calls the engine
        self.running: LockType | None = None  # a lock that the renewing thread holds while it runs
        self.dead_man = DeadMan()

    @property
    def deadline(self) -> float:
        """D: when the command must be dead, by read_boot_clock."""
        return self.renewed + self.terms.life

    def renew(self) -> None:
        """Renew the lease and move the timer. Raises Unreachable, Gone."""
        with self.lock:
            sent = read_boot_clock()
            asked = self.engine.renew()
            self.renewed = sent
        if asked and not self.asked:
            self.asked = asked
            self.wake_launcher()
        if self.dead_man.is_armed:
            self.dead_man.arm(self.deadline)

    def start(self, ttl: float) -> None:
        """Arm the timer of the lease, granted for `ttl` seconds and just confirmed; else renew it.
        Raises Gone, SoloError, Unreachable.

        The renewal that confirmed the last name was sent before the queue was read in which nobody
        was before it.
        """
        self.terms = Terms(ttl, self.terms.asked_grace)
        self.terms.check()
        self.engine.timeout = min(self.engine.timeout, self.terms.timeout)
        self.renewed = self.engine.confirmed
        if not self.is_fresh():
            self.renew()
        self.check_start()
        self.dead_man.arm(self.deadline)

    def is_fresh(self) -> bool:
        """Return whether enough of the lease is left for the command to start."""
        return read_boot_clock() < self.renewed + self.terms.calm - self.terms.period

    def check_start(self) -> None:
        if not self.is_fresh():
            left = f"too little is left of the lease of {self.terms.ttl:.3g}s"
            raise Unreachable(f"{self.engine.where}: too slow: {left}")

    def begin(self, child: int) -> None:
        """Renew from now on, in a thread that inherits our blocked signals. The command runs, as
        pid `child`.
        """
        running = allocate_lock()
        running.acquire()
        try:
            start_new_thread(self.run, (child, running))
            self.running = running
        except (
            RuntimeError
        ) as error:  # without a thread, the command lives as long as an unrenewed lease
            self.problem = str(error)

    def run(self, child: int, running: LockType) -> None:
        try:
            self.try_record_child(child)
            due = self.renewed + self.terms.period
            while not self.stop.wait(max(0.0, due - read_boot_clock())):
                try:
                    self.renew()
                    self.problem = ""
                    due = self.renewed + self.terms.period
                except Gone:
                    raise
                except Exception as error:  # treat an invalid answer as no answer
                    self.problem = str(error) or type(error).__name__
                    due = read_boot_clock() + RETRY
        except Gone as error:
            self.lost = str(error)
            self.wake_launcher()
        except Exception as error:  # without renewals the command ends before D
            self.problem = f"this is a bug in solo: {type(error).__name__}: {error}"
        finally:
            running.release()

    def wake_launcher(self) -> None:
        """Wake the main thread. The launcher does not forward signals that come from itself."""
        posix.kill(posix.getpid(), SIGURG)

    def try_record_child(self, child: int) -> None:
        """Record the child's pid at the engine. Raises Gone; ignore other failures, as only views
        show it.
        """
        try:
            with self.lock:
                self.engine.record_child(child)
        except Gone:
            raise
        except Exception:
            pass

    def find_left(self) -> float:
        """Return the seconds until the launcher must check the lease."""
        return 0.0 if self.lost else max(0.0, self.renewed + self.terms.calm - read_boot_clock())

    def find_life(self) -> float:
        """Return the seconds until the command must be killed."""
        return max(0.0, self.deadline - MARGIN - read_boot_clock())

    def find_loss(self) -> "str | None":
        """Return why the command must end now, or None."""
        if self.lost:
            return f"the lease at {self.engine.where} is lost: {self.lost}"
        if self.find_left():
            return None
        since = format_duration(read_boot_clock() - self.renewed)
        why = f": {self.problem}" if self.problem else ""
        return f"the lease at {self.engine.where} was not renewed for {since}{why}"

    def end(self) -> None:
        """Give the lease back. An engine that cannot be reached forgets it after the ttl. Raises
        SoloError, Gone.
        """
        self.stop.send()
        self.dead_man.disarm()
        longest = RETRY if self.problem else 2 * self.engine.timeout
        if self.running is not None and not self.running.acquire(timeout=longest):
            raise Unreachable(self.problem or f"{self.engine.where}: does not answer")
        if self.lost is None:
            self.engine.release()


class StopEvent(Wakeup):
    """The end of a Lease. One thread waits for it."""

    def wait(self, seconds: float) -> bool:
        """Wait no longer than `seconds`. Return whether the end has come."""
        poller = poll()
        poller.register(self, POLLIN)
        return bool(poller.poll(min(seconds, LONGEST_POLL) * 1000))


class DeadMan:
    """A timer of the kernel that kills the launcher, and with it the command. It works while the
    launcher is stopped.
    """

    def __init__(self) -> None:
        from _ctypes import byref, get_errno

        from solo.process.library import Int, Pointer, find_function, load_library, pack

        self.is_armed = self.is_over = False
        self.lock = allocate_lock()
        self.timer = Pointer()
        library = load_library()
        try:
            create = find_function(library, "timer_create")
        except OSError:
            library = load_library("librt.so.1")  # glibc before 2.34
            create = find_function(library, "timer_create")
        settime = find_function(library, "timer_settime")
        event = pack(Pointer, 0) + pack(Int, SIGKILL, SIGEV_SIGNAL) + bytes(EVENT_SIZE)
        if create(CLOCK_BOOTTIME, event, byref(self.timer)):
            raise SoloError(f"cannot create the timer of the lease: {posix.strerror(get_errno())}")

        def set_timer(at: float) -> object:
            when = pack(Pointer, 0, 0, int(at), int(at % 1 * 1e9))
            return settime(self.timer, TIMER_ABSTIME, when, None)

        self.set = set_timer

    def arm(self, at: float) -> None:
        """Have the kernel kill us at `at` (read_boot_clock), unless `disarm` was called. Raises
        SoloError.
        """
        with self.lock:
            if not self.is_over and self.set(at):
                raise SoloError("cannot set the timer of the lease")
            self.is_armed = True

    def disarm(self) -> None:
        """Disarm for good, even if the other thread arms it later."""
        with self.lock:
            self.is_over = True
            self.set(0)
