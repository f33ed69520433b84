"""A command that ignores SIGTERM and records its lifetime to some 2 ms: `beats.py FILE SECONDS`.

Append SOLO_TOKEN to FILE, then the time since boot every 2 ms, 8 bytes each. A kill never leaves a
partial value.
"""

import os
import signal
import struct
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.clock_gettime(time.CLOCK_BOOTTIME) + float(sys.argv[2])
now = 0.0
os.write(file, struct.pack("q", int(os.environ.get("SOLO_TOKEN", "0").split()[0])))
while now < end:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(file, struct.pack("d", now))
    time.sleep(0.002)
