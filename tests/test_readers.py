"""The readers of outside data: each is fed a sample of the inputs of `make fuzz`, and old findings stay fixed."""

import ast
import json
import os
import signal
import subprocess
import sys
from random import Random, SystemRandom

import fuzz
import pytest
from conftest import ROOT
from readers import TARGETS, engines, journals, proc, urls
from readers.target import attempt, put_into_file, read_from

from solo import identity, kinds, record
from solo.commands import checks
from solo.contention import sockets
from solo.engines import engine, targets
from solo.errors import SoloError, UsageError
from solo.process import systemd

SEED = int(os.environ.get("SOLO_SEED", SystemRandom().randrange(1 << 32)))
SHARE = 100  # inputs for each share of a target


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_hangs_or_misleads(name):
    result = fuzz.run(TARGETS[name], SEED, max(30, int(SHARE * TARGETS[name].share)))

    assert "why" not in result, f"SOLO_SEED={SEED}: --replay {name} {json.dumps(result['input'])}\n{result['why']}"


@pytest.mark.parametrize("line", (ROOT / "tests/corpus.txt").read_text().splitlines())
def test_an_old_finding_stays_fixed(line):
    name, _, data = line.partition(" ")
    fuzz.try_input(TARGETS[name], ast.literal_eval(data))


# --- findings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1m30", "1h30", "2d12", "5m.", ".", "1h30m5"])
def test_a_duration_needs_a_unit_after_each_number(text):
    with pytest.raises(UsageError):
        kinds.read_duration("-t", text)


@pytest.mark.parametrize("name", [b"\x0bNSpid: 7", b"\x0cNSpid:7", b"\rUmask: 777", b"a\xc2\x85b"])
def test_a_process_name_is_no_line_of_its_status(name):
    data = proc.make_status(Random(1), (4711, 12), 0x1000, 0).replace(b"Name:\t", b"Name:\t" + name)

    assert read_from(data, identity.read_inner_pid, "5") == 12
    noticed = [read_from(data, systemd.notices, 5, number) for number in (signal.SIGPIPE, signal.SIGTERM)]
    assert noticed == [True, False]


@pytest.mark.root
def test_a_process_with_many_groups_is_found_in_its_namespace():
    code = (
        "import os; from solo.identity import read_inner_pid; os.setgroups(range(1, 3000));"
        "print(read_inner_pid('self') == os.getpid())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout == "True\n", done.stderr


def test_ignored_signals_are_read_from_a_parent_with_many_groups_and_any_name():
    many_groups = proc.make_status(Random(1), (5,), 0x1000, 900)
    any_name = proc.make_status(Random(1), (5,), 0x1000, 0).replace(b"\t", b"\tSigIgn:1", 1)

    assert [proc.read_ignored(data) for data in (many_groups, any_name)] == [0x1000, 0x1000]


@pytest.mark.parametrize("torn", [b"a%2", b"%+5", b"% 5"])
def test_a_torn_escape_is_invalid(torn):
    with pytest.raises(ValueError):
        record.unquote(torn)


def test_totals_torn_by_a_full_disk_are_written_again():
    for seed in range(20):
        journals.trip_journals(Random(seed))


@pytest.mark.parametrize("key", ["password", "pass%77ord", "sslp%61ssword"])
def test_a_secret_is_hidden_for_every_spelling_of_its_key(key):
    target = targets.parse_url(f"postgresql://h/?{key}={urls.SECRET}")

    assert targets.has_secret(target) and urls.SECRET not in target.shown


def test_a_deeply_nested_configuration_is_refused_in_one_line():
    with pytest.raises(SoloError, match="text"):
        targets.read_configuration(put_into_file(b"a = " + b"[" * 4000))


def test_an_infinite_number_in_an_answer_is_invalid():
    answer = b'200 \n{"header": {"revision": 1e999}}'

    assert isinstance(attempt(engines.open_etcd(answer).read_queue, "job", may=engine.INVALID_ANSWER), OverflowError)


@pytest.mark.parametrize("claim", ["C-0-0", "C-2-5", "C-5-2-1", "C-5-2-3-1", "C-5"])
def test_an_impossible_claim_in_an_address_is_invalid(claim):
    with pytest.raises(ValueError):
        sockets.parse_claim(claim)


@pytest.mark.parametrize("point", ["é", "a b", "\u2028", "\xa0", "\udcff", "back\\slash"])
def test_a_mount_with_any_name_is_found(point):
    data = proc.write_mount(b"", b"ext4") + proc.write_mount(os.fsencode(point), b"nfs4")

    assert proc.find_mounted(data, os.fsencode(f"/{point}/x")) == ("nfs4", "/" + point)
    assert checks.find_file_system("/proc")[0] == "proc"
