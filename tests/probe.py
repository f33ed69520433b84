"""A stand-in command that prints the signals it gets or, as `probe.py report`, what it inherited.

Without a word: print `ready` and the pid, then a line for each signal. Ends on SIGTERM.
"""

import json
import os
import signal
import sys


def print_signals():
    every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
    print("ready", os.getpid(), flush=True)
    while True:
        info = signal.sigwaitinfo(every)
        print(info.si_signo, flush=True)
        if info.si_signo == signal.SIGTERM:
            return


def report():
    status = dict(
        row.split(":\t", 1) for row in open("/proc/self/status").read().splitlines() if ":\t" in row
    )
    found = {
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[
            :-1
        ],  # the last one is listdir's own
        "blocked": status["SigBlk"],
        "ignored": status["SigIgn"],
        "umask": status["Umask"],
        "cwd": os.getcwd(),
        "session": os.getsid(0),
        "parent": os.getppid(),
        "environment": dict(os.environ),
    }
    print(json.dumps(found))


report() if "report" in sys.argv else print_signals()
