"""Records, their quoted words, and the gate of a name."""

import os
import re
from functools import cache

from readers import some
from readers.target import NUMBERS, ORIGIN, agree, attempt, expect, expect_claim, fuzzed, same
from solo import gate, kernel, record, tickets
from solo.errors import SoloError
from solo.identity import Origin
from solo.modes import MODES, SLOTS

BLANK = b" " * (record.RESERVED - 1) + b"\n"
WORD = rb"[^\0-\x20\x7f]*"
CANON = re.compile(
    rb"solo 1\nlauncher (\d{1,10}) \d{1,20}\nboot [!-~]*\npid-namespace [!-~]*\n"
    rb"time-namespace [!-~]*\nshift -?\d{1,20}\nuid \d{1,20}\n"
    rb"mode (?:X|S|IX|IS|C\nslots (\d{1,20})\ntake (\d{1,20})\nslot ((?:\d+-\d+(?: \d+-\d+)*)?))\n"
    rb"tree (?:-|\d{1,20})\n"
    + rb"((?:via W\n)?(?:keep (\d{1,10}) \d{1,20}\n)?(?:timed 1\n)?(?:guarded 1\n)?"
    rb"(?:descriptor (\d{1,10}) \d{1,20} \d{1,20} \d{1,20} [1-8]?\d{1,18} W\n)?"
    rb"(?:note W\n)?host W\nnames W(?: W)*\ncommand W(?: W)*\n)".replace(b"W", WORD)
    + rb"(?:uptime \d{1,11}\.\d{6}\n)?since \d{1,11}\.\d{6}\n"
    + rb"(?: {47}\n|(?=.{43}\nend\n)child (\d{1,10}) (\d{1,20}) *\nend\n)",
    re.A,
)
ESCAPES = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*", re.S)
LAUNCHER = re.compile(rb"\A(?s:.*)^launcher\s+\+?(\d+)\s+\+?(\d+)\s*$", re.M)
CLOSING = re.compile(rb"child\s+\+?([\d_]+)\s+[+-]?([\d_]+)\s*end\n")
STRUCTURE = re.compile(
    rb"^(?:solo 1|(?:launcher|boot|shift|uid|mode)(?= ))|\n|(?<=\n)(?:child|end)", re.M
)
CLAIM = "claim.mode claim.slots claim.take"
ORIGINS = "origin.boot origin.pid_namespace origin.time_namespace origin.host origin.shift"
FIELDS = f"launcher child {CLAIM} {ORIGINS} uid slot names tree command since via keep is_timed is_guarded descriptor note uptime"


def invent_record(rng):
    claim = some.claim(rng)
    origin = Origin(
        "b-1",
        str(some.number(rng)),
        rng.choice(("-", "4026531834")),
        some.text(rng),
        some.number(rng) - 5,
    )
    launcher, uid, names = some.process(rng), some.number(rng), some.many(rng, some.text, 1, 4)
    tree, command, slot = (
        rng.choice((None, 0.0, 10.0, 0.5)),
        some.many(rng, some.word, 1, 5),
        some.slot(rng, claim),
    )
    since, child = float(rng.randrange(1 << 31)), rng.choice((None, some.process(rng)))
    via = rng.choice(("", "etcd://h/%20", "a b"))
    note = rng.choice(("", "until noon", "été 50% 🔒"))
    keep, is_timed = rng.choice((None, some.process(rng))), rng.random() < 0.5
    uptime = rng.choice((None, float(rng.randrange(1 << 20))))
    kept = {"keep": keep, "is_timed": is_timed, "note": note, "uptime": uptime}
    if keep and rng.random() < 0.5:
        kept["descriptor"] = (
            *some.process(rng),
            some.number(rng),
            7,
            rng.randrange(1 << 59),
            some.word(rng),
        )
    kept["is_guarded"] = "descriptor" in kept or rng.random() < 0.5
    made = record.Record(launcher, origin, uid, claim, names, command)
    vars(made).update(kept, tree=tree, slot=slot, since=since, child=child, via=via)
    return made


def write_record(one) -> bytes:
    data = record.format_record(one)
    return (
        data if one.child is None else data[: -record.RESERVED] + record.format_closing(one.child)
    )


def is_canonical(data: bytes) -> bool:
    """Whether solo writes such a record, by an independent grammar."""
    match = CANON.fullmatch(data)
    if not match:
        return False
    launcher, slots, take, slot, quoted, keep, holder, child, _ = match.groups()
    ranges = re.findall(rb"(\d+)-(\d+)", slot or b"")
    return bool(
        all(
            0 < int(one) < 1 << 31
            for one in (launcher, keep or b"1", holder or b"1", child or b"1")
        )
        and (slots is None or 1 <= int(take) <= int(slots))
        and all(int(first) <= int(last) for first, last in ranges)
        and ESCAPES.fullmatch(quoted)
    )


def make_record(rng) -> bytes:
    data = write_record(invent_record(rng))
    expect(is_canonical(data))
    return data


@fuzzed(5, b"launcher |child |end\n|mode C\n|solo 1\n|slot |%20|" + BLANK + b"|" + NUMBERS)
def check_record(data: bytes):
    one = record.parse_record(data)
    if one is None:
        expect(not is_canonical(data), "a whole record is damaged")
        return
    head, closing = data[: -record.RESERVED], data[-record.RESERVED :]
    expect(data.startswith(b"solo 1\n") and data.endswith(b"\n"))
    launcher = LAUNCHER.match(head.replace(b"\r", b"\n"))
    expect(
        launcher is None or b"_" in data or one.launcher == tuple(map(int, launcher.groups())),
        one.launcher,
    )
    same(
        one.child,
        None if closing == BLANK else tuple(map(int, CLOSING.fullmatch(closing).groups())),
    )
    expect_claim(one.claim, one.slot)
    expect(one.names and one.command and 0 <= one.since < record.LATEST)
    words = [one.origin.boot, one.origin.pid_namespace, one.origin.time_namespace]
    has_space = any(word.isascii() and re.search("[ \n]", word) for word in words)
    if (one.claim.mode == SLOTS or not one.slot) and not has_space:
        one.since, one.tree = float(int(one.since)), None
        one.uptime = one.uptime and float(int(one.uptime))
        again = record.parse_record(write_record(one))
        if again is not None or all(map(str.isascii, words)):
            agree(again, one, FIELDS)


def trip_record(rng):
    one = invent_record(rng)
    data = write_record(one)
    agree(record.parse_record(data), one, FIELDS)
    same(record.parse_record(data[: rng.randrange(len(data))]), None)
    # Torn: only the first bytes of the closing lines are written.
    closing, at = record.format_closing(some.process(rng)), rng.randrange(1, record.RESERVED - 1)
    same(record.parse_record(data[: -record.RESERVED] + closing[:at] + BLANK[at:]), None)
    # Replace a byte outside the values by one that is no part of a number.
    at = rng.choice([match.start() for match in STRUCTURE.finditer(data)])
    flipped = data[:at] + bytes((rng.choice(b"\0 \n\x7fx%-\xff"),)) + data[at + 1 :]
    # A hole, as after a power loss.
    begin = rng.randrange(len(data))
    end = min(begin + rng.randrange(1, 64), len(data))
    for damaged in (flipped, data[:begin] + bytes(end - begin) + data[end:]):
        other = record.parse_record(damaged)
        if other is not None:
            agree(other, one, "launcher child")


def make_quoted(rng) -> bytes:
    return record.quote(some.word(rng) + some.word(rng))


@fuzzed(16, b"%|%2|%20|%+5|% 5|%GG")
def check_quoted(data: bytes):
    plain = attempt(record.unquote, data, may=ValueError)
    if ESCAPES.fullmatch(data):
        same(plain, re.sub(rb"%(..)", lambda match: bytes((int(match[1], 16),)), data, flags=re.S))
    else:
        expect(isinstance(plain, ValueError), "a torn escape is read", data, plain)
    quoted = record.quote(data)
    same(record.unquote(quoted), data)
    expect(not re.search(rb"[\0-\x20\x7f]", quoted) and len(quoted) <= 3 * len(data))
    parts = record.quote_words([data, data[1:]], 60).split(b" ")
    expect(len(b" ".join(parts)) <= 2 * (60 + 5) or parts == [record.ELLIPSIS])
    kept = [record.unquote(part) for part in parts if part != record.ELLIPSIS]
    same(kept[:1], [] if parts == [record.ELLIPSIS] else [data])


# --- the gate and the names of tickets------------------------------------------------------------

GATE_LINE = re.compile(rb"(0[0-9]{19})\n")
BOOT_LINE = re.compile(rb"([^ ]*) (0[0-9]{19})\n", re.S)


@cache
def get_queue():
    """Return a queue whose gate is a memfd."""
    queue = tickets.FileQueue(None, ORIGIN)
    queue.gate.fd = os.memfd_create("gate")
    return queue


def fill_gate(data: bytes):
    filled = get_queue().gate
    os.ftruncate(filled.fd, 0)
    os.pwrite(filled.fd, data, 0)
    filled.load()
    return filled


def expect_unchanged_by_load(filled):
    """Compare the cached text of the gate with the file."""
    remembered = filled.text
    filled.load()
    same(remembered, filled.text)


def make_gate(rng) -> bytes:
    lines = b"".join(b"%020d\n" % some.number(rng, 10**19) for _ in range(rng.choice((1, 6, 6, 6))))
    return lines + rng.choice(
        (b"", b"%b %020d\n" % (rng.choice((b"b-1", b"another")), some.number(rng, 10**19)))
    )


@fuzzed(6, b"|".join((b"0" * 20, b"09999999999999999999\n", b"9" * 20, b".seat.|.hold.|.new.")))
def check_gate(data: bytes):
    width = gate.DIGITS + 1
    filled = fill_gate(data)
    lines = [GATE_LINE.fullmatch(data[at : at + width]) for at in range(0, 6 * width, width)]
    counter, *skips = (int(line[1]) if line else None for line in lines)
    same(
        filled.read_counter(),
        counter if counter is not None and counter + 1 < gate.LARGEST_NUMBER else None,
    )
    same(list(filled.read_skips()), [count or 0 for count in skips])
    boot = BOOT_LINE.fullmatch(data[gate.BOOT_AT :][: gate.BOOT_SIZE])
    same(
        filled.read_boot(),
        (boot[1].decode(errors="replace"), int(boot[2])) if boot else (None, None),
    )
    file = kernel.decode(data[:32])
    ticket = re.fullmatch(r"(\.seat\.|\.hold\.|\.new\.)0[0-9]{19}", file)
    same(tickets.is_ticket(file), bool(ticket))
    if ticket:
        same(
            (tickets.get_number(file), tickets.is_published(file)),
            (int(file[-20:]), ticket[1] != ".new."),
        )


def trip_gate(rng):
    filled, queue = (
        fill_gate(make_gate(rng) if rng.random() < 0.8 else rng.randbytes(130)),
        get_queue(),
    )
    newest, mode = some.number(rng, 10**15), rng.choice(MODES)
    queue.files = [f".seat.{newest:020d}"]
    counter, skips = filled.read_counter(), filled.read_skips()
    same((filled.count_skip(mode), filled.read_counter()), (skips[MODES.index(mode)], counter))
    expect_unchanged_by_load(filled)
    expected = [count + (other == mode) for other, count in zip(MODES, skips)]
    if max(expected) < 10**19:
        same(filled.read_skips(), expected)
    # AttributeError: this queue has no path for the message.
    kind = rng.choice((tickets.SEAT, tickets.HOLD))
    taken = attempt(queue.take_number, kind, mode, may=(SoloError, AttributeError))
    if isinstance(taken, str):
        expect(
            int(taken) > max(newest, counter or 0) and tickets.is_ticket(".hold." + taken), taken
        )
        same(filled.read_counter(), int(taken) if int(taken) + 1 < gate.LARGEST_NUMBER else None)
        expect_unchanged_by_load(filled)
