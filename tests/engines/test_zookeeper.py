"""ZooKeeper alone: split ensembles, sessions that move, lost answers, paths, passwords."""

import os
import signal
import socket
import threading

import pytest
from conftest import PATIENCE, finish, until
from fleet import LOST, Host, find_overlaps, is_growing, read_life
from proxy import NO_ANSWERS, OK, Proxy
from servers import ZooKeeper, ZooKeeperCluster, serve, serve_alone
from test_engines import Fleet

pytest.importorskip("kazoo")

from solo.engines.engine import EntryRecord, Gone
from solo.engines.queue import Wait
from solo.engines.targets import parse_url
from solo.engines.zookeeper.engine import ZooKeeper as Engine
from solo.errors import SoloError, Unreachable
from solo.modes import EXCLUSIVE, Claim

pytestmark = pytest.mark.full

server, start_server = serve(ZooKeeper), serve_alone()

LONG_LEASE = (
    "--ttl",
    "30s",
    "-k",
    "300ms",
)  # an election on a busy machine can take more than 10 s


@pytest.fixture
def cluster(request, tmp_path):
    cluster = ZooKeeperCluster(tmp_path / "ensemble", getattr(request, "param", None))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def fleet(lab, server):
    return Fleet(lab, server)


@pytest.mark.parametrize(
    "cluster, alone, mode", [(0, 0, b"follower"), (2, 2, b"leader")], indirect=["cluster"]
)
def test_cut_off_server_never_lets_commands_overlap(lab, cluster, alone, mode):
    """A follower without its leader and a leader without its followers answer reads until they
    detect it.
    """
    hosts = [Host(lab, cluster.members[member], host) for member, host in ((alone, "a"), (1, "b"))]
    files = [lab.path / f"life-{host.name}" for host in hosts]
    hosts[0].start("job", files[0], 1000, "--ttl", "3s", "-k", "300ms")
    until(lambda: read_life(files[0]) is not None)
    hosts[1].start("job", files[1], 1000, "--ttl", "3s", "-k", "300ms")
    until(lambda: Fleet(lab, cluster.members[1]).count("job", "waiting") == 1)

    cluster.cut(alone)
    until(lambda: read_life(files[1]) is not None)

    assert b"Mode: " + mode in cluster.members[alone].ask(
        b"srvr"
    )  # it still shows the lock as held
    assert hosts[0].launcher.wait(PATIENCE) in LOST
    lives = [read_life(file) for file in files]
    assert not find_overlaps(lives) and is_growing(lives)
    for host in hosts:
        host.close()


def test_lock_survives_the_loss_of_the_leader(lab, cluster):
    fleet = Fleet(lab, cluster)
    fleet.url = cluster.members[0].make_url(
        cluster.members[2].port, cluster.members[1].port, cluster.members[0].port
    )
    holder = fleet.hold("a", fleet.job, *LONG_LEASE)

    cluster.members[2].stop()
    until(lambda: any(member.leads() for member in cluster.members[:2]))
    [leader] = [member for member in cluster.members[:2] if member.leads()]
    before = leader.read_zxid()
    until(lambda: leader.read_zxid() > before)  # a renewal, as there is no other client

    result = fleet.run("b", "-n", fleet.job, "true")
    assert result.returncode == 75 and f"by pid {holder.pid} on".encode() in result.stderr
    assert finish(holder)[0] == 0


def make_engine(server, port=None, ttl=4.0, timeout=PATIENCE):
    return Engine(parse_url(server.make_url(port or server.port)), ttl, timeout)


@pytest.fixture
def engine(server):
    engine = make_engine(server)
    engine.connect()
    yield engine
    engine.release()


RECORD = EntryRecord(Claim(EXCLUSIVE), launcher=1, since=1.0)
NOT_LONG = Wait(None, None)


def test_interrupted_take_leaves_no_entry_in_the_queue(server, engine):
    class Stop(BaseException):
        pass

    def interrupt(*_):
        proxy.set(OK)
        raise Stop

    def wait_and_interrupt():
        until(lambda: len(engine.list_entries("torn")) == 2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    proxy = Proxy(server.port)
    other = make_engine(server, proxy.port)
    other.connect()
    first = engine.join("torn", RECORD)
    proxy.set(NO_ANSWERS)
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    with pytest.raises(Stop):
        other.acquire("torn", RECORD, NOT_LONG)
    thread.join()
    signal.signal(signal.SIGUSR1, before)

    assert [entry.key for entry in engine.list_entries("torn")] == [first]
    other.release()
    proxy.close()


def test_expired_session_is_replaced(server, engine):
    other = make_engine(server, ttl=1.0)
    other.connect()
    old = other.acquire("old", RECORD, NOT_LONG)
    until(lambda: engine.list_entries("old") == [])

    with pytest.raises(Gone):
        other.renew()

    other.release()
    new = other.acquire("old", RECORD, NOT_LONG)
    assert new.key != old.key and new.number > old.number
    other.release()


@pytest.mark.parametrize("asked, granted", [(0.5, 1.0), (4.0, 4.0), (1000.0, 60.0), (3e6, 60.0)])
def test_ttl_is_the_granted_one(server, asked, granted):
    engine = make_engine(server, ttl=asked)
    engine.connect()

    assert engine.ttl == granted
    engine.release()


@pytest.mark.parametrize("ttl", ["2m", "1d"])
def test_command_sees_the_granted_ttl(fleet, ttl):
    assert (
        fleet.run("a", "-n", fleet.job, "--ttl", ttl, "--", "sh", "-c", "echo $SOLO_TTL").stdout
        == b"60\n"
    )


def test_lease_is_lost_at_a_server_that_grants_less(start_server):
    lone = start_server(ZooKeeper)
    engine = make_engine(lone, ttl=50.0)
    engine.connect()
    lone.stop()
    lone.settings = "maxSessionTimeout=2000\n"
    lone.start()

    with pytest.raises(Gone, match="2s"):
        engine.renew()


def test_other_protocol_is_unreachable_in_time(server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        engine = make_engine(server, other.getsockname()[1])
        thread = threading.Thread(
            target=lambda: other.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        )
        thread.start()

        with pytest.raises(Unreachable, match="not ZooKeeper"):
            engine.connect()
        thread.join()


@pytest.mark.parametrize(
    "name", ["a b", "zookeeper", "x%2Fy", "ü/ß/語", os.fsdecode(b"\xff\x80"), "~" + "n" * 254]
)
def test_each_name_has_its_own_queue(fleet, engine, name):
    holder = fleet.hold("a", name)

    [held] = [entry for entry in engine.list_entries() if entry.is_held and entry.name == name]
    assert fleet.run("b", "-n", name, "true").returncode == 75
    assert held.record.launcher == holder.pid and finish(holder)[0] == 0


@pytest.mark.parametrize("path", ["/a//b", "/./a", "/..", "/a%00b", os.fsdecode(b"/\xff")])
def test_invalid_path_is_refused(fleet, server, path):
    fleet.url = server.url + path
    result = fleet.run("a", "-n", fleet.job, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_request_to_end_lasts_as_long_as_the_session_that_made_it(server, engine):
    other = make_engine(server)
    entry = engine.acquire("asked", RECORD, NOT_LONG)
    assert engine.renew() is None

    other.ask_to_end(entry, "pid 7 on db1")
    assert engine.renew() == "pid 7 on db1"
    other.release()

    assert engine.renew() is None


def test_renewals_of_a_running_command_are_marked_and_the_mark_keeps_no_lock(server, engine):
    """Views read the mark. Whoever removes it ends no command; whoever removes the entry does."""
    entry = engine.acquire("marked", RECORD._replace(ttl=engine.ttl), NOT_LONG)
    client, mark = server.open(), engine.make_mark()
    engine.renew()
    assert client.exists(mark) is None  # of a run shorter than a period there is none
    engine.record_child(7)
    engine.renew()
    first = client.exists(mark)
    engine.renew()
    assert client.exists(mark).version > first.version and engine.list_entries("marked")

    client.delete(mark)
    engine.renew()
    assert engine.read_renewal(engine.list_entries("marked")[0]).left > 0
    client.delete(entry.key)
    with pytest.raises(Gone):
        engine.renew()
    client.stop()


def test_servers_that_demand_a_log_in_say_so_in_words(start_server):
    server = start_server(
        ZooKeeper, settings="enforce.auth.enabled=true\nenforce.auth.schemes=digest\n"
    )
    target = parse_url(server.url)

    with pytest.raises(
        SoloError,
        match=r"the servers demand a log-in \(name a user and a password in a \[via.NAME\]",
    ):
        Engine(target, 4.0, PATIENCE).acquire("job", RECORD, NOT_LONG)

    engine = Engine(target._replace(user="ops", password="s3cret"), 4.0, PATIENCE)
    assert engine.acquire("job", RECORD, NOT_LONG).is_held
    engine.release()


def test_password_protects_entries_and_is_never_shown(server):
    target, known = (
        parse_url(server.url + "/guarded"),
        {"user": "ops", "password": "s3cret:with colon"},
    )
    secrets = (known, known, {}, {**known, "password": "wrong"})
    engines = [Engine(target._replace(**secret), 4.0, PATIENCE) for secret in secrets]
    entry = engines[0].acquire("job", RECORD, NOT_LONG)

    assert [found.key for found in engines[1].list_entries()] == [entry.key]
    for stranger in engines[2:]:
        words = (
            "for the user ops" if stranger.session.target.user else r"without a user \(name a user"
        )
        with pytest.raises(SoloError, match=f"NoAuth: no rights there {words}") as error:
            stranger.list_entries()
        assert "s3cret" not in str(error.value) and "wrong" not in str(error.value)
    for engine in engines:
        engine.release()
