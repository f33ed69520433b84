"""Threads of one program that contend for a name: what they cost each other."""

import math
import os
import threading

from conftest import PATIENCE

import solo
from solo.api import blocking


def test_threads_that_wait_for_each_other_start_no_more_threads(lab, monkeypatch):
    """A thread for each wait made a handoff within a program several times as slow as between two."""
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))
    monkeypatch.delenv("SOLO_VIA", raising=False)
    lock, counts, waiting = solo.Lock("job", wait=math.inf), [], threading.Barrier(9)

    def work():
        waiting.wait(PATIENCE)
        for _ in range(5):
            with lock:
                counts.append(threading.active_count())

    threads = [threading.Thread(target=work) for _ in range(8)]
    before = threading.active_count()
    with solo.Lock("job"):
        for thread in threads:
            thread.start()
        waiting.wait(PATIENCE)
        while sum(watch.waiters != [] for watch in list(blocking.watched.values())) < 8:
            pass
    for thread in threads:
        thread.join(PATIENCE)

    assert len(counts) == 40 and max(counts) <= before + 8
    assert blocking.watched == {} and blocking.own_files == {}


def test_a_ticket_that_the_program_closed_is_not_its_own(lab, monkeypatch):
    """Its inode may be the ticket of another process by now."""
    monkeypatch.setenv("SOLO_DIR", str(lab.directory))
    monkeypatch.delenv("SOLO_VIA", raising=False)
    hold = solo.Lock("job").acquire()
    fd = hold._tickets[0].fd
    stat = os.fstat(fd)

    assert blocking.is_own(stat)
    copy = os.dup(fd)
    os.close(fd)
    assert not blocking.is_own(stat)
    os.dup2(copy, fd)
    os.close(copy)
    hold.release()
    assert not blocking.is_own(stat)
