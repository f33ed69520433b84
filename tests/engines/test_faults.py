"""The command is dead before anyone else can get its lease, whatever fails: real servers behind
networks that fail.

tests/simulation/leases.py has the rule, in virtual time, and faults in it; here are the clients and
servers, of which it has none.

The soak of all engines at once takes half a minute, and longer in `make torture`. SOLO_SEED=n
repeats its choices.
"""

import signal
import time

import pytest
import tally
from conftest import TESTS, until
from fleet import (
    ALL_STOPPED,
    FAULTS,
    HOLE,
    KILLED,
    LOST,
    STOPPED,
    Host,
    Soak,
    find_overlaps,
    is_growing,
    read_life,
)
from servers import SERVERS, EtcdCluster, serve

pytestmark = [pytest.mark.long, pytest.mark.full]

TTL = 3.0
SOAK = 600 if tally.WHOLE else 30  # seconds


server = serve(SERVERS, scope="function")


@pytest.fixture
def start_pair(lab, server):
    """Return a function: start a holder that beats for long, and a waiter on another host; return
    both and their files.
    """
    started = []

    def start(job="job", ttl=TTL):
        hosts = [Host(lab, server, f"{job}-{number}") for number in range(2)]
        files = [lab.path / f"{job}.{number}" for number in range(2)]
        started.extend(hosts)
        hosts[0].start(job, files[0], 60, "--ttl", f"{ttl}s", "-k", "300ms")
        until(lambda: read_life(files[0]) is not None)
        hosts[1].start(job, files[1], 0.2, "--ttl", f"{ttl}s", "-k", "300ms")
        return hosts, files

    yield start
    for host in started:
        host.close()


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_command_is_dead_before_the_next_starts_after_any_fault(start_pair):
    """All faults at once, each at its own name."""
    scenes = {fault: start_pair(fault.replace(" ", "-")) for fault in FAULTS}

    for fault, (hosts, _) in scenes.items():
        hosts[0].fail(fault)
    time.sleep(2 * TTL)  # all leases are over, even if the server missed the end of a connection
    statuses = {fault: hosts[0].launcher.poll() for fault, (hosts, _) in scenes.items()}
    lives = {fault: read_life(files[0]) for fault, (_, files) in scenes.items()}
    for hosts, _ in scenes.values():
        hosts[0].heal()

    for fault, (hosts, files) in scenes.items():
        assert hosts[1].launcher.wait(60) == 0, (fault, hosts[1].launcher.stderr.read())
        assert read_life(files[0]) == lives[fault], f"{fault}: the command lived on"
        both = [read_life(file) for file in files]
        assert not find_overlaps(both) and is_growing(both), (fault, both)
        killed = fault in (STOPPED, ALL_STOPPED, KILLED)
        assert statuses[fault] in ((-signal.SIGKILL,) if killed else LOST), (fault, statuses)


@pytest.mark.parametrize("server", SERVERS, indirect=True)
def test_stopped_server_ends_the_command_without_overlap(start_pair, server):
    hosts, files = start_pair()

    server.send(signal.SIGSTOP)
    assert hosts[0].launcher.wait(60) in LOST
    server.send(signal.SIGCONT)

    assert hosts[1].launcher.wait(60) == 0, hosts[1].launcher.stderr.read()
    lives = [read_life(file) for file in files]
    assert not find_overlaps(lives) and is_growing(lives)


@pytest.mark.parametrize(
    "server", [name for name, server in SERVERS.items() if server.outlives_restart], indirect=True
)
def test_lock_survives_a_restart_of_the_server(start_pair, server):
    ttl = 10.0
    hosts, files = start_pair(ttl=ttl)

    server.stop(signal.SIGKILL)
    server.start()
    before = read_life(files[0])
    until(lambda: read_life(files[0]).last > before.last + ttl)  # longer than without a server

    assert read_life(files[1]) is None
    hosts[0].launcher.terminate()  # beats.py ignores it
    hosts[0].launcher.kill()
    assert hosts[1].launcher.wait(60) == 0, hosts[1].launcher.stderr.read()
    assert not find_overlaps([read_life(file) for file in files])


def break_layers(lab, deadline: bool):
    """Use a solo without the kernel's timer and, if `deadline`, without the launcher's own
    deadline.
    """
    lab.use_modules()
    script = open(lab.script).read()
    patch = ["from solo.engines import lease", "lease.DeadMan.arm = lambda self, at: None"]
    if deadline:
        patch.append("lease.Lease.find_left = lambda self: 0.0 if self.lost else 1e6")
    start = "    from solo.main import main\n"
    assert start in script
    path = lab.path / "broken"
    path.write_text(script.replace(start, "".join(f"    {line}\n" for line in patch) + start))
    path.chmod(0o755)
    lab.script = str(path)


@pytest.mark.parametrize("server", ["etcd"], indirect=True)
@pytest.mark.parametrize(
    "fault, deadline", [(STOPPED, False), (HOLE, True)], ids=["no timer", "no deadline"]
)
def test_oracle_finds_the_overlap_without_a_layer(lab, server, start_pair, fault, deadline):
    break_layers(lab, deadline)
    hosts, files = start_pair()

    hosts[0].fail(fault)

    assert hosts[1].launcher.wait(60) == 0, hosts[1].launcher.stderr.read()
    hosts[0].heal()
    beats = read_life(files[0]).last
    until(lambda: read_life(files[0]).last > beats or hosts[0].launcher.poll() is not None)
    assert find_overlaps([read_life(file) for file in files])


def test_etcd_cluster_survives_its_leader_but_not_the_quorum(lab, tmp_path):
    cluster = EtcdCluster(tmp_path / "cluster").start()
    try:
        lab.environment["SOLO_VIA"] = cluster.url
        file, beats = lab.path / "beats", ["python3", "-IS", str(TESTS / "beats.py")]
        holder = lab.start("-n", "job", "--ttl", "6s", "-k", "500ms", "--", *beats, file, "60")
        until(lambda: read_life(file) is not None)

        leader = cluster.find_leader()
        leader.stop()
        lost = read_life(file).last
        until(lambda: read_life(file).last > lost + 7)  # an election does not disturb it
        next(member for member in cluster.members if member is not leader).stop()

        assert holder.wait(60) in LOST
        assert lab.run("-n", "job", "--ttl", "3s", "true").returncode == 69
    finally:
        cluster.stop()


def soak_engines(lab, factory, is_over):
    """Let faults hit hosts at every engine that is installed until `is_over(soaks)`; return
    {server: Soak}.
    """
    servers = []
    for name, kind in SERVERS.items():
        try:
            servers.append(kind(factory.mktemp(name)).start())
        except pytest.skip.Exception:
            continue
    soaks = {server: Soak(lab, server, tally.SEED) for server in servers}
    while not is_over(soaks.values()):
        for soak in soaks.values():
            soak.step()
    for server in servers:
        soaks[server].finish()
        server.stop()
    return soaks


def test_soak_of_all_engines_finds_no_overlap(lab, tmp_path_factory):
    begin = time.monotonic()
    end = tally.UNTIL or begin + SOAK
    soaks = soak_engines(lab, tmp_path_factory, lambda soaks: time.monotonic() > end)

    for server, soak in soaks.items():
        lives = soak.read_lives()
        where = f"{type(server).__name__}, SOLO_SEED={tally.SEED}"
        print(f"{where}: {len(lives)} commands, {soak.injected} faults")
        tally.add(
            overlaps=len(find_overlaps(lives)),
            disordered=int(not is_growing(lives)),
            launchers=len(soak.files),
            commands=len(lives),
            engines={type(server).__name__: len(lives)},
        )
        assert not find_overlaps(lives), where
        assert is_growing(lives), where
        # Only one command a minute: after some faults a session outlives its host for a while.
        assert len(lives) > (end - begin) / 60 and soak.injected > (end - begin) / 20, where
