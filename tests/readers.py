"""All readers of outside data, with generators of their input and checks of their results. TARGETS lists them for fuzz.py.

A target `make`s valid text from a Random. `check` compares the reader, for any bytes, with a second implementation or with
invariants. `trip` converts a value to text and back, or damages the text. A finding is an exception. UNREAD names functions that
look like readers but read no outside data; test_fuzz.py compares both tables with the source.
"""

import getopt
import json
import math
import os
import re
import shutil
import struct
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from solo import argv, directories, gate, identity, journal, journal_files, kernel, launcher, record, start, tickets
from solo.api import status_pipe
from solo.commands import doctor
from solo.contention import period, sockets
from solo.engines import engine, etcd, targets
from solo.errors import SoloError, UsageError
from solo.history import reader, rotation
from solo.modes import COUNTED, EXCLUSIVE, MODES, Claim
from solo.options import LAUNCHER_OPTIONS, SUBCOMMANDS
from solo.process import owners, systemd, watch
from solo.text import describe, width

NAMES = [
    b"a",
    b"job",
    b"a/b",
    b"x y",
    b"\xc3\xa9",
    b"\xff%",
    b"-n",
    b"list",
    b"a\nb",
    b"\x01",
    b"\x0bNSpid: 7",
    b"\x0c",
    b"\x85",
    b") R 1",
    b"SigIgn:1",
]
NUMBERS = [
    b"0",
    b"1",
    b"-1",
    b"4711",
    b"2147483647",
    b"2147483648",
    b"99999999999999999999",
    b"1e999",
    b"nan",
    b"inf",
    b"1_0",
    b"+5",
    b"9" * 400,
]
ORIGIN = identity.Origin("b-1", "4026531836", "4026531834", "host")


class Target(NamedTuple):
    """`reads` names the readers as MODULE.FUNCTION; `words` are pieces for mutations; `share` is its part of the inputs."""

    name: str
    reads: str
    make: object
    check: object
    trip: object = None
    words: tuple = ()
    share: float = 4


def expect(truth, *what):
    """Assert, also under python -O."""
    if not truth:
        raise AssertionError(*what)


def same(one, other):
    expect(one == other, one, other)


def attempt(function, *values, may=()):
    """Return the result of the function, or the exception if it is one of `may`."""
    try:
        return function(*values)
    except may as error:
        return error


@contextmanager
def swapped(module, **values):
    before = {key: module.__dict__.get(key) for key in values}
    module.__dict__.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del module.__dict__[key]
            else:
                module.__dict__[key] = value


def reading(module, data: bytes, **values):
    """Make read_file of `module` return `data`, cut to the requested size, for every file."""
    return swapped(module, read_file=lambda path, size=4096: data[:size], **values)


def word(rng) -> bytes:
    return rng.choice(NAMES) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 12)).replace(b"\0", b"")


def text(rng) -> str:
    return kernel.decode(word(rng))


def number(rng, most: int = 1 << 31) -> int:
    return rng.choice((0, 1, 2, 9, 10, most - 1, rng.randrange(most)))


def pid(rng) -> int:
    return max(1, number(rng))


# --- records -----------------------------------------------------------------------------------------------------

Q, N = rb"[^\x00-\x20\x7f\n]*", rb"(\d{1,20})"
WORD = rb"[^\0-\x20\x7f]*"
CANON = re.compile(
    rb"solo 1\nlauncher (\d{1,10}) \d{1,20}\nboot [!-~]*\npid-namespace [!-~]*\n"
    rb"time-namespace [!-~]*\nshift -?\d{1,20}\nuid \d{1,20}\n"
    rb"mode (?:X|S|IX|IS|C\nslots (\d{1,20})\ntake (\d{1,20})\nslot ((?:\d+-\d+(?: \d+-\d+)*)?))\n"
    rb"tree (?:-|\d{1,20})\nsince \d{1,11}\.\d{6}\n"
    rb"((?:via %b\n)?host %b\nnames %b(?: %b)*\ncommand %b(?: %b)*\n)"
    % (6 * (WORD,))
    + rb"(?: {47}\n|child (\d{1,10}) (\d{1,20}) *\nend\n)",
    re.A,
)
ESCAPES = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*", re.S)
LAUNCHER = re.compile(rb"\A(?s:.*)^launcher\s+\+?(\d+)\s+\+?(\d+)\s*$", re.M)
CLOSING = re.compile(rb"child\s+\+?([\d_]+)\s+[+-]?([\d_]+)\s*end\n")


def make_claim(rng) -> Claim:
    mode = rng.choice(MODES)
    slots = rng.randrange(1, 9)
    return Claim(mode, slots, rng.randrange(1, slots + 1)) if mode == COUNTED else Claim(mode)


def make_slot(rng, claim) -> list:
    firsts = sorted(rng.sample(range(50), rng.randrange(3))) if claim.mode == COUNTED else []
    return [(first, first + rng.randrange(4)) for first in firsts]


def invent_record(rng):
    claim = make_claim(rng)
    origin = identity.Origin("b-1", str(number(rng)), rng.choice(("-", "4026531834")), text(rng), number(rng) - 5)
    return record.Record(
        (pid(rng), number(rng, 1 << 64)),
        origin,
        number(rng),
        claim,
        [text(rng) for _ in range(rng.randrange(1, 4))],
        rng.choice((None, 0.0, 10.0, 0.5)),
        [word(rng) for _ in range(rng.randrange(1, 5))],
        make_slot(rng, claim),
        float(rng.randrange(1 << 31)),
        rng.choice((None, (pid(rng), number(rng, 1 << 64)))),
        rng.choice(("", "etcd://h/%20", "a b")),
    )


def write_record(one) -> bytes:
    data = record.format_record(one)
    return data if one.child is None else data[: -record.RESERVED] + record.format_closing(one.child)


def list_fields(one) -> tuple:
    return (*identify(one), one.uid, one.slot, one.names, one.tree, one.command, one.since, one.via)


def identify(one) -> tuple:
    """Return the fields that decide whether it is alive and which claims are compatible."""
    return (
        one.launcher,
        one.child,
        one.claim.mode,
        one.claim.slots,
        one.claim.take,
        *(getattr(one.origin, key) for key in identity.Origin.__slots__),
    )


def is_canonical(data: bytes) -> bool:
    """Whether solo writes such a record, by an independent grammar."""
    match = CANON.fullmatch(data)
    if not match:
        return False
    launcher, slots, take, slot, quoted, child, _ = match.groups()
    ranges = re.findall(rb"(\d+)-(\d+)", slot or b"")
    return bool(
        0 < int(launcher) < 1 << 31
        and (child is None or 0 < int(child) < 1 << 31)
        and (slots is None or 1 <= int(take) <= int(slots))
        and all(int(first) <= int(last) for first, last in ranges)
        and ESCAPES.fullmatch(quoted)
        and data[: -record.RESERVED].endswith(quoted)
    )


def check_record(data: bytes):
    one = record.parse_record(data)
    if one is None:
        expect(not is_canonical(data), "a whole record is damaged")
        return
    expect(data.startswith(b"solo 1\n") and data.endswith(b"\n"))
    launcher = LAUNCHER.match(data[: -record.RESERVED].replace(b"\r", b"\n"))
    expect(launcher is None or b"_" in data or one.launcher == tuple(map(int, launcher.groups())), one.launcher)
    if data[-record.RESERVED :] == b" " * 47 + b"\n":
        same(one.child, None)
    else:
        same(one.child, tuple(map(int, CLOSING.fullmatch(data[-record.RESERVED :]).groups())))
    expect(one.claim.mode in MODES and 1 <= one.claim.take <= one.claim.slots and one.names and one.command)
    expect(all(0 <= first <= last for first, last in one.slot) and 0 <= one.since < record.LATEST)
    if one.claim.mode == COUNTED or not one.slot:
        one.since, one.tree = float(int(one.since)), None
        if all(
            b"\n" not in part.encode() and b" " not in part.encode()
            for part in (one.origin.boot, one.origin.pid_namespace, one.origin.time_namespace)
            if part.isascii()
        ):
            again = record.parse_record(write_record(one))
            expect(
                again is None
                and not (one.origin.boot + one.origin.pid_namespace + one.origin.time_namespace).isascii()
                or list_fields(again) == list_fields(one)
            )


def trip_record(rng):
    one = invent_record(rng)
    data = write_record(one)
    same(list_fields(record.parse_record(data)), list_fields(one))
    same(record.parse_record(data[: rng.randrange(len(data))]), None)
    # Torn: only the first bytes of the closing lines are written.
    blank = b" " * (record.RESERVED - 1) + b"\n"
    closing = record.format_closing((pid(rng), number(rng, 1 << 64)))
    at = rng.randrange(1, record.RESERVED - 1)
    same(record.parse_record(data[: -record.RESERVED] + closing[:at] + blank[at:]), None)
    # Replace a byte outside the values by one that is no part of a number.
    at = rng.choice([match.start() for match in STRUCTURE.finditer(data)])
    flipped = data[:at] + bytes((rng.choice(b"\0 \n\x7fx%-\xff"),)) + data[at + 1 :]
    other = record.parse_record(flipped)
    expect(other is None or identify(other)[:2] == identify(one)[:2], "another process", flipped)
    # A hole, as after a power loss.
    begin = rng.randrange(len(data))
    hole = data[:begin] + bytes(min(rng.randrange(1, 64), len(data) - begin))
    other = record.parse_record(hole + data[len(hole) :])
    expect(other is None or identify(other)[:2] == identify(one)[:2], "another process", hole)


STRUCTURE = re.compile(
    rb"^(?:solo 1|launcher(?= )|boot(?= )|shift(?= )|uid(?= )|mode(?= ))|\n|(?<=\n)(?:child|end)", re.M
)


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
    same(
        [record.unquote(part) for part in parts if part != record.ELLIPSIS][:1],
        [data][: len(parts) - (parts[0] == record.ELLIPSIS and len(parts) == 1)],
    )


# --- tickets -----------------------------------------------------------------------------------------------------

GATE_LINE = re.compile(rb"(0[0-9]{19})\n")
BOOT_LINE = re.compile(rb"([^ ]*) (0[0-9]{19})\n", re.S)


@cache
def get_queue():
    """Return a queue whose gate is a memfd."""
    queue = tickets.Queue(None, ORIGIN)
    queue.gate.fd = os.memfd_create("gate")
    return queue


def fill_gate(data: bytes):
    filled = get_queue().gate
    os.ftruncate(filled.fd, 0)
    os.pwrite(filled.fd, data, 0)
    filled.load()
    return filled


def make_gate(rng) -> bytes:
    lines = b"".join(b"%020d\n" % number(rng, 10**19) for _ in range(rng.choice((1, 6, 6, 6))))
    return lines + rng.choice((b"", b"%b %020d\n" % (rng.choice((b"b-1", b"another")), number(rng, 10**19))))


def check_gate(data: bytes):
    width = gate.DIGITS + 1
    filled = fill_gate(data)
    counter, skips = filled.read_counter(), filled.read_skips()
    lines = [GATE_LINE.fullmatch(data[at : at + width]) for at in range(0, 6 * width, width)]
    first = int(lines[0][1]) if lines[0] else gate.LARGEST
    same(
        [counter, *skips],
        [first if first + 1 < gate.LARGEST else None, *(int(line[1]) if line else 0 for line in lines[1:])],
    )
    boot = BOOT_LINE.fullmatch(data[gate.BOOT_AT :][: gate.BOOT_SIZE])
    same(filled.read_boot(), (boot[1].decode(errors="replace"), int(boot[2])) if boot else (None, None))
    file = kernel.decode(data[:32])
    ticket = re.fullmatch(r"(\.seat\.|\.hold\.|\.new\.)0[0-9]{19}", file)
    same(tickets.is_ticket(file), bool(ticket))
    if ticket:
        same((tickets.get_number(file), tickets.is_published(file)), (int(file[-20:]), ticket[1] != ".new."))


def trip_gate(rng):
    filled, queue = fill_gate(make_gate(rng) if rng.random() < 0.8 else rng.randbytes(130)), get_queue()
    newest = number(rng, 10**15)
    queue.files = [f".seat.{newest:020d}"]
    counter, skips = filled.read_counter(), filled.read_skips()
    mode = rng.choice(MODES)
    before = filled.count_skip(mode)
    expected = [count + (other == mode) for other, count in zip(MODES, skips)]
    same((before, filled.read_counter()), (skips[MODES.index(mode)], counter))
    check_mirror(filled)
    if max(expected) < 10**19:
        same(filled.read_skips(), expected)
    taken = attempt(queue.take_number, rng.choice((tickets.SEAT, tickets.HOLD)), mode, may=SoloErrorOfPlace)
    if isinstance(taken, str):
        expect(int(taken) > max(newest, counter or 0) and tickets.is_ticket(".hold." + taken), taken)
        same(filled.read_counter(), int(taken) if int(taken) + 1 < gate.LARGEST else None)
        check_mirror(filled)


def check_mirror(filled):
    """Compare the cached text of the gate with the file."""
    remembered = filled.text
    filled.load()
    same(remembered, filled.text)


SoloErrorOfPlace = (SoloError, AttributeError)  # this queue has no path for the message

# --- /proc -------------------------------------------------------------------------------------------------------

STAT = re.compile(rb"(\S+) (-?\d+)(?: -?\d+){15} (\d+) -?\d+ (\d+)(?: [ -~]*)?\n?")


def make_stat(rng) -> bytes:
    return b"%d (%b) %c %d 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1000 100 1844 1\n" % (
        pid(rng),
        word(rng)[:15],
        rng.choice(b"RSDTZXtIx"),
        number(rng),
        rng.randrange(1, 9),
        number(rng, 1 << 63),
    )


def check_stat(data: bytes):
    stat = attempt(identity.parse_stat, data, may=(ValueError, IndexError))
    head, _, tail = data.rpartition(b")")
    begin, match = re.match(rb"(\d+) ", head), STAT.fullmatch(tail[1:])
    if begin and match:
        same(
            (stat.pid, stat.state, stat.parent, stat.threads, stat.start),
            (int(begin[1]), kernel.decode(match[1]), *map(int, match.groups()[1:])),
        )
    if isinstance(stat, identity.Stat):
        same(stat.is_dead(), stat.state in ("Z", "X", "x") and stat.threads <= 1)


def trip_stat(rng):
    me, state, parent, threads, start = (
        pid(rng),
        rng.choice("RSDTZXI"),
        number(rng),
        rng.randrange(1, 5),
        number(rng, 1 << 63),
    )
    stat = identity.parse_stat(
        b"%d (%b) %b %d 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1000 100 1844 1\n"
        % (me, word(rng) + word(rng), state.encode(), parent, threads, start)
    )
    same((stat.pid, stat.state, stat.parent, stat.threads, stat.start), (me, state, parent, threads, start))
    lives = state not in "ZX" or threads > 1
    same([stat.is_started(start + by, ORIGIN, ORIGIN) for by in (0, 1, -1)], [lives, False, False])


def make_status(rng, pids=(4711, 7), mask=0x1000, groups=None) -> bytes:
    """Make a status file like the kernel: in a process name it escapes only newline and backslash."""
    name = word(rng)[:15].replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    many = rng.choice((0, 3, 900)) if groups is None else groups
    return (
        b"Name:\t%b\nUmask:\t0027\nState:\tS (sleeping)\nTgid:\t5\nNgid:\t0\nPid:\t5\nPPid:\t1\nTracerPid:\t0\nUid:\t0\t0\t0\t0\n"
        b"Gid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t%b \nNStgid:\t%b\nNSpid:\t%b\nKthread:\t0\nThreads:\t1\nSigQ:\t0/1\n"
        b"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t%016x\nSigIgn:\t%016x\nSigCgt:\t%016x\nNoNewPrivs:\t0\n"
        % (
            name,
            b" ".join(b"%d" % (10000 + group) for group in range(many)),
            b"\t".join(b"%d" % one for one in pids),
            b"\t".join(b"%d" % one for one in pids),
            mask,
            mask,
            mask,
        )
    )


KERNELS = (ValueError, IndexError, KeyError)  # allowed for text that no kernel writes


def check_status(data: bytes):
    environ = SimpleNamespace(getppid=lambda: 1, readlink=lambda path: "/bin/sh", environ={})
    with reading(identity, data):
        attempt(identity.read_inner_pid, "5", may=KERNELS)
    with reading(owners, data):
        attempt(owners.may_signal, 0, 5, may=KERNELS)
    with reading(start, data, posix=environ):
        ignored = start.read_parents_ignored()
    same(type(ignored), int)
    with reading(systemd, data):
        attempt(systemd.notices, 5, 13, may=KERNELS)
    with reading(kernel, data):
        attempt(kernel.read_umask, may=KERNELS)


def trip_status(rng):
    pids, mask = (
        [pid(rng) for _ in range(rng.randrange(1, 4))],
        rng.choice((0, 0x1000, 0x1001000, 1 << 63, rng.getrandbits(64))),
    )
    data = make_status(rng, pids, mask)
    environ = SimpleNamespace(getppid=lambda: 1, readlink=lambda path: "/bin/sh", environ={})
    with reading(identity, data):
        same(identity.read_inner_pid("5"), pids[-1])
    with reading(owners, data.replace(b"\nUid:\t0\t0\t0\t0", b"\nUid:\t7\t8\t9\t8")):
        same([owners.may_signal(uid, 5) for uid in (7, 8, 9)], [True, False, True])
    with reading(start, data, posix=environ):
        same(start.read_parents_ignored(), mask)
    with reading(systemd, data):
        same([systemd.notices(5, signal) for signal in (1, 13, 64)], [bool(mask >> bit & 1) for bit in (0, 12, 63)])
    with reading(kernel, data):
        same(kernel.read_umask(), 0o27)


def make_offsets(rng) -> bytes:
    return b"monotonic  %10d %9d\nboottime   %10d %9d\n" % (
        number(rng),
        number(rng, 10**9),
        number(rng) - 5,
        number(rng, 10**9),
    )


def check_offsets(data: bytes):
    with reading(identity, data):
        shift = attempt(identity.read_shift, may=(*KERNELS, OverflowError))
    match = re.fullmatch(rb"monotonic +-?\d{1,9} +\d{1,9}\nboottime +(-?\d{1,9}) +(\d{1,9})\n", data)
    if match:
        ticks = os.sysconf("SC_CLK_TCK")
        expect(abs(shift - int(match[1]) * ticks - int(match[2]) * ticks / 1e9) <= 0.5 + 1e-6, shift)


def trip_offsets(rng):
    seconds, nanoseconds = number(rng) - 5, rng.choice((0, 500_000_000))
    with reading(identity, b"monotonic           0         0\nboottime   %10d %9d\n" % (seconds, nanoseconds)):
        same(identity.read_shift(), seconds * 100 + nanoseconds // 10_000_000)


UNITS = [
    b"cron.service",
    b"run-u1.scope",
    b"init.scope",
    b"user.slice",
    b"x y.service",
    b"a\x0b.service",
    b"\xff.scope",
    b"..service",
]


def make_group(rng) -> bytes:
    path = b"/".join(rng.choice((b"", *UNITS)) for _ in range(rng.randrange(1, 5)))
    return b"".join(
        rng.sample([b"12:cpu,memory:/x\n", b"1:name=systemd:/%b\n" % path, b"0::/%b\n" % path], rng.randrange(1, 4))
    )


def check_group(data: bytes):
    unit = systemd.find_unit(kernel.decode(data))
    lines = [line.split(b":", 2) for line in data.split(b"\n") if re.match(rb"0::|.*:name=systemd:", line, re.S)]
    found = [
        part for line in lines for part in reversed(line[2].split(b"/")) if re.search(rb"\.(service|scope)\Z", part)
    ]
    same(kernel.encode(unit), found[0] if found else b"")


def make_locks(rng) -> bytes:
    return b"".join(
        b"%d: %b%b  ADVISORY  %b %d %02x:%02x:%d 0 EOF\n"
        % (
            at,
            rng.choice((b"", b"-> ")),
            rng.choice((b"FLOCK", b"POSIX", b"OFDLCK")),
            rng.choice((b"WRITE", b"READ")),
            number(rng) - 1,
            0,
            rng.randrange(3),
            rng.randrange(3),
        )
        for at in range(rng.randrange(4))
    )


def check_locks(data: bytes):
    table = data.decode("latin-1")
    stat = SimpleNamespace(st_dev=1, st_ino=2)
    with swapped(watch, open=lambda path: StringIO(table), posix=SimpleNamespace(fstat=lambda fd: stat)):
        owner = watch.find_lock_owner(0)
    lines = re.findall(r"(?m)^\d+: FLOCK +ADVISORY +(?:WRITE|READ) +(-?\d{1,9}) 00:01:2 0 EOF$", table)
    expect(owner >= 0)
    if re.fullmatch(
        r"(?:\d+: (?:-> )?(?:FLOCK|POSIX|OFDLCK) +ADVISORY +(?:WRITE|READ) -?\d{1,9} \d\d:\d\d:\d+ 0 EOF\n)*",
        table,
        re.A,
    ):
        same(owner, max(0, int(lines[0])) if lines else 0)


def make_mounts(rng) -> bytes:
    lines = []
    for _ in range(rng.randrange(4)):
        point = b"/" + rng.choice(
            (b"", b"run", b"x y", b"\xc3\xa9", b"\xff", b"a\\b", b"\xc2\xa0", b"tab\t", b"\xe2\x80\xa8")
        )
        lines.append(b"none %b %b rw 0 0\n" % (escape_mount(point), rng.choice((b"tmpfs", b"nfs4"))))
    return b"".join(lines)


def escape_mount(point: bytes) -> bytes:
    """Escape like the kernel's seq_path."""
    return re.sub(rb"[ \t\n\\#]", lambda match: b"\\%03o" % match[0][0], point)


def find_mounted(data: bytes, path: bytes):
    with held_in_file(data) as file, swapped(doctor, read_lines=lambda _: read_lines(file)):
        return doctor.find_file_system(kernel.decode(path))


def check_mounts(data: bytes):
    found = attempt(find_mounted, data, b"/run/solo", may=KERNELS)
    expect(isinstance(found, ValueError) or len(found) == 2, found)


def trip_mounts(rng):
    point = b"/" + rng.choice(
        (b"srv", b"x y", b"\xc3\xa9", b"\xff\xfe", b"a\\b", b"\xc2\xa0", b"\xc2\x85", b"\xe2\x80\xa8")
    )
    data = make_mounts(rng) + b"none / ext4 rw 0 0\nnone %b nfs4 rw 0 0\n" % escape_mount(point)
    same(find_mounted(data, point + b"/inner"), ("nfs4", kernel.decode(point)))


read_lines = doctor.read_lines
shelf = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@contextmanager
def held_in_file(data: bytes):
    file = os.path.join(shelf.name, "text")
    with open(file, "wb") as output:
        output.write(data)
    os.chmod(file, 0o600)
    yield file


def make_environ(rng) -> bytes:
    pairs = [
        rng.choice((b"LC_CTYPE", b"LC_ALL", b"XLC_CTYPE", b"", b"A"))
        + b"="
        + rng.choice((word(rng), b"LC_CTYPE=x", b""))
        for _ in range(rng.randrange(5))
    ]
    return b"".join(pair + b"\0" for pair in pairs)


def check_environ(data: bytes):
    mine = {b"LC_CTYPE": b"C.UTF-8", b"": b"x", b"HOME": b"/"}
    with reading(launcher, data, posix=SimpleNamespace(environ=mine)):
        read = launcher.read_environment()
    inherited = [pair[len(b"LC_CTYPE=") :] for pair in data.split(b"\0") if pair.startswith(b"LC_CTYPE=")]
    same(read, {b"HOME": b"/", **({b"LC_CTYPE": inherited[0]} if inherited else {})})


# --- the command line --------------------------------------------------------------------------------------------

SHORTS = "".join(option.short + ":" * (option.kind != "flag") for option in LAUNCHER_OPTIONS if option.short)
LONGS = [option.flag + "=" * (option.kind != "flag") for option in LAUNCHER_OPTIONS]
BY_FLAG = {"--" + option.flag: option for option in LAUNCHER_OPTIONS} | {
    "-" + option.short: option for option in LAUNCHER_OPTIONS if option.short
}
DURATION = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|[smhd])")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATIONS = [
    "500ms",
    "30",
    "30s",
    "5m",
    "1h30m",
    "2d",
    "forever",
    "1m30",
    "1.5h",
    ".5",
    "5.",
    ".",
    "",
    "-1",
    "1e3",
    "ms",
    "1h 2m",
    "²",
    "9" * 400,
    "1mm",
    "1ms1m",
]


def find_seconds(text: str):
    """Return the seconds of a duration by an independent grammar, or None if it is invalid."""
    if text == "forever":
        return math.inf
    if re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.A):
        return float(text)
    if not text or DURATION.sub("", text):
        return None
    return sum(float(count) * SECONDS[unit] for count, unit in DURATION.findall(text))


def find_number(text: str, most: int, digits: int):
    return int(text) if re.fullmatch(r"[0-9]{1,%d}" % digits, text) and int(text) <= most else None


def find_value(kind: str, text: str):
    """Return the value of an option, or None if it is invalid."""
    if kind == "duration" or kind == "limit" and not text.isdigit():
        return find_seconds(text)
    if kind in ("count", "limit"):
        return find_number(text, 999999999, 9)
    return find_number(text, 255, 3) if kind == "status" else text or None


def find_exact(opt, longopts):
    """Replace getopt's function, which accepts abbreviated long options. solo does not."""
    if opt in longopts or opt + "=" in longopts:
        return opt + "=" in longopts, opt
    raise getopt.GetoptError(opt)


def parse_otherwise(words: list):
    """Return the result of argv.parse, computed with getopt of the standard library; None for UsageError."""
    try:
        with swapped(getopt, long_has_args=find_exact):
            pairs, rest = getopt.getopt(words, SHORTS, LONGS)
    except getopt.GetoptError:
        return None
    options = {}
    for flag, value in pairs:
        option = BY_FLAG[flag]
        value = True if option.kind == "flag" else find_value(option.kind, value)
        if value is None:
            return None
        if option.many:
            options.setdefault(option.key, []).append(value)
        else:
            options[option.key] = value
    ended = (
        len(words) > len(rest) and words[len(words) - len(rest) - 1] == "--" and is_end(words[: len(words) - len(rest)])
    )
    known = {subcommand.name for subcommand in SUBCOMMANDS}
    return options, rest[0] if rest and not ended and rest[0] in known else None, rest


def is_end(taken: list) -> bool:
    """Whether the last word, `--`, ends the options and is not the value of one."""
    try:
        with swapped(getopt, long_has_args=find_exact):
            return getopt.getopt(taken[:-1], SHORTS, LONGS)[1] == []
    except getopt.GetoptError:
        return False


def make_words(rng) -> bytes:
    typed = []
    for _ in range(rng.randrange(5)):
        option = rng.choice(LAUNCHER_OPTIONS)
        flag = f"-{option.short}" if option.short and rng.random() < 0.5 else f"--{option.flag}"
        value = rng.choice(
            DURATIONS if option.kind in ("duration", "limit") else ["0", "1", "255", "256", "", "--", "-q", "x=y", "a"]
        )
        joined = flag + ("=" if flag[:2] == "--" else "") + value
        typed += [flag] if option.kind == "flag" else rng.choice(([flag, value], [joined]))
    typed += rng.choice(
        ([], ["--"], ["-"], ["list"], ["--", "list", "-x"], ["true", "-n"], ["-qvs"], ["-qE9"], ["--wiat"], [""])
    )
    return "\0".join(typed).encode()


def check_words(data: bytes):
    typed = kernel.decode(data).split("\0")
    read = attempt(argv.parse, typed, may=UsageError)
    other = parse_otherwise(typed)
    if other is None:
        expect(isinstance(read, UsageError), "solo accepts words that getopt refuses", read)
        expect(len(say(str(read))) <= 200 + 12 * len(data))
        return
    if isinstance(read, UsageError) and (
        "--" in typed and "needs a value" in str(read) or "starts with two dashes" in str(read)
    ):
        return  # stricter than getopt: `--` is no value, and `-name` is not `-n ame`
    expect(not isinstance(read, UsageError), "solo refuses words that getopt accepts", read)
    same((list(read[0]), *read[1:]), (list(other[0]), *other[1:]))
    for key, value in read[0].items():
        expect(value == other[0][key] or math.isclose(value, other[0][key], rel_tol=1e-9), key, value)
    check_meaning(read[0])


def check_meaning(options: dict):
    """Compare exclusions and needs of the options with those computed from the option table alone."""
    refused = attempt(argv.check_together, options, may=UsageError)
    typed = {option.flag for option in LAUNCHER_OPTIONS if option.key in options}
    has = (typed - {"via"}) | ({"via"} if options.get("via", "file") not in ("file", "socket") else set())
    wrong = any(
        typed & set(option.excludes) or option.needs and not has & set(option.needs)
        for option in LAUNCHER_OPTIONS
        if option.flag in typed
    )
    same(isinstance(refused, UsageError), bool(wrong))
    for environment in ({}, {b"SOLO_VIA": b"socket", b"SOLO_DIR": b"/d\xff"}, {b"SOLO_VIA": b"", b"SOLO_DIR": b""}):
        read = {**options}
        refused = attempt(argv.read_variables, read, environment, may=UsageError)
        if refused is None:
            expect(all(read[key] is value for key, value in options.items()), "a variable overrides the command line")
            expect(read.get("via") != "socket" or not {"dir", "once_per"} & read.keys())
            added = {key: value for key, value in read.items() if key not in options}
            expect(added.items() <= {"via": "socket", "dir": "/d\udcff"}.items(), added)


def make_value(rng) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(DURATIONS).encode()
    return "".join(
        rng.choice(("0", "1", "59", ".", "ms", "s", "m", "h", "d", "_", " ", "٣")) for _ in range(rng.randrange(8))
    ).encode()


def check_value(data: bytes):
    typed = kernel.decode(data)
    for read, kind in ((argv.read_duration, "duration"), (argv.read_count, "count"), (argv.read_status, "status")):
        value, other = attempt(read, "-x", typed, may=UsageError), find_value(kind, typed)
        if other is None:
            expect(isinstance(value, UsageError), "an invalid value is accepted", kind, value)
        else:
            expect(value == other or math.isclose(value, other, rel_tol=1e-9), kind, value, other)
    parts = attempt(directories.split_name, typed, may=UsageError)
    bad = any(part[:1] in (b"", b".") or len(part) > 255 for part in data.split(b"/")) or data.count(b"/") > 63
    same(parts, parts if bad and isinstance(parts, UsageError) else typed.split("/") if not bad else "refused")


def trip_value(rng):
    seconds = rng.randrange(10 ** rng.randrange(1, 10))
    wording = describe.format_duration(seconds)
    read = argv.read_duration("-x", wording)
    expect(read <= seconds and (seconds - read) * 24 <= max(seconds, 24 * 3600 * (seconds >= 86400)) + 60 * 24, wording)
    same(argv.read_duration("-x", f"{seconds}ms"), seconds * 0.001)


def say(message: str) -> bytes:
    """Return the line that kernel.say writes to stderr."""
    lines = []
    with swapped(kernel, posix=SimpleNamespace(write=lambda fd, line: lines.append(line))):
        kernel.say(message)
    [line] = lines
    expect(line.endswith(b"\n") and line.count(b"\n") == 1 and line[:-1].decode().isprintable(), line)
    return line


def check_shown(data: bytes):
    plain = kernel.decode(data)
    same(kernel.encode(plain), data)
    expect(len(say(plain)) <= 7 + 10 * len(data))
    shown = width.clean(plain)
    expect(shown.isprintable() and len(shown) <= 10 * len(plain) and say(plain) == f"solo: {shown}\n".encode())
    room = len(data) % 17
    short = width.cut(shown, room)
    expect(
        width.measure(short) <= room
        and (short == shown or short == "" or short.endswith("…") and shown.startswith(short[:-1]))
    )
    expect(len(width.pad(short, room)) >= len(short) and width.measure(width.pad(short, room)) == room)
    expect(len(describe.cut_command(plain.split(" "))) <= describe.COMMAND_WIDTH)
    kept = engine.cut(plain.split(" "))
    expect(
        len(json.dumps(kept)) <= engine.COMMAND_LIMIT + 6 * engine.LAST_WORD + 40 and len(kept) <= data.count(b" ") + 1
    )
    same(etcd.unpack(etcd.pack(data)), data)


# --- the journals ------------------------------------------------------------------------------------------------

EVENT = re.compile(
    rb"(?:started|ended|skipped|refused) \d{1,10}\.\d{3} uid=\d{1,10} host=%b launcher=\d{1,10} mode=(?:X|S|IX|IS|C)"
    rb" slots=\d{1,9} take=\d{1,9}(?: name=%b)*"
    rb"((?: (?:start|waited|ran)=\d{1,10}\.\d{3}| (?:child|token|slot)=\d{1,19}| code=-?\d{1,3}| timed-out=[01]| lost=1| why=%b)*)"
    rb" command=%b(?: %b)*" % (5 * (WORD,)),
    re.A,
)
TOTAL = re.compile(
    rb"totals 0 runs=(\d{1,18}) skips=(\d{1,18}) failures=(\d{1,18}) last-success=(\d{1,10}\.\d{3}) last-failure=(\d{1,10}\.\d{3})"
)
NEEDED = {
    b"started": (b"start", b"child", b"token"),
    b"ended": (b"start", b"child", b"token", b"ran", b"code"),
    b"skipped": (b"code",),
    b"refused": (b"code",),
}


class Written(NamedTuple):
    """The lines that a journal wrote, and the record that they describe."""

    lines: list
    record: object


def write_journal(rng) -> Written:
    """Write the lines of a run, or of a run that did not start, by the launcher's own code."""
    one = invent_record(rng)
    one.names = one.names[:1] if rng.random() < 0.7 else one.names
    lines = []
    with swapped(
        journal,
        make_place=lambda *_: None,
        open_place=lambda *_: None,
        append=lambda place, line, may_rotate=True: lines.append(line),
    ):
        told = journal.Journal(one, None, lambda problem: expect(False, problem))
        if rng.random() < 0.3:
            told.refused(SoloError(text(rng) + "…"))
        else:
            hold = SimpleNamespace(record=one, number=number(rng, 1 << 60))
            run = SimpleNamespace(named={name: hold for name in one.names}, pid=pid(rng))
            told.started(run)
            if rng.random() < 0.7:
                run.code, run.outcome = rng.choice((0, 1, -9, 255)), rng.choice((None, 123, 124))
                told.ended(run)
    return Written(lines, one)


def make_journal(rng) -> bytes:
    lines = [line for _ in range(rng.randrange(3)) for line in write_journal(rng).lines]
    if rng.random() < 0.4:
        lines.insert(rng.randrange(len(lines) + 1), reader.format_totals(make_totals(rng)))
    return b"".join(lines)


def make_totals(rng):
    return reader.Totals(*(number(rng) for _ in range(3)), float(number(rng)), float(number(rng)))


def is_event(line: bytes) -> bool:
    """Whether solo may have written the line, by an independent grammar."""
    match = EVENT.fullmatch(line)
    details = match and match[1]
    return bool(
        match
        and ESCAPES.fullmatch(line)
        and all(b" " + key + b"=" in details for key in NEEDED[line.partition(b" ")[0]])
        and not re.search(rb" (start|waited|ran|child|code|token|slot|why|lost|timed-out)=.* \1=", details)
    )


def check_journal(data: bytes):
    totals, events = reader.parse("job", data)
    lines = data.split(b"\n")[:-1]
    whole, counts = [line for line in lines if is_event(line)], [line for line in lines if TOTAL.fullmatch(line)]
    expect(len(whole) <= len(events) <= len(lines), "events are lost or invented", len(whole), len(events))
    expect(not counts or totals is not None)
    if counts and not any(line.startswith(b"totals ") and not TOTAL.fullmatch(line) for line in lines):
        runs, skips, failures, success, failure = TOTAL.fullmatch(counts[-1]).groups()
        same(totals, reader.Totals(int(runs), int(skips), int(failures), float(success), float(failure)))
    for run in events:
        expect(
            run.event in NEEDED and run.mode in MODES and 0 <= run.time < record.LATEST and run.names and run.command
        )
        for key in NEEDED[run.event]:
            expect(getattr(run, key.decode()) is not None, key)
    start = replace(totals or reader.Totals())
    counted = reader.add_up(totals, events)
    same(
        (counted.runs, counted.skips, counted.failures),
        (
            start.runs + sum(run.event == b"started" for run in events),
            start.skips + sum(run.event == b"skipped" for run in events),
            start.failures
            + sum(
                run.event == b"refused" or run.event == b"ended" and bool(run.code or run.is_timed_out or run.is_lost)
                for run in events
            ),
        ),
    )
    runs = reader.History(events, counted).list_runs()
    expect(len(runs) <= len(events) and all(run in events for run in runs[:3]))


def trip_journal(rng):
    lines, one = write_journal(rng)
    totals, events = reader.parse(one.names[0], b"".join(lines))
    same((totals, len(events)), (None, len(lines)))
    run = events[-1]
    same(
        (run.uid, run.host, run.launcher, run.mode, run.command),
        (one.uid, one.origin.host, one.launcher[0], one.claim.mode, one.command),
    )
    same((run.slots, run.take, run.names), (one.claim.slots, one.claim.take, one.names))
    # Torn at the end: only the last line is lost.
    whole = b"".join(lines)
    cut = len(whole) - rng.randrange(1, len(lines[-1]))
    same(reader.parse(one.names[0], whole[:cut])[1], events[:-1])
    # Garbage between lines damages no other line.
    garbage = rng.randbytes(rng.randrange(30)).replace(b"\n", b"") + b"\n"
    same(reader.parse(one.names[0], lines[0] + garbage + whole)[1][-len(events) :], events)
    counts = make_totals(rng)
    same(
        reader.parse("", whole + reader.format_totals(counts) + reader.format_totals(counts)[: rng.randrange(20)])[0],
        counts,
    )


class Folder:
    """The directory of one journal, in /dev/shm if there is one."""

    def __init__(self):
        self.path = Path(shelf.name) / "journal"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(0o700)
        self.place = directories.Directory(os.open(self.path, os.O_RDONLY), str(self.path), 0o700, False)

    def fill(self, past, now):
        for file, data in ((reader.PAST, past), (journal_files.JOURNAL, now)):
            if data is None:
                (self.path / file).unlink(missing_ok=True)
            else:
                (self.path / file).write_bytes(data)
        return self.place


get_folder = cache(Folder)


def check_files(data: bytes):
    past, mark, now = data.partition(b"\n===\n")
    place = get_folder().fill(past + b"\n", now if mark else None)
    before = reader.read_history("job", place)
    totals, events = reader.parse("job", past + b"\n")
    expected = events + reader.parse("job", now if mark else b"")[1]
    same(before, reader.History(expected, reader.add_up(totals, expected)))
    if now.strip(b"\n"):
        rotate_and_compare(place, before, now)


def rotate_and_compare(place, before, now: bytes):
    """Rotate a full journal: no count changes, and only the events of PAST are forgotten."""
    is_told = now.rstrip(b"\n").rpartition(b"\n")[2].startswith(b"totals ")
    fd = os.open(get_folder().path / journal_files.JOURNAL, os.O_RDWR | os.O_APPEND)
    try:
        expect(rotation.rotate(place, fd))
    finally:
        os.close(fd)
    after = reader.read_history("job", place)
    events = reader.parse("job", now + b"\n")[1]
    expect(len(after.events) in (len(events), len(events) - 1), "events are lost")
    if not is_told and now.endswith(b"\n"):
        same(after.totals, before.totals)


def make_files(rng) -> bytes:
    return make_journal(rng) + b"===\n" + make_journal(rng)


def trip_files(rng):
    """Fill the disk at any byte of the line of totals: the next rotation counts the missed events."""
    past, now = make_journal(rng), write_journal(rng).lines[0]
    place = get_folder().fill(past, now)
    before = reader.read_history("job", place)
    fd = os.open(get_folder().path / journal_files.JOURNAL, os.O_RDWR | os.O_APPEND)
    room = rng.randrange(1, 60)
    full = SimpleNamespace(**{**vars(os), "write": lambda fd, line: os.write(fd, line[:room])})
    try:
        with swapped(rotation, posix=full):
            expect(not rotation.rotate(place, fd))
        same(reader.read_history("job", place).totals, before.totals)
        expect(rotation.rotate(place, fd))
    finally:
        os.close(fd)
    same(reader.read_history("job", place).totals, before.totals)


def make_ran(rng) -> bytes:
    return period.format_ran(period.LastRun(text(rng), float(number(rng))))


def check_ran(data: bytes):
    ran = period.parse_ran(data)
    if ran is None:
        expect(not re.fullmatch(rb'\["[a-z]*", (?:0|[1-9]\d{0,8})\.\d\]', data))
        return
    expect(isinstance(ran.host, str) and isinstance(ran.time, float) and math.isfinite(ran.time))
    same(period.parse_ran(period.format_ran(ran)), ran)
    for length in (0.001, 60.0, 1e9):
        expect(
            abs(period.find_period(ran.time, length) * length - ran.time) <= length * 0.5000001 + abs(ran.time) * 1e-9
        )


def trip_ran(rng):
    ran = period.LastRun(text(rng), number(rng) + rng.random())
    data = period.format_ran(ran)
    same(period.parse_ran(data), ran)
    same(period.parse_ran(data[: rng.randrange(len(data))]), None)


# --- sockets -----------------------------------------------------------------------------------------------------

LISTED = re.compile(rb"\S+\s+\S+\s+\S+\s+00010000\s+\S+\s+\S+\s+\S+\s+@solo/%d/(.*)/([^/]*)" % os.geteuid(), re.S)


def make_table(rng) -> bytes:
    lines = [b"Num       RefCount Protocol Flags    Type St Inode Path"]
    for _ in range(rng.randrange(4)):
        lines.append(
            b"ffff8881: 00000002 00000000 %b 0001 01 12345 %b"
            % (
                rng.choice((b"00010000", b"00010000", b"00000000")),
                rng.choice(
                    (
                        b"@solo/%d/%b/%b" % (os.geteuid(), record.quote(word(rng)), make_address(rng)),
                        b"@/tmp/x y",
                        b"/run/x",
                        b"@solo/9/x/y",
                    )
                ),
            )
        )
    return b"\n".join(lines) + b"\n"


def make_address(rng) -> bytes:
    claim = make_claim(rng)
    one = SimpleNamespace(claim=claim, slot=make_slot(rng, claim))
    kind, tree = rng.choice(("hold", "seat", "gate")), rng.choice(("-", "500"))
    return f"{kind}.{number(rng, 10**17)}.{sockets.format_claim(one)}..{tree}.{number(rng)}".encode()


def check_table(data: bytes):
    with swapped(sockets, read_table=lambda: data, READS=1):
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
    ticket = sockets.SocketTicket(queue, file, address, None)
    one = ticket.read_record()
    whole = re.fullmatch(
        r"(?:hold|seat)\.\d{1,18}\.((?:X|S|IX|IS)|C-(\d{1,9})-(\d{1,9})(?:-\d{1,9}-\d{1,9})*)\.[0-9a-f-]*\.(?:-|\d{1,9})\.\d{1,9}",
        address,
        re.A,
    )
    if one is not None:
        expect(one.claim.mode in MODES and 1 <= one.claim.take <= one.claim.slots, "an impossible claim", address)
        expect(all(0 <= first <= last for first, last in one.slot), "an impossible slot", address)
        same((one.child, one.launcher), (None, (0, 0)))
    else:
        sane = whole and (not whole[2] or 1 <= int(whole[3]) <= int(whole[2])) and whole[1].count("-") <= 2
        expect(not sane, "a valid address is not read", address)


def trip_table(rng):
    one = invent_record(rng)
    if rng.random() < 0.3:
        one.claim = Claim(rng.choice(("IX", "IS")))
    queue = sockets.SocketQueue(one.names[0], ORIGIN)
    with swapped(sockets, bind=lambda name, text: 0):
        ticket = queue.publish(rng.choice((tickets.SEAT, tickets.HOLD)), one)
    address = attempt(sockets.make_address, queue.name, ticket.text, may=SoloError)
    if isinstance(address, SoloError):
        return
    row = b"ffff8881: 00000002 00000000 00010000 0001 01 12345 @" + address[1:].replace(b"\0", b"@") + b"\n"
    with swapped(sockets, read_table=lambda: b"Num RefCount\n" + row, READS=1):
        same(queue.find_texts(), {ticket.file: ticket.text})
    read = sockets.SocketTicket(queue, ticket.file, ticket.text, None).read_record()
    slot = one.slot if one.claim.mode == COUNTED else []
    same(
        (read.claim.mode, read.claim.slots, read.claim.take, read.slot, read.tree),
        (one.claim.mode, one.claim.slots, one.claim.take, slot, one.tree),
    )
    expect(abs(read.since - one.since) < 1e-3)


def make_cmdline(rng) -> bytes:
    head = rng.choice(
        ([b"/usr/bin/solo"], [b"python3", b"-IS", b"/usr/local/bin/solo"], [b"python3", b"-m", b"solo"], [b"x"])
    )
    return b"".join(one + b"\0" for one in [*head, *make_words(rng).split(b"\0"), b"--", word(rng)])


def check_cmdline(data: bytes):
    with reading(sockets, data):
        command = sockets.read_command(5)
    words = data.split(b"\0")[:-1]
    same(command, words[len(words) - len(command) :])
    expect(command or not words)


def trip_cmdline(rng):
    typed, command = rng.choice(([], [b"-q"], [b"-n", b"solo"], [b"--name=x", b"-w", b"5"])), [word(rng), b"-x", b"--"]
    with reading(
        sockets, b"".join(one + b"\0" for one in [b"python3", b"-IS", b"/usr/bin/solo", *typed, b"--", *command])
    ):
        same(sockets.read_command(5), command)


def trip_report(rng):
    """Send reports with any name and message: the reader gets the last one unchanged."""
    pieces = []
    told = status_pipe.Report.__new__(status_pipe.Report)
    told.pipe = 5
    sent = [(text(rng), text(rng), text(rng) * rng.choice((1, 200))) for _ in range(rng.randrange(1, 3))]
    with swapped(status_pipe, posix=SimpleNamespace(write=lambda fd, data: pieces.append(data))):
        for kind, name, message in sent:
            told.send(kind, name, message)
    expect(all(len(piece) <= 4096 for piece in pieces), "a write to the pipe may not be atomic")
    kind, name, message = sent[-1]
    got = status_pipe.read_last(b"".join(pieces))
    same(got[:2], (kind, name))
    expect(
        message.encode("utf-8", "surrogateescape").startswith(got[2].encode("utf-8", "surrogateescape"))
        and bool(got[2]) == bool(message)
    )


def make_report(rng) -> bytes:
    return b"4 3 5\nBusyjobheld!" + b"7 0 0\nStarted" * rng.randrange(2)


def check_report(data: bytes):
    read = status_pipe.read_last(data)
    expect(read is None or len(read) == 3 and all(isinstance(part, str) for part in read))


# --- engines -----------------------------------------------------------------------------------------------------


def make_note(rng) -> bytes:
    claim = make_claim(rng)
    return invent_note(rng, claim).format()


def invent_note(rng, claim):
    slot = [list(pair) for pair in make_slot(rng, claim)]
    return engine.Note(
        claim, slot, text(rng), "root", number(rng), rng.choice((None, 5)), float(number(rng)), (text(rng), "-x")
    )


def list_note_fields(note) -> tuple:
    return note.claim.mode, note.claim.slots, note.claim.take, [tuple(pair) for pair in note.slot], *note[2:]


def check_note(data: bytes):
    note = engine.parse_note(data)
    expect(note.claim.mode in MODES and 1 <= note.claim.take <= note.claim.slots)
    expect(all(0 <= first <= last for first, last in note.slot))
    if note.launcher is None and not note.command:
        expect(note.claim.mode == EXCLUSIVE or b'"launcher": null' in data or b"null" in data)
    if note.since is not None:
        expect(0 <= note.since < record.LATEST)
        same(list_note_fields(engine.parse_note(note.format())), list_note_fields(note))


def trip_note(rng):
    note = invent_note(rng, make_claim(rng))
    data = note.format()
    same(list_note_fields(engine.parse_note(data)), list_note_fields(note))
    cut = engine.parse_note(data[: rng.randrange(len(data))])
    same(cut, engine.Note(cut.claim))
    same(cut.claim.mode, EXCLUSIVE)


SECRET = "S3cr3tXyz"


def make_url(rng) -> bytes:
    login = rng.choice(("", "", "u@", f"u:{SECRET}@", f":{SECRET}@", "u%40:@"))
    host = rng.choice(("h", "h1:2379,h2", "[::1]:5", "[::1]", "h:0", "h:65536", "h:x", "", "a b", "%2Frun"))
    query = rng.choice(
        (
            "",
            "",
            "?table=x",
            f"?password={SECRET}",
            f"?sslpassword={SECRET}&a=b",
            f"?pass%77ord={SECRET}",
            "?a",
            f"?PASSWORD={SECRET}",
            "?=&=",
        )
    )
    return f"{rng.choice(tuple(targets.ENGINES))}://{login}{host}{rng.choice(('', '/', '/a/b', '/%20/', '/a%2fb'))}{query}".encode()


HOST = r"[a-z0-9.]{1,20}(?::\d{1,4})?"
PLAIN_URL = re.compile(rf"({'|'.join(targets.ENGINES)})://(?:([a-z]+)@)?({HOST}(?:,{HOST})*)(/[a-z/]*)?", re.A)


def check_url(data: bytes):
    url = kernel.decode(data)
    target = attempt(targets.parse_url, url, may=UsageError)
    if isinstance(target, UsageError):
        plain = PLAIN_URL.fullmatch(url)
        expect(not plain or re.search(r":0+(?:,|\Z)", plain[3]), "a plain URL is refused", target)
        return
    expect(
        target.scheme in targets.ENGINES
        and target.hosts
        and all(host and 0 < port < 1 << 16 for host, port in target.hosts)
    )
    expect(target.path == target.path.strip("/") and target.shown.isprintable())
    secrets = [target.password or "", *(value for key, value in target.settings.items() if "password" in key)]
    if url.count(SECRET) == 1 and any(SECRET in secret for secret in secrets):
        expect(SECRET not in target.shown, "a secret is shown", target.shown)
    expect(
        target.password is not None or not re.match(rf"[a-z]+://[a-z]*:{SECRET}@[a-z]", url),
        "a password is not recognized",
    )
    if target.password is not None or any("password" in key for key in target.settings):
        refused = attempt(targets.find_target, url, may=UsageError)
        expect(isinstance(refused, UsageError) or "://" not in url)
    plain = PLAIN_URL.fullmatch(url)
    if plain:
        port = targets.ENGINES[plain[1]].port
        hosts = [
            (host, int(digits) if colon else port)
            for one in plain[3].split(",")
            for host, colon, digits in [one.partition(":")]
        ]
        same(
            (target.hosts, target.path, target.user, target.password, target.settings),
            (hosts, (plain[4] or "").strip("/"), plain[2], None, {}),
        )


def make_toml(rng) -> bytes:
    tables = []
    for name in rng.sample(("prod", "test", "a b"), rng.randrange(3)):
        keys = [
            f'url = "{make_url(rng).decode()}"',
            f'password = "{SECRET}"',
            'user = "u"',
            'cafile = "/x"',
            "port = 5",
            'x = "y"',
        ]
        tables.append(f'[via."{name}"]\n' + "\n".join([keys[0], *rng.sample(keys[1:], rng.choice((0, 0, 1, 2)))]))
    return "\n".join([*rng.choice(([], ["x = 1"], ["via = 5"], ["a = [[1], {}]"])), *tables]).encode() + b"\n"


def check_toml(data: bytes):
    with held_in_file(data) as path:
        read = attempt(targets.read_configuration, path, may=SoloError)
    if isinstance(read, SoloError):
        expect(
            not isinstance(read, UsageError)
            and (data.count(SECRET.encode()) != 1 or b"password =" not in data or SECRET not in str(read)),
            "a secret is shown",
            read,
        )
        return
    for name, target in read.items():
        expect(isinstance(name, str) and isinstance(target, targets.Target) and target.hosts)
        expect(all(value is None or isinstance(value, str) for value in target[5:]))


def trip_toml(rng):
    url = "etcd://h1,h2:5/x"
    data = f'# a comment\n[via.prod]\nurl = "{url}"\nuser = "u"\npassword = "{SECRET}"\n'
    with held_in_file(data.encode()) as path:
        [(name, target)] = targets.read_configuration(path).items()
        same((name, target), ("prod", targets.parse_url(url)._replace(user="u", password=SECRET)))
        os.chmod(path, rng.choice((0o644, 0o660, 0o602)))
        refused = attempt(targets.read_configuration, path, may=SoloError)
    expect(isinstance(refused, SoloError) and SECRET not in str(refused))


ANSWERED = (SoloError, engine.Gone, *engine.INVALID_ANSWER)


class Answers:
    """Replaces the connection to etcd: every request gets the same answer."""

    def __init__(self, data: bytes):
        head, _, self.body = data.partition(b"\n")
        status, _, date = head.decode("latin-1").partition(" ")
        self.status = int(status) if status in ("400", "404", "503") else 200
        self.headers = {"Date": date}
        self.sock = SimpleNamespace(deadline=0)
        self.lines = self.body.split(b"\n")

    def request(self, *_):
        pass

    def getresponse(self):
        return self

    def read(self, size):
        return self.body[:size]

    def readline(self, size):
        return self.lines.pop(0)[:size] if self.lines else b""

    def close(self):
        pass


def open_etcd(data: bytes):
    one = etcd.Etcd(targets.parse_url("etcd://h"), 15, 1)
    one.open = lambda at, deadline: Answers(data)
    one.lease = "255"
    return one


def make_kv(name: bytes, lease: int, revision: int, value: bytes) -> dict:
    return {
        "key": etcd.pack(b"solo/%b/%x" % (name, lease)),
        "create_revision": str(revision),
        "mod_revision": str(revision),
        "value": etcd.pack(value),
    }


def make_answer(rng) -> bytes:
    kvs = [
        make_kv(rng.choice((b"job", b"job/x")), number(rng), number(rng), make_note(rng))
        for _ in range(rng.randrange(3))
    ]
    known = rng.choice(
        (
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
    )
    date = rng.choice(("", "Sun, 22 Nov 2026 02:56:42 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "x"))
    return f"200 {date}\n".encode() + json.dumps(known).replace("1e+308", "1e999").encode()


def check_answer(data: bytes):
    one = open_etcd(data)
    asked = len(data) % 5
    if asked == 0:
        entries = attempt(one.read_queue, "job", may=ANSWERED)
        if isinstance(entries, list):
            expect(all(entry.name == "job" and isinstance(entry.number, int) for entry in entries))
    elif asked == 1:
        outcome = attempt(one.renew, may=ANSWERED)
        expect(outcome is None or isinstance(outcome, (str, Exception)))
    elif asked == 2:
        ran = attempt(one.read_once, "job", may=ANSWERED)
        expect(ran is None or isinstance(ran, (period.LastRun, Exception)))
    elif asked == 3:
        expect(isinstance(attempt(one.wait_change, "job", None, 0.0, may=(*ANSWERED, OSError)), (bool, Exception)))
    else:
        expect(isinstance(attempt(one.list_entries, may=ANSWERED), (list, Exception)))


def trip_answer(rng):
    note = invent_note(rng, make_claim(rng))
    numbers = sorted(rng.sample(range(1, 1000), 3))
    kvs = [
        make_kv(b"job", 255, numbers[0], note.format()),
        make_kv(b"job/inner", 9, numbers[1], b""),
        make_kv(b"job", 17, numbers[2], b"\xff"),
    ]
    entries = open_etcd(b"200 \n" + json.dumps({"header": {"revision": "9"}, "kvs": kvs}).encode()).read_queue("job")
    same([(entry.key, entry.number) for entry in entries], [("solo/job/ff", numbers[0]), ("solo/job/11", numbers[2])])
    same(list_note_fields(entries[0].record), list_note_fields(note))
    same(entries[1].record, engine.Note(entries[1].record.claim))


class Wire:
    """Replaces a connection: returns the bytes in pieces, then ends."""

    def __init__(self, data: bytes, size: int = 7):
        self.data, self.size = data, size

    def settimeout(self, seconds):
        pass

    def sendall(self, data):
        pass

    def recv(self, size):
        piece, self.data = self.data[: self.size], self.data[self.size :]
        return piece

    def close(self):
        self.data = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def frame(xid: int, error: int, body: bytes) -> bytes:
    message = struct.pack("!iqi", xid, 5, error) + body
    return struct.pack("!i", len(message)) + message


def pack_text(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def make_stat_of_znode(created: int, owner: int) -> bytes:
    return struct.pack("!qqqqiiiqiiq", created, created, 0, 0, 0, 0, 0, owner, 0, 0, created)


def make_frames(rng) -> bytes:
    children = [b"%x" % number(rng) for _ in range(rng.randrange(3))]
    frames = [
        frame(
            1,
            rng.choice((0, 0, 0, -101, -4, -112)),
            struct.pack("!i", len(children)) + b"".join(map(pack_text, children)),
        )
    ]
    frames += [
        frame(2 + at, rng.choice((0, 0, -101)), pack_text(make_note(rng)) + make_stat_of_znode(number(rng), 5))
        for at in range(len(children))
    ]
    if rng.random() < 0.3:
        frames.insert(0, frame(-1, 0, struct.pack("!ii", 1, 3) + pack_text(b"/solo/job")))
    return b"".join(frames)


def open_zookeeper(data: bytes):
    from solo.engines.zookeeper.engine import ZooKeeper

    one = ZooKeeper(targets.parse_url("zookeeper://h"), 15, 1)
    one.session.open = lambda deadline: Wire(data)
    one.session.socket, one.session.number = Wire(data), 1
    return one


def check_frames(data: bytes):
    one = open_zookeeper(data)
    asked = len(data) % 4
    if asked == 0:
        entries = attempt(one.read_queue, "job", may=ANSWERED)
        expect(isinstance(entries, Exception) or all(isinstance(entry.number, int) for entry in entries))
    elif asked == 1:
        attempt(one.session.connect, may=ANSWERED)
        expect(one.session.ttl > 0)
    elif asked == 2:
        attempt(one.session.wait_event, math.inf, may=ANSWERED)
    else:
        version = one.read_version()
        expect(version.startswith("ZooKeeper "))


def trip_frames(rng):
    note, created = invent_note(rng, make_claim(rng)), number(rng, 1 << 62)
    data = frame(1, 0, struct.pack("!i", 1) + pack_text(b"ff")) + frame(
        2, 0, pack_text(note.format()) + make_stat_of_znode(created, 255)
    )
    one = open_zookeeper(data)
    one.session.socket.size = rng.choice((1, 7, 1000))
    [entry] = one.read_queue("job")
    same((entry.key, entry.number, list_note_fields(entry.record)), ("/solo/job/ff", created, list_note_fields(note)))
    one = open_zookeeper(data[: rng.randrange(len(data))])
    expect(
        isinstance(attempt(one.read_queue, "job", may=(SoloError, engine.Gone)), Exception), "a torn answer is accepted"
    )


def make_hash(rng) -> bytes:
    return b"\x1e".join(
        b"\x1f".join((b"solo:{%b}" % word(rng), b"%x" % number(rng), b"%d %b" % (number(rng), make_note(rng))))
        for _ in range(rng.randrange(3))
    )


@cache
def open_redis():
    from solo.engines import redis

    return redis.Redis(targets.parse_url("redis://h"), 15, 1)


def check_hash(data: bytes):
    from solo.engines import redis

    found = [row.split(b"\x1f") for row in data.split(b"\x1e")] if data else []
    entries = attempt(redis.make_entries, found, may=engine.INVALID_ANSWER)
    if isinstance(entries, list):
        expect(
            len(entries) == len(found)
            and [entry.number for entry in entries] == sorted(entry.number for entry in entries)
        )
    one = open_redis()
    one.call = lambda *words: data
    attempt(one.connect, may=ANSWERED)
    expect(isinstance(attempt(one.renew, may=ANSWERED), (str, type(None), Exception)))
    expect(isinstance(attempt(one.read_once, "job", may=ANSWERED), (period.LastRun, type(None), Exception)))


def trip_hash(rng):
    from solo.engines import redis

    name, note, count = word(rng), invent_note(rng, make_claim(rng)), number(rng)
    [entry] = redis.make_entries([[redis.make_key(kernel.decode(name)), b"0a", b"%d %b" % (count, note.format())]])
    same(
        (entry.name, entry.number, list_note_fields(entry.record)), (kernel.decode(name), count, list_note_fields(note))
    )


def open_postgresql(rng, name: str):
    from solo.engines.postgresql.session import PostgresSession

    one = PostgresSession.__new__(PostgresSession)
    claim = rng.choice((Claim("X"), Claim("S"), Claim("C", 5, 2)))
    note = invent_note(rng, claim)
    one.entries = {name: engine.Entry(name, f"{name}/5", number(rng), note, True)}
    one.wanted = None
    one.link = SimpleNamespace(skew=0.0)
    return one


def make_query(rng) -> bytes:
    return (open_postgresql(rng, "job").make_comment() + "select 1").encode()


def check_query(data: bytes):
    from solo.engines.postgresql import link, session, table

    query = link.decode(data)
    for name, (position, is_held, note) in session.parse_comment(query).items():
        expect(isinstance(name, str) and isinstance(position, int) and isinstance(is_held, bool))
        expect(1 <= note.claim.take <= note.claim.slots)
    key = str(link.make_key("job"))
    entry = session.read_entry(None, "5", key, "ExclusiveLock", "t", query, query[:40])
    expect(entry is None or entry.name == "job", entry)
    entry = session.read_entry("job", "5", key, "ShareLock", "f", query, None)
    expect(entry is not None and entry.name == "job" and not entry.is_held, "a lock of this name is not seen")
    [row] = table.PostgresTable.make_entries(
        SimpleNamespace(name="t", link=SimpleNamespace(skew=0.0)), [["5", "job", "me", query, "1"]]
    )
    same((row.number, row.key), (5, "t/job/me"))


def trip_query(rng):
    from solo.engines.postgresql import link, session

    name = rng.choice(("job", "é", "a*/b", "x'\"\\", "{}"))
    one = open_postgresql(rng, name)
    query = one.make_comment() + "select 1"
    entry = session.read_entry(None, "5", str(link.make_key(name)), "ShareLock", "t", query, "solo h:5")
    mine = one.entries[name]
    same(
        (entry.name, entry.number, entry.is_held, list_note_fields(entry.record)[:-1]),
        (name, mine.number, True, list_note_fields(mine.record)[:-1]),
    )
    cut = session.read_entry(
        name, "5", str(link.make_key(name)), "ExclusiveLock", "t", query[: rng.randrange(60)], "solo h:5"
    )
    same((cut.name, cut.record.claim.mode), (name, EXCLUSIVE))


TARGETS = {
    target.name: target
    for target in (
        Target(
            "record",
            "record.parse_record record.parse_names record.parse_tree record.parse_claim record.parse_range record.parse_since record.parse_closing"
            " record.parse_process",
            lambda rng: write_record(invent_record(rng)),
            check_record,
            trip_record,
            (
                b"launcher ",
                b"child ",
                b"end\n",
                b"mode C\n",
                b"solo 1\n",
                b" " * 47 + b"\n",
                b"slot ",
                b"%20",
                *NUMBERS,
            ),
            5,
        ),
        Target(
            "quoted",
            "record.unquote",
            lambda rng: record.quote(word(rng) + word(rng)),
            check_quoted,
            None,
            (b"%", b"%2", b"%20", b"%+5", b"% 5", b"%GG"),
            16,
        ),
        Target(
            "gate",
            "gate.Gate.load gate.Gate.read_counter gate.Gate.read_skips gate.Gate.read_boot gate.read_line gate.is_number tickets.is_ticket tickets.get_number",
            make_gate,
            check_gate,
            trip_gate,
            (b"0" * 20, b"09999999999999999999\n", b"9" * 20, b".seat.", b".hold.", b".new."),
            6,
        ),
        Target(
            "stat",
            "identity.parse_stat",
            make_stat,
            check_stat,
            trip_stat,
            (b") Z 1", b" (", b")", b"\n", *NUMBERS),
            16,
        ),
        Target(
            "status",
            "identity.read_inner_pid process.owners.may_signal start.read_parents_ignored process.systemd.notices kernel.read_umask",
            make_status,
            check_status,
            trip_status,
            (b"NSpid:", b"SigIgn:", b"Groups:", b"\x0b", b"\r", b"\n"),
            3,
        ),
        Target(
            "offsets",
            "identity.read_shift",
            make_offsets,
            check_offsets,
            trip_offsets,
            (b"boottime ", b"\n", *NUMBERS),
            8,
        ),
        Target(
            "cgroup",
            "process.systemd.find_unit",
            make_group,
            check_group,
            None,
            (b"0::", b":name=systemd:", b".service", b".scope", b"/"),
            10,
        ),
        Target(
            "locks",
            "process.watch.find_lock_owner",
            make_locks,
            check_locks,
            None,
            (b"FLOCK", b"-> ", b"00:01:2", *NUMBERS),
            3,
        ),
        Target(
            "mounts",
            "commands.doctor.find_file_system commands.doctor.read_lines",
            make_mounts,
            check_mounts,
            trip_mounts,
            (b"\\040", b"\\x", b"/run", b" nfs4 "),
            0.5,
        ),
        Target("environ", "launcher.read_environment", make_environ, check_environ, None, (b"LC_CTYPE=", b"\0"), 12),
        Target(
            "words",
            "argv.parse argv.parse_long argv.parse_letters argv.take_word argv.store argv.read_variables argv.read_variable argv.check_together",
            make_words,
            check_words,
            None,
            tuple(b"--%b" % option.flag.encode() for option in LAUNCHER_OPTIONS) + (b"\0", b"=", b"-qn", b"--"),
            2,
        ),
        Target(
            "value",
            "argv.read_duration argv.read_count argv.read_status directories.split_name",
            make_value,
            check_value,
            trip_value,
            (b"ms", b"forever", b"1h", b".", b"/", *NUMBERS),
            16,
        ),
        Target(
            "shown",
            "text.width.clean text.width.cut kernel.decode kernel.say text.describe.cut_command engines.engine.cut engines.etcd.unpack",
            lambda rng: word(rng) + word(rng),
            check_shown,
            None,
            (b"\x1b[2J", "漢".encode(), "é́".encode(), "\u202e".encode(), b"\xed\xa0\x80", b"\r"),
            6,
        ),
        Target(
            "journal",
            "history.reader.parse history.reader.parse_event history.reader.parse_optional history.reader.parse_int history.reader.parse_time history.reader.parse_totals",
            make_journal,
            check_journal,
            trip_journal,
            (b"totals 0 ", b" command=", b" name=", b"code=", b"started ", b"\n", *NUMBERS),
            2,
        ),
        Target(
            "journals",
            "history.reader.read_history history.reader.read_both history.reader.read_journal history.rotation.rotate",
            make_files,
            check_files,
            trip_files,
            (b"===\n", b"totals 0 runs=1", b"\n"),
            0.2,
        ),
        Target(
            "ran",
            "contention.period.parse_ran",
            make_ran,
            check_ran,
            trip_ran,
            (b"[", b'"', b"NaN", b"Infinity", b"null", *NUMBERS),
            10,
        ),
        Target(
            "sockets",
            "contention.sockets.list_addresses contention.sockets.SocketQueue.find_texts contention.sockets.parse_claim contention.sockets.make_record",
            make_table,
            check_table,
            trip_table,
            (
                b"@solo/%d/job/hold." % os.geteuid(),
                b"00010000",
                b"C-5-2-0-1",
                b"C-0-0",
                b"C-2-5",
                b".X..-.0",
                b"hold.5.",
                *NUMBERS,
            ),
            3,
        ),
        Target(
            "cmdline",
            "contention.sockets.read_command",
            make_cmdline,
            check_cmdline,
            trip_cmdline,
            (b"solo\0", b"\0--\0", b"-n\0"),
            3,
        ),
        Target(
            "report",
            "api.status_pipe.read_last",
            make_report,
            check_report,
            trip_report,
            (b"0 0 0\n", b"\n", b" ", *NUMBERS),
            10,
        ),
        Target(
            "note",
            "engines.engine.parse_note engines.engine.read_optional",
            make_note,
            check_note,
            trip_note,
            (b'"slot": [[0, 1]]', b'"mode": "C"', b"null", b"Infinity", b"NaN", b"[[[[", *NUMBERS),
            8,
        ),
        Target(
            "url",
            "engines.targets.parse_url engines.targets.split_host engines.targets.hide_secrets engines.targets.has_secret",
            make_url,
            check_url,
            None,
            (b"://", b"@", SECRET.encode(), b"password=", b"%70assword=", b"[::1]", b"?", b"etcd://"),
            3,
        ),
        Target(
            "toml",
            "engines.targets.read_configuration engines.targets.load_toml engines.targets.make_target",
            make_toml,
            check_toml,
            trip_toml,
            (b"[via.x]\n", b'url = "etcd://h"\n', b"password = ", b"[" * 50, b"'''"),
            0.5,
        ),
        Target(
            "etcd",
            "engines.etcd.Etcd.ask engines.etcd.read_error engines.etcd.Etcd.read_queue engines.etcd.Etcd.read_entries engines.etcd.Etcd.read_once engines.etcd.Etcd.renew engines.etcd.Etcd.wait_change",
            make_answer,
            check_answer,
            trip_answer,
            (b'"error"', b'"kvs"', b'"result"', b"1e999", b"null", b"[]", b"Infinity", *NUMBERS),
            1,
        ),
        Target(
            "zookeeper",
            "engines.zookeeper.session.Session.receive engines.zookeeper.session.Session.read_answer engines.zookeeper.session.Session.read engines.zookeeper.engine.ZooKeeper.read_queue"
            " engines.zookeeper.engine.ZooKeeper.read_note engines.zookeeper.engine.ZooKeeper.read_version",
            make_frames,
            check_frames,
            trip_frames,
            (b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"version: "),
            1,
        ),
        Target(
            "redis",
            "engines.redis.make_entries engines.redis.Redis.connect engines.redis.Redis.read_clock engines.redis.Redis.read_queue engines.redis.Redis.read_once",
            make_hash,
            check_hash,
            trip_hash,
            (b"redis_mode:cluster\n", b"role:slave", b"solo:{", *NUMBERS),
            1,
        ),
        Target(
            "postgresql",
            "engines.postgresql.session.parse_comment engines.postgresql.session.read_entry engines.postgresql.link.decode engines.postgresql.table.PostgresTable.make_entries",
            make_query,
            check_query,
            trip_query,
            (b"/*solo ", b'"names"', b"*/", b"null", b"1e999", b"[[[[", *NUMBERS),
            1,
        ),
    )
}

UNREAD = {
    "only selects a reader": ""
    "tickets.Ticket.read_record contention.evict.read_record obstacles.read_claim contention.sockets.SocketTicket.read_record"
    " commands.show.read_skips commands.cli.read_typed api.lock.read_options identity.read_stat identity.read_self process.tree.read_all"
    " contention.period.LocalStore.read_once gate.Gate.read_unlocked"
    " contention.period.LocalStore.write_once engines.acquire.EngineHold.read_once engines.engine.Engine.read_once engines.zookeeper.engine.ZooKeeper.read_once"
    " engines.zookeeper.engine.ZooKeeper.read_once_with_version engines.postgresql.table.PostgresTable.read_once engines.postgresql.table.PostgresTable.read_queue engines.queue.OrderedEngine.read_queue"
    " engines.postgresql.session.PostgresSession.read_once process.systemd.signals_whole_unit",
    "passes bytes on unread": "kernel.read_file contention.sockets.read_table journal.append api.lock.identify",
    "reads one word that only the kernel writes": ""
    "identity.read_origin identity.read_namespace tickets.read_boot_time process.watch.count_runnable"
    " supervise.has_systemd_signalled_all engines.engine.read_boot_clock command.make_name",
    "only searches for a word": "supervise.find_locked contention.flocks.refuse_own_lock",
    "reads a process name or the first line of a script, which kernel.say cleans": "contention.flocks.describe_locker start.find_interpreter",
    "reads text that this process has just written": "commands.history.make_cells commands.history.read_time commands.list.format_age"
    " commands.metrics.run commands.metrics.collect_samples text.tables.format_json generate.bundle.split generate.bundle.read_recorded"
    " api.lock.make_holder engines.postgresql.session.PostgresSession.make_comment",
    "reads columns of solo's own queries, cast by the server": ""
    "engines.postgresql.session.PostgresSession.read_lanes engines.postgresql.session.PostgresSession.read_obstacles"
    " engines.postgresql.table.PostgresTable.read_rows",
    "reads no outside data": "contention.protocols.Ticket.read_record api.blocking.Deferred.receive commands.top.Screen.receive commands.clean.clean_all commands.prune.clean"
    " process.prctl.load_prctl engines.network.make_tls",
}
