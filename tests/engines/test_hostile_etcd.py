"""A hostile proxy in front of a real etcd answers slowly, wrongly or not at all: solo neither hangs
nor reports a bug.
"""

import base64
import http.client
import json
import os
import pty
import signal
import socket
import threading
import time

import pytest
from conftest import PATIENCE, TESTS, configured, finish, until
from fleet import read_life
from servers import Etcd, serve
from stub import Handler, Stub

pytestmark = pytest.mark.full

BEATS = ["python3", "-IS", str(TESTS / "beats.py")]
TRICKLE = object()  # an endless answer, byte by byte
LOST = object()  # the first request is executed but not answered


server = serve(Etcd)


class HostileProxy(Stub):
    """Forwards all requests except those for paths in `answers`, which get these bytes and the
    status `status`.
    """

    def __init__(self, target: int):
        self.target, self.answers, self.status = target, {}, 200
        super().__init__()

    @property
    def paths(self) -> list:
        return [path for _, path, _ in self.asked]

    def answer(self, request, data):
        answer = self.answers.get(request.path)
        if answer is TRICKLE:
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                request.wfile.write(b" ")
                time.sleep(0.2)
        if answer not in (None, LOST):
            return self.status, answer
        there = http.client.HTTPConnection("127.0.0.1", self.target)
        there.request("POST", request.path, data)
        lost, answer = self.answers.pop(request.path, None), there.getresponse()
        if lost is LOST:
            return None
        request.send_response(answer.status)
        request.send_header("Connection", "close")
        request.end_headers()
        while piece := answer.read1(65536):
            request.wfile.write(piece)
            request.wfile.flush()
        return None


@pytest.fixture
def proxy(server, lab):
    proxy = HostileProxy(server.port)
    lab.environment["SOLO_VIA"] = f"etcd://127.0.0.1:{proxy.port}"
    yield proxy
    proxy.close()


def test_wait_works_through_a_proxy_that_closes_after_each_answer(lab, proxy, server):
    holder = lab.hold("proxied")
    waiting = lab.start("-n", "proxied", "-w", "1m", "--dir", lab.path / "b", "echo", "mine")
    until(lambda: "/v3/watch" in proxy.paths)
    finish(holder)

    assert finish(waiting)[:2] == (0, "mine\n")


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"null", b"7", b"<html>no</html>", b"[" * 100_000, b"\xff", b'{"result": []}', b"{}"],
)
@pytest.mark.parametrize("path", ["/v3/lease/grant", "/v3/kv/range", "/v3/kv/txn"])
def test_invalid_answer_fails_in_one_line_without_a_run(lab, proxy, path, answer):
    proxy.answers[path] = answer

    result = lab.run(
        "-n", "job", "--ttl", "3s", "--", "sh", "-c", "echo ran >>$LAB/log", timeout=30
    )

    assert (
        result.returncode in (0, 69, 125)
        and b"bug" not in result.stderr
        and result.stderr.count(b"\n") <= 1
    )
    assert result.returncode == 0 or lab.read_log() == []


@pytest.mark.parametrize(
    "status, body, words",
    [
        (403, b"<html>\n<b>no\x1b[31m</b>\n" + b"x" * 5000, b"HTTP 403: <html> <b>no"),
        (401, b"", b"HTTP 401\n"),
        (404, b"404 page not found", b"HTTP 404: no JSON gateway there"),
        (415, b"invalid gRPC request content-type", b"HTTP 415: no JSON gateway there"),
    ],
)
def test_refusal_without_json_is_printed_in_one_line(lab, proxy, status, body, words):
    proxy.answers["/v3/lease/grant"], proxy.status = body, status

    result = lab.run("-n", "job", "-w", "1h", "true", timeout=30)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1) and words in result.stderr
    assert (b"gateway" in result.stderr) == (status in (404, 415)) and b"\x1b" not in result.stderr
    assert len(result.stderr) < 600


@pytest.mark.parametrize(
    "date", ["x", "", "Mon, 32 Nov 2026 05:47:03 GMT", "Tue Nov 24 10:00:00 2026"]
)
def test_date_that_cannot_be_parsed_is_ignored(lab, proxy, monkeypatch, date):
    monkeypatch.setattr(Handler, "date_time_string", lambda _: date)

    result = lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log")

    assert (result.returncode, result.stderr, lab.read_log()) == (0, b"", ["ran"])


@pytest.mark.parametrize("path", ["/v3/kv/txn", "/v3/lease/keepalive"])
def test_not_found_for_every_request_leaves_no_lease(lab, proxy, server, path):
    proxy.answers[path], proxy.status = (
        b'{"error": "Not Found", "code": 5, "message": "Not Found"}',
        404,
    )

    result = lab.run("-n", "missing", "true", timeout=30)

    assert result.returncode in (69, 125) and b"bug" not in result.stderr
    until(lambda: "found 0 leases" in server.ask("lease", "list"), patience=30)


@pytest.mark.parametrize("answer", [b"[]", TRICKLE], ids=["invalid", "trickle"])
def test_failed_release_keeps_the_commands_status(lab, proxy, answer):
    proxy.answers["/v3/lease/revoke"] = answer

    result = lab.run(
        "-n", f"released{answer!r:.3}", "--ttl", "5s", "--", "sh", "-c", "exit 3", timeout=30
    )

    assert result.returncode == 3


def test_trickling_answer_times_out(lab, proxy):
    proxy.answers["/v3/lease/grant"] = TRICKLE

    result = lab.run("-n", "job", "--ttl", "5s", "true", timeout=30)
    assert (result.returncode, result.stderr.count(b"\n")) == (69, 1)


def test_loss_during_the_grace_kills_the_command_at_once(lab, proxy, server):
    """SIGTERM was due to an outage; then the engine reports that the name is lost."""
    file = lab.path / "beats"
    holder = lab.start("-n", "graced", "--ttl", "25s", "-k", "10s", "--", *BEATS, file, "100")
    until(lambda: read_life(file) is not None)
    proxy.answers["/v3/lease/keepalive"] = b"[]"
    assert b"ending pid" in holder.stderr.readline()
    server.remove_lock("graced")
    del proxy.answers["/v3/lease/keepalive"]
    gone = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert holder.wait(PATIENCE) == 123
    assert read_life(file).last < gone + 5  # the grace was 10 s


def test_waiter_with_progress_keeps_its_place(lab, proxy, server):
    holder = lab.hold("shown")
    screen, terminal = pty.openpty()
    options = ("-n", "shown", "--ttl", "3s", "-w", "1m", "--dir", lab.path / "b")
    waiting = lab.start(*options, "sh", "-c", "echo $SOLO_VIA_KEY", stderr=terminal)
    os.close(terminal)
    threading.Thread(target=drain, args=(screen,), daemon=True).start()
    list_keys = ("get", "--prefix", "solo/shown/", "--keys-only", "--sort-by=CREATE")
    until(lambda: len(server.ask(*list_keys).split()) == 2)
    keys = server.ask(*list_keys).split()
    seen = len(proxy.paths)
    # Its own renewals and the holder's, for more than a ttl.
    until(lambda: proxy.paths[seen:].count("/v3/lease/keepalive") >= 14)

    finish(holder)
    assert waiting.communicate(timeout=PATIENCE)[0].decode().split() == [keys[1]]


def drain(fd):
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        os.close(fd)


@pytest.mark.parametrize(
    "path", ["/v3/lease/grant", "/v3/kv/txn", "/v3/kv/range", "/v3/lease/keepalive"]
)
def test_request_without_an_answer_is_repeated(lab, proxy, path):
    proxy.answers[path] = LOST

    assert (
        lab.run(
            "-n", f"lost{path.count('k')}", "-w", "1m", "--ttl", "5s", "--", "echo", "ran"
        ).stdout
        == b"ran\n"
    )
    assert path not in proxy.answers


def test_signal_ends_a_contender_that_releases_its_entry(lab, proxy, server):
    holder = lab.hold("given")
    proxy.answers["/v3/lease/revoke"] = TRICKLE
    contender = lab.start("-n", "given", "--dir", lab.path / "b", "true")
    until(lambda: "/v3/lease/revoke" in proxy.paths)

    contender.send_signal(signal.SIGTERM)

    assert contender.wait(PATIENCE) == -signal.SIGTERM
    assert b"Traceback" not in contender.stderr.read()
    del proxy.answers["/v3/lease/revoke"]
    finish(holder)


def test_signal_during_a_grant_leaves_no_lease(lab, proxy, server):
    proxy.answers["/v3/lease/grant"] = TRICKLE
    waiting = lab.start("-n", "interrupted", "--ttl", "300s", "-w", "1m", "true")
    until(lambda: "/v3/lease/grant" in proxy.paths)

    waiting.send_signal(signal.SIGUSR1)

    assert waiting.wait(PATIENCE) == -signal.SIGUSR1
    assert "/v3/lease/revoke" in proxy.paths


def test_invalid_foreign_entry_is_shown_safely(lab, server):
    lab.environment["SOLO_VIA"] = server.url
    good = {
        "solo": 1,
        "mode": "X",
        "slots": 1,
        "take": 1,
        "slot": [],
        "user": "u",
        "launcher": 7,
        "child": None,
    }
    good |= {"host": "h\x1b[31m", "since": 1.0, "command": ["a\x1b]0;b\x07"]}
    wrong = (
        {"since": "NaN"},
        {"since": -1e300},
        {"since": 1e300},
        {"launcher": 10**400},
        {"slot": [[0, 10**400]]},
    )
    for changed in (
        *wrong,
        {},
        {"mode": "C", "slots": 10**30, "slot": []},
        {"command": "x"},
        {"host": None},
    ):
        record = json.dumps({**good, **changed}).replace('"NaN"', "NaN").encode()
        body = {
            "key": base64.b64encode(b"solo/neighbour/1").decode(),
            "value": base64.b64encode(record).decode(),
        }
        there = http.client.HTTPConnection("127.0.0.1", server.port)
        there.request("POST", "/v3/kv/put", json.dumps(body))
        there.getresponse().read()
        runs = (
            "-n neighbour true",
            "-n neighbour --slots 3 true",
            "list",
            "list --json",
            "show neighbour",
            "metrics",
        )
        for words in runs:
            result = lab.run(*words.split(), timeout=30)
            assert result.returncode in (0, 75) and b"bug" not in result.stderr, words
            assert b"\x1b" not in result.stdout + result.stderr, words
    server.ask("del", "--prefix", "solo/neighbour/")


def test_long_command_is_cut(lab, server):
    lab.environment["SOLO_VIA"] = server.url
    words = [str(number) * 10 for number in range(20000)]

    assert lab.run("-n", "long", "--ttl", "3s", "true", *words, timeout=30).returncode == 0
    assert lab.run("-n", "long", "--ttl", "3s", "true", "😀" * 5000, timeout=30).returncode == 0


def test_silent_host_leaves_time_for_the_other(lab, server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lab.environment["SOLO_VIA"] = (
            f"etcd://127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.port}"
        )

        assert lab.run("-n", "job", "true").returncode == 0


@pytest.mark.root
def test_fifo_as_configuration_is_an_error(lab):
    os.mkfifo(lab.path / "fifo", 0o600)
    result = lab.run(
        "-n", "job", "--via", "prod", "true", prefix=configured(lab.path / "fifo"), timeout=30
    )

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
