"""Measure a crowd of waiters for one name at a slow object store: does the holder keep its lease?

The store runs in this process. It is late, but answers everything, and refuses only a PUT whose
condition is not met.
"""

import asyncio
import os
import signal
import threading
import time
from email.utils import formatdate

from bench.contestants import TRUE, Bench, Holder, Series, spawn

CROWDS = [
    (count, latency) for count in (5, 20, 100) for latency in (0.02, 0.2)
]  # waiters, seconds of a request
HELD = 60.0  # seconds from the first waiter to the end of the holder: twenty renewals
FIRST = 5  # waiters that run then; their commands take no time


class Store:
    """A bucket. `refused` counts the PUTs whose condition was not met."""

    def __init__(self, latency: float):
        self.latency, self.objects, self.refused, loop = latency, {}, 0, asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self.talk, "127.0.0.1", 0))
        self.url = f"s3://bucket?endpoint=http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        threading.Thread(target=loop.run_forever, daemon=True).start()

    async def talk(self, reader, writer):
        try:
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines)
                body = await reader.readexactly(int(headers["Content-Length"]))
                await asyncio.sleep(self.latency / 2)
                status, etag, text = self.answer(*first.split()[:2], headers, body)
                await asyncio.sleep(self.latency / 2)
                lines = f"ETag: {etag}\r\nDate: {formatdate(usegmt=True)}\r\nContent-Length: {len(text)}"
                writer.write(f"HTTP/1.1 {status} -\r\n{lines}\r\n\r\n".encode() + text)
        except (EOFError, ConnectionError):
            writer.close()

    def answer(self, method, path, headers, body) -> tuple:
        text, etag = self.objects.get(path, (b"<Code>NoSuchKey</Code>", ""))
        if method == "GET":
            is_known = etag and headers.get("If-None-Match") == etag
            return (304, etag, b"") if is_known else (200 if etag else 404, etag, text)
        if headers.get("If-Match", etag) != etag or "If-None-Match" in headers and etag:
            self.refused += 1
            return 412, "", b"<Code>PreconditionFailed</Code>"
        self.objects[path] = body, f'"{os.urandom(16).hex()}"'
        return 200, self.objects[path][1], b""


def measure_crowd(bench: Bench, rounds: int) -> dict:
    """Measure refused PUTs while a name is held, the time from one end to the next, and whether the
    holder lost its lease.
    """
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    found = {
        "crowd: refused": Series("PUT/s"),
        "crowd: a turn": Series("s"),
        "crowd: lost holders": Series(""),
    }
    for _ in range(rounds):
        crowds = [(2, 0.02)] if bench.small else CROWDS
        rows = {
            f"solo, {count}, {1000 * latency:g} ms": gather(bench, count, latency)
            for count, latency in crowds
        }
        for at, series in enumerate(found.values()):
            series.add({row: values[at] for row, values in rows.items()})
    return found


def gather(bench: Bench, count: int, latency: float) -> tuple:
    """Return (refused PUTs per second, seconds from one end to the next, 1 if the holder lost its
    lease).
    """
    store = Store(latency)
    words = [bench.solo, "--via", store.url, "-n", "crowd", "--dir"]
    with Holder([*words, f"{bench.folder}/holder"]) as holder:
        waiters = [
            spawn([*words, f"{bench.folder}/{at}", "-w", "forever", TRUE]) for at in range(count)
        ]
        seconds = 2 if bench.small else HELD
        time.sleep(seconds)
        rate = store.refused / seconds
    end = time.monotonic()
    ended = dict(os.waitpid(-1, 0) for _ in waiters[:FIRST])
    seconds = (time.monotonic() - end) / len(ended)
    assert not any(ended.values()), f"waiters ended with {ended}"
    for pid in set(waiters) - set(ended):
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    return rate, seconds, int(holder.process.returncode != 0)
