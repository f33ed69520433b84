"""`make fuzz` reports what it finds, and finds broken readers."""

import os
import re
import subprocess
import sys

import fuzz
import pytest
from conftest import ROOT

from readers import TARGETS
from solo import identity, kinds, record
from solo.engines import engine, targets
from solo.gate import FileGate
from solo.history import reader

pytestmark = pytest.mark.full

SHARE = 500  # inputs for each share of a target


def sample(name: str, seed: int) -> dict:
    target = TARGETS[name]
    return fuzz.run(target, seed, max(150, int(SHARE * target.share)))


def test_a_finding_is_printed_with_its_replay_and_fails_the_run(tmp_path):
    options = "--seed 1 --count 400 stat value".split()
    words = [sys.executable, str(ROOT / "tests/tools/fuzz.py"), *options]
    broken = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom solo import identity\n"
        "whole = identity.parse_stat\n"
        "identity.parse_stat = lambda data: whole(data.replace(b')', b'(', data.count(b')') - 1)[:-9])\n"
    )

    clean = subprocess.run(words, capture_output=True, text=True)
    found = subprocess.run(words, capture_output=True, text=True, env=broken)

    assert (clean.returncode, found.returncode) == (0, 1), (
        clean.stdout + clean.stderr + found.stderr
    )
    assert "no crash, no hang, no wrong answer" in clean.stdout and "SEED=1" in clean.stdout
    assert "--replay stat " in found.stdout and "1 found" in found.stdout


def cut_at_the_first_bracket(data):
    fields = data[data.index(b")") + 2 :].split()
    return identity.Stat(
        int(data[: data.index(b" ")]),
        fields[0].decode(),
        int(fields[1]),
        int(fields[17]),
        int(fields[19]),
    )


def ignore_the_rest(flag, text):
    """Read 1m30 as a minute."""
    match = re.match(r"(\d+)m", text, re.A)
    return float(match[1]) * 60 if match and text.isascii() else WHOLE["read_duration"](flag, text)


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
        (
            "record",
            record,
            {
                "parse_closing": lambda tail: (
                    tail.strip() and record.parse_process(tail.split(b"\n")[0][6:]) or None
                )
            },
        ),
        ("value", kinds, {"read_duration": ignore_the_rest}),
        ("words", kinds, {"read_duration": ignore_the_rest}),
        ("quoted", record, {"unquote": lambda word: WHOLE["unquote"](word).replace(b"\xff", b"")}),
        (
            "journal",
            reader,
            {"parse": lambda name, data: WHOLE["parse"](name, data.removesuffix(b"\n") + b"\n")},
        ),
        ("gate", FileGate, {"read_counter": take_any_counter}),
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
