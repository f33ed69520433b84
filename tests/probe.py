"""A stand-in command that prints the signals it gets, or its inherited state.

`probe.py signals`: print `ready` and the pid, then a line for each signal. Ends on SIGTERM.
`probe.py report`: print descriptors, mask, dispositions, umask, cwd, group, session and environment as JSON.
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
    status = dict(row.split(":\t", 1) for row in open("/proc/self/status").read().splitlines() if ":\t" in row)
    print(
        json.dumps(
            {
                # the last one is listdir's own descriptor
                "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
                "blocked": int(status["SigBlk"], 16),
                "ignored": int(status["SigIgn"], 16),
                "umask": int(status["Umask"], 8),
                "cwd": os.getcwd(),
                "group": os.getpgrp(),
                "session": os.getsid(0),
                "parent": os.getppid(),
                "argv": [os.fsencode(word).hex() for word in sys.argv[2:]],
                "environment": {os.fsencode(k).hex(): os.fsencode(v).hex() for k, v in os.environ.items()},
            }
        )
    )


{"signals": print_signals, "report": report}[sys.argv[1]]()
