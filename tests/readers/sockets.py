"""Addresses of sockets, and command lines of launchers."""

import os
import re
from types import SimpleNamespace

from readers import some
from readers.records import CLAIM, ESCAPES, invent_record
from readers.target import (
    NUMBERS,
    ORIGIN,
    agree,
    attempt,
    expect,
    expect_claim,
    fuzzed,
    read_from,
    same,
    swapped,
)
from readers.words import make_words
from solo import kernel, record, tickets
from solo.contention import addresses, sockets
from solo.errors import SoloError
from solo.modes import SLOTS, Claim
from solo.process import watch

HEAD = b"Num       RefCount Protocol Flags    Type St Inode Path\n"
OURS = b"@%b/%d/" % (addresses.PREFIX.encode(), os.geteuid())
LISTED = re.compile(rb"\S+\s+\S+\s+\S+\s+00010000\s+\S+\s+\S+\s+\S+\s+%b(.*)/([^/]*)" % OURS, re.S)
ADDRESS = re.compile(
    r"(?:hold|seat)\.\d{1,18}\.((?:X|S|IX|IS)|C-(\d{1,9})-(\d{1,9})(?:-\d{1,9}-\d{1,9})*)\.[0-9a-f-]*\.(?:-|\d{1,9})\.\d{1,9}",
    re.A,
)


def write_row(address: bytes, flags=b"00010000") -> bytes:
    return b"ffff8881: 00000002 00000000 %b 0001 01 12345 %b\n" % (flags, address)


def make_address(rng) -> bytes:
    claim = some.claim(rng)
    one = SimpleNamespace(claim=claim, slot=some.slot(rng, claim))
    kind, tree = rng.choice(("hold", "seat", "gate")), rng.choice(("-", "500"))
    return f"{kind}.{some.number(rng, 10**17)}.{sockets.format_claim(one)}..{tree}.{some.number(rng)}".encode()


def make_row(rng) -> bytes:
    own = b"%b%b/%b" % (OURS, record.quote(some.word(rng)), make_address(rng))
    flags = rng.choice((b"00010000", b"00010000", b"00000000"))
    return write_row(rng.choice((own, b"@/tmp/x y", b"/run/x", b"@solo/9/x/y")), flags)


def make_sockets(rng) -> bytes:
    return HEAD + b"".join(make_row(rng) for _ in range(rng.randrange(4)))


@fuzzed(3, OURS + b"job/hold.|00010000|C-5-2-0-1|C-0-0|C-2-5|.X..-.0|hold.5.|" + NUMBERS)
def check_sockets(data: bytes):
    with swapped(addresses, read_table=lambda: data, READS=1):
        found = sockets.list_addresses()
        queue = sockets.SocketQueue("job", ORIGIN)
        texts = queue.find_texts()
    expected = set()
    for row in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        match = LISTED.fullmatch(row.lstrip(b" \t\x0b\x0c"))
        if match and ESCAPES.fullmatch(match[1]):
            expected.add((kernel.decode(record.unquote(match[1])), kernel.decode(match[2])))
    expect(expected <= found, "a ticket is not seen", expected - found)
    for file, address in texts.items():
        expect(tickets.is_ticket(file) and ("job", address) in found, file)
        check_address(queue, file, address)


def check_address(queue, file: str, address: str):
    one = sockets.SocketTicket(queue, file, address, -1).read_record()
    if one is not None:
        expect_claim(one.claim, one.slot)
        same((one.child, one.launcher), (None, (0, 0)))
    else:
        whole = ADDRESS.fullmatch(address)
        sane = (
            whole
            and (not whole[2] or 1 <= int(whole[3]) <= int(whole[2]))
            and whole[1].count("-") <= 2
        )
        expect(not sane, "a valid address is not read", address)


def trip_sockets(rng):
    one = invent_record(rng)
    if rng.random() < 0.3:
        one.claim = Claim(rng.choice(("IX", "IS")))
    queue = sockets.SocketQueue(one.names[0], ORIGIN)
    with swapped(sockets, bind=lambda name, text: 0):
        ticket = queue.publish(rng.choice((tickets.SEAT, tickets.HOLD)), one)
    address = attempt(sockets.make_address, queue.name, ticket.text, may=SoloError)
    if isinstance(address, SoloError):
        return
    row = write_row(b"@" + address[1:].replace(b"\0", b"@"))
    with swapped(addresses, read_table=lambda: HEAD + row, READS=1):
        same(queue.find_texts(), {ticket.file: ticket.text})
    read = sockets.SocketTicket(queue, ticket.file, ticket.text, -1).read_record()
    agree(read, one, f"{CLAIM} tree")
    same(read.slot, one.slot if one.claim.mode == SLOTS else [])
    expect(abs(read.since - one.since) < 1e-3)


def make_cmdline(rng) -> bytes:
    head = rng.choice(
        (b"/usr/bin/solo", b"python3\0-IS\0/usr/local/bin/solo", b"python3\0-m\0solo", b"x")
    )
    return b"%b\0%b\0--\0%b\0" % (head, make_words(rng), some.word(rng))


@fuzzed(3, b"solo\0|\0--\0|-n\0")
def check_cmdline(data: bytes):
    command, note = read_from(data, sockets.read_command, 5)
    words = data.split(b"\0")[:-1]
    same(command, words[len(words) - len(command) :])
    expect(command or not words)
    expect(note.isprintable() and len(note) <= 200 and note.encode() in data)
    shown = kernel.encode(read_from(data, watch.describe_process, 5))
    expect(shown == b"pid 5" or shown[7:-1] in data.replace(b"\0", b" "))


def trip_cmdline(rng):
    typed = rng.choice((b"", b"-q\0", b"-n\0solo\0", b"--name=x\0-w\x005\0"))
    note = rng.choice(("", "solo -q", "été"))
    typed += b"--note\0%b\0" % note.encode() if note else b""
    command = [some.word(rng), b"-x", b"--"]
    line = b"python3\0-IS\0/usr/bin/solo\0%b--\0%b\0" % (typed, b"\0".join(command))
    same(read_from(line, sockets.read_command, 5), (command, note))
