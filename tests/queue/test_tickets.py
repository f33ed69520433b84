"""Damaged and foreign files in the directory of a name, and full file systems: solo does the right
thing or fails in one line.

It never lets two commands overlap, and never hangs.
"""

import os
import re
import socket
from pathlib import Path

import pytest
from conftest import STEPPED, count_injected, finish, inject, kill, reboot, until, wait_dead

from solo.gate import BOOT_AT, DIGITS, LARGEST_NUMBER

GARBAGE = [
    b"",
    b"\0",
    b"garbage",
    b"\xff" * 5000,
    b"solo 1\n",
    (b"9" * 20 + b"\n") * 3,
    b"x" * 3_000_000,
    b"\n" * 100,
]


def runs_or_fails_in_one_line(result):
    assert result.returncode in (0, 125), result.stderr
    assert result.stderr.count(b"\n") == (result.returncode == 125)
    assert b"bug" not in result.stderr
    return result.returncode == 0


def run_beside(lab, **options):
    return lab.run("-n", "job", "--", "sh", "-c", "echo ran >>$LAB/log", **options)


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_gate_neither_blocks_nor_frees_a_name(lab, data):
    lab.run("-n", "job", "true")
    (lab.directory / "job/.gate").write_bytes(data)

    assert lab.run("-n", "job", "true").returncode == 0
    (lab.directory / "job/.gate").write_bytes(data)
    holder = lab.hold("job")
    (lab.directory / "job/.gate").write_bytes(data)
    assert run_beside(lab).returncode == 75
    finish(holder)


@pytest.mark.parametrize(
    "data", [b"99999999999999999999\n", b"09999999999999999999\n", b"00000000000000000001\n"]
)
@pytest.mark.parametrize("seat", [None, ".seat.09999999999999999999", ".seat.99999999999999999999"])
def test_wrong_counter_hides_no_ticket(lab, data, seat):
    lab.hold("job/inner")
    (lab.directory / "job/.gate").write_bytes(data)
    if seat:
        (lab.directory / "job" / seat).write_bytes(b"")

    assert lab.run("-n", "job/other", "true").returncode == 0

    assert run_beside(lab).returncode == 75
    assert lab.read_log() == []


def test_number_of_a_live_ticket_is_not_used_again(lab):
    """The counter is too low, and the next ticket cannot have a number above that of the last
    one.
    """
    counter = 5 * 10**17
    holders = [lab.hold("job", "--shared") for _ in range(2)]
    for ticket, number in zip(
        list((lab.directory / "job").glob(".hold.*")), (counter + 1, LARGEST_NUMBER)
    ):
        ticket.rename(ticket.with_name(f".hold.{number:0{DIGITS}d}"))
    (lab.directory / "job/.gate").write_bytes(b"%0*d\n" % (DIGITS, counter))

    holders.append(lab.hold("job", "--shared"))

    assert [row["state"] for row in lab.list()] == ["held"] * 3
    for holder in holders:
        finish(holder)


@pytest.mark.root
@pytest.mark.tool("strace")
def test_ticket_that_vanishes_before_its_owner_is_known_is_an_error(lab):
    """Opening a ticket that is a link fails; then its owner is asked for."""
    lab.directory.mkdir()
    lab.directory.chmod(0o1777)
    lab.run("-n", "job", "true")
    ticket = ".hold.00000000000000000001"
    (lab.directory / "job" / ticket).symlink_to("/dev/null")

    result = run_beside(lab, prefix=inject(lab, "newfstatat:error=ENOENT", paths=[ticket]))

    reason = (
        f"solo: job: cannot read {lab.directory}/job/{ticket}: Too many levels of symbolic links\n"
    )
    assert (result.returncode, result.stderr.decode(), lab.read_log()) == (
        125,
        reason,
        [],
    ) and count_injected(lab)


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_record_frees_no_held_name(lab, data):
    holder = lab.hold("job")
    ticket = lab.find_hold("job")
    ticket.write_bytes(data)

    result = run_beside(lab)

    assert (result.returncode, lab.read_log()) == (75, [])
    assert result.stderr.count(b"\n") == 1
    assert lab.list()[0]["state"] == "held"
    assert finish(holder)[0] == 0
    assert run_beside(lab).returncode == 0


@pytest.mark.host
@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_record_of_an_orphan_is_an_error(lab, data):
    holder = lab.orphan("job")
    ticket = lab.find_hold("job")
    record = ticket.read_bytes()
    ticket.write_bytes(data)

    result = run_beside(lab)

    assert (result.returncode, lab.read_log()) == (125, [])
    assert result.stderr.count(b"\n") == 1 and str(ticket).encode() in result.stderr
    listing = lab.run("list")
    assert (listing.returncode, listing.stderr.count(b"\n")) == (125, 1)
    shown = lab.run("show", "job")
    assert shown.returncode == 125 and b"job: no locks readable: " in shown.stdout
    ticket.write_bytes(record)
    assert run_beside(lab).returncode == 75
    holder.stdin.close()
    wait_dead(holder.child)
    assert run_beside(lab).returncode == 0


# fmt: off
IMPOSSIBLE = [
    (rb"since \S+", b"since inf"), (rb"since \S+", b"since nan"), (rb"since \S+", b"since -1"),
    (b"mode C", b"mode Q"), (b"take 1", b"take 0"), (b"take 1", b"take 3"), (b"slot 0-0", b"slot 3-1"),
    (b"child", b"chill"), (b"\nend", b"\nEnd"), (b"launcher ", b"launcher -"), (b"launcher ", b"launcher 9999999999"),
]
# fmt: on


@pytest.mark.parametrize("old, new", IMPOSSIBLE)
def test_impossible_value_in_a_record_is_damage(lab, old, new):
    lab.hold("job", "--slots", "2")
    ticket = lab.find_hold("job")
    data, count = re.subn(old, new, ticket.read_bytes(), count=1)
    ticket.write_bytes(data)

    result = lab.run("-n", "job", "--slots", "2", "true")

    assert (count, result.returncode) == (1, 75) and lab.list()[0]["state"] == "held"
    assert result.stderr == b"solo: job: busy: held (its record cannot be read)\n"


@pytest.mark.tool("strace")
def test_unreadable_record_is_one_line_and_125(lab):
    lab.hold("job")
    ticket = lab.find_hold("job")

    result = lab.run(
        "-n", "job", "--", "echo", "ran", prefix=inject(lab, "pread64:error=EIO", paths=[ticket])
    )

    assert (result.returncode, result.stdout) == (125, b"")
    assert result.stderr.decode() == f"solo: job: cannot read {ticket}: Input/output error\n"


@pytest.mark.parametrize("words", ["-n job -- true", "hold --for 1h job"])
def test_limit_of_file_sizes_is_named(lab, words):
    result = lab.run(*words.split(), prefix=("sh", "-c", 'ulimit -f 0; exec "$@"', "sh"))

    remedy = "raise RLIMIT_FSIZE: ulimit -f, or LimitFSIZE= of a unit; without a file: --via socket, in every run of the name"
    error = f"solo: job: cannot write in {lab.directory}/job: File too large ({remedy})\n"
    assert (result.returncode, result.stderr.decode()) == (125, error)


@pytest.mark.tool("strace")
def test_skip_that_cannot_be_counted_is_still_a_skip(lab):
    lab.hold("job")
    lab.run("-n", "job", "true")
    full = inject(lab, "pwrite64:error=ENOSPC", paths=[lab.directory / "job/.gate"])

    result = lab.run("-n", "job", "true", prefix=full)

    assert (
        result.returncode == 75 and b"skip" not in result.stderr and result.stderr.count(b"\n") == 1
    )
    assert count_injected(lab) and b"1 skip" in lab.run("-n", "job", "true").stderr


@pytest.mark.root
@pytest.mark.tool("unshare", "mount", "faketime")
@pytest.mark.parametrize("gate", ["whole", "damaged"])
def test_torn_record_from_before_the_boot_is_removed(lab, gate):
    lab.run("-n", "job", "true")
    if gate == "damaged":
        (lab.directory / "job/.gate").write_bytes(b"\0" * 200)
    (lab.directory / "job/.hold.00000000000000000001").write_bytes(b"\0" * 200)

    assert lab.run("-n", "job", "true").returncode == 125
    assert lab.run("-n", "job", "true", prefix=reboot(lab)).returncode == 0
    assert [path.name for path in (lab.directory / "job").iterdir()] == [".gate"]


@pytest.mark.host
@pytest.mark.tool("faketime")
def test_damaged_record_of_orphan_frees_nothing_after_clock_step(lab):
    """By the clock the orphan's ticket is older than the boot. The gate proves that it is not."""
    lab.run("-n", "job", "true")
    holder = lab.orphan("job")
    ticket = lab.find_hold("job")
    record = ticket.read_bytes()
    ticket.write_bytes(b"garbage")

    results = [
        lab.run(*words, prefix=STEPPED)
        for words in (["-n", "job", "true"], ["list"], ["wait", "job"])
    ]

    assert [result.returncode for result in results] == [125] * 3
    assert all(b"damaged" in result.stderr for result in results)
    ticket.write_bytes(record)
    holder.stdin.close()


@pytest.mark.host
@pytest.mark.tool("faketime")
def test_gate_of_older_solo_frees_nothing_after_clock_step(lab):
    """The first ticket after an update does not prove that the tickets before it are from an
    earlier boot.
    """
    holder = lab.hold("job", "--shared")
    gate = lab.directory / "job/.gate"
    gate.write_bytes(gate.read_bytes()[:BOOT_AT])
    assert lab.run("-n", "job", "--shared", "true").returncode == 0
    kill(holder)
    ticket = lab.find_hold("job")
    record = ticket.read_bytes()
    ticket.write_bytes(b"garbage")

    assert lab.run("-n", "job", "true", prefix=STEPPED).returncode == 125

    ticket.write_bytes(record)
    holder.stdin.close()


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_damaged_ticket_of_a_dead_waiter_is_removed(lab, data):
    lab.run("-n", "job", "true")
    (lab.directory / "job/.seat.00000000000000000001").write_bytes(data)

    assert run_beside(lab).returncode == 0
    assert lab.count_waiting("job") == 0


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(path.parent)
        bound.bind(path.name)
        os.chdir(here)


FOREIGN = {  # what is no regular file
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path: path.symlink_to("/nonexistent"),
    "pipe": os.mkfifo,
    "socket": bind_socket,
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize(
    "file", [".gate", *(f".{kind}.{1:020d}" for kind in ("new", "hold", "seat"))]
)
def test_foreign_file_in_the_place_of_a_ticket_is_ignored_or_one_line(lab, file, kind):
    lab.run("-n", "job", "true")
    path = lab.directory / "job" / file
    path.unlink(missing_ok=True)
    FOREIGN[kind](path)

    ran = runs_or_fails_in_one_line(run_beside(lab))

    assert lab.read_log() == ["ran"] * ran
    assert open("/etc/passwd").read().startswith("root:")


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind != "directory"])
@pytest.mark.parametrize("name", ["job", "outer/job"])
def test_foreign_file_in_the_place_of_a_name_is_refused(lab, name, kind):
    lab.run("-n", "outer/x", "true")
    FOREIGN[kind](lab.directory / name)

    result = lab.run("-n", name, "true")

    assert (result.returncode, result.stderr.count(b"\n")) == (125, 1)


def test_files_that_are_no_tickets_are_kept(lab):
    lab.run("-n", "job", "true")
    others = [
        ".hold.x",
        ".hold.1",
        ".seat.",
        "README",
        ".hold.000000000000000000010",
        ".hold.0000000000000000000²",
    ]
    for file in others:
        (lab.directory / "job" / file).write_text("mine")

    assert run_beside(lab).returncode == 0
    assert {file.name for file in (lab.directory / "job").iterdir()} == {".gate", *others}


def test_order_and_tokens_survive_a_counter_set_back(lab):
    """As after a restore from a backup. Two waiters must not wait for each other."""
    holder = lab.hold("job")
    first = lab.start_waiter("job", tag="first")
    held = lab.list("job")[0]["ticket"]
    (lab.directory / "job/.gate").write_bytes(b"00000000000000000001\n")
    second = lab.start_waiter("job", tag="second")
    (lab.directory / "job/.gate").write_bytes(b"00000000000000000001\n")
    third = lab.start("-w", "forever", "-n", "job", "--", "sh", "-c", "echo $SOLO_TOKEN")
    until(lambda: lab.count_waiting("job") == 3)
    (lab.directory / "job/.gate").write_bytes(b"00000000000000000001\n")

    holder.communicate()

    assert [finish(first)[0], finish(second)[0]] == [0, 0] and lab.read_log() == ["first", "second"]
    assert int(finish(third)[1]) > held
