"""Entry records of contenders at an engine, and the answers of etcd, ZooKeeper and Redis."""

import json
import math
import struct
import time
from io import BytesIO
from types import SimpleNamespace

from readers import some
from readers.target import NUMBERS, Wire, attempt, expect, expect_claim, fuzzed, same
from solo.engines import engine, etcd, http, network, resp, targets
from solo.engines.zookeeper.engine import ZooKeeper
from solo.errors import SoloError
from solo.modes import EXCLUSIVE
from solo.record import LATEST

ANSWERED = (SoloError, engine.Gone, *engine.INVALID_ANSWER)
NOTHING = type(None)


def expect_answer(kinds, method, *values):
    """Expect one of these types, or an exception for an invalid answer. Return the result."""
    answer = attempt(method, *values, may=ANSWERED)
    expect(isinstance(answer, (Exception, *kinds)), answer)
    return answer


def expect_entries(one):
    """Expect the entries of a queue, or an exception for an invalid answer."""
    entries = expect_answer((list,), one.read_queue, "job")
    if isinstance(entries, list):
        expect(
            all(entry.name == "job" and isinstance(entry.number, int) for entry in entries), entries
        )


def expect_outcomes(one):
    """Expect the outcomes of a name and the nested ones, or an exception for an invalid answer."""
    outcomes = expect_answer((list,), one.read_outcomes, "job")
    if isinstance(outcomes, list):
        expect(
            all(isinstance(name, str) and isinstance(text, bytes) for name, text in outcomes),
            outcomes,
        )


def expect_last_run(one):
    expect_answer((tuple,), one.read_once, "job")


def expect_one(one, data: bytes, *expectations):
    """Ask the engine for one of these, by the length of the data."""
    expectations[len(data) % len(expectations)](one)


def invent_entry_record(rng, claim=None):
    claim = claim or some.claim(rng)
    slot = [list(pair) for pair in some.slot(rng, claim)]
    launcher, child, since = some.number(rng), rng.choice((None, 5)), float(some.number(rng))
    words, note = (some.text(rng), "-x"), rng.choice(("", "until noon", "été"))
    return engine.EntryRecord(
        claim,
        slot,
        some.text(rng),
        "root",
        launcher,
        child,
        since,
        words,
        note,
        rng.choice((None, 15.0)),
    )


def make_entry_record(rng) -> bytes:
    return invent_entry_record(rng).format()


def list_fields(record) -> tuple:
    return (
        record.claim.mode,
        record.claim.slots,
        record.claim.take,
        [tuple(pair) for pair in record.slot],
        *record[2:],
    )


@fuzzed(8, b'"slot": [[0, 1]]|"mode": "C"|null|Infinity|NaN|[[[[|' + NUMBERS)
def check_entry_record(data: bytes):
    record = engine.parse_entry_record(data)
    expect_claim(record.claim, record.slot)
    if record.launcher is None and not record.command:
        expect(record.claim.mode == EXCLUSIVE or b"null" in data)
    if record.since is not None:
        expect(0 <= record.since < LATEST)
        same(list_fields(engine.parse_entry_record(record.format())), list_fields(record))


def trip_entry_record(rng):
    record = invent_entry_record(rng)
    data = record.format()
    same(list_fields(engine.parse_entry_record(data)), list_fields(record))
    cut = engine.parse_entry_record(data[: rng.randrange(len(data))])
    same(cut, engine.EntryRecord(cut.claim))
    same(cut.claim.mode, EXCLUSIVE)


def open_http(data: bytes, size: int = 1000):
    return http.Connection(network.Timed(Wire(data, size), time.monotonic() + 1000), "h")


def write_http(body: bytes, kind: int, cuts=()) -> bytes:
    """Return an answer with its length, in chunks, or until the end of the connection."""
    if kind == 0:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    if kind == 1:
        return b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n" + body
    chunks = [body[first:last] for first, last in zip([0, *cuts], [*cuts, len(body)])]
    lines = b"".join(b"%x;x=y\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + lines + b"0\r\nX: y\r\n\r\n"


def make_http(rng) -> bytes:
    return write_http(
        make_entry_record(rng) + b"\n", rng.randrange(3), sorted(rng.sample(range(1, 50), 3))
    )


@fuzzed(
    2,
    b"HTTP/1.1 204 |Content-Length: |Transfer-Encoding: chunked|Connection: close|\r\n\r\n|0\r\n|"
    + NUMBERS,
)
def check_http(data: bytes):
    refused = (OSError, ValueError)
    answer = attempt(open_http(data).getresponse, may=refused)
    if isinstance(answer, http.Answer):
        expect(200 <= answer.status <= 999)
        body = attempt(answer.read, 100, may=refused)
        expect(isinstance(body, Exception) or len(body) <= 100)
        again = open_http(data, 1).getresponse()
        lines = attempt(lambda: list(iter(lambda: again.readline(100), b"")), may=refused)
        expect(
            isinstance(lines, Exception)
            or isinstance(body, Exception)
            or b"".join(lines)[:100] == body
        )


def trip_http(rng):
    body = b"\n".join(some.word(rng) for _ in range(rng.randrange(5)))
    cuts = sorted(rng.sample(range(len(body) + 1), min(len(body), rng.randrange(4))))
    for kind in range(3):
        data, size = write_http(body, kind, cuts), rng.choice((1, 7, 1000))
        one = open_http(data + b"junk" * (kind != 1), size)
        same((one.getresponse().read(1 << 20), one.is_open), (body, kind != 1))
        again = open_http(data, size).getresponse()
        same(b"".join(iter(lambda: again.readline(1 << 20), b"")), body)
        torn = attempt(
            lambda: open_http(data[:-1], size).getresponse().read(1 << 20),
            may=(OSError, ValueError),
        )
        expect(kind == 1 or not body and kind == 0 or isinstance(torn, Exception) or torn == body)


class Answers(BytesIO):
    """Replaces the connection to etcd: every request gets the same answer."""

    def __init__(self, data: bytes):
        head, _, body = data.partition(b"\n")
        super().__init__(body)
        status, _, date = head.decode("latin-1").partition(" ")
        self.status = int(status) if status in ("400", "404", "503") else 200
        self.headers = {"Date": date}
        self.sock, self.is_open = SimpleNamespace(deadline=0), True

    def request(self, *_):
        self.seek(0)

    def getresponse(self):
        return self

    def close(self):
        pass


def open_etcd(data: bytes):
    one = etcd.Etcd(targets.parse_url("etcd://h"), 15, 1)
    one.open = lambda deadline: Answers(data)
    one.lease = "255"
    return one


def make_kv(name: bytes, lease: int, revision: int, value: bytes) -> dict:
    key = etcd.pack(b"solo/%b/%x" % (name, lease))
    return {
        "key": key,
        "create_revision": str(revision),
        "mod_revision": str(revision),
        "value": etcd.pack(value),
    }


def write_answer(answer, date: str = "") -> bytes:
    return f"200 {date}\n".encode() + json.dumps(answer).replace("1e+308", "1e999").encode()


def make_etcd(rng) -> bytes:
    def make_any_kv():
        return make_kv(
            rng.choice((b"job", b"job/x")),
            some.number(rng),
            some.number(rng),
            make_entry_record(rng),
        )

    kvs = [make_any_kv() for _ in range(rng.randrange(3))]
    known = (
        {"header": {"revision": "7"}, "kvs": kvs},
        {"result": {"TTL": rng.choice(("15", "0"))}},
        {"error": "no", "code": rng.choice((5, 14, 16, 2)), "message": "m"},
        {"error": {"grpc_code": 5, "message": "x"}},
        {"succeeded": True, "TTL": "9", "responses": [{"response_range": {"kvs": kvs}}]},
        [],
        {},
        {"result": {"events": [{}]}},
        {"header": {"revision": 1e308}, "kvs": kvs},
    )
    dates = "", "Sun, 22 Nov 2026 02:56:42 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "x"
    return write_answer(rng.choice(known), rng.choice(dates))


@fuzzed(1, b'"error"|"kvs"|"result"|1e999|null|[]|Infinity|' + NUMBERS)
def check_etcd(data: bytes):
    def expect_change(one):
        changed = attempt(one.wait_change, "job", None, 0.0, may=(*ANSWERED, OSError))
        expect(isinstance(changed, (bool, Exception)))

    def expect_renewal(one):
        expect_answer((str, NOTHING), one.renew)

    def expect_list(one):
        expect_answer((list,), one.list_entries)

    asked = (
        expect_entries,
        expect_renewal,
        expect_last_run,
        expect_change,
        expect_list,
        expect_outcomes,
    )
    expect_one(open_etcd(data), data, *asked)


def pack_text(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def pack_frame(xid: int, error: int, body: bytes) -> bytes:
    return pack_text(struct.pack("!iqi", xid, 5, error) + body)


def pack_children(*children: bytes) -> bytes:
    return struct.pack("!i", len(children)) + b"".join(map(pack_text, children))


def pack_znode(record: bytes, created: int, owner: int) -> bytes:
    return pack_text(record) + struct.pack(
        "!qqqqiiiqiiq", created, created, 0, 0, 0, 0, 0, owner, 0, 0, created
    )


def make_zookeeper(rng) -> bytes:
    children = [b"%x" % some.number(rng) for _ in range(rng.randrange(3))]
    frames = [pack_frame(1, rng.choice((0, 0, 0, -101, -4, -112)), pack_children(*children))]
    for xid in range(2, 2 + len(children)):
        znode = pack_znode(make_entry_record(rng), some.number(rng), 5)
        frames.append(pack_frame(xid, rng.choice((0, 0, -101)), znode))
    if rng.random() < 0.3:
        frames.insert(0, pack_frame(-1, 0, struct.pack("!ii", 1, 3) + pack_text(b"/solo/job")))
    return b"".join(frames)


def open_zookeeper(data: bytes, size: int = 7):
    one = ZooKeeper(targets.parse_url("zookeeper://h"), 15, 1)
    one.session.open = lambda deadline: network.Timed(Wire(data, size), deadline)
    one.session.socket, one.session.number = network.Timed(Wire(data, size)), 1
    return one


@fuzzed(1, b"\0\0\0\1|\xff\xff\xff\xff|\x7f\xff\xff\xff")
def check_zookeeper(data: bytes):
    def expect_session(one):
        attempt(one.session.connect, may=ANSWERED)
        expect(one.session.ttl > 0)

    def expect_event(one):
        attempt(one.session.wait_event, math.inf, may=ANSWERED)

    checks = (expect_entries, expect_session, expect_event, expect_outcomes)
    expect_one(open_zookeeper(data), data, *checks)


def trip_zookeeper(rng):
    record, created = invent_entry_record(rng), some.number(rng, 1 << 62)
    data = pack_frame(1, 0, pack_children(b"ff")) + pack_frame(
        2, 0, pack_znode(record.format(), created, 255)
    )
    one = open_zookeeper(data, rng.choice((1, 7, 1000)))
    [entry] = one.read_queue("job")
    same(
        (entry.key, entry.number, list_fields(entry.record)),
        ("/solo/job/ff", created, list_fields(record)),
    )
    torn = open_zookeeper(data[: rng.randrange(len(data))])
    found = attempt(torn.read_queue, "job", may=(SoloError, engine.Gone))
    expect(isinstance(found, Exception), "a torn answer is accepted")


def write_resp(answer) -> bytes:
    if isinstance(answer, list):
        return b"*%d\r\n" % len(answer) + b"".join(map(write_resp, answer))
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    return b"$-1\r\n" if answer is None else b"$%d\r\n%b\r\n" % (len(answer), answer)


def invent_answer(rng, depth=0):
    kinds = [None, some.number(rng), some.word(rng), make_entry_record(rng)]
    return (
        [invent_answer(rng, depth + 1) for _ in range(rng.randrange(4))]
        if rng.random() < 0.4 and depth < 4
        else rng.choice(kinds)
    )


def open_resp(data: bytes, size: int = 1000):
    one = resp.Connection(targets.parse_url("redis://h"), None, 1000.0)
    one.sock = network.Timed(Wire(data, size))
    return one


def make_resp(rng) -> bytes:
    return rng.choice((b"+OK\r\n", b"-ERR no\r\n", write_resp(invent_answer(rng))))


@fuzzed(1, b"*1\r\n|$-1\r\n|*-1\r\n|\r\n|:|-|+|" + NUMBERS)
def check_resp(data: bytes):
    broken = OSError, ValueError
    answers = [
        attempt(open_resp(data, size).call, "GET", may=(resp.Refused, *broken))
        for size in (1, 1000)
    ]
    expect(repr(answers[0]) == repr(answers[1]), answers)
    one = open_resp(data)
    expect(isinstance(attempt(one.call, may=(resp.Refused, *broken)), broken) == (one.sock is None))


def trip_resp(rng):
    answer = invent_answer(rng)
    one = open_resp(write_resp(answer) + b"+OK\r\n", rng.choice((1, 7, 1000)))
    same((one.call("GET"), one.call("PING")), (answer, b"OK"))
