"""A stand-in command: print `ready` and the pid, then a line for each signal it gets. Ends on SIGTERM."""

import os
import signal


def print_signals():
    every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
    print("ready", os.getpid(), flush=True)
    while True:
        info = signal.sigwaitinfo(every)
        print(info.si_signo, flush=True)
        if info.si_signo == signal.SIGTERM:
            return


print_signals()
