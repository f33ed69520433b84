"""Files of /proc: stat, status, timens_offsets, cgroup, locks, mounts and environ."""

import os
import re
from io import StringIO
from operator import attrgetter
from types import SimpleNamespace

from readers import some
from readers.target import KERNELS, NUMBERS, ORIGIN, attempt, expect, fuzzed, put_into_file, read_from, same, swapped
from solo import identity, kernel, launcher, start
from solo.commands import checks
from solo.process import owners, systemd, watch

STAT_LINE = b"%d (%b) %b %d 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1000 100 1844 1\n"
STAT = re.compile(rb"(\S+) (-?\d+)(?: -?\d+){15} (\d+) -?\d+ (\d+)(?: [ -~]*)?\n?")
list_stat_fields = attrgetter("pid", "state", "parent", "threads", "start")


def invent_stat(rng) -> tuple:
    return some.pid(rng), rng.choice("RSDTZXtIx"), some.number(rng), rng.randrange(1, 9), some.number(rng, 1 << 63)


def write_stat(name: bytes, me: int, state: str, *rest: int) -> bytes:
    return STAT_LINE % (me, name, state.encode(), *rest)


def make_stat(rng) -> bytes:
    return write_stat(some.word(rng)[:15], *invent_stat(rng))


@fuzzed(16, b") Z 1| (|)|\n|" + NUMBERS)
def check_stat(data: bytes):
    stat = attempt(identity.parse_stat, data, may=(ValueError, IndexError))
    head, _, tail = data.rpartition(b")")
    begin, match = re.match(rb"(\d+) ", head), STAT.fullmatch(tail[1:])
    if begin and match:
        same(list_stat_fields(stat), (int(begin[1]), kernel.decode(match[1]), *map(int, match.groups()[1:])))
    if isinstance(stat, identity.Stat):
        same(stat.is_dead(), stat.state in ("Z", "X", "x") and stat.threads <= 1)


def trip_stat(rng):
    fields = _, state, _, threads, start = invent_stat(rng)
    stat = identity.parse_stat(write_stat(some.word(rng) + some.word(rng), *fields))
    same(list_stat_fields(stat), fields)
    lives = state not in "ZXx" or threads > 1
    same([stat.is_same(start + by, ORIGIN, ORIGIN) for by in (0, 1, -1)], [lives, False, False])


STATUS = b"""Name:\t%(name)b\nUmask:\t0027\nState:\tS (sleeping)\nTgid:\t5\nNgid:\t0\nPid:\t5\nPPid:\t1\nTracerPid:\t0
Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t64\nGroups:\t%(groups)b \nNStgid:\t%(pids)b\nNSpid:\t%(pids)b
Kthread:\t0\nThreads:\t1\nSigQ:\t0/1\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000
SigBlk:\t%(mask)016x\nSigIgn:\t%(mask)016x\nSigCgt:\t%(mask)016x\nNoNewPrivs:\t0
"""


def make_status(rng, pids=(4711, 7), mask=0x1000, groups=None) -> bytes:
    """Make a status file like the kernel: in a process name it escapes only newline and backslash."""
    name = some.word(rng)[:15].replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    many = rng.choice((0, 3, 900)) if groups is None else groups
    groups, pids = b" ".join(b"%d" % (10000 + at) for at in range(many)), b"\t".join(b"%d" % one for one in pids)
    return STATUS % {b"name": name, b"groups": groups, b"pids": pids, b"mask": mask}


def read_ignored(data: bytes) -> int:
    parent = SimpleNamespace(getppid=lambda: 1, readlink=lambda path: b"/bin/sh", environ={})
    return read_from(data, start.read_parents_ignored, posix=parent)


@fuzzed(3, b"NSpid:|SigIgn:|Groups:|\x0b|\r|\n")
def check_status(data: bytes):
    attempt(read_from, data, identity.read_inner_pid, "5", may=KERNELS)
    attempt(read_from, data, owners.may_signal, 0, 5, may=KERNELS)
    attempt(read_from, data, systemd.notices, 5, 13, may=KERNELS)
    attempt(read_from, data, kernel.read_umask, may=KERNELS)
    same(type(read_ignored(data)), int)


def trip_status(rng):
    pids = some.many(rng, some.pid, 1, 4)
    mask = rng.choice((0, 0x1000, 0x1001000, 1 << 63, rng.getrandbits(64)))
    data = make_status(rng, pids, mask)
    same(read_from(data, identity.read_inner_pid, "5"), pids[-1])
    owned = data.replace(b"\nUid:\t0\t0\t0\t0", b"\nUid:\t7\t8\t9\t8")
    same([read_from(owned, owners.may_signal, uid, 5) for uid in (7, 8, 9)], [True, False, True])
    same(read_ignored(data), mask & 0x1001000)
    noticed = [read_from(data, systemd.notices, 5, signal) for signal in (1, 13, 64)]
    same(noticed, [bool(mask >> bit & 1) for bit in (0, 12, 63)])
    same(read_from(data, kernel.read_umask), 0o27)


OFFSETS = b"monotonic  %10d %9d\nboottime   %10d %9d\n"


def make_offsets(rng) -> bytes:
    return OFFSETS % (some.number(rng), some.number(rng, 10**9), some.number(rng) - 5, some.number(rng, 10**9))


@fuzzed(8, b"boottime |\n|" + NUMBERS)
def check_offsets(data: bytes):
    shift = attempt(read_from, data, identity.read_shift, may=(*KERNELS, OverflowError))
    match = re.fullmatch(rb"monotonic +-?\d{1,9} +\d{1,9}\nboottime +(-?\d{1,9}) +(\d{1,9})\n", data)
    if match:
        ticks = os.sysconf("SC_CLK_TCK")
        expect(abs(shift - int(match[1]) * ticks - int(match[2]) * ticks / 1e9) <= 0.5 + 1e-6, shift)


def trip_offsets(rng):
    seconds, nanoseconds = some.number(rng) - 5, rng.choice((0, 500_000_000))
    shift = read_from(OFFSETS % (0, 0, seconds, nanoseconds), identity.read_shift)
    same(shift, seconds * 100 + nanoseconds // 10_000_000)


UNITS = b"|cron.service|run-u1.scope|init.scope|user.slice|x y.service|a\x0b.service|\xff.scope|..service".split(b"|")


def make_cgroup(rng) -> bytes:
    path = b"/".join(rng.choice(UNITS) for _ in range(rng.randrange(1, 5)))
    lines = [b"12:cpu,memory:/x\n", b"1:name=systemd:/%b\n" % path, b"0::/%b\n" % path]
    return b"".join(rng.sample(lines, rng.randrange(1, 4)))


@fuzzed(10, b"0::|:name=systemd:|.service|.scope|/")
def check_cgroup(data: bytes):
    unit = systemd.find_unit(kernel.decode(data))
    lines = [line.split(b":", 2) for line in data.split(b"\n") if re.match(rb"0::|.*:name=systemd:", line, re.S)]
    parts = [part for line in lines for part in reversed(line[2].split(b"/"))]
    found = [part for part in parts if re.search(rb"\.(service|scope)\Z", part)]
    same(kernel.encode(unit), found[0] if found else b"")


def make_lock(rng) -> bytes:
    kinds = rng.choice((b"", b"-> ")), rng.choice((b"FLOCK", b"POSIX", b"OFDLCK")), rng.choice((b"WRITE", b"READ"))
    owner = some.number(rng) - 1
    return b"1: %b%b  ADVISORY  %b %d 00:%02x:%d 0 EOF\n" % (*kinds, owner, rng.randrange(3), rng.randrange(3))


def make_locks(rng) -> bytes:
    return b"".join(some.many(rng, make_lock, 4))


@fuzzed(3, b"FLOCK|-> |00:01:2|" + NUMBERS)
def check_locks(data: bytes):
    table = data.decode("latin-1")
    stat = SimpleNamespace(st_dev=1, st_ino=2)
    with swapped(watch, open=lambda path: StringIO(table), posix=SimpleNamespace(fstat=lambda fd: stat)):
        owner = watch.find_lock_owner(0)
    expect(owner >= 0)
    line = r"\d+: (?:-> )?(?:FLOCK|POSIX|OFDLCK) +ADVISORY +(?:WRITE|READ) -?\d{1,9} \d\d:\d\d:\d+ 0 EOF\n"
    if re.fullmatch(f"(?:{line})*", table, re.A):
        holders = re.findall(r"(?m)^\d+: FLOCK +ADVISORY +(?:WRITE|READ) +(-?\d{1,9}) 00:01:2 0 EOF$", table)
        same(owner, max(0, int(holders[0])) if holders else 0)


POINTS = b"|run|x y|\xc3\xa9|\xff|a\\b|\xc2\xa0|tab\t|\xe2\x80\xa8".split(b"|")
DEEP_POINTS = b"srv|x y|\xc3\xa9|\xff\xfe|a\\b|\xc2\xa0|\xc2\x85|\xe2\x80\xa8".split(b"|")


def write_mount(point: bytes, kind: bytes) -> bytes:
    """Write a line of the table, escaped like the kernel's seq_path."""
    escaped = re.sub(rb"[ \t\n\\#]", lambda match: b"\\%03o" % match[0][0], b"/" + point)
    return b"none %b %b rw 0 0\n" % (escaped, kind)


def make_mounts(rng) -> bytes:
    return b"".join(write_mount(rng.choice(POINTS), rng.choice((b"tmpfs", b"nfs4"))) for _ in range(rng.randrange(4)))


def find_mounted(data: bytes, path: bytes):
    file, read_lines = put_into_file(data), checks.read_lines
    with swapped(checks, read_lines=lambda _: read_lines(file)):
        return checks.find_file_system(kernel.decode(path))


@fuzzed(0.5, b"\\040|\\x|/run| nfs4 ")
def check_mounts(data: bytes):
    found = attempt(find_mounted, data, b"/run/solo", may=KERNELS)
    expect(isinstance(found, ValueError) or len(found) == 2, found)


def trip_mounts(rng):
    point = rng.choice(DEEP_POINTS)
    data = make_mounts(rng) + write_mount(b"", b"ext4") + write_mount(point, b"nfs4")
    same(find_mounted(data, b"/%b/inner" % point), ("nfs4", kernel.decode(b"/" + point)))


def make_variable(rng) -> bytes:
    name = rng.choice(b"LC_CTYPE|LC_ALL|XLC_CTYPE||A".split(b"|"))
    return b"%b=%b\0" % (name, rng.choice((some.word(rng), b"LC_CTYPE=x", b"")))


def make_environ(rng) -> bytes:
    return b"".join(some.many(rng, make_variable, 5))


@fuzzed(12, b"LC_CTYPE=|\0")
def check_environ(data: bytes):
    own = {b"LC_CTYPE": b"C.UTF-8", b"": b"x", b"HOME": b"/"}
    read = read_from(data, launcher.read_environment, posix=SimpleNamespace(environ=own))
    inherited = [pair[len(b"LC_CTYPE=") :] for pair in data.split(b"\0") if pair.startswith(b"LC_CTYPE=")]
    same(read, {b"HOME": b"/", **({b"LC_CTYPE": inherited[0]} if inherited else {})})
