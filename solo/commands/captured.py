"""The captured output of a run: from the memory of its reader while it goes on, then from its file.

Every reader of this user is asked, whatever a record says: no other user's process is opened.
"""

import os

from solo.commands.lookup import open_existing
from solo.history.captured import NEW, join, list_kept, read_names
from solo.journal_files import open_place
from solo.kernel import SAFELY, is_regular
from solo.process.tree import is_holder
from solo.text.events import OK, RUNNING
from solo.text.rows import RunRow
from solo.text.width import clean_lines
from solo.tickets import ORPHANED

LINES = 10  # shown


def list_last_lines(directory: "str | None", name: str, runs: "list[RunRow]") -> "list[str]":
    """Return the last lines of the last run, if it goes on or has failed. Raises SoloError."""
    last = sorted([run for run in runs if run.token is not None], key=find_end)[-1:]
    output = find_last(directory, name, last) if last and last[0].outcome != OK else None
    return clean_lines(output).rstrip("\n").split("\n")[-LINES:] if output else []


def find_last(directory: "str | None", name: str, runs: "list[RunRow]") -> "bytes | None":
    """Return the output of the last of `runs` that has one, or None. Raises SoloError."""
    place = open_existing(directory, open_place, name)
    if place is None:
        return None
    with place:
        files = {token: file for _, token, file in list_kept(place) if not file.endswith(NEW)}
        for run in sorted(runs, key=find_end, reverse=True):
            if run.token in files:
                file = files[run.token]
                try:
                    return read_whole(os.open(file, os.O_RDONLY | SAFELY, dir_fd=place.fd))
                except FileNotFoundError:
                    return None  # a newer one has just replaced it
            if run.captured and run.token and run.outcome in (RUNNING, ORPHANED):
                output = read_memory(name, run.token)
                if output is not None:
                    return output
    return None


def find_end(run: RunRow) -> float:
    """Return when a run ended, else when it began: shared ones end in another order."""
    return run.end or run.time


def read_memory(name: str, token: int) -> "bytes | None":
    """Return the output that a reader has so far; None without one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid() or not is_holder(int(pid)):
                continue
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if os.readlink(entry.path).endswith(" (deleted)"):
                    memory = read_whole(os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK))
                    if (token, name) in read_names(memory):
                        return join(memory)
        except (OSError, ValueError):
            continue  # it has ended, or is another holder
    return None


def read_whole(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read() if is_regular(os.fstat(fd).st_mode) else b""
