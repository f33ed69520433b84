"""A small real service that follows systemd's protocols and writes its events to /lab/LOG.

`service.py LOG [stubborn]`: with stubborn, no signal ends it. SIGUSR1 stops its pings of the
watchdog.
"""

import fcntl
import os
import select
import signal
import socket
import sys

LINGER = 0.5  # seconds to wait for a second signal
ENDING = signal.SIGTERM, signal.SIGINT, signal.SIGRTMAX
LOG = f"/lab/{sys.argv[1]}"
MINE = str(os.getpid())


def write(line):
    with open(LOG, "a") as log:
        log.write(line + "\n")


def notify(message):
    """sd_notify(3)"""
    if "NOTIFY_SOCKET" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(message.encode(), os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))


def main():
    alone = os.open(LOG + ".running", os.O_CREAT | os.O_RDWR, 0o666)
    read, wakeup = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wakeup)
    for number in (*ENDING, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        write("overlap")
    listeners = []
    if os.environ.get("LISTEN_PID") == MINE:  # sd_listen_fds(3)
        listeners = [
            socket.socket(fileno=3 + number) for number in range(int(os.environ["LISTEN_FDS"]))
        ]
    period = None
    if os.environ.get("WATCHDOG_PID") == MINE:  # sd_watchdog_enabled(3)
        period = int(os.environ["WATCHDOG_USEC"]) / 1e6 / 4
        write("watchdog is mine")
    write(f"start {MINE}")
    notify("READY=1")
    pings, ending = True, False
    while True:
        ready = select.select([read, *listeners], [], [], LINGER if ending else period)[0]
        if ending and not ready:
            break
        if period and pings:
            notify("WATCHDOG=1")
        for listener in set(listeners).intersection(ready):
            listener.accept()[0].send(f"{MINE} {os.environ.get('LISTEN_FDNAMES')}\n".encode())
        for number in os.read(read, 100) if read in ready else b"":
            write(signal.Signals(number).name)
            pings = pings and number != signal.SIGUSR1
            ending = ending or number in ENDING and sys.argv[2:] != ["stubborn"]
    write("end")


main()
