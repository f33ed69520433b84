"""What ZooKeeper and kazoo have of their own: ensembles that come apart, sessions that move, answers that are lost, paths."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import PATIENCE, TESTS, finish, until
from proxy import NO_ANSWERS, OK, RESET, Proxy
from servers import ZooKeeper, ZooKeeperCluster, find_port
from test_engines import Fleet

pytest.importorskip("kazoo")

from solo.engines.engine import Gone, Note  # noqa: E402
from solo.engines.queue import Wait  # noqa: E402
from solo.engines.targets import parse_url  # noqa: E402
from solo.engines.zookeeper.engine import ZooKeeper as Engine  # noqa: E402
from solo.errors import SoloError, Unreachable  # noqa: E402
from solo.modes import EXCLUSIVE, Claim  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture
def cluster(request, tmp_path):
    cluster = ZooKeeperCluster(tmp_path / "ensemble", getattr(request, "param", None))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def lone(tmp_path):
    """A server to be set up, and started."""
    lone = ZooKeeper(tmp_path / "zookeeper")
    yield lone
    lone.stop()


@pytest.fixture
def fleet(lab, server):
    return Fleet(lab, server)


def start_beats(fleet, url, host, *words):
    """A command that can not be asked to end and says when it lived: (its launcher, the file it writes to)."""
    fleet.url = url
    file = fleet.lab.path / f"beats-{host}"
    launcher = fleet.start(host, "-n", fleet.job, "--ttl", "3s", "-k", "300ms", *words, "--",
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


def test_a_lock_outlives_the_leader_and_moves_to_another_server(lab, cluster):
    fleet = Fleet(lab, cluster)
    fleet.url = cluster.members[0].make_url(cluster.members[2].port, cluster.members[1].port, cluster.members[0].port)
    holder = fleet.hold("a", fleet.job, "--ttl", "10s", "-k", "300ms")

    cluster.members[2].stop()
    until(lambda: any(member.leads() for member in cluster.members[:2]))
    [leader] = [member for member in cluster.members[:2] if member.leads()]
    before = leader.read_zxid()
    until(lambda: leader.read_zxid() > before)  # a renewal: nobody else is there

    result = fleet.run("b", "-n", fleet.job, "true")
    assert result.returncode == 75 and f"by pid {holder.pid} on".encode() in result.stderr
    assert finish(holder)[0] == 0


def test_a_lock_outlives_a_killed_server_that_is_started_again(fleet, server):
    holder = fleet.hold("a", fleet.job, "--ttl", "10s", "-k", "300ms")

    server.stop()
    server.start()

    assert fleet.run("b", "-n", fleet.job, "true").returncode == 75
    before = server.read_zxid()
    until(lambda: server.read_zxid() > before)
    assert finish(holder)[0] == 0


@pytest.mark.parametrize("fault", [NO_ANSWERS, RESET])
def test_no_two_run_when_the_holder_s_link_fails(fleet, server, fault):
    proxy = Proxy(server.port)
    try:
        holder, first = start_beats(fleet, server.make_url(proxy.port), "a")
        until(lambda: has_begun(first))
        waiting, second = start_beats(fleet, server.url, "b", "-w", "1h")
        until(lambda: fleet.count(fleet.job, "waiting") == 1)

        proxy.set(fault)
        assert holder.wait(PATIENCE) == 123
        until(lambda: has_begun(second))

        assert read_beats(first)[2] < read_beats(second)[1]
    finally:
        proxy.close()


def test_a_stopped_server_ends_the_command_and_forgets_nobody_in_line(fleet, server):
    holder, first = start_beats(fleet, server.url, "a")
    until(lambda: has_begun(first))
    waiting, second = start_beats(fleet, server.url, "b", "-w", "1h")
    until(lambda: fleet.count(fleet.job, "waiting") == 1)

    server.send(signal.SIGSTOP)
    assert holder.wait(PATIENCE) == 123
    server.send(signal.SIGCONT)
    until(lambda: has_begun(second))

    assert read_beats(first)[2] < read_beats(second)[1]


# --- the engine by itself -----------------------------------------------------------------------------------------------------


def make_engine(server, port=None, ttl=4.0, timeout=PATIENCE):
    return Engine(parse_url(server.make_url(port or server.port)), ttl, timeout)


@pytest.fixture
def engine(server):
    engine = make_engine(server)
    engine.connect()
    yield engine
    engine.release()


NOTE = Note(Claim(EXCLUSIVE), launcher=1, since=1.0)
NOT_LONG = Wait(None, None)


def test_an_entry_whose_answer_was_lost_is_made_once(server, engine):
    proxy = Proxy(server.port)
    other = make_engine(server, proxy.port, timeout=1.0)
    other.connect()
    first = engine.join("lost", NOTE)
    proxy.set(NO_ANSWERS)
    with pytest.raises(Unreachable):
        other.join("lost", NOTE)
    assert len(engine.list_entries("lost")) == 2

    proxy.set(OK)
    second = other.join("lost", NOTE)

    assert [entry.key for entry in engine.list_entries("lost")] == [first, second]
    other.leave("lost")
    assert [entry.key for entry in engine.list_entries("lost")] == [first]
    other.release()
    proxy.close()


def test_who_is_interrupted_in_a_call_can_still_leave(server, engine):
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
    first = engine.join("torn", NOTE)
    proxy.set(NO_ANSWERS)
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    with pytest.raises(Stop):
        other.take("torn", NOTE, NOT_LONG)
    thread.join()
    signal.signal(signal.SIGUSR1, before)

    assert [entry.key for entry in engine.list_entries("torn")] == [first]
    other.release()
    proxy.close()


def test_an_expired_session_is_gone_and_the_next_is_another(server, engine):
    other = make_engine(server, ttl=1.0)
    other.connect()
    old = other.take("old", NOTE, NOT_LONG)
    until(lambda: engine.list_entries("old") == [])

    with pytest.raises(Gone):
        other.renew()

    other.release()
    new = other.take("old", NOTE, NOT_LONG)
    assert new.key != old.key and new.number > old.number
    other.release()


@pytest.mark.parametrize("asked, granted", [(0.5, 1.0), (4.0, 4.0), (1000.0, 60.0), (3e6, 60.0)])
def test_the_ttl_is_what_the_server_grants(server, asked, granted):
    engine = make_engine(server, ttl=asked)
    engine.connect()

    assert engine.ttl == granted
    engine.release()


@pytest.mark.parametrize("ttl", ["2m", "1d"])
def test_where_the_server_grants_less_all_goes_by_that(fleet, ttl):
    assert fleet.run("a", "-n", fleet.job, "--ttl", ttl, "--", "sh", "-c", "echo $SOLO_TTL").stdout == b"60\n"


def test_a_server_where_the_session_would_live_shorter_ends_it(lone):
    engine = make_engine(lone.start(), ttl=50.0)
    engine.connect()
    lone.stop()
    lone.settings = "maxSessionTimeout=2000\n"
    lone.start()

    with pytest.raises(Gone, match="2s"):
        engine.renew()


def test_what_is_no_zookeeper_is_out_of_reach_within_the_timeout(server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        engine = make_engine(server, other.getsockname()[1])
        thread = threading.Thread(target=lambda: other.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        thread.start()

        with pytest.raises(Unreachable, match="not ZooKeeper"):
            engine.connect()
        thread.join()


@pytest.mark.parametrize("name", ["a b", "zookeeper", "x%2Fy", "new\nline", "ü/ß/語", os.fsdecode(b"\xff\x80"), "~" + "n" * 254])
def test_any_name_is_a_line_of_its_own(fleet, engine, name):
    holder = fleet.hold("a", name)

    [held] = [entry for entry in engine.list_entries() if entry.is_held and entry.name == name]
    assert fleet.run("b", "-n", name, "true").returncode == 75
    assert held.record.launcher == holder.pid and finish(holder)[0] == 0


@pytest.mark.parametrize("path", ["/a//b", "/./a", "/..", "/a%00b", os.fsdecode(b"/\xff")])
def test_a_path_that_zookeeper_can_not_have_is_refused(fleet, server, path):
    fleet.url = server.url + path
    result = fleet.run("a", "-n", fleet.job, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_who_is_asked_to_end_hears_of_it_until_the_asker_goes(server, engine):
    other = make_engine(server)
    entry = engine.take("asked", NOTE, NOT_LONG)
    assert engine.renew() is None

    other.ask_to_end(entry, "pid 7 on db1")
    assert engine.renew() == "pid 7 on db1"
    other.release()

    assert engine.renew() is None


def test_a_password_keeps_others_out_and_is_not_shown(server):
    target, known = parse_url(server.url + "/guarded"), {"user": "ops", "password": "s3cret:with colon"}
    secrets = (known, known, {}, {**known, "password": "wrong"})
    engines = [Engine(target._replace(**secret), 4.0, PATIENCE) for secret in secrets]
    entry = engines[0].take("job", NOTE, NOT_LONG)

    assert [found.key for found in engines[1].list_entries()] == [entry.key]
    for stranger in engines[2:]:
        with pytest.raises(SoloError, match="NoAuth") as error:
            stranger.list_entries()
        assert "s3cret" not in str(error.value) and "wrong" not in str(error.value)
    for engine in engines:
        engine.release()


@pytest.mark.tool("openssl")
def test_both_sides_show_certificates(lone, tmp_path):
    signer = []
    for who in ("ca", "server", "client"):
        known = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=keyCertSign,digitalSignature",
                 "-addext", "authorityKeyIdentifier=keyid"]
        files = ["-keyout", tmp_path / f"{who}.key", "-out", tmp_path / f"{who}.crt"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={who}", *known, *files, *signer],
                       check=True, capture_output=True)
        signer = ["-CA", tmp_path / "ca.crt", "-CAkey", tmp_path / "ca.key"]
    (tmp_path / "server.pem").write_text((tmp_path / "server.key").read_text() + (tmp_path / "server.crt").read_text())
    port = find_port()
    lone.jars += ":/usr/share/java/netty-codec.jar"  # Debian's manifest has forgotten it
    lone.settings = (
        f"secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={tmp_path}/server.pem\nssl.trustStore.location={tmp_path}/ca.crt\nssl.trustStore.type=PEM\n"
    )
    lone.start()
    target = parse_url(f"zookeepers://127.0.0.1:{port}")
    known = {"cafile": str(tmp_path / "ca.crt"), "certfile": str(tmp_path / "client.crt"), "keyfile": str(tmp_path / "client.key")}

    engine = Engine(target._replace(**known), 10.0, PATIENCE)
    entry = engine.take("job", NOTE, NOT_LONG)
    assert [found.key for found in engine.list_entries()] == [entry.key] and engine.examine()[0][1].startswith("ZooKeeper 3")
    engine.release()
    for stranger in (target, target._replace(cafile=known["cafile"])):
        with pytest.raises(SoloError, match="certificate"):
            Engine(stranger, 10.0, PATIENCE).connect()
