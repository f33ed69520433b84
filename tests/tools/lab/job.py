"""The job of every trial: log its start, any overlap, the signals it gets, and its end.

Called as `job.py PLACE`. LAB_ACTION selects its action, LAB_TAG identifies it. Its words never
change, as for a repeated job.
"""

import fcntl
import os
import signal
import sys

PLACE, ACTION, TAG = sys.argv[1], os.environ["LAB_ACTION"], os.environ["LAB_TAG"]
EVERY = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False  # the descriptor of the listing itself


def stay():
    """Wait for SIGUSR1 and log every signal. No other signal ends the job."""
    while True:
        number = signal.sigwait(EVERY)
        write("signal", number)
        if number == signal.SIGUSR1:
            return


def leave_daemon():
    if os.fork():
        return
    os.close(alone)  # the daemon may run beside the next job
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    write("daemon", os.getpid())
    signal.sigwait({signal.SIGRTMIN})
    os._exit(0)


def leave_session():
    if os.getpid() != os.getpgrp():  # a group leader cannot start a session
        os.setsid()
    stay()


def close_inherited():
    """Close inherited descriptors, as sudo, ssh and daemons do."""
    for descriptor in seen:
        os.close(descriptor)
    stay()


def die():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write("ended", os.getpid())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def write(word, number):
    os.write(log, f"{word} {number} {TAG}\n".encode())


signal.pthread_sigmask(signal.SIG_BLOCK, EVERY)
seen = [
    number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and is_open(number)
]
log = os.open(f"{PLACE}/log", os.O_WRONLY | os.O_APPEND)
alone = os.open(f"{PLACE}/alone", os.O_RDWR)
try:
    fcntl.flock(
        alone, fcntl.LOCK_EX | fcntl.LOCK_NB
    )  # a witness: the kernel unlocks it when this job ends
except BlockingIOError:
    write("overlap", os.getpid())
for number in seen:
    write("sees", number)
write("started", os.getpid())
ACTIONS = {
    "stay": stay,
    "daemon": leave_daemon,
    "session": leave_session,
    "close": close_inherited,
    "die": die,
}
if ACTION in ACTIONS:
    ACTIONS[ACTION]()
write("ended", os.getpid())
os._exit(3 if ACTION == "fail" else 0)
