"""Start many programs at a steady rate: `arrivals.py COUNT RATE LOG WORD...`, RATE per second. A `{}` in a WORD becomes
the number of the program.

Print the seconds that all starts took, wait for all, and print their exit statuses in order. SIGTERM kills them all. This is a
separate small program because it forks fast and need not wait for each exec.
"""

import os
import signal
import sys
import time

count, rate = int(sys.argv[1]), float(sys.argv[2])
errors = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
started = []
statuses = {}


def kill_all(*_):
    for pid in started:
        if pid not in statuses:
            os.kill(pid, signal.SIGKILL)
    os._exit(1)


signal.signal(signal.SIGTERM, kill_all)
begin = time.monotonic()
for number in range(count):
    time.sleep(max(0, begin + number / rate - time.monotonic()))
    words = [word.replace("{}", str(number)) for word in sys.argv[4:]]
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(errors, 2)
            os.execv(words[0], words)
        finally:
            os._exit(127)
    started.append(pid)
print(f"{time.monotonic() - begin:.1f}", flush=True)
while len(statuses) < count:
    pid, status = os.wait()
    statuses[pid] = os.waitstatus_to_exitcode(status)
print(*(statuses[pid] for pid in started), flush=True)
