"""Between solo and a real etcd somebody who answers slowly, wrongly or not at all: nothing hangs, nothing of it is taken for a bug."""

import base64
import http.client
import json
import os
import pty
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import PATIENCE, configured, finish, until
from fleet import read_life
from servers import Etcd

BEATS = ["python3", "-IS", os.path.join(os.path.dirname(__file__), "beats.py")]
TRICKLE = object()  # an answer that comes byte by byte, and has no end
LOST = object()  # the first one is done and not answered


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


class Between(ThreadingHTTPServer):
    """Passes all on, but for the paths in `answers`: those get the bytes there as their answer, with status `status`."""

    daemon_threads = True

    def __init__(self, target: int):
        self.target = target
        self.answers = {}
        self.status = 200
        self.asked = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # who asked has gone


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path)
        if answer is TRICKLE:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                self.wfile.write(b" ")
                time.sleep(0.2)
        if answer not in (None, LOST):
            self.send_response(self.server.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        there = http.client.HTTPConnection("127.0.0.1", self.server.target)
        there.request("POST", self.path, body)
        lost, answer = self.server.answers.pop(self.path, None), there.getresponse()
        if lost is LOST:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def between(server, lab):
    between = Between(server.port)
    lab.environment["SOLO_VIA"] = f"etcd://127.0.0.1:{between.server_address[1]}"
    yield between
    between.shutdown()
    between.server_close()


def test_a_wait_through_a_proxy_that_closes_after_each_answer_works(lab, between, server):
    holder = lab.hold("proxied")
    waiting = lab.start("-n", "proxied", "-w", "1m", "--dir", lab.path / "b", "echo", "mine")
    until(lambda: "/v3/watch" in between.asked)
    finish(holder)

    assert finish(waiting)[:2] == (0, "mine\n")


@pytest.mark.parametrize("answer", [b"[]", b"null", b"7", b"<html>no</html>", b"[" * 100_000, b"\xff", b'{"result": []}', b"{}"])
@pytest.mark.parametrize("path", ["/v3/maintenance/status", "/v3/lease/grant", "/v3/kv/range", "/v3/kv/txn"])
def test_an_answer_that_makes_no_sense_is_none(lab, between, path, answer):
    between.answers[path] = answer

    result = lab.run("-n", "job", "--ttl", "3s", "--", "sh", "-c", "echo ran >>$LAB/log", timeout=30)

    assert result.returncode in (0, 69, 125) and b"bug" not in result.stderr and result.stderr.count(b"\n") <= 1
    assert result.returncode == 0 or lab.read_log() == []


@pytest.mark.parametrize("path", ["/v3/kv/txn", "/v3/lease/keepalive"])
def test_not_found_for_all_is_no_endless_loop(lab, between, server, path):
    between.answers[path], between.status = b'{"error": "Not Found", "code": 5, "message": "Not Found"}', 404

    result = lab.run("-n", "missing", "true", timeout=30)

    assert result.returncode in (69, 125) and b"bug" not in result.stderr
    until(lambda: "found 0 leases" in server.ask("lease", "list"), patience=30)


def test_one_strange_answer_to_a_renewal_does_no_harm(lab, between):
    holder = lab.hold("strange", "--ttl", "3s")
    between.answers["/v3/lease/keepalive"] = b"[]"
    seen = len(between.asked)
    until(lambda: between.asked[seen:].count("/v3/lease/keepalive") >= 2)
    del between.answers["/v3/lease/keepalive"]
    seen = len(between.asked)
    until(lambda: between.asked[seen:].count("/v3/lease/keepalive") >= 6)

    assert finish(holder)[0] == 0


@pytest.mark.parametrize("answer", [b"[]", TRICKLE], ids=["nonsense", "trickle"])
def test_the_status_is_the_command_s_whatever_is_answered_to_the_release(lab, between, answer):
    between.answers["/v3/lease/revoke"] = answer

    assert lab.run("-n", f"released{answer!r:.3}", "--ttl", "5s", "--", "sh", "-c", "exit 3", timeout=30).returncode == 3


def test_a_trickle_is_no_answer(lab, between):
    between.answers["/v3/maintenance/status"] = TRICKLE

    result = lab.run("-n", "job", "--ttl", "5s", "true", timeout=30)
    assert (result.returncode, result.stderr.count(b"\n")) == (69, 1)


def test_a_loss_in_the_grace_ends_the_command_at_once(lab, between, server):
    """SIGTERM was for an outage; then the engine says that the name is gone."""
    file = lab.path / "beats"
    holder = lab.start("-n", "graced", "--ttl", "25s", "-k", "10s", "--", *BEATS, file, "100")
    until(lambda: read_life(file) is not None)
    between.answers["/v3/lease/keepalive"] = b"[]"
    assert b"ending pid" in holder.stderr.readline()
    server.forget("graced")
    del between.answers["/v3/lease/keepalive"]
    gone = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert holder.wait(PATIENCE) == 123
    assert read_life(file).last < gone + 5  # of a grace of ten


def test_one_who_is_shown_its_wait_keeps_its_place_and_sees_the_end_of_it(lab, between, server):
    holder = lab.hold("shown")
    ours, theirs = pty.openpty()
    waiting = lab.start("-n", "shown", "--ttl", "3s", "-w", "1m", "--dir", lab.path / "b", "sh", "-c", "echo $SOLO_VIA_KEY", stderr=theirs)
    os.close(theirs)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    list_keys = ("get", "--prefix", "solo/shown/", "--keys-only", "--sort-by=CREATE")
    until(lambda: len(server.ask(*list_keys).split()) == 2)
    keys = server.ask(*list_keys).split()
    seen = len(between.asked)
    until(lambda: between.asked[seen:].count("/v3/lease/keepalive") >= 14)  # its own and the holder's, over more than a ttl

    finish(holder)
    assert waiting.communicate(timeout=PATIENCE)[0].decode().split() == [keys[1]]


def drain(fd):
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        os.close(fd)


@pytest.mark.parametrize("path", ["/v3/lease/grant", "/v3/kv/txn", "/v3/kv/range", "/v3/lease/keepalive"])
def test_an_answer_that_is_lost_is_asked_for_again(lab, between, path):
    between.answers[path] = LOST

    assert lab.run("-n", f"lost{path.count('k')}", "-w", "1m", "--ttl", "5s", "--", "echo", "ran").stdout == b"ran\n"
    assert path not in between.answers


def test_a_signal_while_an_entry_is_given_back_ends_it_as_ever(lab, between, server):
    holder = lab.hold("given")
    between.answers["/v3/lease/revoke"] = TRICKLE
    contender = lab.start("-n", "given", "--dir", lab.path / "b", "true")
    until(lambda: "/v3/lease/revoke" in between.asked)

    contender.send_signal(signal.SIGTERM)

    assert contender.wait(PATIENCE) == -signal.SIGTERM
    assert b"Traceback" not in contender.stderr.read()
    del between.answers["/v3/lease/revoke"]
    finish(holder)


def test_a_signal_between_the_request_and_the_answer_of_a_lease_leaves_none(lab, between, server):
    between.answers["/v3/lease/grant"] = TRICKLE
    waiting = lab.start("-n", "interrupted", "--ttl", "300s", "-w", "1m", "true")
    until(lambda: "/v3/lease/grant" in between.asked)

    waiting.send_signal(signal.SIGUSR1)

    assert waiting.wait(PATIENCE) == -signal.SIGUSR1
    assert "/v3/lease/revoke" in between.asked


def test_what_a_neighbour_writes_is_told_and_harms_nobody(lab, server):
    lab.environment["SOLO_VIA"] = server.url
    good = {"solo": 1, "mode": "X", "slots": 1, "take": 1, "slot": [], "host": "h\x1b[31m", "user": "u", "launcher": 7, "child": None,
            "since": 1.0, "command": ["a\x1b]0;b\x07"]}
    for changed in ({}, {"since": "NaN"}, {"since": -1e300}, {"since": 1e300}, {"launcher": 10 ** 400}, {"slot": [[0, 10 ** 400]]},
                    {"mode": "C", "slots": 10 ** 30, "slot": []}, {"command": "x"}, {"host": None}):
        note = json.dumps({**good, **changed}).replace('"NaN"', "NaN").encode()
        body = {"key": base64.b64encode(b"solo/neighbour/1").decode(), "value": base64.b64encode(note).decode()}
        there = http.client.HTTPConnection("127.0.0.1", server.port)
        there.request("POST", "/v3/kv/put", json.dumps(body))
        there.getresponse().read()
        for words in (("-n", "neighbour", "true"), ("-n", "neighbour", "--slots", "3", "true"), ("list",), ("list", "--json"),
                      ("show", "neighbour"), ("metrics",)):
            result = lab.run(*words, timeout=30)
            assert result.returncode in (0, 75) and b"bug" not in result.stderr and b"\x1b" not in result.stdout + result.stderr, words
    server.ask("del", "--prefix", "solo/neighbour/")


def test_a_long_command_is_told_in_short(lab, server):
    lab.environment["SOLO_VIA"] = server.url
    words = [str(number) * 10 for number in range(20000)]

    assert lab.run("-n", "long", "--ttl", "3s", "true", *words, timeout=30).returncode == 0
    assert lab.run("-n", "long", "--ttl", "3s", "true", "😀" * 5000, timeout=30).returncode == 0


def test_of_two_hosts_the_silent_one_leaves_time_for_the_other(lab, server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lab.environment["SOLO_VIA"] = f"etcd://127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.port}"

        assert lab.run("-n", "job", "true").returncode == 0


def test_a_fifo_in_the_configuration_s_place_is_an_error(lab):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.mkfifo(lab.path / "fifo", 0o600)
    result = lab.run("-n", "job", "--via", "prod", "true", prefix=configured(lab.path / "fifo"), timeout=30)

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)
