"""A command that can not be asked to end, and tells to the millisecond when it lived: `beats.py FILE SECONDS`.

Into FILE go its SOLO_TOKEN, and then every 2 ms the time since boot, 8 bytes each; both are whole whenever it is killed.
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
