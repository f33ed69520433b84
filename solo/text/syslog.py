"""Logs to syslog (--syslog): starts, skips, ends and time-outs, with name, pid, status and duration.

Uses syslog(3) as cron does: facility cron, tag solo[PID]. Without a reader nothing is logged and nothing waits.
"""

import syslog
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, socket

from solo.errors import LEASE_LOST, TIMED_OUT, Busy, SoloError
from solo.kernel import escape, has_room
from solo.text.describe import format_duration, name_signal

PATH = "/dev/log"


class Syslog:
    """The listener of --syslog. None of its methods raises."""

    def refused(self, error: SoloError):
        log(f"{'skipped' if isinstance(error, Busy) else 'not started'}: {error}", error.is_loud)

    def started(self, run):
        log(f"{' '.join(run.names)}: started {' '.join(run.command)} as pid {run.pid}")

    def ended(self, run):
        verb = {TIMED_OUT: "timed out and ended", LEASE_LOST: "lost its lease and ended", None: "ended"}[run.outcome]
        is_bad = run.outcome is not None or run.code != 0
        log(f"{' '.join(run.names)}: pid {run.pid} {verb} {describe_end(run.code, run.seconds)}", is_bad)


def log(text: str, is_bad: bool = False):
    """Log one line. Never raises."""
    try:
        if not has_reader():
            return
        syslog.openlog("solo", syslog.LOG_PID, syslog.LOG_CRON)
        syslog.syslog(syslog.LOG_WARNING if is_bad else syslog.LOG_INFO, escape(text))
        syslog.closelog()  # else its descriptor would be closed with all others before the command runs
    except (OSError, ValueError):
        pass


def has_reader() -> bool:
    """Whether a line can be sent without blocking. syslog(3) itself blocks if its reader hangs."""
    probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
    try:
        probe.connect(PATH)
        return has_room(probe.fileno())
    finally:
        probe.close()


def describe_end(exit_code: int, seconds: float) -> str:
    """Return `with exit status 3 after 3h12m`, or `by SIGKILL after 3h12m` for a negative code, as in Popen."""
    how = f"by {name_signal(-exit_code)}" if exit_code < 0 else f"with exit status {exit_code}"
    return f"{how} after {format_duration(seconds)}"
