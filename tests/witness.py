"""The command of a soak over slots, `witness.py N TAG`: log if it has no slot of N for itself, and
how many run at once.
"""

import fcntl
import os
import struct
import sys
import time

LAB, MOST, TAG, SLOT = (
    os.environ["LAB"],
    int(sys.argv[1]),
    sys.argv[2],
    int(os.environ["SOLO_SLOT"]),
)
FLOCK = "hhqqi"  # struct flock


def write(line):
    with open(f"{LAB}/log", "a") as log:
        log.write(line + "\n")


def is_locked(number):
    """Whether another witness has the byte of this slot."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    return struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK


file = os.open(f"{LAB}/slots", os.O_CREAT | os.O_RDWR)
try:
    fcntl.lockf(
        file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, SLOT
    )  # the kernel unlocks it when this process ends
except BlockingIOError:
    write(f"overlap:{TAG}:{SLOT}")
if SLOT >= MOST:
    write(f"overlap:{TAG}:{SLOT}_of_{MOST}")
write(f"start:{TAG}")
write(f"together:{1 + sum(map(is_locked, range(MOST)))}")
time.sleep(0.01)
write(f"end:{TAG}")
