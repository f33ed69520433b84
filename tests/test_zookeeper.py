"""What ZooKeeper and kazoo have of their own: ensembles that come apart, sessions that move, answers that are lost, paths."""

import os
import signal
import struct
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, TESTS, finish, read_line, until
from proxy import HOLE, NO_ANSWERS, NO_REQUESTS, OK, RESET, Proxy
from servers import ZooKeeper, ZooKeeperCluster
from test_engines import Fleet

kazoo_version = pytest.importorskip("kazoo.version")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture
def cluster(request, tmp_path):
    cluster = ZooKeeperCluster(tmp_path / "ensemble", getattr(request, "param", None)).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def fleet(lab, server):
    return Fleet(lab, server)


def start_beats(fleet, url, host, *words):
    """A command that can not be asked to end and says when it lived: (its launcher, the file it writes to)."""
    fleet.url = url
    file = fleet.lab.path / f"beats-{host}"
    launcher = fleet.start(host, "-n", fleet.job, "--ttl", "4s", "-k", "300ms", *words, "--",
                           sys.executable, "-IS", TESTS / "beats.py", file, "1000")
    return launcher, file


def read_beats(file: Path) -> tuple:
    """(the token, when it began, when it ended)"""
    data = file.read_bytes()
    return struct.unpack("q", data[:8])[0], *(struct.unpack("d", data[at:at + 8])[0] for at in (8, len(data) // 8 * 8 - 8))


def has_begun(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 16


@pytest.mark.parametrize("cluster, alone, mode", [(0, 0, b"follower"), (2, 2, b"leader")], indirect=["cluster"])
def test_no_two_run_while_one_who_is_cut_off_answers_on(lab, cluster, alone, mode):
    """A follower that has lost its leader, and a leader that has lost its followers, serve what is read until they notice."""
    fleet = Fleet(lab, cluster.members[1])
    holder, first = start_beats(fleet, cluster.members[alone].url, "a")
    until(lambda: has_begun(first))
    waiting, second = start_beats(fleet, cluster.members[1].url, "b", "-w", "1h")
    until(lambda: fleet.count(fleet.job, "waiting") == 1)

    cluster.cut(alone)
    until(lambda: has_begun(second))

    assert b"Mode: " + mode in cluster.members[alone].ask(b"srvr")  # who believes it, holds the lock still
    assert holder.wait(PATIENCE) == 123
    (token, _, end), (later, begin, _) = read_beats(first), read_beats(second)
    assert end < begin and token < later
