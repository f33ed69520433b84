"""`make fuzz`: it reports what it finds, finds broken readers, and readers that take quadratic time."""

import json
import os
import re
import subprocess
import sys
import time
from random import Random

import fuzz
import pytest
from conftest import ROOT
from readers import TARGETS, records
from readers.sockets import OURS, check_sockets

from solo import identity, kinds, record
from solo.api import status_pipe
from solo.engines import engine, targets
from solo.gate import Gate
from solo.history import files, reader

SHARE = 500  # inputs for each share of a target


def sample(name: str, seed: int) -> dict:
    target = TARGETS[name]
    return fuzz.run(target, seed, max(150, int(SHARE * target.share)))


def test_a_finding_is_printed_with_its_replay_and_fails_the_run(tmp_path):
    options = "--seed 1 --count 400 stat value".split()
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


WHOLE = {"read_duration": kinds.read_duration, "unquote": record.unquote, "parse": reader.parse}


@pytest.mark.parametrize(
    "name, module, broken",
    [
        ("stat", identity, {"parse_stat": cut_at_the_first_bracket}),
        ("record", record, {"parse_closing": ignore_the_end}),
        ("value", kinds, {"read_duration": ignore_the_rest}),
        ("words", kinds, {"read_duration": ignore_the_rest}),
        ("quoted", record, {"unquote": drop_a_byte}),
        ("journal", reader, {"parse": count_torn_lines}),
        ("gate", Gate, {"read_counter": take_any_counter}),
        ("stat", identity, {"parse_stat": spin}),
        ("url", targets, {"hide_secrets": lambda query: query}),
        ("entry_record", engine, {"parse_entry_record": give_up}),
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
        files.READ_LIMIT,
    ),
    "names": (
        lambda size: (
            b"skipped 1.0 uid=0 host=h launcher=1 mode=X slots=1 take=1"
            + b" name=a" * (size // 7)
            + b" code=1 command=c\n"
        ),
        lambda data: reader.parse("", data),
        files.READ_LIMIT,
    ),
    "entry_record": (
        lambda size: json.dumps({"mode": "X", "slots": 1, "take": 1, "slot": [[0, 1]] * (size // 8)}).encode(),
        engine.parse_entry_record,
        1 << 20,
    ),
    "report": (lambda size: b"1 0 0\nx" * (size // 7), status_pipe.read_last, 1 << 16),
    "sockets": (lambda size: b"a 1 0 00010000 1 1 5 %ba/hold.1.X...0\n" % OURS * (size // 40), check_sockets, 1 << 19),
}


def make_long_record(size: int):
    one = records.invent_record(Random(1))
    one.command = [b"a b"] * (size // 6)
    return one


def measure(read, data) -> float:
    """Return the CPU seconds, the least of three runs, and no less than what the clock tells apart."""
    spans = []
    for _ in range(3):
        begin = time.process_time()
        read(data)
        spans.append(time.process_time() - begin)
    return max(1e-4, min(spans))


def is_quadratic(make, read, limit: int) -> bool:
    """Compare two sizes: at 64 times the size, linear work takes 64 times as long, quadratic work 4,096 times.

    The least of three runs is never wrong by a factor of 8, however busy the machine.
    """
    return measure(read, make(limit)) > 512 * measure(read, make(limit // 64))


@pytest.mark.parametrize("name", GROWING)
def test_no_reader_takes_quadratic_time(name):
    assert not is_quadratic(*GROWING[name])


def test_quadratic_time_is_detected():
    def read(data):
        while data:
            data = data[1:]

    assert is_quadratic(bytes, read, 1 << 17)
