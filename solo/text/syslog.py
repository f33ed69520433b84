"""Logs to syslog (--syslog): as fields to systemd's journal if its socket is there, else by
syslog(3) as cron does.

Without a reader nothing is logged and nothing waits.
"""

import posix
import syslog
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, socket

from solo.errors import SoloError
from solo.journal_files import ENDED, REFUSED, SKIPPED, STARTED
from solo.kernel import has_room
from solo.text.events import (
    VALUE_LIMIT,
    Event,
    Reporter,
    encode_any,
    make_end,
    make_refusal,
    make_start,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from solo.launcher import Run

PATH = "/dev/log"
JOURNALD = "/run/systemd/journal/socket"
# bytes of a datagram; the kernel's limit is net.core.wmem_default, usually twice that
DATAGRAM_LIMIT = 100_000
MESSAGE_IDS = {
    STARTED: "1f603a0ba30c4670b3c1e80eb10e470d",
    ENDED: "4c340fe76be94a29a1bef98f3602028a",
    SKIPPED: "ac1d96a9ad974bfa862162e194c410a3",
    REFUSED: "a4521e512edf4d999f114f27dbfa2e70",
}


class Syslog(Reporter):
    """The observer of --syslog."""

    def refused(self, error: SoloError) -> None:
        log(make_refusal, error, self.names)

    def started(self, run: "Run") -> None:
        log(make_start, run)

    def ended(self, run: "Run") -> None:
        log(make_end, run)


def log(make: "Callable[..., Event]", *about: object) -> None:
    """Log the event `make(*about)`. Never raises."""
    try:
        event = make(*about)
        priority = syslog.LOG_WARNING if event.is_bad else syslog.LOG_INFO
        if send_fields(event, priority) or not has_reader():
            return
        syslog.openlog("solo", syslog.LOG_PID, syslog.LOG_CRON)
        syslog.syslog(priority, event.text)
        # else its descriptor would be closed with all others before the command runs
        syslog.closelog()
    except (OSError, ValueError, ImportError):
        pass


def send_fields(event: Event, priority: int) -> bool:
    """Send the event to the journal of systemd. Return False if that is not possible without
    blocking.
    """
    sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
    try:
        sender.sendto(format_fields(event, priority), JOURNALD)
        return True
    except OSError:
        return False
    finally:
        sender.close()


def format_fields(event: Event, priority: int) -> bytes:
    """Return a datagram of systemd's native journal protocol; fields that do not fit are left
    out.
    """
    fields = [
        ("MESSAGE", event.text[:VALUE_LIMIT]),
        ("MESSAGE_ID", MESSAGE_IDS[event.kind]),
        ("PRIORITY", str(priority)),
        ("SYSLOG_FACILITY", str(syslog.LOG_CRON >> 3)),
        ("SYSLOG_IDENTIFIER", "solo"),
        ("SYSLOG_PID", str(posix.getpid())),
        *[("SOLO_NAME", name) for name in event.names],
        *event.values.items(),
    ]
    data = b""
    for name, value in fields:
        key, text = name.encode(), encode_any(value)
        field = b"%b=%b\n" % (key, text)
        if b"\n" in text:  # then its length is in front
            field = b"%b\n%b%b\n" % (key, len(text).to_bytes(8, "little"), text)
        if value and len(data) + len(field) <= DATAGRAM_LIMIT:
            data += field
    return data


def has_reader() -> bool:
    """Return whether a line can be sent without blocking. syslog(3) itself blocks if its reader
    hangs.
    """
    probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
    try:
        probe.connect(PATH)
        return has_room(probe.fileno())
    finally:
        probe.close()
