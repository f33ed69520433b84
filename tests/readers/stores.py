"""The objects of a store, its answers and its dates."""

import json
from datetime import datetime, timezone
from email.utils import format_datetime

from readers import some
from readers.engines import (
    ANSWERED,
    expect_answer,
    expect_entries,
    expect_last_run,
    expect_one,
    make_entry_record,
)
from readers.target import NUMBERS, Wire, attempt, expect, fuzzed, same
from solo.engines import http, network, targets
from solo.engines.s3 import document, engine, objects, sign

LAST = 253402300799  # seconds since the epoch


def invent_document(rng) -> document.Document:
    numbers = sorted(rng.sample(range(1, 1000), rng.randrange(4)))
    queue = []
    for number in numbers:
        rest = some.text(rng), json.loads(make_entry_record(rng)), rng.random() < 0.5
        queue.append(document.Stored(f"{number:x}", number, rng.randrange(9), 15.0, 1e9, *rest))
    return document.Document(
        1000, rng.choice(("", "host 1.5")), tuple(queue), rng.choice(("", 'h:1/b "ETag"'))
    )


def make_document(rng) -> bytes:
    return invent_document(rng).format().encode()


@fuzzed(2, b'"queue":[]|"ttl":0|"owner":""|NaN|1e999|null|[]|{}|true|' + NUMBERS)
def check_document(data: bytes):
    refusals = (ValueError, LookupError, TypeError, OverflowError, RecursionError)
    known = attempt(document.parse_document, data, may=refusals)
    if isinstance(known, document.Document):
        numbers = [stored.number for stored in known.queue]
        expect(numbers == sorted(numbers) and all(number <= known.counter for number in numbers))
        expect(all(0 < stored.ttl < 1e10 for stored in known.queue))
        expect(
            len({stored.owner for stored in known.queue}) == len(known.queue),
            "two entries of one owner",
        )


def trip_document(rng):
    known = invent_document(rng)
    same(document.parse_document(known.format().encode()), known)
    expect(known.format() != known.format(), "two writes with one ETag")
    torn = known.format().encode()
    cut = attempt(
        document.parse_document,
        torn[: rng.randrange(len(torn))],
        may=(ValueError, LookupError, TypeError),
    )
    expect(isinstance(cut, Exception), "a torn document is accepted")


def open_s3(data: bytes) -> engine.S3:
    one = engine.S3(targets.parse_url("s3://b?endpoint=http://h"), 15.0, 1000.0)
    one.store.keys = sign.Keys("a", "b")
    one.store.connection = http.Connection(network.Timed(Wire(data, repeats=True)), "h")
    one.store.hang_up = lambda: None
    one.objects.repeat = lambda deadline, method, key, headers: one.store.ask(
        method, key, headers
    )  # once
    return one


def make_s3(rng) -> bytes:
    names = rng.choices(("job", "a/b%20c", "%zz", ".x"), k=rng.randrange(3))
    keys = "".join(f"<Key>solo/{name}.json</Key>" for name in names)
    error = f"<Error><Code>{rng.choice(('NoSuchKey', 'SlowDown', 'ExpiredToken', 'x'))}</Code><Message>m &lt;</Message></Error>"
    body = rng.choice((make_document(rng), f"<R>{keys}</R>".encode(), error.encode(), b""))
    status = rng.choice((200, 200, 200, 304, 403, 404, 412, 503))
    date = rng.choice(("Mon, 23 Nov 2026 05:47:03 GMT", "x"))
    head = (
        f'HTTP/1.1 {status} X\r\nETag: "e"\r\nDate: {date}\r\nContent-Length: {len(body)}\r\n\r\n'
    )
    return head.encode() + body


@fuzzed(1, b"HTTP/1.1 200|ETag: |Date: |<Code>|</Code>|<Key>solo/|.json</Key>|<Region>x|" + NUMBERS)
def check_s3(data: bytes):
    def expect_names(one):
        expect_answer((list,), one.objects.list_names)

    def expect_reply(one):
        reply = attempt(one.store.ask, "GET", "x", may=ANSWERED)
        expect(isinstance(reply, Exception) or reply.etag.isprintable())

    expect_one(open_s3(data), data, expect_entries, expect_names, expect_last_run, expect_reply)


def trip_s3(rng):
    known = invent_document(rng)
    body = known.format().encode()
    one = open_s3(
        b'HTTP/1.1 200 X\r\nETag: "e"\r\nContent-Length: %d\r\n\r\n%b' % (len(body), body)
    )
    expected = [(f"solo/job.json#{stored.owner}", stored.number) for stored in known.queue]
    same([(entry.key, entry.number) for entry in one.read_queue("job")], expected)
    name = some.text(rng).lstrip(".") or "x"
    listing = f"<Key>{objects.make_key('p/', name)}</Key>"
    same(objects.parse_names(listing, "p/"), [name])
    same(http.find_texts("<a>1 &amp;lt;</a><b/><a></a><a><b></a>", "a"), ["1 &lt;", ""])


def make_dates(rng) -> bytes:
    moment = datetime.fromtimestamp(rng.randrange(LAST), timezone.utc)
    return rng.choice(
        (format_datetime(moment, usegmt=True), moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
    ).encode()


@fuzzed(1, b"GMT|T|Z|+00:00|Feb|02-30|00:00:60|:|" + NUMBERS)
def check_dates(data: bytes):
    text = data.decode("latin-1")
    for moment in (
        attempt(http.parse_date, text, may=ValueError),
        http.find_http_date({"Date": text}),
    ):
        expect(
            moment is None or isinstance(moment, ValueError) or 0 <= moment <= LAST + 100 * 86400
        )


def trip_dates(rng):
    moment = rng.randrange(LAST)
    when = datetime.fromtimestamp(moment, timezone.utc)
    same(http.find_http_date({"Date": format_datetime(when, usegmt=True)}), moment + 0.5)
    same(http.parse_date(when.isoformat()), moment)
