"""That the command is dead before its lease is someone else's. Cold.

The rule. A renewal that was sent at s and then acknowledged keeps the lease until s + T at least, by the engine's clock; if that
and ours differ in rate by RATE at most, nobody else has it before D = s + T (1 - RATE) - LATENCY by ours, the one that counts
suspended time. So the command gets SIGTERM, after a grace G SIGKILL, and is dead a MARGIN before D. Three things see to that,
none of which trusts the one before it: a thread that renews and knows s; the launcher, which sleeps no longer than until it must
say SIGTERM; and the kernel, by a timer that kills the launcher at D, with which the command dies, also if both are stopped or
swapped out.

(After C. Gray, D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency", 1989.)
"""

import posix
import threading
from _signal import SIGKILL, SIGURG

from solo.engines.engine import Gone, read_boot_clock
from solo.engines.queue import RENEWALS
from solo.errors import SoloError, Unreachable, UsageError
from solo.text.describe import format_duration

TTL, LONGEST = 15.0, 1e9  # seconds
LONGEST_TIMEOUT = 5.0  # seconds: so long a signal may have to wait
RATE = 0.1  # chrony may slew a clock by 8.3 %, the kernel by 10
LATENCY = 0.25  # seconds from SIGKILL to the command's last instruction
MARGIN = 0.25  # seconds for the launcher to kill, and to end with a status that says why, before the kernel's timer
TIMEOUTS, GRACES = 7.5, 5  # so many times a ttl is longer than a timeout, and than the grace that nobody asked for
RETRY = 0.25  # seconds
CLOCK_BOOTTIME, TIMER_ABSTIME, SIGEV_SIGNAL = 7, 1, 0


class Terms:
    """The times of a lease, in seconds: `ttl` it lives, renewed each `period`, `timeout` of one call, `grace` from SIGTERM to
    SIGKILL.
    """

    def __init__(self, ttl: float, grace=None):
        self.asked_grace = grace
        self.ttl = ttl
        self.period = ttl / RENEWALS
        self.timeout = min(ttl / TIMEOUTS, LONGEST_TIMEOUT)
        self.grace = ttl / GRACES if grace is None else grace

    @property
    def life(self) -> float:
        """From when an acknowledged renewal was sent to when the command is dead."""
        return self.ttl * (1 - RATE) - LATENCY

    @property
    def calm(self) -> float:
        """From when an acknowledged renewal was sent to SIGTERM."""
        return self.life - MARGIN - self.grace

    @property
    def outage(self) -> float:
        """The longest time without an engine that the command does not notice."""
        return self.calm - self.period - self.timeout

    def check(self):
        """Raises UsageError if it could not be renewed in time, or would never end."""
        if max(self.ttl, self.grace) > LONGEST:
            raise UsageError("--ttl, --kill-after: a lease must end, and so must its grace")
        if self.outage <= 0:
            span = "{:.3g}s".format
            raise UsageError(
                f"a lease of {span(self.ttl)} is too short: renewed every {span(self.period)} with a timeout of"
                f" {span(self.timeout)}, a grace of {span(self.grace)} before SIGKILL and {span(self.ttl - self.life + MARGIN)}"
                " for clocks and the kernel"
                f" (--ttl {self.find_shortest():.0f}s would do, or a shorter --kill-after)"
            )

    def find_shortest(self) -> float:
        """The shortest ttl that goes with this grace, in whole seconds."""
        return int((LATENCY + MARGIN + self.grace) / (1 - RATE - 1 / RENEWALS - 1 / TIMEOUTS)) + 1


class Lease:
    """The lease of a connected Engine, kept from `begin` to `end`.

    `renewed` is when the last acknowledged renewal was sent (read_boot_clock). `lost` says why it is gone for certain, `asked`
    who wants us to end; each None until then.
    """

    def __init__(self, engine, terms: Terms):
        self.engine = engine
        self.terms = terms
        self.renewed = read_boot_clock()
        self.lost = self.asked = None
        self.problem = ""
        self.stop = Stop()
        self.lock = threading.RLock()  # of who asks the engine
        self.thread = None
        self.dead_man = DeadMan()

    @property
    def deadline(self) -> float:
        """D: when the command must be dead, by read_boot_clock."""
        return self.renewed + self.terms.life

    def renew(self):
        """Raises Unreachable, Gone."""
        with self.lock:
            sent = read_boot_clock()
            asked = self.engine.renew()
            self.renewed = sent
        if asked and not self.asked:
            self.asked = asked
            self.ring()
        if self.dead_man.is_armed:
            self.dead_man.arm(self.deadline)

    def start(self, ttl: float):
        """All is held, for `ttl` seconds as the engine says: from now on we die at D. Raises SoloError, Unreachable."""
        self.terms = Terms(ttl, self.terms.asked_grace)
        self.terms.check()
        self.engine.timeout = min(self.engine.timeout, self.terms.timeout)
        self.renew()
        self.check_start()
        self.dead_man.arm(self.deadline)

    def is_fresh(self) -> bool:
        """Whether so much is left of the lease that the command may start."""
        return read_boot_clock() < self.renewed + self.terms.calm - self.terms.period

    def check_start(self):
        if not self.is_fresh():
            raise Unreachable(f"{self.engine.where}: too slow: too little is left of the lease of {self.terms.ttl:.3g}s")

    def begin(self, child: int):
        """The command runs, as pid `child`: renew from now on, in a thread, which has every signal blocked as we do."""
        thread = threading.Thread(target=self.keep, args=(child,), daemon=True)
        try:
            thread.start()
            self.thread = thread
        except RuntimeError as error:  # it lives as long as the lease does unrenewed
            self.problem = str(error)

    def keep(self, child: int):
        try:
            self.record_child(child)
            due = self.renewed + self.terms.period
            while not self.stop.is_set():
                self.engine.wait_loss(max(0.0, due - read_boot_clock()), self.stop)
                if self.stop.is_set():
                    break
                try:
                    self.renew()
                    self.problem = ""
                    due = self.renewed + self.terms.period
                except Gone:
                    raise
                except Exception as error:  # an answer that makes no sense is none
                    self.problem = str(error) or type(error).__name__
                    due = read_boot_clock() + RETRY
        except Gone as error:
            self.lost = str(error)
            self.ring()
        except Exception as error:  # then nobody renews, and D comes
            self.problem = f"this is a bug in solo: {type(error).__name__}: {error}"

    def ring(self):
        """Wake the launcher; it forwards nothing that comes from itself."""
        posix.kill(posix.getpid(), SIGURG)

    def record_child(self, child: int):
        try:
            with self.lock:
                self.engine.record_child(child)
        except Gone:
            raise
        except Exception:
            pass  # a nicety

    def find_left(self) -> float:
        """Seconds until the launcher must look again."""
        return 0.0 if self.lost else max(0.0, self.renewed + self.terms.calm - read_boot_clock())

    def find_life(self) -> float:
        """Seconds until the command must be killed."""
        return max(0.0, self.deadline - MARGIN - read_boot_clock())

    def find_loss(self):
        """Why the command must end now; None if it need not."""
        if self.lost:
            return f"the lease at {self.engine.where} is lost: {self.lost}"
        if self.find_left():
            return None
        since = format_duration(read_boot_clock() - self.renewed)
        return f"the lease at {self.engine.where} was not renewed for {since}" + (f": {self.problem}" if self.problem else "")

    def end(self):
        """Nothing of ours runs any more: give it back. What can not be reached forgets us after the ttl. Raises SoloError, Gone."""
        self.stop.set()
        self.dead_man.disarm()
        if self.thread is not None:
            self.thread.join(RETRY if self.problem else 2 * self.engine.timeout)
            if self.thread.is_alive():
                raise Unreachable(self.problem or f"{self.engine.where}: does not answer")
        if self.lost is None:
            self.engine.release()


class Stop(threading.Event):
    """An Event that poll can wait for as well."""

    def __init__(self):
        super().__init__()
        self.fd = posix.eventfd(0, posix.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self.fd

    def set(self):
        super().set()
        posix.eventfd_write(self.fd, 1)


class DeadMan:
    """A timer of the kernel that kills us, and with us the command: it needs no turn of ours, and counts while we are stopped."""

    def __init__(self):
        import ctypes

        class Event(ctypes.Structure):
            _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_char * 48)]

        class Times(ctypes.Structure):
            _fields_ = [(name, ctypes.c_long) for name in ("every_seconds", "every_nanoseconds", "seconds", "nanoseconds")]

        self.is_armed = self.is_over = False
        self.lock = threading.Lock()
        self.timer = ctypes.c_void_p()
        self.set = lambda at: library.timer_settime(
            self.timer, TIMER_ABSTIME, ctypes.byref(Times(0, 0, int(at), int(at % 1 * 1e9))), None
        )
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "timer_create"):
            library = ctypes.CDLL("librt.so.1", use_errno=True)  # glibc before 2.34
        event = Event(None, SIGKILL, SIGEV_SIGNAL)
        if library.timer_create(CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self.timer)):
            raise SoloError(f"no timer for the lease: {posix.strerror(ctypes.get_errno())}")

    def arm(self, at: float):
        """Die at `at` (read_boot_clock), and not when it was before."""
        with self.lock:
            if not self.is_over and self.set(at):
                raise SoloError("the timer for the lease can not be set")
            self.is_armed = True

    def disarm(self):
        """For good, whoever arms it meanwhile."""
        with self.lock:
            self.is_over = True
            self.set(0)
