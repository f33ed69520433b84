"""The job of every trial: tells a log that it runs, whether alone, what signals reach it, and that it ends.

`job.py PLACE`. What it does is in LAB_WHAT and who it is in LAB_TAG: its words are always the same, as those of a job run again.
"""

import fcntl
import os
import signal
import sys

PLACE, WHAT, TAG = sys.argv[1], os.environ["LAB_WHAT"], os.environ["LAB_TAG"]
EVERY = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False  # the listing's own


def stay():
    """Until SIGUSR1, and nothing else ends it: every signal is written down."""
    while True:
        number = signal.sigwait(EVERY)
        tell("signal", number)
        if number == signal.SIGUSR1:
            return


def leave_daemon():
    if os.fork():
        return
    os.close(alone)  # it does not do what the lock is for
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    tell("daemon", os.getpid())
    signal.sigwait({signal.SIGRTMIN})
    os._exit(0)


def leave_session():
    if os.getpid() != os.getpgrp():  # else it leads a group already and can not
        os.setsid()
    stay()


def close_all():
    """As sudo, ssh and daemons do with what they do not know."""
    for descriptor in seen:
        os.close(descriptor)
    stay()


def die():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tell("ended", os.getpid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def tell(word, number):
    os.write(log, f"{word} {number} {TAG}\n".encode())


signal.pthread_sigmask(signal.SIG_BLOCK, EVERY)
seen = [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and is_open(number)]
log = os.open(f"{PLACE}/log", os.O_WRONLY | os.O_APPEND)
alone = os.open(f"{PLACE}/alone", os.O_RDWR)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a witness of its own: the kernel lets go when this job ends
except BlockingIOError:
    tell("overlap", os.getpid())
for number in seen:
    tell("sees", number)
tell("started", os.getpid())
{"stay": stay, "daemon": leave_daemon, "session": leave_session, "close": close_all, "die": die}.get(WHAT, bool)()
tell("ended", os.getpid())
os._exit(3 if WHAT == "fail" else 0)
