"""With --wait a launcher asks its engine again: whichever of its messages is lost, the command runs, once."""

import itertools

import pytest
from conftest import PATIENCE
from proxy import ANSWER, HOLE, REQUEST, RESET, Proxy
from servers import SERVERS

AT_ONCE = 8  # launchers
TERMS = ("--ttl", "3s", "-k", "300ms")


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory):
    server = SERVERS[request.param](tmp_path_factory.mktemp(request.param)).start()
    yield server
    server.stop()


class Struck:
    """A launcher on a host of its own, of whose messages one is lost."""

    names = (f"job{number}" for number in itertools.count())

    def __init__(self, lab, server):
        self.lab = lab
        self.server = server
        self.name = next(self.names)
        self.proxy = Proxy(server.port)
        self.url = server.make_url(self.proxy.port)

    def start(self, *words, host="struck"):
        self.launcher = self.start_beside(self.url, host, *words)
        return self

    def start_beside(self, url, host, *words):
        environment = {**self.lab.environment, "SOLO_DIR": str(self.lab.path / f"{self.name}-{host}"), "SOLO_VIA": url}
        return self.lab.start("-n", self.name, *TERMS, *words, env=environment)

    def finish(self):
        """(status, stdout, stderr, whether the message was lost)."""
        try:
            out, err = self.launcher.communicate(timeout=PATIENCE)
        finally:
            self.proxy.close()
        return self.launcher.returncode, out.decode(), err.decode(), self.proxy.has_struck


@pytest.mark.parametrize("kind", [REQUEST, ANSWER])
@pytest.mark.parametrize("fault", [HOLE, RESET])
def test_with_wait_the_command_runs_once_whichever_message_is_lost(lab, server, fault, kind):
    once = ["--once-per", "300d"] if server.has_once else []
    for first in itertools.count(1, AT_ONCE):
        struck = {number: Struck(lab, server) for number in range(first, first + AT_ONCE)}
        for number, one in struck.items():
            one.proxy.strike(fault, kind, number)
            one.start("--wait", "1m", *once, "--", "echo", "ran")

        results = {number: one.finish() for number, one in struck.items()}
        assert all((status, out) == (0, "ran\n") for status, out, _, _ in results.values()), results
        if not all(has_struck for _, _, _, has_struck in results.values()):
            break
