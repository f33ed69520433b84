"""A sample of `make fuzz`: every reader of outside data has a target, old findings stay fixed, broken readers are found."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from random import Random, SystemRandom

import fuzz
import pytest
from conftest import ROOT
from readers import READ, TARGETS, UNREAD, engines, journals, proc, records, urls
from readers.sockets import OURS, check_sockets
from readers.target import attempt, put_into_file, read_from

import solo
from solo import argv, identity, record
from solo.api import status_pipe
from solo.commands import doctor
from solo.contention import sockets
from solo.engines import engine, targets
from solo.errors import SoloError, UsageError
from solo.gate import Gate
from solo.history import reader
from solo.process import systemd

SEED = int(os.environ.get("SOLO_SEED", SystemRandom().randrange(1 << 32)))
SHARE = 500  # inputs for each share of a target: 8 s of CPU in all
READER = re.compile(r"_*(parse|read|unquote|unpack|decode|load|split|clean|cut|receive)(_|$)")
SIGNS = {"read_file", "pread", "recv", "loads", "splitlines", "parse_qsl", "fromisoformat", "readlink", "readline"}


def sample(name: str, seed: int) -> dict:
    target = TARGETS[name]
    return fuzz.run_plain(target, seed, max(150, int(SHARE * target.share)))


# --- the tables --------------------------------------------------------------------------------------------------


def find_readers():
    """Yield the names of functions with a reader's name or a call of a reading function."""
    for path in (ROOT / "solo").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "solo").with_suffix("").parts)
        yield from (f"{module}.{name}" for name in list_readers(ast.parse(path.read_text()), ""))


def list_readers(node, within: str):
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield from list_readers(inner, f"{within}{inner.name}.")
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            called = {
                getattr(call.func, "attr", getattr(call.func, "id", ""))
                for call in ast.walk(inner)
                if isinstance(call, ast.Call)
            }
            if READER.match(inner.name) or called & SIGNS:
                yield within + inner.name


def test_every_reader_has_a_target_or_a_reason():
    fuzzed = {reader for readers in READ.values() for reader in readers.split()}
    excused = {reader for readers in UNREAD.values() for reader in readers.split()}
    found = set(find_readers())

    assert READ.keys() == TARGETS.keys()
    assert found - fuzzed - excused == set()
    assert (excused - found, fuzzed & excused) == (set(), set())


def test_every_reader_in_the_table_exists():
    for name in " ".join(READ.values()).split():
        words = name.split(".")
        parts = next(
            at for at in range(len(words), 0, -1) if (ROOT / "solo" / "/".join(words[:at])).with_suffix(".py").exists()
        )
        found = __import__(".".join(["solo", *words[:parts]]), fromlist=["x"])
        for attribute in words[parts:]:
            found = getattr(found, attribute)


# --- the sample --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_hangs_or_misleads(name):
    result = sample(name, SEED)

    assert "why" not in result, f"SOLO_SEED={SEED}: --replay {name} {json.dumps(result['input'])}\n{result['why']}"


@pytest.mark.parametrize("line", (ROOT / "tests/corpus.txt").read_text().splitlines())
def test_an_old_finding_stays_fixed(line):
    name, _, data = line.partition(" ")
    fuzz.try_input(TARGETS[name], ast.literal_eval(data))


def test_a_finding_is_printed_with_its_replay_and_fails_the_run(tmp_path):
    options = "--engine plain --seed 1 --count 400 stat report".split()
    words = [sys.executable, str(ROOT / "tests/fuzz.py"), *options]
    broken = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom solo import identity\n"
        "whole = identity.parse_stat\n"
        "identity.parse_stat = lambda data: whole(data.replace(b')', b'(', data.count(b')') - 1)[:-9])\n"
    )

    clean = subprocess.run(words, capture_output=True, text=True)
    found = subprocess.run(words, capture_output=True, text=True, env=broken)

    assert (clean.returncode, found.returncode) == (0, 1), clean.stdout + clean.stderr + found.stderr
    assert "no crash, no hang, no wrong answer" in clean.stdout and "SEED=1" in clean.stdout
    assert "--replay stat " in found.stdout and "1 found" in found.stdout


def test_record_writes_the_json_and_the_page(tmp_path, monkeypatch):
    page = tmp_path / "evidence.md"
    page.write_text("before\n<!-- fuzz -->old<!-- end -->\nafter\n")
    monkeypatch.setattr(fuzz, "RECORD", tmp_path / "docs/fuzz.json")
    monkeypatch.setattr(fuzz, "EVIDENCE", page)
    results = [{"target": "stat", "inputs": 2_000_000, "seconds": 3}]

    fuzz.record(fuzz.describe(results, 5, "plain"))

    assert json.loads(fuzz.RECORD.read_text())["targets"]["stat"]["inputs"] == 2_000_000
    assert page.read_text().startswith("before\n<!-- fuzz -->\n2,000,000 inputs for 1 readers (stat): no crash")
    assert page.read_text().endswith("<!-- end -->\nafter\n")


# --- broken readers are found ------------------------------------------------------------------------------------------


def cut_at_the_first_bracket(data):
    fields = data[data.index(b")") + 2 :].split()
    return identity.Stat(
        int(data[: data.index(b" ")]), fields[0].decode(), int(fields[1]), int(fields[17]), int(fields[19])
    )


def ignore_the_end(tail):
    return None if not tail.strip() else record.parse_process(tail.split(b"\n")[0].removeprefix(b"child "))


def ignore_the_rest(flag, text):
    """Read 1m30 as a minute."""
    match = re.match(r"(\d+)m", text, re.A)
    return float(match[1]) * 60 if match and text.isascii() else WHOLE["read_duration"](flag, text)


def drop_a_byte(word):
    return WHOLE["unquote"](word).replace(b"\xff", b"")


def count_torn_lines(name, data):
    return WHOLE["parse"](name, data if data.endswith(b"\n") else data + b"\n")


def take_any_counter(gate):
    digits = os.pread(gate.fd, 20, 0)
    return int(digits) if digits.isdigit() else None


def spin(data):
    while True:
        pass


def give_up(text):
    raise KeyError(text)


WHOLE = {"read_duration": argv.read_duration, "unquote": record.unquote, "parse": reader.parse}


@pytest.mark.parametrize(
    "name, module, broken",
    [
        ("stat", identity, {"parse_stat": cut_at_the_first_bracket}),
        ("record", record, {"parse_closing": ignore_the_end}),
        ("value", argv, {"read_duration": ignore_the_rest}),
        ("words", argv, {"read_duration": ignore_the_rest}),
        ("quoted", record, {"unquote": drop_a_byte}),
        ("journal", reader, {"parse": count_torn_lines}),
        ("gate", Gate, {"read_counter": take_any_counter}),
        ("report", status_pipe, {"read_last": spin}),
        ("url", targets, {"hide_secrets": lambda query: query}),
        ("cgroup", systemd, {"find_unit": give_up}),
    ],
)
def test_a_broken_reader_is_found_within_the_sample(name, module, broken, monkeypatch):
    monkeypatch.setattr(fuzz, "PATIENCE", 0.5)
    for function, other in broken.items():
        monkeypatch.setattr(module, function, other)

    assert "why" in sample(name, 1)


# --- no reader takes quadratic time ------------------------------------------------------------------------

GROWING = {
    "record": (lambda size: b"solo 1\n" + b"a b\n" * (size // 4), record.parse_record, record.SIZE_LIMIT),
    "command": (lambda size: records.write_record(make_long_record(size)), record.parse_record, record.WORDS_LIMIT),
    "quoted": (lambda size: b"%20" * (size // 3), record.unquote, record.WORDS_LIMIT),
    "journal": (
        lambda size: b"skipped 1 a=b command=c\n" * (size // 24),
        lambda data: reader.parse("", data),
        reader.READ_LIMIT,
    ),
    "names": (
        lambda size: (
            b"skipped 1.0 uid=0 host=h launcher=1 mode=X slots=1 take=1"
            + b" name=a" * (size // 7)
            + b" code=1 command=c\n"
        ),
        lambda data: reader.parse("", data),
        reader.READ_LIMIT,
    ),
    "entry_record": (
        lambda size: json.dumps({"mode": "X", "slots": 1, "take": 1, "slot": [[0, 1]] * (size // 8)}).encode(),
        engine.parse_entry_record,
        1 << 20,
    ),
    "report": (lambda size: b"1 0 0\nx" * (size // 7), status_pipe.read_last, 1 << 16),
    "sockets": (
        lambda size: b"a 1 0 00010000 1 1 5 %ba/hold.1.X...0\n" % OURS * (size // 40),
        check_sockets,
        1 << 19,
    ),
}


def make_long_record(size: int):
    one = records.invent_record(Random(1))
    one.command = [b"a b"] * (size // 6)
    return one


def measure(read, data) -> float:
    """Return the CPU seconds, the least of three runs: the machine may be busy."""
    spans = []
    for _ in range(3):
        begin = time.process_time()
        read(data)
        spans.append(time.process_time() - begin)
    return min(spans)


def is_quadratic(make, read, limit: int) -> bool:
    """Compare two sizes: at 8 times the size, linear work takes 8 times as long, quadratic work 64 times."""
    return measure(read, make(limit)) > 32 * max(measure(read, make(limit // 8)), 1e-4)


@pytest.mark.parametrize("name", GROWING)
def test_no_reader_takes_quadratic_time(name):
    assert not is_quadratic(*GROWING[name])


def test_quadratic_time_is_detected():
    def read(data):
        while data:
            data = data[1:]

    assert is_quadratic(lambda size: bytes(size), read, 1 << 18)


# --- findings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1m30", "1h30", "2d12", "5m.", ".", "1h30m5"])
def test_a_duration_needs_a_unit_after_each_number(text):
    with pytest.raises(UsageError):
        argv.read_duration("-t", text)


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
    assert doctor.find_file_system("/proc")[0] == "proc"


def test_a_name_of_control_characters_reaches_solo_run(lab):
    name = "a\x01b\x02"
    holder = lab.hold(name)

    with pytest.raises(solo.Busy) as caught:
        solo.run(["true"], name=name, directory=lab.directory)

    assert (caught.value.name, [one.launcher for one in caught.value.holders]) == (name, [holder.pid])
