"""The command of tests with several modes: log if it may not run beside the witnesses that run now.

`witness.py MODE NAMES SLOTS TAKE TAG DELAY`: MODE is X, S or C; NAMES are separated by commas; DELAY is seconds, or `line` to run
until stdin has a line or ends. It uses only the variables that solo sets. Each witness has a file with its claim;
its flock(2) on that file shows that it still runs.
"""

import fcntl
import os
import sys
import time

LAB = os.environ["LAB"]


def write(line):
    with open(f"{LAB}/log", "a") as log:
        log.write(line + "\n")


def overlaps(one, other):
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def find_conflict(mine, others):
    """Return why `mine` may not run beside the running `others`, or None if it may."""
    for other in others:
        if (mine["mode"], other["mode"]) == ("S", "S"):
            continue
        for name in mine["names"]:
            for theirs in other["names"]:
                both = min(name, theirs) in mine["names"] and min(name, theirs) in other["names"]
                if overlaps(name, theirs) and not (both and mine["mode"] == other["mode"] == "C"):
                    return f"{name} beside {theirs} of {other['tag']}"
    for name in mine["names"] if mine["mode"] == "C" else ():
        beside = [mine, *(other for other in others if name in other["names"])]
        if sum(one["take"] for one in beside) > min(one["slots"] for one in beside):
            return f"{name}: {[one['tag'] for one in beside]} are too many"
        slots = [dict(zip(one["names"], one["slot"]))[name] for one in beside]
        if len(slots) != len(set(slots)):
            return f"{name}: slots {slots}"
    return None


def read(line):
    mode, names, slots, take, slot, tag = line.split(";")
    numbers = {"slots": int(slots), "take": int(take), "slot": slot.split()}
    return {"mode": mode, "names": names.split(","), "tag": tag, **numbers}


def main():
    mode, names, slots, take, tag, delay = sys.argv[1:]
    line = ";".join((mode, names, slots, take, os.environ.get("SOLO_SLOT", ""), tag))
    active = f"{LAB}/active"
    os.makedirs(active, exist_ok=True)
    own = f"{active}/{os.getpid()}"
    with open(f"{LAB}/active.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = []
        for file in os.listdir(active):
            try:
                other = open(f"{active}/{file}")
            except FileNotFoundError:
                continue  # it has just ended
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                others.append(read(other.read()))
            other.close()
        conflict = find_conflict(read(line), others)
        if conflict:
            write(f"overlap:{tag}:{conflict}".replace(" ", "_"))
        here = open(own, "w")
        here.write(line)
        here.flush()
        fcntl.flock(here, fcntl.LOCK_EX)
        if os.environ.get("COUNT") and not conflict:
            write(f"together:{1 + len(others)}")
    write(f"start:{tag}")
    if delay == "line":
        print(os.getpid(), flush=True)
        sys.stdin.readline()
    else:
        time.sleep(float(delay))
    write(f"end:{tag}")
    os.unlink(own)


main()
