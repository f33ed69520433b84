"""A stand-in command: says what it was given, then prints every signal that reaches it.

`probe.py signals`: prints `ready`, then a line a signal, with its sender's pid; ends on SIGTERM or the end of stdin.
`probe.py report`: prints, as JSON, descriptors, mask, dispositions, umask, cwd, group, session and environment.
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
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    print(json.dumps({
        # listdir's own descriptor is the last one it sees
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
    }))


{"signals": print_signals, "report": report}[sys.argv[1]]()
