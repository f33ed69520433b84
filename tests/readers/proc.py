"""Files of /proc: stat, status and mounts."""

import re
from operator import attrgetter
from types import SimpleNamespace

from readers import some
from readers.target import (
    KERNELS,
    NUMBERS,
    ORIGIN,
    attempt,
    expect,
    fuzzed,
    put_into_file,
    read_from,
    same,
    swapped,
)
from solo import identity, kernel, start
from solo.commands.doctor import checks
from solo.process import owners

STAT_LINE = b"%d (%b) %b %d 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1000 100 1844 1\n"
STAT = re.compile(rb"(\S+) (-?\d+)(?: -?\d+){15} (\d+) -?\d+ (\d+)(?: [ -~]*)?\n?")
list_stat_fields = attrgetter("pid", "state", "parent", "threads", "start")


def invent_stat(rng) -> tuple:
    return (
        some.pid(rng),
        rng.choice("RSDTZXtIx"),
        some.number(rng),
        rng.randrange(1, 9),
        some.number(rng, 1 << 63),
    )


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
        same(
            list_stat_fields(stat),
            (int(begin[1]), kernel.decode(match[1]), *map(int, match.groups()[1:])),
        )
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
    """Make a status file like the kernel: in a process name it escapes only newline and
    backslash.
    """
    name = some.word(rng)[:15].replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    many = rng.choice((0, 3, 900)) if groups is None else groups
    groups, pids = (
        b" ".join(b"%d" % (10000 + at) for at in range(many)),
        b"\t".join(b"%d" % one for one in pids),
    )
    return STATUS % {b"name": name, b"groups": groups, b"pids": pids, b"mask": mask}


def read_ignored(data: bytes) -> int:
    parent = SimpleNamespace(getppid=lambda: 1, readlink=lambda path: b"/bin/sh", environ={})
    return read_from(data, start.read_parents_ignored, posix=parent)


@fuzzed(3, b"NSpid:|SigIgn:|Groups:|\x0b|\r|\n")
def check_status(data: bytes):
    attempt(read_from, data, identity.read_inner_pid, "5", may=KERNELS)
    attempt(read_from, data, owners.may_signal, 0, 5, may=KERNELS)
    attempt(read_from, data, identity.read_status, 5, b"SigCgt:", may=KERNELS)
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
    same([int(word, 16) for word in read_from(data, identity.read_status, 5, b"SigCgt:")], [mask])
    same(read_from(data, kernel.read_umask), 0o27)


POINTS = b"|run|x y|\xc3\xa9|\xff|a\\b|\xc2\xa0|tab\t|\xe2\x80\xa8".split(b"|")
DEEP_POINTS = b"srv|x y|\xc3\xa9|\xff\xfe|a\\b|\xc2\xa0|\xc2\x85|\xe2\x80\xa8".split(b"|")


def write_mount(point: bytes, kind: bytes) -> bytes:
    """Write a line of the table, escaped like the kernel's seq_path."""
    escaped = re.sub(rb"[ \t\n\\#]", lambda match: b"\\%03o" % match[0][0], b"/" + point)
    return b"none %b %b rw 0 0\n" % (escaped, kind)


def make_mounts(rng) -> bytes:
    return b"".join(
        write_mount(rng.choice(POINTS), rng.choice((b"tmpfs", b"nfs4")))
        for _ in range(rng.randrange(4))
    )


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
